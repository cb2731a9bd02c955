"""The task: what a label is, and so what a model puts out, learns by and is measured by.

==============  =====================  ==============================  ==========================
task            label                  the model puts out              prediction
==============  =====================  ==============================  ==========================
classification  a class (a sequence    a logit for each class          the largest
                of them)
regression      a number               one number ``o``                ``m + s·o``
counts          an integer from 0 on   one number ``o``                ``m·exp(o)``, the expected
                                                                       count
==============  =====================  ==============================  ==========================

``m`` and ``s`` are the mean and the standard deviation of the label over all clients' training
rows, from sums that clients could send. Inside training, a number ``y`` is ``(y − m)/s`` and a
count is ``y/m``, so that a learning rate means the same whatever the label's unit is. Predictions
and metrics are in the label's own unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # processes that fit with scikit-learn alone need not wait for torch
    from torch import Tensor


@dataclass(frozen=True)
class Kind:
    """A kind of task: the names of its losses and metrics, the default of each first."""

    losses: tuple[str, ...]
    metrics: tuple[str, ...]


TASKS = {
    "classification": Kind(
        ("cross_entropy",),
        (
            *("accuracy", "balanced_accuracy", "auc", "average_precision", "f1", "top5"),
            *("cross_entropy", "log_loss", "perplexity", "brier", "ece", "mce"),
        ),
    ),
    "regression": Kind(("squared", "absolute", "huber"), ("mae", "rmse", "r2")),
    "counts": Kind(("poisson", "squared", "absolute", "huber"), ("mae", "rmse", "r2")),
}
"""Which losses and metrics each task has (:mod:`glocal.nn.losses`, `glocal.evaluation.metrics`)."""


@dataclass(frozen=True)
class Target:
    """The task of a federation, and how its labels and the model's outputs get their unit."""

    task: str = "classification"
    location: float = 0.0
    scale: float = 1.0

    @property
    def classes(self) -> bool:
        """Whether labels are classes."""
        return self.task == "classification"

    @property
    def kind(self) -> Kind:
        """The losses and metrics that there are."""
        return TASKS[self.task]

    def fitted(self, y: Tensor) -> Target:
        """The same task, in the unit of these training labels."""
        if self.classes:
            return self
        mean, deviation = float(y.double().mean()), float(y.double().std(unbiased=False))
        if self.task == "counts":
            return Target(self.task, 0.0, mean if mean > 0 else 1.0)
        return Target(self.task, mean, deviation if deviation > 0 else 1.0)

    def standardised(self, y: Tensor) -> Tensor:
        """Labels as training sees them."""
        return y if self.classes else ((y.double() - self.location) / self.scale).float()

    def labels(self, y: Tensor) -> Tensor:
        """Labels of a federation in their own unit."""
        return y if self.classes else self.location + self.scale * y.double()

    def predictions(self, output: Tensor) -> Tensor:
        """What the model puts out as predictions in the label's unit; logits stay logits."""
        if self.classes:
            return output
        number = output[..., 0].double()
        return self.location + self.scale * (number.exp() if self.task == "counts" else number)

    def to_json(self) -> dict[str, Any]:
        """All of it, for a file."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Target:
        """What :meth:`to_json` wrote."""
        return cls(str(values["task"]), float(values["location"]), float(values["scale"]))


def linked(task: str, output: Tensor) -> Tensor:
    """The prediction in the unit of training: [n] of outputs [n, 1]."""
    number = output[..., 0]
    return number.exp() if task == "counts" else number
