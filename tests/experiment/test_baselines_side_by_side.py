"""Local baselines of several repeats as one program; refitted, cross-validated, with decay."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from single_baseline import train_baseline
from torch import nn

from glocal.core import rng, tree
from glocal.core.interrupts import Stopped
from glocal.data.federation import Federation, federation
from glocal.engines import Engine, Sequential, Vectorised
from glocal.engines.batching import plan
from glocal.experiment import baseline
from glocal.experiment.baseline import train_baselines
from glocal.experiment.chosen import folded, with_validation
from glocal.experiment.early_stopping import FIGURES, Selected
from glocal.experiment.folds import folds_of, learnable
from glocal.experiment.local_epochs import SideClients
from glocal.methods.local import LocalTraining, local
from glocal.nn.task import Task
from glocal.training.checkpoint import CheckpointPolicy
from toys import seeded

ENGINES: list[Engine] = [Sequential(), Vectorised()]
SEEDS = (5, 9)
BOTH = {"refit": True, "scored": True}


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


def task() -> Task:
    return Task(seeded(net))


def alone(**changes: Any) -> LocalTraining:
    made = local(grid=(0.05, 0.5), max_epochs=6, patience=2).local
    assert isinstance(made, LocalTraining)
    return replace(made, **changes)


def feds(count: int = 2) -> list[Federation]:
    """Ragged clients; the last one is too small to cross-validate."""
    sizes = (31, 18, 24, 4)
    owner = [k for k, n in enumerate(sizes) for _ in range(n)]
    x = rng.normal(rng.key(0), (len(owner), 4))
    y = (x[:, :3] + 2.0 * rng.normal(rng.key(1), (len(owner), 3))).argmax(1)
    y[-4:] = torch.tensor([0, 1, 2, 0])
    first = federation(x, y, clients=owner, split=(0.5, 0.25, 0.25))
    return [first.fold(r) for r in range(count)]


def close(a: Selected[Any], b: Selected[Any]) -> None:
    assert torch.equal(a.epoch, b.epoch)
    assert torch.equal(a.rate, b.rate)
    assert (a.decay is None and b.decay is None) or torch.equal(a.decay, b.decay)  # type: ignore[arg-type]
    if a.cv_score is not None:
        torch.testing.assert_close(a.cv_score, b.cv_score)
    for name, leaf in a.models.rows.items():
        torch.testing.assert_close(leaf, b.models.rows[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_side_by_side_each_repeat_is_what_it_is_by_itself(engine: Engine) -> None:
    client = alone(decays=(0.1,))
    together = train_baselines(task(), feds(), engine, client, SEEDS, **BOTH)
    for fed, seed, one in zip(feds(), SEEDS, together, strict=True):
        close(one, train_baseline(task(), fed, engine, client, seed, **BOTH))
    assert not torch.equal(together[0].models.rows["0.bias"], together[1].models.rows["0.bias"])


def plainly(
    fed: Federation, k: int, rows: torch.Tensor, found: Selected[Any], seed: int, root: Any
):
    """A client's chosen training in plain PyTorch, on some rows."""
    start = rng.fold(rng.key(seed), 0xA10E)
    model = net()
    model.load_state_dict(task().init(rng.fold(rng.fold(start, 0), k)))
    assert found.decay is not None
    decay = float(found.decay[k])
    optimiser = torch.optim.SGD(model.parameters(), float(found.rate[k]), weight_decay=decay)
    from glocal.data.split import Split

    split = Split(rows, torch.tensor([0, len(rows)]))
    for epoch in range(1, int(found.epoch[k]) + 1):
        key = rng.fold(rng.fold(rng.fold(root(start), epoch), k), 0).view(1)
        cut = plan(split, torch.tensor([0]), key, 1, 10)
        for some, weight in zip(cut.rows[0], cut.weight[0], strict=True):
            some = some[weight > 0]
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(fed.x[some]), fed.y_train[some]).backward()
            optimiser.step()
    return model


def test_refitting_trains_the_choice_again_on_both_splits() -> None:
    (fed,), client = feds(1), alone(decays=(0.1,))
    plain = train_baseline(task(), fed, Vectorised(), client, 5)
    again = train_baseline(task(), fed, Vectorised(), client, 5, refit=True)
    for name in ("rate", "epoch", "val_score", "decay"):
        assert torch.equal(getattr(plain, name), getattr(again, name))
    assert torch.equal(again.trained, plain.trained + plain.epoch)
    for k in range(4):
        rows = learnable(fed, k, tune=True)
        model = plainly(fed, k, rows, again, 5, lambda start: start)
        for name, p in model.named_parameters():
            torch.testing.assert_close(again.models.rows[name][k], p.detach(), rtol=1e-4, atol=1e-5)
    assert not torch.equal(plain.models.rows["0.bias"], again.models.rows["0.bias"])


@pytest.mark.parametrize("tune", [False, True])
def test_the_cross_validated_accuracy_is_that_of_a_plain_loop(tune: bool) -> None:
    (fed,), client = feds(1), alone(decays=(0.1,))
    found = train_baseline(task(), fed, Vectorised(), client, 5, refit=tune, scored=True)
    assert found.cv_score is not None
    for k in range(3):
        rows, fold = learnable(fed, k, tune=tune), torch.from_numpy(folds_of(fed, k, 5, tune=tune))
        right = 0
        for f in range(int(fold.max()) + 1):
            root = lambda start, f=f: rng.fold(start, 0xF01D + f)  # noqa: E731
            model = plainly(fed, k, rows[fold != f], found, 5, root)
            held = rows[fold == f]
            right += int((model(fed.x[held]).argmax(1) == fed.y[held]).sum())
        assert float(found.cv_score[k]) == pytest.approx(right / len(rows))
    if not tune:  # two examples of two classes cannot be cross-validated
        assert float(found.cv_score[3]) == pytest.approx(float(found.val_score[3]))


def test_folds_hold_every_example_out_once_and_validation_stays_out_unless_refitted() -> None:
    federations = feds()
    clients = SideClients.of(federations, SEEDS)
    for tune in (False, True):
        fed = folded(clients, tune)
        for c in range(8):
            rows = learnable(federations[c // 4], c % 4, tune=tune)
            held = [fed.val.of(f * 8 + c) for f in range(5)]
            learned = [fed.train.of(f * 8 + c) for f in range(5)]
            if sum(map(len, held)):
                assert torch.equal(torch.cat(held).sort()[0], rows.sort()[0])
            for a, b in zip(held, learned, strict=True):
                if len(a):
                    assert torch.equal(torch.cat([a, b]).sort()[0], rows.sort()[0])
    both = with_validation(federations[0])
    for k in range(4):
        assert torch.equal(both.train.of(k), learnable(federations[0], k, tune=True))


def test_weight_decay_is_taken_where_it_does_better_on_validation_data() -> None:
    (fed,) = feds(1)
    without = train_baseline(task(), fed, Vectorised(), alone(), 5)
    with_it = train_baseline(task(), fed, Vectorised(), alone(decays=(0.1, 0.5)), 5)
    assert torch.equal(without.rate, with_it.rate)
    assert with_it.decay is not None
    assert bool((with_it.val_score >= without.val_score).all())
    stayed = with_it.decay == 0
    assert torch.equal(with_it.epoch[stayed], without.epoch[stayed])
    assert bool(with_it.decay.any())
    linear = Task(seeded(lambda: nn.Linear(4, 3)))  # nothing tames it, so it overflows
    huge, none = (
        train_baseline(linear, fed, Vectorised(), alone(decays=decays), 5)
        for decays in ((1e38,), ())
    )
    assert not bool(huge.decay[:3].any())  # type: ignore[index]
    assert torch.equal(huge.models.rows["bias"][:3], none.models.rows["bias"][:3])


def test_resumed_in_any_stage_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = alone(decays=(0.1,), max_epochs=3)
    # Blocks of three clients, across the border between the repeats.
    size = 4 * tree.count(task().params)
    monkeypatch.setattr(baseline, "BLOCK_BYTES", 3 * size * 5 * 3)
    where = (task(), feds(), Vectorised(), client, SEEDS)
    whole = train_baselines(*where, **BOTH)
    for stop_at in (2, 5, 7, 10, 12, 21):
        asked = iter(range(1, 1000))
        folder = tmp_path / str(stop_at)

        def stop(asked: Any = asked, stop_at: int = stop_at) -> bool:
            return next(asked) == stop_at

        policy = CheckpointPolicy(folder, 1, stop=stop)
        with pytest.raises(Stopped):
            train_baselines(*where, writer=policy.epochs(0, "x"), **BOTH)
        policy = CheckpointPolicy(folder, stop=lambda: False)
        again = train_baselines(*where, writer=policy.epochs(0, "x"), **BOTH)
        for a, b in zip(whole, again, strict=True):
            for name in FIGURES:
                assert torch.equal(getattr(a, name), getattr(b, name)), (stop_at, name)
            assert all(torch.equal(a.models.rows[k], b.models.rows[k]) for k in a.models.rows)
