"""What compiled programs do to be fast, or the same everywhere, where this torch knows how."""

from __future__ import annotations

from typing import NamedTuple

import torch

from glocal.engines.compiled import large_products


class Tricks(NamedTuple):
    """What a program does that rests on names which another torch may not have."""

    fused: bool = False
    """Gradients are added to the weights by the library that multiplies."""
    large: bool = False
    """Large products are another library's."""
    apart: bool = False
    """What comes after the last product is a program of its own."""
    epilogue: bool = False
    """Products of few rows add the bias and apply the rectifier behind them."""
    untimed: bool = False
    """How a sum is divided among threads is not what was fastest in a trial: made again where a run
    is resumed, the trial may end otherwise, and the run at other bits."""

    @property
    def is_plain(self) -> bool:
        """Whether none of them is there for speed."""
        return not (self.fused or self.large or self.apart or self.epilogue)


def tricks_of(device: torch.device) -> list[Tricks]:
    """All of them, then fewer; none at last."""
    if device.type != "cpu":
        both = Tricks(apart=True, epilogue=True, untimed=True)
        one = [both._replace(epilogue=False), both._replace(apart=False)]
        return [both, *one, both._replace(untimed=False), Tricks(untimed=True), Tricks()]
    fewer = [Tricks(fused=True), Tricks()]
    return [Tricks(fused=True, large=True), *fewer] if large_products.pays() else fewer
