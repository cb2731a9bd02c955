"""A model for other programs: torch's own exported program, and ONNX.

Either takes inputs as in training, a batch of any size, and gives the probabilities of the classes
(the prediction where there are none). How raw rows become inputs is in ``preprocessing.json``.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from glocal.core.errors import GlocalError, unknown
from glocal.prediction.client_model import ClientModel
from glocal.prediction.description import Description

FORMATS = {"folder": None, "torch": "model.pt2", "onnx": "model.onnx"}
"""The formats, and the file that each adds to the folder."""


class Outputs(nn.Module):
    """A model whose output is what its user asks for."""

    def __init__(self, module: nn.Module, about: Description) -> None:
        super().__init__()
        self.module = module
        self.about = about

    def forward(self, inputs: Tensor) -> Tensor:
        """Probabilities of classes, or predictions."""
        out: Tensor = self.module(inputs)
        return torch.softmax(out, -1) if self.about.has_classes else self.about.numbers(out)


def check_format(format: str) -> None:
    """Refuse a format that there is none of, or that needs a package more."""
    if format not in FORMATS:
        raise unknown("format", format, FORMATS)
    if format == "onnx" and not (find_spec("onnx") and find_spec("onnxscript")):
        raise GlocalError("--format onnx needs onnx and onnxscript: pip install 'glocal[onnx]'.")


def export(model: ClientModel, folder: Path, format: str = "folder") -> None:
    """Write the model's folder and, of a format for other programs, its file inside."""
    check_format(format)
    file = FORMATS[format]
    extra = {} if file is None else {file: _program(model, format)}
    model.save(folder, extra)


def _program(model: ClientModel, format: str) -> bytes:
    """The model as the content of a file."""
    about = model.description
    kind = torch.int64 if about.tokens else torch.float32
    example = torch.zeros(2, *about.input_shape, dtype=kind)
    outputs = Outputs(model.module, about).eval()
    shapes = {"inputs": {0: torch.export.Dim("rows", min=1)}}
    content = io.BytesIO()
    try:
        with quiet():
            exported = torch.export.export(outputs, (example,), dynamic_shapes=shapes)
            if format == "torch":
                torch.export.save(exported, content)
            else:
                _onnx(exported, content)
    except Exception as error:  # whatever torch's tracer raises about a user's own model
        raise GlocalError(
            f"the model {about.architecture} cannot be exported to {format} "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]}): export it as a "
            "folder."
        ) from error
    return content.getvalue()


def _onnx(exported: Any, content: io.BytesIO) -> None:
    program = torch.onnx.export(
        exported, (), input_names=["inputs"], output_names=["outputs"], verbose=False, dynamo=True
    )
    assert program is not None
    content.write(program.model_proto.SerializeToString())


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Torch's exporters warn and print about themselves, which is of no use to whoever exports."""
    level = logging.root.manager.disable
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(level)
