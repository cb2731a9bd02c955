"""Who has how many training examples of which class, kept with a result of simulated clients."""

from __future__ import annotations

from typing import Any

import torch

from glocal.data.federation import Federation

MOST_CLIENTS, MOST_CLASSES = 500, 50
"""Of more there are no counts: a result stays small."""


def about_data(fed: Federation, *, private: bool) -> dict[str, Any]:
    """What a result says of its data: where it is from, and ``label_counts`` [clients][classes].

    Of a run with privacy there are none: counts that are exact are outside of what ε promises.
    Between machines nobody has them, and no result of a deployment is made here.
    """
    classes = fed.classes if fed.target.classes else 0
    few = 0 < classes <= MOST_CLASSES and len(fed) <= MOST_CLIENTS
    if private or not few or fed.y.dim() != 1:
        return fed.describe
    labels = fed.y.cpu()
    counts = [
        torch.bincount(labels[fed.train.of(k).cpu()], minlength=classes).tolist()
        for k in range(len(fed))
    ]
    return {**fed.describe, "label_counts": counts}
