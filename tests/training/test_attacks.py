"""Attacks: what is sent and trained on instead, by whom, and what a robust combiner makes of it."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import pytest
import torch
from torch import Tensor

import glocal
import toys
from glocal.core import rng, tree
from glocal.core.errors import ClientError, GlocalError
from glocal.core.types import Uplink
from glocal.data.federation import Federation
from glocal.engines import Sequential, Vectorised
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.method import as_plan
from glocal.slots.server_half import whole_model
from glocal.testing import ragged
from glocal.training import attacks
from glocal.training.attacks import ATTACKS, Adversary, Attack, Known, parse, with_share, z_max
from glocal.training.loop import Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fraction, Sampler

ROBUST = ["median", "trimmed-mean(share=0.2)", "krum", "multi-krum", "geometric-median"]


def known(k: int = 2, m: int = 6, server_lr: float = 1.0) -> Known:
    torch.manual_seed(0)
    made = {"a": torch.randn(2, 3), "b": torch.randn(4)}
    key = rng.key(5)
    return Known(
        updates={n: torch.randn(k, *x.shape) for n, x in made.items()},
        received={n: torch.randn_like(x) for n, x in made.items()},
        start=made,
        cohort=m,
        server_lr=server_lr,
        key=key,
        keys=rng.fold(key, torch.arange(k)),
    )


def sent(spec: str, seen: Known) -> dict[str, Tensor]:
    attack = parse(spec)
    assert attack.send is not None
    found = attack.send(seen)
    assert {n: x.shape for n, x in found.items()} == {n: x.shape for n, x in seen.updates.items()}
    return found


def test_by_hand() -> None:
    seen = known()
    for n, x in seen.updates.items():
        assert torch.equal(sent("sign-flip", seen)[n], -x)
        assert torch.equal(sent("sign-flip(3)", seen)[n], -3 * x)
        assert torch.equal(sent("scale(factor=7)", seen)[n], 7 * x)
        assert bool(sent("nan", seen)[n].isnan().all())
        a, b = x
        want = (a + b) / 2 - 1.5 * (a - b).abs() / 2
        for one in sent("little(z=1.5)", seen)[n]:
            torch.testing.assert_close(one, want)
    lone = known(k=1)
    torch.testing.assert_close(sent("little", lone)["a"], lone.updates["a"])


@pytest.mark.parametrize("server_lr", [1.0, 0.5])
@pytest.mark.parametrize(("k", "m"), [(1, 5), (2, 6), (3, 3)])
def test_the_mean_becomes_the_model_that_replaces_it(k: int, m: int, server_lr: float) -> None:
    seen = known(k, m, server_lr)
    malicious = sent("replace", seen)
    for n, start in seen.start.items():
        # The others are at rest: they send nothing.
        mean = malicious[n].sum(0) / m
        model = seen.received[n] + server_lr * mean
        torch.testing.assert_close(
            model.flatten().sort().values, start.flatten().sort().values, atol=1e-5, rtol=1e-5
        )
    again = sent("replace", known(k, m, server_lr))
    assert all(torch.equal(again[n], malicious[n]) for n in malicious)


def test_gaussian_noise_is_of_its_size_and_everybodys_own() -> None:
    key = rng.key(0)
    wide = {"w": torch.zeros(2, 50_000)}
    seen = Known(wide, {}, {}, 5, 1.0, key, rng.fold(key, torch.arange(2)))
    noise = sent("gaussian(std=3)", seen)["w"]
    assert noise.std(1).tolist() == pytest.approx([3, 3], rel=0.02)
    assert noise.mean(1).tolist() == pytest.approx([0, 0], abs=0.05)
    assert not torch.equal(noise[0], noise[1])


def test_how_far_a_little_is() -> None:
    """The paper's own case: 50 workers, 24 of them corrupted, 2 more needed: Φ(z) = 24/26."""
    assert z_max(50, 24) == pytest.approx(NormalDist().inv_cdf(24 / 26))
    assert z_max(20, 4) == pytest.approx(NormalDist().inv_cdf(9 / 16))
    assert z_max(20, 11) == z_max(3, 3) == 3.0
    assert all(z_max(m, k) >= 0 for m in range(1, 12) for k in range(1, m + 1))


def test_who_is_malicious() -> None:
    few, more = (attacks.malicious(s, 20, 0) for s in (0.1, 0.4))
    assert (len(few), len(more)) == (2, 8)
    assert set(few) < set(more)
    assert few == tuple(sorted(few))
    assert attacks.malicious(0.1, 20, 1) != few
    fed = ragged()
    assert {parse(name).on(fed, 3).clients for name in ATTACKS} == {attacks.malicious(0.2, 6, 3)}


@pytest.mark.parametrize(
    ("share", "who"), [(0.01, "nobody"), (0.999, "everybody"), (0.02, "nobody")]
)
def test_nobody_or_everybody_is_refused(share: float, who: str) -> None:
    with pytest.raises(GlocalError, match=f"of 20 clients makes {who} malicious: give a share"):
        attacks.malicious(share, 20, 0)
    with pytest.raises(GlocalError, match=who):
        glocal.fit("fedavg", toys_of(20), attack=f"sign-flip(share={share})", rounds=1)


def toys_of(clients: int) -> Federation:
    torch.manual_seed(0)
    return glocal.federation(
        torch.randn(8 * clients, 3), torch.randint(0, 2, (8 * clients,)), clients=clients,
        partition="iid",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sign-flp", "unknown attack 'sign-flp': did you mean 'sign-flip'"),
        ("sign-flip(share=0)", "share of malicious clients must be above 0 and below 1, not 0"),
        ("replace(share=1)", "above 0 and below 1"),
        ("replace(share=some)", "in replace, share must be a number"),
        ("sign-flip(scale=-1)", "scale must be above 0"),
        ("sign-flip(1, 2)", "sign-flip takes settings by name"),
        ("gaussian(std=0)", "std must be above 0"),
        ("backdoor(rate=0)", "a backdoor's rate must be above 0 and up to 1"),
        ("backdoor(size=0)", "a backdoor's size in pixels must be an integer of 1 or more"),
        ("backdoor(target=-1)", "a backdoor's target must be an integer"),
        ("backdoor(boost=0)", "boost must be above 0"),
        ("little(z=much)", "in little, z must be a number"),
        ("scale(", "cannot read"),
    ],
)
def test_specs_that_make_no_sense(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        parse(spec)
    with pytest.raises(GlocalError, match=message):
        glocal.fit("fedavg", ragged(), attack=spec)


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        ("replace", "replace(share=0.3)"),
        ("replace()", "replace(share=0.3)"),
        ("scale(20)", "scale(20, share=0.3)"),
        ("little( z=1 )", "little(z=1, share=0.3)"),
        ("sign-flip(share=0.1)", "sign-flip(share=0.1)"),
    ],
)
def test_a_share_is_added_where_there_is_none(spec: str, want: str) -> None:
    assert with_share(spec, 0.3) == want
    assert parse(want).share in (0.1, 0.3)


def test_what_an_attack_cannot_reach() -> None:
    with pytest.raises(GlocalError, match="local sends nothing, so no attack can reach it"):
        glocal.fit("local", ragged(), attack="sign-flip")


def test_only_the_malicious_send_something_else() -> None:
    adversary = Adversary(parse("sign-flip"), (1, 4))
    x = {"w": torch.randn(3, 2)}
    uplink = Uplink(torch.tensor([0, 1, 5]), torch.tensor([3, 4, 5]), x, None, {})
    got = adversary.sent(uplink, {}, {}, 1.0, rng.key(0))
    assert torch.equal(got.update["w"], torch.stack([x["w"][0], -x["w"][1], x["w"][2]]))
    assert torch.equal(uplink.update["w"], x["w"])
    assert got.n is uplink.n
    nobody = Uplink(torch.tensor([0, 5]), torch.tensor([3, 5]), tree.row(x, slice(2)), None, {})
    assert adversary.sent(nobody, {}, {}, 1.0, rng.key(0)) is nobody


def training(method: str, attack: Attack | None, **changes: Any) -> Training:
    fed = changes.pop("fed", None) or ragged()
    adversary = attack and attack.on(fed, 0)
    settings: dict[str, Any] = {
        "task": Task(toys.dropout_net()),
        "fed": fed if adversary is None else adversary.poisoned(fed),
        "engine": Vectorised(),
        "sampler": Fraction(1.0),
        "rounds": 2,
        "seed": 0,
        "adversary": adversary,
        **changes,
    }
    return Training(as_plan(resolve(method)), **settings)


def run(job: Training) -> Progress:
    return job.run(job.begin(job.task.params))


@pytest.mark.parametrize("spec", sorted(set(ATTACKS) - {"backdoor", "nan"}))
@pytest.mark.parametrize("method", ["fedavg", "median"])
def test_engines_agree_under_attack(spec: str, method: str) -> None:
    one, other = (
        run(training(method, parse(f"{spec}(share=0.4)"), engine=engine))
        for engine in (Sequential(), Vectorised())
    )
    plain = run(training(method, None))
    for k, v in one.server["params"].items():
        scale = max(1.0, float(v.abs().max()))
        assert float((v - other.server["params"][k]).abs().max()) <= 1e-4 * scale
    assert any(
        not torch.equal(v, plain.server["params"][k]) for k, v in one.server["params"].items()
    )


def test_a_malicious_update_that_is_not_finite_is_left_out() -> None:
    job = training("median", parse("nan(share=0.2)"))
    (bad,) = attacks.malicious(0.2, 6, 0)
    done = run(job)
    assert [line["left_out"] for line in done.history] == [[job.fed.names[bad]]] * 2
    assert [line["cohort"] for line in done.history] == [6, 6]
    assert all(bool(v.isfinite().all()) for v in done.server["params"].values())
    assert done.decision is not None
    assert bad not in done.decision.ids.tolist()
    # As if it had not been there; but it was sent to, and sent.
    others = [i for i in range(6) if i != bad]

    class Others:
        def cohort(self, clients: int, key: Tensor) -> Tensor:
            return torch.tensor(others)

        def share(self, clients: int) -> float:
            return 5 / 6

    without = run(training("median", None, sampler=Others()))
    for k, v in done.server["params"].items():
        assert torch.allclose(v, without.server["params"][k], atol=1e-6)
    assert done.traffic.params_up == without.traffic.params_up * 6 / 5
    assert "left_out" not in run(training("median", None)).history[0]


def test_with_a_mean_it_is_an_error() -> None:
    (bad,) = attacks.malicious(0.2, 6, 0)
    job = training("fedavg", parse("nan(share=0.2)"))
    with pytest.raises(ClientError, match=f"client {job.fed.names[bad]}'s .* as in fedavg.median"):
        run(job)


def test_if_nobodys_update_is_finite_it_is_an_error() -> None:
    fed = ragged()
    with pytest.raises(ClientError, match="is not finite: it diverged"):
        run(training("median", None, fed=replace(fed, x=torch.full_like(fed.x, math.nan))))


class Only:
    """A cohort of one client."""

    def __init__(self, client: int) -> None:
        self.client = client

    def cohort(self, clients: int, key: Tensor) -> Tensor:
        return torch.tensor([self.client])

    def share(self, clients: int) -> float:
        return 1 / clients


def test_a_cohort_of_nobody_but_malicious_clients_is_a_skipped_round() -> None:
    (bad,) = attacks.malicious(0.2, 6, 0)
    sampler: Sampler = Only(bad)
    job = training("krum", parse("nan(share=0.2)"), sampler=sampler)
    done = run(job)
    assert all(torch.equal(v, job.task.params[k]) for k, v in done.server["params"].items())
    assert done.history[0]["left_out"] == [job.fed.names[bad]]
    with pytest.raises(ClientError, match="not finite"):
        run(training("fedavg", parse("nan(share=0.2)"), sampler=sampler))


def test_what_a_client_keeps_must_be_finite_all_the_same() -> None:
    with pytest.raises(ClientError, match="is not finite"):
        run(training("ditto(lam=1e30)+median", None, rounds=4))


def test_a_run_under_attack() -> None:
    fed = ragged()
    common: dict[str, Any] = {"model": "mlp(4)", "rounds": 2, "baseline": "local(max_epochs=1)"}
    found = glocal.fit("median", fed, attack="sign-flip(share=0.4)", repeats=2, **common)
    who = attacks.malicious(0.4, 6, 0)
    assert [r["malicious"] for r in found.clients] == [k in who for k in range(6)]
    assert found.settings["attack"] == "sign-flip(share=0.4)"
    s = found.summary
    assert s["attack"] == {
        "spec": "sign-flip(share=0.4)",
        "malicious": [fed.names[k] for k in who],
        "stopped": [None, None],
    }
    left = [r["accuracy"] for r in found.clients if not r["malicious"]]
    assert s["honest"]["mean"] == pytest.approx(sum(left) / len(left))
    assert s["honest"]["clients"] == len(left) == 4
    assert [len(r) for r in s["honest"]["accuracies"]] == [4, 4]
    assert "backdoor" not in s["honest"]
    plain = glocal.fit("median", fed, **common)
    assert "attack" not in plain.summary
    assert "malicious" not in plain.clients[0]
    assert math.isfinite(plain.summary["mean"])


def test_an_attack_that_ends_the_training_is_evaluated_as_it_stood() -> None:
    found = glocal.fit(
        "fedavg",
        ragged(),
        model="mlp(4)",
        rounds=50,
        attack="scale(1e10, share=0.2)",
        baseline="local(max_epochs=1)",
    )
    (stopped,) = found.summary["attack"]["stopped"]
    assert 1 < stopped < 50
    assert len(found.history) == stopped - 1
    assert all(bool(v.isfinite().all()) for v in found.model.values())
    assert 0 <= found.summary["honest"]["mean"] <= 1


def test_krum_with_too_small_a_round_is_refused_before_anyone_trains() -> None:
    with pytest.raises(GlocalError, match="krum cannot tell 2 malicious of 3 clients in a round"):
        glocal.fit("krum(malicious=2)", ragged(), fraction=0.5, rounds=1)


def test_replacement_breaks_the_mean_and_no_robust_combiner() -> None:
    """On digits, with one client of ten and with two: the mean falls to chance, others do not."""
    from glocal.experiment.attack_report import chance

    fed = glocal.load("digits", clients=10, partition="iid", seed=0)

    def honest(method: str, attack: str) -> float:
        found = glocal.fit(method, fed, attack=attack, rounds=5, baseline="none", model="mlp(32)")
        return float(found.summary["honest"]["mean"])

    for share in (0.1, 0.2):
        assert honest("fedavg", f"replace(share={share})") < chance(fed) + 0.08
        assert honest("fedavg+median", f"replace(share={share})") > 0.6
    for combiner in ROBUST[1:]:
        assert honest(f"fedavg+{combiner}", "replace(share=0.2)") > 0.6, combiner
    # It only bounds the harm of a round; here that is enough to learn something.
    assert honest("fedavg+norm-bound", "replace(share=0.2)") > 0.4


def test_a_resumed_run_is_attacked_the_same() -> None:
    job = training("median", parse("gaussian(share=0.4)"), rounds=3)
    whole = run(job)
    half = job.begin(job.task.params)
    job.one_round(half)
    again = Progress(half.server, half.clients, half.traffic, round=1)
    job.run(again)
    for k, v in whole.server["params"].items():
        assert torch.equal(v, again.server["params"][k])
    assert whole_model(job.task, again.server).keys() == job.task.params.keys()
