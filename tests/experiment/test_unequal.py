"""Clients with different models in one run: who has which, what is refused, what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import glocal
from conftest import Command
from glocal.core.errors import GlocalError
from glocal.experiment.unequal import assigned, models_of
from glocal.runs.client_models import client_model
from glocal.testing import SIZES, ragged
from glocal.training.checkpoint import CheckpointPolicy

MODELS = "small=headed(mlp(3),width=4) | large=headed(mlp(5, 6),width=4)"
SHARED = "lg-fedavg(shared=head, warmup=0)"
QUICK: dict[str, Any] = {
    "model": MODELS,
    "rounds": 3,
    "fraction": 0.5,
    "baseline": "local(lr=0.1, max_epochs=2)",
}


@pytest.fixture(scope="module")
def fed() -> glocal.Federation:
    return ragged()


@pytest.fixture(scope="module")
def run(fed: glocal.Federation) -> glocal.Run:
    return glocal.fit(SHARED, fed, new_test=True, adapt="fine-tune(max_epochs=1)", **QUICK)


def test_models_by_name() -> None:
    assert models_of("mlp(3)") == {"mlp(3)": "mlp(3)"}
    assert models_of("a=mlp(3) | cnn|c=f.py:Net") == {"a": "mlp(3)", "cnn": "cnn", "c": "f.py:Net"}
    assert models_of({"a": "mlp(3)"}) == {"a": "mlp(3)"}
    with pytest.raises(GlocalError, match=r"two models are called 'mlp\(3\)': give them names"):
        models_of("mlp(3)|mlp(3)")
    with pytest.raises(GlocalError, match="a name for each model"):
        models_of({})
    with pytest.raises(GlocalError, match=r"on either side of every '\|'"):
        models_of("mlp(3)|")


def test_who_has_which(fed: glocal.Federation) -> None:
    models = ["a", "b"]
    assert assigned("turns", models, fed) == [0, 1, 0, 1, 0, 1]
    by_size = assigned("size", models, fed)
    assert by_size == [int(sorted(SIZES).index(n) >= 3) for n in SIZES]
    assert by_size == assigned("size", models, fed.fold(1))
    assert assigned("0=b, [1-3]=a, *=b", models, fed) == [1, 0, 0, 0, 1, 1]
    assert assigned({"*": "a"}, models, fed) == [0] * 6
    with pytest.raises(GlocalError, match=r"of no model that client 1 has it: add it, as in '1=a'"):
        assigned("0=a", models, fed)
    with pytest.raises(GlocalError, match="unknown model 'c'"):
        assigned("*=c", models, fed)
    with pytest.raises(GlocalError, match="write turns, size, or"):
        assigned("by turns", models, fed)


@pytest.mark.parametrize(
    ("spec", "change", "match"),
    [
        ("fedavg", {}, r"encoder.layers.0.bias is 3 in small and 5 in large.*shared=head, warmup"),
        ("lg-fedavg(shared=head)", {}, r"from the first round on.*warmup=0"),
        ("lg-fedavg(shared=tail, warmup=0)", {}, "of the model small: shared=tail matches none"),
        (SHARED, {"init": {}}, "init= has the weights of one model"),
        (
            SHARED,
            {"adapt": "ewc"},
            "ewc needs the same layers of all clients.*fine-tune or distill",
        ),
        (SHARED, {"assign": "0=small"}, "add it, as in"),
    ],
)
def test_what_is_refused(
    fed: glocal.Federation, spec: str, change: dict[str, Any], match: str
) -> None:
    with pytest.raises(GlocalError, match=match):
        glocal.fit(spec, fed, **QUICK, **change)


def test_what_a_run_says_of_its_models(fed: glocal.Federation, run: glocal.Run) -> None:
    small, large = 7 * 3 + 4 * 4 + 15, 7 * 5 + 6 * 6 + 7 * 4 + 15
    assert run.summary["models"] == [
        {"model": "small", "clients": 3, "parameters": small, "shared": 15},
        {"model": "large", "clients": 3, "parameters": large, "shared": 15},
    ]
    assert run.summary["parameters"] == large
    assert run.summary["params_up"] == run.summary["params_down"] == 3 * 3 * 15
    assert run.settings["model"] == MODELS
    assert all(row["verdict"] for row in run.clients)
    assert run.summary["new_test"].keys() == {"logits", "vote", "params_up"}
    assert run.summary["new_test"]["params_up"] == 3 * (small + large - 2 * 15)
    with pytest.raises(GlocalError, match="the server has no whole one"):
        run.module()


def test_both_engines_come_to_the_same(fed: glocal.Federation, run: glocal.Run) -> None:
    other = glocal.fit(SHARED, fed, engine="sequential", **QUICK)
    assert run.settings["engine"] == "vectorised"
    assert other.settings["engine"] == "sequential"
    for name, leaf in other.model.items():
        torch.testing.assert_close(run.model[name], leaf, rtol=1e-4, atol=1e-5)
    for row, same in zip(other.clients, run.clients, strict=True):
        assert row["local_accuracy"] == pytest.approx(same["local_accuracy"], abs=1e-6)
        assert row["accuracy"] == pytest.approx(same["accuracy"], abs=1e-6)


def test_every_client_has_its_own_model_in_use_and_in_files(
    fed: glocal.Federation, run: glocal.Run, tmp_path: Path
) -> None:
    run.save(tmp_path / "run")
    alone = glocal.fit("local(lr=0.1, max_epochs=2)", fed, **QUICK)
    alone.save(tmp_path / "alone")
    x, y = fed.x, fed.y
    for each, folder in ((run, "run"), (alone, "alone")):
        for number, name in enumerate(fed.names):
            model = each.client_model(name)
            assert model.description.architecture.endswith(
                ["mlp(3),width=4)", "6),width=4)"][number % 2]
            )
            test = fed.test.of(number)
            right = float((model.logits(x[test]).argmax(1) == y[test]).float().mean())
            assert each.repeats[0].outcome.metrics["accuracy"][number] == pytest.approx(right)
            read = client_model(tmp_path / folder, name)
            assert torch.equal(read.logits(x), model.logits(x))
            assert read.description == model.description


def test_a_stopped_run_goes_on_to_the_same_bits(
    fed: glocal.Federation, run: glocal.Run, tmp_path: Path
) -> None:
    def stop(line: dict[str, Any]) -> None:
        if line["round"] == 2:
            raise KeyboardInterrupt

    given = {**QUICK, "new_test": True, "adapt": "fine-tune(max_epochs=1)"}
    with pytest.raises(KeyboardInterrupt):
        glocal.fit(SHARED, fed, **given, checkpoints=CheckpointPolicy(tmp_path, 1), on_line=stop)
    again = glocal.fit(SHARED, fed, **given, checkpoints=tmp_path)
    assert again.history == run.history
    assert again.summary == run.summary
    assert all(torch.equal(again.model[name], leaf) for name, leaf in run.model.items())
    for name, leaf in run.states["private"].items():
        assert torch.equal(again.states["private"][name], leaf)
    with pytest.raises(GlocalError, match="of another training"):
        glocal.fit(SHARED, fed, **{**given, "assign": "size"}, checkpoints=tmp_path)


@pytest.mark.usefixtures("few_digits")
def test_on_the_command_line(command: Command) -> None:
    words = ["--model", MODELS, "--assign", "size", "--clients", "4", "--rounds", "2"]
    alone = "local(lr=0.1,max_epochs=2)"
    code, out, _ = command("compare", SHARED, *words, "--baseline", alone, "--out", "a")
    assert code == 0
    said = " ".join(out.split())
    assert "models small (2 clients, 261 parameters), large (2 clients, 439 parameters)" in said
    assert f"Shared with {SHARED}: 50 parameters, 19.2 % of small, 11.4 % of large." in said
    code, _, err = command("run", "fedavg", *words, "--baseline", alone, "--out", "b")
    assert code == 2
    assert "clients with different models share only layers that are alike" in err
