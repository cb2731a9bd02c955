"""What was measured as text: for the terminal, and as the table of README.md."""

from __future__ import annotations

from typing import Any

BEGIN = "<!-- peers: made by `python benchmarks/peers.py --readme` -->"
END = "<!-- peers: end -->"
OWN = "glocal"
ORDER = ("plain loop", "FedJAX", "pfl", "FedLab", "Flower")
"""Those of README.md."""

HEADER = (
    "contestant", "setting", "ms a round", "× glocal", "ready s", "first round s", "peak MB",
    "loss",
)  # fmt: skip


def best(contestant: dict[str, Any]) -> dict[str, Any] | None:
    """Its fastest setting of those that did the work."""
    fine = [s for s in contestant["settings"] if s["ms"] is not None]
    return min(fine, key=lambda s: s["ms"]) if fine else None


def by_name(case: dict[str, Any]) -> dict[str, dict[str, Any] | None]:
    """Everybody's best setting."""
    return {c["name"]: best(c) for c in case["contestants"]}


def text(found: dict[str, Any]) -> list[str]:
    """A table for each case: every setting, the best of a contestant marked with a star."""
    lines = [", ".join(f"{k} {v}" for k, v in found["machine"].items())]
    lines.append(
        f"Medians of {found['repeats']} interleaved rounds after {found['warm_up']} to warm up. "
        "* the setting that counts."
    )
    for case in found["cases"]:
        lines += ["", f"{case['name']}: {case['case']}; {case['parameters']:,} parameters"]
        own = by_name(case).get(OWN)
        rows: list[tuple[str, ...]] = [HEADER]
        notes = []
        for contestant in case["contestants"]:
            fastest = best(contestant)
            for s in contestant["settings"]:
                if s["failed"]:
                    notes.append(f"{contestant['name']}, {s['setting']}: {s['failed']}")
                if s["ms"] is None:
                    continue
                ratio = f"{s['ms'] / own['ms']:.2f}" if own else "–"
                star = " *" if s is fastest and len(contestant["settings"]) > 1 else ""
                note = f" ({s['note']})" if s["note"] else ""
                rows.append(
                    (
                        contestant["name"],
                        f"{s['setting']}{note}{star}",
                        _ms(s["ms"]),
                        ratio,
                        f"{s['ready_s']:.1f}",
                        f"{s['first_s']:.2f}",
                        "–" if s["peak_mb"] is None else f"{s['peak_mb']:.0f}",
                        f"{s['loss']:.5f}",
                    )
                )
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
        for row in rows:
            cells = (
                cell.ljust(w) if i < 2 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            )
            lines.append("  ".join(cells).rstrip())
        lines += notes
    return lines


def markdown(found: dict[str, Any]) -> str:
    """The table of README.md: a row for each case, milliseconds, and times glocal's in brackets."""
    lines = [
        f"| one round, ms (× {OWN}) | {OWN} | " + " | ".join(ORDER) + " |",
        "| --- " * (len(ORDER) + 2) + "|",
    ]
    for case in found["cases"]:
        at = by_name(case)
        own = at.get(OWN)
        cells = [case["case"], f"**{_ms(own['ms'])}** ({own['setting']})" if own else "–"]
        for name in ORDER:
            one = at.get(name)
            ratio = f" ({one['ms'] / own['ms']:.1f}×)" if one and own else ""
            cells.append(f"{_ms(one['ms'])}{ratio}" if one else "–")
        lines.append("| " + " | ".join(cells) + " |")
    about = found["machine"]
    busy = (about["load"] or 0) > about["cores"] / 2
    others = " with other programs on them" if busy else ""
    lines += [
        "",
        f"Medians of {found['repeats']} interleaved rounds on {about['cores']} cores{others}, "
        f"{about['date']}; everybody "
        "trains the same batches to the same loss, each at its best setting "
        "([how, and start-up and memory](docs/measurements/speed.md#peers)).",
    ]
    return "\n".join(lines)


def placed(page: str, found: dict[str, Any]) -> str:
    """The page with the table between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"the page has no {BEGIN} … {END} to put the table between.")
    return f"{before}{BEGIN}\n{markdown(found)}\n{END}{after}"


def _ms(value: float) -> str:
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"
