"""Which arithmetic a GPU is set to while clients train, and while they are evaluated."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

import glocal
from glocal.core import rng
from glocal.core.types import Params
from glocal.engines import CohortRound, Engine, Sequential, Vectorised
from glocal.nn.optim import sgd
from glocal.nn.precision import arithmetic
from glocal.nn.task import Task
from glocal.slots.client import minibatch_training

TORCHS_OWN = (True, False)
"""TF32 in convolutions, and in products of matrices, as torch comes."""


def set_to() -> tuple[bool, bool]:
    return torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32


class Watched(nn.Linear):
    """Notes the settings at every call."""

    seen: list[tuple[bool, bool]]

    def forward(self, input: Tensor) -> Tensor:
        self.seen.append(set_to())
        return super().forward(input.flatten(1))


@pytest.fixture(autouse=True)
def torchs_own() -> Iterator[None]:
    before = set_to()
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = TORCHS_OWN
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


@pytest.mark.parametrize("make", [Sequential, Vectorised, lambda: Vectorised(in_blocks=True)])
@pytest.mark.parametrize("precision", ["single", "tf32", "bf16"])
def test_training_is_in_its_precision_and_evaluation_is_single(
    make: Callable[[], Engine], precision: str
) -> None:
    fed, engine = glocal.load("digits", clients=3), make()
    Watched.seen = []
    task = Task(Watched(64, 10), precision=precision)
    local = minibatch_training(sgd(0.1), batch_size=10)
    down = {"params": task.params, "lr": torch.tensor(1.0), "round": torch.tensor(0.0)}
    engine.round(CohortRound(task, local, fed, down, torch.arange(3), {}, rng.key(1)))
    tf32 = precision == "tf32"
    assert set(Watched.seen) == {(tf32, tf32)}
    assert set_to() == TORCHS_OWN
    Watched.seen = []
    models: Params = {name: torch.stack([leaf] * 3) for name, leaf in task.params.items()}
    engine.evaluate(task.example_metrics, models, fed.x, fed.y, torch.arange(6).view(3, 2))
    assert set(Watched.seen) == {(False, False)}
    assert set_to() == TORCHS_OWN


def test_settings_are_as_before_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), arithmetic("tf32"):
        raise ZeroDivisionError
    assert set_to() == TORCHS_OWN


def test_one_within_another_leaves_the_outer_as_it_was() -> None:
    with arithmetic("tf32"):
        with arithmetic("single"):
            assert set_to() == (False, False)
        assert set_to() == (True, True)
