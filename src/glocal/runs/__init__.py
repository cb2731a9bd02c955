"""Run folders: what is written, locked, listed, resumed and read back."""
