"""Fair representations on UCI Adult, by the protocol of Liang et al., 2020, section 5.5.

    python benchmarks/fair_adult.py                  5 repeats of both splits; figures are in
    python benchmarks/fair_adult.py --cells DIR      DIR, so that it can be stopped and go on
    python benchmarks/fair_adult.py --keep           and fair_adult.txt beside this

30,000 people of ten clients, i.i.d. or ten of a hundred shards by label each; a half of each
client's people is tested on, and a tenth of the others chooses λ. The model is an MLP of five
hidden layers of 32 with dropout 0.2, of which LG-FedAvg keeps the first three private; SGD with
lr 0.1, momentum 0.5. Each repeat has its own split and first model. LG-FedAvg is trained against
two adversaries: the paper's, with mini-batches of 32, and one that keeps up with the model: it has
Adam, and takes 20 steps, each on 16 people, before the model takes one on all 320; that for 20
epochs a round. These settings were chosen on the first repeat's validation data, i.i.d.
"""

from __future__ import annotations

import argparse
import json
import platform
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch

from glocal.data.federation import Federation
from glocal.evaluation.group_gaps import attribute_auc
from glocal.experiment.config import Config
from glocal.report import fair_representations as report
from glocal.report.tables import paragraphs
from glocal.studies import fair_representations as study

HERE = Path(__file__).parent
SPLITS = {"iid": "iid", "non-iid": "shards(10)"}
SGD = "lr=0.1, momentum=0.5"
LG = "lg-fedavg(warmup=0, shared=last(3), rounds=10"
KEEPS_UP = study.Against(
    how="alternating", steps=20, rate=0.03, optimiser="adam", hidden=64, pretrain=10
)
ARMS = {
    "lg": (f"{LG}, epochs=1, {SGD}, batch_size=32)", study.Against(pretrain=10), (0, 1, 3, 10)),
    "keeps-up": (f"{LG}, epochs=20, {SGD}, batch_size=320, grad_clip=1)", KEEPS_UP, (5,)),
    "fedavg": (f"fedavg(rounds=20, epochs=1, {SGD}, batch_size=32)", study.Against(), (0, 3)),
}
"""Each a method, its adversary and its λ."""

LEAST = 0.8


def config(partition: str, repeats: int) -> Config:
    """The protocol's data and model."""
    return Config(
        data="adult(paper=true)",
        clients=10,
        partition=partition,
        split=(0.45, 0.05, 0.5),
        model="mlp(32, 32, 32, 32, 32, dropout=0.2)",
        engine="vectorised",
        validate_every=0,
        repeats=repeats,
    )


def result_of(name: str, repeats: int, folder: Path) -> dict[str, Any]:
    """All cells of a split, those that are there already read, the others trained."""
    cells: dict[tuple[str, float], list[study.Cell]] = {}
    given = config(SPLITS[name], repeats)
    fed = given.federation(announced=False)
    several: list[Any] = []
    layer = "layers.3"  # where LG-FedAvg's private layers end
    for arm, (method, against, lams) in ARMS.items():
        for lam in lams:
            path = folder / f"{name}-{arm}-{lam:g}-{repeats}.json"
            if not path.exists():
                several = several or study.repeated(given, fed)
                spec = study.with_adversary(method, lam, against, layer)
                path.write_text(json.dumps(study.figures(spec, several)))
            cells[method, lam] = json.loads(path.read_text())
    about = study.about_study(given, fed, study.Against()) | {"rounds": "10 or 20"}
    return study.summarised(cells, LEAST) | about | {"limits": limits(fed)}


def limits(fed: Federation) -> str:
    """What labels alone say about how fair an accurate representation can be."""
    assert fed.attributes is not None
    rows = fed.test.rows
    y, codes = fed.y[rows], fed.attributes.codes[rows]
    known = torch.stack([1.0 - y, y.float()], 1)
    aucs = [max(auc, 1 - auc) for auc in (attribute_auc(known, group) for group in codes.T)]
    told = ", ".join(
        f"{n} {100 * auc:.1f} %" for n, auc in zip(fed.attributes.names, aucs, strict=True)
    )
    # Predictions that are 1 for a share r of every group g disagree with |r − P(y = 1 | g)| of it.
    group = (codes * torch.tensor([2, 1])).sum(1)
    people = torch.bincount(group)
    rates = torch.stack([y[group == g].double().mean() for g in range(len(people))])
    wrong = min(float((people * (r - rates).abs()).sum() / len(y)) for r in rates)
    return (
        f"The label itself has an AUC of {told}: as much is given away by a representation from "
        "which labels are predicted perfectly. Predictions that are as often 1 in each group of "
        f"race and sex can be right for {100 * (1 - wrong):.1f} % of the people, and no more."
    )


def show(repeats: int, folder: Path, picture: Path | None) -> None:
    """Print the tables of both splits, and draw the first."""
    print(f"torch {torch.__version__}, {platform.machine()}, {repeats} repeats")
    for arm, (method, against, _) in ARMS.items():
        print(f"{arm}: {method}; {against}")
    for name, partition in SPLITS.items():
        result = result_of(name, repeats, folder)
        print(f"\n== {name}: {partition} ==\n")
        report.show(result)
        paragraphs(result["limits"])
        if picture is not None:
            report.draw(result, picture.with_stem(f"{picture.stem}-{name}"))


def main() -> None:
    """Read the options and measure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--cells", type=Path, default=Path("fair_adult_cells"))
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--picture", type=Path)
    options.add_argument("--keep", action="store_true")
    given = options.parse_args()
    given.cells.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    if not given.keep:
        show(given.repeats, given.cells, given.picture)
        return
    with (HERE / "fair_adult.txt").open("w") as file, redirect_stdout(file):
        show(given.repeats, given.cells, given.picture)


if __name__ == "__main__":
    main()
