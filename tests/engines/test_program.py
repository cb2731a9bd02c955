"""Steps of fixed shapes: blocks, plans with room for anybody, compiling and its rule, threads."""

from __future__ import annotations

import shutil
from dataclasses import replace
from threading import Barrier
from typing import Any

import pytest
import torch
from test_engines import work

import glocal
import toys
from conftest import compiles
from glocal import engines
from glocal.core import rng, tree
from glocal.core.errors import ClientError
from glocal.engines import CohortRound, Sequential, Vectorised, resolve
from glocal.engines.base import Workload
from glocal.engines.compiled import blocks, cuda_graphs, decompositions, program
from glocal.engines.compiled import inductor as compiling
from glocal.nn.optim import sgd
from glocal.nn.task import Task
from glocal.slots.client import Local, Phase, minibatch_training


def close(a: tuple[Any, Any], b: tuple[Any, Any]) -> None:
    for x, y in ((a[0].update, b[0].update), (a[1], b[1])):
        for name, leaf in tree.flatten(x):
            torch.testing.assert_close(dict(tree.flatten(y))[name], leaf, rtol=1e-4, atol=1e-6)


def test_the_rule_looks_at_the_length_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    monkeypatch.setattr(
        program, "compile_step", lambda step, *_, **__: made.append(True) or (step, frozenset())
    )
    engine = resolve("auto", Task(toys.dropout_net()), torch.device("cpu"))
    job = work()
    enough = compiling.MIN_STEPS["cpu"]
    engine.round(replace(job, workload=Workload(enough - 1, 6)))
    assert made == []
    for _ in range(2):  # made once for all rounds
        engine.round(replace(job, workload=Workload(enough, 6)))
    assert made == [True]
    resolve("vectorised", job.task, torch.device("cpu")).round(
        replace(job, workload=Workload(enough, 6))
    )
    assert made == [True]


def test_large_dense_models_are_compiled_or_trained_one_by_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engines, "DENSE_LIMIT", 1)
    cuda_graphs.note.cache_clear()
    job, cpu, enough = work(needs_loss=True), torch.device("cpu"), compiling.MIN_STEPS["cpu"]
    engine = resolve("auto", job.task, cpu)
    assert engine.name == "sequential"
    alone = Sequential().round(job)

    def the_same(made: Any) -> bool:
        both = zip(tree.leaves(made[0].update), tree.leaves(alone[0].update), strict=True)
        return all(torch.equal(a, b) for a, b in both)

    assert the_same(engine.round(replace(job, workload=Workload(enough - 1, 6))))
    tried = []

    def watched(step: Any, *rest: Any, **options: Any) -> Any:
        tried.append(True)
        raise RuntimeError("no compiler")

    # Where it cannot be compiled: as if the run were short, from its first round on.
    monkeypatch.setattr(compiling, "_compiled", watched)
    for _ in range(2):
        made = engine.round(replace(job, workload=Workload(enough, 6)))
        assert the_same(made)
        assert torch.equal(made[0].loss, alone[0].loss)
    assert len(tried) == len(compiling.tricks_of(torch.device("cpu")))  # once each
    assert "no compiler" in capsys.readouterr().err


@compiles
def test_large_dense_models_are_compiled_where_the_run_is_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engines, "DENSE_LIMIT", 1)
    job = replace(work(needs_loss=True), workload=Workload(compiling.MIN_STEPS["cpu"], 6))
    engine = resolve("auto", job.task, torch.device("cpu"))
    assert isinstance(engine, Vectorised)
    made, alone = engine.round(job), Sequential().round(job)
    close(made, alone)
    torch.testing.assert_close(made[0].loss, alone[0].loss)
    assert len(engine.programs.kept) == 1


@compiles
def test_convolutions_are_compiled_client_by_client_where_the_run_is_long() -> None:
    fed, task = toys.images(), Task(toys.group_norm_net())
    local = minibatch_training(sgd(0.1, momentum=0.9), batch_size=4)
    down = {"params": task.params, "lr": torch.tensor(1.0)}
    job = CohortRound(task, local, fed, down, torch.arange(4), {}, rng.key(3), needs_loss=True)
    long = replace(job, workload=Workload(compiling.MIN_STEPS_OF_CONVOLUTIONS, 4))
    engine, alone = resolve("auto", task, torch.device("cpu")), Sequential().round(job)
    engine.round(replace(job, workload=Workload(compiling.MIN_STEPS_OF_CONVOLUTIONS - 1, 4)))
    assert engine.executed == "sequential"  # too short to pay for compiling
    made = engine.round(long)
    assert engine.executed == "compiled"
    close(made, alone)
    torch.testing.assert_close(made[0].loss, alone[0].loss)
    (kept,) = engine.programs.kept.values()
    assert (kept.width, kept.single_thread) == (1, True)
    # Of whoever is in a cohort, a client's result is the same to the bit.
    two = engine.round(long.subset(slice(1, 3)))
    for name, leaf in tree.flatten(two[0].update):
        assert torch.equal(leaf, dict(tree.flatten(made[0].update))[name][1:3])


@pytest.mark.parametrize(
    ("spec", "executed"),
    [
        ("fedcgan(width=4, steps=1)", "sequential"),
        ("fedcgan(width=4, steps=1, dense=true)", "vectorised"),
        ("fedevg(steps=1)", "vectorised"),  # what it sends are images, and no weights
    ],
)
def test_a_methods_own_convolutions_are_trained_one_by_one(spec: str, executed: str) -> None:
    run = glocal.fit(spec, glocal.load("digits", clients=3), rounds=1, baseline="none")
    assert run.repeats[0].engine == executed


def test_workers_compute_on_one_thread_whatever_the_others_have() -> None:
    before, number = torch.get_num_threads(), 3
    torch.set_num_threads(2)
    try:
        pool, meeting = program.workers(number), Barrier(number)

        def threads(_: int) -> int:
            meeting.wait()  # so that each of them answers
            return torch.get_num_threads()

        assert list(pool.map(threads, range(number))) == [1] * number
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def remembers() -> Local:
    """Keeps what it received and sends its weights too: neither is a copy."""
    base = minibatch_training()

    def finish(task: Task, down: Any, carry: Any) -> Any:
        update, _, _ = base.finish(task, down, carry)
        return update, {"last": down["params"]}, {"weights": carry["w"]}

    return base.replace(init=lambda task, params, key: {"last": params}, finish=finish)


def test_what_is_given_back_is_nobodys_buffer() -> None:
    states = tree.stack([{"last": Task(toys.dropout_net()).params}] * 6)
    job = work(remembers(), states)
    engine = Vectorised(in_blocks=True)
    first = engine.round(job)
    other = tree.map(lambda x: x * 0.5, job.down["params"])
    engine.round(replace(job, down={**job.down, "params": other}))
    close(first, Sequential().round(job))


def test_a_function_that_cannot_be_traced_is_called() -> None:
    def looks(inputs: Any) -> Any:
        return {"y": inputs["x"] * 2} if float(inputs["x"].sum()) > 0 else {"y": inputs["x"]}

    looking = cuda_graphs.Captured(looks, torch.device("cpu"))
    for x in (torch.ones(3), -torch.ones(3)):
        assert torch.equal(looking({"x": x})["y"], looks({"x": x})["y"])
    assert not looking.made


def test_a_traced_function_knows_inputs_by_name_and_shape() -> None:
    calls = []

    def traced(inputs: Any) -> Any:
        calls.append(1)
        return inputs["a"] - inputs["b"]

    ours = cuda_graphs.Captured(traced, torch.device("cpu"))
    for n in (2, 3, 2, 3):
        a, b = torch.arange(n), torch.ones(n)
        assert torch.equal(ours({"a": a, "b": b}), a - b)
        assert torch.equal(ours({"b": b, "a": a}), a - b)
    assert len(calls) == 4


def test_programs_of_old_trainings_are_let_go() -> None:
    engine = Vectorised(in_blocks=True)
    for lr in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6):
        engine.round(work(minibatch_training(sgd(lr))))
    assert len(engine.programs.kept) == 4


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_a_compiled_step_is_the_same_step(capsys: pytest.CaptureFixture[str]) -> None:
    job = work(minibatch_training(sgd(0.1, momentum=0.9), epochs=2, batch_size=4))
    engine = Vectorised(compiled=True)
    workload = Workload(0, 4)
    first = engine.round(replace(job, workload=workload))
    close(first, Sequential().round(job))
    # Another cohort, in another order and with other parameters: made once, right again.
    down = {**job.down, "params": tree.map(lambda x: x * 0.5, job.down["params"])}
    other = replace(job, ids=job.ids[[5, 1, 3]], down=down, key=rng.key(9))
    close(engine.round(replace(other, workload=workload)), Sequential().round(other))
    assert len(engine.programs.kept) == 1
    close(first, Sequential().round(job))  # what was given back is not overwritten
    assert capsys.readouterr().err == ""


@compiles
def test_what_takes_minutes_to_compile_is_announced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiling, "SLOW_OPERATIONS", 10)
    cuda_graphs.note.cache_clear()
    Vectorised(compiled=True).round(work())
    said = capsys.readouterr().err
    assert "operations takes minutes; --engine vectorised does without" in said
    assert said.count("\n") == 1


def test_what_takes_too_long_to_compile_is_compiled_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "MAX_OPERATIONS", 10)
    job = replace(work(), workload=Workload(compiling.MIN_STEPS["cpu"], 6))
    engine = Vectorised(compiled=None)
    close(engine.round(job), Sequential().round(job))
    (kept,) = engine.programs.kept.values()
    assert kept.refused
    assert capsys.readouterr().err == ""


def test_where_compiling_fails_it_goes_on_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> Any:
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(compiling, "_compiled", fails)
    cuda_graphs.note.cache_clear()
    job = work()
    for _ in range(2):
        close(Vectorised(compiled=True).round(job), Sequential().round(job))
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be compiled here (no compiler): it goes on uncompiled" in said


@pytest.mark.parametrize("right", [0, 1])
def test_a_program_that_comes_out_differently_is_not_used(
    right: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(step: Any, *_: Any) -> Any:
        """Updates a hundredth too long, next to nothing of the weights; the first may be right."""
        times: list[int] = []

        def longer(*tensors: Any) -> None:
            before = tensors[0].clone()
            step(*tensors)
            if len(times) >= right:
                tensors[0].add_(tensors[0] - before, alpha=0.01)
            times.append(1)

        return longer, frozenset()

    monkeypatch.setattr(compiling, "_compiled", wrong)
    cuda_graphs.note.cache_clear()
    job = work()
    close(Vectorised(compiled=True).round(job), Sequential().round(job))
    assert "comes out differently" in capsys.readouterr().err


@pytest.fixture
def two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def rounds_of(job: CohortRound) -> Any:
    uplink, states = Sequential().round(job)
    return [uplink.loss, *tree.leaves(uplink.update), *tree.leaves(states)]


def test_threads_change_no_bit(two_threads: None) -> None:
    states = tree.stack([{"v": Task(toys.dropout_net()).params}] * 6)
    job = work(toys.own_client(), states, needs_loss=True)
    at_once = rounds_of(job)
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    for a, b in zip(at_once, rounds_of(job), strict=True):
        assert torch.equal(a, b)


def test_a_client_that_fails_in_a_thread_is_named(two_threads: None) -> None:
    job = work()
    broken = replace(job, fed=replace(job.fed, y_train=job.fed.y_train.clone()))
    broken.fed.y_train[broken.fed.train.of(3)] = 99
    with pytest.raises(ClientError, match=f"client {job.fed.names[3]} failed at train, step 0"):
        Sequential().round(broken)
    assert torch.get_num_threads() == 2


@compiles
def test_blocks_on_threads_are_the_same_blocks(
    two_threads: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ragged clients with dropout, a client in each block, two of them trained at once."""
    monkeypatch.setattr(blocks, "CACHE", 1)
    job = replace(work(), workload=Workload(0, 6))
    engine = Vectorised(compiled=True)
    made = engine.round(job)
    close(made, Sequential().round(job))
    (kept,) = engine.programs.kept.values()
    assert kept.width == 1
    assert kept.single_thread
    assert kept.compiled == {0}
    assert torch.get_num_threads() == 2
    torch.set_num_threads(1)
    again = engine.round(job)
    for a, b in zip(tree.leaves(made[0].update), tree.leaves(again[0].update), strict=True):
        assert torch.equal(a, b)
    assert capsys.readouterr().err == ""


def two_phases() -> Local:
    """A long phase, then a shorter one."""
    base = minibatch_training()
    return base.replace(phases=(Phase("long", 3, base.step), Phase("short", 1, base.step)))


@compiles
def test_a_later_phase_is_compiled_at_its_own_first_step(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times: list[int] = []

    def watched(step: Any, inputs: Any, *rest: Any, **options: Any) -> Any:
        times.append(int(inputs[-1]))
        return compiling.compile_step(step, inputs, *rest, **options)

    monkeypatch.setattr(program, "compile_step", watched)
    job = work(two_phases())
    close(Vectorised(compiled=True).round(job), Sequential().round(job))
    assert times == [0, 0]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize(("size", "step"), [(1, 1), (3, 1), (3, 2), (2, 3), (4, 4), (7, 5)])
def test_the_gradient_of_unfold_is_added_up_in_order(dim: int, size: int, step: int) -> None:
    shape = [3, 2, 4]
    shape[dim] = 9
    patches = torch.randn(shape, dtype=torch.float64).unfold(dim, size, step)
    gradient = torch.randn_like(patches)
    expected = torch.ops.aten.unfold_backward(gradient, shape, dim, size, step)
    torch.testing.assert_close(decompositions.folded(gradient, shape, dim, size, step), expected)
    rules = decompositions.rules(torch.device("cuda"), thin=True, large=False)
    assert rules[torch.ops.aten.unfold_backward.default] is decompositions.folded
