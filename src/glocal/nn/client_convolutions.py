"""Convolutions with kernels of each client's own, as products of matrices where that is faster.

Models write ``nn.Conv2d``. Under ``torch.func.vmap`` a convolution whose kernels differ from client
to client becomes one with a group for each client, and cuDNN runs most of those client by client.
*Unfolded*, the image of a client is copied once, so that every place has the pixels which the
kernel sees there, and one product of matrices for all clients does the rest::

    y[o, p] = Σ_q w[o, q] · x[q, p]      o: output channel, p: place in a batch, q: pixel in a patch

Neither way is the faster one for all shapes. :func:`way_of` is the rule: of shape, precision and
the card's memory, never of a clock, so that a run that is resumed computes as it did before. It was
read off six layers on one H200 (docs/measurements/speed.md; ``benchmarks/convolutions.py`` times
them again).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._C._functorch import get_unwrapped, is_batchedtensor, is_functorch_wrapped_tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

DEVICES = frozenset({"cuda"})
"""Kinds of device on which kernels of each client's own may be unfolded."""

SHARE_OF_MEMORY = 48
"""What is copied for one layer, of all clients together, may take this part of the card: what all
layers copied is kept until their gradients are made."""


class Layer(NamedTuple):
    """A convolution of one client, as the rule sees it."""

    examples: int
    channels: int
    filters: int
    kernel: tuple[int, int]
    places: int
    """Where the kernel is applied to an image."""
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1

    def copied(self, size: int) -> int:
        """Bytes that unfolding copies for a client, with so many for a number."""
        return size * self.examples * self.channels * prod(self.kernel) * self.places


def way_of(layer: Layer, precision: str, clients: int, memory: float) -> str:
    """``"unfolded"`` or ``"grouped"``, for the layer of so many clients on a card of such memory.

    - in single precision, unfolded: cuDNN's grouped convolutions were slower in all six layers;
    - in TF32, where the kernel is larger than 3×3 and there are 16 filters or more: of smaller
      kernels cuDNN has grouped convolutions in TF32, and with few filters copying is most of it;
    - in bfloat16, where input and output have more than 128 channels.

    Dilated, grouped and depth-wise convolutions stay as they are, and so does a layer of which
    unfolding would copy more than its share of the memory.
    """
    size = 2 if precision == "bf16" else 4
    if layer.groups != 1 or layer.dilation != (1, 1):
        return "grouped"
    if clients * layer.copied(size) > memory / SHARE_OF_MEMORY:
        return "grouped"
    if precision == "tf32":
        gains = max(layer.kernel) > 3 and layer.filters >= 16
    elif precision == "bf16":
        gains = min(layer.channels, layer.filters) > 128
    else:
        gains = True
    return "unfolded" if gains else "grouped"


@dataclass(eq=False)
class ClientConvolutions(TorchFunctionMode):
    """While it lasts, convolutions of clients whose kernels differ go the way of the rule."""

    precision: str
    clients: int
    """Clients that train at once."""
    memory: float
    """Bytes that the device has."""
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
        how = (_pair(stride), _padding(padding, weight, _pair(dilation)), _pair(dilation), groups)
        if input.dim() == 4 and input.device.type in DEVICES and _clients_alone(input, weight):
            layer = _layer(input, weight, *how)
            way = way_of(layer, self.precision, self.clients, self.memory)
            self.ways[layer] = way
            if way == "unfolded":
                return unfolded(input, weight, bias, *how[:2], groups)
        return torch.conv2d(input, weight, bias, stride, padding, dilation, groups)


def unfolded(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    groups: int = 1,
) -> Tensor:
    """``torch.conv2d`` as a product of matrices; ``padding`` is left, right, top, bottom."""
    if torch.is_autocast_enabled(x.device.type):
        kind = torch.get_autocast_dtype(x.device.type)
        x, weight, bias = x.to(kind), weight.to(kind), None if bias is None else bias.to(kind)
    if any(padding):
        x = functional.pad(x, padding)
    filters, channels, *kernel = weight.shape
    patches = _Patches.apply(x, tuple(kernel), stride)  # type: ignore[no-untyped-call]
    places = patches.shape[-3:]
    y: Tensor = weight.reshape(groups, filters // groups, -1) @ patches.reshape(
        groups, channels * prod(kernel), -1
    )
    y = y.reshape(filters, *places)
    if bias is not None:
        y = y + bias.reshape(-1, 1, 1, 1)
    return y.transpose(0, 1)


_ORDER = (-5, -2, -1, -6, -4, -3)
"""Channel, row and column in the kernel, example, row and column: where each is after unfolding."""

_ORDER_BACK = (-3, -6, -2, -1, -5, -4)


def _reordered(x: Tensor, order: tuple[int, ...]) -> Tensor:
    """Its last six dimensions in another order."""
    return x.permute(*range(x.dim() - 6), *order)


class _Patches(torch.autograd.Function):
    """What a kernel sees at each place: […, examples, channels, rows, columns] in order ``_ORDER``.

    torch's own gradient of ``unfold`` is computed client by client under ``vmap``.
    """

    @staticmethod
    def forward(x: Tensor, kernel: tuple[int, int], stride: tuple[int, int]) -> Tensor:
        views = x.unfold(-2, kernel[0], stride[0]).unfold(-2, kernel[1], stride[1])
        return _reordered(views, _ORDER).clone(memory_format=torch.contiguous_format)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, *how = inputs
        ctx.how = *how, tuple(x.shape[-2:])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Folded.apply(gradient, *ctx.how), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], x: Tensor, *how: Any) -> tuple[Tensor, int]:
        return _Patches.apply(x.movedim(in_dims[0], 0), *how), 0  # type: ignore[no-untyped-call]


class _Folded(torch.autograd.Function):
    """The transpose of :class:`_Patches`: sums of what became of each pixel."""

    @staticmethod
    def forward(
        gradient: Tensor,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        image: tuple[int, int],
    ) -> Tensor:
        g = _reordered(gradient, _ORDER_BACK)  # […, rows, columns, of the kernel, of the kernel]
        back = torch.ops.aten.unfold_backward.default
        g = back(g, [*g.shape[:-3], image[1], kernel[0]], g.dim() - 3, kernel[1], stride[1])
        folded: Tensor = back(g, [*g.shape[:-3], *image], g.dim() - 3, kernel[0], stride[0])
        return folded

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, ctx.kernel, ctx.stride, _ = inputs

    @staticmethod
    def backward(ctx: Any, x: Tensor) -> Any:
        patches = _Patches.apply(x, ctx.kernel, ctx.stride)  # type: ignore[no-untyped-call]
        return patches, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], g: Tensor, *how: Any) -> tuple[Tensor, int]:
        return _Folded.apply(g.movedim(in_dims[0], 0), *how), 0  # type: ignore[no-untyped-call]


def _layer(
    x: Tensor,
    weight: Tensor,
    stride: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Layer:
    filters, _, *kernel = weight.shape
    left, right, top, bottom = padding
    sizes = (x.shape[2] + top + bottom, x.shape[3] + left + right)
    places = (
        (size - apart * (k - 1) - 1) // by + 1
        for size, k, by, apart in zip(sizes, kernel, stride, dilation, strict=True)
    )
    shape = (len(x), x.shape[1], filters, (kernel[0], kernel[1]), prod(places))
    return Layer(*shape, dilation, groups)


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
    """Left, right, top and bottom, as ``functional.pad`` takes them."""
    if isinstance(given, str):
        whole = [
            apart * (size - 1) if given == "same" else 0
            for size, apart in zip(weight.shape[2:], dilation, strict=True)
        ]
        (top, bottom), (left, right) = ((size // 2, size - size // 2) for size in whole)
        return left, right, top, bottom
    rows, columns = _pair(given)
    return columns, columns, rows, rows
