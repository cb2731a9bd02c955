"""Functions of tensors as CUDA graphs: launched as one, whatever they are made of.

A graph reads and writes the same memory every time, so inputs are copied to where it reads, and
what it returns is overwritten by its next call. On a CPU a function is traced: its operations
are called without the Python that was around them.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.progress import print_note
from glocal.core.types import Tree


class Captured:
    """A function from a tree of tensors to a tree of tensors (or to nothing), of any shapes.

    One that is not ``traceable`` (it looks at the numbers in tensors) is called as it is on a CPU.
    """

    def __init__(
        self, function: Callable[[Tree], Any], device: torch.device, *, traceable: bool = True
    ) -> None:
        self.function = function
        self.make = replayed if device.type == "cuda" else trace if traceable else None
        self.made: dict[Any, Callable[..., Any]] = {}
        """For each structure of inputs, a function of their leaves."""

    def __call__(self, inputs: Tree) -> Any:
        """What the function returns; on a GPU, until its next call."""
        if self.make is None:
            return self.function(inputs)
        named = list(tree.flatten(inputs))
        shapes = tuple((name, leaf.shape, leaf.dtype) for name, leaf in named)
        if shapes not in self.made:
            made = self.make(self.function, inputs)
            if made is None:
                self.make = None
                return self.function(inputs)
            self.made[shapes] = made
        return self.made[shapes](*(leaf for _, leaf in named))


def replayed(function: Callable[[Tree], Any], inputs: Tree) -> Callable[..., Any] | None:
    """The function on such inputs as a graph, as a function of their leaves; None: it cannot be."""
    read = tree.map(lambda x: x.clone(memory_format=torch.contiguous_format), inputs)
    recorded = record(lambda: function(read))
    if recorded is None:
        return None
    (graph, output), buffers = recorded, tree.leaves(read)

    def replay(*leaves: Tensor) -> Any:
        if buffers:
            torch._foreach_copy_(buffers, list(leaves))
        graph.replay()
        return output

    return replay


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
    """The function as a graph, and what it returns; it runs once before. None: it cannot be."""
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
            output = function()
    except RuntimeError as error:
        torch.cuda.synchronize()
        reason = next(iter(str(error).strip().splitlines()), "")
        note(
            f"a part of the round cannot be captured as a graph ({reason[:160]}): it runs as it is."
        )
        return None
    finally:
        if collects:
            gc.enable()
    return graph, output


note = cache(print_note)
"""Print a line on standard error, once."""
