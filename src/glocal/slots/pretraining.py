"""Pre-training of a client's own layers, before it takes part for the first time.

Liang et al.: *Think locally, act globally*, 2019, section 2.2 ("settings where pretraining local
models … helps in convergence"), and 2020, appendix C (local models and adversaries for 10 epochs).
A client's private layers, and its auxiliary model if it has one, train on its own data for some
epochs, by the steps of its method, under the shared layers as it received them, which stay as they
are. Nothing is sent. It happens once, at a client's first round of a stage that keeps layers
private. A client that did not take part yet is evaluated as if it had pre-trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from torch import Tensor

from glocal.core.types import Batch, Carry, Downlink, Tree
from glocal.core.validation import integer, not_negative
from glocal.nn.task import Task
from glocal.slots.auxiliary import Auxiliary
from glocal.slots.client import MOST_EPOCHS, Local, Phase, Step


@dataclass(frozen=True)
class Pretraining:
    """How long, and on which losses."""

    epochs: int
    weight: float | None = None
    """That of the auxiliary meanwhile; None: its own."""
    labels: bool = True
    """Whether the loss of the method counts; if not, the auxiliary's alone does."""
    name: str = "pretrain"

    @property
    def needs_auxiliary(self) -> bool:
        """Whether it says anything of an auxiliary."""
        return self.weight is not None or not self.labels

    def auxiliary(self, auxiliary: Auxiliary | None) -> Auxiliary | None:
        """The auxiliary as it is trained meanwhile."""
        if auxiliary is None:
            return None
        weight = auxiliary.weight
        if self.weight is not None:  # an adversary's is below 0, and stays so
            weight = math.copysign(self.weight, weight)
        return replace(auxiliary, weight=weight, alone=not self.labels)


def pretrain(epochs: int = 5, *, weight: float | None = None, labels: bool = True) -> Pretraining:
    """A client's private layers train alone on its data before its first round.

    It helps a client whose private layers would begin at random under shared ones that are trained.
    It does not help to any purpose where a warm-up has trained them: on digits nothing was gained.

    Args:
        epochs: passes over the client's data.
        weight: of its auxiliary model meanwhile; by default as in the rounds that follow.
        labels: whether the loss of the task counts, or that of the auxiliary model alone.
    """
    integer(epochs, "epochs", 1, MOST_EPOCHS)
    if weight is not None:
        not_negative(weight=weight)
    return Pretraining(epochs, weight, labels)


def by_itself(local: Local, held: frozenset[str], epochs: int) -> Local:
    """``local`` for so many passes, with whatever belongs to ``held`` parameters kept still."""

    def still(step: Step) -> Step:
        def held_step(task: Task, down: Downlink, carry: Carry, batch: Batch, key: Tensor) -> Carry:
            return _put_back(step(task, down, carry, batch, key), carry, held)

        return held_step

    phases = (Phase(p.name, epochs, still(p.step), None, p.gradients) for p in local.phases)
    return local.replace(phases=tuple(phases))


def _put_back(new: Tree, old: Tree, held: frozenset[str]) -> Tree:
    """Leaves named after a held parameter, its weights and its momentum, as they were."""
    return {
        k: _put_back(v, old[k], held) if isinstance(v, dict) else old[k] if k in held else v
        for k, v in new.items()
    }
