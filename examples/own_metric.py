"""A metric of one's own: the share of deliveries that come within half an hour of what was said.

It decides everything: what is chosen on validation data, and who is better off than alone.
"""

import numpy as np
import torch

import glocal


def in_time(hours: np.ndarray, said: np.ndarray) -> float:
    """The share of predictions that are less than half an hour off."""
    return float(np.mean(np.abs(hours - said) < 0.5))


torch.manual_seed(0)
depot = torch.arange(400) % 4
km, stops, rain = 30 * torch.rand(400), torch.randint(1, 9, (400,)), torch.rand(400)
hours = 0.5 + km / 20 + 0.2 * stops + rain * km / 30 + 0.3 * torch.randn(400)
x = torch.stack([km / 10, stops / 3, rain], 1)

fed = glocal.federation(x, hours, clients=depot, task="regression", split=(0.15, 0.1, 0.75))
settings = {"model": "mlp(16)", "rounds": 15, "baseline": "local(max_epochs=20)"}
for metric in (in_time, "mae"):  # a function, or a name
    run = glocal.fit("fedavg", fed, metric=metric, **settings)
    print(f"{run.summary['metric']}: mean {run.summary['mean']:.2f}")
    for row in run.clients:
        print(
            f"  depot {row['client']}: {row['value']:.2f}, alone {row['local_value']:.2f}, better "
            f"by {row['benefit']:+.2f} ({row['low']:+.2f} … {row['high']:+.2f}): {row['verdict']}"
        )
