"""The test of pooling: its figures by hand, by scipy and by brute force; what it lets through."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from glocal.data.federation import Federation, federation
from glocal.evaluation import pooling_test
from glocal.evaluation.evaluate import Outcome
from glocal.evaluation.pooling_test import Evaluated, Scores, pooling, scores_of


def evaluated(
    gen: np.random.Generator, right: np.ndarray, own: int = 20, classes: int = 2, first: int = 0
) -> Evaluated:
    """Examples drawn at random; ``right[k, j]`` is client k's chance on client j's examples."""
    clients = len(right)
    owner = np.repeat(np.arange(clients), own)
    correct = gen.random((clients, len(owner))) < right[:, owner]
    y = gen.integers(0, classes, len(owner))
    return Evaluated(correct.astype(float), y, owner, first + np.arange(len(owner)))


def test_by_hand() -> None:
    """Two clients, one class: client 0 has 3 of its 4 right and 1 of the other's 4."""
    correct = np.array([[1, 1, 1, 0, 1, 0, 0, 0], [0, 1, 1, 0, 1, 1, 0, 0]], float)
    owner, y = np.repeat([0, 1], 4), np.zeros(8, int)
    scores = scores_of([Evaluated(correct, y, owner, np.arange(8))])
    # T = 3 − 4 · ¼ = 2 and 2 − 4 · ½ = 0; p = (4 + 1)/10 of either; V = p (1 − p)(4 + 16/4) = 2.
    assert scores.z == pytest.approx(2 / math.sqrt(2 + 2))
    # P(3 or more of 4 right | 4 of 8 are) = (4 · 4 + 1)/70.
    from scipy.stats import norm

    assert scores.of_clients == pytest.approx((norm.isf(17 / 70), 0.0))


def test_the_tail_is_that_of_fishers_exact_test_and_of_all_arrangements() -> None:
    from scipy.stats import fisher_exact, norm

    score = pooling_test._exact_score([(6, 20, 6, 9)])
    tail = fisher_exact([[6, 0], [3, 11]], alternative="greater").pvalue
    assert score == pytest.approx(norm.isf(tail))
    assert pooling_test._exact_score([(6, 20, 0, 9)]) == pytest.approx(
        -norm.isf(fisher_exact([[0, 6], [9, 5]], alternative="less").pvalue)
    )
    # Two classes: every choice of own examples, 2 of 5 (3 right) and 3 of 6 (2 right).
    sums = Counter(
        sum(i < 3 for i in one) + sum(i < 2 for i in other)
        for one in itertools.combinations(range(5), 2)
        for other in itertools.combinations(range(6), 3)
    )
    tail = (sums[4] + sums[3]) / sum(sums.values())
    assert pooling_test._exact_score([(2, 5, 2, 3), (3, 6, 1, 2)]) == pytest.approx(norm.isf(tail))
    assert pooling_test._exact_score([]) == 0.0


def test_a_class_that_only_one_client_has_says_nothing() -> None:
    gen = np.random.default_rng(0)
    found = evaluated(gen, np.full((3, 3), 0.5))
    alone = replace(found, y=found.owner)
    assert scores_of([alone]).of_clients == (0.0, 0.0, 0.0)
    assert scores_of([alone]).z == 0
    assert scores_of([alone]).passed


def test_alike_clients_pass_nearly_always() -> None:
    """The nominal rate is 2 % for the sum and 2 % for the largest; models are rarely wrong."""
    gen = np.random.default_rng(1)
    refused = Counter[str]()
    for _ in range(400):
        scores = scores_of([evaluated(gen, np.full((10, 10), 0.9), own=12)])
        refused["sum"] += abs(scores.z) > pooling_test.LIMIT
        refused["largest"] += abs(scores.of_clients[scores.worst]) > scores.limit
    assert refused["sum"] <= 18
    assert refused["largest"] <= 18


def test_clients_that_differ_are_refused() -> None:
    gen = np.random.default_rng(2)
    everyone = np.full((10, 10), 0.6) + 0.3 * np.eye(10)
    scores = scores_of([evaluated(gen, everyone)])
    assert scores.z > 2 * pooling_test.LIMIT
    one = np.full((40, 40), 0.8)
    one[7] = 0.3
    one[7, 7] = 0.9
    scores = scores_of([evaluated(gen, one)])
    assert scores.z < pooling_test.LIMIT  # which hides it
    assert scores.worst == 7
    assert not scores.passed


def test_the_limit_of_the_largest_is_bonferronis() -> None:
    from scipy.stats import norm

    for clients in (1, 20, 100):
        limit = Scores(0.0, (0.0,) * clients).limit
        assert norm.sf(limit) * clients == pytest.approx(norm.sf(2.3))


def test_rows_that_come_back_and_rows_of_a_group_are_one_unit() -> None:
    gen = np.random.default_rng(3)
    one = evaluated(gen, np.full((4, 4), 0.7))
    alone, twice = scores_of([one]), scores_of([one, one])
    assert twice.z == pytest.approx(alone.z)
    copies = Evaluated(
        *(np.repeat(part, 5, -1) for part in (one.correct, one.y, one.owner)), one.unit
    )
    grouped = scores_of([replace(copies, unit=np.repeat(one.unit, 5))])
    # All but the same: the example that keeps a variance from being zero counts for less.
    assert grouped.z == pytest.approx(alone.z, rel=0.1)
    rows = scores_of([replace(copies, unit=np.arange(400))])
    assert rows.z == pytest.approx(alone.z * math.sqrt(5), rel=0.1)
    other = scores_of([one, replace(one, unit=one.unit + 80)])
    assert other.z == pytest.approx(alone.z * math.sqrt(2))


def test_what_would_have_been_found() -> None:
    """A difference of that size is found nine times of ten."""
    gen = np.random.default_rng(4)
    alike = scores_of([evaluated(gen, np.full((20, 20), 0.7), own=30)])
    chance = np.full((20, 20), 0.7) + alike.detects * np.eye(20)
    found = sum(
        scores_of([evaluated(gen, chance, own=30)]).z > pooling_test.LIMIT for _ in range(200)
    )
    assert 0.85 * 200 <= found <= 0.97 * 200


@pytest.fixture(scope="module")
def fed() -> Federation:
    gen = np.random.default_rng(0)
    x = gen.normal(size=(200, 2)).astype(np.float32)
    return federation(x, gen.integers(0, 2, 200), np.arange(200) % 4)


def outcome(fed: Federation, own: float, others: float, seed: int = 0) -> Outcome:
    gen = np.random.default_rng(seed)
    chance = np.full((4, 4), others) + (own - others) * np.eye(4)
    counts = fed.test.counts().numpy()
    owner = np.repeat(np.arange(4), counts)
    pool = torch.tensor(gen.random((4, len(owner))) < chance[:, owner]).float()
    return Outcome({}, [], pool, [])


def test_what_is_used_and_why(fed: Federation) -> None:
    alike, unlike = outcome(fed, 0.7, 0.7), outcome(fed, 0.9, 0.3)
    said = replace(fed, pooled=True)
    by_label = replace(fed, label_shift_only=True)
    refusal = r"Own test splits: clients' models do better on their own test examples than on"
    for of, found, used, sentence in [
        (said, alike, True, "Pooled test examples: clients' models do as well on their own test"),
        (said, unlike, False, refusal),
        (by_label, unlike, False, refusal),
        (by_label, alike, True, "Pooled test examples: clients' models do as well"),
        (replace(by_label, pooled=False), alike, False, "Own test splits, as asked for"),
        (fed, alike, False, "Own test splits; pooled=True would be allowed: clients' models"),
        (fed, unlike, False, refusal),
        (fed, replace(alike, pool=None), False, "Own test splits: clients may differ in more"),
    ]:
        pool = pooling([(of, found)])
        assert pool.used is used
        assert pool.sentence.startswith(sentence)
        assert pool.as_json()["used"] is used
    sequences = replace(said, y=torch.zeros(200, 3, dtype=torch.int64))
    assert (
        "sequences have no label shares"
        in pooling([(sequences, replace(alike, pool=None))]).sentence
    )
    assert pooling([(said, unlike)]).as_json()["z"] > 2.3
