"""One contestant in a process of its own: ``python -m peers.worker MODULE SETTING FOLDER``.

It is told what to do on its standard input and answers on what was its standard output, which the
contestant's libraries do not get: what they print goes to standard error.
"""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from peers import work


def main() -> None:
    module, setting, folder = sys.argv[1:]
    says = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    turns = work.Turns(sys.stdin, says)
    importlib.import_module(f"peers.{module}").contest(work.load(Path(folder)), setting, turns)


if __name__ == "__main__":
    main()
