"""Clip, noise, adaptive clip, budget: what they promise, what is printed, what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

import toys
from glocal.core import rng, secret, tree
from glocal.core.errors import GlocalError
from glocal.core.secret import gaussian, of_seed
from glocal.core.types import Params, Tree, Uplink
from glocal.engines import Sequential
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.client import minibatch_training
from glocal.slots.method import Method, as_plan
from glocal.slots.privacy import Privacy, clipped, dp, noisy, norm
from glocal.slots.weighting import Setting
from glocal.testing import check_method, ragged
from glocal.training.loop import COHORT, Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Among, Fixed, Fraction, Poisson, Sampler


def made(**settings: Any) -> Privacy:
    filled = dp(**settings)
    assert isinstance(filled, Privacy)
    return filled


def params(*values: Any) -> Params:
    return {f"p{i}": torch.tensor(v) for i, v in enumerate(values)}


numbers = st.floats(-(2.0**100), 2.0**100, width=32, allow_nan=False)
some = arrays("float32", st.integers(1, 30), elements=numbers).map(torch.from_numpy)
updates = st.builds(lambda a, b: {"w": a, "b": b}, some, some)
bounds = st.floats(1e-3, 1e3)


@given(updates, bounds)
def test_a_clipped_update_is_never_longer_than_the_clip(update: Params, bound: float) -> None:
    sent = clipped(update, bound)
    assert float(norm(sent)) <= bound
    if float(norm(update)) <= bound:
        assert all(torch.equal(sent[k], update[k]) for k in update)
        return
    assert float(norm(sent)) == pytest.approx(bound, rel=1e-5)
    for k, x in update.items():  # the direction is kept
        want = x.double() / norm(update) * bound
        assert torch.allclose(sent[k].double(), want, rtol=1e-5, atol=1e-30)


@given(st.lists(updates, min_size=1, max_size=5), bounds)
def test_one_client_changes_the_sum_by_the_clip_and_another_in_its_place_by_twice_that(
    cohort: list[Params], bound: float
) -> None:
    flat = [torch.cat([u["w"].flatten(), u["b"].flatten()]) for u in cohort]
    longest = max(map(len, flat))
    padded = [torch.nn.functional.pad(x, (0, longest - len(x))) for x in flat]
    sent = [clipped({"x": x}, bound)["x"].double() for x in padded]
    total = torch.stack(sent).sum(0)
    without = torch.stack([torch.zeros_like(total), *sent[1:]]).sum(0)
    other = torch.stack([-sent[0], *sent[1:]]).sum(0)
    rounding = 1e-9 * bound
    assert float((total - without).norm()) <= bound + rounding
    assert float((total - other).norm()) <= 2 * bound + rounding


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from(["fixed", "poisson"]), bounds)
@settings(max_examples=40, deadline=None)
def test_one_client_moves_the_servers_model_by_no_more_than_its_share(
    seed: int, m: int, sampling: str, bound: float
) -> None:
    """Through the server's own half of a round: the clip over C·K, for one client more or less."""
    K = 10
    method = as_plan(resolve(f"dp(clip={bound!r},noise=0)")).stages[0].method
    task = Task(toys.seeded(lambda: nn.Linear(3, 2)))
    setting = Setting(K, m / K, 5, sampling)
    state = method.begin(task, task.params, setting)
    scale = 10.0 ** (seed % 7 - 3)
    sent = {
        k: scale * rng.normal(rng.fold(rng.key(seed), i), (m, *x.shape))
        for i, (k, x) in enumerate(task.params.items())
    }

    def moved(who: list[int], change: float = 1.0) -> Params:
        update = {k: v[who].clone() for k, v in sent.items()}
        if who and who[0] == 0:
            update = {k: torch.cat([change * v[:1], v[1:]]) for k, v in update.items()}
        uplink = Uplink(torch.tensor(who), torch.ones(len(who)), update, None, {})
        after, _ = method.server_half.reduce(state, uplink, setting, rng.key(1), of_seed(1))
        new: Params = after["params"]
        return new

    everybody = list(range(m))
    whole = moved(everybody)
    share, rounding = bound / m, 1e-5 * (1 + bound)
    assert float(norm(tree.sub(whole, moved(everybody[1:])))) <= share + rounding
    assert float(norm(tree.sub(whole, moved(everybody, -5.0)))) <= 2 * share + rounding


def test_the_whole_update_is_clipped_not_each_layer() -> None:
    """‖(3, 4, 12)‖ = 13."""
    sent = clipped(params([3.0, 4.0], [12.0]), 6.5)
    assert torch.allclose(sent["p0"], torch.tensor([1.5, 2.0]))
    assert torch.allclose(sent["p1"], torch.tensor([6.0]))
    huge = clipped(params([3e30, 4e30]), 1.0)
    assert torch.allclose(huge["p0"], torch.tensor([0.6, 0.8]))
    assert not clipped(params([0.0]), 1.0)["p0"].any()


def test_noise_is_normal_with_tails() -> None:
    x = gaussian(of_seed(3), (1_000_000,))
    assert x.dtype == torch.float64
    assert float(x.mean()) == pytest.approx(0, abs=0.004)
    assert float(x.var()) == pytest.approx(1, abs=0.006)
    assert float((x**4).mean()) == pytest.approx(3, abs=0.05)
    for t, beyond in ((2.0, 0.0455), (3.0, 0.0027), (4.0, 6.33e-5)):
        assert float((x.abs() > t).double().mean()) == pytest.approx(beyond, rel=0.3)
    y = noisy({"a": torch.zeros(1000), "b": torch.zeros(1000)}, 2.0, of_seed(3))
    assert abs(float((y["a"] * y["b"]).mean())) < 0.5  # each parameter has its own
    assert torch.equal(y["a"], noisy({"a": torch.zeros(1000)}, 2.0, of_seed(3))["a"])


def sent(cohort: int, size: int, length: float = 3.0) -> Uplink:
    """Updates of one direction each, of that length."""
    update = torch.nn.functional.normalize(rng.normal(rng.key(1), (cohort, size)), dim=1)
    ids = torch.arange(cohort)
    return Uplink(ids, torch.full((cohort,), 7), {"w": length * update}, None, {})


def reduced(method: Method, uplink: Uplink, setting: Setting, seed: int) -> tuple[Tensor, Tree]:
    """The step that the server takes, and its new state."""
    zeros = torch.zeros(uplink.update["w"].shape[1])
    state: Tree = {
        "params": {"w": zeros},
        "start": {},
        "opt": {},
        "weighting": method.weights.init(setting),
        "memory": {},
        "privacy": method.privacy.init(setting) if method.privacy else {},
    }
    after, _ = method.server_half.reduce(state, uplink, setting, rng.key(0), of_seed(seed))
    return after["params"]["w"], after


@pytest.mark.parametrize(("where", "times"), [("central", 1), ("local", 5)])
def test_noise_on_the_sum(where: str, times: int) -> None:
    """Variance (z S)²: once, or once for each client. The mean is over the expected size."""
    size, S, z = 200_000, 0.5, 1.5
    setting = Setting(40, 0.1, 10, "poisson")  # 4 are expected, 5 came
    uplink = sent(5, size)
    quiet = Method(local=minibatch_training(), privacy=dp(clip=S, noise=0.0, where=where))
    loud = Method(local=minibatch_training(), privacy=dp(clip=S, noise=z, where=where))
    exact, _ = reduced(quiet, uplink, setting, 5)
    assert torch.allclose(4 * exact, S / 3 * uplink.update["w"].sum(0), atol=1e-5)
    step, _ = reduced(loud, uplink, setting, 5)
    noise = 4 * (step - exact).double()
    assert float(noise.var()) == pytest.approx(times * (z * S) ** 2, rel=0.02)
    assert abs(float(noise.mean())) < 0.01
    again, _ = reduced(loud, uplink, setting, 5)
    other, _ = reduced(loud, uplink, setting, 6)
    assert torch.equal(step, again)
    assert not torch.equal(step, other)


def test_an_update_of_its_own_noise_is_protected_when_it_leaves() -> None:
    private = made(clip=2.0, noise=0.7, where="local")
    state = private.init(Setting(10, 1.0, 1))
    update = {"w": torch.zeros(100_000)}
    alone, _ = private.client(state, update, of_seed(1))
    assert float(alone["w"].double().var()) == pytest.approx((0.7 * 2.0) ** 2, rel=0.02)


@pytest.mark.parametrize("spec", ["dp(clip=1.0,noise=0.5)", "dp(quantile=0.5,clip=0.1)"])
@pytest.mark.parametrize("sampler", [None, Poisson(0.25)])
def test_the_contract(spec: str, sampler: Sampler | None) -> None:
    check_method(spec, sampler=sampler, rounds=5 if sampler else 3)


@pytest.mark.parametrize("spec", ["dp(where=local)", "ditto+dp+adam", "fedavg(shared=last(1))+dp"])
def test_the_contract_of_others(spec: str) -> None:
    check_method(spec)


def test_the_contract_of_a_plan() -> None:
    check_method("lg-fedavg(warmup=2)+dp", rounds=4)


def training(spec: str, sampler: Sampler, rounds: int, seed: int = 0) -> Training:
    from glocal.nn import models

    fed = ragged()
    task = Task(models.build("mlp(7)", input_shape=(6,), classes=3))
    plan = as_plan(resolve(spec))
    return Training(plan, task, fed, Sequential(), sampler, rounds, seed, public_noise=True)


def run(t: Training) -> Progress:
    return t.run(t.begin(t.task.params))


def test_without_noise_and_with_a_huge_clip_it_is_fedavg_with_uniform_weights() -> None:
    for sampler in (Fixed(3), Fraction(1.0)):
        ours = run(training("dp(clip=1e9,noise=0)", sampler, 3)).server["params"]
        theirs = run(training("fedavg+uniform", sampler, 3)).server["params"]
        for k, w in theirs.items():
            assert torch.allclose(ours[k], w, atol=1e-6)
    ours = run(training("dp(clip=1e9,noise=0)+uniform+adam", Fixed(3), 3)).server["params"]
    theirs = run(training("fedavg+uniform+adam", Fixed(3), 3)).server["params"]
    assert all(torch.allclose(ours[k], w, atol=1e-5) for k, w in theirs.items())


def test_a_round_without_clients_is_noisy_too_and_counts() -> None:
    """Else the model would tell that nobody was drawn, which the accountant does not assume."""
    t = training("dp(clip=1.0,noise=1.0)", Poisson(0.2), 1)
    empty = next(s for s in range(50) if not len(Poisson(0.2).cohort(6, replace_seed(t, s))))
    t = replace(t, seed=empty)
    start = t.begin(t.task.params)
    before = tree.map(torch.clone, start.server["params"])
    done = t.run(start)
    assert done.history[0]["cohort"] == 0
    assert int(done.server["privacy"]["rounds"]) == 1
    moved = torch.cat([(done.server["params"][k] - w).flatten() for k, w in before.items()])
    assert float(moved.std()) == pytest.approx(1 / (0.2 * 6), rel=0.25)
    quiet = run(replace(t, plan=as_plan(resolve("fedavg"))))
    assert all(torch.equal(quiet.server["params"][k], w) for k, w in before.items())


def replace_seed(t: Training, seed: int) -> Tensor:
    return replace(t, seed=seed).key(COHORT, 0)


def test_rounds_are_counted_across_stages() -> None:
    done = run(training("lg-fedavg(warmup=2)+dp(quantile=0.5)", Fixed(3), 5))
    assert done.stage == 1
    assert int(done.server["privacy"]["rounds"]) == 5


def norms(lengths: Tensor, size: int = 4) -> Uplink:
    directions = torch.nn.functional.normalize(rng.normal(rng.key(2), (len(lengths), size)), dim=1)
    ids = torch.arange(len(lengths))
    return Uplink(ids, ids + 1, {"w": directions * lengths[:, None]}, None, {})


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_the_clip_finds_the_quantile_of_norms(quantile: float, noise: float) -> None:
    """Norms of 1 to 201, so the quantile γ is 1 + 200 γ."""
    uplink = norms(1 + torch.arange(201.0))
    setting = Setting(201, 1.0, 400)
    private = made(clip=10.0, noise=noise, quantile=quantile)
    state = private.init(setting)
    seen = []
    for t in range(200):
        both = torch.func.vmap(lambda u, k: private.client(state, u, k))(  # noqa: B023
            uplink.update, secret.fold(of_seed(t), uplink.ids)
        )
        said = tree.map(lambda x: x.sum(0), both[1])
        _, state = private.server(state, {"w": torch.zeros(4)}, said, setting, of_seed(t))
        seen.append(float(state["clip"]))
    near = 0.15 if noise else 0.03  # the count is noisy, by 10 of 201 a round
    assert sum(seen[150:]) / 50 == pytest.approx(1 + 200 * quantile, rel=near)
    assert int(state["rounds"]) == 200


def test_one_step_of_the_clip_by_hand() -> None:
    """Two of four below: share 1/2, quantile 0.9, rate 0.2: times exp(0.2 · 0.4)."""
    private = made(clip=2.5, noise=0.0, quantile=0.9)
    setting = Setting(4, 1.0, 1)
    method = Method(local=minibatch_training(), privacy=private)
    _, after = reduced(method, norms(torch.tensor([1.0, 2.0, 3.0, 4.0])), setting, 0)
    assert float(after["privacy"]["clip"]) == pytest.approx(2.5 * math.exp(0.2 * 0.4))


def test_the_count_and_the_update_share_the_noise() -> None:
    """z^−2 = z_Δ^−2 + (2 σ_b)^−2; a count of ±1/2 has half the sensitivity of the clip."""
    for m, noise in ((100.0, 1.0), (10.0, 1.0), (4.0, 3.0)):
        z, count = made(noise=noise, quantile=0.5).split(m)
        assert z**-2 + (2 * count) ** -2 == pytest.approx(noise**-2)
        assert count == max(m / 20, noise)
        assert noise < z < 1.16 * noise
    assert made(noise=1.0).split(100.0) == (1.0, 0.0)
    assert made(noise=0.0, quantile=0.5).split(100.0) == (0.0, 0.0)


def test_a_newcomer_is_not_accounted_for() -> None:
    from glocal.studies.newcomer.join import join

    with pytest.raises(GlocalError, match="joining costs in privacy is not accounted for, so dp"):
        join("dp", ragged(), client="3")
    t = training("dp", Among((0, 1, 2, 3, 4), Fraction(0.5), always=(5,)), 2)
    with pytest.raises(GlocalError, match="unknown sampling that can be accounted for"):
        t.plan.stages[0].method.privacy.check(t.setting)  # type: ignore[union-attr]
