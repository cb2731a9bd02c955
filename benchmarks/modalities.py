"""Do clients with an image and a question gain from having both, and from the federation?

Twelve clients of ``digits-questions``: six have images and questions, three images, three questions
alone. Each has encoders of its own for what it has; the fusion head is shared (LG-FedAvg without a
warm-up). The six are then given one encoder instead of two, and all is trained again. Every client
is also trained alone, with the same model. Accuracies are of own test examples.

    python benchmarks/modalities.py             # or some: both, image, question
"""

from __future__ import annotations

import sys
from typing import Any

import torch

import glocal

MODELS = {
    "both": "image-question",
    "image": "image-question(only=image)",
    "question": "image-question(only=question)",
}
METHOD = "lg-fedavg(shared=fusion, warmup=0, lr=0.3, batch_size=20)"
ALONE = "local(lr=0.3, batch_size=20, max_epochs=60, patience=20)"
ROUNDS, REPEATS = 30, 3
KINDS = ("both", "image", "question")


def run(given: str) -> glocal.Run:
    """All twelve, of whom the six with both have the encoders of ``given``."""
    assign = {"both*": given, "image*": "image", "question*": "question"}
    fed = glocal.load("digits-questions")
    settings: dict[str, Any] = {"rounds": ROUNDS, "repeats": REPEATS, "baseline": ALONE}
    return glocal.fit(METHOD, fed, model=MODELS, assign=assign, **settings)


def mean(rows: list[dict[str, Any]], what: str) -> float:
    """Over clients, in per cent."""
    return 100 * float(sum(row[what] for row in rows)) / len(rows)


def main(wanted: list[str]) -> None:
    """Train the federations and print what came of each kind of client."""
    torch.set_num_threads(1)
    print(f"{METHOD}, {ROUNDS} rounds, {REPEATS} repeats; alone: {ALONE}")
    head = "clients with  encoders  alone %  federation %  better off  worse off  undecided"
    print(f"{head}  each client in the federation %", flush=True)
    for given in wanted or KINDS:
        result = run(given)
        for kind in KINDS if given == "both" else ("both",):
            rows = [row for row in result.clients if str(row["client"]).startswith(kind)]
            verdicts = [row["verdict"] for row in rows]
            counts = [verdicts.count(v) for v in ("better off", "worse off", "undecided")]
            encoders = given if kind == "both" else kind
            figures = f"{mean(rows, 'local_accuracy'):7.1f}  {mean(rows, 'accuracy'):12.1f}"
            counted = f"{counts[0]:10}  {counts[1]:9}  {counts[2]:9}"
            each = " ".join(f"{100 * row['accuracy']:.0f}" for row in rows)
            print(f"{kind:12}  {encoders:8}  {figures}  {counted}  {each}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
