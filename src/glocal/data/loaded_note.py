"""What is said, on stderr and once, about a table that was loaded from a file."""

from __future__ import annotations

from pathlib import Path

from glocal.core.progress import note
from glocal.data.federation import Federation
from glocal.data.partition import column_of
from glocal.data.preprocessing.report import rendered


def clients_by(fed: Federation) -> str:
    """What defines the clients."""
    partition = fed.describe.get("partition") or "own ids"
    column = fed.describe.get("client_column")
    if partition != "own ids":
        column = column_of(partition)
    if column is not None:
        return f"by column {column!r}"
    return "by their ids" if partition == "own ids" else f"simulated by {partition}"


def announce(fed: Federation) -> None:
    """Print what defines the clients and what became of the columns, if it is a table."""
    if not fed.columns:
        return
    name = Path(str(fed.describe.get("data", ""))).name
    found = "".join(f"; {each}" for each in fed.describe.get("read", ()))
    plural = "client" if len(fed) == 1 else "clients"
    about = f"{name}: {len(fed.y)} rows of {len(fed)} {plural}, {clients_by(fed)}{found}"
    note(f"{about}\n{rendered(fed.columns)}")
