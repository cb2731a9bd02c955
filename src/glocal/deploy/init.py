"""``glocal deploy init``: the server's folder, with all that the operator and participants need."""

from __future__ import annotations

import sys
from pathlib import Path

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.deploy import certificates
from glocal.deploy.bundle import write_bundle
from glocal.deploy.flower import write_connection
from glocal.deploy.kit import Kit
from glocal.deploy.plan import DataSchema, DeployPlan
from glocal.deploy.server_folder import ServerFolder, Settings
from glocal.deploy.texts import SERVER_README, node_unit, server_unit
from glocal.runs import settings as settings_files


def plan_of(settings_file: Path, results: bool | None = None) -> DeployPlan:
    """The plan of a settings file; its schema is that of the data that the settings name."""
    method, config = settings_files.read(settings_file)
    return DeployPlan(method, config, DataSchema.of(config.federation()), results)


def make(path: Path, plan: DeployPlan, settings: Settings, days: int) -> ServerFolder:
    """Make the folder of a deployment; one that is there already is refused."""
    _ = settings.patience  # refuses what cannot be waited for
    if path.exists() and any(path.iterdir()):
        raise GlocalError(f"{path} has files in it already: choose another folder.")
    folder = ServerFolder(files.make_folder(path).absolute())
    folder.private.mkdir(mode=0o700)
    certificates.make_authority(folder.authority_key, folder.authority, days)
    hosts = dict.fromkeys([settings.host, "localhost", "127.0.0.1"])
    certificates.make_server_certificate(
        folder.authority_key,
        folder.authority,
        folder.certificate_key,
        folder.certificate,
        hosts,
        days,
    )
    plan.write(folder.plan_file)
    folder.write_settings(settings)
    folder.write_roster({})
    write_bundle(folder.bundle)
    # The programs here reach the server by this machine's own address.
    write_connection(folder.flower_home, f"127.0.0.1:{settings.port}", folder.authority)
    authority = folder.authority.read_text()
    Kit(settings.address, authority, plan.to_json(), plan.digest).write(folder.kit_file)
    _write(folder.readme, SERVER_README.format(folder=folder.path, address=settings.address))
    files.make_folder(folder.units)
    glocal = Path(sys.executable).with_name("glocal")
    _write(folder.units / "glocal-server.service", server_unit(glocal, folder.path))
    _write(folder.units / "glocal-node.service", node_unit())
    return folder


def _write(path: Path, text: str) -> None:
    files.write(path, text.encode())
