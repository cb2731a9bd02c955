"""Langevin steps towards low energy, the room they stay in, and how long they are in each round.

Welling, Teh: *Bayesian learning via stochastic gradient Langevin dynamics*, ICML 2011:
``x ← x − γ ∇E(x) + σ ε``. With σ² = 2γ it samples from exp(−E) as γ goes to 0; energy models of
images use far less noise than that.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from glocal.data.schema import Schema
from glocal.methods.support.simplex import project


def step(x: Tensor, gradient: Tensor, size: float | Tensor, noise: float, eps: Tensor) -> Tensor:
    """``x − size · ∇E + noise · ε``."""
    return x - size * gradient + noise * eps


def clipped(gradient: Tensor, bound: float | None) -> Tensor:
    """Every entry within ±bound."""
    return gradient if bound is None else gradient.clamp(-bound, bound)


@dataclass(frozen=True)
class Room:
    """Where examples may be: numbers between ``low`` and ``high``, categories on their simplex."""

    low: float
    high: float
    categories: tuple[tuple[int, int], ...] = ()

    def nearest(self, x: Tensor) -> Tensor:
        """Each example moved to the nearest point of the room."""
        inside = x.clamp(self.low, self.high)
        if not self.categories:
            return inside
        parts, place = [], 0
        for begin, end in self.categories:
            parts += [inside[..., place:begin], project(x[..., begin:end])]
            place = end
        return torch.cat([*parts, inside[..., place:]], -1)

    def decided(self, x: Tensor) -> Tensor:
        """Every category one of its words: what is given away in the end."""
        x = x.clone()
        for begin, end in self.categories:
            largest = x[..., begin:end].argmax(-1, keepdim=True)  # of equal ones the first
            x[..., begin:end] = torch.zeros_like(x[..., begin:end]).scatter(-1, largest, 1.0)
        return x


def room(inputs: Schema, low: float | None, high: float | None) -> Room:
    """As asked for, or pixels from 0 to 1, standardised numbers within ±4."""
    usual = (0.0, 1.0) if inputs.images else (-4.0, 4.0)
    return Room(
        usual[0] if low is None else low, usual[1] if high is None else high, inputs.categories
    )


def cosine(first: float, last: float, t: Tensor, rounds: int) -> Tensor:
    """Half a cosine from ``first`` in round 0 to ``last`` in the last one."""
    done = (t / max(1, rounds - 1)).clamp(max=1.0)
    return last + (first - last) * 0.5 * (1 + torch.cos(math.pi * done))


def linear(first: float, last: float, t: Tensor, rounds: int) -> Tensor:
    """A straight line from ``first`` to ``last``."""
    return first + (last - first) * (t / max(1, rounds - 1)).clamp(max=1.0)


def held(first: float, last: float, t: Tensor, rounds: int) -> Tensor:
    """``first`` in nearly every round, and down to ``last`` at the very end.

    What the released code of FedEvg computes: it takes a schedule of a diffusion model's noise
    (Nichol, Dhariwal: *Improved denoising diffusion probabilistic models*, ICML 2021), whose
    entries are near 0 until the last few.
    """

    def left(at: Tensor) -> Tensor:
        return torch.cos((at / rounds + 0.008) / 1.008 * math.pi / 2).clamp(min=0) ** 2

    share = 1 - left(t + 1) / left(t).clamp(min=1e-12)
    return first + (last - first) * share.clamp(0, 1)


def constant(first: float, last: float, t: Tensor, rounds: int) -> Tensor:
    """``first`` in every round."""
    return first + 0 * t


SCHEDULES: dict[str, Callable[[float, float, Tensor, int], Tensor]] = {
    "constant": constant,
    "cosine": cosine,
    "held": held,
    "linear": linear,
}
