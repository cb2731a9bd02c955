"""``glocal robustness``: what malicious clients do to the honest ones, method by method."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Annotated, Any

import typer

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
from glocal.core.errors import GlocalError

if TYPE_CHECKING:
    from glocal.core.progress import Report
    from glocal.data.federation import Federation
    from glocal.experiment.config import Config
    from glocal.experiment.run import Run
    from glocal.report.tables import Cell

DEFAULT_ATTACKS = ["sign-flip", "replace", "little"]
NO_ATTACK = "none"

Done = dict[str, dict[str, "Run"]]
"""Runs by attack, then by method; those without an attack come first."""


def defaults(malicious: float) -> list[str]:
    """Fedavg and every robust combiner, made for that share of malicious clients."""
    return [
        "fedavg",
        "fedavg+median",
        f"fedavg+trimmed-mean(share={malicious:g})",
        f"fedavg+krum(malicious={malicious:g})",
        f"fedavg+multi-krum(malicious={malicious:g})",
        "fedavg+geometric-median",
        "fedavg+norm-bound",
    ]


def robustness(
    methods: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[METHOD]...",
            help=f"Default: {', '.join(defaults(0.2))}, with the share that --malicious says.",
        ),
    ] = None,
    attack: Annotated[
        list[str] | None,
        typer.Option(
            "--attack",
            help="What malicious clients do, as in 'sign-flip(scale=5)', replace, little, scale, "
            "gaussian, nan, label-flip or backdoor; may be given several times. Default: "
            f"{', '.join(DEFAULT_ATTACKS)}.",
            rich_help_panel="Attack",
        ),
    ] = None,
    malicious: Annotated[
        float,
        typer.Option(
            help="The share of clients that are malicious, where an attack has no share= of its "
            "own.",
            rich_help_panel="Attack",
        ),
    ] = 0.2,
    data: Data = "digits",
    clients: Clients = 20,
    partition: Partition = None,
    transform: Transform = None,
    label: Label = "label",
    client: Client = "client",
    model: Model = "mlp",
    init: Init = None,
    augment: Augment = None,
    rounds: Rounds = 30,
    fraction: FractionOf = 1.0,
    sampled: Sampled = None,
    poisson: PoissonOption = False,
    repeats: Repeats = 3,
    baseline: Yardstick = "local",
    seed: Seed = 0,
    engine: EngineOption = "auto",
    device: Device = "cpu",
    jobs: Jobs = 0,
    json: Json = None,
) -> None:
    """What is left of each method when some clients are malicious?

    Every method is trained without an attack and with each; all figures are of the honest clients.

    Examples:
      glocal robustness

      glocal robustness fedavg fedavg+median --attack backdoor --attack 'scale(20)' --malicious 0.1
    """
    from glocal.cli.app import check_json
    from glocal.core import files
    from glocal.core.progress import reporter
    from glocal.experiment.config import from_mapping
    from glocal.report.tables import show_privacy
    from glocal.training import attacks

    whole = dict(locals())
    specs = list(dict.fromkeys(methods or defaults(malicious)))
    tried = list(dict.fromkeys(attacks.with_share(a, malicious) for a in attack or DEFAULT_ATTACKS))
    # Who is malicious is said by the attacks: the settings have room for one at a time.
    settings = from_mapping(chosen({k: v for k, v in whole.items() if k != "attack"}))
    fed = settings.federation()
    check(specs, tried, malicious, fed, settings)
    check_json(json)
    with reporter(None) as report:
        done = train(specs, tried, settings, fed, report)
    found = result(done, fed, malicious, settings.seed)
    if str(json) == "-":
        sys.stdout.write(files.dump(found).decode())
        return
    if json is not None:
        files.write(json, files.dump(found))
    show(found)
    show_privacy(done[NO_ATTACK])


def check(
    specs: Sequence[str],
    tried: Sequence[str],
    malicious: float,
    fed: Federation,
    settings: Config,
) -> None:
    """Before anything is trained: refuse what one of the methods or attacks cannot do."""
    from dataclasses import replace

    from glocal.experiment import setup as setups
    from glocal.experiment.runner import LocalOnly, runner_of
    from glocal.training import attacks

    attacks.malicious(malicious, len(fed), settings.seed)
    runners = {spec: runner_of(spec, spec) for spec in specs}
    for spec, runner in runners.items():
        if isinstance(runner, LocalOnly):
            raise GlocalError(f"{spec} sends nothing, so no attack can reach it: leave it out.")
    for attack in tried:
        order = replace(settings, attack=attack)
        here = setups.make(order, fed, 0)
        for runner in runners.values():
            runner.check(order, here)


def train(
    specs: Sequence[str],
    tried: Sequence[str],
    settings: Config,
    fed: Federation,
    report: Report,
) -> Done:
    """Every method without an attack and with each; yardsticks are the same for all."""
    from dataclasses import replace

    from glocal.experiment.fit import Watch, train_all

    done: Done = {
        NO_ATTACK: dict(train_all({spec: spec for spec in specs}, settings, fed, Watch(report)))
    }
    alone = done[NO_ATTACK][specs[0]].baseline
    for attack in tried:

        def on(what: str, now: int, total: int, attack: str = attack) -> None:
            report(f"{what} under {attack}", now, total)

        under = replace(settings, attack=attack)
        done[attack] = dict(
            train_all({spec: spec for spec in specs}, under, fed, Watch(on), baseline=alone)
        )
    return done


def result(done: Done, fed: Federation, malicious: float, seed: int) -> dict[str, Any]:
    """What ``--json`` writes: a row for each method and attack, of the honest clients."""
    from glocal.core import files
    from glocal.experiment import result_files
    from glocal.experiment.attack_report import chance
    from glocal.training import attacks

    who = attacks.malicious(malicious, len(fed), seed)
    clean = done[NO_ATTACK]
    some = next(iter(clean.values()))
    return {
        "schema": result_files.SCHEMA,
        "data": files.plain(some.data),
        "settings": files.plain({k: v for k, v in some.settings.items() if k != "method"}),
        "clients": len(fed),
        "repeats": some.summary["repeats"],
        "estimate": some.summary["estimate"],
        "malicious": [fed.names[k] for k in who],
        "chance": chance(fed, who),
        "privacy": files.plain(
            {s: run.summary["privacy"] for s, run in clean.items() if "privacy" in run.summary}
        ),
        "rows": files.plain(
            [row(done, spec, attack, fed, who) for spec in clean for attack in done]
        ),
    }


def row(done: Done, spec: str, attack: str, fed: Federation, who: Sequence[int]) -> dict[str, Any]:
    """One method under one attack, against itself without one, on the same honest clients."""
    from glocal.evaluation.summary import fairness_against
    from glocal.experiment.attack_report import honest_summary

    run, clean = done[attack][spec], done[NO_ATTACK][spec]
    if attack != NO_ATTACK:
        # An attack may have a share of its own.
        who = [k for k, name in enumerate(fed.names) if name in run.summary["attack"]["malicious"]]
    mine, before = (honest_summary(r.clients, r.summary, who) for r in (run, clean))
    against = fairness_against(mine, before)
    return {
        "method": spec,
        "attack": attack,
        "honest": mine["clients"],
        "mean": against["mean"],
        "worst10": against["worst10"],
        **{k: mine[k] for k in ("better_off", "worse_off", "undecided")},
        "backdoor": run.summary.get("honest", {}).get("backdoor"),
        "stopped": run.summary.get("attack", {}).get("stopped", [None] * against["repeats"]),
    }


def show(found: Mapping[str, Any]) -> None:
    """A row a method and attack, and what it all means."""
    from glocal.report.tables import table

    backdoors = any(r["backdoor"] is not None for r in found["rows"])
    head = ["method", "attack", "mean %", "change", "worst 10 %", "better off", "worse off"]
    print()
    table(
        [*head, *(["backdoor %"] if backdoors else [])],
        [_cells(r, backdoors) for r in found["rows"]],
        left=2,
    )
    print()
    for line in [*_legend(found, backdoors), *_ended(found)]:
        print(line)


def _ended(found: Mapping[str, Any]) -> list[str]:
    """Which attacks ended the training, and when."""
    lines = []
    for r in found["rows"]:
        ended = [n for n in r["stopped"] if n is not None]
        if ended:
            text = (
                f"{r['method']} under {r['attack']}: in {len(ended)} of {len(r['stopped'])} "
                f"repeats numbers were no longer finite, in round {min(ended)} at the earliest; "
                "judged as it stood before."
            )
            lines += wrap(text, 100)
    return lines


def _cells(r: Mapping[str, Any], backdoors: bool) -> list[Cell]:
    first = r["attack"] == NO_ATTACK
    cells: list[Cell] = [
        (r["method"], "bold") if first else "",
        r["attack"],
        f"{100 * r['mean']['value']:.1f}",
        "" if first else _change(r["mean"]),
        f"{100 * r['worst10']['value']:.1f}",
        (str(r["better_off"]), "green" if r["better_off"] else ""),
        (str(r["worse_off"]), "bold red" if r["worse_off"] else ""),
    ]
    if backdoors:
        cells.append("–" if r["backdoor"] is None else f"{100 * r['backdoor']:.1f}")
    return cells


def _change(mean: Mapping[str, Any]) -> Cell:
    """``−3.2 ± 0.9``, red where the interval is below zero."""
    text = f"{100 * mean['difference']:+.1f}"
    if mean["low"] is None:
        return text
    style = "bold red" if mean["high"] < 0 else "green" if mean["low"] > 0 else "dim"
    return (f"{text} ± {50 * (mean['high'] - mean['low']):.1f}", style)


def _legend(found: Mapping[str, Any], backdoors: bool) -> list[str]:
    some = found["rows"][-1]
    bad, repeats = len(found["malicious"]), found["repeats"]
    pooled = found["estimate"] == "pooled"
    where = "everybody's test examples, by its label shares" if pooled else "its own test split"
    by = some["mean"]["by"]
    interval = f", ± half of Student's 90 % interval, paired over {by}" if by else ""
    over = f" of each of {repeats} repeats, averaged" if repeats > 1 else ""
    honest = found["clients"] - bad
    who = (
        f"{bad} of {found['clients']} clients are malicious ({', '.join(found['malicious'])}); all "
        f"figures are of the other {honest}."
    )
    if len({row["honest"] for row in found["rows"]}) > 1:
        who = (
            f"Attacks differ in how many of the {found['clients']} clients are malicious; figures "
            f"are of the others, and without an attack of the {honest} that --malicious leaves."
        )
    texts = [
        f"{who} Accuracy: each client's model on {where}. Chance, the "
        f"best that one answer for all would do: {100 * found['chance']:.1f} %.",
        "Change: of the mean from the same method without an attack, on the same clients"
        f"{interval}. Worst 10 %: the mean of the worst tenth{over}. Better or worse off than "
        "alone: by an exact paired test at 90 %.",
    ]
    if backdoors:
        texts.append(
            "Backdoor: the share of honest clients' test images of other classes that are taken "
            "for the target once they have the mark."
        )
    return [line for text in texts for line in wrap(text, 100)]
