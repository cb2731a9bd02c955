"""Functions over nested dicts of tensors."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from glocal.core import tree
from glocal.core.types import Tree


def t(*values: float) -> Tensor:
    return torch.tensor(values)


@pytest.fixture
def nested() -> Tree:
    return {"b": {"y": t(1, 2), "x": t(3, 4)}, "a": t(5, 6), "none": {}}


def test_map_goes_by_name_and_leaves_the_arguments_alone(nested: Tree) -> None:
    other = {"a": t(1, 1), "none": {}, "b": {"x": t(2, 2), "y": t(3, 3)}}
    summed = tree.map(torch.add, nested, other)
    assert summed["b"]["x"].tolist() == [5, 6]
    assert summed["b"]["y"].tolist() == [4, 5]
    assert summed["none"] == {}
    assert nested["a"].tolist() == [5, 6]


def test_map_refuses_a_tree_that_lacks_a_leaf(nested: Tree) -> None:
    with pytest.raises(KeyError, match="b"):
        tree.map(torch.add, nested, {"a": t(1, 1), "none": {}})


def test_flatten_and_back(nested: Tree) -> None:
    flat = dict(tree.flatten(nested))
    assert list(flat) == ["b/y", "b/x", "a"]
    assert [x.tolist() for x in tree.leaves(nested)] == [[1, 2], [3, 4], [5, 6]]
    assert tree.structure(tree.unflatten(flat, nested)) == tree.structure(nested)
    without = {k: v for k, v in nested.items() if k != "none"}
    assert tree.structure(tree.unflatten(flat)) == tree.structure(without)
    assert tree.unflatten({}, {"a": {"b": {}}, "c": {}}) == {"a": {"b": {}}, "c": {}}


def test_structure_tells_names_shapes_and_types_apart(nested: Tree) -> None:
    same = tree.map(lambda x: x + 1, nested)
    assert tree.structure(same) == tree.structure(nested)
    for other in (
        {**nested, "more": t(1)},
        {**nested, "a": t(1)},
        {**nested, "a": nested["a"].double()},
        {**nested, "none": {"a": t(1)}},
    ):
        assert tree.structure(other) != tree.structure(nested)


def test_stack_and_row_are_inverse(nested: Tree) -> None:
    trees = [tree.map(lambda x, i=i: x * i, nested) for i in range(3)]
    stacked = tree.stack(trees)
    assert stacked["b"]["x"].shape == (3, 2)
    for i in range(3):
        assert torch.equal(tree.row(stacked, i)["a"], trees[i]["a"])
    assert tree.row(stacked, torch.tensor([2, 0]))["a"].tolist() == [[10, 12], [0, 0]]
    joined = tree.cat([tree.row(stacked, slice(0, 1)), tree.row(stacked, slice(1, 3))])
    assert torch.equal(joined["b"]["y"], stacked["b"]["y"])
    assert tree.stack([{}, {}]) == {}


def test_where_picks_whole_rows() -> None:
    yes, no = (
        {"a": torch.ones(3, 2, 2), "n": t(1, 1, 1)},
        {"a": torch.zeros(3, 2, 2), "n": t(0, 0, 0)},
    )
    picked = tree.where(torch.tensor([True, False, True]), yes, no)
    assert picked["a"].sum((1, 2)).tolist() == [4, 0, 4]
    assert picked["n"].tolist() == [1, 0, 1]


def test_where_keeps_what_is_not_finite_out() -> None:
    picked = tree.where(torch.tensor([False]), {"a": t(float("nan"))}, {"a": t(2)})
    assert picked["a"].tolist() == [2]


def test_arithmetic_by_hand() -> None:
    a, b = {"x": t(1, 2), "y": t(3)}, {"y": t(6), "x": t(4, 5)}  # names count, not their order
    assert tree.add(a, b, 2.0)["x"].tolist() == [9, 12]
    assert tree.sub(a, b)["y"].tolist() == [-3]
    assert float(tree.dot(a, b)) == 1 * 4 + 2 * 5 + 3 * 6
    assert float(tree.sq_norm(a)) == 14
    assert float(tree.norm(tree.map(Tensor.float, a))) == pytest.approx(14**0.5)
    assert tree.zeros(a)["x"].tolist() == [0, 0]
    assert tree.count(a) == 3


def test_of_nothing() -> None:
    assert float(tree.sq_norm({})) == float(tree.norm({})) == 0
    assert tree.count({"a": {}}) == 0
    assert tree.leaves({}) == []
