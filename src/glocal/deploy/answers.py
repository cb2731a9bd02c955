"""What a node's results must look like before a server counts them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

from torch import Tensor

from glocal.core.types import Tree
from glocal.evaluation.client_tests import MOST, ClientTest
from glocal.evaluation.measures import of_task
from glocal.evaluation.verdict import VERDICTS
from glocal.experiment.config import Config
from glocal.training.loop import Training

LONGEST_TEXT = 200
"""Characters of a cell, or of a column's name."""

MOST_COLUMNS = 200

MOST_SCORE = 1e12
"""A score or loss on validation data beyond this is none."""

ONE = 1 + 1e-6
"""The most that an accuracy may be: it is a sum of rounded shares."""


def are_scores(scores: Any, clients: int, training: Training) -> TypeGuard[Tree]:
    """Whether these are validation scores of so many clients, as an honest node has them."""
    by_accuracy = of_task(training.task).name == "accuracy"
    wanted = {"value", "loss", "train_loss"}
    if training.fed.target.classes and not by_accuracy:
        wanted.add("accuracy")
    if not isinstance(scores, dict) or scores.keys() != wanted:
        return False
    for name, leaf in scores.items():
        if not isinstance(leaf, Tensor) or leaf.shape != (clients,) or not leaf.is_floating_point():
            return False
        if name == "value" and not by_accuracy:
            leaf = leaf[~leaf.isnan()]  # data of one class has no AUC
        share = name == "accuracy" or (name == "value" and by_accuracy)
        low, high = (0.0, ONE) if share else (-MOST_SCORE, MOST_SCORE)
        if not bool(((leaf >= low) & (leaf <= high)).all()):  # NaN is neither
            return False
    return True


def are_own(names: Any, own: Sequence[str]) -> TypeGuard[list[str]]:
    """Whether this is a list of a node's own clients, each once."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        return False
    return len(set(names)) == len(names) and set(names) <= set(own)


def is_result(
    sent: Mapping[str, Any], declared: Sequence[int], training: Training, config: Config
) -> bool:
    """Whether this is the row and the tests of a client with so many declared examples."""
    row, tests = sent.get("row"), sent.get("tests")
    if not isinstance(row, dict) or not isinstance(tests, dict) or len(row) > MOST_COLUMNS:
        return False
    if not all(_is_text(name) and _is_cell(cell) for name, cell in row.items()):
        return False
    counts = [row.get(name) for name in ("n_train", "n_val", "n_test")]
    if any(type(n) is not int for n in counts) or counts != list(declared):
        return False
    shares = {"accuracy", "local_accuracy", "adapted_accuracy"} & row.keys()
    if of_task(training.task).name == "accuracy":
        shares |= {"value", "local_value"}
    if not all(_is_share(row.get(name)) for name in shares):
        return False
    wanted = {""} | ({"adapted_"} if config.adapt is not None else set())
    if config.baseline == "none":
        nothing = all(name in row and row[name] is None for name in _AGAINST_ALONE)
        return nothing and not tests and _is_figure(row.get("value"))
    if not all(_is_figure(row.get(name)) for name in ("value", "local_value", "benefit")):
        return False
    if row.get("verdict") not in VERDICTS or tests.keys() != wanted:
        return False
    return all(ClientTest.from_json(each) is not None for each in tests.values())


_AGAINST_ALONE = ("local_value", "benefit", "verdict")
"""Cells that are empty where clients do not train alone."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT and value.isprintable()


def _is_share(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and 0 <= value <= ONE)


def _is_figure(value: Any) -> bool:
    """A number; NaN where a client's test data has no value of the metric."""
    if type(value) not in (int, float):
        return False
    return (type(value) is float and math.isnan(value)) or abs(value) <= MOST


def _is_cell(value: Any) -> bool:
    """What a row may hold: nothing, a number, a short text, or how many examples it needs."""
    if isinstance(value, dict):
        return len(value) <= 2 and all(
            _is_text(name) and type(n) is int and 0 <= n < 1 << 63 for name, n in value.items()
        )
    if type(value) is int:
        return abs(value) < 1 << 63
    return value is None or isinstance(value, bool | float) or _is_text(value)
