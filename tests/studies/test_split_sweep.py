"""The sweep over splits: its ends, its order, and that repeats pool as in a fit."""

from __future__ import annotations

import pytest
import torch
from studied import ALONE, QUICK, digits

from glocal.core import rng, tree
from glocal.core.errors import GlocalError
from glocal.engines import Sequential
from glocal.engines.base import CohortRound
from glocal.experiment.fit import fit
from glocal.studies.repeats import client_models, finished, interval
from glocal.studies.split_sweep import selectors, split_sweep, with_shared
from glocal.training.loop import WORK

SETTINGS = {**QUICK, "baseline": ALONE}


def test_the_ends_are_fedavg_and_nothing_shared() -> None:
    found = split_sweep(digits(), "lg-fedavg(warmup=0)", **SETTINGS)["splits"]
    assert [s["shared"] for s in found] == ["everything", "last(1)", "nothing"]
    for spec, split in (("fedavg", found[0]), ("fedavg(shared=nothing)", found[-1])):
        summary = fit(spec, digits(), **SETTINGS).summary
        assert split["mean"]["mean"] == summary["mean"]
        for name in ("better_off", "worse_off", "same", "undecided", "params_up"):
            assert split[name] == summary[name]
    assert found[0]["local_share"] == 0.0
    assert found[-1]["local_share"] == 1.0
    assert found[-1]["params_up"] == 0
    assert found[0]["params_up"] == 3 * 5 * 610  # rounds, clients, 64·8 + 8 + 8·10 + 10
    assert found[1]["local_share"] == 520 / 610


def test_with_nothing_shared_a_client_trains_as_if_it_were_alone() -> None:
    """Three rounds of plain local training from the common start, written out here."""
    run = fit("fedavg(shared=nothing)", digits(), **SETTINGS)
    t = finished(run).training
    local = fit("fedavg", digits(), **SETTINGS).trained
    assert local is not None
    ids = torch.tensor([2])
    w = t.task.params
    for r in range(3):
        down = {"params": w, "lr": torch.tensor(1.0)}
        half = local.training.plan.stages[0].method.local
        work = CohortRound(t.task, half, t.fed, down, ids, {}, t.key(WORK, r))
        w = tree.map(lambda a, b: a + b[0], w, Sequential().round(work)[0].update)
    for name, leaf in client_models(run).items():
        torch.testing.assert_close(leaf[2], w[name], rtol=1e-4, atol=1e-5)


def test_after_a_warm_up_everything_shared_is_still_fedavg() -> None:
    found = split_sweep(digits(), "lg-fedavg", **SETTINGS)["splits"]
    assert found[0]["mean"]["mean"] == fit("fedavg", digits(), **SETTINGS).summary["mean"]
    assert found[-1]["params_up"] == 2 * 5 * 610  # the warm-up's two rounds of three


def test_repeats_pool_as_in_a_fit() -> None:
    found = split_sweep(digits(), "fedavg", side="output", repeats=2, **SETTINGS)
    assert [s["shared"] for s in found["splits"]] == ["everything", "first(1)", "nothing"]
    for spec, split in zip(
        ("fedavg", "fedavg(shared=first(1))", "fedavg(shared=nothing)"),
        found["splits"],
        strict=True,
    ):
        summary = fit(spec, digits(), repeats=2, **SETTINGS).summary
        assert split["mean"]["mean"] == pytest.approx(summary["mean"], abs=1e-12)
        for name in ("better_off", "worse_off", "same", "undecided"):
            assert split[name] == summary[name]
        assert found["alone"]["mean"] == pytest.approx(summary["local_mean"], abs=1e-12)


def test_the_interval_is_students() -> None:
    found = interval([1.0, 2.0, 3.0])
    assert found["mean"] == 2.0
    assert found["high"] - 2.0 == pytest.approx(2.919986 / 3**0.5, rel=1e-6)  # t of .95, 2 df
    assert interval([4.0])["low"] is None


def test_selectors_and_specs() -> None:
    assert selectors(1, "input") == ["everything", "nothing"]
    assert selectors(3, "output") == ["everything", "first(2)", "first(1)", "nothing"]
    assert with_shared("fedavg", "last(1)") == "fedavg(shared=last(1))"
    assert with_shared("fedavg()", "last(1)") == "fedavg(shared=last(1))"
    assert with_shared("fedavg(lr=0.1)+adam", "nothing") == "fedavg(lr=0.1, shared=nothing)+adam"
    assert with_shared("uniform", "nothing") == "uniform(shared=nothing)"


@pytest.mark.parametrize(
    ("method", "side", "says"),
    [
        ("fedavg(shared=last(1))", "input", "leave shared out"),
        ("local", "input", "shares nothing"),
        ("fedavg", "middle", "input or the output"),
    ],
)
def test_what_cannot_be_swept_is_refused(method: str, side: str, says: str) -> None:
    with pytest.raises(GlocalError, match=says):
        split_sweep(digits(), method, side=side, **SETTINGS)


def test_seeds_of_repeats_differ() -> None:
    from glocal.studies.repeats import seed_of

    assert seed_of(7, 0) == 7
    assert len({seed_of(7, r) for r in range(5)}) == 5
    assert seed_of(7, 1) == rng.seed_of(rng.fold(rng.key(7), 1))
