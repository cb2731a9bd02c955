"""Contributions of examples: their mean is the metric, their spread its sampling error."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glocal.evaluation import influence, metrics


def data(n: int, classes: int = 2, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=g)
    logits = torch.randn(n, classes, generator=g) + torch.nn.functional.one_hot(y, classes)
    return logits, y


@pytest.mark.parametrize("name", sorted(influence.VALUES))
def test_the_mean_is_the_metric(name: str) -> None:
    logits, y = data(60, 2 if name in ("auc", "average_precision") else 7)
    assert float(influence.VALUES[name](logits, y).mean()) == pytest.approx(
        metrics.METRICS[name](logits, y), abs=1e-9
    )


def test_placements_of_the_auc_by_hand() -> None:
    """Scores 3, 1 of positives, 2, 0 of negatives: three of four pairs are in order."""
    score, y = torch.tensor([3.0, 1.0, 2.0, 0.0]), torch.tensor([1, 1, 0, 0])
    value = influence.auc(torch.stack([torch.zeros(4), score], 1), y)
    assert value.tolist() == pytest.approx([1.25, 0.25, 0.25, 1.25])
    assert torch.isnan(influence.auc(torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64))).all()


@pytest.mark.parametrize("name", ["auc", "accuracy", "cross_entropy"])
def test_the_spread_is_the_sampling_error(name: str) -> None:
    """Two hundred test sets of the same kind: the metric varies by what one of them says."""
    several = [data(80, seed=s) for s in range(200)]
    truth = np.std([metrics.METRICS[name](*one) for one in several])
    said = np.mean([float(influence.VALUES[name](*one).std()) / 80**0.5 for one in several])
    assert said == pytest.approx(truth, rel=0.15)


def test_pseudo_values_of_a_mean_are_its_terms() -> None:
    logits, y = data(30)
    own = influence.pseudo_values(metrics.cross_entropy, logits, y)
    torch.testing.assert_close(own, influence.cross_entropy(logits, y))


def test_pseudo_values_of_many_examples_say_as_much() -> None:
    logits, y = data(2000)
    whole, shares = influence.auc(logits, y), influence.pseudo_values(metrics.auc, logits, y)
    assert float(shares.mean()) == pytest.approx(float(whole.mean()))
    assert float(shares.std()) == pytest.approx(float(whole.std()), rel=0.15)
