"""``glocal fairness``: how evenly methods serve clients, and what that costs the mean."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

from glocal.cli.commands.studies import Picture
from glocal.cli.options import (
    Augment,
    Client,
    Clients,
    Data,
    Device,
    EngineOption,
    FractionOf,
    Init,
    Jobs,
    Json,
    Label,
    Model,
    Partition,
    PoissonOption,
    Repeats,
    Rounds,
    Sampled,
    Seed,
    Transform,
    Yardstick,
    chosen,
)
from glocal.core.errors import GlocalError, unknown

if TYPE_CHECKING:
    from glocal.experiment.run import Run
    from glocal.report.tables import Cell

DEFAULT = ["fedavg", "q-fedavg", "term", "propfair", "afl", "fedmgda", "aaggff-s", "aaggff-d"]

COLOUR = {"better": "green", "worse": "bold red", "undecided": "dim"}


def fairness(
    methods: Annotated[
        list[str] | None,
        typer.Argument(metavar="[METHOD]...", help=f"Default: {' '.join(DEFAULT)}."),
    ] = None,
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    init: Init = None,
    augment: Augment = None,
    rounds: Rounds = 50,
    fraction: FractionOf = 1.0,
    sampled: Sampled = None,
    poisson: PoissonOption = False,
    metric: Annotated[
        str,
        typer.Option(
            help="What is judged: accuracy, cross_entropy, ece, mce, top5 (more than 5 classes) or "
            "auc (2 classes).",
            rich_help_panel="Judging",
        ),
    ] = "accuracy",
    against: Annotated[
        str | None,
        typer.Option(
            help="The method others are set against. Default: the first.",
            rich_help_panel="Judging",
        ),
    ] = None,
    repeats: Repeats = 5,
    baseline: Yardstick = "local",
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    jobs: Jobs = 0,
    json: Json = None,
    picture: Picture = None,
) -> None:
    """Which method serves clients most evenly, and what does the mean pay for it?

    Examples:
      glocal fairness --transform 'rotate(90, clients=4)'

      glocal fairness fedavg 'q-fedavg(q=1)' ditto --metric cross_entropy --picture lorenz.png
    """
    from glocal.cli.app import check_json
    from glocal.core import files
    from glocal.core.progress import reporter
    from glocal.experiment.config import from_mapping
    from glocal.experiment.fit import Watch, train_all
    from glocal.methods import resolve
    from glocal.report import figures as plot

    specs = list(dict.fromkeys(methods or DEFAULT))
    for spec in specs:
        resolve(spec)
    base = against or specs[0]
    if base not in specs:
        raise GlocalError(f"--against {base} is not among the methods compared: add it to them.")
    plot.ready(picture)
    check_json(json)
    settings = from_mapping(chosen(locals()))
    fed = settings.federation()
    check_metric(metric, fed.classes)
    with reporter(None) as report:
        done = dict(train_all({spec: spec for spec in specs}, settings, fed, Watch(report)))
    found = result(done, base, metric)
    if str(json) == "-":
        sys.stdout.write(files.dump(found).decode())
    else:
        if json is not None:
            files.write(json, files.dump(found))
        show(done, found)
    if picture is not None:
        plot.fairness(found, picture)
        if str(json) != "-":
            print(f"Picture: {picture}")


def check_metric(metric: str, classes: int) -> None:
    """Before anything is trained: is there such a metric, and does it fit the data?"""
    from glocal.evaluation.evaluate import metric_names
    from glocal.evaluation.metrics import METRICS

    if metric not in METRICS:
        raise unknown("metric", metric, METRICS)
    fitting = metric_names(classes)
    if metric not in fitting:
        raise GlocalError(
            f"{metric} does not fit data with {classes} classes: use {', '.join(fitting[:-1])} or "
            f"{fitting[-1]}."
        )


def result(done: Mapping[str, Run], base: str, metric: str) -> dict[str, Any]:
    """What ``--json`` writes: as of ``compare``, with every figure and its difference."""
    from glocal.core import files
    from glocal.evaluation.summary import fairness_against
    from glocal.experiment import result_files

    other = done[base].summary
    figures = {name: fairness_against(run.summary, other, metric) for name, run in done.items()}
    return {
        **result_files.result(done),
        "metric": metric,
        "against": base,
        "settings": files.plain(next(iter(done.values())).settings),
        "fairness": files.plain(figures),
    }


def show(done: Mapping[str, Run], found: Mapping[str, Any]) -> None:
    """A method's figures, below them its differences; what all that means; a sentence a method."""
    from glocal.evaluation.metrics import PERCENT
    from glocal.report.tables import show_privacy, table

    metric, base = found["metric"], found["against"]
    unit = " %" if metric in PERCENT else ""
    head = ["method", f"mean{unit}", "worst 10 %", "best 10 %", "Gini ×100", f"gap{unit}"]
    head += ["better off", "worse off"]
    if sys.stdout.isatty():
        # Two lines, so that 100 columns have room for the differences.
        head = [name.replace(" ", "\n", 1) for name in head]
    print()
    table(head, [row for name in done for row in _rows(name, done[name], found)])
    print()
    for line in _legend(done[base], found):
        print(line)
    show_privacy(done)
    others = [name for name in done if name != base]
    if others:
        print(f"\nAgainst {base}:")
    for name in others:
        print(in_words(name, found["fairness"][name]))


def _rows(name: str, run: Run, found: Mapping[str, Any]) -> list[list[Cell]]:
    """The figures of one method and, of all but the base, a row of differences."""
    from glocal.evaluation.summary import FIGURES

    one = found["fairness"][name]
    shown = [_number(one[f]["value"], one["metric"], f) for f in FIGURES]
    off: list[Cell] = ["–", "–"]  # the yardstick itself
    if not run.is_baseline:
        counts = (run.summary[k] for k in ("better_off", "worse_off"))
        colours = ("green", "bold red")
        off = [(str(n), c if n else "") for n, c in zip(counts, colours, strict=True)]
    rows: list[list[Cell]] = [[(name, "bold"), *shown, *off]]
    if name != found["against"]:
        mean, worst, _, gini, gap = (
            (_difference(one, f), COLOUR[direction(one, f)]) for f in FIGURES
        )
        # The best clients have no part in the question, and the columns no room for them.
        rows.append(["", mean, worst, "", gini, gap, "", ""])
    return rows


def _difference(one: Mapping[str, Any], figure: str) -> str:
    """``+1.3 ± 0.9``: the interval is symmetric."""
    d = one[figure]
    text = _number(d["difference"], one["metric"], figure, sign="+")
    if d["low"] is None:
        return text
    return f"{text} ± {_number((d['high'] - d['low']) / 2, one['metric'], figure)}"


def _number(value: float | None, metric: str, figure: str, sign: str = "") -> str:
    """In per cent where the metric is a share; the Gini coefficient is ×100 as it comes."""
    from glocal.evaluation.metrics import PERCENT

    if value is None:
        return "–"
    scale, digits = (1, 1) if figure == "gini" else (100, 1) if metric in PERCENT else (1, 3)
    return f"{scale * value:{sign}.{digits}f}"


def direction(one: Mapping[str, Any], figure: str) -> str:
    """Better, worse or undecided: does the interval of the difference leave zero out?

    Less is better of the Gini coefficient and the gap, and of every figure of a loss or an error.
    """
    from glocal.evaluation.metrics import METRICS

    low, high = one[figure]["low"], one[figure]["high"]
    if low is None or low <= 0 <= high:
        return "undecided"
    less = figure in ("gini", "gap") or METRICS[one["metric"]].lower_is_better
    return "better" if (high < 0) == less else "worse"


def in_words(name: str, one: Mapping[str, Any]) -> str:
    """What became of the worst tenth, and at what price."""
    worst, mean = (_range(one, f) for f in ("worst10", "mean"))
    return (
        f"{name}: worst 10 % {worst}, {direction(one, 'worst10')}, at {mean} of the mean, "
        f"{direction(one, 'mean')}."
    )


def _range(one: Mapping[str, Any], figure: str) -> str:
    d = one[figure]
    center, low, high = (
        _number(d[k], one["metric"], figure, sign="+") for k in ("difference", "low", "high")
    )
    return f"{center} ({low} … {high})" if d["low"] is not None else f"{center} (no interval)"


def _legend(run: Run, found: Mapping[str, Any]) -> list[str]:
    from glocal.evaluation.metrics import METRICS

    s, metric, base = run.summary, found["metric"], found["against"]
    k, repeats = s["clients"], s["repeats"]
    held = [sum(not math.isnan(v) for v in row) for row in s["values"][metric]]
    few, many = min(held), max(held)
    tenth = -(-few // 10)
    number = str(few) if few == many else f"{few} to {many}"
    lacking = f"the {number} of {k} clients whose test data has enough for it"
    who = f"the {k} clients" if few == k else lacking
    lower = METRICS[metric].lower_is_better
    pooled = metric == "accuracy" and s["estimate"] == "pooled"
    where = "everybody's test examples, by its label shares" if pooled else "its own test split"
    mean = (
        f"{metric}{' (lower is better)' if lower else ''}: each client's model on {where}. Mean: "
        f"over {who}, not over examples. Worst 10 %: the mean of the {tenth} worst of "
        "them. Gini: half the difference of two clients, on average, in per cent of the mean. Gap: "
        "between the best client and the worst."
    )
    each = (
        f"All of these are taken in each of {repeats} repeats (other splits and seeds of the same "
        "clients) and then averaged. 'glocal compare' averages each client over repeats first: its "
        f"worst 10 % is {'lower' if lower else 'higher'}, as bad luck evens out."
    )
    off = "Better or worse off than alone: in accuracy, by an exact paired test at 90 %."
    lines = [mean, *([each] if repeats > 1 else []), *_spread(found, base), off]
    return [line for text in lines for line in wrap(text, 100)]


def _spread(found: Mapping[str, Any], base: str) -> list[str]:
    """What the differences and their intervals are, if there are any."""
    others = [one for name, one in found["fairness"].items() if name != base]
    if not others:
        return []
    by = others[0]["mean"]["by"]
    if by == "repeats":
        return [
            f"Signed: the difference from {base}, ± half of Student's 90 % interval, paired over "
            "repeats; one interval in ten misses by chance."
        ]
    over = ", ± half of Student's 90 % interval, paired over clients" if by else ""
    return [
        f"Signed: the difference from {base}; of the mean{over}. Figures of all clients together "
        "have an interval with three repeats or more: --repeats 5."
    ]
