"""Build what is published, look into it, and use it where nothing else is installed.

    python tools/package.py

The sdist and, from it, the wheel are built into dist/, each in an environment of its own without
torch. Both are checked for what belongs into them. The wheel is installed into a new environment
with the versions of constraints.txt and no extras, and commands run there in an empty folder:
those that must work, and some that need an extra, which must say in one sentence how to get it.
"""

from __future__ import annotations

import email
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"

Words = tuple[str, ...]

QUICK: Words = ("--no-tune", "--rounds", "5")

WORKING: tuple[tuple[Words, str], ...] = (
    (("--version",), r"^glocal {version}$"),
    (("doctor",), r"^glocal works here\.$"),
    (("methods", "ditto"), r"^ditto: "),
    (
        (*("compare", "fedavg", "ditto", "--repeats", "1"), *QUICK, "--out", "runs/one"),
        r"^20 clients, \d+ training examples.*",
    ),
    (("report", "runs/one"), r"^Report: runs/one/report\.html$"),
    (("runs",), r"one"),
)
"""What must work with nothing but the wheel and what it needs, and a line of each output."""

WITHOUT_EXTRA: tuple[tuple[Words, str], ...] = (
    (("compare", "--picture", "clients.png"), "plot"),
    (("privacy", "--clients", "100", "--rounds", "10", "--noise", "1"), "privacy"),
    (("run", "fedavg", "--track", "tensorboard", "--rounds", "1"), "tensorboard"),
    (("run", "fedavg", "--jobs", "ray", "--rounds", "1"), "ray"),
    (("data", "table.xlsx"), "excel"),
    (("deploy", "init", "server", "--plan", "plan.toml", "--host", "localhost"), "flower"),
)
"""What needs an extra that is not there."""


def version() -> str:
    """As the source has it, in its only place."""
    text = (ROOT / "src/glocal/core/version.py").read_text(encoding="utf-8")
    found = re.search(r'^VERSION = "(.+)"$', text, re.MULTILINE)
    assert found is not None
    return found[1]


def build(folder: Path) -> tuple[Path, Path]:
    """The sdist, and the wheel made of it, in dist/."""
    shutil.rmtree(DIST, ignore_errors=True)
    python = environment(folder / "build")
    pip(python, "-c", ROOT / "constraints.txt", "build")
    call([python, "-m", "build", "--outdir", DIST, ROOT], "build")
    (sdist,), (wheel,) = DIST.glob("*.tar.gz"), DIST.glob("*.whl")
    return sdist, wheel


def wrong_with_sdist(names: Iterable[str]) -> list[str]:
    """What is missing from a source distribution, by the names in it."""
    inside = {name.partition("/")[2] for name in names}
    wanted = {
        *("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "pyproject.toml"),
        *("constraints.txt", "src/glocal/py.typed", "tests/conftest.py", "examples/README.md"),
    }
    return [f"the sdist has no {name}" for name in sorted(wanted - inside)]


def wrong_with_wheel(names: Iterable[str], metadata: str, readme: str) -> list[str]:
    """What is missing from a wheel or does not belong into it, and what it says of itself."""
    inside, about = set(names), email.message_from_string(metadata)
    info = f"glocal-{version()}.dist-info/"
    source = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src/glocal").rglob("*")
        if file.suffix in (".py", ".css", ".js") or file.name == "py.typed"
    }
    own = {name for name in inside if not name.startswith(info)}
    wrong = [f"the wheel has no {name}" for name in sorted(source - own)]
    wrong += [f"{name} does not belong into the wheel" for name in sorted(own - source)]
    if not any(name.startswith(info) and name.endswith("/LICENSE") for name in inside):
        wrong.append("the wheel has no LICENSE")
    if about["Version"] != version():
        wrong.append(f"the wheel is of version {about['Version']}")
    if about["License-Expression"] != "Apache-2.0":
        wrong.append("the wheel does not say which licence it has")
    if about["Description-Content-Type"] != "text/markdown":
        wrong.append("the README would not be shown as Markdown")
    if str(about.get_payload()).strip() != readme.strip():
        wrong.append("the README of the wheel is another one")
    return wrong


def environment(folder: Path) -> Path:
    """A new virtual environment; its interpreter."""
    venv.create(folder, with_pip=True)
    return folder / "bin" / "python"


def pip(python: Path, *words: object) -> None:
    """Install into an environment."""
    call([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words], "pip")


def call(words: list[object], what: str) -> None:
    """Run a program, or end with what it said."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{what} failed:\n{done.stdout}{done.stderr}")


def glocal(python: Path, folder: Path, words: Words) -> tuple[int, str, str]:
    """Run a command of the wheel in a folder: exit code, stdout, stderr."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "COLUMNS")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    command = [str(python.parent / "glocal"), *words]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def used(wheel: Path, folder: Path) -> list[str]:
    """What goes wrong with the wheel in an empty environment."""
    python, empty = environment(folder / "empty"), folder / "elsewhere"
    constraints = ROOT / "constraints.txt"
    pip(python, "-c", constraints, "torch")
    pip(python, "-c", constraints, wheel)
    empty.mkdir()
    (empty / "table.xlsx").write_bytes(b"PK")
    wrong = []
    for words, line in WORKING:
        code, out, err = glocal(python, empty, words)
        said = re.search(line.replace("{version}", re.escape(version())), out, re.MULTILINE)
        print(f"{code}  glocal {' '.join(words)}")
        if code or said is None:
            wrong.append(f"'glocal {' '.join(words)}' ended with {code}: {out[-500:]}{err[-500:]}")
    for words, extra in WITHOUT_EXTRA:
        code, _, err = glocal(python, empty, words)
        print(f"{code}  glocal {' '.join(words)}: {err.strip()}")
        one = err.count("\n") == 1 and f"glocal[{extra}]" in err
        if code != 2 or not one:
            wrong.append(f"'glocal {' '.join(words)}' without {extra} ended with {code}: {err}")
    return wrong


def main() -> None:
    """Build, check, install and use; the exit code is 1 if anything is wrong."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sdist, wheel = build(folder)
        with tarfile.open(sdist) as archive:
            wrong = wrong_with_sdist(archive.getnames())
        with zipfile.ZipFile(wheel) as archive_:
            metadata = archive_.read(f"glocal-{version()}.dist-info/METADATA").decode()
            readme = (ROOT / "README.md").read_text(encoding="utf-8")
            wrong += wrong_with_wheel(archive_.namelist(), metadata, readme)
        wrong += used(wheel, folder)
    for each in wrong:
        print(f"wrong: {each}", file=sys.stderr)
    if wrong:
        sys.exit(1)
    sizes = [f"{file.name} ({file.stat().st_size / 1e6:.1f} MB)" for file in (sdist, wheel)]
    print(f"{' and '.join(sizes)} in dist/ can be published.")


if __name__ == "__main__":
    main()
