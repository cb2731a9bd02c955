"""What users bring and take out: own methods by name, objects for strings, models, frames."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import glocal
from comparing import compared
from conftest import Command
from glocal.core.errors import GlocalError
from glocal.data.federation import Federation
from glocal.engines import Sequential
from glocal.experiment.adaptation import techniques
from glocal.methods import registry
from glocal.methods.ditto import ditto
from glocal.methods.fedavg import fedavg
from glocal.slots.method import Method
from glocal.training.attacks import parse

QUICK: dict[str, Any] = {
    "rounds": 2,
    "model": "mlp(8)",
    "baseline": "local(lr=0.1, max_epochs=1)",
    "progress": False,
}

OWN = """
import torch
from glocal.methods.fedavg import fedavg
from glocal.slots.aggregation import Combine
from glocal.slots.method import Method


def slow(*, strength: float = 0.1):
    return fedavg(lr=strength)


def half() -> Combine:
    def combine(updates, p):
        return {k: 0.5 * torch.einsum("k,k...->...", p.to(u), u) for k, u in updates.items()}

    return Combine("half", combine)


def slip():
    return fedavg(lr=rate)


def late(*, strength: float = 0.1) -> Method:
    raise KeyError("no such strength")
"""


@pytest.fixture(scope="module")
def fed() -> Federation:
    return glocal.load("digits", clients=4)


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(OWN)
    Path("zero.py").write_text("import math\na = math.floor(1 / 0)\n")
    return tmp_path


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    before = dict(registry.REGISTERED)
    yield
    registry.REGISTERED.clear()
    registry.REGISTERED.update(before)


def slow(*, strength: float = 0.1) -> Method:
    return fedavg(lr=strength)


def test_a_registered_method_is_what_it_makes(fed: Federation) -> None:
    glocal.register("slow", slow)
    assert "slow" in glocal.list_methods()
    run, same = (glocal.fit(m, fed, **QUICK) for m in ("slow(strength=0.05)", "fedavg(lr=0.05)"))
    assert run.clients == same.clients
    assert glocal.fit("slow(strength=0.05)+median", fed, **QUICK).clients != same.clients


def test_functions_in_a_file_need_no_registration(fed: Federation, own: Path) -> None:
    run = glocal.fit("own.py:slow(strength=0.05)+own.py:half", fed, **QUICK)
    whole = glocal.fit("fedavg(lr=0.05)", fed, **QUICK)
    assert run.method == "own.py:slow(strength=0.05)+own.py:half"
    assert run.clients != whole.clients
    half = glocal.fit("own.py:half(lr=0.05)", fed, **QUICK)  # a component as a base
    assert half.clients == run.clients


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("own.py:missing", "own.py has no class or function missing: check the name"),
        ("none.py:slow", "there is no file 'none.py' for the method slow"),
        ("own.py:slow(strength=fast)", "strength must be a number"),
        ("fedavg+own.py:slow", "is a method of its own and cannot"),
        ("own.py:slip", "slip cannot be made: NameError: name 'rate' .* [(]in line 20 of own.py"),
        ("own.py:late(strength=2)", r"late[(]strength=2[)] cannot be made: KeyError: 'no such str"),
        ("zero.py:a", "zero.py cannot be loaded: ZeroDivisionError: .* [(]in line 2 of zero.py"),
    ],
)
def test_own_specs_that_make_no_sense(own: Path, spec: str, said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        glocal.fit(spec, glocal.load("digits", clients=2), **QUICK)


def test_the_command_says_so_too(command: Command) -> None:
    Path("own.py").write_text(OWN)
    code, out, err = command("run", "own.py:slip")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "(in line 20 of own.py)" in err


def test_what_cannot_be_registered() -> None:
    for name, make, said in [
        ("fedavg", slow, "fedavg is the name of something else"),
        ("two words", slow, "write it like"),
        ("odd", lambda needed: needed, "what odd makes cannot be told"),
    ]:
        with pytest.raises(GlocalError, match=said):
            glocal.register(name, make)
    with pytest.raises(GlocalError, match="unknown slot 'wieghting'"):
        glocal.register("odd", slow, slot="wieghting")


def test_objects_are_taken_where_strings_are(fed: Federation) -> None:
    objects = glocal.fit(
        ditto(lam=0.5),
        fed,
        engine=Sequential(),
        attack=parse("sign-flip(share=0.3)"),
        adapt=techniques("fine-tune(max_epochs=1)"),
        **QUICK,
    )
    strings = glocal.fit(
        "ditto(lam=0.5)",
        fed,
        engine="sequential",
        attack="sign-flip(share=0.3)",
        adapt="fine-tune(max_epochs=1)",
        **QUICK,
    )
    assert objects.clients == strings.clients
    assert objects.settings["attack"] == strings.settings["attack"]


@pytest.mark.parametrize("spec", ["fedavg", "ditto", "fedper", "local(lr=0.1, max_epochs=1)"])
def test_a_clients_model_predicts_as_it_was_evaluated(fed: Federation, spec: str) -> None:
    run = glocal.fit(spec, fed, **QUICK)
    for number, name in enumerate(fed.names):
        model = run.client_model(name)
        x, y = fed[number].test
        accuracy = float((model.predict(x) == y.numpy()).mean())
        assert accuracy == pytest.approx(run.clients[number]["own_accuracy"])
        assert model.logits(x).shape == (len(x), fed.classes)
    with pytest.raises(GlocalError, match="unknown client 'nobody'"):
        run.client_model("nobody")


@pytest.fixture(scope="module")
def run(fed: Federation) -> glocal.Run:
    return glocal.fit("fedavg", fed, **QUICK)


def test_a_model_takes_arrays_and_says_what_it_cannot_take(
    fed: Federation, run: glocal.Run
) -> None:
    model, x = run.client_model(1), fed[1].test[0]
    for given in (x.numpy(), x.double().numpy(), x.tolist()):
        assert (model.predict(given) == model.predict(x)).all()
    for wrong, said in [
        (
            torch.zeros(4, 7),
            r"inputs of shape \[4, 7\]: give floats of shape \[n, 1, 8, 8\], as it",
        ),
        ((x * 255).byte(), r"cannot take inputs of torch.uint8: give floats of shape"),
        (x / 0, "not finite .* in row 0"),
        (x[:0], "no rows to predict"),
        ("x.csv", "there is no file 'x.csv'"),
        ("x.npy", "there is no file 'x.npy'"),
        ({"age": [3]}, "not trained on a table: give an array of floats of shape"),
        ([["a"]], "the input holds <U1"),
    ]:
        with pytest.raises(GlocalError, match=said):
            model.predict(wrong)
    with pytest.raises(GlocalError, match="unknown client True"):
        run.client_model(True)


def test_an_integer_is_a_name_and_no_position(run: glocal.Run) -> None:
    renamed = replace(
        run, clients=[{**row, "client": str(k + 1)} for k, row in enumerate(run.clients)]
    )
    for name in (1, np.int64(2), "3"):
        assert renamed.client_model(name).name == str(name)  # type: ignore[arg-type]
    with pytest.raises(GlocalError, match=r"unknown client 0: .*known are 1, 2"):
        renamed.client_model(0)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"engine": Sequential}, r"Sequential is a class, and engine= takes one of it: write Seq"),
        ({"public": 3}, r"public must be two things, inputs and a label for each, .*, not 3[.]$"),
        ({"public": (3, 4)}, "public= takes inputs and labels as tensors or arrays, .* not 3[.]$"),
        ({"seed": 2**63}, r"seed must be an integer from 0 to 2\^63 − 1, not 9223372036854775808"),
        ({"seed": -1}, r"seed must be an integer from 0 to 2\^63 − 1, not -1"),
    ],
)
def test_settings_that_make_no_sense(fed: Federation, wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(GlocalError, match=said):
        glocal.fit("fedavg", fed, **QUICK, **wrong)


def test_the_servers_module_has_the_servers_weights(fed: Federation, run: glocal.Run) -> None:
    module = run.module()
    assert all(torch.equal(p, run.model[name]) for name, p in module.named_parameters())
    with pytest.raises(GlocalError, match="has no server"):
        glocal.fit("local(lr=0.1, max_epochs=1)", fed, **QUICK).module()


def test_frames_have_a_row_for_each_client_and_each_method(fed: Federation) -> None:
    done = compared(["local(lr=0.1, max_epochs=1)", "fedavg"], fed, **QUICK)
    assert list(done.to_frame()["method"]) == list(done)
    frame = done["fedavg"].to_frame()
    assert list(frame["client"]) == list(fed.names)
    assert list(frame["accuracy"]) == done["fedavg"].clients["accuracy"]


def test_compare_is_fit_of_each(fed: Federation, tmp_path: Path) -> None:
    done = compared({"a": fedavg(lr=0.1), "b": "ditto"}, fed, against="a", **QUICK)
    for name, spec in (("a", "fedavg(lr=0.1)"), ("b", "ditto")):
        alone = glocal.fit(spec, fed, **QUICK).clients
        both = zip(done[name].clients, alone, strict=True)
        assert all(row == {**row, **by_itself} for row, by_itself in both)  # and advice
    assert "a" in done["b"].summary["against"]
    done.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "result.json").is_file()
    assert (tmp_path / "saved" / "2-b" / "final.safetensors").is_file()
    with pytest.raises(GlocalError, match="is not empty"):
        done.save(tmp_path / "saved")
    with pytest.raises(GlocalError, match="c is not among the methods"):
        compared(["fedavg"], fed, against="c", **QUICK)


def test_processes_give_the_same_models(fed: Federation) -> None:
    """Also of a method that only this process has registered."""
    glocal.register("slow", slow)
    given = {**QUICK, "engine": "sequential"}  # processes start faster without the others
    one, two = (compared(["slow", "ditto"], fed, jobs=j, **given) for j in (1, 2))
    for method in one:
        assert one[method].clients == two[method].clients
        a, b = (done[method].client_model(1).module.state_dict() for done in (one, two))
        assert all(torch.equal(a[k], b[k]) for k in a)


def test_what_cannot_be_sent_to_a_process_is_refused(fed: Federation) -> None:
    with pytest.raises(GlocalError, match="cannot be sent to other processes"):
        compared({"a": fedavg(), "b": fedavg()}, fed, jobs=2, **QUICK)


def test_settings_of_data_do_not_go_with_a_federation(fed: Federation) -> None:
    with pytest.raises(GlocalError, match="clients says how data is loaded"):
        glocal.fit("fedavg", fed, clients=3)
    with pytest.raises(GlocalError, match="unknown setting 'round': did you mean 'rounds'"):
        glocal.fit("fedavg", fed, round=3)


def test_fit_writes_checkpoints_as_often_as_it_is_told(fed: Federation, tmp_path: Path) -> None:
    folder, numbers = tmp_path / "kept", []

    def on_line(line: dict[str, Any]) -> None:
        numbers.append(sorted(int(p.name[:8]) for p in folder.glob("repeat-1/*-*")))

    often = {"checkpoint_every": 1, "keep_checkpoints": 3}
    settings = {**QUICK, "rounds": 5}
    glocal.fit("fedavg", fed, checkpoints=folder, on_line=on_line, **settings, **often)
    assert numbers[-1] == [2, 3, 4]


def test_checkpoints_of_other_training_settings_are_refused(
    fed: Federation, tmp_path: Path
) -> None:
    glocal.fit("fedavg", fed, checkpoints=tmp_path, **QUICK)
    with pytest.raises(GlocalError, match="of another training"):
        glocal.fit("fedavg", fed, checkpoints=tmp_path, fraction=0.5, **QUICK)


def test_fit_refuses_trackers_and_takes_lists(fed: Federation) -> None:
    with pytest.raises(GlocalError, match="open_trackers"):
        glocal.fit("fedavg", fed, track=["tensorboard"], **QUICK)


def test_processes_need_no_guard_in_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    settings = "rounds=1, repeats=2, jobs=2, engine='sequential', baseline='none', model='mlp(8)'"
    script.write_text(
        "import glocal\n"
        "fed = glocal.load('digits', clients=3)\n"
        f"print(glocal.fit('fedavg', fed, {settings}))\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout[:12]) == (0, "<Run fedavg:"), done.stderr
