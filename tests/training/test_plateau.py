"""A rate that falls where validation loss stays: in what the server sends, and after a resume."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import glocal
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.experiment.run import Run
from glocal.testing import ragged
from glocal.testing.trees import assert_same
from glocal.training import evaluated_rounds
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.loop import Training
from glocal.training.run_state import Progress

LOSSES = [3.0, 2.0, 2.1, 2.2, 1.0, 1.5, 1.5, 1.5]
RATES = [1.0, 1.0, 1.0, 0.5, 0.25, 0.25, 0.125, 0.0625]
"""The factor on the rate in each round, with patience 1."""
METHOD = "fedavg(schedule=plateau(0.5),lr=0.1)"
GIVEN: dict[str, Any] = {
    "model": "mlp(4)",
    "rounds": len(LOSSES),
    "baseline": "none",
    "engine": "vectorised",
    "validate_every": 1,
}


@pytest.fixture(autouse=True, scope="module")
def scripted() -> Iterator[None]:
    """What validation data says after each round, whatever the models are."""
    real = evaluated_rounds.curve_point

    def point(training: Training, progress: Progress) -> dict[str, Any]:
        return {**real(training, progress), "val_loss": LOSSES[progress.round - 1]}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluated_rounds, "curve_point", point)
        yield


@pytest.fixture(scope="module")
def fed() -> Federation:
    return ragged()


@pytest.fixture(scope="module")
def sent(fed: Federation) -> tuple[Run, list[float]]:
    """A run, and the factor that its server sent in each round."""
    rates: list[float] = []
    real = Training._train

    def watched(self: Training, progress: Progress, down: Any, *rest: Any) -> Any:
        rates.append(float(down["lr"]))
        return real(self, progress, down, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "_train", watched)
        return glocal.fit(METHOD, fed, **GIVEN), rates


def test_the_server_sends_the_rate(sent: tuple[Run, list[float]]) -> None:
    assert sent[1] == RATES


def test_it_is_a_plain_run_at_those_rates(fed: Federation, sent: tuple[Run, list[float]]) -> None:
    """The same bits as with a schedule that has these factors by round."""
    from dataclasses import replace

    from glocal.methods import resolve

    plain = resolve("fedavg(lr=0.1)")
    local = replace(plain.local, schedule=lambda t: RATES[t] if t < len(RATES) else 1.0)
    run = glocal.fit(plain.replace(local=local), fed, **GIVEN)
    assert_same("plateau", "model", run.model, sent[0].model)


def test_resumed_to_the_bit(tmp_path: Path, fed: Federation, sent: tuple[Run, list[float]]) -> None:
    def report(what: str, done: int, total: int) -> None:
        if done == 5:  # after two cuts of the rate, and before two more
            raise KeyboardInterrupt

    kept = CheckpointPolicy(tmp_path, every=1, stop=lambda: False)
    with pytest.raises(KeyboardInterrupt):
        glocal.fit(METHOD, fed, **GIVEN, checkpoints=kept, progress=report)
    again = glocal.fit(METHOD, fed, **GIVEN, checkpoints=kept)
    assert_same("resumed", "model", again.model, sent[0].model)
    assert again.history == sent[0].history


def test_rounds_that_are_not_evaluated_count_for_nothing(fed: Federation) -> None:
    """Evaluated after rounds 2, 4, 6 and 8: 2.0, 2.2, 1.5 and 1.5."""
    run = glocal.fit(METHOD, fed, **{**GIVEN, "validate_every": 2})
    assert run.trained is not None
    training, progress = run.trained.training, run.trained.progress
    assert float(training.broadcast(progress)["lr"]) == 0.25
    progress.round = 5
    assert float(training.broadcast(progress)["lr"]) == 0.5


@pytest.mark.parametrize(
    ("method", "how", "why"),
    [
        (METHOD, {"validate_every": 0}, "none on the way"),
        (f"{METHOD}+dp(clip=1,noise=1)", {}, "dp does not protect"),
    ],
)
def test_what_makes_no_sense_is_refused(
    fed: Federation, method: str, how: dict[str, Any], why: str
) -> None:
    with pytest.raises(GlocalError, match=why):
        glocal.fit(method, fed, **{**GIVEN, **how})
