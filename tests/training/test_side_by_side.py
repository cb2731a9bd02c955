"""Trainings in lockstep come to what each comes to by itself, whatever happens in one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import glocal
import toys
from glocal.core import tree
from glocal.core.errors import ClientError
from glocal.core.types import Carry
from glocal.engines import Engine, Sequential, Vectorised
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.method import Method, Plan, Stage, as_plan
from glocal.testing import ragged
from glocal.testing.trees import assert_same
from glocal.training import attacks
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.checkpoint_files import CheckpointFiles
from glocal.training.loop import Training
from glocal.training.resumed import run_rounds
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed, Fraction, Poisson
from glocal.training.side_by_side import LaneGroup, can_be_merged

pytestmark = pytest.mark.usefixtures("few_digits")


def trainings(method: Any, count: int = 3, **changes: Any) -> list[Training]:
    """Repeats: each with its own split, model and seed."""
    fed = ragged()
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    settings = {"engine": Vectorised(), "sampler": Fraction(0.5), "rounds": 3}
    settings |= {"public_noise": True, **changes}

    def task(seed: int) -> Task:
        return Task(models.build("mlp(7)", input_shape=(6,), classes=3, seed=seed))

    return [
        Training(plan, task(r), fed.fold(r) if r else fed, seed=r, **settings) for r in range(count)
    ]


def alone(several: Sequence[Training]) -> list[Progress]:
    return [training.run(training.begin(training.task.params)) for training in several]


def together(group: LaneGroup) -> list[Progress]:
    return [end.progress for end in run_rounds(group)]


def check(several: Sequence[Training], tolerance: float = 1e-4) -> LaneGroup:
    group = LaneGroup.of(several)
    for r, (side, own) in enumerate(zip(together(group), alone(several), strict=True)):
        assert (side.round, side.stage) == (own.round, own.stage)
        assert side.traffic == own.traffic
        assert len(side.history) == len(own.history)
        for now, then in zip(side.history, own.history, strict=True):
            assert now.keys() == then.keys()
            for name, value in then.items():
                exact = isinstance(value, str | list)
                assert now[name] == (value if exact else pytest.approx(value, rel=1e-3))
        assert_same("side by side", f"server {r}", side.server, own.server, tolerance)
        (ids, states), (own_ids, own_states) = side.clients.saved(), own.clients.saved()
        assert torch.equal(ids, own_ids)
        assert_same("side by side", f"clients {r}", states, own_states, tolerance)
    return group


def two_goals() -> Plan:
    """A stage that ends when it is good enough, which is in other rounds in other repeats."""
    first, second = resolve("fedavg"), resolve("fedprox(mu=0.1)")
    assert isinstance(first, Method)
    assert isinstance(second, Method)
    return Plan((Stage(first, goal=0.5, name="first"), Stage(second, name="second")))


@pytest.mark.parametrize("engine", [Sequential(), Vectorised()], ids=lambda e: e.name)
def test_sampled_clients_of_a_method_that_keeps_states(engine: Engine) -> None:
    assert check(trainings("ditto", engine=engine)).merged


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedavg+adam", {"sampler": Poisson(0.25), "rounds": 6}),
        ("scaffold", {"sampler": Poisson(0.25), "rounds": 6}),
        ("fedavg+dp(clip=1.0,noise=1.0)", {"sampler": Poisson(0.5)}),
        ("fedevg(spc=2)", {}),
        ("lg-fedavg(warmup=2)+yogi(lr=0.1)", {}),
        ("q-fedavg", {"validate_every": 1}),
        ("fedavg", {"stop": 2}),
        (two_goals(), {"sampler": Fraction(1.0), "rounds": 12}),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_methods_and_samplers(method: Any, changes: dict[str, Any]) -> None:
    several = trainings(method, **changes)
    assert check(several).merged


def test_the_samplers_and_goals_above_are_telling() -> None:
    several = trainings("scaffold", sampler=Poisson(0.25), rounds=6)
    empty = [[line["cohort"] == 0 for line in done.history] for done in alone(several)]
    assert any(any(now) and not all(now) for now in zip(*empty, strict=True))
    staged = alone(trainings(two_goals(), sampler=Fraction(1.0), rounds=12))
    assert len({done.stage_began for done in staged}) > 1
    assert all(done.stage == 1 for done in staged)


def test_rates_and_ends_of_their_own() -> None:
    """One split and seed at several rates; one of them ends earlier."""
    base = trainings("fedavg(schedule=inverse(0.5))", 1, rounds=5)[0]
    several = [replace(base, rate=rate) for rate in (0.3, 1.0, 3.0)]
    several[1] = replace(several[1], stop=2)
    group = check(several)
    assert [training.last for training in group.trainings] == [5, 2, 5]
    norms = [float(tree.norm(done.server["params"])) for done in together(group)]
    assert len(set(norms)) == 3


def test_a_rate_is_that_of_the_spec() -> None:
    """Three times the rate is three times ``lr``."""
    base = trainings("fedavg(lr=0.1)", 1)[0]
    (tripled,) = alone([replace(base, rate=3.0)])
    other = replace(base, plan=as_plan(resolve("fedavg(lr=0.3)")))
    (given,) = alone([other])
    assert_same("rate", "server", tripled.server, given.server, 1e-6)


def test_an_attack_that_ends_one_training_leaves_the_others() -> None:
    """What is not finite ends a federation that takes a mean, where its sender is drawn."""
    several = trainings("fedavg", sampler=Fixed(2), rounds=4)
    adversary = attacks.parse("nan(share=0.2)").on(several[0].fed, 0)
    several = [replace(training, adversary=adversary) for training in several]
    ends = run_rounds(LaneGroup.of(several))
    for training, end in zip(several, ends, strict=True):
        progress = training.begin(training.task.params)
        stopped = None
        try:
            training.run(progress)
        except ClientError:
            stopped = progress.round + 1
        assert end.stopped == stopped
        assert end.progress.round == progress.round
        assert_same("attack", "server", end.progress.server, progress.server, 1e-5)
    assert len({end.stopped for end in ends}) > 1


def test_what_diverges_in_one_training() -> None:
    several = trainings("fedavg", sampler=Fraction(1.0))
    wild = replace(several[1], rate=1e30)
    with pytest.raises(ClientError, match="not finite"):
        run_rounds(LaneGroup.of([several[0], wild]))
    patient = [replace(t, diverged="skip") for t in several[:2]]
    check(patient)


def test_a_method_that_reads_what_is_another_in_each() -> None:
    """It is trained one by one, and comes to the same."""

    def start(task: Task, down: Any, client: Any) -> Carry:
        return {"w": task.params, "opt": {}}

    several = trainings(toys.wrapped(start=start))
    assert not check(several).merged


class Fixed_Projection(nn.Module):  # noqa: N801
    """A model with a part that is drawn and never trained."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 7), nn.Linear(7, 3)
        self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.first(x)))  # type: ignore[no-any-return]


def test_frozen_layers_are_the_same_in_all_or_nothing_is_merged() -> None:
    several = trainings("fedavg", 2)
    apart = [replace(t, task=Task(toys.seeded(Fixed_Projection, s))) for s, t in enumerate(several)]
    assert not can_be_merged(apart)
    assert not check(apart).merged
    alike = [replace(t, task=Task(toys.seeded(Fixed_Projection))) for t in several]
    assert check(alike).merged


def test_an_engine_of_the_users_need_not_know_of_this() -> None:
    class Own(Sequential):
        pass

    class Foreign:
        name = executed = "foreign"

        def __getattr__(self, name: str) -> Any:
            return getattr(Sequential(), name)

    assert not LaneGroup.of(trainings("fedavg", engine=Foreign())).merged


GIVEN: dict[str, Any] = {
    "model": "mlp(8)",
    "rounds": 4,
    "repeats": 3,
    "baseline": "local(lr=0.1,max_epochs=2)",
    "fraction": 0.5,
}


def same_run(a: Any, b: Any) -> None:
    assert a.summary == b.summary
    assert [r.history for r in a.repeats] == [r.history for r in b.repeats]
    assert all(torch.equal(a.model[k], b.model[k]) for k in b.model)


@pytest.fixture(scope="module")
def whole() -> tuple[Any, Any]:
    fed = glocal.load("digits", clients=6)
    return fed, glocal.fit("ditto", fed, **GIVEN)


@pytest.mark.parametrize("moment", [(1, 1), (1, 3), (3, 2), (4, 3)])
def test_interrupted_in_the_middle_of_a_round(
    tmp_path: Path, whole: tuple[Any, Any], moment: tuple[int, int]
) -> None:
    """After some of the repeats of a round were told, and others not."""
    fed, run = whole

    def interrupted(line: dict[str, Any]) -> None:
        if (line["round"], line["repeat"]) == moment:
            raise KeyboardInterrupt

    kept = CheckpointPolicy(tmp_path, every=1, stop=lambda: False)
    with pytest.raises(KeyboardInterrupt):
        glocal.fit("ditto", fed, **GIVEN, checkpoints=kept, on_line=interrupted)
    if moment[0] > 1:
        assert [p.name for p in tmp_path.glob("repeat*")] == ["repeats-1-3"]
    lines: list[dict[str, Any]] = []
    again = glocal.fit("ditto", fed, **GIVEN, checkpoints=tmp_path, on_line=lines.append)
    same_run(again, run)
    told = sorted((line["repeat"], line["round"]) for line in lines)
    assert told == [(repeat, t) for repeat in (1, 2, 3) for t in (1, 2, 3, 4)]


def test_interrupted_while_a_checkpoint_is_written(
    tmp_path: Path, whole: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written before is still good, and what was half written is nothing."""
    fed, run = whole
    calls = iter(range(100))

    def interrupted(path: Path, target: Path) -> Path:
        if target.parent.name == "repeats-1-3" and next(calls) == 2:
            raise KeyboardInterrupt
        return rename(path, target)

    rename = Path.replace
    kept = CheckpointPolicy(tmp_path, every=1, stop=lambda: False)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            glocal.fit("ditto", fed, **GIVEN, checkpoints=kept)
    same_run(glocal.fit("ditto", fed, **GIVEN, checkpoints=tmp_path), run)


def test_repeats_begun_otherwise_are_resumed_as_they_were_begun(
    tmp_path: Path, whole: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two side by side and one by itself, because there was less memory then."""
    fed, run = whole

    def interrupted(line: dict[str, Any]) -> None:
        if (line["round"], line["repeat"]) == (2, 3):
            raise KeyboardInterrupt

    kept = CheckpointPolicy(tmp_path, every=1, stop=lambda: False)
    with monkeypatch.context() as patch:
        patch.setattr("glocal.experiment.memory_estimate.lanes", lambda *given: 2)
        with pytest.raises(KeyboardInterrupt):
            glocal.fit("ditto", fed, **GIVEN, checkpoints=kept, on_line=interrupted)
    found = sorted(p.name for p in tmp_path.glob("repeat*"))
    assert found == ["repeat-3", "repeats-1-2"]
    again = glocal.fit("ditto", fed, **GIVEN, checkpoints=tmp_path)
    for now, then in zip(again.repeats, run.repeats, strict=True):
        assert now.val_score.tolist() == pytest.approx(then.val_score.tolist(), abs=1e-3)
    assert sorted(p.name for p in tmp_path.glob("repeat*")) == found


def test_a_checkpoint_of_fewer_repeats_is_refused(tmp_path: Path, whole: tuple[Any, Any]) -> None:
    fed, _ = whole
    glocal.fit("ditto", fed, **GIVEN, checkpoints=tmp_path)
    series = CheckpointFiles(tmp_path / "repeats-1-3")
    newest = series.newest()
    assert newest is not None
    series.write(9, {**newest.facts, "lanes": newest.facts["lanes"][:2]}, newest.trees)
    with pytest.raises(glocal.GlocalError, match="not of 3 repeats"):
        glocal.fit("ditto", fed, **GIVEN, checkpoints=tmp_path)


@pytest.mark.parametrize("repeats", [1, 2])
def test_what_diverged_is_resumed_without_it(tmp_path: Path, repeats: int) -> None:
    """In the second round one client's update is not finite: in both repeats, or the only one."""

    def start(task: Task, down: Any, client: Any) -> Carry:
        return {"w": down["params"], "odd": down["lr"] * 0}

    def step(task: Task, down: Any, carry: Carry, batch: Any, key: Any) -> Carry:
        return {**carry, "odd": batch["x"].abs().max() * down["round"]}

    def finish(task: Task, down: Any, carry: Carry) -> Any:
        odd = carry["odd"] > 1e4
        return tree.map(lambda x: torch.where(odd, torch.nan, x * 0.1), carry["w"]), {}, {}

    method = toys.wrapped(start=start, step=step, finish=finish)
    x, y = torch.randn(60, 6), torch.arange(60) % 3
    x[:12] *= 1e5  # the first client's
    fed = glocal.federation(x, y, torch.arange(60) // 12)
    given: dict[str, Any] = {**GIVEN, "fraction": 1.0, "repeats": repeats, "diverged": "fatal"}
    with pytest.raises(ClientError, match="client 0's training in round 2 is not finite"):
        glocal.fit(method, fed, **given, checkpoints=tmp_path)
    given["diverged"] = "skip"
    lines: list[dict[str, Any]] = []
    resumed = glocal.fit(method, fed, **given, checkpoints=tmp_path, on_line=lines.append)
    assert [line.get("left_out") for line in resumed.history] == [None, *[["0"]] * 3]
    assert len(lines) == 4 * repeats
