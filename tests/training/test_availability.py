"""Availability: who is away and who drops out, what that costs, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import glocal
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.engines import Sequential, Vectorised
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.testing import ragged
from glocal.testing.contract import Contract
from glocal.training.availability import Asked, Availability, availability, away, on_off
from glocal.training.loop import Training
from glocal.training.participation import participants
from glocal.training.sampling import Fixed, Fraction
from glocal.training.stragglers import stragglers

QUICK: dict[str, Any] = {"model": "mlp(3)", "baseline": "none", "validate_every": 0, "rounds": 4}


def there(spec: str, rounds: int, clients: int = 8, seed: int = 0) -> tuple[Tensor, Tensor]:
    """[rounds, clients] each: who is reached, and who answers."""
    given, ids = availability(spec), torch.arange(clients)
    assert given is not None
    names = tuple(map(str, range(clients)))
    each = [given.split(ids, r, rng.key(seed), names) for r in range(1, rounds + 1)]
    return torch.stack([a for a, _ in each]), torch.stack([b for _, b in each])


def training(method: str, fed: Federation | None = None, **changes: Any) -> Training:
    fed = fed or ragged()
    model = models.build("mlp(3)", input_shape=tuple(fed.x.shape[1:]), classes=fed.classes)
    given: dict[str, Any] = {"engine": Sequential(), "sampler": Fraction(), "rounds": 4, "seed": 2}
    return Training(as_plan(resolve(method)), Task(model), fed, **{**given, **changes})


def test_a_cohort_by_hand() -> None:
    """Clients 1 and 4 are away in rounds 2 and 3, and 4 for good from round 5 on."""
    spec = "away(2, 3, clients=only(1, 4))+away(5, clients=only(4))"
    job = training("fedavg", availability=availability(spec), rounds=6)
    cohorts = [participants(job, torch.arange(6), r).ids.tolist() for r in range(6)]
    everybody, without = [0, 1, 2, 3, 4, 5], [0, 2, 3, 5]
    assert cohorts == [everybody, without, without, everybody, [0, 1, 2, 3, 5], [0, 1, 2, 3, 5]]


def test_dropout_reaches_everybody_and_loses_a_share() -> None:
    reached, answers = there("dropout(0.3)", 200, 100)
    assert reached.all()
    assert abs(float(answers.double().mean()) - 0.7) < 0.02
    # Drawn for each round and client: no two rounds or clients alike.
    assert len({tuple(row) for row in answers.tolist()}) == 200
    assert len({tuple(row) for row in answers.T.tolist()}) == 100


def test_rounds_on_and_off() -> None:
    reached, answers = there("on-off(5, 3)", 24)
    assert torch.equal(reached, answers)
    for client in reached.T:
        assert torch.equal(client[:8], client[8:16])
        turns = torch.cat([client, client])[8:17].int().diff()
        assert int(client[:8].sum()) == 5
        assert int((turns == 1).sum()) == 1  # five in a row, in the circle of eight rounds
    assert len({tuple(c) for c in reached.T.tolist()}) > 1


@pytest.mark.parametrize(("on", "off"), [(5, 3), (1, 2), (2, 1), (1, 1), (4, 1)])
def test_a_chain_is_what_it_is_step_by_step(on: int, off: int) -> None:
    """Simulated forwards, from the same numbers."""
    asked = [Asked(torch.arange(50), r, rng.key(3), ()) for r in range(1, 31)]
    away = asked[0].uniform(1) >= on / (on + off)
    chain = on_off(on, off, random=True)
    for each in asked:
        if each.round > 1:
            u = each.uniform(each.round)
            away = torch.where(away, u >= 1 / off, u >= 1 - 1 / on)
        assert torch.equal(chain.absent(each), away)


def test_a_chain_has_the_lengths_it_was_asked_for() -> None:
    reached, _ = there("on-off(5, 3, random=true)", 200, 200)
    assert abs(float(reached.double().mean()) - 5 / 8) < 0.02
    left = (reached[:-1] & ~reached[1:]).sum() / reached[:-1].sum()
    assert abs(float(left) - 1 / 5) < 0.02


def test_parts_draw_by_themselves() -> None:
    """Of a chain and dropout each does what it does alone, but for its draws."""
    reached, answers = there("on-off(2, 2)+dropout(0.5)", 40, 50)
    alone, _ = there("on-off(2, 2)", 40, 50)
    assert torch.equal(reached, alone)
    assert not (answers & ~reached).any()
    assert abs(float(answers[reached].double().mean()) - 0.5) < 0.05


@pytest.mark.parametrize(
    "spec", ["dropout(0)", "on-off(3, 0)", "away(9)", "on-off(1, 0)+dropout(0)"]
)
def test_nobody_absent_is_the_plain_run(spec: str) -> None:
    runs = [glocal.fit("scaffold", ragged(), **QUICK, availability=s) for s in (None, spec)]
    assert all(map(torch.equal, tree.leaves(runs[0].model), tree.leaves(runs[1].model)))
    assert runs[0].history == runs[1].history


def test_what_is_sent_is_what_is_counted() -> None:
    """Who drops out has received; who is away has not. Neither sends, or keeps anything."""
    spec = "away(1, 1, clients=only(0, 1))+dropout(0.5)"
    job = training("fedavg(shared=last(1),epochs=1)", availability=availability(spec), rounds=1)
    progress = job.begin(job.task.params)
    job.one_round(progress)
    (line,) = progress.history
    assert line["away"] == ["0", "1"]
    dropped = len(line["dropped"])
    assert 0 < dropped < 4
    message, private = job.sizes[0]
    assert progress.traffic.down == [{"shared": 4 * message.numbers, "private_start": 4 * private}]
    assert progress.traffic.up == [{"shared": (4 - dropped) * message.numbers}]
    assert int(progress.clients.seen.sum()) == 4 - dropped
    n = job.fed.train.counts()
    gone = [int(i) for i in (*line["away"], *line["dropped"])]
    assert line["gradients"] == int(n.sum() - n[gone].sum())


def test_a_round_without_an_answer_changes_nothing() -> None:
    job = training("fedavg+adam", availability=availability("away(2, 2)"))
    progress = job.begin(job.task.params)
    job.one_round(progress)
    before = progress.server
    job.one_round(progress)
    assert progress.server is before
    away = list(job.fed.names)
    assert progress.history[-1] == {"round": 2, "cohort": 6, "gradients": 0, "away": away}
    assert progress.traffic.down[-1] == progress.traffic.up[-1] == {}
    job.one_round(progress)
    assert progress.history[-1]["gradients"] > 0


def test_the_contract_holds_with_everything_on() -> None:
    """Engines agree, and saved after any round it goes on with the same bits."""
    for method in ("scaffold", "fedrep(head_epochs=2)"):
        on = {
            "availability": availability("on-off(3, 1, random=true)+dropout(0.2)"),
            "stragglers": stragglers("use(0.6)"),
        }
        kit = Contract(training(method, sampler=Fixed(5), engine=Vectorised(), **on), 1e-4)
        lines = kit.traces["sequential"].end.history
        assert all(any(key in line for line in lines) for key in ("away", "dropped", "stragglers"))
        kit.engines_agree()
        kit.saved_and_loaded()


def test_privacy_divides_by_those_expected_to_answer() -> None:
    plain, thinned = (
        training("fedavg+dp(noise=1)", sampler=Fixed(4), availability=availability(spec))
        for spec in (None, "dropout(0.5)+on-off(3, 1)")
    )
    assert thinned.setting.answering == pytest.approx(0.375)
    m = [float(t.begin(t.task.params).server["weighting"]["m"]) for t in (plain, thinned)]
    assert m == [4.0, pytest.approx(1.5)]
    privacy = plain.plan.stages[0].method.privacy
    assert privacy is not None
    # Who is not there costs nothing, and saves nothing: ε is that of the cohort that was drawn.
    assert privacy.cost(thinned.setting, 10) == privacy.cost(plain.setting, 10)
    said = glocal.fit(
        "fedavg+dp(noise=1)", ragged(), **QUICK, sampled=3, availability="dropout(0.5)"
    ).summary["privacy"]
    assert said["answering"] == 0.5


@pytest.mark.parametrize(
    ("method", "settings", "sentence"),
    [
        ("fedavg+dp", {"availability": "away(2)"}, "must be the same in all rounds"),
        ("afl", {"availability": "dropout(0.1)"}, "some would be away or not answer"),
        ("aaggff-s", {"stragglers": "drop(0.1)"}, "some would be away or not answer"),
        ("fedavg", {"availability": "away(2, clients=only(oslo))"}, "unknown client 'oslo'"),
        ("fedavg", {"availability": "dropout(1)"}, "0 or more and below 1"),
        ("fedavg", {"availability": "on-off(0, 3)"}, "on must be an integer of 1 or more"),
        ("fedavg", {"availability": "away(5, 2)"}, "the last round away must be an integer of 5"),
        ("fedavg", {"availability": "sleep(5)"}, "unknown availability 'sleep'"),
        ("fedavg", {"availability": 3}, "availability must be text"),
    ],
)
def test_what_is_refused(method: str, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(GlocalError, match=sentence):
        glocal.fit(method, ragged(), **QUICK, **settings)


def test_an_availability_of_ones_own() -> None:
    only = Availability("own", (away(1, clients=[2]),))
    run = glocal.fit("fedavg", ragged(), **QUICK, availability=only)
    assert all(line["away"] == ["2"] for line in run.history)
