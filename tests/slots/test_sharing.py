"""Which names travel, and how the rest stays at home."""

from __future__ import annotations

import pytest
import torch

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.spec import Call
from glocal.methods import resolve, selector
from glocal.nn.task import Task
from glocal.slots import sharing
from glocal.slots.client import minibatch_training
from glocal.slots.method import Method
from glocal.slots.server_half import whole_model
from glocal.slots.sharing import Selector, keep_private
from glocal.slots.weighting import Setting
from toys import dropout_net

NAMES = ["body.0.weight", "body.0.bias", "body.1.weight", "scale", "head.weight", "head.bias"]
BODY, HEAD = set(NAMES[:3]), set(NAMES[4:])


def test_layers_are_what_parameters_belong_to() -> None:
    assert sharing.layers(NAMES) == {
        "body.0": ["body.0.weight", "body.0.bias"],
        "body.1": ["body.1.weight"],
        "scale": ["scale"],
        "head": ["head.weight", "head.bias"],
    }


@pytest.mark.parametrize(
    ("picked", "expected"),
    [
        (sharing.everything(), set(NAMES)),
        (sharing.nothing(), set()),
        (sharing.last(1), HEAD),
        (sharing.last(2), HEAD | {"scale"}),
        (sharing.last(4), set(NAMES)),
        (sharing.first(2), BODY),
        (sharing.all_but_last(), BODY | {"scale"}),
        (sharing.all_but_last(2), BODY),
        (sharing.matching("body.*"), BODY),
        (sharing.matching("body"), BODY),
        (sharing.matching("head", "scale"), HEAD | {"scale"}),
        (sharing.matching("*.bias"), {"body.0.bias", "head.bias"}),
        (selector(Call("first", (1,), {})), {"body.0.weight", "body.0.bias"}),
        (selector(Call("last", (), {"n": 1})), HEAD),
        (selector("head|scale"), HEAD | {"scale"}),
        (selector(["head", "body"]), BODY | HEAD),
        (selector("everything"), set(NAMES)),
        (selector("all-but-last"), BODY | {"scale"}),
        (selector(sharing.nothing()), set()),
    ],
)
def test_selectors(picked: Selector, expected: set[str]) -> None:
    assert picked.pick(NAMES) == expected


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (sharing.last(5), r"shared=last\(5\) does not fit a model with 4 layers \(body.0, body.1"),
        (sharing.last(0), "choose a number between 1 and 4"),
        (sharing.first(-1), "choose a number between 1 and 4"),
        (sharing.all_but_last(4), "does not fit a model .* choose a number between 1 and 3"),
        (sharing.all_but_last(0), "choose a number between 1 and 3"),
        (sharing.matching("haed"), "shared=haed matches none.*its layers are body.0, body.1"),
        (sharing.matching("head", "x*"), r"shared=x\* matches none"),
    ],
)
def test_selectors_that_do_not_fit(made: Selector, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        made.pick(NAMES)


def test_no_number_is_to_be_chosen_where_there_is_one_or_none() -> None:
    one_layer, two_layers = ["weight"], ["a.weight", "b.weight"]
    with pytest.raises(GlocalError, match=r"with 1 layer \(weight\): write shared=last\(1\)"):
        sharing.last(2).pick(one_layer)
    with pytest.raises(GlocalError, match=r"write shared=all-but-last\(1\)"):
        sharing.all_but_last(2).pick(two_layers)
    with pytest.raises(GlocalError, match="write shared=everything, or take a larger model"):
        sharing.all_but_last(1).pick(one_layer)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "shared=3 must be names, a pattern"),
        (Call("lats", (1,), {}), "unknown selector 'lats': did you mean 'last'"),
        (Call("last", (), {"m": 1}), "unknown setting of last 'm'"),
        ("last", r"last needs n: write last\(n=1\)"),
        (Call("last", ("x",), {}), "in last, n must be an integer, not 'x'"),
        (Call("first", (1.5,), {}), "in first, n must be an integer, not 1.5"),
        (Call("all-but-last", ("x",), {}), "in all-but-last, n must be an integer"),
        ([1, 2], "must be names"),
    ],
)
def test_what_is_no_selector(value: object, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        selector(value).pick(NAMES)


@pytest.fixture
def task() -> Task:
    return Task(dropout_net())


def test_keep_private_by_hand(task: Task) -> None:
    """The head ``3`` travels; the body ``0`` is the client's own."""
    shared = frozenset({"3.weight", "3.bias"})
    local = keep_private(minibatch_training(), shared)
    received = task.params
    client = local.init(task, received, rng.key(0))
    assert set(client["private"]) == {"0.weight", "0.bias"}
    own = {"private": tree.map(lambda x: x + 1, client["private"]), "inner": {}}
    down = {"params": {k: received[k] for k in shared}, "lr": torch.tensor(1.0)}

    whole = local.received(task, down, own)
    assert list(whole) == task.names
    assert torch.equal(whole["0.bias"], received["0.bias"] + 1)
    assert torch.equal(whole["3.bias"], received["3.bias"])
    assert torch.equal(local.candidates(task, down, own)["assembled"]["0.bias"], whole["0.bias"])

    carry = local.start(task, down, own)
    batch = {"x": torch.ones(2, 6), "y": torch.tensor([0, 1]), "weight": torch.ones(2)}
    carry = local.phases[0].step(task, down, carry, batch, rng.key(1))
    grads, _ = task.grad(lambda w: task.loss(w, batch, rng.key(1)), whole)
    update, kept, extra = local.finish(task, down, carry)
    assert set(update) == shared
    assert extra == {}
    torch.testing.assert_close(update["3.bias"], -0.1 * grads["3.bias"])
    torch.testing.assert_close(kept["private"]["0.bias"], whole["0.bias"] - 0.1 * grads["0.bias"])
    assert local.batch_size == 10
    assert local.schedule(3) == 1.0


def test_the_client_half_is_wrapped_only_where_something_is_private(task: Task) -> None:
    whole = resolve("fedavg")
    assert isinstance(whole, Method)
    assert whole.client_half(task) is whole.local
    half = resolve("fedavg(shared=last(1))").client_half(task)  # type: ignore[union-attr]
    assert set(half.init(task, task.params, rng.key(0))["private"]) == {"0.weight", "0.bias"}
    alone = resolve("local")
    assert isinstance(alone, Method)
    assert alone.client_half(task) is alone.local


def test_the_server_keeps_the_private_layers_as_they_began(task: Task) -> None:
    method = resolve("fedavg(shared=last(1))")
    assert isinstance(method, Method)
    state = method.begin(task, task.params, Setting(3, 1.0, 2))
    assert set(state["params"]) == {"3.weight", "3.bias"}
    assert set(state["start"]) == {"0.weight", "0.bias"}
    down = method.broadcast(state, 0, Setting(3, 1.0, 2))
    assert set(down["params"]) == {"3.weight", "3.bias"}
    assert list(whole_model(task, state)) == task.names


def test_sizes_by_part(task: Task) -> None:
    assert sharing.size_by_part(task.params, {"3.weight", "3.bias"}) == (8 * 3 + 3, 6 * 8 + 8)
