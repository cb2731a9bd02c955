"""A group is one unit in every verdict: alike rows of equally good models call nobody."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from glocal.data.federation import Federation, federation
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.summary import client_table
from glocal.evaluation.trials import Trial

CLIENTS, GROUPS, ROWS = 20, 40, 5


@pytest.fixture(scope="module")
def fed() -> Federation:
    group = np.repeat(np.arange(CLIENTS * GROUPS), ROWS)
    x = np.random.default_rng(0).normal(size=(len(group), 1)).astype(np.float32)
    return federation(x, group % 2, group // GROUPS, group=group)


def outcome(fed: Federation, gen: np.random.Generator) -> Outcome:
    """Right about seven groups of ten; a group's rows are all right or all wrong."""
    assert fed.unit is not None
    right = torch.from_numpy(gen.random(CLIENTS * GROUPS) < 0.7)[fed.unit].float()
    own = [right[fed.test.of(k)] for k in range(CLIENTS)]
    return Outcome({"accuracy": [float(c.mean()) for c in own]}, own, None, ["own"] * CLIENTS)


def called(fed: Federation, repeats: int, *, told: bool) -> float:
    """The share of clients that are called, over some federations."""
    calls = 0
    for seed in range(12):
        gen = np.random.default_rng([seed, repeats])
        folds = [fed.fold(r) for r in range(repeats)]
        pairs = [(fold, outcome(fold, gen), outcome(fold, gen)) for fold in folds]
        trials = [Trial(f if told else replace(f, unit=None), a, b) for f, a, b in pairs]
        verdicts = client_table(trials)["verdict"]
        calls += sum(verdict in ("better off", "worse off") for verdict in verdicts)
    return calls / 12 / CLIENTS


@pytest.mark.parametrize("repeats", [1, 3])
def test_groups_are_not_called_by_their_rows(fed: Federation, repeats: int) -> None:
    assert called(fed, repeats, told=True) <= 0.1
    if repeats == 1:  # later repeats show how much it varies, whatever is counted as one
        assert called(fed, repeats, told=False) > 0.3
