"""DP-SGD: clip and noise by hand, Poisson samples, each client's ε, and what is refused."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glocal
from glocal.core import rng, secret, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params
from glocal.data.split import Split
from glocal.engines import Sequential, Vectorised
from glocal.engines.poisson_batches import poisson_plan
from glocal.methods import resolve
from glocal.nn import models
from glocal.nn.task import Task
from glocal.slots.example_privacy import dp_sgd, in_words
from glocal.slots.method import as_plan
from glocal.testing import check_method, ragged
from glocal.training import secret_draws
from glocal.training.loop import WORK, Training
from glocal.training.sampling import Fixed, Fraction, Sampler


def times(outputs: Tensor, y: Tensor) -> Tensor:
    """A loss whose gradient in the weights is x · y."""
    return outputs[:, 0] * y


def linear() -> Task:
    return Task(nn.Linear(2, 1, bias=False), losses=times)


@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_clip_and_noise_by_hand(noise: float) -> None:
    """(3, 4) is clipped to (1.2, 1.6), (0.6, 0) is not; their sum is over an expected 4."""
    task, key = linear(), secret.of_seed(1)
    x = torch.tensor([[3.0, 4.0], [0.6, 0.0], [100.0, 100.0], [math.inf, 1.0]])
    batch = {"x": x, "y": torch.ones(4), "weight": torch.tensor([1.0, 1.0, 0.0, 1.0])}
    g = dp_sgd(clip=2.0, noise=noise).gradient(task, task.params, batch, 4, rng.key(0), key)
    z = secret.gaussian(key, (2,))
    want = (torch.tensor([1.8, 1.6]) + noise * 2.0 * z) / 4
    torch.testing.assert_close(g["weight"], want.float().view(1, 2), rtol=1e-5, atol=1e-6)


def test_a_client_with_less_than_a_batch_is_divided_by_what_it_has() -> None:
    """Two examples, of which all are in every batch of 4: a mean over 2, its noise over 2, too."""
    task, key = linear(), secret.of_seed(1)
    split = Split(torch.arange(2), torch.tensor([0, 2]))
    ids = torch.zeros(1, dtype=torch.int64)
    for size in (4, 0):
        drawn = poisson_plan(split, ids, rng.key(0).view(1), 1, size)
        assert drawn.steps.tolist() == [1]
        x = torch.tensor([[0.5, 0.0], [0.0, 1.0]])
        batch = {"x": x[drawn.rows[0, 0]], "y": torch.ones(2), "weight": drawn.weight[0, 0]}
        g = dp_sgd(clip=2.0).gradient(task, task.params, batch, size, rng.key(0), key)
        want = (torch.tensor([0.5, 1.0]) + 2.0 * secret.gaussian(key, (2,))) / 2
        torch.testing.assert_close(g["weight"], want.float().view(1, 2), rtol=1e-5, atol=1e-6)


def test_batches_are_poisson_samples() -> None:
    split = Split(torch.arange(70), torch.tensor([0, 40, 70]))
    ids, keys = torch.arange(2), rng.fold(rng.key(3), torch.arange(2))
    drawn = poisson_plan(split, ids, keys, 300, 4)
    assert drawn.steps.tolist() == [3000, 2400]
    for k, (first, n, steps) in enumerate(((0, 40, 3000), (40, 30, 2400))):
        real = drawn.weight[k] > 0
        assert not real[steps:].any()
        assert bool((drawn.weight[k][real] == 1).all())
        sizes = real[:steps].sum(-1).double()
        q = 4 / n
        assert float(sizes.mean()) == pytest.approx(4, rel=0.05)
        assert float(sizes.var()) == pytest.approx(n * q * (1 - q), rel=0.1)
        assert int(sizes.min()) == 0  # nobody: a step of noise alone
        often = torch.bincount(drawn.rows[k][real] - first, minlength=n) / steps
        assert float((often - q).abs().max()) < 5 * (q * (1 - q) / steps) ** 0.5
        twice = [
            rows[r].unique().numel() == int(r.sum())
            for rows, r in zip(drawn.rows[k], real, strict=True)
        ]
        assert all(twice)
    alone = poisson_plan(split, ids[1:], keys[1:], 300, 4)
    width = alone.rows.shape[-1]
    assert torch.equal(alone.rows[0], drawn.rows[1, :2400, :width])


def training(spec: str, sampler: Sampler | None = None, **settings: Any) -> Training:
    task = Task(models.build("mlp(7)", input_shape=(6,), classes=3))
    plan, given = as_plan(resolve(spec)), {"rounds": 3, "seed": 1, "public_noise": True, **settings}
    return Training(plan, task, ragged(), Sequential(), sampler or Fixed(3), **given)


def end(t: Training) -> Params:
    params: Params = t.run(t.begin(t.task.params)).server["params"]
    return params


def loop(t: Training, C: float, sigma: float, lr: float) -> Params:
    """The same rounds example by example, in plain autograd."""
    fed, w = t.fed, t.task.params
    for r in range(t.rounds):
        ids = t.cohort(t.begin(t.task.params), r).tolist()
        updates, n = [], []
        for k in ids:
            own = rng.fold(rng.fold(t.key(WORK, r), k), 0)
            drawn = poisson_plan(fed.train, torch.tensor([k]), own.view(1), 1, 10)
            v = {name: p.clone() for name, p in w.items()}
            size = min(10, len(fed.train.of(k)))
            for step in range(int(drawn.steps[0])):
                total = {name: torch.zeros_like(p) for name, p in v.items()}
                for row in drawn.rows[0, step][drawn.weight[0, step] > 0].tolist():
                    leaf = {name: p.clone().requires_grad_() for name, p in v.items()}
                    out = torch.func.functional_call(t.task.module, leaf, (fed.x[row : row + 1],))
                    nn.functional.cross_entropy(out, fed.y_train[row : row + 1]).backward()
                    length = sum(float(p.grad.square().sum()) for p in leaf.values()) ** 0.5  # type: ignore[union-attr]
                    for name, p in leaf.items():
                        total[name] += p.grad * min(1.0, C / length)  # type: ignore[operator]
                key = rng.fold(rng.fold(own, -2), step)
                z = secret.gaussian(secret.fold(secret.of_key(key), 0), (tree.count(v),))
                parts = torch.split(z, [p.numel() for p in v.values()])
                for (name, p), part in zip(v.items(), parts, strict=True):
                    noisy = total[name] + sigma * C * part.view(p.shape).float()
                    v[name] = p - lr * noisy / size
            updates.append(tree.sub(v, w))
            n.append(len(fed.train.of(k)))
        for name in w:
            w[name] = w[name] + sum(c / sum(n) * u[name] for c, u in zip(n, updates, strict=True))
    return w


def test_it_is_the_plain_loop() -> None:
    t = training("fedavg(lr=0.2,epochs=1)+dp-sgd(clip=0.4,noise=0.7)", rounds=2)
    want = loop(t, 0.4, 0.7, 0.2)
    for engine in (Sequential(), Vectorised()):
        for name, w in end(replace(t, engine=engine)).items():
            torch.testing.assert_close(w, want[name], rtol=1e-4, atol=1e-5)


def test_without_clip_and_noise_it_is_the_method_itself() -> None:
    for base in ("fedprox(mu=0.5,batch_size=0)", "fedrep(batch_size=0)"):
        ours = end(training(f"{base}+dp-sgd(clip=1e6,noise=0)"))
        theirs = end(training(base))
        assert all(torch.allclose(ours[k], w, atol=1e-6) for k, w in theirs.items())


def test_the_contract() -> None:
    check_method("ditto(epochs=1)+dp-sgd(noise=0.5,clip=0.3)", rounds=2)


def direct(n: int, b: int, steps: int, noise: float, delta: float) -> float:
    """ε by dp-accounting itself."""
    import dp_accounting as dp

    accountant = dp.rdp.RdpAccountant()
    accountant.compose(dp.PoissonSampledDpEvent(b / n, dp.GaussianDpEvent(noise)), steps)
    return float(accountant.get_epsilon(delta))


def test_few_clients_have_the_tighter_account() -> None:
    import dp_accounting as dp

    spent = dp_sgd(noise=1.2, delta=1e-4).spent([40], [Counter({(1, 5): 80})])
    accountant = dp.pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp.PoissonSampledDpEvent(5 / 40, dp.GaussianDpEvent(1.2)), 80)
    assert spent["accountant"] == "PLD"
    assert spent["epsilon"] == pytest.approx(accountant.get_epsilon(1e-4), rel=0.02)
    assert spent["epsilon"] < direct(40, 5, 80, 1.2, 1e-4)


def test_each_client_has_its_own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its examples, its steps, and the rounds in which it took part."""
    monkeypatch.setattr("glocal.slots.example_privacy.MANY", 0)
    t = training("ditto(batch_size=3,epochs=2)+dp-sgd(noise=4,delta=0.001)", Fixed(3), rounds=4)
    begun = t.begin(t.task.params)
    took = Counter(k for r in range(4) for k in t.cohort(begun, r).tolist())
    spent = secret_draws.examples_spent(t, t.run(begun))
    assert spent is not None
    n = t.fed.train.counts().tolist()
    for k in range(6):
        steps = took[k] * 2 * math.ceil(n[k] / 3)
        want = direct(n[k], 3, steps, 4 / math.sqrt(2), 1e-3) if steps else 0.0  # two gradients
        assert spent["epsilons"][k] == pytest.approx(want, rel=1e-3)
    assert spent["epsilon"] == max(spent["epsilons"])
    assert min(spent["epsilons"]) < max(spent["epsilons"])


def test_different_steps_add_up() -> None:
    """Where stages or phases differ; of the same it is one account."""
    from glocal.slots.accounting import Scheme, composed

    scheme = Scheme("poisson", 50, 5)
    two = composed(((scheme, 3.0, 20), (Scheme("poisson", 50, 10), 3.0, 1)), 1e-5)
    halves = composed(((scheme, 3.0, 10), (scheme, 3.0, 10)), 1e-5)
    one = composed(((scheme, 3.0, 20),), 1e-5)
    assert halves[0] == pytest.approx(one[0], rel=0.01)
    assert two[0] > one[0]
    assert composed((), 1e-5) == (0.0, "exact")
    assert composed(((scheme, 0.0, 1), (scheme, 1.0, 1)), 1e-5)[0] == math.inf
    rdp = composed(((scheme, 3.0, 10), (scheme, 3.0, 10)), 1e-5, "rdp")
    assert rdp[1] == "RDP"
    assert rdp[0] > halves[0]


def fit(spec: str, **settings: Any) -> glocal.Run:
    given = {"model": "mlp(7)", "rounds": 2, "baseline": "none", "progress": False, **settings}
    return glocal.fit(spec, ragged(), **given)


def test_a_run_says_what_each_client_spent() -> None:
    run = fit("fedavg(batch_size=0)+dp-sgd(noise=0.3)+dp(noise=2.0)")
    spent = run.summary["example_privacy"]
    column = [row["epsilon"] for row in run.clients]
    assert spent["epsilon"] == max(column)
    assert spent["vacuous"] == 6
    assert "epsilons" not in spent
    assert run.summary["privacy"]["noise"] == 2.0  # clients are protected by the other one
    said = in_words(spent)
    assert "(vacuous)" in said
    assert "vacuous for 6 of 6" in said
    quiet = fit("fedavg(batch_size=0)+dp-sgd(noise=0)").summary["example_privacy"]
    assert quiet["epsilon"] == quiet["median"] == math.inf


def test_what_clients_draw_is_secret() -> None:
    """The same seed, and other batches and noise; what was drawn cannot be drawn again."""
    spec = "dp-sgd(clip=0.5,noise=1.0)"
    hidden, public = training(spec, public_noise=False), training(spec)
    for t, same in ((hidden, False), (public, True)):
        first, second = t.begin(t.task.params), t.begin(t.task.params)
        assert torch.equal(t.round_key(first), t.round_key(second)) is same
        assert torch.equal(t.round_key(first), t.key(WORK, 0)) is same
        assert t.cohort(first, 0).tolist() == t.cohort(second, 0).tolist()
    progress = hidden.begin(hidden.task.params)
    secret_draws.forget(progress)
    with pytest.raises(GlocalError, match="is gone"):
        hidden.one_round(progress)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("scaffold+dp-sgd", "clients of scaffold send more than that: use fedavg"),
        ("fedevg+dp-sgd", "clients of fedevg send more than that: use fedavg"),
        ("pfedme+dp-sgd", "also train where they are evaluated, which nobody would account for"),
        ("propfair-loss+dp-sgd", "makes the gradient of a loss private, not its value"),
        ("dp-sgd+afl", "afl asks clients for a loss, which dp-sgd does not protect"),
        ("dp-sgd+dp-sgd", r"fill the same slot \(example_privacy\)"),
        ("local+dp-sgd", "local sends nothing, so the rest"),
        ("lg-fedavg(goal=0.9)+dp-sgd", "clients' validation data, which dp-sgd does not"),
        ("dp-sgd(clip=0)", "clip must be above 0, not 0"),
        ("dp-sgd(noise=-1)", "noise must be 0 or more, not -1"),
        ("dp-sgd(delta=1)", "delta must be above 0 and below 1"),
        ("dp-sgd(delta=0.1)", "allows one of 29 examples to be published whole"),
    ],
)
def test_what_is_refused_before_anyone_trains(
    spec: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Training, "one_round", lambda *_: pytest.fail("somebody trained"))
    with pytest.raises(GlocalError, match=message):
        fit(spec)


def test_a_step_that_reads_its_examples_is_refused() -> None:
    method = as_plan(resolve("dp-sgd")).stages[0].method
    base = method.local

    def peeks(task: Any, down: Any, carry: Any, batch: Any, key: Any) -> Any:
        batch["x"].sum()
        return base.step(task, down, carry, batch, key)

    def predicts(task: Any, down: Any, carry: Any, batch: Any, key: Any) -> Any:
        task.predict(down["params"], torch.zeros(1, 6))
        return base.step(task, down, carry, batch, key)

    for step in (peeks, predicts):
        with pytest.raises(GlocalError, match="the steps of this method read them otherwise"):
            glocal.fit(method.replace(local=base.replace(step=step)), ragged(), model="mlp(7)")


def test_choices_on_validation_data_are_left_out() -> None:
    run = fit("dp-sgd(noise=0)", tune=True)
    assert "privacy budget" in run.summary["chosen"][0]["why_not"]
    with pytest.raises(GlocalError, match="round that patience keeps"):
        fit("dp-sgd(noise=0)", patience=1)


def test_fractions_of_clients_are_drawn_from_the_seed() -> None:
    t = training("dp-sgd(noise=0)", Fraction(0.5), public_noise=False)
    assert (
        t.cohort(t.begin(t.task.params), 0).tolist()
        == t.sampler.cohort(6, rng.fold(rng.fold(rng.key(1), 0), 0)).tolist()
    )
