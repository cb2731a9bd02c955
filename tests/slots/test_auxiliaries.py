"""Each auxiliary: what it is given to predict, and the data that it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import toys
from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.padding import PAD
from glocal.data.federation import Federation, federation
from glocal.data.schema import Schema
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.auxiliaries import autoencoder, aux_head
from glocal.slots.auxiliary import Dimensions, dimensions
from glocal.slots.method import as_plan
from glocal.slots.self_supervised import (
    jigsaw,
    masked_tokens,
    permutation_number,
    rotation,
    shuffled,
)
from glocal.testing import check_method, ragged
from specs import OF_IMAGES_OR_TEXTS, TEXT

KEY = rng.key(5)
ANY: Any = None


@pytest.mark.parametrize("name", OF_IMAGES_OR_TEXTS)
def test_contract(name: str) -> None:
    spec, model, data = OF_IMAGES_OR_TEXTS[name]
    check_method(spec, model=model, fed=data(), rounds=2)


def test_the_decoder_is_measured_by_its_mean_squared_error() -> None:
    dims = Dimensions((2,), (3,), Schema((4,), 3))
    auxiliary = autoencoder(hidden=0)
    a = auxiliary.init(KEY, dims)
    h, x = rng.normal(rng.fold(KEY, 0), (3, 2)), rng.normal(rng.fold(KEY, 1), (3, 4))
    batch = {"x": x, "weight": torch.tensor([1.0, 1.0, 0.0])}
    loss = auxiliary.loss(ANY, a, h, batch, KEY)
    made = h @ a["auxiliary.0.weight"].T + a["auxiliary.0.bias"]
    assert torch.isclose(loss, (made - x)[:2].square().mean())


def test_images_are_turned_by_what_is_to_be_told() -> None:
    x = rng.normal(KEY, (40, 1, 3, 3))
    auxiliary = rotation()
    assert auxiliary.view is not None
    batch = auxiliary.view({"x": x}, KEY, ANY)
    assert set(batch["made"].tolist()) == {0, 1, 2, 3}
    for before, after, quarters in zip(x, batch["x"], batch["made"], strict=True):
        assert torch.equal(after, torch.rot90(before, int(quarters), (1, 2)))
    assert not torch.equal(auxiliary.view({"x": x}, rng.fold(KEY, 1), ANY)["x"], batch["x"])


def test_orders_of_tiles_are_those_of_the_dictionary() -> None:
    for n in (2, 4):
        every = torch.tensor(list(itertools.permutations(range(n))))
        assert torch.equal(permutation_number(torch.arange(len(every)), n), every)


def test_tiles_are_put_in_the_order_that_is_to_be_told() -> None:
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    moved = shuffled(x, torch.tensor([[3, 0, 1, 2]]), 2)
    assert moved[0, 0].tolist() == [[10, 11, 0, 1], [14, 15, 4, 5], [2, 3, 8, 9], [6, 7, 12, 13]]
    assert torch.equal(shuffled(x, torch.arange(4).unsqueeze(0), 2), x)
    auxiliary = jigsaw(permutations=6)
    assert auxiliary.view is not None
    batch = auxiliary.view({"x": x.expand(60, 1, 4, 4)}, KEY, ANY)
    by_label = {int(k): batch["x"][batch["made"] == k] for k in batch["made"].unique()}
    assert len(by_label) == 6
    assert all((tiles == tiles[:1]).all() for tiles in by_label.values())
    assert len({tuple(tiles[0].flatten().tolist()) for tiles in by_label.values()}) == 6


def test_masked_tokens_are_drawn_and_only_they_count() -> None:
    x = rng.randint(KEY, 9, (200, 10))
    dims = Dimensions((10, 4), (9,), Schema((10,), 9, tokens=True), vocabulary=9)
    auxiliary = masked_tokens(share=0.3, hidden=0)
    assert auxiliary.view is not None
    batch = auxiliary.view({"x": x}, KEY, dims)
    assert 0.25 < batch["replaced"].float().mean() < 0.35
    assert torch.equal(batch["x"][~batch["replaced"]], x[~batch["replaced"]])
    assert 0.8 < (batch["x"] != x)[batch["replaced"]].float().mean() < 0.95  # 7 of 8
    assert not batch["replaced"][x == PAD].any()  # padding is neither replaced nor drawn
    assert not (batch["x"] == PAD)[batch["replaced"]].any()
    assert torch.equal(batch["made"], x)
    assert int(batch["x"].max()) == 8
    a, h = auxiliary.init(KEY, dims), rng.normal(KEY, (200, 10, 4))
    weight = torch.ones(200)
    loss = auxiliary.loss(ANY, a, h, {**batch, "weight": weight}, KEY)
    logits = h @ a["auxiliary.0.weight"].T + a["auxiliary.0.bias"]
    each = torch.nn.functional.cross_entropy(
        logits[batch["replaced"]], x[batch["replaced"]], reduction="mean"
    )
    assert torch.isclose(loss, each)


def test_a_text_of_one_vector_is_read_position_by_position() -> None:
    """Without the learnt vectors, all positions of a text would have the same tokens."""
    dims = Dimensions((4,), (9,), Schema((10,), 9, tokens=True), vocabulary=9)
    auxiliary = masked_tokens(hidden=6)
    a = auxiliary.init(KEY, dims)
    assert a["auxiliary.positions"].shape == (10, 6)
    x = rng.randint(KEY, 9, (3, 10))
    only_last = torch.zeros(3, 10, dtype=torch.bool)
    only_last[:, -1] = True
    batch = {"made": x, "replaced": only_last, "weight": torch.ones(3)}
    h = rng.normal(KEY, (3, 4))
    text = h @ a["auxiliary.text.0.weight"].T + a["auxiliary.text.0.bias"]
    at_last = torch.relu(text + a["auxiliary.positions"][-1])
    logits = at_last @ a["auxiliary.token.0.weight"].T + a["auxiliary.token.0.bias"]
    expected = torch.nn.functional.cross_entropy(logits, x[:, -1])
    assert torch.isclose(auxiliary.loss(ANY, a, h, batch, KEY), expected)


def sequences() -> Federation:
    """A label at each position."""
    x = rng.randint(KEY, 5, (30, 4))
    return federation(x, x, clients=[k % 3 for k in range(30)], classes=5)


@pytest.mark.parametrize(
    ("spec", "model", "fed", "message"),
    [
        ("rotation", "mlp", ragged(), "rotation needs images"),
        ("jigsaw", "mlp", ragged(), "jigsaw needs images"),
        ("jigsaw(grid=4)", "mlp", toys.images(), "into 4×4 tiles, which 6×6 cannot be"),
        ("masked-tokens", "mlp", ragged(), "inputs are numbers here"),
        ("masked-tokens(hidden=0)", TEXT, toys.texts(), "give hidden=64"),
        ("autoencoder", TEXT, toys.texts(), "use masked-tokens"),
        ("rotation", TEXT, toys.texts(), "rotation needs images"),
        ("autoencoder(at=nowhere)", "mlp", ragged(), "unknown layer 'nowhere'"),
        ("aux-head(at=embedding)", TEXT, toys.texts(), "no layer comes before embedding"),
    ],
)
def test_data_that_does_not_fit_is_one_sentence(
    spec: str, model: str, fed: Federation, message: str
) -> None:
    plan = as_plan(resolve(f"fedavg(shared=last(1))+{spec}"))
    task = Task(models.build(model, input_shape=tuple(fed.x.shape[1:]), classes=fed.classes))
    with pytest.raises(GlocalError, match=message):
        plan.stages[0].method.client_half(task, Schema.of(fed))


def test_a_second_head_reads_positions_where_labels_have_them() -> None:
    fed, auxiliary = sequences(), aux_head()
    task = Task(models.build("word-lstm(hidden=3)", input_shape=(4,), classes=5))
    told = dimensions(task, Schema.of(fed), "head")
    a, h = auxiliary.init(KEY, told), rng.normal(KEY, (6, 4, 3))
    batch = {"y": fed.y[:6], "weight": torch.ones(6)}
    logits = h @ a["auxiliary.0.weight"].T + a["auxiliary.0.bias"]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), fed.y[:6].flatten())
    assert torch.isclose(auxiliary.loss(task, a, h, batch, KEY), expected)
    with pytest.raises(GlocalError, match="without positions"):
        auxiliary.check(Dimensions((7,), (4, 5), Schema((4,), 5, tokens=True)))


@pytest.mark.parametrize(
    "spec", ["masked-tokens(share=1)", "jigsaw(permutations=25)", "jigsaw(grid=1)"]
)
def test_settings_out_of_range_are_one_sentence(spec: str) -> None:
    with pytest.raises(GlocalError, match=r"share|permutations|grid"):
        resolve(spec)
