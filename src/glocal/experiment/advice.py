"""Join, stay, or join and personalise: what validation data advises each client, and the server.

Of every method a client has its validation score in each repeat (the metric that counts, such that
higher is better; :mod:`glocal.evaluation.scores`), and that of being alone. The
difference is drawn towards what clients of its size gain, by partial pooling, a cost that the user
states is taken off, and the client is advised what is left most of; staying alone is worth 0. So is
the federation, by the mean over clients. The test data, which chose nothing, then says what the
advice is worth, and how probable it is that a client is worse off.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from glocal.evaluation.distributions import Array
from glocal.evaluation.intervals import LEVEL, nan_mean, without_nan
from glocal.evaluation.moderated_t import moderated
from glocal.evaluation.partial_pooling import FEWEST, partial_pooling
from glocal.experiment.run import Run

STAY, JOIN, PERSONALISE = "stay", "join", "join and personalise"


def add_advice(done: Mapping[str, Run], join_cost: float, personalise_cost: float) -> None:
    """Add what is advised to all runs: ``advice`` in rows, ``recommended`` in summaries.

    Args:
        done: The runs of a comparison.
        join_cost: What taking part costs a client, in points of accuracy.
        personalise_cost: What a model of its own costs it on top of that.
    """
    offers = {n: r for n, r in done.items() if r.trained and r.alone_scores and not r.is_baseline}
    if not offers:
        return
    names, runs = list(offers), list(offers.values())
    if not any(bool(repeat.val_score.isfinite().any()) for repeat in runs[0].repeats):
        return  # the metric has no value for anybody, so there is nothing to choose by
    personal = [bool(run.summary["personal"]) for run in runs]
    costs = np.array([join_cost + personalise_cost * p for p in personal])
    costs = costs if runs[0].summary.get("task") else costs / 100  # in the label's unit, or points
    worth = np.stack([expected_gain(run) for run in runs]) - costs[:, None]
    best = worth.argmax(0)
    stays = ~(worth.max(0) > 0)
    of_federation = worth.mean(1)
    recommended = names[int(of_federation.argmax())] if of_federation.max() > 0 else STAY
    follow = [0.0 if stays[k] else float(runs[i].clients[k]["benefit"]) for k, i in enumerate(best)]
    risks = [0.0 if stays[k] else float(runs[i].clients[k]["p_worse"]) for k, i in enumerate(best)]
    for name, run in done.items():
        for k, row in enumerate(run.clients):
            joins = PERSONALISE if personal[best[k]] else JOIN
            row["advice"] = STAY if stays[k] else joins
            row["advised"] = "alone" if stays[k] else names[best[k]]
            row["advised_p_worse"] = risks[k]
        if name in offers:
            advised = int(((best == names.index(name)) & ~stays).sum())
            run.summary.update(recommended=name == recommended, advised=advised)
            about = {"stay": int(stays.sum()), "benefit": nan_mean(follow)}
            run.summary["advice"] = {**about, "of_clients": len(without_nan(follow))}


def expected_gain(run: Run) -> Array:
    """Every client's gain in validation score, drawn towards that of clients of its size.

    A client without one (an AUC with one class) gains nothing that is known: 0.
    """
    mine = np.stack([repeat.val_score.double().cpu().numpy() for repeat in run.repeats])
    alone = np.stack([score.double().cpu().numpy() for score in run.alone_scores])
    n = np.array([max(int(row["n_val"]), 1) for row in run.clients])
    # Two models that err independently: the most that their difference may vary.
    noise = (mine * (1 - mine) + alone * (1 - alone) + 1 / (n + 2)) / n
    errors = [repeat.val_error for repeat in run.repeats if repeat.val_error is not None]
    if errors:
        noise = 2 * np.stack([error.double().cpu().numpy() for error in errors]) ** 2
    found = moderated(mine - alone, noise, np.full(len(n), 1 / len(mine)))
    known = np.isfinite(found.mean)
    gains = np.where(known, found.mean, 0.0)
    if known.sum() < FEWEST:
        return gains
    n_train = np.array([float(row["n_train"]) for row in run.clients])
    drawn = partial_pooling(found.mean[known], found.variance[known], n_train[known], LEVEL)
    gains[known] = drawn.estimate
    return gains
