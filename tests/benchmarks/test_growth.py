"""Long runs: nothing is held on to from round to round but a line of history and of traffic."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch
from torch import nn

from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import Callbacks, run_seed, runner_of
from glocal.training.checkpoint import CheckpointPolicy
from glocal.training.run_state import Progress
from toys import images, seeded


def living() -> tuple[int, int]:
    """Tensors that something still refers to, and the bytes in them."""
    gc.collect()
    # `type`, since isinstance asks objects that do not like to be asked.
    found = [x for x in gc.get_objects() if type(x) in (torch.Tensor, nn.Parameter)]
    return len(found), sum(x.nbytes for x in found)


@pytest.mark.parametrize(
    ("spec", "engine"),
    [
        ("ditto(batch_size=0)+aaggff-d+adam", "vectorised"),
        ("scaffold(batch_size=0)", "sequential"),
    ],
)
def test_no_tensor_stays_behind(tmp_path: Path, spec: str, engine: str) -> None:
    seen: dict[int, tuple[int, int]] = {}

    def look(done: Progress) -> None:
        if done.round in (10, 40):
            seen[done.round] = living()

    order = Config(
        model=seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 3))),
        rounds=41,
        engine=engine,
        validate_every=10,
    )
    keeping = CheckpointPolicy(tmp_path, every=10, stop=lambda: False)
    setup = setups.make(order, images(), 0)
    run_seed(runner_of(spec, spec), setup, Callbacks(on_round=look), keeping)
    assert seen[40] == seen[10]
