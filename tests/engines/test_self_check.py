"""Whether a compiled step does what it was made of: rounding passes, other programs do not."""

from __future__ import annotations

from typing import Any

import torch

from glocal.core import rng
from glocal.engines.compiled import self_check


def test_a_few_numbers_that_rounding_decides_are_no_other_program() -> None:
    before = rng.normal(rng.key(1), (400, 1000))
    change = 1e-3 * torch.sign(rng.normal(rng.key(2), (400, 1000)))  # Adam's first step
    plain = before + change

    def passes(off: float, where: Any) -> bool:
        made = plain.clone()
        made[where] += off * change[where]
        return self_check.same_change(before, made, plain, False)

    one, all_of_them = (3, 7), slice(None)
    assert passes(0.05, one)  # its gradient is all but zero
    assert not passes(0.5, one)
    assert not passes(2.0, one)
    assert passes(5e-4, all_of_them)
    assert not passes(0.01, all_of_them)
    assert not passes(0.05, 3)  # a row of them is no chance


def test_what_rounding_turns_on_in_a_client_is_no_other_program() -> None:
    before = [rng.normal(rng.key(1), (4, 50)), rng.normal(rng.key(2), (4, 3, 2))]
    plain = [x + 0.1 * torch.sign(x) for x in before]

    def passes(*wrong: int) -> bool:
        made = [x.clone() for x in plain]
        for client in wrong:
            made[0][client, 7] += 0.05
        return self_check.same_for_most(before, made, plain)

    assert passes()
    assert passes(2)
    assert passes(0, 3)
    assert not passes(0, 1, 3)
    plain[1][1, 0, 0] = before[1][1, 0, 0]  # what does not train at all does not count
    still = [x.clone() for x in before]
    assert not self_check.same_for_most(before, still, still)
    broken = [x.clone() for x in plain]
    broken[0][2] = float("nan")
    assert not self_check.same_for_most(before, broken, plain)
    alone = [[x[:1] for x in part] for part in (before, plain, plain)]
    assert not self_check.same_for_most(*alone)  # nobody to compare it with


def test_as_much_as_rounding_does_to_the_step_itself_is_no_other_program() -> None:
    start, slope = rng.normal(rng.key(1), (1000,)), rng.normal(rng.key(2), (1000,))

    def step(x: torch.Tensor) -> torch.Tensor:
        return x + 1e5 * torch.sin(1e5 * x) * slope  # any rounding is a large part of it

    moved = step(self_check.rounded(start))
    assert not torch.equal(self_check.rounded(start), start)
    torch.testing.assert_close(self_check.rounded(start), start, rtol=1e-6, atol=0)
    assert self_check.within_rounding(step(start * (1 + 2.0**-23)), step(start), moved)
    assert not self_check.within_rounding(
        step(start * 1.5), step(start * 0), moved * 0 + step(start * 0)
    )
    calm = start + slope
    assert self_check.within_rounding(
        calm * (1 + 2.0**-23), calm, self_check.rounded(start) + slope
    )
    assert not self_check.within_rounding(
        calm + 1e-3 * slope, calm, self_check.rounded(start) + slope
    )
