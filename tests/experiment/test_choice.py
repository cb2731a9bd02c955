"""Clients choose on validation data, and staying alone is what the verdict is set against."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import glocal
from glocal.core.errors import GlocalError
from glocal.evaluation.evaluate import Outcome
from glocal.experiment.adapted_clients import Adapted
from glocal.experiment.choice import choose
from glocal.report.adapted_rows import show_adaptation


def offer(accuracy: list[float], right: list[float]) -> Adapted:
    own = [torch.tensor([r, r]) for r in right]
    outcome = Outcome({"accuracy": right}, own, None, ["x"] * len(right))
    return Adapted({}, outcome, [], torch.tensor(accuracy))


def test_choice_leans_to_being_alone() -> None:
    n = torch.tensor([100, 100, 100])
    alone = offer([0.80, 0.80, 0.80], [0.0, 0.0, 0.0])
    error = math.sqrt(81 / 102 * 21 / 102 / 100)
    others = {
        "a": offer([0.80, 0.80 + 0.9 * error, 0.80 + 1.1 * error], [1.0, 1.0, 1.0]),
        "b": offer([0.70, 0.95, 0.10], [2.0, 2.0, 2.0]),
    }
    outcome, picks = choose(alone.outcome, alone.val_score, others, n)
    assert picks == ["local", "b", "a"]
    assert outcome.metrics["accuracy"] == [0.0, 2.0, 1.0]
    assert [float(o[0]) for o in outcome.own] == [0.0, 2.0, 1.0]


def test_who_knows_nothing_of_being_alone_stays_there() -> None:
    alone, other = offer([0.0], [0.0]), offer([1.0], [1.0])
    nothing = torch.tensor([math.nan])
    _, picks = choose(alone.outcome, nothing, {"a": other}, torch.tensor([9]), "best alone")
    assert picks == ["best alone"]


def test_who_stays_has_the_best_alone_and_neither_gains_nor_loses() -> None:
    pytest.importorskip("sklearn")
    sizes, drawn = (24, 24, 24, 40), torch.Generator().manual_seed(0)
    x = torch.randn(sum(sizes), 20, generator=drawn)
    owners = [k for k, n in enumerate(sizes) for _ in range(n)]
    fed = glocal.federation(x, (x.sum(1) > 0).long(), owners, seed=0, split=(0.4, 0.4, 0.2))
    done = glocal.compare(
        ["fedavg"], fed, choose=True, rounds=10, repeats=1, tune=False, seed=3, progress=False
    )
    fedavg, chosen = done["fedavg"], done["choice"]
    (scores,), (repeat,) = fedavg.alone_scores, fedavg.repeats
    models = chosen.clients["model"]
    assert chosen.summary["choice"]["best alone"] == models.count("best alone") > 0
    for k, (row, joined) in enumerate(zip(chosen.clients, fedavg.clients, strict=True)):
        score, n = float(scores[k]), row["n_val"]
        p = (score * n + 1) / (n + 2)
        leaves = float(repeat.val_score[k]) > score + math.sqrt(p * (1 - p) / n)
        assert row["model"] == ("fedavg" if leaves else "best alone")
        assert row["benefit"] == (joined["benefit"] if leaves else 0.0)
        assert row["accuracy"] == joined["accuracy" if leaves else "local_accuracy"]
        assert leaves or row["verdict"] in ("same", "undecided")


def test_choice_and_adaptation_know_what_counts_as_the_same() -> None:
    done = glocal.compare(
        ["fedavg"],
        clients=6,
        rounds=2,
        seed=3,
        repeats=1,
        tune=False,
        baseline="local(max_epochs=3)",
        same=0.99,  # nobody's interval is as wide, so nobody is undecided
        adapt="fine-tune(max_epochs=2)",
        progress=False,
    )
    s = done["fedavg"].summary
    assert s["undecided"] == s["adapted_undecided"] == 0
    assert s["adapted"]["techniques"]["fine-tune"]["undecided"] == 0
    assert done["choice"].summary["undecided"] == 0
    assert s["adapted_same"] > 0


@pytest.mark.parametrize(
    ("methods", "settings", "said"),
    [
        (["fedavg"], {"choose": True, "baseline": "none"}, "use --baseline same"),
        (["local"], {"choose": True}, "nothing to choose from but being alone"),
        (["local"], {"adapt": "fine-tune"}, "nothing to choose from but being alone"),
        (["local"], {"adapt": "fine-tune", "baseline": "none"}, "local sends none: leave it out"),
    ],
)
def test_no_choice_is_refused_before_anyone_trains(
    methods: list[str], settings: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("glocal.experiment.fit.train_all", lambda *_: pytest.fail("it trains"))
    with pytest.raises(GlocalError, match=said):
        glocal.compare(methods, **settings, progress=False)


def test_who_adapts_without_a_baseline_is_not_said_to_be_better_off() -> None:
    given: dict[str, Any] = {"clients": 5, "rounds": 1, "model": "mlp(8)", "baseline": "none"}
    adapting = {"adapt": "fine-tune(lr=0.1,max_epochs=3)", "repeats": 1, "tune": False}
    done = glocal.compare(["fedavg"], **given, **adapting, progress=False)
    assert list(done) == ["fedavg"]
    rows, summary = done["fedavg"].clients, done["fedavg"].summary
    assert summary["adapted_mean"] > summary["mean"]
    about_alone = ("benefit", "estimate", "low", "high", "verdict")
    assert {row[f"adapted_{name}"] for row in rows for name in about_alone} == {None}
    of_technique = summary["adapted"]["techniques"]["fine-tune"]
    for count in ("better_off", "worse_off", "same", "undecided"):
        assert summary[f"adapted_{count}"] is None
        assert of_technique[count] is None
    assert summary["adapted"]["worse_off_in_each"] is None
    show_adaptation(done)
