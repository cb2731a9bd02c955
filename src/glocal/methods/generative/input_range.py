"""Whether the clients' data is where synthetic data is made: checked before anyone trains.

Synthetic data is made in a room (:mod:`glocal.methods.generative.langevin`). Where data is
elsewhere, it would come out looking like nobody's, and no figure would say why. Each client can
check its own: all that anybody learns is that its data does not fit.
"""

from __future__ import annotations

from glocal.core.errors import GlocalError, shown
from glocal.data.federation import Federation
from glocal.data.schema import Schema
from glocal.methods.generative.langevin import Room

NEAR = 1e-3
"""How far a pixel may be outside, as a share of the room: rounding, or a picture that was resized.
"""

MOST = 1 / 16
"""The share of a column that may be outside of ±4. Standardised columns never have more there
(Chebyshev's inequality), and heavy tails have some."""


def check(fed: Federation, inputs: Schema, room: Room, method: str, bounds: bool) -> None:
    """Refuse data outside of the room; ``bounds``: whether the method takes low and high."""
    x = fed.x[fed.train.rows]
    low, high = f"{room.low:g}", f"{room.high:g}"
    if inputs.images:
        least, most = float(x.min()), float(x.max())
        near = NEAR * (room.high - room.low)
        if least < room.low - near or most > room.high + near:
            other = _other(method, least, most) if bounds else ""
            raise GlocalError(
                f"{method} makes pixels from {low} to {high}, and the clients' images have pixels "
                f"from {least:g} to {most:g}: scale them before you make the federation, as in "
                f"{_scaled(least, most)}{other}."
            )
        return
    x = x.flatten(1)
    outside = ((x < room.low) | (x > room.high)).float().mean(0)
    for begin, end in inputs.categories:
        outside[begin:end] = 0.0
    worst = int(outside.argmax())
    if float(outside[worst]) > MOST + 1e-6:
        other = _other(method, float(x.min()), float(x.max())) if bounds else ""
        names = fed.describe.get("features") or ()
        name = shown(names[worst]) if worst < len(names) else str(worst)
        raise GlocalError(
            f"{method} makes numbers from {low} to {high}, and {100 * float(outside[worst]):.0f} % "
            f"of column {name} lie outside: standardise the columns, so that each has mean 0 and "
            f"standard deviation 1, as is done with a table unless scale=False{other}."
        )


def _scaled(least: float, most: float) -> str:
    if least < 0:
        return f"(x - {least:g}) / {most - least:g}".replace("- -", "+ ")
    return "x / 255" if 128 < most <= 255 else f"x / {most:g}"


def _other(method: str, least: float, most: float) -> str:
    return f"; or give bounds that hold them, as in {method}(low={least:g},high={most:g})"
