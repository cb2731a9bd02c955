"""FedRep: head then body, each alone; only the body travels."""

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
    Spy,
    batches,
    cohorts,
    examples,
    first,
    gap,
    loss,
    made,
    mean,
    net,
    same,
    slope,
    state,
    trained,
)

from glocal.core.errors import GlocalError
from glocal.core.types import Tree
from glocal.engines import Engine
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.client import Phase
from glocal.testing import check_method

both_engines = pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
SETTINGS = "lr=0.1,momentum=0.5,weight_decay=0.05"


def part(model: Model, names: tuple[str, ...]) -> Model:
    return {n: model[n] for n in names}


@both_engines
def test_fedrep_is_the_plain_loop(engine: Engine) -> None:
    training, done = trained(f"fedrep(head_epochs=3,epochs=2,{SETTINGS})", engine)
    w, heads = first(), {}
    for r, cohort in enumerate(cohorts(training)):
        bodies = []
        for k in cohort:
            mine = SGD({**w, **heads.get(k, part(first(), HEAD))}, 0.1, 0.5, 0.05)
            for phase, (names, epochs) in enumerate(((HEAD, 3), (BODY, 2))):
                for x, y in batches(training, r, k, epochs, phase):
                    mine.step(part(slope(loss, mine.model, x, y), names))
            heads[k] = part(mine.model, HEAD)
            bodies.append(part(mine.model, BODY))
        w = {**w, **mean(bodies, examples(training, cohort))}
    same(done.server["params"], part(w, BODY))
    same(done.server["start"], part(first(), HEAD), 0.0)
    for k, head in heads.items():
        same(state(done, k)["private"], head)


@both_engines
def test_a_phase_moves_one_part_and_leaves_the_other(engine: Engine) -> None:
    """Weight decay and momentum too would move what has no gradient."""
    training = made(f"fedrep({SETTINGS})", engine)
    progress = training.begin(training.task.params)
    method = training.method(progress)
    local = method.client_half(training.task)
    task = training.task if engine.name == "vectorised" else training.task.plain()
    down = method.broadcast(progress.server, 0, training.setting)
    carry = local.start(task, down, training.make(progress, local)(0))
    x, y = training.fed[3].train
    batch = {"x": x, "y": y, "weight": torch.ones(len(x))}

    def after(phase: Phase, carry: Tree, steps: int = 3) -> tuple[Tree, Model]:
        for t in range(steps):
            carry = phase.step(task, down, carry, batch, torch.tensor(t))
        update, kept, _ = local.finish(task, down, carry)
        moved = {n: down["params"][n] + u for n, u in update.items()}
        return carry, {**moved, **kept["private"]}

    assert [(p.name, p.epochs) for p in local.phases] == [("head", 10), ("body", 1)]
    head, body = local.phases
    carry, one = after(head, carry)
    same(part(one, BODY), part(first(), BODY), 0.0)
    assert gap(part(one, HEAD), part(first(), HEAD)) > 1e-3
    _, two = after(body, carry)
    same(part(two, HEAD), part(one, HEAD), 1e-7)
    assert gap(part(two, BODY), part(one, BODY)) > 1e-3


@both_engines
@pytest.mark.parametrize("base", ["fedper", "fedrep"])
def test_only_the_body_is_sent(engine: Engine, base: str) -> None:
    spy = Spy(engine)
    training, done = trained(f"{base}({SETTINGS})", spy)
    assert [set(u.update) for u in spy.sent] == [set(BODY)] * 3
    assert all(u.extra == {} for u in spy.sent)
    body, head = 6 * 7 + 7, 7 * 3 + 3
    joined = len({k for cohort in cohorts(training) for k in cohort})
    assert done.traffic.by_set("up") == {"shared": body * 3 * 3}
    assert done.traffic.by_set("down") == {"shared": body * 3 * 3, "private_start": head * joined}


@both_engines
@pytest.mark.parametrize("base", ["fedper", "fedrep"])
def test_which_layers_are_the_body_is_a_setting(engine: Engine, base: str) -> None:
    for shared, names in (("last(1)", HEAD), ("0.*", BODY), ("'0.weight|2.bias'", None)):
        spy = Spy(engine)
        trained(f"{base}(shared={shared},{SETTINGS})", spy, rounds=1)
        assert set(spy.sent[0].update) == set(names or ("0.weight", "2.bias"))


@both_engines
def test_without_a_head_or_a_body_one_phase_has_nothing_to_do(engine: Engine) -> None:
    for shared in ("everything", "nothing"):
        spec = f"shared={shared},lr=0.1"
        training, done = trained(
            f"fedrep(head_epochs=1,{spec})", engine, rounds=1, sampler=EVERYBODY
        )
        assert set(done.server["params"]) == (set(BODY + HEAD) if shared == "everything" else set())
        if shared == "nothing":  # the first phase is then training alone
            _, alone = trained(f"fedavg(epochs=1,{spec})", engine, rounds=1, sampler=EVERYBODY)
            for k in range(len(training.fed)):
                same(state(done, k)["private"], state(alone, k)["private"], 1e-6)


def test_the_head_needs_an_epoch() -> None:
    with pytest.raises(GlocalError, match="epochs must be an integer from 1 to"):
        resolve("fedrep(head_epochs=0)")


def test_the_paper_s_split_is_all_but_the_last_layer() -> None:
    method = resolve("fedrep")
    assert method.shared_names(Task(net())) == set(BODY)  # type: ignore[union-attr]


def test_contract() -> None:
    check_method(f"fedrep(head_epochs=2,epochs=2,{SETTINGS})")
    check_method("fedrep(head_epochs=2,epochs=2,shared=everything)")
