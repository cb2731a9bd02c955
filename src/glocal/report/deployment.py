"""A deployment as its operator and its participants see it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from glocal.report.comparison import client_rows
from glocal.report.tables import Cell, paragraphs, show_table


def show_plan(plan: Mapping[str, Any], digest: str, *, sends_results: bool) -> None:
    """Print what a participant is asked to approve, and what leaves its machine."""
    schema, rows = plan["schema"], _settings(plan)
    rows.append(["an example", f"{'×'.join(map(str, schema['shape'])) or 1} features"])
    rows.append(["labels", _labels(schema)])
    columns = (schema.get("preprocessing") or {}).get("columns", [])
    if columns:
        rows.append(["columns", ", ".join(str(column["name"]) for column in columns)])
    if counted := schema.get("counted"):
        by = ", ".join(map(str, counted["clients"]))
        rows.append(["statistics", f"by sums and counts of {by}"])
        rows.append(["missing numbers", f"become {counted['missing_numbers']}"])
    rows.append(["digest", digest])
    show_table(
        ["plan", ""],
        rows,
        "What leaves this machine: once, how many examples you have; in a round, the update of the "
        "shared parameters and what else the method sends, such as a loss; "
        + (
            "where the rounds are evaluated and at the end, each client's metrics."
            if sends_results
            else "no metrics, which stay with you."
        ),
        "What never leaves: rows, predictions, private parameters. Every message is recorded in "
        "audit.jsonl before it leaves.",
        left=2,
    )


def show_schema_plan(plan: Mapping[str, Any], digest: str) -> None:
    """Print what a participant is asked to approve before there is a schema."""
    least, rows = plan["schema"]["least"], _settings(plan)
    rows += [["schema", "to be computed by all participants"], ["digest", digest]]
    show_table(
        ["plan", ""],
        rows,
        "This plan has no schema yet, and nobody trains by it. What leaves this machine: how many "
        "rows have each label; and of your training rows how many there are, the names of the "
        "columns, what each holds and how many of its values are missing, mean and deviation of "
        "its numbers and dates, and how many rows have each of its words.",
        f"Words and labels that fewer than {least} of your rows have are counted together and not "
        f"named, and of fewer than {least} numbers nothing is said. No noise is added to any of "
        "this. What never leaves: rows.",
        "What is sent is kept in your folder (node/counted.json), and recorded in audit.jsonl. The "
        "plan with the schema in it comes in another kit, and you are asked again.",
        left=2,
    )


def _settings(plan: Mapping[str, Any]) -> list[list[Cell]]:
    """The method and the settings of a plan, but for the file that its operator has."""
    settings = sorted(plan["settings"].items())
    named: list[list[Cell]] = [[name, str(value)] for name, value in settings if name != "data"]
    return [["method", str(plan["method"])], *named]


def _labels(schema: Mapping[str, Any]) -> str:
    if schema["target"]["task"] != "classification":
        return str(schema["target"]["task"])
    words = schema.get("label_words")
    return ", ".join(words) if words else f"{schema['classes']} classes"


def show_line(line: Mapping[str, Any]) -> None:
    """Print a round as it ends."""
    rest = {k: v for k, v in line.items() if k not in ("round", "cohort", "seconds", "gradients")}
    about = ", ".join(f"{name} {_short(value)}" for name, value in rest.items())
    seconds = line.get("seconds")
    time = "" if seconds is None else f", {seconds:.1f} s"
    print(f"round {line.get('round')}: {line.get('cohort')} clients{time}; {about}", flush=True)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def show_result(result: Mapping[str, Any]) -> None:
    """Print a row for each client whose metrics are there, and a sentence where none are."""
    clients: Sequence[Mapping[str, Any]] = result["clients"]
    if not clients:
        paragraphs("All rounds are done. Metrics stayed with the participants.")
        return
    show_table(
        *client_rows(clients, result["measured"]),
        "On each client's own test examples: with the model that it got and alone, the difference, "
        "and whether that is more than chance.",
        left=2,
    )


def show_status(found: Mapping[str, Any]) -> None:
    """Print how far a deployment is."""
    rows: list[list[Cell]] = [
        ["state", str(found["state"])],
        ["method", str(found["method"])],
        ["schema", str(found["schema"])],
        ["rounds", f"{found['rounds_done']} of {found['rounds']}"],
        ["clients", ", ".join(found["clients"]) or "none admitted"],
        ["address", str(found["address"])],
        ["bytes sent", str(found["sent_bytes"])],
    ]
    if found["removed"]:
        rows.append(["removed", ", ".join(found["removed"])])
    if "error" in found:
        rows.append(["stopped by", str(found["error"])])
    show_table(["deployment", ""], rows, left=2)
    if found["last"] is not None:
        show_line(found["last"])
    if "result" in found:
        show_result(found["result"])
