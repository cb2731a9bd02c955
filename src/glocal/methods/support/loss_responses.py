"""Losses as bounded responses: how large each is among the others.

Hahn, Kim, Lee: *Pursuing overall welfare in federated learning through sequential decision making*,
ICML 2024:

    r_i = C1 + (C2 − C1) · CDF(F_i / F̄),  here with C1 = 0

with F̄ the mean over those who took part, and one of six distribution functions. All increase: who
has the larger loss has the larger response (with erfc for erf, an easy slip, the normal one would
fall).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from glocal.core.errors import unknown

TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "exponential": lambda x: 1 - torch.exp(-x),
    "frechet": lambda x: torch.exp(-1 / x),
    "gumbel": lambda x: torch.exp(-torch.exp(1 - x)),
    "logistic": lambda x: torch.sigmoid(x - 1),
    "normal": lambda x: torch.special.ndtr(x - 1),
    "weibull": lambda x: 1 - torch.exp(-x.square()),
}
"""Distribution functions: how large a loss is among the others, from 0 to 1."""


def responses(F: Tensor, transform: str, high: float = 1.0, mean: Tensor | None = None) -> Tensor:
    """Losses as responses between 0 and ``high``; equal losses are equal responses.

    ``mean`` is what they are measured by: their own, unless given.
    """
    mean = F.mean() if mean is None else mean
    x = F / mean if float(mean) > 0 else torch.ones_like(F)
    return high * TRANSFORMS[transform](x)


def check_transform(transform: str) -> None:
    """Refuse a name that is not among the transforms."""
    if transform not in TRANSFORMS:
        raise unknown("transform", str(transform), TRANSFORMS)
