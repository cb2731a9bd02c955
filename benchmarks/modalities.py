"""Do clients with an image and a question gain from having both, and from the federation?

Twelve clients of ``digits-questions``: six have images and questions, three images, three questions
alone. Each has encoders of its own for what it has; the fusion head is shared (LG-FedAvg without a
warm-up). The six are then given one encoder instead of two, and all is trained again. Every client
is also trained alone, with the same model. Accuracies are of own test examples.

    python benchmarks/modalities.py
"""

from __future__ import annotations

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


def main() -> None:
    """Train the three federations and print what came of each kind of client."""
    torch.set_num_threads(1)
    print(f"{METHOD}, {ROUNDS} rounds, {REPEATS} repeats; alone: {ALONE}\n")
    head = "clients with  encoders  alone %  federation %  better off  worse off  undecided"
    print(head, flush=True)
    found: dict[str, list[dict[str, Any]]] = {}
    for given in KINDS:
        result = run(given)
        for kind in KINDS if given == "both" else ("both",):
            rows = [row for row in result.clients if str(row["client"]).startswith(kind)]
            verdicts = [row["verdict"] for row in rows]
            counts = [verdicts.count(v) for v in ("better off", "worse off", "undecided")]
            encoders = given if kind == "both" else kind
            figures = f"{mean(rows, 'local_accuracy'):7.1f}  {mean(rows, 'accuracy'):12.1f}"
            line = f"{kind:12}  {encoders:8}  {figures}"
            print(f"{line}  {counts[0]:10}  {counts[1]:9}  {counts[2]:9}", flush=True)
            found.setdefault(f"{kind} {encoders}", rows)
        if given == "both":
            models = result.summary["models"]
    print(
        "\nshared: "
        + ", ".join(f"{100 * m['shared'] / m['parameters']:.1f} % of {m['model']}" for m in models)
    )
    for other in ("image", "question"):
        pairs = zip(found["both both"], found[f"both {other}"], strict=True)
        gains = [100 * (a["accuracy"] - b["accuracy"]) for a, b in pairs]
        listed = ", ".join(f"{gain:+.0f}" for gain in gains)
        print(f"both rather than {other} alone, points for each of the six: {listed}")


if __name__ == "__main__":
    main()
