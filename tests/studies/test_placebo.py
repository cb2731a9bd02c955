"""A method set against itself: who is called is called by chance."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from glocal.core.errors import GlocalError
from glocal.evaluation.summary import client_table
from glocal.experiment.config import Config
from glocal.experiment.fit import train_all
from glocal.studies.placebo import placebo, trials_of

pytestmark = pytest.mark.usefixtures("few_digits")

ALONE = "local(lr=0.1, max_epochs=2)"
SMALL = {"model": "mlp(8)", "rounds": 2, "repeats": 3}


@pytest.fixture(scope="module")
def fed() -> glocal.Federation:
    draw = torch.Generator().manual_seed(0)
    y = torch.randint(3, (480,), generator=draw)
    x = torch.nn.functional.one_hot(y, 3) + torch.randn(480, 3, generator=draw)
    return glocal.federation(x, y, clients=8, partition="iid")


def test_few_are_called_over_themselves(fed: glocal.Federation) -> None:
    found = placebo([ALONE, "fedavg"], fed, Config(**SMALL), times=3)
    assert found["called"] == pytest.approx(found["better"] + found["worse"])
    assert found["called"] <= 0.15  # 48 verdicts; a script has thousands
    assert set(found["methods"]) == {ALONE, "fedavg"}
    assert (found["clients"], found["repeats"], found["estimate"]) == (8, 3, "pooled")


def test_the_two_sides_are_trained_apart_on_the_same_splits(fed: glocal.Federation) -> None:
    """Against another method, through the same table, clients are called."""
    settings = Config(**{**SMALL, "rounds": 8}, baseline=ALONE)
    runs = dict(train_all([ALONE, "fedavg(lr=0.3)"], settings, fed))
    trials = trials_of(fed, runs["fedavg(lr=0.3)"].repeats, runs[ALONE].repeats)
    assert len(trials) == 3
    assert not torch.equal(trials[0].fed.test.rows, trials[1].fed.test.rows)
    assert client_table(trials)["verdict"].count("better off") >= 2


def test_two_repeats_cannot_tell_training(fed: glocal.Federation) -> None:
    with pytest.raises(GlocalError, match="needs 3 repeats or more, not 2"):
        placebo(["fedavg"], fed, Config(**{**SMALL, "repeats": 2}))


def test_it_is_shown_beside_a_verdict_of_the_same_kind(tmp_path: Path, command: Any) -> None:
    data = ["--clients", 3, "--model", "mlp(8)", "--rounds", 1, "--repeats", 3]
    code, _, said = command("study", "placebo", "fedavg", *data, "--json", "p.json")
    assert (code, said) == (0, "")
    found = json.loads((tmp_path / "p.json").read_text())
    assert found["metric"] == "accuracy"
    compared = ["compare", "fedavg", *data, "--placebo", "p.json", "--baseline", "none"]
    code, out, said = command(*compared, "--json", "c.json", "--out", "a")
    assert (code, said) == (0, "")
    assert "Placebo: where methods were set against themselves" in out
    assert json.loads((tmp_path / "c.json").read_text())["placebo"] == found
    for other, why in (
        (["--clients", 4], "of other data"),
        (["--repeats", 4], "make one with --repeats 4"),
        (["--metric", "log_loss"], "make one with --metric log_loss"),
        (["--placebo", "c.json"], "is no placebo's"),
        (["--placebo", "q.json"], "there is no file"),
    ):
        code, _, said = command(*compared, *other)
        assert code == 2
        assert why in said
