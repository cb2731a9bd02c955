"""Where results go: files that cannot be written are noticed before anything is trained."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
from rich.text import Text

from glocal.cli import app as cli
from glocal.report.tables import Column, lay_out

NEEDED = {"privacy": ["--clients", "10"], "run": ["fedavg"], "adapt": ["."], "synthetic": ["."]}
NEEDED |= {"resume": ["."]}


def commands_with(option: str) -> Iterator[list[str]]:
    """Every command that has the option, as it is typed."""

    def below(command: click.Command, words: list[str]) -> Iterator[list[str]]:
        if isinstance(command, click.Group):
            for name, inner in command.commands.items():
                yield from below(inner, [*words, name])
        elif any(option in parameter.opts for parameter in command.params):
            yield [*words, *NEEDED.get(words[-1], [])]

    yield from below(typer.main.get_command(cli.app), [])


def test_help_shows_every_bracket() -> None:
    """What is in brackets would be taken for a style, and not be shown."""

    def below(command: click.Command) -> Iterator[str]:
        yield command.help or ""
        yield from (getattr(parameter, "help", None) or "" for parameter in command.params)
        if isinstance(command, click.Group):
            for inner in command.commands.values():
                yield from below(inner)

    shown = 0
    for text in below(typer.main.get_command(cli.app)):
        assert Text.from_markup(text).plain == text.replace("\\[", "[")
        shown += "[" in text
    assert shown > 2


def test_all_commands_are_seen() -> None:
    assert len(list(commands_with("--json"))) >= 24
    assert len(list(commands_with("--picture"))) >= 16


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--json", "nowhere/x.json", "the folder of --json nowhere/x.json does not exist"),
        ("--json", ".", "--json . is a folder"),
        ("--picture", "nowhere/x.png", "there is no folder nowhere for --picture"),
        ("--picture", "x.jpg", "must be the name of a .png or .svg or .pdf file"),
    ],
)
def test_a_file_that_cannot_be_written_is_noticed_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    option: str,
    value: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("glocal.data.loading.load", lambda *_, **__: pytest.fail("data was loaded"))
    for words in commands_with(option):
        monkeypatch.setattr(sys, "argv", ["glocal", *words, option, value])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        out, err = capsys.readouterr()
        assert (stop.value.code, out) == (2, ""), words
        assert says in err, words
        assert err.count("\n") == 1, words
    assert not list(tmp_path.iterdir())


def test_headings_break_at_spaces_where_a_table_does_not_fit() -> None:
    columns = [Column("method", text=True), Column("worst 10 %"), Column("sent up")]
    rows = [["fedavg", "93.1", "8.97 M"]]
    assert lay_out(columns, rows, 30) == [
        "method  worst 10 %  sent up",
        "fedavg        93.1   8.97 M",
    ]
    assert lay_out(columns, rows, 24) == [
        "method  worst    sent",
        "         10 %      up",
        "fedavg   93.1  8.97 M",
    ]
