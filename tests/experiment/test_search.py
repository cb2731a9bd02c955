"""Settings chosen by successive halving: what is tried, for how long, and what is chosen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glocal
from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped
from glocal.experiment import search as searching
from glocal.experiment.config import Config
from glocal.experiment.search import candidates, search, steps_of
from glocal.training.checkpoint import CheckpointPolicy

SETTINGS: dict[str, Any] = {"model": "mlp(8)", "engine": "vectorised"}


@pytest.fixture(scope="module")
def fed() -> glocal.Federation:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 120)
    x = draw.normal(size=(3, 5))[y] + draw.normal(size=(120, 5))
    return glocal.federation(x.astype("float32"), y, [i % 3 for i in range(120)])


@pytest.mark.parametrize(
    ("rounds", "many", "steps"),
    [
        (18, 9, [(2, 9), (6, 3), (18, 1)]),
        (50, 10, [(6, 10), (17, 4), (50, 2)]),
        (50, 2, [(50, 2)]),
        (2, 100, [(2, 100)]),
        (3, 30, [(1, 30), (3, 10)]),
        (1, 1, [(1, 1)]),
    ],
)
def test_a_third_goes_on_for_three_times_as_long(
    rounds: int, many: int, steps: list[tuple[int, int]]
) -> None:
    assert steps_of(rounds, many) == steps


def test_candidates_are_all_combinations_or_some_drawn_by_the_seed() -> None:
    space = {"lr": [0.1, 0.2, 0.3], "epochs": [1, 5]}
    every = candidates("fedavg+adam", space, None, 0)
    assert [trial.spec for trial in every][:2] == [
        "fedavg(lr=0.1, epochs=1)+adam",
        "fedavg(lr=0.1, epochs=5)+adam",
    ]
    assert len(every) == 6
    some = [trial.spec for trial in candidates("fedavg+adam", space, 3, 7)]
    assert some == [trial.spec for trial in candidates("fedavg+adam", space, 3, 7)]
    assert len(set(some)) == 3
    assert set(some) < {trial.spec for trial in every}


def test_it_is_what_single_fits_say(fed: glocal.Federation) -> None:
    """Nine candidates at two rounds, three at six, one at eighteen: each as if trained alone."""
    space = {"lr": [0.02, 0.1, 0.5], "epochs": [1, 2, 3]}
    found = search("fedavg", space, Config(rounds=18, **SETTINGS), fed)
    assert found.rounds == 9 * 2 + 3 * 4 + 1 * 12
    assert found.spec == found.trials[0].spec
    assert [trial.rounds for trial in found.trials] == [18, 6, 6] + [2] * 6
    for trial in (found.trials[0], found.trials[2], found.trials[-1]):
        for rounds, accuracy in trial.steps:
            alone = glocal.fit(trial.spec, fed, rounds=rounds, baseline="none", **SETTINGS)
            assert alone.summary["validation"] == pytest.approx(accuracy, abs=0.02)
    at_two = {trial.spec: trial.steps[0][1] for trial in found.trials}
    best_three = sorted(at_two.values())[-3:]
    assert all(at_two[trial.spec] >= best_three[0] for trial in found.trials[:3])


def test_repeats_count_by_their_mean_and_a_server_s_rate_is_no_lane(fed: glocal.Federation) -> None:
    config = Config(rounds=2, repeats=2, **SETTINGS)
    found = search("adam", {"lr": [0.001, 0.05]}, config, fed)  # fedavg+adam(lr=...)
    for trial in found.trials:
        alone = glocal.fit(trial.spec, fed, rounds=2, repeats=2, baseline="none", **SETTINGS)
        assert alone.summary["validation"] == pytest.approx(trial.validation, abs=0.02)


def test_one_that_diverges_loses(fed: glocal.Federation) -> None:
    config = Config(rounds=1, diverged="fatal", **SETTINGS)
    found = search("fedavg", {"lr": [1e30, 0.1]}, config, fed)
    assert found.settings == {"lr": 0.1}
    assert found.trials[1].validation is None
    with pytest.raises(GlocalError, match="diverges with every setting"):
        search("fedavg", {"lr": [1e30]}, config, fed)


def test_stopped_and_gone_on_with(
    fed: glocal.Federation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, space = Config(rounds=9, **SETTINGS), {"lr": [0.02, 0.1, 0.5], "epochs": [1, 2, 3]}
    whole = search("ditto", space, config, fed)
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked in (2, 9)

    policy = CheckpointPolicy(tmp_path, every=1, stop=stop)
    for _ in range(2):
        with pytest.raises(Stopped):
            search("ditto", space, config, fed, checkpoints=policy)
    assert search("ditto", space, config, fed, checkpoints=policy) == whole


@pytest.mark.parametrize(
    ("method", "space", "said"),
    [
        ("fedavg", {}, "nothing to choose from"),
        ("fedavg", {"lr": 0.1}, "lr takes a list"),
        ("fedavg", {"rate": [1]}, "rate"),
        ("fedavg(lr=1)", {"lr": [1]}, "given in"),
        ("local", {"grid": [[0.1]]}, "trains alone"),
        ("fedavg+dp(clip=1, noise=1)", {"lr": [0.1]}, "spend privacy"),
    ],
)
def test_what_cannot_be_searched(
    fed: glocal.Federation, method: str, space: Any, said: str
) -> None:
    with pytest.raises(GlocalError, match=said):
        search(method, space, Config(rounds=1, **SETTINGS), fed)


def test_lanes_are_of_the_rate_alone() -> None:
    trials = candidates("fedavg", {"lr": [0.1, 0.2], "epochs": [1, 5]}, None, 0)
    assert [len(group) for group in searching._lanes(trials)] == [2, 2]
    assert [len(g) for g in searching._lanes(candidates("adam", {"lr": [1, 2]}, None, 0))] == [1, 1]


def test_fit_chooses_first(fed: glocal.Federation) -> None:
    space = {"lr": [0.001, 0.3]}
    found = search("fedavg", space, Config(rounds=2, **SETTINGS), fed)
    tuned = glocal.fit("fedavg", fed, rounds=2, tune=space, baseline="none", **SETTINGS)
    plain = glocal.fit(found.spec, fed, rounds=2, baseline="none", **SETTINGS)
    assert tuned.summary["mean"] == plain.summary["mean"]
    assert tuned.summary["tuned"]["settings"] == found.settings
    assert tuned.summary["tuned"]["gradients"] == found.gradients
    with pytest.raises(GlocalError, match="given by its name"):
        glocal.fit(glocal.Method, fed, tune=space)  # type: ignore[arg-type]


def test_the_metric_that_counts_chooses(fed: glocal.Federation) -> None:
    space, settings = {"lr": [1e-6, 0.3]}, {"rounds": 3, "metric": "log_loss", **SETTINGS}
    found = search("fedavg", space, Config(**settings), fed)
    best, other = found.trials
    assert (found.metric, best.settings["lr"]) == ("log_loss", 0.3)
    assert best.validation < other.validation  # type: ignore[operator]
    alone = glocal.fit(best.spec, fed, baseline="none", **settings)
    assert alone.summary["validation"] == pytest.approx(best.validation, rel=1e-3)
    swept = glocal.sweep("fedavg", space, fed, baseline="none", **settings)
    assert [row["chosen"] for row in swept.over_seeds()] == [False, True]
    assert "log loss" in (swept._repr_html_() or "")
