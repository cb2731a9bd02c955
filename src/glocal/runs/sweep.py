"""Sweeps: methods trained at every combination of some settings, and one table of all of them.

A *cell* is a method at one combination. Cells that differ in nothing but the method and its own
settings are one comparison, which trains in a pool of processes and shares its local baseline; a
sweep is these comparisons one after the other, each in a folder of its own inside the sweep's.
Killed at any moment, it goes on with the cell it was at, and ends at the same table.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from glocal.core import files, locks, validation
from glocal.core.errors import ClientError, GlocalError, Interrupted, shown
from glocal.core.progress import notes_once, print_note, reporter
from glocal.data.federation import Federation
from glocal.experiment import result_files
from glocal.experiment.choice import check_choice
from glocal.experiment.config import Config, of_group, plain_kinds
from glocal.experiment.config_reading import from_arguments, from_mapping
from glocal.experiment.fit import concluded, train_all
from glocal.experiment.run import Run
from glocal.experiment.runner import Callbacks
from glocal.methods.specs import resolve, with_setting
from glocal.runs import folder as run_folder
from glocal.runs import job, same_data
from glocal.runs.experiment_file import Experiment
from glocal.runs.swept import FIGURES, Sweep, same_value

DEFAULTS: dict[str, Any] = {"diverged": "skip"}
"""A rate at which training diverges is a row of the table, not the end of the sweep."""

FIXED = ("jobs", "track", "checkpoint_every", "keep_checkpoints", "states")
"""Settings that change nothing that comes out, so that there is nothing to vary."""


@dataclass(frozen=True)
class Group:
    """Cells that are one comparison."""

    values: dict[str, Any]
    """The varied settings of the configuration."""
    config: Config
    cells: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The spec of each cell: its ``method`` as it was given, and the varied settings of that."""

    @property
    def label(self) -> str:
        """Its varied settings in words."""
        return ", ".join(f"{k}={v}" for k, v in self.values.items())

    def folder(self, number: int) -> str:
        """The name of its folder."""
        return f"{number:03d}-{result_files.slug(self.label or 'cells')}"


def combinations(over: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Every combination of values; or, of a list, what is in it.

    Args:
        over: a list of values for each name, as in ``{"lr": [0.1, 0.3], "seed": [0, 1]}``, or a
            list of combinations, as in ``[{"lr": 0.1, "rounds": 20}, {"lr": 0.3, "rounds": 10}]``.
    """
    if not isinstance(over, Mapping):
        listed = list(over)
        if not all(isinstance(one, Mapping) for one in listed):
            raise GlocalError("a sweep is over settings: give a name and values for each.")
        if not listed or any(set(one) != set(listed[0]) for one in listed) or not listed[0]:
            raise GlocalError(
                "combinations of a sweep must be one or more, each with the same settings."
            )
        return [dict(one) for one in listed]
    if not over:
        raise GlocalError("there is nothing to sweep over: give a setting and its values.")
    for name, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise GlocalError(
                f"{name} takes a list of values to sweep over, as in [1, 2], not {shown(values)}."
            )
        if len({same_value(value) for value in values}) < len(values):
            raise GlocalError(f"{name} has the same value twice: leave one of them out.")
    return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]


def grouped(asked: Experiment) -> list[Group]:
    """The comparisons of a sweep. A name that is no setting of runs is one of the methods'."""
    specs = list(dict.fromkeys(asked.methods))
    if not specs:
        raise GlocalError("a sweep needs a method: name one or more.")
    beside = (("against", asked.against), ("goal", asked.goal), ("choose", asked.choose))
    for name, wanted in beside:
        if wanted:
            raise GlocalError(f"{name} is of one comparison, and a sweep has many: leave it out.")
    found: dict[tuple[Any, ...], Group] = {}
    for point in combinations(asked.sweep or {}):
        of_runs = {name: value for name, value in point.items() if name in plain_kinds()}
        of_method = {name: value for name, value in point.items() if name not in of_runs}
        for name, value in of_runs.items():
            if name in FIXED:
                raise GlocalError(f"{name} changes nothing that comes out: leave it out.")
            if name == "metric":
                raise GlocalError(
                    "cells of a sweep are measured by one metric: sweep with each by itself."
                )
            given = tuple(value) if isinstance(value, list) else value
            validation.check(name, given, plain_kinds()[name])
        key = tuple((name, same_value(value)) for name, value in of_runs.items())
        if key not in found:
            changed: dict[str, Any] = {
                k: tuple(v) if isinstance(v, list) else v for k, v in of_runs.items()
            }
            found[key] = Group(of_runs, replace(asked.config, **changed))
        for spec in specs:
            cell = spec
            for name, value in of_method.items():
                cell = with_setting(cell, name, value)
            resolve(cell)
            if cell in found[key].cells:
                raise GlocalError(f"{cell} is in the sweep twice: leave one of them out.")
            found[key].cells[cell] = {"method": spec, **of_method}
    for group in found.values():
        check_choice({cell: cell for cell in group.cells}, group.config, choose=False)
    return list(found.values())


@notes_once()
def sweep(
    methods: Iterable[str],
    over: Mapping[str, Any] | Sequence[Mapping[str, Any]],
    fed: Federation | None = None,
    *,
    out: str | Path | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Sweep:
    """Train methods at every combination of some settings.

    Args:
        methods: specs, such as ``"fedavg"``.
        over: a list of values for each setting, of runs (``seed``, ``rounds``, ``model``) or of the
            methods (``lr``, ``epochs``); or a list of combinations.
        fed: the clients' data; loaded as the settings say where it is left out.
        out: a folder to train into. What is there of the same sweep is gone on with.
        progress: show bars: on a terminal by default.
        settings: as of :func:`glocal.fit`; ``diverged`` is ``"skip"`` by default.
    """
    given = {**DEFAULTS, **settings}
    config = from_mapping(given) if fed is None else from_arguments(given)
    asked = Experiment([methods] if isinstance(methods, str) else list(methods), config, sweep=over)
    groups = grouped(asked)
    if out is not None:
        if fed is not None:
            raise GlocalError(
                "a sweep into a folder loads its data itself, to go on with it later: leave the "
                "federation out and say where the data is (data=...), or leave out= out."
            )
        return train(new(asked, Path(out)), asked)
    rows, loader = [], same_data.Loader()
    for group in groups:
        _check_loaded(group, fed)
        clients = fed if fed is not None else loader.load(group.config)
        with reporter(progress) as report:
            rows += _rows(group, _in_memory(group, clients, Callbacks(report)))
    return _swept(groups, rows)


def _in_memory(
    group: Group, clients: Federation, callbacks: Callbacks
) -> dict[str, dict[str, Any]]:
    """The summary of each cell, nothing of which is kept on disk."""
    summaries: dict[str, dict[str, Any]] = {}
    while left := [spec for spec in group.cells if spec not in summaries]:
        done: dict[str, Run] = {}
        try:
            for spec, run in train_all(left, group.config, clients, callbacks):
                done[spec] = run
        except ClientError as error:
            if error.method not in left:
                raise
            summaries[error.method] = {"failed": str(error), "diverged": True}
        concluded(done, clients, group.config, None, False)
        summaries |= {spec: files.plain(run.summary) for spec, run in done.items()}
    return summaries


def _check_loaded(group: Group, fed: Federation | None) -> None:
    of_data = {each.name for each in of_group("Data")}
    if fed is not None and (names := of_data & group.values.keys()):
        raise GlocalError(
            f"{min(names)} says how data is loaded, and here it is: leave the federation out, or "
            "do not vary it."
        )


FILE = "sweep.toml"
"""In the folder of a sweep: what it consists of."""

FAILED = "failed.json"
"""In the folder of a sweep: which cells nobody can train."""


def new(asked: Experiment, out: Path | None) -> Path:
    """The folder of a sweep, with what it consists of; that of the same sweep is gone on with."""
    grouped(asked)  # what cannot be done is refused before there is a folder
    about = {"methods": asked.methods, "sweep": asked.sweep, "settings": asked.config.as_toml()}
    return run_folder.begin(out or run_folder.fresh_name("sweep"), FILE, about, "sweep")


def train(root: Path, asked: Experiment) -> Sweep:
    """Train what is left of a sweep into its folder, and write its table."""
    groups, rows, loader = grouped(asked), [], same_data.Loader(root)
    try:
        with locks.hold(root):
            for number, group in enumerate(groups, 1):
                if len(groups) > 1:
                    print_note(f"{number} of {len(groups)}: {group.label}")
                fed, folder = loader.load(group.config), group.folder(number)
                same_data.check(root, folder, fed, list(group.cells), group.config)
                rows += _rows(group, _trained(root / folder, group, root, fed))
            swept = _swept(groups, rows)
            files.write(root / "results.csv", swept.to_csv().encode())
            files.write(root / "result.json", files.dump(files.plain(swept.result())))
    except GlocalError:
        _tidy(root)
        raise
    run_folder.clear(root)
    return swept


def _tidy(root: Path) -> None:
    """A sweep that could not begin leaves nothing that looks like one."""
    if {path.name for path in root.iterdir()} <= {FILE, same_data.FILE, locks.NAME}:
        for path in list(root.iterdir()):
            path.unlink()
        root.rmdir()


def _trained(path: Path, group: Group, root: Path, fed: Federation) -> dict[str, Any]:
    """The summary of each cell: of those trained before, or now, or what was left of them.

    A cell that no client can train, since its rate is too high, is left out of its comparison.
    """
    while True:
        failed = _failures(root).get(path.name, {})
        left = [spec for spec in group.cells if spec not in failed]
        summaries = {spec: {"failed": why, "diverged": True} for spec, why in failed.items()}
        if not left:
            return summaries
        began = (path / run_folder.COMPARISON).is_file()
        if began and not run_folder.unfinished(path):
            found = result_files.read_result(path / "result.json")["methods"]
            return summaries | {spec: found[spec]["summary"] for spec in left}
        try:
            work = job.left_off(path) if began else job.new(left, group.config, path, "sweep")
            job.train(replace(work, folders={s: work.folders[s] for s in left}), fed)
        except Interrupted as error:
            raise Interrupted(_of_root(error, path, root), error.code) from error
        except GlocalError as error:
            spec = _who_failed(error)
            if spec not in left:
                raise GlocalError(_of_root(error, path, root)) from error
            _leave_out(path, spec, str(error), root)


def _failures(root: Path) -> dict[str, dict[str, str]]:
    """By comparison: the cells that cannot be trained, and why."""
    file = root / FAILED
    found: dict[str, dict[str, str]] = json.loads(file.read_bytes()) if file.is_file() else {}
    return found


def _who_failed(error: BaseException | None) -> str | None:
    """The method whose training failed, if that is what is wrong."""
    while error is not None:
        if isinstance(error, ClientError) and error.method is not None:
            return error.method
        error = error.__cause__
    return None


def _leave_out(path: Path, spec: str, why: str, root: Path) -> None:
    """A comparison goes on without one of its methods."""
    about = path / run_folder.COMPARISON
    if about.is_file():
        known = tomllib.loads(about.read_text(encoding="utf-8"))
        place = known["methods"].index(spec)
        name = known["folders"][place]
        for listed in ("methods", "folders"):
            del known[listed][place]
        files.write(about, files.toml(known).encode())
        shutil.rmtree(path / name, ignore_errors=True)
    failures = _failures(root)
    failures.setdefault(path.name, {})[spec] = why
    files.write(root / FAILED, files.dump(failures))


def _of_root(error: BaseException, path: Path, root: Path) -> str:
    """What to go on with is the sweep, not one of its comparisons."""
    return str(error).replace(f"glocal resume {path}", f"glocal resume {root}")


def _rows(group: Group, summaries: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each cell of a comparison."""
    rows = []
    for spec, about in group.cells.items():
        summary = summaries[spec]
        figures = {name: summary.get(name) for name in ("metric", "lower_is_better", *FIGURES)}
        failed, diverged = summary.get("failed"), bool(summary.get("diverged"))
        rows.append({**about, **group.values, **figures, "diverged": diverged, "failed": failed})
    return rows


def _swept(groups: Sequence[Group], rows: list[dict[str, Any]]) -> Sweep:
    first = next(iter(groups[0].cells.values()))
    names = [*(name for name in first if name != "method"), *groups[0].values]
    counted = {(row.pop("metric"), bool(row.pop("lower_is_better"))) for row in rows}
    known = {about for about in counted if about[0] is not None}  # of cells that did not fail
    if len(known) > 1:
        raise GlocalError("cells are measured by different metrics: sweep over each by itself.")
    return Sweep(tuple(names), rows, *next(iter(known), ()))
