"""Tensors by name in safetensors files, which hold no code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.files import write


def save_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors by name to a safetensors file."""
    try:
        from safetensors.torch import save
    except ImportError as error:
        raise GlocalError(
            "models are saved as safetensors files: pip install safetensors."
        ) from error
    write(path, save({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}))


def load_tensors(path: str | Path, problem: str, remedy: str) -> dict[str, Tensor]:
    """The tensors in a safetensors file; where it cannot be read, the error has this wording."""
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except Exception as error:  # safetensors raises its own kinds
        raise GlocalError(f"{problem} ({str(error)[:200]}): {remedy}.") from error
