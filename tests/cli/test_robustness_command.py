"""``glocal robustness``: the table, the JSON, and what is refused before anyone trains."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from glocal import load
from glocal.cli import app as cli
from glocal.cli.commands.robustness import DEFAULT_ATTACKS, defaults
from glocal.evaluation.summary import Table
from glocal.experiment import parallel as workers
from glocal.experiment import result_files
from glocal.experiment.attack_report import chance, honest_summary
from glocal.experiment.config import Config
from glocal.experiment.fit import train_all
from glocal.methods import resolve
from glocal.report.robustness import show
from glocal.studies.robustness import NO_ATTACK
from glocal.training import attacks

FEW = ["--clients", "6", "--rounds", "2", "--model", "mlp(8)", "--partition", "iid"]
FEW += ["--baseline", "local(lr=0.1, max_epochs=2)", "--jobs", "1"]


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["glocal", "robustness", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        out, err = capsys.readouterr()
        return int(ended.value.code or 0), out, err

    return run


def test_a_table_and_its_json(command: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    tried = ["--attack", "nan", "--attack", "backdoor(1)"]
    code, out, err = command("fedavg", "fedavg+median", *tried, *FEW, "--json", str(file))
    assert code == 0, err
    found = json.loads(file.read_text())
    fed = load("digits", clients=6, partition="iid")
    who = attacks.malicious(0.2, 6, 0)
    assert found["malicious"] == [fed.names[k] for k in who]
    assert found["chance"] == pytest.approx(chance(fed, who))
    assert found["repeats"] == 3
    names = [NO_ATTACK, "nan(share=0.2)", "backdoor(1, share=0.2)"]
    assert [(r["method"], r["attack"]) for r in found["rows"]] == [
        (m, a) for m in ("fedavg", "fedavg+median") for a in names
    ]
    for r in found["rows"]:
        assert r["honest"] == 5 == r["better_off"] + r["worse_off"] + r["undecided"]
        assert len(r["mean"]["values"]) == 3
        assert (r["backdoor"] is None) == (not r["attack"].startswith("backdoor"))
        assert r["mean"]["by"] == "repeats"
    clean, broken, _, _, kept, _ = found["rows"]
    assert clean["mean"]["difference"] == 0
    assert broken["stopped"] == [1, 1, 1]
    assert kept["stopped"] == [None] * 3
    change = broken["mean"]["value"] - clean["mean"]["value"]
    assert broken["mean"]["difference"] == pytest.approx(change)
    for text in ("backdoor %", "Chance, the best that one", "1 of 6 clients are malicious"):
        assert text in " ".join(out.split())
    assert "fedavg under nan(share=0.2): in 3 of 3 repeats" in out
    assert " ± " in out
    code, out, _ = command("fedavg", "fedavg+median", *tried, *FEW, "--json", "-")
    assert code == 0
    assert json.loads(out) == found


def test_processes_give_the_same_and_know_the_yardsticks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    few: dict[str, Any] = {"clients": 6, "rounds": 1, "model": "mlp(4)", "repeats": 2}
    few |= {
        "engine": "sequential",
        "baseline": "local(lr=0.1, max_epochs=1)",
        "attack": "sign-flip(share=0.2)",
    }
    one, two = Config(**few, jobs=1), Config(**few, jobs=2)
    fed = one.federation()
    ((_, first),) = train_all(["fedavg"], one, fed)
    dealt: list[str] = []

    class Pool(workers.ProcessPoolExecutor):
        def submit(self, fn: Any, spec: str, *rest: Any) -> Any:  # type: ignore[override]
            dealt.append(spec)
            return super().submit(fn, spec, *rest)

    monkeypatch.setattr(workers, "ProcessPoolExecutor", Pool)
    ((_, second),) = train_all(["fedavg"], two, fed, baseline=first.baseline)
    assert result_files.result({"": first}) == result_files.result({"": second})
    assert dealt == ["fedavg", "fedavg"]


def test_a_share_of_an_attacks_own(command: Callable[..., Any]) -> None:
    shared = ["--attack", "sign-flip(share=0.5)", "--repeats", "1"]
    code, out, _ = command("fedavg", *shared, *FEW, "--json", "-")
    assert code == 0
    clean, hit = json.loads(out)["rows"]
    assert (clean["honest"], hit["honest"]) == (5, 3)
    assert hit["mean"]["by"] is None


def test_defaults() -> None:
    assert [resolve(spec).combine.name for spec in defaults(0.3)] == [  # type: ignore[union-attr]
        "mean",
        "median",
        "trimmed-mean",
        "krum",
        "multi-krum",
        "geometric-median",
        "norm-bound",
    ]
    assert "share=0.3" in defaults(0.3)[2]
    assert [attacks.parse(a).share for a in DEFAULT_ATTACKS] == [0.2] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--attack", "replce"], "unknown attack 'replce': did you mean 'replace'"),
        (["--malicious", "0.01"], "makes nobody malicious"),
        (["--malicious", "0.99"], "makes everybody malicious"),
        (["fedavg", "local"], "local sends nothing, so no attack can reach it"),
        (["krum(malicious=5)", "--clients", "8"], "krum cannot tell 5 malicious of 8 clients"),
        (["fedavgg"], "unknown method 'fedavgg'"),
        (["fedavg", "--attack", "backdoor(size=20)"], "has no room on images"),
        (["fedavg", "--json", "/nowhere/at/all.json"], "does not exist"),
    ],
)
def test_refused_before_anyone_trains(
    command: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr("glocal.experiment.fit.train_all", None)
    code, out, err = command(*arguments)
    assert code == 2
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not out


def test_chance_is_the_best_single_answer() -> None:
    fed = load("digits", clients=6, partition="classes(2)", seed=0)
    shares = torch.stack(
        [torch.bincount(fed[k].train[1], minlength=10) / len(fed[k].train[1]) for k in range(6)]
    )
    assert chance(fed) == pytest.approx(float(shares.mean(0).max()))
    assert chance(fed, (0, 1)) == pytest.approx(float(shares[2:].mean(0).max()))


def test_figures_of_the_honest() -> None:
    verdicts = ["worse off", "better off", "undecided", "better off"]
    rows = Table({"accuracy": a / 10, "verdict": v} for a, v in enumerate(verdicts))
    found = honest_summary(rows, {"accuracies": [[0.0, 0.1, 0.2, 0.3]]}, {0, 3})
    assert (found["mean"], found["worst10"]) == pytest.approx((0.15, 0.1))
    assert [found[k] for k in ("better_off", "worse_off", "undecided", "clients")] == [1, 0, 1, 2]
    assert found["values"]["accuracy"] == [[0.1, 0.2]]
    nobody = Table({"accuracy": a / 10, "verdict": None} for a in range(4))
    found = honest_summary(nobody, {"accuracies": [[0.0, 0.1, 0.2, 0.3]]}, {0, 3})
    assert [found[k] for k in ("better_off", "worse_off", "same", "undecided")] == [None] * 4


def test_a_terminal_sees_colours(capsys: pytest.CaptureFixture[str]) -> None:
    one = {"value": 0.5, "difference": -0.1, "low": None, "high": None, "by": None}
    row = {"method": "m", "attack": "a", "mean": one, "worst10": one, "better_off": 0}
    row |= {"worse_off": 1, "backdoor": None, "stopped": [None], "honest": 2}
    common = {"malicious": ["x"], "repeats": 1, "estimate": "own", "clients": 3, "chance": 0.1}
    show({"rows": [{**row, "attack": NO_ATTACK}, row], **common})
    out = capsys.readouterr().out
    assert "-10.0" in out
    assert "±" not in out
    assert "1 of 3 clients are malicious" in out
    show({"rows": [row, {**row, "honest": 1}], **common})
    assert "Attacks differ" in capsys.readouterr().out
    assert "its own test split" in out
