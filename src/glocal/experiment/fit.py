"""Train methods on a federation and say, for each client, whether it is better off than alone."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError, shown
from glocal.core.processes import cores
from glocal.core.progress import Report, print_note, reporter
from glocal.data.federation import Federation
from glocal.data.schema import needs_classes
from glocal.evaluation.measures import has_no_value
from glocal.evaluation.summary import against as compared_with
from glocal.experiment import memory_estimate as limits
from glocal.experiment import parallel, without_effect
from glocal.experiment import setup as setups
from glocal.experiment.advice import add_advice
from glocal.experiment.best_alone import left_out_in_words, unavailable
from glocal.experiment.best_runner import AloneRepeats, BestAlone, fits
from glocal.experiment.budget import check_budget, equal
from glocal.experiment.callbacks import NOBODY, Callbacks, Line
from glocal.experiment.choice import CHOICE, check_choice, choice
from glocal.experiment.comparison import Comparison
from glocal.experiment.config import COMPARE_DEFAULTS, DEFAULT_COMPARISON, GROUPS, Config, of_group
from glocal.experiment.config_reading import from_arguments, with_presets
from glocal.experiment.goal import reached, recording
from glocal.experiment.repeat import Repeat
from glocal.experiment.run import Run, assembled
from glocal.experiment.runner import (
    Runner,
    memory_needed,
    run_seeds,
    runner_of,
    set_against,
    tries,
)
from glocal.experiment.search import search
from glocal.experiment.setup import Setup
from glocal.slots.method import Method, Plan
from glocal.training.checkpoint import CheckpointPolicy

MethodLike = str | Method | Plan


def train_all(
    methods: Iterable[MethodLike] | Mapping[str, MethodLike],
    config: Config,
    fed: Federation,
    callbacks: Callbacks = NOBODY,
    *,
    baseline: Iterable[Repeat] = (),
    checkpoints: Mapping[str, CheckpointPolicy] | None = None,
) -> Iterator[tuple[str, Run]]:
    """Train every method, and yield each run as soon as it is done, in the order of ``methods``.

    What cannot be done is refused before anyone trains. ``fed`` is the data as the first repeat
    has it; ``baseline`` is that of all repeats, if it is known from an earlier run; training is
    resumed from each method's ``checkpoints``.
    """
    checkpoints = checkpoints or {}
    by_name = _by_name(methods)
    runners = {name: runner_of(name, method) for name, method in by_name.items()}
    first = setups.make(config, fed, 0)
    jobs, lanes = _jobs_and_lanes(runners, first, checkpoints)
    if config.baseline == "best" and (why := unavailable(fed)) is not None:
        print_note(why)
    if jobs == 1:
        repeats = _in_this_process(runners, first, lanes, callbacks, checkpoints)
    else:
        known = list(baseline)
        repeats = parallel.repeats(
            by_name, runners, fed, first, jobs, lanes, callbacks, checkpoints, known
        )
    told = nothing = False
    for name, of_method, alone in repeats:
        if alone.left_out and not told:
            print_note(left_out_in_words(alone.left_out, len(fed) * config.repeats))
            told = True
        run = assembled(first, fed, name, of_method, alone)
        if not nothing and all(math.isnan(row["value"]) for row in run.clients):
            print_note(has_no_value(first.metric, "test"))
            nothing = True
        yield name, run


def _jobs_and_lanes(
    runners: Mapping[str, Runner], first: Setup, checkpoints: Mapping[str, CheckpointPolicy]
) -> tuple[int, dict[str, int]]:
    """How many processes train, and how many repeats of each method side by side in one.

    What does not fit the machine is refused.
    """
    jobs = parallel.jobs_for(len(runners), first.config, first.small)
    here = min(jobs, cores()) if isinstance(first.config.jobs, str) else jobs  # of a cluster's
    needs = {name: memory_needed(runner, first, here) for name, runner in runners.items()}
    if not first.config.jobs:
        jobs = min(limits.processes(need, jobs) for need in needs.values())
    if any(need and need.disk for need in needs.values()):
        jobs = 1  # who writes the result must have the file that the states are in
    for name, need in needs.items():
        estimate = need and replace(need, processes=min(here, jobs))
        what = name if len(runners) > 1 else "this run"
        limits.check(estimate, first.fed.x.device, what, checkpoints.get(name))
    device, lanes = first.fed.x.device, {}
    for name, need in needs.items():
        most = parallel.share(first.config, len(runners), jobs) * tries(runners[name], first.config)
        lanes[name] = limits.lanes(need and replace(need, processes=min(here, jobs)), device, most)
    return jobs, lanes


def _in_this_process(
    runners: Mapping[str, Runner],
    first: Setup,
    lanes: Mapping[str, int],
    callbacks: Callbacks,
    checkpoints: Mapping[str, CheckpointPolicy],
) -> Iterator[tuple[str, list[Repeat], AloneRepeats]]:
    """Every method's repeats and those of clients alone, one method after another."""
    config = first.config
    every = [first, *(setups.make(config, first.fed, r) for r in range(1, config.repeats))]
    baselines = set_against(config, runners)
    fitted: list[Repeat] = []
    for name, runner in runners.items():
        baseline, kept = baselines[name], checkpoints.get(name)
        with parallel.named(name, len(runners)):
            for setup in every[1:]:
                runner.check(setup)
            of_baseline = run_seeds(baseline, every, callbacks, kept) if baseline else []
            if fits(first) and not fitted:
                fitted = run_seeds(BestAlone(), every, callbacks, kept)
            of_method = of_baseline
            if runner is not baseline:
                of_method = run_seeds(runner, every, callbacks, kept, lanes=lanes[name])
        yield name, of_method, AloneRepeats.of(first, of_baseline, fitted)


def fit(
    method: MethodLike,
    fed: Federation,
    *,
    checkpoints: str | Path | CheckpointPolicy | None = None,
    progress: bool | Report | None = None,
    name: str | None = None,
    on_line: Callable[[Line], None] = lambda line: None,
    **settings: Any,
) -> Run:
    """Train ``method`` on ``fed`` and set every client against its local baseline.

    Args:
        method: a spec such as ``"fedprox(mu=0.1)"``, a Method, or a Plan of stages.
        fed: from :func:`glocal.load` or :func:`glocal.federation`.
        checkpoints: a folder for them (or a :class:`glocal.training.checkpoint.CheckpointPolicy`);
            if it has some of the same call, training is resumed from the newest, to the same bits.
        progress: show bars: on a terminal by default; or a function (what, done, total).
        name: what to call the run; the spec as typed by default.
        tune: beside true and false, lists of values to choose the method's settings from on
            validation data first, as in ``{"lr": [0.03, 0.1], "epochs": [1, 5]}``.
        on_line: called with each round's line of the history.
        settings: {settings}
    """
    _check_federation(fed)
    name = name or (method if isinstance(method, str) else "method")
    space = settings.get("tune")
    if isinstance(space, Mapping):
        settings = {**settings, "tune": False}
    config = from_arguments(with_presets([method], settings, GROUPS[1:]))
    without_effect.check([method], settings)
    if config.track:
        raise GlocalError("fit has no run folder for trackers to follow: see open_trackers.")
    if isinstance(checkpoints, str | Path):
        often = (config.checkpoint_every, config.keep_checkpoints)
        checkpoints = CheckpointPolicy(Path(checkpoints), *often, stop=lambda: False)
    kept = {name: checkpoints} if checkpoints else {}
    with reporter(progress) as report:
        told = Callbacks(report, lambda _, line: on_line(line))
        tuned = None
        if isinstance(space, Mapping):
            if not isinstance(method, str):
                raise GlocalError("settings are chosen for a method that is given by its name.")
            tuned = search(method, space, config, fed, callbacks=told, checkpoints=checkpoints)
            method = tuned.spec
        run = dict(train_all({name: method}, config, fed, told, checkpoints=kept))[name]
        if tuned is not None:
            about = {"rounds": tuned.rounds, "gradients": tuned.gradients}
            run.summary["tuned"] = {**about, "settings": tuned.settings, "spec": tuned.spec}
        return run


def compare(
    methods: Iterable[MethodLike] | Mapping[str, MethodLike] = DEFAULT_COMPARISON,
    fed: Federation | None = None,
    *,
    against: str | None = None,
    choose: bool = False,
    budget: str = "rounds",
    goal: float | None = None,
    progress: bool | Report | None = None,
    on_line: Callable[[str, Line], None] = lambda name, line: None,
    **settings: Any,
) -> Comparison:
    """Train several methods on one federation: who is better off than alone?

    Args:
        methods: specs, or Methods and Plans by the names of their runs.
        fed: the data; by default what the settings ``data``, ``clients``, ``partition`` say.
        against: one of the methods, which the others are set against.
        choose: also show clients that choose among all of these on their validation data.
        budget: what methods have in common: ``"rounds"``, or with ``"equal"`` the gradients of the
            first federated one, to which the others' rounds are fitted
            (:mod:`glocal.experiment.budget`).
        goal: also count rounds, parameters and gradients until this mean validation accuracy, which
            is then recorded after every round (or as ``validate_every`` says).
        progress: show bars: on a terminal by default; or a function (what, done, total).
        on_line: called with a method's name and each round's line of its history.
        settings: {settings}
    """
    methods = _by_name(methods)
    if against is not None and against not in methods:
        raise GlocalError(f"{against} is not among the methods compared: add it to them.")
    if fed is None:
        settings = {**COMPARE_DEFAULTS, **with_presets(methods.values(), settings)}
        config = Config(**settings)
        fed = config.federation()
    else:
        _check_federation(fed)
        settings = with_presets(methods.values(), settings, GROUPS[1:])
        config = from_arguments({**COMPARE_DEFAULTS, **settings})
    if goal is not None:
        needs_classes(fed, "a goal")
    config = recording(config, goal)
    check_choice(methods, config, choose=choose)
    check_budget(budget)
    if budget == "equal":
        matched = equal(methods, config, fed)
        methods = dict(matched.values())
        against = matched[against][0] if against is not None else None
    without_effect.check(methods.values(), settings)
    with reporter(progress) as report:
        done = dict(train_all(methods, config, fed, Callbacks(report, on_line)))
    return Comparison(concluded(done, fed, config, against, choose, goal))


def concluded(
    done: dict[str, Run],
    fed: Federation,
    config: Config,
    against: str | None,
    choose: bool,
    goal: float | None = None,
) -> dict[str, Run]:
    """Add what takes all runs to say: clients that choose, and one method against the others.

    And, where there is a goal, what it took to reach it.
    """
    if goal is not None:
        for run in done.values():
            if not run.is_baseline:
                run.summary["goal"] = reached(run.repeats, goal)
    if len(done) > 1:
        add_advice(done, config.join_cost, config.personalise_cost)
    if choose or (config.adapt is not None and config.baseline != "none"):
        done[CHOICE] = choice(done, fed, config)
    if against is not None:
        for run in done.values():
            difference = compared_with(run.summary, done[against].summary)
            run.summary["against"] = {against: difference}
    return done


def _by_name(methods: Iterable[MethodLike] | Mapping[str, MethodLike]) -> dict[str, MethodLike]:
    if isinstance(methods, Mapping):
        by_name = {str(name): method for name, method in methods.items()}
    else:
        several = [methods] if isinstance(methods, str | Method | Plan) else list(methods)
        by_name = {}
        for number, method in enumerate(several, 1):
            by_name[method if isinstance(method, str) else f"method {number}"] = method
    if not by_name:
        raise GlocalError("there is nothing to compare: name one method or more.")
    return by_name


def _check_federation(fed: object) -> None:
    if not isinstance(fed, Federation):
        raise GlocalError(
            f"{shown(fed)} is no federation: make one with glocal.load('digits') or "
            "glocal.federation(x, y, clients)."
        )


def _documented(function: Callable[..., Any], *groups: str, **defaults: Any) -> None:
    """The settings, one by one, in the signature and the documentation of a function."""
    fields = of_group(*groups)
    values = {each.name: defaults.get(each.name, each.default) for each in fields}
    lines = [f"{each.name} ({values[each.name]!r}): {each.metadata['help']}" for each in fields]
    text = "any of these.\n\n" + "\n".join(f"            {line}" for line in lines)
    function.__doc__ = (function.__doc__ or "").replace("{settings}", text)
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=values[each.name])
        for each in fields
    ]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]


_documented(fit, *GROUPS[1:])
_documented(compare, *GROUPS, **COMPARE_DEFAULTS)
