"""Settings in sentences are spelled as they are typed."""

from __future__ import annotations

import pytest

from glocal.cli.spelling import as_typed, flags


@pytest.mark.parametrize(
    ("python", "typed"),
    [
        ("leave it out (drop=) if it is none", "leave it out (--drop) if it is none"),
        ("label=, client= and group= name columns", "--label, --client and --group name columns"),
        ("say task='regression' (or 'counts')", "say --task regression (or 'counts')"),
        ("say decimal=',' or decimal='.'", "say --decimal ',' or --decimal ."),
        ("so clients=20 is not: leave clients= out", "so --clients 20 is not: leave --clients out"),
        ("losses= must give one", "--loss must give one"),
        ("transforms= and join_cost=2.5.", "--transform and --join-cost 2.5."),
        # Calls of specs, names of Python's own, and what is in quotes stay.
        ("write 'rotate(90, clients=5)' or by(label=x)", None),
        ("lower rates, as in local(lr=0.001), or", None),
        ("split=(0.8, 0.2) sums to 1, and public=(x, y)", None),
        ("column 'label=' is none", None),
        ("shared=last(2) does not fit", None),
    ],
)
def test_as_typed(python: str, typed: str | None) -> None:
    assert as_typed(python) == (typed or python)


def test_every_option_of_a_setting_has_its_name() -> None:
    assert flags()["losses"] == "--loss"
    assert flags()["checkpoint_every"] == "--checkpoint-every"
    assert not {"split", "attack", "public"} & flags().keys()
