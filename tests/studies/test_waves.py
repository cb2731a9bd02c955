"""Clients arrive in waves: who sees whose data when, what is measured, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import glocal
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.progress import silent
from glocal.data.federation import Federation
from glocal.engines import Vectorised
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import runner_of
from glocal.studies.newcomer import arrival, waves
from glocal.studies.newcomer.waves import Arrivals
from glocal.testing import ragged
from glocal.training.loop import Training
from glocal.training.run_state import Progress

QUICK = {"model": "mlp(5)", "rounds": 3, "baseline": "local(lr=0.1,max_epochs=2)"}
TWO = Arrivals(waves=("same", "same"), size=1, every=2, own_epochs=1, fraction=0.5)


def training(method: str, fed: Federation, **settings: Any) -> Training:
    setup = setups.make(Config(**{**QUICK, **settings}), fed, 0)
    runner = runner_of(method, method)
    checked = runner.check(setup)
    assert isinstance(checked, Training)
    return checked


def same(a: Any, b: Any) -> bool:
    return tree.structure(a) == tree.structure(b) and all(
        map(torch.equal, tree.leaves(a), tree.leaves(b))
    )


@pytest.mark.parametrize("method", ["fedavg", "fedavg(shared=last(1))", "ditto", "scaffold"])
def test_a_wave_before_the_first_round_was_there_from_the_start(method: str) -> None:
    """With everybody in every round and no training of its own, to the bit."""
    fed = ragged()
    whole = training(method, fed)
    at_once = whole.run(whole.begin(whole.task.params))
    before = training(method, arrival.some_clients(fed, [0, 1, 2, 3]))
    begun = before.begin(before.task.params)
    joint = arrival.joint(before, begun, arrival.some_clients(fed, list(range(6))), 1.0, new=2)
    progress = arrival.welcome(begun, joint)
    arrival.own_training(joint, progress, 0)
    for _ in range(3):
        joint.one_round(progress)
    assert same(progress.server["params"], at_once.server["params"])
    if (
        method != "scaffold"
    ):  # whose c moves by a share of all clients, who were fewer when it began
        assert same(progress.server, at_once.server)
    assert same(progress.clients.saved()[1], at_once.clients.saved()[1])


def seen_by(config: Config, fed: Federation, arrivals: Arrivals) -> tuple[waves.Seen, list[Any]]:
    """A run of FedAvg, and the ids of every cohort and the federation's size in each round."""
    cohorts: list[Any] = []

    class Watching(Vectorised):
        def round(self, cohort: Any) -> Any:
            cohorts.append((len(cohort.fed), cohort.ids.tolist()))
            return super().round(cohort)

    setup = setups.make(config, fed, 0)
    parts = waves._parts(setup, arrivals)
    job = runner_of("fedavg", "fedavg").check(replace(setup, fed=parts.feds[0], engine=Watching()))
    assert isinstance(job, Training)
    return waves._one_seed(job, parts, arrivals, lambda done, total: None), cohorts


def test_cohorts_by_hand() -> None:
    """Four old clients, then one more, which is in every round, then another."""
    seen, cohorts = seen_by(Config(**QUICK), ragged(), TWO)
    old, first, second = cohorts[:3], cohorts[3:6], cohorts[6:]
    assert old == [(4, [0, 1, 2, 3])] * 3
    assert first[0] == (5, [4])  # by itself
    assert second[0] == (6, [5])
    for size, newcomer, rounds in ((5, 4, first[1:]), (6, 5, second[1:])):
        assert len(rounds) == 2
        for fed, ids in rounds:
            assert fed == size
            assert newcomer in ids
            assert len(ids) == 1 + round(0.5 * (size - 1))
    assert [sum(v is not None for v in point) for point in seen.points] == [2, 2, 3, 3, 3]
    assert seen.trained == 3


def test_nothing_of_a_wave_is_in_the_rounds_before() -> None:
    """With other data of the newcomers, the same old clients until they arrive."""
    fed = ragged()
    x, y = fed.x.clone(), fed.y.clone()
    for split in (fed.train, fed.val, fed.test):
        for k, rows in ((5, split.of(5)),):
            x[rows] = 5 * rng.normal(rng.key(k), x[rows].shape)
            y[rows] = (y[rows] + 1) % 3
    other = replace(fed, x=x, y=y, y_train=y)
    a, b = (seen_by(Config(**QUICK), f, TWO)[0] for f in (fed, other))
    assert [p[:2] for p in a.points[:3]] == [p[:2] for p in b.points[:3]]  # until wave two
    assert a.own[0] == b.own[0]
    assert a.points[3:] != b.points[3:]


def test_until_a_goal_and_then_so_many_rounds() -> None:
    fed = glocal.load("digits", clients=4, partition="iid")

    def trained(method: str, **given: Any) -> tuple[int | None, Progress]:
        asked = Arrivals(waves=("same",), **given)
        job = training(method, fed, rounds=12, model="mlp(16)")
        goals = tuple(replace(s, goal=asked.until) for s in job.plan.stages)
        job = replace(job, plan=replace(job.plan, stages=goals))
        progress = job.begin(job.task.params)
        return waves.train_until(job, progress, asked), progress

    reached, progress = trained("fedavg", until=0.85, then=2)
    values = [line["val_accuracy"] for line in progress.history]
    assert reached is not None
    assert values[reached - 1] >= 0.85 > max(values[: reached - 1])
    assert progress.round == reached + 2
    # Of a method in stages those before the last end there, and the last has the rounds after it.
    again, progress = trained("lg-fedavg", until=0.85, then=2)
    assert again == reached
    assert [line["stage"] for line in progress.history][-3:] == ["warm-up", *["local-global"] * 2]
    assert trained("fedavg", until=1.0)[0] is None
    assert trained("fedavg", until=1.0)[1].round == 12


def test_what_comes_out() -> None:
    config = Config(
        **QUICK, data="digits", clients=7, partition="iid", repeats=2, availability="dropout(0.1)"
    )
    arrivals = Arrivals(waves=("own-classes(8, 9)", "invert"), size=2, every=2, own_epochs=2)
    config = replace(config, rounds=2)
    result = waves.newcomers(["fedavg", "ditto"], config, arrivals, silent)
    assert result["old_clients"] == 3
    assert result["data"]["transforms"] == [
        "own-classes(8, 9, clients=only(3, 4))",
        "invert(clients=only(5, 6))",
    ]
    for found in result["methods"].values():
        first, second = found["waves"]
        assert first["at_once"]["mean"] == 0.0  # nobody had these classes
        assert [p["since"] for p in found["curve"]] == list(range(5))
        assert [len(p["accuracy"]) for p in found["curve"]] == [2, 2, 3, 3, 3]
        assert first["old_after"] == second["old_before"] == found["curve"][2]["accuracy"][0]
        assert found["old_end"] == found["curve"][-1]["accuracy"][0] == second["old_after"]
        change = found["old_end"]["mean"] - found["old_before"]["mean"]
        assert found["old_change"]["mean"] == pytest.approx(change)
        assert found["trained"] == [2, 2]
        assert found["params_up"] > 0
    # Personal models of clients that take no part stay as they are.
    assert result["methods"]["ditto"]["old_change"]["mean"] == 0.0


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"waves": ()}, "nobody arrives"),
        ({"waves": ("rotate(90, clients=1)",)}, "leave clients= out"),
        ({"waves": ("melt",)}, "unknown transform 'melt'"),
        ({"size": 0}, "size must be"),
        ({"every": 0}, "every must be"),
        ({"fraction": 2.0}, "from 0 to 1, not 2"),
        ({"then": 3}, "give until="),
    ],
)
def test_what_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GlocalError, match=sentence):
        Arrivals(**given)


def test_somebody_must_be_there_before() -> None:
    config = Config(**QUICK, data="digits", clients=4)
    with pytest.raises(GlocalError, match="4 of 4 clients would arrive"):
        waves.newcomers(["fedavg"], config, Arrivals(waves=("same", "same"), size=2), silent)
    for method in ("local", "fedavg+dp"):
        with pytest.raises(GlocalError, match="join"):
            waves.newcomers([method], config, TWO, silent)
