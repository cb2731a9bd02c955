"""Losses as bounded responses: how large each is among the others.

Hahn, Kim, Lee: *Pursuing overall welfare in federated learning through sequential decision making*,
ICML 2024:

    r_i = C1 + (C2 − C1) · CDF(F_i / F̄)

with F̄ the mean over those who took part, and one of six distribution functions with parameters α
and β (the dissertation's appendix calls them scale and shape, and has α = 1, β = 1; of Weibull
β = 2; the exponential has no β):

    Weibull 1 − e^−(x/α)^β    Fréchet e^−(x/α)^−β           Gumbel e^−e^−(x − α)/β
    exponential 1 − e^−αx     logistic 1/(1 + e^−(x − α)/β)    normal Φ((x − α)/β)

All increase: who has the larger loss has the larger response (with erfc for erf, an easy slip, the
normal one would fall).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, unknown
from glocal.core.validation import not_negative, positive


def exponential(x: Tensor, alpha: float = 1.0) -> Tensor:
    """``1 − e^−αx``."""
    return 1 - torch.exp(-alpha * x)


def frechet(x: Tensor, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """``e^−(x/α)^−β``."""
    power: Tensor = (x / alpha) ** -beta
    return torch.exp(-power)


def gumbel(x: Tensor, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """``e^−e^−(x − α)/β``."""
    return torch.exp(-torch.exp((alpha - x) / beta))


def logistic(x: Tensor, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """``1/(1 + e^−(x − α)/β)``."""
    return torch.sigmoid((x - alpha) / beta)


def normal(x: Tensor, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
    """``Φ((x − α)/β)``."""
    share: Tensor = torch.special.ndtr((x - alpha) / beta)
    return share


def weibull(x: Tensor, alpha: float = 1.0, beta: float = 2.0) -> Tensor:
    """``1 − e^−(x/α)^β``."""
    power: Tensor = (x / alpha) ** beta
    return 1 - torch.exp(-power)


Transform = Callable[[Tensor], Tensor]

TRANSFORMS: dict[str, Callable[..., Tensor]] = {
    "exponential": exponential,
    "frechet": frechet,
    "gumbel": gumbel,
    "logistic": logistic,
    "normal": normal,
    "weibull": weibull,
}
"""Distribution functions: how large a loss is among the others, from 0 to 1."""


def transform_of(name: str, alpha: float | None = None, beta: float | None = None) -> Transform:
    """The distribution function of a name, with its own parameters unless they are given."""
    if name not in TRANSFORMS:
        raise unknown("transform", str(name), TRANSFORMS)
    given = {k: v for k, v in (("alpha", alpha), ("beta", beta)) if v is not None}
    positive(**given)
    if name == "exponential" and "beta" in given:
        raise GlocalError("the exponential transform has alpha alone: leave beta out.")
    return partial(TRANSFORMS[name], **given)


def check_range(low: float, high: float) -> None:
    """Refuse a range [C1, C2] of responses that is none, or has negative ones."""
    not_negative(c1=low)
    if not low < high:
        raise GlocalError(f"responses range from c1 to c2, and {low:g} is not below {high:g}.")


def responses(
    F: Tensor,
    transform: str | Transform,
    high: float = 1.0,
    mean: Tensor | None = None,
    low: float = 0.0,
) -> Tensor:
    """Losses as responses between ``low`` and ``high``; equal losses are equal responses.

    ``mean`` is what they are measured by: their own, unless given.
    """
    mean = F.mean() if mean is None else mean
    x = F / mean if float(mean) > 0 else torch.ones_like(F)
    cdf = transform_of(transform) if isinstance(transform, str) else transform
    return low + (high - low) * cdf(x)
