"""Where states are kept changes nothing; a run on disk goes on after a kill to the same bits."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glocal.cli import app as cli
from glocal.core import hardware as machine
from glocal.core import rng, tree
from glocal.core.errors import GlocalError, NoRoomError
from glocal.core.types import Tree
from glocal.data.federation import Federation, federation
from glocal.experiment import memory_estimate as limits
from glocal.experiment import setup as setups
from glocal.experiment.client_footprint import Client
from glocal.experiment.config import Config
from glocal.experiment.runner import Callbacks, memory_needed, run_seed, runner_of
from glocal.methods.ditto import ditto
from glocal.runs.restore import restore
from glocal.slots.method import Plan, Stage
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.client_state import export
from glocal.training.client_state import placement as storage
from glocal.training.client_state.disk import DiskRows
from glocal.training.client_state.placement import Storage
from glocal.training.client_state.store import ClientStore, FirstStates
from glocal.training.run_state import Progress

PLACES = ("device", "host", "disk")


def quiet(text: str) -> None:
    pass


def store(place: str, clients: int = 9) -> ClientStore:
    return Storage(place, note=quiet).store(clients, 12, "cpu")


def make(i: int) -> Tree:
    return {
        "b": {"v": torch.full((2, 2), float(i))},
        "a": torch.tensor(i),
        "half": torch.full((3,), i, dtype=torch.bfloat16),
        "flag": torch.tensor(i % 2 == 0),
        "nobody": torch.zeros(0),
        "none": {},
    }


def one_round(kept: ClientStore, ids: Tensor, after: Tensor | None = None) -> Tree:
    states = kept.gather(ids, make)
    if after is not None:
        kept.expect(after, ids)
    new = tree.map(lambda x: x if x.dtype == torch.bool else x + 1, states)
    kept.scatter(ids, {k: new[k] for k in reversed(list(new))})  # as a file might order it
    return states


def same(a: Tree, b: Tree) -> bool:
    assert tree.structure(a) == tree.structure(b)
    return all(
        torch.equal(x, dict(tree.flatten(b))[name]) for name, x in tree.flatten(a) if x.numel()
    )


@pytest.mark.parametrize("place", PLACES[1:])
def test_a_place_gives_what_the_device_gives(place: str) -> None:
    near, far = store("device"), store(place)
    cohorts = [rng.permutation(rng.fold(rng.key(5), r), 9)[:4] for r in range(12)]
    for r, ids in enumerate(cohorts):
        # Ahead of every third round comes another cohort than was expected.
        after = cohorts[r + 1 if r % 3 else 0] if r + 1 < len(cohorts) else None
        assert same(one_round(near, ids, after), one_round(far, ids, after))
        if r % 4 == 1:  # somebody looks on, and somebody changes one who was fetched ahead
            assert same(near.gather(torch.arange(9), make), far.gather(torch.arange(9), make))
            for kept in (near, far):
                for one in cohorts[r + 1][:2]:
                    kept.scatter(one[None], tree.stack([make(70)]))
    assert torch.equal(near.seen, far.seen)
    assert same(near.saved()[1], far.saved()[1])


def test_what_does_not_depend_on_the_key_is_made_once() -> None:
    asked: list[int] = []

    def init(key: Tensor) -> Tree:
        asked.append(1)
        return {"v": torch.arange(3.0)}

    def key(i: int) -> Tensor:
        return rng.fold(rng.key(0), i)

    kept = ClientStore(100)
    states = kept.gather(torch.arange(100), FirstStates(init, key))
    assert len(asked) < 5
    states["v"][0] = 7  # each row is its own
    assert states["v"][1].tolist() == [0, 1, 2]
    own = FirstStates(lambda k: {"v": rng.normal(k, (5,)), "w": torch.ones(2)}, key)
    drawn = kept.gather(torch.arange(100), own)
    assert same(drawn, tree.stack([own(i) for i in range(100)]))


def fed() -> Federation:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(120, 4, generator=draw), torch.randint(3, (120,), generator=draw)
    return federation(x, y, clients=torch.arange(120) // 10, classes=3)


class _KilledError(Exception):
    pass


def trained(
    folder: Path | None,
    states: str = "disk",
    kill: int | None = None,
    method: str | Plan = "ditto",
) -> Any:
    order = Config(model="logistic", rounds=9, sampled=4, states=states)
    keeping = folder and CheckpointPolicy(folder, every=2, stop=lambda: False, note=quiet)

    def look(done: Progress) -> None:
        if kill is not None and done.round == kill:
            raise _KilledError

    callbacks = Callbacks(on_round=look)
    return run_seed(runner_of("", method), setups.make(order, fed(), 0), callbacks, keeping or None)


def end(repeat: Any) -> Tree:
    """What clients keep in the end."""
    return {"states": repeat.trained.progress.clients.saved()[1], "model": repeat.model}


@pytest.mark.parametrize("method", ["ditto", "pfedme", "superfed-mm", "fedavg"])
def test_a_run_on_disk_is_a_run(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    disk = trained(None, method=method)
    assert same(end(disk), end(trained(None, "device", method=method)))
    assert ("go to disk: " in capsys.readouterr().err) == (method != "fedavg")


def test_kills_at_any_round(tmp_path: Path) -> None:
    """What was killed had gone on to write: the rows of its last checkpoint are still there."""
    whole = end(trained(None, "device"))
    for kill in (1, 4, 7, 8):
        with pytest.raises(_KilledError):
            trained(tmp_path / str(kill), kill=kill)
        assert same(end(trained(tmp_path / str(kill))), whole)
    folder = tmp_path / "8" / "repeat-1"
    row = DiskRows(1, {"v": torch.zeros(0, 3, 4), "b": torch.zeros(0, 3)}).size
    # The present and two checkpoints: no more than three rows a client.
    assert 12 * row <= (folder / "states-0.rows").stat().st_size <= 3 * 12 * row
    assert sum(f.stat().st_size for f in folder.glob("*.safetensors")) < 2 * 20_000


def test_a_damaged_checkpoint_is_passed_over_with_its_rows(tmp_path: Path) -> None:
    with pytest.raises(_KilledError):
        trained(tmp_path, kill=7)
    newest = max((tmp_path / "repeat-1").glob("*.safetensors"))
    newest.write_bytes(b"?" + newest.read_bytes()[1:])
    assert same(end(trained(tmp_path)), end(trained(None, "device")))


def test_a_run_may_change_its_place(tmp_path: Path) -> None:
    with pytest.raises(_KilledError):
        trained(tmp_path, "device", kill=5)
    assert same(end(trained(tmp_path, "disk")), end(trained(None, "device")))


def test_a_run_folder_has_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is read back to the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(export, "CHUNK_BYTES", 5000)  # some clients at a time
    for states in ("device", "disk"):
        words = f"glocal run apfl --clients 8 --partition iid --model logistic --rounds 3 \
            --sampled 3 --baseline local(lr=0.1,max_epochs=1) --states {states} --out {states} \
            --jobs {1 if states == 'device' else 2}"
        monkeypatch.setattr(sys, "argv", words.split())
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert not ended.value.code
    for name in ("result.json", "clients.safetensors", "metrics.jsonl", "final.safetensors"):
        assert (tmp_path / "device" / name).read_bytes() == (tmp_path / "disk" / name).read_bytes()
    assert not (tmp_path / "disk" / "checkpoints").exists()
    near, far = (
        restore(tmp_path / place)[0].trained.progress.clients for place in ("device", "disk")
    )
    assert (near.place, far.place) == ("device", "disk")
    assert same(near.saved()[1], far.saved()[1])


def test_what_does_not_fit_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """States count for the disk, and nobody asks for all of them at once."""
    order = Config(model="logistic", rounds=9, sampled=4, states="disk")
    here = setups.make(order, fed(), 0)
    need = memory_needed(runner_of("method", "ditto"), here)
    near = memory_needed(
        runner_of("method", "ditto"), replace(here, config=replace(order, states="device"))
    )
    assert need is not None
    assert near is not None
    assert need.disk == {"the local baseline's models": 12 * 60, "clients' states": 12 * 60}
    assert near.disk == {}
    assert need.phases["keeping"]["what clients keep"] == 0
    assert near.phases["keeping"]["what clients keep"] == 12 * 60
    with pytest.raises(GlocalError, match=r"take .* on disk, and .* are free"):
        limits.check(replace(need, one=Client(state=10**15)), "cpu")
    kept = trained(None).trained.progress.clients
    monkeypatch.setattr(machine, "available", lambda device: 100)
    with pytest.raises(GlocalError, match="this needs all clients' states in memory"):
        kept.saved()


def test_a_file_that_is_missing_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(_KilledError):
        trained(tmp_path / "a", kill=5)
    for what, change in {
        "are missing": lambda file: file.unlink(),
        "it ends too early": lambda file: os.truncate(file, 60),
        "is not as it was written": lambda file: file.write_bytes(bytes(file.stat().st_size)),
    }.items():
        shutil.rmtree(tmp_path / "b", ignore_errors=True)
        shutil.copytree(tmp_path / "a", tmp_path / "b")
        change(tmp_path / "b" / "repeat-1" / "states-0.rows")
        with pytest.raises(GlocalError, match=what):
            trained(tmp_path / "b")


def test_a_stage_that_is_over_leaves_no_file(tmp_path: Path) -> None:
    plan = Plan((Stage(ditto(), rounds=3), Stage(ditto(lam=1.0))))
    for kill in (3, 5):
        with pytest.raises(_KilledError):
            trained(tmp_path, kill=kill, method=plan)
    assert len(list((tmp_path / "repeat-1").glob("*.rows"))) == 2
    assert same(end(trained(tmp_path, method=plan)), end(trained(None, "device", method=plan)))
    assert [f.name for f in (tmp_path / "repeat-1").glob("*.rows")] == ["states-1.rows"]


def test_slots_that_a_checkpoint_refers_to_are_not_written_to(tmp_path: Path) -> None:
    file = DiskRows(4, {"v": torch.zeros(0, 2)}, tmp_path / "rows")
    ids = torch.arange(2)

    def put(value: float) -> list[int]:
        rows = file.allot(ids)
        file.write(rows, [torch.full((2, 2), value)])
        return rows.slots

    first = put(1.0)
    held = file.packed(1)
    second = put(2.0)
    assert not set(first) & set(second)
    assert set(put(3.0)) == set(range(4, 6))
    assert set(put(4.0)) == set(second)
    again = DiskRows.reopened(4, held, tmp_path / "rows", 1)
    out = [torch.zeros(2, 2)]
    again.read(again.locate(ids), out, [0, 1])
    assert out[0].tolist() == [[1, 1], [1, 1]]
    file.packed(2)
    file.reclaim(1)
    assert not set(put(5.0)) & set(first)
    file.reclaim(2)
    file.free.sort(reverse=True)
    assert set(put(6.0)) == set(first)


def test_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def free(device: Any = "cpu") -> int:
        return 30 if torch.device(device).type == "cuda" else 300

    monkeypatch.setattr(machine, "available", free)
    found = {size: storage.rule(size, "cuda") for size in (10, 11, 100, 101)}
    assert found == {10: "device", 11: "host", 100: "host", 101: "disk"}
    assert [storage.rule(size, "cpu") for size in (100, 101)] == ["device", "disk"]
    assert storage.rule(40, "cpu", taken=200) == "disk"
    assert Storage("device").chosen(10**9, "cpu") == "device"


def test_what_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GlocalError, match="unknown place for clients' states 'tape'"):
        Config(states="tape")
    with pytest.raises(GlocalError, match="GB on disk, and "):
        Storage("disk", note=quiet).store(10**6, 10**9, "cpu", rows=10**6)
    monkeypatch.setenv("TMPDIR", "/dev/full")
    full = replace(Storage("disk", note=quiet), folder=None)
    monkeypatch.setattr(
        "glocal.training.client_state.disk._opened",
        lambda path, anew: os.open("/dev/full", os.O_RDWR),
    )
    kept = full.store(3, 1, "cpu")
    kept.scatter(torch.arange(2), tree.stack([make(0), make(1)]))
    with pytest.raises(NoRoomError, match="No space left on device"):
        kept.scatter(torch.arange(2), tree.stack([make(0), make(1)]))
