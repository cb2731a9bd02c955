"""A run's lines and figures, passed on to TensorBoard and MLflow as it goes.

Nothing is made before the first line, so that what could not begin leaves nothing behind. A run
that is resumed continues the same log, and rounds that are trained twice are there once. A
tracker that fails on the way is left out with one warning: training goes on.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from glocal.core.errors import GlocalError, unknown
from glocal.core.files import plain
from glocal.core.progress import print_note
from glocal.core.validation import fits

Clients = Sequence[Mapping[str, Any]]

OF_CLIENTS = ("accuracy", "value", "benefit", "adapted_accuracy")
"""Of which columns of the clients' table TensorBoard gets a histogram."""


class Tracker:
    """All trackers of a run as one; a context manager."""

    def __init__(self, sinks: Mapping[str, Sink], warn: Callable[[str], None]) -> None:
        self._sinks = dict(sinks)
        self._warn = warn
        self._finished = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        broken = kind is not None and issubclass(kind, Exception)
        end = "FINISHED" if self._finished else "FAILED" if broken else "KILLED"
        self._each(lambda sink: sink.close(end))

    def line(self, line: Mapping[str, Any]) -> None:
        """A round's line: ``round``, numbers, and ``repeat`` where there are several."""
        self._each(lambda sink: sink.line(line))

    def finish(self, summary: Mapping[str, Any], clients: Clients) -> None:
        """The summary and the clients' rows."""
        self._finished = True
        self._each(lambda sink: sink.finish(summary, clients))

    def _each(self, do: Callable[[Sink], None]) -> None:
        for name, sink in list(self._sinks.items()):
            try:
                do(sink)
            except Exception as error:  # whatever a server or a disk does: training matters more
                del self._sinks[name]
                self._warn(
                    f"{name} no longer takes what happens ({type(error).__name__}: "
                    f"{_reason(error)}); the run goes on without it."
                )


def open_trackers(
    names: Sequence[str],
    folder: Path,
    title: str,
    settings: Mapping[str, Any],
    warn: Callable[[str], None] = print_note,
) -> Tracker:
    """Trackers by name, for the run in a folder; what cannot be used is refused.

    ``tensorboard`` logs in ``folder/tensorboard``; ``mlflow`` to the server that
    ``MLFLOW_TRACKING_URI`` names, else to files in ``folder/mlflow``. A folder that is given again
    goes on where it was. When a tracker fails, ``warn`` is called with a sentence.
    """
    check(names)
    sinks = {name: TRACKERS[name](folder, title, settings) for name in dict.fromkeys(names)}
    return Tracker(sinks, warn)


def check(names: Sequence[str]) -> None:
    """Before anything is made: are there such trackers, and are they installed?"""
    for name in names:
        if name not in TRACKERS:
            raise unknown("tracker", name, TRACKERS)
        package = PACKAGES[name]
        if package == "mlflow":
            # A library for private data does not report on its users by itself.
            os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise GlocalError(
                f"tracking with {name} needs {package}, which is not installed ({error}): "
                f"pip install 'glocal[{name}]'."
            ) from error


class TensorBoard:
    """Event files below ``folder/tensorboard``: ``rounds`` (or ``repeat-1``, …) and ``final``.

    TensorBoard hides what a log has from a step on if a later file begins there, in all of the
    log. So every repeat has a log of its own, and what came of the run too. Events are written and
    flushed here and now: with a thread in between, what it could not write would go unnoticed.
    """

    def __init__(self, folder: Path, title: str, settings: Mapping[str, Any]) -> None:
        self._folder = folder / "tensorboard"
        self._about = {"run": title, **settings}
        self._logs: dict[str, Any] = {}

    def line(self, line: Mapping[str, Any]) -> None:
        """Each number of the line as a scalar at its round."""
        from tensorboardX import summary as made

        name = f"repeat-{line['repeat']}" if "repeat" in line else "rounds"
        found = [made.scalar(tag, value) for tag, value in _numbers(line)]
        self._write(name, int(line["round"]), found)

    def finish(self, summary: Mapping[str, Any], clients: Clients) -> None:
        """Every figure, histograms over clients, and the settings as text."""
        from tensorboardX import summary as made

        found = [made.scalar(f"final/{tag}", value) for tag, value in _numbers(summary)]
        for column in OF_CLIENTS:
            values = [row[column] for row in clients if fits(row.get(column), float)]
            if values:
                found.append(made.histogram(f"clients/{column}", values, bins="auto"))
        rows = [f"| {k} | {v} |" for k, v in self._about.items() if v is not None]
        found.append(made.text("settings", "\n".join(["| setting | |", "| --- | --- |", *rows])))
        self._write("final", int(summary.get("rounds") or 0), found)

    def close(self, end: str) -> None:
        """Close the files."""
        for log in self._logs.values():
            log.close()

    def _write(self, name: str, step: int, found: Sequence[Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event

        log = self._logs.get(name)
        if log is None:
            log = self._logs[name] = self._open(name, 0 if name == "final" else step)
        for one in found:
            log.write_event(Event(wall_time=time.time(), step=step, summary=one))
        log.flush()

    def _open(self, name: str, first: int) -> Any:
        """A new file; if there are others, what they have from this step on is taken back."""
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder = self._folder / name
        folder.mkdir(parents=True, exist_ok=True)
        before = len(list(folder.glob("events.*")))
        # Numbered, as the name has the time in seconds: a file must not take another's place.
        log = EventsWriter(str(folder / "events"), f".{before:04d}")
        if before:
            start = SessionLog(status=SessionLog.START)
            log.write_event(Event(wall_time=time.time(), step=first, session_log=start))
        return log


class MLflow:
    """A run of MLflow; its id is kept in ``folder/mlflow.json``, so that it can go on."""

    def __init__(self, folder: Path, title: str, settings: Mapping[str, Any]) -> None:
        import mlflow

        self._folder = folder
        self._about = {"title": title, **settings}
        self._run = ""
        self._seen: dict[str, int] = {}
        named = mlflow.is_tracking_uri_set()
        self._server: str | None = mlflow.get_tracking_uri() if named else None
        # Their own defaults let a server that is gone stop a run for minutes, and their notes on
        # where to look go to stdout, which may be a pipe for JSON.
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
        if self._server is None:
            # Files need no database. MLflow wants to be asked for them since it has stopped
            # developing that store.
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            return
        try:
            mlflow.MlflowClient(self._server).search_experiments(max_results=1)
        except Exception as error:
            raise GlocalError(
                f"MLflow at {_nameless(self._server)} cannot be used ({_reason(error)}): start it, "
                "or look at MLFLOW_TRACKING_URI."
            ) from error

    def line(self, line: Mapping[str, Any]) -> None:
        """Each number of the line as a metric at its round, those of a repeat by themselves."""
        of = f"/repeat-{line['repeat']}" if "repeat" in line else ""
        self._log({f"{k}{of}": v for k, v in _numbers(line)}, int(line["round"]))

    def finish(self, summary: Mapping[str, Any], clients: Clients) -> None:
        """Every figure as a metric, and the clients' rows as ``clients.json``."""
        self._log(dict(_numbers(summary)), int(summary.get("rounds") or 0))
        self._client.log_dict(self._run, plain({"clients": list(clients)}), "clients.json")

    def close(self, end: str) -> None:
        """Say how it ended, if it ever began."""
        if self._run:
            self._client.set_terminated(self._run, end)

    def _log(self, found: Mapping[str, float], step: int) -> None:
        """What is not there yet: MLflow keeps every value it is given, also of the same step."""
        from mlflow.entities import Metric

        self._begin()
        now = int(time.time() * 1000)
        new = {k: v for k, v in found.items() if self._seen.get(k, -1) < step}
        if new:
            metrics = [Metric(k, float(v), now, step) for k, v in new.items()]
            self._client.log_batch(self._run, metrics=metrics)
            self._seen |= dict.fromkeys(new, step)

    def _begin(self) -> None:
        """The run of this folder, resumed if there is one already."""
        if self._run:
            return
        import mlflow
        from mlflow.entities import Param

        local = (self._folder / "mlflow").absolute().as_uri()
        self._client: Any = mlflow.MlflowClient(self._server or local)
        note = self._folder / "mlflow.json"
        run = self._before(note)
        if run is None:
            run = self._client.create_run(self._experiment(), run_name=self._about["title"])
            note.write_text(json.dumps({"run_id": run.info.run_id}) + "\n", encoding="utf-8")
            about = {k: v for k, v in self._about.items() if k != "title" and v is not None}
            asked = [Param(k, str(v)[:500]) for k, v in about.items()]
            self._client.log_batch(run.info.run_id, params=asked[:100])  # no more at once
        else:
            self._client.update_run(run.info.run_id, status="RUNNING")
            for name in run.data.metrics:
                values = self._client.get_metric_history(run.info.run_id, name)
                self._seen[name] = max((v.step for v in values), default=-1)
        self._run = run.info.run_id

    def _before(self, note: Path) -> Any:
        """The run that was begun here, if this server has it still."""
        from mlflow.exceptions import MlflowException

        try:
            run = self._client.get_run(json.loads(note.read_text(encoding="utf-8"))["run_id"])
        except (OSError, ValueError, KeyError, TypeError):
            return None
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return None
        return run if run.info.lifecycle_stage == "active" else None

    def _experiment(self) -> str:
        """As the environment names it, else ``glocal``."""
        from mlflow.exceptions import MlflowException

        if os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return os.environ["MLFLOW_EXPERIMENT_ID"]
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME") or "glocal"
        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # somebody else made it just now
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


Sink = MLflow | TensorBoard

TRACKERS: dict[str, type[Sink]] = {"mlflow": MLflow, "tensorboard": TensorBoard}

PACKAGES = {"mlflow": "mlflow", "tensorboard": "tensorboardX"}


def _numbers(found: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """What is a finite number; of a list of clients left out, how many they are."""
    for name, value in found.items():
        if name == "left_out" and isinstance(value, list | tuple):
            yield name, len(value)
        elif name not in ("round", "repeat") and fits(value, float):
            yield name, value


def _reason(error: Exception) -> str:
    """What an error says, in a line that is not too long."""
    return _nameless(" ".join(str(error).split()))[:200]


def _nameless(text: str) -> str:
    """Without the name and password that an address may have: they belong in no file."""
    return re.sub(r"//[^/@\s]*@", "//", text)
