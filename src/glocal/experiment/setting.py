"""How one setting of the configuration is declared."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def setting(
    default: Any, group: str, text: str, *, least: int | None = None, option: str | None = None
) -> Any:
    """Declare one field of the configuration, with its help and the lowest value of a number.

    ``option`` is its name on the command line, where that is another; ``""``: it has none.
    """
    return field(
        default=default, metadata={"group": group, "help": text, "least": least, "option": option}
    )
