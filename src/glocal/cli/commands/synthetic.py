"""``glocal synthetic``: what the examples that a finished run made are good for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.options import Json, usable
from glocal.core.errors import GlocalError, unknown

if TYPE_CHECKING:
    from glocal.core.progress import Report
    from glocal.report.tables import Cell
    from glocal.runs.restore import Files, Restored

USES = ("warm-start", "public", "fill-up")
FILE = "synthetic.safetensors"
ROUNDS = 10
METHOD = "fedavg"
"""What is trained with and without the examples."""


def synthetic(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The folder of a finished run of fedevg, fedcgan or fedcvae.",
            callback=usable,
        ),
    ],
    uses: Annotated[
        str, typer.Option(help=f"What to try: some of {', '.join(USES)}, joined by +.")
    ] = "+".join(USES),
    rounds: Annotated[int, typer.Option(help=f"Rounds of {METHOD} from either start.")] = ROUNDS,
    fill: Annotated[
        str,
        typer.Option(
            help="Which examples poor clients get: of the classes they have (own), or all."
        ),
    ] = "own",
    seed: Annotated[
        int | None,
        typer.Option(help="Of these trainings; that of the run by default. The data is the run's."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu or cuda; that of the run by default.")
    ] = None,
    json: Json = None,
) -> None:
    """What are the examples that a run made good for? A start, a public set, a filling.

    Examples:
      glocal synthetic runs/2026-01-31-120000-fedevg

      glocal synthetic runs/2026-01-31-120000-fedevg --uses fill-up --fill all
    """
    from glocal.cli.app import check_json
    from glocal.core import files
    from glocal.core.progress import reporter
    from glocal.core.validation import positive_integers
    from glocal.experiment import setup as setups
    from glocal.runs.restore import restore
    from glocal.studies.synthetic_uses import FILL

    wanted = chosen(uses)
    positive_integers(rounds=rounds)
    if fill not in FILL:
        raise unknown("--fill", fill, FILL)
    check_json(json)
    (one,) = restore(makers(folder).folder, device)
    order = replace(one.config, rounds=rounds, attack=None, validate_every=0)
    order = order if seed is None else replace(order, seed=seed)
    one = replace(one, config=order, setup=setups.make(order, one.fed, 0))
    with reporter(None) as report, one.setup.threads():
        found = result(one, wanted, fill, report)
    if str(json) == "-":
        sys.stdout.write(files.dump(found).decode())
        return
    if json is not None:
        files.write(json, files.dump(found))
    show(found)


def chosen(uses: str) -> list[str]:
    """The uses that were asked for, in the order of the table."""
    asked = [part.strip() for part in uses.split("+")]
    for name in asked:
        if name not in USES:
            raise unknown("use", name, USES)
    return [name for name in USES if name in asked]


def makers(path: Path) -> Files:
    """The finished run in a folder that made examples; refuses any other."""
    from glocal.runs.restore import folders, read

    found = [read(folder) for folder in folders(path)]
    makers = [f for f in found if not f.plan.stages[-1].method.server_half.sends_update]
    if not makers:
        raise GlocalError(
            f"the run in {path} is of {found[0].method}, which makes no examples: give the folder "
            "of a run of fedevg, fedcgan or fedcvae."
        )
    if len(makers) > 1:
        raise GlocalError(
            f"several runs in {path} made examples: give the folder of one, such as "
            f"{makers[0].folder}."
        )
    if not (makers[0].folder / FILE).is_file():
        raise GlocalError(
            f"the run in {makers[0].folder} has no {FILE}: train it again with 'glocal run "
            f"{makers[0].folder / 'settings.toml'}'."
        )
    return makers[0]


def result(one: Restored, wanted: list[str], fill: str, report: Report) -> dict[str, Any]:
    """Try every use that is wanted; what ``--json`` writes."""
    from glocal.core.files import plain
    from glocal.experiment.result_files import SCHEMA
    from glocal.experiment.runner import Callbacks, baseline_of, run_seed
    from glocal.experiment.synthetic import load
    from glocal.studies.synthetic_uses import figures

    here, order, files = one.setup, one.config, one.files
    x, y = load(files.folder / FILE, here.fed)
    alone = run_seed(order, baseline_of(order), one.fed, 0, Callbacks(report), setup=here)
    uses = tried(one, wanted, fill, (x, y), report)
    return {
        "schema": SCHEMA,
        "data": plain(one.fed.describe),
        "settings": {
            "run": str(files.folder),
            "method": files.method,
            "rounds": order.rounds,
            "seed": order.seed,
            "fill": fill,
            "model": here.model_name,
        },
        "made": {
            "examples": len(x),
            "rounds": files.round,
            "repeats": files.settings.repeats,
            "attack": files.settings.attack,
            "params_up": files.summary["params_up"],
        },
        "estimate": files.summary["estimate"],
        "uses": {name: plain(figures(one.fed, use, alone.outcome)) for name, use in uses.items()},
    }


def tried(
    one: Restored, wanted: list[str], fill: str, made: tuple[Any, Any], report: Report
) -> dict[str, Any]:
    """Every use by the name that the table has for it."""
    from glocal.experiment.repeat import Trained
    from glocal.experiment.runner import Federated, baseline_of
    from glocal.methods import resolve
    from glocal.slots.method import as_plan
    from glocal.studies import synthetic_uses as uses

    here, order = one.setup, one.config
    found: dict[str, uses.Use] = {}
    if "warm-start" in wanted or "public" in wanted:
        training = Federated(METHOD, as_plan(resolve(METHOD))).check(order, here)
        if "warm-start" in wanted:
            begin = uses.start(training, *made)
            took = one.files.round
            tick = partial(report, f"{METHOD}, from two starts")
            warm = uses.warm_start(training, begin, took, tick)
            for r, use in warm.after.items():
                found[f"warm start: after round {r}"] = use
            if warm.longer is not None:
                found[f"warm start: against {order.rounds + took} rounds"] = warm.longer
            cold = warm.cold
        else:
            tick = partial(report, METHOD)
            begun = training.begin(here.task.params)
            done = training.run(begun, lambda p: tick(p.round, order.rounds))
            cold = Trained(training, done)
        if "public" in wanted:
            given = cold.models()
            found["public set: Fisher of ewc"] = uses.with_public_fisher(here, given, *made)
            found["public set: distillation"] = uses.distilled(here, given, *made)
    if "fill-up" in wanted:
        alone, tick = baseline_of(order).client, partial(report, "filled up")
        found[f"fill up: {fill} classes"] = uses.fill_up(
            here, alone, *made, classes=fill, tick=tick
        )
    return found


def show(found: Mapping[str, Any]) -> None:
    """One row a use, and what each of them is."""
    from glocal.report.tables import interval, table

    settings, made = found["settings"], found["made"]
    print()
    _print(f"What the {made['examples']} examples of {settings['run']} are good for")
    print()
    colour = {"better": "green", "worse": "bold red", "not shown": "dim"}
    rows: list[list[Cell]] = []
    for name, use in found["uses"].items():
        if not use["clients"]:
            rows.append([name, "0", *["–"] * 6])
            continue
        change = use["change"]
        single = f"{100 * change['difference']:+.1f}"
        rows.append(
            [
                name,
                str(len(use["clients"])),
                *(f"{100 * use[key]:.1f}" for key in ("before", "after")),
                single if change["low"] is None else interval(change),
                *(" → ".join(map(str, use[key])) for key in ("better_off", "worse_off")),
                (use["verdict"], colour[use["verdict"]]),
            ]
        )
    head = ["use", "clients", "without %", "with %", "difference", "better off", "worse off", "so"]
    table(head, rows)
    print()
    for text in _legend(found):
        _print(text)


def _legend(found: Mapping[str, Any]) -> list[str]:
    settings, made, uses = found["settings"], found["made"], found["uses"]
    pooled = found["estimate"] == "pooled"
    where = "all clients' test examples, by its label shares" if pooled else "its own test split"
    said = [
        f"Without, with: the same training without and with the examples, mean accuracy of the "
        f"clients in the row, each on {where}. Difference: points, with a paired 90 % interval "
        f"over clients. It is of one set of examples and one seed ({settings['seed']}): another "
        "may differ by more. Better and worse off than alone (an exact paired test at 90 %): "
        "without → with. So: what the interval says of the row; not shown: it holds zero."
    ]
    if any(name.startswith("warm start") for name in uses):
        said.append(
            f"Warm start: {METHOD}, begun at a model trained on the examples alone or at its usual "
            f"start. The examples themselves took {_rounds(made['rounds'])} of "
            f"{settings['method']}: the last of these rows is against {METHOD} that had those "
            "rounds too."
        )
    if any(name.startswith("public set") for name in uses):
        said.append(
            f"Public set: each client adapts what {METHOD} gives it after "
            f"{_rounds(settings['rounds'])}. Fisher of ewc: of the examples, or of own data. "
            "Distillation: on own data and the examples, or on own data; the teacher is the model "
            "given, labels count too."
        )
    for name, use in uses.items():
        if name.startswith("fill up"):
            said += _filled(use, settings["fill"])
    if made["repeats"] > 1:
        said.append(
            f"There were {made['repeats']} repeats, and a folder has the examples of the first: "
            "all of this is of the first."
        )
    if made["attack"]:
        said.append(f"The run was under attack ({made['attack']}); here everybody is honest.")
    return said


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _filled(use: Mapping[str, Any], fill: str) -> list[str]:
    """Who was filled up, and what became of each."""
    from glocal.report.tables import WIDEST

    if not use["clients"]:
        return ["Fill up: no client has fewer training examples than the median, so nobody is."]
    which = "those of classes they have" if fill == "own" else "all of them"
    each = [
        f"{row['client']} ({row['n_train']}) {100 * row['difference']:+.1f}" for row in use["each"]
    ]
    more = f" and {len(each) - WIDEST} more" if len(each) > WIDEST else ""
    return [
        "Fill up: clients with fewer training examples than the median train alone on theirs and "
        f"the made ones ({which}), against alone. Client (training examples), points: "
        f"{', '.join(each[:WIDEST])}{more}. Shown to gain: {use['better']}, to lose: "
        f"{use['worse']}; lower at all: {use['lower']}."
    ]


def _print(text: str) -> None:
    for line in wrap(text, 100):
        print(line)
