"""What is found below a folder, read again only where it changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from glocal.core import locks
from glocal.report.live.watched import Group, Watched
from glocal.runs import listing
from report.live.live_folders import deployment, finish, made


def watched(root: Path, **more: Any) -> Watched:
    return Watched(root, fresh=0.0, **more)


def test_runs_and_their_groups_are_found(tmp_path: Path) -> None:
    made(tmp_path / "alone")
    made(tmp_path / "both" / "ditto", "ditto")
    made(tmp_path / "both" / "local", "local")
    (tmp_path / "both" / "comparison.toml").write_text("")
    made(tmp_path / "many" / "1" / "fedavg")
    (tmp_path / "many" / "sweep.toml").write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "comparison.toml").write_text("")
    seen = watched(tmp_path).look()
    assert set(seen.runs) == {"alone", "both/ditto", "both/local", "many/1/fedavg"}
    assert seen.groups == {
        "both": Group("comparison", ("both/ditto", "both/local")),
        "many": Group("sweep", ("many/1/fedavg",)),
    }


def test_a_folder_may_be_a_run_itself(tmp_path: Path) -> None:
    made(tmp_path / "run")
    assert set(watched(tmp_path / "run").look().runs) == {"."}


def test_a_folder_is_read_again_only_where_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, original = [], listing.read

    def counted(folder: Path) -> listing.Listed:
        read.append(folder.name)
        return original(folder)

    monkeypatch.setattr(listing, "read", counted)
    made(tmp_path / "a")
    made(tmp_path / "b", done=1, finished=False)
    place = watched(tmp_path)
    before, again = place.look(), place.look()
    assert read == ["a", "b"]
    assert before.stamp() == again.stamp()
    with (tmp_path / "b" / "metrics.jsonl").open("a") as lines:
        lines.write('{"round": 2}\n')
    after = place.look()
    assert read == ["a", "b", "b"]
    assert after.runs["b"].rounds_done == 2
    assert after.stamp("a") == before.stamp("a")
    assert after.stamp("b") != before.stamp("b")
    assert after.stamp() != before.stamp()


def test_many_who_ask_at_once_cost_one_look(tmp_path: Path) -> None:
    place = Watched(tmp_path, fresh=1e9)
    first = place.look()
    made(tmp_path / "a")
    assert place.look() is first


def test_a_run_that_is_killed_has_stopped_although_no_file_changed(tmp_path: Path) -> None:
    folder = made(tmp_path / "a", done=1, finished=False)
    place = watched(tmp_path)
    with locks.hold(folder):
        running = place.look()
    stopped = place.look()
    assert [seen.runs["a"].state for seen in (running, stopped)] == ["running", "stopped"]
    assert running.stamp("a") != stopped.stamp("a")


def test_a_run_may_end_break_and_disappear(tmp_path: Path) -> None:
    folder = made(tmp_path / "a", done=1, finished=False)
    place = watched(tmp_path)
    assert place.look().runs["a"].state == "stopped"
    finish(folder)
    assert place.look().runs["a"].state == "finished"
    (folder / "result.json").write_text("{")
    assert "not valid JSON" in str(place.look().runs["a"].problem)
    shutil.rmtree(folder)
    assert not place.look().runs
    shutil.rmtree(tmp_path)
    assert "not there any more" in str(place.look().problem)


def test_a_link_that_leads_out_makes_its_folder_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "root"
    outside = made(tmp_path / "outside")
    folder = made(root / "both" / "a", finished=False)
    (root / "both" / "comparison.toml").write_text("")
    monkeypatch.setattr(listing, "read", lambda folder: pytest.fail("it was read"))
    os.symlink(outside / "result.json", folder / "result.json")
    seen = watched(root).look()
    said = "result.json is a link that leads out of the folder"
    assert seen.runs["both/a"].problem == said
    assert seen.refusals("both") == seen.refusals("both/a") == [f"both/a: {said}"]


def test_a_link_within_the_folder_is_followed_and_linked_folders_are_not(tmp_path: Path) -> None:
    one = made(tmp_path / "one")
    other = made(tmp_path / "other", finished=False)
    os.symlink(one / "result.json", other / "result.json")
    os.symlink(one, tmp_path / "linked")
    os.symlink("loop", tmp_path / "loop")
    seen = watched(tmp_path).look()
    assert {path: run.state for path, run in seen.runs.items()} == {
        "one": "finished",
        "other": "finished",
    }


def test_deployments_are_no_runs(tmp_path: Path) -> None:
    folder = deployment(tmp_path / "clinic")
    (folder / "result.json").write_text("{}")
    node = tmp_path / "node-1"
    node.mkdir()
    (node / "approved.json").write_text("{}")
    (node / "result.json").write_text("{}")
    asked: list[Path] = []

    def status(folder: Path) -> Mapping[str, Any]:
        asked.append(folder)
        return {"state": "running", "rounds_done": len(asked)}

    place = watched(tmp_path, deployment=status)
    first, again = place.look(), place.look()
    assert not first.runs
    assert (
        first.deployments == again.deployments == {"clinic": {"state": "running", "rounds_done": 1}}
    )
    (folder / "history.jsonl").write_text("{}\n")
    assert place.look().stamp("clinic") != first.stamp("clinic")
    assert asked == [folder, folder]


def test_a_deployment_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    deployment(tmp_path / "clinic")

    def status(folder: Path) -> Mapping[str, Any]:
        raise KeyError("plan")

    found = watched(tmp_path, deployment=status).look().deployments["clinic"]
    assert found == {"state": "damaged", "problem": "'plan'"}


def test_nothing_is_written(tmp_path: Path) -> None:
    made(tmp_path / "a", finished=False)
    before = sorted(path.name for path in tmp_path.rglob("*"))
    watched(tmp_path).look()
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
