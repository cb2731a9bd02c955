"""The rounds: cohorts, stages, what is recorded, and what stops a run."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import toys
from glocal.core import rng, tree
from glocal.core.errors import ClientError, GlocalError
from glocal.engines import Engine, Sequential, Vectorised
from glocal.methods import resolve
from glocal.nn.task import Task
from glocal.slots.method import Method, Plan, Stage, as_plan
from glocal.testing import ragged
from glocal.training.loop import COHORT, Training
from glocal.training.run_state import Progress
from glocal.training.sampling import Fixed, Fraction, Poisson, Sampler

ENGINES: list[Engine] = [Sequential(), Vectorised()]


def training(method: Any, **changes: Any) -> Training:
    made = as_plan(resolve(method) if isinstance(method, str) else method)
    settings: dict[str, Any] = {
        "task": Task(toys.dropout_net()),
        "fed": ragged(),
        "engine": Vectorised(),
        "sampler": Fraction(1.0),
        "rounds": 3,
        "seed": 0,
        **changes,
    }
    return Training(made, **settings)


def run(job: Training) -> Progress:
    return job.run(job.begin(job.task.params))


class Listed:
    """Cohorts given beforehand, in turn."""

    def __init__(self, *cohorts: list[int]) -> None:
        self.cohorts = list(cohorts)

    def cohort(self, clients: int, key: Any) -> torch.Tensor:
        return torch.tensor(self.cohorts.pop(0), dtype=torch.int64)

    def share(self, clients: int) -> float:
        return 0.5


def test_an_empty_cohort_is_a_round_in_which_nothing_happens() -> None:
    job = training("fedavg+adam", sampler=Listed([0, 1], [], [2]))
    progress = job.begin(job.task.params)
    job.one_round(progress)
    before = progress.server
    job.one_round(progress)
    assert progress.server is before
    assert progress.round == 2
    job.one_round(progress)
    assert [line["cohort"] for line in progress.history] == [2, 0, 1]
    assert "update_norm" not in progress.history[1]
    assert progress.traffic.down[1] == progress.traffic.up[1] == {}
    assert len(progress.traffic.up) == 3
    assert not torch.equal(progress.server["params"]["0.bias"], before["params"]["0.bias"])


def test_a_run_of_empty_cohorts_ends_where_it_began() -> None:
    job = training("fedavg", sampler=Listed([], [], []))
    done = run(job)
    assert all(torch.equal(v, job.task.params[k]) for k, v in done.server["params"].items())
    assert done.history[-1]["val_accuracy"] >= 0


def test_poisson_rounds_are_of_every_size() -> None:
    sizes = [
        line["cohort"] for line in run(training("fedavg", sampler=Poisson(0.2), rounds=12)).history
    ]
    assert min(sizes) == 0
    assert len(set(sizes)) > 2


@pytest.mark.parametrize("sampler", [Fixed(2), Fraction(0.5)])
def test_a_line_a_round(sampler: Sampler) -> None:
    lines: list[dict[str, Any]] = []
    job = training("fedavg", sampler=sampler, rounds=4, validate_every=2)
    done = job.run(job.begin(job.task.params), lambda p: lines.append(p.history[-1]))
    assert lines == done.history
    assert [line["round"] for line in lines] == [1, 2, 3, 4]
    assert ["val_accuracy" in line for line in lines] == [False, True, False, True]
    assert all(line["update_norm"] > 0 for line in lines)
    assert "stage" not in lines[0]


def test_validation_is_after_the_last_round_if_not_asked_for() -> None:
    lines = run(training("fedavg")).history
    assert ["val_loss" in line for line in lines] == [False, False, True]


def fedavg() -> Method:
    method = resolve("fedavg(epochs=1)")
    assert isinstance(method, Method)
    return method


def test_stages_by_rounds_start_from_what_the_last_one_ended_with() -> None:
    job = training(
        Plan((Stage(fedavg(), rounds=2, name="warm-up"), Stage(toys.own_model(), name="own"))),
        sampler=Listed([0, 1], [2, 3], [1, 2], [4]),
        rounds=4,
    )
    progress = job.begin(job.task.params)
    job.one_round(progress)
    job.one_round(progress)
    switch = tree.map(torch.clone, progress.server["params"])
    assert (progress.stage, progress.stage_began) == (1, 2)
    assert not progress.clients.seen.any()
    job.one_round(progress)
    job.one_round(progress)
    assert progress.clients.saved()[0].tolist() == [1, 2, 4]
    assert [line["stage"] for line in progress.history] == ["warm-up"] * 2 + ["own"] * 2
    assert not torch.equal(progress.server["params"]["0.bias"], switch["0.bias"])


def test_who_joins_late_starts_with_the_private_layers_of_the_switch() -> None:
    second = fedavg().replace(shared=resolve("fedavg(shared=last(1))").shared)  # type: ignore[union-attr]
    job = training(
        Plan((Stage(fedavg(), rounds=1), Stage(second))), sampler=Fixed(2), rounds=3, seed=1
    )
    progress = job.begin(job.task.params)
    job.one_round(progress)
    switch = tree.map(torch.clone, progress.server["start"])
    assert set(switch) == {"0.weight", "0.bias"}
    job.one_round(progress)
    job.one_round(progress)
    local = job.method(progress).client_half(job.task)
    late = job.make(progress, local)(5)
    assert all(torch.equal(late["private"][k], switch[k]) for k in switch)


def test_a_stage_ends_at_its_goal_or_its_rounds_whichever_is_first() -> None:
    def switched(**first: Any) -> list[str]:
        job = training(Plan((Stage(fedavg(), name="a", **first), Stage(fedavg(), name="b"))))
        done = run(job)
        return [line["stage"] for line in done.history]

    assert switched(goal=0.01) == ["a", "b", "b"]
    assert switched(goal=1.0) == ["a", "a", "a"]
    assert switched(goal=1.0, rounds=2) == ["a", "a", "b"]
    assert switched(rounds=1) == ["a", "b", "b"]


@pytest.mark.parametrize("engine", ENGINES, ids=lambda e: e.name)
def test_an_update_that_is_not_finite_names_the_client_and_the_round(engine: Engine) -> None:
    fed = ragged()
    fed.x[fed.train.of(3)[0]] = torch.inf
    job = training("fedavg", engine=engine, sampler=Listed([0, 1], [2, 3, 4]), fed=fed)
    with pytest.raises(
        ClientError, match=r"client 3's training in round 2 is not finite.*lower the"
    ):
        run(job)


def test_an_extra_that_is_not_finite_is_noticed_too() -> None:
    def finish(task: Any, down: Any, carry: Any) -> Any:
        update, state, _ = toys.minibatch_training().finish(task, down, carry)
        return update, state, {"e": update["0.bias"] / 0}

    with pytest.raises(ClientError, match="client 0's training in round 1 is not finite"):
        run(training(toys.wrapped(finish=finish)))


def test_a_schedule_reaches_the_clients_and_rounds_are_told() -> None:
    seen: list[tuple[float, float, float]] = []

    def start(task: Any, down: Any, client: Any) -> Any:
        seen.append((float(down["round"]), float(down["rounds"]), float(down["lr"])))
        return toys.minibatch_training().start(task, down, client)

    method = toys.wrapped(start=start, schedule=lambda t: 0.5**t)
    run(training(method, sampler=Fixed(1)))
    assert seen == [(0, 3, 1), (1, 3, 0.5), (2, 3, 0.25)]


BODY, HEAD = 6 * 8 + 8, 8 * 3 + 3
ALL = BODY + HEAD


def test_traffic_of_a_whole_model_by_hand() -> None:
    traffic = run(training("fedavg", sampler=Listed([0, 1], [1, 2, 3], [0]))).traffic
    assert [dict(c) for c in traffic.down] == [{"shared": k * ALL} for k in (2, 3, 1)]
    assert traffic.up == traffic.down


def test_traffic_with_private_layers_by_hand() -> None:
    """Newcomers get the private layers too, once."""
    traffic = run(
        training("fedavg(shared=last(1))", sampler=Listed([0, 1], [1, 2, 3], [0]))
    ).traffic
    assert [dict(c) for c in traffic.down] == [
        {"shared": 2 * HEAD, "private_start": 2 * BODY},
        {"shared": 3 * HEAD, "private_start": 2 * BODY},
        {"shared": HEAD},
    ]
    assert [dict(c) for c in traffic.up] == [{"shared": k * HEAD} for k in (2, 3, 1)]


def test_traffic_with_extras_by_hand() -> None:
    """Control variates go both ways, a number of steps up; a loss is one number a client."""
    cohorts = [0, 1], [1, 2, 3], [0]
    traffic = run(training(toys.control_variates(), sampler=Listed(*cohorts))).traffic
    assert [dict(c) for c in traffic.down] == [
        {"shared": k * ALL, "extra": k * ALL} for k in (2, 3, 1)
    ]
    assert [dict(c) for c in traffic.up] == [
        {"shared": k * ALL, "extra": k * (ALL + 1)} for k in (2, 3, 1)
    ]
    method = fedavg().replace(weighting=toys.loss_driven())
    traffic = run(training(method, sampler=Listed(*cohorts))).traffic
    assert [dict(c) for c in traffic.up] == [{"shared": k * ALL, "extra": k} for k in (2, 3, 1)]


def test_alone_sends_nothing() -> None:
    traffic = run(training("local")).traffic
    assert (traffic.params_down, traffic.params_up) == (0, 0)


def test_no_rounds_no_run() -> None:
    with pytest.raises(GlocalError, match="rounds must be 1 or more, not 0"):
        training("fedavg", rounds=0)


def test_one_for_all_is_for_methods_that_keep_nothing() -> None:
    for method, expected in (("fedavg", True), ("fedavg(shared=last(1))", False), ("local", False)):
        job = training(method)
        assert job.one_for_all(job.begin(job.task.params)) is expected


def test_an_initialisation_of_ones_own_is_the_same_whenever_one_joins() -> None:
    job = training("local", sampler=Listed([0], [1], [2]))
    progress = job.begin(job.task.params)

    def fresh(client: int) -> torch.Tensor:
        state = job.make(progress, job.method(progress).client_half(job.task))(client)
        return state["w"]["0.weight"]

    before = fresh(5)
    assert not torch.equal(before, fresh(4))
    job.run(progress)
    assert torch.equal(fresh(5), before)


def test_what_diverges_in_a_client_alone_is_noticed_too() -> None:
    # Ditto's w stays finite at this rate; its v, pulled by a huge λ, does not.
    with pytest.raises(ClientError, match=r"training in round .* is not finite"):
        run(training("ditto(lam=1e6, lr=0.05)", rounds=20))


def test_rounds_beyond_the_last_have_keys_too() -> None:
    """Who joins later trains in them; each key is the one that it would be by itself."""
    job = training("fedavg")
    for number in (0, 2, 18, 19, 100, 3):
        plain = rng.fold(rng.fold(rng.key(job.seed), COHORT), number)
        assert torch.equal(job.key(COHORT, number), plain)
