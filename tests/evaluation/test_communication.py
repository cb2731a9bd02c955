"""Traffic: hand-worked counts, and the totals papers print."""

from __future__ import annotations

import json

import pytest

from glocal.core.errors import GlocalError
from glocal.evaluation.communication import Traffic, published


@pytest.fixture
def traffic() -> Traffic:
    traffic = Traffic()
    traffic.record({"shared": 100, "private start": 30}, {"shared": 20})
    traffic.record({"shared": 100}, {"shared": 20, "extra": 5})
    traffic.record({}, {})
    return traffic


def test_totals_by_direction_and_layer_set(traffic: Traffic) -> None:
    assert (traffic.params_down, traffic.params_up) == (230, 45)
    assert traffic.by_set("down") == {"shared": 200, "private start": 30}
    assert traffic.by_set("up") == {"shared": 40, "extra": 5}


def test_recording_leaves_the_callers_dict_alone() -> None:
    traffic, counts = Traffic(), {"shared": 1}
    traffic.record(counts, counts)
    counts["shared"] = 99
    assert (traffic.params_down, traffic.params_up) == (1, 1)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(GlocalError, match="'extra'"):
        Traffic().record({"shared": 1}, {"extra": -1})


def test_survives_json(traffic: Traffic) -> None:
    assert Traffic.from_dict(json.loads(json.dumps(traffic.to_dict()))) == traffic


def test_totals_papers_print() -> None:
    mnist = published(725, 633_226, clients=100, fraction=0.1)
    cifar = published(1850, 64_102, clients=100, fraction=0.1)
    lg = published(1200, 64_102, 100, 0.1) + published(60, 2_872, 100, 0.1)
    assert f"{mnist:.2e}" == "5.05e+10"
    assert f"{cifar:.3e}" == "1.304e+10"
    assert f"{lg:.2e}" == "8.48e+09"


def test_published_counts_all_down_and_the_sampled_up() -> None:
    assert published(3, 7, clients=10, fraction=0.3) == 3 * 7 * 13
