"""Figures as plain SVG: scales, ticks, axes, and marks that differ in colour and in shape.

A panel is about as wide as a phone, so that its letters are readable there; pages set panels side
by side. Colours are classes of the style sheet (Okabe and Ito's, a lighter set on dark ground).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from glocal.report.page.markup import Child, Html, join, tag

WIDTH = 400
SHAPES = ("circle", "square", "triangle", "diamond", "down", "plus", "cross")
DASHES = (None, "6 3", "2 3")
Point = tuple[float, float]


def px(value: float) -> str:
    """A length in pixels, to a tenth."""
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Scale:
    """Maps values to pixels."""

    low: float
    high: float
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        """Where a value is."""
        share = (value - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the scale, at most so many."""
        span = self.high - self.low
        step = 10.0 ** math.floor(math.log10(span / most))
        step *= next(f for f in (1, 2, 5, 10, 20) if span / (step * f) <= most)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(i * step, 12) for i in range(first, last + 1)]


def spanning(
    values: Iterable[float], begin: float, end: float, *, zero: bool = False, room: float = 0.06
) -> Scale:
    """A scale with all of these values in it, and 0 if asked for."""
    held = [v for v in values if math.isfinite(v)] + ([0.0] if zero else [])
    low, high = (min(held), max(held)) if held else (0.0, 1.0)
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - 0.5 * max(abs(low), 1e-3), high + 0.5 * max(abs(high), 1e-3)
    pad = room * (high - low)
    return Scale(low - pad, high + pad, begin, end)


def plain(value: float) -> str:
    """A tick's text: short, with a true minus."""
    if abs(value) >= 1e5 or 0 < abs(value) < 1e-4:
        shown = f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    else:
        shown = f"{value:g}"
    return shown.replace("-", "\u2212")


def large(value: float) -> str:
    """``2 M``, for counts."""
    for size, unit in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


@dataclass
class Panel:
    """One pair of axes; what is drawn is added in order."""

    x: Scale
    y: Scale
    height: float
    width: float = WIDTH
    drawn: list[Html] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        xs: Iterable[float],
        ys: Iterable[float],
        *,
        height: float = 280,
        left: float = 56,
        zero_y: bool = False,
        square: bool = False,
    ) -> Panel:
        """A panel whose axes span the values; ``square``: both axes are the same."""
        xs, ys = list(xs), list(ys)
        right, top, bottom = WIDTH - 14, 14, height - 44
        if square:
            xs = ys = xs + ys
        return cls(spanning(xs, left, right), spanning(ys, bottom, top, zero=zero_y), height)

    def add(self, *drawn: Html) -> None:
        """Draw over what is there."""
        self.drawn += drawn

    def axes(
        self,
        x: str,
        y: str,
        *,
        x_text: Callable[[float], str] = plain,
        y_text: Callable[[float], str] = plain,
        integers: bool = False,
    ) -> None:
        """A light grid, ticks with their texts, and the names of both axes."""
        left, right, top, bottom = self.x.begin, self.x.end, self.y.end, self.y.begin
        for value in self.y.ticks(6):
            at = self.y(value)
            self.add(line((left, at), (right, at), "grid"))
            self.add(label(y_text(value), left - 6, at + 4, "tick", anchor="end"))
        for value in self.x.ticks(7):
            if integers and value != round(value):
                continue
            at = self.x(value)
            self.add(line((at, bottom), (at, bottom + 4), "axis"))
            self.add(label(x_text(value), at, bottom + 17, "tick", anchor="middle"))
        self.add(line((left, bottom), (right, bottom), "axis"))
        self.add(label(x, (left + right) / 2, bottom + 36, "name", anchor="middle"))
        middle = (top + bottom) / 2
        turned = f"translate(11 {px(middle)}) rotate(-90)"
        self.add(tag("text", y, class_="name", text_anchor="middle", transform=turned))

    def path(self, points: Sequence[Point], style: int, *, dashed: bool = False) -> None:
        """A line through points."""
        if len(points) > 1:
            dash = "5 4" if dashed else DASHES[style // 7 % 3]
            drawn = "M" + "L".join(f"{px(self.x(a))} {px(self.y(b))}" for a, b in points)
            self.add(tag("path", d=drawn, class_=f"line c{style % 7}", stroke_dasharray=dash))

    def band(self, points: Sequence[tuple[float, float, float]], style: int) -> None:
        """The area between two lines: x, low, high."""
        if len(points) > 1:
            there = [(a, low) for a, low, _ in points]
            back = [(a, high) for a, _, high in reversed(points)]
            drawn = "L".join(f"{px(self.x(a))} {px(self.y(b))}" for a, b in there + back)
            self.add(tag("path", d=f"M{drawn}Z", class_=f"band c{style % 7}"))

    def diagonal(self) -> None:
        """Where x and y are the same."""
        low, high = max(self.x.low, self.y.low), min(self.x.high, self.y.high)
        self.add(line((self.x(low), self.y(low)), (self.x(high), self.y(high)), "zero"))


def line(begin: Point, end: Point, kind: str) -> Html:
    """A straight line of some kind (``axis``, ``grid``, ``zero``, or a verdict's)."""
    (x1, y1), (x2, y2) = begin, end
    return tag("line", x1=px(x1), y1=px(y1), x2=px(x2), y2=px(y2), class_=kind)


def label(text: str, x: float, y: float, kind: str, *, anchor: str | None = None) -> Html:
    """A text at a point."""
    return tag("text", text, x=px(x), y=px(y), class_=kind, text_anchor=anchor)


def shape(kind: str, x: float, y: float, style: str, size: float = 4.5) -> Html:
    """A marker: what colour says, its shape says too."""
    s = size
    if kind == "circle":
        return tag("circle", cx=px(x), cy=px(y), r=px(s), class_=style)
    corners = {
        "square": "M-1 -1H1V1H-1Z",
        "diamond": "M0 -1.3L1.3 0L0 1.3L-1.3 0Z",
        "triangle": "M0 -1.2L1.2 1H-1.2Z",
        "down": "M0 1.2L1.2 -1H-1.2Z",
        "plus": "M-.4 -1.2H.4V-.4H1.2V.4H.4V1.2H-.4V.4H-1.2V-.4H-.4Z",
        "cross": "M-1.2-.7L-.7-1.2L0-.5L.7-1.2L1.2-.7L.5 0L1.2.7L.7 1.2L0 .5L-.7 1.2L-1.2.7L-.5 0Z",
    }[kind]
    moved = f"translate({px(x)} {px(y)}) scale({s * 0.9:.2f})"
    return tag("path", d=corners, transform=moved, class_=style)


def mark(tip: str, path: str, *drawn: Html) -> Html:
    """A mark that says what it is when it is pointed at or focused."""
    return tag("g", tag("title", tip), *drawn, class_="mark", data_path=path)


def figure(
    name: str,
    panel: Panel,
    title: str,
    description: str,
    *,
    key: Sequence[tuple[Html, str]] = (),
    note: Child = None,
) -> Html:
    """A figure with its title, its description for those who do not see it, a key and a note.

    ``name`` is unique on the page, and the name of the files that it is saved as.
    """
    svg = tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", description, id=f"{name}-desc"),
        *panel.drawn,
        viewBox=f"0 0 {px(panel.width)} {px(panel.height)}",
        role="group",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
        class_="figure",
    )
    entries = [
        tag("li", tag("svg", sign, viewBox="-8 -8 16 16", aria_hidden="true"), text)
        for sign, text in key
    ]
    return tag(
        "figure",
        tag("figcaption", tag("strong", title), join(" ", note) if note else None),
        tag("ul", *entries, class_="key") if entries else None,
        svg,
        data_name=name,
    )


def series_key(names: Sequence[str], first: int = 0) -> list[tuple[Html, str]]:
    """Which line is whose."""
    return [
        (shape(series_shape(i), 0, 0, f"fill c{i % 7}"), name)
        for i, name in enumerate(names, first)
    ]


def series_shape(i: int) -> str:
    """The marker of the ``i``-th of many lines."""
    return SHAPES[(i + i // 7) % 7]
