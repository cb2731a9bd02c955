"""Pages of all kinds of folders: unfinished, without a baseline, of numbers, many, damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from page_files import NAMES, Page, comparison, curve, method, row, usual

import glocal
from conftest import Command
from glocal.core.errors import GlocalError
from glocal.evaluation.summary import Table
from glocal.experiment.comparison import Comparison
from glocal.experiment.run import Run
from glocal.report.page import collect, render


def headings(page: Page) -> list[str]:
    return [e.text for e in page.of("h2")]


def answer(page: Page) -> str:
    return page.with_class("answer")[0].text


def without_baseline() -> dict[str, Any]:
    rows = [
        {k: v for k, v in row(n, k, 0.01).items() if k in ("client", "n_train", "n_test", "value")}
        | {"verdict": None, "benefit": None}
        for k, n in enumerate(NAMES)
    ]
    found = method(rows)
    names = ("better_off", "worse_off", "same", "undecided", "benefit_low", "benefit_high")
    found["summary"] |= dict.fromkeys(names)
    del found["summary"]["at_least"]
    return found


def test_what_a_run_has_nothing_for_is_absent(tmp_path: Path) -> None:
    folder = comparison(tmp_path / "c", {"fedavg": without_baseline()}, lines=[])
    page = Page(render(collect([folder])))
    assert answer(page) == (
        "With fedavg, the mean accuracy of 5 participants is 74.2 %; nobody is set against being "
        "alone, so who is better off cannot be told."
    )
    assert headings(page) == [
        "The answer",
        "For a participant",
        "Methods",
        "Every participant",
        "What it costs",
        "How evenly",
        "To run it again",
    ]


def test_all_that_there_is_has_a_section(tmp_path: Path) -> None:
    methods = usual(
        privacy={
            "epsilon": None, "delta": 1e-5, "rounds": 6, "where": "server", "neighbours": "clients",
            "sampling": "Poisson", "noise": 1.0, "clip": 0.1, "accountant": "rdp",
        },
        adapted_mean=0.7823,
        adapted_better_off=4,
        adapted_worse_off=0,
        adapted={"gain": {"difference": 0.0371, "low": None, "high": None}, "by": {"ewc": 7}},
    )  # fmt: skip
    for each in methods["ditto"]["clients"]:
        gains = {f"adapted_{k}": each[k] for k in ("estimate", "low", "high", "verdict", "value")}
        each |= {**gains, "adapted_by": "ewc"}
    folder = comparison(tmp_path / "c", methods)
    (folder / "m1" / "synthetic.png").write_bytes(b"\x89PNG small")
    (folder / "m0" / "synthetic.png").write_bytes(b"\x89PNG" + bytes(400_000))
    page = Page(render(collect([folder])))
    assert headings(page) == [
        "The answer",
        "For a participant",
        "Methods",
        "Every participant",
        "Alone against together",
        "Adapted",
        "Learning",
        "What it costs",
        "How evenly",
        "Calibration",
        "Privacy spent",
        "Synthetic data",
        "To run it again",
    ]
    assert any("ε = ∞ (vacuous: no protection)" in p.text for p in page.of("p"))
    (image,) = page.of("img")
    assert image.attributes["alt"] == "Synthetic examples that ditto made, by class"


@pytest.mark.parametrize(
    ("metric", "said", "gain"),
    [
        ("auc", "points of AUC above alone", "+4.2"),
        ("mae", "MAE better than alone by", "+0.0421"),
    ],
)
def test_figures_are_in_the_metrics_unit(metric: str, said: str, gain: str, tmp_path: Path) -> None:
    about: dict[str, Any] = {"metric": metric, "lower_is_better": metric == "mae"}
    about |= {"task": "regression", "mean": 0.0742} if metric == "mae" else {}
    page = Page(render(collect([comparison(tmp_path / "c", usual(**about))])))
    names = {e.text for e in page.with_class("name")}
    assert said in names
    texts = {e.text for e in page.of("data") if e.attributes["data-path"].endswith("0/estimate")}
    assert gain in texts


def test_an_unfinished_comparison_shows_what_there_is(tmp_path: Path) -> None:
    folder = comparison(tmp_path / "c", usual(), finished=False, lines=curve(3))
    page = Page(render(collect([folder])))
    assert answer(page) == "Nothing is finished yet, so nothing can be said yet."
    assert headings(page) == ["The answer", "Learning", "To run it again"]
    assert page.with_class("state")[0].text == "not finished"
    assert "fedavg: stopped at round 6 of 12" in page.with_class("notice")[0].text
    own = {"schema": 1, "data": {}, "methods": {"ditto": usual()["ditto"]}}
    (folder / "m1" / "result.json").write_text(json.dumps(own))
    page = Page(render(collect([folder])))
    assert answer(page).startswith("With ditto, better off than alone is shown for 3 of 5")


def test_several_folders_are_side_by_side(tmp_path: Path) -> None:
    places = [comparison(tmp_path / n, usual(), fingerprint=n * 4) for n in ("aa", "bb")]
    page = Page(render(collect(places)))
    assert headings(page)[:2] == ["Side by side", "The answer"]
    assert "not comparable" in page.with_class("notice")[0].text
    assert len(page.with_class("answer")) == 2
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))


def test_a_sweep_has_its_table_and_a_curve_over_its_setting(tmp_path: Path) -> None:
    folder = comparison(tmp_path / "s" / "001", usual()).parent
    (folder / "sweep.toml").write_text('methods = ["ditto"]\n[sweep]\nlam = [0.1, 1]\n')
    cells = [
        {"method": "ditto", "lam": lam, "seeds": 1, "validation": v, "validation_sd": None,
         "mean": v + 0.01, "mean_sd": None, "worst10": v - 0.1, "benefit": 0.02, "better_off": 3.0,
         "worse_off": 0.0, "diverged": 0, "chosen": lam == 1}
        for lam, v in ((0.1, 0.71), (1, 0.73), (10, 0.69))
    ]  # fmt: skip
    result = {"schema": 1, "metric": "accuracy", "varied": ["lam", "seed"], "cells": []}
    (folder / "result.json").write_text(json.dumps({**result, "over_seeds": cells}))
    page = Page(render(collect([folder])))
    assert answer(page) == ("A sweep over lam, seed: validation data chooses ditto with lam = 1.")
    assert headings(page) == ["The answer", "The sweep", "To run it again"]
    assert [e.text for e in page.of("title")][2:] == [
        "ditto, lam = 0.1: 72.0",
        "ditto, lam = 1: 74.0, chosen",
        "ditto, lam = 10: 70.0",
    ]


def test_the_partition_is_drawn(tmp_path: Path) -> None:
    folder = comparison(tmp_path / "c", usual())
    result = json.loads((folder / "result.json").read_text())
    counts = [[k, 3 * k, 0] for k in range(len(NAMES))]
    result["data"]["label_counts"] = counts
    (folder / "result.json").write_text(json.dumps(result))
    page = Page(render(collect([folder])))
    titles = {e.text for e in page.of("title")}
    assert "Lübeck: 2 of label 0, 6 of label 1" in titles
    assert len(page.with_class("shade")) == 8  # two shades for each, and nobody is without labels
    (group,) = page.data["groups"]
    assert group["data"]["client_names"] == list(NAMES)


def many(clients: int, folder: Path) -> dict[str, Any]:
    """The data of three methods on so many clients."""
    specs = {f"m{i}": usual()["ditto"] for i in range(3)}
    data = collect([comparison(folder, specs)])
    rows = [row(f"site {k}", k, (k - clients / 2) / clients) for k in range(clients)]
    for each in data["groups"][0]["methods"].values():
        each["clients"] = rows
    return data


def test_two_hundred_clients_are_all_listed(tmp_path: Path) -> None:
    text = render(many(200, tmp_path / "c"))
    assert len(text.encode()) < 3_000_000
    assert text.count("<article") == 200


def test_ten_thousand_clients_are_thinned_and_that_is_said(tmp_path: Path) -> None:
    text = render(many(10_000, tmp_path / "c"))
    assert len(text.encode()) < 3_000_000
    listed = text.count("<article")
    said = f"this page lists {listed} of them, the {listed // 2} that gain least"
    assert f"There are 10,000 participants: {said}" in text
    assert "site 0<" in text
    assert "site 9999<" in text
    assert "site 5000<" not in text


def test_long_curves_are_thinned_and_that_is_said(tmp_path: Path) -> None:
    folder = comparison(tmp_path / "c", usual(), lines=curve(700))
    page = Page(render(collect([folder])))
    points = page.data["groups"][0]["methods"]["ditto"]["curves"]["columns"]["val_loss"]
    assert len(points) <= 302
    assert (points[0][0], points[-1][0]) == (1, 700)
    assert any("Of 700 evaluated rounds of ditto" in p.text for p in page.of("p"))


def test_what_cannot_be_read_is_one_sentence(tmp_path: Path, command: Command) -> None:
    good = comparison(tmp_path / "good", usual())
    for name, content in (
        ("json", "{"),
        ("schema", '{"schema": 9, "methods": {}}'),
        ("list", '{"schema": 1, "methods": []}'),
        ("row", '{"schema": 1, "methods": {"a": {"summary": {}, "clients": [3]}}}'),
        ("none", '{"schema": 1, "methods": {"a": null}}'),
    ):
        broken = comparison(tmp_path / name, usual())
        (broken / "result.json").write_text(content)
        code, out, err = command("report", broken, "--out", "x.html")
        assert (code, out, err.count("\n")) == (2, "", 1), name
        assert "something went wrong" not in err
    Path("empty").mkdir()
    for words, said in (
        (["nowhere"], "there is no folder nowhere"),
        (["empty"], "there is no run in empty"),
        ([".", "--out", "x.html"], "has several runs in it and is no comparison"),
        ([good, "--out", "x.pdf"], "--out x.pdf must be the name of an .html file"),
        ([good, "--out", "no/x.html"], "there is no folder no for --out"),
        ([good, "--participant", "Köln"], "needs a file of its own: name it with --out"),
        ([good, "--participant", "Koeln", "--out", "x.html"], "unknown participant 'Koeln'"),
    ):
        code, out, err = command("report", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err
    assert not Path("x.html").exists()


def test_the_command_writes_a_page(tmp_path: Path, command: Command) -> None:
    comparison(tmp_path / "good", usual())
    assert command("report", "good")[:2] == (0, "Report: good/report.html\n")
    assert command("report", "good", "--out", "p.html")[:2] == (0, "Report: p.html\n")
    assert Path("p.html").read_bytes() == Path("good/report.html").read_bytes()
    assert command("report", "good")[0] == 0  # its own page is no run in the folder
    assert glocal.report.page.collect([Path("good/m0")])["groups"][0]["kind"] == "run"


def test_runs_in_python_have_the_same_page(tmp_path: Path) -> None:
    trained: Any = object()
    data, runs = {"data": "own"}, Comparison()
    for name, m in usual().items():
        rows = Table(m["clients"])
        runs[name] = Run(name, {}, rows, m["summary"], curve(), data, {}, {}, trained)
    runs.report(tmp_path / "both.html")
    page = Page((tmp_path / "both.html").read_text(encoding="utf-8"))
    assert answer(page).startswith("With fedavg, better off than alone is shown for 2 of 5")
    assert "Köln: " in {e.text[:6] for e in page.with_class("said")}
    runs["ditto"].report(str(tmp_path / "one.html"), "Köln")
    text = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert "Köln" in text
    assert "Görlitz" not in text
    with pytest.raises(GlocalError, match=r"the page .*x\.txt must be the name of an \.html file"):
        runs.report(tmp_path / "x.txt")
