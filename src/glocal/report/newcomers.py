"""Clients that arrived in waves: what they got and what the others forgot, as table and picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from glocal.report.canvas import COLOURS, GREY, label, new_figure, save
from glocal.report.studies import Result, spread
from glocal.report.tables import Cell, number, percent, points, short, show_table, span, with_half


def show(result: Result) -> None:
    """Print a row for each method and wave, and a row for each method about the old clients."""
    rows: list[list[Cell]] = []
    for name, found in result["methods"].items():
        for wave, alone in zip(found["waves"], result["alone"], strict=True):
            stages = [wave["at_once"], alone, *(wave[k] for k in ("own_training", "joined", "end"))]
            old = [wave[k]["mean"] for k in ("old_before", "old_after")]
            cells = [*map(with_half, stages), *map(percent, old), points(old[1] - old[0])]
            rows.append([(name, "bold"), wave["wave"], *cells])
    head = ["method", "wave", "at once %", "alone %", "own training %", "joined %", "at the end %"]
    head += ["old before %", "old after %", "change"]
    show_table(head, rows, _protocol(result), spread(result), left=2)
    rows = []
    for name, found in result["methods"].items():
        change = found["old_change"]
        rows.append(
            [
                (name, "bold"),
                _rounds(found["trained"]),
                *(with_half(found[k]) for k in ("old_before", "old_end")),
                points(change["mean"]),
                span(change["low"], change["high"]),
                short(found["params_up"]),
            ]
        )
    head = ["method", "rounds before", "old before %", "old at the end %", "change", "90 % range"]
    show_table([*head, "sent up since"], rows, *_missed(result))


def _protocol(result: Result) -> str:
    a = result["arrivals"]
    goal = (
        f"for {result['rounds']} rounds"
        if a["until"] is None
        else f"until their mean validation accuracy is {percent(a['until'])} % and {a['then']} "
        f"rounds more (at most {result['rounds']})"
    )
    others = f"with {a['fraction']:g} of the earlier clients" if a["fraction"] else "by themselves"
    return (
        f"{result['old_clients']} old clients train {goal}; then clients arrive, {a['size']} in a "
        f"wave and a wave every {a['every']} rounds. Each newcomer trains {a['own_epochs']} epochs "
        f"by itself, and the newest wave then takes part in every round, {others}. Mean accuracy "
        "over clients, each on its own test split. Joined: after the wave's own rounds; old before "
        "and after: the old clients at the wave's arrival and after its rounds."
    )


def _missed(result: Result) -> list[str]:
    """A sentence about goals that were not reached."""
    until = result["arrivals"]["until"]
    missed = {
        name: sum(r is None for r in found["reached"]) for name, found in result["methods"].items()
    }
    some = [f"{name} in {n} of {result['repeats']} repeats" for name, n in missed.items() if n]
    if until is None or not some:
        return []
    return [f"The goal of {percent(until)} % was not reached: {', '.join(some)}."]


def _rounds(trained: list[int]) -> str:
    low, high = min(trained), max(trained)
    return str(low) if low == high else f"{low}–{high}"


def draw(result: Result, path: Path) -> None:
    """Draw the accuracy of old clients and of every wave over the rounds, a panel a method."""
    methods = result["methods"]
    columns = min(3, len(methods))
    lines = -(-len(methods) // columns)
    figure = new_figure(3.6 * columns + 0.6, 3.3 * lines + 1.2)
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flatten()
    names = ["old clients", *(wave["wave"] for wave in _first(methods)["waves"])]
    for axes, (method, found) in zip(panels, methods.items(), strict=False):
        for column, name in enumerate(names):
            there = [p for p in found["curve"] if len(p["accuracy"]) > column]
            x, of = [p["since"] for p in there], [p["accuracy"][column] for p in there]
            y = [100 * v["mean"] for v in of]
            style: dict[str, Any] = {"color": COLOURS[column - 1], "linewidth": 1.5}
            if column == 0:
                style = {"color": COLOURS[6], "linewidth": 2.4}
            axes.plot(x, y, label=name, **style)
            if column == 0 and of[0]["low"] is not None:
                low, high = ([100 * v[k] for v in of] for k in ("low", "high"))
                axes.fill_between(x, low, high, color=GREY, alpha=0.2, linewidth=0)
        for wave in found["waves"]:
            axes.axvline(wave["arrives"], color=GREY, linewidth=0.8, linestyle=":")
        change = found["old_change"]["mean"]
        axes.set_title(f"{method}: old clients {number(100 * change, sign='+')} points", fontsize=9)
        axes.set_ylim(0, 102)
        axes.xaxis.get_major_locator().set_params(integer=True)
        label(axes, "rounds since the first wave", "")
    for axes in panels[len(methods) :]:
        axes.set_visible(False)
    for axes in panels[::columns]:
        axes.set_ylabel("mean accuracy (%)")
    handles, texts = panels[0].get_legend_handles_labels()
    figure.legend(handles, texts, loc="outside upper right", fontsize=8, frameon=False, ncols=2)
    a = result["arrivals"]
    others = f"{a['fraction']:g} of" if a["fraction"] else "none of"
    title = f"Newcomers in waves, trained with {others} the earlier clients"
    save(figure, path, title, _note(result))


def _note(result: Result) -> str:
    """Where the picture's numbers come from."""
    data, n = result["data"], result["repeats"]
    clients = f"{result['old_clients']} old clients, {result['arrivals']['size']} in a wave"
    repeats = f"mean over {n} splits and seeds (shaded: 90 % t interval)" if n > 1 else "one seed"
    parts = (f"{data['data']}, {data['partition']}", clients, result["model"], repeats)
    return " · ".join([*parts, "dotted: a wave arrives"])


def _first(methods: Result) -> Any:
    return next(iter(methods.values()))
