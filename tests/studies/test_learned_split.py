"""Gates for layers: the search against brute force, and that nothing but validation data counts."""

from __future__ import annotations

from itertools import combinations

import pytest
import torch
from studied import ALONE, QUICK, digits

from glocal.core.errors import GlocalError
from glocal.experiment.fit import fit
from glocal.studies.learned_split import learn, learned_split, paired, shared_as

NAMES = ["a", "b", "c"]
WORTH = {"a": 0.3, "b": -0.2, "c": 0.1}
"""What each layer adds where it is shared."""


def scores(opened: frozenset[str]) -> torch.Tensor:
    """Four clients that differ a little, and one without validation data."""
    value = sum(WORTH[name] for name in opened)
    return torch.tensor([value, value + 0.01, value - 0.01, value, float("nan")])


def test_the_best_gates_are_found_where_layers_count_by_themselves() -> None:
    every = [frozenset(some) for k in range(4) for some in combinations(NAMES, k)]
    best = max(every, key=lambda opened: float(scores(opened).nanmean()))
    learnt = learn(NAMES, scores, passes=5)
    assert learnt.open == best == {"a", "c"}
    assert [t["layer"] for t in learnt.tried] == 2 * NAMES  # the second pass turned nothing
    assert [t["kept"] for t in learnt.tried] == [False, True, *4 * [False]]
    assert learnt.tried[1]["gain"] == pytest.approx(0.2)
    assert len(learn(NAMES, scores, passes=1).tried) == 3


def test_a_gain_below_its_standard_error_turns_nothing() -> None:
    """Differences of 0.3 and −0.1 have a mean of 0.1 and a standard error of 0.2."""

    def noisy(opened: frozenset[str]) -> torch.Tensor:
        return torch.tensor([0.3, -0.1]) * (len(opened) < 3)

    assert paired(noisy(frozenset("ab")), noisy(frozenset("abc"))) == pytest.approx((0.1, 0.2))
    assert learn(NAMES, noisy, passes=2).open == set(NAMES)


def test_a_split_that_was_learnt_is_one_that_can_be_trained() -> None:
    found = learned_split(digits(), passes=1, baseline=ALONE, **QUICK)
    (learnt,) = found["learnt"]
    names = list(found["layers"])
    assert len(names) == len(learnt["tried"]) == 2
    assert [row["shared"] for row in found["splits"]] == ["everything", "learnt", "nothing"]
    split = shared_as(frozenset(learnt["shared"]), names)
    runs = {
        shared: fit(f"fedavg(shared={shared})", digits(), baseline="none", **QUICK)
        for shared in {"everything", split, "nothing", names[1]}
    }
    for row, shared in zip(found["splits"], ("everything", split, "nothing"), strict=True):
        assert row["mean"]["mean"] == runs[shared].summary["mean"]
        assert row["bytes_up"] == runs[shared].summary["bytes_up"]
    whole, private = (runs[k].repeats[0].val_score for k in ("everything", names[1]))
    gain, error = paired(private, whole)
    first = {"layer": names[0], "to": "private", "gain": gain, "error": error}
    assert learnt["tried"][0] == {**first, "kept": gain > error}


def test_what_cannot_be_learnt_is_refused() -> None:
    with pytest.raises(GlocalError, match="leave shared out"):
        learned_split(digits(), "fedper(shared=first(1))")
    with pytest.raises(GlocalError, match="at least two clients with validation data"):
        paired(torch.tensor([0.5]), torch.tensor([0.4]))
    assert shared_as(frozenset("ca"), NAMES) == "'a|c'"
    assert shared_as(frozenset(), NAMES) == "nothing"
