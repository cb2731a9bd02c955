"""Join, stay, or join and personalise: what validation data advises each client, and the server.

Of every method a client has its validation accuracy in each repeat, and that of being alone. The
difference is drawn towards what clients of its size gain, by partial pooling, a cost that the user
states is taken off, and the client is advised what is left most of; staying alone is worth 0. So is
the federation, by the mean over clients. The test data, which chose nothing, then says what the
advice is worth, and how probable it is that a client is worse off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glocal.evaluation.intervals import LEVEL
from glocal.evaluation.moderated_t import Array, moderated
from glocal.evaluation.partial_pooling import FEWEST, partial_pooling
from glocal.experiment.repeat import Repeat
from glocal.experiment.run import Run

STAY, JOIN, PERSONALISE = "stay", "join", "join and personalise"


def advice(
    done: Mapping[str, Run], join_cost: float = 0.0, personalise_cost: float = 0.0
) -> dict[str, Any] | None:
    """What each client and the federation is advised; nothing where there is nobody to ask.

    Args:
        done: The runs of a comparison.
        join_cost: What taking part costs a client, in units of accuracy.
        personalise_cost: What a model of its own costs it on top of that.
    """
    offers = {
        name: run
        for name, run in done.items()
        if run.repeats and run.baseline and not run.is_baseline and run.model
    }
    if not offers:
        return None
    names = list(offers)
    personal = [bool(run.summary.get("personal")) for run in offers.values()]
    costs = np.array([join_cost + personalise_cost * p for p in personal])
    gains = np.stack([expected_gain(run) for run in offers.values()])
    worth = gains - costs[:, None]
    best = worth.argmax(0)
    clients = []
    for k, row in enumerate(next(iter(offers.values())).clients):
        stays = not worth[best[k], k] > 0
        name, of_method = names[best[k]], offers[names[best[k]]].clients[k]
        option = STAY if stays else PERSONALISE if personal[best[k]] else JOIN
        clients.append(
            {
                "client": row["client"],
                "advice": option,
                "method": None if stays else name,
                "expected": 0.0 if stays else float(gains[best[k], k]),
                "benefit": 0.0 if stays else of_method["estimate"],
                "p_worse": 0.0 if stays else of_method["p_worse"],
            }
        )
    means = worth.mean(1)
    chosen = names[int(means.argmax())] if means.max() > 0 else None
    return {
        "recommended": chosen,
        "expected": float(gains.mean(1).max()) if chosen else 0.0,
        "benefit": offers[chosen].summary["benefit"] if chosen else 0.0,
        "counts": dict(Counter(row["advice"] for row in clients)),
        "costs": {"join": join_cost, "personalise": personalise_cost},
        "clients": clients,
    }


def expected_gain(run: Run) -> Array:
    """Every client's gain in validation accuracy, drawn towards that of clients of its size."""
    mine, alone = (_validation(repeats) for repeats in (run.repeats, run.baseline))
    n = np.array([max(int(row["n_val"]), 1) for row in run.clients])
    gain = mine - alone
    # Two models that err independently: the least that is known of their difference's variance.
    noise = (mine * (1 - mine) + alone * (1 - alone) + 1 / (n + 2)) / n
    overlap = np.full(len(n), 1 / len(gain))
    found = moderated(gain, noise, overlap)
    if len(n) < FEWEST:
        return found.mean
    n_train = np.array([float(row["n_train"]) for row in run.clients])
    return partial_pooling(found.mean, found.variance, n_train, LEVEL).estimate


def _validation(repeats: Sequence[Repeat]) -> Array:
    """[repeats, clients]: validation accuracies."""
    return np.stack([repeat.val_accuracy.double().cpu().numpy() for repeat in repeats])
