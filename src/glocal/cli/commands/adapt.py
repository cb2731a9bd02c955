"""``glocal adapt``: clients of a finished run adapt what it left them, from its folder."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.commands.studies import Picture
from glocal.cli.options import Json, usable
from glocal.core.errors import GlocalError

if TYPE_CHECKING:
    from glocal.core.progress import Report
    from glocal.experiment.adaptation import Public
    from glocal.experiment.run import Run
    from glocal.report.tables import Cell
    from glocal.runs.restore import Restored

COLOUR = {"better off": "green", "worse off": "bold red", "undecided": "dim"}

CARRIED = ("params_up", "params_down", "params_published", "traffic", "epsilon", "privacy")
"""What the run found and its models do not tell."""


def adapt(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder of a run, or of a comparison with several runs in it.",
            callback=usable,
        ),
    ],
    by: Annotated[
        str,
        typer.Option(
            help="How clients adapt: fine-tune, freeze-base, ewc, distill, with settings and "
            "joined by +, or best (all of them, and of those each client's best).",
        ),
    ] = "best",
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Also average the adapted models, and judge that one model everywhere."
        ),
    ] = False,
    without: Annotated[
        bool,
        typer.Option(
            "--without",
            help="Also train anew without the clients who do better alone on their validation "
            "data, and judge the new model at everybody.",
        ),
    ] = False,
    public: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Examples that are nobody's (x, y in a .safetensors file), for "
            "ewc(fisher=public).",
            callback=usable,
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; that of the run by default.")
    ] = None,
    json: Json = None,
    picture: Picture = None,
) -> None:
    """Let the clients of a finished run adapt what it left them: who is better off now?

    Examples:
      glocal adapt runs/2026-01-31-120000-fedavg

      glocal adapt runs/2026-01-31-120000-compare --again --without --picture adapted.png
    """
    from glocal.cli.app import check_json
    from glocal.core import files
    from glocal.core.progress import reporter
    from glocal.experiment.adaptation import techniques
    from glocal.experiment.choice import CHOICE, choice
    from glocal.experiment.synthetic import load
    from glocal.report import figures as plot
    from glocal.runs.restore import restore
    from glocal.studies.retraining import among

    if (public is not None) != any(t.public for t in techniques(by)):
        raise GlocalError(
            "--public is for ewc(fisher=public), which --by does not have: add it or leave it out."
            if public is not None
            else "ewc(fisher=public) needs public data: give a file of examples with --public."
        )
    plot.ready(picture)
    check_json(json)
    found = restore(folder, device)
    if without:
        for one in found:
            among(one.trained.training, (0,))  # what cannot be trained so is refused now
    done: dict[str, Run] = {}
    more: dict[str, dict[str, Any]] = {}
    with reporter(None) as report:
        for one in found:
            name = one.files.method
            with one.setup.threads():
                nobodys = load(public, one.setup.fed) if public is not None else None
                done[name] = adapted(one, by, report, keep=again, public=nobodys)
                more[name] = {"recorded": recorded(one, done[name])}
                if again:
                    more[name]["again"] = averaged_again(one, done[name])
                if without:
                    more[name]["without"] = trained_without(one, done[name], report)
    everybody = {**done, CHOICE: choice(done, found[0].fed)}
    everything = result(everybody, more)
    if str(json) == "-":
        sys.stdout.write(files.dump(everything).decode())
    else:
        if json is not None:
            files.write(json, files.dump(everything))
        show(everybody, more)
    if picture is not None:
        plot.adaptation(everything, picture)
        if str(json) != "-":
            print(f"Picture: {picture}")


def adapted(
    one: Restored,
    by: str,
    report: Report,
    *,
    keep: bool = False,
    public: Public | None = None,
) -> Run:
    """The run, judged again as it stood and after its clients adapted."""
    from glocal.core import tree
    from glocal.evaluation.communication import Traffic
    from glocal.experiment.adaptation import techniques
    from glocal.experiment.adaptation_report import after
    from glocal.experiment.assembly import assembled
    from glocal.experiment.repeat import Repeat, judge, struck
    from glocal.experiment.runner import Callbacks, baseline_of, run_seed

    here, files = one.setup, one.files
    name = files.method
    alone = run_seed(one.config, baseline_of(one.config), one.fed, 0, Callbacks(report), setup=here)
    outcome, val = judge(one.trained, here.fed)
    tick = partial(report, f"{name}, adapting")
    where = (here.task, here.fed, here.engine)
    now = after(
        *where, techniques(by), one.trained.models, here.seed, public=public, keep=keep, tick=tick
    )
    own = Repeat(
        outcome=outcome,
        traffic=Traffic(),
        model={},
        states={},
        history=[],
        published=0,
        together=None,
        engine=here.engine.name,
        model_name=here.model_name,
        parameters=tree.count(here.task.params),
        val_accuracy=val,
        adapted=now,
        trained=one.trained,
        struck=struck(one.trained.training, here, one.trained.models, files.stopped),
    )
    run = assembled(replace(one.config, adapt=by), name, one.fed, [own], [alone])
    run.summary.update({k: files.summary[k] for k in (*CARRIED, "rounds") if k in files.summary})
    return run


def recorded(one: Restored, run: Run) -> dict[str, Any]:
    """How what was measured now compares with what the folder says."""
    then, now = one.files.summary["accuracies"][0], run.summary["accuracies"][0]
    apart = max(abs(a - b) for a, b in zip(then, now, strict=True))
    return {"repeats": one.files.settings.repeats, "largest_difference": apart}


def averaged_again(one: Restored, run: Run) -> dict[str, Any]:
    """The adapted models' average: its figures, and how far it is from what clients had."""
    from glocal.evaluation.communication import Traffic
    from glocal.evaluation.summary import Trial, against, client_table, summarise
    from glocal.studies.retraining import again

    (own,), (alone,) = run.repeats, run.baseline
    models = own.adapted.models if own.adapted else None
    assert models is not None
    outcome = again(one.trained, models, one.setup.fed)
    trial = Trial(one.fed, outcome, alone.outcome, Traffic())
    rows = client_table([trial])
    figures = summarise(rows, [trial])
    kept = ("mean", "worst10", "better_off", "worse_off", "undecided", "accuracies")
    return {
        **{k: figures[k] for k in kept},
        "gain": against(figures, run.summary),
        "params_up": len(one.fed) * run.summary["parameters"],
        "clients": [{k: row[k] for k in ("client", "accuracy", "verdict")} for row in rows],
    }


def trained_without(one: Restored, run: Run, report: Report) -> dict[str, Any]:
    """The method without those who do better alone: the new model at them and at the others."""
    from glocal.experiment.repeat import judge
    from glocal.studies.retraining import changed, gain_nothing, without

    (own,), (alone,) = run.repeats, run.baseline
    removed = gain_nothing(own.val_accuracy, alone.val_accuracy)
    kept = [k for k in range(len(one.fed)) if k not in removed]
    if not removed or not kept:
        return {"removed": [one.fed.names[k] for k in removed], "groups": {}}
    title = f"{one.files.method}, without {len(removed)}"
    rounds = one.trained.training.rounds
    new = without(one.trained, removed, lambda p: report(title, p.round, rounds))
    outcome, _ = judge(new, one.setup.fed)
    return {
        "removed": [one.fed.names[k] for k in removed],
        "groups": {
            "kept": changed(one.fed, own.outcome, outcome, kept),
            "removed": changed(one.fed, own.outcome, outcome, removed),
        },
    }


def result(done: Mapping[str, Run], more: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """What ``--json`` writes: as of ``compare``, and what else was asked for, by method."""
    from glocal.core import files
    from glocal.experiment import result_files

    first = next(iter(done.values()))
    return {
        **result_files.result(done),
        "settings": files.plain(first.settings),
        "more": files.plain(more),
    }


def show(done: Mapping[str, Run], more: Mapping[str, Mapping[str, Any]]) -> None:
    """A row a client, a row a method, the choice, and what else was asked for."""
    from glocal.experiment.choice import CHOICE
    from glocal.report.tables import choice_in_words, show_adaptation, show_privacy

    runs = {name: run for name, run in done.items() if name != CHOICE}
    for name, run in runs.items():
        if len(runs) > 1:
            print(f"\n{name}")
        show_clients(run)
    show_adaptation(runs)
    show_privacy(runs)
    s = done[CHOICE].summary
    figures = (
        f"{100 * s['mean']:.1f} % on average, {s['better_off']} better off than alone, "
        f"{s['worse_off']} worse off, {s['undecided']} undecided."
    )
    _print(f"{choice_in_words(s)} It comes to {figures}")
    if any("again" in m for m in more.values()):
        show_again(runs, more)
    if any("without" in m for m in more.values()):
        show_without(more)
    _notes({name: m["recorded"] for name, m in more.items()})


def show_clients(run: Run) -> None:
    """One row a client: what it had, what it has now, and what it has alone."""
    from glocal.report.tables import table

    rows: list[list[Cell]] = [
        [
            str(r["client"]),
            (r["verdict"], COLOUR[r["verdict"]]),
            (r["adapted_verdict"], COLOUR[r["adapted_verdict"]]),
            r["adapted_by"],
            str(r["n_train"]),
            *(f"{100 * r[k]:.1f}" for k in ("accuracy", "adapted_accuracy", "local_accuracy")),
            f"{100 * r['adapted_benefit']:+.1f}",
            f"{100 * r['adapted_low']:+.1f} … {100 * r['adapted_high']:+.1f}",
        ]
        for r in run.clients
    ]
    print()
    head = ["client", "before", "adapted", "by", "train", "before %", "adapted %", "alone %"]
    table([*head, "vs alone", "test range"], rows, left=4)


def show_again(runs: Mapping[str, Run], more: Mapping[str, Mapping[str, Any]]) -> None:
    """Three rows a method: as it was, adapted, and adapted and then averaged."""
    from glocal.report.tables import interval, short, table

    rows: list[list[Cell]] = []
    for name, run in runs.items():
        s, one = run.summary, more[name]["again"]
        parts: list[tuple[str, Mapping[str, Any], Cell]] = [
            (name, s, "–"),
            ("  adapted", _adapted(s), interval(s["adapted"]["gain"])),
            ("  adapted, then averaged", one, interval(one["gain"])),
        ]
        for label, figures, gain in parts:
            counts = [str(figures[k]) for k in ("better_off", "worse_off", "undecided")]
            shown = [f"{100 * figures[k]:.1f}" for k in ("mean", "worst10")]
            rows.append([(label, "bold" if label == name else ""), *shown, gain, *counts])
    print()
    table(["model", "mean %", "worst 10 %", "gain", "better off", "worse off", "undecided"], rows)
    print()
    sent = short(next(iter(more.values()))["again"]["params_up"])
    text = (
        "Adapted, then averaged: one model for all, the adapted ones averaged by training examples."
        f" For that every client sends what it adapted, {sent} numbers together"
    )
    private = any(run.summary.get("privacy") for run in runs.values())
    _print(text + (", which the run's privacy does not protect." if private else "."))


def _adapted(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The figures after adaptation, under the names of those before."""
    start = "adapted_"
    return {k.removeprefix(start): v for k, v in summary.items() if k.startswith(start)}


def show_without(more: Mapping[str, Mapping[str, Any]]) -> None:
    """Two rows a method: what the new model is to those who trained it, and to the removed."""
    from glocal.report.tables import interval, table

    rows: list[list[Cell]] = []
    said: list[str] = []
    for name, m in more.items():
        one = m["without"]
        for group, g in one["groups"].items():
            change = _change(g["change"]) if g["change"]["low"] is None else interval(g["change"])
            rows.append(
                [
                    (name, "bold"),
                    f"{group}: {len(g['clients'])}",
                    *(f"{100 * g[k]:.1f}" for k in ("before", "after")),
                    change,
                    *(str(g[k]) for k in ("better", "worse", "lower")),
                ]
            )
        said.append(_removed(name, one))
    print()
    if rows:
        head = ["method", "clients", "with all %", "without %", "change", "better", "worse"]
        table([*head, "lower"], rows, left=2)
        print()
        text = (
            "Without: the same method trained anew without the clients whose validation accuracy "
            "is higher alone, judged at both groups before any adaptation. Change: points, with a "
            "paired 90 % interval over clients. Better, worse: than with the old model, by an "
            "exact paired test at 90 %; lower: how many have a lower accuracy at all."
        )
        _print(text)
    for line in said:
        _print(line)


def _change(d: Mapping[str, Any]) -> str:
    """Of a single client, which has no interval."""
    return f"{100 * d['difference']:+.1f}"


def _removed(name: str, one: Mapping[str, Any]) -> str:
    if not one["removed"]:
        return f"{name}: nobody does better alone on validation data, so nobody is removed."
    if not one["groups"]:
        return (
            f"{name}: everybody does better alone on validation data, so nobody is left to train."
        )
    return f"Removed from {name}: {_names(one['removed'])}."


def _names(names: Sequence[str]) -> str:
    from glocal.report.tables import WIDEST

    more = f" and {len(names) - WIDEST} more" if len(names) > WIDEST else ""
    return ", ".join(names[:WIDEST]) + more


def _notes(recorded: Mapping[str, Mapping[str, Any]]) -> None:
    """What a reader must know of where these numbers come from."""
    repeats = max(m["repeats"] for m in recorded.values())
    if repeats > 1:
        _print(
            f"There were {repeats} repeats, and a folder has the models of the first: all of this "
            "is of the first."
        )
    for name, found in recorded.items():
        if found["largest_difference"] > 1e-9:
            _print(
                f"{name}: accuracies differ from those in its folder by up to "
                f"{100 * found['largest_difference']:.1f} points; was it trained on another "
                "machine or with other versions?"
            )


def _print(text: str) -> None:
    for line in wrap(text, 100):
        print(line)
