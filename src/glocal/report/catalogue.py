"""What there is to choose from: methods, components, models, data sets; and a partition, drawn."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from glocal.data.datasets.registry import SOURCES
from glocal.data.partition import list_partitions
from glocal.data.transforms import TRANSFORMS
from glocal.methods import registry
from glocal.methods.specs import SELECTORS
from glocal.methods.training_args import TrainingArgs
from glocal.nn import models, optim
from glocal.nn.augment import AUGMENTATIONS
from glocal.report.tables import Cell, table
from glocal.studies.bench import HEADER, render

if TYPE_CHECKING:
    from glocal.data.federation import Federation

SHADES = " ░▒▓█"


def list_methods() -> None:
    """Methods, what can be joined to them, models."""
    methods = {name: entry.make for name, entry in registry.entries("method").items()}
    print("Methods (first in a spec, settings in brackets: 'fedprox(mu=0.1, epochs=2)')\n")
    table(["name", "what it does", "its own settings"], _described(methods, TrainingArgs), left=3)
    print(f"\nEvery method also takes {', '.join(TrainingArgs.__annotations__)} and shared.")
    print("\nJoined with + ('fedavg+uniform+adam(lr=0.01)')\n")
    components: list[list[Cell]] = [
        [(name, "bold"), slot.replace("server_opt", "server optimiser"), first_line(make)]
        for name, (slot, make) in registry.entries(*registry.COMPONENTS).items()
    ]
    table(["name", "fills", "what it does"], components, left=3)
    print("\nshared= (which layers: names, patterns such as 'layers.2*', or one of these)\n")
    table(["name", "what it does"], _named(SELECTORS), left=2)
    print("\nschedule= (of the clients' learning rate)\n")
    table(["name", "what it does"], _named(optim.SCHEDULES), left=2)
    print("\n--model (or your own, as net.py:Name)\n")
    table(["name", "what it is"], _named(models.REGISTRY), left=2)
    print("\n--augment\n")
    table(["name", "what it does"], _named(AUGMENTATIONS), left=2)


def _described(bases: Mapping[str, Callable[..., Any]], training: Any) -> list[list[Cell]]:
    rows: list[list[Cell]] = []
    for name, make in bases.items():
        settings = [
            f"{p.name}={_default(p.default)}"
            for p in inspect.signature(make).parameters.values()
            if p.kind != p.VAR_KEYWORD and p.name not in training.__annotations__
        ]
        rows.append([(name, "bold"), first_line(make), ", ".join(settings)])
    return rows


def _default(value: Any) -> str:
    return "…" if value is inspect.Parameter.empty else str(value).replace(" ", "")


def _named(things: Mapping[str, Callable[..., Any]]) -> list[list[Cell]]:
    return [[(name, "bold"), first_line(make)] for name, make in things.items()]


def first_line(thing: object) -> str:
    """The first sentence of a docstring, without its markup."""
    text = inspect.getdoc(thing) or ""
    return text.split("\n\n")[0].replace("\n", " ").replace("``", "")


def list_data() -> None:
    """Data sets, partitions and transforms."""

    def rows(things: Mapping[str, str]) -> list[list[Cell]]:
        return [[(name, "bold"), about.replace("``", "")] for name, about in things.items()]

    print("Data sets (--data; or your own .csv with label and client columns, or .npz with x, y)\n")
    table(
        ["name", "what it is", "licence", "from"],
        [
            [(name, "bold"), first_line(entry.make), entry.licence, entry.origin]
            for name, entry in SOURCES.items()
        ],
        left=4,
    )
    print(
        "\nWhat is not there yet is fetched once, checked and kept. Your own copy comes first:\n"
        "set GLOCAL_DATA to its folder. Fewer examples: 'mnist(examples=6000)'."
    )
    print("\nPartitions (--partition)\n")
    table(["name", "how examples are partitioned among clients"], rows(list_partitions()), left=2)
    print("\nTransforms (--transform)\n")
    table(["name", "what changes"], _named(TRANSFORMS), left=2)
    print("\n'glocal data digits --partition \"classes(2)\"' draws one.")


def draw_federation(fed: Federation) -> None:
    """Who has how many examples of which class, as shades and numbers."""
    about = fed.describe
    print(
        f"{about.get('data', 'data')}: {fed.x.shape[0]} examples of shape "
        f"{tuple(fed.x.shape[1:])}, {fed.classes} classes, {len(fed)} clients "
        f"({about.get('partition') or 'its own clients'})."
    )
    if fed.central is not None:
        print(f"{len(fed.central[0])} more are a central test set, which is no client's.")
    leftovers = about.get("leftovers") or 0
    if leftovers:
        print(f"{leftovers} examples are left over and belong to nobody.")
    if fed.y.dim() == 1:
        _draw_labels(fed)
    tested = "pooled test examples" if fed.label_shift_only else "each client's own test split"
    print(f"\nClients would be evaluated on {tested}.")
    print(f"Fingerprint: {fed.fingerprint[:16]}")


def _draw_labels(fed: Federation) -> None:
    counts = torch.stack(
        [
            torch.bincount(
                torch.cat([fed.y[s.of(k)] for s in (fed.train, fed.val, fed.test)]),
                minlength=fed.classes,
            )
            for k in range(len(fed))
        ]
    )
    top = max(1, int(counts.max()))
    rows: list[list[Cell]] = []
    for k, name in enumerate(fed.names):
        shades = "".join(
            SHADES[-(-int(c) * (len(SHADES) - 1) // top)] * 2 for c in counts[k].tolist()
        )
        sizes = [str(int(s.counts()[k])) for s in (fed.train, fed.val, fed.test)]
        rows.append([name, shades, *sizes])
    print()
    table(["client", f"labels 0 … {fed.classes - 1}", "train", "val", "test"], rows, left=2)
    print(f"\n{SHADES[-1]} is {top} examples of one class at one client.")


def show_bench(result: Mapping[str, Any]) -> None:
    """Print the benchmark's table."""
    table(HEADER, render(dict(result)))
