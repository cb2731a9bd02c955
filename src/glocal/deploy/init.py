"""``glocal deploy init``: the server's folder, with all that the operator and participants need."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path

from glocal.core import files
from glocal.core.errors import GlocalError
from glocal.deploy import certificates
from glocal.deploy.bundle import write_bundle
from glocal.deploy.flower import write_connection
from glocal.deploy.kit import Kit
from glocal.deploy.node_folder import own_folder
from glocal.deploy.plan import DataSchema, DeployPlan
from glocal.deploy.schema_plan import Plan, SchemaPlan
from glocal.deploy.server_folder import ServerFolder, Settings
from glocal.deploy.texts import SERVER_README, node_unit, server_unit, supernode_unit
from glocal.runs import settings as settings_files


def plan_of(settings_file: Path, results: bool | None = None) -> DeployPlan:
    """The plan of a settings file; its schema is that of the data that the settings name."""
    method, config = settings_files.read(settings_file)
    return DeployPlan(method, config, DataSchema.of(config.federation()), results)


def schema_plan_of(settings_file: Path, least: int, results: bool | None = None) -> SchemaPlan:
    """The plan of a settings file whose schema participants compute together; it needs no data."""
    method, config = settings_files.read(settings_file)
    return SchemaPlan(method, config, least, results)


def make(path: Path, plan: Plan, settings: Settings, days: int) -> ServerFolder:
    """Make the folder of a deployment; one that is there already is refused."""
    _ = settings.patience  # refuses what cannot be waited for
    if path.exists() and any(path.iterdir()):
        raise GlocalError(f"{path} has files in it already: choose another folder.")
    folder = ServerFolder(own_folder(path).absolute())
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
    folder.write_members([])
    write_bundle(folder.bundle)
    # The programs here reach the server by this machine's own address.
    write_connection(folder.flower_home, f"127.0.0.1:{settings.port}", folder.authority)
    write_kit(folder, plan)
    _write(folder.readme, SERVER_README.format(folder=folder.path, address=settings.address))
    files.make_folder(folder.units)
    glocal = Path(sys.executable).with_name("glocal")
    _write(
        folder.units / "glocal-server.service", server_unit(glocal, folder.path, getpass.getuser())
    )
    _write(folder.units / "glocal-node.service", node_unit())
    _write(folder.units / "glocal-supernode.service", supernode_unit())
    return folder


def write_kit(folder: ServerFolder, plan: Plan) -> None:
    """Write what every participant gets."""
    authority = folder.authority.read_text()
    kit = Kit(folder.settings.address, authority, plan.to_json(), plan.digest)
    kit.write(folder.kit_file)


def _write(path: Path, text: str) -> None:
    files.write(path, text.encode())
