"""What is trained: layers, tasks, optimisers, augmentation, models."""

from glocal.nn.compat import check, convert
from glocal.nn.layers import (
    LSTM,
    Dropout,
    SpectralConv2d,
    SpectralLinear,
    group_norm,
    spectral_norm,
)

__all__ = [
    "LSTM",
    "Dropout",
    "SpectralConv2d",
    "SpectralLinear",
    "check",
    "convert",
    "group_norm",
    "spectral_norm",
]
