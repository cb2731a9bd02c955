"""Statistics of one column over several clients, from what each of them could compute and send.

What crosses the network, for each column, is

- the number of values, their sum and then Σ(x − mean)², which gives mean and standard deviation;
- the lowest and highest value, and then, :data:`PASSES` times, a histogram of :data:`BINS` bins:
  the sum of all clients' histograms says in which bin the median is, and that bin is divided again.
  After six passes the median is known to 2⁻⁶⁰ of the range;
- for words, which there are and how often each occurs.

None of this is protected (:mod:`glocal.slots.privacy` does not account for it).
"""

from __future__ import annotations

import math

import numpy as np

from glocal.data.validation import Array

BINS = 1024
PASSES = 6


def mean_and_std(values: Array, client: Array, clients: int) -> tuple[float, float]:
    """Mean and standard deviation of all clients' values; a constant has 1 as its deviation."""
    count = np.bincount(client, minlength=clients)
    total = int(count.sum())
    if total == 0:
        return 0.0, 1.0
    sums = np.bincount(client, values, minlength=clients)
    mean = math.fsum(sums.tolist()) / total
    squares = np.bincount(client, (values - mean) ** 2, minlength=clients)
    return mean, deviation(mean, math.fsum(squares.tolist()), total)


def deviation(mean: float, squares: float, total: int) -> float:
    """The standard deviation from the sum of squares about the mean; 1 of a constant."""
    constant = is_constant(mean, squares, total)
    return 1.0 if constant else math.sqrt(squares / total)


def is_constant(mean: float, squares: float, total: int) -> bool:
    """Whether so many values with this sum of squares about their mean are all the same."""
    return total == 0 or math.sqrt(squares / total) <= 1e-12 * max(abs(mean), 1e-12)


def median(values: Array) -> float:
    """The lower median of all clients' values, from sums of the clients' histograms."""
    if not len(values):
        return 0.0
    low, high = float(values.min()), float(values.max())
    rank = (len(values) + 1) // 2  # how many values are not above the median
    below, inside = 0, values
    for _ in range(PASSES):
        if not low < high:
            break
        edges = np.linspace(low, high, BINS + 1)
        position = np.searchsorted(edges, inside, side="right") - 1
        position = np.clip(position, 0, BINS - 1)
        counts = np.bincount(position, minlength=BINS)
        chosen = int(np.searchsorted(below + np.cumsum(counts), rank))
        below += int(counts[:chosen].sum())
        inside = inside[position == chosen]
        narrower = float(edges[chosen]), float(edges[chosen + 1])
        if narrower == (low, high):  # two numbers with none between them
            break
        low, high = narrower
    return low


def most_frequent(positions: Array, levels: int) -> int:
    """The most frequent of the levels, the first of several; −1 if none occurs."""
    known = positions[positions >= 0].astype(np.int64)
    counts = np.bincount(known, minlength=levels)
    return int(counts.argmax()) if len(known) else -1
