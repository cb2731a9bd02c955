"""Linear teachers' clients trained by this package's own methods, to the least-squares fits.

The theory is of exact minima. FedAvg in which every client takes one step on all its examples is
gradient descent on all clients' loss, and ends at v̂; with nothing shared, it is gradient descent on
each client's own, and ends at û_m. Both run here as any other run does: the data as a federation,
the model as a module, an engine, the evaluation of stacked models on test examples, and the
mixture of APFL.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.core.progress import Report, silent
from glocal.core.target import Target
from glocal.data.client_data import Federation
from glocal.data.split import from_counts
from glocal.experiment.fit import fit
from glocal.methods.apfl import mix
from glocal.studies.linear_teacher import Teachers
from glocal.studies.repeats import client_models, finished
from glocal.studies.scoring import logits_of, own
from glocal.studies.teacher_draws import Draws, new_inputs

CLOSE = 1e-7
"""The share of the way to the minimum that gradient descent may leave, at the least."""
MOST_ROUNDS = 500


def federation_of(drawn: Draws, i: int, t: Teachers) -> Federation:
    """The ``i``-th draw as any federation: training labels are noisy, test labels are not."""
    x, tests = drawn.x[i], new_inputs(t, drawn.keys[i])
    teachers = drawn.teachers(t.rho)[i]
    y = (x.double() @ teachers).squeeze(-1) + t.sigma * drawn.noise()[i]
    labels = torch.cat([y.flatten(), (tests.double() @ teachers).flatten()]).float()
    train, test = y.numel(), tests[..., 0].numel()

    def split(first: int, each: int) -> Any:
        counts = torch.full((t.clients,), each)
        return from_counts(first + torch.arange(each * t.clients), counts)

    return Federation(
        x=torch.cat([x.flatten(0, 1), tests.flatten(0, 1)]),
        y=labels,
        y_train=labels,
        classes=1,
        names=tuple(str(m) for m in range(t.clients)),
        train=split(0, t.examples),
        val=split(0, 0),  # nothing is chosen
        test=split(train, t.tests),
        label_shift_only=False,
        describe={"data": "linear teachers", "n": train + test, "partition": "drawn"},
        # Labels as they are: a model without a constant must not see them shifted.
        targets=(Target("regression"),),
    )


def train(
    drawn: Draws,
    i: int,
    t: Teachers,
    fits: tuple[Tensor, Tensor],
    grid: Sequence[float],
    report: Report = silent,
) -> dict[str, Any]:
    """Train both models on the ``i``-th draw; how far they end from ``fits``, û and v̂.

    Also the error of their mixture at every α, as the package evaluates it, beside that of the
    fits on the same test examples.
    """
    lr, rounds = _descent(drawn.gram[i] / t.examples)
    fed = federation_of(drawn, i, t)

    def run(more: str) -> Any:
        return fit(
            f"fedavg(lr={lr!r}, epochs=1, batch_size=0{more})",
            fed,
            model=lambda: nn.Linear(t.features, 1, bias=False),
            losses="squared",
            rounds=rounds,
            baseline="none",
            validate_every=0,
            progress=lambda what, done, total: report(f"training at rho {t.rho:g}", done, total),
        )

    alone, everyone = run(", shared=nothing"), run("")
    ours = client_models(alone)
    theirs = tree.map(lambda w: w.expand(t.clients, *w.shape), everyone.model)
    weights = ours["weight"].squeeze(-2).double(), theirs["weight"].squeeze(-2).double()
    training, examples = finished(everyone).training, own(fed, fed.test)
    truth = fed.y[examples.rows].double()
    target = drawn.teachers(t.rho)[i, ..., 0]
    errors, exact = [], []
    for alpha in grid:
        mixture = mix(ours, theirs, alpha)
        predicted = logits_of(training, mixture, examples)[..., 0].double()
        errors.append(float((predicted - truth).square().mean()))
        off = alpha * fits[0] + (1 - alpha) * fits[1] - target
        on_inputs = torch.einsum("mi,mij,mj->m", off, drawn.second_moment[i], off)
        exact.append(float(on_inputs.mean()))
    return {
        "rho": t.rho,
        "rounds": rounds,
        "lr": lr,
        "weights_apart": max(
            float((w - f).abs().max()) for w, f in zip(weights, fits, strict=True)
        ),
        "errors": errors,
        "least_squares": exact,
        "errors_apart": max(abs(a / b - 1) for a, b in zip(errors, exact, strict=True)),
    }


def _descent(grams: Tensor) -> tuple[float, int]:
    """The rate that is the best for the worst client's loss (y − w·x)²/2, and enough rounds."""
    curvature = torch.linalg.eigvalsh(grams)
    low, high = float(curvature.min()), float(curvature.max())
    left = (high - low) / (high + low)
    rounds = 1 if left == 0 else math.ceil(math.log(CLOSE) / math.log(left))
    if rounds > MOST_ROUNDS:
        raise GlocalError(
            f"gradient descent would need {rounds} rounds to the least-squares fits, since clients "
            "have few examples for their features: give more examples, or --trained 0."
        )
    return 2 / (high + low), max(1, rounds)
