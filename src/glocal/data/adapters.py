"""Federations of other packages: Flower's data sets and FLamby's, by what their objects can do.

Neither package is imported here: an object is asked for its partitions, or a class for its centres.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from glocal.core.errors import GlocalError, shown
from glocal.core.own_code import told
from glocal.core.validation import integer
from glocal.data import validation as check
from glocal.data.federation import Federation, federation
from glocal.data.validation import Array, Pixels


def from_flower(
    dataset: Any,
    clients: int | None = None,
    *,
    label: str = "label",
    features: str | Sequence[str] | None = None,
    test: str | None = None,
    name: str = "flwr-datasets",
    **settings: Any,
) -> Federation:
    """A federation from ``flwr_datasets.FederatedDataset``, or from one of its partitioners.

    Args:
        dataset: whatever has ``load_partition(i)``; a partition has columns by name.
        clients: how many partitions; by default as many as it says it has.
        label: the column of labels.
        features: the column of inputs, such as ``img``; or the columns of numbers. By default all
            but the label.
        test: the name of the split that is the official test set (``load_split``).
        name: for records.
        settings: of :func:`glocal.federation`, such as ``split`` and ``seed``.
    """
    count = _partitions(dataset) if clients is None else integer(clients, "clients", 1)
    names = (features,) if isinstance(features, str) else features
    x, y, ids = [], [], list[str]()
    for i in range(count):
        values, labels = _columns(
            _loaded(dataset.load_partition, i), label, names, f"partition {i}"
        )
        x.append(values)
        y.append(labels)
        ids += [str(i)] * len(labels)
    central = None
    if test is not None:
        values, labels = _columns(_loaded(dataset.load_split, test), label, names, f"split {test}")
        central = (_inputs(values), labels)
    return federation(
        _inputs(_stacked(x)), np.concatenate(y), ids, central=central, name=name, **settings
    )


def _partitions(dataset: Any) -> int:
    """How many partitions there are, as Flower's objects say it."""
    parts = getattr(dataset, "partitioners", None)
    sole = next(iter(parts.values()), None) if isinstance(parts, dict) else dataset
    count = getattr(sole, "num_partitions", None)
    if not isinstance(count, int):
        raise GlocalError(
            f"{type(dataset).__name__} does not say how many partitions it has: give clients=."
        )
    return count


def _loaded(load: Callable[..., Any], which: Any) -> Any:
    try:
        return load(which)
    except Exception as error:  # whatever another package raises
        raise GlocalError(f"{shown(which)} could not be loaded: {told(error)}.") from error


def _columns(
    part: Any, label: str, features: Sequence[str] | None, what: str
) -> tuple[Array, Array]:
    names = list(getattr(part, "column_names", None) or part)
    for each in (label, *(features or ())):
        if each not in names:
            raise GlocalError(f"{what} has no column {shown(each)}: it has {', '.join(names)}.")
    chosen = features or [each for each in names if each != label]
    values = [_array(part[each], f"{each} of {what}") for each in chosen]
    x = values[0] if len(values) == 1 else np.stack(values, axis=1)
    return x, np.asarray(part[label])


def _array(column: Any, what: str) -> Array:
    """A column as an array; images as [n, channels, height, width]."""
    each = [np.asarray(value) for value in column]
    if len({value.shape for value in each}) > 1:
        raise GlocalError(f"{what} has examples of several shapes: bring them to one first.")
    if not each:
        raise GlocalError(f"{what} is empty: leave it out.")
    values: Array = np.stack(each)
    if values.dtype == np.uint8 and values.ndim == 3:
        return values[:, None]
    if values.dtype == np.uint8 and values.ndim == 4 and values.shape[3] in (1, 3):
        return values.transpose(0, 3, 1, 2)
    return values


def from_flamby(
    dataset: Callable[..., Any],
    centers: int | Iterable[int],
    *,
    name: str | None = None,
    **settings: Any,
) -> Federation:
    """A federation from FLamby's layout: a data set of a centre, for training or for testing.

    Args:
        dataset: the class, as ``FedHeartDisease``: called with ``center=`` and ``train=``, it gives
            a map-style data set of pairs ``(x, y)``.
        centers: how many there are, or which.
        name: for records; that of the class by default.
        settings: of :func:`glocal.federation`, such as ``split`` (whose share of validation is
            taken from training rows) and ``seed``.
    """
    which = range(integer(centers, "centers", 1)) if isinstance(centers, int) else list(centers)
    x, y = list[Array](), list[float]()
    ids, parts = list[str](), list[str]()
    for center in which:
        for part, train in (("train", True), ("test", False)):
            examples = _loaded(
                lambda c, train=train: dataset(center=c, train=train, pooled=False), center
            )
            if not len(examples):
                raise GlocalError(f"centre {center} has no {part} examples: leave it out.")
            for i in range(len(examples)):
                inputs, target = examples[i][0], examples[i][1]
                x.append(check.as_array(inputs, "x"))
                y.append(float(check.as_array(target, "y").reshape(())))
                ids.append(str(center))
                parts.append(part)
    called = name or str(getattr(dataset, "__name__", "FLamby"))
    labels = np.array(y)
    whole = settings.get("task", "auto") in ("auto", "classification")
    labels = labels.astype(np.int64) if whole and (labels == np.floor(labels)).all() else labels
    return federation(
        _stacked([x_[None] for x_ in x]), labels, ids, parts=parts, name=called, **settings
    )


def _stacked(arrays: Sequence[Array]) -> Array:
    if len({each.shape[1:] for each in arrays}) > 1:
        raise GlocalError("examples are of several shapes: bring them to one first.")
    return np.concatenate(arrays)


def _inputs(x: Array) -> Any:
    if x.dtype == np.uint8 and x.ndim == 4:
        return Pixels(x)
    return x.astype(np.float32) if x.dtype.kind in "iu" and x.ndim <= 2 else x
