"""What a method was made with, in words: against its parts, and by hand."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import Command
from glocal.core.errors import GlocalError
from glocal.methods import registry, resolve
from glocal.methods.hyperparameters import in_force, meanings, parts
from glocal.slots.method import as_plan

METHODS = registry.known("method")


@pytest.mark.parametrize("name", METHODS)
def test_the_values_are_those_that_it_trains_with(name: str) -> None:
    values = in_force(name)[name]
    method = as_plan(resolve(name)).stages[-1].method
    local = method.local
    assert values["batch_size"] == local.batch_size
    assert values["optimiser"] == local.opt.name
    assert values["epochs"] == local.phases[-1].epochs
    if name == "local":
        assert values["grid"] == [0.03, 0.1, 0.3]
        assert "shared" not in values
    else:
        assert values["lr"] == local.opt.lr
        assert values["shared"] == method.shared.name


@pytest.mark.parametrize("name", registry.known())
def test_every_setting_has_a_type_and_a_meaning(name: str) -> None:
    for part in parts(name):
        for setting in part.settings:
            assert setting.meaning.endswith("."), setting
            assert setting.kind != "something else", setting
            assert not setting.needed
        assert set(meanings(part.make)) == {each.name for each in part.settings if each.own}


def test_given_values_defaults_and_components() -> None:
    found = in_force("fedprox(epochs=3, optimiser=adamw, schedule=step(0.9, 2))+adam(0.5, tau=0.1)")
    assert found == {
        "fedprox": {
            "mu": 0.01,
            "lr": 0.1,
            "batch_size": 10,
            "epochs": 3,
            "weight_decay": 0.01,  # of AdamW, which has no momentum
            "optimiser": "adamw",
            "schedule": "step(0.9, 2)",
            "shared": "everything",
        },
        "adam": {"lr": 0.5, "beta1": 0.9, "beta2": 0.99, "tau": 0.1},
    }
    assert in_force("median")["median"] == {}
    assert in_force("local(lr=0.2)")["local"]["lr"] == 0.2
    assert "grid" not in in_force("local(lr=0.2)")["local"]
    assert in_force("fedavg(shared=[head, body])")["fedavg"]["shared"] == "head|body"
    with pytest.raises(GlocalError, match="mu must be 0 or more, not -1"):
        in_force("fedprox(mu=-1)")
    with pytest.raises(GlocalError, match="unknown method or component 'fedavgg': did you"):
        in_force("fedavgg")


def test_own_methods_say_what_they_need(command: Command, tmp_path: Any) -> None:
    (tmp_path / "own.py").write_text(
        "from glocal.methods.fedavg import fedavg\n"
        "from glocal import Method\n\n\n"
        "def mine(*, strength: float, often: int = 2) -> Method:\n"
        '    """FedAvg of mine.\n\n    Args:\n        strength: how strong\n            it is.\n'
        '    """\n    return fedavg()\n'
    )
    code, out, _ = command("methods", "own.py:mine")
    assert code == 0
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert "strength (needed) a number how strong it is." in rows
    assert "often 2 an integer" in rows


def test_the_command_shows_a_method_or_a_component(command: Command) -> None:
    code, out, _ = command("methods", "ditto(lam=0.5)")
    rows = [" ".join(line.split()) for line in out.splitlines()]
    assert (code, rows[0]) == (
        0,
        "ditto: A personal model pulled towards the global one with strength lam.",
    )
    pull = "strength of the pull of the personal model to the global one."
    assert f"lam 0.5 a number {pull}" in rows
    assert "lr 0.1 a number learning rate of the clients' steps." in rows
    _, out, _ = command("methods", "krum")
    assert out.startswith("krum: The one update that is nearest")
    assert "fedavg" not in out
    code, _, err = command("methods", "dito")
    assert code == 2
    assert "did you mean 'ditto'" in err
