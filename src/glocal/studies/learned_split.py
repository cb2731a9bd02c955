"""Which layers to share, learnt: a gate for each layer, opened or closed on validation data.

The split of LG-FedAvg and FedPer is given beforehand, and grows from one end
(:mod:`glocal.studies.split_sweep`). Here every layer has a gate of its own: open, and the layer is
shared; closed, and it is private. All are open at first. Then one gate after another is turned, the
method trained with that, and the gate stays turned if clients do better on their own validation
data: if the mean of their differences is above its standard error over clients. That leans to what
is there already, so that chance does not close gates. It ends when a whole pass has turned nothing.

Every repeat learns by itself, on its own validation data: those of one repeat may be test data of
another. Test data is looked at once, with the gates that were learnt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.core.validation import integer
from glocal.data.federation import Federation
from glocal.evaluation.summary import client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment import setup as setups
from glocal.experiment.run import Run
from glocal.slots.sharing import layers
from glocal.studies.repeats import UNUSED, Train, about, finished, interval, repeats_of
from glocal.studies.split_sweep import COUNTED, with_shared

Open = frozenset[str]
"""The layers that are shared."""

Scores = Callable[[Open], Tensor]
"""[clients] how well each does on its validation data; no number where it has none."""


@dataclass
class Learnt:
    """The gates as they are, and every one that was tried."""

    open: Open
    tried: list[dict[str, Any]] = field(default_factory=list)


def learn(names: Sequence[str], scores: Scores, passes: int) -> Learnt:
    """Turn one gate after another; ``scores`` is of higher-is-better."""
    learnt = Learnt(frozenset(names))
    for _ in range(passes):
        before = learnt.open
        for name in names:
            turned = learnt.open ^ {name}
            gain, error = paired(scores(turned), scores(learnt.open))
            better = gain > error
            learnt.tried.append(
                {
                    "layer": name,
                    "to": "shared" if name in turned else "private",
                    "gain": gain,
                    "error": error,
                    "kept": better,
                }
            )
            if better:
                learnt.open = turned
        if learnt.open == before:
            break
    return learnt


def paired(now: Tensor, then: Tensor) -> tuple[float, float]:
    """The mean over clients of how much better they do now, and its standard error."""
    apart = (now - then).double()
    apart = apart[~apart.isnan()]
    if len(apart) < 2:
        raise GlocalError(
            "gates are learnt from at least two clients with validation data: give them some, as "
            "in split=(0.6, 0.2, 0.2)."
        )
    return float(apart.mean()), float(apart.std() / len(apart) ** 0.5)


class Splits:
    """The method with every split that was asked for, each trained once."""

    def __init__(self, method: str, train: Train) -> None:
        self.method, self.train = method, train
        self.first = train(with_shared(method, "everything"))
        self.names = list(layers(finished(self.first).training.task.names))
        self.done: dict[Open, Run] = {frozenset(self.names): self.first}

    def trained(self, opened: Open) -> Run:
        """The run in which these layers are shared."""
        if opened not in self.done:
            spec = with_shared(self.method, shared_as(opened, self.names))
            self.done[opened] = self.train(spec, baseline=UNUSED)
        return self.done[opened]

    def scores(self, opened: Open) -> Tensor:
        """How well each client then does on its validation data."""
        return self.trained(opened).repeats[0].val_score.cpu()


def shared_as(opened: Open, names: Sequence[str]) -> str:
    """What ``shared=`` is set to, so that these layers are."""
    if len(opened) == len(names):
        return "everything"
    return f"'{'|'.join(n for n in names if n in opened)}'" if opened else "nothing"


def learned_split(
    fed: Federation,
    method: str = "fedavg",
    *,
    passes: int = 2,
    report: Report = silent,
    **settings: Any,
) -> dict[str, Any]:
    """Everything shared, the learnt split and nothing shared, side by side on test data.

    ``method`` is a base whose ``shared`` is learnt; there are ``passes`` over all gates at most.
    """
    integer(passes, "passes", 1)
    with_shared(method, "everything")  # raises before anything is trained
    alone_by = settings.get("baseline", "same")
    setups.baseline(alone_by)  # raises where there is none
    rows: dict[str, list[tuple[Trial, Run]]] = {"everything": [], "learnt": [], "nothing": []}
    each: list[dict[str, Any]] = []
    for part, train in repeats_of(fed, settings, report, alone_by):
        runs = Splits(method, train)
        learnt = learn(runs.names, runs.scores, passes)
        alone = runs.first.baseline[0].outcome
        splits = (frozenset(runs.names), learnt.open, frozenset[str]())
        for row, opened in zip(rows.values(), splits, strict=True):
            done = runs.trained(opened)
            row.append((Trial(part, done.repeats[0].outcome, alone, done.repeats[0].traffic), done))
        shared = [name for name in runs.names if name in learnt.open]
        each.append({"shared": shared, "tried": learnt.tried, "trained": len(runs.done)})
    return {
        "study": "learned split",
        **about(fed, settings),
        "method": method,
        "layers": {n: sum(n in found["shared"] for found in each) for n in runs.names},
        "learnt": each,
        "alone": interval([run.summary["local_mean"] for _, run in rows["everything"]]),
        "splits": [_row(name, row) for name, row in rows.items()],
    }


def _row(name: str, row: Sequence[tuple[Trial, Run]]) -> dict[str, Any]:
    """What came of one split in all repeats, on test data."""
    trials = [trial for trial, _ in row]
    summary = summarise(client_table(trials), trials)
    return {
        "shared": name,
        **{k: interval([run.summary[k] for _, run in row]) for k in ("mean", "worst10")},
        **{k: summary[k] for k in (*COUNTED, "params_up", "bytes_up")},
    }
