"""A fit whose clients' states and baseline are on disk: the same as in memory, resumed anywhere."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.types import Tree
from glocal.experiment import baseline, repeat, setup
from glocal.experiment.config import Config
from glocal.experiment.runner import memory_needed, runner_of
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.checkpoint_files import CheckpointFiles
from glocal.training.client_state import disk
from glocal.training.poisoning import success

PARAMETERS = 4 * 3 + 3
GIVEN: dict[str, Any] = {
    "model": "logistic",
    "rounds": 3,
    "sampled": 4,
    "baseline": "local(lr=0.1, max_epochs=3)",
    "adapt": "fine-tune(lr=0.3, max_epochs=2)+ewc(max_epochs=2)",
    "new_test": True,
}


def fed() -> glocal.Federation:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(120, 4, generator=draw), torch.randint(3, (120,), generator=draw)
    return glocal.federation(x, y, clients=torch.arange(120) // 10, classes=3)


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Five clients of the baseline train together, two adapt, and seven are evaluated."""
    monkeypatch.setattr(baseline, "BLOCK_BYTES", 5 * 3 * 4 * PARAMETERS)
    monkeypatch.setattr("glocal.experiment.adaptation.BLOCK_BYTES", 2 * 5 * 4 * PARAMETERS)
    monkeypatch.setattr("glocal.experiment.fisher.BLOCK_BYTES", 2 * 5 * 4 * PARAMETERS)
    monkeypatch.setattr("glocal.evaluation.evaluate.CHUNK_BYTES", 7 * 4 * (PARAMETERS + 2 * 3))
    setup._BASELINES.clear()
    yield
    setup._BASELINES.clear()


def found(run: glocal.Run, kept: repeat.Repeat) -> Tree:
    """Everything that clients have in the end, in memory."""
    if kept.on_disk is None:
        return kept.states
    assert kept.states.keys() == {"ids"}
    ids, states = kept.on_disk.saved()
    return {"ids": ids, **states}


def same(a: glocal.Run, b: glocal.Run) -> bool:
    trees = zip(
        (a.model, found(a, a.repeats[0]), found(a, a.baseline[0])),
        (b.model, found(b, b.repeats[0]), found(b, b.baseline[0])),
        strict=True,
    )
    leaves = all(
        torch.equal(dict(tree.flatten(y))[name], leaf)
        for x, y in trees
        for name, leaf in tree.flatten(x)
    )
    return leaves and list(a.clients) == list(b.clients) and a.summary == b.summary


@pytest.fixture(scope="module")
def undisturbed() -> glocal.Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(baseline, "BLOCK_BYTES", 5 * 3 * 4 * PARAMETERS)
        patch.setattr("glocal.experiment.adaptation.BLOCK_BYTES", 2 * 5 * 4 * PARAMETERS)
        patch.setattr("glocal.experiment.fisher.BLOCK_BYTES", 2 * 5 * 4 * PARAMETERS)
        return glocal.fit("ditto", fed(), **GIVEN, states="device")


@pytest.mark.parametrize("states", ["host", "disk"])
def test_where_models_are_changes_nothing(undisturbed: glocal.Run, states: str) -> None:
    run = glocal.fit("ditto", fed(), **GIVEN, states=states)
    assert same(run, undisturbed)
    on_disk = run.baseline[0].on_disk
    assert (on_disk is not None) == (states == "disk")


def test_a_client_of_the_baseline_has_its_model_on_disk() -> None:
    given = {"model": "logistic"}
    near, far = (
        glocal.fit(GIVEN["baseline"], fed(), **given, states=states).client_model(7)
        for states in ("device", "disk")
    )
    x = torch.randn(5, 4)
    assert torch.equal(near.logits(x), far.logits(x))


def test_blocks_change_nothing(undisturbed: glocal.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("baseline", "adaptation", "fisher"):
        monkeypatch.setattr(f"glocal.experiment.{module}.BLOCK_BYTES", 1 << 30)
    monkeypatch.setattr("glocal.evaluation.evaluate.CHUNK_BYTES", 1 << 30)
    run = glocal.fit("ditto", fed(), **GIVEN)
    assert run.clients["accuracy"] == undisturbed.clients["accuracy"]
    assert run.clients["adapted_accuracy"] == undisturbed.clients["adapted_accuracy"]
    assert run.summary["new_test"] == undisturbed.summary["new_test"]
    assert torch.equal(run.baseline[0].val_score, undisturbed.baseline[0].val_score)


class _KilledError(BaseException):
    """Nobody catches it, as nobody catches a kill."""


def killed(folder: Path, after: int) -> bool:
    """Whether a fit is killed as it writes, flushes, renames or reports the n-th time."""
    left = after

    def count() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise _KilledError

    def before(call: Any) -> Any:
        def counted(*args: Any, **options: Any) -> Any:
            count()
            return call(*args, **options)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", before(os.fsync))
        patch.setattr(Path, "replace", before(Path.replace))
        patch.setattr(repeat, "validated", before(repeat.validated))
        setup._BASELINES.clear()
        try:
            resumed(folder, lambda what, done, total: count())
        except _KilledError:
            return True
        return False


def resumed(folder: Path, progress: Any = None) -> glocal.Run:
    setup._BASELINES.clear()
    policy = CheckpointPolicy(folder, every=1, stop=lambda: False, note=lambda text: None)
    return glocal.fit("ditto", fed(), **GIVEN, states="disk", checkpoints=policy, progress=progress)


def test_killed_anywhere_it_is_resumed_to_the_same_bits(
    tmp_path: Path, undisturbed: glocal.Run
) -> None:
    """In the baseline, a round, a checkpoint's write, after the last round and in evaluation."""
    after = 1
    while killed(tmp_path / str(after), after):
        assert same(resumed(tmp_path / str(after)), undisturbed), after
        after += 7
    assert after > 60


def test_killed_again_and_again(tmp_path: Path, undisturbed: glocal.Run) -> None:
    kills = 0
    while killed(tmp_path, 5 + 5 * kills):  # each time it comes further
        kills += 1
    assert kills > 5
    assert same(resumed(tmp_path), undisturbed)


def test_a_finished_baseline_is_read_and_not_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed(tmp_path)
    monkeypatch.setattr(baseline, "train", lambda *_: pytest.fail("it was trained again"))
    monkeypatch.setitem(GIVEN, "adapt", None)
    resumed(tmp_path)
    for rows in tmp_path.glob("alone-1-*/states-0.rows"):
        rows.unlink()
    with pytest.raises(GlocalError, match="are missing"):
        resumed(tmp_path)


def test_a_checkpoint_costs_what_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of the round's clients, whatever the others keep."""
    written: list[int] = []
    move = disk._moved

    def counted(call: Any, file: int, row: Any, offset: int) -> int:
        moved = move(call, file, row, offset)
        if call is os.pwritev:
            written.append(moved)
        return moved

    monkeypatch.setattr(disk, "_moved", counted)
    resumed(tmp_path)
    assert written == [4 * PARAMETERS] * (12 + 3 * 4)  # the baseline, and three rounds of four
    for folder in (tmp_path / "repeat-1", *tmp_path.glob("alone-1-*")):
        newest = CheckpointFiles(folder).newest()
        assert newest is not None
        assert newest.trees["clients"].keys() == {"ids", "slots", "sums", "waiting", "like"}


def test_a_disk_too_full_is_refused_before_anyone_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def free(bytes_: int) -> None:
        usage = type(shutil.disk_usage(tmp_path))(10**9, 0, bytes_)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)

    one = 4 * PARAMETERS
    block, rows = 5 * (2 * one + 4), 4 * one  # two models and a rate each; a round's old rows
    states = round(12 * (1 - (8 / 12) ** 3)) * one
    need = 12 * one + states + 3 * block + 2 * rows
    free(need - 1)
    with monkeypatch.context() as patch:
        patch.setattr(setup, "measured", lambda *_: pytest.fail("somebody trained"))
        with pytest.raises(GlocalError) as refused:
            resumed(tmp_path)
    said = str(refused.value)
    assert said.startswith("the local baseline's models (0.0 MB) and clients' states (0.0 MB) and ")
    assert "are free in" in said
    assert "choose an output folder on a larger disk" in said
    free(need)
    resumed(tmp_path)
    free(need - 12 * one)  # what a run has written before is its own
    resumed(tmp_path)


def test_memory_is_asked_for_what_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    from glocal.core import hardware

    needs = {}
    for states in ("device", "disk"):
        config = Config(**{**GIVEN, "states": states})
        needs[states] = memory_needed(runner_of("", "ditto"), setup.make(config, fed(), 0))
    near, far = needs["device"], needs["disk"]
    assert near is not None
    assert far is not None
    assert near.phases["a round"]["the local baseline's models"] == 12 * 4 * PARAMETERS
    assert far.phases["a round"]["the local baseline's models"] == 0
    assert far.total < near.total
    monkeypatch.setattr(hardware, "available", lambda device="cpu": far.total)
    with pytest.raises(GlocalError, match="needs about"):
        glocal.fit("ditto", fed(), **GIVEN, states="device")
    monkeypatch.setattr(hardware, "available", lambda device="cpu": far.total // 2)
    with pytest.raises(GlocalError, match="needs about"):
        glocal.fit("ditto", fed(), **GIVEN, states="disk")


def test_all_models_at_once_are_refused_where_they_do_not_fit(
    undisturbed: glocal.Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from glocal.core import hardware

    assert undisturbed.trained is not None
    monkeypatch.setattr(hardware, "available", lambda device="cpu": 12 * 4 * PARAMETERS - 1)
    with pytest.raises(GlocalError, match="needs all clients' states in memory"):
        undisturbed.trained.models()
    some = undisturbed.trained.models(torch.tensor([3, 5]))
    assert {len(leaf) for leaf in some.values()} == {2}


def test_a_backdoor_is_looked_for_block_by_block() -> None:
    given = {k: v for k, v in GIVEN.items() if k not in ("adapt", "new_test", "model")}
    draw = torch.Generator().manual_seed(0)
    x, y = torch.rand(96, 1, 4, 4, generator=draw), torch.randint(3, (96,), generator=draw)
    images = glocal.federation(x, y, clients=torch.arange(96) // 8, classes=3)
    runs = [
        glocal.fit("ditto", images, model="logistic", attack="backdoor", states=states, **given)
        for states in ("device", "disk")
    ]
    for run in runs:
        assert run.trained is not None
        assert run.repeats[0].struck is not None
        t = run.trained.training
        assert t.adversary is not None
        mark, everyone = t.adversary.attack.trigger, torch.arange(12)
        assert mark is not None
        at_once = success(mark, t.task, images, t.engine, run.trained.models(), everyone)
        assert run.repeats[0].struck.success == pytest.approx(at_once, nan_ok=True)
