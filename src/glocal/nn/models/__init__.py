"""Models by name: ``build("mlp(200, 200)", input_shape=(1, 28, 28), classes=10)``.

Every model takes a batch and returns logits, has no batch norm, and trains the same one client at
a time and vectorised (see :mod:`glocal.nn`). A new one is a builder
``(input_shape, classes, /, *args, **kwargs) -> nn.Module`` in ``REGISTRY``.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from glocal.core import validation
from glocal.core.errors import GlocalError
from glocal.core.spec import parse_call, written
from glocal.nn.models.bilstm import bilstm
from glocal.nn.models.cnn import cnn, lenet
from glocal.nn.models.headed import headed
from glocal.nn.models.image_question import image_question
from glocal.nn.models.lstm import char_lstm, word_lstm
from glocal.nn.models.mlp import logistic, mlp
from glocal.nn.models.mobilenet import mobilenet
from glocal.nn.models.resnet import resnet10, resnet18
from glocal.nn.models.vgg import vgg

REGISTRY: dict[str, Callable[..., nn.Module]] = {
    "bilstm": bilstm,
    "char-lstm": char_lstm,
    "cnn": cnn,
    "headed": headed,
    "image-question": image_question,
    "lenet": lenet,
    "logistic": logistic,
    "mlp": mlp,
    "mobilenet": mobilenet,
    "resnet10": resnet10,
    "resnet18": resnet18,
    "vgg": vgg,
    "word-lstm": word_lstm,
}


def completed(spec: str, vocabulary: int | None) -> str:
    """The spec with the number of token ids, where a model needs that and nobody said it."""
    name, args, kwargs = parse_call(spec)
    takes = name in REGISTRY and "vocabulary" in validation.declared(REGISTRY[name])[0]
    if vocabulary is None or not takes or "vocabulary" in kwargs:
        return spec
    given = [*map(written, args), *(f"{key}={written(value)}" for key, value in kwargs.items())]
    return f"{name}({', '.join([*given, f'vocabulary={vocabulary}'])})"


def build(spec: str, *, input_shape: tuple[int, ...], classes: int, seed: int = 0) -> nn.Module:
    """The model of a spec, initialised from ``seed``; the caller's random state is untouched.

    ``input_shape`` is that of one example: (channels, height, width), (features,) or (time,);
    ``classes`` of a language model is the size of its vocabulary.
    """
    shape = tuple(input_shape)
    if not shape or min(shape) < 1 or classes < 1:
        raise GlocalError(
            f"no model fits inputs of shape {shape} and {classes} classes: give at least one "
            "feature and one class."
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return validation.build("model", REGISTRY, spec, shape, classes)
