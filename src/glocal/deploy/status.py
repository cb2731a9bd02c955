"""``glocal deploy status``: how far a deployment is, from the files in its folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from glocal.core import locks
from glocal.deploy import audit
from glocal.deploy.plan import DeployPlan
from glocal.deploy.schema_plan import SchemaPlan
from glocal.deploy.server_folder import ServerFolder
from glocal.evaluation import measures


def status(folder: ServerFolder) -> dict[str, Any]:
    """What stands in the folder: nothing is asked of anybody."""
    plan, lines = folder.plan, audit.read(folder.history_file)
    done = folder.result_file.exists()
    counts = isinstance(plan, SchemaPlan)
    running = locks.held(folder.path)
    state = "done" if done else "running" if running else "stopped" if lines else "not begun"
    found: dict[str, Any] = {
        "state": state,
        "address": folder.settings.address,
        "method": plan.method,
        "digest": plan.digest,
        "rounds": plan.config.rounds,
        "rounds_done": max((line.get("round", 0) for line in lines), default=0),
        "schema": "to be computed by the participants" if counts else "in the plan",
        "clients": list(folder.roster()),
        "removed": folder.removed(),
        "last": lines[-1] if lines else None,
        "sent_bytes": sum(line["bytes"] for line in audit.read(folder.audit_file)),
    }
    if folder.error_file.exists():
        found["error"] = folder.error_file.read_text(encoding="utf-8").strip()
    if done and isinstance(plan, DeployPlan):
        found["result"] = result(folder.result_file, plan)
    return found


def details(folder: ServerFolder) -> dict[str, Any]:
    """The status, the clients of each node, and the line of every round."""
    nodes: dict[str, list[str]] = {}
    for client, key in folder.roster().items():
        nodes.setdefault(key, []).append(client)
    history = audit.read(folder.history_file)
    return {**status(folder), "nodes": list(nodes.values()), "history": history}


def result(file: Path, plan: DeployPlan) -> dict[str, Any]:
    """What is in a file of results, and what its figures are measured by."""
    config, target = plan.config, plan.schema.target
    metric = config.metric or measures.default(target)
    about = {"metric": metric, "lower_is_better": measures.measure(metric, target).lower}
    task = {} if target.classes else {"task": target.task}
    return {**json.loads(file.read_text(encoding="utf-8")), "measured": about | task}
