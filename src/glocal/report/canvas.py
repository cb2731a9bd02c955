"""What all pictures share: figures, axes, lines with intervals, a title and a note, a PNG file.

matplotlib is an extra, and is imported only by the functions that draw. Colours are those of Okabe
and Ito, *Color universal design*, 2008, which colour-blind readers can tell apart; what colour
says, markers or line styles say too.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glocal.core.errors import GlocalError
from glocal.core.files import write
from glocal.report.tables import plural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "#666666"
DPI = 150


KINDS = (".png", ".svg", ".pdf")
"""The files that a picture can be written to."""

MORE_LETTERS = ("Noto Sans CJK SC", "Hiragino Sans", "Microsoft YaHei", "Arial Unicode MS")
"""Fonts that have letters which matplotlib's own has not, where they are installed."""


def check_picture(path: Path, option: str = "--picture", kinds: Sequence[str] = KINDS) -> None:
    """Raise, before anything is trained or drawn, if this picture could not be drawn or written."""
    if path.suffix.lower() not in kinds:
        raise GlocalError(f"{option} {path} must be the name of a {' or '.join(kinds)} file.")
    if not path.absolute().parent.is_dir():
        raise GlocalError(f"there is no folder {path.parent} for {option}: make it first.")
    if path.is_dir():
        raise GlocalError(f"{option} {path} is a folder: give the name of a file.")
    new_figure(1, 1)


def new_figure(width: float, height: float) -> Figure:
    """A figure of its own, without pyplot's global state or a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise GlocalError("pictures need matplotlib: pip install 'glocal[plot]'.") from error
    return Figure(figsize=(width, height), layout="constrained")


@contextmanager
def plain_text() -> Iterator[None]:
    """Draw texts as they are: a ``$`` begins no formula, and letters may be missing in the font."""
    try:
        from matplotlib import font_manager, rc_context, rcParams
    except ImportError:
        yield  # new_figure says what is missing
        return
    installed = {font.name for font in font_manager.fontManager.ttflist}
    settings: dict[Any, Any] = {
        "text.parse_math": False,
        "font.family": [*rcParams["font.family"], *(f for f in MORE_LETTERS if f in installed)],
    }
    with rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def titled(figure: Figure, title: str, note: str) -> Figure:
    """The figure, under its title and above its note."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=11, fontweight="bold")
    figure.supxlabel(note, x=0.01, ha="left", fontsize=7.5, color=GREY)
    return figure


def save(figure: Figure, path: Path, title: str, note: str) -> None:
    """Write the figure, under its title and above its note, in the format of the file's name."""
    from matplotlib import rc_context

    titled(figure, title, note)
    drawn, kind = BytesIO(), path.suffix.lower().lstrip(".")
    if kind != "png":
        # Without the time of day: the same figure is the same file.
        dates = {"Date": None} if kind == "svg" else {"CreationDate": None}
        with rc_context({"svg.hashsalt": "glocal"}):
            figure.savefig(drawn, format=kind, metadata=dates)
        write(path, drawn.getvalue())
        return
    from PIL import Image  # comes with matplotlib

    small = BytesIO()
    figure.savefig(drawn, dpi=DPI, format="png")
    # 256 colours are as many as these pictures need, at a third of the size.
    few = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    few.save(small, format="png", optimize=True, dpi=(DPI, DPI))
    write(path, small.getvalue())


def provenance(data: Mapping[str, Any], clients: int, about: Mapping[str, Any], *more: str) -> str:
    """A note that says where a picture's numbers come from."""
    partition = ", ".join([str(data.get("partition")), *data.get("transforms", [])])
    setting = f"{data.get('data')}, {partition}, {clients} clients"
    return " · ".join([setting, f"{about['model']}, {about['rounds']} rounds", *more])


def study_note(result: Mapping[str, Any], *more: str) -> str:
    """The note of a study that was repeated on several splits and seeds."""
    n = result["repeats"]
    spread = "; bars: 90 % t interval over them" if n > 1 else ""
    repeats = f"{plural(n, 'split')} and seed{'s' if n > 1 else ''}{spread}"
    return provenance(result["data"], result["clients"], result, repeats, *more)


def label(axes: Axes, x: str, y: str, *, legend: bool = False) -> None:
    """Name the axes, draw a light grid and, if asked for, a legend."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(True, color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(fontsize=8, frameon=False)


def line(
    axes: Axes, x: Sequence[float], y: Sequence[Mapping[str, Any]], scale: float = 100, **style: Any
) -> None:
    """Draw means over repeats, with a bar for the interval where there is one."""
    means = [scale * v["mean"] for v in y]
    half = [scale * (v["high"] - v["mean"]) if v["high"] is not None else 0.0 for v in y]
    bars = half if any(half) else None
    axes.errorbar(x, means, yerr=bars, capsize=2, elinewidth=0.8, markersize=5, **style)


def level(axes: Axes, value: float, text: str, *, at_right: bool = False, style: str = ":") -> None:
    """Draw a grey line across at this height, with a text above it."""
    axes.axhline(value, color=GREY, linestyle=style)
    axes.annotate(
        text,
        (0.98 if at_right else 0.02, value),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        ha="right" if at_right else "left",
        color=GREY,
        fontsize=8,
    )


def pair(i: int) -> dict[str, Any]:
    """The colour and marker of the ``i``-th line."""
    return {"color": COLOURS[i % 7], "marker": MARKERS[i % 7]}


def style(i: int) -> dict[str, Any]:
    """How the ``i``-th of many lines is drawn."""
    return {
        "color": COLOURS[i % 7],
        "marker": MARKERS[(i + i // 7) % 7],
        "linestyle": ("-", "--", ":")[i // 7 % 3],
        "linewidth": 1.2,
        "markersize": 4,
    }


def every(i: int, points: int, markers: int) -> tuple[int, int]:
    """Where the ``i``-th line has its markers: about so many, whatever the number of points."""
    step = max(1, points // markers)
    return i % step, step
