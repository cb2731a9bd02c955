"""The papers' tables, one file of settings each, and the runner that fills them in."""
