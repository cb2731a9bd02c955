"""The picture of a comparison: who is where, in which unit and colour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from matplotlib.colors import to_hex

from glocal.core.errors import GlocalError
from glocal.evaluation.summary import Table
from glocal.experiment.comparison import Comparison
from glocal.experiment.run import Run
from glocal.report.benefits import NAMED, STYLES, draw, figure_of

ODD = ["Görlitz", "US$ 5 and $x_1^2$", "\\frac{1}{$", "<b>&\nKöln", "x" * 300, "שיבא"]


def row(client: str, verdict: str, gain: float | None, half: float = 0.02) -> dict[str, Any]:
    ends = (None, None) if gain is None else (gain - half, gain + half)
    figures = {"benefit": gain, "estimate": gain, "low": ends[0], "high": ends[1]}
    return {"client": client, "verdict": verdict, **figures}


def run(rows: list[Any], metric: str = "auc", **summary: Any) -> Run:
    about = {"metric": metric, "benefit": 0.01, "repeats": 3, "mean": 9.0, **summary}
    trained: Any = object()
    data = {"data": "folder/h.csv", "partition": "own ids"}
    return Run("m", {}, Table(rows), about, [], data, {}, {}, trained)


FEW = [
    row("a", "better off", 0.05),
    row("b", "worse off", -0.03),
    row("c", "undecided", 0.01),
    row("d", "undecided", None),
]


def points(axes: Any) -> dict[float, tuple[float, str]]:
    """At each height, the middle of the interval and its colour."""
    return {
        float(y): (round(float(x), 6), to_hex(drawn.get_color()))
        for drawn in axes.lines
        if drawn.get_label() in STYLES
        for x, y in zip(*drawn.get_data(), strict=True)
    }


def names(axes: Any) -> list[str]:
    return [label.get_text() for label in axes.get_yticklabels()]


def test_clients_are_in_order_with_their_colours_and_the_metrics_unit() -> None:
    other = [{**r, "estimate": r["estimate"] and -r["estimate"] / 2} for r in FEW]
    other[1]["verdict"] = "better off"
    figure = figure_of(Comparison(fedavg=run(FEW), ditto=run(other)), None)
    left, right = figure.axes
    assert names(left) == ["d", "b", "c", "a"]
    better, worse, open_ = (
        STYLES[v]["color"].lower() for v in ("better off", "worse off", "undecided")
    )
    assert points(left) == {1: (-3.0, worse), 2: (1.0, open_), 3: (5.0, better)}
    assert {y: x for y, (x, _) in points(right).items()} == {1: 1.5, 2: -0.5, 3: -2.5}
    (interval,) = left.collections[0].get_segments()
    assert interval.tolist() == [[pytest.approx(3), 3], [pytest.approx(7), 3]]
    assert left.get_xlabel() == "points of AUC above alone"
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert said == ["better off", "worse off", "undecided"]
    assert left.get_title(loc="left") == "fedavg\n1 better off, 1 worse off, 1 undecided"
    assert right.get_title(loc="left") == "ditto\n2 better off, 0 worse off, 1 undecided"
    assert "1 without a value" in figure.get_supxlabel()


def test_errors_are_in_their_own_unit() -> None:
    rows = [row("a", "better off", 1.5), row("b", "worse off", -0.5)]
    about = {"lower_is_better": True, "task": "regression"}
    (axes,) = figure_of({"m": run(rows, "mae", **about)}, None).axes
    assert [x for x, _ in points(axes).values()] == [1.5, -0.5]
    assert axes.get_xlabel() == "MAE better than alone by"


def test_many_clients_have_no_names_and_each_panel_its_order() -> None:
    rows = [row(f"c{i}", "undecided", i / 100) for i in range(NAMED + 1)]
    figure = figure_of({"a": run(rows), "b": run(rows[::-1])}, None)
    for axes in figure.axes:
        ordered = [x for _, (x, _) in sorted(points(axes).items())]
        assert ordered == [float(i) for i in range(NAMED + 1)]
        assert (axes.get_ylabel(), names(axes)) == ("clients, from the lowest", [])


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_odd_names_are_drawn_as_they_are(ending: str, tmp_path: Path) -> None:
    rows = [row(name, "same", 0.001 * i) for i, name in enumerate(ODD)]
    comparison = Comparison({"fedavg": run(rows), "$\\frac{$": run(rows)})
    figure = comparison.plot_clients(tmp_path / f"a{ending}")
    comparison.plot_clients(str(tmp_path / f"b{ending}"))
    begin = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}[ending]
    written = (tmp_path / f"a{ending}").read_bytes()
    assert written.startswith(begin)
    assert written == (tmp_path / f"b{ending}").read_bytes()
    assert names(figure.axes[0])[1:5] == [*ODD[1:3], "<b>& Köln", f"{'x' * 25}…"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("r.gif", "the picture .*r.gif must be the name of a .png or .svg or .pdf file"),
        ("rc", "must be the name"),
        ("no/x.png", "there is no folder .*no for the picture: make it first"),
        ("d.png", "the picture .*d.png is a folder"),
    ],
)
def test_a_picture_needs_a_file_that_can_be_written(name: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "d.png").mkdir()
    few = run(FEW)
    for plot in (few.plot, Comparison(fedavg=few).plot, Comparison(fedavg=few).plot_clients):
        with pytest.raises(GlocalError, match=said):
            plot(tmp_path / name)


def test_there_must_be_something_to_draw(tmp_path: Path) -> None:
    alone = {"baseline": True, "summary": {"benefit": 0.0}, "clients": []}
    with pytest.raises(GlocalError, match="nothing to draw: clients are not set against"):
        draw({"data": {}, "methods": {"local": alone}}, tmp_path / "x.png")
