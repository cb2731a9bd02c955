"""Fair representations on UCI Adult, by the protocol of Liang et al., 2020, section 5.5.

    python benchmarks/fair_adult.py                  5 repeats of both splits; figures are in
    python benchmarks/fair_adult.py --cells DIR      DIR, so that it can be stopped and go on
    python benchmarks/fair_adult.py --keep           and fair_adult.txt beside this

30,000 people of ten clients, i.i.d. or ten of a hundred shards by label each; a half of each
client's people is tested on, and a tenth of the others chooses λ. The model is an MLP of five
hidden layers of 32 with dropout 0.2, of which LG-FedAvg keeps the first three private; SGD with
lr 0.1, momentum 0.5, mini-batches of 32. Each repeat has its own split and first model.
"""

from __future__ import annotations

import argparse
import json
import platform
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch

from glocal.experiment.config import Config
from glocal.report import fair_representations as report
from glocal.studies import fair_representations as study

HERE = Path(__file__).parent
SPLITS = {"iid": "iid", "non-iid": "shards(10)"}
SGD = "lr=0.1, momentum=0.5, batch_size=32"
METHODS = {
    f"lg-fedavg(warmup=0, shared=last(3), rounds=10, epochs=1, {SGD})": (0, 1, 3, 10),
    f"fedavg(rounds=20, epochs=1, {SGD})": (0, 3),
}
"""Each with its λ."""

AGAINST = study.Against(pretrain=10)
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
    lams = sorted({lam for several in METHODS.values() for lam in several})
    for (method, lam), spec in study.all_specs(list(METHODS), lams, given, fed, AGAINST).items():
        if lam not in METHODS[method]:
            continue
        path = folder / f"{name}-{report.short_name(method)}-{lam:g}-{repeats}.json"
        if not path.exists():
            several = several or study.repeated(given, fed)
            path.write_text(json.dumps(study.figures(spec, several)))
        cells[method, lam] = json.loads(path.read_text())
    return study.summarised(cells, LEAST) | study.about_study(given, fed, AGAINST)


def show(repeats: int, folder: Path, picture: Path | None) -> None:
    """Print the tables of both splits, and draw the first."""
    print(f"torch {torch.__version__}, {platform.machine()}, {repeats} repeats; {AGAINST}")
    for name, partition in SPLITS.items():
        result = result_of(name, repeats, folder)
        print(f"\n== {name}: {partition} ==\n")
        report.show(result)
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
