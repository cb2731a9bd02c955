"""The simplex: projection against its definition, the quadratic against an established solver."""

from __future__ import annotations

import clarabel
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.methods.support.simplex import lowest, project


def solved(Q: Tensor, c: Tensor, equal: Tensor, low: Tensor, high: Tensor, at: Tensor) -> Tensor:
    """Clarabel's ``argmin ½ pᵀQp + cᵀp`` with ``equal @ p = at`` between the bounds."""
    K = len(c)
    rows = np.vstack([equal.numpy(), -np.eye(K), np.eye(K)])
    bounds = np.concatenate([at.numpy(), -low.numpy(), high.numpy()])
    cones = [clarabel.ZeroConeT(len(equal)), clarabel.NonnegativeConeT(2 * K)]
    options = clarabel.DefaultSettings()
    options.verbose = False
    options.tol_gap_abs = options.tol_gap_rel = options.tol_feas = 1e-12
    upper = sparse.csc_matrix(np.triu(Q.numpy()))
    solver = clarabel.DefaultSolver(
        upper, c.numpy(), sparse.csc_matrix(rows), bounds, cones, options
    )
    return torch.tensor(solver.solve().x, dtype=torch.float64)


def reference(Q: Tensor, c: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Clarabel's solution of the same problem: one lowest point, no matter which."""
    return solved(Q, c, torch.ones(1, len(c)), low, high, torch.ones(1))


def least_norm(x: Tensor, c: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Clarabel's lowest point of least norm, for ``Q = x xᵀ``.

    All lowest points share ``xᵀp`` and ``cᵀp``; among these the norm is minimised.
    """
    p = reference(x @ x.T, c, low, high)
    equal = torch.cat([torch.ones(1, len(c)), x.T, c.unsqueeze(0)])
    at = equal @ p
    return solved(torch.eye(len(c)), torch.zeros(len(c)), equal, low, high, at / at[0])


def value(Q: Tensor, c: Tensor, p: Tensor) -> float:
    return float(p @ Q @ p / 2 + c @ p)


def problem(seed: int, K: int, rank: int, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(K, rank, generator=g, dtype=torch.float64)
    return scale * x @ x.T, torch.randn(K, generator=g, dtype=torch.float64)


@pytest.mark.parametrize("K", [1, 2, 3, 10, 40, 100])
@pytest.mark.parametrize("seed", range(3))
def test_random_problems(K: int, seed: int) -> None:
    Q, c = problem(seed, K, 2 * K)
    ours, theirs = lowest(Q, c), reference(Q, c, torch.zeros(K), torch.full((K,), 2.0))
    assert float((ours - theirs).abs().max()) < 1e-6
    assert ours.min() >= 0
    assert float(ours.sum()) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("K", [2, 5, 30, 100])
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("linear", [False, True])
def test_singular_problems(K: int, rank: int, linear: bool) -> None:
    """Many points may be lowest: they share their value."""
    Q, c = problem(K, K, rank)
    c = c if linear else torch.zeros_like(c)
    ours, theirs = lowest(Q, c), reference(Q, c, torch.zeros(K), torch.full((K,), 2.0))
    assert value(Q, c, ours) == pytest.approx(value(Q, c, theirs), abs=1e-6)
    assert value(Q, c, ours) <= value(Q, c, theirs) + 1e-9


@pytest.mark.parametrize("K", [2, 5, 30, 100])
@pytest.mark.parametrize("width", [0.001, 0.05, 0.5, 1.0])
def test_boxes(K: int, width: float) -> None:
    Q, c = problem(K, K, K // 2 + 1)
    centre = torch.softmax(c, 0)
    low, high = (centre - width).clamp(min=0), (centre + width).clamp(max=1)
    ours, theirs = lowest(Q, c, low, high), reference(Q, c, low, high)
    assert value(Q, c, ours) == pytest.approx(value(Q, c, theirs), abs=1e-6)
    assert bool((ours >= low - 1e-12).all() and (ours <= high + 1e-12).all())
    assert float(ours.sum()) == pytest.approx(1, abs=1e-12)


@given(
    st.integers(0, 10**6), st.integers(1, 12), st.integers(0, 14), st.sampled_from([1e-4, 1, 99])
)
@settings(max_examples=60, deadline=None)
def test_no_point_is_lower(seed: int, K: int, rank: int, scale: float) -> None:
    """The gradient at the lowest point is least, and equal, where there is weight (KKT)."""
    Q, c = problem(seed, K, rank, scale)
    p = lowest(Q, c)
    slope = Q @ p + c
    assert float(p @ slope - slope.min()) < 1e-7 * max(1.0, float(Q.abs().max()))


@pytest.mark.parametrize(("K", "rank"), [(5, 1), (7, 2), (12, 5), (30, 0), (100, 2)])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("boxed", [False, True])
def test_of_many_lowest_points_that_of_least_norm_is_found(
    K: int, rank: int, linear: bool, boxed: bool
) -> None:
    g = torch.Generator().manual_seed(K)
    x = torch.randn(K, rank, generator=g, dtype=torch.float64)
    c = torch.randn(K, generator=g, dtype=torch.float64) * linear
    centre = torch.softmax(torch.randn(K, generator=g, dtype=torch.float64), 0)
    low = (centre - 0.05).clamp(min=0) if boxed else torch.zeros_like(c)
    high = centre + 0.05 if boxed else torch.full_like(c, 2.0)
    ours = lowest(x @ x.T, c, low, high)
    assert torch.allclose(ours, least_norm(x, c, low, high), atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_order_of_clients_does_not_matter_even_where_many_are_lowest(seed: int) -> None:
    Q, c = problem(seed, 7, 2)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    c = torch.zeros_like(c)
    turned = lowest(Q[order][:, order], c)
    assert torch.allclose(turned, lowest(Q, c)[order], atol=1e-6)


def test_worked_by_hand() -> None:
    Q = torch.diag(torch.tensor([1.0, 2.0, 4.0]))
    assert torch.allclose(lowest(Q, torch.zeros(3)).float(), torch.tensor([4.0, 2.0, 1.0]) / 7)
    pulled = lowest(torch.eye(2), torch.tensor([0.0, 5.0]))  # p = (3, -2) without the bound
    assert torch.allclose(pulled.float(), torch.tensor([1.0, 0.0]), atol=1e-9)


def test_bounds_that_leave_no_choice() -> None:
    Q, c = problem(1, 3, 3)
    p0 = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
    assert torch.equal(lowest(Q, c, p0, p0), p0)
    part = lowest(Q, c, p0 * torch.tensor([1, 0, 0]), torch.tensor([0.2, 1.0, 1.0]))
    assert float(part[0]) == pytest.approx(0.2)
    with pytest.raises(GlocalError, match="sum to one"):
        lowest(Q, c, torch.full((3,), 0.5), torch.ones(3))
    with pytest.raises(GlocalError, match="sum to one"):
        lowest(Q, c, torch.zeros(3), torch.full((3,), 0.3))
    with pytest.raises(GlocalError, match="finite"):
        lowest(Q * torch.nan, c)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30))
@settings(max_examples=100, deadline=None)
def test_projection(values: list[float]) -> None:
    v = torch.tensor(values, dtype=torch.float64)
    p = project(v)
    assert p.min() >= 0
    assert float(p.sum()) == pytest.approx(1, abs=1e-9)
    # Nearest: the way to any corner of the simplex leads away from v.
    away = (v - p) @ (torch.eye(len(v), dtype=v.dtype) - p).T
    assert float(away.max()) < 1e-9 * max(1.0, float(v.abs().max()))
