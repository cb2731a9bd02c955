"""Federations of linear teachers, drawn, and the least-squares fits to them.

Everything is in double precision and stacked: the first dimension is that of the draws, and one of
clients follows. What is drawn depends on the key of a draw alone, not on how many are drawn at
once. The same draw serves every ρ and σ: they scale its standard normal shifts and noise.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.core import rng
from glocal.studies.linear_teacher import Teachers

AT_ONCE = 4_000_000
"""Numbers in the inputs of the draws that are stacked."""

NOISES = 20
"""Noises that are multiplied with the inputs at once."""


@dataclass(frozen=True, eq=False)
class Draws:
    """Federations: inputs, and teachers and noise before they are scaled by ρ and σ."""

    keys: Tensor
    common: Tensor
    """v [draws, d], what teachers have in common."""
    shifts: Tensor
    """r_m / ρ [draws, clients, d]."""
    x: Tensor
    """Training inputs [draws, clients, examples, d], in single precision as training has them."""
    gram: Tensor
    """XᵀX of each client."""
    second_moment: Tensor
    """Mean of xxᵀ over each client's test inputs: errors on these are quadratic forms in it."""

    def teachers(self, rho: float) -> Tensor:
        """u_m = v + r_m of every client, [draws, clients, d, 1]."""
        return (self.common.unsqueeze(-2) + rho * self.shifts).unsqueeze(-1)

    def noise(self, number: int = 0) -> Tensor:
        """The ``number``-th noise of the training labels, [draws, clients, examples], unscaled."""
        key = rng.fold(rng.fold(self.keys, 4), number)
        return rng.normal(key, self.x.shape[1:-1]).double()

    def noise_moments(self, count: int = 1) -> Tensor:
        """Xᵀε of every client for the first ``count`` noises, [draws, clients, d, count]."""
        inputs = self.x.double().mT
        blocks = (range(i, min(i + NOISES, count)) for i in range(0, count, NOISES))
        drawn = (torch.stack([self.noise(i) for i in block], -1) for block in blocks)
        return torch.cat([inputs @ noise for noise in drawn], -1)

    def products(self, a: Tensor, b: Tensor) -> Tensor:
        """Mean of (a·x)(b·x) over each client's test inputs, then over clients: [draws, noises].

        Both are [draws, clients, d, noises], or can be expanded to that.
        """
        return (a * (self.second_moment @ b)).sum(-2).mean(-2)


def new_inputs(t: Teachers, keys: Tensor) -> Tensor:
    """Each client's test inputs, in single precision."""
    return _inputs(t, rng.fold(keys, 3), t.tests)


def draw(t: Teachers, keys: Tensor) -> Draws:
    """A federation for each key; ``rho`` and ``sigma`` of the setting do not enter."""
    x, tests = _inputs(t, rng.fold(keys, 2), t.examples), new_inputs(t, keys).double()
    return Draws(
        keys=keys,
        common=rng.uniform(rng.fold(keys, 0), (t.features,)).double(),
        shifts=rng.normal(rng.fold(keys, 1), (t.clients, t.features)).double(),
        x=x,
        gram=x.double().mT @ x.double(),
        second_moment=tests.mT @ tests / t.tests,
    )


def each_chunk(t: Teachers, draws: int, seed: int) -> Iterator[Draws]:
    """The draws, as many at a time as memory likes."""
    numbers = t.clients * max(t.examples, t.tests) * max(t.features, NOISES)
    size = max(1, AT_ONCE // numbers)
    for first in range(0, draws, size):
        chunk = torch.arange(first, min(first + size, draws))
        yield draw(t, rng.fold(rng.key(seed), chunk))


def least_squares(drawn: Draws, t: Teachers, noise_moments: Tensor) -> tuple[Tensor, Tensor]:
    """û_m [draws, clients, d, noises] and v̂ [draws, 1, d, noises], by the normal equations."""
    # Xᵀy, with y = Xu + σε.
    moments = drawn.gram @ drawn.teachers(t.rho) + t.sigma * noise_moments
    own = torch.linalg.solve(drawn.gram, moments)
    together = torch.linalg.solve(drawn.gram.sum(1, keepdim=True), moments.sum(1, keepdim=True))
    return own, together


def _inputs(t: Teachers, keys: Tensor, count: int) -> Tensor:
    return t.width * (2 * rng.uniform(keys, (t.clients, count, t.features)) - 1)
