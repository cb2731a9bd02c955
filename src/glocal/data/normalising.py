"""Inputs by channel: their mean and standard deviation, and standardised inputs.

The channels of images ``[n, channels, height, width]`` are their colours; those of rows ``[n, d]``
are the features; anything else is one channel. The statistics are sums over all clients' training
rows, which clients could send.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = 1e-6
"""A channel that varies less than this is constant, and is only centred."""


def channel_statistics(x: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation of each channel over some rows, in float64."""
    some = x[rows].double()
    others = (0,) if x.dim() == 2 else (0, 2, 3) if x.dim() == 4 else tuple(range(x.dim()))
    mean = some.mean(dim=others)
    std = some.sub(_along(mean, x)).square().mean(dim=others).sqrt()
    return mean.reshape(-1), torch.where(std < LEAST, 1.0, std).reshape(-1)


def standardised(x: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Inputs minus the mean, divided by the standard deviation, by channel."""
    return (x - _along(mean, x).to(x)) / _along(std, x).to(x)


def _along(values: Tensor, x: Tensor) -> Tensor:
    """One value for each channel, in the shape that goes with inputs."""
    if values.numel() == 1:
        return values.reshape(())
    return values.reshape(1, -1, *(1 for _ in x.shape[2:]))
