"""A function of tensors as one compiled program.

The function is traced by running it on tensors without data, so that whatever can be vmapped can be
compiled, and TorchInductor makes the program: C++ on a CPU, Triton on a GPU. Shapes are fixed.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from glocal.engines.compiled.cuda_graphs import say
from glocal.engines.compiled.fused_sgd import add_in_place
from glocal.engines.compiled.rng_ops import left_alone

InPlace = Callable[..., None]
"""Changes some of the tensors it is given."""

Made = tuple[InPlace, frozenset[int]]
"""A program, and which of its inputs it does not look at."""

LONG = {"cpu": 5_000, "cuda": 40_000}
"""Steps in all from which compiling pays (docs/speed.md has the numbers): it takes about as long as
several thousand uncompiled steps of the same model, whatever the model."""

MANY = 2_000
"""Operations of a step from which it is said that compiling takes minutes: a recurrent model on 20
tokens has 2,500 of them and takes one (docs/speed.md)."""

MOST = 4_000
"""Operations of a step up to which ``auto`` compiles it: a C++ compiler takes ever longer for
each, as it makes one function of them."""


class _TooManyError(Exception):
    """More operations than are compiled without being asked for."""


def pays(steps: int, device: torch.device) -> bool:
    """The rule: of the length of the run and the device alone, never of a clock."""
    return steps >= LONG.get(device.type, sys.maxsize)


def compiled(
    function: InPlace,
    inputs: Sequence[Tensor],
    changed: int,
    *,
    rough: bool = False,
    alone: bool = False,
    most: float = math.inf,
) -> Made:
    """``function`` of tensors like these, compiled, and which of them it does not look at.

    Where compiling fails it is as it was. It changes the first ``changed`` of its inputs. Both are
    tried on copies of these, and from where the function leads (what is zero at first may hide an
    error), and if a change comes out differently the program is not used: a wrong one would be
    worse than a slow one. ``rough``: it computes in half precision somewhere.
    ``alone``: one thread runs it, and others may run it at the same time. ``most``: operations up
    to which it is tried at all.
    """

    def tried(one: InPlace, start: Sequence[Tensor]) -> list[Tensor]:
        own = [t.clone() for t in start]
        one(*own, *inputs[changed:])
        return own

    def same(made: InPlace, start: Sequence[Tensor], end: Sequence[Tensor]) -> bool:
        all_three = zip(start, tried(made, start), end, strict=True)
        return all(_same_change(*one, rough) for one in all_three if one[0].numel())

    try:
        with _quiet():
            made, unread = _tried(
                lambda way: _compiled(function, inputs, changed, alone, way, most)
            )
            first = tried(function, inputs[:changed])
            second = tried(function, first)
            if same(made, inputs[:changed], first) and same(made, first, second):
                return made, unread
        reason = "what was made of it comes out differently"
    except _TooManyError:
        return function, frozenset()
    except Exception as error:  # whatever tracing, a missing compiler or a backend raises
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    say(f"the training step cannot be compiled here ({reason[:160]}): it goes on uncompiled.")
    return function, frozenset()


def _tried(make: Callable[[bool], Made]) -> Made:
    """With gradients added in place, or without where this torch does not know how."""
    try:
        return _twice(lambda: make(True))
    except _TooManyError:
        raise
    except Exception:
        return _twice(lambda: make(False))


def _twice(make: Callable[[], Made]) -> Made:
    """Once more where the compiler fails: what stops a run may have reached it first."""
    try:
        return make()
    except Exception as error:
        if "CppCompileError" not in str(error):
            raise
        return make()


def _same_change(before: Tensor, made: Tensor, plain: Tensor, rough: bool) -> bool:
    """Whether two changes are the same to rounding: every number, or where that is rough, in all.

    In half precision some units near zero are on in one and off in the other; what comes through
    them differs by as much as it is.
    """
    order, tolerance = (2, 0.25) if rough else (torch.inf, 1e-3)
    if not plain.is_floating_point():
        before, made, plain = (x.double() for x in (before, made, plain))
    gap, change, size = (
        torch.linalg.vector_norm(x, order) for x in (made - plain, plain - before, plain)
    )
    # Where training itself is not finite, there is nothing to compare.
    return bool((gap <= tolerance * change + 1e-6 * size) | ~change.isfinite())


def _compiled(
    function: InPlace,
    inputs: Sequence[Tensor],
    changed: int,
    alone: bool,
    in_place: bool,
    most: float,
) -> Made:
    # Imported here: the compiler takes seconds to import, and most runs are too short for it.
    from torch._functorch import config as functorch
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    def traced(*tensors: Tensor) -> tuple[()]:
        function(*tensors)
        return ()

    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    shapes = [mode.from_tensor(t, static_shapes=True) for t in inputs]
    draws = left_alone() if inputs[0].device.type == "cpu" else nullcontext()
    with torch.no_grad():
        with mode, draws:
            graph = make_fx(traced, _allow_non_fake_inputs=True)(*shapes)
        graph.graph.eliminate_dead_code()
        if in_place and inputs[0].device.type == "cpu":
            add_in_place(graph.graph, TINY)
        operations = len(graph.graph.nodes)
        if operations > most:
            raise _TooManyError
        if operations > MANY:
            say(
                f"compiling a training step of {operations:,} operations takes minutes; "
                "--engine vectorised does without."
            )
        named = [node for node in graph.graph.nodes if node.op == "placeholder"]
        unread = frozenset(i for i, node in enumerate(named) if not node.users)
        constants = _lifted(graph)
        for constant, node in constants.items():
            node.meta["val"] = mode.from_tensor(constant, static_shapes=True)
            shapes.append(node.meta["val"])
        # The cache by the graph as it is traced does not know of rules; the one behind them does.
        with (
            config.patch(_settings(config, inputs[0].device, alone)),
            functorch.patch(enable_autograd_cache=False),
        ):
            kept: list[Any] = []

            def inner(lowered: Any, given: Sequence[Any], **options: Any) -> Any:
                if len(given) != len(shapes):  # it would read what nobody gives it
                    raise RuntimeError("it takes other inputs than it was traced with")
                kept.append(compile_fx_inner(lowered, given, **options))
                return kept[-1]

            rules = _rules(inputs[0].device)
            program: Any = compile_fx(graph, shapes, inner_compile=inner, decompositions=rules)
            copies = (t.clone() for t in inputs[:changed])
            program(*copies, *inputs[changed:], *constants)  # the first call makes it
    (innermost,) = kept  # what is around it is for programs that are differentiated
    return _called(innermost, list(constants)), unread


def _lifted(graph: Any) -> dict[Tensor, Any]:
    """A model's buffers and the like, which a trace holds, as further inputs of it."""
    last = [node for node in graph.graph.nodes if node.op == "placeholder"][-1]
    inputs: dict[Tensor, Any] = {}
    for node in graph.graph.find_nodes(op="get_attr"):
        value = getattr(graph, node.target)
        if not isinstance(value, Tensor):
            continue
        if value not in inputs:
            with graph.graph.inserting_after(last):
                inputs[value] = last = graph.graph.placeholder(f"constant_{len(inputs)}")
        node.replace_all_uses_with(inputs[value])
        graph.graph.erase_node(node)
    for name in [*graph._buffers, *graph._parameters]:  # else they would be inputs once more
        delattr(graph, name)
    graph.recompile()
    return inputs


def _called(program: Any, constants: Sequence[Tensor]) -> InPlace:
    """The way into a program that takes Python the least time.

    Threads that each run one wait for each other whenever two of them are in Python at once, and
    waking up takes longer than a small step.
    """
    entry = getattr(program.current_callable, "__globals__", {}).get("inductor_entry")
    if entry is None:  # not made of C++ alone
        return lambda *tensors: program([*tensors, *constants])
    handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors
    return lambda *tensors: entry(handles([*tensors, *constants]))


THIN = 16
"""Terms up to which a sum is written out inside a kernel."""

TINY = 20_000
"""Multiplications up to which a client's product of matrices is done by a loop on a CPU."""


READS = 40
"""Numbers that a kernel on a CPU may read for each one it writes. The compiler's own limit would
put a gradient that is written out, as a sum over a mini-batch, into memory before it is used."""


def _settings(config: Any, device: torch.device, alone: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"unroll_reductions_threshold": THIN + 1}
    if device.type == "cpu":
        both = ("realize_cpu_acc_reads_threshold", "realize_acc_reads_threshold")
        settings[next(name for name in both if hasattr(config, name))] = READS
    if alone:  # with this wrapper it lets go of Python while it runs
        settings |= {"cpp.threads": 1, "cpp_wrapper": True, "size_asserts": False}
    return settings


def _rules(device: torch.device) -> dict[Any, Callable[..., Any]]:
    """How operations are taken apart before kernels are made of them.

    On a GPU, a gradient of weights is a sum over the few examples of a mini-batch. As a product of
    matrices it would go to memory and back; written out, it is made where the weights are updated.
    On a CPU, very small products cost less in a loop than as calls of a library.
    """
    from torch._inductor.decomposition import select_decomp_table

    def bmm(a: Tensor, b: Tensor) -> Any:
        rows, terms, columns = a.shape[1], a.shape[2], b.shape[2]
        if device.type == "cuda":
            apart = terms <= THIN and rows * columns >= 16 * terms
        else:
            apart = rows * terms * columns <= TINY
        return (a.unsqueeze(-1) * b.unsqueeze(1)).sum(2) if apart else NotImplemented

    rules: dict[Any, Callable[..., Any]] = dict(select_decomp_table())
    rules[torch.ops.aten.bmm.default] = bmm
    return rules


@contextmanager
def _quiet() -> Iterator[None]:
    """Whatever goes wrong is said in a line of ours."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
