"""Tables for people: coloured on a terminal, plain text in a pipe."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from glocal.evaluation.summary import against
from glocal.slots.privacy import in_words

if TYPE_CHECKING:
    from glocal.data.federation import Federation
    from glocal.experiment.run import Run

Cell = str | tuple[str, str]
"""Text, or text and a style for the terminal."""

SHADES = " ░▒▓█"
WIDEST = 20
"""Names listed in a sentence before the rest is counted."""


def table(head: Sequence[str], rows: Sequence[Sequence[Cell]], *, left: int = 1) -> None:
    """Print a table; the first ``left`` columns are text, the others numbers."""
    if sys.stdout.isatty():
        from rich import box
        from rich.console import Console
        from rich.table import Table as RichTable
        from rich.text import Text

        shown = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
        for i, name in enumerate(head):
            widest = max(map(len, name.split()))
            side: Literal["left", "right"] = "left" if i < left else "right"
            shown.add_column(name, justify=side, overflow="fold", min_width=widest)
        for row in rows:
            shown.add_row(*(Text(_text(c), style="" if isinstance(c, str) else c[1]) for c in row))
        Console().print(shown)
        return
    lines = [list(head), *([_text(c) for c in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    for line in lines:
        cells = [
            c.ljust(w) if i < left else c.rjust(w)
            for i, (c, w) in enumerate(zip(line, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def _text(cell: Cell) -> str:
    return cell if isinstance(cell, str) else cell[0]


def show_comparison(runs: Mapping[str, Run], fed: Federation, base: str | None = None) -> None:
    """One row a method: how well, how fairly, who is better off, and at what traffic."""
    rows: list[list[Cell]] = []
    for name, run in runs.items():
        s = run.summary
        verdicts: list[Cell] = (
            ["yardstick", "–", "–", "–"]
            if run.is_baseline
            else [
                f"{100 * s['benefit']:+.1f}",
                _coloured(s["better_off"], "green"),
                _coloured(s["worse_off"], "bold red"),
                str(s["undecided"]),
            ]
        )
        rows.append(
            [
                (name, "bold"),
                *(f"{100 * s[k]:.1f}" for k in ("mean", "worst10", "best10")),
                f"{s['gini']:.1f}",
                *verdicts,
                short(s["params_up"]),
                short(s["params_down"]),
                *([f"{100 * s['new_test']['logits']:.1f}"] if "new_test" in s else []),
                *([_difference(s, runs[base].summary)] if base else []),
            ]
        )
    head = ["method", "mean %", "worst 10 %", "best 10 %", "Gini", "vs alone"]
    print()
    asked = ["new test %"] if any("new_test" in run.summary for run in runs.values()) else []
    asked += [f"vs {base}"] if base else []
    table([*head, "better off", "worse off", "undecided", "sent up", "sent down", *asked], rows)
    print()
    for line in _legend([run.summary for run in runs.values()], fed):
        print(line)
    if base:
        pairs = against(runs[base].summary, runs[base].summary)["by"]
        print(f"vs {base}: points above it on average, with a paired 90 % interval over {pairs}.")
    if any("adapted" in run.summary for run in runs.values()):
        show_adaptation(runs)
    chosen = runs.get("choice")
    if chosen is not None and "choice" in chosen.summary:
        for line in textwrap.wrap(choice_in_words(chosen.summary), 100):
            print(line)
    show_privacy(runs)
    show_diverged(runs)
    for name, run in runs.items():
        if "synthetic" in run.summary:
            for line in textwrap.wrap(made_in_words(name, run.summary), 100):
                print(line)
    for name, run in runs.items():
        worse = [r["client"] for r in run.clients if r["verdict"] == "worse off"]
        if worse:
            more = f" and {len(worse) - WIDEST} more" if len(worse) > WIDEST else ""
            print(f"Worse off than alone with {name}: {', '.join(worse[:WIDEST])}{more}.")


def show_diverged(runs: Mapping[str, Run]) -> None:
    """A sentence for each method in which some client's training was not finite."""
    for name, run in runs.items():
        if lost := run.summary.get("diverged"):
            who = [
                f"{client} (round{'s' if len(rounds) > 1 else ''} {spans(rounds)})"
                for client, rounds in lost.items()
            ]
            more = f" and {len(who) - WIDEST} more" if len(who) > WIDEST else ""
            done = "clipped" if any("clipped" in line for line in run.history) else "left out"
            said = f"Not finite with {name}, and {done}: {', '.join(who[:WIDEST])}{more}."
            print("\n".join(textwrap.wrap(said, 100)))


def spans(numbers: Sequence[int]) -> str:
    """``[1, 2, 3, 7]`` as ``1–3, 7``."""
    found: list[list[int]] = []
    for n in numbers:
        if found and n == found[-1][-1] + 1:
            found[-1] = [found[-1][0], n]
        else:
            found.append([n])
    return ", ".join("–".join(map(str, part)) for part in found)


def show_privacy(runs: Mapping[str, Run]) -> None:
    """A sentence for each private method: ε, and what it assumes."""
    for name, run in runs.items():
        if "privacy" in run.summary:
            said = f"Privacy of {name}: {in_words(run.summary['privacy'])}"
            print("\n".join(textwrap.wrap(said, 100)))


def show_adaptation(runs: Mapping[str, Run]) -> None:
    """One row a method: before and after its clients adapted what they got."""
    rows: list[list[Cell]] = []
    for name, run in runs.items():
        s = run.summary
        if "adapted" not in s:
            continue
        found = s["adapted"]
        rows.append(
            [
                (name, "bold"),
                f"{100 * s['mean']:.1f}",
                f"{100 * s['adapted_mean']:.1f}",
                interval(found["gain"]),
                f"{s['better_off']} → {s['adapted_better_off']}",
                f"{s['worse_off']} → {s['adapted_worse_off']}",
                _worse_in_each(found["worse_off_in_each"]),
                ", ".join(f"{k} {v}" for k, v in sorted(found["by"].items(), key=lambda i: -i[1])),
            ]
        )
    print()
    head = ["method", "mean %", "adapted %", "gain", "better off", "worse off", "in each repeat"]
    table([*head, "adapted by"], rows)
    print()
    found = [run.summary["adapted"] for run in runs.values() if "adapted" in run.summary]
    pairs = found[0]["gain"]["by"]
    text = (
        "Adapted: each client goes on from what it got, on its own data; rate, epoch and technique "
        "are chosen on its validation data. Gain: points, with a paired 90 % interval over "
        f"{pairs}. Better and worse off than alone: before → after. In each repeat: how many are "
        "worse off by that repeat's test data alone, on average; with three repeats or more, the "
        "90 % interval of the change."
    )
    for line in textwrap.wrap(text, 100):
        print(line)


def _worse_in_each(found: Mapping[str, Any]) -> str:
    before, after = (sum(found[k]) / len(found[k]) for k in ("before", "after"))
    low, high = (found["change"][k] for k in ("low", "high"))
    spread = "" if low is None else f" ({low:+.1f} … {high:+.1f})"
    return f"{before:.1f} → {after:.1f}{spread}"


def made_in_words(name: str, summary: Mapping[str, Any]) -> str:
    """What the examples are worth that a method made for the server, and whom they give away.

    All of it is of the first repeat, as the examples in the folder are; the mean says that it is.
    """
    found, repeats = summary["synthetic"], summary["repeats"]
    near, who = found["nearness"], found["membership"]
    first = f" in the first of {repeats} repeats" if repeats > 1 else ""
    central = found.get("central_accuracy")
    said = [
        f"{name} made {found['examples']} labelled examples{first}: a classifier trained on them "
        f"alone has {100 * found['accuracy']:.1f} % on the clients' test data"
        + (f" and {100 * central:.1f} % on the central test set" if central is not None else "")
        + f"{_so_far(found)}.",
        f"Fréchet distance from {found['frechet_from']}: {found['frechet']:.3g} on the "
        f"{found['features']}."
        if found["frechet"] is not None
        else f"No Fréchet distance: {found['frechet_missing']}",
        f"Nearest neighbours: {100 * near['nearer_to_trained']:.0f} % of the examples are nearer "
        "to training data than to as much held-out data (50: nobody's copy); copies of training "
        f"examples: {near['copies']}, of held-out ones: {near['copies_of_held_out']}.",
        f"Membership: from them one tells who was trained on with an AUC of {who['auc']:.2f} (0.5: "
        f"not at all), with a gap of {who['advantage']:.2f} between true and false alarms at most; "
        f"at 1 % of false alarms {100 * who['tpr_at_1']:.1f} % of the members are found.",
    ]
    if repeats > 1:
        mean = 100 * summary["synthetic_accuracy"]
        said.append(f"Mean accuracy over all repeats, on the clients' test data: {mean:.1f} %.")
    return " ".join(said)


def _so_far(found: Mapping[str, Any]) -> str:
    """That the classifier's training did not converge, where it did not."""
    how = found["classifier"]
    if how["converged"]:
        return ""
    return f" (not converged: after {how['steps']} steps its training loss was {how['loss']:.2f})"


def choice_in_words(summary: Mapping[str, Any]) -> str:
    """Who chose what, and what that is not."""
    picks = sorted(summary["choice"].items(), key=lambda item: -item[1])
    return (
        "Choice: not a method. Each client takes what does best on its own validation data, and "
        "stays alone unless that is more than a standard error above what it has alone: "
        + "; ".join(f"{name} {count}" for name, count in picks)
        + ". Its traffic is that of everything it chose from."
    )


def interval(d: Mapping[str, Any]) -> Cell:
    """A difference in points and its ends, coloured if they leave zero out."""
    text = f"{100 * d['difference']:+.1f} ({100 * d['low']:+.1f} … {100 * d['high']:+.1f})"
    return (text, "green" if d["low"] > 0 else "bold red" if d["high"] < 0 else "dim")


def _difference(summary: dict[str, Any], base: dict[str, Any]) -> Cell:
    if summary is base:
        return "–"
    return interval(against(summary, base))


def _coloured(count: int, style: str) -> Cell:
    return (str(count), style) if count else "0"


def _legend(summaries: list[dict[str, Any]], fed: Federation) -> list[str]:
    summary = summaries[0]
    where = (
        "all clients' test examples, weighted by its label shares (valid, as clients differ in "
        "labels alone)"
        if summary["estimate"] == "pooled"
        else "each client's own test split"
    )
    repeats = summary["repeats"]
    lines = [
        f"{len(fed)} clients, {int(fed.train.rows.numel())} training examples, "
        f"{summary['parameters']:,} parameters" + (f", {repeats} repeats." if repeats > 1 else "."),
        *textwrap.wrap(
            f"Accuracy: each client's model on {where}; means over clients. vs alone: points above "
            "the model the client trains by itself. Better or worse off: an exact paired "
            "test at 90 % says so; else undecided. Sent: numbers over the network, to and from all "
            "sampled clients together.",
            100,
        ),
    ]
    if any("new_test" in s for s in summaries):
        lines.append("New test: all clients' logits averaged, on everybody's test examples.")
    if repeats == 1 and any(s["undecided"] for s in summaries):
        lines.append("Fewer stay undecided with more test data: --repeats 5.")
    return lines


def show_clients(run: Run) -> None:
    """One row a client."""
    colour = {"better off": "green", "worse off": "bold red", "undecided": "dim"}
    rows: list[list[Cell]] = [
        [
            str(r["client"]),
            "yardstick" if run.is_baseline else (r["verdict"], colour[r["verdict"]]),
            str(r["n_train"]),
            str(r["n_test"]),
            f"{100 * r['accuracy']:.1f}",
            f"{100 * r['local_accuracy']:.1f}",
            f"{100 * r['benefit']:+.1f}",
            f"{100 * r['low']:+.1f} … {100 * r['high']:+.1f}",
        ]
        for r in run.clients
    ]
    print()
    head = ["client", "verdict", "train", "test", "accuracy %", "alone %", "benefit", "test range"]
    table(head, rows, left=2)


def short(count: int) -> str:
    """``8.97 M`` for 8,970,000."""
    value = float(count)
    for unit in ("", " k", " M", " G"):
        if value < 1000:
            return f"{value:.3g}{unit}"
        value /= 1000
    return f"{value:.3g} T"


def list_methods() -> None:
    """Methods, what can be joined to them, models."""
    from glocal.methods import registry
    from glocal.methods.specs import SELECTORS
    from glocal.methods.training_args import TrainingArgs
    from glocal.nn import models, optim
    from glocal.nn.augment import AUGMENTATIONS

    methods = {name: entry.make for name, entry in registry.entries("method").items()}
    print("Methods (first in a spec, settings in brackets: 'fedprox(mu=0.1, epochs=2)')\n")
    table(["name", "what it does", "its own settings"], _described(methods, TrainingArgs), left=3)
    print(f"\nEvery method also takes {', '.join(TrainingArgs.__annotations__)} and shared.")
    print("\nJoined with + ('fedavg+uniform+adam(lr=0.01)')\n")
    fillers: list[list[Cell]] = [
        [(name, "bold"), slot.replace("server_opt", "server optimiser"), first_line(make)]
        for name, (slot, make) in registry.entries(*registry.COMPONENTS).items()
    ]
    table(["name", "fills", "what it does"], fillers, left=3)
    print("\nshared= (which layers travel: names, patterns such as 'layers.2*', or one of these)\n")
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
        own = [
            f"{p.name}={_default(p.default)}"
            for p in inspect.signature(make).parameters.values()
            if p.kind != p.VAR_KEYWORD and p.name not in training.__annotations__
        ]
        rows.append([(name, "bold"), first_line(make), ", ".join(own)])
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
    from glocal.data import list_partitions
    from glocal.data.datasets.registry import SOURCES
    from glocal.data.transforms import TRANSFORMS

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
    table(["name", "how examples are dealt among clients"], rows(list_partitions()), left=2)
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
    judged = "pooled test examples" if fed.label_shift_only else "each client's own test split"
    print(f"\nClients would be judged on {judged}.")
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


def bench_table(repeats: int, json: Path | None) -> None:
    """Run the benchmark and print its table."""
    from glocal.core import files
    from glocal.core.progress import reporter
    from glocal.studies.bench import HEADER, render, run_bench

    with reporter(None) as report:
        found = run_bench(repeats=repeats, progress=report)
    if json is not None and str(json) == "-":
        sys.stdout.write(files.dump(files.plain(found)).decode())
        return
    if json is not None:
        files.write(json, files.dump(files.plain(found)))
    rows = render(found)
    table(HEADER, rows)
