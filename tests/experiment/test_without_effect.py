"""Settings without effect are refused: those of rounds where there are none, advice of one method.

And runs in which nobody answers.
"""

from __future__ import annotations

from typing import Any

import pytest

import glocal
from conftest import Command
from glocal.core.errors import GlocalError
from glocal.experiment import without_effect
from glocal.experiment.config import Config
from glocal.testing import ragged
from glocal.training.participation import check_answered

QUICK: dict[str, Any] = {"model": "mlp(4)", "rounds": 3, "baseline": "none"}

OF_ROUNDS = {
    "availability": "dropout(0.2)",
    "stragglers": "use(0.5)",
    "patience": 2,
    "longest_update": 10.0,
    "public_noise": True,
}


@pytest.mark.parametrize("name", without_effect.OF_ROUNDS)
def test_local_has_no_rounds(name: str) -> None:
    given = {name: OF_ROUNDS[name]}
    sentence = f"^{name}= is about rounds, and local has none"
    with pytest.raises(GlocalError, match=sentence):
        without_effect.check(["local", "local(lr=0.1)"], given)
    without_effect.check(["local", "fedavg"], given)
    without_effect.check(["local"], {name: getattr(Config, name)})


@pytest.mark.parametrize("name", without_effect.OF_ADVICE)
def test_one_method_gets_no_advice(name: str) -> None:
    with pytest.raises(GlocalError, match=f"^{name}= is for the advice of a comparison"):
        without_effect.check(["fedavg"], {name: 1.0})
    without_effect.check(["fedavg", "ditto"], {name: 1.0})


def test_fit_and_compare_refuse_before_they_train() -> None:
    with pytest.raises(GlocalError, match="availability= is about rounds"):
        glocal.fit("local", ragged(), **QUICK, availability="dropout(0.2)")
    with pytest.raises(GlocalError, match="patience= is about rounds"):
        glocal.compare(["local"], ragged(), **QUICK, patience=2)
    with pytest.raises(GlocalError, match="join_cost= is for the advice"):
        glocal.fit("fedavg", ragged(), **QUICK, join_cost=1.0)


def test_commands_name_the_option(command: Command) -> None:
    code, _, err = command("run", "local", "--stragglers", "use(0.5)")
    assert (code, err.startswith("glocal: --stragglers is about rounds")) == (2, True)
    code, _, err = command("compare", "fedavg", "--personalise-cost", "1")
    assert (code, err.startswith("glocal: --personalise-cost is for the advice")) == (2, True)


@pytest.mark.parametrize(
    "given", [{"availability": "away(1)"}, {"availability": "dropout(0.5)+away(1, 3)"}]
)
def test_a_run_in_which_nobody_is_ever_there(given: dict[str, str]) -> None:
    with pytest.raises(GlocalError, match=r"nobody would answer in any of 3 rounds \(availability"):
        glocal.fit("fedavg", ragged(), **QUICK, **given)


def test_somebody_who_is_there_once_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    run = glocal.fit("fedavg", ragged(), **QUICK, availability="away(1, 2)")
    assert [len(line.get("away", ())) for line in run.history] == [6, 6, 0]
    assert "in 2 of 3 rounds nobody answered" in capsys.readouterr().err


def test_a_history_of_nobody() -> None:
    lines = [{"cohort": 2, "away": ["0"], "dropped": ["1"]}, {"cohort": 0}]
    with pytest.raises(GlocalError, match="nobody answered in any of 2 rounds"):
        check_answered(lines)
    check_answered([*lines, {"cohort": 1}, {"cohort": 3, "away": ["2"]}])
    check_answered([])
