"""The variance that estimated label shares add, by hand and by drawing the labels again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from glocal.data.federation import federation
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.label_shares import independent_labels, share_variance, widened
from glocal.evaluation.summary import client_table
from glocal.evaluation.trials import Trial
from glocal.evaluation.verdict import Verdict


def test_by_hand() -> None:
    difference = torch.tensor([1.0, 0.0, 0.0, -1.0])
    y = torch.tensor([0, 0, 1, 1])
    # a = ½, −½; shares ¾, ¼; b = ¼; Var = (¾ · 1/16 + ¼ · 9/16)/4.
    assert share_variance(difference, y, torch.tensor([3, 1])) == pytest.approx(3 / 64)
    assert share_variance(difference, y, torch.tensor([3, 1]), n=2) == pytest.approx(3 / 32)
    assert share_variance(difference, y, torch.tensor([4, 0])) == 0
    alike = torch.tensor([1.0, 0.0, 1.0, 0.0])
    assert share_variance(alike, y, torch.tensor([3, 1])) == 0


def test_a_class_that_the_pool_lacks_is_left_out() -> None:
    difference, y = torch.tensor([1.0, 0.0, -1.0]), torch.tensor([0, 0, 2])
    with_it = share_variance(difference, y, torch.tensor([3, 5, 1]))
    assert with_it == share_variance(difference, y, torch.tensor([3, 0, 1]))
    assert share_variance(difference, y, torch.tensor([0, 5, 0])) == 0


def test_drawn_again_the_benefit_varies_so_much() -> None:
    gen = np.random.default_rng(0)
    benefit, shares, n = np.array([0.3, -0.2, 0.05]), np.array([0.5, 0.3, 0.2]), 40
    drawn = gen.multinomial(n, shares, 40_000) / n @ benefit
    y = torch.arange(3)
    found = share_variance(torch.from_numpy(benefit), y, torch.from_numpy(shares * n))
    assert found == pytest.approx(drawn.var(), rel=0.03)


def test_a_group_is_one_label() -> None:
    group = np.repeat(np.arange(24), 3)
    x, y, client = np.zeros((72, 1), np.float32), group % 2, group // 12
    plain = federation(x, y, client)
    assert independent_labels(plain, 1) == len(plain.train.of(1))
    grouped = federation(x, y, client, group=group)
    assert independent_labels(grouped, 1) == pytest.approx(len(grouped.train.of(1)) / 3)


def test_the_interval_is_widened_by_the_shares() -> None:
    verdict = Verdict(0.1, 0.1, 0.01, 0.19, "better off", 0.03, None)
    variance = (0.12 / 1.6449) ** 2
    wider = widened(verdict, variance, 0.02)
    assert (wider.low, wider.high) == pytest.approx((0.1 - 0.15, 0.1 + 0.15))  # 3, 4, 5
    assert wider.verdict == "undecided"
    assert wider.p_worse > verdict.p_worse
    assert widened(verdict, 0.0, 0.02) is verdict


def test_as_an_option_of_a_table() -> None:
    """One class gains all that the other loses: how much is gained hangs on the shares."""
    gen = np.random.default_rng(0)
    y = np.arange(120) % 2
    fed = federation(gen.normal(size=(120, 1)), y, 3, partition="iid", pooled=True)
    pooled_y = fed.y[fed.test.rows]

    def outcome(right: torch.Tensor) -> Outcome:
        own = [right[fed.test.start[k] : fed.test.start[k + 1]] for k in range(3)]
        return Outcome({"accuracy": [0.5] * 3}, own, right.expand(3, -1), ["own"] * 3)

    method, baseline = outcome((pooled_y == 0).float()), outcome((pooled_y == 1).float())
    plain, wide = (
        client_table([Trial(fed, method, baseline, uncertain_shares=uncertain)])
        for uncertain in (False, True)
    )
    for before, after in zip(plain, wide, strict=True):
        n = before["n_train"]
        assert after["benefit"] == before["benefit"]
        half = before["high"] - before["estimate"], after["high"] - after["estimate"]
        # a = 1, −1: the variance is (1 − b²)/n.
        added = 1.6449**2 * (1 - before["benefit"] ** 2) / n
        assert half[1] ** 2 - half[0] ** 2 == pytest.approx(added)
        assert after["own_high"] == before["own_high"]
