"""Trainings side by side come to what each comes to by itself: every method, every engine."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from conftest import compiles
from glocal.core import rng, tree
from glocal.core.types import Tree, Uplink
from glocal.data.federation import Federation
from glocal.engines import CohortRound, Engine, Sequential, Vectorised
from glocal.engines.base import Workload
from glocal.engines.compiled import inductor
from glocal.engines.lanes import SideBySide
from glocal.experiment.chosen import with_validation
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.testing import ragged
from glocal.testing.trees import assert_same
from glocal.training.loop import Training
from glocal.training.sampling import Fixed
from specs import EVERYBODY, SMALL, SPECS

COHORTS = ((0, 2, 3, 5), (1, 4), (0, 1, 2, 3, 4, 5))
"""Of three trainings, of unequal sizes."""


def trainings(spec: str, feds: Sequence[Federation]) -> list[Training]:
    """One for each federation, with its own model and seed."""
    plan = as_plan(resolve(SMALL.get(spec, spec)))

    def task(seed: int) -> Task:
        shape = tuple(feds[0].x.shape[1:])
        return Task(models.build("mlp(7)", input_shape=shape, classes=3, seed=seed))

    sampler = Fixed(len(feds[0]) if spec in EVERYBODY else 3)
    return [Training(plan, task(r), fed, Sequential(), sampler, 5, r) for r, fed in enumerate(feds)]


def cohort_rounds(
    spec: str, feds: Sequence[Federation], cohorts: Sequence[Sequence[int]]
) -> list[CohortRound]:
    """A first round of each, moved off the start so that nobody's state is the first it had."""
    works = []
    for r, (training, ids) in enumerate(zip(trainings(spec, feds), cohorts, strict=True)):
        everybody = torch.arange(len(feds[0]))
        progress = training.begin(training.task.params)
        first = training.round_of(progress, everybody, rng.key(100 + r))
        _, states = Sequential().round(first)
        progress.clients.scatter(everybody, states)
        if spec not in EVERYBODY:
            everybody = torch.tensor(ids)
        work = training.round_of(progress, everybody, rng.key(r))
        works.append(replace(work, workload=Workload(steps=0, cohort=len(ids))))
    return works


Result = tuple[Uplink, Tree]


def each_alone(works: Sequence[CohortRound | None]) -> list[Result | None]:
    """What comes of each round by itself."""
    return [Sequential().round(work) if work else None for work in works]


def check(
    engine: Engine,
    works: Sequence[CohortRound | None],
    tolerance: float = 1e-4,
    alone: Sequence[Result | None] | None = None,
) -> None:
    """The rounds side by side against each by itself.

    Engines that keep buffers run them twice: on buffers that were used before, too.
    """
    feds = [work.fed for work in works if work is not None]
    side = SideBySide.of([work.fed if work else feds[0] for work in works])
    alone = each_alone(works) if alone is None else alone
    for again in ("",) if isinstance(engine, Sequential) else ("", ", again"):
        for r, (work, together) in enumerate(zip(works, side.rounds(engine, works), strict=True)):
            assert (work is None) == (together is None)
            expected = alone[r]
            if work is None or together is None or expected is None:
                continue
            (uplink, states), (other, kept) = expected, together
            assert torch.equal(other.ids, work.ids)
            assert torch.equal(other.n, uplink.n)
            parts = [("update", other.update, uplink.update), ("extra", other.extra, uplink.extra)]
            if work.needs_loss:
                parts.append(("loss", {"loss": other.loss}, {"loss": uplink.loss}))
            for name, a, b in [*parts, ("states", kept, states)]:
                assert_same(f"side by side ({engine.name}{again})", f"{name} {r}", a, b, tolerance)


@pytest.fixture(scope="module")
def folds() -> list[Federation]:
    """Three splits of one federation."""
    fed = ragged()
    return [fed, fed.fold(1), fed.fold(2)]


@pytest.mark.parametrize("spec", SPECS)
def test_methods(spec: str, folds: list[Federation]) -> None:
    works = cohort_rounds(spec, folds, COHORTS)
    alone = each_alone(works)
    for engine in (Sequential(), Vectorised(), Vectorised(in_blocks=True)):
        check(engine, works, alone=alone)


# dp-sgd's batches are drawn, and their steps are not compiled.
@compiles
@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec != "dp-sgd"])
def test_compiled(spec: str, folds: list[Federation], capsys: pytest.CaptureFixture[str]) -> None:
    engine = Vectorised(compiled=True)
    check(engine, cohort_rounds(spec, folds, COHORTS))
    assert engine.executed == "compiled"
    assert capsys.readouterr().err == ""


@compiles
def test_turns_are_one_program(folds: list[Federation], monkeypatch: pytest.MonkeyPatch) -> None:
    """However many trainings are side by side, and however long, and of another method's, too."""
    made: OrderedDict[object, object] = OrderedDict()
    monkeypatch.setattr(inductor, "_MADE", made)
    longer = [with_validation(fed) for fed in folds]
    for spec, feds in (("fedavg", folds), ("fedavg", longer[:2]), ("aaggff-s", longer)):
        cohorts = COHORTS[: len(feds)] if spec == "fedavg" else [range(6)] * 3
        works = [
            replace(work, workload=Workload(steps=0, cohort=4, turns=(12, 8)))
            for work in cohort_rounds(spec, feds, cohorts)
        ]
        engine = Vectorised(compiled=True)
        check(engine, works)
        assert engine.executed == "compiled"
        assert len(made) == 1


@pytest.mark.parametrize("spec", ["ditto", "q-fedavg", "superfed-mm", "scaffold"])
def test_chunks(spec: str, folds: list[Federation]) -> None:
    """Chunks that cut through a training's cohort."""
    check(Vectorised(chunk=3), cohort_rounds(spec, folds, COHORTS))


@pytest.mark.parametrize("engine", [Sequential(), Vectorised(), Vectorised(in_blocks=True)])
def test_a_training_without_a_round(engine: Engine, folds: list[Federation]) -> None:
    """One that is over, or whose cohort is empty; then another; then all."""
    works = cohort_rounds("ditto", folds, COHORTS)
    side = SideBySide.of(folds)
    for absent in ((0,), (1, 2), (0, 1, 2), ()):
        here = [None if r in absent else work for r, work in enumerate(works)]
        results = side.rounds(engine, here)
        assert [r for r, result in enumerate(results) if result is None] == list(absent)
        if len(absent) < len(works):
            check(engine, here)


def test_rows_are_copied_only_where_they_differ(folds: list[Federation]) -> None:
    side = SideBySide.of(folds)
    assert side.whole.x is folds[0].x
    # A copy of the same rows (each repeat's own, on another device) is the same rows.
    again = replace(folds[1], x=folds[1].x.clone())
    assert SideBySide.of([folds[0], again]).whole.x is folds[0].x
    noisy = replace(folds[1], y_train=(folds[1].y_train + 1) % 3)
    side = SideBySide.of([folds[0], noisy])
    assert len(side.whole.x) == 2 * len(folds[0].x)
    for r, fed in enumerate([folds[0], noisy]):
        for k in range(len(fed)):
            merged, own = side.whole[r * len(fed) + k], fed[k]
            for part in ("train", "val", "test"):
                for a, b in zip(getattr(merged, part), getattr(own, part), strict=True):
                    assert torch.equal(a, b)


def test_labels_and_features_of_its_own(folds: list[Federation]) -> None:
    """What label noise and tables that are standardised anew make of folds."""
    others = [
        folds[0],
        replace(folds[1], y_train=(folds[1].y_train + 1) % 3),
        replace(folds[2], x=folds[2].x * 2 + 1),
    ]
    works = cohort_rounds("ditto", others, COHORTS)
    for engine in (Sequential(), Vectorised()):
        check(engine, works)


def test_a_lane_has_its_own_downlink_and_key(folds: list[Federation]) -> None:
    """The same client in two trainings: equal where both send the same, else not."""
    works = cohort_rounds("fedavg", [folds[0]] * 3, [(3, 4)] * 3)
    down = works[0].down
    slower = {**down, "lr": down["lr"] * 0.5}
    works = [
        works[0],
        replace(works[0], down=slower),
        replace(works[0], key=rng.key(77)),
    ]
    results = SideBySide.of([folds[0]] * 3).rounds(Vectorised(), works)
    norms = [float(tree.norm(result[0].update)) for result in results if result]
    assert len(set(norms)) == 3
    same = SideBySide.of([folds[0]] * 3).rounds(Vectorised(), [works[0]] * 3)
    a, b = (result[0].update for result in same[:2] if result)
    for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
        torch.testing.assert_close(x, y)
