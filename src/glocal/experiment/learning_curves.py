"""Learning curves: what was recorded of a method's rounds, by repeat, as tables and as points.

:mod:`glocal.training.evaluated_rounds` says what is recorded. Where rate and rounds were tuned, the
losses and the validation metric are those of the training by which they were chosen, before
validation data was trained on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from glocal.core.errors import unknown
from glocal.core.validation import fits
from glocal.evaluation.measures import RECORDED
from glocal.evaluation.metrics import LOWER_IS_BETTER

if TYPE_CHECKING:
    from glocal.experiment.run import Run


@dataclass(frozen=True)
class Point:
    """A round: the mean, the lowest and the highest over the repeats that were evaluated then."""

    round: int
    mean: float
    low: float
    high: float
    repeats: int = 1


@dataclass(frozen=True)
class LearningCurves:
    """The rounds of one method."""

    name: str
    lines: tuple[Mapping[str, Any], ...]
    """A line for each round, as in ``metrics.jsonl``: with ``repeat``, where there are several."""
    kept: tuple[int, ...] = ()
    """Where it may end early: the round that each repeat kept."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Settings and facts for a note: ``data``, ``partition``, ``clients``, ``tune``."""

    @property
    def metrics(self) -> list[str]:
        """The metrics that were recorded on validation data; the first is the one that counts."""
        names = dict.fromkeys(name for line in self.lines for name in line)
        found = [name[4:] for name in names if name.startswith("val_")]
        return sorted(set(found) - set(RECORDED), key=lambda name: (name == "accuracy", name))

    @property
    def repeats(self) -> int:
        """How many there are."""
        return len({line.get("repeat", 1) for line in self.lines})

    def metric(self, asked: str | None) -> str:
        """The metric that was asked for, or the one that counts."""
        if asked is not None and asked not in self.metrics:
            raise unknown("recorded metric", asked, self.metrics)
        return asked or self.metrics[0]

    def lower(self, metric: str) -> bool:
        """Whether lower is better: of a user's own metric, the worst clients say so."""
        if metric in LOWER_IS_BETTER or metric != self.metrics[0]:
            return metric in LOWER_IS_BETTER
        worst, mean = (
            [p.mean for p in self.points(name)] for name in ("val_worst10", f"val_{metric}")
        )
        return sum(worst) > sum(mean)

    def points(self, column: str) -> list[Point]:
        """A column by round; rounds without a value are left out."""
        values: dict[int, list[float]] = {}
        for line in self.lines:
            if fits(line.get(column), float):
                values.setdefault(int(line["round"]), []).append(float(line[column]))
        return [
            Point(t, sum(v) / len(v), min(v), max(v), len(v)) for t, v in sorted(values.items())
        ]

    def best(self, metric: str) -> Point:
        """The best round on validation data; of those that all repeats have, if there are any."""
        points = self.points(f"val_{metric}")
        of_all = [point for point in points if point.repeats == self.repeats]
        choose = min if self.lower(metric) else max
        return choose(of_all or points, key=lambda point: point.mean)

    def at_kept(self, column: str) -> list[tuple[int, float]]:
        """The round that each repeat kept, and the column's value there, where there is one."""
        values = {
            (line.get("repeat", 1), line["round"]): line[column]
            for line in self.lines
            if fits(line.get(column), float)
        }
        kept = list(enumerate(self.kept, 1))
        return [(t, float(values[repeat, t])) for repeat, t in kept if (repeat, t) in values]


def of_run(run: Run) -> LearningCurves:
    """The curves of a run that was trained here."""
    kept = tuple(each["round"] for each in run.summary.get("early_stopping", ()))
    about = {**run.data, "tune": "chosen" in run.summary, "clients": len(run.clients)}
    return LearningCurves(run.method, tuple(lines_of(run)), kept, about)


def lines_of(run: Run) -> list[dict[str, Any]]:
    """The lines of all repeats, one repeat after another."""
    several = len(run.repeats) > 1
    of_repeats: Sequence[Any] = [repeat.history for repeat in run.repeats] or [run.history]
    return [
        {**line, **({"repeat": r} if several else {})}
        for r, history in enumerate(of_repeats, 1)
        for line in history
    ]
