"""Parameters of different architectures, packed to be alike, train as they do by themselves."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.nn import models
from glocal.nn.architectures import OWN, Architectures, Layout, Packed, layouts, packed, sent_by
from glocal.nn.task import Task

SMALL, LARGE = "headed(mlp(3, dropout=0.5),width=4)", "headed(mlp(5, 6),width=4)"


def modules() -> dict[str, nn.Module]:
    given = {"small": SMALL, "large": LARGE}
    return {
        name: models.build(spec, input_shape=(6,), classes=3, seed=i)
        for i, (name, spec) in enumerate(given.items())
    }


def architectures(of_client: list[int] | None = None) -> Architectures:
    both = modules()
    turns = torch.tensor([0, 1, 0, 1] if of_client is None else of_client)
    return packed(both, turns, {}, dict.fromkeys(both))


def batch() -> dict[str, Tensor]:
    x = rng.normal(rng.key(3), (5, 6))
    return {"x": x, "y": torch.tensor([0, 1, 2, 1, 0]), "weight": torch.ones(5)}


def test_a_vector_by_hand() -> None:
    small, large = layouts([{"a": (2,), "head": (3,)}, {"b": (2, 2), "head": (3,), "a": (1,)}])
    assert small == Layout(("head",), {"a": (2,)}, 5)
    assert large == Layout(("head",), {"b": (2, 2), "a": (1,)}, 5)
    params = {"a": torch.tensor([1.0, 2.0]), "head": torch.tensor([7.0, 8.0, 9.0])}
    vector = small.pack(params)
    assert vector[OWN].tolist() == [1.0, 2.0, 0.0, 0.0, 0.0]
    assert vector["head"] is params["head"]
    again = large.unpack({OWN: torch.arange(5.0), "head": params["head"]})
    assert again["b"].tolist() == [[0.0, 1.0], [2.0, 3.0]]
    assert again["a"].tolist() == [4.0]
    assert Layout.from_json(large.to_json()) == large


@pytest.mark.parametrize("number", [0, 1])
def test_loss_and_gradient_are_those_of_the_module(number: int) -> None:
    part, key = architectures().parts[number], rng.key(1)
    alone = Task(list(modules().values())[number])
    want, loss = alone.grad(lambda w: alone.loss(w, batch(), key), alone.params)
    got, same = part.grad(lambda w: part.loss(w, batch(), key), part.params)
    assert torch.equal(same, loss)
    unpacked = part.layout.unpack(got)
    assert unpacked.keys() == want.keys()
    assert all(torch.equal(unpacked[name], want[name]) for name in want)
    assert not got[OWN][part.packed :].any()
    assert torch.equal(
        part.predict(part.params, batch()["x"]), alone.predict(alone.params, batch()["x"])
    )
    fresh, drawn = part.layout.unpack(part.init(key)), alone.init(key)
    assert all(torch.equal(fresh[name], drawn[name]) for name in drawn)


def test_all_clients_have_the_same_tree() -> None:
    small, large = architectures().parts
    assert tree.structure(small.params) == tree.structure(large.params)
    assert small.size == large.size == tree.count(small.params)
    assert [small.parameters, large.parameters] == [21 + 16 + 15, 35 + 36 + 28 + 15]


def pick(*names: str) -> Any:
    return lambda known: {n for n in known if n.startswith(names)}


def test_what_is_not_alike_cannot_be_shared() -> None:
    task = architectures()
    assert task.picked(pick("head")) == {"head.weight", "head.bias"}
    with pytest.raises(GlocalError, match=r"encoder.layers.0.weight is 3×6 in small and 5×6 in l"):
        task.picked(lambda names: {"encoder.layers.0.weight"})
    with pytest.raises(
        GlocalError, match=r"layers.2.bias is not there in small and 4 in large.*0\)"
    ):
        task.picked(lambda names: {n for n in names if n.endswith("2.bias")})
    with pytest.raises(GlocalError, match="and not by those with large"):
        task.picked(lambda names: set() if len(names) > 6 else {"head.bias"})


def test_parameters_that_clients_send_are_counted_without_zeros() -> None:
    task = architectures([0, 0, 1])
    head, small, large = 15, 37, 99
    assert sent_by(task, 3, set(task.names)) == 2 * (small + head) + large + head
    assert sent_by(task, 3, {OWN}) == 2 * small + large
    assert sent_by(task, 3, {"head.weight", "head.bias"}) == 3 * head


def test_a_client_has_the_task_of_its_architecture() -> None:
    task = architectures()
    assert task.of_clients(torch.tensor([1, 3])) is task.parts[1]
    assert task.of_clients(torch.tensor([6])) is task.parts[0]  # of another repeat, side by side
    assert isinstance(task.of_clients(torch.tensor([0, 1])), Architectures)
    assert task.largest() is task.parts[1]
    moved = task.plain().to("cpu").for_several()
    assert all(isinstance(part, Packed) and not part.vectorised for part in moved.parts)
    with pytest.raises(GlocalError, match="clients have different models here"):
        task.predict(task.params, batch()["x"])
    with pytest.raises(GlocalError, match="clients have different models here"):
        task.init(rng.key(0))
