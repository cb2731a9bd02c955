"""Between a model trained alone and one trained together: α of one, 1 − α of the other.

Liang et al., *Think locally, act globally*, 2020, section 4, study f_α = α f_local + (1 − α) f_glob
of linear models, in which mixing weights and mixing predictions are the same. In deep networks
they are not, so both are evaluated along α ∈ {0, .1, …, 1}:

    weights:      the model α · w_i + (1 − α) · w,
    predictions:  the probabilities α · p_{w_i} + (1 − α) · p_w.

α = 0 is the global model, α = 1 the client's own. :mod:`glocal.studies.linear_teacher` has the
theory. A local baseline's model was itself chosen on the client's validation data, so there it
looks better than it is, and clients that pick α on the same data lean towards it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from torch import Tensor

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.methods.apfl import mix
from glocal.studies.curve import GRID, along, check_grid, over_repeats
from glocal.studies.repeats import about, client_models, finished, repeats_of
from glocal.studies.scoring import Examples, logits_of
from glocal.training.loop import Training


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
    curves: dict[str, list[dict[str, Any]]] = {"weights": [], "predictions": []}
    for _, train in repeats_of(fed, settings, report):
        alone, run = train(local), train(together)
        done = finished(run)
        if not done.training.one_for_all(done.progress):
            raise GlocalError(
                f"{together} has a model for each client: to interpolate, the global one must be "
                "the same for all, as of fedavg."
            )
        both = interpolated(done.training, client_models(alone), run.model, grid)
        for kind, curve in both.items():
            curves[kind].append(curve)
    return {
        "study": "interpolation",
        **about(fed, settings),
        "local": local,
        "global": together,
        "grid": list(grid),
        **{kind: over_repeats(parts, grid) for kind, parts in curves.items()},
    }


def interpolated(
    training: Training, own: Params, everyone: Params, grid: Sequence[float]
) -> dict[str, dict[str, Any]]:
    """One repeat's curves, from each client's model (stacked) and the global one."""
    count = len(next(iter(own.values())))
    spread = tree.map(lambda x: x.expand(count, *x.shape), everyone)

    def by_weights(alpha: float, examples: Examples) -> Tensor:
        return logits_of(training, mix(own, spread, alpha), examples)

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
        "weights": along(by_weights, training.fed, grid),
        "predictions": along(by_predictions, training.fed, grid),
    }
