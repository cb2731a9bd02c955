"""Whether a program does what the step does that it was made of.

Both compute the same in another order, so numbers differ by rounding, and by what that leads to: a
rectifier or a maximum that it turns on or off changes a client's gradients by as much as comes
through it. That happens to a client now and then, and in deep models to most of them; a wrong
program is wrong for all.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ROUNDING = 2.0**-22
"""What a number is moved by, relative to its size, to see what rounding does to a step: about what
sums in another order differ by."""

ALLOWED = 10.0
"""How many times as far from the step as that a program may come out."""


def same_change(before: Tensor, made: Tensor, plain: Tensor, half_precision: bool) -> bool:
    """Whether two changes are the same to rounding: every number, or nearly all.

    Adam divides a gradient by its own size: where that is all but zero, rounding is much of it. So
    a few numbers may differ by up to a tenth where all together differ by nothing. In half
    precision some units near zero are on in one and off in the other; what comes through them
    differs by as much as it is.
    """
    if not plain.is_floating_point():
        before, made, plain = (x.double() for x in (before, made, plain))

    def within(order: float, tolerance: float, of_size: float) -> Tensor:
        gap, change, size = (
            torch.linalg.vector_norm(x, order) for x in (made - plain, plain - before, plain)
        )
        # Where training itself is not finite, there is nothing to compare.
        passed: Tensor = (gap <= tolerance * change + of_size * size) | ~change.isfinite()
        return passed

    if half_precision:
        return bool(within(2, 0.25, 1e-6))
    every = within(torch.inf, 1e-3, 1e-6)
    return bool(every | (within(2, 1e-4, 0.0) & within(torch.inf, 0.1, 0.0)))


def same_for_most(
    before: Sequence[Tensor], made: Sequence[Tensor], plain: Sequence[Tensor]
) -> bool:
    """Whether all changes of at least half of the clients (the first dimension) are the same.

    Those of the others are as alike as in half precision. Clients that do not train do not count.
    """
    tensors = [one for one in zip(before, made, plain, strict=True) if one[0].numel()]
    alike = []
    for k in range(min(len(t) for t in plain)):
        changes = [(x[k], y[k], z[k]) for x, y, z in tensors]
        if all(torch.equal(x, z) and torch.equal(y, z) for x, y, z in changes):
            continue
        if not all(same_change(*one, half_precision=True) for one in changes):
            return False
        alike.append(all(same_change(*one, half_precision=False) for one in changes))
    return len(alike) > 1 and 2 * sum(alike) >= len(alike)


def rounded(start: Tensor) -> Tensor:
    """Every other number a little larger, the others a little smaller."""
    if not start.is_floating_point():
        return start
    sign = 1 - 2 * (torch.arange(start.numel(), device=start.device) % 2)
    return start * (1 + ROUNDING * sign.view_as(start))


def within_rounding(made: Tensor, plain: Tensor, moved: Tensor) -> bool:
    """Whether a program's result is no farther from the step's than that is from a moved start's.

    Rectifiers and maxima that rounding turns on or off are few, and each changes what is before it
    by as much as it is: so all numbers together are compared, and not each by itself.
    """
    gap, room = (torch.linalg.vector_norm((x - plain).double()) for x in (made, moved))
    return bool((gap <= ALLOWED * room) | ~room.isfinite())
