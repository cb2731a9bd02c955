"""Layers that train the same one client at a time and under ``torch.func.vmap``.

Some of torch's layers draw from a global generator (dropout), keep state between batches (batch and
spectral norm) or have no batching rule (LSTM). The layers here are pure functions of parameters,
input and key. :func:`check` names what a model has to change, :func:`convert` changes it.

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

import copy
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm
from torch.nn.utils.rnn import PackedSequence
from torch.nn.utils.spectral_norm import SpectralNorm as _OldSpectralNorm

from glocal.core import rng
from glocal.core.errors import GlocalError

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
    """``nn.LSTM`` from cells: same names, shapes, gate order and initialisation of weights.

    Args:
        input_size: Features of the input.
        hidden_size: Features of the hidden state.
        num_layers: Layers, each reading the outputs of the one below.
        bias: Whether the gates have biases.
        batch_first: ``[batch, time, features]`` rather than ``[time, batch, features]``.
        dropout: Of the outputs of every layer but the last.
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
    ) -> None:
        super().__init__()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        for i in range(num_layers):
            shapes: dict[str, tuple[int, ...]] = {
                "weight_ih": (4 * hidden_size, hidden_size if i else input_size),
                "weight_hh": (4 * hidden_size, hidden_size),
                "bias_ih": (4 * hidden_size,),
                "bias_hh": (4 * hidden_size,),
            }
            for name, shape in shapes.items():
                if bias or not name.startswith("bias"):
                    self.register_parameter(f"{name}_l{i}", nn.Parameter(torch.empty(shape)))
        self.reset_parameters()
        self.dropouts = nn.ModuleList(Dropout(dropout) for _ in range(num_layers - 1))

    def reset_parameters(self) -> None:
        """Uniform within 1 / √hidden, as ``nn.LSTM``."""
        bound = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters(recurse=False):
            nn.init.uniform_(weight, -bound, bound)

    def forward(
        self, x: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """The last layer's output at every time, and every layer's last ``(h, c)``."""
        if isinstance(x, PackedSequence) or x.dim() != 3:
            raise GlocalError(
                "glocal.nn.LSTM reads a padded batch of sequences, a tensor of three dimensions: "
                "pad (pad_sequence) rather than pack, and give one sequence as x[None]."
            )
        out = x if self.batch_first else x.transpose(0, 1)
        zero = out.new_zeros(self.num_layers, out.shape[0], self.hidden_size)
        h0, c0 = (zero, zero) if hx is None else hx
        last: list[tuple[Tensor, Tensor]] = []
        for i in range(self.num_layers):
            if i:
                out = self.dropouts[i - 1](out)
            out, h, c = self._layer(i, out, h0[i], c0[i])
            last.append((h, c))
        h, c = (torch.stack(states) for states in zip(*last, strict=True))
        return (out if self.batch_first else out.transpose(0, 1)), (h, c)

    def _layer(self, i: int, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One layer over ``x`` [batch, time, features]."""
        bias = (
            getattr(self, f"bias_ih_l{i}") + getattr(self, f"bias_hh_l{i}") if self.bias else None
        )
        recurrent = getattr(self, f"weight_hh_l{i}")
        # What the input adds to the gates needs no loop: one product for all times.
        outputs = []
        for inputs in functional.linear(x, getattr(self, f"weight_ih_l{i}"), bias).unbind(1):
            i_, f, g, o = (inputs + functional.linear(h, recurrent)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i_) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1), h, c

    def extra_repr(self) -> str:
        """The arguments, as ``print(model)`` shows them."""
        return f"{self.input_size}, {self.hidden_size}, num_layers={self.num_layers}"


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

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, *, iterations: int = 10
    ) -> None:
        super().__init__(in_features, out_features, bias)
        self.iterations = iterations

    def forward(self, input: Tensor) -> Tensor:
        """``x (W / σ)ᵀ + b``."""
        return functional.linear(input, spectral_norm(self.weight, self.iterations), self.bias)


class SpectralConv2d(nn.Conv2d):
    """``nn.Conv2d`` whose weight, flattened to (out, rest), has spectral norm 1."""

    def __init__(self, *args: Any, iterations: int = 10, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.iterations = iterations

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


Memo = dict[int, Any]
"""What ``copy.deepcopy`` has copied so far, by ``id``: it keeps tied parameters tied."""


class _Problem(NamedTuple):
    """Why a layer cannot be used, what to do, and, if it can be replaced, how."""

    why: str
    fix: str
    replace: Callable[[Memo], nn.Module] | None = None


def check(module: nn.Module) -> None:
    """Refuse layers that cannot be federated or vectorised, naming the layer and the remedy.

    This is what can be told from the layers alone; what ``forward`` does shows when it is run.

    Raises:
        GlocalError: One sentence about the first such layer.
    """
    for path, layer in module.named_modules():
        if problem := _diagnose(layer):
            raise _refusal(path, layer, problem)
    if not any(p.requires_grad for p in module.parameters()):
        raise GlocalError(
            f"model {type(module).__name__} has no trainable parameters: give it layers with "
            "parameters, or set requires_grad on those to be trained."
        )


def convert(module: nn.Module) -> nn.Module:
    """A copy in which layers that :func:`check` refuses are replaced by ones it accepts.

    Weights are kept where they mean the same; batch norm becomes group norm with its scale and
    shift, which is another function, so train the model after it. Tied parameters stay tied.

    Raises:
        GlocalError: One sentence about a layer that has no replacement.
    """
    memo: Memo = {}
    with torch.random.fork_rng(devices=[]):  # new layers initialise themselves
        for path, layer in module.named_modules():
            if problem := _diagnose(layer):
                if problem.replace is None:
                    raise _refusal(path, layer, problem)
                memo[id(layer)] = problem.replace(memo).train(layer.training)
    return copy.deepcopy(module, memo)


def _refusal(path: str, layer: nn.Module, problem: _Problem) -> GlocalError:
    where = f"layer {path!r}" if path else "the model"
    hint = ", or let glocal.nn.convert(model) do it" if problem.replace else ""
    return GlocalError(
        f"{where} ({type(layer).__name__}) cannot be federated: {problem.why}; {problem.fix}{hint}."
    )


def _diagnose(layer: nn.Module) -> _Problem | None:
    """What is wrong with one layer, its children apart."""
    if any(is_lazy(p) for p in layer.parameters(recurse=False)):
        return _Problem("its shape is not known yet", "run the model on one batch first")
    if spectral := list(_spectral_weights(layer)):
        return _spectral_problem(layer, spectral)
    match layer:
        case _BatchNorm():
            return _Problem(
                "batch statistics mix in padding and its running statistics are state that no "
                "method trains",
                f"use nn.GroupNorm, such as {group_norm(layer.num_features)}",
                lambda memo: _adopt(
                    group_norm(layer.num_features, eps=layer.eps, affine=layer.affine), layer, memo
                ),
            )
        case _InstanceNorm(track_running_stats=True):
            return _Problem(
                "its running statistics are state that no method trains",
                "build it with track_running_stats=False",
                lambda memo: _adopt(
                    type(layer)(layer.num_features, eps=layer.eps, affine=layer.affine), layer, memo
                ),
            )
        case nn.AlphaDropout() | nn.FeatureAlphaDropout() if layer.p > 0:
            return _Problem(
                "its mask comes from a global generator, so engines would not agree",
                "use glocal.nn.Dropout, which does not keep the mean and variance of SELU networks",
            )
        case _DropoutNd() if layer.p > 0:
            channels = not isinstance(layer, nn.Dropout)
            return _Problem(
                "its mask comes from a global generator, so engines would not agree",
                f"use glocal.nn.Dropout({layer.p}{', channels=True' if channels else ''})",
                lambda memo: Dropout(layer.p, channels=channels),
            )
        case nn.LSTM():
            simple = not layer.bidirectional and not layer.proj_size
            return _Problem(
                "it cannot be vectorised over clients",
                "use glocal.nn.LSTM" + ("" if simple else " (one direction, no projection)"),
                (lambda memo: _adopt(_lstm(layer), layer, memo)) if simple else None,
            )
        case nn.RNNBase():
            return _Problem(
                "it cannot be vectorised over clients",
                f"write it from cells, as nn.{type(layer).__name__}Cell in a loop over time, or "
                "use glocal.nn.LSTM",
            )
        case nn.MultiheadAttention() if layer.dropout > 0:
            return _Problem(
                "its dropout mask comes from a global generator, so engines would not agree",
                "build it (or the Transformer layer around it) with dropout=0 and put "
                "glocal.nn.Dropout behind it",
            )
    return None


def _adopt(new: nn.Module, old: nn.Module, memo: Memo) -> nn.Module:
    """``new`` with copies of the parameters of ``old`` that it has names for."""
    for name, _ in list(new.named_parameters(recurse=False)):
        setattr(new, name, copy.deepcopy(getattr(old, name), memo))
    return new


def _lstm(old: nn.LSTM) -> LSTM:
    return LSTM(
        old.input_size,
        old.hidden_size,
        old.num_layers,
        bias=old.bias,
        batch_first=old.batch_first,
        dropout=old.dropout,
    )


def _spectral_weights(layer: nn.Module) -> Iterator[Any]:
    """For each torch spectral norm on a layer the parameter under it, None if ours differs."""
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, _OldSpectralNorm):
            yield layer.weight_orig if hook.name == "weight" and hook.dim == 0 else None
    if isinstance(chains := getattr(layer, "parametrizations", None), nn.ModuleDict):
        for name, chain in chains.items():
            assert isinstance(chain, parametrize.ParametrizationList)
            for step in chain:
                if isinstance(step, _SpectralNorm):
                    alone = name == "weight" and len(chains) == len(chain) == 1
                    yield chain.original if alone and step.dim == 0 else None


def _spectral_problem(layer: nn.Module, weights: list[Any]) -> _Problem:
    why = "spectral_norm keeps vectors that it updates in forward"
    weight = weights[0] if len(weights) == 1 else None
    match layer:
        case nn.Linear() if weight is not None:
            return _Problem(
                why, "use glocal.nn.SpectralLinear", partial(_spectral_linear, layer, weight)
            )
        case nn.Conv2d() if weight is not None:
            return _Problem(
                why, "use glocal.nn.SpectralConv2d", partial(_spectral_conv, layer, weight)
            )
    return _Problem(why, "apply glocal.nn.spectral_norm to the weight in forward instead")


def _spectral_linear(old: nn.Linear, weight: Any, memo: Memo) -> nn.Module:
    new = SpectralLinear(old.in_features, old.out_features)
    new.weight, new.bias = copy.deepcopy((weight, old.bias), memo)
    return new


def _spectral_conv(old: nn.Conv2d, weight: Any, memo: Memo) -> nn.Module:
    new = SpectralConv2d(
        old.in_channels,
        old.out_channels,
        old.kernel_size,
        stride=old.stride,
        padding=old.padding,
        dilation=old.dilation,
        groups=old.groups,
        padding_mode=old.padding_mode,
    )
    new.weight, new.bias = copy.deepcopy((weight, old.bias), memo)
    return new
