"""What a comparison says to each participant, from figures that are made by hand."""

from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest

from glocal.evaluation.summary import Table
from glocal.experiment.participants import as_csv, sentences
from glocal.experiment.result_files import result
from glocal.experiment.run import Run
from glocal.report.participants import show_participants


def row(client: str, verdict: str, gain: float, low: float, high: float, **more: Any) -> Any:
    figures = {"benefit": gain + 0.001, "estimate": gain, "low": low, "high": high, "needs": None}
    sizes = {"n_train": 70, "n_val": 10, "n_test": 20}
    values = {"value": 0.8, "local_value": 0.8 - gain}
    return {"client": client, "verdict": verdict, **figures, **sizes, **values, **more}


def run(name: str, rows: list[Any], *, metric: str = "auc", **summary: Any) -> Run:
    about = {"metric": metric, "benefit": 0.01, "repeats": 3, "mean": 0.8, **summary}
    trained: Any = object()
    return Run(name, {}, Table(rows), about, [], {}, {}, {}, trained)


CASES = [
    (
        row("Görlitz", "better off", 0.031, 0.008, 0.052),
        "join with ditto, +3.1 points AUC (0.8 … 5.2)",
    ),
    (
        row("Köln", "worse off", -0.021, -0.03, -0.012),
        "stay alone; with ditto it is worse off, -2.1 points AUC (-3.0 … -1.2)",
    ),
    (
        row("Bonn", "same", 0.001, -0.01, 0.012),
        "about the same with ditto as alone, +0.1 points AUC (-1.0 … 1.2)",
    ),
    (
        row("Wien", "undecided", 0.03, -0.01, 0.07, needs={"examples": 1540}),
        "cannot be told; with ditto +3.0 points AUC (-1.0 … 7.0), and it would take 1,540 test "
        "examples (it has 20)",
    ),
    (
        row("Graz", "undecided", 0.03, -0.01, 0.07, needs={"repeats": 9}),
        "cannot be told; with ditto +3.0 points AUC (-1.0 … 7.0), and it would take 9 repeats "
        "(there were 3)",
    ),
    (
        row("Linz", "undecided", 0.0001, -0.1, 0.1),
        "cannot be told; with ditto +0.0 points AUC (-10.0 … 10.0), and neither 1,000,000 test "
        "examples nor 100 repeats would tell so small a difference",
    ),
    (
        row("Füssen", "undecided", math.nan, math.nan, math.nan),
        "cannot be told: AUC needs both classes, and its test examples are of one",
    ),
    (
        row("Ulm", "undecided", math.nan, math.nan, math.nan, n_test=0),
        "cannot be told: it has no test examples",
    ),
]


@pytest.mark.parametrize(("figures", "text"), CASES, ids=lambda v: v if isinstance(v, str) else "")
def test_each_verdict_has_a_sentence(figures: Any, text: str) -> None:
    (said,) = sentences({"ditto": run("ditto", [figures])})
    assert said["sentence"] == f"{figures['client']}: {text}."
    assert said["advised"] == "ditto"


def test_the_method_is_the_one_that_validation_data_advises() -> None:
    good, better = row("a", "better off", 0.02, 0.01, 0.03), row("a", "better off", 0.09, 0.05, 0.1)
    for each in (good, better):
        each["advised"] = "fedavg"
    runs = {"fedavg": run("fedavg", [good]), "ditto": run("ditto", [better])}
    assert sentences(runs)[0]["sentence"] == "a: join with fedavg, +2.0 points AUC (1.0 … 3.0)."
    good["advised"] = "alone"
    (said,) = sentences(runs)
    assert said["sentence"] == (
        "a: stay alone by its validation data, which chooses; its test data shows it better off "
        "with fedavg, +2.0 points AUC (1.0 … 3.0), and with ditto, +9.0 points AUC (5.0 … 10.0)."
    )
    assert said["verdict"] is None
    bad = row("a", "worse off", -0.02, -0.03, -0.01, advised="fedavg")
    assert sentences({**runs, "fedavg": run("fedavg", [bad])})[0]["sentence"] == (
        "a: join with fedavg by its validation data, which chooses; its test data shows it worse "
        "off with it, -2.0 points AUC (-3.0 … -1.0); its test data, which does not choose, shows "
        "it better off with ditto, +9.0 points AUC (5.0 … 10.0)."
    )
    open_ = row("a", "undecided", 0.02, -0.01, 0.05, advised="fedavg", needs={"repeats": 9})
    assert sentences({**runs, "fedavg": run("fedavg", [open_])})[0]["sentence"] == (
        "a: cannot be told; with fedavg +2.0 points AUC (-1.0 … 5.0), and it would take 9 repeats "
        "(there were 3); its test data, which does not choose, shows it better off with ditto, "
        "+9.0 points AUC (5.0 … 10.0)."
    )
    good["verdict"] = better["verdict"] = "undecided"
    assert sentences(runs)[0]["sentence"] == (
        "a: stay alone, as its validation data says; on test data: fedavg +2.0 points AUC (1.0 … "
        "3.0), ditto +9.0 points AUC (5.0 … 10.0)."
    )


def test_who_has_no_metric_is_not_told_to_stay() -> None:
    figures = row("Füssen", "undecided", math.nan, math.nan, math.nan, advised="alone")
    (said,) = sentences({"fedavg": run("fedavg", [figures]), "ditto": run("ditto", [figures])})
    assert said["sentence"] == (
        "Füssen: cannot be told: AUC needs both classes, and its test examples are of one."
    )


def test_other_metrics_have_their_units() -> None:
    figures = row("a", "better off", 0.031, 0.008, 0.052)
    (said,) = sentences({"m": run("m", [figures], metric="accuracy")})
    assert said["sentence"] == "a: join with m, +3.1 points (0.8 … 5.2)."
    days = row("a", "better off", 1.31, 0.25, 2.4)
    (said,) = sentences({"m": run("m", [days], metric="mae", task="regression", mean=12.0)})
    assert said["sentence"] == "a: join with m, MAE better by 1.3 (0.2 … 2.4)."
    lost = row("a", "worse off", -457.0, -772.0, -143.0)
    (said,) = sentences({"m": run("m", [lost], metric="mae", task="regression", mean=3000.0)})
    assert said["sentence"] == (
        "a: stay alone; with m it is worse off, MAE worse by 457 (143 … 772)."
    )


def test_nobody_is_told_anything_without_a_baseline() -> None:
    assert sentences({"m": run("m", [row("a", "same", 0, 0, 0)], benefit=None)}) == []


def test_clients_and_methods_as_csv() -> None:
    rows = [figures for figures, _ in CASES]
    runs = {"ditto": run("ditto", rows), "fedavg(mu=1,k=2)": run("f", rows)}
    read = list(csv.DictReader(io.StringIO(as_csv(result(runs)["methods"]).decode())))
    assert len(read) == 2 * len(CASES)
    first = read[0]
    assert (first["client"], first["method"], first["metric"]) == ("Görlitz", "ditto", "auc")
    assert (float(first["value"]), float(first["low"]), first["verdict"]) == (
        0.8,
        0.008,
        "better off",
    )
    assert (read[3]["needs_examples"], read[3]["needs_repeats"]) == ("1540", "")
    assert (read[6]["benefit"], read[-1]["method"]) == ("", "fedavg(mu=1,k=2)")


def test_the_table_is_printed_for_few_clients(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [figures for figures, _ in CASES]
    show_participants({"ditto": run("ditto", rows)})
    out = capsys.readouterr().out
    assert "+3.1 (0.8 … 5.2) better off" in out
    assert "Görlitz: join with ditto, +3.1 points AUC (0.8 … 5.2).\n" in out
    show_participants({"ditto": run("ditto", rows * 3)})
    assert capsys.readouterr().out == ""
