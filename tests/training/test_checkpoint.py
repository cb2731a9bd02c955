"""Checkpoints of fit and of the local baseline: resumed to the same bits, and cheap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped
from glocal.experiment import setup as setups
from glocal.experiment.baseline import rates_of, train_baselines
from glocal.experiment.config import Config
from glocal.experiment.setup import baseline as alone_of
from glocal.methods import resolve
from glocal.methods.local import LocalTraining
from glocal.nn.augment import flip
from glocal.nn.task import cross_entropy
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.checkpoint_files import CheckpointFiles

pytestmark = pytest.mark.usefixtures("few_digits")

ALONE = "local(lr=0.1,max_epochs=3)"


def test_the_baseline_is_resumed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = glocal.load("digits", clients=6)
    here = setups.make(Config(model="mlp(8)", baseline="local(max_epochs=4)"), fed, 0)
    alone = alone_of("local(max_epochs=4)")
    assert isinstance(alone, LocalTraining)
    # Blocks of two clients each, so that some are done when it stops.
    parameters = tree.count(here.task.params)
    monkeypatch.setattr(
        "glocal.experiment.baseline.BLOCK_BYTES", 4 * parameters * len(rates_of(alone)) * 3 * 2
    )
    where = (here.task, [here.fed], here.engine, alone, [0])
    (whole,) = train_baselines(*where)
    for epochs in (1, 5, 6, 8):
        asked = iter(range(100))
        folder = tmp_path / str(epochs)

        def stop(asked: Any = asked, epochs: int = epochs) -> bool:
            return next(asked) + 1 == epochs

        keeping = CheckpointPolicy(folder, 1, stop=stop)
        with pytest.raises(Stopped):
            train_baselines(*where, writer=keeping.epochs(0, "x"))
        ticks: list[int] = []
        (again,) = train_baselines(
            *where,
            lambda done, _, t=ticks: t.append(done),
            writer=CheckpointPolicy(folder, stop=lambda: False).epochs(0, "x"),
        )
        assert ticks[0] > epochs - 1
        for name in ("rate", "epoch", "val_score", "val_loss"):
            assert torch.equal(getattr(again, name), getattr(whole, name)), (epochs, name)
        assert all(
            torch.equal(again.models.rows[k], whole.models.rows[k]) for k in whole.models.rows
        )


def test_fit_goes_on_from_a_folder_of_checkpoints(tmp_path: Path) -> None:
    fed = glocal.load("digits", clients=6)
    given: dict[str, Any] = {"model": "mlp(8)", "rounds": 5, "baseline": ALONE, "fraction": 0.5}
    whole = glocal.fit("lg-fedavg(warmup=2)+yogi(lr=0.1)", fed, **given)
    seen: list[int] = []

    def interrupted(line: dict[str, Any]) -> None:
        if line["round"] == 4:
            raise KeyboardInterrupt

    keeping = CheckpointPolicy(tmp_path / "c", every=1)
    spec = "lg-fedavg(warmup=2)+yogi(lr=0.1)"
    with pytest.raises(KeyboardInterrupt):
        glocal.fit(spec, fed, **given, checkpoints=keeping, on_line=interrupted)
    again = glocal.fit(
        spec, fed, **given, checkpoints=tmp_path / "c", on_line=lambda line: seen.append(line)
    )
    assert [line["round"] for line in seen] == [1, 2, 3, 4, 5]
    assert again.history == whole.history == seen
    assert again.summary == whole.summary
    assert all(torch.equal(again.model[k], whole.model[k]) for k in whole.model)
    others: list[tuple[Any, dict[str, Any]]] = [
        (spec, {"rounds": 6}),
        (spec, {"losses": lambda logits, y: 0.5 * cross_entropy(logits, y)}),
        (spec, {"augment": flip()}),
        (resolve("fedavg"), {"name": spec}),
        (spec.replace("0.1", "0.2"), {"name": spec}),
    ]
    for method, change in others:
        with pytest.raises(GlocalError, match="of another training"):
            glocal.fit(method, fed, **{**given, **change}, checkpoints=tmp_path / "c")


def test_a_checkpoint_of_another_format_is_refused(tmp_path: Path) -> None:
    CheckpointFiles(tmp_path / "repeat-1").write(1, {"format": 99}, {})
    with pytest.raises(GlocalError, match=r"another version \(format 99"):
        CheckpointPolicy(tmp_path).rounds(0, "x").last()


@pytest.mark.parametrize("wrong", [{"every": -1}, {"keep": 0}, {"every": True}, {"keep": 1.5}])
def test_odd_numbers_of_checkpoints_are_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(GlocalError, match="of checkpoints must be an integer"):
        CheckpointPolicy(tmp_path, **wrong)


def test_by_default_checkpoints_cost_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    keeper = CheckpointPolicy(tmp_path, stop=lambda: False).rounds(0, "x")
    written: list[int] = []

    def write(number: int, facts: Any, trees: Any) -> None:
        written.append(number)
        clock[0] += 1.0  # a write takes a second

    monkeypatch.setattr(CheckpointFiles, "write", lambda self, *given: write(*given))
    for number in range(1, 101):
        clock[0] += 0.5  # and a round half of one
        keeper.after(number, lambda: ({}, {}), last=number == 100)
    assert written == [1, 41, 81, 100]
