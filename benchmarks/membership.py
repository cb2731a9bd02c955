"""Who was trained on? A membership attack on what clients send, with and without dp-sgd.

The attack follows Yeom, Giacomelli, Fredrikson, Jha (*Privacy risk in machine learning*, CSF 2018):
an example is said to have been trained on if a model has a low loss on it. The attacker is the
server, which knows a client's model before and after its round: by how much did the loss of an
example fall? Members are the training examples of the client, others the test examples of all
clients, who have the same distribution. 600 digits among ten clients; a fifth of all labels, of
training and test examples alike, is replaced at random, which a model can only learn by heart. The
attacked round is the last. The noise is drawn from the seed (public_noise), so that the same is
printed again.

    python benchmarks/membership.py > benchmarks/membership.txt
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import glocal
from glocal.evaluation.synthetic_data import told_apart
from glocal.slots.privacy import shown
from glocal.training import secret_draws

BASE = "fedavg(lr=0.3,epochs=5,batch_size=10)"
SPECS = (
    BASE,
    f"{BASE}+dp-sgd(clip=1,noise=0)",
    f"{BASE}+dp-sgd(clip=1,noise=1)",
    f"{BASE}+dp-sgd(clip=1,noise=2)",
    f"{BASE}+dp-sgd(clip=1,noise=4)",
)
EXAMPLES = 600
HEAD = f"{'method':62}{'ε largest':>30}{'ε median':>30}{'accuracy':>10}{'AUC':>7}{'advantage':>11}"


def data(seed: int) -> glocal.Federation:
    """Digits with a fifth of the labels replaced, ten clients at random."""
    x, y = (part[:EXAMPLES] for part in load_digits(return_X_y=True))
    draw = np.random.default_rng(seed)
    replaced = draw.random(len(y)) < 0.2
    y = np.where(replaced, draw.integers(0, 10, len(y)), y)
    return glocal.federation(
        (x / 16).astype("float32"), y, clients=draw.integers(0, 10, len(y)), seed=seed
    )


def attacked(run: glocal.Run, fed: glocal.Federation) -> dict[str, Any]:
    """One more round, in which everybody is attacked; the server's accuracy on test examples."""
    assert run.trained is not None
    training, progress = run.trained.training, run.trained.progress
    task, server = training.task, progress.server["params"]
    everybody = torch.arange(len(fed))
    work = training.round_of(progress, everybody, training.round_key(progress))
    uplink, _ = training.engine.round(work)
    if progress.took_part is not None:
        progress.took_part += 1

    def loss(params: dict[str, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
        return task.example_metrics(params, fed.x[rows], fed.y[rows])["loss"]

    fell: dict[str, list[torch.Tensor]] = {"members": [], "others": []}
    for k in range(len(fed)):
        sent = {name: w + uplink.update[name][k] for name, w in server.items()}
        for who, rows in (("members", fed.train.of(k)), ("others", fed.test.rows)):
            fell[who].append(loss(sent, rows) - loss(server, rows))
    rates = told_apart(torch.cat(fell["members"]), torch.cat(fell["others"]))
    correct = task.example_metrics(server, fed.x[fed.test.rows], fed.y[fed.test.rows])["correct"]
    spent = secret_draws.examples_spent(training, progress)
    return {**rates, "accuracy": float(correct.mean()), "spent": spent}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{arguments.rounds} rounds, means over {arguments.seeds} seeds (± standard deviation)")
    print(HEAD)
    for spec in SPECS:
        rows = []
        for seed in range(arguments.seeds):
            fed = data(seed)
            run = glocal.fit(
                spec,
                fed,
                model="mlp(128)",
                rounds=arguments.rounds - 1,
                baseline="none",
                seed=seed,
                public_noise=True,
                progress=False,
            )
            rows.append(attacked(run, fed))
        cells = []
        for name, width in (("accuracy", 10), ("auc", 7), ("advantage", 11)):
            values = torch.tensor([row[name] for row in rows], dtype=torch.float64)
            cells.append(f"{float(values.mean()):{width}.3f}")
        spent = rows[0]["spent"]
        figures = [shown(spent[k]) if spent else "–" for k in ("epsilon", "median")]
        spread = torch.tensor([row["auc"] for row in rows], dtype=torch.float64).std()
        told = f"{''.join(cells)}   (AUC ± {float(spread):.3f})"
        print(f"{spec:62}{figures[0]:>30}{figures[1]:>30}{told}", flush=True)


if __name__ == "__main__":
    main()
