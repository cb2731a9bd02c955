"""Text federations: who is better off than alone, by perplexity.

    python benchmarks/text.py                  roles of Shakespeare, small: minutes on two cores
    python benchmarks/text.py sotu             presidents' next words, small
    python benchmarks/text.py sotu --keep      and in text-sotu.txt beside this
    python benchmarks/text.py leaf --device cuda      the papers' sizes, for a GPU
    python benchmarks/text.py words --device cuda

Clients alone choose their rate and epoch on validation data; federated methods have the rate that
is given unless --tune is asked for, which takes several times as long. Text is split in the order
of time, so all repeats have the same test examples, and differ in training alone. It needs torch
and numpy, and the text: in the cache, or a folder that GLOCAL_DATA names.

``leaf``: the model and the settings of SuPerFed's Shakespeare (5 clients a round, 5 epochs, batches
of 50, rate 0.8 less 1 % a round), on all 426 roles and every window. ``words``: the model and the
clients' settings of *Salvaging federated learning by local adaptation* (2 layers of 200, at most
50,000 words, rate 40, gradients clipped to 0.25, the last tenth for testing), on 43 presidents
instead of 80,000 users.
"""

from __future__ import annotations

import argparse
import platform
import time
from pathlib import Path
from typing import Any

import torch

import glocal

METHODS = ("local", "fedavg", "fedper", "ditto")

LEAF = "lr=0.8,momentum=0.9,weight_decay=1e-4,batch_size=50,epochs=5,schedule=step(0.99)"
WORDS = "lr=40.0,batch_size=20,epochs=2,grad_clip=0.25"

CASES: dict[str, dict[str, Any]] = {
    "shakespeare": {
        "data": "shakespeare(roles=6,characters=4000,length=40,stride=10)",
        "model": "char-lstm(embedding=8,hidden=32,layers=1)",
        "training": "lr=1.0,batch_size=50,epochs=1,grad_clip=1",
        "alone": "local(grid=[0.5,1.0],batch_size=50,grad_clip=1,max_epochs=15,patience=4)",
        "rounds": 15,
    },
    "sotu": {
        "data": "sotu(words=1500,vocabulary=200,length=10)",
        "model": "word-lstm(hidden=32,layers=1)",
        "training": "lr=3.0,batch_size=35,epochs=1,grad_clip=1",
        "alone": "local(grid=[1.0,3.0],batch_size=35,grad_clip=1,max_epochs=20,patience=4)",
        "rounds": 15,
    },
    "leaf": {
        "data": "shakespeare(stride=1)",
        "model": "char-lstm",
        "training": LEAF,
        "alone": f"local({LEAF},max_epochs=50,patience=5)",
        "rounds": 500,
        "sampled": 5,
    },
    "words": {
        "data": "sotu(vocabulary=50000)",
        "split": (0.8, 0.1, 0.1),
        "model": "word-lstm",
        "training": WORDS,
        "alone": f"local({WORDS},max_epochs=50,patience=5)",
        "rounds": 1000,
        "sampled": 10,
    },
}


def measured(case: str, repeats: int, device: str, rounds: int | None, *, tune: bool) -> list[str]:
    """A line for each method."""
    given = {"tune": tune, "repeats": repeats, "device": device, **CASES[case]}
    given["rounds"] = rounds or given["rounds"]
    data, training, alone = (given.pop(name) for name in ("data", "training", "alone"))
    fed = glocal.load(data, split=given.pop("split", (0.7, 0.1, 0.2)))
    specs = [alone if name == "local" else f"{name}({training})" for name in METHODS]
    done = glocal.compare(specs, fed, baseline=alone, metric="perplexity", progress=False, **given)
    labels = int(fed.label_counts[fed.test.rows].sum())
    lines = [
        f"{data}: {len(fed)} clients, {len(fed.train.rows)} training examples, {labels} test "
        f"labels, {fed.classes} tokens",
        f"{given['model']}, {training}, {given['rounds']} rounds of {given.get('sampled', 'all')}, "
        f"{repeats} repeat{'s' * (repeats > 1)}{', tuned' * tune}",
        f"alone: {alone}",
        f"  {'':8} {'perplexity':>10} {'top-1 %':>8} {'top-5 %':>8}  {'vs alone':>22}  "
        f"{'better':>6} {'worse':>6} {'same':>6} {'undecided':>9}",
    ]
    for name, run in zip(METHODS, done.values(), strict=True):
        s = run.summary
        by_client = {
            what: sum(row[what] for row in run.clients) / len(run.clients)
            for what in ("perplexity", "accuracy", "top5")
        }
        against = f"{s['benefit']:+.2f} ({s['benefit_low']:+.2f} … {s['benefit_high']:+.2f})"
        lines.append(
            f"  {name:8} {by_client['perplexity']:10.2f} {100 * by_client['accuracy']:8.1f} "
            f"{100 * by_client['top5']:8.1f}  {'' if name == 'local' else against:>22}  "
            f"{s['better_off']:6} {s['worse_off']:6} {s['same']:6} {s['undecided']:9}"
        )
    return lines


def main() -> None:
    """Measure one case and print it."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("case", nargs="?", default="shakespeare", choices=sorted(CASES))
    asked.add_argument("--repeats", type=int, default=3)
    asked.add_argument("--rounds", type=int, help="others than the case's, to try it out")
    asked.add_argument("--device", default="cpu")
    asked.add_argument("--tune", action="store_true")
    asked.add_argument("--keep", action="store_true")
    given = asked.parse_args()
    began = time.perf_counter()
    lines = measured(given.case, given.repeats, given.device, given.rounds, tune=given.tune)
    took = time.perf_counter() - began
    where = f"{platform.machine()}, torch {torch.__version__}, {given.device}"
    text = "\n".join([*lines, where]) + "\n"
    print(text, f"{took:.0f} s", sep="")
    if given.keep:
        Path(__file__).with_name(f"text-{given.case}.txt").write_text(text)


if __name__ == "__main__":
    main()
