"""A table of digits with two cells, in each of the kinds that the papers' tables have."""

from __future__ import annotations

from pathlib import Path

from papers import tables

ROOT = Path(__file__).parents[1]

TINY = """
title = "Tiny"
source = "a paper, its table"
kind = "{kind}"
seeds = [0, 1]
differs = ["Ours is of digits."]

[settings]
data = "digits"
clients = 4
partition = "classes(3)"
rounds = 4
sampled = 2
model = "mlp(8)"
engine = "vectorised"
baseline = "{baseline}"

[measure]
train = 60
test = 20
own_epochs = 1
join_rounds = 1
fraction = 0.5
epochs = [1, 2]
adapting = "fedavg(epochs={{epochs}}, lr=0.05)+uniform"

[quick]
rounds = 1

[[columns]]
name = "{column}"
label = "accuracy, %"

[[rows]]
name = "{method}"
label = "A method"
method = "{method}(lr=0.1, {more})"

[[groups]]
name = "digits"
label = "digits"
[groups.published]
{method} = [[50.0, 1.5]]
"""
FIT = {"kind": "fit", "column": "accuracy", "method": "superfed-mm", "more": "start=0.5"}
JOIN = {"kind": "join", "column": "old_after", "method": "lg-fedavg", "more": "warmup=2"}
AGAIN = {"kind": "again", "column": "again_2", "method": "fedavg", "more": "epochs=1"}
WITHOUT = {"kind": "without", "column": "kept_after", "method": "fedavg", "more": "epochs=1"}
ALONE = "local(max_epochs=2, lr=0.1)"


def tiny(folder: Path, kind: dict[str, str]) -> tables.Table:
    baseline = ALONE if kind in (JOIN, WITHOUT) else "none"
    (folder / "tiny.toml").write_text(TINY.format(**kind, baseline=baseline))
    return tables.read("tiny", folder)
