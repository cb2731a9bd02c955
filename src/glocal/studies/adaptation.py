"""Clients of a finished run adapt what it left them; and what more could be done with that."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.files import plain
from glocal.core.progress import Report, silent
from glocal.data.schema import needs_classes
from glocal.evaluation.summary import against, client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment.adaptation import techniques
from glocal.experiment.adapted_clients import adapt_clients
from glocal.experiment.best_runner import AloneRepeats
from glocal.experiment.choice import CHOICE, choice
from glocal.experiment.fisher import Public
from glocal.experiment.public_data import check_public
from glocal.experiment.repeat import Repeat, evaluate_trained, struck
from glocal.experiment.result_files import result
from glocal.experiment.run import Run, assembled
from glocal.experiment.runner import Callbacks, baseline_of, run_seed
from glocal.experiment.synthetic import load
from glocal.runs.restore import Restored, restore
from glocal.studies import retraining

CARRIED = (
    "params_up",
    "params_down",
    "bytes_up",
    "bytes_down",
    "params_published",
    "gradient_evaluations",
    "traffic",
    "epsilon",
    "privacy",
)
"""What the run's folder says and its models do not tell."""


def adapt_runs(
    folder: Path,
    by: str = "best",
    *,
    again: bool = False,
    without: bool = False,
    public: Path | None = None,
    device: str | None = None,
    report: Report = silent,
) -> tuple[dict[str, Run], dict[str, dict[str, Any]], dict[str, Any]]:
    """Let the clients of every run in a folder adapt, and choose among what they have.

    Returns:
        The runs and the choice; by method, what else was asked for (``again``: the adapted models
        averaged; ``without``: training without those who do better alone); and all of it as plain
        data.
    """
    if (public is not None) != any(t.public for t in techniques(by)):
        raise GlocalError(
            "--public is for ewc(fisher=public), which --by does not have: add it or leave it out."
            if public is not None
            else "ewc(fisher=public) needs public data: give a file of examples with --public."
        )
    restored = restore(folder, device)
    needs_classes(restored[0].fed, "glocal adapt")
    for run in restored if without else ():
        retraining.among(run.trained.training, (0,))  # raises now if it cannot be trained so
    runs: dict[str, Run] = {}
    more: dict[str, dict[str, Any]] = {}
    for old in restored:
        name = old.files.method
        with old.setup.threads():
            examples = None
            if public is not None:
                examples = check_public(load(public, old.setup.fed), old.setup.fed)
            runs[name] = adapted(old, by, report, keep=again, public=examples)
            more[name] = {"recorded": recorded(old, runs[name])}
            if again:
                more[name]["again"] = averaged_again(old, runs[name])
            if without:
                more[name]["without"] = trained_without(old, runs[name], report)
    first = next(iter(runs.values()))
    everybody = {**runs, CHOICE: choice(runs, restored[0].fed, restored[0].setup.config)}
    about = {"settings": plain(first.settings), "more": plain(more)}
    return everybody, more, {**result(everybody), **about}


def adapted(
    old: Restored, by: str, report: Report, *, keep: bool = False, public: Public | None = None
) -> Run:
    """The run, evaluated again as it stood and after its clients adapted."""
    setup, files, trained = old.setup, old.files, old.trained
    name = files.method
    alone = run_seed(baseline_of(setup.config), setup, Callbacks(report))
    outcome, scores = evaluate_trained(trained, setup.fed)
    where, tick = (setup.task, setup.fed, setup.engine), partial(report, f"{name}, adapting")
    wanted, private = techniques(by), trained.training.plan.stages[0].method.private
    for technique in wanted:
        technique.check(setup.task, public, private=private)
    now = adapt_clients(
        *where,
        wanted,
        trained.models,
        setup.seed,
        public=public,
        private=private,
        keep=keep,
        tick=tick,
    )
    repeat = Repeat(
        outcome,
        scores.value,
        setup.engine.executed,
        adapted=now,
        trained=trained,
        struck=struck(trained.training, setup, trained.models, files.stopped),
    )
    asked = replace(setup, config=replace(setup.config, adapt=by))
    run = assembled(asked, old.fed, name, [repeat], AloneRepeats([alone]))
    run.summary.update({k: files.summary[k] for k in (*CARRIED, "rounds") if k in files.summary})
    return run


def recorded(old: Restored, run: Run) -> dict[str, Any]:
    """How what was measured now compares with what the folder says."""
    then, now = old.files.summary["accuracies"][0], run.summary["accuracies"][0]
    apart = max(abs(a - b) for a, b in zip(then, now, strict=True))
    asked = old.files.settings
    best = "best_alone" in old.files.summary
    more = {"best_alone": best, "largest_difference": apart}
    return {"repeats": asked.repeats, "tuned": asked.tune, **more}


def averaged_again(old: Restored, run: Run) -> dict[str, Any]:
    """The adapted models' average: its figures, and how far it is from what clients had."""
    (repeat,), (alone,) = run.repeats, run.baseline
    models = repeat.adapted.models if repeat.adapted else None
    assert models is not None
    outcome = retraining.again(old.trained, models, old.setup.fed)
    config = old.setup.config
    shares = config.label_share_uncertainty
    trial = Trial(old.fed, outcome, alone.outcome, uncertain_shares=shares)
    rows = client_table([trial], config.same)
    figures = summarise(rows, [trial])
    kept = ("mean", "worst10", "better_off", "worse_off", "same", "undecided", "accuracies")
    return {
        **{k: figures[k] for k in kept},
        "gain": against(figures, run.summary),
        "params_up": len(old.fed) * run.summary["parameters"],
        "clients": [{k: row[k] for k in ("client", "accuracy", "verdict")} for row in rows],
    }


def trained_without(old: Restored, run: Run, report: Report) -> dict[str, Any]:
    """The method without those who do better alone: the new model at them and at the others."""
    (repeat,), (alone,) = run.repeats, run.baseline
    removed = retraining.gain_nothing(repeat.val_score, alone.val_score)
    kept = [k for k in range(len(old.fed)) if k not in removed]
    names = [old.fed.names[k] for k in removed]
    if not removed or not kept:
        return {"removed": names, "groups": {}}
    title, rounds = f"{old.files.method}, without {len(removed)}", old.trained.training.rounds
    new = retraining.without(old.trained, removed, lambda p: report(title, p.round, rounds))
    outcome, _ = evaluate_trained(new, old.setup.fed)
    change = partial(retraining.changed, old.fed, repeat.outcome, outcome)
    return {"removed": names, "groups": {"kept": change(kept), "removed": change(removed)}}
