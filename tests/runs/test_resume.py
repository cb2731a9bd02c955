"""Stopped runs go on to the same bits, whatever stopped them; nobody writes where another does."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from stopping import FILES, same, stop_after

from conftest import Command
from glocal.core import interrupts, locks
from glocal.training.checkpoint_files import CheckpointFiles

pytestmark = pytest.mark.usefixtures("few_digits")

ALONE = "local(lr=0.1,max_epochs=3)"
SMALL = f"--clients 8 --partition iid --model mlp(8) --rounds 4 --baseline {ALONE} --jobs 1".split()
SMALL += ["--checkpoint-every", "1"]
STOPPED = [("ditto", signal.SIGINT), ("aux-head(warmup=0,shared=last(1))+pretrain", signal.SIGTERM)]


@pytest.mark.parametrize(("method", "number"), STOPPED)
def test_a_signal_stops_after_the_round_and_says_how_to_go_on(
    command: Command, monkeypatch: pytest.MonkeyPatch, method: str, number: int
) -> None:
    assert command("run", method, *SMALL, "--out", "whole")[0] == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 2, number)
        found, out, err = command("run", method, *SMALL, "--out", "a")
    assert (found, out) == (128 + number, "")
    assert err.splitlines() == [
        "glocal: stopping after this round; once more stops at once.",
        "glocal: stopped; go on with: glocal resume a",
    ]
    assert len(Path("a/metrics.jsonl").read_text().splitlines()) == 2
    assert not Path("a/result.json").exists()
    assert command("resume", "a")[0] == 0
    assert same(Path("whole"), Path("a"))
    assert sorted(p.name for p in Path("a").iterdir()) == sorted([*FILES, "settings.toml"])


def test_a_second_signal_stops_at_once_and_nothing_is_lost(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert command("run", "fedavg", *SMALL, "--out", "whole")[0] == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        note = interrupts._record

        def twice(number: int, frame: Any) -> None:
            note(number, frame)
            note(number, frame)

        patch.setattr(interrupts, "_record", twice)
        code, _, err = command("run", "fedavg", *SMALL, "--out", "a")
    assert code == 130
    assert "glocal resume a" in err
    assert [s.name for s in Path("a/checkpoints/repeat-1").glob("00000003-*")] == []  # not yet
    assert command("resume", "a")[0] == 0
    assert same(Path("whole"), Path("a"))


def test_a_comparison_is_resumed_as_one(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("compare", ALONE, "fedavg", "fedprox(mu=0.1)", "--repeats", "2", "--choose")
    words = (*words, "--against", "fedavg", *SMALL)
    code, table, _ = command(*words, "--out", "whole")
    assert code == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        assert command(*words, "--out", "a")[0] == 130
    code, _, err = command("resume", "a/fedavg")
    assert (code, err.count("\n")) == (2, 1)
    assert "part of a comparison: go on with 'glocal resume a'" in err
    code, again, _ = command("resume", "a")
    assert code == 0
    assert again == table.replace("Run folder: whole", "Run folder: a")
    assert same(Path("whole"), Path("a"), ["result.json", "comparison.toml"])
    for method in ("local_lr=0.1,max_epochs=3", "fedavg", "fedprox_mu=0.1"):
        assert same(Path("whole") / method, Path("a") / method)
    assert not list(Path("a").rglob("checkpoints"))


WAITING = """
import time
from pathlib import Path
import torch

LINES = Path("a/fedavg/metrics.jsonl")

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def forward(self, x):
        while Path("hold").exists() and LINES.exists() and LINES.read_text().count("\\n") > 1:
            time.sleep(0.01)
        if Path("slow").exists():
            time.sleep(0.02)
        return self.layer(x.flatten(1))
"""
"""A model that waits in the third round while there is a file ``hold``, and is slow with one."""


def test_processes_are_stopped_and_resumed_too(command: Command) -> None:
    Path("net.py").write_text(WAITING)
    words = ["compare", "fedavg", "ditto", *SMALL, "--engine", "sequential"]
    words += ["--repeats", "1", "--no-tune"]
    words[words.index("--model") + 1] = "net.py:Net"
    words[words.index("--rounds") + 1] = "8"
    np.savez("few.npz", x=np.random.default_rng(0).normal(size=(200, 64)), y=np.arange(200) % 10)
    words += ["--data", "few.npz", "--partition", "dirichlet(0.3)"]
    assert command(*words, "--out", "whole")[0] == 0
    Path("hold").touch()
    words[words.index("--jobs") + 1] = "2"
    line = [sys.executable, "-m", "glocal", *words, "--out", "a"]
    with subprocess.Popen(
        line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        lines = Path("a/fedavg/metrics.jsonl")
        while process.poll() is None and not (lines.exists() and lines.read_text()):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert "stopping after this round" in process.stderr.readline()
        Path("slow").touch()  # the processes hear of it within a tenth of a second
        Path("hold").unlink()
        _, err = process.communicate()
    assert process.returncode == 130, err
    assert err.splitlines()[-1] == "glocal: stopped; go on with: glocal resume a"
    assert not Path("a/result.json").exists()
    Path("slow").unlink()
    code, _, err = command("resume", "a", "--jobs", "1")
    assert code == 0, err
    assert same(Path("whole"), Path("a"), ["result.json"])
    for method in ("fedavg", "ditto"):
        assert same(Path("whole") / method, Path("a") / method)


@pytest.fixture
def stopped(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Command:
    """A run of fedavg in ``a``, stopped after its third round; undisturbed, in ``whole``."""
    if (once := tmp_path.with_name("stopped-once")).is_dir():  # of this session
        shutil.copytree(once, ".", dirs_exist_ok=True)
        return command
    assert command("run", "fedavg", *SMALL, "--out", "whole")[0] == 0
    with monkeypatch.context() as patch:
        stop_after(patch, 3)
        assert command("run", "fedavg", *SMALL, "--out", "a")[0] == 130
    shutil.copytree(".", once)
    return command


def test_a_damaged_newest_checkpoint_is_noticed_and_the_one_before_it_used(
    stopped: Command,
) -> None:
    newest = max(Path("a/checkpoints/repeat-1").glob("*.safetensors"))
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 4
    newest.write_bytes(content)
    code, _, err = stopped("resume", "a")
    assert code == 0
    assert err.count("\n") == 1
    assert "00000003" in err
    assert "its checksum is wrong" in err
    assert "00000002 is used instead" in err
    assert same(Path("whole"), Path("a"))


def test_without_any_good_checkpoint_a_run_begins_anew(stopped: Command) -> None:
    for file in Path("a/checkpoints").rglob("*.safetensors"):
        file.write_bytes(b"")
    code, _, err = stopped("resume", "a")
    assert code == 0
    assert "begins anew" in err
    assert same(Path("whole"), Path("a"))


def test_what_is_finished_is_finished(stopped: Command) -> None:
    before = {p: p.stat().st_mtime_ns for p in Path("whole").iterdir()}
    code, out, err = stopped("resume", "whole")
    assert (code, err) == (0, "")
    assert "is finished" in out
    assert {p: p.stat().st_mtime_ns for p in Path("whole").iterdir()} == before


def test_what_cannot_be_resumed_is_refused_in_a_sentence(stopped: Command) -> None:
    Path("empty").mkdir()
    shutil.copytree("a", "foreign")
    text = Path("foreign/settings.toml").read_text()
    Path("foreign/settings.toml").write_text(text.replace('"fedavg"', '"fedavg(lr=0.2)"'))
    cases = {
        "nowhere": "there is no folder nowhere",
        "empty": "there is no run in empty",
        "foreign": "of another training",
    }
    for folder, says in cases.items():
        code, out, err = stopped("resume", folder)
        assert (code, out, err.count("\n")) == (2, "", 1), err
        assert says in err
    changed = text.replace('fingerprint = "', 'fingerprint = "0')
    Path("foreign/settings.toml").write_text(changed)
    assert "has changed since" in stopped("resume", "foreign")[2]
    for content in (b"\xff\x00", b"method = 3", b'method = "fedavg"\nrounds = "x"\n', b""):
        Path("foreign/settings.toml").write_bytes(content)
        code, _, err = stopped("resume", "foreign")
        assert (code, err.count("\n")) == (2, 1), err
    for content in (b"\xff", b"methods = 3", b'methods = ["fedavg"]\nfolders = []\nchoose = 1\n'):
        Path("empty/comparison.toml").write_bytes(content)
        code, _, err = stopped("resume", "empty")
        assert (code, err.count("\n")) == (2, 1), err
        assert "comparison.toml is damaged" in err


def test_a_run_killed_before_its_first_file_is_no_run(command: Command) -> None:
    Path("a").mkdir()
    Path("a/.lock").touch()
    Path("a/.settings.toml.part").write_text("meth")
    assert "there is no run in a" in command("resume", "a")[2]
    assert command("run", "fedavg", *SMALL, "--out", "a")[0] == 0
    assert sorted(p.name for p in Path("a").iterdir()) == sorted([*FILES, "settings.toml"])


def test_a_refused_resume_leaves_everything_as_it_was(stopped: Command) -> None:
    file = Path("a/settings.toml")
    good = file.read_text()
    before = Path("a/metrics.jsonl").read_bytes()
    assert before.count(b"\n") == 3
    changes = {
        "rounds = 4": "rounds = 5",
        "seed = 0": "seed = 1",
        'model = "mlp(8)"': 'model = "mlp(9)"',
        'engine = "auto"': 'engine = "auto"\naugment = "flip"',
        'schema = "1"': 'schema = "7"',
    }
    for old, new in changes.items():
        assert old in good
        file.write_text(good.replace(old, new))
        code, out, err = stopped("resume", "a")
        assert (code, out, err.count("\n")) == (2, "", 1), (new, err)
        assert "Then go on" not in err
        assert Path("a/metrics.jsonl").read_bytes() == before
    file.write_text(good)
    assert stopped("resume", "a", "--diverged", "skipp")[0] == 2
    assert stopped("resume", "a")[0] == 0
    assert same(Path("whole"), Path("a"))


def test_a_model_whose_code_changed_is_refused(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 10)
    def forward(self, x):
        return self.layer(torch.relu(x.flatten(1)))
"""
    Path("net.py").write_text(code)
    words = [*SMALL]
    words[words.index("--model") + 1] = "net.py:Net"
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert command("run", "fedavg", *words, "--out", "a")[0] == 130
    Path("net.py").write_text(code.replace("relu", "tanh"))
    found, _, err = command("resume", "a")
    assert (found, "of another training" in err) == (2, True)
    Path("net.py").write_text(code)
    assert command("resume", "a")[0] == 0


def test_damaged_checkpoints_do_not_push_out_new_ones(
    stopped: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in Path("a/checkpoints/repeat-1").glob("*.safetensors"):
        file.write_bytes(b"damaged")
    with monkeypatch.context() as patch:
        stop_after(patch, 2)
        assert stopped("resume", "a")[0] == 130
    found = sorted(p.name[:8] for p in Path("a/checkpoints/repeat-1").glob("*.safetensors"))
    assert found == ["00000001", "00000002"]


def test_figures_of_a_finished_run_are_given_again(stopped: Command) -> None:
    code, out, _ = stopped("resume", "whole", "--json", "-")
    assert code == 0
    assert out.encode() == Path("whole/result.json").read_bytes()
    assert stopped("resume", "whole", "--json", "x.json")[0] == 0
    assert Path("x.json").read_bytes() == Path("whole/result.json").read_bytes()
    Path("whole/result.json").write_text("[]")
    code, _, err = stopped("resume", "whole")
    assert (code, err.count("\n")) == (2, 1)


def test_diverged_is_remembered(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("run", "fedavg(lr=1e30)", *SMALL, "--out", "a")[0] == 2
    code, _, err = command("resume", "a", "--diverged", "skip")
    assert code == 2
    assert "--diverged skip" not in err  # nothing finite is left: that would not help
    assert 'diverged = "skip"' in Path("a/settings.toml").read_text()


@pytest.mark.parametrize("name", ["..", ".", "", "../x", "/x", "a/b", 3])
def test_a_hostile_comparison_reaches_nothing_outside(command: Command, name: Any) -> None:
    Path("host/checkpoints").mkdir(parents=True)
    Path("host/checkpoints/precious.txt").write_text("")
    Path("host/cmp").mkdir()
    shown = f'"{name}"' if isinstance(name, str) else name
    Path("host/cmp/comparison.toml").write_text(
        f'methods = ["fedavg"]\nfolders = [{shown}]\nchoose = false\n[settings]\nrounds = 2\n'
    )
    for finished in (False, True):
        if finished:
            Path("host/cmp/result.json").write_text("{}")
        code, _, err = command("resume", "host/cmp")
        assert (code, err.count("\n")) == (2, 1)
        assert "comparison.toml is damaged" in err
        assert Path("host/checkpoints/precious.txt").exists()


def test_odd_folders_are_one_line(stopped: Command) -> None:
    shutil.copytree("a", "b")
    Path("b/metrics.jsonl").unlink()
    Path("b/metrics.jsonl").mkdir()
    shutil.copytree("a", "c")
    shutil.rmtree("c/checkpoints")
    Path("c/checkpoints").write_text("")
    for folder in ("b", "c"):
        code, _, err = stopped("resume", folder)
        assert (code, err.count("\n")) == (2, 1), err


def test_forged_facts_are_refused(stopped: Command) -> None:
    series = CheckpointFiles(Path("a/checkpoints/repeat-1"))
    kept = series.newest()
    assert kept is not None
    forged = [
        (99, kept.facts),
        (3, {**kept.facts, "history": [1, 2, 3]}),
        (3, {**kept.facts, "history": []}),
        (3, {**kept.facts, "ledger": {"up": [], "down": []}}),
        (3, {**kept.facts, "stage": 7}),
    ]
    for number, facts in forged:
        shutil.rmtree("x", ignore_errors=True)
        shutil.copytree("a", "x")
        shutil.rmtree("x/checkpoints/repeat-1")
        CheckpointFiles(Path("x/checkpoints/repeat-1")).write(number, facts, kept.trees)
        code, _, err = stopped("resume", "x")
        assert (code, err.count("\n")) == (2, 1), err
        assert "does not fit" in err


def test_other_versions_are_told(stopped: Command) -> None:
    file = Path("a/settings.toml")
    file.write_text(file.read_text().replace(f'torch = "{torch.__version__}"', 'torch = "1.0"'))
    code, _, err = stopped("resume", "a")
    assert code == 0
    assert f"torch 1.0 → {torch.__version__}" in err


def test_two_writers_of_one_folder(stopped: Command) -> None:
    with locks.hold(Path("a")):
        for words in (["resume", "a"], ["run", "fedavg", *SMALL, "--out", "a"]):
            code, out, err = stopped(*words)
            assert (code, out, err.count("\n")) == (2, "", 1)
            assert "another process is writing to a" in err
    assert (
        "go on with what is there by 'glocal resume a'"
        in stopped("run", "fedavg", *SMALL, "--out", "a")[2]
    )
