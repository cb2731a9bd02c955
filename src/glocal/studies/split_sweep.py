"""α as the share of the model that is local: from all-global to all-local, a layer at a time.

Liang et al., *Think locally, act globally*, 2020, figure 2(d) and section 5.3: the split between
local and global layers takes the place of the α of the theory (:mod:`glocal.studies.linear_teacher`
and :mod:`glocal.studies.interpolation`). The local part grows from the input side, as in LG-FedAvg
(representations are local), or from the output side, as in FedPer (heads are local).

The ends: everything shared is FedAvg; nothing shared is every client by itself after the warm-up,
from a common start (not the yardstick, which has an initialisation and a stopping rule of its own).
"""

from __future__ import annotations

from typing import Any

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.core.spec import parse_call, split_plus
from glocal.data.federation import Federation
from glocal.evaluation.evaluate import outcomes
from glocal.evaluation.summary import Trial, client_table, pool_is_valid, summarise
from glocal.experiment.fit import fit
from glocal.experiment.repeat import Trained
from glocal.experiment.run import Run
from glocal.slots.sharing import layers, size_by_part
from glocal.studies.repeats import about, client_models, finished, interval, repeats_of

SIDES = ("input", "output")


def split_sweep(
    fed: Federation,
    method: str = "lg-fedavg",
    *,
    side: str = "input",
    repeats: int = 1,
    seed: int = 0,
    report: Report = silent,
    **arguments: Any,
) -> dict[str, Any]:
    """One row for each split, from all-global to all-local.

    Args:
        fed: Whose data.
        method: A base whose ``shared`` the sweep sets: ``lg-fedavg`` (with a warm-up),
            ``lg-fedavg(warmup=0)``, ``fedavg``, ``ditto``, …
        side: Where the local part begins to grow, ``input`` or ``output``.
        repeats: How many splits of the data and seeds; verdicts pool over them.
        seed: Of the first.
        report: Told of progress.
        arguments: For :func:`glocal.fit`.
    """
    if side not in SIDES:
        raise GlocalError(f"the local part grows from the input or the output, not {side!r}.")
    with_shared(method, "everything")  # refuses at the door
    splits: list[str] = []
    trials: list[list[Trial]] = []
    means: list[list[dict[str, Any]]] = []
    for r, (part, own_seed) in enumerate(repeats_of(fed, repeats, seed)):
        settings = {**arguments, "seed": own_seed, "progress": report}
        runs = [fit(with_shared(method, "everything"), part, **settings)]
        task = finished(runs[0]).training.task
        splits = selectors(len(layers(task.names)), side)
        for done, shared in enumerate(splits[1:], 1):
            report("splits", r * len(splits) + done, repeats * len(splits))
            runs.append(fit(with_shared(method, shared), part, **settings))
        report("splits", (r + 1) * len(splits), repeats * len(splits))
        alone = fit(settings.get("yardstick") or "local", part, **settings)
        trials.append([_trial(run, alone) for run in runs])
        means.append([run.summary for run in runs])
    params = task.params
    rows = []
    for i, shared in enumerate(splits):
        summary = summarise(client_table([t[i] for t in trials]), [t[i] for t in trials])
        stage = finished(runs[i]).training.plan.stages[-1].method
        ours, theirs = size_by_part(params, stage.shared_names(task))
        rows.append(
            {
                "shared": shared,
                "local_layers": i,
                "local_share": theirs / (ours + theirs),
                "mean": interval([m[i]["mean"] for m in means]),
                "worst10": interval([m[i]["worst10"] for m in means]),
                **{k: summary[k] for k in ("better_off", "worse_off", "undecided", "params_up")},
            }
        )
    return {
        "study": "split",
        **about(fed, repeats, arguments),
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


def _trial(run: Run, alone: Run) -> Trial:
    """A run and its yardstick on the same split, for verdicts that pool over repeats."""
    done: Trained = finished(run)
    t, models = done.training, client_models(alone)
    pool = pool_is_valid(t.fed)
    judged = outcomes(
        t.task,
        t.fed,
        t.engine,
        t.models(done.progress),
        pool=pool,
        one_for_all=t.one_for_all(done.progress),
    )
    by_itself = outcomes(
        t.task, t.fed, t.engine, lambda ids: {"own": tree.row(models, ids)}, pool=pool
    )
    return Trial(t.fed, judged, by_itself, done.progress.traffic)
