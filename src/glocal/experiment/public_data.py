"""Public data: examples that are said to be nobody's, checked against the clients' own.

A server that takes Fisher information of examples which clients are tested on has seen the test;
one that takes it of clients' training or validation examples holds what should never leave them.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from glocal.core.errors import GlocalError, shown
from glocal.core.progress import note
from glocal.data.federation import Federation
from glocal.data.suggested_groups import keys
from glocal.experiment.fisher import Public
from glocal.experiment.synthetic import examples_like

CHANCE = 2.0
"""Rows of a table may coincide by chance: so many times as often as those of training and test."""


def check_public(public: Public, fed: Federation) -> Public:
    """The examples where ``fed`` is; refuses what does not fit, and clients' test examples."""
    x, y = (_tensor(part) for part in public)
    if not len(x) or not len(y):
        raise GlocalError("public= has no examples: give inputs and a label for each.")
    x, y = examples_like(fed, x, y, "public data")
    given = keys(x)
    test, train = keys(fed.x[fed.test.rows]), keys(fed.x[fed.train.rows])
    by_chance = CHANCE * np.isin(train, test).mean() * len(given)
    tested = int(np.isin(given, test).sum())
    if tested > by_chance:
        raise GlocalError(
            f"{tested} of {len(given)} public examples are clients' test examples, which would be "
            "seen before the test: give public data that is nobody's."
        )
    held = keys(fed.x[torch.cat([fed.train.rows, fed.val.rows])])
    known = int(np.isin(given, held).sum())
    if known > by_chance:
        note(
            f"{known} of {len(given)} public examples are clients' training or validation "
            "examples: public data should be nobody's, since the server has it."
        )
    return x, y


def _tensor(given: object) -> Tensor:
    """What has one entry for each example, as a tensor."""
    try:
        entries = torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError):
        entries = None
    if entries is None or not entries.dim():
        raise GlocalError(
            "public= takes inputs and labels as tensors or arrays, with an entry for each "
            f"example, not {shown(given)}."
        )
    return entries
