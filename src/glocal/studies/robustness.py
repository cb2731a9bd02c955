"""What malicious clients do to the honest ones, method by method and attack by attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.files import plain
from glocal.core.progress import Report, silent
from glocal.data.federation import Federation
from glocal.evaluation.summary import fairness_against
from glocal.experiment import fit
from glocal.experiment import setup as setups
from glocal.experiment.attack_report import chance, honest_summary
from glocal.experiment.config import Config
from glocal.experiment.result_files import SCHEMA
from glocal.experiment.run import Run
from glocal.experiment.runner import Callbacks, LocalOnly, runner_of
from glocal.studies.repeats import unique_specs
from glocal.training import attacks

NO_ATTACK = "none"

Runs = dict[str, dict[str, Run]]
"""Runs by attack, then by method; those without an attack come first."""


def robustness(
    methods: Sequence[str],
    attacked_by: Sequence[str],
    config: Config,
    *,
    malicious: float = 0.2,
    report: Report = silent,
) -> tuple[dict[str, Run], dict[str, Any]]:
    """Train every method without an attack and with each; all figures are of the honest clients.

    Returns:
        The runs without an attack, and plain data with a row for each method and attack.
    """
    fed = config.federation()
    attackers = attacks.malicious(malicious, len(fed), config.seed)
    specs = unique_specs(methods)
    # An attack without a share of its own gets the one that is given for all.
    tried = list(dict.fromkeys(attacks.with_share(a, malicious) for a in attacked_by))
    check(specs, tried, fed, config)
    runs: Runs = {NO_ATTACK: dict(fit.train_all(specs, config, fed, Callbacks(report)))}
    # The local baselines are the same for all.
    alone = runs[NO_ATTACK][specs[0]].baseline
    for attack in tried:

        def on(what: str, now: int, total: int, attack: str = attack) -> None:
            report(f"{what} under {attack}", now, total)

        under = replace(config, attack=attack)
        runs[attack] = dict(fit.train_all(specs, under, fed, Callbacks(on), baseline=alone))
    return runs[NO_ATTACK], _result(runs, fed, attackers)


def check(specs: Sequence[str], tried: Sequence[str], fed: Federation, config: Config) -> None:
    """Raise, before anything is trained, if one of the methods or attacks cannot be tried."""
    runners = {spec: runner_of(spec, spec) for spec in specs}
    for spec, runner in runners.items():
        if isinstance(runner, LocalOnly):
            raise GlocalError(f"{spec} sends nothing, so no attack can reach it: leave it out.")
    for attack in tried:
        setup = setups.make(replace(config, attack=attack), fed, 0)
        for runner in runners.values():
            runner.check(setup)


def _result(runs: Runs, fed: Federation, attackers: Sequence[int]) -> dict[str, Any]:
    """What ``--json`` writes: a row for each method and attack, of the honest clients."""
    clean = runs[NO_ATTACK]
    first = next(iter(clean.values()))
    rows = [_row(runs, spec, attack, fed, attackers) for spec in clean for attack in runs]
    private = {s: run.summary["privacy"] for s, run in clean.items() if "privacy" in run.summary}
    return {
        "schema": SCHEMA,
        "data": plain(first.data),
        "settings": plain({k: v for k, v in first.settings.items() if k != "method"}),
        "clients": len(fed),
        "repeats": first.summary["repeats"],
        "estimate": first.summary["estimate"],
        "malicious": [fed.names[k] for k in attackers],
        "chance": chance(fed, attackers),
        "privacy": plain(private),
        "rows": plain(rows),
    }


def _row(
    runs: Runs, spec: str, attack: str, fed: Federation, attackers: Sequence[int]
) -> dict[str, Any]:
    """One method under one attack, against itself without one, on the same honest clients."""
    run, clean = runs[attack][spec], runs[NO_ATTACK][spec]
    if attack != NO_ATTACK:
        # An attack may have a share of its own.
        named = set(run.summary["attack"]["malicious"])
        attackers = [k for k, name in enumerate(fed.names) if name in named]
    now, before = (honest_summary(r.clients, r.summary, attackers) for r in (run, clean))
    against = fairness_against(now, before)
    return {
        "method": spec,
        "attack": attack,
        "honest": now["clients"],
        "mean": against["mean"],
        "worst10": against["worst10"],
        **{k: now[k] for k in ("better_off", "worse_off", "undecided")},
        "backdoor": run.summary.get("honest", {}).get("backdoor"),
        "stopped": run.summary.get("attack", {}).get("stopped", [None] * against["repeats"]),
    }
