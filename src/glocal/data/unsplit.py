"""Clients' data before it is split: what all folds of a federation have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.data.split import Shares, Split


@dataclass(frozen=True, eq=False)
class UnsplitData:
    """All rows, their clients, and the shares of the splits. Transforms change this."""

    x: Tensor
    y: Tensor
    y_train: Tensor
    """The label of each row if the row is used in training (label noise)."""
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
    """A test set that belongs to no client. Transforms do not change it."""


def strata(y: Tensor) -> Tensor:
    """The classes to keep in proportion in every split; none for sequence labels."""
    return y if y.dim() == 1 else torch.zeros(len(y), dtype=torch.int64)


def check_counts(names: tuple[str, ...], counts: Tensor) -> None:
    """Raise unless every client can have training, validation and test examples."""
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
