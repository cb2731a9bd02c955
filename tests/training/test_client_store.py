"""Every client's own state: made lazily, kept by row, saved and restored."""

from __future__ import annotations

import torch

from glocal.core import tree
from glocal.core.types import Tree
from glocal.training.client_state.store import ClientStore

made: list[int] = []


def make(i: int) -> Tree:
    made.append(i)
    return {"b": {"v": torch.full((2,), float(i))}, "a": torch.tensor(i), "none": {}}


def ids(*clients: int) -> torch.Tensor:
    return torch.tensor(clients)


def store_after_two_rounds() -> ClientStore:
    made.clear()
    store = ClientStore(6)
    for cohort in (ids(1, 4), ids(0, 4)):
        states = store.gather(cohort, make)
        store.scatter(cohort, tree.map(lambda x: x + 10, states))
    return store


def test_a_state_is_made_at_the_first_round_and_kept() -> None:
    store = store_after_two_rounds()
    assert made == [1, 4, 0]
    assert store.seen.tolist() == [True, True, False, False, True, False]
    states = store.gather(ids(4, 0, 1), make)
    assert states["b"]["v"].tolist() == [[24, 24], [10, 10], [11, 11]]
    assert states["a"].tolist() == [24, 10, 11]
    assert states["none"] == {}
    assert made == [1, 4, 0]


def test_old_and_new_clients_in_any_order() -> None:
    store = store_after_two_rounds()
    assert store.gather(ids(5, 4, 2, 1), make)["a"].tolist() == [5, 24, 2, 11]
    assert not store.seen[5]  # to look is not to take part


def test_what_is_gathered_is_a_copy() -> None:
    store = store_after_two_rounds()
    store.gather(ids(0, 1), make)["a"].zero_()
    assert store.gather(ids(0, 1), make)["a"].tolist() == [10, 11]


def test_methods_that_keep_nothing() -> None:
    store = ClientStore(4)
    for cohort in (ids(0, 1), ids(1, 2), ids(0, 1)):  # some old, some new; then all old
        assert store.gather(cohort, lambda i: {}) == {}
        store.scatter(cohort, {})
    assert store.seen.tolist() == [True, True, True, False]
    assert store.saved()[0].tolist() == [0, 1, 2]
    assert store.saved()[1] == {}


def test_scatter_goes_by_name_not_by_order() -> None:
    store = ClientStore(2)
    store.scatter(ids(0), {"x": torch.tensor([1.0]), "y": torch.tensor([2.0])})
    store.scatter(ids(0), {"y": torch.tensor([4.0]), "x": torch.tensor([3.0])})
    states = store.gather(ids(0), make)
    assert (float(states["x"]), float(states["y"])) == (3, 4)


def test_saved_and_restored() -> None:
    store = store_after_two_rounds()
    who, states = store.saved()
    assert who.tolist() == [0, 1, 4]
    shuffled = {k: states[k] for k in reversed(list(states))}  # as a file might give it back
    again = ClientStore(6).filled(who, shuffled)
    for one in (store, again):
        one.scatter(ids(1, 5), tree.stack([make(7), make(8)]))
    assert torch.equal(store.seen, again.seen)
    for (name, a), (_, b) in zip(
        sorted(tree.flatten(store.saved()[1])), sorted(tree.flatten(again.saved()[1])), strict=True
    ):
        assert torch.equal(a, b), name


def test_nobody_yet() -> None:
    who, states = ClientStore(3).saved()
    assert (who.tolist(), states) == ([], {})
    again = ClientStore(3).filled(who, states)
    assert again.gather(ids(2), make)["a"].tolist() == [2]
