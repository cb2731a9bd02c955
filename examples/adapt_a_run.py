"""A finished run, read from its folder: each client goes on from what it got, on its own data.

On the command line: ``glocal run fedavg … --out DIR`` and ``glocal adapt DIR --by fine-tune``.
"""

import tempfile
from pathlib import Path

from glocal.experiment.config import Config
from glocal.runs import job
from glocal.studies.adaptation import adapt_runs

config = Config(
    data="digits",
    clients=6,
    partition="classes(4)",
    split=(0.3, 0.1, 0.6),
    model="mlp(32)",
    rounds=8,
    baseline="local(max_epochs=20)",
)
with tempfile.TemporaryDirectory() as name:
    folder = Path(name) / "fedavg"
    job.train(job.new(["fedavg"], config, folder, "run"))
    runs, _, _ = adapt_runs(folder, "fine-tune(max_epochs=10)")

print("client  alone %  received %  adapted %  adapted by    verdict before → after")
for row in runs["fedavg"].clients:
    shares = (row["local_accuracy"], row["accuracy"], row["adapted_accuracy"])
    alone, received, adapted = (100 * share for share in shares)
    print(
        f"{row['client']:<6}  {alone:7.1f}  {received:10.1f}  {adapted:9.1f}  "
        f"{row['adapted_by']:<12}  {row['verdict']} → {row['adapted_verdict']}"
    )
