"""The commands: one sentence and exit code 2 for what cannot be done."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.participants import write_settings, write_tables
from glocal.core.errors import GlocalError
from glocal.deploy import certificates
from glocal.deploy.init import plan_of
from glocal.deploy.kit import Kit

Command = Callable[..., tuple[int, str, str]]


def test_without_the_extra_one_sentence_says_what_to_install(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(certificates, "import_module", missing)
    code, _, err = command("deploy", "init", "d", "--plan", "s.toml", "--host", "localhost")
    assert (code, err) == (2, f"glocal: {certificates.MISSING}\n")


def test_a_folder_that_is_none_is_refused(command: Command) -> None:
    code, _, err = command("deploy", "status", "nowhere")
    assert code == 2
    assert "nowhere is no folder of a deployment" in err


@pytest.fixture
def kit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    write_tables(tmp_path)
    plan = plan_of(write_settings(tmp_path))
    Kit("127.0.0.1:1", "a certificate", plan.to_json(), plan.digest).write(tmp_path / "kit.json")
    return tmp_path / "kit.json"


def test_a_kit_is_read_again(kit: Path) -> None:
    assert Kit.read(kit).approved_plan().method == "fedavg"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda given: given["plan"]["settings"].update(rounds=9), "comes to something else here"),
        (lambda given: given.update(wire=99), "of wire version 99, and this glocal has"),
        (lambda given: given.pop("address"), "is no kit"),
        (lambda given: given.update(address=3), "is damaged"),
    ],
)
def test_a_kit_that_was_changed_is_refused(change: Any, said: str, kit: Path) -> None:
    given = json.loads(kit.read_text())
    change(given)
    kit.write_text(json.dumps(given))
    with pytest.raises(GlocalError, match=said):
        Kit.read(kit).approved_plan()
