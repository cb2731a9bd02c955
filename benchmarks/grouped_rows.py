"""Wrong calls between models that were trained alike, where rows come in groups of near copies.

Clients have 60 groups of 1, 5 or 10 rows; a group's rows differ by a hundredth of what groups do,
and have one label. Both sides of the comparison are the client's own ridge regression on random
features, drawn anew for each side and repeat: nobody is better off, so every call is wrong (nominal
10 %). *rows*: the federation is not told of groups, so they are divided among splits, and each row
counts as one. *rows, whole groups split*: groups are kept in one split, but each test row counts.
*groups*: ``group=``. *shown*: the same with ``group=``, but the baseline does not see six of the
eight inputs, so nearly all clients are better off, and a call of that is right.

*Pooled*: 40 groups of 5 rows a client, partitioned by label and tested on all clients' examples;
each group is right at random, with a chance that differs by client and repeat by 2 points
(training luck). *refused*: federations in which the test of pooling was wrongly failed.

    python benchmarks/grouped_rows.py [--federations 30] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from glocal.data import suggested_groups
from glocal.data.federation import Federation, federation
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.summary import client_table, pooling_of
from glocal.evaluation.trials import Trial

CLIENTS, GROUPS, FEATURES, HIDDEN, CLASSES = 20, 60, 8, 60, 3
COUNTED = ("rows", "rows, whole groups split", "groups", "shown")


def draw(gen: np.random.Generator, size: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs, labels, clients and groups; labels are those of a linear rule, a fifth at random."""
    count = CLIENTS * GROUPS
    centre = gen.normal(size=(count, FEATURES))
    rule = gen.normal(size=(FEATURES, CLASSES))
    label = (centre @ rule).argmax(1)
    label = np.where(gen.random(count) < 0.2, gen.integers(0, CLASSES, count), label)
    group = np.repeat(np.arange(count), size)
    x = centre[group] + 0.01 * gen.normal(size=(len(group), FEATURES))
    columns = (label[group], group // GROUPS, group)
    y, client, unit = (torch.from_numpy(column) for column in columns)
    return torch.from_numpy(x.astype(np.float32)), y, client, unit


def outcome(fed: Federation, gen: np.random.Generator, hidden: int = 0) -> Outcome:
    """Every client's own ridge regression on random features, on its own test split.

    So many of the inputs are ``hidden`` from it.
    """
    right = []
    x = fed.x[:, hidden:].double()
    for k in range(len(fed)):
        a = torch.from_numpy(gen.normal(size=(x.shape[1], HIDDEN)) / 2)
        b = torch.from_numpy(gen.uniform(0, 2 * np.pi, HIDDEN))

        def lift(rows: Tensor, a: Tensor = a, b: Tensor = b) -> Tensor:
            return torch.cos(x[rows] @ a + b)

        train, test = fed.train.of(k), fed.test.of(k)
        phi, target = lift(train), torch.nn.functional.one_hot(fed.y[train], CLASSES).double()
        gram = phi.T @ phi + 0.1 * len(phi) * torch.eye(HIDDEN, dtype=torch.float64)
        weight = torch.linalg.solve(gram, phi.T @ target)
        right.append((lift(test) @ weight).argmax(1).eq(fed.y[test]).float())
    accuracy = [float(each.mean()) for each in right]
    return Outcome({"accuracy": accuracy}, right, None, ["own"] * len(fed))


def calls(size: int, repeats: int, counted: str, federations: int) -> list[int]:
    """How many of the clients of each federation are called."""
    found = []
    for f in range(federations):
        gen = np.random.default_rng([f, size, repeats])
        x, y, client, group = draw(gen, size)
        fed = federation(x, y, client, group=None if counted == "rows" else group, seed=f)
        trials = []
        for r in range(repeats):
            fold = fed.fold(r)
            fold = fold if counted in ("groups", "shown") else replace(fold, unit=None)
            baseline = outcome(fold, gen, 6 if counted == "shown" else 0)
            trials.append(Trial(fold, outcome(fold, gen), baseline))
        verdicts = client_table(trials)["verdict"]
        found.append(sum(v in ("better off", "worse off") for v in verdicts))
    return found


def drawn(fed: Federation, gen: np.random.Generator) -> Outcome:
    """Every client's model on all clients' test examples: a group is right at random."""
    assert fed.unit is not None
    chance = 0.7 + 0.02 * gen.normal(size=(len(fed), 1))
    right = torch.from_numpy(gen.random((len(fed), int(fed.unit.max()) + 1)) < chance).float()
    pool = right[:, fed.unit[fed.test.rows]]
    own = [right[k, fed.unit[fed.test.of(k)]] for k in range(len(fed))]
    return Outcome({"accuracy": [float(o.mean()) for o in own]}, own, pool, ["own"] * len(fed))


def pooled_calls(repeats: int, told: bool, federations: int) -> tuple[list[int], int]:
    """How many clients are called by the pooled estimate, and how often it was refused."""
    gen = np.random.default_rng(0)
    group = np.repeat(np.arange(CLIENTS * 40), 5)
    x, y = gen.normal(size=(len(group), 1)), gen.integers(0, 4, CLIENTS * 40)[group]
    fed = federation(x, y, CLIENTS, partition="dirichlet(0.5)", group=group)
    folds, found, refused = [fed.fold(r) for r in range(repeats)], [], 0
    for f in range(federations):
        gen = np.random.default_rng([f, repeats])
        pairs = [(fold, drawn(fold, gen), drawn(fold, gen)) for fold in folds]
        trials = [Trial(p if told else replace(p, unit=None), a, b) for p, a, b in pairs]
        verdicts = client_table(trials)["verdict"]
        found.append(sum(v in ("better off", "worse off") for v in verdicts))
        refused += not pooling_of(trials).used
    return found, refused


def main() -> None:
    """Print a table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--federations", type=int, default=30)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    suggested_groups.mention = lambda *_: None  # the copies are known
    results = []
    print(f"{CLIENTS} clients of {GROUPS} groups, {options.federations} federations;")
    print("called better or worse off, in % of clients:")
    print(f"{'rows a group':>12} {'repeats':>7}  " + "  ".join(f"{c:>24}" for c in COUNTED))
    for size in (1, 5, 10):
        for repeats in (1, 3, 5):
            shares = {}
            for counted in COUNTED:
                found = calls(size, repeats, counted, options.federations)
                share = 100 * np.mean(found) / CLIENTS
                error = 100 * np.std(found, ddof=1) / CLIENTS / len(found) ** 0.5
                shares[counted] = f"{share:.1f} ± {error:.1f}"
                about = {"rows": size, "repeats": repeats, "counted": counted}
                results.append({**about, "called": share, "standard_error": error})
            print(f"{size:>12} {repeats:>7}  " + "  ".join(f"{s:>24}" for s in shares.values()))
    print("\npooled:")
    print(f"{'repeats':>20}  {'rows':>16} {'refused':>8}  {'groups':>16} {'refused':>8}")
    for repeats in (1, 3, 5, 8):
        cells = []
        for told in (False, True):
            found, refused = pooled_calls(repeats, told, options.federations)
            share = 100 * np.mean(found) / CLIENTS
            error = 100 * np.std(found, ddof=1) / CLIENTS / len(found) ** 0.5
            cells.append(f"{f'{share:.1f} ± {error:.1f}':>16} {refused:>8}")
            about = {
                "rows": 5,
                "repeats": repeats,
                "counted": "pooled groups" if told else "pooled",
            }
            results.append({**about, "called": share, "standard_error": error})
        print(f"{repeats:>20}  " + "  ".join(cells))
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
