"""The generator against an independent one in plain Python, and what draws promise."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from glocal.core import rng

WORD = 1 << 64


def splitmix(state: int, n: int) -> list[int]:
    """SplitMix64 as published: a counter in steps of the golden ratio, mixed."""
    words = []
    for _ in range(n):
        state = (state + 0x9E3779B97F4A7C15) % WORD
        z = state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
        words.append(z ^ (z >> 31))
    return words


def unsigned(x: torch.Tensor) -> list[int]:
    return [v % WORD for v in x.flatten().tolist()]


def test_the_reference_is_splitmix() -> None:
    # The first outputs of the published C code for state 1234567.
    assert splitmix(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("seed", [0, 1, 1234567, -1, (1 << 63) + 5, (1 << 64) - 1])
def test_words_are_splitmix(seed: int) -> None:
    assert unsigned(rng.key(seed)) == splitmix(seed % WORD, 1)
    state = torch.tensor(seed % WORD - (WORD if seed % WORD >> 63 else 0))
    assert unsigned(rng.bits(state, 50)) == splitmix(seed % WORD, 50)


def test_a_child_is_the_mixed_word_at_its_place() -> None:
    for i in (0, 1, 7, 1000):
        expected = splitmix(splitmix(5, i + 1)[-1], 1)
        assert unsigned(rng.fold(torch.tensor(5), i)) == expected


@pytest.mark.parametrize("i", [0, 1, 63, 2**31, 2**62, -2])
def test_fold_of_an_int_is_fold_of_a_tensor(i: int) -> None:
    key = rng.key(3)
    assert torch.equal(rng.fold(key, i), rng.fold(key, torch.tensor(i)))


def test_children_of_children_do_not_collide() -> None:
    grid = rng.fold(rng.fold(rng.key(0), torch.arange(300)).unsqueeze(-1), torch.arange(300))
    assert len(grid.unique()) == grid.numel()


@pytest.mark.parametrize("draw", [rng.uniform, rng.normal, lambda k, s: rng.randint(k, 9, s)])
def test_a_longer_draw_begins_with_the_shorter(draw: object) -> None:
    key = rng.key(1)
    long, short = draw(key, (12, 3)), draw(key, (5, 3))  # type: ignore[operator]
    assert torch.equal(long[:5], short)


@pytest.mark.parametrize(
    "draw",
    [
        lambda k: rng.uniform(k, (4, 2)),
        lambda k: rng.normal(k, (4,)),
        lambda k: rng.randint(k, 10, (4,)),
        lambda k: rng.permutation(k, 9),
        lambda k: rng.fold(k, 3),
    ],
)
def test_vmap_and_stacks_of_keys_and_a_loop_agree(draw: object) -> None:
    keys = rng.fold(rng.key(0), torch.arange(6))
    looped = torch.stack([draw(k) for k in keys])  # type: ignore[operator]
    assert torch.equal(vmap(draw)(keys), looped)  # type: ignore[arg-type]
    assert torch.equal(draw(keys), looped)  # type: ignore[operator]


def test_a_permutation_is_one() -> None:
    keys = rng.fold(rng.key(0), torch.arange(20))
    orders = rng.permutation(keys, 31)
    assert torch.equal(orders.sort(-1).values, torch.arange(31).expand(20, 31))
    assert len({tuple(o) for o in orders.tolist()}) == 20


def test_the_living_come_first_and_in_the_order_they_would_have_alone() -> None:
    key, live = rng.key(4), torch.arange(10) < 6
    order = rng.permutation(key, 10, live)
    assert order[:6].sort().values.tolist() == list(range(6))
    assert order[6:].tolist() == [6, 7, 8, 9]
    assert torch.equal(order[:6], rng.permutation(key, 6))


def test_every_order_is_as_likely() -> None:
    orders = rng.permutation(rng.fold(rng.key(0), torch.arange(6000)), 3)
    counts = torch.unique(orders, dim=0, return_counts=True)[1]
    assert len(counts) == 6
    assert float(((counts - 1000) ** 2 / 1000).sum()) < 20.5  # χ² with 5 degrees, 0.999


def test_uniform_moments_and_cells() -> None:
    u = rng.uniform(rng.key(0), (100_000,)).double()
    assert 0 <= float(u.min()) < 1e-4
    assert 1 - 1e-4 < float(u.max()) < 1
    for power in (1, 2, 3, 4):
        spread = math.sqrt(1 / (2 * power + 1) - 1 / (power + 1) ** 2)
        assert float(u.pow(power).mean()) == pytest.approx(
            1 / (power + 1), abs=4 * spread / math.sqrt(1e5)
        )
    cells = torch.histc(u, 64, 0, 1)
    expected = 100_000 / 64
    assert float(((cells - expected) ** 2 / expected).sum()) < 103.4  # χ² with 63 degrees, 0.999


def test_normal_moments() -> None:
    z = rng.normal(rng.key(0), (100_000,)).double()
    assert bool(z.isfinite().all())
    for power, moment, variance in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert float(z.pow(power).mean()) == pytest.approx(
            moment, abs=4 * math.sqrt(variance / 1e5)
        )


def test_randint_is_within_and_even() -> None:
    draws = rng.randint(rng.key(2), 7, (70_000,))
    counts = torch.bincount(draws)
    assert len(counts) == 7
    assert float(((counts - 1e4) ** 2 / 1e4).sum()) < 22.5  # χ² with 6 degrees, 0.999


@pytest.mark.parametrize("other", ["next child", "next seed", "child"])
def test_different_keys_are_unrelated(other: str) -> None:
    keys = {
        "next child": (rng.fold(rng.key(0), 0), rng.fold(rng.key(0), 1)),
        "next seed": (rng.key(0), rng.key(1)),
        "child": (rng.key(0), rng.fold(rng.key(0), 0)),
    }[other]
    a, b = (rng.uniform(k, (50_000,)).double() for k in keys)
    for shift in (0, 1):
        pair = torch.stack([a[shift:], b[: len(b) - shift]])
        assert abs(float(torch.corrcoef(pair)[0, 1])) < 4 / math.sqrt(50_000)
    assert not set(rng.bits(keys[0], 5000).tolist()) & set(rng.bits(keys[1], 5000).tolist())


def test_nothing_is_drawn_from_torchs_generator() -> None:
    before = torch.get_rng_state()
    rng.normal(rng.key(0), (5,))
    rng.permutation(rng.key(0), 5)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_seed_for_others_is_not_negative() -> None:
    seeds = [rng.seed_of(rng.key(i)) for i in range(100)]
    assert min(seeds) >= 0
    assert len(set(seeds)) == 100


@pytest.mark.parametrize(
    "draw",
    [
        lambda key: rng.fold(key, 3),
        lambda key: rng.fold(key, torch.arange(3)),
        lambda key: rng.normal(key, (4,)),
        lambda key: vmap(lambda i: rng.uniform(rng.fold(key[0], i), (2,)))(torch.arange(4)),
    ],
)
def test_a_traced_draw_is_an_operator_and_the_same_draw(
    draw: Callable[[torch.Tensor], torch.Tensor],
) -> None:
    keys = rng.fold(rng.key(5), torch.arange(6)).view(2, 3)
    stacked = vmap(draw)
    graph = make_fx(stacked, tracing_mode="fake")(keys)
    names = {str(node.target) for node in graph.graph.nodes}
    assert any(name.startswith("glocal.") for name in names)
    plain = torch.stack([draw(key) for key in keys])
    assert torch.equal(stacked(keys), plain)
    assert torch.equal(graph(keys), plain)
