"""Studies that go onto a page beside a comparison: curves along λ, and weights over time.

``glocal study mixture`` and ``glocal study weights`` write them with ``--json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.files import plain
from glocal.report.page.markup import clean

MOST = 100
"""Participants, and rounds, of which weights are drawn: evenly spaced where there are more."""

SAME = ("data", "clients", "partition", "seed")
"""What of a study's data must be that of the report, to be about the same federation."""


def with_studies(data: Mapping[str, Any], files: Sequence[Path]) -> dict[str, Any]:
    """The data of a page with what these files hold; it goes to the first folder's part."""
    first, *others = data["groups"]
    found: dict[str, list[Any]] = {"mixtures": [], "weights": []}
    for file in files:
        for kind, each in _read(file).items():
            found[kind] += each
    studied = [each for kind in found.values() for each in kind]
    differing = [k for k in SAME if any(_differs(first["data"], e["data"], k) for e in studied)]
    notes = []
    if differing:
        notes.append(f"The study is of another federation: {', '.join(differing)} differ.")
    studies = {**{k: v for k, v in found.items() if v}, "notes": notes}
    return {**data, "groups": [{**first, "studies": clean(plain(studies))}, *others]}


def _differs(own: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    return key in own and key in other and str(own[key]) != str(other[key])


def _read(file: Path) -> dict[str, list[dict[str, Any]]]:
    try:
        found = json.loads(file.read_bytes())
        if "mixtures" in found:
            return {"mixtures": [_mixture(each) for each in found["mixtures"]]}
        if "weights" in found:
            return {"weights": [_weights(each) for each in found["weights"]]}
    except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise GlocalError(f"--study {file} cannot be read ({error}).") from error
    raise GlocalError(
        f"--study {file} is neither of 'glocal study mixture' nor of 'glocal study weights': these "
        "write such files with --json."
    )


def _mixture(study: Mapping[str, Any]) -> dict[str, Any]:
    """The points of each curve: λ, mean, and the ends of the interval over repeats."""

    def points(split: str, name: str) -> list[list[Any]]:
        values = study[split][name]
        return [
            [lam, *(v[k] for k in ("mean", "low", "high"))]
            for lam, v in zip(study["grid"], values, strict=True)
        ]

    return {
        **{k: study[k] for k in ("method", "rounds", "repeats", "data")},
        **{name: points("test", name) for name in ("accuracy", "loss", "ece")},
        "validation": points("validation", "accuracy"),
    }


def _weights(study: Mapping[str, Any]) -> dict[str, Any]:
    """The weight of each participant before each round."""
    rounds = study["weights"]
    shown = _spaced(range(len(rounds)))
    order = sorted(range(len(study["names"])), key=lambda k: -float(rounds[-1][k]))
    return {
        **{k: study[k] for k in ("method", "data", "clients")},
        "rounds": [t + 1 for t in shown],
        "each": [
            {
                "client": str(study["names"][k]),
                "weights": [float(f"{rounds[t][k]:.4g}") for t in shown],
            }
            for k in _spaced(order)
        ],
    }


def _spaced(these: Sequence[int]) -> list[int]:
    if len(these) <= MOST:
        return list(these)
    return [these[round(i * (len(these) - 1) / (MOST - 1))] for i in range(MOST)]
