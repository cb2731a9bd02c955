"""What methods cost: the gradients of a round, against fedavg, and rounds that take as many.

    python benchmarks/footing.py

Digits, 20 clients, dirichlet(0.3), the default model; every method with its own defaults.
"""

from __future__ import annotations

from glocal import load
from glocal.experiment import setup as setups
from glocal.experiment.config import Config
from glocal.experiment.runner import Federated, runner_of
from glocal.methods.registry import known

ROUNDS = 50


def main() -> None:
    """Print a row for each method."""
    fed = load("digits")
    setup = setups.make(Config(rounds=ROUNDS), fed, 0)
    costs: dict[str, float] = {}
    for name in known("method"):
        runner = runner_of(name, name)
        if isinstance(runner, Federated):
            training = runner.check(setup)
            costs[name] = float(training.gradients[0].sum())
    for name, cost in sorted(costs.items(), key=lambda item: item[1]):
        times = cost / costs["fedavg"]
        rounds = max(1, round(ROUNDS / times))
        print(f"{name:14} {cost:10,.0f} a round  × {times:5.2f}  {rounds:4} rounds")


if __name__ == "__main__":
    main()
