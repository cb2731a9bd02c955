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

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from glocal.core.errors import GlocalError, unknown
from glocal.core.validation import not_negative, positive
from glocal.slots.weighting import Weighting


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


@dataclass(frozen=True)
class Responses:
    """A method's responses, as its settings say."""

    cdf: Transform
    low: float
    """C1."""
    c2: float | None

    def high(self, default: float) -> float:
        """C2, which is ``default`` unless given; refused, if the range [C1, C2] is none."""
        high = default if self.c2 is None else self.c2
        not_negative(c1=self.low)
        if not self.low < high:
            raise GlocalError(
                f"responses range from c1 to c2, and {self.low:g} is not below {high:g}."
            )
        return high

    def of(self, F: Tensor, high: float) -> Tensor:
        """Losses as responses from C1 to ``high``."""
        return responses(F, self.cdf, high, low=self.low)


def with_responses(make: Callable[[Responses], Weighting]) -> Callable[..., Weighting]:
    """Give the settings of responses to a method, which takes the responses that they make."""

    def weighting(
        transform: str = "normal",
        *,
        c1: float = 0.0,
        c2: float | None = None,
        alpha: float | None = None,
        beta: float | None = None,
    ) -> Weighting:
        """A weighting by responses.

        Args:
            transform: distribution function that losses go through, such as normal.
            c1: lowest response to a loss.
            c2: highest response to a loss.
            alpha: first parameter of that function.
            beta: second parameter of that function.
        """
        return make(Responses(transform_of(transform, alpha, beta), c1, c2))

    weighting.__name__, weighting.__module__ = make.__name__, make.__module__
    _, _, settings = (inspect.getdoc(weighting) or "").partition("\n")
    weighting.__doc__ = f"{inspect.getdoc(make)}\n{settings}"
    return weighting
