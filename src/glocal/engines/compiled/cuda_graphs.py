"""Functions of tensors as CUDA graphs: launched as one, whatever they are made of.

A graph reads and writes the same memory every time, so inputs are copied to where it reads, and
what it gives back is overwritten by its next call. On a CPU a function is traced: its operations
are called without the Python that was around them.
"""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Tree


class Captured:
    """A function from a tree of tensors to a tree of tensors (or to nothing), of any shapes.

    One that is not ``pure`` (it looks at the numbers in tensors) is not traced.
    """

    def __init__(
        self, function: Callable[[Tree], Any], device: torch.device, *, pure: bool = True
    ) -> None:
        self.function = function
        self.captures = device.type == "cuda"
        self.traces = pure and not self.captures
        self.graphs: dict[Any, tuple[list[Tensor], torch.cuda.CUDAGraph, Any]] = {}
        self.traced: dict[Any, Callable[..., Any]] = {}

    def __call__(self, inputs: Tree) -> Any:
        """What the function gives back, until its next call."""
        if self.captures or self.traces:
            named = list(tree.flatten(inputs))
            leaves = [leaf for _, leaf in named]
            shapes = tuple((name, leaf.shape, leaf.dtype) for name, leaf in named)
            if shapes not in self.graphs and shapes not in self.traced:
                self._make(inputs, shapes)
        if self.captures:
            own, graph, answer = self.graphs[shapes]
            _copy(own, leaves)
            graph.replay()
            return answer
        return self.traced[shapes](*leaves) if self.traces else self.function(inputs)

    def _make(self, inputs: Tree, shapes: Any) -> None:
        if self.traces:
            made = trace(self.function, inputs)
            if made is None:
                self.traces = False
            else:
                self.traced[shapes] = made
            return
        own = tree.map(lambda x: x.clone(memory_format=torch.contiguous_format), inputs)
        graph = record(lambda: self.function(own))
        if graph is None:
            self.captures = False
        else:
            self.graphs[shapes] = (tree.leaves(own), *graph)


def trace(function: Callable[[Tree], Any], inputs: Tree) -> Callable[..., Any] | None:
    """The function's operations on such inputs, as a function of their leaves; it runs once.

    Tensors it finds elsewhere are those it will find again. None: it cannot be traced.
    """
    from torch.fx.experimental.proxy_tensor import make_fx

    def flat(*leaves: Tensor) -> Any:
        rest = iter(leaves)
        return function(tree.map(lambda _: next(rest), inputs))

    try:
        made: Callable[..., Any] = make_fx(flat)(*tree.leaves(inputs)).forward
    except Exception:  # whatever a method does that tracing does not know: it is called as it is
        return None
    return made


def record(function: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any] | None:
    """The function as a graph, and what it gives back; it runs once before. None: it cannot be."""
    # Libraries set themselves up at a first call, which cannot be captured.
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        function()
    torch.cuda.current_stream().wait_stream(aside)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # A graph of another training that is thrown away meanwhile would break the capture.
    collects = gc.isenabled()
    gc.disable()
    try:
        with warnings.catch_warnings(), torch.cuda.graph(graph):
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            answer = function()
    except RuntimeError as error:
        torch.cuda.synchronize()
        reason = next(iter(str(error).strip().splitlines()), "")
        say(
            f"a part of the round cannot be captured as a graph ({reason[:160]}): it runs as it is."
        )
        return None
    finally:
        if collects:
            gc.enable()
    return graph, answer


def _copy(to: Sequence[Tensor], what: Sequence[Tensor]) -> None:
    if to:
        torch._foreach_copy_(list(to), list(what))


_SAID: set[str] = set()


def say(text: str) -> None:
    """A line on standard error, once."""
    if text not in _SAID:
        _SAID.add(text)
        print(f"glocal: {text}", file=sys.stderr, flush=True)
