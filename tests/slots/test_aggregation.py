"""Robust aggregators: by hand, against independent computations, and where they break."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import optimize, stats
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.methods import resolve
from glocal.slots.aggregation import (
    Combine,
    geometric_median,
    krum,
    krum_scores,
    mean,
    median,
    multi_krum,
    norm_bound,
    squared_distances,
    trimmed_mean,
)
from glocal.slots.method import Method
from glocal.slots.weighting import Setting

ALL = [median(), trimmed_mean(), krum(), multi_krum(), geometric_median(), norm_bound()]


def stacked(m: int, seed: int = 0) -> dict[str, Tensor]:
    """Two parameters of ``m`` clients."""
    torch.manual_seed(seed)
    return {"b": torch.randn(m, 3), "a": torch.randn(m, 2, 4)}


def uniform(m: int) -> Tensor:
    return torch.full((m,), 1.0 / m)


def flat(updates: dict[str, Tensor], m: int | None = None) -> np.ndarray[Any, Any]:
    parts = [updates[k].reshape(-1 if m is None else m, *([] if m is None else [-1])) for k in "ab"]
    return torch.cat(parts, dim=0 if m is None else 1).double().numpy()


def combined(aggregator: Combine, rows: Any, p: Tensor | None = None) -> np.ndarray[Any, Any]:
    x = torch.as_tensor(rows, dtype=torch.float64)
    return aggregator.combine({"w": x}, uniform(len(x)) if p is None else p)["w"].numpy()


def test_by_hand() -> None:
    assert combined(median(), [[1.0, 9], [2, 7], [30, 8]]).tolist() == [2, 8]
    assert combined(median(), [[1.0], [2], [4], [90]]).tolist() == [3]
    assert combined(trimmed_mean(0.25), [[1.0], [2], [4], [90]]).tolist() == [3]
    assert combined(trimmed_mean(0.2), [[-9.0], [1], [2], [6], [90]]).tolist() == [3]
    # Five on a line, one malicious: each is scored on its two nearest, and 1 is in the middle.
    line = [[0.0], [1.0], [2.5], [5.0], [100.0]]
    scores = krum_scores(squared_distances({"w": torch.tensor(line)}, uniform(5)), 1)
    assert scores.tolist() == [1 + 6.25, 1 + 2.25, 2.25 + 6.25, 6.25 + 16, 95**2 + 97.5**2]
    assert combined(krum(1), line).tolist() == [1]
    assert combined(multi_krum(1, keep=2), line).tolist() == [0.5]
    assert combined(multi_krum(1), line).tolist() == [8.5 / 4]
    # The corners of a triangle of equal sides: the middle.
    corners = [[0.0, 0], [1, 0], [0.5, math.sqrt(0.75)]]
    assert combined(geometric_median(), corners) == pytest.approx([0.5, math.sqrt(0.75) / 3])
    # Norms 5, 1, 10: with a bound of 5 the last is halved.
    norms = [[3.0, 4], [1, 0], [6, 8]]
    assert combined(norm_bound(5.0), norms) == pytest.approx([7 / 3, 8 / 3])
    assert combined(norm_bound(), norms) == pytest.approx([7 / 3, 8 / 3])
    assert combined(norm_bound(), norms, torch.tensor([0.0, 0, 1])) == pytest.approx([3, 4])


@pytest.mark.parametrize("m", [1, 2, 3, 4, 7, 10, 21])
def test_against_numpy_and_scipy(m: int) -> None:
    x, p = stacked(m), uniform(m)
    table = flat(x, m)
    assert flat(median().combine(x, p)) == pytest.approx(np.median(table, axis=0), abs=1e-6)
    for share in (0.0, 0.1, 0.25, 0.4):
        k = min(math.ceil(round(share * m, 9)), (m - 1) // 2)
        want = stats.trim_mean(table, k / m + 1e-12, axis=0)
        assert flat(trimmed_mean(share).combine(x, p)) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize(("m", "f"), [(5, 1), (9, 2), (9, 3), (15, 6)])
def test_krum_is_a_plain_loop(m: int, f: int) -> None:
    x, p = stacked(m, seed=m), uniform(m)
    table = flat(x, m)
    scores = []
    for i in range(m):
        apart = sorted(float(((table[i] - table[j]) ** 2).sum()) for j in range(m) if j != i)
        scores.append(sum(apart[: m - f - 2]))
    assert krum_scores(squared_distances(x, p), f).numpy() == pytest.approx(scores)
    best = np.argsort(scores)
    assert flat(krum(f).combine(x, p)) == pytest.approx(table[best[0]], abs=1e-6)
    for keep in (1, 3, m):
        want = table[best[:keep]].mean(0)
        assert flat(multi_krum(f, keep).combine(x, p)) == pytest.approx(want, abs=1e-6)
    want = table[best[: m - f]].mean(0)
    assert flat(multi_krum(f).combine(x, p)) == pytest.approx(want, abs=1e-6)


@pytest.mark.parametrize("m", [3, 4, 8, 15])
def test_the_geometric_median_has_the_least_sum_of_distances(m: int) -> None:
    x = stacked(m, seed=m)
    table = flat(x, m)

    def total(z: Any) -> float:
        return float(np.linalg.norm(table - z, axis=1).sum())

    found = flat(geometric_median().combine(x, uniform(m)))
    best = optimize.minimize(total, table.mean(0), method="BFGS", options={"gtol": 1e-9})
    assert total(found) <= best.fun + 1e-6
    assert found == pytest.approx(best.x, abs=1e-3)


def test_a_geometric_median_on_one_of_the_updates() -> None:
    """Where the algorithm would divide by nothing: three of five are the same."""
    rows = [[1.0, 1], [1, 1], [1, 1], [5, 0], [0, 7]]
    assert combined(geometric_median(), rows) == pytest.approx([1, 1], abs=1e-5)


def outliers(honest: int, malicious: int, value: float = 1e6) -> tuple[Tensor, Tensor]:
    torch.manual_seed(honest)
    good = torch.randn(honest, 6, dtype=torch.float64)
    return torch.cat([torch.full((malicious, 6), value, dtype=torch.float64), good]), good


@pytest.mark.parametrize(("honest", "malicious"), [(11, 10), (11, 9), (6, 5), (2, 1)])
@pytest.mark.parametrize("value", [1e6, -1e6])
def test_just_under_half_of_outliers_change_little(
    honest: int, malicious: int, value: float
) -> None:
    x, good = outliers(honest, malicious, value)
    found = torch.tensor(combined(median(), x))
    assert bool(((found >= good.min(0).values) & (found <= good.max(0).values)).all())
    # A geometric median may leave the range of a coordinate, but only so far (Minsker, 2015).
    found = torch.tensor(combined(geometric_median(), x))
    share = malicious / (honest + malicious)
    centre = good.mean(0)
    radius = (good - centre).norm(dim=1).max()
    assert float((found - centre).norm()) <= 2 * (1 - share) / (1 - 2 * share) * radius
    assert float((found - centre).norm()) < 5


@pytest.mark.parametrize("aggregator", [median(), geometric_median()], ids=lambda c: c.name)
@pytest.mark.parametrize(("honest", "malicious"), [(10, 10), (10, 11), (1, 1)])
def test_from_half_on_they_break(aggregator: Combine, honest: int, malicious: int) -> None:
    assert combined(aggregator, outliers(honest, malicious)[0]).min() > 1e5


def test_a_trimmed_mean_holds_up_to_its_share() -> None:
    for honest, malicious, holds in ((8, 2, True), (7, 3, False)):
        x, good = outliers(honest, malicious)
        found = torch.tensor(combined(trimmed_mean(0.2), x))
        assert bool((found <= good.max(0).values).all()) == holds
        assert bool((found > 1e4).all()) != holds
    assert combined(mean(), outliers(8, 2)[0]).min() > 1e4


@pytest.mark.parametrize("f", [1, 2, 4])
def test_krum_holds_from_2f_plus_3_on(f: int) -> None:
    for value in (1e6, -1e6, 1e30):
        x, good = outliers(f + 3, f, value)
        found = combined(krum(f), x)
        assert min(np.abs(good.numpy() - found).max(1)) == 0
        assert np.abs(combined(multi_krum(f), x)).max() < 10
    # As many that agree as there are others, and it follows them.
    assert combined(krum(f), outliers(f + 1, f + 2)[0]).min() == 1e6


def test_a_norm_bound_limits_and_does_not_undo() -> None:
    x, good = outliers(8, 2)
    found = combined(norm_bound(), x)
    assert np.linalg.norm(found) < good.norm(dim=1).max()
    assert found.mean() > good.mean()


@pytest.mark.parametrize("aggregator", ALL, ids=lambda c: c.name)
def test_small_cohorts_have_an_answer(aggregator: Combine) -> None:
    one, two = stacked(1), stacked(2)
    assert flat(aggregator.combine(one, uniform(1))) == pytest.approx(flat(one, 1)[0])
    found = flat(aggregator.combine(two, uniform(2)))
    assert np.isfinite(found).all()
    if aggregator.name != "norm-bound":
        assert found == pytest.approx(flat(two, 2).mean(0), abs=1e-6)
    same = {k: v[:1].expand(4, *v.shape[1:]) for k, v in one.items()}
    assert flat(aggregator.combine(same, uniform(4))) == pytest.approx(flat(one, 1)[0], abs=1e-6)
    nothing = {k: torch.zeros_like(v) for k, v in stacked(3).items()}
    assert flat(aggregator.combine(nothing, uniform(3))).tolist() == [0.0] * 11
    assert aggregator.combine({}, uniform(3)) == {}


@pytest.mark.parametrize("aggregator", ALL, ids=lambda c: c.name)
@pytest.mark.parametrize("m", [3, 6, 9])
def test_neither_the_order_of_clients_nor_of_names_matters(aggregator: Combine, m: int) -> None:
    x = stacked(m)
    before = {k: v.clone() for k, v in x.items()}
    found = aggregator.combine(x, uniform(m))
    assert {k: (v.shape, v.dtype) for k, v in found.items()} == {
        k: (v.shape[1:], v.dtype) for k, v in x.items()
    }
    assert all(torch.equal(x[k], before[k]) for k in x)
    for order in (torch.arange(m).flip(0), torch.randperm(m)):
        turned = aggregator.combine({k: v[order] for k, v in x.items()}, uniform(m))
        assert flat(turned) == pytest.approx(flat(found), abs=1e-6)
    named = aggregator.combine(dict(reversed(x.items())), uniform(m))
    assert all(torch.equal(named[k], found[k]) for k in found)


def test_trim_0_is_the_mean_and_a_wide_bound_too() -> None:
    x, p = stacked(7), uniform(7)
    want = flat(mean().combine(x, p))
    assert flat(trimmed_mean(0.0).combine(x, p)) == pytest.approx(want, abs=1e-6)
    assert flat(norm_bound(1e9).combine(x, p)) == pytest.approx(want, abs=1e-6)
    assert flat(multi_krum(0, keep=7).combine(x, p)) == pytest.approx(want, abs=1e-6)
    weights = torch.rand(7)
    want = flat(mean().combine(x, weights))
    assert flat(norm_bound(1e9).combine(x, weights)) == pytest.approx(want, abs=1e-6)


def test_huge_numbers_do_not_overflow() -> None:
    x = torch.ones(9, 4)
    x[:2] = 3e38
    for aggregator in ALL:
        found = aggregator.combine({"w": x}, uniform(9))["w"]
        assert bool(found.isfinite().all()), aggregator.name
        if aggregator.name != "norm-bound":
            limit = 1e38 if aggregator.name == "trimmed-mean" else 1.001
            assert float(found.max()) < limit


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedavg+trimmed-mean(share=0.5)", "a share from each end, so it must be .* below 0.5"),
        ("trimmed-mean(share=-0.1)", "must be 0 or more and below 0.5, not -0.1"),
        ("krum(malicious=0.5)", "krum's malicious must be an integer .* below 0.5, not 0.5"),
        ("krum(malicious=-1)", "krum's malicious must be"),
        ("multi-krum(malicious=true)", "in multi-krum, malicious must be a number, not True"),
        ("multi-krum(keep=0)", "keep must be an integer of 1 or more, not 0"),
        ("geometric-median(smoothing=0)", "smoothing must be above 0"),
        ("geometric-median(iterations=0)", "iterations must be an integer of 1 or more"),
        ("norm-bound(bound=0)", "norm-bound needs a bound above 0, not 0"),
        ("fedavg+median+krum", r"median and krum in .* fill the same slot \(combine\)"),
        ("fedavg+median+by-examples", "median does not use weights, so by-examples would do"),
        ("krum+uniform", "krum does not use weights, so uniform would do nothing"),
        ("aaggff-d+geometric-median", "geometric-median does not use weights, so aaggff-d"),
        ("scaffold+median", "scaffold also moves by a mean .* use fedavg or fedprox"),
        ("scaffold+norm-bound", "so norm-bound would protect nothing"),
        ("median+dp(clip=1,noise=1)", "noise made for a mean, so median cannot go with it"),
        ("norm-bound+dp(clip=1,noise=1)", "noise made for a mean, so norm-bound cannot go"),
        ("local+median", "local sends nothing"),
    ],
)
def test_what_makes_no_sense(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        resolve(spec)


def test_weights() -> None:
    for aggregator in ALL:
        method = Method(local=resolve("fedavg").local, combine=aggregator)  # type: ignore[union-attr]
        robust_mean = aggregator.name == "norm-bound"
        assert method.weights.name == ("by-examples" if robust_mean else "uniform")
    assert resolve("norm-bound+term").weights.name == "term"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("spec", "clients", "fraction", "needs"),
    [
        ("krum(malicious=4)", 20, 0.5, "4 malicious of 10 clients in a round .* needs 11"),
        ("multi-krum(malicious=1)", 4, 1.0, "multi-krum cannot tell 1 malicious of 4"),
        ("krum", 4, 1.0, "1 malicious of 4"),
        ("krum(malicious=0.4)", 10, 1.0, "4 malicious of 10"),
    ],
)
def test_krum_refuses_rounds_that_are_too_small(
    spec: str, clients: int, fraction: float, needs: str
) -> None:
    method = resolve(spec)
    assert isinstance(method, Method)
    with pytest.raises(GlocalError, match=needs):
        method.combine.check(Setting(clients, fraction, 1))
    method.combine.check(Setting(40, 1.0, 1))
