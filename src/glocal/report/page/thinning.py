"""What of very many participants and rounds is listed and drawn, so that a page stays small.

Nothing is left out silently: the page says of how many it shows how many, and which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

ROOM = 2_500_000
"""Bytes that participants may take of a page, about."""

LISTED = 100
"""How many are listed, where not all can be: half from either end."""

DRAWN = 300
"""How many are drawn, where not all can be: evenly spaced in the order of their benefit."""

FEWEST = 10
"""So many are listed in any case."""

ROUNDS = 300
"""How many rounds of a learning curve are drawn, where it has more."""

Row = Mapping[str, Any]


def thinned(data: Mapping[str, Any], room: int = ROOM) -> dict[str, Any]:
    """The data with as many participants and rounds as a page has room for."""
    each = room // max(1, len(data["groups"]))
    return {**data, "groups": [_curves_thinned(_thinned(g, each)) for g in data["groups"]]}


def _thinned(group: Mapping[str, Any], room: int) -> dict[str, Any]:
    methods = {n: m for n, m in group["methods"].items() if m["clients"]}
    clients = max((len(m["clients"]) for m in methods.values()), default=0)
    each = 2000 + 3500 * max(1, len(methods))
    if clients <= max(room // each, FEWEST):
        return dict(group)
    listed_most = max(FEWEST, min(LISTED, room // 2 // each)) // 2 * 2
    drawn_most = max(2 * FEWEST, min(DRAWN, room // 3 // (700 * len(methods))))
    lead = methods.get(group["answered"]) or next(iter(methods.values()))
    order = _order(lead["clients"])
    half = listed_most // 2
    listed = sorted([*order[:half], *order[-half:]])
    names = {lead["clients"][k]["client"] for k in listed}
    changed = {
        name: {
            **method,
            "clients": [method["clients"][k] for k in listed],
            "drawn": _spaced(method["clients"], drawn_most),
        }
        for name, method in methods.items()
    }
    said = (
        f"There are {clients:,} participants: this page lists {len(listed)} of them, the {half} "
        f"that gain least with {group['answered'] or next(iter(methods))} and the {half} that gain "
        f"most. Figures draw {min(drawn_most, clients)} of each method, evenly spaced in the order "
        "of their benefit; counts and means are of all. result.json has everybody, and 'glocal "
        "report DIR --participant NAME' makes a page for anybody."
    )
    return {
        **group,
        "methods": {**group["methods"], **changed},
        "participants": [p for p in group["participants"] if p["client"] in names],
        "thinned": [said],
    }


def _order(rows: Sequence[Row]) -> list[int]:
    """Participants from the lowest benefit to the highest; those without one are not among them."""
    known = [k for k, row in enumerate(rows) if row.get("estimate") is not None]
    key = "estimate" if known else "value"
    known = known or [k for k, row in enumerate(rows) if row.get("value") is not None]
    return sorted(known or range(len(rows)), key=lambda k: rows[k].get(key, 0.0))


def _spaced(rows: Sequence[Row], most: int) -> list[Row]:
    """Some rows, evenly spaced in order, both ends among them."""
    order = _order(rows)
    if len(order) <= most:
        return [rows[k] for k in order]
    return [rows[order[round(i * (len(order) - 1) / (most - 1))]] for i in range(most)]


def _curves_thinned(group: Mapping[str, Any]) -> dict[str, Any]:
    """Long learning curves with some of their rounds, both ends and those that were kept."""
    changed, said = {}, list(group.get("thinned", []))
    for name, method in group["methods"].items():
        curves = method.get("curves")
        longest = max(map(len, curves["columns"].values()), default=0) if curves else 0
        if longest <= ROUNDS:
            continue
        columns = {k: _some(v, set(curves["kept"])) for k, v in curves["columns"].items()}
        changed[name] = {**method, "curves": {**curves, "columns": columns}}
        said.append(f"Of {longest:,} evaluated rounds of {name}, about {ROUNDS} are drawn.")
    more = {"thinned": said} if said else {}
    return {**group, "methods": {**group["methods"], **changed}, **more}


def _some(points: Sequence[Any], kept: set[int]) -> list[Any]:
    step, last = -(-len(points) // ROUNDS), len(points) - 1
    return [p for k, p in enumerate(points) if k % step == 0 or k == last or p[0] in kept]
