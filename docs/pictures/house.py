"""Draw the house: its rooms (house.svg), and what goes where in one round (round.svg).

    python docs/pictures/house.py

Both have a light ground of their own, so that they can be read on light and dark pages.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

HERE = Path(__file__).parent
INK, GREY, GROUND = "#1b2b2a", "#52625f", "#fbfcfb"
TINTS = {
    "base": "#e3e8e6",
    "parts": "#d5ebe4",
    "papers": "#fbe3c4",
    "loop": "#d9e6f7",
    "people": "#f3dcea",
    "private": "#fbe3c4",
    "shared": "#d5ebe4",
}


def text(x: float, y: float, words: str, size: int = 13, *, bold: bool = False, **more: str) -> str:
    """One line of text."""
    given = {"fill": INK, **more}
    attributes = " ".join(f'{k.replace("_", "-")}="{v}"' for k, v in given.items())
    weight = ' font-weight="700"' if bold else ""
    return f'<text x="{x}" y="{y}" font-size="{size}"{weight} {attributes}>{escape(words)}</text>'


def box(x: float, y: float, w: float, h: float, tint: str, title: str, *lines: str) -> str:
    """A room: its name, and what is in it."""
    parts = [
        f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5" fill="{TINTS[tint]}" '
        f'stroke="{INK}" stroke-width="1.2"/>',
        text(x + 12, y + 21, title, 15, bold=True),
    ]
    parts += [
        text(x + 12, y + 40 + 17 * i, line, 12, fill=GREY) for i, line in enumerate(lines) if line
    ]
    return "".join(parts)


def arrow(points: str, words: str = "", at: tuple[float, float] = (0, 0), dash: str = "") -> str:
    """A line with a head, and words beside it."""
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    line = (
        f'<polyline points="{points}" fill="none" stroke="{INK}" stroke-width="1.6"{dashed} '
        'marker-end="url(#head)"/>'
    )
    return line + (text(*at, words, 12, fill=INK) if words else "")


def picture(width: int, height: int, title: str, *parts: str) -> str:
    """The whole, with what a reader who cannot see it is told."""
    head = (
        '<defs><marker id="head" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" '
        'markerHeight="8" orient="auto">'
        f'<path d="M0 0 L10 5 L0 10 z" fill="{INK}"/></marker></defs>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{escape(title)}" '
        'font-family="system-ui, Segoe UI, Helvetica, Arial, sans-serif">\n'
        f"<title>{escape(title)}</title>\n{head}\n"
        f'<rect width="{width}" height="{height}" rx="10" fill="{GROUND}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def house() -> str:
    """The rooms: each may import what is below it."""
    left, right, wide = 60, 820, 760
    half = (wide - 10) / 2
    third = (wide - 20) / 3
    rows = [
        f'<path d="M{left - 20} 106 L440 22 L{right + 20} 106 z" fill="{TINTS["people"]}" '
        f'stroke="{INK}" stroke-width="1.2"/>',
        text(440, 70, "cli", 15, bold=True, text_anchor="middle"),
        text(
            440,
            90,
            "checks arguments, calls one function, shows the result",
            12,
            fill=GREY,
            text_anchor="middle",
        ),
        box(left, 116, third, 54, "people", "deploy", "methods between machines"),
        box(left + third + 10, 116, third, 54, "people", "studies", "questions of many runs"),
        box(left + 2 * third + 20, 116, third, 54, "people", "report", "tables, figures, pages"),
        box(
            left,
            180,
            wide,
            52,
            "people",
            "runs",
            "run folders, settings files, restoring, listing, tracking",
        ),
        box(
            left,
            242,
            wide,
            52,
            "loop",
            "experiment",
            "one configuration, the runner of a repeat, the local baseline, fit and compare",
        ),
        box(
            left,
            304,
            half,
            176,
            "papers",
            "methods",
            "one paper a file, and the registry of names",
            "",
            "client: start, step, finish",
            "server: what differs from FedAvg's",
        ),
        box(
            left + half + 10,
            304,
            half,
            52,
            "loop",
            "training",
            "rounds, sampling, states, checkpoints",
        ),
        box(
            left + half + 10, 366, half, 52, "loop", "evaluation", "metrics, paired tests, verdicts"
        ),
        box(
            left + half + 10,
            428,
            half,
            52,
            "loop",
            "engines",
            "run one client's functions for many",
        ),
        box(
            left,
            490,
            half,
            54,
            "parts",
            "slots",
            "components: client, weighting, aggregator, privacy …",
        ),
        box(left + half + 10, 490, half, 54, "parts", "prediction", "a client's model in use"),
        box(left, 554, half, 54, "parts", "nn", "layers, Task, optimisers, models"),
        box(
            left + half + 10,
            554,
            half,
            54,
            "parts",
            "data",
            "federations, partitions, tables, text",
        ),
        box(
            left,
            618,
            wide,
            54,
            "base",
            "core",
            "types, trees of tensors, random keys, errors, specs: it imports none of the others",
        ),
        f'<line x1="{left + half + 5}" y1="300" x2="{left + half + 5}" y2="484" stroke="#a3241c" '
        'stroke-width="5"/>',
        text(
            left + 12,
            446,
            "No door in the red wall: the loop cannot know a paper,",
            12,
            fill="#a3241c",
        ),
        text(left + 12, 463, "and a paper cannot know the loop.", 12, fill="#a3241c"),
        arrow("36,180 36,640"),
        text(28, 430, "may import what is below", 12, transform="rotate(-90 28 430)"),
    ]
    return picture(880, 692, "The rooms of the package; each imports only rooms below it.", *rows)


def one_round() -> str:
    """What is sent in a round, what stays, and which function does it."""
    rows = [
        box(
            30,
            30,
            240,
            330,
            "shared",
            "server",
            "has parameters, optimiser state,",
            "weights of a weighting, memory;",
            "no data and no client states",
        ),
        text(46, 136, "1  broadcast", 13, bold=True),
        text(46, 154, "slots/method", 12, fill=GREY),
        text(46, 186, "2  draw the cohort", 13, bold=True),
        text(46, 204, "training/sampling", 12, fill=GREY),
        text(46, 262, "6  weigh, aggregate,", 13, bold=True),
        text(46, 280, "protect, apply", 13, bold=True),
        text(46, 298, "slots/server_half: reduce", 12, fill=GREY),
        text(46, 330, "7  count what was sent", 13, bold=True),
        text(46, 348, "evaluation/communication", 12, fill=GREY),
        box(
            590,
            30,
            300,
            330,
            "private",
            "each client of the cohort",
            "has its data and its state, which",
            "never leave it",
        ),
        text(606, 120, "3  its state: gather", 13, bold=True),
        text(606, 138, "training/client_state", 12, fill=GREY),
        text(606, 170, "4  start, step for every", 13, bold=True),
        text(606, 188, "mini-batch, finish", 13, bold=True),
        text(606, 206, "the method's functions, by engines", 12, fill=GREY),
        text(606, 238, "5  keep the new state: scatter", 13, bold=True),
        text(606, 256, "personal model, private layers,", 12, fill=GREY),
        text(606, 273, "what compression left out", 12, fill=GREY),
        text(606, 320, "at the end: candidates; its own", 12, fill=GREY),
        text(606, 337, "validation data chooses one", 12, fill=GREY),
        arrow("270,110 588,110"),
        text(430, 84, "downlink", 13, bold=True, text_anchor="middle"),
        text(
            430, 101, "shared parameters, round, learning rate", 12, fill=GREY, text_anchor="middle"
        ),
        arrow("590,280 272,280"),
        text(430, 237, "uplink", 13, bold=True, text_anchor="middle"),
        text(430, 254, "update, number of examples,", 12, fill=GREY, text_anchor="middle"),
        text(430, 271, "a loss if a weighting asks", 12, fill=GREY, text_anchor="middle"),
        text(430, 306, "on the way: attack, if simulated;", 12, fill=GREY, text_anchor="middle"),
        text(430, 323, "what is not finite is handled", 12, fill=GREY, text_anchor="middle"),
        box(
            30,
            390,
            860,
            86,
            "loop",
            "after the last round",
            "evaluation: every client's model on test examples, against being alone → verdict",
            "report: a table and a sentence for each client; runs: the folder with all of it",
        ),
        arrow("740,360 740,388"),
        arrow("150,360 150,388"),
    ]
    return picture(
        920,
        500,
        "One round: what the server sends, what clients train and keep, what comes back.",
        *rows,
    )


if __name__ == "__main__":
    (HERE / "house.svg").write_text(house(), encoding="utf-8")
    (HERE / "round.svg").write_text(one_round(), encoding="utf-8")
