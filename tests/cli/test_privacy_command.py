"""``glocal privacy``, and what a comparison prints of it."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from glocal.cli import app as cli
from glocal.slots import accounting
from glocal.slots.accounting import Scheme

QUICK = "local(lr=0.1,max_epochs=2)"


def command(*args: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["glocal", *args])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    def asked(*args: str) -> tuple[int, str, str]:
        return command("privacy", *args, monkeypatch=monkeypatch, capsys=capsys)

    return asked


PLAN = ("--clients", "100", "--sampled", "10")


def test_the_command_prints_what_the_accountant_says(ask: Any, tmp_path: Path) -> None:
    code, out, _ = ask(*PLAN, "--rounds", "20", "--noise", "1.5", "--json")
    found = json.loads(out)
    scheme = Scheme("poisson", 100, 10)
    assert code == 0
    assert found["epsilon"] == accounting.epsilon(scheme, 1.5, 20, 1e-5)
    assert found["epsilon_rdp"] == accounting.epsilon(scheme, 1.5, 20, 1e-5, "rdp")
    assert (found["delta"], found["sampling"], found["vacuous"]) == (1e-5, "poisson", False)
    assert ask(*PLAN, "--rounds", "20", "--json", "-", "--noise", "1.5")[1] == out
    assert ask(*PLAN, "--rounds", "20", "--json", "--noise", "1.5")[1] == out
    file = tmp_path / "found.json"
    code, shown_, _ = ask(*PLAN, "--rounds", "20", "--noise", "1.5", "--json", str(file))
    assert file.read_text(encoding="utf-8") == out
    assert f"{found['epsilon']:.3g}" in shown_
    assert f"{found['epsilon_rdp']:.3g}" in shown_
    for words in ("add or remove one client", "Poisson, 10 of 100", "accountant: PLD", "1e-05"):
        assert words in " ".join(shown_.split())
    assert "vacuous" not in shown_.lower()


def test_the_command_finds_the_noise_and_the_rounds(ask: Any) -> None:
    _, out, _ = ask(*PLAN, "--rounds", "20", "--epsilon", "3", "--json")
    found = json.loads(out)
    assert found["asked"] == "noise"
    assert 2.97 < found["epsilon"] <= 3
    _, out, _ = ask(*PLAN, "--noise", "2", "--epsilon", "1", "--json")
    found = json.loads(out)
    assert found["rounds"] == accounting.rounds_for(1.0, Scheme("poisson", 100, 10), 2.0, 1e-5)
    _, out, _ = ask(*PLAN, "--noise", "1", "--epsilon", "0.01")
    assert "Not one round can be afforded: add noise" in " ".join(out.split())


def test_the_command_says_vacuous(ask: Any) -> None:
    """The published setting: clip 15, noise .01 on the mean of 10 of 100."""
    noise = str(0.01 * 10 / 15)
    code, out, _ = ask(*PLAN, "--rounds", "1000", "--noise", noise, "--fixed")
    assert code == 0
    assert re.search(r"^ε +\S+ \(vacuous\) +accountant: RDP", out, re.MULTILINE)
    assert "replace one client" in " ".join(out.split())
    _, out, _ = ask("--clients", "9", "--rounds", "1", "--noise", "0", "--json")
    assert (json.loads(out)["epsilon"], json.loads(out)["vacuous"]) == (None, True)
    _, out, _ = ask(*PLAN, "--rounds", "1", "--noise", "9", "--local")
    assert "Every update that leaves a client is protected" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--clients", "10"), "give two of --rounds, --noise and --epsilon"),
        (("--clients", "10", "--rounds", "5"), "give two of --rounds, --noise and --epsilon"),
        (
            ("--clients", "10", "--rounds", "5", "--noise", "1", "--epsilon", "1"),
            "give two of --rounds, --noise and --epsilon",
        ),
        (("--rounds", "5", "--noise", "1"), "Missing option '--clients'"),
        ((*PLAN, "--rounds", "0", "--noise", "1"), "rounds must be an integer of 1 or more"),
        ((*PLAN, "--rounds", "5", "--noise", "-1"), "noise must be 0 or more, not -1"),
        ((*PLAN, "--rounds", "5", "--epsilon", "-1"), "epsilon must be above 0, not -1"),
        ((*PLAN, "--rounds", "5", "--noise", "1", "--delta", "2"), "delta must be above 0"),
        (
            ("--clients", "10", "--sampled", "11", "--rounds", "5", "--noise", "1"),
            "11 clients a round cannot be drawn from 10",
        ),
        (
            ("--clients", "10", "--sampled", "2.5", "--fixed", "--rounds", "5", "--noise", "1"),
            "--fixed draws an integer number of clients, not 2.5",
        ),
        ((*PLAN, "--rounds", "5", "--noise", "1", "--json", "/"), "--json / is a folder"),
    ],
)
def test_what_the_command_refuses(ask: Any, args: tuple[str, ...], message: str) -> None:
    code, out, err = ask(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_comparison_prints_its_privacy(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    args = ("compare", "fedavg", "dp(noise=0.2)", "--rounds", "2", "--clients", "4")
    quick = ("--baseline", QUICK, "--model", "mlp(7)", "--json", "found.json")
    code, out, err = command(*args, *quick, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, err
    words = " ".join(out.split())
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["methods"]
    spent = found["dp(noise=0.2)"]["summary"]["privacy"]
    assert f"Privacy of dp(noise=0.2): ε = {spent['epsilon']:.3g} (vacuous) at δ = 1e-05" in words
    assert "all 4 clients in every round" in words
    assert "Privacy of fedavg" not in words
    code, _, err = command("run", "dp(clip=0)", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (2, "glocal: clip must be above 0, not 0.\n")
