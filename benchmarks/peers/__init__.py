"""The parts of ``peers.py``: the cases, the workers, and one small file for each contestant."""
