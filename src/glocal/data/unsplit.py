"""Clients' data before it is cut: what all folds of a federation have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data.split import Shares, Split


@dataclass(frozen=True, eq=False)
class UnsplitData:
    """Every row of the data, whose it is, and how it is going to be cut. Transforms change this."""

    x: Tensor
    y: Tensor
    seen: Tensor
    """The label a row has if it is used in training (label noise)."""
    classes: int
    names: tuple[str, ...]
    rows: Split
    """The rows of each client."""
    shares: Shares
    seed: int
    label_shift_only: bool
    describe: dict[str, Any]
    numeric: Tensor | None = None
    """The columns of ``x`` to standardise over the training rows, a fold at a time."""
    central: tuple[Tensor, Tensor] | None = None
    """A test set that is no client's. Transforms leave it as it is."""


def strata(y: Tensor) -> Tensor:
    """What is kept in proportion when a client is cut: classes, or nothing for sequence labels."""
    return y if y.dim() == 1 else torch.zeros(len(y), dtype=torch.int64)


def check_counts(names: tuple[str, ...], counts: Tensor) -> None:
    """Raises unless every client can be cut into three."""
    small = (counts < 3).nonzero().flatten().tolist()
    if small:
        n = int(counts[small[0]])
        more = f" (and {len(small) - 1} clients more)" if len(small) > 1 else ""
        raise GlocalError(
            f"client {shown(names[small[0]])}{more} would have an empty split: it has {n} "
            f"example{'' if n == 1 else 's'}, and training, validation and test need one each; "
            "leave such clients out, merge them, or use fewer clients."
        )


def standardise(x: Tensor, columns: Tensor, rows: Tensor) -> Tensor:
    """``x`` in float32, with mean 0 and standard deviation 1 over ``rows`` in the given columns."""
    part = x[:, columns].double()
    mean = part[rows].mean(0)
    std = part[rows].std(0, correction=0)
    # A constant column has nothing to scale: only its mean is taken off.
    std = torch.where(std > 1e-12 * mean.abs().clamp(min=1e-12), std, torch.ones_like(std))
    out = x.to(torch.float32, copy=True)
    out[:, columns] = ((part - mean) / std).float()
    return out
