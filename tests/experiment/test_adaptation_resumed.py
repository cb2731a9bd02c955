"""Adaptation that was stopped goes on from its last epoch, to the same bits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import glocal
from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.interrupts import Stopped
from glocal.engines import Vectorised
from glocal.evaluation.evaluate import Outcome
from glocal.experiment.adaptation import techniques
from glocal.experiment.adaptation_progress import Standing, packed, unpacked
from glocal.experiment.adapted_clients import Adapted, adapt_clients
from glocal.nn.task import Task
from glocal.testing import ragged
from glocal.training.checkpoint import CheckpointPolicy
from toys import seeded

FED = ragged()
TASK = Task(seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))))
SPEC = "fine-tune(lr=0.3,max_epochs=3)+ewc(lam=5,max_epochs=2)+freeze-base(max_epochs=2)"


@pytest.fixture(autouse=True)
def blocks_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("glocal.experiment.adapted_clients.at_once", lambda task, technique: 2)


def run(**more: Any) -> Adapted:
    def given(ids: torch.Tensor) -> Any:
        return tree.map(lambda x: x.expand(len(ids), *x.shape).clone(), TASK.params)

    where = (TASK, FED, Vectorised(), techniques(SPEC), given, 3)
    return adapt_clients(*where, keep=True, **more)


def stop_after(epochs: int) -> Callable[[], bool]:
    asked = iter(range(1, 1000))
    return lambda: next(asked) == epochs


def alike(a: Outcome, b: Outcome) -> bool:
    def tensors(of: Outcome) -> list[torch.Tensor]:
        return [*of.own, *(of.values or ()), *(() if of.pool is None else (of.pool,))]

    pairs = zip(tensors(a), tensors(b), strict=True)
    about = [(of.metrics, of.chosen, of.metric, of.lower, of.constant) for of in (a, b)]
    return all(torch.equal(x, y) for x, y in pairs) and about[0] == about[1]


def test_it_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    whole, blocks = run(), -(-len(FED) // 2)
    epochs = blocks * (3 + 2 + 2)
    # In the first block; where one ends; within the technique with Fisher information; at the end.
    for at in (1, 3, 4, 3 * blocks + 1, 5 * blocks, epochs - 1):
        policy = CheckpointPolicy(tmp_path / f"{at}", every=1, stop=stop_after(at))
        with pytest.raises(Stopped):
            run(writer=policy.adaptation(0, "x"))
        ticks: list[tuple[int, int]] = []
        again = run(
            writer=CheckpointPolicy(tmp_path / f"{at}", stop=lambda: False).adaptation(0, "x"),
            tick=lambda done, of, t=ticks: t.append((done, of)),
        )
        assert ticks[0][0] > at
        assert ticks[-1] == (epochs, epochs)
        assert again.by == whole.by
        assert torch.equal(again.val_score, whole.val_score)
        assert (again.gradients, again.sent) == (whole.gradients, whole.sent)
        assert list(again.techniques) == list(whole.techniques)
        for name, outcome in whole.techniques.items():
            assert alike(again.techniques[name], outcome), (at, name)
        assert alike(again.outcome, whole.outcome)
        assert again.models is not None
        assert whole.models is not None
        assert all(torch.equal(again.models[k], whole.models[k]) for k in whole.models)


def test_another_adaptation_is_not_taken_for_it(tmp_path: Path) -> None:
    policy = CheckpointPolicy(tmp_path, every=1, stop=stop_after(2))
    with pytest.raises(Stopped):
        run(writer=policy.adaptation(0, "x"))
    last = CheckpointPolicy(tmp_path).adaptation(0, "x").last()
    assert last is not None
    assert last.number == 2
    assert CheckpointPolicy(tmp_path).adaptation(0, "y").last() is None
    assert CheckpointPolicy(tmp_path).adaptation(1, "x").last() is None


def test_what_is_no_adaptation_is_said_so(tmp_path: Path) -> None:
    writer = CheckpointPolicy(tmp_path).adaptation(0, "x")
    writer.write(3, lambda: ({}, {"clients": {}}))
    with pytest.raises(GlocalError, match="checkpoint 3 is none of an adaptation"):
        run(writer=CheckpointPolicy(tmp_path).adaptation(0, "x"))


@pytest.mark.parametrize("metric", ["accuracy", "log_loss"])
def test_a_fit_that_is_killed_while_clients_adapt_does_not_adapt_anew(
    metric: str, tmp_path: Path
) -> None:
    fed = glocal.load("digits", clients=6)
    given: dict[str, Any] = {"model": "mlp(8)", "rounds": 2, "baseline": "none", "adapt": SPEC}
    given["metric"] = metric
    whole = glocal.fit("fedavg", fed, **given)
    # Asked after each of two rounds, and then after each epoch of a block.
    keeping = CheckpointPolicy(tmp_path / "c", every=1, stop=stop_after(2 + 4))
    with pytest.raises(KeyboardInterrupt):
        glocal.fit("fedavg", fed, **given, checkpoints=keeping)
    told: list[tuple[str, int]] = []
    again = glocal.fit(
        "fedavg",
        fed,
        **given,
        checkpoints=CheckpointPolicy(tmp_path / "c", stop=lambda: False),
        progress=lambda title, done, of: told.append((title, done)),
    )
    adapting = [done for title, done in told if "adapting" in title]
    assert adapting[0] == 5
    assert again.clients == whole.clients
    different = {k for k in whole.summary if again.summary.get(k) != whole.summary[k]}
    assert different <= {"seconds"}


@pytest.mark.parametrize("first", [False, True])
def test_clients_who_are_pooled_now_adapt_anew(first: bool, tmp_path: Path) -> None:
    """What blocks that are done were evaluated on is no longer what is asked for."""
    given: dict[str, Any] = {"model": "mlp(8)", "rounds": 2, "baseline": "none", "adapt": SPEC}
    some = {pooled: glocal.load("digits", clients=6, pooled=pooled) for pooled in (False, True)}
    keeping = CheckpointPolicy(tmp_path / "c", every=1, stop=stop_after(2 + 4))
    with pytest.raises(KeyboardInterrupt):
        glocal.fit("fedavg", some[first], **given, checkpoints=keeping)
    other = glocal.fit("fedavg", some[not first], **given, checkpoints=tmp_path / "c")
    assert other.clients == glocal.fit("fedavg", some[not first], **given).clients


def test_a_model_that_was_trained_anew_is_adapted_anew(tmp_path: Path) -> None:
    """With secret noise it is another one, whose settings are the same."""
    fed = glocal.load("digits", clients=6)
    given: dict[str, Any] = {"model": "mlp(8)", "rounds": 2, "baseline": "none"}
    given |= {"adapt": "fine-tune(lr=0.001,max_epochs=1)", "checkpoints": tmp_path / "c"}
    method = "fedavg+dp(clip=1.0,noise=1.0)"
    first = glocal.fit(method, fed, **given)
    for file in (tmp_path / "c" / "repeat-1").glob("*.safetensors"):
        file.unlink()
    second = glocal.fit(method, fed, **given)
    assert second.clients["accuracy"] != first.clients["accuracy"]
    assert second.clients["adapted_accuracy"] != first.clients["adapted_accuracy"]


def test_many_clients_are_a_short_header(tmp_path: Path) -> None:
    """A safetensors header is 100 MB at most, and would have a line for each tensor."""
    clients = 20_000
    right = [torch.tensor([float(k % 2), 1.0]) for k in range(clients)]
    about: dict[str, Any] = {"metrics": {"accuracy": [0.5] * clients}, "pool": None}
    outcome = Outcome(own=right, chosen=["adapted"] * clients, **about)
    standing = Standing.at_first(clients, torch.device("cpu"))
    standing.parts["fine-tune"] = [outcome]
    writer = CheckpointPolicy(tmp_path).adaptation(0, "x")
    writer.write(1, lambda: packed(standing, {}))
    last = writer.last()
    assert last is not None
    (part,) = unpacked(last, torch.device("cpu"))[0].parts["fine-tune"]
    assert alike(part, outcome)
    (file,) = writer.series.folder.iterdir()
    assert file.stat().st_size < 100 * clients
