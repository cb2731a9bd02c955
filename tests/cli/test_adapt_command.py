"""``glocal adapt``: a folder gives back its run exactly; what is averaged, and who is left out."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits

from conftest import Command
from glocal.cli import app as cli
from glocal.core import checksums, files
from glocal.core.errors import GlocalError
from glocal.core.progress import silent
from glocal.runs.restore import Restored, restore
from glocal.studies import retraining as further
from glocal.studies.adaptation import adapted, recorded

ONE = "fine-tune(lr=0.1, max_epochs=2)"
TWO = f"{ONE}+freeze-base(lr=0.1, max_epochs=2)"
QUICK = ["--rounds", "3", "--sampled", "3", "--clients", "5", "--model", "mlp(8)"]
QUICK += ["--partition", "dirichlet(0.3)"]
QUICK += ["--baseline", "local(lr=0.1, max_epochs=2)"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 digits in a file."""
    path = tmp_path_factory.mktemp("data") / "small.npz"
    x, y = load_digits(return_X_y=True)
    np.savez(path, x=(x[:300] / 16).astype("float32").reshape(-1, 1, 8, 8), y=y[:300])
    return path


def _command(words: list[str]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["glocal", *words])
        with pytest.raises(SystemExit) as stop:
            cli.main()
        assert stop.value.code == 0


@pytest.fixture(scope="module")
def compared(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of local, ditto and fedavg; the two adapted in training already."""
    folder = tmp_path_factory.mktemp("runs") / "compared"
    methods = ["local(lr=0.1, max_epochs=2)", "fedavg", "ditto"]
    words = ["compare", *methods, "--data", str(data), *QUICK, "--adapt", TWO]
    words += ["--repeats", "1", "--no-tune"]
    _command([*words, "--out", str(folder)])
    return folder


@pytest.fixture
def folder(compared: Path, tmp_path: Path) -> Path:
    """A copy of the run of fedavg, to be spoilt."""
    return Path(shutil.copytree(compared / "fedavg", tmp_path / "run"))


@pytest.mark.parametrize(
    "method",
    [
        "scaffold",
        "fedavg(shared=last(1))",
        "lg-fedavg(warmup=1, shared=last(1))",
        "lg-fedavg(warmup=0, goal=0.999, shared=last(1))",  # never reached: it ends in the warm-up
        "fedrep",
        "apfl",
        "pfedme",
        "mtl",
        "superfed-mm",
        "superfed-lm",
        "fedadam+aaggff-d",
        "fedavg+dp(noise=0.1)",
        "fedavg+median",
    ],
)
def test_a_folder_gives_what_the_run_ended_with(method: str, data: Path, tmp_path: Path) -> None:
    """All metrics of all clients, two of whom may never have been in a round, to the last bit."""
    _command(["run", method, "--data", str(data), *QUICK, "--out", str(tmp_path / "run")])
    (one,) = restore(tmp_path / "run")
    assert one.trained.progress.round == 3
    now = files.plain(list(adapted(one, ONE, silent).clients))
    for then, row in zip(one.files.clients, now, strict=True):
        assert {k: row[k] for k in then} == then


@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_adapting_later_is_adapting_at_once(method: str, compared: Path) -> None:
    (one,) = restore(compared / method)
    run = adapted(one, TWO, silent)
    assert files.plain(run.summary) == one.files.summary
    assert files.plain(list(run.clients)) == one.files.clients
    told = {"repeats": 1, "tuned": False, "best_alone": False, "largest_difference": 0.0}
    assert recorded(one, run) == told


def test_a_run_under_attack(data: Path, tmp_path: Path) -> None:
    """Who was malicious, and what the honest clients have, as the run said it."""
    asked = {"method": "fedavg", "data": str(data), "clients": 5, "model": "mlp(8)", "rounds": 2}
    asked |= {"baseline": "local(lr=0.1, max_epochs=2)", "adapt": ONE, "partition": "iid"}
    (tmp_path / "a.toml").write_text(files.toml({**asked, "attack": "backdoor(share=0.4)"}))
    _command(["run", str(tmp_path / "a.toml"), "--out", str(tmp_path / "run")])
    (one,) = restore(tmp_path / "run")
    run = adapted(one, ONE, silent)
    assert len(run.summary["attack"]["malicious"]) == 2
    assert files.plain(run.summary) == one.files.summary
    assert files.plain(list(run.clients)) == one.files.clients


def test_the_first_of_several_repeats(command: Command, data: Path) -> None:
    command("run", "fedavg", "--data", str(data), *QUICK, "--repeats", "2", "--out", "run")
    (one,) = restore(Path("run"))
    run = adapted(one, ONE, silent)
    assert run.summary["accuracies"] == one.files.summary["accuracies"][:1]
    code, out, err = command("adapt", "run", "--by", ONE)
    assert (code, err) == (0, "")
    assert "There were 2 repeats, and a folder has the models of the first" in _text(out)
    assert "was tuned" not in out
    assert "differ from those in its folder" not in out


def test_a_tuned_run_is_told_apart(command: Command, data: Path) -> None:
    command("run", "fedavg", "--data", str(data), *QUICK, "--tune", "--out", "run")
    code, out, err = command("adapt", "run", "--by", ONE, "--without")
    assert (code, err) == (0, "")
    assert "its models had learned from the validation data by which clients choose" in _text(out)


def _text(out: str) -> str:
    return " ".join(out.split())


def test_another_machine_is_told_apart(command: Command, folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    result["methods"]["fedavg"]["summary"]["accuracies"][0][2] += 0.25
    (folder / "result.json").write_text(json.dumps(result))
    _, out, _ = command("adapt", str(folder), "--by", ONE)
    assert "fedavg: accuracies differ from those in its folder by up to 25.0 points" in _text(out)


def test_the_command_prints_writes_and_draws(command: Command, compared: Path) -> None:
    words = ["adapt", str(compared), "--by", TWO, "--again", "--without"]
    code, out, err = command(*words, "--json", "found.json", "--picture", "drawn.png")
    assert (code, err) == (0, "")
    found = json.loads(Path("found.json").read_text())
    assert list(found["methods"]) == ["fedavg", "ditto", "choice"]  # in the order compared
    text = _text(out)
    for column in ("before %", "adapted %", "alone %", "by", "test range"):
        assert column in out
    row = found["methods"]["ditto"]["clients"][3]
    shown = [f"{100 * row[k]:.1f}" for k in ("accuracy", "adapted_accuracy", "local_accuracy")]
    assert f"{row['adapted_by']} {row['n_train']} {' '.join(shown)}" in text
    choice = found["methods"]["choice"]["summary"]
    assert f"It comes to {100 * choice['mean']:.1f} % on average" in text
    assert f"{choice['same']} the same, {choice['undecided']} undecided" in text
    assert sum(choice["choice"].values()) == 5
    for name in ("fedavg", "ditto"):
        more = found["more"][name]
        assert f"{100 * more['again']['mean']:.1f}" in out
        assert more["again"]["params_up"] == 5 * found["methods"][name]["summary"]["parameters"]
        assert more["recorded"] == {
            **{"repeats": 1, "tuned": False},
            **{"best_alone": False, "largest_difference": 0},
        }
        assert set(more["without"]) == {"removed", "groups"}
    assert "adapted, then averaged" in out
    assert out.splitlines()[-1] == "Picture: drawn.png"
    _is_a_picture(Path("drawn.png"))


def _is_a_picture(path: Path) -> None:
    from matplotlib.image import imread

    pixels = imread(path)
    assert min(pixels.shape[:2]) >= 600
    colours = {tuple(c) for c in (pixels[::3, ::3, :3] * 255).astype(int).reshape(-1, 3).tolist()}
    assert len(colours) > 20, "nothing was drawn"
    assert path.stat().st_size < 200_000


def test_json_to_stdout_is_nothing_but_json_and_repeats_itself(
    command: Command, folder: Path
) -> None:
    words = ["adapt", str(folder), "--by", ONE, "--json", "-"]
    (_, first, _), (_, second, _) = command(*words), command(*words, "--picture", "p.png")
    assert first == second
    assert set(json.loads(first)["methods"]) == {"fedavg", "choice"}
    assert Path("p.png").exists()


def spoil_result(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        file = folder / "result.json"
        result = json.loads(file.read_text())
        change(result)
        file.write_text(json.dumps(result))

    return spoil


def cut(name: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: len(content) // 2])

    return spoil


def gone(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def other_text(name: str, old: str, new: str) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (gone("settings.toml"), "there is no run in"),
        (
            gone("result.json"),
            "did not finish, as it has no result.json: go on with 'glocal resume",
        ),
        (gone("final.safetensors"), "did not finish, as it has no final.safetensors"),
        (gone("clients.safetensors"), "did not finish, as it has no clients.safetensors"),
        (gone("metrics.jsonl"), "did not finish, as it has no metrics.jsonl"),
        (cut("final.safetensors"), "final.safetensors is damaged"),
        (cut("clients.safetensors"), "clients.safetensors is damaged"),
        (cut("result.json"), "result.json is damaged"),
        (cut("metrics.jsonl"), "do not fit together"),
        (lambda folder: (folder / "metrics.jsonl").write_text(""), "has no rounds"),
        (
            spoil_result(lambda r: r["methods"]["fedavg"]["summary"].pop("accuracies")),
            "do not fit together (KeyError",
        ),
        (spoil_result(lambda r: r.update(schema=2)), "written with schema 2, and this version"),
        (spoil_result(lambda r: r["methods"].clear()), "do not fit together (KeyError"),
        (other_text("settings.toml", "mlp(8)", "mlp(9)"), "does not fit the model and the method"),
        (
            other_text("settings.toml", "seed = 0", "seed = 1"),
            "has changed since (its fingerprint was",
        ),
        (other_text("settings.toml", "[federation]", "[federated]"), "unknown setting 'federated'"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_a_spoilt_folder_is_one_clear_line(
    command: Command, folder: Path, spoil: Callable[[Path], None], says: str
) -> None:
    spoil(folder)
    code, out, err = command("adapt", str(folder), "--by", ONE)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "there is no folder nowhere"),
        (["."], "there is no run in ."),
        (["run", "--by", "finetune"], "did you mean 'fine-tune'"),
        (["run", "--picture", "drawn.jpg"], ".png"),
        (["run", "--json", "."], "is a folder"),
        (["run", "--device", "tpu"], "device 'tpu'"),
        (["run", "--by", "ewc(fisher=public)"], "needs public data"),
    ],
    ids=lambda v: " ".join(v[1:]) if isinstance(v, list) else "",
)
def test_bad_input_is_one_clear_line(
    command: Command, tmp_path: Path, compared: Path, words: list[str], says: str
) -> None:
    if words[0] == "run":
        shutil.copytree(compared / "fedavg", tmp_path / "run")
    code, out, err = command("adapt", *words)
    assert (code, out) == (2, "")
    assert says in err
    assert err.count("\n") == 1


def test_comparisons_that_cannot_be_adapted(
    command: Command, compared: Path, tmp_path: Path
) -> None:
    (alone,) = compared.glob("local*")
    code, _, err = command("adapt", str(alone))
    assert code == 2
    assert "is of local" in err
    copy = Path(shutil.copytree(compared, tmp_path / "copy"))
    other_text("settings.toml", "jobs = 0", "jobs = 1")(copy / "ditto")
    code, _, err = command("adapt", str(copy), "--by", ONE)
    assert code == 2
    assert "have different settings: give their folders one at a time" in err
    (copy / "result.json").unlink()
    code, _, err = command("adapt", str(copy), "--by", ONE)
    assert code == 2
    assert "is no finished comparison" in err
    assert "give the folder of one of its runs, such as" in err


def test_data_that_changed_is_noticed(command: Command, data: Path, tmp_path: Path) -> None:
    shutil.copy(data, tmp_path / "own.npz")
    command("run", "fedavg", "--data", "own.npz", *QUICK, "--out", "run")
    with np.load("own.npz") as before:
        x, y = before["x"].copy(), before["y"]
    x[7] += 1
    np.savez("own.npz", x=x, y=y)
    code, out, err = command("adapt", "run")
    assert (code, out) == (2, "")
    assert "the data of run has changed since" in err


def test_states_of_another_structure_are_refused(compared: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(compared / "ditto", tmp_path / "run"))
    shutil.copy(compared / "fedavg" / "clients.safetensors", copy)
    with pytest.raises(GlocalError, match=r"clients.safetensors is damaged or another"):
        restore(copy)
    checksums.keep(copy, ("clients.safetensors",))
    with pytest.raises(GlocalError, match=r"clients.safetensors does not fit the model"):
        restore(copy)


def test_nobody_or_everybody_may_gain_nothing(
    monkeypatch: pytest.MonkeyPatch, command: Command, folder: Path
) -> None:
    for removed, says in (
        ((), "fedavg: nobody does better alone on validation data"),
        (range(5), "fedavg: everybody does better alone on validation data"),
    ):
        monkeypatch.setattr(further, "gain_nothing", lambda given, alone, r=removed: tuple(r))
        code, out, _ = command("adapt", str(folder), "--by", ONE, "--without")
        assert code == 0
        assert says in _text(out)
    monkeypatch.setattr(further, "gain_nothing", lambda given, alone: (2,))
    _, out, _ = command("adapt", str(folder), "--by", ONE, "--without")
    assert "kept: 4" in out
    assert "removed: 1" in out
    assert "Removed from fedavg: 2." in out


def test_restored_is_on_the_run_s_engine(data: Path, tmp_path: Path) -> None:
    words = ["run", "fedavg", "--data", str(data), *QUICK, "--engine", "sequential"]
    _command([*words, "--out", str(tmp_path / "run")])
    one: Restored = restore(tmp_path / "run")[0]
    assert one.setup.engine.name == "sequential"
