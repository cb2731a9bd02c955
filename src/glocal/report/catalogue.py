"""What there is to choose from: methods, components, models, data sets; and a partition, drawn."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from glocal.core.spec import written
from glocal.data.datasets.registry import SOURCES
from glocal.data.federation import Federation
from glocal.data.loaded_note import clients_by
from glocal.data.partition import list_partitions
from glocal.data.transforms import TRANSFORMS
from glocal.evaluation.pooling_test import claimed
from glocal.methods import hyperparameters, presets, registry
from glocal.methods.preset_table import Preset
from glocal.methods.specs import SELECTORS
from glocal.methods.training_args import TrainingArgs
from glocal.nn import models, optim
from glocal.nn.augment import AUGMENTATIONS
from glocal.report.tables import Cell, paragraphs, table
from glocal.studies.bench import HEADER, render

SHADES = " ░▒▓█"
ROLE = re.compile(r":[a-z]+:`~?([^`]+)`")
"""A reference of reStructuredText to something by its name."""


def list_methods() -> None:
    """Methods, what can be joined to them, models."""
    methods: list[list[Cell]] = []
    for name, entry in registry.entries("method").items():
        own = [
            f"{p.name}={'…' if p.default is p.empty else str(p.default).replace(' ', '')}"
            for p in inspect.signature(entry.make).parameters.values()
            if p.kind != p.VAR_KEYWORD and p.name not in TrainingArgs.__annotations__
        ]
        methods.append([(name, "bold"), first_line(entry.make), ", ".join(own)])
    print("Methods (first in a spec, settings in brackets: 'fedprox(mu=0.1, epochs=2)')\n")
    table(["name", "what it does", "its own settings"], methods, left=3)
    print(
        f"\nEvery method also takes {', '.join(TrainingArgs.__annotations__)}, shared and rounds:\n"
        "'glocal methods NAME' says what each is, and its default, and which settings of papers "
        "there\nare by name, as in lg-fedavg@mnist."
    )
    print("\nJoined with + ('fedavg+uniform+adam(lr=0.01)')\n")
    components: list[list[Cell]] = [
        [(name, "bold"), slot.replace("server_opt", "server optimiser"), first_line(make)]
        for name, (slot, make) in registry.entries(*registry.COMPONENTS).items()
    ]
    table(["name", "fills", "what it does"], components, left=3)
    shared = "shared= (which layers: names, patterns such as 'layers.2*', or one of these)"
    _list_named(shared, "what it does", SELECTORS)
    _list_named("schedule= (of the clients' learning rate)", "what it does", optim.SCHEDULES)
    _list_named("--model (or your own, as net.py:Name)", "what it is", models.REGISTRY)
    _list_named("--augment", "what it does", AUGMENTATIONS)


def show_method(spec: str) -> None:
    """What a method or a component does and when it helps; its settings, with type and meaning."""
    base, *components = hyperparameters.parts(spec)
    asked = presets.base_name(spec)
    # A component by itself is fedavg with it, which nobody asked about.
    for part in components if asked != base.name else [base, *components]:
        print(f"{part.name}: {first_line(part.make)}\n")
        for paragraph in filter(None, description(part.make).split("\n\n")):
            if paragraph.startswith("    "):  # an equation
                print(paragraph)
            else:
                paragraphs(plain_text(paragraph))
            print()
        own = [each for each in part.settings if each.own]
        others = [each for each in part.settings if not each.own]
        if own:
            _list_settings(own)
        elif not others:
            print("It has no settings.")
        if others:
            blank = "\n" if own else ""
            print(f"{blank}It takes what every method takes:\n")
            _list_settings(others)
        print()
    found = presets.named(spec)
    if found is not None:
        _show_preset(*found)
    elif of_method := presets.of_method(asked):
        print("Settings of papers, which stand for the method with all of them:\n")
        rows: list[list[Cell]] = [[(k, "bold"), v.source] for k, v in of_method.items()]
        table(["preset", "of"], rows, left=2)
        print()


def _show_preset(name: str, preset: Preset) -> None:
    """Where a preset's settings come from, and what it fixes beside the method."""
    print(f"{name} is {preset.spec}.\nSource: {preset.source}.")
    if preset.remark:
        print(f"Remark: {preset.remark}.")
    if not preset.settings:
        return
    print("\nIt also fixes what is not the method's, unless you give it:\n")
    rows: list[list[Cell]] = []
    for setting, value in preset.settings.items():
        shown = " ".join(value) if isinstance(value, tuple) else str(value)
        rows.append([(setting, "bold"), shown])
    table(["setting", "value"], rows, left=2)
    print()


def _list_settings(found: list[hyperparameters.Setting]) -> None:
    rows: list[list[Cell]] = [
        [(each.name, "bold"), _value(each), each.kind, each.meaning] for each in found
    ]
    table(["setting", "value", "type", "what it is"], rows, left=4)


def _value(setting: hyperparameters.Setting) -> str:
    """The value in force as a spec has it."""
    if setting.needed:
        return "(needed)"
    return "–" if setting.value is None else written(hyperparameters.plain(setting.value))


def _list_named(title: str, what: str, things: Mapping[str, Callable[..., Any] | str]) -> None:
    """Print what there is by its name, and the first sentence about each."""
    print(f"\n{title}\n")
    rows: list[list[Cell]] = [[(k, "bold"), first_line(v)] for k, v in things.items()]
    table(["name", what], rows, left=2)


def first_line(thing: object) -> str:
    """The first sentence of a docstring, or of a text, without its markup."""
    text = thing if isinstance(thing, str) else inspect.getdoc(thing) or ""
    return plain_text(text.split("\n\n")[0])


def plain_text(text: str) -> str:
    """A paragraph of a docstring in one line, without its markup."""
    return ROLE.sub(r"\1", text).replace("\n", " ").replace("``", "")


def description(thing: object) -> str:
    """What a docstring says between its first sentence and its arguments."""
    _, _, rest = (inspect.getdoc(thing) or "").partition("\n\n")
    return re.split(r"(?m)^(?:Args|Returns|Raises):$|^Settings as of ", rest)[0].strip("\n")


def list_data() -> None:
    """Data sets, partitions and transforms."""
    print(
        "Data sets (--data; or your own table with label and client columns, or .npz with x, y)\n"
    )
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
    how = "how examples are partitioned among clients"
    _list_named("Partitions (--partition)", how, list_partitions())
    _list_named("Transforms (--transform)", "what changes", TRANSFORMS)
    print("\n'glocal data digits --partition \"classes(2)\"' draws one.")


def draw_federation(fed: Federation) -> None:
    """Who has how many examples of which class, as shades and numbers."""
    about = fed.describe
    what = f"{fed.classes} classes" if fed.target.classes else f"labels for {fed.target.task}"
    print(
        f"{about.get('data', 'data')}: {fed.x.shape[0]} examples of shape "
        f"{tuple(fed.x.shape[1:])}, {what}, {len(fed)} clients "
        f"({clients_by(fed) if fed.columns else about.get('partition') or 'its own clients'})."
    )
    _say_source(str(about.get("data", "")))
    if fed.central is not None:
        print(f"{len(fed.central[0])} more are a central test set, which is no client's.")
    for name, values in about.get("protected", {}).items():
        print(f"Protected attribute {name}: {', '.join(values)}.")
    leftovers = about.get("leftovers") or 0
    if leftovers:
        print(f"{leftovers} examples are left over and belong to nobody.")
    if not fed.target.classes:
        _draw_numbers(fed)
    elif fed.vocabulary is not None:
        _draw_text(fed)
    elif fed.y.dim() == 1:
        _draw_labels(fed)
    if "groups" in about:
        print(f"Rows belong to {about['groups']} groups, each whole in one split.")
    pooled = "all clients' test examples, unless a test shows that they differ in more than labels"
    print(f"\nClients would be evaluated on {pooled if claimed(fed) else 'their own test splits'}.")
    print(f"Fingerprint: {fed.fingerprint[:16]}")


def _say_source(name: str) -> None:
    """The licence of a data set by name, what to cite, and what it takes."""
    entry = SOURCES.get(name.partition("(")[0].strip())
    if entry is None:
        return
    print(f"Licence: {entry.licence}. From {entry.origin}.")
    if entry.citation:
        print(f"Cite: {entry.citation}.")
    settings = inspect.signature(entry.make).parameters.values()
    if settings:
        print(f"Settings: {', '.join(f'{each.name}={each.default}' for each in settings)}.")


def _draw_text(fed: Federation) -> None:
    """Who has how much text, in examples and labels."""
    splits = (fed.train, fed.val, fed.test)
    rows: list[list[Cell]] = []
    for k, name in enumerate(fed.names):
        sizes = [str(int(split.counts()[k])) for split in splits]
        labels = [str(int(fed.label_counts[split.of(k)].sum())) for split in splits]
        rows.append([name, *sizes, *(labels if fed.y.dim() > 1 else ())])
    print(
        f"\nTokens are numbered to {fed.vocabulary}; train comes before val, and that before test."
        if fed.describe.get("chronological")
        else f"\nTokens are numbered to {fed.vocabulary}."
    )
    print()
    of_labels = ["labels in train", "val", "test"] if fed.y.dim() > 1 else []
    table(["client", "train", "val", "test", *of_labels], rows)


def _draw_numbers(fed: Federation) -> None:
    splits = (fed.train, fed.val, fed.test)
    rows: list[list[Cell]] = []
    for k, name in enumerate(fed.names):
        y = fed.target.labels(torch.cat([fed.y[split.of(k)] for split in splits]))
        about = [f"{float(f):.4g}" for f in (y.mean(), y.std(unbiased=False), y.min(), y.max())]
        rows.append([name, *about, *(str(int(s.counts()[k])) for s in splits)])
    print()
    table(["client", "mean", "sd", "lowest", "highest", "train", "val", "test"], rows)


def _draw_labels(fed: Federation) -> None:
    splits = (fed.train, fed.val, fed.test)
    labels = [torch.cat([fed.y[split.of(k)] for split in splits]) for k in range(len(fed))]
    counts = torch.stack([torch.bincount(y, minlength=fed.classes) for y in labels])
    top = max(1, int(counts.max()))
    rows: list[list[Cell]] = []
    for k, name in enumerate(fed.names):
        shades = "".join(
            SHADES[-(-int(c) * (len(SHADES) - 1) // top)] * 2 for c in counts[k].tolist()
        )
        sizes = [str(int(s.counts()[k])) for s in splits]
        rows.append([name, shades, *sizes])
    print()
    table(["client", f"labels 0 … {fed.classes - 1}", "train", "val", "test"], rows, left=2)
    print(f"\n{SHADES[-1]} is {top} examples of one class at one client.")


def show_bench(result: Mapping[str, Any]) -> None:
    """Print the benchmark's table."""
    table(HEADER, render(dict(result)))
