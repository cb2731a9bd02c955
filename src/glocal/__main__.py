"""``python -m glocal`` is ``glocal``."""

from glocal.cli.app import main

main()
