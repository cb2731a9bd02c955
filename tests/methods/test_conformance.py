"""Every method through the contract; and methods that break it, each refused with its reason."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

import glocal
import toys
from glocal.core import rng, tree
from glocal.engines import CohortRound, Sequential, Vectorised, vectorised
from glocal.methods import resolve
from glocal.nn.augment import chain, crop, flip
from glocal.slots.client import minibatch_training
from glocal.slots.method import Method, as_plan
from glocal.testing import SIZES, check_method, ragged
from glocal.testing.contract import Contract, cohorts, telling_seed
from glocal.training.loop import Training
from glocal.training.sampling import Fixed, Poisson
from specs import EVERYBODY, SMALL, SPECS


@pytest.mark.parametrize("spec", SPECS)
def test_methods(spec: str) -> None:
    check_method(SMALL.get(spec, spec), sampler=Fixed(len(SIZES)) if spec in EVERYBODY else None)


@pytest.mark.parametrize("name", sorted(toys.TOYS))
def test_toys(name: str) -> None:
    check_method(toys.TOYS[name](), rounds=5 if name == "two_stages" else 3)


@pytest.mark.parametrize("method", ["fedprox", "local", "own_model"])
def test_dropout(method: str) -> None:
    check_method(toys.own_model() if method == "own_model" else method, model=toys.dropout_net())


def test_lstm() -> None:
    check_method(toys.own_model(), model=toys.recurrent(), fed=toys.texts())
    check_method("local", model="char-lstm(embedding=2,hidden=3,layers=1)", fed=toys.texts())


def test_padded_sequences() -> None:
    """With a weighting that asks for losses: those are over labels, in both engines."""
    words = "word-lstm(hidden=3,layers=1)"
    check_method(toys.by_loss(), model=words, fed=toys.next_words(), rounds=2)
    texts = "bilstm(4,embedding=2,hidden=3,vocabulary=6)"
    check_method("fedper(grad_clip=0.1)", model=texts, fed=toys.texts(), rounds=2)


def test_augmented_images_and_group_norm() -> None:
    augment = chain(crop(1), flip())
    check_method(toys.two_phases(), model=toys.group_norm_net(), fed=toys.images(), augment=augment)


def test_poisson_cohorts_that_are_sometimes_empty() -> None:
    sampler, rounds = Poisson(0.25), 5
    plan, fed = as_plan(resolve("fedavg")), ragged()
    training = Training(plan, None, fed, None, sampler, rounds, 0)  # type: ignore[arg-type]
    sizes = [
        len(c)
        for c in cohorts(
            Training(plan, None, fed, None, sampler, rounds, telling_seed(training))  # type: ignore[arg-type]
        )
    ]
    assert 0 in sizes and max(sizes) > 0  # noqa: PT018
    for method in ("fedavg+adam", toys.control_variates(), toys.by_loss()):
        check_method(method, sampler=sampler, rounds=rounds)


def test_the_federation_is_ragged_and_somebody_is_late_and_somebody_never_comes() -> None:
    fed = ragged()
    counts = fed.train.counts()
    assert len(counts.unique()) == len(SIZES)
    assert all(counts % 10 != 0)
    training = Training(as_plan(resolve("fedavg")), None, fed, None, Fixed(3), 3, 0)  # type: ignore[arg-type]
    first, *later = cohorts(
        Training(training.plan, None, fed, None, Fixed(3), 3, telling_seed(training))  # type: ignore[arg-type]
    )
    joined = set().union(*later)
    assert joined - set(first)
    assert joined & set(first)
    assert len(joined | set(first)) < len(fed)


SGD = minibatch_training()
CALLS: list[int] = []


def changes_its_input(task: Any, down: Any, carry: Any, batch: Any, key: Tensor) -> Any:
    grads, _ = task.grad(lambda w: task.loss(w, batch, key), carry["w"])
    for k, w in carry["w"].items():
        w.sub_(grads[k], alpha=0.1)
    return carry


def adds_to_the_downlink(task: Any, down: Any, client: Any) -> Any:
    down["mine"] = down["lr"]
    return SGD.start(task, down, client)


def changes_the_data(task: Any, down: Any, client: Any) -> Any:
    FED.x.mul_(1.01)
    return SGD.start(task, down, client)


def counts_calls(task: Any, down: Any, carry: Any, batch: Any, key: Tensor) -> Any:
    CALLS.append(0)
    moved = SGD.step(task, down, carry, batch, key)
    return {**moved, "w": tree.map(lambda w: w * (1 + 1e-3 * len(CALLS)), moved["w"])}


def draws_from_the_global_generator(
    task: Any, down: Any, carry: Any, batch: Any, key: Tensor
) -> Any:
    moved = SGD.step(task, down, carry, batch, key)
    return {**moved, "w": tree.map(lambda w: w + 0.1 * torch.randn(w.shape), moved["w"])}


def averages_over_padding(task: Any, down: Any, carry: Any, batch: Any, key: Tensor) -> Any:
    return SGD.step(task, down, carry, {**batch, "weight": torch.ones_like(batch["weight"])}, key)


def forgets_a_name(task: Any, down: Any, carry: Any) -> Any:
    update, state, extra = SGD.finish(task, down, carry)
    return dict(list(update.items())[1:]), state, extra


def sends_another_name(task: Any, down: Any, carry: Any) -> Any:
    update, state, extra = SGD.finish(task, down, carry)
    return {**update, "secret": update["layers.0.bias"]}, state, extra


def sends_another_shape(task: Any, down: Any, carry: Any) -> Any:
    update, state, extra = SGD.finish(task, down, carry)
    return {k: v.flatten() for k, v in update.items()}, state, extra


def sends_what_it_keeps(task: Any, down: Any, carry: Any) -> Any:
    update, state, _ = toys.own_client().finish(task, down, carry)
    return update, state, {"v": state["v"]["layers.0.weight"].flatten()}


def keeps_more_than_it_had(task: Any, down: Any, carry: Any) -> Any:
    update, _, extra = SGD.finish(task, down, carry)
    return update, {"new": carry["w"]}, extra


def keeps_another_type(task: Any, down: Any, carry: Any) -> Any:
    update, state, extra = toys.own_client().finish(task, down, carry)
    return update, tree.map(lambda x: x.double(), state), extra


def has_half_a_candidate(task: Any, down: Any, client: Any) -> Any:
    return {"half": dict(list(down["params"].items())[:2])}


def is_made_of_numbers(task: Any, down: Any, carry: Any, batch: Any, key: Tensor) -> Any:
    moved = SGD.step(task, down, carry, batch, key)
    return {**moved, "w": tree.map(lambda w: w * (1 + 1e-3 * float(w.mean())), moved["w"])}


def ignores_its_key(task: Any, down: Any, carry: Any, batch: Any, key: Tensor) -> Any:
    return {**carry, "w": tree.map(lambda w: w + 0.1, carry["w"])}


def overwrites_what_it_received(task: Any, params: Any, key: Tensor) -> Any:
    for w in params.values():
        w.mul_(1.01)
    return {}


FED = ragged()


@pytest.mark.parametrize(
    ("hooks", "message"),
    [
        ({"step": changes_its_input}, r"inputs unmodified \(sequential\).*downlink/params/layers"),
        ({"start": adds_to_the_downlink}, "inputs unmodified.*has 'downlink/mine'"),
        ({"start": changes_the_data}, "inputs unmodified.*'federation/x' differs by"),
        ({"init": overwrites_what_it_received}, r"inputs unmodified \(init\).*'layers.0.weight'"),
        ({"step": counts_calls}, r"same seed, same bits \(sequential\).*uplink of round 1"),
        ({"step": draws_from_the_global_generator}, r"same seed, same bits \(sequential\)"),
        ({"step": averages_over_padding}, "uplink.*'update/layers"),
        ({"step": is_made_of_numbers}, "engines agree: vectorised cannot run it.*item"),
        ({"finish": forgets_a_name}, "only the shared is sent.*lacks 'layers.0.weight'"),
        ({"finish": sends_another_name}, "only the shared is sent.*has 'secret'"),
        ({"finish": sends_another_shape}, r"'layers.0.weight': float32\[42\] where.*\[7, 6\]"),
        ({"finish": keeps_more_than_it_had}, "structure stable.*client state has 'new/layers"),
        ({"candidates": has_half_a_candidate}, "candidates: candidate 'half' lacks 'layers.1"),
    ],
    ids=lambda value: next(iter(value.values())).__name__ if isinstance(value, dict) else "",
)
def test_the_kit_bites(hooks: dict[str, Any], message: str) -> None:
    CALLS.clear()
    with pytest.raises(AssertionError, match=f"(?s){message}"):
        check_method(toys.wrapped(**hooks), fed=ragged() if "start" not in hooks else FED)


def own(**hooks: Any) -> Method:
    return toys.wrapped(toys.own_client(), **hooks)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            own(finish=sends_what_it_keeps),
            r"nothing private is sent \(sequential\): extra/v of the uplink is v/layers.0.weight",
        ),
        (own(finish=keeps_another_type), "structure stable.*float64.*should be float32"),
    ],
    ids=["sends_what_it_keeps", "keeps_another_type"],
)
def test_the_kit_bites_where_there_is_a_state(method: Method, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        check_method(method)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("a mean of states", "nothing private is sent.*with another state of client 0, the other"),
        ("keys by place", "order does not matter.*uplink, 'update/layers.1.weight' differs by"),
    ],
)
def test_the_kit_bites_where_an_engine_mixes_clients_up(
    fault: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for rule in ("frozen", "engines_agree"):  # which would notice first
        monkeypatch.setattr(Contract, rule, lambda self: None)
    if fault == "keys by place":
        by_place = property(lambda self: rng.fold(self.key, torch.arange(len(self.ids))))
        monkeypatch.setattr(CohortRound, "keys", by_place)
    for engine in (Sequential, Vectorised) if fault == "a mean of states" else ():

        def mixed(self: Any, work: CohortRound, inner: Any = engine.round) -> Any:
            states = tree.map(lambda x: x + x.mean(0, keepdim=True), work.states)
            return inner(self, dataclasses.replace(work, states=states))

        monkeypatch.setattr(engine, "round", mixed)
    with pytest.raises(AssertionError, match=message):
        check_method("fedavg(shared=last(1))")


def test_the_kit_bites_where_the_seed_is_ignored() -> None:
    with pytest.raises(AssertionError, match="another seed differs"):
        check_method(toys.wrapped(step=ignores_its_key), sampler=Fixed(len(SIZES)))


def test_the_kit_bites_where_a_loss_weighting_forgets_its_state() -> None:
    weighting = toys.loss_driven()
    forgetful = glocal.Method(
        local=SGD,
        weighting=type(weighting)(
            "forgetful", lambda s, u: (torch.softmax(u.loss, 0), {}), weighting.init, True
        ),
    )
    with pytest.raises(AssertionError, match="server state lacks 'weighting/mean'"):
        check_method(forgetful)


@pytest.mark.parametrize("method", ["fedprox(mu=0.5)", "own_model", "control_variates"])
def test_without_freezing_proximal_terms_drift(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = toys.TOYS[method]() if method in toys.TOYS else method
    monkeypatch.setattr(vectorised._ActiveClients, "set_aside", lambda self, t: None)
    check_method(made)  # setting the finished aside only saves time
    monkeypatch.setattr(
        vectorised._ActiveClients, "advance", lambda self, new, t: setattr(self, "carry", new)
    )
    with pytest.raises(AssertionError, match=r"frozen when finished.*by itself against with all"):
        check_method(made)


def test_a_plan_that_is_not_seen_to_its_end_is_refused() -> None:
    with pytest.raises(glocal.GlocalError, match=r"end in stage 'train'.*give more rounds"):
        check_method(toys.two_stages(), rounds=2)


def test_the_kit_bites_where_rounds_are_counted_behind_its_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whole runs come out the same: taking one up again shows it."""
    for rule in ("frozen", "engines_agree"):  # whose extra rounds would show it first
        monkeypatch.setattr(Contract, rule, lambda self: None)
    rounds: list[float] = []

    def start(task: Any, down: Any, client: Any) -> Any:
        if not down["round"]:
            rounds.clear()
        if float(down["round"]) not in rounds[-1:]:
            rounds.append(float(down["round"]))
        carry = SGD.start(task, down, client)
        return {**carry, "w": tree.map(lambda w: w * (1 + 0.01 * len(rounds)), carry["w"])}

    with pytest.raises(AssertionError, match="saved and loaded after round 2: server state after"):
        check_method(toys.wrapped(start=start))


def test_a_file_with_its_leaves_in_another_order_is_read_by_name() -> None:
    """Safetensors sorts leaves: a state whose names are not sorted comes back in another order."""

    def init(task: Any, params: Any, key: Tensor) -> Any:
        return {"z": params, "a": tree.map(lambda x: 2 * x, params)}

    def start(task: Any, down: Any, client: Any) -> Any:
        return {**SGD.start(task, down, client), "state": client}

    def step(task: Any, down: Any, carry: Any, batch: Any, key: Tensor) -> Any:
        moved = SGD.step(task, down, carry, batch, key)
        z, a = carry["state"]["z"], carry["state"]["a"]
        return {**moved, "state": {"z": tree.add(z, moved["w"], 0.1), "a": tree.add(a, z, 0.2)}}

    def finish(task: Any, down: Any, carry: Any) -> Any:
        return tree.sub(carry["w"], down["params"]), carry["state"], {}

    check_method(toys.wrapped(init=init, start=start, step=step, finish=finish))
