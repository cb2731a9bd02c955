"""Specs made into methods, and every combination that is refused."""

from __future__ import annotations

from typing import Any

import pytest

import glocal
from glocal.core.errors import GlocalError
from glocal.methods import registry, resolve
from glocal.methods.local import LocalTraining
from glocal.methods.specs import OF_PRIVATE_LAYERS
from glocal.methods.training_args import DEFAULTS
from glocal.nn.optim import adam
from glocal.slots.aggregation import Combine, mean
from glocal.slots.client import minibatch_training
from glocal.slots.method import Method, Plan, Stage, as_plan
from glocal.slots.server_half import Memory
from glocal.slots.weighting import by_examples, uniform

MEDIAN = Combine("median", lambda updates, p: updates, weighted=False)
MEMORY = Memory("scaffold")


class Private:
    name = "dp"

    def init(self, setting: Any) -> Any:
        return {}

    def client(self, state: Any, update: Any, key: Any) -> Any:
        return update, {}

    def server(self, state: Any, update: Any, said: Any, setting: Any, key: Any) -> Any:
        return update, state

    def check(self, setting: Any) -> None: ...

    def allowed(self, setting: Any) -> int:
        return 10

    def spent(self, state: Any, setting: Any) -> dict[str, Any]:
        return {"epsilon": 1.0}


def test_every_slot_has_fedavgs_filler() -> None:
    method = Method(local=minibatch_training())
    assert method.weights.name == "by-examples"
    assert method.combine.name == "mean"
    assert method.server_opt.name == "sgd"
    assert method.memory.name == "none"
    assert method.privacy is None
    assert method.shared.name == "everything"
    assert method.replace(server_opt=adam(0.1)).server_opt.name == "adam"


def test_privacy_and_aggregators_without_weights_count_all_alike() -> None:
    assert Method(local=minibatch_training(), combine=MEDIAN).weights.name == "uniform"
    assert Method(local=minibatch_training(), privacy=Private()).weights.name == "uniform"
    assert (
        Method(local=minibatch_training(), privacy=Private(), weighting=uniform()).weights.name
        == "uniform"
    )


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        (
            {"combine": MEDIAN, "weighting": by_examples()},
            "median does not use weights, so by-examples would do nothing: leave one",
        ),
        (
            {"privacy": Private(), "weighting": by_examples()},
            "all count alike, so by-examples cannot go with it: leave the weighting out",
        ),
        (
            {"privacy": Private(), "memory": MEMORY},
            "dp protects the update alone, and scaffold sends more",
        ),
        ({"privacy": Private(), "combine": MEDIAN}, "noise made for a mean, so median cannot go"),
    ],
)
def test_combinations_that_make_no_sense(slots: dict[str, Any], message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        Method(local=minibatch_training(), **slots)
    with pytest.raises(GlocalError, match=message):
        Method(local=minibatch_training()).replace(**slots)


def test_plans() -> None:
    method = Method(local=minibatch_training())
    assert as_plan(method).stages == (Stage(method),)
    plan = Plan((Stage(method, rounds=2), Stage(method, goal=0.9), Stage(method)))
    assert as_plan(plan) is plan
    with pytest.raises(GlocalError, match="a plan needs one stage or more"):
        Plan(())
    with pytest.raises(GlocalError, match="stage 'warm-up' never ends, and others follow"):
        Plan((Stage(method, name="warm-up"), Stage(method)))
    for rounds in (0, 1.5, -1):
        with pytest.raises(
            GlocalError, match="a stage lasts an integer number of rounds, or a share"
        ):
            Stage(method, rounds=rounds)
    private = method.replace(privacy=Private())
    with pytest.raises(GlocalError, match="give all stages the same privacy, or none"):
        Plan((Stage(method, rounds=2), Stage(private)))
    with pytest.raises(GlocalError, match="validation data, which dp does not protect: give the"):
        Plan((Stage(private, goal=0.9), Stage(private)))
    assert [Stage(method, rounds=r).length(10) for r in (None, 3, 0.25, 0.01)] == [None, 3, 2, 1]
    for goal in (0.0, 1.1, -1.0):
        with pytest.raises(GlocalError, match="goal is an accuracy above 0 and up to 1"):
            Stage(method, goal=goal)


def made(spec: str) -> Method:
    method = resolve(spec)
    assert isinstance(method, Method)
    return method


def test_a_base_with_its_settings() -> None:
    local = made("fedavg(lr=0.5,batch_size=7,epochs=3)").local
    assert (local.batch_size, local.epochs) == (7, 3)
    local = made("fedavg").local
    assert (local.batch_size, local.epochs) == (DEFAULTS["batch_size"], DEFAULTS["epochs"])
    alone = made("local(lr=0.2,patience=3)").local
    assert isinstance(alone, LocalTraining)
    assert (alone.rates, alone.patience) == ((0.2,), 3)


def test_fillers_take_their_slots() -> None:
    method = made("fedprox(mu=0.1) + uniform + adam(lr=0.01)")
    assert method.weights.name == "uniform"
    assert method.server_opt.name == "adam"
    assert made("fedavg(shared=last(2))").shared.name == "last(2)"
    assert made("fedavg(shared='a|b')").shared.name == "a|b"


@pytest.mark.parametrize("name", registry.known(*registry.COMPONENTS))
def test_a_filler_as_base_is_fedavg_with_it(name: str) -> None:
    slot, _ = registry.BUILT_IN[name]
    base = "lg-fedavg" if slot in OF_PRIVATE_LAYERS else "fedavg"
    alone, spelt = (as_plan(resolve(s)).stages[-1].method for s in (name, f"{base}+{name}"))
    assert getattr(alone, slot).name == getattr(spelt, slot).name == name
    assert made("adam(lr=0.1)+uniform").weights.name == "uniform"


def test_a_filler_as_base_passes_on_the_settings_it_does_not_know() -> None:
    spec = "yogi(0.01,tau=0.1,epochs=1,batch_size=7,momentum=0.5,shared=last(1))+uniform"
    method = made(spec)
    assert (method.local.epochs, method.local.batch_size) == (1, 7)
    assert (method.server_opt.name, method.server_opt.lr) == ("yogi", 0.01)
    assert (method.shared.name, method.weights.name) == ("last(1)", "uniform")
    fair = made("q-fedavg(q=2,epochs=1)")
    assert (fair.weights.name, fair.local.epochs) == ("q-fedavg", 1)


def test_a_setting_that_both_know_is_the_fillers() -> None:
    """A weighting has no learning rate, so there it is the clients'."""
    for spec, server, clients in (("adam(lr=0.02)", 0.02, 0.1), ("uniform(lr=0.02)", 1.0, 0.02)):
        method = made(spec)
        assert (method.server_opt.lr, method.local.opt.lr) == (server, clients)


def test_a_base_keeps_the_server_optimiser_it_brings() -> None:
    assert made("fedadam+uniform").server_opt.name == "adam"
    assert made("pfedme+adam").server_opt.name == "adam"


PLAIN_SGD_ONLY = {"scaffold"}
COUNT_STEPS = {"fedevg", "fedcgan", "fedcvae"}


def test_every_base_takes_the_common_settings() -> None:
    common = "lr=0.1,batch_size=5,epochs=1,schedule=inverse(0.1)"
    more = ("momentum=0.9", "weight_decay=0.001", "momentum=0.9,nesterov=true")
    for base in glocal.list_methods():
        passes = ",steps=none" if base in COUNT_STEPS else ""
        for stage in as_plan(resolve(f"{base}({common}{passes})")).stages:
            assert stage.method.local.batch_size == 5
            assert stage.method.local.schedule(10) == 0.5
        for settings in more:
            if base in PLAIN_SGD_ONLY:
                with pytest.raises(GlocalError, match=f"{base} cannot take .*leave it out"):
                    resolve(f"{base}({settings})")
            else:
                resolve(f"{base}({settings})")


def test_a_filler_goes_to_every_stage_of_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Plan((Stage(made("fedavg"), rounds=2, name="a"), Stage(made("fedavg"), name="b")))
    monkeypatch.setitem(registry.REGISTERED, "staged", registry.Entry("method", lambda: two))
    plan = resolve("staged+uniform")
    assert isinstance(plan, Plan)
    assert [(s.method.weights.name, s.rounds, s.name) for s in plan.stages] == [
        ("uniform", 2, "a"),
        ("uniform", None, "b"),
    ]
    assert resolve("staged") is two


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedavgg", "unknown method 'fedavgg': did you mean 'fedavg'"),
        ("fedavg+unifrom", "unknown component 'unifrom': did you mean 'uniform'"),
        ("fedavg+fedprox", r"fedprox is a method of its own.*begin the spec with it"),
        ("fedavg+uniform+by-examples", r"uniform and by-examples in .* fill the same slot"),
        ("adam+sgd", r"adam and sgd in 'adam\+sgd' fill the same slot \(server_opt\)"),
        ("fedadam+yogi", r"fedadam brings its own server optimiser \(adam\), and yogi in .* fills"),
        ("fedadam+adam(lr=1)", r"leave adam out, or write fedavg\+adam"),
        ("fedavgm+sgd", r"leave sgd out, or write fedavg\+sgd"),
        ("pfedme(beta=0.5)+adam", r"pfedme brings its own server optimiser \(sgd\), and adam"),
        ("fedavg+adam(epochs=1)", "unknown setting of adam 'epochs': known are beta1, beta2, lr"),
        ("fedavg+uniform(lr=1)", "uniform takes no settings, and so no lr: leave it out"),
        ("adam(epoch=1)", "unknown setting of adam 'epoch': did you mean 'epochs'"),
        ("adam(bta1=0.5)", "unknown setting of adam 'bta1': did you mean 'beta1'.*, epochs, "),
        ("uniform(epochs=0)", "epochs must be an integer from 1 to 10,000"),
        ("uniform+adam(epochs=1)", "unknown setting of adam 'epochs'"),
        (
            "fedavg(rl=0.1)",
            "unknown setting of fedavg 'rl'.*known are batch_size, epochs, grad_clip, lr",
        ),
        ("fedavg(mu=0.1)", "unknown setting of fedavg 'mu'"),
        ("fedavg+uniform(3)", "uniform takes no settings: write it without brackets"),
        ("fedavg(0.1)", r"by name \(none without one\), not 0.1: write fedavg\(lr=0.5\)"),
        ("fedprox(mu=-1)", "mu must be 0 or more"),
        ("fedprox(mu=much)", r"mu must be a number, not 'much': write fedprox\(mu=0.01\)"),
        ("fedavg(epochs=0)", "epochs must be an integer from 1 to 10,000, not 0"),
        ("fedavg(epochs=1.5)", "in fedavg, epochs must be an integer, not 1.5"),
        ("fedavg(epochs=few)", "epochs must be an integer"),
        ("fedavg(batch_size=-1)", "batch_size must be an integer"),
        ("local(max_epochs=0)", "max_epochs must be an integer of 1 or more"),
        ("local(lr=-0.1)", "^lr must be above 0, not -0.1"),
        ("local(lr=0)", "^lr must be above 0, not 0"),
        ("fedavg(momentum=2)", "^momentum must be below 1, not 2"),
        ("fedprox(mu=true)", "in fedprox, mu must be a number, not True"),
        ("fedavg+dp(noise=True)", "in dp, noise must be a number, not True"),
        ("fedavg(nesterov=1)", "in fedavg, nesterov must be true or false, not 1"),
        ("fedavg+krum(0.2, malicious=0.1)", "in krum, malicious is given twice"),
        ("fedprox(mu=1e39)", "in fedprox, mu must be smaller than 3.4e[+]38, not 1e[+]39"),
        (
            "fedavg(batch_size=99999999999999999999)",
            "batch_size must be smaller than 2.63, not 9",
        ),
        ("fedavg(shared=3)", "shared=3 must be names"),
        ("fedavg(", "cannot read"),
    ],
)
def test_specs_that_make_no_sense(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        resolve(spec)


def test_what_is_no_spec() -> None:
    with pytest.raises(GlocalError, match="a method is a name such as 'fedavg' or a Method, not 3"):
        resolve(3)  # type: ignore[arg-type]


def test_methods_are_sorted() -> None:
    assert glocal.list_methods() == sorted(registry.BUILT_IN)
    assert mean().weighted


def test_privacy_goes_with_the_mean_alone() -> None:
    """Another aggregator may let one client move the sum by more than the noise is made for."""
    tenfold = Combine("tenfold", lambda u, p: {k: 10 * x.sum(0) for k, x in u.items()})
    private = as_plan(resolve("dp(noise=1.0)")).stages[0].method
    with pytest.raises(GlocalError, match="tenfold cannot go with it"):
        private.replace(combine=tenfold)


@pytest.mark.parametrize("opt", ["adam", "yogi", "adagrad"])
@pytest.mark.parametrize(
    ("weighting", "setting"), [("q-fedavg(lipschitz=10)", "lipschitz"), ("fedmgda(step=1)", "step")]
)
def test_a_step_of_its_own_length_is_not_undone(weighting: str, setting: str, opt: str) -> None:
    with pytest.raises(GlocalError, match=rf"\({setting}=…\) says how long .* {opt} .*: leave"):
        resolve(f"fedavg+{weighting}+{opt}")
    with pytest.raises(GlocalError, match=f"leave {setting} out, or use sgd or momentum"):
        resolve(f"fed{opt}+{weighting}")
    for other in ("sgd(lr=0.5)", "momentum"):
        resolve(f"fedavg+{weighting}+{other}")
    resolve(f"fedavg+{weighting.partition('(')[0]}+{opt}")  # without that setting
