"""What a page is made from: run folders, read through the functions that list and draw runs.

The data is plain, as JSON holds it: ``groups``, one for each folder, each with its ``methods``
(figures, a row for each client, learning curves), its sentences, and what it takes to run it again.
"""

from __future__ import annotations

import base64
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.files import plain
from glocal.core.version import VERSION
from glocal.experiment.learning_curves import LearningCurves, of_run
from glocal.experiment.result_files import read_result, result
from glocal.experiment.run import Run
from glocal.report.page.markup import clean
from glocal.report.page.sentences import answer, answered, caveats, words
from glocal.report.recorded import Recorded, recorded
from glocal.report.run_listing import state
from glocal.runs import query, sweep, tune
from glocal.runs.curves import in_order, of_folder
from glocal.runs.folder import COMPARISON
from glocal.runs.listing import Listed, find, printable

SCHEMA = 1

LARGEST = 300_000
"""Bytes of a picture that goes into the page."""

ROW = (
    *("client", "n_train", "n_val", "n_test", "value", "local_value", "best_local_value"),
    *("constant_value", "benefit", "estimate", "low", "high", "verdict", "needs", "adapted_value"),
    *("adapted_benefit", "adapted_estimate", "adapted_low", "adapted_high", "adapted_verdict"),
    *("adapted_by", "ece", "mce", "epsilon", "model", "advised"),
)
"""What the page shows of a client."""

OF_CLIENTS = ("accuracies", "values", "pooling", "diverged", "attack", "traffic", "chosen")
"""What of a summary has a figure for each client or layer, or names one: the rows have them."""


def collect(folders: Sequence[Path]) -> dict[str, Any]:
    """What these folders say, as plain data; refuses what is no folder of runs."""
    if not folders:
        raise GlocalError("there is nothing to report: give the folder of a run or a comparison.")
    found = [_group(Path(folder)) for folder in folders]
    runs = [run for run, _ in found]
    groups = [group for _, group in found]
    labels = query.labels(len(groups))
    for label, group in zip(labels, groups, strict=True):
        group["label"] = label
    together = None
    if len(groups) > 1:
        together = {
            "differing": query.differing(runs),
            "incomparable": query.incomparable(runs, labels),
        }
    return _page(groups, together)


def _page(
    groups: Sequence[Mapping[str, Any]], together: Mapping[str, Any] | None
) -> dict[str, Any]:
    data = {"schema": SCHEMA, "glocal": VERSION, "groups": groups, "together": together}
    return dict(clean(plain(data)))


def _group(folder: Path) -> tuple[Listed, dict[str, Any]]:
    """One folder, and a run of it that stands for its settings."""
    if (folder / tune.FILE).is_file():
        raise GlocalError(
            f"{printable(folder)} is a search for settings, of which there is no page: give the "
            "folder of a run, a comparison or a sweep."
        )
    runs, _ = find([folder])
    if not runs:
        raise GlocalError(
            f"there is no run in {printable(folder)}: give a folder that 'glocal run' or 'glocal "
            "compare' has made."
        )
    runs = in_order(folder, runs)
    damaged = next((run for run in runs if run.state == "damaged"), None)
    if damaged is not None and not (folder / "result.json").is_file():
        raise GlocalError(
            f"the run in {damaged.name} cannot be read ({damaged.problem}): train it anew, or "
            "leave its folder out."
        )
    try:
        if (folder / sweep.FILE).is_file():
            return runs[0], _sweep(folder, runs)
        return runs[0], _comparison(folder, runs)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, GlocalError):
            raise
        raise GlocalError(
            f"the files in {printable(folder)} do not fit together ({type(error).__name__}: "
            f"{error}): train anew into another folder."
        ) from error


def _comparison(folder: Path, runs: Sequence[Listed]) -> dict[str, Any]:
    """A comparison, or a single run: the same with one method."""
    several = not (folder / "settings.toml").is_file() and len({r.folder for r in runs}) > 1
    if several and not any((folder / name).is_file() for name in (COMPARISON, "result.json")):
        raise GlocalError(
            f"{printable(folder)} has several runs in it and is no comparison: give the folders of "
            f"those that you want, such as {runs[0].name}."
        )
    found = _result(folder, runs)
    notes: list[str] = []
    curves = {run.method: of_folder(run, notes.append) for run in runs}
    finished = (folder / "result.json").is_file()
    group = _figures(found, curves, {**runs[0].facts.get("federation", {})})
    for run in runs:
        group["methods"].setdefault(run.method, {**NOTHING, "curves": _curves(curves[run.method])})
    return {
        **group,
        "kind": "comparison" if several or len(found["methods"]) > 1 else "run",
        "folder": printable(Path(folder.resolve().name)),
        "state": "finished" if finished else "running" if _running(runs) else "stopped",
        "notes": [*_unfinished(runs, finished), *notes],
        "pictures": {run.method: shown for run in runs if (shown := _picture(run.folder))},
        "again": _again(folder, runs),
    }


def of_runs(runs: Mapping[str, Run]) -> dict[str, Any]:
    """The same of runs that were trained here: nothing of it is in a folder."""
    group = _figures(result(runs), {name: of_run(run) for name, run in runs.items()}, {})
    kind = "comparison" if len(runs) > 1 else "run"
    about: dict[str, Any] = {
        "label": "A",
        "kind": kind,
        "folder": None,
        "state": "finished",
        "notes": [],
    }
    return _page([{**group, **about, "pictures": {}, "again": None}], None)


NOTHING: dict[str, Any] = {"baseline": False, "summary": None, "clients": []}
"""Of a method that is not finished."""


def _figures(
    found: Mapping[str, Any], curves: Mapping[str, LearningCurves], federation: Mapping[str, Any]
) -> dict[str, Any]:
    """What a result says, with the curves of its methods, and the sentences about it."""
    runs = {
        name: recorded(method, curves[name].lines if name in curves else ())
        for name, method in found["methods"].items()
    }
    return {
        "answer": answer(runs),
        "answered": answered(runs),
        "caveats": caveats(runs),
        "data": _about_data({**federation, **found.get("data", {})})
        | {"client_names": _names(runs) if "label_counts" in found.get("data", {}) else []},
        "methods": {
            name: {**_method(run), "curves": _curves(curves.get(name))}
            for name, run in runs.items()
        },
        "participants": found.get("participants", []),
        "words": words(runs),
    }


def _result(folder: Path, runs: Sequence[Listed]) -> dict[str, Any]:
    """The result of all methods; of an unfinished comparison, those of the finished ones."""
    file = folder / "result.json"
    if file.is_file():
        return read_result(file)
    found: dict[str, Any] = {"methods": {}}
    for run in runs:
        if run.state == "finished":
            own = read_result(run.folder / "result.json")
            found["data"] = own.get("data", {})
            found["methods"] |= own["methods"]
    return found


def _running(runs: Sequence[Listed]) -> bool:
    return any(run.state == "running" for run in runs)


def _unfinished(runs: Sequence[Listed], finished: bool) -> list[str]:
    """What is said of runs that are not finished."""
    if finished:
        return []
    each = []
    for run in runs:
        shown = state(run)
        each.append(f"{run.method}: {shown if isinstance(shown, str) else shown[0]}")
    return [f"Not finished; the page shows what there is so far. {'; '.join(each)}."]


def _method(run: Recorded) -> dict[str, Any]:
    """A method's figures, and of each client what the page shows."""
    summary = {k: v for k, v in run.summary.items() if k not in OF_CLIENTS}
    if "adapted" in summary:
        summary["adapted"] = {k: summary["adapted"][k] for k in ("gain", "by")}
    rows = [{k: row[k] for k in ROW if row.get(k) is not None} for row in run.clients]
    return {"baseline": run.is_baseline, "summary": summary, "clients": rows}


def _curves(curves: LearningCurves | None) -> dict[str, Any] | None:
    """The points of each column, and the metric that counts."""
    if curves is None or not curves.metrics:
        return None
    metric = curves.metrics[0]
    columns = ["train_loss", "val_loss", f"val_{metric}", "val_worst10", "val_gini"]
    columns.append(f"central_{metric}")
    points = {
        column: [[p.round, p.mean, p.low, p.high] for p in curves.points(column)]
        for column in columns
    }
    return {
        "metric": metric,
        "lower": curves.lower(metric),
        "repeats": curves.repeats,
        "kept": list(curves.kept),
        "tuned": bool(curves.about.get("tune")),
        "columns": {name: found for name, found in points.items() if found},
    }


def _names(runs: Mapping[str, Recorded]) -> list[str]:
    """The clients' names, in the order of their rows."""
    return [str(row["client"]) for row in next(iter(runs.values())).clients]


def _about_data(known: Mapping[str, Any]) -> dict[str, Any]:
    """Where the data is from."""
    kept = ("data", "n", "classes", "clients", "partition", "transforms", "seed", "client_column")
    about = {k: known[k] for k in (*kept, "fingerprint", "label_counts") if k in known}
    about["name"] = Path(str(known.get("data", ""))).name or "own data"
    return about


def _picture(folder: Path) -> str | None:
    """The contact sheet of synthetic data, if it is there and small."""
    file = folder / "synthetic.png"
    if not file.is_file() or file.stat().st_size > LARGEST:
        return None
    return f"data:image/png;base64,{base64.b64encode(file.read_bytes()).decode()}"


def _again(folder: Path, runs: Sequence[Listed]) -> dict[str, Any] | None:
    """The settings file that runs it again, the command, and the versions that ran."""
    facts = runs[0].facts
    kinds = (
        (folder / sweep.FILE, "glocal sweep sweep.toml"),
        (folder / COMPARISON, "glocal compare comparison.toml"),
        (folder / "settings.toml", "glocal run settings.toml"),
    )
    for file, command in kinds:
        if file.is_file():
            text = file.read_text(encoding="utf-8")
            tomllib.loads(text)
            lines = text.split("\n[chosen]")[0].rstrip("\n").split("\n")
            return {
                "command": command,
                "file": file.name,
                "lines": lines,
                "versions": facts.get("versions", {}),
                "chosen": facts.get("chosen", {}),
            }
    return None


def _sweep(folder: Path, runs: Sequence[Listed]) -> dict[str, Any]:
    """A sweep: its table, and no clients."""
    import json

    file = folder / "result.json"
    found = json.loads(file.read_bytes()) if file.is_file() else {}
    done = sum(run.state == "finished" for run in runs)
    about = f"A sweep over {', '.join(found.get('varied', []))}: " if found else "A sweep: "
    return {
        "kind": "sweep",
        "folder": printable(Path(folder.resolve().name)),
        "state": "finished" if found else "running" if _running(runs) else "stopped",
        "notes": [] if found else [f"Not finished: {done} of {len(runs)} runs so far."],
        "answer": about + (_best_of(found) if found else "nothing can be said yet."),
        "answered": None,
        "caveats": [],
        "data": _about_data(runs[0].facts.get("federation", {})),
        "methods": {},
        "participants": [],
        "words": {},
        "pictures": {},
        "again": _again(folder, runs),
        "sweep": found or None,
    }


def _best_of(found: Mapping[str, Any]) -> str:
    """Which combination validation data chooses for each method."""
    names = [name for name in found["varied"] if name != "seed"]
    each = []
    for row in found["over_seeds"]:
        if row.get("chosen"):
            values = ", ".join(f"{name} = {row[name]}" for name in names)
            each.append(f"{row['method']} with {values}" if values else str(row["method"]))
    return f"validation data chooses {'; '.join(each) or 'nothing'}."
