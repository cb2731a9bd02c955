"""The page of one participant: its own figures, to be handed to it, and nothing of anybody else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from glocal.core.errors import GlocalError, unknown
from glocal.report.legend import meaning

OF_FEDERATION = ("metric", "lower_is_better", "task", "repeats", "clients", "estimate", "covers")
"""What of a summary says nothing of other participants."""


def alone(data: Mapping[str, Any], participant: str) -> dict[str, Any]:
    """The data of one participant: its rows and sentences, and nothing of anybody else.

    Means and counts go too: of few participants they would tell what the others have.
    """
    names = dict.fromkeys(
        str(row["client"])
        for group in data["groups"]
        for method in group["methods"].values()
        for row in method["clients"]
    )
    if not names:
        raise GlocalError(
            "there is no participant in these folders yet: wait until a run is finished."
        )
    if participant not in names:
        raise unknown("participant", participant, list(names))
    groups = [_alone(group, participant) for group in data["groups"]]
    return {
        **{k: data[k] for k in ("schema", "glocal")},
        "together": None,
        "participant": participant,
        "groups": [group for group in groups if group is not None],
    }


def _alone(group: Mapping[str, Any], participant: str) -> dict[str, Any] | None:
    methods = {}
    for name, method in group["methods"].items():
        rows = [row for row in method["clients"] if str(row["client"]) == participant]
        if rows and method["summary"] is not None:
            methods[name] = {**method, "clients": rows, "curves": None}
    if not methods:
        return None
    first = next(iter(methods.values()))
    offered = [
        m for m in methods.values() if not m["baseline"] and m["summary"]["benefit"] is not None
    ]
    legend = meaning(_without_counts((offered or [first])[0]["summary"]))
    said = [p for p in group["participants"] if p["client"] == participant]
    for method in methods.values():
        method["summary"] = _own_summary(method["summary"])
    unknown_alone = f"{participant}: nobody is set against being alone."
    return {
        **{k: group[k] for k in ("label", "kind", "state")},
        "folder": None,
        "notes": [],
        "caveats": [],
        "answer": said[0]["sentence"] if said else unknown_alone,
        "answered": None,
        "data": {k: group["data"][k] for k in ("name", "clients") if k in group["data"]},
        "methods": methods,
        "participants": said,
        "words": {"legend": legend},
        "pictures": {},
        "again": None,
    }


def _without_counts(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary without how often others chose what they have alone."""
    kept = {k: v for k, v in summary.items() if k != "best_alone"}
    return kept | ({"best_alone": {}} if "best_alone" in summary else {})


def _own_summary(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What is needed to write the participant's figures."""
    about = {k: summary[k] for k in OF_FEDERATION if k in summary}
    # Which decimals are shown depends on the size of the mean, and on nothing else of it.
    size = summary.get("mean")
    rounded = float(f"{size:.0e}") if size and summary.get("task") else None
    return {**about, "benefit": None if summary["benefit"] is None else 0.0, "mean": rounded}
