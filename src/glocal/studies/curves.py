"""From one model to another: mixtures of two, evaluated on a grid of points between.

*Interpolation*: Liang et al., *Think locally, act globally*, 2020, section 4, study
f_α = α f_local + (1 − α) f_glob of linear models, in which mixing weights and mixing predictions
are the same. In deep networks they are not, so both are evaluated along α ∈ {0, .1, …, 1}:

    weights:      the model α · w_i + (1 − α) · w,
    predictions:  the probabilities α · p_{w_i} + (1 − α) · p_w.

α = 0 is the global model, α = 1 the client's own. :mod:`glocal.studies.linear_teacher` has the
theory. A local baseline's model was itself chosen on the client's validation data, so there it
looks better than it is, and clients that pick α on the same data lean towards it.

*The λ curve*: Hahn, Jeong, Lee: *Connecting low-loss subspace for personalized federated learning*,
KDD 2022 (figure 2.5 in the first author's dissertation). Clients of SuPerFed and APFL keep a model
of their own, l_i and v_i, beside the received w. Along λ ∈ {0, .1, …, 1} each is evaluated with

    (1 − λ) w + λ l_i        (λ = 0: the received model; λ = 1: the client's own),

whatever λ or α it was trained at. The paper's claim is that SuPerFed does well at all λ, and APFL
only near the α of its training.

Departures: the released code picks λ on each client's test data. Here clients pick on validation
data; the other figure is there as ``test_picked``.

Each client picks its point on its own validation data, which is little; so beside that there is one
point for everybody, picked on the mean of all clients' validation accuracies. What it would have
been had clients picked on their test data is given under that name only, since published figures
were made so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from statistics import fmean as mean
from typing import Any

from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.experiment.run import Run
from glocal.methods.apfl import mix
from glocal.methods.specs import calls
from glocal.studies.repeats import (
    about,
    all_ids,
    client_models,
    finished,
    interval,
    repeats_of,
)
from glocal.studies.scoring import Examples, Scores, best, logits_of, own, scores, tested
from glocal.training.loop import Training

GRID = tuple(i / 10 for i in range(11))

SHOWN = ("accuracy", "loss", "ece")

OWN = {"apfl": "v", "superfed-lm": "l", "superfed-mm": "l"}
"""What each method calls the client's own model."""


def interpolate(
    fed: Federation,
    *,
    local: str = "local",
    together: str = "fedavg",
    grid: Sequence[float] = GRID,
    report: Report = silent,
    **settings: Any,
) -> dict[str, Any]:
    """The two curves from the global model to each client's own, at the α of ``grid``.

    ``local`` says how clients train alone: the local baseline, with its own initialisation, or
    ``fedavg(shared=nothing)``, from the same one as the global model. ``together`` is a method with
    one model for everyone.
    """
    grid = check_grid(grid, "alpha")
    curves = []
    for _, train in repeats_of(fed, settings, report):
        alone, run = train(local), train(together)
        done = finished(run)
        if not done.training.one_for_all(done.progress):
            raise GlocalError(
                f"{together} has a model for each client: to interpolate, the global one must be "
                "the same for all, as of fedavg."
            )
        curves.append(interpolated(done.training, client_models(alone), run.model, grid))
    return {
        "study": "interpolation",
        **about(fed, settings),
        "local": local,
        "global": together,
        "grid": list(grid),
        **{kind: over_repeats([both[kind] for both in curves], grid) for kind in curves[0]},
    }


def interpolated(
    training: Training, own: Params, everyone: Params, grid: Sequence[float]
) -> dict[str, dict[str, Any]]:
    """One repeat's curves, from each client's model (stacked) and the global one."""
    count = len(next(iter(own.values())))
    spread = tree.map(lambda x: x.expand(count, *x.shape), everyone)

    @cache
    def ends(examples: Examples) -> tuple[Tensor, Tensor]:
        both = (logits_of(training, models, examples) for models in (own, spread))
        p, q = (logits.double().softmax(-1) for logits in both)
        return p, q

    def by_predictions(alpha: float, examples: Examples) -> Tensor:
        p, q = ends(examples)
        # The logarithm of a probability is a logit: metrics take a softmax of it, and get it back.
        return (alpha * p + (1 - alpha) * q).clamp(min=1e-300).log()

    return {
        "weights": along(_mixed(training, own, spread), training.fed, grid),
        "predictions": along(by_predictions, training.fed, grid),
    }


def mixture_curve(
    fed: Federation,
    method: str = "superfed-mm",
    *,
    grid: Sequence[float] = GRID,
    report: Report = silent,
    **settings: Any,
) -> dict[str, Any]:
    """Accuracy, loss and ECE along λ ∈ ``grid``, on validation and on test data.

    ``method`` is ``superfed-mm``, ``superfed-lm`` or ``apfl``, with settings of its own.
    """
    grid = check_grid(grid, "lam")
    own_name(method)  # raises before anything is trained
    curves = [_curve(train(method), grid) for _, train in repeats_of(fed, settings, report)]
    return {
        "study": "mixture",
        **about(fed, settings),
        "method": method,
        "grid": list(grid),
        **over_repeats(curves, grid),
    }


def _curve(run: Run, grid: Sequence[float]) -> dict[str, Any]:
    training = finished(run).training
    received, own = ends(run)

    return along(_mixed(training, own, received), training.fed, grid)


def own_name(method: str) -> str:
    """What the method calls the client's own model."""
    base = calls(method)[0]
    name, kwargs = base.name, base.kwargs
    if name not in OWN:
        raise GlocalError(
            f"{name} does not mix two models of one shape: choose one of {', '.join(sorted(OWN))}."
        )
    if "shared" in kwargs:
        raise GlocalError(f"whole models are mixed here: leave shared out of {method!r}.")
    return OWN[name]


def ends(run: Run) -> tuple[Params, Params]:
    """The received model, and every client's own, stacked."""
    done = finished(run)
    t, progress = done.training, done.progress
    states = progress.clients.gather(all_ids(t.fed), t.make(progress, t.halves[progress.stage]))
    return progress.server["params"], states[own_name(run.method)]


def _mixed(training: Training, own: Params, other: Params) -> Callable[[float, Examples], Tensor]:
    """Logits of so much of each client's own model and the rest of the other (both stacked)."""
    return lambda share, examples: logits_of(training, mix(own, other, share), examples)


def check_grid(grid: Sequence[float], name: str) -> tuple[float, ...]:
    """The points in order, once each."""
    outside = [g for g in grid if not 0 <= g <= 1]
    if outside:
        raise GlocalError(f"{name} must be from 0 to 1, not {outside[0]:g}.")
    if not grid:
        raise GlocalError(f"give at least one {name} to look at.")
    return tuple(sorted(set(grid)))


def along(
    logits: Callable[[float, Examples], Tensor], fed: Federation, grid: Sequence[float]
) -> dict[str, Any]:
    """One repeat's curve: each metric's mean over clients, and every client's pick."""
    val, test = own(fed, fed.val), tested(fed)
    on_val = [scores(logits(g, val), fed, val) for g in grid]
    on_test = [scores(logits(g, test), fed, test) for g in grid]
    picks = best(on_val)
    clients = range(len(picks))
    (common,) = best([{m: [mean(s[m])] for m in SHOWN} for s in on_val])
    return {
        "validation": _means(on_val),
        "test": _means(on_test),
        "picks": [grid[i] for i in picks],
        "picked": {m: mean([on_test[picks[k]][m][k] for k in clients]) for m in SHOWN},
        "common": grid[common],
        "commonly_picked": {m: mean(on_test[common][m]) for m in SHOWN},
        "test_picked": mean([max(s["accuracy"][k] for s in on_test) for k in clients]),
        "client_validation": [s["accuracy"] for s in on_val],
        "client_test": [s["accuracy"] for s in on_test],
    }


def _means(points: Sequence[Scores]) -> dict[str, list[float]]:
    return {m: [mean(s[m]) for s in points] for m in SHOWN}


def over_repeats(curves: Sequence[dict[str, Any]], grid: Sequence[float]) -> dict[str, Any]:
    """Intervals over repeats at every point; picks are counted over clients and repeats."""
    picks = [p for c in curves for p in c["picks"]]
    return {
        **{
            where: {
                m: [interval([c[where][m][i] for c in curves]) for i in range(len(grid))]
                for m in SHOWN
            }
            for where in ("validation", "test")
        },
        "picks": [picks.count(g) for g in grid],
        "picked": {m: interval([c["picked"][m] for c in curves]) for m in SHOWN},
        "commonly_picked": {m: interval([c["commonly_picked"][m] for c in curves]) for m in SHOWN},
        "test_picked": interval([c["test_picked"] for c in curves]),
        "by_repeat": [
            {k: c[k] for k in ("picks", "common", "client_validation", "client_test")}
            for c in curves
        ],
    }
