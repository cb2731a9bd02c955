"""Traffic: hand-worked counts, and the totals papers print."""

from __future__ import annotations

import json

import pytest

import glocal
from glocal.core import tree
from glocal.core.errors import GlocalError
from glocal.evaluation.communication import Traffic, published
from glocal.testing import ragged


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


def test_bytes_are_counted_beside_parameters(traffic: Traffic) -> None:
    """Those of whole parameters are four each; a round may have its own."""
    assert (traffic.total("bytes_down"), traffic.total("bytes_up")) == (4 * 230, 4 * 45)
    traffic.record({"shared": 10}, {"shared": 3}, bytes_up={"shared": 14})
    assert (traffic.total("up"), traffic.total("bytes_up")) == (48, 194)
    assert traffic.total("bytes_down") == 4 * 240
    assert Traffic.from_dict({"down": [{"a": 1}], "up": [{}]}).bytes_down == [{"a": 4}]
    with pytest.raises(GlocalError, match="'shared'"):
        traffic.record({}, {}, bytes_up={"shared": -1})


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


def total(rounds: int, parameters: int, clients: int = 100, fraction: float = 0.1) -> int:
    """Rounds in which a model of so many parameters goes down and comes up."""
    cohort = round(clients * fraction)
    shared = {"shared": parameters * cohort}
    return rounds * published(shared, shared, cohort, clients, fraction)


def test_totals_papers_print() -> None:
    mnist, cifar = total(725, 633_226), total(1850, 64_102)
    lg = total(1200, 64_102) + total(60, 2_872)
    assert f"{mnist:.2e}" == "5.05e+10"
    assert f"{cifar:.3e}" == "1.304e+10"
    assert f"{lg:.2e}" == "8.48e+09"


def test_published_counts_all_down_and_the_sampled_up() -> None:
    assert total(3, 7, clients=10, fraction=0.3) == 3 * 7 * 13


def test_what_travels_beside_the_update_is_published_too() -> None:
    """Of 3 clients in 10: each receives 5 + 2 numbers (and 4 once) and sends 5 + 1."""
    down, up = {"shared": 15, "extra": 6, "private_start": 8}, {"shared": 15, "extra": 3}
    assert published(down, up, 3, clients=10, fraction=0.3) == 7 * 10 + 6 * 3
    assert published({}, {}, 0, clients=10, fraction=0.3) == 0


THETA = 6 * 3 + 3 + 3 * 3 + 3
"""An MLP of six inputs, three hidden units and three classes."""

NETWORKS = {
    # x and y of 3 · 2 examples down; a score and a gradient of each up.
    "fedevg(spc=2)": (6 * 6 + 6, 6 + 6 * 6 + 3),
    # With privacy exp(s) ∇E alone comes up.
    "fedevg(spc=2)+dp(clip=1,noise=1)": (6 * 6 + 6, 6 * 6),
}

PER_CLIENT = {
    "fedavg": (THETA, THETA),
    "scaffold": (2 * THETA, 2 * THETA),
    "ditto": (THETA, THETA),
    "fedper": (6 * 3 + 3, 6 * 3 + 3),
    # A loss beside the update.
    "term": (THETA, THETA + 1),
    "local": (0, 0),
    **NETWORKS,
}


@pytest.fixture
def unexamined(monkeypatch: pytest.MonkeyPatch) -> None:
    """What synthetic data is worth takes seconds to find out, and is not asked here."""
    monkeypatch.setattr(
        "glocal.experiment.synthetic.figures", lambda *_: {"accuracy": 0.0, "val_accuracy": 0.0}
    )


@pytest.mark.usefixtures("unexamined")
@pytest.mark.parametrize("spec", PER_CLIENT)
def test_published_of_methods_by_hand(spec: str) -> None:
    """Half of six clients in each of two rounds."""
    run = glocal.fit(spec, ragged(), rounds=2, model="mlp(3)", sampled=3, baseline="none")
    down, up = PER_CLIENT[spec]
    assert run.summary["params_published"] == 2 * (down * 6 + up * 3)


@pytest.mark.usefixtures("unexamined")
@pytest.mark.parametrize("name", ["fedcgan", "fedcvae"])
def test_published_of_averaged_networks(name: str) -> None:
    """Their networks go down and their changes come up: as many numbers each way."""
    given = {"rounds": 2, "model": "mlp(3)", "sampled": 3, "baseline": "none"}
    run = glocal.fit(f"{name}(width=1,code=2)", ragged(), **given)
    assert run.trained is not None
    size = tree.count(run.trained.progress.server["memory"]["networks"])
    assert size > 0
    assert run.summary["params_published"] == 2 * size * (6 + 3)
