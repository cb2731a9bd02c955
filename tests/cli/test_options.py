"""Options of the command line that no file, folder or method can have: one line, and code 2."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer

from glocal.cli import app as cli

LONG = "x" * 5000


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--out", LONG], "xxx... cannot be used (File name too long): choose another."),
        (["--out", "x" * 250], "cannot be used (File name too long): choose another."),
        (["--json", LONG], "xxx... cannot be used (File name too long): choose another."),
        (["--json", "y" * 250], "cannot be used (File name too long): choose another."),
        (["--data", f"{LONG}.csv"], "there is no file 'xxx"),
        (["--init", LONG], "xxx... cannot be read"),
        (["--model", f"{LONG}.py:Net"], "for the model Net: check its name."),
        (["--partition", ""], "the partition is empty: leave it out, or name one"),
        (["--augment", "crop(-1)"], "crop's pad must be an integer from 0 to 256, not -1."),
        (["--augment", "flip"], "flip needs images [channels, height, width], not inputs of"),
        (["--augment", "rotate"], "rotate needs images [channels, height, width]"),
        (["--label", "outcome"], ": --label, --client and --group name columns of a table"),
        (["--clients", "0"], "number of clients must be an integer of 1 or more, not 0."),
        (["--clients", "4"], "own.npz has 3 clients of its own, by the array client, so "),
        (["--clients", "4"], "there cannot be 4: leave --clients out, or simulate others with"),
        (["--out", ""], "--out is empty: leave it out, or name a file or folder."),
        (["--json", ""], "--json is empty: leave it out, or name a file or folder."),
        (["--adapt", "fine-tune(momentum=2)"], "momentum must be below 1, not 2"),
        (["--adapt", "best(lr=true)"], "lr must be a number, not True"),
        (["--baseline", "local(lr=0)"], "lr must be above 0, not 0."),
        (["--transform", "rotate(90, clients=only())"], "rotate needs images"),
        (["--fraction", "nan"], "fraction must be a number, not nan."),
    ],
    ids=lambda v: v[0] if isinstance(v, list) else "",
)
def test_one_line_and_code_2(
    words: list[str],
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    gen: Any = np.random.default_rng(0)
    x = gen.normal(size=(18, 3)).astype("float32")
    np.savez("own.npz", x=x, y=np.arange(18) % 2, client=np.arange(18) % 3)
    given = ["glocal", "run", "fedavg", "--data", "own.npz", "--model", "logistic", *words]
    monkeypatch.setattr(sys, "argv", given)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    out, err = capsys.readouterr()
    assert (stop.value.code, out) == (2, "")
    assert err.count("\n") == 1
    assert said in err
    assert len(err) < 500
    assert [path.name for path in tmp_path.iterdir()] == ["own.npz"]


@pytest.mark.parametrize(
    "words", [["adapt", LONG], ["study", "split", "--picture", f"{LONG}.png"]], ids=["dir", "png"]
)
def test_other_paths(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["glocal", *words])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 2
    assert "xxx... cannot be used (File name too long)" in capsys.readouterr().err


def test_what_is_on_in_a_comparison_can_be_turned_off_in_a_run() -> None:
    known: Any = typer.main.get_command(cli.app)
    for name, default in (("run", False), ("compare", True)):
        for words, tune in (([], default), (["--tune"], True), (["--no-tune"], False)):
            found = known.commands[name].make_context(name, ["fedavg", *words])
            assert found.params["tune"] is tune
