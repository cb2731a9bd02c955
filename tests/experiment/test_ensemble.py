"""All clients' models together: three kinds of ensemble worked by hand, and what they cost."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import glocal
import toys
from glocal.cli import app as cli
from glocal.core.errors import GlocalError
from glocal.engines import Engine, Sequential, Vectorised
from glocal.experiment import ensemble as newtest
from glocal.experiment.ensemble import KINDS, new_test
from glocal.experiment.repeat import Trained
from glocal.methods.fedavg import fedavg
from glocal.nn.task import Task
from glocal.slots.method import Method, as_plan
from glocal.slots.sharing import nothing
from glocal.testing import ragged
from glocal.training.client_state.store import ClientStore
from glocal.training.loop import Training
from glocal.training.sampling import Fraction

pytestmark = pytest.mark.usefixtures("few_digits")

QUICK = "local(lr=0.1,max_epochs=3)"


class Scores(nn.Module):
    """``x`` times the weights, or times their positive part."""

    def __init__(self, classes: int = 2, rectified: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(classes))
        self.rectified = rectified

    def forward(self, x: Tensor) -> Tensor:
        return x * (torch.relu(self.weight) if self.rectified else self.weight)


def trained(weights: list[list[float]], rectified: bool = False, **parts: Any) -> Trained:
    """Clients whose whole model is their own, with these weights."""
    n, classes = len(weights), len(weights[0])
    fed = glocal.federation(
        torch.ones(4 * n, 1), torch.arange(4 * n) % 2, [i // 4 for i in range(4 * n)]
    )
    engine: Engine = parts.get("engine", Vectorised())
    task = Task(Scores(classes, rectified))
    plan = as_plan(fedavg().replace(shared=nothing()))
    training = Training(plan, task, fed, engine, Fraction(), 1, 0)
    progress = training.begin(task.params)
    states = {"private": {"weight": torch.tensor(weights)}, "inner": {}}
    progress.clients = ClientStore(n).filled(torch.arange(n), states)
    return Trained(training, progress)


X, Y = torch.ones(1, 1), torch.tensor([0])


def answers(*of: Any, **settings: Any) -> list[float]:
    found = new_test(trained(*of, **settings), X, Y)
    return [found[kind] for kind in KINDS]


@pytest.mark.parametrize("engine", [Sequential(), Vectorised()])
def test_three_linear_clients_by_hand(engine: Engine) -> None:
    """Logits (9,0,0), (0,2,0), (0,2,1): the mean is (3, 4/3, 1/3), and two of three vote for 1."""
    weights = [[9.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 2.0, 1.0]]
    # The mean of linear models is linear: weights and logits are one.
    assert answers(weights, engine=engine) == [1.0, 1.0, 0.0]
    found = new_test(trained(weights, engine=engine), X.expand(3, 1), torch.tensor([0, 1, 2]))
    assert [found[kind] for kind in KINDS] == pytest.approx([1 / 3] * 3)


def test_weights_and_logits_part_where_a_model_bends() -> None:
    """Positive parts (3,0), (0,1), (0,1) sum to (3,2); mean weights (−1, 2/3) give (0, 2/3)."""
    assert answers([[3.0, 0.0], [-3.0, 1.0], [-3.0, 1.0]], True) == [1.0, 0.0, 0.0]


def test_a_tied_vote_goes_to_the_larger_logits() -> None:
    assert answers([[5.0, 0.0], [0.0, 1.0]])[2] == 1.0
    assert answers([[1.0, 0.0], [0.0, 5.0]])[2] == 0.0
    assert answers([[0.0, 9.0, 8.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0]])[2] == 1.0


def fit(method: Any, **settings: Any) -> glocal.Run:
    settings = {"model": "mlp(7)", "rounds": 2, "baseline": QUICK, "new_test": True, **settings}
    return glocal.fit(method, ragged(), **settings)


@pytest.mark.parametrize("method", ["fedavg", "fedprox", "scaffold"])
def test_one_global_model_is_all_three_and_costs_nothing(method: str) -> None:
    run = fit(method)
    together = run.summary["new_test"]
    assert together["logits"] == together["weights"] == together["vote"]
    assert together["logits"] == pytest.approx(run.summary["mean_examples"])
    assert together["params_up"] == 0


SIZE, HEAD = 6 * 7 + 7 + 7 * 3 + 3, 7 * 3 + 3


@pytest.mark.parametrize(
    ("method", "private"),
    [
        ("fedavg(shared=last(1))", SIZE - HEAD),
        ("fedper", HEAD),
        ("ditto", SIZE),
        ("superfed-mm", SIZE),
        (toys.two_candidates(), SIZE),
        (QUICK, SIZE),
    ],
)
def test_what_clients_keep_goes_up_once(method: Any, private: int) -> None:
    assert fit(method).summary["new_test"]["params_up"] == 6 * private


@pytest.mark.parametrize("method", ["fedavg(shared=last(1))", toys.two_candidates()])
def test_chunks_change_nothing(method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fit(method)
    assert run.trained is not None
    t = run.trained.training
    x, y = t.fed.x, t.fed.y
    models = run.trained.models()

    def chosen(ids: Tensor) -> dict[str, Tensor]:
        return {k: v[ids] for k, v in models.items()}

    whole = newtest.ensemble(t.task, t.engine, chosen, 6, x, y)
    for size in (1, 2, 4):
        pieces = newtest.ensemble(t.task, t.engine, chosen, 6, x, y, size)
        assert all(torch.equal(whole[kind], pieces[kind]) for kind in KINDS)
    asked: list[tuple[int, ...]] = []
    evaluate = Vectorised.evaluate

    def watched(self: Any, look: Any, models: Any, x: Any, y: Any, rows: Tensor) -> Any:
        asked.append(tuple(rows.shape))
        return evaluate(self, look, models, x, y, rows)

    monkeypatch.setattr(Vectorised, "evaluate", watched)
    monkeypatch.setattr(newtest, "CHUNK_BYTES", 8 * 3 * 10)  # ten examples' scores of one client
    pieces = newtest.ensemble(t.task, t.engine, chosen, 6, x, y)
    assert all(torch.equal(whole[kind], pieces[kind]) for kind in KINDS)
    assert set(asked[:-1]) == {(1, 10), (1, len(x) % 10)}


def two_of_one() -> Method:
    """Nobody keeps anything, and yet each client chooses: the received model, or its opposite."""

    def candidates(task: Any, down: Any, client: Any) -> dict[str, Any]:
        return {"as it is": down["params"], "opposite": {k: -v for k, v in down["params"].items()}}

    return toys.wrapped(candidates=candidates)


@pytest.mark.parametrize("method", ["ditto", two_of_one()], ids=["ditto", "two_of_one"])
def test_by_hand_from_the_clients_models(method: Any) -> None:
    """The default is everybody's test data; each client's model is the one it chose."""
    run = fit(method, rounds=1)
    assert run.trained is not None
    if method != "ditto":
        assert set(run.clients["model"]) == {"as it is", "opposite"}
    t, models = run.trained.training, run.trained.models()
    x, y = t.fed.x[t.fed.test.rows], t.fed.y[t.fed.test.rows]
    logits = [t.task.predict({k: v[i] for k, v in models.items()}, x) for i in range(6)]
    mean = t.task.predict({k: v.mean(0) for k, v in models.items()}, x)
    together = run.summary["new_test"]
    assert together["logits"] == float((sum(logits[1:], logits[0]).argmax(1) == y).double().mean())
    assert together["weights"] == float((mean.argmax(1) == y).double().mean())


def test_repeats_are_averaged_and_nothing_is_added_unless_asked_for() -> None:
    found = [{"logits": 0.5, "weights": 0.25, "vote": 1.0, "params_up": 8}] * 2
    other = {"logits": 1.0, "weights": 0.25, "vote": 0.4, "params_up": 8}
    assert newtest.mean([*found, other]) == pytest.approx(
        {"logits": 2 / 3, "weights": 0.25, "vote": 0.8, "params_up": 8}
    )
    assert "new_test" not in fit("fedavg", new_test=False).summary
    twice = fit("ditto", repeats=2).summary["new_test"]
    assert 0 <= twice["logits"] <= 1


def test_against_another_training() -> None:
    good, bad = trained([[1.0, 0.0]] * 3), trained([[0.0, 1.0]] * 3)
    x, y = torch.ones(30, 1), torch.zeros(30).long()
    against = new_test(good, x, y, against=bad)["against"]
    assert against["logits"]["difference"] == 1.0
    assert {v["verdict"] for v in against.values()} == {"better off"}
    assert new_test(good, x, y, against=good)["against"]["vote"]["verdict"] == "undecided"


def test_what_is_refused() -> None:
    with pytest.raises(GlocalError, match="give x and y, or neither"):
        new_test(trained([[1.0, 0.0]]), X)
    with pytest.raises(GlocalError, match="x has 1 examples and y has 2 labels"):
        new_test(trained([[1.0, 0.0]]), X, torch.tensor([0, 1]))


def test_the_command_adds_a_column(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = ["--rounds", "2", "--clients", "4", "--baseline", "local(lr=0.1, max_epochs=2)"]
    for extra in ([], ["--new-test"]):
        words = ["compare", quick[-1], "fedavg", *quick, *extra, "--json", "a.json"]
        monkeypatch.setattr(sys, "argv", ["glocal", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 0
        said = capsys.readouterr().out
        assert ("new test %" in said) == bool(extra)
        found = json.loads(Path("a.json").read_text())["methods"]["fedavg"]["summary"]
        assert ("new_test" in found) == bool(extra)
