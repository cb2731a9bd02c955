"""Sweeps: combinations, one table, and going on where one was killed."""

from __future__ import annotations

import csv
import json
import shutil
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import glocal
from glocal.core.errors import GlocalError, Interrupted
from glocal.experiment.config import Config
from glocal.methods.fedavg import fedavg
from glocal.methods.registry import REGISTERED, Entry
from glocal.methods.specs import with_setting
from glocal.runs import job, same_data, sweep
from glocal.runs.experiment_file import Experiment, read

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
        (["fedavg"], {"metric": ["accuracy", "auc"]}, "measured by one metric"),
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


@pytest.mark.parametrize("beside", [{"against": "fedavg"}, {"goal": 0.5}, {"choose": True}])
def test_what_is_of_one_comparison_is_no_sweeps(beside: dict[str, Any]) -> None:
    (name,) = beside
    with pytest.raises(GlocalError, match=f"{name} is of one comparison"):
        sweep.grouped(replace(asked(["fedavg"], {"lr": [0.1, 0.3]}), **beside))


def test_nothing_to_choose_from_is_refused_before_anyone_trains() -> None:
    over = {"seed": [0, 1]}
    with pytest.raises(GlocalError, match="nothing to choose from but being alone"):
        sweep.grouped(asked(["local"], over, adapt="fine-tune", baseline="same"))


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

    def stops(work: job.Job, fed: glocal.Federation) -> Any:
        trained.append(work.root.name)
        if len(trained) in (2, 4):
            raise Interrupted(f"stopped; go on with: glocal resume {work.root}", 130)
        return train(work, fed)

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


def table(path: Path, shift: int = 0) -> None:
    """A table of two clients; its numbers depend on the shift."""
    rows = [f"{('a', 'b')[i % 2]},{(i * 7 + shift) % 10}.5,{i % 3 % 2}" for i in range(60)]
    path.write_text("\n".join(["site,dose,sick", *rows]) + "\n")


OF_TABLE = {"client": "site", "label": "sick", "rounds": 1, "baseline": "none", "jobs": 1}


def test_what_is_done_of_other_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "t.csv", tmp_path / "a"
    table(data)
    about: dict[str, Any] = {**OF_TABLE, "data": str(data), "model": "logistic", "out": out}
    first = glocal.sweep("fedavg", {"seed": [0, 1]}, **about)
    assert capsys.readouterr().err.count("60 rows of 2 clients") == 1  # though splits differ
    assert glocal.sweep("fedavg", {"seed": [0, 1]}, **about).rows == first.rows
    before = {path: path.read_bytes() for path in out.rglob("*.json")}
    table(data, 3)
    said = r"the data of .*001-seed=0 has changed since .* give it the old data back, or train anew"
    with pytest.raises(GlocalError, match=said):
        glocal.sweep("fedavg", {"seed": [0, 1]}, **about)
    assert before == {path: path.read_bytes() for path in out.rglob("*.json")}
    # As after a kill: the second comparison is not done, and the first must not be read.
    shutil.rmtree(out / "002-seed=1")
    for name in ("result.json", "results.csv"):
        (out / name).unlink()
    with pytest.raises(GlocalError, match=said):
        sweep.train(out, read(out / sweep.FILE, {}, {}))
    data.unlink()
    with pytest.raises(GlocalError, match="as seen from where the run was started"):
        sweep.train(out, read(out / sweep.FILE, {}, {}))


def test_what_is_done_with_other_code_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed, own = glocal.load("digits", clients=3), tmp_path / "own.py"
    own.write_text("first = 1")
    specs, config = ["fedavg"], Config(metric=f"{own}:cost")
    for _ in range(2):
        same_data.check(tmp_path, "x", fed, specs, config)
    other = glocal.load("digits", clients=4)
    with pytest.raises(GlocalError, match=r"the data of .*x has changed since"):
        same_data.check(tmp_path, "x", other, specs, config)
    same_data.check(tmp_path, "y", other, specs, config)
    own.write_text("first = 2")
    with pytest.raises(GlocalError, match=r"own.py has changed since .*x began: give it back"):
        same_data.check(tmp_path, "x", fed, specs, config)
    for power in (1, 1, 2):
        made = eval(f"lambda: fedavg(lr=0.1**{power})", {"fedavg": fedavg})
        monkeypatch.setitem(REGISTERED, "mine", Entry("method", made))
        with nullcontext() if power == 1 else pytest.raises(GlocalError, match="mine has changed"):
            same_data.check(tmp_path, "z", fed, ["mine"], Config())
    (tmp_path / same_data.FILE).write_text("[")
    with pytest.raises(GlocalError, match=r"data.json is damaged"):
        same_data.check(tmp_path, "x", fed, specs, config)
