"""Settings of methods chosen on validation data, into a folder: begun, gone on with, put away.

Every method has as many candidates and steps as the others, so that none is better for having been
searched longer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from glocal.core import files, interrupts, locks
from glocal.core.errors import GlocalError, Interrupted
from glocal.core.progress import notes_once, reporter
from glocal.data.federation import Federation
from glocal.experiment import result_files
from glocal.experiment.callbacks import Callbacks
from glocal.experiment.config import Config
from glocal.experiment.config_reading import from_arguments, from_mapping
from glocal.experiment.search import Tuned, candidates, search
from glocal.methods.presets import base_name
from glocal.runs import folder as run_folder
from glocal.runs import same_data
from glocal.runs.experiment_file import Experiment, read
from glocal.runs.settings import toml
from glocal.training.checkpoint import CheckpointPolicy

FILE = "tune.toml"
"""In the folder of a search: what it consists of."""

Space = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class Search:
    """Methods whose settings are chosen, and from what."""

    methods: list[str]
    space: dict[str, list[Any]]
    config: Config
    trials: int | None = None


@notes_once()
def tune(
    method: str,
    space: Space,
    fed: Federation | None = None,
    *,
    trials: int | None = None,
    progress: bool | None = None,
    **settings: Any,
) -> Tuned:
    """Choose settings of a method on validation data, by successive halving.

    Args:
        method: a spec, such as ``"fedprox"``, without the settings that are chosen.
        space: a list of values for each setting, as in ``{"lr": [0.03, 0.1], "mu": [0.01, 0.1]}``.
        fed: the clients' data; loaded as the settings say where it is left out.
        trials: how many combinations are tried, drawn by the seed; all of them by default.
        progress: show bars: on a terminal by default.
        settings: as of :func:`glocal.fit`; of several ``repeats`` the mean counts.
    """
    config = from_mapping(settings) if fed is None else from_arguments(settings)
    clients = fed if fed is not None else config.federation()
    with reporter(progress) as report:
        told = Callbacks(report)
        return search(method, space_of(method, space), config, clients, most=trials, callbacks=told)


def space_of(method: str, space: Space) -> dict[str, Sequence[Any]]:
    """What a method chooses from: what all do, and what is named as its own (``fedprox.mu``)."""
    base, own = base_name(method), {}
    for name, values in space.items():
        of, dot, setting = name.rpartition(".")
        if not dot or of == base:
            own[setting] = values
    return own


def new(asked: Search, out: Path | None) -> Path:
    """The folder of a search, with what it consists of; that of the same one is gone on with."""
    _trials(asked)  # what cannot be done is refused before there is a folder
    about = {
        "methods": asked.methods,
        "trials": asked.trials,
        "sweep": asked.space,
        "settings": asked.config.as_toml(),
    }
    return run_folder.begin(out or run_folder.fresh_name("tune"), FILE, about, "search")


def left_off(root: Path) -> Search:
    """The search that began in a folder."""
    about = toml(root / FILE)
    return of_file(read(root / FILE, {}, {}), about.get("trials"))


def of_file(asked: Experiment, trials: int | None) -> Search:
    """The search that a file describes: its ``[sweep]`` is the space."""
    if not isinstance(asked.sweep, Mapping):
        raise GlocalError("a search needs a table [sweep] of lists to choose from.")
    return Search(asked.methods, dict(asked.sweep), asked.config, trials)


def train(root: Path, asked: Search) -> dict[str, Tuned]:
    """Search what is left to search, and write what was chosen."""
    most, config, done = _trials(asked), asked.config, {}
    with locks.hold(root):
        fed = same_data.Loader(root).load(config)
        same_data.check(root, ".", fed, asked.methods, config)
        try:
            with interrupts.graceful(), reporter(None) as report:
                for method in asked.methods:
                    folder = root / run_folder.CHECKPOINTS / result_files.slug(method)
                    policy = CheckpointPolicy(
                        folder, config.checkpoint_every, config.keep_checkpoints
                    )
                    done[method] = search(
                        method,
                        space_of(method, asked.space),
                        config,
                        fed,
                        most=most,
                        callbacks=Callbacks(report),
                        checkpoints=policy,
                    )
        except KeyboardInterrupt as error:
            message = f"stopped; go on with: glocal resume {root}"
            raise Interrupted(message, interrupts.exit_code()) from error
        files.write(root / "result.json", files.dump(files.plain(result(done))))
    run_folder.clear(root)
    return done


def result(done: Mapping[str, Tuned]) -> dict[str, Any]:
    """What ``--json`` writes."""
    methods = {name: dataclasses.asdict(tuned) for name, tuned in done.items()}
    return {"schema": result_files.SCHEMA, "methods": methods}


def _trials(asked: Search) -> int:
    """As many candidates for every method."""
    if not asked.methods:
        raise GlocalError("a search needs a method: name one or more.")
    named = {base_name(method) for method in asked.methods}
    for name in asked.space:
        of, dot, _ = name.rpartition(".")
        if dot and of not in named:
            raise GlocalError(f"{name} is a setting of {of}, which is not among the methods.")
    each = []
    for method in asked.methods:
        space = space_of(method, asked.space)
        candidates(method, space, asked.trials, asked.config.seed)
        each.append(math.prod(len(values) for values in space.values()))
    return min([*each, *([asked.trials] if asked.trials else [])])
