"""``glocal study theory`` and ``bias-variance`` print, write and draw what the functions find."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glocal.cli import app as cli
from glocal.report.theory import with_se, within
from glocal.studies import theory
from glocal.studies.linear_teacher import Teachers

SMALL = ["--features", "3", "--clients", "4", "--examples", "40", "--tests", "10", "--draws", "3"]
SETTINGS = theory.with_rhos(Teachers(0, features=3, clients=4, examples=40, tests=10), (0.4, 0.1))
RHOS = ["--rho", "0.4", "--rho", "0.1", "--rho", "0.4"]

Command = Callable[..., tuple[object, str, str]]


@pytest.fixture
def glocal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["glocal", "study", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return run


def rows(out: str) -> list[list[str]]:
    """The rows of all tables, in words."""
    return [line.replace(" ± ", "±").split() for line in out.splitlines() if line[:2] == "0."]


def written(expected: dict[str, Any]) -> Any:
    """As JSON has it, to rounding."""
    return json.loads(json.dumps(expected))


def test_theory(glocal: Command) -> None:
    alphas = ["--alpha", "1", "--alpha", "0", "--alpha", "0.5"]
    words = ["theory", *SMALL, *RHOS, *alphas, "--seed", "7"]
    code, out, err = glocal(*words, "--json", "found.json", "--picture", "drawn.png")
    assert (code, err) == (0, "")
    expected = theory.alpha_mixture(SETTINGS, draws=3, trained=0, grid=[0, 0.5, 1], seed=7)
    found = json.loads(Path("found.json").read_text())
    assert found["settings"] == written(expected)["settings"]
    table = rows(out)
    assert [row[:2] for row in table[:6]] == [
        [r, a] for r in ("0.4", "0.1") for a in ("0", "0.5", "1")
    ]
    for k, s in enumerate(found["settings"]):
        for i in range(3):
            _, _, measured, closed, ratio, printed, times = table[3 * k + i]
            mean, se = s["measured"][i]["mean"], s["measured"][i]["se"]
            assert list(map(float, measured.split("±"))) == pytest.approx([mean, se], rel=0.05)
            assert float(closed) == pytest.approx(s["closed_form"][i], rel=1e-3)
            assert float(ratio) == pytest.approx(mean / s["closed_form"][i], abs=5e-4)
            assert float(printed) == pytest.approx(s["printed"][i], rel=1e-3)
            assert float(times) == pytest.approx(mean / s["printed"][i], abs=5e-4)
        star = s["best_alpha"]
        _, best, predicted, off, printed, *_ = table[6 + k]
        assert float(best.split("±")[0]) == pytest.approx(star["found"], abs=0.02)
        assert float(predicted) == pytest.approx(star["predicted"], abs=5e-5)
        assert float(off) == pytest.approx(star["found"] - star["predicted"], abs=5e-5)
        assert float(printed) == pytest.approx(star["printed"], abs=5e-5)
    assert "Trained by glocal on the first draw" in out
    assert all(run["weights_apart"] < 1e-5 for run in found["trained"])
    assert Path("drawn.png").read_bytes()[:4] == b"\x89PNG"


def test_bounds_are_rounded_up() -> None:
    assert [within(0.00347, 3), within(1.289), within(0.2)] == ["0.004", "1.3", "0.2"]
    value = {"mean": 0.0670709, "se": 0.000285752}
    assert with_se(value) == "0.06707 ± 0.00029"
    assert with_se({"mean": 1.5, "se": 0.0}) == "1.500000 ± 0.000000"


def test_bias_variance(glocal: Command) -> None:
    words = ["bias-variance", *SMALL, *RHOS, "--noises", "3", "--alpha", "0.5"]
    code, out, err = glocal(*words, "--json", "found.json", "--picture", "drawn.svg")
    assert (code, err) == (0, "")
    expected = theory.bias_variance(SETTINGS, draws=3, noises=3, grid=[0.5])
    found = json.loads(Path("found.json").read_text())
    assert found == written(expected)
    for row, s in zip(rows(out), found["settings"], strict=False):
        assert float(row[0]) == s["rho"]
        assert float(row[2].split("±")[0]) == pytest.approx(s["squared_bias"][0]["mean"], abs=0.01)
        assert float(row[6]) == pytest.approx(s["sum"][0]["mean"], rel=1e-3)
        assert float(row[7]) == pytest.approx(s["error"][0]["mean"], rel=1e-3)
        total = s["sum"][0]["mean"] / s["error"][0]["mean"]
        assert float(row[8].split("±")[0]) == pytest.approx(total, abs=1e-4)
    assert "covariance of the two" in out
    assert "<svg" in Path("drawn.svg").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["theory", "--rho", "-1"], "rho must be 0 or more, not -1"),
        (["theory", "--draws", "1"], "draws must be an integer of 2 or more"),
        (["theory", *SMALL, "--trained", "4"], "trained must be an integer from 0 to 3"),
        (["theory", "--alpha", "2"], "alpha must be from 0 to 1, not 2"),
        (["theory", "--examples", "20"], "examples must be 22 or more"),
        (["theory", "--clients", "1000000"], "million or less"),
        (["bias-variance", "--noises", "1"], "noises must be an integer of 2 or more"),
        (["bias-variance", "--sigma", "nan"], "sigma"),
    ],
    ids=lambda v: " ".join(v[-2:]) if isinstance(v, list) else "",
)
def test_bad_input_is_one_clear_line_and_code_2(
    glocal: Command, words: list[str], says: str
) -> None:
    code, out, err = glocal(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
