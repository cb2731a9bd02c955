"""``glocal newcomer``: what it prints, and one clear line for bad input."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from glocal.cli import app as cli

pytestmark = pytest.mark.usefixtures("few_digits")


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[Any, str, str]]:
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[Any, str, str]:
        quick = ["--rounds", "2", "--baseline", "local(lr=0.1, max_epochs=2)"]
        monkeypatch.setattr(sys, "argv", ["glocal", "newcomer", *words, *quick])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        said = capsys.readouterr()
        return stop.value.code, said.out, said.err

    return run


SMALL = ["--clients", "4", "--own-epochs", "2", "--join-rounds", "2"]


def test_the_command_prints_a_row_a_method(command: Callable[..., tuple[Any, str, str]]) -> None:
    words = ["fedavg", "lg-fedavg", "--rotate", "90", "--seeds", "2", "--json", "a.json", *SMALL]
    code, out, err = command(*words)
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert {"fedavg", "lg-fedavg"} <= set(rows)
    assert "old before %" in out
    assert "over 2 seeds" in out
    assert "by an exact paired test at 90 % of these trained models" in " ".join(out.split())
    found = json.loads(Path("a.json").read_text())
    assert found["data"]["transforms"] == ["rotate(90, clients=only(4))"]
    assert found["data"]["clients"] == 5
    fedavg_ = found["methods"]["fedavg"]
    assert fedavg_["summary"]["estimate"] == "pooled"  # the old ones differ in labels alone
    assert [row["stage"] for row in fedavg_["newcomer"]][-1] == "alone"
    assert len(fedavg_["clients"]) == 4
    assert f"{100 * fedavg_['summary']['old_change']:+.1f}" in rows["fedavg"]


def test_json_to_stdout_is_nothing_but_json(command: Callable[..., tuple[Any, str, str]]) -> None:
    code, out, _ = command("fedavg", "--fraction-old", "0.5", *SMALL, "--json", "-")
    assert code == 0
    assert json.loads(out)["methods"]["fedavg"]["settings"]["fraction"] == 0.5


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--client-name", "berlin"], "unknown client 'berlin'"),
        (["--fraction-old", "2"], "fraction of old clients must be from 0 to 1"),
        (["fedavgg"], "did you mean 'fedavg'"),
        (["local"], "nothing to join"),
        (["--data", "own.csv"], "say who joins with --client-name"),
        (["--data", "own.csv", "--client-name", "a", "--rotate", "90"], "rotate needs images"),
        (["--json", "."], "is a folder"),
        (["--join-rounds", "0"], "join_rounds must be"),
    ],
)
def test_bad_input_is_one_clear_line(
    command: Callable[..., tuple[Any, str, str]], words: list[str], says: str
) -> None:
    lines = [f"{i},{i % 2},{'abc'[i % 3]}" for i in range(60)]
    Path("own.csv").write_text("\n".join(["v,label,client", *lines]) + "\n")
    code, out, err = command(*words)
    assert (code, out) == (2, "")
    assert says in err.splitlines()[-1]
    assert err.count("\n") == 1 or "own.csv" in words  # of which the columns are reported first


def test_a_named_client_of_own_data(command: Callable[..., tuple[Any, str, str]]) -> None:
    lines = [f"{i % 7},{i % 2},{'abc'[i % 3]}" for i in range(90)]
    Path("own.csv").write_text("\n".join(["v,label,client", *lines]) + "\n")
    code, out, _ = command("fedavg", "--data", "own.csv", "--client-name", "b", *SMALL[2:])
    assert code == 0
    assert "client b then trains" in " ".join(out.split())
    assert "their own test splits" in " ".join(out.split())
