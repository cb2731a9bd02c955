"""Sweeps: combinations, one table, and going on where one was killed."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import glocal
from glocal.core.errors import GlocalError, Interrupted
from glocal.experiment.config import Config
from glocal.methods.specs import with_setting
from glocal.runs import job, sweep
from glocal.runs.experiment_file import Experiment

SMALL: dict[str, Any] = {
    "data": "digits",
    "clients": 3,
    "rounds": 1,
    "baseline": "none",
    "model": "mlp(8)",
}
TRAINED = {name: SMALL[name] for name in ("rounds", "baseline", "model")}


def asked(methods: list[str], over: Any, **settings: Any) -> Experiment:
    return Experiment(methods, Config(**{**SMALL, **settings}), sweep=over)


def test_every_combination() -> None:
    found = sweep.combinations({"lr": [0.1, 0.3], "seed": [0, 1]})
    assert found == [
        {"lr": 0.1, "seed": 0},
        {"lr": 0.1, "seed": 1},
        {"lr": 0.3, "seed": 0},
        {"lr": 0.3, "seed": 1},
    ]
    listed = [{"lr": 0.1, "rounds": 2}, {"lr": 0.3, "rounds": 1}]
    assert sweep.combinations(listed) == listed


def test_cells_that_differ_in_the_method_alone_are_one_comparison() -> None:
    groups = sweep.grouped(asked(["fedavg", "ditto(lam=1)"], {"lr": [0.1, 0.3], "seed": [4, 5]}))
    assert [group.config.seed for group in groups] == [4, 5]
    assert groups[0].cells == {
        "fedavg(lr=0.1)": {"method": "fedavg", "lr": 0.1},
        "ditto(lam=1, lr=0.1)": {"method": "ditto(lam=1)", "lr": 0.1},
        "fedavg(lr=0.3)": {"method": "fedavg", "lr": 0.3},
        "ditto(lam=1, lr=0.3)": {"method": "ditto(lam=1)", "lr": 0.3},
    }


@pytest.mark.parametrize(
    ("spec", "value", "made"),
    [
        ("fedavg", 0.1, "fedavg(lr=0.1)"),
        ("fedavg()+adam(lr=0.01)", 1, "fedavg(lr=1)+adam(lr=0.01)"),
        ("fedprox(mu=0.1)", True, "fedprox(mu=0.1, lr=true)"),
        ("fedavg", "last(2)", 'fedavg(lr="last(2)")'),
        ("local", [0.1, 0.3], "local(lr=[0.1, 0.3])"),
    ],
)
def test_a_setting_is_written_into_a_spec(spec: str, value: Any, made: str) -> None:
    assert with_setting(spec, "lr", value) == made


@pytest.mark.parametrize(
    ("methods", "over", "said"),
    [
        (["fedavg"], {}, "nothing to sweep over"),
        (["fedavg"], {"lr": 0.1}, "lr takes a list of values"),
        (["fedavg"], {"lr": "0.1"}, "lr takes a list of values"),
        (["fedavg"], {"seed": [1, 1]}, "seed has the same value twice"),
        (["fedavg"], {"rate": [1]}, "rate"),
        (["fedavg(lr=1)"], {"lr": [1]}, "lr is given in 'fedavg\\(lr=1\\)' already"),
        (["fedavg"], {"rounds": ["many"]}, "rounds must be"),
        (["fedavg"], {"rounds": [0]}, "rounds must be"),
        (["fedavg"], {"jobs": [1, 2]}, "jobs changes nothing"),
        ([], {"lr": [1]}, "needs a method"),
        (["fedavgg"], {"seed": [1]}, "fedavg"),
        (["fedavg"], [{"lr": 1}, {"seed": 1}], "each with the same settings"),
        (["fedavg"], [], "nothing to sweep over"),
        (["fedavg"], [3], "a name and values for each"),
    ],
)
def test_what_cannot_be_swept(methods: list[str], over: Any, said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        sweep.grouped(asked(methods, over))


def test_cells_are_what_single_fits_come_to() -> None:
    fed = glocal.load("digits", clients=3)
    swept = glocal.sweep("fedavg", {"lr": [0.05, 0.2], "seed": [0, 7]}, fed, **TRAINED)
    assert swept.varied == ("lr", "seed")
    for row in swept.rows:
        run = glocal.fit(f"fedavg(lr={row['lr']})", fed, **TRAINED, seed=row["seed"])
        assert row["mean"] == pytest.approx(run.summary["mean"], abs=1e-6)
        assert row["benefit"] is None
    two = swept.over_seeds()
    assert [row["lr"] for row in two] == [0.05, 0.2]
    mine = [row["validation"] for row in swept.rows if row["lr"] == 0.2]
    assert two[1]["validation"] == pytest.approx(sum(mine) / 2)
    assert two[1]["validation_sd"] == pytest.approx(abs(mine[0] - mine[1]) / 2**0.5)
    best = max(two, key=lambda row: row["validation"])
    assert [row["chosen"] for row in two] == [row is best for row in two]
    assert list(swept.to_frame().columns)[:3] == ["method", "lr", "seed"]
    assert "fedavg" in (swept._repr_html_() or "")


def test_one_that_was_stopped_ends_at_the_same_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = asked(["fedavg"], {"lr": [0.05, 0.2], "seed": [0, 1, 2]})
    whole = sweep.new(experiment, tmp_path / "whole")
    sweep.train(whole, experiment)
    broken = sweep.new(experiment, tmp_path / "broken")
    train, trained = job.train, []

    def stops(work: job.Job) -> Any:
        trained.append(work.root.name)
        if len(trained) in (2, 4):
            raise Interrupted(f"stopped; go on with: glocal resume {work.root}", 130)
        return train(work)

    monkeypatch.setattr(job, "train", stops)
    for _ in range(2):
        with pytest.raises(Interrupted, match=f"glocal resume {broken}$"):
            sweep.train(broken, experiment)
        assert not (broken / "result.json").exists()
    sweep.train(broken, experiment)
    assert trained == ["001-seed=0", *["002-seed=1"] * 2, *["003-seed=2"] * 2]
    for name in ("results.csv", "result.json"):
        assert (broken / name).read_bytes() == (whole / name).read_bytes()
    cells = list(csv.DictReader((whole / "results.csv").read_text().splitlines()))
    assert [(cell["lr"], cell["seed"]) for cell in cells[:2]] == [("0.05", "0"), ("0.2", "0")]
    assert len(cells) == 6


def test_a_folder_of_another_sweep_is_refused(tmp_path: Path) -> None:
    sweep.new(asked(["fedavg"], {"lr": [0.05]}), tmp_path / "a")
    with pytest.raises(GlocalError, match="there is another sweep in"):
        sweep.new(asked(["fedavg"], {"lr": [0.1]}), tmp_path / "a")


def test_one_that_cannot_begin_leaves_nothing(tmp_path: Path) -> None:
    experiment = asked(["fedavg"], {"seed": [0, 1]}, data=str(tmp_path / "missing.csv"))
    with pytest.raises(GlocalError, match="there is no file"):
        sweep.train(sweep.new(experiment, tmp_path / "a"), experiment)
    assert not (tmp_path / "a").exists()


def test_a_rate_that_diverges_is_a_row(tmp_path: Path) -> None:
    over = {"lr": [0.1, 1e30]}
    swept = glocal.sweep("fedavg", over, out=tmp_path / "a", **SMALL)
    assert [row["diverged"] for row in swept.rows] == [False, True]
    fine, failed = swept.rows
    assert fine["mean"] is not None
    assert failed["mean"] is None
    assert "not finite" in failed["failed"]
    assert [row["chosen"] for row in swept.over_seeds()] == [True, False]
    assert json.loads((tmp_path / "a" / "result.json").read_text())["varied"] == ["lr"]
    assert glocal.sweep("fedavg", over, out=tmp_path / "a", **SMALL).rows == swept.rows
    assert glocal.sweep("fedavg", over, **SMALL).to_csv() == swept.to_csv()
