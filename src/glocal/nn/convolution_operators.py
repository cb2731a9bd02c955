"""Convolutions of stacked clients, each with its own kernels, and both of their gradients.

Three operators, each the derivative of the others, so that all orders of derivatives are made of
them. On a GPU they are programs in Triton (:mod:`glocal.nn.convolution_kernels`); elsewhere they
are torch's convolutions with a group for each client, which is what they are tested against.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class How(NamedTuple):
    """How a kernel goes over an image."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    """Rows above the image and columns before it; what is behind it follows from the sizes."""
    dilation: tuple[int, int]
    precision: str
    """In which numbers of 32 bits are multiplied: ``single`` or ``tf32``."""

    def output(self, x: Tensor, weight: Tensor, bias: Tensor | None, out: Sequence[int]) -> Tensor:
        """Stacked clients' images convolved, to images of ``out`` pixels."""
        x = self._padded(x, weight.shape[-2:], out)
        if room := self._room(x.shape[2], weight.shape[1]):
            x, weight = (functional.pad(t, (0, 0, 0, 0, 0, room)) for t in (x, weight))
        return _output(x, weight, bias, self.stride, self.dilation, self.precision)

    def of_images(self, dy: Tensor, weight: Tensor, image: Sequence[int]) -> Tensor:
        """Stacked clients' gradient of images of ``image`` pixels.

        It is a convolution too: of ``dy`` with zeros between its pixels where the stride skipped
        some, and around it where the kernel did not reach all of its own pixels.
        """
        around: list[int] = []
        for i in (1, 0):  # columns first, as ``pad`` takes them
            dy = _apart(dy, self.stride[i], i - 2)
            reach = self.dilation[i] * (weight.shape[i - 2] - 1)
            before = reach - self.padding[i]
            around += [before, image[i] + reach - before - dy.shape[i - 2]]
        turned = weight.transpose(1, 2).flip(-2, -1)
        x = _surrounded(dy, around)
        return _output(x, turned, None, (1, 1), self.dilation, self.precision)

    def of_kernels(self, x: Tensor, dy: Tensor, kernel: Sequence[int]) -> Tensor:
        """Stacked clients' gradient of kernels of ``kernel`` pixels."""
        x, channels = self._padded(x, kernel, dy.shape[-2:]), x.shape[2]
        if room := self._room(channels, dy.shape[2]):
            x = functional.pad(x, (0, 0, 0, 0, 0, room))
        how = (self.stride, self.dilation)
        if not _many(x, dy):
            few: Tensor = _kernels_of_few(x, dy, *how, kernel)
            return few
        images = (_channels_last(t, 2) for t in (x, dy))
        dw = _channels_first(_kernels_of_many(*images, *how, self.precision, kernel), 2)
        return dw[:, :, :channels]

    def _room(self, channels: int, filters: int) -> int:
        """How many channels of zeros are added, so that tensor cores multiply few of them too.

        It pays in half precision, in which these are fastest.
        """
        pays = self.precision == "bf16" and filters >= 2 * MANY and filters % ALIGNED == 0
        return MANY - channels if pays and channels < MANY else 0

    def _padded(self, x: Tensor, kernel: Sequence[int], out: Sequence[int]) -> Tensor:
        """Images with as much around them as the kernel sees, and no more."""
        around: list[int] = []
        for i in (1, 0):
            seen = (out[i] - 1) * self.stride[i] + self.dilation[i] * (kernel[i] - 1) + 1
            around += [self.padding[i], seen - self.padding[i] - x.shape[i - 2]]
        return _surrounded(x, around)


MANY = 16
"""Channels, and filters, from which on tensor cores multiply."""

ALIGNED = 8
"""Channels come in multiples of that there: so many half-precision numbers are read at once."""


def _many(*images: Tensor) -> bool:
    """Whether images have channels enough, [clients, examples, channels, …] each."""
    return all(x.shape[2] >= MANY and x.shape[2] % ALIGNED == 0 for x in images)


def _output(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    dilation: tuple[int, int],
    precision: str,
) -> Tensor:
    """Of padded images [clients, examples, channels, …], kernels [clients, filters, channels, …].

    Copies in another order are made here, and not by the operators, so that a compiler makes them
    where the numbers are computed.
    """
    filters = weight.shape[1]
    if filters >= MANY and filters % ALIGNED == 0 and _many(x):
        x, weight = _channels_last(x, 2), _channels_last(weight, 2)
        return _channels_first(_output_of_many(x, weight, bias, stride, dilation, precision), 2)
    room = functional.pad(weight.movedim(1, -1), (0, -filters % ALIGNED)).contiguous()
    few: Tensor = _output_of_few(x.contiguous(), room, bias, filters, stride, dilation)
    return few


def _channels_last(x: Tensor, dim: int) -> Tensor:
    return x.movedim(dim, -1).contiguous()


def _channels_first(x: Tensor, dim: int) -> Tensor:
    return x.movedim(-1, dim)


def _surrounded(x: Tensor, around: Sequence[int]) -> Tensor:
    return functional.pad(x, list(around)) if any(around) else x


def _apart(x: Tensor, by: int, dim: int) -> Tensor:
    """Images with ``by`` − 1 zeros between one pixel and the next, in a dimension from the end."""
    if by == 1:
        return x
    size = x.shape[dim]
    x = (
        functional.pad(x.unsqueeze(-1), (0, by - 1))
        if dim == -1
        else functional.pad(x.unsqueeze(-2), (0, 0, 0, by - 1))
    )
    return x.flatten(dim - 1, dim).narrow(dim, 0, (size - 1) * by + 1)


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, how: How, out: Any) -> Tensor:
    """Images [examples, channels, rows, columns] convolved, to images of ``out`` pixels."""
    y: Tensor = _Convolved.apply(x, weight, bias, how, tuple(out))  # type: ignore[no-untyped-call]
    return y


def _stacked(in_dims: Sequence[Any], *tensors: Tensor | None) -> list[Any]:
    """Tensors with the dimension that is mapped over first, one that is not mapped repeated."""
    pairs = list(zip(tensors, in_dims, strict=True))
    clients = next(t.shape[dim] for t, dim in pairs if t is not None and dim is not None)

    def moved(t: Tensor | None, dim: int | None) -> Tensor | None:
        if t is None:
            return None
        return t.expand(clients, *t.shape) if dim is None else t.movedim(dim, 0)

    return [moved(t, dim) for t, dim in pairs]


class _Convolved(torch.autograd.Function):
    @staticmethod
    def forward(
        x: Tensor, weight: Tensor, bias: Tensor | None, how: How, out: tuple[int, int]
    ) -> Tensor:
        bias = None if bias is None else bias.unsqueeze(0)
        return how.output(x.unsqueeze(0), weight.unsqueeze(0), bias, out).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, bias, ctx.how, _ = inputs
        ctx.save_for_backward(x, weight)
        ctx.biased = bias is not None

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        image, kernel = tuple(x.shape[-2:]), tuple(weight.shape[-2:])
        dx = dw = db = None
        if ctx.needs_input_grad[0]:
            dx = _OfImages.apply(dy, weight, ctx.how, image)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[1]:
            dw = _OfKernels.apply(x, dy, ctx.how, kernel)  # type: ignore[no-untyped-call]
        if ctx.biased and ctx.needs_input_grad[2]:
            db = dy.sum((0, 2, 3))
        return dx, dw, db, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, weight: Any, bias: Any, how: How, out: Any) -> Any:
        x, weight, bias = _stacked(in_dims[:3], x, weight, bias)
        return how.output(x, weight, bias, out), 0


class _OfImages(torch.autograd.Function):
    @staticmethod
    def forward(dy: Tensor, weight: Tensor, how: How, image: tuple[int, int]) -> Tensor:
        return how.of_images(dy.unsqueeze(0), weight.unsqueeze(0), image).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        dy, weight, ctx.how, _ = inputs
        ctx.save_for_backward(dy, weight)

    @staticmethod
    def backward(ctx: Any, x: Tensor) -> Any:
        dy, weight = ctx.saved_tensors
        of_dy = of_weight = None
        if ctx.needs_input_grad[0]:
            of_dy = convolved(x, weight, None, ctx.how, dy.shape[-2:])
        if ctx.needs_input_grad[1]:
            kernel = tuple(weight.shape[-2:])
            of_weight = _OfKernels.apply(x, dy, ctx.how, kernel)  # type: ignore[no-untyped-call]
        return of_dy, of_weight, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, dy: Any, weight: Any, how: How, image: Any) -> Any:
        dy, weight = _stacked(in_dims[:2], dy, weight)
        return how.of_images(dy, weight, image), 0


class _OfKernels(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, dy: Tensor, how: How, kernel: tuple[int, int]) -> Tensor:
        return how.of_kernels(x.unsqueeze(0), dy.unsqueeze(0), kernel).squeeze(0)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, dy, ctx.how, _ = inputs
        ctx.save_for_backward(x, dy)

    @staticmethod
    def backward(ctx: Any, weight: Tensor) -> Any:
        x, dy = ctx.saved_tensors
        of_x = of_dy = None
        if ctx.needs_input_grad[0]:
            image = tuple(x.shape[-2:])
            of_x = _OfImages.apply(dy, weight, ctx.how, image)  # type: ignore[no-untyped-call]
        if ctx.needs_input_grad[1]:
            of_dy = convolved(x, weight, None, ctx.how, dy.shape[-2:])
        return of_x, of_dy, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Any, dy: Any, how: How, kernel: Any) -> Any:
        x, dy = _stacked(in_dims[:2], x, dy)
        return how.of_kernels(x, dy, kernel), 0


@torch.library.custom_op(
    "glocal::output_of_many",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, "
    "int[] stride, int[] dilation, str precision) -> Tensor",
)
def _output_of_many(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    dilation: Sequence[int],
    precision: str,
) -> Tensor:
    """[clients, examples, …, channels], [clients, filters, …, channels] → [… filters]."""
    if x.device.type == "cuda":
        from glocal.nn import convolution_launch

        with torch.cuda.device(x.device):
            return convolution_launch.output_of_many(x, weight, bias, stride, dilation, precision)
    x, weight = _channels_first(x, 2), _channels_first(weight, 2)
    return _channels_last(_grouped(x, weight, bias, stride, dilation), 2)


@torch.library.custom_op(
    "glocal::kernels_of_many",
    mutates_args=(),
    schema="(Tensor x, Tensor dy, "
    "int[] stride, int[] dilation, str precision, int[] kernel) -> Tensor",
)
def _kernels_of_many(
    x: Tensor,
    dy: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    precision: str,
    kernel: Sequence[int],
) -> Tensor:
    """[clients, examples, …, channels], [… filters] → [clients, filters, …, channels]."""
    if x.device.type == "cuda":
        from glocal.nn import convolution_launch

        with torch.cuda.device(x.device):
            return convolution_launch.kernels_of_many(x, dy, stride, dilation, precision, kernel)
    x, dy = _channels_first(x, 2), _channels_first(dy, 2)
    return _channels_last(_grouped_kernels(x, dy, stride, dilation, kernel), 2)


@torch.library.custom_op(
    "glocal::output_of_few",
    mutates_args=(),
    schema="(Tensor x, Tensor weight, Tensor? bias, "
    "int filters, int[] stride, int[] dilation) -> Tensor",
)
def _output_of_few(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    filters: int,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """[clients, examples, channels, …], [clients, channels, …, filters and room] → [… filters, …].

    Numbers of 32 bits are multiplied in single precision, whatever the precision is.
    """
    if x.device.type == "cuda":
        from glocal.nn import convolution_launch

        with torch.cuda.device(x.device):
            return convolution_launch.output_of_few(x, weight, bias, filters, stride, dilation)
    return _grouped(x, weight[..., :filters].movedim(-1, 1), bias, stride, dilation)


@torch.library.custom_op(
    "glocal::kernels_of_few",
    mutates_args=(),
    schema="(Tensor x, Tensor dy, int[] stride, int[] dilation, int[] kernel) -> Tensor",
)
def _kernels_of_few(
    x: Tensor,
    dy: Tensor,
    stride: Sequence[int],
    dilation: Sequence[int],
    kernel: Sequence[int],
) -> Tensor:
    """[clients, examples, channels, …], [… filters, …] → [clients, filters, channels, …]."""
    if x.device.type == "cuda":
        from glocal.nn import convolution_launch

        with torch.cuda.device(x.device):
            return convolution_launch.kernels_of_few(x, dy, stride, dilation, kernel)
    return _grouped_kernels(x, dy, stride, dilation, kernel)


def _grouped(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    dilation: Sequence[int],
) -> Tensor:
    """The output by torch, with a group for each client."""
    clients, flat = len(x), None if bias is None else bias.flatten()
    y = functional.conv2d(_by_group(x), weight.flatten(0, 1), flat, stride, 0, dilation, clients)
    return y.view(len(y), clients, -1, *y.shape[2:]).transpose(0, 1).contiguous()


def _grouped_kernels(
    x: Tensor, dy: Tensor, stride: Sequence[int], dilation: Sequence[int], kernel: Sequence[int]
) -> Tensor:
    """The gradient of kernels by torch, with a group for each client."""
    weight = x.new_empty((len(x), dy.shape[2], x.shape[2], *kernel))
    gradients = torch.ops.aten.convolution_backward(
        *(_by_group(dy), _by_group(x), weight.flatten(0, 1), None, stride, [0, 0], dilation),
        *(False, [0, 0], len(x), [False, True, False]),
    )
    gradient: Tensor = gradients[1]
    return gradient.view_as(weight)


def _by_group(x: Tensor) -> Tensor:
    return x.transpose(0, 1).flatten(1, 2)


def _out(image: Any, kernel: Any, stride: Any, dilation: Any) -> list[int]:
    sizes = zip(image, kernel, stride, dilation, strict=True)
    return [(size - apart * (k - 1) - 1) // by + 1 for size, k, by, apart in sizes]


@_output_of_many.register_fake
def _(x: Tensor, weight: Tensor, bias: Any, stride: Any, dilation: Any, precision: str) -> Tensor:
    out = _out(x.shape[2:-1], weight.shape[2:-1], stride, dilation)
    return x.new_empty((*x.shape[:2], *out, weight.shape[1]))


@_kernels_of_many.register_fake
def _(x: Tensor, dy: Tensor, stride: Any, dilation: Any, precision: str, kernel: Any) -> Tensor:
    return x.new_empty((len(x), dy.shape[-1], *kernel, x.shape[-1]))


@_output_of_few.register_fake
def _(x: Tensor, weight: Tensor, bias: Any, filters: int, stride: Any, dilation: Any) -> Tensor:
    out = _out(x.shape[3:], weight.shape[2:-1], stride, dilation)
    return x.new_empty((*x.shape[:2], filters, *out))


@_kernels_of_few.register_fake
def _(x: Tensor, dy: Tensor, stride: Any, dilation: Any, kernel: Any) -> Tensor:
    return x.new_empty((len(x), dy.shape[2], x.shape[2], *kernel))
