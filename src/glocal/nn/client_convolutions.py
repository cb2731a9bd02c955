"""Convolutions with kernels of each client's own, by programs of our own where these are faster.

Models write ``nn.Conv2d``. Under ``torch.func.vmap`` a convolution whose kernels differ from client
to client becomes one with a group for each client, and cuDNN runs most of those client by client.
*Tiled*, it is one program for all clients, each part of which multiplies matrices of one client
(:mod:`glocal.nn.convolution_kernels`).

:func:`way_of` is the rule between both: of shape, never of a clock, so that a run that is resumed
computes as it did before. It was read off layers that were timed both ways on one
H200 (docs/measurements/speed.md; ``benchmarks/convolutions.py`` times them again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor
from torch.overrides import TorchFunctionMode

from glocal.core.progress import print_note
from glocal.nn.convolution_operators import How, convolved

DEVICES = frozenset({"cuda"} if find_spec("triton") and not torch.version.hip else ())
"""Kinds of device on which there are programs of our own, which are written in Triton. They were
never tried on AMD's cards, which torch calls by the same name."""


KINDS = (torch.float32, torch.bfloat16)
"""Numbers that the programs compute with."""


@cache
def works_on(device: torch.device) -> bool:
    """Whether our programs can be launched there; if not, a note says why.

    Triton makes its launcher with a C compiler, and does not know all cards.
    """
    try:
        x = torch.zeros(1, 1, 1, 4, 4, device=device)
        how = How((1, 1), (0, 0), (1, 1), "single")
        how.output(x, torch.zeros(1, 8, 1, 3, 3, device=device), None, (2, 2)).sum().item()
    except Exception as error:  # whatever Triton raises
        reason = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
        print_note(f"convolutions stay with cuDNN, as Triton cannot be used ({reason[:160]}).")
        return False
    return True


class Layer(NamedTuple):
    """A convolution of one client, as the rule sees it."""

    examples: int
    channels: int
    filters: int
    kernel: tuple[int, int]
    places: int
    """Where the kernel is applied to an image."""
    pixels: int
    """Of an image with its padding."""
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1


LONGEST = 1 << 30
"""Numbers in a client's images up to which programs, which count in 32 bits, reach them."""

MOST = 65_535 * 128
"""Places in an output image up to which a launch has a program for each tile of them."""

LARGEST = 128
"""Pixels in a kernel of few channels up to which a program is written out for each of them."""


def way_of(layer: Layer) -> str:
    """``"tiled"``; ``"grouped"`` of grouped and depth-wise convolutions and of giant ones."""
    numbers = layer.examples * layer.pixels * max(layer.channels, layer.filters)
    fits = numbers <= LONGEST and layer.places <= MOST and prod(layer.kernel) <= LARGEST
    return "tiled" if layer.groups == 1 and fits else "grouped"


@dataclass(eq=False)
class ClientConvolutions(TorchFunctionMode):
    """While it lasts, convolutions of clients whose kernels differ go the way of the rule."""

    precision: str
    ways: dict[Layer, str] = field(default_factory=dict)
    """What was chosen for the layers seen so far."""

    def __post_init__(self) -> None:
        super().__init__()

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Called for each of torch's functions in place of it."""
        if func is not torch.conv2d:
            return func(*args, **(kwargs or {}))
        return self._convolved(*args, **(kwargs or {}))

    def _convolved(
        self,
        input: Tensor,  # the name that torch gives it
        weight: Tensor,
        bias: Tensor | None = None,
        stride: int | Sequence[int] = 1,
        padding: str | int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Tensor:
        on = input.device.type
        autocast = torch.is_autocast_enabled(on) if on in DEVICES else False
        kind = torch.get_autocast_dtype(on) if autocast else input.dtype
        ours = kind in KINDS and (autocast or input.dtype == weight.dtype)
        if input.dim() == 4 and on in DEVICES and ours and _clients_alone(input, weight):
            by, apart = _pair(stride), _pair(dilation)
            padded = _padding(padding, weight, apart)
            out = _out(input, weight, by, padded, apart)
            sides = (input.shape[2] + sum(padded[:2]), input.shape[3] + sum(padded[2:]))
            layer = Layer(
                *(len(input), input.shape[1], len(weight), _pair(weight.shape[-2:])),
                *(prod(out), prod(sides), apart, groups),
            )
            before = (padded[0], padded[2])
            # Padding that no kernel sees, and channels that do not match, are torch's to answer.
            odd = input.shape[1] != weight.shape[1] * groups or any(
                pad > (n - 1) * s + d * (k - 1)
                for pad, n, s, d, k in zip(before, out, by, apart, weight.shape[2:], strict=True)
            )
            self.ways[layer] = "grouped" if odd else way_of(layer)
            if self.ways[layer] == "tiled":
                # A method's own networks stay in single precision where the model has half.
                half = kind == torch.bfloat16 or self.precision != "bf16"
                how = How(by, before, apart, self.precision if half else "single")
                return tiled(input, weight, bias, how, out)
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)


def tiled(x: Tensor, weight: Tensor, bias: Tensor | None, how: How, out: tuple[int, int]) -> Tensor:
    """``torch.conv2d`` by programs of our own, in the numbers that autocast says."""
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(kind), weight.to(kind), None if bias is None else bias.to(kind)
    return convolved(x, weight, bias, how, out)


def _out(
    x: Tensor,
    weight: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> tuple[int, int]:
    """Rows and columns of the output."""
    top, bottom, left, right = padding
    sizes = (x.shape[2] + top + bottom, x.shape[3] + left + right)
    rows, columns = (
        (size - apart * (k - 1) - 1) // by + 1
        for size, k, by, apart in zip(sizes, weight.shape[2:], stride, dilation, strict=True)
    )
    return rows, columns


def _clients_alone(x: Tensor, weight: Tensor) -> bool:
    """Whether kernels are mapped over, as clients' are, and images over nothing else as well.

    Gradients of single examples map over these, too: what is left is one image a call.
    """
    return _mapped(weight) == 1 >= _mapped(x)


def _mapped(x: Tensor) -> int:
    """How many ``vmap`` map over a tensor."""
    levels = 0
    while is_functorch_wrapped_tensor(x):
        levels += is_batchedtensor(x)
        x = get_unwrapped(x)
    return levels


def _pair(given: int | Sequence[int]) -> tuple[int, int]:
    if isinstance(given, int):
        return given, given
    return (given[0], given[-1])


def _padding(
    given: str | int | Sequence[int], weight: Tensor, dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """Rows above and below, columns before and behind."""
    if isinstance(given, str):
        whole = [
            apart * (size - 1) if given == "same" else 0
            for size, apart in zip(weight.shape[2:], dilation, strict=True)
        ]
        (top, bottom), (left, right) = ((size // 2, size - size // 2) for size in whole)
        return top, bottom, left, right
    rows, columns = _pair(given)
    return rows, rows, columns, columns
