"""Real digits against a truth: who is rightly decided on own test splits, and who wrongly?

    python benchmarks/verdict_truth.py             four federations, fedavg and ditto, 25 runs each
    python benchmarks/verdict_truth.py --keep      and the table in verdict_truth.txt beside this

Each method and the local baseline are trained 25 times on other splits and seeds. The truth of a
client is its mean benefit over all of them, on all clients' test examples by its label shares, and
counts where it is more than two standard errors from zero. Then the same runs are looked at in
threes and in fives, as ``--repeats 3`` and ``--repeats 5`` would, on each client's own test split:
by the verdict, and by the exact paired test of the pooled votes, which knows nothing of training.
Rightly decided: better or worse off, as the truth is. Wrong sign: the other way round.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import glocal
from glocal.evaluation.paired_test import compare_repeats
from glocal.evaluation.trials import Estimate, Trial

HEAD = "seed method  repeats | verdict: right wrong | paired test: right wrong | of clients"


def decided(words: Sequence[str], truth: np.ndarray) -> tuple[int, int]:
    """How many are called as the truth is, and how many the other way round."""
    said = np.array([{"better off": 1, "worse off": -1}.get(word, 0) for word in words])
    return int(((said == truth) & (said != 0)).sum()), int((said * truth < 0).sum())


def trials_of(run: glocal.Run, fed: glocal.Federation) -> list[Trial]:
    """Every run of a method and its baseline, on its split."""
    pairs = zip(run.repeats, run.baseline, strict=True)
    return [
        Trial(fed.fold(r) if r else fed, now.outcome, alone.outcome)
        for r, (now, alone) in enumerate(pairs)
    ]


def lines(seed: int, method: str, runs: int, rounds: int) -> list[str]:
    """A line for threes and one for fives."""
    fed = glocal.load("digits", clients=20, partition="dirichlet(0.3)", seed=seed)
    run = glocal.fit(method, fed, rounds=rounds, repeats=runs, seed=seed, progress=True)
    trials = trials_of(run, fed)
    pooled = Estimate(trials, pooled=True)
    benefit = pooled.differences(pooled.tested([t.baseline for t in trials])).benefit
    error = benefit.std(0, ddof=1) / np.sqrt(runs)
    mean = benefit.mean(0)
    truth = np.where(np.abs(mean) > 2 * error, np.sign(mean), 0)
    found = []
    for repeats in (3, 5):
        ours, theirs = np.zeros(2), np.zeros(2)
        groups = [trials[i : i + repeats] for i in range(0, runs - repeats + 1, repeats)]
        for group in groups:
            own = Estimate(group, pooled=False)
            alone = [t.baseline for t in group]
            ours += decided([v.verdict for v in own.verdicts(alone)], truth)
            words = [
                compare_repeats(
                    [(t.fed.test.of(k), t.outcome.own[k], t.baseline.own[k], None) for t in group]
                ).verdict
                for k in range(len(fed))
            ]
            theirs += decided(words, truth)
        ours, theirs = ours / len(groups), theirs / len(groups)
        found.append(
            f"{seed:4} {method:8} {repeats:6} | {ours[0]:14.1f} {ours[1]:5.2f} | "
            f"{theirs[0]:18.1f} {theirs[1]:5.2f} | {len(fed)}, {int((truth > 0).sum())} truly "
            f"better off, {int((truth < 0).sum())} worse; mean {100 * mean.mean():+.1f}"
        )
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=25)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--methods", nargs="+", default=["fedavg", "ditto"])
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    table = [HEAD]
    print(HEAD, flush=True)
    for seed in given.seeds:
        for method in given.methods:
            for line in lines(seed, method, given.runs, given.rounds):
                table.append(line)
                print(line, flush=True)
    if given.keep:
        Path(__file__).with_suffix(".txt").write_text("\n".join(table) + "\n")


if __name__ == "__main__":
    main()
