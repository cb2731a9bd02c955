"""Padding: sequences of unequal length in one tensor, and which of their positions count.

======  ==================================  ====================================================
        sequences [n, t]                    what fills them up
======  ==================================  ====================================================
``x``   ids of tokens                       :data:`PAD`, which is no word of any vocabulary
``y``   a label for each position           :data:`IGNORED`, also where a real word has no label
======  ==================================  ====================================================

A position without a label has no weight: not in a loss, a gradient, a metric or a count. All other
positions weigh the same, whatever sequence they are in, so an example weighs as much as it has
labels, and a mean over examples is a mean over labels. A label of a whole example, [n], always
counts, and weighs 1.
"""

from __future__ import annotations

from torch import Tensor

PAD = 0
"""The token that fills up a sequence."""

IGNORED = -1
"""The label of a position that does not count."""


def label_counts(y: Tensor) -> Tensor:
    """[n] How many labels each example has, of labels [n] or [n, t]."""
    if y.dim() == 1:
        return y.new_ones(y.shape)
    return (y != IGNORED).flatten(1).sum(1)


def over_positions(each: Tensor, y: Tensor) -> Tensor:
    """[…, n] The mean of ``each`` […, n, t] over the positions of each example that count."""
    counts = (y != IGNORED).to(each.dtype)
    return (each * counts).sum(-1) / counts.sum(-1).clamp(min=1.0)
