"""A module as pure functions: what is masked, drawn, left alone, and refused at the door."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap
from torch.nn import functional

import glocal
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.engines import CohortRound, Engine, Sequential, Vectorised
from glocal.nn.augment import flip
from glocal.nn.layers import LSTM, Dropout
from glocal.nn.optim import sgd
from glocal.nn.task import Task, cross_entropy, try_out, try_vectorised
from glocal.slots.client import minibatch_training
from toys import Recurrent, dropout_net, seeded

X = rng.normal(rng.key(0), (5, 6))
Y = torch.tensor([0, 1, 2, 1, 0])
KEY = rng.key(9)


def batch(real: int = 5, padded: int = 0) -> dict[str, Tensor]:
    """``real`` examples, then ``padded`` rows of rubbish."""
    rubbish = torch.full((padded, 6), 1e3)
    return {
        "x": torch.cat([X[:real], rubbish]),
        "y": torch.cat([Y[:real], torch.zeros(padded, dtype=torch.int64)]),
        "weight": torch.cat([torch.ones(real), torch.zeros(padded)]),
    }


@pytest.fixture
def task() -> Task:
    return Task(dropout_net())


def test_the_loss_is_the_mean_over_real_examples() -> None:
    module = seeded(lambda: nn.Linear(6, 3))
    task = Task(module)
    expected = functional.cross_entropy(module(X[:3]), Y[:3]).detach()
    for padded in (0, 4):
        loss = task.loss(task.params, batch(3, padded), KEY)
        torch.testing.assert_close(loss, expected)


def test_padding_changes_neither_dropout_nor_gradients(task: Task) -> None:
    def grads(padded: int) -> dict[str, Tensor]:
        return task.grad(lambda w: task.loss(w, batch(3, padded), KEY), task.params)[0]

    for name, leaf in grads(0).items():
        torch.testing.assert_close(grads(4)[name], leaf, rtol=1e-6, atol=1e-7)


def test_a_batch_of_padding_is_no_loss(task: Task) -> None:
    grads, loss = task.grad(lambda w: task.loss(w, batch(0, 3), KEY), task.params)
    assert float(loss) == 0
    assert all(not leaf.any() for leaf in grads.values())


def test_gradients_agree_between_modes_and_with_backward() -> None:
    module = seeded(lambda: nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)))
    task = Task(module)
    functional.cross_entropy(module(X), Y).backward()
    for mode in (task, task.plain()):
        with torch.no_grad():
            grads, value = mode.grad(lambda w, m=mode: m.loss(w, batch(), KEY), task.params)
        assert not value.requires_grad
        for name, p in module.named_parameters():
            torch.testing.assert_close(grads[name], p.grad)


def test_a_parameter_that_is_not_used_has_no_gradient() -> None:
    class Spare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.spare = nn.Linear(6, 3), nn.Linear(2, 2)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.used(x)
            return out

    task = Task(Spare())
    for mode in (task, task.plain()):
        grads, _ = mode.grad(lambda w, m=mode: m.loss(w, batch(), KEY), task.params)
        assert not grads["spare.weight"].any()
        assert grads["used.weight"].any()


def test_dropout_depends_on_the_key_in_training_alone(task: Task) -> None:
    w = task.params
    losses = [float(task.loss(w, batch(), rng.key(i))) for i in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    assert torch.equal(task.predict(w, X), task.predict(w, X))
    module = dropout_net().eval()
    torch.testing.assert_close(task.predict(w, X), module(X).detach())


def test_each_dropout_layer_has_a_key_of_its_own() -> None:
    two = nn.Sequential(Dropout(0.5), Dropout(0.5), nn.Linear(1, 2, bias=False))
    task = Task(two, losses=lambda logits, y: logits[:, 0])
    ones = {"x": torch.ones(400, 1), "y": torch.zeros(400).long(), "weight": torch.ones(400)}
    kept = task.loss({"2.weight": torch.tensor([[1.0], [0.0]])}, ones, KEY) / 4
    assert 0.15 < float(kept) < 0.35  # a shared mask would keep one half


def test_augmentation_is_in_training_alone() -> None:
    seen: list[Tensor] = []

    def note(x: Tensor, key: Tensor) -> Tensor:
        seen.append(key)
        return x * 0

    task = Task(seeded(lambda: nn.Linear(6, 3, bias=False)), augment=note)
    expected = torch.log(torch.tensor(3.0))
    torch.testing.assert_close(task.loss(task.params, batch(), KEY), expected)
    task.predict(task.params, X)
    task.example_metrics(task.params, X, Y)
    assert len(seen) == 1


def test_nothing_changes_the_module_and_the_callers_is_not_shared() -> None:
    module = dropout_net()
    task = Task(module)
    before = tree.map(torch.clone, task.params)
    task.grad(lambda w: task.loss(w, batch(), KEY), tree.map(lambda x: x + 1, before))
    with torch.no_grad():
        for p in module.parameters():
            p.zero_()
    for w in task.params.values():
        w.add_(7)  # a copy
    assert all(torch.equal(task.params[k], before[k]) for k in before)


def test_tied_and_frozen_parameters() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
            self.b.weight = self.a.weight
            self.c.bias.requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.c(self.b(torch.tanh(self.a(x))))
            return out

    module = seeded(Tied)
    task = Task(module)
    assert task.names == ["a.weight", "a.bias", "b.bias", "c.weight"]
    w = tree.map(lambda x: x * 0.5, task.params)
    expected = seeded(Tied)
    with torch.no_grad():
        for name, p in expected.named_parameters():
            p.copy_(w.get(name, p))
    torch.testing.assert_close(task.predict(w, X), expected(X).detach())


def test_a_fresh_initialisation_is_fresh_and_keyed() -> None:
    module = seeded(Recurrent)
    for task in (Task(module), Task(module, fresh=Recurrent)):
        state = torch.get_rng_state()
        a, b, other = task.init(rng.key(0)), task.init(rng.key(0)), task.init(rng.key(1))
        assert torch.equal(torch.get_rng_state(), state)
        assert tree.structure(a) == tree.structure(task.params)
        for name in a:
            assert torch.equal(a[name], b[name])
            assert not torch.equal(a[name], other[name])
            assert not torch.equal(a[name], task.params[name])


def test_an_initialisation_keeps_what_is_not_trained() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(6, 3)
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.line(x) * self.weight
            return out

    with pytest.raises(GlocalError, match=r"layer 'the model' \(Own\) cannot be initialised anew"):
        Task(Own()).init(KEY)
    other = Task(Own(), fresh=lambda: nn.Linear(6, 3))
    with pytest.raises(GlocalError, match="gave other parameters than before"):
        other.init(KEY)


def test_marks_and_answers_by_hand() -> None:
    task = Task(nn.Linear(2, 2, bias=False))
    w = {"weight": torch.eye(2)}
    x, y = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]]), torch.tensor([0, 1, 1])
    marks = task.example_metrics(w, x, y)
    assert marks["correct"].tolist() == [1, 1, 0]
    torch.testing.assert_close(marks["loss"], functional.cross_entropy(x, y, reduction="none"))
    assert torch.equal(task.example_logits(w, x, y)["logits"], x)


def test_of_sequences_a_mark_is_a_share_and_a_loss_a_mean() -> None:
    logits = rng.normal(rng.key(1), (3, 4, 5))
    y = logits.argmax(-1)
    y[0, :2] = (y[0, :2] + 1) % 5
    each = cross_entropy(logits, y)
    torch.testing.assert_close(each[1], functional.cross_entropy(logits[1], y[1]))
    task = Task(nn.Linear(5, 5, bias=False))
    assert task.example_metrics({"weight": torch.eye(5)}, logits, y)["correct"].tolist() == [
        0.5,
        1,
        1,
    ]


def test_a_vectorised_step_is_that_of_each_client(task: Task) -> None:
    keys = rng.fold(KEY, torch.arange(3))
    stacked = tree.stack([task.params] * 3)

    def step(w: Any, key: Tensor) -> Any:
        return task.grad(lambda p: task.loss(p, batch(), key), w)[0]

    together = vmap(step)(stacked, keys)
    for i, key in enumerate(keys):
        alone = task.plain().grad(lambda p, k=key: task.loss(p, batch(), k), task.params)[0]
        torch.testing.assert_close(together["0.weight"][i], alone["0.weight"])


class InPlace(nn.Module):
    """Adds into a tensor of its own making, which vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out = torch.zeros(len(x), 3)
        out += self.line(x)
        return out


class Item(InPlace):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.line(x)
        return out * out.max().item()


class Branch(InPlace):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.line(x)
        return out if out.sum() > 0 else -out


class Counter(InPlace):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))
        self.seen: Tensor

    def forward(self, x: Tensor) -> Tensor:
        self.seen.add_(1)
        out: Tensor = self.line(x)
        return out


@pytest.mark.parametrize(("layer", "reason"), [(InPlace, "shape"), (Item, "item"), (Branch, "")])
def test_what_cannot_be_vectorised_is_named_with_the_fix(
    layer: type[nn.Module], reason: str
) -> None:
    task = Task(nn.Sequential(nn.Linear(6, 6), layer()))
    try_out(task, X, Y)
    failed = rf"layer 1 \({layer.__name__}\) cannot train for many clients at once: .*{reason}"
    message = rf"{failed}.*; rewrite it without in-place changes, .item\(\).*engine='sequential'"
    with pytest.raises(GlocalError, match=message):
        try_vectorised(task, X, Y)
    assert not task.module[1]._forward_hooks  # type: ignore[index, union-attr]


def test_batch_norm_is_refused_with_the_fix() -> None:
    with pytest.raises(GlocalError, match=r"layer '1' \(BatchNorm1d\).*nn.GroupNorm"):
        Task(nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4)))


@pytest.mark.parametrize("outputs", [1, 2])
def test_too_few_outputs(outputs: int) -> None:
    with pytest.raises(GlocalError, match="labels go up to 2: it must return one score for every"):
        try_out(Task(nn.Linear(6, outputs)), X, Y)


def test_outputs_of_another_rank() -> None:
    with pytest.raises(GlocalError, match=r"to outputs of shape \(2, 3, 1\)"):
        try_out(Task(nn.Sequential(nn.Linear(6, 3), nn.Unflatten(1, (3, 1)))), X, Y)


def test_inputs_that_do_not_fit_name_the_layer() -> None:
    with pytest.raises(GlocalError, match=r"layer 0 \(Linear\) cannot run: .*shape and type of"):
        try_out(Task(nn.Sequential(nn.Linear(5, 3))), X, Y)


def test_a_buffer_that_changes_in_training() -> None:
    with pytest.raises(GlocalError, match="buffer 'seen' changes while it trains"):
        try_out(Task(Counter()), X, Y)


def test_what_is_fine_passes() -> None:
    for module in (dropout_net(), seeded(lambda: nn.Linear(6, 3))):
        task = Task(module)
        try_out(task, X, Y)
        try_vectorised(task, X, Y)
    task = Task(seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 3))), augment=flip())
    images = rng.normal(rng.key(3), (5, 1, 2, 2))
    try_vectorised(task, images, Y)
    assert isinstance(LSTM(2, 3), nn.Module)


@pytest.mark.parametrize("engine", [Sequential(), Vectorised(), Vectorised(in_blocks=True)])
def test_training_in_bfloat16_is_near_and_evaluation_is_single(engine: Engine) -> None:
    fed = glocal.load("digits", clients=3)
    module = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10)))
    ends = {}
    for precision in ("single", "bf16"):
        task = Task(module, precision=precision)
        local = minibatch_training(sgd(0.1), batch_size=10)
        down = {"params": task.params, "lr": torch.tensor(1.0), "round": torch.tensor(0.0)}
        uplink, _ = engine.round(
            CohortRound(task, local, fed, down, torch.arange(3), {}, rng.key(1))
        )
        ends[precision] = uplink.update["1.weight"]
        assert ends[precision].dtype == torch.float32
        assert torch.equal(
            task.predict(task.params, fed.x), Task(module).predict(task.params, fed.x)
        )
    gap = float((ends["bf16"] - ends["single"]).abs().max() / ends["single"].abs().max())
    assert 0 < gap < 0.05
