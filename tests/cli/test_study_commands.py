"""``glocal study …``: tables, JSON, pictures, and one clear line for every bad input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from glocal.cli import app as cli
from glocal.core.errors import GlocalError
from glocal.report import canvas

QUICK = [
    "--data",
    "small.npz",
    "--rounds",
    "2",
    "--clients",
    "4",
    "--model",
    "mlp(8)",
    "--partition",
    "dirichlet(0.3)",
]
REPEATED = [*QUICK, "--repeats", "2"]
ALONE = ["--baseline", "local(lr=0.1, max_epochs=2)"]
LOCAL = ["--local", "local(lr=0.1, max_epochs=2)"]

Command = Callable[..., tuple[object, str, str]]


@pytest.fixture
def glocal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Command:
    """Run a command in a folder with 300 digits: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    x, y = load_digits(return_X_y=True)
    np.savez("small.npz", x=(x[:300] / 16).astype("float32"), y=y[:300])

    def run(*words: str) -> tuple[object, str, str]:
        monkeypatch.setattr(sys, "argv", ["glocal", "study", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return run


@pytest.mark.parametrize(
    ("words", "shows", "key"),
    [
        (["split", *REPEATED, *ALONE], ["lg-fedavg(warmup=0)", "nothing", "sent up"], "splits"),
        (["interpolate", *REPEATED, *LOCAL], ["own pick", "one pick", "0.7"], "predictions"),
        (["mixture", "apfl", "superfed-mm", *REPEATED], ["test-picked", "test ECE"], "mixtures"),
        (["landscape", *QUICK, "--size", "7"], ["superfed-lm", "barrier"], "landscapes"),
        (["noise", LOCAL[1], "fedavg", *REPEATED], ["symmetric 0.6", "MCE"], "noises"),
        (["decisions", *REPEATED], ["aaggff-s  weibull", "best fixed"], "decisions"),
        (["weights", *QUICK, "--sampled", "3"], ["aaggff-d", "rank correlation"], "weights"),
    ],
    ids=lambda v: v[0] if isinstance(v, list) else "",
)
def test_a_study_prints_writes_and_draws(
    glocal: Command, words: list[str], shows: list[str], key: str
) -> None:
    code, out, err = glocal(*words, "--json", "found.json", "--picture", "drawn.png")
    assert (code, err) == (0, "")
    assert all(word in out for word in shows)
    assert out.endswith("Picture: drawn.png\n")
    assert key in json.loads(Path("found.json").read_text())
    _is_a_picture(Path("drawn.png"))


def _is_a_picture(path: Path) -> None:
    from matplotlib.image import imread

    pixels = imread(path)
    height, width = pixels.shape[:2]
    assert width >= 600
    assert height >= 400
    colours = {tuple(c) for c in (pixels[::3, ::3, :3] * 255).astype(int).reshape(-1, 3).tolist()}
    assert len(colours) > 20, "nothing was drawn"
    assert pixels[..., :3].mean() > 0.3, "not a black page"
    assert path.stat().st_size < 150_000


def test_json_to_stdout_is_nothing_but_json_and_repeats_itself(glocal: Command) -> None:
    words = ["mixture", "apfl", "--lam", "0", "--lam", "1", *QUICK, "--repeats", "1", "--json", "-"]
    (_, first, _), (_, again, _) = glocal(*words), glocal(*words, "--picture", "p.png")
    assert first == again
    assert json.loads(first)["mixtures"][0]["grid"] == [0, 1]


def test_a_learnt_split_is_shown_between_its_ends(glocal: Command) -> None:
    words = ["learned-split", "fedavg", *QUICK, *ALONE, "--repeats", "1", "--passes", "1"]
    code, out, _ = glocal(*words, "--json", "found.json")
    assert code == 0
    assert all(word in out for word in ("everything", "learnt", "nothing", "layers.0"))
    (found,) = json.loads(Path("found.json").read_text())["learned_splits"]
    assert found["learnt"][0]["trained"] == 4  # all splits of two layers


def test_one_repeat_has_no_interval(glocal: Command) -> None:
    words = ["interpolate", "--alpha", "0.5", *QUICK, *LOCAL, "--repeats", "1"]
    code, out, _ = glocal(*words, "--picture", "p.png")
    assert code == 0
    assert "±" not in out
    assert "--repeats 5" in out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["mixture", "fedavg"], "does not mix two models"),
        (["mixture", "apfll"], "did you mean 'apfl'"),
        (["mixture", "apfl", "--lam", "2"], "lam must be from 0 to 1, not 2"),
        (["interpolate", "--alpha", "1.5"], "alpha must be from 0 to 1, not 1.5"),
        (["interpolate", "--alpha", "half"], "--alpha"),
        (["interpolate", "--together", "ditto", *QUICK, *LOCAL], "a model for each client"),
        (["split", "--side", "top"], "input or the output"),
        (["split", "fedavg(shared=last(1))"], "leave shared out"),
        (["learned-split", "fedavg(shared=last(1))"], "leave shared out"),
        (["learned-split", "fedavg", "--passes", "0", *QUICK], "passes must be"),
        (["landscape", "--points", "layers"], "clients or seeds"),
        (["landscape", "--size", "0"], "size must be"),
        (["noise", "fedavgg"], "did you mean 'fedavg'"),
        (["noise", *QUICK, "--repeats", "0"], "repeats must be"),
        (["decisions", "--response", "cauchy", *QUICK], "unknown transform 'cauchy'"),
        (["decisions", "--fraction", "0.5", "--sampled", "3"], "twice"),
        (["weights", "fedavg", "aaggff-s", *QUICK, "--sampled", "3"], "needs every client"),
        (["weights", "fedavg", "local", *QUICK], "decides nothing"),
        (["split", "--picture", "drawn.jpg"], ".png"),
        (["split", "--picture", "nowhere/drawn.png"], "no folder nowhere"),
        (["split", "--json", "."], "is a folder"),
        (["levitate"], "No such command"),
    ],
    ids=lambda v: " ".join(v[:3]) if isinstance(v, list) else "",
)
def test_bad_input_is_one_clear_line_and_code_2(
    glocal: Command, words: list[str], says: str
) -> None:
    code, out, err = glocal(*words)
    assert code == 2
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
    assert [p.name for p in Path().iterdir()] == ["small.npz"]


def test_without_matplotlib_tables_work_and_pictures_say_what_to_install(
    glocal: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [n for n in sys.modules if n.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    code, _, err = glocal("mixture", "apfl", *QUICK, "--picture", "p.png")
    assert code == 2
    assert "pip install 'glocal[plot]'" in err
    with pytest.raises(GlocalError, match="matplotlib"):
        canvas.check_picture(Path("p.png"))
    code, out, _ = glocal("mixture", "apfl", *QUICK, "--repeats", "1")
    assert code == 0
    assert "test-picked" in out
