"""Functions of tensors as CUDA graphs: launched as one, whatever they are made of.

A graph reads and writes the same memory every time, so inputs are copied to where it reads, and
what it gives back is overwritten by its next call. Elsewhere than on a GPU functions are called as
they are.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from glocal import tree
from glocal.types import Tree


class Captured:
    """A function from a tree of tensors to a tree of tensors (or to nothing), of any shapes."""

    def __init__(self, function: Callable[[Tree], Any], device: torch.device) -> None:
        self.function = function
        self.captures = device.type == "cuda"
        self.graphs: dict[str, tuple[list[Tensor], torch.cuda.CUDAGraph, Any]] = {}

    def __call__(self, inputs: Tree) -> Any:
        """What the function gives back, until its next call."""
        if self.captures:
            leaves, shapes = tree.leaves(inputs), str(tree.structure(inputs))
            if shapes not in self.graphs:
                self._capture(inputs, shapes)
        if not self.captures:
            return self.function(inputs)
        own, graph, answer = self.graphs[shapes]
        _copy(own, leaves)
        graph.replay()
        return answer

    def _capture(self, inputs: Tree, shapes: str) -> None:
        own = tree.map(lambda x: x.clone(memory_format=torch.contiguous_format), inputs)
        graph = record(lambda: self.function(own))
        if graph is None:
            self.captures = False
        else:
            self.graphs[shapes] = (tree.leaves(own), *graph)


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
        with torch.cuda.graph(graph):
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
