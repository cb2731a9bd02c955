"""``dp`` where a memory is all that travels: what is bounded, how noisy, sent and printed."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from loops import made, trained
from torch import Tensor, nn

import glocal
import toys
from glocal.core import rng, secret, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Tree, Uplink
from glocal.data.schema import Schema
from glocal.engines import Vectorised
from glocal.methods import resolve
from glocal.methods.generative.energy import weighted_gradient
from glocal.nn.task import Task
from glocal.slots import accounting
from glocal.slots.accounting import Scheme
from glocal.slots.method import Method, as_plan
from glocal.slots.privacy import dp
from glocal.slots.weighting import Setting
from glocal.testing import check_method, ragged
from glocal.training.loop import COHORT
from glocal.training.sampling import Poisson, Sampler

BARE = "fedevg(spc={},beta=1,beta_schedule=constant,delta=0,boxed=false,clip=none)"
"""x ← x − g and nothing else."""
INPUTS = Schema((2, 3), 3)


def begun(spec: str, setting: Setting) -> tuple[Method, Tree]:
    method = as_plan(resolve(spec)).stages[0].method
    task = Task(toys.seeded(lambda: nn.Linear(6, 3)))
    return method, method.begin(task, task.params, setting)


def moved(method: Method, state: Tree, sent: Tree, setting: Setting, n: Tensor) -> Tree:
    """The server's state after a round in which clients would have sent ``sent``."""
    message = dict(tree.flatten(sent))
    if "score" in sent:
        message = {"v": torch.func.vmap(weighted_gradient)(sent["score"], sent["gradient"])}
    uplink = Uplink(torch.arange(len(n)), n, {}, None, message)
    after, _ = method.server_half.reduce(state, uplink, setting, rng.key(1), secret.of_seed(1))
    return after


def drawn(state: Tree, m: int, seed: int, scale: float) -> Tree:
    """What ``m`` clients would send, without privacy."""
    key = rng.key(seed)
    if "x" in state:
        shape = state["x"].shape
        s = 5 * rng.normal(rng.fold(key, 0), (m, shape[0]))
        return {"score": s, "gradient": scale * rng.normal(rng.fold(key, 1), (m, *shape))}
    flat = dict(tree.flatten(state))
    sent = {
        k: scale * rng.normal(rng.fold(key, i), (m, *x.shape))
        for i, (k, x) in enumerate(flat.items())
    }
    return tree.unflatten(sent)


@pytest.mark.parametrize(
    "spec", [BARE.format(2), "fedcgan(width=1,code=2)", "fedcvae(width=1,code=2)"]
)
@given(
    seed=st.integers(0, 10**6),
    m=st.integers(1, 6),
    bound=st.floats(1e-3, 1e3),
    sampling=st.sampled_from(["fixed", "poisson"]),
)
@settings(max_examples=20, deadline=None)
def test_one_client_moves_the_servers_state_by_no_more_than_its_share(
    spec: str, seed: int, m: int, bound: float, sampling: str
) -> None:
    setting = Setting(10, m / 10, 5, sampling, INPUTS)
    method, state = begun(f"{spec}+dp(clip={bound!r},noise=0)", setting)
    scale = 10.0 ** (seed % 7 - 3)
    sent = drawn(state["memory"], m, seed, scale)
    other = drawn(state["memory"], m, seed + 1, 10 * scale)
    changed = tree.map(lambda a, b: torch.cat([b[:1], a[1:]]), sent, other)

    def far(a: Tree, b: Tree) -> float:
        return float(tree.sq_norm(tree.map(lambda x, y: (x - y).double(), a, b)).sqrt())

    n = torch.full((m,), 7)
    whole = moved(method, state, sent, setting, n)["memory"]
    without = moved(method, state, tree.row(sent, slice(1, None)), setting, n[1:])["memory"]
    instead = moved(method, state, changed, setting, n + 100 * (n.cumsum(0) == 7))["memory"]
    share, rounding = bound / m, 1e-5 * (10 + bound)
    assert far(whole, without) <= share + rounding
    assert far(whole, instead) <= 2 * share + rounding
    assert far(whole, state["memory"]) > 0


@pytest.mark.parametrize(("where", "times"), [("central", 1), ("local", 5)])
def test_noise_of_the_stated_size(where: str, times: int) -> None:
    """Variance (z S)² on the sum: once, or once for each client. 4 are expected, 5 came."""
    S, z, n = 0.5, 1.5, torch.ones(5)
    setting = Setting(40, 0.1, 10, "poisson", INPUTS)
    x = {}
    for noise in (0.0, z):
        spec = f"{BARE.format(1000)}+dp(clip={S},noise={noise},where={where})"
        method, state = begun(spec, setting)
        after = moved(method, state, drawn(state["memory"], 5, 0, 1.0), setting, n)
        assert int(after["privacy"]["rounds"]) == 1
        x[noise] = after["memory"]["x"].double()
    found = 4 * (x[z] - x[0.0])
    assert float(found.var()) == pytest.approx(times * (z * S) ** 2, rel=0.05)
    assert abs(float(found.mean())) < 0.02


def test_the_sum_by_hand() -> None:
    """exp(1) · (3, 4) and exp(−1) · (3, 4), the first clipped to 5: sum (3, 4) (1 + 1/e), m = 4."""
    setting = Setting(4, 1.0, 5, "all", Schema((2,), 1))
    method, state = begun(f"{BARE.format(1)}+dp(clip=5,noise=0)", setting)
    sent = {
        "score": torch.tensor([[1.0], [-1.0]]),
        "gradient": torch.tensor([[[3.0, 4.0]], [[3.0, 4.0]]]),
    }
    after = moved(method, state, sent, setting, torch.tensor([1, 1000]))
    g = state["memory"]["x"] - after["memory"]["x"]
    want = (1 + torch.exp(torch.tensor(-1.0))) * torch.tensor([[3.0, 4.0]]) / 4
    torch.testing.assert_close(g, want, rtol=1e-5, atol=1e-5)


def test_large_scores_stay_finite() -> None:
    v = weighted_gradient(torch.tensor([1e4, -1e4, 0.0]), torch.ones(3, 2))
    assert v.isfinite().all()
    assert v[1:].tolist() == [[0, 0], [1, 1]]


def test_a_client_sends_one_vector_and_nothing_else() -> None:
    _, done = trained("fedevg(spc=5)+dp", Vectorised())
    assert tuple(done.traffic.up) == ({"extra": 3 * 15 * 6},) * 3
    assert tuple(done.traffic.down) == ({"extra": 3 * (15 * 6 + 15)},) * 3
    _, plain = trained("fedcvae(width=1,code=2)", Vectorised(), rounds=1)
    _, done = trained("fedcvae(width=1,code=2)+dp(noise=0.01)", Vectorised(), rounds=1)
    assert done.traffic.up == plain.traffic.up


@pytest.mark.parametrize(
    ("spec", "sampler"),
    [
        ("fedevg(spc=2,steps=2)+dp(clip=1.0,noise=1.0)", None),
        ("fedevg(spc=2,steps=2,fresh=false)+dp(quantile=0.5)", Poisson(0.25)),
        ("fedcgan(width=1,code=2)+dp(where=local,noise=0.01)", None),
        ("fedcvae(width=1,code=2)+dp(noise=0.01)", Poisson(0.25)),
    ],
)
def test_the_contract(spec: str, sampler: Sampler | None) -> None:
    check_method(spec, sampler=sampler, rounds=5 if sampler else 3)


def test_a_round_without_clients_is_noisy_too_and_counts() -> None:
    sampler = Poisson(0.2)
    t = made(f"{BARE.format(50)}+dp(clip=2.0,noise=1.5)", Vectorised(), sampler=sampler, rounds=1)
    empty = next(
        s for s in range(50) if not len(sampler.cohort(6, replace(t, seed=s).key(COHORT, 0)))
    )
    t = replace(t, seed=empty)
    start = t.begin(t.task.params)
    before = start.server["memory"]["x"].clone()
    done = t.run(start)
    assert done.history[0]["cohort"] == 0
    assert int(done.server["privacy"]["rounds"]) == 1
    noise = done.server["memory"]["x"] - before
    assert float(noise.std()) == pytest.approx(1.5 * 2.0 / (0.2 * 6), rel=0.1)


def fit(spec: str | Method, **given: object) -> glocal.Run:
    both: dict[str, object] = {"model": "mlp(7)", "rounds": 3}
    both |= {"baseline": "local(lr=0.1,max_epochs=2)", "progress": False, **given}
    return glocal.fit(spec, ragged(), **both)  # type: ignore[arg-type]


def test_a_run_says_what_it_spent_and_ends_with_its_budget() -> None:
    spec = "fedevg(spc=1,steps=1)+dp(clip=0.5,noise=2.0"
    two = accounting.epsilon(Scheme("all", 6, 6), 2.0, 2, 1e-5)
    run = fit(f"{spec},epsilon={two + 1e-3})")
    assert run.summary["epsilon"] == two
    spent = run.summary["privacy"]
    assert (spent["rounds"], spent["clip"], spent["vacuous"]) == (2, 0.5, False)
    assert (spent["neighbours"], spent["budget_spent"]) == ("add or remove one client", True)
    assert len(run.history) == 2
    assert "synthetic_accuracy" in run.summary


def bare_memory() -> Method:
    method = as_plan(resolve("fedevg")).stages[0].method
    return method.replace(server=replace(method.server, message=None), privacy=dp())


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedevg+dp+uniform", "fedevg brings a server half of its own, where uniform would do"),
        ("fedevg+dp+adam", "where adam would do nothing: leave it out"),
        ("fedevg+dp+median", "fedevg also moves by a mean of what clients send"),
        ("fedevg+dp(noise=0.1,epsilon=1)", "first round of dp.noise=0.1. would cost ε"),
        ("bare", "dp protects the update alone, and fedevg sends more than that: use fedavg"),
    ],
)
def test_what_is_refused(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        fit(bare_memory() if spec == "bare" else spec)
