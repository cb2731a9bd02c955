"""The rotated device: 3,000 training and 500 test images, turned by 90 degrees, join 100 others.

Liang et al., 2020, section 5.4 and appendix C.4: the newcomer's images are drawn from the training
and the test set, where the other devices have them, too. A tenth of its training images validates.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from glocal.core import rng
from glocal.data.federation import Federation
from glocal.data.split import Split, from_counts
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import baseline_of
from glocal.studies.newcomer import arrival
from glocal.studies.newcomer.join import runner_to_join, seen_joining
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.resumed import run_rounds
from glocal.training.side_by_side import LaneGroup
from papers.tables import Cell

NAME = "rotated"

DRAWN = 0x707
"""Child of the seed's key by which the newcomer's images are drawn."""


def with_rotated(fed: Federation, seed: int, train: int, test: int) -> Federation:
    """The federation and, as its last client, the device with rotated images."""
    key = rng.fold(rng.key(seed), DRAWN)
    ours = torch.cat([fed.train.rows, fed.val.rows]).cpu()
    some = ours[rng.permutation(rng.fold(key, 0), len(ours))[:train]]
    tested = fed.test.rows.cpu()[rng.permutation(rng.fold(key, 1), len(fed.test.rows))[:test]]
    rows, n = torch.cat([some, tested]), len(fed.y)
    new = torch.arange(n, n + len(rows))
    cut = len(some) - len(some) // 10
    parts = new[:cut], new[cut : len(some)], new[len(some) :]
    train_split, val_split, test_split = (
        _with_client(split, own)
        for split, own in zip((fed.train, fed.val, fed.test), parts, strict=True)
    )
    return replace(
        fed,
        x=torch.cat([fed.x, torch.rot90(fed.x[rows], 1, (2, 3))]),
        y=torch.cat([fed.y, fed.y[rows]]),
        y_train=torch.cat([fed.y_train, fed.y_train[rows]]),
        names=(*fed.names, NAME),
        train=train_split,
        val=val_split,
        test=test_split,
        label_shift_only=False,
        unsplit=None,
    )


def _with_client(split: Split, rows: Tensor) -> Split:
    counts = torch.cat([split.counts(), torch.tensor([len(rows)])])
    return from_counts(torch.cat([split.rows, rows]), counts)


def figures(
    cell: Cell, config: Config, fed: Federation, policy: CheckpointPolicy
) -> dict[str, Any]:
    """What the newcomer gets, and what the old clients have before and after it joined."""
    asked = cell.measure
    fed = with_rotated(fed, cell.seed, asked["train"], asked["test"])
    runner, setup = runner_to_join(cell.method), setups.make(config, fed, 0)
    with setup.threads():
        parts = arrival.parts(setup.fed, NAME)
        training = runner.check(replace(setup, fed=parts.old))
        by_itself = replace(setup, fed=parts.new, digest=f"{setup.digest} {NAME}")
        baseline = baseline_of(config).client
        keeper = policy.epochs(0, f"alone {cell.digest}")
        _, alone = setups.measured(by_itself, baseline, lambda done, total: None, keeper)
        (end,) = run_rounds(LaneGroup.of([training]), keeper=policy.rounds(0, cell.digest))
        how = asked["own_epochs"], asked["join_rounds"], asked["fraction"]
        seen = seen_joining(training, end.progress, parts, alone, *how)
    means = {
        f"old_{when}": sum(outcome.metrics["accuracy"]) / len(parts.old)
        for when, outcome in seen.old.items()
    }
    reached = {
        f"rotated_{stage.replace(' ', '_')}": outcome.metrics["accuracy"][0]
        for stage, outcome in seen.newcomer.items()
    }
    return {
        **means,
        **reached,
        "rotated_alone": alone.metrics["accuracy"][0],
        "parameters": setup.task.size,
        "engine": training.engine.executed,
    }
