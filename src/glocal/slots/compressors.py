"""Compressors: the largest numbers of an update, coarser numbers, or matrices of low rank.

All are functions of one client's update that can be vmapped and captured, and what they choose does
not depend on the engine, the order of clients or the number of threads. Whatever is not finite in
an update stays so, for the divergence guard to see.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError, unknown
from glocal.core.types import Params
from glocal.core.validation import integer, real
from glocal.slots.compression import Compression, MessageSize

ROUNDINGS = ("stochastic", "nearest")


def top_k(share: float = 0.05, *, feedback: bool = True) -> Compression:
    """The share of an update's numbers with the largest magnitudes; the rest is sent later.

    Aji, Heafield: *Sparse communication for distributed gradient descent*, EMNLP 2017. All shared
    parameters are one vector of d numbers, of which k = ⌈share · d⌉ are sent; of equal ones, those
    that come first. A message holds their values, and where they are: k positions of ⌈log₂ d⌉ bits,
    or a bit for each of the d numbers, whichever is less.

    It helps where the way up is slow and clients take part often: a twelfth of the bytes cost 0.3
    points on digits. It does not help where a client waits many rounds until it can send what it
    left out.

    Args:
        share: share of the numbers that is sent, above 0 and up to 1.
        feedback: whether what is left out is remembered and added to the next update.
    """
    if not 0 < real(share, "share") <= 1:
        raise GlocalError(f"top-k's share must be above 0 and up to 1, not {share}.")

    def compress(update: Params, key: Tensor) -> Params:
        if not update:
            return update
        # In the order of names: a tree that was saved and loaded may have another.
        names = sorted(update)
        numbers = torch.cat([update[name].flatten() for name in names])
        chosen = largest(numbers.abs(), _kept(share, len(numbers)))
        sent = torch.where(chosen, numbers, 0)
        parts = dict(zip(names, torch.split(sent, [update[n].numel() for n in names]), strict=True))
        return {name: parts[name].view(x.shape).to(x.dtype) for name, x in update.items()}

    def size(update: Params) -> MessageSize:
        count = sum(x.numel() for x in update.values())
        k = _kept(share, count)
        # Values are at most as wide as the widest parameter, and nearly always all alike.
        width = max((x.element_size() for x in update.values()), default=0)
        return MessageSize(k, k * width + positions(k, count))

    return Compression("top-k", compress, size, feedback=feedback, draws=False)


def _kept(share: float, count: int) -> int:
    # Less a little, so that what is one too many by rounding alone (0.07 · 100) is not sent.
    return min(count, math.ceil(share * count * (1 - 1e-12)))


def positions(k: int, count: int) -> int:
    """Bytes that say which ``k`` of ``count`` numbers are sent."""
    if k == count:
        return 0
    listed, mask = k * (count - 1).bit_length(), count
    return -(-min(listed, mask) // 8)


def largest(magnitude: Tensor, k: int) -> Tensor:
    """A mask of the ``k`` largest of a vector; of equal ones, those that come first."""
    # What is no number at all is sent before anything else: it must not stay hidden.
    magnitude = torch.where(magnitude.isnan(), torch.inf, magnitude)
    smallest = torch.topk(magnitude, k, sorted=False).values.amin()
    above, equal = magnitude > smallest, magnitude == smallest
    return above | (equal & (equal.cumsum(0) <= k - above.sum()))


def quantised(
    bits: int = 8, *, rounding: str = "stochastic", feedback: bool | None = None
) -> Compression:
    """Every number of an update as an integer of so many bits, and a scale for each tensor.

    Alistarh, Grubic, Li, Tomioka, Vojnovic: *QSGD: communication-efficient SGD via gradient
    quantization and encoding*, NeurIPS 2017, with the largest magnitude s of a tensor as its scale
    and L = 2^(bits−1) − 1 levels of each sign: x becomes (s / L) · r(L x / s).

    Stochastic rounding goes up with the probability that makes the mean right, so nothing has to be
    remembered, and must not be: where levels are few its errors are larger than the update, and
    would add up without end. Rounding to the nearest level is biased, with an error below half a
    level, and comes with feedback.

    It helps where the way up is slow, also where few of many clients take part: a tenth of the
    bytes cost nothing that was measured on MNIST. It does not help below two or three bits.

    Args:
        bits: of an integer, from 2 (minus one, zero, one) to 16.
        rounding: stochastic or nearest.
        feedback: whether errors are remembered and added to the next update; by default they are
            with nearest.
    """
    integer(bits, "quantised's bits", 2, 16)
    if rounding not in ROUNDINGS:
        raise unknown("rounding", rounding, ROUNDINGS)
    stochastic = rounding == "stochastic"
    if stochastic and feedback:
        raise GlocalError(
            "stochastic rounding is right on average, and its errors would add up if they were fed "
            "back: leave feedback out, or write rounding=nearest."
        )
    levels = 2 ** (bits - 1) - 1

    def one(x: Tensor, key: Tensor) -> Tensor:
        step = x.abs().amax() / levels
        scaled = torch.where(step > 0, x / step, 0)
        if stochastic:
            rounded = torch.floor(scaled + rng.uniform(key, tuple(x.shape)))
        else:
            rounded = torch.round(scaled)
        decoded: Tensor = rounded.clamp(-levels, levels) * step
        return decoded.to(x.dtype)

    def compress(update: Params, key: Tensor) -> Params:
        number = {name: i for i, name in enumerate(sorted(update))}
        return {
            name: one(x, rng.fold(key, number[name])) if x.numel() else x
            for name, x in update.items()
        }

    def size(update: Params) -> MessageSize:
        tensors = [x for x in update.values() if x.numel()]
        packed = sum(-(-x.numel() * bits // 8) + x.element_size() for x in tensors)
        return MessageSize(sum(x.numel() for x in tensors), packed)

    keeps = not stochastic if feedback is None else feedback
    return Compression("quantised", compress, size, feedback=keeps, draws=stochastic)


def low_rank(rank: int = 4, *, iterations: int = 2, feedback: bool = True) -> Compression:
    """Every matrix of an update as a product of two thin ones; vectors are sent whole.

    Vogels, Karimireddy, Jaggi: *PowerSGD: practical low-rank gradient compression for distributed
    optimization*, NeurIPS 2019. Of an m × n matrix M (a convolution's is output channels × all
    else) an orthonormal P of ``rank`` columns and Q = Mᵀ P are sent, and M is P Qᵀ for the server.
    P spans M (MᵀM)^(iterations−1) G for a random G, which with more iterations comes to a truncated
    singular value decomposition (Halko, Martinsson, Tropp, SIAM Review 2011). A matrix of which P
    and Q would be no fewer numbers is sent whole, too.

    Departure: PowerSGD starts with the Q of the step before. Here a client may have sat out many
    rounds since, so it starts afresh, and keeps no more than its error feedback.

    It helps where the way up is slow and matrices are large: an eleventh of the bytes cost 0.3 to
    0.5 points. It does not help models of vectors and small matrices, which are sent whole.

    Args:
        rank: columns of both factors.
        iterations: times that the matrix is multiplied by on the way to P; one is least exact.
        feedback: whether what is left out is remembered and added to the next update.
    """
    integer(rank, "low-rank's rank", 1)
    integer(iterations, "low-rank's iterations", 1, 100)

    def compress(update: Params, key: Tensor) -> Params:
        number = {name: i for i, name in enumerate(sorted(update))}
        return {
            name: _product(x, rank, iterations, rng.fold(key, number[name]))
            if _fewer(x, rank)
            else x
            for name, x in update.items()
        }

    def size(update: Params) -> MessageSize:
        counts = [
            (rank * (len(x) + x[0].numel()) if _fewer(x, rank) else x.numel(), x.element_size())
            for x in update.values()
        ]
        return MessageSize(sum(n for n, _ in counts), sum(n * width for n, width in counts))

    return Compression("low-rank", compress, size, feedback=feedback)


def _fewer(x: Tensor, rank: int) -> bool:
    """Whether two factors are fewer numbers than the tensor."""
    return x.dim() > 1 and rank * (len(x) + x[0].numel()) < x.numel()


def _product(x: Tensor, rank: int, iterations: int, key: Tensor) -> Tensor:
    """A matrix, or what is one when its other dimensions are one, as ``P Qᵀ``."""
    # In double precision, where columns that are nearly the same still differ by what they should.
    m = x.reshape(len(x), -1).to(torch.float64)
    right = rng.normal(key, (m.shape[1], rank)).to(m.dtype)
    left = orthonormal(m @ right)
    for _ in range(iterations - 1):
        left = orthonormal(m @ orthonormal(m.T @ left))
    left = left.to(x.dtype)  # as it is sent
    right = (m.T @ left.to(m.dtype)).to(x.dtype)
    return (left @ right.T).view(x.shape)


NOTHING = 1e-7
"""A column that is shorter than this part of all together is rounding, and counts as zero."""


def orthonormal(columns: Tensor) -> Tensor:
    """Columns made orthonormal in their order; one that the others span becomes zero.

    By Gram and Schmidt, which unlike a library's QR can be vmapped and captured in a graph.
    """
    total = torch.linalg.vector_norm(columns)
    basis: list[Tensor] = []
    for column in columns.unbind(1):
        for _ in range(2 if basis else 0):  # once leaves rounding errors behind
            before = torch.stack(basis, 1)
            column = column - before @ (before.T @ column)
        length = torch.linalg.vector_norm(column)
        basis.append(torch.where(length > NOTHING * total, column / length, 0))
    return torch.stack(basis, 1)
