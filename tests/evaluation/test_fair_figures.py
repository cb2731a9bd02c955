"""Gaps between groups by hand; fresh adversaries find what is planted, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from glocal.core import rng
from glocal.evaluation.attribute_probe import LINEAR, MLP, Representations, probe
from glocal.evaluation.group_gaps import (
    attribute_auc,
    demographic_parity_gap,
    equalised_odds_gap,
    majority_share,
)

PREDICTED = torch.tensor([1, 1, 0, 0, 1, 0, 0, 0])
Y = torch.tensor([1, 1, 1, 0, 1, 0, 1, 0])
GROUP = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])


def test_gaps_by_hand() -> None:
    assert demographic_parity_gap(PREDICTED, GROUP) == pytest.approx(2 / 4 - 1 / 4)
    # Among y = 1: 2 of 3 and 1 of 2 are predicted; among y = 0 nobody.
    assert equalised_odds_gap(PREDICTED, Y, GROUP) == pytest.approx(2 / 3 - 1 / 2)
    assert math.isnan(demographic_parity_gap(PREDICTED, 0 * GROUP))
    three = torch.tensor([0, 0, 1, 1, 2, 2, 2, 2])
    assert demographic_parity_gap(PREDICTED, three) == pytest.approx(1.0)  # 2 of 2, and 0 of 2
    assert equalised_odds_gap(PREDICTED, PREDICTED, GROUP) == 0.0
    assert majority_share(Y) == pytest.approx(5 / 8)


def test_the_auc_of_an_adversary_by_hand() -> None:
    score = torch.tensor([0.1, 0.4, 0.35, 0.8])
    logits = torch.stack([0 * score, score], dim=1)
    assert attribute_auc(logits, torch.tensor([0, 0, 1, 1])) == pytest.approx(0.75)
    assert attribute_auc(logits, torch.tensor([1, 1, 0, 0])) == pytest.approx(0.25)
    sure = torch.eye(3)[torch.tensor([0, 1, 2, 2])] * 5
    assert attribute_auc(sure, torch.tensor([0, 1, 2, 2])) == pytest.approx(1.0)
    # One against the rest: 0 is told; of 1, (½ + 0) / 2; of 2, (½ + 0 + 0) / 3.
    swapped = attribute_auc(sure, torch.tensor([0, 2, 1, 1]))
    assert swapped == pytest.approx((1 + 1 / 4 + 1 / 6) / 3)


def drawn(seed: int, n: int, planted: str) -> Representations:
    """Two clients with ``n`` and ``n − 20`` rows, whose attribute is somewhere in h, or nowhere."""
    key = rng.key(seed)
    h = rng.normal(rng.fold(key, 0), (2, n, 4))
    attribute = (rng.uniform(rng.fold(key, 1), (2, n)) < 0.4).long()
    if planted == "far and small":
        h[..., 2] = 50 + 1e-3 * (h[..., 2] + 4 * attribute)
    if planted == "in a product":
        h[..., 0] = h[..., 0].abs() * torch.where((attribute == 1) == (h[..., 1] > 0), 1.0, -1.0)
    real = torch.ones(2, n, dtype=torch.bool)
    real[1, n - 20 :] = False
    h[1, n - 20 :] = 1e3  # padding, which nothing may read
    return Representations(h, attribute, real)


def aucs(planted: str, hidden: tuple[int, ...]) -> list[float]:
    train, val, test = (drawn(seed, n, planted) for seed, n in ((0, 300), (1, 120), (2, 400)))
    logits: Tensor = probe(train, val, test, 2, hidden, rng.key(0))[1]
    return [
        attribute_auc(each[real], attribute[real])
        for each, attribute, real in zip(logits, test.attribute, test.real, strict=True)
    ]


@pytest.mark.parametrize("hidden", [LINEAR, MLP], ids=["linear", "mlp"])
def test_a_fresh_adversary_finds_what_is_planted_and_nothing_else(hidden: tuple[int, ...]) -> None:
    assert min(aucs("far and small", hidden)) > 0.95
    assert all(0.4 < auc < 0.6 for auc in aucs("nowhere", hidden))


def test_the_mlp_finds_what_no_linear_probe_can() -> None:
    assert all(auc < 0.62 for auc in aucs("in a product", LINEAR))
    assert min(aucs("in a product", MLP)) > 0.8
