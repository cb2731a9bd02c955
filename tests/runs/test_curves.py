"""Learning curves from run folders: read, drawn, and refused."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import glocal
from conftest import Command
from glocal.core.errors import GlocalError
from glocal.experiment.learning_curves import LearningCurves
from glocal.report import curves as drawing
from glocal.runs.curves import read_curves
from glocal.testing import ragged

Lines = list[dict[str, Any]]


def evaluated(
    number: int, value: float, repeat: int | None = None, metric: str = "accuracy"
) -> Any:
    line = {"round": number, "train_loss": 1 - value, "val_loss": 1.1 - value}
    line |= {f"val_{metric}": value, "val_worst10": value / 2, "val_gini": 10 * value}
    return line | ({} if repeat is None else {"repeat": repeat})


REPEATS: Lines = [
    {"round": 1, "cohort": 3, "repeat": 1},
    evaluated(2, 0.4, 1),
    evaluated(4, 0.8, 1),
    {"round": 1, "cohort": 3, "repeat": 2},
    evaluated(2, 0.6, 2),
]


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Path]:
    """A run's folder with these lines, and ``more`` bytes after them."""

    def make(name: str, lines: Lines, more: str = "", method: str = "fedavg") -> Path:
        folder = tmp_path / name
        folder.mkdir(parents=True)
        about = f'method = "{method}"\nrounds = 4\ndata = "own"\n[federation]\nclients = 6\n'
        (folder / "settings.toml").write_text(about)
        text = "".join(json.dumps(line) + "\n" for line in lines) + more
        (folder / "metrics.jsonl").write_text(text)
        return folder

    return make


def test_repeats_are_their_mean_and_range() -> None:
    curves = LearningCurves("x", tuple(REPEATS))
    two, four = curves.points("val_accuracy")
    assert (two.round, two.mean, two.low, two.high, two.repeats) == (2, 0.5, 0.4, 0.6, 2)
    assert (four.round, four.mean, four.repeats) == (4, 0.8, 1)  # of the one that came so far
    assert curves.best("accuracy") == two
    assert (curves.repeats, curves.metrics) == (2, ["accuracy"])
    assert curves.points("central_accuracy") == []
    lines = ({"round": 1, "val_accuracy": 0.9, "val_cost": 2.0, "val_worst10": 3.0},)
    own = LearningCurves("own", lines)
    assert (own.metric(None), own.metric("accuracy")) == ("cost", "accuracy")
    assert own.lower("cost")  # as its worst clients have more of it
    with pytest.raises(
        GlocalError, match="unknown recorded metric 'auc': known are accuracy, cost"
    ):
        own.metric("auc")


def test_of_kept_rounds_the_title_has_the_mean() -> None:
    lines = [evaluated(t, v, r) for r, v in ((1, 0.4), (2, 0.6), (3, 0.2)) for t in (1, 2)]
    lines[4] = evaluated(1, 0.5, 3)  # round 1 is the best of all on average, and round 2 was kept

    def title(*kept: int) -> str:
        return drawing.draw([LearningCurves("x", tuple(lines), kept)])[1]

    assert title() == "Validation accuracy at its best: 50.0 %, with x after round 1"
    kept = "Validation accuracy of the kept round"
    assert title(2, 1, 2) == f"{kept}s: 40.0 %, with x after rounds 2, 1 and 2"
    assert title(2, 2, 2) == f"{kept}: 40.0 %, with x after round 2"


def test_what_is_left_out_is_said(made: Callable[..., Path]) -> None:
    folder, said = made("a", [evaluated(1, 0.5)], 'nonsense\n[1]\n{"round": 2, "val'), []
    made("cmp/local", [], method="local(lr=0.1)")
    made("cmp/b", [evaluated(1, 0.7)], method="ditto")
    found = read_curves([folder, folder.parent / "cmp"], said.append)
    assert [(c.name, len(c.lines), c.kept) for c in found] == [("fedavg", 1, ()), ("ditto", 1, ())]
    assert [text.replace(str(folder.parent), "") for text in said] == [
        "the last line of /a/metrics.jsonl is half-written and left out.",
        "line 2 and 1 more of /a/metrics.jsonl cannot be read and is left out.",
        "left out: the run in /cmp/local is of local(lr=0.1), whose clients train alone, not in "
        "rounds.",
    ]
    made("c", [evaluated(1, 0.7)])
    both = read_curves([folder, folder, folder.parent / "c"], said.append)
    assert [c.name for c in both] == ["fedavg (a)", "fedavg (c)"]


def test_what_cannot_be_drawn_is_a_sentence(
    made: Callable[..., Path], command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    made("empty", [])
    made("local", [], method="local")
    made("auc", [evaluated(1, 0.5, metric="auc")])
    made("fine", [evaluated(1, 0.5)])
    Path("nothing").mkdir()
    for words, said in (
        (["nowhere"], "there is no folder nowhere"),
        (["nothing"], "there is no run in nothing"),
        (["empty"], "nothing to draw yet: empty/metrics.jsonl has no round that was evaluated"),
        (["local"], "whose clients train alone"),
        (["fine", "auc"], "different metrics (accuracy, auc): draw them apart"),
        (["fine", "--metric", "mae"], "unknown recorded metric 'mae'"),
        (["fine", "--out", "a.jpg"], "--out a.jpg must be the name of a .png or .svg or .pdf"),
        (["fine", "--out", "no/a.png"], "there is no folder no for --out"),
    ):
        code, out, err = command("plot", *words)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert said in err
    for i in range(15):
        made(f"many/{i}", [evaluated(1, 0.5)], "half-written")
    code, _, err = command("plot", "many")
    assert (code, err.count("\n"), "15 runs cannot be told apart" in err) == (2, 1, True)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert command("plot", "fine")[2].endswith("pip install 'glocal[plot]'.\n")


def test_a_picture_has_a_line_for_each_curve(made: Callable[..., Path], command: Command) -> None:
    pytest.importorskip("matplotlib")
    lines = [{**line, "central_accuracy": 0.5} for line in REPEATS]
    folders = [made("a", lines), made("b", [evaluated(2, 0.3)], method="ditto")]
    figure, title, note = drawing.draw(read_curves(folders))
    assert title == "Validation accuracy at its best: 50.0 %, with fedavg after round 2"
    assert note == "own · 6 clients · mean and range of 2 repeats; pale: of those that went on"
    loss, metric, gini, central = figure.axes
    assert [axes.get_xlabel() for axes in figure.axes] == ["round"] * 4
    assert [axes.get_ylabel() for axes in figure.axes] == [
        "loss, mean over clients",
        "validation accuracy (%)",
        "Gini of validation accuracy (×100)",
        "central test: accuracy (%)",
    ]
    drawn = [list(map(float, line.get_ydata())) for line in metric.get_lines()]
    # In round 4 there is one repeat left: that is no mean, and drawn by itself.
    assert drawn == [pytest.approx(y) for y in ([50, 80], [50], [25, 40], [25], [30], [15])]
    assert [len(axes.get_lines()) for axes in (loss, gini, central)] == [6, 3, 2]
    shown = [text.get_text() for text in loss.get_legend().get_texts()]
    assert shown == ["validation", "training", "fedavg", "ditto"]
    for name, begins in (("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a/curves.png", b"\x89PNG")):
        words = [] if name == "a/curves.png" else ["--out", name]
        assert command("plot", "a", "b", *words)[:2] == (0, f"Picture: {name}\n")
        assert Path(name).read_bytes().startswith(begins)


def test_curves_of_runs_in_python(tmp_path: Path) -> None:
    given: dict[str, Any] = {"rounds": 2, "model": "mlp(3)", "baseline": "none", "repeats": 2}
    found = glocal.compare(["fedavg", "ditto"], ragged(), **given, tune=False, progress=False)
    run = found["ditto"]
    table = run.curves()
    assert table["round"].tolist() == [1, 2, 1, 2]
    assert table["repeat"].tolist() == [1, 1, 2, 2]
    assert table["val_gini"].tolist()[:2] == [line["val_gini"] for line in run.history]
    assert found.curves()["method"].tolist() == ["fedavg"] * 4 + ["ditto"] * 4
    run.save(tmp_path / "saved")
    (read,) = read_curves([tmp_path / "saved"])
    assert [line["train_loss"] for line in read.lines] == table["train_loss"].tolist()
    pytest.importorskip("matplotlib")
    assert len(found.plot().axes[0].get_lines()) == 4
    assert len(run.plot(tmp_path / "p.png").axes) == 3
    assert (tmp_path / "p.png").is_file()
