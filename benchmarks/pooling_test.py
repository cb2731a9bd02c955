"""The test of pooling on digits: as partitioned, and with some clients' images changed.

Each line is one federation of 20 clients (dirichlet(0.3), unless another is named) or of 60 with
some 6 test examples each, trained alone in 1 and in 3 repeats: z, the largest z of a client, and
whether test examples are pooled.

    python benchmarks/pooling_test.py [--seeds 3] [--cases "five inverted" …]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from glocal.core.progress import silent
from glocal.data.federation import Federation
from glocal.data.loading import load
from glocal.data.split import UnsplitData
from glocal.data.transforms import Transform, chosen
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.pooling_test import pooling
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import baseline_of


def changed(name: str, clients: int, change: Callable[[Tensor], Tensor]) -> Transform:
    """A change to the images of so many clients."""

    def apply(data: UnsplitData) -> UnsplitData:
        picked = chosen(clients, data.names, data.seed)
        rows = torch.cat([data.rows.of(k) for k in picked])
        return replace(data, x=data.x.index_put((rows,), change(data.x[rows])))

    return Transform(name, apply)


def inverted(x: Tensor) -> Tensor:
    """White on black."""
    return 1 - x


def shifted(x: Tensor) -> Tensor:
    """By a pixel to the right."""
    return torch.roll(x, 1, -1)


@dataclass(frozen=True)
class Case:
    """How digits are partitioned and changed."""

    transform: Transform | None = None
    partition: str = "dirichlet(0.3)"
    clients: int = 20


CASES = {
    "as partitioned": Case(),
    "iid": Case(partition="iid"),
    "classes(2)": Case(partition="classes(2)"),
    "five inverted": Case(changed("inverted", 5, inverted)),
    "ten shifted by a pixel": Case(changed("shifted", 10, shifted)),
    "one inverted": Case(changed("inverted", 1, inverted)),
    "one shifted by a pixel": Case(changed("shifted", 1, shifted)),
    "of 60, as partitioned": Case(partition="dirichlet(1)", clients=60),
    "of 60, six shifted": Case(changed("shifted", 6, shifted), "dirichlet(1)", 60),
    "of 60, one inverted": Case(changed("inverted", 1, inverted), "dirichlet(1)", 60),
}


def alone(case: Case, seed: int, repeats: int) -> list[tuple[Federation, Outcome]]:
    """Each repeat's federation, and the outcome of the local baseline."""
    fed = load(
        "digits",
        clients=case.clients,
        partition=case.partition,
        transforms=[] if case.transform is None else [case.transform],
        pooled=True,
        seed=seed,
    )
    config, found = Config(seed=seed, repeats=repeats), []
    for r in range(repeats):
        setup = setups.make(config, fed, r)
        with setup.threads():
            _, outcome = setups.measured(
                setup, baseline_of(config).client, lambda done, total: silent("", done, total)
            )
        found.append((setup.fed, outcome))
    return found


def main() -> None:
    """Print a line for each federation."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    options = parser.parse_args()
    print(f"{'digits':<24} seed repeats      z  largest  (limits 2.3; 3.3 of 20 and 3.6 of 60)")
    for case in options.cases:
        for seed in range(options.seeds):
            found = alone(CASES[case], seed, 3)
            for repeats in (1, 3):
                pool = pooling(found[:repeats])
                assert pool.scores is not None
                worst = pool.scores.of_clients[pool.scores.worst]
                used = "pooled" if pool.used else "not pooled"
                line = (
                    f"{case:<24} {seed:>4} {repeats:>7} {pool.scores.z:>6.1f} {worst:>8.1f}  {used}"
                )
                print(line, flush=True)


if __name__ == "__main__":
    main()
