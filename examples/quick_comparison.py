"""Two methods on handwritten digits: for whom is each better than training alone?

One repeat and nothing tuned, against the same model alone: a first look. ``glocal compare`` does
it properly, with three repeats, tuned, against the best that each client can train by itself.
"""

import glocal

# Each client trains on some 50 images of a few digits.
fed = glocal.load("digits", clients=10, partition="dirichlet(0.3)", split=(0.3, 0.1, 0.6))
compared = glocal.compare(
    ["fedavg", "ditto"],
    fed,
    model="mlp(32)",
    rounds=20,
    repeats=1,
    tune=False,
    baseline="local(max_epochs=20)",
)

print(f"{'method':<8} mean %  worst %  better off  worse off  undecided")
for name, run in compared.items():
    s = run.summary
    shares = f"{100 * s['mean']:6.1f}  {100 * s['worst10']:7.1f}"
    counts = f"{s['better_off']:>10}  {s['worse_off']:>9}  {s['undecided']:>9}"
    print(f"{name:<8} {shares}  {counts}")

print("\nWith ditto, client by client:")
for row in compared["ditto"].clients:
    print(f"  {row['client']}: {100 * row['benefit']:+.1f} points, {row['verdict']}")
