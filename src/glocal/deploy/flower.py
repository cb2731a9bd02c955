"""Flower's programs: how they are called, and in which environment."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError
from glocal.deploy.certificates import MISSING

LINK = "deployment"
"""The name of the connection in Flower's configuration."""

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""Nothing but the federation's own messages leaves a machine."""


def program(name: str) -> str:
    """Where a program of Flower is: beside this interpreter, or on the path."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise GlocalError(MISSING)
    return found


def environment(home: Path) -> dict[str, str]:
    """The environment of Flower's programs: this one, its own folder, and nothing reported."""
    # They start each other by name, and find them where this interpreter's programs are.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return {**os.environ, **QUIET, "PATH": path, "FLWR_HOME": str(home)}


def superlink(
    host: str, port: int, certificates: tuple[Path, Path, Path], database: Path, bundle: Path
) -> list[str]:
    """The server's program: authority, certificate and key; who joins is known by its key.

    Nothing but the app in ``bundle`` is run by it.
    """
    authority, certificate, key = (str(file) for file in certificates)
    return [
        *(sys.executable, "-m", "glocal.deploy.superlink", str(bundle)),
        *("--host", host, "--port", str(port)),
        *("--ssl-ca-certfile", authority, "--ssl-certfile", certificate, "--ssl-keyfile", key),
        *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
        *("--database", str(database)),
    ]


def supernode(address: str, authority: Path, key: Path, port: int, socket: Path) -> list[str]:
    """A participant's program; ``port`` is one of this machine that it talks to itself on."""
    return [
        *(program("flower-supernode"), "--superlink", address),
        *("--root-certificates", str(authority), "--auth-supernode-private-key", str(key)),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--node-config", f'socket="{socket}"'),
    ]


def write_connection(home: Path, address: str, authority: Path) -> None:
    """Tell the ``flwr`` program where the server is."""
    home.mkdir(parents=True, exist_ok=True)
    lines = ("[superlink]", f'default = "{LINK}"', "", f"[superlink.{LINK}]")
    where = f"address = {json.dumps(address)}\nroot-certificates = {json.dumps(str(authority))}\n"
    (home / "config.toml").write_text("\n".join(lines) + "\n" + where)


def call(home: Path, arguments: Sequence[str], limit: float = 120.0) -> Mapping[str, Any]:
    """Run ``flwr`` and return the JSON that it prints; raise with its first line otherwise."""
    command = [program("flwr"), *arguments, "--format", "json"]
    try:
        done = subprocess.run(
            command, env=environment(home), capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired as error:
        raise GlocalError(f"flwr {arguments[0]} took longer than {limit:.0f} s.") from error
    start = done.stdout.find("{")
    try:
        said: Mapping[str, Any] = json.loads(done.stdout[start:]) if start >= 0 else {}
    except json.JSONDecodeError:
        said = {}
    if not said.get("success", False):
        reason = said.get("error-message") or done.stderr or done.stdout
        raise GlocalError(f"flwr {arguments[0]} failed: {str(reason).strip()[-300:]}")
    return said
