"""``python -m glocal`` is ``glocal``."""

from glocal.cli import main

main()
