"""Methods × label noise: figures as of a fit, and noise in training labels alone."""

from __future__ import annotations

import pytest
import torch
from studied import ALONE, QUICK, digits

import glocal
from glocal.core.errors import GlocalError
from glocal.studies.noise import NOISES, noise_table

SETTINGS = {**QUICK, "baseline": ALONE}


def test_accuracy_and_own_calibration_are_those_of_a_fit() -> None:
    feds = {"none": digits(), "pair 0.4": digits("pair-noise(0.4)")}
    found = noise_table(feds, [ALONE, "fedavg", "ditto"], **SETTINGS)
    assert found["noises"] == list(feds)
    for method, cells in found["methods"].items():
        for noise, cell in cells.items():
            summary = glocal.fit(method, feds[noise], **SETTINGS).summary
            assert cell["accuracy"]["mean"] == pytest.approx(summary["mean"], abs=1e-6)
            for name in ("ece", "mce"):
                own = summary["metrics"][name]["mean"]
                assert cell[f"own_{name}"]["mean"] == pytest.approx(own, abs=1e-5)
                assert 0 <= cell["ece"]["mean"] <= cell["mce"]["mean"] <= 1


def test_the_published_settings_flip_training_labels_alone() -> None:
    assert [NOISES[n] for n in ("none", "pair 0.1", "symmetric 0.6")] == [
        None,
        "pair-noise(0.1)",
        "symmetric-noise(0.6)",
    ]
    for name, rate in (("pair 0.4", 0.4), ("symmetric 0.6", 0.6)):
        spec = NOISES[name]
        assert spec is not None
        fed = digits(spec)
        wrong = fed.y_train != fed.y
        assert float(wrong[fed.train.rows].float().mean()) == pytest.approx(rate, abs=0.1)
        assert not wrong[fed.test.rows].any()
        assert torch.equal(fed.y[fed.val.rows], digits().y[fed.val.rows])  # as validation counts
        assert torch.equal(fed.y, digits().y)


def test_methods_are_checked_before_anything_is_trained() -> None:
    with pytest.raises(GlocalError, match="unknown method"):
        noise_table({"none": digits()}, ["fedavgg"], **SETTINGS)
    with pytest.raises(GlocalError, match="at least one method"):
        noise_table({"none": digits()}, [], **SETTINGS)
