"""Labelled examples that nobody has, made by a federation; and what they are worth."""

import torch

import glocal

torch.manual_seed(0)
site = torch.arange(600) % 4
y = torch.randint(0, 3, (600,))
middle = torch.tensor([[1.5, 0.0, 0.0, 1.0], [0.0, 1.5, 0.0, -1.0], [0.0, 0.0, 1.5, 0.0]])
x = middle[y] + 0.6 * torch.randn(600, 4)
fed = glocal.federation(x, y, clients=site, seed=0)

run = glocal.fit("fedcvae(dense=true)", fed, model="logistic", rounds=12, baseline="none")
made = run.made
assert made is not None
print(f"{len(made.x)} examples of {made.x.shape[1]} numbers, made without any client's rows")
for label in range(3):
    mean = made.x[made.y == label].mean(0)
    numbers = "  ".join(f"{value:+.2f}" for value in mean.tolist())
    print(f"  class {label}: mean {numbers}")

figures = made.figures
print(f"A classifier trained on them alone: {100 * figures['accuracy']:.1f} % on real test data.")
print(
    f"Who was trained on can be told with an AUC of {figures['membership']['auc']:.2f} (0.5: no)."
)
