"""What a model is: its architecture, its classes, whose it is. It is saved as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glocal.core.errors import GlocalError, shown
from glocal.core.version import VERSION as GLOCAL
from glocal.nn import models

VERSION = 1
"""Of the format in which a model is saved."""

CLASSIFICATION, REGRESSION, COUNTS = TASKS = ("classification", "regression", "counts")


@dataclass(frozen=True)
class Description:
    """All that is known of a model but its weights and its preprocessing."""

    client: str
    """Whose model it is; of a run's description, nobody's: ``""``."""
    method: str
    task: str
    metric: str
    """The metric by which it was evaluated."""
    classes: tuple[str | int, ...]
    """The labels as they were given, in the order of the model's outputs; of numbers, none."""
    architecture: str
    """A name and its settings, such as ``mlp(200, 200)``; or, of an own model, where it was."""
    own: bool
    """Whether the model is the user's own, so that nobody else can build it."""
    input_shape: tuple[int, ...]
    """The shape of one example."""
    tokens: bool
    """Whether inputs are the ids of tokens rather than numbers."""
    outputs: int
    """How many classes the architecture was built for; 1 for a number."""
    location: float = 0.0
    scale: float = 1.0
    """Of a number: the unit in which the model puts it out, see :meth:`numbers`."""

    @property
    def has_classes(self) -> bool:
        """Whether the model tells classes apart, rather than predict a number."""
        return self.task == CLASSIFICATION

    def numbers(self, output: Tensor) -> Tensor:
        """The predictions [n] in the label's unit of outputs [n, 1].

        With the output ``o``, location ``m`` and scale ``s`` these are ``m + s·o`` and, of counts,
        the expected count ``m + s·exp(o)``.
        """
        number = output[..., 0]
        return self.location + self.scale * (number.exp() if self.task == COUNTS else number)

    def build(self, weights: Mapping[str, Tensor], file: Path, given: Any = None) -> nn.Module:
        """The architecture with these weights, ready to predict; an own one must be given.

        ``file`` is where the weights are from, for an error. A weight that two layers share may
        have one name only, and buffers that the architecture makes by itself need not be there.
        """
        if self.own:
            module = _given(given, self.architecture)
        elif given is not None:
            raise GlocalError(
                f"this is the model {self.architecture}, which is built by its name: leave "
                "module= out."
            )
        else:
            with torch.device("meta"):  # without memory: a damaged description may be of any size
                self._check(self._named(file), weights, file)
            module = self._named(file)
        self._check(module, weights, file)
        module.load_state_dict(dict(weights), strict=False)
        return module.eval()

    def _named(self, file: Path) -> nn.Module:
        """The architecture by its name."""
        try:
            return models.build(
                self.architecture, input_shape=self.input_shape, classes=self.outputs
            )
        except (RuntimeError, TypeError, OverflowError) as error:
            raise damaged(str(file.parent), self.input_shape) from error

    def _check(self, module: nn.Module, weights: Mapping[str, Tensor], file: Path) -> None:
        """Raise unless every parameter has a weight of its shape, and there are no others."""
        shapes = {name: tensor.shape for name, tensor in module.state_dict().items()}
        wrong = [n for n, _ in module.named_parameters() if n not in weights]
        wrong += [n for n, w in weights.items() if shapes.get(n) != w.shape]
        if wrong:
            raise GlocalError(
                f"the weights in {file} do not fit the model {type(module).__name__} at "
                f"{shown(wrong[0])}: give the architecture that was trained."
            )

    def to_json(self) -> dict[str, Any]:
        """The description as JSON holds it."""
        plain = {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
        return {"version": VERSION, "glocal": GLOCAL, **plain}

    @classmethod
    def from_json(cls, given: Any, where: str) -> Description:
        """The description again; ``where`` is the file, for an error."""
        if not isinstance(given, Mapping):
            raise damaged(where, given)
        if given.get("version") != VERSION:
            raise GlocalError(
                f"{where} is of format {shown(given.get('version'))}, and this version reads "
                f"format {VERSION}: save the model again with this version, or use the other "
                f"(glocal {str(given.get('glocal'))[:20]})."
            )
        kinds = {name: type_of for name, type_of in _KINDS.items() if name in given}
        if len(kinds) < len(_KINDS):
            raise damaged(where, sorted(_KINDS.keys() - kinds.keys())[0])
        for name, kind in kinds.items():
            if type(given[name]) is not kind:
                raise damaged(where, {name: given[name]})
        shape, classes = given["input_shape"], given["classes"]
        if not all(type(size) is int and size > 0 for size in shape):
            raise damaged(where, shape)
        if not all(type(label) in (str, int) for label in classes):
            raise damaged(where, classes)
        if given["task"] not in TASKS:
            raise damaged(where, {"task": given["task"]})
        if given["outputs"] != (len(classes) if given["task"] == CLASSIFICATION else 1):
            raise damaged(where, {"outputs": given["outputs"]})
        if not all(math.isfinite(given[name]) for name in ("location", "scale")):
            raise damaged(where, given["scale"])
        read = {name: given[name] for name in _KINDS}
        return cls(**(read | {"input_shape": tuple(shape), "classes": tuple(classes)}))


_KINDS = {
    "client": str,
    "method": str,
    "task": str,
    "metric": str,
    "classes": list,
    "architecture": str,
    "own": bool,
    "input_shape": list,
    "tokens": bool,
    "outputs": int,
    "location": float,
    "scale": float,
}


def damaged(where: str, given: Any) -> GlocalError:
    """The error for a file that was not written by us."""
    return GlocalError(f"{where} is damaged at {shown(given)}: save the model again.")


def class_names(classes: int, about: Mapping[str, Any]) -> tuple[str | int, ...]:
    """The label of each class as it was given, from a federation's ``describe``.

    Labels that were integers are integers again. A class that no row has is called by its number.
    """
    codes: Mapping[str, int] = about.get("labels") or {}
    names: list[str | int] = list(range(classes))
    for label, code in codes.items():
        names[code] = int(label) if about.get("integer_labels") else label
    return tuple(names)


def _given(given: Any, source: str) -> nn.Module:
    """The user's own module, of an object or of something that is called and returns one."""
    if given is None:
        raise GlocalError(
            f"this is an own model ({source}), which only you can build: give the architecture as "
            "module=, or --module file.py:name on the command line."
        )
    if not isinstance(given, nn.Module) and callable(given):
        given = given()
    if not isinstance(given, nn.Module):
        raise GlocalError(
            f"module={shown(given)} is no torch.nn.Module: give {source}, or a function that "
            "returns it."
        )
    return given


def listed(labels: Sequence[str | int]) -> list[str]:
    """Labels as text, for the names of columns."""
    return [str(label) for label in labels]
