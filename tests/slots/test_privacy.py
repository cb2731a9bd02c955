"""Clip, noise, adaptive clip, budget: what they promise, what is printed, what is refused."""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch import Tensor, nn

import glocal
import toys
from glocal.cli import app as cli
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.core.types import Params, Tree, Uplink
from glocal.engines import Sequential
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots import accounting
from glocal.slots.accounting import Scheme
from glocal.slots.client import minibatch_training
from glocal.slots.method import Method, as_plan
from glocal.slots.privacy import Privacy, clipped, dp, gaussian, in_words, noisy, norm, shown
from glocal.slots.weighting import Setting
from glocal.testing import check_method, ragged
from glocal.training.loop import COHORT, Progress, Training
from glocal.training.sampling import Among, Fixed, Fraction, Poisson, Sampler

QUICK = "local(lr=0.1,max_epochs=2)"


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
        after, _ = method.server_half.reduce(state, uplink, setting, rng.key(1))
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
    x = gaussian(rng.key(3), (1_000_000,))
    assert x.dtype == torch.float64
    assert float(x.mean()) == pytest.approx(0, abs=0.004)
    assert float(x.var()) == pytest.approx(1, abs=0.006)
    assert float((x**4).mean()) == pytest.approx(3, abs=0.05)
    for t, beyond in ((2.0, 0.0455), (3.0, 0.0027), (4.0, 6.33e-5)):
        assert float((x.abs() > t).double().mean()) == pytest.approx(beyond, rel=0.3)
    y = noisy({"a": torch.zeros(1000), "b": torch.zeros(1000)}, 2.0, rng.key(3))
    assert abs(float((y["a"] * y["b"]).mean())) < 0.5  # each parameter has its own
    assert torch.equal(y["a"], noisy({"a": torch.zeros(1000)}, 2.0, rng.key(3))["a"])


def sent(cohort: int, size: int, length: float = 3.0) -> Uplink:
    """Updates of one direction each, of that length."""
    update = torch.nn.functional.normalize(rng.normal(rng.key(1), (cohort, size)), dim=1)
    ids = torch.arange(cohort)
    return Uplink(ids, torch.full((cohort,), 7), {"w": length * update}, None, {})


def reduced(method: Method, uplink: Uplink, setting: Setting, key: Tensor) -> tuple[Tensor, Tree]:
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
    after, _ = method.server_half.reduce(state, uplink, setting, key)
    return after["params"]["w"], after


@pytest.mark.parametrize(("where", "times"), [("central", 1), ("local", 5)])
def test_noise_on_the_sum(where: str, times: int) -> None:
    """Variance (z S)²: once, or once for each client. The mean is over the expected size."""
    size, S, z = 200_000, 0.5, 1.5
    setting = Setting(40, 0.1, 10, "poisson")  # 4 are expected, 5 came
    uplink = sent(5, size)
    quiet = Method(local=minibatch_training(), privacy=dp(clip=S, noise=0.0, where=where))
    loud = Method(local=minibatch_training(), privacy=dp(clip=S, noise=z, where=where))
    exact, _ = reduced(quiet, uplink, setting, rng.key(5))
    assert torch.allclose(4 * exact, S / 3 * uplink.update["w"].sum(0), atol=1e-5)
    step, _ = reduced(loud, uplink, setting, rng.key(5))
    noise = 4 * (step - exact).double()
    assert float(noise.var()) == pytest.approx(times * (z * S) ** 2, rel=0.02)
    assert abs(float(noise.mean())) < 0.01
    again, _ = reduced(loud, uplink, setting, rng.key(5))
    other, _ = reduced(loud, uplink, setting, rng.key(6))
    assert torch.equal(step, again)
    assert not torch.equal(step, other)


def test_an_update_of_its_own_noise_is_protected_when_it_leaves() -> None:
    private = made(clip=2.0, noise=0.7, where="local")
    state = private.init(Setting(10, 1.0, 1))
    update = {"w": torch.zeros(100_000)}
    alone, _ = private.client(state, update, rng.key(1))
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
    return Training(plan, task, fed, Sequential(), sampler, rounds, seed)


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
            uplink.update, rng.fold(rng.key(t), uplink.ids)
        )
        said = tree.map(lambda x: x.sum(0), both[1])
        _, state = private.server(state, {"w": torch.zeros(4)}, said, setting, rng.key(t))
        seen.append(float(state["clip"]))
    near = 0.15 if noise else 0.03  # the count is noisy, by 10 of 201 a round
    assert sum(seen[150:]) / 50 == pytest.approx(1 + 200 * quantile, rel=near)
    assert int(state["rounds"]) == 200


def test_one_step_of_the_clip_by_hand() -> None:
    """Two of four below: share 1/2, quantile 0.9, rate 0.2: times exp(0.2 · 0.4)."""
    private = made(clip=2.5, noise=0.0, quantile=0.9)
    setting = Setting(4, 1.0, 1)
    method = Method(local=minibatch_training(), privacy=private)
    _, after = reduced(method, norms(torch.tensor([1.0, 2.0, 3.0, 4.0])), setting, rng.key(0))
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


def fit(spec: Any, **settings: Any) -> glocal.Run:
    given: dict[str, Any] = {"model": "mlp(7)", "rounds": 4, "baseline": QUICK, **settings}
    return glocal.fit(spec, ragged(), **given)


def test_a_run_says_what_it_spent() -> None:
    run = fit("dp(clip=0.5,noise=2.0)", sampled=2, poisson=True)
    scheme = Scheme("poisson", 6, 2)
    want = accounting.epsilon(scheme, 2.0, 4, 1e-5)
    assert run.summary["epsilon"] == pytest.approx(want)
    assert run.summary["rounds"] == 4
    spent = run.summary["privacy"]
    assert spent == {
        "epsilon": run.summary["epsilon"],
        "delta": 1e-5,
        "vacuous": False,
        "noise": 2.0,
        "clip": 0.5,
        "where": "central",
        "neighbours": "add or remove one client",
        "sampling": "Poisson, 2 of 6 clients on average",
        "accountant": "PLD",
        "rounds": 4,
    }
    assert fit("fedavg").summary["epsilon"] is None
    assert "privacy" not in fit("fedavg").summary


@pytest.mark.parametrize(
    ("spec", "settings", "scheme", "noise"),
    [
        ("dp(noise=3,delta=0.001)", {}, Scheme("all", 6, 6), 3.0),
        ("dp(noise=3,delta=0.001)", {"sampled": 2}, Scheme("fixed", 6, 2), 3.0),
        ("dp(noise=3,delta=0.001)", {"fraction": 0.5}, Scheme("fixed", 6, 3), 3.0),
        ("dp(noise=3,delta=0.001,where=local)", {"sampled": 2}, Scheme("local", 6, 6), 3.0),
        ("dp(noise=3,delta=0.001,quantile=0.5)", {}, Scheme("all", 6, 6), 3.0),
        ("lg-fedavg(warmup=2)+dp(noise=3,delta=0.001)", {}, Scheme("all", 6, 6), 3.0),
    ],
)
def test_each_sampling_has_its_account(
    spec: str, settings: dict[str, Any], scheme: Scheme, noise: float
) -> None:
    run = fit(spec, **settings)
    assert run.summary["epsilon"] == pytest.approx(accounting.epsilon(scheme, noise, 4, 1e-3))
    assert run.summary["privacy"]["sampling"] == str(scheme)
    assert run.summary["privacy"]["neighbours"] == scheme.neighbours


def test_training_ends_when_the_budget_is_spent() -> None:
    spec = "dp(clip=0.5,noise=2.0,epsilon=4)"
    run = fit(spec, rounds=30)
    scheme = Scheme("all", 6, 6)
    rounds = accounting.rounds_for(4.0, scheme, 2.0, 1e-5)
    assert 1 < rounds < 30
    assert len(run.history) == run.summary["rounds"] == rounds
    assert run.summary["epsilon"] <= 4 < accounting.epsilon(scheme, 2.0, rounds + 1, 1e-5)
    last = run.history[-1]
    assert last["stopped"] == "the privacy budget is spent"
    assert "val_accuracy" in last  # it ends as any run ends
    assert not any("stopped" in line for line in run.history[:-1])
    spent = run.summary["privacy"]
    assert (spent["budget"], spent["budget_spent"]) == (4, True)
    assert f"is spent: training ended after round {rounds}" in in_words(spent)
    enough = fit(spec, rounds=rounds)
    assert len(enough.history) == rounds
    assert not enough.summary["privacy"]["budget_spent"]
    assert "stopped" not in enough.history[-1]
    # The rounds that were run are those of a run without a budget.
    plain = fit("dp(clip=0.5,noise=2.0)", rounds=rounds)
    assert all(torch.equal(plain.model[k], w) for k, w in run.model.items())


def test_no_noise_is_no_protection() -> None:
    run = fit("dp(noise=0)")
    assert run.summary["epsilon"] == math.inf
    assert run.summary["privacy"]["vacuous"]
    assert "ε = ∞ (vacuous: no protection)" in in_words(run.summary["privacy"])


def test_the_word_stands_beside_the_number() -> None:
    assert shown(0.4974) == "0.497"
    assert shown(18.5) == "18.5 (vacuous)"
    assert shown(1e7) == "1.0e+07 (vacuous)"
    spent = fit("dp(noise=0.1)").summary["privacy"]
    assert re.search(
        r"ε = \d+ \(vacuous\) at δ = 1e-05 after 4 rounds, for what the", in_words(spent)
    )


def more() -> Method:
    base = minibatch_training()

    def finish(task: Any, down: Any, carry: Any) -> Any:
        update, state, _ = base.finish(task, down, carry)
        return update, state, {"count": torch.ones(())}

    return Method(local=base.replace(finish=finish), privacy=dp())


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("dp+term", "all count alike, so term cannot go with it: leave the weighting out"),
        ("dp+by-examples", "all count alike, so by-examples cannot go with it"),
        ("scaffold+dp", "dp protects the update alone, and scaffold sends more than that: use"),
        ("dp+median", "dp adds noise made for a mean, so median cannot go with it"),
        ("dp+krum", "so krum cannot go with it: leave one of the two out"),
        ("local+dp", "local sends nothing, so the rest of 'local.dp' would do nothing"),
        ("dp+dp", r"dp and dp in .* fill the same slot \(privacy\)"),
        ("lg-fedavg(goal=0.9)+dp", "a goal looks at the clients' validation data, which dp does"),
        (more, r"this method's clients send more than that \(count\): use another base"),
        ("dp(clip=0)", "clip must be above 0, not 0"),
        ("dp(clip=-1)", "clip must be above 0, not -1"),
        ("dp(noise=-1)", "noise must be 0 or more, not -1"),
        ("dp(noise=much)", "in dp, noise must be a number, not 'much'"),
        ("dp(delta=1)", "delta must be above 0 and below 1, not 1"),
        ("dp(epsilon=0)", "epsilon must be above 0, not 0"),
        ("dp(quantile=1.5)", "quantile must be above 0 and below 1, not 1.5"),
        ("dp(where=server)", "unknown place of the noise 'server': known are central, local"),
        ("dp(where=local,quantile=0.5)", "so it cannot go with where=local: leave quantile out"),
        ("dp(noise=1,epsilon=1)", r"first round of dp\(noise=1\) would cost ε = 4.38, more than"),
        ("dp(noise=0,epsilon=1)", "would cost ε = inf, more than the budget of 1: add noise"),
    ],
)
def test_what_is_refused_before_anyone_trains(
    method: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("somebody trained")

    monkeypatch.setattr("glocal.experiment.setup.measured", never)
    with pytest.raises(GlocalError, match=message):
        fit(method() if callable(method) else method)


def test_without_the_accountant_nothing_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(GlocalError, match=r"pip install 'glocal\[privacy\]'"):
        fit("dp")


def test_a_newcomer_is_not_accounted_for() -> None:
    from glocal.studies.newcomer.join import join

    with pytest.raises(GlocalError, match="joining costs in privacy is not accounted for, so dp"):
        join("dp", ragged(), client="3")
    t = training("dp", Among((0, 1, 2, 3, 4), Fraction(0.5), always=(5,)), 2)
    with pytest.raises(GlocalError, match="unknown sampling that can be accounted for"):
        t.plan.stages[0].method.privacy.check(t.setting)  # type: ignore[union-attr]


def command(*args: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["glocal", *args])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    said = capsys.readouterr()
    return int(stopped.value.code or 0), said.out, said.err


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Any:
    def asked(*args: str) -> tuple[int, str, str]:
        return command("privacy", *args, monkeypatch=monkeypatch, capsys=capsys)

    return asked


PLAN = ("--clients", "100", "--sampled", "10")


def test_the_command_prints_what_the_accountant_says(ask: Any, tmp_path: Path) -> None:
    code, out, _ = ask(*PLAN, "--rounds", "20", "--noise", "1.5", "--json")
    found = json.loads(out)
    scheme = Scheme("poisson", 100, 10)
    assert code == 0
    assert found["epsilon"] == accounting.epsilon(scheme, 1.5, 20, 1e-5)
    assert found["epsilon_rdp"] == accounting.epsilon(scheme, 1.5, 20, 1e-5, "rdp")
    assert (found["delta"], found["sampling"], found["vacuous"]) == (1e-5, "poisson", False)
    assert ask(*PLAN, "--rounds", "20", "--json", "-", "--noise", "1.5")[1] == out
    assert ask(*PLAN, "--rounds", "20", "--json", "--noise", "1.5")[1] == out
    file = tmp_path / "found.json"
    code, shown_, _ = ask(*PLAN, "--rounds", "20", "--noise", "1.5", "--json", str(file))
    assert file.read_text(encoding="utf-8") == out
    assert f"{found['epsilon']:.3g}" in shown_
    assert f"{found['epsilon_rdp']:.3g}" in shown_
    for words in ("add or remove one client", "Poisson, 10 of 100", "accountant: PLD", "1e-05"):
        assert words in " ".join(shown_.split())
    assert "vacuous" not in shown_.lower()


def test_the_command_finds_the_noise_and_the_rounds(ask: Any) -> None:
    _, out, _ = ask(*PLAN, "--rounds", "20", "--epsilon", "3", "--json")
    found = json.loads(out)
    assert found["asked"] == "noise"
    assert 2.97 < found["epsilon"] <= 3
    _, out, _ = ask(*PLAN, "--noise", "2", "--epsilon", "1", "--json")
    found = json.loads(out)
    assert found["rounds"] == accounting.rounds_for(1.0, Scheme("poisson", 100, 10), 2.0, 1e-5)
    _, out, _ = ask(*PLAN, "--noise", "1", "--epsilon", "0.01")
    assert "Not one round can be afforded: add noise" in " ".join(out.split())


def test_the_command_says_vacuous(ask: Any) -> None:
    """The published setting: clip 15, noise .01 on the mean of 10 of 100."""
    noise = str(0.01 * 10 / 15)
    code, out, _ = ask(*PLAN, "--rounds", "1000", "--noise", noise, "--fixed")
    assert code == 0
    assert re.search(r"^ε +\S+ \(vacuous\) +accountant: RDP", out, re.MULTILINE)
    assert "replace one client" in " ".join(out.split())
    _, out, _ = ask("--clients", "9", "--rounds", "1", "--noise", "0", "--json")
    assert (json.loads(out)["epsilon"], json.loads(out)["vacuous"]) == (None, True)
    _, out, _ = ask(*PLAN, "--rounds", "1", "--noise", "9", "--local")
    assert "Every update that leaves a client is protected" in out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--clients", "10"), "give two of --rounds, --noise and --epsilon"),
        (("--clients", "10", "--rounds", "5"), "give two of --rounds, --noise and --epsilon"),
        (
            ("--clients", "10", "--rounds", "5", "--noise", "1", "--epsilon", "1"),
            "give two of --rounds, --noise and --epsilon",
        ),
        (("--rounds", "5", "--noise", "1"), "Missing option '--clients'"),
        ((*PLAN, "--rounds", "0", "--noise", "1"), "rounds must be an integer of 1 or more"),
        ((*PLAN, "--rounds", "5", "--noise", "-1"), "noise must be 0 or more, not -1"),
        ((*PLAN, "--rounds", "5", "--epsilon", "-1"), "epsilon must be above 0, not -1"),
        ((*PLAN, "--rounds", "5", "--noise", "1", "--delta", "2"), "delta must be above 0"),
        (
            ("--clients", "10", "--sampled", "11", "--rounds", "5", "--noise", "1"),
            "11 clients a round cannot be drawn from 10",
        ),
        (
            ("--clients", "10", "--sampled", "2.5", "--fixed", "--rounds", "5", "--noise", "1"),
            "--fixed draws an integer number of clients, not 2.5",
        ),
        ((*PLAN, "--rounds", "5", "--noise", "1", "--json", "/"), "--json / is a folder"),
    ],
)
def test_what_the_command_refuses(ask: Any, args: tuple[str, ...], message: str) -> None:
    code, out, err = ask(*args)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_comparison_prints_its_privacy(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    args = ("compare", "fedavg", "dp(noise=0.2)", "--rounds", "2", "--clients", "4")
    quick = ("--baseline", QUICK, "--model", "mlp(7)", "--json", "found.json")
    code, out, err = command(*args, *quick, monkeypatch=monkeypatch, capsys=capsys)
    assert code == 0, err
    words = " ".join(out.split())
    found = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))["methods"]
    spent = found["dp(noise=0.2)"]["summary"]["privacy"]
    assert f"Privacy of dp(noise=0.2): ε = {spent['epsilon']:.3g} (vacuous) at δ = 1e-05" in words
    assert "all 4 clients in every round" in words
    assert "Privacy of fedavg" not in words
    code, _, err = command("run", "dp(clip=0)", monkeypatch=monkeypatch, capsys=capsys)
    assert (code, err) == (2, "glocal: clip must be above 0, not 0.\n")


def test_toys_without_extras_may_be_private() -> None:
    method = toys.own_model().replace(privacy=dp(noise=0.5))
    check_method(method)
    assert fit(method).summary["epsilon"] > 0
