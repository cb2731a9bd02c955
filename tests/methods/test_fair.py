"""Fair weightings: limits that are other methods, numbers by hand, and independent solutions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import ENGINES, made
from scipy import optimize
from torch import Tensor

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Uplink
from glocal.methods import resolve
from glocal.methods.afl import afl
from glocal.methods.fedmgda import coefficients, fedmgda
from glocal.methods.propfair import propfair, proportional
from glocal.methods.q_fedavg import q_fedavg
from glocal.methods.term import term
from glocal.slots.method import as_plan
from glocal.slots.weighting import Setting, Weighting, by_examples, uniform
from glocal.testing import check_method
from glocal.training.sampling import Fixed

N = torch.tensor([10, 30, 60])
LOSS = torch.tensor([0.5, 1.0, 2.0])


def sent(loss: Tensor = LOSS, update: Tensor | None = None) -> Uplink:
    m = len(loss)
    moved = torch.eye(m) if update is None else update
    n = N if m == 3 else torch.arange(m) + 1
    return Uplink(torch.arange(m), n, {"b": moved[:, :1], "w": moved[:, 1:]}, loss, {})


def weights(weighting: Weighting, uplink: Uplink) -> list[float]:
    state = weighting.init(Setting(len(uplink.ids), 1.0, 10))
    p: list[float] = weighting.weigh(state, uplink)[0].tolist()
    return p


def shares(*raw: float) -> list[float]:
    return pytest.approx([x / sum(raw) for x in raw], abs=1e-7)


def test_q_fedavg_by_hand() -> None:
    assert weights(q_fedavg(2), sent()) == shares(10 * 0.25, 30 * 1.0, 60 * 4.0)
    assert weights(q_fedavg(0.5), sent()) == shares(10 * 0.5**0.5, 30, 60 * 2**0.5)


def test_term_by_hand() -> None:
    assert weights(term(1.5), sent()) == shares(
        *(n * math.exp(1.5 * f) for n, f in zip(N.tolist(), LOSS.tolist(), strict=True))
    )


def test_propfair_by_hand() -> None:
    assert weights(propfair(5), sent()) == shares(10 / 4.5, 30 / 4, 60 / 3)
    # A loss at the baseline or above it counts as the margin does.
    assert weights(propfair(1), sent()) == shares(10 / 0.5, 30 / 0.2, 60 / 0.2)


@pytest.mark.parametrize("weighting", [q_fedavg(0), term(0), term(1e-12), propfair(1e9)])
def test_no_tilt_is_by_examples(weighting: Weighting) -> None:
    assert weights(weighting, sent()) == pytest.approx([0.1, 0.3, 0.6], abs=1e-7)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
@pytest.mark.parametrize("spec", ["q-fedavg(q=0)", "term(lam=0)"])
def test_no_tilt_is_fedavg(spec: str, engine: object) -> None:
    runs = [made(s, engine) for s in ("fedavg", spec)]  # type: ignore[arg-type]
    ours, theirs = (t.run(t.begin(t.task.params)).server["params"] for t in runs)
    assert all(
        torch.allclose(a, b, atol=1e-7)
        for a, b in zip(tree.leaves(ours), tree.leaves(theirs), strict=True)
    )


def test_huge_tilts_do_not_overflow() -> None:
    assert weights(term(1e5), sent()) == pytest.approx([0, 0, 1])
    assert weights(q_fedavg(1e5), sent()) == pytest.approx([0, 0, 1])


def test_losses_of_zero() -> None:
    none = sent(torch.zeros(3))
    for weighting in (q_fedavg(1), q_fedavg(0), term(1), propfair(2)):
        assert weights(weighting, none) == pytest.approx([0.1, 0.3, 0.6])
    assert weights(q_fedavg(1), sent(torch.tensor([0.0, 1.0, 0.0]))) == pytest.approx([0, 1, 0])
    assert sum(weights(q_fedavg(0.5, lipschitz=10), none)) > 0


def test_original_q_step_with_no_q_is_the_uniform_mean() -> None:
    assert weights(q_fedavg(0, lipschitz=10), sent()) == pytest.approx([1 / 3] * 3)


def test_original_q_step_by_hand() -> None:
    """``Σ F^q Δ / Σ (q F^{q−1} ‖Δ‖² + L F^q)`` with Δ = L (w − w_i), worked out beside it."""
    q, L = 1.5, 4.0
    moved = torch.tensor([[1.0, 2.0, 0.0], [0.5, 0.0, -1.0], [0.0, 0.3, 0.2]])
    p = torch.tensor(weights(q_fedavg(q, lipschitz=L), sent(update=moved)))
    top, bottom = torch.zeros(3), 0.0
    for f, change in zip(LOSS.tolist(), moved, strict=True):
        delta = -L * change
        top = top + f**q * delta
        bottom += q * f ** (q - 1) * float(delta @ delta) + L * f**q
    assert torch.allclose(p @ moved, -top / bottom, atol=1e-6)


def test_afl_by_hand() -> None:
    """(1/3, 1/3, 1/3) + 0.1 (0.5, 1, 2), less what is too much, the same from each."""
    for rate, climbed in (
        (0.1, [1 / 3 - 2 / 30, 1 / 3 - 0.5 / 30, 1 / 3 + 2.5 / 30]),
        (100, [0, 0, 1]),
    ):
        weighting = afl(rate)
        p, state = weighting.weigh(weighting.init(Setting(3, 1.0, 10)), sent())
        # A round is aggregated with the p that stood before it.
        assert p.tolist() == pytest.approx([1 / 3] * 3)
        assert weighting.standing is not None
        assert weighting.standing(state, torch.arange(3)).tolist() == pytest.approx(climbed)
        assert weighting.weigh(state, sent())[0].tolist() == pytest.approx(climbed)


@given(
    st.lists(st.lists(st.floats(0, 50), min_size=4, max_size=4), min_size=1, max_size=10),
    st.sampled_from([0.01, 0.1, 1.0, 30.0]),
)
@settings(max_examples=60, deadline=None)
def test_afl_stays_on_the_simplex(rounds: list[list[float]], rate: float) -> None:
    weighting = afl(rate)
    state = weighting.init(Setting(4, 1.0, 10))
    for loss in rounds:
        p, state = weighting.weigh(state, sent(torch.tensor(loss)))
        assert p.min() >= 0
        assert float(p.sum()) == pytest.approx(1, abs=1e-9)


def test_afl_stays_on_the_simplex_whatever_the_losses() -> None:
    for loss in ([1e30, 1.0, 1.0], [1e38, 1e38, 1e38], [0.0, 1e16, 1e16 + 4]):
        p = weights(afl(0.1), sent(torch.tensor(loss, dtype=torch.float64)))
        assert sum(p) == pytest.approx(1)
        assert min(p) >= 0


def test_losses_that_are_not_finite_are_refused() -> None:
    for weighting in (q_fedavg(1), term(1), propfair(2), afl(1)):
        with pytest.raises(GlocalError, match="not finite"):
            weights(weighting, sent(torch.tensor([1.0, torch.nan, 1.0])))
    assert weights(term(3e38), sent()) == pytest.approx([0, 0, 1])


def test_afl_needs_everybody() -> None:
    with pytest.raises(GlocalError, match="afl needs every client"):
        afl().init(Setting(10, 0.1, 5))


def test_fedmgda_without_room_keeps_the_static_coefficients() -> None:
    moved = torch.tensor([[1.0, 2.0, 0.0], [0.5, 0.0, -1.0], [0.0, 0.3, 0.2]])
    uplink = sent(update=moved)
    p0 = N.double() / N.sum()
    assert torch.equal(coefficients(uplink.update, p0, 0.0), p0)
    norms = moved.double().norm(dim=1)
    # As weights of raw updates they carry the step: its length over each update's norm.
    expected = p0 * (p0 @ norms) / norms
    assert weights(fedmgda(0), uplink) == pytest.approx(expected.tolist(), abs=1e-6)
    expected = 0.7 / norms / 3
    assert weights(fedmgda(0, step=0.7, static="uniform"), uplink) == pytest.approx(
        expected.tolist(), abs=1e-6
    )


def test_fedmgda_takes_fedavgs_step_when_clients_agree() -> None:
    same = torch.tensor([[0.3, -0.4, 0.1]]).expand(3, 3)
    p = torch.tensor(weights(fedmgda(0.2), sent(update=same)))
    assert torch.allclose(p @ same, same[0], atol=1e-6)


@pytest.mark.parametrize("epsilon", [0.05, 0.3, 1.0])
def test_fedmgda_is_the_min_norm_point_in_its_box(epsilon: float) -> None:
    g = torch.Generator().manual_seed(3)
    moved = torch.randn(4, 6, generator=g)
    uplink = sent(torch.ones(4), moved)
    p0 = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    found = coefficients(uplink.update, p0, epsilon)
    unit = (moved / moved.norm(dim=1, keepdim=True)).double()
    theirs = optimize.minimize(
        lambda x: float((torch.tensor(x) @ unit).square().sum()),
        p0.numpy(),
        method="SLSQP",
        bounds=[(max(0, p - epsilon), min(1, p + epsilon)) for p in p0.tolist()],
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.tolist() == pytest.approx(theirs.x.tolist(), abs=1e-4)
    assert float((found - p0).abs().max()) <= epsilon + 1e-9


def test_fedmgda_descends_for_everybody_at_full_width() -> None:
    g = torch.Generator().manual_seed(5)
    moved = torch.randn(3, 8, generator=g)
    moved[1] = -0.5 * moved[0] + 0.5 * moved[1]  # two that partly disagree
    p = torch.tensor(weights(fedmgda(1.0), sent(update=moved)))
    assert bool(((p @ moved) @ moved.T >= -1e-6).all())


def test_fedmgda_with_clients_that_did_not_move() -> None:
    still = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    p = weights(fedmgda(0.1), sent(update=still))
    assert p[1] == 0
    assert all(math.isfinite(x) for x in p)
    assert weights(fedmgda(0.1), sent(update=torch.zeros(3, 3))) == [0, 0, 0]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: q_fedavg(-1), "q must be 0 or more"),
        (lambda: q_fedavg(1, lipschitz=0), "lipschitz must be above 0"),
        (lambda: term(-0.1), "lam must be 0 or more"),
        (lambda: propfair(0), "baseline must be above 0"),
        (lambda: afl(0), "rate must be above 0"),
        (lambda: fedmgda(1.5), "epsilon must be from 0 to 1"),
        (lambda: fedmgda(0.1, step=-1), "step must be above 0"),
        (lambda: fedmgda(0.1, static="sizes"), "unknown static 'sizes'"),
        (lambda: resolve("fedavg+q-fedavg+term"), "fill the same slot"),
        (lambda: resolve("propfair-loss+propfair"), "twice"),
    ],
)
def test_refusals(make: object, said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        make()  # type: ignore[operator]


@pytest.mark.parametrize(("baseline", "near"), [(5.0, False), (1.0, True)])
def test_propfair_loss_by_hand(baseline: float, near: bool) -> None:
    """``−log(1 − ℓ/M)`` has the plain gradient over M − ℓ; near the baseline it is over M."""
    training = made("fedavg", ENGINES[0])
    task, w = training.task, training.task.params
    x, y = training.fed[4].train
    batch, key = {"x": x, "y": y, "weight": torch.ones(len(y))}, rng.key(0)
    plain, loss = task.grad(lambda v: task.loss(v, batch, key), w)
    grads, value = task.grad(lambda v: proportional(task.loss(v, batch, key), baseline), w)
    local = as_plan(resolve(f"propfair-loss(baseline={baseline})")).stages[0].method.local
    down = {"params": w, "lr": torch.tensor(1.0)}
    moved = local.step(task, down, local.start(task, down, {}), batch, key)["w"]
    assert torch.allclose(moved["0.bias"], w["0.bias"] - 0.1 * grads["0.bias"], atol=1e-6)
    assert (baseline - float(loss) < 0.2) == near
    slope = 1 / baseline if near else 1 / (baseline - float(loss))
    worth = float(loss) / baseline if near else -math.log(1 - float(loss) / baseline)
    assert float(value) == pytest.approx(worth, rel=1e-5)
    for name, grad in grads.items():
        assert torch.allclose(grad, slope * plain[name], atol=1e-6)


@pytest.mark.parametrize(
    "spec",
    [
        "q-fedavg(q=2)",
        "q-fedavg(q=1,lipschitz=10)",
        "term(lam=3)",
        "propfair-loss+q-fedavg",
        "fedmgda(epsilon=1,static=uniform,step=0.5)",
        "fedrep+term",
        "superfed-mm+propfair+adagrad(lr=0.1)",
        "scaffold+q-fedavg",
    ],
)
def test_conformance(spec: str) -> None:
    check_method(spec)


def test_conformance_of_afl() -> None:
    check_method("afl(rate=1)", sampler=Fixed(6))


def test_uniform_and_by_examples() -> None:
    assert weights(by_examples(), sent()) == pytest.approx([0.1, 0.3, 0.6])
    assert weights(uniform(), sent()) == pytest.approx([1 / 3] * 3)
