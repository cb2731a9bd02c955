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
from glocal.deploy.server_check import split_address

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
        (lambda given: given["plan"].update(settings=5), "the plan is damaged"),
        (lambda given: given["plan"].update(results="no"), "the plan is damaged"),
        (lambda given: given["plan"]["settings"].update(method="fedavg"), "the plan is damaged"),
        (lambda given: given["plan"]["schema"].update(classes=float("inf")), "the plan is damaged"),
    ],
)
def test_a_kit_that_was_changed_is_refused(change: Any, said: str, kit: Path) -> None:
    given = json.loads(kit.read_text())
    change(given)
    kit.write_text(json.dumps(given))
    with pytest.raises(GlocalError, match=said):
        Kit.read(kit).approved_plan()


@pytest.mark.parametrize(
    "address",
    [
        "server.org",
        ":1",
        "a:٣",
        "a:²",
        "a:0",
        "a:70000",
        f"a:{'9' * 5000}",
        "a b:1",
        "a\n:1",
        "a..b:1",
    ],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(GlocalError, match="is no address of a server") as refused:
        split_address(address)
    assert "\n" not in str(refused.value)
    assert split_address("[::1]:8443") == ("::1", 8443)


def test_a_quorum_of_nobody_is_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(certificates, "check_extra", lambda: None)
    write_tables(tmp_path)
    words = ("--plan", write_settings(tmp_path), "--host", "localhost", "--quorum", 0)
    code, _, err = command("deploy", "init", "d", *words)
    assert code == 2
    assert err.endswith("glocal: quorum must be above 0 and up to 1, not 0.0.\n")
    assert not (tmp_path / "d").exists()
