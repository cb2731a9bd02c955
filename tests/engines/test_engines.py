"""Batches, chunks, errors and received losses; that engines agree is in ``test_conformance``."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import toys
from glocal import engines
from glocal.core import rng, tree
from glocal.core.errors import ClientError, GlocalError
from glocal.data.split import Split, from_counts
from glocal.engines import CohortRound, Engine, Sequential, Vectorised
from glocal.engines.base import padded_rows
from glocal.engines.batching import plan
from glocal.engines.evaluation import BatchedEvaluation
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.client import minibatch_training
from glocal.slots.sharing import keep_private
from glocal.testing import ragged

ENGINES: list[Engine] = [Sequential(), Vectorised(), Vectorised(chunk=2)]
SGD = minibatch_training()


@pytest.fixture
def split() -> Split:
    """Clients of 3, 7 and 5 examples at scattered places of the arrays."""
    rows = 2 * rng.permutation(rng.key(5), 15) + 1
    return from_counts(rows, torch.tensor([3, 7, 5]))


def keys(n: int = 3) -> Tensor:
    return rng.fold(rng.key(0), torch.arange(n))


def epochs_of(split: Split, client: int, batch_size: int, epochs: int) -> list[list[int]]:
    """The client's examples in the order in which they come, epoch by epoch."""
    cut = plan(split, torch.arange(3), keys(), epochs, batch_size)
    seen = [r[w > 0].tolist() for r, w in zip(cut.rows[client], cut.weight[client], strict=True)]
    flat = [row for batch in seen for row in batch]
    n = len(split.of(client))
    return [flat[e * n : (e + 1) * n] for e in range(epochs)]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 10, 0])
def test_every_epoch_is_a_permutation_of_the_clients_examples(
    split: Split, batch_size: int
) -> None:
    for client in range(3):
        orders = epochs_of(split, client, batch_size, 3)
        for order in orders:
            assert sorted(order) == sorted(split.of(client).tolist())
        assert len({tuple(o) for o in orders}) > 1


def test_batches_are_full_but_for_the_last_of_an_epoch(split: Split) -> None:
    cut = plan(split, torch.arange(3), keys(), 2, 3)
    assert cut.steps.tolist() == [2, 6, 4]
    assert cut.rows.shape == cut.weight.shape == (3, 6, 3)
    assert cut.weight.sum(-1).tolist() == [
        [3, 3, 0, 0, 0, 0],
        [3, 3, 1, 3, 3, 1],
        [3, 2, 3, 2, 0, 0],
    ]
    real_first = cut.weight.diff(dim=-1) <= 0
    assert bool(real_first.all())
    assert not cut.rows[cut.weight == 0].any()


def test_all_at_once(split: Split) -> None:
    cut = plan(split, torch.arange(3), keys(), 2, 0)
    assert cut.steps.tolist() == [2, 2, 2]
    assert cut.weight.sum(-1).tolist() == [[3, 3], [7, 7], [5, 5]]


def test_a_clients_batches_do_not_depend_on_its_cohort(split: Split) -> None:
    together = plan(split, torch.tensor([2, 0, 1]), keys()[[2, 0, 1]], 2, 3)
    for place, client in enumerate((2, 0, 1)):
        alone = plan(split, torch.tensor([client]), keys()[client].view(1), 2, 3)
        steps = int(alone.steps[0])
        assert torch.equal(together.rows[place, :steps], alone.rows[0])
        assert torch.equal(together.weight[place, :steps], alone.weight[0])
        assert not together.weight[place, steps:].any()


def test_padded_rows(split: Split) -> None:
    rows, real = padded_rows(split, torch.tensor([1, 0]))
    assert real.sum(1).tolist() == [7, 3]
    assert rows[0].tolist() == split.of(1).tolist()
    assert rows[1, :3].tolist() == split.of(0).tolist()
    assert not rows[1, 3:].any()


def work(local: Any = SGD, states: Any = None, needs_loss: bool = False) -> CohortRound:
    fed = ragged()
    task = Task(toys.dropout_net())
    everyone = torch.arange(len(fed))
    return CohortRound(
        task=task,
        local=local,
        fed=fed,
        down={"params": task.params, "lr": torch.tensor(1.0), "round": torch.tensor(0.0)},
        ids=everyone,
        states={} if states is None else states,
        key=rng.key(1),
        needs_loss=needs_loss,
    )


@pytest.mark.parametrize("chunk", [1, 2, 4, 5])
def test_chunks_change_nothing(chunk: int) -> None:
    local = toys.own_client()
    states = tree.stack([{"v": Task(toys.dropout_net()).params}] * 6)
    job = work(local, states, needs_loss=True)
    whole, kept = Vectorised().round(job)
    parts, kept_too = Vectorised(chunk=chunk).round(job)
    assert torch.equal(parts.ids, whole.ids)
    assert torch.equal(parts.n, whole.n)
    assert whole.loss is not None
    torch.testing.assert_close(parts.loss, whole.loss)
    for a, b in ((parts.update, whole.update), (kept_too, kept)):
        for x, y in zip(tree.leaves(a), tree.leaves(b), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)


def test_a_large_cohort_runs_in_chunks_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    job = work()
    size = tree.count(job.task.params)
    monkeypatch.setattr(engines.vectorised, "MEMORY", 6 * 4 * size * 2)
    seen = []
    inner = Vectorised._round

    def spy(self: Vectorised, part: CohortRound) -> Any:
        seen.append(part.ids.tolist())
        return inner(self, part)

    monkeypatch.setattr(Vectorised, "_round", spy)
    Vectorised().round(job)
    assert seen == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
def test_the_received_loss_is_the_mean_over_the_clients_training_data(engine: Engine) -> None:
    job = work(needs_loss=True)
    uplink, _ = engine.round(job)
    assert uplink.loss is not None
    module = toys.dropout_net().eval()
    for k, client in enumerate(job.fed):
        x, y = client.train
        expected = nn.functional.cross_entropy(module(x), y)
        torch.testing.assert_close(uplink.loss[k], expected.detach())
        assert int(uplink.n[k]) == len(x)


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
def test_with_private_layers_it_is_the_loss_of_the_assembled_model(engine: Engine) -> None:
    params = Task(toys.dropout_net()).params
    local = keep_private(SGD, frozenset({"3.weight", "3.bias"}))
    own = [
        {"private": {k: params[k] * i for k in ("0.weight", "0.bias")}, "inner": {}}
        for i in range(6)
    ]
    job = work(local, tree.stack(own), needs_loss=True)
    job.down["params"] = {k: params[k] for k in ("3.weight", "3.bias")}
    uplink, _ = engine.round(job)
    assert uplink.loss is not None
    for i, client in enumerate(job.fed):
        x, y = client.train
        logits = job.task.predict({**params, **own[i]["private"]}, x)
        torch.testing.assert_close(uplink.loss[i], nn.functional.cross_entropy(logits, y))


def test_no_loss_unless_it_is_asked_for() -> None:
    for engine in ENGINES:
        assert engine.round(work())[0].loss is None


def fails_on_three_examples(*args: Any) -> Any:
    """At the second batch of the one client whose last batch has a single example."""
    task, down, carry, batch, key = args
    if batch["weight"].numel() == 1:
        raise ValueError("no variance\nof one example")
    return SGD.step(task, down, carry, batch, key)


def always_fails(*args: Any) -> Any:
    raise RuntimeError("broken")


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({"start": always_fails}, "client 0 failed at start: RuntimeError: broken"),
        ({"step": always_fails}, "client 0 failed at train, step 0: RuntimeError: broken"),
        ({"finish": always_fails}, "client 0 failed at finish: RuntimeError: broken"),
    ],
)
def test_an_error_names_the_client_and_the_stage(
    engine: Engine, hooks: dict[str, Any], message: str
) -> None:
    with pytest.raises(ClientError, match=message):
        engine.round(work(toys.wrapped(**hooks).local))


def test_an_error_of_one_client_names_that_one() -> None:
    counts = ragged().train.counts() % 10
    client = int((counts == 1).nonzero()[0])
    with pytest.raises(
        ClientError, match=f"client {client} failed at train, step .: ValueError: no variance$"
    ):
        Sequential().round(work(toys.wrapped(step=fails_on_three_examples).local))


def test_an_error_in_the_data_is_found_when_vectorised() -> None:
    """A label out of range: vmap cannot say whose it is, and the plain loop is asked."""
    job = work()
    job.fed.y_train[job.fed.train.of(3)[0]] = 99
    for engine in ENGINES:
        with pytest.raises(ClientError, match="client 3 failed at train, step"):
            engine.round(job)


def test_what_fails_only_when_vectorised_says_so() -> None:
    def reads_a_number(*args: Any) -> Any:
        moved = SGD.step(*args)
        assert float(moved["w"]["0.bias"].sum()) < 1e9
        return moved

    job = work(toys.wrapped(step=reads_a_number).local)
    Sequential().round(job)
    message = r"client 0 and the rest of its cohort failed at train, step 0: .*\(only when vecto"
    with pytest.raises(ClientError, match=message):
        Vectorised().round(job)


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
def test_a_sentence_of_ours_is_passed_on_as_it_is(engine: Engine) -> None:
    def refuses(*args: Any) -> Any:
        raise GlocalError("use another.")

    with pytest.raises(GlocalError, match=r"^use another\.$"):
        engine.round(work(toys.wrapped(step=refuses).local))


@pytest.mark.parametrize(("examples", "at_once"), [(3, True), (25, False)])
def test_convolutions_are_evaluated_one_by_one_on_a_cpu(
    examples: int, at_once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    stacked = BatchedEvaluation.evaluate
    monkeypatch.setattr(
        BatchedEvaluation, "evaluate", lambda *given: asked.append(1) or stacked(*given)
    )
    torch.manual_seed(0)
    task = Task(models.build("lenet", input_shape=(1, 28, 28), classes=10, seed=0))
    mine = tree.map(lambda p: p + 0.01 * torch.randn(4, *p.shape), task.params)
    x, y = torch.rand(40, 1, 28, 28), torch.randint(10, (40,))
    rows = torch.randint(40, (4, examples))
    given = task.example_metrics, mine, x, y, rows
    torch.testing.assert_close(Vectorised().evaluate(*given), Sequential().evaluate(*given))
    assert bool(asked) == at_once


@pytest.mark.parametrize("engine", ENGINES, ids=repr)
def test_each_model_is_evaluated_on_its_own_rows(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines.base, "EVAL_BATCH", 2)
    job = work()
    task, fed = job.task, job.fed
    models = tree.stack([tree.map(lambda x, i=i: x * i, task.params) for i in range(3)])
    rows = torch.tensor([[0, 3, 5, 9, 1], [2, 2, 2, 8, 7], [4, 1, 0, 6, 3]])
    found = engine.evaluate(task.example_metrics, models, fed.x, fed.y, rows)
    for i in range(3):
        expected = task.example_metrics(tree.row(models, i), fed.x[rows[i]], fed.y[rows[i]])
        torch.testing.assert_close(found["loss"][i], expected["loss"])
        assert torch.equal(found["correct"][i], expected["correct"])


def test_the_rule_behind_auto() -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    dense, conv = Task(nn.Linear(6, 3)), Task(toys.group_norm_net())
    large = Task(nn.Linear(2000, 600))
    assert engines.choose(dense, cpu) == "vectorised"
    assert engines.choose(Task(toys.recurrent()), cpu) == "vectorised"
    assert engines.choose(conv, cpu) == "sequential"
    assert engines.choose(large, cpu) == "sequential"
    assert {engines.choose(t, gpu) for t in (dense, conv, large)} == {"vectorised"}


def test_engines_by_name() -> None:
    task, cpu = Task(nn.Linear(6, 3)), torch.device("cpu")
    for name in ("sequential", "vectorised"):
        assert engines.resolve(name, task, cpu).name == name
    assert engines.resolve("auto", task, cpu).name == engines.choose(task, cpu)
    with pytest.raises(GlocalError, match="unknown engine 'vectorized': did you mean 'vectorised'"):
        engines.resolve("vectorized", task, cpu)
