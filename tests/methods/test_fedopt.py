"""The server's optimisers by hand, against plain loops, and their state from round to round."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.engines import Engine, Sequential, Vectorised
from glocal.engines.batching import plan as batches
from glocal.methods import registry, resolve
from glocal.nn import server_optim as fedopt
from glocal.nn.task import Task
from glocal.slots.method import Method, as_plan
from glocal.testing import check_method, ragged
from glocal.training.loop import COHORT, WORK, Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed
from toys import seeded

ENGINES: list[Engine] = [Sequential(), Vectorised()]
BASE_OF = {
    "momentum": "fedavgm",
    "adam": "fedadam",
    "yogi": "fedyogi",
    "adagrad": "fedadagrad",
}
both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
every_filler = pytest.mark.parametrize("filler", BASE_OF)

# Of each step: the update Δ that comes in, then m, v and w as they come out. w begins at 0.
Step = tuple[float, float, float | None, float]
BY_HAND: dict[str, tuple[Any, list[Step]]] = {
    # m: .4, .5·.4 + .2, .5·.4 − .6; w moves by half of it.
    "momentum": (
        fedopt.momentum(0.5, beta=0.5),
        [(0.4, 0.4, None, 0.2), (0.2, 0.4, None, 0.4), (-0.6, -0.4, None, 0.2)],
    ),
    # v begins at .01: (.01 + .49)/2, (.25 + .25)/2 twice, so w moves by m/(.5 + .1).
    "adam": (
        fedopt.adam(1.0, beta1=0.5, beta2=0.5, tau=0.1),
        [
            (0.7, 0.35, 0.25, 0.35 / 0.6),
            (-0.5, -0.075, 0.25, 0.275 / 0.6),
            (0.5, 0.2125, 0.25, 0.8125),
        ],
    ),
    # v begins at .04, below Δ² = .64, and grows by half of that; .36 is above .16 and .28 above
    # .04, so it shrinks by half of those. √.28 = .5291503, √.26 = .5099020.
    "yogi": (
        fedopt.yogi(1.0, beta1=0.5, beta2=0.5, tau=0.2),
        [
            (0.8, 0.4, 0.36, 0.5),
            (0.4, 0.4, 0.28, 0.5 + 0.4 / 0.7291503),
            (-0.2, 0.1, 0.26, 0.5 + 0.4 / 0.7291503 + 0.1 / 0.7099020),
        ],
    ),
    # v begins at .09; √v is .5, then 1.3, then 8.5, and τ = .3 beside it. m is Δ.
    "adagrad": (
        fedopt.adagrad(1.0, tau=0.3),
        [
            (0.4, 0.4, 0.25, 0.5),
            (-1.2, -1.2, 1.69, -0.25),
            (8.4, 8.4, 72.25, -0.25 + 8.4 / 8.8),
        ],
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_three_steps_by_hand(name: str) -> None:
    opt, steps = BY_HAND[name]
    w = {"w": torch.zeros(1)}
    state = opt.init(w)
    for delta, m, v, now in steps:
        w, state = opt.update({"w": torch.tensor([-delta])}, state, w, 1.0)
        assert float(w["w"]) == pytest.approx(now, rel=1e-5)
        assert float(state["m"]["w"]) == pytest.approx(-m, rel=1e-5)
        assert (float(state["v"]["w"]) if v else None) == (pytest.approx(v, rel=1e-5) if v else v)


@every_filler
def test_the_first_step_with_the_defaults_by_hand(filler: str) -> None:
    """Δ = .1 with τ = .001, so v begins at 1e-6 and m at 0; no moment is corrected for that."""
    delta, lr = 0.1, getattr(fedopt, filler)().lr
    moved = {
        "momentum": 0.1,
        "adam": 0.01 / ((0.99 * 1e-6 + 0.01 * 0.01) ** 0.5 + 1e-3),
        "yogi": 0.01 / ((1e-6 + 0.01 * 0.01) ** 0.5 + 1e-3),
        "adagrad": 0.1 / ((1e-6 + 0.01) ** 0.5 + 1e-3),
    }[filler]
    opt, w = getattr(fedopt, filler)(), {"w": torch.zeros(1)}
    w, _ = opt.update({"w": torch.tensor([-delta])}, opt.init(w), w, 1.0)
    assert float(w["w"]) == pytest.approx(lr * moved, rel=1e-5)


@every_filler
def test_the_scale_is_a_factor_on_the_rate(filler: str) -> None:
    w = {"w": rng.normal(rng.key(0), (4, 3)), "b": rng.normal(rng.key(1), (3,))}
    half, whole = getattr(fedopt, filler)(0.05), getattr(fedopt, filler)(0.1)
    expected, _ = half.update(w, half.init(w), w, 1.0)
    for scale in (0.5, torch.tensor(0.5)):
        scaled, _ = whole.update(w, whole.init(w), w, scale)
        torch.testing.assert_close(scaled["w"], expected["w"])


@every_filler
def test_inputs_stay_as_they_were_and_the_state_keeps_its_structure(filler: str) -> None:
    opt = getattr(fedopt, filler)()
    w = {"w": rng.normal(rng.key(0), (4, 3)), "b": rng.normal(rng.key(1), (3,))}
    given = {"w": w, "state": opt.init(w)}
    before = tree.map(torch.clone, given)
    _, after = opt.update(w, given["state"], w, 1.0)
    assert tree.structure(after) == tree.structure(given["state"])
    for (_, a), (_, b) in zip(tree.flatten(given), tree.flatten(before), strict=True):
        assert torch.equal(a, b)
    assert opt.update({}, opt.init({}), {}, 1.0)[0] == {}


def net() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 3)))


def made(method: str | Method, engine: Engine, rounds: int = 3) -> Training:
    plan = as_plan(resolve(method) if isinstance(method, str) else method)
    return Training(plan, Task(net()), ragged(), engine, Fixed(3), rounds, seed=3)


def trained(method: str, engine: Engine, rounds: int = 3) -> dict[str, Tensor]:
    training = made(method, engine, rounds)
    params: dict[str, Tensor] = training.run(training.begin(training.task.params)).server["params"]
    return params


def gap(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    return max(float((a[k] - b[k]).abs().max()) for k in a)


def mean_model(training: Training, start: nn.Module, r: int) -> nn.Module:
    """The mean of the cohort's models, weighted by examples, each after an epoch of SGD at 0.1."""
    fed, total = training.fed, 0.0
    after = copy.deepcopy(start)
    for p in after.parameters():
        p.data.zero_()
    for k in training.sampler.cohort(len(fed), training.key(COHORT, r)).tolist():
        model = copy.deepcopy(start)
        sgd = torch.optim.SGD(model.parameters(), 0.1)
        key = rng.fold(rng.fold(training.key(WORK, r), k), 0).view(1)
        cut = batches(fed.train, torch.tensor([k]), key, 1, 10)
        for rows, weight in zip(cut.rows[0], cut.weight[0], strict=True):
            x, y = fed.x[rows[weight > 0]], fed.y_train[rows[weight > 0]]
            sgd.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            sgd.step()
        n = float(len(fed[k].train[0]))
        total += n
        for p, q in zip(after.parameters(), model.parameters(), strict=True):
            p.data += n * q.data
    for p in after.parameters():
        p.data /= total
    return after


@dataclass
class Server:
    """Algorithm 2 on one tensor of the model, written out."""

    rule: Callable[[Any, Any], Any]
    lr: float
    beta1: float
    tau: float
    m: Any = 0.0
    v: Any = field(init=False)

    def __post_init__(self) -> None:
        self.v = self.tau**2

    def step(self, w: Tensor, delta: Tensor) -> Tensor:
        self.m = self.beta1 * self.m + (1 - self.beta1) * delta
        self.v = self.rule(self.v, delta)
        return w + self.lr * self.m / (torch.sqrt(self.v) + self.tau)


def yogi_by_cases(v: Any, delta: Tensor) -> Tensor:
    v = torch.as_tensor(v).expand_as(delta)
    return torch.where(v > delta**2, v - 0.2 * delta**2, v + 0.2 * delta**2)


LOOPS: dict[str, tuple[Callable[[Any, Any], Any], float]] = {
    "fedadam(server_lr=0.05,beta2=0.8,tau=0.01": (lambda v, d: 0.8 * v + 0.2 * d**2, 0.9),
    "fedyogi(server_lr=0.05,beta2=0.8,tau=0.01": (yogi_by_cases, 0.9),
    "fedadagrad(server_lr=0.05,tau=0.01": (lambda v, d: v + d**2, 0.0),
    "fedadagrad(server_lr=0.05,beta1=0.5,tau=0.01": (lambda v, d: v + d**2, 0.5),
}


@both_engines
@pytest.mark.parametrize("spec", LOOPS)
def test_it_is_the_plain_loop(engine: Engine, spec: str) -> None:
    rule, beta1 = LOOPS[spec]
    training, server = made(f"{spec},lr=0.1,epochs=1)", engine), net()
    each = [Server(rule, 0.05, beta1, 0.01) for _ in server.parameters()]
    for r in range(3):
        after = mean_model(training, server, r)
        for own, p, q in zip(each, server.parameters(), after.parameters(), strict=True):
            p.data = own.step(p.data, q.data - p.data)
    done = training.run(training.begin(training.task.params)).server["params"]
    for name, p in server.named_parameters():
        torch.testing.assert_close(done[name], p.detach(), rtol=0, atol=1e-5)


@both_engines
def test_fedavgm_is_the_plain_loop(engine: Engine) -> None:
    """torch's SGD with momentum, on the difference of the models as a gradient."""
    training, server = made("fedavgm(server_lr=0.7,beta=0.8,lr=0.1,epochs=1)", engine), net()
    sgd = torch.optim.SGD(server.parameters(), 0.7, momentum=0.8)
    for r in range(3):
        after = mean_model(training, server, r)
        for p, q in zip(server.parameters(), after.parameters(), strict=True):
            p.grad = (p - q).detach()
        sgd.step()
    done = training.run(training.begin(training.task.params)).server["params"]
    for name, p in server.named_parameters():
        torch.testing.assert_close(done[name], p.detach(), rtol=0, atol=1e-5)


@both_engines
def test_momentum_of_zero_is_fedavg(engine: Engine) -> None:
    avg = trained("fedavg", engine)
    assert gap(trained("fedavgm(server_lr=1,beta=0)", engine), avg) == 0.0
    assert gap(trained("fedavgm(server_lr=1)", engine), avg) > 1e-2


@both_engines
@pytest.mark.parametrize(
    "spec", ["fedadam(beta2=0.999999", "fedyogi(beta2=0.999999", "fedadagrad("]
)
def test_a_large_tau_makes_it_fedavg(engine: Engine, spec: str) -> None:
    """√v stays at τ, where it begins, so with β1 = 0 and η = 2τ the step is Δ."""
    spec = spec.removesuffix("(") + ("," if "=" in spec else "(") + "server_lr=2000,tau=1000"
    avg = trained("fedavg", engine)
    assert gap(trained(f"{spec},beta1=0)", engine), avg) < 2e-5
    assert gap(trained(f"{spec},beta1=0.5)", engine), avg) > 1e-2


@both_engines
@every_filler
def test_the_state_goes_on_from_round_to_round(engine: Engine, filler: str) -> None:
    training = made(f"fedavg+{filler}", engine, rounds=2)
    opt = training.plan.stages[0].method.server_opt

    def two_rounds(*, forget: bool) -> Progress:
        progress = training.begin(training.task.params)
        states = [progress.server["opt"]]
        for _ in range(2):
            if forget:
                progress.server = {**progress.server, "opt": opt.init(progress.server["params"])}
            training.one_round(progress)
            states.append(progress.server["opt"])
        for part in states[0]:
            assert gap(states[1][part], states[0][part]) > 1e-6
            assert gap(states[2][part], states[1][part]) > 1e-6
        return progress

    kept, forgotten = (two_rounds(forget=f).server["params"] for f in (False, True))
    assert gap(kept, forgotten) > 1e-3


OWN = {
    "momentum": {"lr": 0.7, "beta": 0.5},
    "adam": {"lr": 0.05, "beta1": 0.8, "beta2": 0.9, "tau": 0.01},
    "yogi": {"lr": 0.05, "beta1": 0.8, "beta2": 0.9, "tau": 0.01},
    "adagrad": {"lr": 0.05, "beta1": 0.5, "tau": 0.01},
}


@every_filler
def test_a_base_is_fedavg_with_its_filler(filler: str) -> None:
    inside = ",".join(f"{k}={v}" for k, v in OWN[filler].items())
    base = f"{BASE_OF[filler]}({inside.replace('lr=', 'server_lr=')},lr=0.2,epochs=1)+uniform"
    spelt = f"fedavg(lr=0.2,epochs=1)+uniform+{filler}({inside})"
    assert gap(trained(base, Vectorised()), trained(spelt, Vectorised())) == 0.0
    assert gap(trained(BASE_OF[filler], Vectorised()), trained(filler, Vectorised())) == 0.0


@every_filler
def test_a_base_and_its_filler_have_the_same_defaults(filler: str) -> None:
    own = inspect.signature(registry.entries()[filler].make).parameters
    theirs = inspect.signature(registry.entries()[BASE_OF[filler]].make).parameters
    assert set(OWN[filler]) == set(own)
    for name, parameter in own.items():
        assert theirs["server_lr" if name == "lr" else name].default == parameter.default


@pytest.mark.parametrize(
    "spec",
    [
        "fedavgm(epochs=1)",
        "fedadam(epochs=1)",
        "fedyogi(shared=last(1))",
        "fedadagrad(beta1=0.9)+uniform",
        "ditto+yogi",
    ],
)
def test_contract(spec: str) -> None:
    check_method(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedadam(server_lr=0)", "lr must be above 0, not 0"),
        ("fedavgm(server_lr=-1)", "lr must be above 0, not -1"),
        ("fedyogi(tau=0)", "tau must be above 0, not 0"),
        ("fedadam(beta1=1)", "beta1 must be below 1, not 1"),
        ("fedyogi(beta2=1.5)", "beta2 must be below 1, not 1.5"),
        ("fedadam(beta2=-0.1)", "beta2 must be 0 or more, not -0.1"),
        ("fedavgm(beta=1)", "beta must be below 1, not 1"),
        ("fedavgm(beta=-1)", "beta must be 0 or more, not -1"),
        ("fedavg+adam(lr=0)", "lr must be above 0"),
        ("fedavg+adagrad(tau=-1)", "tau must be above 0"),
        ("fedavg+adagrad(beta1=2)", "beta1 must be below 1"),
        ("fedavg+adagrad(beta2=0.9)", "unknown setting of adagrad 'beta2': did you mean 'beta1'"),
        ("fedavg+yogi(lr=fast)", "in yogi, lr must be a number, not 'fast'"),
        ("fedadam(server_rl=0.1)", "did you mean 'server_lr'"),
    ],
)
def test_settings_that_make_no_sense(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        resolve(spec)
