"""α as the share of the model that is local: from all-global to all-local, a layer at a time.

Liang et al., *Think locally, act globally*, 2020, figure 2(d) and section 5.3: the split between
local and global layers takes the place of the α of the theory (:mod:`glocal.studies.linear_teacher`
and :mod:`glocal.studies.curves`). The local part grows from the input side, as in LG-FedAvg
(representations are local), or from the output side, as in FedPer (heads are local).

The ends: everything shared is FedAvg; nothing shared is every client by itself after the warm-up,
from a common start (not the local baseline, which has an initialisation and a stopping rule of its
own).
"""

from __future__ import annotations

from typing import Any

from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.core.spec import parse_call, split_plus
from glocal.data.federation import Federation
from glocal.evaluation.summary import client_table, summarise
from glocal.evaluation.trials import Trial
from glocal.experiment import setup as setups
from glocal.slots.sharing import layers, size_by_part
from glocal.studies.repeats import about, finished, interval, repeats_of

SIDES = ("input", "output")
COUNTED = ("better_off", "worse_off", "same", "undecided")


def split_sweep(
    fed: Federation,
    method: str = "lg-fedavg",
    *,
    side: str = "input",
    report: Report = silent,
    **settings: Any,
) -> dict[str, Any]:
    """One row for each split, from all-global to all-local; verdicts pool over repeats.

    ``method`` is a base whose ``shared`` the sweep sets: ``lg-fedavg`` (with a warm-up),
    ``lg-fedavg(warmup=0)``, ``fedavg``, ``ditto``, … The local part begins to grow at ``side``,
    ``input`` or ``output``.
    """
    if side not in SIDES:
        raise GlocalError(f"the local part grows from the input or the output, not {side!r}.")
    with_shared(method, "everything")  # raises before anything is trained
    trials: list[list[Trial]] = []
    means: list[list[dict[str, Any]]] = []
    alone = settings.get("baseline", "same")
    setups.baseline(alone)  # raises where there is none
    repeats = repeats_of(fed, settings, report, alone)
    for r, (part, train) in enumerate(repeats):
        runs = [train(with_shared(method, "everything"))]
        task = finished(runs[0]).training.task
        splits = selectors(len(layers(task.names)), side)
        total = settings.get("repeats", 1) * len(splits)
        for done, shared in enumerate(splits[1:], 1):
            report("splits", r * len(splits) + done, total)
            runs.append(train(with_shared(method, shared)))
        report("splits", (r + 1) * len(splits), total)
        pairs = [(run.repeats[0], run.baseline[0].outcome) for run in runs]
        trials.append([Trial(part, now.outcome, alone, now.traffic) for now, alone in pairs])
        means.append([run.summary for run in runs])
    rows = []
    for i, shared in enumerate(splits):
        of_split = [t[i] for t in trials]
        summary = summarise(client_table(of_split), of_split)
        stage = finished(runs[i]).training.plan.stages[-1].method
        ours, theirs = size_by_part(task.params, stage.shared_names(task))
        rows.append(
            {
                "shared": shared,
                "local_layers": i,
                "local_share": theirs / (ours + theirs),
                "mean": interval([m[i]["mean"] for m in means]),
                "worst10": interval([m[i]["worst10"] for m in means]),
                **{k: summary[k] for k in (*COUNTED, "params_up")},
            }
        )
    return {
        "study": "split",
        **about(fed, settings),
        "method": method,
        "side": side,
        "alone": interval([m[0]["local_mean"] for m in means]),
        "splits": rows,
    }


def selectors(count: int, side: str) -> list[str]:
    """What is shared, from everything to nothing, of a model of so many layers."""
    kept = "last" if side == "input" else "first"
    return ["everything", *(f"{kept}({n})" for n in range(count - 1, 0, -1)), "nothing"]


def with_shared(method: str, shared: str) -> str:
    """The spec with ``shared=`` set in its base."""
    base, *rest = split_plus(method)
    name, args, kwargs = parse_call(base)
    if "shared" in kwargs:
        raise GlocalError(f"the sweep itself sets what is shared: leave shared out of {method!r}.")
    if name == "local":
        raise GlocalError("local shares nothing, so there is no split to sweep: use lg-fedavg.")
    inside = base.rstrip().removesuffix(")") + ", " if args or kwargs else base.split("(")[0] + "("
    return "+".join([f"{inside}shared={shared})", *rest])
