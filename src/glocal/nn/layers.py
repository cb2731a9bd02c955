"""Layers that give the same results for one client at a time and under ``torch.func.vmap``.

Some of torch's layers draw from a global generator (dropout), keep state between batches (batch and
spectral norm) or have no batching rule (LSTM). The layers here are pure functions of parameters,
input and key; :mod:`glocal.nn.compat` replaces torch's layers by them.

- Dropout: Srivastava et al., *Dropout: a simple way to prevent neural networks from overfitting*,
  JMLR 2014; the mask is a function of a key (:mod:`glocal.core.rng`).
- LSTM: Hochreiter, Schmidhuber, *Long short-term memory*, Neural Computation 1997, as ``nn.LSTM``.
- Spectral norm: Miyato et al., *Spectral normalization for generative adversarial networks*,
  ICLR 2018. Departure: the power iteration starts afresh in every forward pass instead of keeping
  its vectors, so that a layer is a function of its weight alone.
- Group norm in place of batch norm: Hsieh et al., *The non-IID data quagmire of decentralized
  machine learning*, ICML 2020.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import PackedSequence

from glocal.core import rng
from glocal.core.errors import GlocalError


class Dropout(nn.Module):
    """Zeroes each entry with probability ``p`` in training, by the mask of ``key``.

    Whoever calls the model substitutes ``key`` for every step (``functional_call`` with
    ``"<path>.key"``); until then every call draws the same mask. The first dimension is the batch:
    rows padded at its end leave the masks of the others as they are.

    Args:
        p: Probability of a zero, in [0, 1).
        channels: Zero whole channels (the second dimension), as ``nn.Dropout2d`` does.
    """

    key: Tensor

    def __init__(self, p: float = 0.5, *, channels: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise GlocalError(f"dropout p={p} is not in [0, 1): give a probability such as 0.2.")
        self.p = p
        self.channels = channels
        self.register_buffer("key", torch.tensor(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` with entries zeroed and the rest scaled by 1 / (1 − p)."""
        if not self.training or self.p == 0.0:
            return x
        shape = (*x.shape[:2], *(1,) * (x.dim() - 2)) if self.channels else x.shape
        keep = rng.uniform(self.key, shape) >= self.p
        return x * keep.to(x.dtype) / (1.0 - self.p)

    def extra_repr(self) -> str:
        """The arguments, as ``print(model)`` shows them."""
        return f"p={self.p}" + (", channels=True" if self.channels else "")


class LSTM(nn.Module):
    """``nn.LSTM`` from cells: same arguments (batches first), names, gate order, initialisation.

    Where sequences are padded, ``real`` says which positions are none of it (packing is not
    needed): there nothing changes, in either direction, so that the last states are those of a
    sequence without its padding.
    """

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        *,
        bias: bool = True,
        batch_first: bool = True,
        dropout: float = 0.0,
        bidirectional: bool = False,
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.bidirectional = bidirectional
        self.directions = ("", "_reverse") if bidirectional else ("",)
        for i in range(num_layers):
            read = hidden_size * len(self.directions) if i else input_size
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (4 * hidden_size, read),
                "weight_hh": (4 * hidden_size, hidden_size),
                "bias_ih": (4 * hidden_size,),
                "bias_hh": (4 * hidden_size,),
            }
            for direction in self.directions:
                for name, shape in shapes.items():
                    if bias or not name.startswith("bias"):
                        weight = nn.Parameter(torch.empty(shape))
                        self.register_parameter(f"{name}_l{i}{direction}", weight)
        self.reset_parameters()
        self.dropouts = nn.ModuleList(Dropout(dropout) for _ in range(num_layers - 1))

    def reset_parameters(self) -> None:
        """Uniform within 1 / √hidden, as ``nn.LSTM``."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters(recurse=False):
            nn.init.uniform_(weight, -bound, bound)

    def forward(
        self,
        x: Tensor | PackedSequence,
        hx: tuple[Tensor, Tensor] | None = None,
        real: Tensor | None = None,
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The last layer's output at every time, and every layer's last ``(h, c)``.

        ``real`` [batch, time] is False at padding; none: there is none.
        """
        if isinstance(x, PackedSequence) or x.dim() != 3:
            raise GlocalError(
                "glocal.nn.LSTM reads a padded batch of sequences, a tensor of three dimensions: "
                "pad (pad_sequence) rather than pack, and give one sequence as x[None]."
            )
        out = x if self.batch_first else x.transpose(0, 1)
        directions = len(self.directions)
        zero = out.new_zeros(self.num_layers * directions, out.shape[0], self.hidden_size)
        h0, c0 = (zero, zero) if hx is None else hx
        last: list[tuple[Tensor, Tensor]] = []
        for i in range(self.num_layers):
            if i:
                out = self.dropouts[i - 1](out)
            outputs = []
            for d in range(directions):
                start = h0[i * directions + d], c0[i * directions + d]
                output, h, c = self._layer(f"l{i}{self.directions[d]}", out, *start, real)
                outputs.append(output)
                last.append((h, c))
            out = torch.cat(outputs, -1) if directions > 1 else outputs[0]
        h, c = (torch.stack(states) for states in zip(*last, strict=True))
        return (out if self.batch_first else out.transpose(0, 1)), (h, c)

    def _layer(
        self, which: str, x: Tensor, h: Tensor, c: Tensor, real: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """One layer in one direction over ``x`` [batch, time, features]."""
        bias = None
        if self.bias:
            bias = getattr(self, f"bias_ih_{which}") + getattr(self, f"bias_hh_{which}")
        recurrent = getattr(self, f"weight_hh_{which}")
        # What the input adds to the gates needs no loop: one product for all times.
        gates = functional.linear(x, getattr(self, f"weight_ih_{which}"), bias).unbind(1)
        times = range(len(gates))
        outputs = [h] * len(gates)
        for t in reversed(times) if which.endswith("reverse") else times:
            i, f, g, o = (gates[t] + functional.linear(h, recurrent)).chunk(4, -1)
            new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            new_h = torch.sigmoid(o) * torch.tanh(new_c)
            if real is None:
                h, c = new_h, new_c
            else:
                here = real[:, t, None]
                h, c = torch.where(here, new_h, h), torch.where(here, new_c, c)
            outputs[t] = h
        return torch.stack(outputs, 1), h, c

    def extra_repr(self) -> str:
        """The arguments, as ``print(model)`` shows them."""
        both = ", bidirectional=True" if self.bidirectional else ""
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}{both}"


def spectral_norm(weight: Tensor, iterations: int = 10) -> Tensor:
    """``weight / σ``, σ the largest singular value of the weight as a matrix (out, rest).

    σ = uᵀ W v, where u and v come from power iteration and count as constants for the gradient. The
    estimate nears σ from below; it takes more iterations where the two largest values are close.
    """
    matrix = weight.flatten(1)
    w = matrix.detach()
    # A fixed start that is no pattern a weight is likely to be orthogonal to.
    u = torch.cos(torch.arange(w.shape[0], device=w.device, dtype=w.dtype))
    v = functional.normalize(w.T @ u, dim=0)
    for _ in range(iterations):
        u = functional.normalize(w @ v, dim=0)
        v = functional.normalize(w.T @ u, dim=0)
    sigma = torch.dot(u, matrix @ v)
    return weight / torch.clamp(sigma, min=torch.finfo(w.dtype).tiny)


class SpectralLinear(nn.Linear):
    """``nn.Linear`` whose weight has spectral norm 1."""

    iterations = 10

    def forward(self, input: Tensor) -> Tensor:
        """``x (W / σ)ᵀ + b``."""
        return functional.linear(input, spectral_norm(self.weight, self.iterations), self.bias)


class SpectralConv2d(nn.Conv2d):
    """``nn.Conv2d`` whose weight, flattened to (out, rest), has spectral norm 1."""

    iterations = 10

    def forward(self, input: Tensor) -> Tensor:
        """The convolution with ``W / σ``."""
        weight = spectral_norm(self.weight, self.iterations)
        out: Tensor = self._conv_forward(input, weight, self.bias)
        return out


def group_norm(channels: int, *, eps: float = 1e-5, affine: bool = True) -> nn.GroupNorm:
    """Group norm with as many groups as divide the channels, at most 32, of 4 channels or more.

    A group of one channel would be zeroed where the image has shrunk to a single pixel.
    """
    most = min(32, max(1, channels // 4))
    groups = next(g for g in range(most, 0, -1) if channels % g == 0)
    return nn.GroupNorm(groups, channels, eps=eps, affine=affine)
