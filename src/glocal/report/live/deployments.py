"""Deployments as pages: who takes part, how the rounds went, who was refused and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from glocal.report.comparison import client_rows
from glocal.report.live.frame import document
from glocal.report.live.parts import link, progress, shown, texts
from glocal.report.page.markup import Html, join, tag
from glocal.report.page.sections.common import section, table
from glocal.report.tables import plural, some

Deployment = Mapping[str, Any]
"""What ``glocal deploy status`` says, the clients of each node, and the line of every round."""

MOST = 100
"""Rounds that a page lists: the last ones."""


def listed(deployments: Mapping[str, Deployment]) -> Html | None:
    """A table of deployments."""
    if not deployments:
        return None
    rows = []
    for path, found in deployments.items():
        refused = sum(len(line.get("refused", ())) for line in found.get("history", ()))
        rows.append(
            [
                link("deployment", path, "this deployment"),
                _state(found),
                *texts([str(found.get("method", "–"))]),
                Html(str(len(found.get("clients", ())))),
                Html(str(len(found.get("nodes", ())))),
                Html(str(refused)),
                Html(str(len(_quarantined(found)))),
            ]
        )
    head = ["folder", "state", "method", "clients", "nodes", "answers refused", "in quarantine"]
    caption = plural(len(rows), "deployment")
    return section("deployments", "Deployments", table("deployments", caption, head, rows, left=3))


def page(path: str, found: Deployment) -> str:
    """The page of one deployment."""
    name = "Deployment" if path == "." else shown(path)
    if "history" not in found:
        return document(name, tag("p", _state(found), class_="notice"))
    return document(name, _about(found), _clients(found), _rounds(found), _result(found))


def _state(found: Deployment) -> Html:
    return progress(
        str(found["state"]),
        int(found.get("rounds_done", 0)),
        int(found.get("rounds", 0)),
        found.get("problem") or found.get("error"),
    )


def _about(found: Deployment) -> Html:
    facts = {
        "method": str(found["method"]),
        "address": str(found["address"]),
        "plan": str(found["digest"])[:16],
        "sent": f"{found['sent_bytes']:,} bytes",
    }
    entries = [join(tag("dt", name), tag("dd", *texts([text]))) for name, text in facts.items()]
    rounds = f"{found['rounds_done']} of {plural(found['rounds'], 'round')} done"
    return section(
        "about", "How far it is", tag("p", _state(found)), tag("p", rounds), tag("dl", *entries)
    )


def _quarantined(found: Deployment) -> list[str]:
    """The clients that are not asked any more."""
    lines = found.get("history") or [{}]
    return list(map(str, lines[-1].get("quarantined", ())))


def _clients(found: Deployment) -> Html:
    """A row for each client: its node, and how often its answers did not count, and why."""
    history: Sequence[Mapping[str, Any]] = found["history"]
    quarantined, rows = _quarantined(found), []
    nodes = {c: f"node {n}" for n, clients in enumerate(found["nodes"], 1) for c in clients}
    for client in [*nodes, *found.get("removed", ())]:
        refused, absent = (
            Counter(str(line[word][client]) for line in history if client in line.get(word, {}))
            for word in ("refused", "absent")
        )
        state = "in quarantine" if client in quarantined else "admitted"
        state, node = (state, nodes[client]) if client in nodes else ("removed", "–")
        rows.append(texts([client, state, node, _counted(refused), _counted(absent)]))
    head = ["client", "state", "node", "answers refused", "did not answer"]
    note = tag(
        "p",
        "An answer that is not what was asked for is refused and does not count; a client whose "
        "answers are refused three times in a row is in quarantine, and not asked any more.",
        class_="note",
    )
    if not rows:
        return section("clients", "Clients", tag("p", "Nobody was admitted yet."))
    caption = plural(len(rows), "client")
    return section("clients", "Clients", table("clients", caption, head, rows, left=5), note)


def _counted(reasons: Counter[str]) -> str:
    if not reasons:
        return "–"
    told = some([f"{count} × {why}" for why, count in reasons.most_common()], 4)
    return f"{reasons.total()} ({told})" if len(reasons) > 1 else told


def _rounds(found: Deployment) -> Html | None:
    """A row for each of the last rounds."""
    history: Sequence[Mapping[str, Any]] = found["history"]
    if not history:
        return None
    shown_lines = history[-MOST:]
    plain = (int, float)
    columns = [
        name
        for name in dict.fromkeys(name for line in shown_lines for name in line)
        if name != "round" and all(isinstance(line.get(name, 0), plain) for line in shown_lines)
    ]
    rows = []
    for line in reversed(shown_lines):
        numbers = [_number(line.get(name)) for name in columns]
        left_out = [len(line.get(word, ())) for word in ("refused", "absent")]
        rows.append(texts([str(line.get("round", "–")), *numbers, *map(str, left_out)]))
    head = ["round", *(name.replace("_", " ") for name in columns), "refused", "did not answer"]
    caption = plural(len(history), "round")
    if len(history) > MOST:
        caption = f"The last {MOST} of {caption}"
    return section("rounds", "Rounds", table("rounds", caption, head, rows))


def _number(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _result(found: Deployment) -> Html | None:
    """The table of who is better off, as its participants get it."""
    if "result" not in found:
        return None
    clients = found["result"]["clients"]
    if not clients:
        return section("result", "Result", tag("p", "Metrics stayed with the participants."))
    head, cells = client_rows(clients, found["result"]["measured"])
    rows = [texts(row) for row in cells]
    caption = "Each client on its own test examples, with the model that it got and alone"
    return section("result", "Result", table("result", caption, head, rows, left=2))
