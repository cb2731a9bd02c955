"""``glocal deploy …``: the same methods between machines, over Flower."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from glocal import report
from glocal.cli.options import folder_of, option, path_option
from glocal.cli.output import JSON, BareJson, deliver
from glocal.core.errors import GlocalError, shown, unknown

if TYPE_CHECKING:
    from glocal.deploy.schema_plan import Plan

app = typer.Typer(
    no_args_is_help=True,
    help="The same methods between machines: a server without data, and participants whose data "
    "stays with them (needs glocal\\[flower]).",
)

DIR = folder_of("The server's folder.", of_run=False)


@app.command()
def init(
    folder: Path = folder_of("The server's folder, which is made.", of_run=False),
    plan: Path = path_option(
        ..., "The settings: a method, its rounds, and data with the columns that everybody has."
    ),
    host: str = option(..., "The name or address by which participants reach this machine."),
    port: int = option(8443, "The port that it listens at.", min=1, max=65535),
    bind: str = option("0.0.0.0", "The address of this machine that it listens at."),
    deadline: float = option(600.0, "Seconds for the answers of a round.", min=1.0),
    quorum: float = option(
        0.5, "The share of a round's clients that must answer in time.", min=0.0, max=1.0
    ),
    joining: float = option(3600.0, "Seconds for all participants to join.", min=1.0),
    days: int = option(365, "How long the certificates hold.", min=1),
    schema: str = option(
        "data",
        "Where a table's categories, means and deviations come from: data (that the settings name) "
        "or federated (participants compute them together, by sums and counts, before the rounds).",
    ),
    min_count: int = option(
        5,
        "With --schema federated: the rows that a category needs at a participant to be named.",
        min=1,
    ),
    results: bool | None = option(
        None,
        "Whether participants send their metrics, or keep them; they keep them by default where "
        "the method is private.",
        "--results/--no-results",
    ),
) -> None:
    """Make the folder of a deployment: plan, certificates, the kit for participants, units.

    Examples:
      glocal deploy init clinic --plan settings.toml --host server.example.org

      glocal deploy init clinic --plan settings.toml --host server.example.org --schema federated
    """
    from glocal.deploy import certificates, init
    from glocal.deploy.server_folder import Settings

    certificates.check_extra()
    settings = Settings(_checked_host(host), port, bind, deadline, quorum, joining)
    if schema not in ("data", "federated"):
        raise unknown("schema", schema, ["data", "federated"])
    made = init.make(
        folder,
        init.plan_of(plan, results)
        if schema == "data"
        else init.schema_plan_of(plan, min_count, results),
        settings,
        days,
    )
    typer.echo(f"Made {folder}. Send {made.kit_file} to the participants; {made.readme} says more.")


@app.command()
def join(
    kit: Path = typer.Argument(..., metavar="KIT", help="The kit.json that the operator sent."),
    data: Path = path_option(..., "Your rows: a .csv, .xlsx, .parquet or .npz file."),
    name: str = option(..., "Your name in the federation.", "--as"),
    folder: Path | None = path_option(None, "Your folder; one of your name here by default."),
    yes: bool = option(False, "Approve the plan without being asked.", "--yes"),
    patience: float | None = option(
        None, "Give up when the server has not let you in after so many seconds.", min=1.0
    ),
    apart: Path | None = path_option(
        None,
        "Let another user run the SuperNode, from this folder, which is yours and of its group.",
    ),
) -> None:
    """Join a deployment: check your data, show the plan, ask for approval, and take part.

    Your rows and your model's private parts stay in this machine. It runs until all rounds are
    done; stopped and started again it goes on.

    Examples:
      glocal deploy join kit.json --data mine.csv --as clinic-a
    """
    from glocal.deploy import certificates, join, status
    from glocal.deploy.schema_plan import SchemaPlan
    from glocal.deploy.server_folder import check_name

    certificates.check_extra()
    if apart is not None and patience is not None:
        raise GlocalError(
            "--patience is how long your own SuperNode waits: leave it out with --apart."
        )
    where = (folder or Path(check_name(name)), kit, data, check_name(name))
    application = join.prepare(*where, lambda files: yes or _runs(files), apart)
    if not join.was_approved(application):
        plan = application.plan
        if application.folder.approved_file.exists():
            changed = " and ".join(join.changes(application))
            _say(f"this is not what you approved before: another is {changed}.")
        _show_plan(plan)
        if not yes and not _approved("Do you approve this plan?"):
            raise GlocalError("the plan was not approved: nothing was sent.")
        if (aside := join.approve(application)) is not None:
            _say(f"what you have of the plan before is in {aside}.")
    typer.echo("The server's operator needs this line for each client, once:")
    for client in application.clients:
        typer.echo(f"  glocal deploy admit DIR '{client}' '{application.public_key}'")
    if apart is not None:
        typer.echo("The other user runs this, as long as it takes:")
        typer.echo(f"  {sys.executable} -m glocal.deploy.apart {application.apart}")
    join.run(application.folder, _say, patience)
    if isinstance(application.plan, SchemaPlan):
        typer.echo(
            f"Your sums and counts were sent; {application.folder.counted_file} has them. The "
            "operator sends another kit, with the schema in it: join again with that one."
        )
        return
    found = status.result(application.folder.result_file, application.plan)
    report.deployment.show_result(found)
    typer.echo(f"Your models, for glocal predict, are in {application.folder.models}.")


@app.command()
def admit(
    folder: Path = DIR,
    name: str = typer.Argument(..., metavar="NAME", help="The client's name."),
    key: str = typer.Argument(..., metavar="KEY", help="Its node's public key, or a file with it."),
) -> None:
    """Let a participant in: from now on this key, and no other, speaks for this client.

    Examples:
      glocal deploy admit clinic clinic-a 'ecdsa-sha2-nistp384 AAAA...'
    """
    from glocal.deploy.admit import admit
    from glocal.deploy.server_folder import ServerFolder

    opened = ServerFolder.opened(folder)
    admit(opened, name, key)
    typer.echo(f"{name} is in: {len(opened.roster())} so far.")


@app.command()
def remove(
    folder: Path = DIR,
    name: str = typer.Argument(..., metavar="NAME", help="The client's name."),
) -> None:
    """Take a participant out: one that leaves, or whose key was lost.

    The next round goes on without it. Its name can be admitted anew, with another key.

    Examples:
      glocal deploy remove clinic clinic-a
    """
    from glocal.core import locks
    from glocal.deploy.admit import remove
    from glocal.deploy.server_folder import ServerFolder

    opened = ServerFolder.opened(folder)
    remove(opened, name)
    typer.echo(f"{name} is out: {len(opened.roster())} are left.")
    if locks.held(opened.path) and not opened.begun:
        typer.echo(f"The server still waits for it: stop glocal deploy up {folder}, and start it.")


@app.command()
def up(
    folder: Path = DIR,
    local: int | None = option(
        None, "Also run so many nodes on this machine, with the data that the plan names.", min=1
    ),
) -> None:
    """Run the server until all rounds are done; interrupted and started again, it goes on.

    Examples:
      glocal deploy up clinic

      glocal deploy up trial --local 3
    """
    from glocal.deploy import certificates, up
    from glocal.deploy.local import run_local
    from glocal.deploy.schema_plan import SchemaPlan
    from glocal.deploy.server_folder import ServerFolder
    from glocal.deploy.status import status

    certificates.check_extra()
    opened = ServerFolder.opened(folder)
    counts = isinstance(opened.plan, SchemaPlan)
    if local is None:
        up.run(opened, _say, report.deployment.show_line)
    else:
        run_local(opened, local, _say, report.deployment.show_line)
    if counts:
        typer.echo(
            f"The schema is in the plan: send {opened.kit_file} to the participants again, who "
            f"approve it with glocal deploy join; then run glocal deploy up {folder} again."
        )
        return
    report.deployment.show_result(status(opened)["result"])


@app.command(cls=BareJson)
def status(folder: Path = DIR, json: Path | None = JSON) -> None:
    """How far a deployment is, from its folder alone.

    Examples:
      glocal deploy status clinic --json
    """
    from glocal.deploy.server_folder import ServerFolder
    from glocal.deploy.status import status

    found = status(ServerFolder.opened(folder))
    deliver(found, json, partial(report.deployment.show_status, found))


def _show_plan(plan: Plan) -> None:
    from glocal.deploy.schema_plan import SchemaPlan

    given, digest = plan.to_json(), plan.digest
    if isinstance(plan, SchemaPlan):
        report.deployment.show_schema_plan(given, digest)
    else:
        report.deployment.show_plan(given, digest, sends_results=plan.sends_results)


def _runs(files: Mapping[str, str]) -> bool:
    """Whether code that a plan names may be run here."""
    for file, digest in files.items():
        typer.echo(
            f"The plan runs {shown(file)} on this machine, as you: read it (sha256 {digest})."
        )
    return _approved("Do you run this code?")


def _approved(question: str) -> bool:
    """What a person answers; nobody is there where nothing is answered."""
    try:
        return typer.confirm(question)
    except typer.Abort:
        raise GlocalError(
            "nobody is here to approve the plan: join by hand once, or give --yes."
        ) from None


def _say(sentence: str) -> None:
    typer.echo(f"glocal: {sentence}", err=True)


def _checked_host(host: str) -> str:
    """A name or an address; anything else would only fail at the participants."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        if re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?", host):
            return host
    raise GlocalError(f"{shown(host)} is no name or address of a machine: write server.org.")
