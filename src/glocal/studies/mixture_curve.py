"""The λ curve: mixtures of the received model and the client's own, from one end to the other.

Hahn, Jeong, Lee: *Connecting low-loss subspace for personalized federated learning*, KDD 2022
(figure 2.5 in the first author's dissertation). Clients of SuPerFed and APFL keep a model of their
own, l_i and v_i, beside the received w. Along λ ∈ {0, .1, …, 1} each is evaluated with

    (1 − λ) w + λ l_i        (λ = 0: the received model; λ = 1: the client's own),

whatever λ or α it was trained at. The paper's claim is that SuPerFed does well at all λ, and APFL
only near the α of its training.

Departures: the released code picks λ on each client's test data. Here clients pick on validation
data; the other figure is there as ``test_picked``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.core.spec import parse_call, split_plus
from glocal.core.types import Params
from glocal.data.federation import Federation
from glocal.experiment.run import Run
from glocal.methods.apfl import mix
from glocal.studies.curve import GRID, along, check_grid, over_repeats
from glocal.studies.repeats import about, finished, repeats_of
from glocal.studies.scoring import Examples, logits_of
from glocal.training.loop import Training

OWN = {"apfl": "v", "superfed-lm": "l", "superfed-mm": "l"}
"""What each method calls the client's own model."""


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
    curves = []
    for _, train in repeats_of(fed, settings, report):
        run = train(method)
        training = finished(run).training
        received, own = ends(run)

        def mixed(
            lam: float,
            examples: Examples,
            training: Training = training,
            received: Params = received,
            own: Params = own,
        ) -> Tensor:
            return logits_of(training, mix(own, received, lam), examples)

        curves.append(along(mixed, training.fed, grid))
    return {
        "study": "mixture",
        **about(fed, settings),
        "method": method,
        "grid": list(grid),
        **over_repeats(curves, grid),
    }


def own_name(method: str) -> str:
    """What the method calls the client's own model."""
    name, _, kwargs = parse_call(split_plus(method)[0])
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
    local = t.method(progress).client_half(t.task)
    everyone = torch.arange(len(t.fed), device=t.fed.x.device)
    states = progress.clients.gather(everyone, t.make(progress, local))
    return progress.server["params"], states[own_name(run.method)]
