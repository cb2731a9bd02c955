"""The app that is submitted to Flower: four short files, without dependencies of its own.

What they do is in the ``glocal`` that is installed where they run, at the server and at each
participant. So nobody runs code that came over the network with the app.
"""

from __future__ import annotations

from pathlib import Path

from glocal.core import files
from glocal.core.version import VERSION

PACKAGE = "glocal_bundle"

_FILES = {
    "pyproject.toml": f"""\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "glocal-bundle"
version = "{VERSION}"
description = "Hands bytes to the glocal that is installed."
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "glocal"

[tool.flwr.app.components]
serverapp = "{PACKAGE}.server:app"
clientapp = "{PACKAGE}.client:app"
""",
    f"{PACKAGE}/__init__.py": '"""Hands bytes to the glocal that is installed."""\n',
    f"{PACKAGE}/client.py": '''\
"""Runs at a participant for every message."""

from flwr.clientapp import ClientApp
from glocal.deploy.shim import handle

app = ClientApp()
app.query()(handle)
''',
    f"{PACKAGE}/server.py": '''\
"""Runs at the server for all rounds."""

from flwr.serverapp import ServerApp
from glocal.deploy.flower_server import main

app = ServerApp()
app.main()(main)
''',
}


def write_bundle(folder: Path) -> None:
    """Write the app's files into a folder."""
    for name, text in _FILES.items():
        files.make_folder((folder / name).parent)
        files.write(folder / name, text.encode())
