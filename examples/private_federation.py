"""Differential privacy of clients: what ε a federation has, and what that costs in accuracy.

The noise comes from a secret key, so that two runs differ a little.
"""

import torch

import glocal

torch.manual_seed(0)
phone = torch.arange(3000) % 150  # 150 phones with 20 rows each
x = torch.randn(3000, 8)
y = (x @ torch.linspace(-1, 1, 8) + 0.3 * torch.randn(3000) > 0).long()
fed = glocal.federation(x, y, clients=phone, seed=0)

# Each phone is in a round with probability 0.2, and nobody knows which were.
settings = {"model": "logistic", "rounds": 10, "fraction": 0.2, "poisson": True}
print("noise   ε at δ = 1e-5   mean accuracy")
for noise in (0.0, 0.6, 1.0, 2.0):
    method = f"fedavg+dp(clip=0.5, noise={noise}, delta=1e-5)" if noise else "fedavg"
    run = glocal.fit(method, fed, baseline="none", **settings)
    epsilon = run.summary.get("epsilon")
    shown = "not private" if epsilon is None else f"{epsilon:.2f}"
    print(f"{noise:5.1f}   {shown:>13}   {100 * run.summary['mean']:.1f} %")

print("\nWhat the last ε rests on:")
for key in ("neighbours", "sampling", "accountant"):
    print(f"  {key}: {run.summary['privacy'].get(key, '–')}")
