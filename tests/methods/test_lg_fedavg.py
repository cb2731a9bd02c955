"""LG-FedAvg: when the warm-up ends, where private layers begin, and the gradient-norm weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from loops import (
    BODY,
    ENGINES,
    HEAD,
    SGD,
    Spy,
    batches,
    bowl,
    bowls,
    cohorts,
    deep,
    examples,
    gap,
    loss,
    made,
    mean,
    same,
    slope,
    state,
    trained,
)

from glocal.core.errors import GlocalError
from glocal.core.types import Uplink
from glocal.engines import Engine
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.method import Plan
from glocal.slots.server_half import whole_model
from glocal.slots.weighting import by_update_norm
from glocal.testing import check_method
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)


def warm_up(done: Progress) -> int:
    stages = [line["stage"] for line in done.history]
    rounds = stages.count("warm-up")
    assert stages == ["warm-up"] * rounds + ["local-global"] * (len(stages) - rounds)
    return rounds


@pytest.mark.parametrize(
    ("settings", "rounds", "expected"),
    [("warmup=2", 5, 2), ("warmup=0.4", 5, 2), ("warmup=0.8", 10, 8), ("lr=0.1", 10, 8)],
)
def test_a_warm_up_by_rounds_or_a_share_of_them(settings: str, rounds: int, expected: int) -> None:
    _, done = trained(f"lg-fedavg({settings},shared=last(1))", ENGINES[1], rounds=rounds)
    assert warm_up(done) == expected


def test_a_warm_up_until_a_goal() -> None:
    training = made("fedavg", ENGINES[1], rounds=8)
    training = replace(training, validate_every=1)
    done = training.run(training.begin(training.task.params))
    seen = [line["val_accuracy"] for line in done.history]
    goal = sorted(set(seen))[-1]
    reached = next(i for i, accuracy in enumerate(seen) if accuracy >= goal) + 1
    assert 1 < reached < 8
    for settings, expected in (
        (f"warmup=0,goal={goal}", reached),
        (f"goal={goal}", min(reached, round(0.8 * 8))),
        (f"warmup=1,goal={goal}", 1),  # whichever comes first
        (f"warmup=0,goal={goal + 0.001}", 8),  # never reached, and no bound
    ):
        _, done = trained(f"lg-fedavg({settings},shared=last(1))", ENGINES[1], rounds=8)
        assert warm_up(done) == expected


@both_engines
def test_private_layers_begin_where_the_warm_up_ended(engine: Engine) -> None:
    """Also those of a client that joins late, while the shared ones are as they have become."""
    spec = "lr=0.1,epochs=1,momentum=0.5"
    training, done = trained(
        f"lg-fedavg(warmup=2,shared=last(1),{spec})", engine, rounds=6, sampler=Fixed(2)
    )
    _, warm = trained(f"fedavg({spec})", engine, rounds=2, sampler=Fixed(2))
    ended = warm.server["params"]
    w, own = dict(ended), {}
    joined = []
    for r, cohort in enumerate(cohorts(training)[2:], 2):
        models = []
        for k in cohort:
            joined += [r] if k not in own else []
            mine = SGD({**w, **own.get(k, {n: ended[n] for n in BODY})}, 0.1, 0.5)
            for x, y in batches(training, r, k, 1):
                mine.step(slope(loss, mine.model, x, y))
            own[k] = {n: mine.model[n] for n in BODY}
            models.append({n: mine.model[n] for n in HEAD})
        w = {**w, **mean(models, examples(training, cohort))}
    assert max(joined) > 2
    same(done.server["params"], {n: w[n] for n in HEAD})
    for k, private in own.items():
        same(state(done, k)["private"], private)
    # Whoever comes now, or is evaluated without ever having come.
    local = training.method(done).client_half(training.task)
    same(training.make(done, local)(0)["private"], {n: ended[n] for n in BODY}, 1e-6)
    assert gap(whole_model(training.task, done.server), ended) > 1e-3
    never = next(k for k in range(6) if k not in own)
    evaluated = training.models(done)(torch.tensor([never]))["assembled"]
    expected = {**ended, **done.server["params"]}
    same({n: p[0] for n, p in evaluated.items()}, expected, 1e-6)


@both_engines
def test_what_is_sent_in_each_stage(engine: Engine) -> None:
    spy = Spy(engine)
    _, done = trained("lg-fedavg(warmup=2,shared=last(1))", spy, rounds=4)
    assert [set(u.update) for u in spy.sent] == [{*BODY, *HEAD}] * 2 + [set(HEAD)] * 2
    assert [up["shared"] for up in done.traffic.up] == [3 * 73] * 2 + [3 * 24] * 2


@both_engines
def test_without_a_warm_up_it_is_fedavg_with_the_last_two_layers_shared(engine: Engine) -> None:
    settings = "lr=0.1,momentum=0.9"
    task = Task(deep())
    spy = Spy(engine)
    _, done = trained(f"lg-fedavg(warmup=0,{settings})", spy, task=task)
    _, avg = trained(f"fedavg(shared=last(2),{settings})", engine, task=task)
    assert set(spy.sent[0].update) == {"2.weight", "2.bias", "4.weight", "4.bias"}
    same(done.server["params"], avg.server["params"], 0.0)
    for k in done.clients.seen.nonzero().flatten().tolist():
        same(state(done, k)["private"], state(avg, k)["private"], 0.0)


@both_engines
def test_weights_by_the_squared_norm_of_the_update(engine: Engine) -> None:
    """Slopes −2 and 1 at 1, one step of 0.1: updates 0.2 and −0.1 weigh 4 : 1, whatever the sizes.

    w = 1 + 0.8·0.2 − 0.2·0.1 = 1.14; with plain weights it would be 1 + (0.2 − 3·0.1)/4 = 0.975.
    """
    for filler, w in (("+grad-norm", 1.14), ("", 0.975)):
        _, done = trained(
            f"fedavg(lr=0.1,epochs=1,batch_size=0){filler}",
            engine,
            rounds=1,
            sampler=Fixed(2),
            task=bowl(),
            fed=bowls((1.0, 3.0), (1.0, 0.0), sizes=(8, 24)),
        )
        assert float(done.server["params"]["w"]) == pytest.approx(w)


@both_engines
def test_only_what_is_sent_counts(engine: Engine) -> None:
    spy = Spy(engine)
    training = made("lg-fedavg(warmup=0,shared=last(1))+grad-norm", spy, rounds=1)
    progress = training.begin(training.task.params)
    began = progress.server["params"]
    training.one_round(progress)
    (sent,) = spy.sent
    norms = [sum(float(sent.update[n][i].square().sum()) for n in HEAD) for i in range(3)]
    for n in HEAD:
        moved = sum(v / sum(norms) * sent.update[n][i] for i, v in enumerate(norms))
        torch.testing.assert_close(progress.server["params"][n], began[n] + moved)


def test_grad_norm_where_nobody_moves_or_nothing_is_sent_and_of_single_numbers() -> None:
    def weights(**update: torch.Tensor) -> list[float]:
        n = torch.tensor([5, 7])
        p, _ = by_update_norm().weigh({}, Uplink(torch.arange(2), n, update, None, {}))
        found: list[float] = p.tolist()
        return found

    assert weights() == [0.5, 0.5]
    assert weights(w=torch.zeros(2, 3, 4)) == [0.5, 0.5]
    assert weights(scale=torch.tensor([1.0, 3.0])) == pytest.approx([0.1, 0.9])
    both = weights(w=torch.tensor([[[1.0, 2.0]], [[0.0, 2.0]]]), b=torch.tensor([[1.0], [0.0]]))
    assert both == pytest.approx([0.6, 0.4])


def test_both_stages_take_the_settings_and_the_fillers() -> None:
    plan = resolve("lg-fedavg(warmup=3,lr=0.05,batch_size=4)+grad-norm")
    assert isinstance(plan, Plan)
    assert [s.name for s in plan.stages] == ["warm-up", "local-global"]
    assert {s.method.weights.name for s in plan.stages} == {"grad-norm"}
    assert {s.method.local.batch_size for s in plan.stages} == {4}
    assert [s.method.shared.name for s in plan.stages] == ["everything", "last(2)"]


def test_a_negative_warm_up_is_refused() -> None:
    with pytest.raises(GlocalError, match="warmup must be 0 or more"):
        resolve("lg-fedavg(warmup=-1)")


def test_contract() -> None:
    settings = "momentum=0.9,weight_decay=0.01,epochs=2"
    check_method(f"lg-fedavg(warmup=1,shared=last(1),{settings})+grad-norm", rounds=4)
    check_method("fedavg(shared=nothing)+grad-norm")
