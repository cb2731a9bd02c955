"""Transforms of all clients' inputs alike: images in another size, inputs on another scale."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import interpolate

from glocal.core.errors import GlocalError
from glocal.core.spec import written
from glocal.core.validation import integer
from glocal.data.normalising import standardised
from glocal.data.split import UnsplitData

Values = float | tuple[float, ...] | None
"""One value for all channels, one for each, or none."""


@dataclass(frozen=True)
class Transform:
    """A change to data that is not split yet, and its spec."""

    spec: str
    apply: Callable[[UnsplitData], UnsplitData]
    alike: bool = False
    """Whether it changes the inputs of all clients alike. Where it does not, and changes inputs or
    labels, clients no longer differ in label shares only (``label_shift_only``)."""


def resize(height: int, width: int | None = None) -> Transform:
    """All clients' images, and those of the central test set, in another size, as ``resize(32)``.

    Bilinear, and smoothed first where they become smaller.
    """
    integer(height, "the height of resize", 1, 1024)
    wide = height if width is None else integer(width, "the width of resize", 1, 1024)

    def resized(x: Tensor) -> Tensor:
        images = x if x.dim() == 4 else x[:, None]
        scaled = interpolate(
            images, (height, wide), mode="bilinear", antialias=True, align_corners=False
        )
        return scaled if x.dim() == 4 else scaled[:, 0]

    return _of_all(f"resize({height}{'' if width is None else f', {width}'})", resized)


def normalise(mean: Values = None, std: Values = None) -> Transform:
    """Inputs minus their mean, divided by their standard deviation, by channel.

    Fitted on each fold's training rows, after all other transforms; or with the values given, as in
    ``normalise(0.1307, 0.3081)`` or ``normalise([0.49, 0.48, 0.45], [0.25, 0.24, 0.26])``. The
    central test set is changed alike.
    """
    if (mean is None) != (std is None):
        raise GlocalError("normalise takes a mean and a std, or neither: give both.")
    if mean is None or std is None:

        def fitted(data: UnsplitData) -> UnsplitData:
            _check_numbers(data)
            return replace(data, normalised=True)

        return Transform("normalise()", fitted, alike=True)
    values = [torch.tensor(each, dtype=torch.float64).reshape(-1) for each in (mean, std)]
    if not bool(torch.cat(values).isfinite().all()) or not bool((values[1] > 0).all()):
        raise GlocalError("mean and std of normalise must be finite, and std above 0.")

    def scaled(x: Tensor) -> Tensor:
        for each in values:
            if each.numel() not in (1, x.shape[1]):
                raise GlocalError(
                    f"normalise has {each.numel()} values for {x.shape[1]} channels: give one, or "
                    "one for each channel."
                )
        return standardised(x, *values)

    return _of_all(f"normalise({written(mean)}, {written(std)})", scaled, images=False)


def _of_all(spec: str, change: Callable[[Tensor], Tensor], *, images: bool = True) -> Transform:
    """All clients' inputs changed alike, and those of the central test set."""

    def apply(data: UnsplitData) -> UnsplitData:
        if images:
            check_images(spec.partition("(")[0], data.x)
        else:
            _check_numbers(data)
        central = data.central and (change(data.central[0]), data.central[1])
        return replace(data, x=change(data.x), central=central)

    return Transform(spec, apply, alike=True)


def _check_numbers(data: UnsplitData) -> None:
    if data.rank is not None or not data.x.is_floating_point():
        raise GlocalError(
            "normalise is for arrays of numbers: the numbers of a table are standardised already, "
            "and tokens cannot be."
        )


def check_images(name: str, x: Tensor) -> None:
    """Raise unless inputs are images."""
    if x.dim() not in (3, 4) or not x.is_floating_point():
        raise GlocalError(
            f"{name} needs images [n, height, width] or [n, channels, height, width], not "
            f"{list(x.shape)} of {x.dtype}."
        )
