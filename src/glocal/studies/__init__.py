"""Studies: what happens between all-local and all-global, drawn from trained models.

Each file is one question, answered by a pure function of a federation that returns plain data
(dicts, lists and numbers, as ``--json`` writes them); :mod:`glocal.report.figures` draws it.
"""
