"""Each client alone: against a search written out here in plain PyTorch."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from single_baseline import train_baseline
from torch import nn

from glocal.core import rng, tree
from glocal.core.errors import ClientError, GlocalError
from glocal.data.federation import Federation, federation
from glocal.data.split import Split
from glocal.engines import Engine, Sequential, Vectorised
from glocal.engines.batching import plan
from glocal.experiment import baseline
from glocal.experiment.baseline import known_by, rates_of
from glocal.methods import resolve
from glocal.methods.local import GRID, LocalTraining, local
from glocal.nn.task import Task
from glocal.slots.method import Method
from glocal.testing import ragged
from toys import seeded

ENGINES: list[Engine] = [Sequential(), Vectorised()]
SEED = 5


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))


def task() -> Task:
    return Task(seeded(net))


def linear() -> Task:
    """Without an activation that would tame it, a rate that is too high overflows."""
    return Task(seeded(lambda: nn.Sequential(nn.Linear(6, 5), nn.Linear(5, 3))))


def alone(**settings: object) -> LocalTraining:
    made = local(**{"grid": (0.05, 0.5), "max_epochs": 12, "patience": 3, **settings})  # type: ignore[arg-type]
    assert isinstance(made.local, LocalTraining)
    return made.local


def noisy() -> Federation:
    """Clients with many validation examples and wrong labels: what is best goes up and down."""
    owner = [k for k, n in enumerate((131, 247, 325, 164)) for _ in range(n)]
    x = rng.normal(rng.key(0), (len(owner), 6))
    y = (x[:, :3] + 1.5 * rng.normal(rng.key(1), (len(owner), 3))).argmax(1)
    return federation(x, y, clients=owner, split=(0.1, 0.7, 0.2))


def search(
    fed: Federation, k: int, rates: tuple[float, ...], patience: int, epochs: int = 16
) -> tuple[float, int, float, nn.Module]:
    """The client's rate and epoch: every epoch of every rate, looked at in turn."""
    root = rng.fold(rng.key(SEED), 0xA10E)
    best: tuple[float, float] | None = None
    found: tuple[float, int, float, nn.Module] | None = None
    client = fed[k]
    for rate in rates:
        model = net()
        model.load_state_dict(task().init(rng.fold(rng.fold(root, 0), k)))
        optimiser = torch.optim.SGD(model.parameters(), rate, momentum=0.5)
        top, last = -1.0, 0
        kept: tuple[tuple[float, float], tuple[float, int, float, nn.Module]] | None = None
        for epoch in range(1, epochs + 1):
            key = rng.fold(rng.fold(rng.fold(root, epoch), k), 0).view(1)
            cut = plan(fed.train, torch.tensor([k]), key, 1, 10)
            for rows, weight in zip(cut.rows[0], cut.weight[0], strict=True):
                rows = rows[weight > 0]
                optimiser.zero_grad()
                nn.functional.cross_entropy(model(fed.x[rows]), fed.y_train[rows]).backward()
                optimiser.step()
            x, y = client.val
            with torch.no_grad():
                logits = model(x)
            accuracy = float((logits.argmax(1) == y).float().mean())
            score = accuracy, -float(nn.functional.cross_entropy(logits, y))
            top = max(top, accuracy)
            p = (top * len(y) + 1) / (len(y) + 2)
            if accuracy >= top - (p * (1 - p) / len(y)) ** 0.5:
                last = epoch
                kept = score, (rate, epoch, accuracy, copy.deepcopy(model))
            if epoch - last >= patience:
                break
        if kept is not None and (best is None or kept[0] > best):
            best, found = kept
    assert found is not None
    return found


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_the_best_rate_and_epoch_on_validation_data(engine: Engine) -> None:
    fed = noisy()
    settings = alone(momentum=0.5, max_epochs=16, patience=1)
    yard = train_baseline(task(), fed, engine, settings, SEED)
    for k in range(len(fed)):
        rate, epoch, accuracy, model = search(fed, k, (0.05, 0.5), 1)
        assert float(yard.rate[k]) == pytest.approx(rate)
        assert int(yard.epoch[k]) == epoch
        assert float(yard.val_score[k]) == pytest.approx(accuracy)
        for name, p in model.named_parameters():
            torch.testing.assert_close(yard.models.rows[name][k], p.detach(), rtol=1e-4, atol=1e-4)
    assert len(set(yard.rate.tolist())) > 1  # the case tells rates apart, and patience
    assert any(
        search(fed, k, (0.05, 0.5), 2)[:2] != search(fed, k, (0.05, 0.5), 1)[:2] for k in range(4)
    )


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_clients_do_not_know_of_each_other(engine: Engine) -> None:
    fed = ragged()

    def first(split: Split) -> Split:
        return Split(split.rows[: int(split.start[3])], split.start[:4])

    fewer = replace(
        fed, names=fed.names[:3], train=first(fed.train), val=first(fed.val), test=first(fed.test)
    )
    all_, some = (train_baseline(task(), f, engine, alone(), SEED) for f in (fed, fewer))
    assert torch.equal(all_.epoch[:3], some.epoch)
    assert torch.equal(all_.rate[:3], some.rate)
    for name, leaf in some.models.rows.items():
        torch.testing.assert_close(all_.models.rows[name][:3], leaf, rtol=1e-4, atol=1e-5)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    fed, ticks = ragged(), []
    whole = train_baseline(task(), fed, Vectorised(), alone(), SEED)
    monkeypatch.setattr(baseline, "BLOCK_BYTES", 4 * tree.count(task().params) * 2 * 3 * 2)
    parts = train_baseline(task(), fed, Vectorised(), alone(), SEED, lambda *t: ticks.append(t))
    assert torch.equal(parts.epoch, whole.epoch)
    torch.testing.assert_close(
        parts.models.rows["0.bias"], whole.models.rows["0.bias"], rtol=1e-4, atol=1e-5
    )
    assert {total for _, total in ticks} == {3 * 12}
    assert [done for done, _ in ticks] == sorted(done for done, _ in ticks)
    assert ticks[-1] == (36, 36)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_a_rate_that_is_too_high_is_dropped(engine: Engine) -> None:
    yard = train_baseline(linear(), ragged(), engine, alone(grid=(1e38, 0.1)), SEED)
    assert yard.rate.tolist() == pytest.approx([0.1] * 6)
    assert all(bool(leaf.isfinite().all()) for leaf in yard.models.rows.values())
    same = train_baseline(linear(), ragged(), engine, alone(grid=(0.1,)), SEED)
    assert torch.equal(yard.epoch, same.epoch)


def test_if_all_are_too_high_the_client_is_named() -> None:
    message = r"client 0 cannot train alone: its loss is not finite at rates 1e\+38.*lower ones"
    with pytest.raises(ClientError, match=message):
        train_baseline(linear(), ragged(), Vectorised(), alone(grid=(1e38,)), SEED)


def test_test_data_has_no_say() -> None:
    fed, other = ragged(), ragged()
    other.x[other.test.rows] = torch.nan
    a, b = (train_baseline(task(), f, Vectorised(), alone(), SEED) for f in (fed, other))
    assert torch.equal(a.models.rows["0.weight"], b.models.rows["0.weight"])


def test_the_seed_decides() -> None:
    a, b, c = (train_baseline(task(), ragged(), Vectorised(), alone(), s) for s in (1, 1, 2))
    assert torch.equal(a.models.rows["0.weight"], b.models.rows["0.weight"])
    assert not torch.equal(a.models.rows["0.weight"], c.models.rows["0.weight"])


def test_settings_of_local() -> None:
    made = resolve("local(lr=0.2,max_epochs=7,batch_size=4,momentum=0.9)")
    assert isinstance(made, Method)
    assert isinstance(made.local, LocalTraining)
    assert made.local.rates == (0.2,)
    assert (made.local.max_epochs, made.local.batch_size) == (7, 4)
    others = ({}, {"patience": 4}, {"momentum": 0.9}, {"grid": (0.1,)})
    assert len({known_by(alone(**settings)) for settings in others}) == 4
    assert known_by(alone()) == known_by(alone())


def test_the_grid_of_rates_is_that_of_the_baseline_unless_given() -> None:
    made, same = local().local, local(grid=(0.03, 0.1, 0.3)).local
    assert isinstance(made, LocalTraining)
    assert isinstance(same, LocalTraining)
    assert rates_of(made) == GRID == same.rates
    assert known_by(made) == known_by(same)
    with pytest.raises(GlocalError, match="grid must hold learning rates above 0"):
        local(grid=())
