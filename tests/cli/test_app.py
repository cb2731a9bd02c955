"""The command line: what it prints, what it writes, and one clear line for every bad input."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

QUICK = ["--rounds", "3", "--clients", "6", "--baseline", "local(lr=0.1, max_epochs=3)"]


@pytest.fixture
def glocal(command):
    return command


def test_compare_prints_a_table_and_names_the_run_folder(glocal):
    _own_data("six.npz", client=lambda client: np.repeat(np.arange(6), 10))
    code, out, err = glocal("compare", "--data", "six.npz", *QUICK[:2], *QUICK[4:])
    assert code == 0
    assert err == ""
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    head = out.splitlines()[1]
    for column in ("mean %", "worst 10 %", "better off", "worse off", "undecided", "sent up"):
        assert column in head
    assert "baseline" not in rows["local"]  # it trains longer than what all are set against
    for name in ("local", "fedavg"):
        (line,) = [line for line in out.splitlines() if line.startswith(f"{name} ")]
        counts = list(map(int, line.split(")")[1].split()[:4]))  # after the interval
        assert sum(counts) == 6
    folder = Path(out.splitlines()[-1].removeprefix("Run folder: "))
    assert sorted(p.name for p in folder.iterdir()) == [
        "comparison.toml",
        "ditto",
        "fedavg",
        "fedprox",
        "local",
        "result.json",
    ]


def test_the_run_folder_holds_what_the_docs_say(glocal):
    from safetensors.torch import load_file

    glocal("run", "fedavg(shared=last(1))", *QUICK, "--out", "r", "--json", "all.json")
    names = {p.name for p in Path("r").iterdir()}
    assert names == {
        "settings.toml",
        "metrics.jsonl",
        "result.json",
        "final.safetensors",
        "clients.safetensors",
        "models.json",
        "SHA256SUMS",
    }
    lines = [json.loads(line) for line in Path("r/metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2, 3]
    assert 0 <= lines[-1]["val_accuracy"] <= 1
    settings = tomllib.loads(Path("r/settings.toml").read_text())
    assert settings["method"] == "fedavg(shared=last(1))"
    assert settings["chosen"] == {
        "partition": "dirichlet(0.3)",
        "task": "classification",
        "losses": "cross_entropy",
        "metric": "accuracy",
        "same": 0.02,
        "engine": "vectorised",
    }
    assert settings["hyperparameters"] == {
        "fedavg": {
            "lr": 0.1,
            "batch_size": 10,
            "epochs": 2,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "nesterov": False,
            "optimiser": "sgd",
            "schedule": "constant",
            "shared": "last(1)",
        },
        "baseline": {
            "method": "local",
            "max_epochs": 3,
            "patience": 15,
            "lr": 0.1,
            "batch_size": 10,
            "epochs": 1,
            "momentum": 0.0,
            "weight_decay": 0.0,
            "nesterov": False,
            "optimiser": "sgd",
            "schedule": "constant",
        },
    }
    assert set(load_file("r/final.safetensors")) == {
        f"layers.{i}.{kind}" for i in range(3) for kind in ("weight", "bias")
    }
    kept = load_file("r/clients.safetensors")
    assert kept["ids"].tolist() == list(range(6))
    assert kept["private/layers.0.weight"].shape == (6, 64, 64)
    assert not any("layers.2" in name for name in kept)
    assert Path("r/result.json").read_text() == Path("all.json").read_text()


def test_a_settings_file_runs_again_to_the_same_result_and_options_win(glocal):
    glocal("run", "fedprox(mu=0.1)", *QUICK, "--out", "a", "--partition", "classes(3)")
    glocal("run", "a/settings.toml", "--out", "b")
    assert Path("a/result.json").read_bytes() == Path("b/result.json").read_bytes()
    glocal("run", "a/settings.toml", "--out", "c", "--rounds", "2")
    assert len(Path("c/metrics.jsonl").read_text().splitlines()) == 2


def test_same_seed_same_json_and_another_seed_another(glocal):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        glocal("compare", "fedavg", *QUICK, "--seed", seed, "--json", f"{name}.json")
    assert Path("a.json").read_bytes() == Path("b.json").read_bytes()
    assert Path("a.json").read_bytes() != Path("c.json").read_bytes()
    found = json.loads(Path("a.json").read_text())
    assert found["data"]["data"] == "digits"
    assert {"summary", "clients"} == set(found["methods"]["fedavg"])


def test_json_to_stdout_is_nothing_but_json(glocal):
    code, out, _ = glocal("compare", "fedavg", *QUICK, "--json", "-")
    assert code == 0
    assert json.loads(out)["methods"]["fedavg"]["summary"]["clients"] == 6


def test_the_choice_has_no_figure_on_the_new_test(glocal):
    adapt = ("--adapt", "fine-tune(lr=0.1, max_epochs=1)", "--new-test")
    code, out, err = glocal("compare", "fedavg", *QUICK, *adapt)
    assert (code, err) == (0, "")
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line.strip()}
    assert "new test %" in out
    assert rows["choice"][-1] == "–"


def test_lists_name_everything_registered(glocal):
    from glocal.data.datasets.registry import SOURCES
    from glocal.data.partition import list_partitions
    from glocal.methods import list_methods
    from glocal.nn.models import REGISTRY

    _, out, _ = glocal("methods")
    assert all(name in out for name in [*list_methods(), *REGISTRY])
    _, out, _ = glocal("data")
    assert all(name in out for name in [*list_partitions(), *SOURCES])


def test_data_draws_the_partition(glocal):
    code, out, _ = glocal("data", "digits", "--clients", "5", "--partition", "classes(2)")
    assert code == 0
    drawn = [line for line in out.splitlines() if "█" in line and "examples" not in line]
    assert drawn
    assert "evaluated on all clients' test examples" in out


BATCHNORM = """
from torch import nn

def Raises():
    raise RuntimeError("boom")

def Leaves():
    raise SystemExit(3)

def Nothing():
    return None

def Net():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.BatchNorm1d(8), nn.Linear(8, 10))
"""


def _own_data(path, **changes):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 4)).astype("float32")
    data = {"x": x, "y": np.arange(60) % 2, "client": np.repeat(np.arange(3), 20)}
    data |= {name: change(data[name].copy()) for name, change in changes.items()}
    np.savez(path, **data)


def _nan(x):
    x[7, 2] = np.nan
    return x


def _negative(y):
    y[5] = -1
    return y


def _lonely(client):
    client[:2] = 9
    return client


def test_version(glocal):
    import glocal as package

    assert glocal("--version") == (0, f"glocal {package.__version__}\n", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_output_that_cannot_be_written_is_one_line():
    with open("/dev/full", "w") as full:
        found = subprocess.run(
            [sys.executable, "-m", "glocal", "methods"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert found.returncode == 2
    assert found.stderr == "glocal: no room to write to (No space left on device): make some.\n"


def test_a_client_that_is_skipped_is_named_with_its_rounds(glocal):
    def far(x):
        x[:20] *= 1e18
        return x

    _own_data("far.npz", x=far)
    words = ("--data", "far.npz", "--rounds", "3", "--baseline", "local(lr=1e-30)")
    code, out, _ = glocal("run", "fedavg", *words, "--diverged", "skip")
    assert code == 0
    assert "Not finite with fedavg, and left out: 0 (rounds 1–3)." in out


def test_a_run_that_diverges_says_how_to_go_on(glocal):
    alone = ("--baseline", "local(lr=0.1, max_epochs=2)")
    code, out, err = glocal("run", "fedavg(lr=1e9)", "--rounds", "2", "--out", "x", *alone)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    for part in ("not finite", "learning rate", "--diverged skip", "glocal resume x"):
        assert part in err
    assert not Path("x/result.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["compare", "fedavgg"], ["unknown method", "did you mean 'fedavg'"]),
        (["compare", "--data", "digit"], ["unknown data set", "did you mean 'digits'"]),
        (["compare", "--clients", "5000"], ["1797 examples", "5000 clients"]),
        (["compare", "--rounds", "0"], ["rounds must be"]),
        (["compare", "--rounds", "many"], ["--rounds", "integer"]),
        (["compare", "--repeats", "0"], ["repeats must be"]),
        (["compare", "--data", "nan.npz"], ["row 7"]),
        (["compare", "--data", "label.npz"], ["-1"]),
        (["compare", "--data", "lonely.npz"], ["client '9'", "2 examples"]),
        (["compare", "--model", "net.py:Net"], ["BatchNorm1d", "GroupNorm"]),
        (["compare", "--model", "net.py:Other"], ["no class or function Other"]),
        (["compare", "--out", "taken"], ["taken", "is a file"]),
        (["compare", "--out", "full"], ["full", "not empty"]),
        (["compare", "--engine", "vectorized"], ["did you mean 'vectorised'"]),
        (["compare", "--device", "tpu9"], ["unknown device"]),
        (["compare", "--partition", "dirichlet(-1)"], ["dirichlet"]),
        (["compare", "fedavg(shared=nope*)"], ["nope*", "layers.0"]),
        (["compare", "fedavg(lr=fast)"], ["lr must be a number"]),
        (["run", "missing.toml"], ["missing.toml"]),
        (["run", "bad.toml"], ["unknown setting 'round'", "did you mean 'rounds'"]),
        (["run", "type.toml"], ["rounds must be an integer"]),
        (["run", "broken.toml"], ["not valid TOML"]),
        (["compare", "--init", "nan.npz"], ["cannot be read", ".safetensors"]),
        (["frobnicate"], ["No such command"]),
        (["compare", "--data", "own.csv", "--client", "wrad"], ["wrad", "the columns are"]),
        (["compare", "--data", "gap.csv", "--client", "ward"], ["'label'", "no label", "line 4"]),
        (["compare", "--data", "own.csv"], ["no column 'client'", "a, ward", "with --partition,"]),
        (["compare", "--json", "nowhere/x.json"], ["nowhere/x.json", "does not exist"]),
        (["compare", "--seed", "99999999999999999999"], ["seed must be"]),
        (["compare", "--device", "meta"], ["not supported"]),
        (["compare", "--sampled", "2", "--fraction", "0.5"], ["give one of them"]),
        (["compare", "--validate-every", "-1"], ["validate_every"]),
        (["compare", "fedavg(epochs=2.0)"], ["epochs must be an integer"]),
        (["compare", "fedavg(epochs=1000000000)"], ["from 1 to 10,000"]),
        (["compare", "--model", "net.py:Raises"], ["cannot be built", "boom"]),
        (["compare", "--model", "net.py:Leaves"], ["cannot be built"]),
        (["compare", "--model", "net.py:Nothing"], ["torch.nn.Module"]),
        (["compare", "local+uniform"], ["sends nothing"]),
        (["compare", "fedavg", "--against", "ditto"], ["not among the methods"]),
        (["bench", "--repeats", "0"], ["repeats must be"]),
    ],
)
def test_bad_input_is_one_clear_line_and_code_2(glocal, words, says):
    Path("net.py").write_text(BATCHNORM)
    Path("own.csv").write_text("a,label,ward\n" + "1,0,x\n2,1,y\n" * 9)
    Path("gap.csv").write_text("a,label,ward\n" + "1,0,x\n2,1,y\n3,NA,y\n" * 9)
    Path("taken").write_text("")
    Path("full").mkdir()
    Path("full/thesis.txt").write_text("")
    Path("bad.toml").write_text('method = "fedavg"\nround = 3\n')
    Path("type.toml").write_text('method = "fedavg"\nrounds = "3"\n')
    Path("broken.toml").write_text("method = \n")
    _own_data("nan.npz", x=_nan)
    _own_data("label.npz", y=_negative)
    _own_data("lonely.npz", client=_lonely)
    before = sorted(Path().rglob("*"))
    quick = ["--baseline", "local(lr=0.1, max_epochs=2)"] if words[0] == "compare" else []
    code, out, err = glocal(*words, *quick)
    assert code == 2
    assert out == ""
    assert err.startswith("glocal: ")
    assert err.count("\n") == 1
    for part in says:
        assert part in err
    assert sorted(Path().rglob("*")) == before, "a run that never began left something behind"


def test_a_defect_is_code_1_without_a_traceback(glocal, monkeypatch):
    def broken():
        raise RuntimeError("boom")

    monkeypatch.setattr("glocal.report.catalogue.list_methods", broken)
    code, _, err = glocal("methods")
    assert code == 1
    assert "boom" in err
    assert "Traceback" not in err


def test_own_data_with_natural_clients_is_evaluated_on_own_splits(glocal):
    _own_data("own.npz")
    code, out, _ = glocal("run", "fedavg", "--data", "own.npz", "--rounds", "2", "--out", "r")
    assert code == 0
    assert "each client's own test split" in out
    assert json.loads(Path("r/result.json").read_text())["data"]["clients"] == 3


def test_the_installed_command_helps_without_waiting_for_torch():
    code = "import sys, glocal.cli.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    shown = subprocess.run(
        [sys.executable, "-m", "glocal", "compare", "--help"], capture_output=True, text=True
    )
    assert shown.returncode == 0
    assert "Train several methods" in shown.stdout
