"""What runs in Flower's ServerApp: the rounds, over Flower's Grid, in the deployment's folder."""

from __future__ import annotations

import json
import os
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from glocal.core import files, locks
from glocal.core.errors import GlocalError
from glocal.deploy import audit
from glocal.deploy.flower_transport import FlowerTransport, Grid
from glocal.deploy.plan import DeployPlan
from glocal.deploy.schema_plan import SchemaPlan
from glocal.deploy.server_folder import ServerFolder

FOLDER = "GLOCAL_DEPLOYMENT"
"""The variable of the environment that names the deployment's folder: nodes never see it."""

HANDOVER = 120.0
"""Seconds for a ServerApp that was left behind to end."""


def main(grid: Grid, context: Any) -> None:
    """Run the rounds that are left, and write what they came to.

    What a user has to be told is left in a file: Flower's own logs are no place to look for it.
    """
    folder = ServerFolder(Path(os.environ[FOLDER]))
    with locks.hold(folder.run, wait=HANDOVER):
        try:
            run_what_is_left(folder, grid)
        except GlocalError as error:
            files.write(folder.error_file, f"{error}\n".encode())
            raise
        except Exception:  # such as one of the plan's own code; Flower hides it in its database
            files.make_folder(folder.logs)
            with folder.failures.open("a", encoding="utf-8") as log:
                log.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {traceback.format_exc()}\n")
            raise


def run_what_is_left(folder: ServerFolder, grid: Grid) -> None:
    """The counts of a plan without a schema, or the rounds, unless they are done."""
    plan = folder.plan
    if (folder.schema_file if isinstance(plan, SchemaPlan) else folder.result_file).exists():
        return
    if isinstance(plan, SchemaPlan):
        run_counts(folder, plan, grid)
    else:
        run_rounds(folder, plan, grid)


def run_counts(folder: ServerFolder, plan: SchemaPlan, grid: Grid) -> None:
    """Have the participants compute the schema, and write it."""
    from glocal.deploy.schema_round import counted

    transport = FlowerTransport(grid, folder.audit_file)
    found = counted(plan, transport, folder.admitted(), folder.settings.patience)
    files.write(folder.schema_file, files.dump(found.to_json()))


def run_rounds(folder: ServerFolder, plan: DeployPlan, grid: Grid) -> None:
    """Serve the plan; each line is added to the history with the seconds that it took."""
    from glocal.deploy.serve import serve

    begun = time.monotonic()
    known = {line.get("round"): line["seconds"] for line in audit.read(folder.history_file)}
    folder.history_file.unlink(missing_ok=True)  # lines of a checkpoint come again

    def on_line(line: dict[str, Any]) -> None:
        nonlocal begun
        seconds = known.get(line["round"], round(time.monotonic() - begun, 2))
        begun = time.monotonic()
        with folder.history_file.open("a", encoding="utf-8") as history:
            history.write(json.dumps(files.plain({**line, "seconds": seconds})) + "\n")

    transport = FlowerTransport(grid, folder.audit_file)
    served = serve(
        plan,
        transport,
        folder.admitted(),
        folder.run,
        patience=folder.settings.patience,
        removed=folder.removed,
        on_line=on_line,
    )
    write_result(folder, served)


def write_result(folder: ServerFolder, served: Any) -> None:
    """The model, the rows of the clients that sent one, and the summary."""
    from glocal.core.tensor_files import save_tensors

    save_tensors(folder.path / "model.safetensors", served.model)
    rows = served.rows
    files.write(
        folder.result_file,
        files.dump(files.plain({"summary": served.summary, "clients": rows})),
    )
