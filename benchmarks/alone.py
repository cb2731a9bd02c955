"""How good clients are alone: the same model, and the best they can train.

Digits among 20 clients by dirichlet(0.3), three repeats, two seeds: the mean accuracy over clients
(by the pooled estimate) of the same model and of the best alone, which family is chosen how often,
and CPU seconds of each. ``python benchmarks/alone.py`` prints the table that is kept in alone.txt.
"""

from __future__ import annotations

import os
import resource
from collections import Counter

import torch

import glocal
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.trials import Estimate, Trial
from glocal.experiment import setup as setups
from glocal.experiment.best_runner import AloneRepeats, BestAlone
from glocal.experiment.config import Config
from glocal.experiment.runner import baseline_of, run_seeds

SEEDS = (0, 1)
REPEATS = 3


def seconds() -> float:
    """CPU seconds of this process and of those that have ended."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(u.ru_utime + u.ru_stime for u in used)


def mean(feds: list[glocal.Federation], found: list[Outcome]) -> float:
    """The mean accuracy over clients and repeats."""
    trials = [Trial(fed, outcome, outcome) for fed, outcome in zip(feds, found, strict=True)]
    each = Estimate(trials, pooled=True).means(found)
    return 100 * float(torch.tensor(each).mean())


def measured(seed: int, tune: bool, kind: str) -> None:
    """One line: the same model and the best alone."""
    config = Config(seed=seed, repeats=REPEATS, baseline=kind, tune=tune, jobs=1)
    fed = config.federation()
    several = [setups.make(config, fed, r) for r in range(REPEATS)]
    feds = [setup.fed for setup in several]
    began = seconds()
    same = run_seeds(baseline_of(config), several)
    line = [f"seed {seed}", "tuned" if tune else "plain"]
    line += [f"same model {mean(feds, [r.outcome for r in same]):.1f} %"]
    line += [f"{seconds() - began:.0f} s"]
    if kind == "best":
        began = seconds()
        fitted = run_seeds(BestAlone(), several)
        best = AloneRepeats.of(several[0], same, fitted).best or []
        line += [f"best alone {mean(feds, best):.1f} %", f"{seconds() - began:.0f} s"]
        chosen = Counter(name for outcome in best for name in outcome.chosen)
        line += [", ".join(f"{name} {n}" for name, n in chosen.most_common())]
    print(" | ".join(line), flush=True)


def main() -> None:
    """Every seed as it comes, tuned, and with the best alone."""
    torch.set_num_threads(1)
    print(f"digits, 20 clients, dirichlet(0.3), {REPEATS} repeats; {os.cpu_count()} cores")
    for seed in SEEDS:
        for tune, kind in ((False, "same"), (True, "best")):
            measured(seed, tune, kind)


if __name__ == "__main__":
    main()
