"""SuPerFed: its limits, its start round, and both mixtures against a plain loop."""

from __future__ import annotations

import pytest
import torch
from loops import (
    BODY,
    ENGINES,
    EVERYBODY,
    HEAD,
    SGD,
    Model,
    batches,
    cohorts,
    examples,
    first,
    gap,
    loss,
    made,
    mean,
    same,
    slope,
    square,
    state,
    trained,
)
from torch import Tensor, nn

from glocal import federation
from glocal.core import rng
from glocal.core.errors import GlocalError
from glocal.engines import Engine
from glocal.evaluation.evaluate import pick, score
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.testing import check_method, ragged
from glocal.training.sampling import Fixed

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
both_mixtures = pytest.mark.parametrize("base", ["superfed-mm", "superfed-lm"])
DRAWN = torch.tensor([0.2, 0.7])


def cos2(a: Model, b: Model) -> Tensor:
    x, y = (torch.cat([m[n].flatten() for n in (*BODY, *HEAD)]) for m in (a, b))
    return torch.nn.functional.cosine_similarity(x, y, dim=0) ** 2


@both_engines
@both_mixtures
@pytest.mark.parametrize("mu", [0.0, 0.8])
def test_with_no_mixture_and_no_cosine_it_is_fedprox(engine: Engine, base: str, mu: float) -> None:
    settings = "lr=0.1,epochs=2,momentum=0.9,weight_decay=0.01"
    spec = f"{base}(lam=0,nu=0,mu={mu},start=0,{settings})"
    training, done = trained(spec, engine, rounds=4)
    _, prox = trained(f"fedprox(mu={mu},{settings})", engine, rounds=4)
    same(done.server["params"], prox.server["params"], 1e-6)
    evaluated = training.models(done)(torch.arange(6))
    assert list(evaluated) == ["λ=0"]
    same({n: p[2] for n, p in evaluated["λ=0"].items()}, done.server["params"], 1e-7)
    if mu == 0:
        _, avg = trained(f"fedavg({settings})", engine, rounds=4)
        same(done.server["params"], avg.server["params"], 1e-6)


@both_engines
@both_mixtures
def test_before_its_start_f_trains_alone_and_l_stays(engine: Engine, base: str) -> None:
    """Weight decay and momentum too would move what has no gradient."""
    settings = "mu=0.3,momentum=0.9,weight_decay=0.1"
    training = made(f"{base}(nu=3,start=0.5,{settings})", engine, rounds=4, sampler=EVERYBODY)
    progress = training.begin(training.task.params)
    make = training.make(progress, training.method(progress).client_half(training.task))
    began = [make(k)["l"] for k in range(6)]
    for r in range(4):
        before = [state(progress, k)["l"] for k in range(6)] if r else began
        training.one_round(progress)
        for k in range(6):
            moved = gap(state(progress, k)["l"], before[k])
            assert moved == 0 if r < 2 else moved > 1e-3
        if r == 1:
            _, prox = trained(f"fedprox({settings})", engine, rounds=2, sampler=EVERYBODY)
            same(progress.server["params"], prox.server["params"], 1e-6)


@pytest.mark.parametrize(
    ("start", "rounds", "begins"),
    [(0.4, 50, 20), (0.6, 50, 30), (0.3, 90, 27), (0.29, 100, 29), (0.4, 7, 2), (0, 3, 0)],
)
def test_the_start_is_a_share_of_the_rounds(start: float, rounds: int, begins: int) -> None:
    """Floored: 0.4 · 7 is the second. 0.29 · 100 is below 29 in double precision, and the 29th."""
    training = made(f"superfed-mm(start={start})", ENGINES[0], rounds=rounds, sampler=Fixed(1))
    progress = training.begin(training.task.params)
    for r, moves in ((begins - 1, False), (begins, True)):
        progress.round = r
        if r < 0:
            continue
        (k,) = training.sampler.cohort(6, training.key(0, r)).tolist()
        make = training.make(progress, training.method(progress).client_half(training.task))
        before = state(progress, k)["l"] if progress.clients.seen[k] else make(k)["l"]
        training.one_round(progress)
        assert (gap(state(progress, k)["l"], before) > 0) == moves


@both_engines
@both_mixtures
@pytest.mark.parametrize("nu_always", [False, True])
def test_superfed_is_the_plain_loop(
    engine: Engine, base: str, nu_always: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """λ is 0.2 for the model, or 0.2 and 0.7 for its two layers; drawn from the third round on."""
    fed = ragged()  # before its own draws are replaced, too
    monkeypatch.setattr(rng, "uniform", lambda key, shape: DRAWN[: shape[0]])
    mu, nu, start = 0.3, 1.5, 2
    always = ",nu_always=true" if nu_always else ""
    training, done = trained(
        f"{base}(mu={mu},nu={nu},start=0.4{always},lr=0.1,epochs=2,momentum=0.5,weight_decay=0.01)",
        engine,
        rounds=5,
        fed=fed,
    )
    at_head = 0.7 if base == "superfed-lm" else 0.2
    lam = {**dict.fromkeys(BODY, 0.2), **dict.fromkeys(HEAD, at_head)}
    progress = training.begin(training.task.params)
    make = training.make(progress, training.method(progress).client_half(training.task))
    w, own = first(), {}
    for r, cohort in enumerate(cohorts(training)):
        models = []
        for k in cohort:
            f, l = SGD(w, 0.1, 0.5, 0.01), SGD(own.get(k, make(k)["l"]), 0.1, 0.5, 0.01)  # noqa: E741
            for x, y in batches(training, r, k, 2):
                if r < start:
                    g = slope(loss, f.model, x, y)
                    g_f, g_l = g, {n: torch.zeros_like(p) for n, p in g.items()}
                else:
                    mixed = {n: (1 - lam[n]) * f.model[n] + lam[n] * l.model[n] for n in w}
                    g = slope(loss, mixed, x, y)
                    g_f = {n: (1 - lam[n]) * g[n] for n in w}
                    g_l = {n: lam[n] * g[n] for n in w}
                near = slope(square, f.model, w)
                apart = nu if r >= start or nu_always else 0.0
                off_f, off_l = slope(cos2, f.model, l.model), slope(cos2, l.model, f.model)
                f.step({n: g_f[n] + mu / 2 * near[n] + apart * off_f[n] for n in w})
                if apart:
                    l.step({n: g_l[n] + apart * off_l[n] for n in w})
            models.append(f.model)
            own[k] = l.model
        w = mean(models, examples(training, cohort))
    same(done.server["params"], w)
    for k, model in own.items():
        same(state(done, k)["l"], model)


class Planes(nn.Module):
    """Two layers, and a loss whose slope in every parameter is 1 wherever it is."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(1, 1), nn.Linear(1, 1)

    def forward(self, x: Tensor) -> Tensor:
        total: Tensor = sum(p.sum() for p in self.parameters())  # type: ignore[assignment]
        return total.expand(len(x), 1)


@both_engines
@both_mixtures
def test_what_is_drawn(engine: Engine, base: str) -> None:
    """With slope 1 everywhere and η = 1 a step is by 1 − λ in f and λ in l: λ can be read off."""
    clients = 40
    fed = federation([[0.0]] * 4 * clients, [0, 1] * 2 * clients, clients=list(range(clients)) * 4)
    task = Task(Planes(), losses=lambda logits, y: logits[:, 0])
    training = made(
        f"{base}(mu=0,nu=0,start=0,lr=1,epochs=1,batch_size=0)",
        engine,
        rounds=1,
        sampler=Fixed(clients),
        task=task,
        fed=fed,
    )
    progress = training.begin(task.params)
    make = training.make(progress, training.method(progress).client_half(task))
    began = [make(k)["l"] for k in range(clients)]
    training.one_round(progress)
    drawn = []
    for k in range(clients):
        lam = {n: float(began[k][n].mean() - p.mean()) for n, p in state(progress, k)["l"].items()}
        assert lam["one.weight"] == pytest.approx(lam["one.bias"], abs=1e-5)
        same_in_all = abs(lam["one.weight"] - lam["two.bias"]) < 1e-5
        assert same_in_all == (base == "superfed-mm")
        drawn.append([lam["one.weight"], lam["two.bias"]])
    each = torch.tensor(drawn)
    assert each.min() > -1e-5
    assert each.max() < 1 + 1e-5
    assert len(each[:, 0].unique()) == clients
    # Uniform: mean ½ and standard deviation 0.29, so the mean of 40 is within 0.05 of it or so.
    assert (each.mean(0) - 0.5).abs().max() < 0.15
    assert (each.std(0) - 12**-0.5).abs().max() < 0.08
    # What f gains of the slope, l loses.
    counts = fed.train.counts().float()
    step = (1 - each[:, 0]) @ (counts / counts.sum())
    expected = task.params["one.bias"] - step
    torch.testing.assert_close(progress.server["params"]["one.bias"], expected, rtol=0, atol=1e-5)


def test_every_model_begins_elsewhere() -> None:
    training = made("superfed-mm", ENGINES[0])
    progress = training.begin(training.task.params)
    make = training.make(progress, training.method(progress).client_half(training.task))
    models = [make(k)["l"] for k in range(6)] + [progress.server["params"]]
    for i, a in enumerate(models):
        for b in models[:i]:
            assert gap(a, b) > 0.1
            assert float(cos2(a, b)) < 0.5
    same(make(2)["l"], models[2], 0.0)


@both_mixtures
def test_the_mixture_in_use_is_picked_on_validation_data(base: str) -> None:
    training, done = trained(f"{base}(start=0,lr=0.3)", ENGINES[1], rounds=6, sampler=EVERYBODY)
    everybody = torch.arange(6)
    candidates = training.models(done)(everybody)
    assert list(candidates) == [f"λ={i / 10:g}" for i in range(11)]
    w = done.server["params"]
    for k in range(6):
        own = state(done, k)["l"]
        for share in (0.0, 0.3, 1.0):
            expected = {n: (1 - share) * w[n] + share * own[n] for n in w}
            same({n: p[k] for n, p in candidates[f"λ={share:g}"].items()}, expected, 1e-6)
    task, fed, engine = training.task, training.fed, training.engine
    _, names = pick(task, fed, engine, candidates, everybody)
    scores = {n: score(task, fed, engine, m, fed.val, everybody) for n, m in candidates.items()}
    for k in range(6):
        rank = {n: (-float(accuracy[k]), float(loss[k])) for n, (accuracy, loss) in scores.items()}
        assert names[k] == min(rank, key=lambda n: rank[n])
    assert len(set(names)) > 1


@both_mixtures
def test_contract(base: str) -> None:
    check_method(f"{base}(mu=0.1,start=0.4,momentum=0.9,weight_decay=0.01,epochs=2)")


@pytest.mark.parametrize("settings", ["start=1.5", "lam=2", "lam=-0.1", "mu=-1", "nu=-1"])
def test_settings_that_make_no_sense_are_refused(settings: str) -> None:
    with pytest.raises(GlocalError, match="must be"):
        resolve(f"superfed-mm({settings})")
