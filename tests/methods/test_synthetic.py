"""FedEvg, FedCGAN and FedCVAE: their equations, their traffic, and whether labels are right."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from loops import ENGINES, NET, batches, cohorts, first, made, trained
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional

import glocal
from glocal import federation
from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.data.schema import Schema
from glocal.engines import Engine, Vectorised
from glocal.engines.batching import plan
from glocal.methods import resolve
from glocal.methods.fedcvae import negative_elbo
from glocal.methods.fedevg import fedevg
from glocal.nn.task import Task
from glocal.slots.client import Phase
from glocal.slots.method import Plan, Stage, as_plan
from glocal.testing import check_method, ragged
from glocal.training.loop import REDUCE, WORK
from glocal.training.sampling import Fixed
from toys import images, texts

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)


def energy(w: Any, x: Tensor, y: Tensor) -> Tensor:
    return -functional_call(NET, w, (x,))[torch.arange(len(y)), y]


@pytest.mark.parametrize(("private", "by_class"), [(False, False), (True, False), (False, True)])
@both_engines
def test_fedevg_is_the_plain_loop(engine: Engine, private: bool, by_class: bool) -> None:
    """Two rounds of half of the clients, written down once more with torch's own Adam.

    Under ``dp`` without a bound or noise: Σ exp(s) ∇E over the three that are expected.
    """
    spec = "fedevg(spc=3,beta=2,beta_last=1,beta_schedule=linear,delta=0.1,gamma=0.5,sigma=0.2"
    spec += ",chain=2,lam=0.3,reg=0.2,clip=0.4,synthetic_batch=4,lr=0.01,batch_size=10,steps=none"
    spec += f",fresh=true,by_class={str(by_class).lower()})"
    spec += "+dp(clip=1e9,noise=0)" if private else ""
    training, done = trained(spec, engine, rounds=2)
    begun = training.begin(training.task.params).server["memory"]
    x, y = begun["x"], begun["y"]
    assert y.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for r in range(2):
        sent, n = [], []
        for client in cohorts(training)[r]:
            w = {k: v.requires_grad_() for k, v in first().items()}
            adam = torch.optim.Adam(list(w.values()), lr=0.01)
            own = x.clone()
            mine = rng.fold(rng.fold(training.key(WORK, r), client), 0)
            for t, (real_x, real_y) in enumerate(batches(training, r, client, 1)):
                key = rng.fold(rng.fold(mine, -2), t)
                chosen = rng.permutation(rng.fold(key, -2), 9)[:4]
                start, label = own[chosen], y[chosen]
                made = start
                for c in range(2):
                    at = made.detach().requires_grad_()
                    (g,) = torch.autograd.grad(energy(w, at, label).sum(), at)
                    eps = rng.normal(rng.fold(key, -3 - c), (4, 6))
                    made = (made - 0.5 * g.clamp(-0.4, 0.4) + 0.2 * eps).clamp(-4, 4)
                up, low = energy(w, real_x, real_y), energy(w, made, label)
                loss = up.mean() - low.mean() + 0.1 * (up.square().mean() + low.square().mean())
                loss = loss + functional.cross_entropy(functional_call(NET, w, (real_x,)), real_y)
                copied = functional_call(NET, w, (start,))
                loss = loss + 0.3 * functional.cross_entropy(copied, label)
                adam.zero_grad()
                loss.backward()
                adam.step()
                own[chosen] = made
            at = x.clone().requires_grad_()
            e = energy(w, at, y)
            (g,) = torch.autograd.grad(e.sum(), at)
            sent.append((torch.exp(torch.sign(-e.detach())), g.clamp(-0.4, 0.4)))
            own_labels = training.fed[client].train[1]
            n.append(own_labels.bincount(minlength=3).repeat_interleave(3).unsqueeze(1))
            if not by_class:
                n[-1] = torch.full((9, 1), len(own_labels))
        top = sum(c * e.unsqueeze(1) * g for c, (e, g) in zip(n, sent, strict=True))
        bottom = sum(c * e.unsqueeze(1) for c, (e, _) in zip(n, sent, strict=True))
        eps = rng.normal(rng.fold(training.key(REDUCE, r), 2), (9, 6))
        g = sum(e.unsqueeze(1) * g for e, g in sent) / 3 if private else top / bottom
        x = (x - (2, 1)[r] * g.clamp(-0.4, 0.4) + 0.1 * eps).clamp(-4, 4)
    torch.testing.assert_close(done.server["memory"]["x"], x, atol=1e-4, rtol=1e-4)


def test_energy_of_real_data_falls_and_of_noise_rises() -> None:
    x = 2 + 0.3 * rng.normal(rng.key(0), (60, 6))
    fed = federation(x, torch.arange(60) % 3, clients=(torch.arange(60) % 2))
    spec = "fedevg(lam=0,steps=30,lr=0.01,batch_size=0)"
    training = made(spec, Vectorised(), sampler=Fixed(2), rounds=1, fed=fed)
    start = training.begin(training.task.params)
    noise = start.server["memory"]
    training.one_round(start)
    _, states = start.clients.saved()
    for client in range(2):
        w = {k: v[client] for k, v in states["w"].items()}
        x, y = training.fed[client].train
        assert energy(w, x, y).mean() < energy(first(), x, y).mean() - 0.1
        made_up = noise["x"], noise["y"]
        assert energy(w, *made_up).mean() > energy(first(), *made_up).mean() + 0.1


def test_a_client_sends_energies_and_gradients_and_nothing_else() -> None:
    training, done = trained("fedevg(spc=5)", Vectorised())
    numbers = 15 * 6 + 15
    assert tuple(done.traffic.up) == ({"extra": 3 * (numbers + 3)},) * 3  # and shares of classes
    assert tuple(done.traffic.down) == ({"extra": 3 * numbers},) * 3
    assert set(done.server["params"]) == set()
    x, y = resolve_draw(training, done)
    assert torch.equal(x, done.server["memory"]["x"])
    assert y.bincount().tolist() == [5, 5, 5]


def resolve_draw(training: Any, done: Any) -> tuple[Tensor, Tensor]:
    half = training.method(done).server_half
    x, y = half.draw(done.server, training.setting, training.key(9))
    return x, y


def test_the_whole_network_travels_otherwise() -> None:
    _, done = trained("fedcvae(width=1,code=2)", Vectorised())
    sizes = done.server["memory"]["networks"]
    count = sum(v.numel() for net in sizes.values() for v in net.values())
    assert done.traffic.up[0] == {"extra": 3 * count}
    assert done.traffic.down[0] == {"extra": 3 * count}


def test_the_elbo_by_hand() -> None:
    """Pixels 1 and 0 of logits 0 and log 3: log 2 + log 4; N(1, 1) is ½ away from N(0, 1)."""
    x, said = torch.tensor([1.0, 0.0]), torch.tensor([0.0, math.log(3)])
    one, zero = torch.ones(1, 1), torch.zeros(1, 1)
    pixels = negative_elbo(x.view(1, 1, 1, 2), said.view(1, 1, 1, 2), one, zero, 1.0)
    assert pixels.tolist() == pytest.approx([math.log(8) + 0.5])
    # Numbers 1 and 2 said to be 0: ½ + 2; N(0, 4) is ½ (3 − log 4) away, which counts twice here.
    spread = torch.full((1, 1), math.log(4))
    numbers = negative_elbo(torch.tensor([[1.0, 2.0]]), torch.zeros(1, 2), zero, spread, 2.0)
    assert numbers.tolist() == pytest.approx([2.5 + 3 - math.log(4)])


def far_apart() -> Federation:
    """Class 0 on the left, class 1 on the right, each two Gaussians; clients lack some."""
    key, centres = rng.key(0), torch.tensor([[-2.0, -2], [-2, 2], [2, -2], [2, 2]])
    which = torch.arange(240) % 4
    x = centres[which] + 0.3 * rng.normal(key, (240, 2))
    owner = (torch.arange(240) // 4) % 2 + 2 * (which % 2)
    return federation(x, which // 2, clients=owner)


@pytest.mark.parametrize(
    ("spec", "rounds"),
    [
        ("fedevg(steps=10,fresh=false,reg=0.1,beta=1,lr=0.01)", 10),
        ("fedcvae(width=2,code=2,steps=20,lr=0.02)", 8),
        ("fedcgan(width=2,code=4,steps=20,lr=0.01)", 10),
    ],
)
def test_what_is_made_as_a_class_is_of_that_class(spec: str, rounds: int) -> None:
    fed = far_apart()
    task = Task(glocal.nn.models.build("mlp(16)", input_shape=(2,), classes=2))
    settings = {"task": task, "fed": fed, "sampler": Fixed(4), "rounds": rounds}
    training, done = trained(spec, Vectorised(), **settings)
    x, y = resolve_draw(training, done)
    right = ((x[:, 0] > 0).long() == y).float().mean()
    assert right >= 0.9


def test_tables_keep_numbers_in_bounds_and_categories_whole() -> None:
    words = ["red", "green", "blue"]
    table = {
        "size": [0.5 * (i % 7) for i in range(60)],
        "colour": [words[i % 3] for i in range(60)],
        "weight": [float(i % 5) for i in range(60)],
        "label": [i % 2 for i in range(60)],
        "site": [i % 3 for i in range(60)],
    }
    fed = federation(table, "label", "site")
    task = Task(glocal.nn.models.build("mlp(4)", input_shape=(5,), classes=2))
    settings = {"task": task, "fed": fed, "sampler": Fixed(3)}
    for spec in ("fedevg(spc=4)", "fedcvae(spc=4,width=1)", "fedcgan(spc=4,width=1)"):
        training, done = trained(spec, Vectorised(), **settings)
        assert training.setting.schema is not None
        assert training.setting.schema.categories == ((0, 3),)
        x, _ = resolve_draw(training, done)
        assert x[:, :3].sum(1).tolist() == [1] * 8
        assert x[:, :3].unique().tolist() == [0, 1]
    check_method("fedevg(spc=2,synthetic_batch=3)", model="mlp(4)", fed=fed)


def test_only_words_are_categories_whatever_a_column_is_called() -> None:
    table = {
        "dose=high": [0.1 * i for i in range(60)],
        "colour=hue": ["red", "green"] * 30,
        "colour": ["dark", "light", "pale"] * 20,
        "label": [i % 2 for i in range(60)],
        "site": [i % 3 for i in range(60)],
    }
    inputs = Schema.of(federation(table, "label", "site"))
    assert inputs.categories == ((0, 3), (3, 5))


def test_images_stay_between_black_and_white_unless_told_otherwise() -> None:
    fed = images()
    task = Task(glocal.nn.models.build("mlp(4)", input_shape=(1, 6, 6), classes=3))
    settings = {"task": task, "fed": fed, "sampler": Fixed(4), "rounds": 2}
    _, done = trained("fedevg(spc=2)", Vectorised(), **settings)
    x = done.server["memory"]["x"]
    assert (x.min(), x.max()) == (0, 1)
    _, done = trained("fedevg(spc=2,boxed=false,clip=none)", Vectorised(), **settings)
    assert done.server["memory"]["x"].min() < -0.5


def test_signed_and_raw_energies() -> None:
    for spec, want in (("fedevg", True), ("fedevg(signed=false)", False)):
        training = made(spec, Vectorised())
        begun = training.begin(training.task.params)
        local = training.method(begun).local
        down = training.method(begun).broadcast(begun.server, 0, training.setting)
        client = local.init(training.task, training.task.params, training.key(0))
        carry = local.start(training.task, down, client)
        _, _, extra = local.finish(training.task, down, carry)
        assert (set(extra["score"].tolist()) <= {-1.0, 0.0, 1.0}) == want


def test_steps_are_the_same_for_everybody() -> None:
    fed = ragged()
    ids = torch.arange(6)
    planned = plan(fed.train, ids, rng.fold(rng.key(0), ids), 1, 10, steps=4)
    assert planned.steps.tolist() == [4] * 6
    counts = fed.train.counts().tolist()
    for i, n in enumerate(counts):
        rows = planned.rows[i][planned.weight[i] > 0].tolist()
        own = set(fed.train.of(i).tolist())
        assert set(rows) <= own
        assert set(rows[:n]) == own or n > len(rows)  # the first pass has everything once
        if n <= 10:
            passes = {tuple(rows[t * n : (t + 1) * n]) for t in range(4)}
            assert len(passes) > 1  # each in an order of its own


@pytest.mark.parametrize("spec", ["fedevg(steps=2,fresh=false)", "fedcvae(width=1,code=2,steps=2)"])
def test_steps_and_models_that_go_on_keep_the_contract(spec: str) -> None:
    check_method(spec, rounds=2)


@pytest.mark.parametrize(
    "spec", ["fedcvae(width=4,code=2,steps=1)", "fedcgan(width=1,code=2,dense=true)"]
)
def test_images_keep_the_contract(spec: str) -> None:
    check_method(spec, fed=images(), rounds=2)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("fedevg+median", "and median would protect nothing: leave it out"),
        ("scaffold+fedevg", "begin the spec with it, as in 'fedevg'"),
        ("fedavg+median+scaffold", "begin the spec with it, as in 'scaffold'"),
        ("fedavg+term+scaffold", r"begin the spec with it, as in 'scaffold\+term'"),
        ("fedevg+adam", "adam would do nothing"),
        ("fedevg+uniform", "uniform would do nothing"),
        ("fedcgan(shared=last(1))", r"shared=last\(1\) would do nothing"),
        ("fedevg(spc=0)", "spc must be an integer"),
        ("fedevg(steps=0.5)", "steps must be an integer"),
        ("fedevg(steps=0)", "steps must be an integer"),
        ("fedcgan(steps=0)", "steps must be an integer"),
        ("fedcvae(steps=0)", "steps must be an integer"),
        ("fedevg(epochs=2)", "epochs=2 would do nothing, since steps=10 .* give steps=none"),
        ("fedcgan(epochs=2)", "epochs=2 would do nothing, since steps=10 .* give steps=none"),
        ("fedcvae(epochs=2,steps=3)", "epochs=2 would do nothing, since steps=3"),
        ("fedevg(low=nan)", "low must be a"),
        ("fedevg(high=nan)", "high must be a"),
        ("fedevg(beta_schedule=up)", "beta_schedule"),
        ("fedevg(low=1,high=0)", "below high"),
        ("fedevg(gamma=-1)", "gamma must be 0 or more"),
        ("fedcgan(width=0)", "width must be an integer"),
    ],
)
def test_what_makes_no_sense_is_refused(spec: str, message: str) -> None:
    with pytest.raises(GlocalError, match=message):
        resolve(spec)


@pytest.mark.parametrize("name", ["fedevg", "fedcgan", "fedcvae"])
def test_mini_batches_are_counted_unless_passes_are_asked_for(name: str) -> None:
    def phase(spec: str) -> Phase:
        return as_plan(resolve(spec)).stages[0].method.local.phases[0]

    assert phase(name).steps == 10
    passes = phase(f"{name}(epochs=2,steps=none)")
    assert (passes.steps, passes.epochs) == (None, 2)


@pytest.mark.parametrize("bound", ["low=4", "low=5", "high=-4"])
def test_a_bound_beyond_the_usual_other_one_is_refused(bound: str) -> None:
    training = made(f"fedevg({bound})", Vectorised())
    name = bound.partition("=")[0]
    with pytest.raises(GlocalError, match=f"{name} must be a number, not nan"):
        fedevg(**{name: float("nan")})  # type: ignore[arg-type]
    with pytest.raises(GlocalError, match="usual bound of columns: give both low and high"):
        training.begin(training.task.params)


def test_a_stage_that_makes_examples_is_the_last() -> None:
    maker, other = (as_plan(resolve(spec)).stages[0].method for spec in ("fedevg", "fedavg"))
    Plan((Stage(other, 1), Stage(maker)))
    with pytest.raises(GlocalError, match="let fedevg be the last"):
        Plan((Stage(maker, 1), Stage(other)))


@pytest.mark.parametrize("name", ["fedcvae", "fedcgan"])
def test_networks_that_travel_take_the_optimiser_that_was_asked_for(name: str) -> None:
    def end(more: str) -> dict[str, Tensor]:
        spec = f"{name}(width=1,code=2,steps=3,lr=0.001{more})"
        _, done = trained(spec, Vectorised(), rounds=1)
        return dict(tree.flatten(done.server["memory"]["networks"]))

    plain = end("")
    others = (",optimiser=sgd", ",momentum=0.5", ",weight_decay=1", ",optimiser=adamw")
    ends = [end(more) for more in others]
    for i, one in enumerate(ends):
        for other in (plain, *ends[:i]):
            assert any(not torch.equal(one[k], other[k]) for k in one)
    same = end(",optimiser=adam,weight_decay=0")
    assert all(torch.equal(same[k], plain[k]) for k in plain)


@pytest.mark.parametrize("spec", ["fedevg", "fedcvae"])
def test_text_is_refused(spec: str) -> None:
    task = Task(
        glocal.nn.models.build(
            "char-lstm(embedding=2,hidden=3,layers=1)", input_shape=(4,), classes=5
        )
    )
    with pytest.raises(GlocalError, match="give it images or a table"):
        trained(spec, Vectorised(), fed=texts(), task=task, sampler=Fixed(4))
