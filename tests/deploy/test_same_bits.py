"""Between machines as in a simulation: the same bits of server and clients, and the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from deploy.federations import SETTINGS, Deployment, nine_clients
from glocal.core import rng, secret, tree
from glocal.core.types import Tree
from glocal.prediction.client_model import load_model
from glocal.training import best_round
from specs import EVERYBODY, OF_IMAGES_OR_TEXTS, OF_OTHER_DATA, SMALL

ELSEWHERE = {"local", *OF_OTHER_DATA}
METHODS = [SMALL.get(name, name) for name in glocal.list_methods() if name not in ELSEWHERE]
COMPOSED = [
    "fedavg+median",
    "fedavg+yogi(lr=0.1)",
    "ditto+dp(clip=0.5,noise=0.3)",
    "fedavg+dp(clip=0.1,noise=0.3,quantile=0.5)",
    "fedavg+dp(clip=0.5,noise=0.3,where=local)",
    "fedevg+dp(clip=0.5,noise=0.3)",
    "ditto+dp-sgd(clip=0.5,noise=0.3)",
    "lg-fedavg(goal=0.34)",
    "fedper+top-k(share=0.5)",
    "q-fedavg+quantised(bits=8)",
]
LIGHT = ["ditto", "lg-fedavg(goal=0.34)"]


def assert_same(found: Tree, wanted: Tree) -> None:
    assert tree.structure(found) == tree.structure(wanted)
    for name, leaf in tree.flatten(wanted):
        assert torch.equal(dict(tree.flatten(found))[name], leaf), name


def assert_close(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Whether figures agree to rounding, and all else is the same."""
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        if isinstance(value, float):
            value = pytest.approx(value, rel=1e-5, abs=1e-6, nan_ok=True)
        assert found[name] == value, name


@pytest.fixture(autouse=True)
def _one_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both draw their noise and their cohorts from the same key."""
    monkeypatch.setattr(secret, "fresh", lambda: secret.of_seed(5))


def check(spec: str, folder: Path, **given: Any) -> None:
    settings = {**SETTINGS, **given}
    if spec.partition("(")[0].partition("+")[0] in EVERYBODY:
        settings["fraction"] = 1.0
    fed = settings.pop("fed", None) or nine_clients()
    run = glocal.fit(spec, fed, **settings)
    deployed = Deployment.of(spec, folder, fed=fed, **settings)
    served = deployed.serve()
    assert run.trained is not None
    simulated = run.trained.progress
    assert served.progress is not None
    assert_same(served.progress.server, simulated.server)
    ids, states = simulated.clients.saved()
    assert len(ids) > len(fed) // 2
    for place, client in enumerate(ids.tolist()):
        assert_same(deployed.state(served, client) or {}, tree.row(states, place))
    assert served.progress.traffic == simulated.traffic
    if deployed.plan.sends_results:
        assert [row["client"] for row in served.rows] == list(fed.names)
        for ours, theirs in zip(served.rows, run.clients, strict=True):
            assert_close(ours, theirs)
        for line, wanted in zip(served.history, simulated.history, strict=True):
            assert_close(line, wanted)


@pytest.mark.deploy
@pytest.mark.parametrize("spec", [*METHODS, *COMPOSED])
def test_a_deployment_has_the_bits_of_a_simulation(spec: str, tmp_path: Path) -> None:
    check(spec, tmp_path)


@pytest.mark.deploy
@pytest.mark.parametrize("name", OF_IMAGES_OR_TEXTS)
def test_what_needs_images_or_texts_has_the_bits_of_a_simulation(name: str, tmp_path: Path) -> None:
    spec, model, data = OF_IMAGES_OR_TEXTS[name]
    check(spec, tmp_path, model=model, fed=data(), fraction=1.0)


@pytest.mark.deploy
def test_the_best_round_is_kept_at_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it ends early, clients' states are those of that round, however long ago it was."""

    def second_is_best(measure: Any, line: dict[str, Any]) -> tuple[float, float]:
        return -abs(line["round"] - 2.0), 0.0

    monkeypatch.setattr(best_round, "rank", second_is_best)
    check("ditto", tmp_path, rounds=12, patience=7, fraction=1.0)
    states = next((tmp_path / "node0" / "states").iterdir())
    assert {int(path.name[:8]) for path in states.glob("*.safetensors")} == {2, 6, 7, 8, 9}


@pytest.mark.deploy
@pytest.mark.parametrize("engine", ["vectorised", "auto"])
def test_other_engines_agree_to_rounding(engine: str, tmp_path: Path) -> None:
    run = glocal.fit("ditto", nine_clients(), **SETTINGS)
    served = Deployment.of("ditto", tmp_path, engine=engine).serve()
    for name, leaf in run.model.items():
        torch.testing.assert_close(served.model[name], leaf, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("spec", LIGHT)
def test_some_methods_have_the_bits_of_a_simulation(spec: str, tmp_path: Path) -> None:
    check(spec, tmp_path)


def test_rows_of_clients_alone_and_adapted_are_those_of_a_simulation(tmp_path: Path) -> None:
    given = {"baseline": "local(max_epochs=2)", "adapt": "fine-tune(max_epochs=2)", "rounds": 1}
    check("fedavg", tmp_path, **given)
    first = load_model(tmp_path / "node1" / "models" / "1-3")
    fed = nine_clients()
    assert first.name == fed.names[3]
    x, y = fed[3].test
    correct = (first.predict(x) == y).double().mean()
    rows = json.loads((tmp_path / "node1" / "result.json").read_text())["clients"]
    assert rows[0]["adapted_accuracy"] == pytest.approx(float(correct))


@pytest.mark.deploy
def test_clients_of_a_table_have_models_for_raw_rows(tmp_path: Path) -> None:
    """With the statistics that the plan's schema has, as in the simulation."""
    n = 270
    age = (rng.uniform(rng.key(1), (n,)) * 70 + 20).tolist()
    table = {
        "age": age,
        "ward": ["abc"[i % 3] for i in range(n)],
        "hospital": [f"h{i % 9}" for i in range(n)],
        "outcome": ["yes" if a > 55 else "no" for a in age],
    }
    fed = glocal.federation(table, "outcome", "hospital", pooled=False)
    run = glocal.fit("ditto", fed, **SETTINGS)
    Deployment.of("ditto", tmp_path, fed=fed).serve()
    model = load_model(tmp_path / "node0" / "models" / "2-h1")
    raw = {"age": [80.0, 20.0], "ward": ["a", "c"]}
    assert torch.equal(model.logits(raw), run.client_model("h1").logits(raw))
    assert set(model.predict(raw)) <= {"yes", "no"}
