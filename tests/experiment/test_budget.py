"""Equal budgets: rounds by which methods take the gradients of the first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import glocal
from comparing import compared
from conftest import Command
from glocal.core.errors import GlocalError
from glocal.experiment import setup as setups
from glocal.experiment.budget import equal, expected, nearest, with_rounds
from glocal.experiment.config import Config
from glocal.experiment.runner import Federated, runner_of
from glocal.methods import resolve
from glocal.runs.job import left_off
from glocal.slots.method import Method, Plan, as_plan
from glocal.testing import ragged
from glocal.training.loop import Training

pytestmark = pytest.mark.usefixtures("few_digits")

FED = ragged()
N = len(FED.train.rows)
SMALL: dict[str, Any] = {"model": "mlp(3)", "baseline": "local(lr=0.1,max_epochs=1)"}


def training(spec: str, rounds: int = 10, **settings: Any) -> Training:
    config = Config(rounds=rounds, **SMALL, **settings)
    runner = runner_of(spec, spec)
    assert isinstance(runner, Federated)
    return runner.check(setups.make(config, FED, 0))


@pytest.mark.parametrize(
    ("spec", "rounds", "passes"),
    [
        # fedavg: 10 rounds of 2 passes. A round of fedrep takes 11 and one of ditto 4.
        ("fedrep", 2, 22),
        ("ditto", 5, 20),
        ("pfedme(inner=5)", 2, 20),
        ("fedavg(epochs=3)", 7, 21),
        ("fedavg(epochs=1)", 20, 20),
        ("fedprox", 10, 20),
        # A single round takes more than the budget.
        ("fedrep(head_epochs=100)", 1, 101),
    ],
)
def test_rounds_by_hand(spec: str, rounds: int, passes: int) -> None:
    budget = expected(training("fedavg"), 10)
    assert budget == 20 * N
    assert nearest(training(spec), budget) == rounds
    assert expected(training(spec), rounds) == passes * N


def test_stages_of_different_cost() -> None:
    """Half of the rounds, rounded, take 1 pass, and the others 11: 6, 7, 8 take 36, 37, 48."""
    head, body = (as_plan(resolve(spec)).stages[0] for spec in ("fedavg(epochs=1)", "fedrep"))
    plan = Plan((glocal.Stage(head.method, rounds=0.5), body))
    config = Config(rounds=10, **SMALL)
    two = Federated("two", plan).check(setups.make(config, FED, 0))
    assert [expected(two, rounds) for rounds in (6, 7, 8)] == [36 * N, 37 * N, 48 * N]
    assert [nearest(two, passes * N) for passes in (36, 37, 42, 43)] == [6, 7, 7, 8]


def test_where_clients_are_sampled_it_is_what_is_expected() -> None:
    assert expected(training("fedavg", sampled=3), 10) == pytest.approx(20 * N / 2)
    assert nearest(training("ditto", sampled=3), 20 * N / 2) == 5


def test_everybody_comes_out_even() -> None:
    methods = ["local(lr=0.1,max_epochs=2)", "fedavg(rounds=6)", "ditto", "fedavg(epochs=4)"]
    runs = compared(methods, FED, budget="equal", against="ditto", rounds=9, **SMALL)
    assert list(runs) == [methods[0], methods[1], "ditto(rounds=3)", "fedavg(epochs=4, rounds=3)"]
    assert [run.summary["rounds"] for run in runs.values()] == [0, 6, 3, 3]
    counted = [run.summary["gradient_evaluations"] for run in runs.values()][1:]
    assert counted == [12 * N] * 3
    assert list(runs["ditto(rounds=3)"].summary["against"]) == ["ditto(rounds=3)"]


def test_methods_that_are_objects_keep_their_names() -> None:
    ditto = resolve("ditto")
    assert isinstance(ditto, Method)
    matched = equal({"a": "fedavg", "b": ditto}, Config(rounds=4, **SMALL), FED)
    name, plan = matched["b"]
    assert name == "b"
    assert isinstance(plan, Plan)
    assert plan.rounds == 2
    assert plan.stages[0].method is ditto


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(GlocalError, match="leave its rounds= out"):
        compared(["fedavg", "ditto(rounds=3)"], FED, budget="equal", **SMALL)
    with pytest.raises(GlocalError, match="budget must be one of rounds, equal"):
        compared(["fedavg"], FED, budget="fair", **SMALL)
    with pytest.raises(GlocalError, match="max_epochs"):
        resolve("local(rounds=3)")
    with pytest.raises(GlocalError, match="rounds must be an integer of 1 or more"):
        resolve("fedavg(rounds=0)")


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        ("fedavg", "fedavg(rounds=3)"),
        ("fedprox(mu=0.1)", "fedprox(mu=0.1, rounds=3)"),
        ("fedavg()+adam(lr=0.1)", "fedavg(rounds=3)+adam(lr=0.1)"),
        ("term(lam=2)+median", "term(lam=2, rounds=3)+median"),
        ("fedavg(schedule=step(0.9,1))", "fedavg(schedule=step(0.9,1), rounds=3)"),
    ],
)
def test_rounds_are_written_into_a_spec(spec: str, changed: str) -> None:
    assert with_rounds(spec, 3) == changed
    if "median" not in spec:  # which goes with no weighting
        assert as_plan(resolve(changed)).rounds == 3


def test_a_method_s_own_rounds_are_those_of_its_plan() -> None:
    """LG-FedAvg's warm-up is a share of them."""
    run = glocal.fit("lg-fedavg(rounds=5)", FED, rounds=2, **SMALL)
    assert [line["stage"] for line in run.history] == ["warm-up"] * 4 + ["local-global"]
    assert run.settings["rounds"] == run.summary["rounds"] == 5


def test_the_command(command: Command, tmp_path: Path) -> None:
    words = ["fedavg", "ditto", "--rounds", "4", "--clients", "4", "--model", "mlp(3)"]
    words += ["--baseline", "local(lr=0.1,max_epochs=1)", "--jobs", "1"]
    code, out, error = command("compare", *words, "--budget", "equal", "--goal", "0.01")
    assert code == 0, error
    assert "ditto(rounds=2)" in out
    assert "rounds to 1 %" in out
    (folder,) = (tmp_path / "runs").iterdir()
    methods = json.loads((folder / "result.json").read_text())["methods"]
    counted = [methods[m]["summary"]["gradient_evaluations"] for m in methods]
    assert counted[0] == counted[1] > 0
    assert methods["fedavg"]["summary"]["goal"]["rounds"] == 1
    assert "seconds" not in methods["fedavg"]["summary"]
    job = left_off(folder)  # what a resumed comparison goes on with
    assert (job.goal, list(job.folders)) == (0.01, ["fedavg", "ditto(rounds=2)"])
    for words_of, said in ((("--budget", "fair"), "rounds, equal"), (("--goal", "90"), "up to 1")):
        code, _, error = command("compare", *words, *words_of)
        assert code != 0
        assert said in error
