"""``glocal fairness`` and what it is made of: figures in each repeat, paired between methods."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from sklearn.datasets import load_digits

from glocal.cli import app as cli
from glocal.cli.commands.fairness import DEFAULT
from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.core.target import Target
from glocal.evaluation.metrics import FIGURES, fairness
from glocal.evaluation.summary import against, fairness_against
from glocal.methods import resolve
from glocal.report.fairness import curves, direction, in_words
from glocal.studies.fairness import check_metric

SOME = np.random.default_rng(0).uniform(0.5, 1.0, (2, 5, 12))
"""Two methods, five repeats, twelve clients."""


def summary(values: Any, metric: str = "accuracy") -> dict[str, Any]:
    table = [[float(v) for v in row] for row in values]
    return {"values": {metric: table}, "accuracies": table}


@pytest.mark.parametrize("metric", ["accuracy", "cross_entropy"])
def test_intervals_are_those_of_the_paired_t_test(metric: str) -> None:
    mine, base = (summary(t, metric) for t in SOME)
    found = fairness_against(mine, base, metric)
    assert (found["metric"], found["repeats"]) == (metric, 5)
    for figure in FIGURES:
        a, b = (
            [fairness(row, lower_is_better=metric != "accuracy")[figure] for row in t] for t in SOME
        )
        ends = stats.ttest_rel(a, b).confidence_interval(0.9)
        one = found[figure]
        assert one["values"] == pytest.approx(a)
        assert one["value"] == pytest.approx(np.mean(a))
        assert one["difference"] == pytest.approx(np.mean(a) - np.mean(b))
        assert (one["low"], one["high"]) == pytest.approx((ends.low, ends.high), abs=1e-12)
        assert one["by"] == "repeats"


def test_the_worst_tenth_is_of_each_repeat_and_then_averaged() -> None:
    """Two clients who take turns at being worst: on average over repeats they are alike."""
    turns = [[0.2, 0.8], [0.8, 0.2], [0.2, 0.8]]
    found = fairness_against(summary(turns), summary(turns))
    assert found["worst10"]["value"] == pytest.approx(0.2)
    assert found["gap"]["value"] == pytest.approx(0.6)
    of_means = fairness(np.mean(turns[:2], axis=0).tolist())
    assert (of_means["worst10"], of_means["gap"]) == pytest.approx((0.5, 0.0))


@pytest.mark.parametrize("repeats", [1, 2])
def test_with_few_repeats_nothing_has_an_interval(repeats: int) -> None:
    """Clients are no pairs: they may share one model, and its luck."""
    mine, base = (summary(t[:repeats]) for t in SOME)
    found = fairness_against(mine, base)
    as_before = against(mine, base)
    assert found["mean"]["difference"] == pytest.approx(as_before["difference"], abs=1e-6)
    assert as_before["by"] is as_before["low"] is None
    for figure in FIGURES:
        a, b = (np.mean([fairness(row)[figure] for row in t[:repeats]]) for t in SOME)
        assert found[figure]["difference"] == pytest.approx(a - b)
        assert [found[figure][key] for key in ("low", "high", "by")] == [None] * 3


def test_one_client_in_one_repeat_says_nothing_about_chance() -> None:
    found = fairness_against(summary([[0.5]]), summary([[0.4]]))
    assert found["mean"]["difference"] == pytest.approx(0.1)
    assert [found["mean"][key] for key in ("low", "high", "by")] == [None] * 3


def test_clients_without_a_value_are_left_out_also_after_json() -> None:
    gaps = SOME.copy()
    gaps[:, :, 3] = math.nan
    mine, base = (summary(t) for t in gaps)
    found = fairness_against(mine, base)
    without = [summary(np.delete(t, 3, axis=1)) for t in SOME]
    assert found == fairness_against(*without)
    assert found == fairness_against(files.plain(mine), files.plain(base))


def test_repeats_without_a_value_are_no_pairs() -> None:
    """Four of five repeats are left; of two, there is no interval over repeats any more."""
    gaps = SOME.copy()
    gaps[:, 0] = math.nan
    found = fairness_against(*map(summary, gaps))
    kept = fairness_against(*(summary(t[1:]) for t in SOME))
    assert found["gini"]["low"] == pytest.approx(kept["gini"]["low"])
    gaps[:, 1:3] = math.nan
    found = fairness_against(*map(summary, gaps))
    assert found["gini"]["by"] is found["mean"]["by"] is None


def test_what_cannot_be_paired_is_refused() -> None:
    mine, base = (summary(t) for t in SOME)
    with pytest.raises(GlocalError, match="unknown metric 'ece'"):
        fairness_against(mine, base, "ece")
    with pytest.raises(
        GlocalError, match="5 repeats of 12 clients cannot be paired with 2 repeats"
    ):
        fairness_against(mine, summary(SOME[1][:2]))


def evaluated(metric: str, low: float | None, high: float | None) -> dict[str, Any]:
    difference = 0.0 if low is None or high is None else (low + high) / 2
    one = {"value": 0.5, "difference": difference, "low": low, "high": high}
    return {"metric": metric, **dict.fromkeys(FIGURES, one)}


@pytest.mark.parametrize(
    ("metric", "figure", "up"),
    [
        ("accuracy", "mean", "better"),
        ("accuracy", "worst10", "better"),
        ("accuracy", "gini", "worse"),
        ("accuracy", "gap", "worse"),
        ("cross_entropy", "mean", "worse"),
        ("ece", "worst10", "worse"),
        ("ece", "gini", "worse"),
        ("auc", "worst10", "better"),
    ],
)
def test_which_way_is_better(metric: str, figure: str, up: str) -> None:
    down = {"better": "worse", "worse": "better"}[up]
    assert direction(evaluated(metric, 0.01, 0.03), figure) == up
    assert direction(evaluated(metric, -0.03, -0.01), figure) == down
    assert direction(evaluated(metric, -0.01, 0.03), figure) == "undecided"
    assert direction(evaluated(metric, 0.0, 0.0), figure) == "undecided"
    assert direction(evaluated(metric, None, None), figure) == "undecided"


def test_in_words() -> None:
    assert in_words("ditto", evaluated("accuracy", 0.01, 0.03)) == (
        "ditto: worst 10 % +2.0 (+1.0 … +3.0), better, at +2.0 (+1.0 … +3.0) of the mean, better."
    )
    assert "worst 10 % +0.020 (+0.010 … +0.030), worse" in in_words(
        "x", evaluated("ece", 0.01, 0.03)
    )
    assert "worst 10 % +0.0 (no interval), undecided" in in_words(
        "x", evaluated("accuracy", None, None)
    )


def test_curves_have_the_mean_gini_and_the_mean_worst_tenth() -> None:
    """Averaged point by point over repeats; where a client has no value, about so."""
    held, ordered = curves(SOME[0].tolist())
    figures = fairness_against(summary(SOME[0]), summary(SOME[0]))
    area = (held[1:] + held[:-1]).sum() / 24
    assert 100 * (1 - 2 * area) == pytest.approx(figures["gini"]["value"], abs=1e-9)
    assert ordered[:2].mean() == pytest.approx(figures["worst10"]["value"])
    gaps: list[list[float | None]] = SOME[0].tolist()
    gaps[0][3] = None
    gaps[1] = [None] * 12
    held, ordered = curves(gaps)
    assert (len(held), len(ordered), held[-1]) == (13, 12, 1.0)
    assert np.isnan(curves([[None, None]])[0]).all()
    # A client without a value in any repeat is no point.
    held, ordered = curves([[0.5, None, 0.25], [0.75, None, 0.25]])
    assert ordered.tolist() == [0.25, 0.625]
    assert held.tolist() == pytest.approx([0, (1 / 3 + 1 / 4) / 2, 1])


def classes(count: int) -> Any:
    return SimpleNamespace(target=Target(), classes=count, x=torch.zeros(3, 2), y=torch.zeros(3))


def test_metrics_must_fit_the_data() -> None:
    check_metric("auc", classes(2))
    check_metric("top5", classes(6))
    with pytest.raises(GlocalError, match="auc does not fit data with 10 classes: use accuracy"):
        check_metric("auc", classes(10))
    with pytest.raises(GlocalError, match="top5 does not fit data with 5 classes"):
        check_metric("top5", classes(5))
    with pytest.raises(GlocalError, match="did you mean 'accuracy'"):
        check_metric("acuracy", classes(10))


def test_the_methods_unless_others_are_given_exist() -> None:
    for spec in DEFAULT:
        resolve(spec)


QUICK = [
    "--data",
    "small.npz",
    "--rounds",
    "2",
    "--clients",
    "5",
    "--model",
    "mlp(8)",
    "--partition",
    "dirichlet(0.3)",
]
ALONE = ["--baseline", "local(lr=0.1, max_epochs=2)"]
THREE = ["fedavg", "ditto", "local(lr=0.1, max_epochs=2)"]

Command = Callable[..., tuple[object, str, str]]


@pytest.fixture
def glocal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Run the command in a folder with 300 digits: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    x, y = load_digits(return_X_y=True)
    x = (x[:300] / 16).astype("float32").reshape(-1, 1, 8, 8)
    np.savez("small.npz", x=x, y=y[:300])
    np.savez("two.npz", x=x, y=y[:300] % 2)

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["glocal", "fairness", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return run


def test_the_command_prints_writes_and_draws(glocal: Command) -> None:
    words = [*THREE, *QUICK, *ALONE, "--repeats", "3", "--transform", "rotate(90, clients=1)"]
    code, out, err = glocal(*words, "--json", "found.json", "--picture", "drawn.png")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[1].split("  ")[0] == "method"
    for column in ("mean %", "worst 10 %", "best 10 %", "Gini ×100", "gap %", "better off"):
        assert column in lines[1]
    found = json.loads(Path("found.json").read_text())
    assert (found["metric"], found["against"]) == ("accuracy", "fedavg")
    assert list(found["methods"]) == list(found["fairness"]) == THREE
    one = found["fairness"]["ditto"]
    # The row of figures, and below it that of differences.
    at = next(i for i, line in enumerate(lines) if line.startswith("ditto "))
    assert f"{100 * one['worst10']['value']:.1f}" in lines[at]
    half = (one["gini"]["high"] - one["gini"]["low"]) / 2
    assert f"{one['gini']['difference']:+.1f} ± {half:.1f}" in lines[at + 1]
    assert lines[at + 2].split()[-2:] == ["–", "–"]  # the yardstick is not set against itself
    text = " ".join(out.split())
    assert "each client's model on its own test split" in text
    assert "over the 5 clients, not over examples" in text
    assert "in each of 3 repeats" in text
    assert "its worst 10 % is higher" in text
    assert "from fedavg, ± half of Student's 90 % interval, paired over repeats" in text
    assert in_words("ditto", one) in lines
    assert lines[-1] == "Picture: drawn.png"
    summary = found["methods"]["ditto"]["summary"]
    assert summary["values"]["accuracy"] == summary["accuracies"]
    assert one["mean"]["values"] == pytest.approx([np.mean(r) for r in summary["accuracies"]])
    _is_a_picture(Path("drawn.png"))


def _is_a_picture(path: Path) -> None:
    from matplotlib.image import imread

    pixels = imread(path)
    assert min(pixels.shape[:2]) >= 600
    colours = {tuple(c) for c in (pixels[::3, ::3, :3] * 255).astype(int).reshape(-1, 3).tolist()}
    assert len(colours) > 20, "nothing was drawn"
    assert path.stat().st_size < 150_000


def test_another_metric_and_another_base(glocal: Command) -> None:
    words = ["fedavg", "fedavg(lr=0.01)", *QUICK, *ALONE, "--repeats", "3"]
    code, out, _ = glocal(*words, "--metric", "cross_entropy", "--against", "fedavg(lr=0.01)")
    assert code == 0
    text = " ".join(out.split())
    assert "cross_entropy (lower is better): each client's model on its own test split" in text
    assert "its worst 10 % is lower" in text
    assert "Against fedavg(lr=0.01): fedavg: worst 10 % -" in text
    assert "mean %" not in out


def test_few_repeats_say_what_has_no_interval(glocal: Command) -> None:
    code, out, _ = glocal("fedavg", "ditto", *QUICK, *ALONE, "--repeats", "1")
    assert code == 0
    lines = out.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("ditto "))
    assert "±" not in lines[at + 1]
    text = " ".join(out.split())
    assert "with three repeats or more, with an interval" in text
    assert "(no interval)" in text
    assert "everybody's test examples, by its label shares" in text


def test_one_method_has_nothing_to_be_set_against(glocal: Command) -> None:
    code, out, _ = glocal("fedavg", *QUICK, *ALONE, "--repeats", "1")
    assert code == 0
    assert not any(word in out for word in ("±", "Against", "Signed"))


def test_json_to_stdout_is_nothing_but_json_and_repeats_itself(glocal: Command) -> None:
    words = ["fedavg", "ditto", *QUICK, *ALONE, "--repeats", "1", "--json", "-"]
    (_, first, _), (_, again, _) = glocal(*words), glocal(*words, "--picture", "p.png")
    assert first == again
    assert json.loads(first)["fairness"]["ditto"]["gap"]["by"] is None
    assert Path("p.png").exists()


def test_a_metric_that_no_client_has_a_value_of(glocal: Command) -> None:
    """An AUC needs both classes, and every client has one."""
    words = ["fedavg", "ditto", "--data", "two.npz", *QUICK[2:], *ALONE, "--metric", "auc"]
    code, out, err = glocal(
        *words, "--partition", "classes(1)", "--repeats", "1", "--json", "a.json"
    )
    assert code == 0
    assert err.count("glocal: the metric auc has no value (NaN) on any client's test examples") == 1
    assert "ditto: worst 10 % – (no interval), undecided" in out
    assert json.loads(Path("a.json").read_text())["fairness"]["ditto"]["mean"]["value"] is None
    code, out, err = glocal(*words, "--repeats", "1", "--picture", "p.png")
    assert (code, err) == (0, "")
    assert Path("p.png").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--metric", "acuracy", *QUICK], "did you mean 'accuracy'"),
        (["--metric", "auc", *QUICK], "auc does not fit data with 10 classes"),
        (
            ["--metric", "top5", "--data", "two.npz", "--partition", "iid"],
            "top5 does not fit data with 2 classes",
        ),
        (["fedavg", "--against", "ditto"], "--against ditto is not among the methods"),
        (["fedavgg"], "did you mean 'fedavg'"),
        (["--picture", "drawn.jpg"], ".png"),
        (["--json", "."], "is a folder"),
        (["--json", "nowhere/a.json"], "does not exist"),
        (["--fraction", "0.5", "--sampled", "2"], "say the same thing twice"),
    ],
    ids=lambda v: " ".join(v[:2]) if isinstance(v, list) else "",
)
def test_bad_input_is_one_clear_line_before_anything_is_trained(
    glocal: Command, monkeypatch: pytest.MonkeyPatch, words: list[str], says: str
) -> None:
    def trained(*_: object, **__: object) -> None:
        raise AssertionError("something was trained")

    monkeypatch.setattr("glocal.experiment.fit.train_all", trained)
    code, out, err = glocal(*words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1
    assert {p.name for p in Path().iterdir()} == {"small.npz", "two.npz"}
