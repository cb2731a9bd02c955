"""Compressors against numpy, means of many draws, singular values, and messages packed by hand."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.slots.compression import Compression
from glocal.slots.compressors import low_rank, orthonormal, quantised, top_k

KEY = rng.key(3)


def some(*shapes: tuple[int, ...], seed: int = 0) -> Params:
    """Normal numbers by the names p0, p1, …"""
    return {f"p{i}": rng.normal(rng.fold(rng.key(seed), i), s) for i, s in enumerate(shapes)}


def vector(update: Params) -> Any:
    return torch.cat([update[name].flatten() for name in sorted(update)]).numpy()


@settings(max_examples=60)
@given(st.lists(st.integers(-4, 4), min_size=1, max_size=40), st.floats(0.01, 1.0))
def test_top_k_is_numpys(values: list[int], share: float) -> None:
    """Of equal magnitudes, of which there are many here, the first ones."""
    x = np.array(values, dtype=np.float32)
    cut = len(x) // 3
    update = {"b": torch.from_numpy(x[cut:]), "a": torch.from_numpy(x[:cut])}
    k = math.ceil(round(share * len(x), 9))
    kept = np.argsort(-np.abs(x), kind="stable")[:k]
    want = np.zeros_like(x)
    want[kept] = x[kept]
    sent = top_k(share).compress(update, KEY)
    assert list(sent) == ["b", "a"]
    assert np.array_equal(vector(sent), want)
    assert top_k(share).size(update).numbers == k


def test_top_k_of_everything_is_everything() -> None:
    update = some((4, 3), (5,))
    sent = top_k(1.0).compress(update, KEY)
    assert all(torch.equal(sent[name], x) for name, x in update.items())


def test_rounding_to_the_nearest_by_hand() -> None:
    """Three bits are levels −3 … 3; a step of 0.9 / 3."""
    x = torch.tensor([0.9, -0.5, 0.2, 0.1, 0.0, -0.14])
    sent = quantised(3, rounding="nearest").compress({"x": x}, KEY)["x"]
    assert torch.allclose(sent, torch.tensor([0.9, -0.6, 0.3, 0.0, 0.0, 0.0]))
    zeros = torch.zeros(3)
    assert torch.equal(quantised(2).compress({"x": zeros}, KEY)["x"], zeros)


@pytest.mark.parametrize("bits", [2, 5, 16])
def test_rounding_to_the_nearest_errs_by_half_a_step_and_never_by_more_than_the_number(
    bits: int,
) -> None:
    x = some((500,))["p0"]
    error = (quantised(bits, rounding="nearest").compress({"x": x}, KEY)["x"] - x).abs()
    step = x.abs().max() / (2 ** (bits - 1) - 1)
    assert float(error.max()) <= 0.5001 * float(step)
    assert bool((error <= x.abs() * 1.0001).all())


def test_stochastic_rounding_is_right_on_average_and_never_off_by_a_step() -> None:
    x, draws = some((40,))["p0"], 4000
    keys = rng.fold(KEY, torch.arange(draws))
    sent = torch.func.vmap(lambda key: quantised(3).compress({"x": x}, key)["x"])(keys).double()
    step = float(x.abs().max()) / 3
    assert float((sent - x).abs().max()) < step * 1.0001
    # A number between two levels is a coin: its deviation is at most half a step.
    assert float((sent.mean(0) - x).abs().max()) < 5 * 0.5 * step / math.sqrt(draws)
    up = (sent[:, 1] > x[1]).double().mean()
    below = math.floor(float(x[1]) / step) * step
    assert float(up) == pytest.approx((float(x[1]) - below) / step, abs=0.05)


def test_a_matrix_of_low_rank_is_sent_exactly() -> None:
    left, right = some((12, 3), (20, 3)).values()
    for x in (left @ right.T, (left @ right.T).view(12, 5, 2, 2)):  # a convolution's, too
        for rank in (3, 5):  # a higher one has nothing to add
            sent = low_rank(rank, iterations=1).compress({"x": x}, KEY)["x"]
            assert torch.allclose(sent, x, atol=1e-5)


def test_low_rank_comes_to_the_truncated_singular_value_decomposition() -> None:
    """The singular values that are left out are the least that can be lost."""
    u, _, v = torch.linalg.svd(some((30, 50))["p0"].double(), full_matrices=False)
    x = ((u * 0.7 ** torch.arange(30)) @ v).float()
    best = float((0.7 ** torch.arange(4, 30)).square().sum().sqrt())
    lost = {i: low_rank(4, iterations=i).compress({"x": x}, KEY)["x"] - x for i in (1, 2, 20)}
    norms = {i: float(error.norm()) for i, error in lost.items()}
    assert best * 0.9999 <= norms[20] < best * 1.0001
    assert norms[20] < norms[2] < norms[1] < float(x.norm())


def test_columns_become_orthonormal_and_spanned_ones_zero() -> None:
    a, b = some((6, 2))["p0"].double().unbind(1)
    made = orthonormal(torch.stack([a, 2 * a, b], 1))
    want = torch.diag(torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64))
    assert torch.allclose(made.T @ made, want, atol=1e-12)


def bits_of(numbers: Any, width: int) -> Any:
    """Whole numbers from 0 up, each as so many bits."""
    return (np.asarray(numbers, dtype=np.int64)[:, None] >> np.arange(width)[::-1]) & 1


def numbers_of(packed: bytes, width: int, count: int) -> Any:
    bits = np.unpackbits(np.frombuffer(packed, np.uint8))[: width * count]
    return bits.reshape(count, width) @ (1 << np.arange(width)[::-1])


@pytest.mark.parametrize(("share", "listed"), [(0.02, True), (0.5, False)])
def test_a_sparse_message_packed_and_unpacked(share: float, listed: bool) -> None:
    """Values, and positions of ⌈log₂ 150⌉ = 8 bits, or 150 bits that say which."""
    update = some((10, 12), (30,))
    sent = vector(top_k(share).compress(update, KEY))
    (places,) = sent.nonzero()
    where = bits_of(places, 8) if listed else (sent != 0).astype(int)
    packed = np.packbits(where).tobytes()
    message = sent[places].tobytes() + packed
    assert top_k(share).size(update).bytes == len(message)
    again = np.zeros(150, np.float32)
    found = numbers_of(packed, 8, len(places)) if listed else numbers_of(packed, 1, 150).nonzero()
    again[found] = np.frombuffer(message[: 4 * len(places)], np.float32)
    assert np.array_equal(again, sent)


@pytest.mark.parametrize("bits", [3, 8])
def test_a_quantised_message_packed_and_unpacked(bits: int) -> None:
    update, levels = some((10, 12), (31,)), 2 ** (bits - 1) - 1
    compressor = quantised(bits)
    sent, length = compressor.compress(update, KEY), 0
    for name, x in update.items():
        step = (x.abs().max() / levels).numpy()
        codes = np.rint(sent[name].flatten().numpy() / step).astype(int) + levels
        assert 0 <= codes.min() <= codes.max() < 2**bits
        packed = np.packbits(bits_of(codes, bits)).tobytes()
        length += len(step.tobytes() + packed)
        again = (numbers_of(packed, bits, x.numel()) - levels).astype(np.float32) * step
        assert np.array_equal(again, sent[name].flatten().numpy())
    assert compressor.size(update) == (151, length)


def test_the_factors_of_matrices_and_whole_vectors_are_counted() -> None:
    update = some((10, 12), (30,), (6, 3, 2, 2), (2, 3))
    numbers = 2 * (10 + 12) + 30 + 2 * (6 + 12) + 2 * 3  # of the last, factors would be more
    assert low_rank(2).size(update) == (numbers, 4 * numbers)
    sent = low_rank(2).compress(update, KEY)
    assert torch.equal(sent["p1"], update["p1"])
    assert torch.equal(sent["p3"], update["p3"])
    assert int(torch.linalg.matrix_rank(sent["p0"])) == 2


ALL = [
    top_k(0.3),
    quantised(4),
    quantised(4, rounding="nearest"),
    low_rank(1),
]


@pytest.mark.parametrize("compressor", ALL, ids=lambda c: f"{c.name} {c.feedback}")
def test_what_is_not_finite_is_not_hidden(compressor: Compression) -> None:
    for bad in (float("nan"), float("inf")):
        update = some((8, 9), (5,))
        update["p0"][3, 4] = bad
        assert not bool(torch.isfinite(compressor.compress(update, KEY)["p0"]).all())


@pytest.mark.parametrize("compressor", ALL, ids=lambda c: f"{c.name} {c.feedback}")
def test_each_client_is_compressed_as_if_it_were_the_only_one(compressor: Compression) -> None:
    clients = [some((8, 9), (5,), seed=seed) for seed in range(3)]
    keys = rng.fold(KEY, torch.arange(3))
    stacked = {name: torch.stack([each[name] for each in clients]) for name in clients[0]}
    sent = torch.func.vmap(compressor.compress)(stacked, keys)
    for i, update in enumerate(clients):
        alone: dict[str, Tensor] = compressor.compress(update, keys[i])
        assert all(torch.allclose(sent[n][i], alone[n], atol=1e-6) for n in update)


def test_what_cannot_be_is_refused() -> None:
    for share in (0.0, -0.1, 1.01):
        with pytest.raises(GlocalError, match="share must be above 0 and up to 1"):
            top_k(share)
    with pytest.raises(GlocalError, match="bits"):
        quantised(1)
    with pytest.raises(GlocalError, match="rounding 'up'"):
        quantised(rounding="up")
    with pytest.raises(GlocalError, match="leave feedback out, or write rounding=nearest"):
        quantised(feedback=True)
    with pytest.raises(GlocalError, match="rank"):
        low_rank(0)
