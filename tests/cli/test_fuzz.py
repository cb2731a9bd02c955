"""Thousands of random specs and settings files: each is read, or refused in one clear sentence.

Everything is drawn from fixed seeds. What is drawn is partly right, partly right but for a letter,
and partly anything at all; a spread of it goes through the command too.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glocal.core import validation as fields
from glocal.core.errors import GlocalError
from glocal.data.partition import column_of
from glocal.data.transforms import parse as parse_transform
from glocal.experiment.adaptation import TECHNIQUES, techniques
from glocal.experiment.config import Config, plain_kinds
from glocal.methods import registry, resolve
from glocal.runs.settings import read
from glocal.training import attacks

ODD = [
    "",
    " ",
    "é",
    "日本",
    "\x00",
    "\n",
    "\udc80",
    "()",
    "((((",
    "(" * 500,
    "a(" * 100,
    "+",
    "++",
    "=",
    "'",
    '"',
    "nan",
    "inf",
    "-inf",
    "1e999",
    "9" * 400,
    "9" * 5000,
    "-1",
    "0",
    "true",
    "none",
    "1_000",
    "٣",
    "0x10",
    "fedavg(" * 30,
    "a" * 3000,
    "fedavg+" * 50 + "uniform",
    "..",
    "*",
    "fedavg(shared=last(2))",
    "fedavg(schedule=cosine(10))",
    "local(grid=0.1)",
]

METHODS = registry.entries("method")
COMPONENTS = registry.entries(*registry.COMPONENTS)


def value(rng: random.Random, kind: Any) -> str:
    """A value as it is written, of the right kind more often than not."""
    right = {
        float: ["0.1", "1", "1e-3", "0", "-0.5", "1e30", "0.999"],
        int: ["1", "2", "10", "0", "-3", "100000000000"],
        bool: ["true", "false"],
        str: ["normal", "sgd", "central", "step(0.9)", "cosine(5)", "word"],
    }
    for one in right:
        if rng.random() < 0.8 and fields.words(kind) == fields.words(one):
            return rng.choice(right[one])
    return rng.choice([*(v for many in right.values() for v in many), "last(1)", "x(y=z)", *ODD])


def call(rng: random.Random, name: str, make: Any) -> str:
    """A registered name, with some settings of its own."""
    kinds = fields.declared(make)[1]
    some = rng.sample(sorted(kinds), min(len(kinds), rng.choice([0, 0, 1, 1, 2, 3])))
    inside = ", ".join(f"{key}={value(rng, kinds[key])}" for key in some)
    return f"{name}({inside})" if inside else name


def spec(rng: random.Random) -> str:
    """A base and fillers, each with settings."""
    parts = [call(rng, name, METHODS[name].make) for name in rng.sample(sorted(METHODS), 1)]
    for name in rng.sample(sorted(COMPONENTS), rng.choice([0, 0, 1, 1, 2, 3])):
        parts.append(call(rng, name, COMPONENTS[name].make))
    if rng.random() < 0.2:
        parts.pop(0)
    return "+".join(parts or ["fedavg"])


def mutated(rng: random.Random, text: str) -> str:
    """A letter or three taken out, put in, doubled or exchanged."""
    letters = list(text)
    for _ in range(rng.choice([1, 1, 2, 3])):
        at = rng.randrange(len(letters) + 1)
        what = rng.random()
        if what < 0.3:
            del letters[at : at + 1]
        elif what < 0.7:
            letters.insert(at, rng.choice(["(", ")", "=", ",", "+", "'", "é", "0", "-", "\n", "e"]))
        else:
            letters[at : at + 1] = letters[at : at + 1] * 2
    return "".join(letters)


def anything(rng: random.Random) -> str:
    """No spec at all."""
    if rng.random() < 0.5:
        return "".join(rng.choice(ODD) for _ in range(rng.randrange(4)))
    pool = "abc019 .,+-=()'\"\\\n\té日😀\x00[]{}#*_"
    return "".join(rng.choice(pool) for _ in range(rng.randrange(60)))


def text(rng: random.Random) -> str:
    """One of the three."""
    kind = rng.random()
    made = spec(rng)
    return made if kind < 0.4 else mutated(rng, made) if kind < 0.8 else anything(rng)


def outcome(make: Any) -> str | None:
    """None if it was taken, else the sentence that refused it."""
    try:
        make()
    except GlocalError as error:
        said = str(error)
        assert "\n" not in said
        assert said.strip()
        assert len(said) < 2500
        return said
    return None


def test_specs_are_read_or_refused() -> None:
    rng = random.Random(0)
    made = [text(rng) for _ in range(3000)]
    refused = [outcome(lambda m=m: resolve(m)) for m in made]
    assert 300 < refused.count(None) < 1800  # neither kind is rare
    for one, said in zip(made, refused, strict=True):
        if said is None:
            assert resolve(one) is not None


@pytest.mark.parametrize(
    ("names", "make"),
    [
        (attacks.ATTACKS, attacks.parse),
        (TECHNIQUES, techniques),
    ],
    ids=["attacks", "adaptations"],
)
def test_other_specs_are_read_or_refused(names: Any, make: Any) -> None:
    rng = random.Random(1)
    taken = 0
    for _ in range(500):
        name = rng.choice(sorted(names))
        made = call(rng, name, names[name])
        made = mutated(rng, made) if rng.random() < 0.4 else made
        taken += outcome(lambda made=made: make(made)) is None
    assert 50 < taken < 450


TOML_VALUES = [
    "1",
    "-1",
    "0.5",
    "nan",
    "-inf",
    "1e400",
    "9" * 30,
    "9" * 5000,
    "true",
    '"text"',
    '""',
    '"\\u0000"',
    "'''\nlines\n'''",
    "[]",
    "[1, 2]",
    '["a", "b"]',
    "[0.7, 0.1, 0.2]",
    "[0.7, 0.1, nan]",
    "[[[[]]]]",
    "[" * 2000 + "]" * 2000,
    "{a = 1}",
    "1979-05-27",
    "1979-05-27T07:32:00Z",
    "07:32:00",
    "0xff",
    "",
    "=",
]


def toml(rng: random.Random) -> str:
    """A settings file: some right lines, some of the wrong type, some unknown, some no TOML."""
    lines = [] if rng.random() < 0.1 else [f"method = {json.dumps(spec(rng))}"]
    kinds = plain_kinds()
    for name in rng.sample(sorted(kinds), rng.choice([0, 1, 1, 2, 4])):
        if rng.random() < 0.6:
            default = getattr(Config(), name)
            lines.append(f"{name} = {fields.written(default, kinds[name])}")
        else:
            lines.append(f"{name} = {rng.choice(TOML_VALUES)}")
    if rng.random() < 0.15:
        lines.append(f"{rng.choice(['rouds', 'Rounds', 'x', '日', 'a.b'])} = 1")
    if rng.random() < 0.2:
        table = rng.choice(["chosen", "versions", "rounds", "x.y", "[x]", "federation"])
        lines.append(f"[{table}]\nkey = {rng.choice(TOML_VALUES)}")
    made = "\n".join(lines)
    return mutated(rng, made) if rng.random() < 0.2 else made


def use(path: Path) -> None:
    """Everything that can be said about a settings file before its data is loaded."""
    method, settings = read(path)
    resolve(method)
    column_of(settings.partition)
    for change in settings.transforms:
        parse_transform(change)


def test_settings_files_are_read_or_refused(tmp_path: Path) -> None:
    rng = random.Random(2)
    path = tmp_path / "settings.toml"
    taken = 0
    for _ in range(2000):
        path.write_bytes(toml(rng).encode("utf-8", "surrogatepass"))
        said = outcome(lambda: use(path))
        taken += said is None
    assert 150 < taken < 1500


def test_random_bytes_are_no_settings(tmp_path: Path) -> None:
    rng = random.Random(3)
    path = tmp_path / "settings.toml"
    for _ in range(200):
        path.write_bytes(rng.randbytes(rng.randrange(200)))
        assert outcome(lambda: read(path)) is not None


RIGHT = [
    ("spec", "fedavg"),
    ("spec", "ditto(lam=0.5)+uniform"),
    ("spec", "local(max_epochs=1)"),
    ("file", 'method = "fedavg+median"\nfraction = 1\n[versions]\nx = 1'),
]
WRONG = [
    "é日本",
    "\n",
    "a(" * 100,
    "fedavg(" + "9" * 5000 + ")",
    "a" * 3000,
    "fedprox(mu=true)",
    "fedavg(lr=nan)",
    "fedavg(batch_size=99999999999999999999)",
    "fedavg+uniform(3)",
    "fedavg(momentum=2)",
    "nothing.toml",
]


def commands() -> list[tuple[str, str]]:
    """Fifty: most of them wrong, and most of those files."""
    rng = random.Random(4)
    files = [toml(rng) for _ in range(800)]
    wrong = [f for f in files if f.startswith("method") and "rouds" in f][:12]
    wrong += [f for f in files if ("9" * 5000 in f or " = 1979" in f) and "chosen" not in f][:11]
    wrong += [f for f in files if "method" not in f and f not in wrong][:12]
    return [*RIGHT, *(("spec", s) for s in WRONG), *(("file", f) for f in wrong)]


FIFTY = commands()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "small.npz"
    gen = np.random.default_rng(0)
    x = gen.normal(size=(36, 3)).astype("float32")
    np.savez(path, x=x, y=np.arange(36) % 2, client=np.arange(36) % 3)
    return path


QUICK = ["--model", "logistic", "--rounds", "2", "--repeats", "1", "--jobs", "1", "--out", "out"]
QUICK += ["--baseline", "local(lr=0.1, max_epochs=2)"]


def check(at: int, small: Path, run: Callable[[list[str]], tuple[int, str, str]]) -> None:
    """The command ends with 0 and a result, or with 2, one line, and nothing written."""
    kind, made = FIFTY[at]
    if kind == "file":
        Path("s.toml").write_bytes(made.encode("utf-8", "surrogatepass"))
    method = "s.toml" if kind == "file" else made
    code, out, err = run(["run", method, "--data", str(small), *QUICK])
    assert "Traceback" not in err + out
    assert code == (0 if FIFTY[at] in RIGHT else 2), err
    if code == 2:
        assert err.count("\n") == 1
        assert err.startswith("glocal: ")
        assert not Path("out").exists()
    else:
        assert Path("out/result.json").is_file()


@pytest.mark.parametrize("at", range(50))  # FIFTY itself would make unreadable names
def test_the_command_ends_with_0_or_one_line_and_2(at: int, small: Path, command: Any) -> None:
    check(at, small, lambda words: command(*words))


@pytest.mark.parametrize("at", [3, 4])
def test_the_installed_command_does_so_too(
    at: int, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(words: list[str]) -> tuple[int, str, str]:
        line = [sys.executable, "-m", "glocal", *words]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    monkeypatch.chdir(tmp_path)
    check(at, small, installed)
