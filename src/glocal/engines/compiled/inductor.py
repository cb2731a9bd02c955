"""A function of tensors as one compiled program.

The function is traced by running it on tensors without data, so that whatever can be vmapped can be
compiled, and TorchInductor makes the program: C++ on a CPU, Triton on a GPU. Shapes are fixed.
"""

from __future__ import annotations

import logging
import math
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from glocal.engines.compiled import decompositions, large_products
from glocal.engines.compiled.cuda_graphs import note
from glocal.engines.compiled.epilogues import fuse_epilogues
from glocal.engines.compiled.fused_sgd import fuse_updates
from glocal.engines.compiled.self_check import (
    rounded,
    same_change,
    same_for_most,
    within_rounding,
)
from glocal.engines.compiled.shortcuts import shortcuts
from glocal.engines.compiled.tricks import Tricks, tricks_of
from glocal.engines.compiled.updates_apart import compiled_apart

InPlace = Callable[..., None]
"""Changes some of the tensors it is given."""

Compiled = tuple[InPlace, frozenset[int]]
"""A program, and which of its inputs it does not read."""

MIN_STEPS = {"cpu": 5_000, "cuda": 40_000}
"""Steps in all from which compiling pays (docs/measurements/speed.md has the numbers): it takes
about as long as several thousand uncompiled steps of the same model, whatever the model."""

MIN_STEPS_OF_CONVOLUTIONS = 2_000
"""The same on a CPU where a step has convolutions: it saves milliseconds, and not a part of one."""

SLOW_OPERATIONS = 2_000
"""Operations of a step from which a note says that compiling takes minutes: a recurrent model on 20
tokens has 2,500 of them and takes one (docs/measurements/speed.md)."""

MAX_OPERATIONS = 4_000
"""Operations of a step up to which ``auto`` compiles it: a C++ compiler takes ever longer for
each, as it makes one function of them."""

MAX_MADE = 32
"""Programs that are kept for other trainings."""

_MADE: OrderedDict[Any, Callable[[list[Tensor]], Any]] = OrderedDict()
"""Programs by their text and the shapes of their inputs: methods have steps in common, and so have
the trainings in which a method is tuned."""

_COMPILING = Lock()
"""TorchInductor's settings are the process's: one thread compiles at a time."""


class _TooManyOperationsError(Exception):
    """The step has more operations than are compiled without being asked for."""


def pays(steps: int, device: torch.device, convolutional: bool) -> bool:
    """The rule behind ``auto``: of the run's length, device and layers, never of a clock."""
    if convolutional and device.type == "cpu":
        return steps >= MIN_STEPS_OF_CONVOLUTIONS
    return steps >= MIN_STEPS.get(device.type, sys.maxsize)


def compile_step(
    step: InPlace,
    inputs: Sequence[Tensor],
    changed: int,
    *,
    half_precision: bool = False,
    single_thread: bool = False,
    max_operations: float = math.inf,
) -> Compiled | None:
    """``step`` on tensors like these as a compiled program; None, and a note, if it cannot be.

    It changes the first ``changed`` of its inputs. Step and program are compared on copies of
    these, and from where the step leads (what is zero at first may hide an error); if a change
    comes out differently one without tricks is made, and if that is no better, none is used: a
    wrong program would be worse than a slow one.
    ``single_thread``: one thread runs it, while others may run it at the same time.
    """

    def result(function: InPlace, start: Sequence[Tensor]) -> list[Tensor]:
        tensors = [t.clone() for t in start]
        function(*tensors, *inputs[changed:])
        return tensors

    def same(program: InPlace, start: Sequence[Tensor], end: Sequence[Tensor]) -> bool:
        made = result(program, start)
        changes = zip(start, made, end, strict=True)
        if all(same_change(*one, half_precision) for one in changes if one[0].numel()):
            return True
        if not half_precision and same_for_most(start, made, end):
            return True
        # Of many layers rounding may be much: as much as it does to the step itself is allowed.
        moved = result(step, [rounded(t) for t in start])
        pairs = zip(made, end, moved, strict=True)
        return all(within_rounding(*one) for one in pairs if one[0].numel())

    try:
        with _COMPILING, _quiet():
            first = result(step, inputs[:changed])
            second = result(step, first)
            all_tricks = tricks_of(inputs[0].device)
            plain = [each for each in all_tricks if each.is_plain]
            for tricks in filter(None, (all_tricks, plain)):
                program, unread = _first_that_works(
                    lambda tricks: _compiled(
                        step, inputs, changed, single_thread, tricks, max_operations
                    ),
                    tricks,
                    _instructions_tried_out,
                )
                if same(program, inputs[:changed], first) and same(program, first, second):
                    return program, unread
        reason = "what was made of it comes out differently"
    except _TooManyOperationsError:
        return None
    except Exception as error:  # whatever tracing, a missing compiler or another torch raises
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    note(f"the training step cannot be compiled here ({reason[:160]}): it goes on uncompiled.")
    return None


_TRIED_OUT = [False]
"""Whether what instructions the C++ compiler knows is to be tried out."""


def _first_that_works(
    make: Callable[[Tricks], Compiled],
    tricks: Sequence[Tricks],
    before_second: Callable[[], None],
) -> Compiled:
    """With as many tricks as this torch knows.

    Once more where the C++ compiler fails: it may not know the processor's instructions, or a
    signal that stops the run may have reached it first.
    """
    for fewer in tricks[:-1]:
        for attempt in range(2):
            try:
                return make(fewer)
            except _TooManyOperationsError:
                raise
            except Exception as error:
                if attempt or "CppCompileError" not in str(error):
                    break
            before_second()
    return make(tricks[-1])


def _instructions_tried_out() -> None:
    """From now on TorchInductor tries out what instructions the C++ compiler knows.

    It compiles a program for each, which takes ten seconds: by rule the compiler knows them.
    """
    from torch._inductor import cpu_vec_isa

    _TRIED_OUT[0] = True
    getattr(cpu_vec_isa.valid_vec_isa_list, "cache_clear", lambda: None)()


def _compiled(
    step: InPlace,
    inputs: Sequence[Tensor],
    changed: int,
    single_thread: bool,
    tricks: Tricks,
    max_operations: float,
) -> Compiled:
    # Imported here: the compiler takes seconds to import, and most runs are too short for it.
    from torch._functorch import config as functorch
    from torch._inductor import config
    from torch._inductor.compile_fx import compile_fx, compile_fx_inner
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    def traced(*tensors: Tensor) -> tuple[()]:
        step(*tensors)
        return ()

    device = inputs[0].device
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    shapes = [mode.from_tensor(t, static_shapes=True) for t in inputs]
    with torch.no_grad():
        with mode:
            graph = make_fx(traced, _allow_non_fake_inputs=True)(*shapes)
        graph.graph.eliminate_dead_code()
        if tricks.fused:
            faster = large_products.is_faster if tricks.large else None
            fuse_updates(graph.graph, decompositions.SMALL_PRODUCT, faster)
        operations = len(graph.graph.nodes)
        if operations > max_operations:
            raise _TooManyOperationsError
        if operations > SLOW_OPERATIONS:
            note(
                f"compiling a training step of {operations:,} operations takes minutes; "
                "--engine vectorised does without."
            )
        named = [node for node in graph.graph.nodes if node.op == "placeholder"]
        unread = frozenset(i for i, node in enumerate(named) if not node.users)
        constants = _lifted(graph)
        for constant, node in constants.items():
            node.meta["val"] = mode.from_tensor(constant, static_shapes=True)
            shapes.append(node.meta["val"])
        rest = list(constants)
        known = _known_by(graph, [*inputs, *rest], single_thread, tricks)
        if known in _MADE:
            _MADE.move_to_end(known)
            return _with(_MADE[known], rest), unread
        convolves = _convolves(graph)
        _inputs_in_memory()
        # The cache by the graph as it is traced does not know of rules; the one behind them does.
        with (
            config.patch(_settings(config, device, single_thread, convolves, tricks.untimed)),
            functorch.patch(enable_autograd_cache=False),
            shortcuts(),
            large_products.weights_that_change() if tricks.large else nullcontext(),
        ):
            compiled: list[Any] = []

            def inner(lowered: Any, given: Sequence[Any], **options: Any) -> Any:
                if len(given) != len(shapes):  # it would read what nobody gives it
                    raise RuntimeError("it takes other inputs than it was traced with")
                if tricks.epilogue:
                    fuse_epilogues(lowered)
                program = None
                if tricks.apart and not convolves and hasattr(config, "combo_kernels"):
                    program = compiled_apart(compile_fx_inner, lowered, given, **options)
                compiled.append(program or compile_fx_inner(lowered, given, **options))
                return compiled[-1]

            rules = decompositions.rules(device, thin=not convolves, large=tricks.large)
            whole: Any = compile_fx(graph, shapes, inner_compile=inner, decompositions=rules)
            copies = (t.clone() for t in inputs[:changed])
            whole(*copies, *inputs[changed:], *constants)  # the first call makes it
    (program,) = compiled  # what is around it is for programs that are differentiated
    call = program.current_callable
    if known is not None:
        _MADE[known] = call
        while len(_MADE) > MAX_MADE:
            _MADE.popitem(last=False)
    return _with(call, rest), unread


def _with(call: Callable[[list[Tensor]], Any], rest: list[Tensor]) -> InPlace:
    """A program with its constants."""

    def program(*tensors: Tensor) -> None:
        call([*tensors, *rest])

    return program


def _known_by(graph: Any, inputs: Sequence[Tensor], single_thread: bool, tricks: Tricks) -> Any:
    """What two steps have in common that are the same program; None: it cannot be said."""
    if any(True for _ in graph.graph.find_nodes(op="get_attr")):
        return None  # a part of it is not in its text
    of_inputs = tuple((t.shape, t.stride(), t.dtype, t.device) for t in inputs)
    tf32 = torch.backends.cuda.matmul.allow_tf32  # the kernels have it written into them
    return graph.code, of_inputs, single_thread or torch.get_num_threads(), tricks, tf32


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


READS = 40
"""Numbers that a kernel on a CPU may read for each one it writes. The compiler's own limit would
put a gradient that is written out, as a sum over a mini-batch, into memory before it is used."""


AT_ONCE = 16
"""Kernels that are launched as one, at most: a step has two or so for each layer's update."""


def _convolves(graph: Any) -> bool:
    """Whether there is a convolution of clients' own kernels in a trace."""
    return any("output_of" in str(node.target) for node in graph.graph.nodes)


OPERATORS = ("output_of_many", "kernels_of_many", "output_of_few", "kernels_of_few", "thin_product")
"""Those of our own that read their inputs from memory."""


def _inputs_in_memory() -> None:
    """Tell the compiler that our operators read from memory.

    It would learn so when it meets one for the first time, after it has decided that what the
    operator reads is computed once more, place by place, wherever else it is read.
    """
    from torch._inductor import lowering

    told = getattr(lowering, "add_needs_realized_inputs", None)
    if told is not None:
        told([getattr(torch.ops.glocal, name).default for name in OPERATORS])


def _settings(
    config: Any,
    device: torch.device,
    single_thread: bool,
    convolves: bool,
    untimed: bool = False,
) -> dict[str, Any]:
    settings: dict[str, Any] = {"unroll_reductions_threshold": decompositions.THIN + 1}
    if device.type == "cpu":
        both = ("realize_cpu_acc_reads_threshold", "realize_acc_reads_threshold")
        settings[next(name for name in both if hasattr(config, name))] = READS
        # It would turn images so that channels lie side by side, for convolutions that gain nothing
        # by it, and around them every kernel then reads and writes across the grain.
        settings["layout_optimization"] = False
        if config.cpp.vec_isa_ok is None and not _TRIED_OUT[0]:
            settings["cpp.vec_isa_ok"] = True
    elif hasattr(config, "combo_kernels") and not convolves:
        # Kernels that do not wait for each other are launched as one. Of images in turned layouts
        # this makes one that reads across the grain, and took 16 times as long.
        settings["combo_kernels"] = True
        if hasattr(config, "combo_kernel_max_num_nodes"):
            settings["combo_kernel_max_num_nodes"] = AT_ONCE
    if untimed:
        wanted = {"deterministic": True, "dynamic_scale_rblock": False}
        settings |= {name: value for name, value in wanted.items() if hasattr(config, name)}
    if single_thread:  # with this wrapper it lets go of Python while it runs
        settings |= {"cpp.threads": 1, "cpp_wrapper": True, "size_asserts": False}
    if torch.__version__ < "2.7":  # its cache works within torch.compile only
        settings["fx_graph_cache"] = False
    return settings


@contextmanager
def _quiet() -> Iterator[None]:
    """Nothing but our own note says what went wrong."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
