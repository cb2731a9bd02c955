"""What a participant approves, and that nothing is changed before it does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="make test-deploy installs it")
from deploy.participants import write_settings, write_tables
from glocal.core.errors import GlocalError
from glocal.deploy import certificates, join
from glocal.deploy.init import plan_of
from glocal.deploy.kit import Kit

pytestmark = pytest.mark.deploy

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    write_tables(tmp_path)
    plan = plan_of(write_settings(tmp_path))
    return Kit("127.0.0.1:1", authority(tmp_path, "ca"), plan.to_json(), plan.digest)


def authority(folder: Path, name: str) -> str:
    certificates.make_authority(folder / f"{name}.key", folder / f"{name}.crt")
    return (folder / f"{name}.crt").read_text()


def applied(folder: Path, kit: Kit, name: str = "clinic-a") -> join.Application:
    kit.write(folder / "kit.json")
    return join.prepare(folder / "a", folder / "kit.json", folder / "clinic-a.csv", name)


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_an_approval_is_of_one_server(tmp_path: Path, kit: Kit) -> None:
    first = applied(tmp_path, kit)
    assert not join.was_approved(first)
    assert not first.folder.authority.exists()
    join.approve(first)
    assert join.was_approved(applied(tmp_path, kit))
    before = contents(tmp_path / "a")
    others = {
        "the server's address": replace(kit, address="127.0.0.1:2"),
        "the server's certificate": replace(kit, authority=authority(tmp_path, "other")),
    }
    for what, other in others.items():
        application = applied(tmp_path, other)
        assert not join.was_approved(application)
        assert join.changes(application) == [what]
        assert contents(tmp_path / "a") == before
    assert join.changes(applied(tmp_path, kit, "clinic-b")) == ["your name"]
    join.approve(application)
    assert first.folder.authority.read_text() == others[what].authority


def test_a_refusal_leaves_the_approval_as_it_was(
    tmp_path: Path, kit: Kit, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("typer.confirm", lambda text: False)
    join.approve(applied(tmp_path, kit))
    before = contents(tmp_path / "a")
    replace(kit, authority=authority(tmp_path, "other")).write(tmp_path / "kit.json")
    words = ("--data", "clinic-a.csv", "--as", "clinic-a", "--folder", "a")
    code, _, said = command("deploy", "join", "kit.json", *words)
    assert code == 2
    assert "not what you approved before: another is the server's certificate" in said
    assert contents(tmp_path / "a") == before


def test_a_certificate_that_is_none_is_refused(tmp_path: Path, kit: Kit) -> None:
    with pytest.raises(GlocalError, match=r"the certificate in .*kit\.json cannot be read"):
        applied(tmp_path, replace(kit, authority="torn"))
    assert not (tmp_path / "a").exists()


def test_a_folder_that_was_open_to_others_is_closed(tmp_path: Path, kit: Kit) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a").chmod(0o755)
    applied(tmp_path, kit)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700


def test_what_a_node_has_of_another_plan_is_put_aside(tmp_path: Path, kit: Kit) -> None:
    """States and results of other rounds would be taken for those of this plan."""
    first = applied(tmp_path, kit)
    assert join.approve(first) is None
    first.folder.home.mkdir()
    first.folder.result_file.write_text("of the first")
    moved = replace(kit, address="127.0.0.1:2")  # the same deployment, which goes on
    assert join.approve(applied(tmp_path, moved)) is None
    plan = plan_of(write_settings(tmp_path, rounds=3))
    other = replace(kit, plan=plan.to_json(), digest=plan.digest)
    aside = join.approve(applied(tmp_path, other))
    assert aside == first.folder.path / "node.1"
    assert (aside / "result.json").read_text() == "of the first"
    assert not first.folder.home.exists()
    first.folder.home.mkdir()
    again = replace(other, authority=authority(tmp_path, "other"))  # the same plan of another's
    assert join.approve(applied(tmp_path, again)) == first.folder.path / "node.2"


def test_code_that_a_kit_names_is_asked_for_before_it_is_run(
    tmp_path: Path, kit: Kit, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("typer.confirm", asked.append)  # which answers nothing
    (tmp_path / "own.py").write_text("open('it was run', 'w')\n")
    plan = {**kit.plan, "method": "own.py:mine"}
    replace(kit, plan=plan).write(tmp_path / "kit.json")
    words = ("--data", "clinic-a.csv", "--as", "clinic-a", "--folder", "a")
    code, said, error = command("deploy", "join", "kit.json", *words)
    assert (code, asked) == (2, ["Do you run this code?"])
    assert "The plan runs 'own.py' on this machine" in said
    assert "nothing of it was run" in error
    assert not (tmp_path / "it was run").exists()
    assert not (tmp_path / "a").exists()
