"""Presets: every one resolves and names its source; what is given wins over it."""

from __future__ import annotations

import numpy as np
import pytest

import glocal
from glocal.core.errors import GlocalError
from glocal.experiment.config import Config
from glocal.experiment.config_reading import with_presets
from glocal.methods import presets, registry, resolve
from glocal.methods.hyperparameters import in_force
from glocal.methods.preset_table import PRESETS
from glocal.methods.specs import leaves_rate_open
from glocal.nn import models
from glocal.report.catalogue import show_method
from glocal.slots.method import as_plan


def test_every_preset_makes_its_method_and_names_its_source() -> None:
    for name, preset in PRESETS.items():
        method, _, data = name.partition("@")
        assert method in registry.known()
        assert data
        plan = as_plan(resolve(name))
        assert plan.stages
        spelled = {part.partition("(")[0] for part in preset.spec.split("+")}
        asked = {"dp": "dp", "median": "median"}.get(method, method)
        assert asked in spelled
        assert any(year in preset.source for year in ("20", "dissertation"))
        Config(**preset.settings)  # whose names and values are checked
        model = preset.settings.get("model", "mlp").partition("(")[0]
        assert model in models.REGISTRY


def test_a_preset_is_the_spec_that_it_stands_for() -> None:
    preset = PRESETS["lg-fedavg@mnist"]
    assert in_force("lg-fedavg@mnist") == in_force(preset.spec)
    plan = as_plan(resolve("lg-fedavg@mnist"))
    assert [stage.rounds for stage in plan.stages] == [400, None]
    last = plan.stages[-1].method
    assert last.shared.name == "last(3)"
    assert last.weights.name == "uniform"
    settings = dict(last.local.training)
    assert (settings["lr"], settings["momentum"], last.local.batch_size) == (0.05, 0.5, 10)
    assert not leaves_rate_open("lg-fedavg@mnist")


def test_what_is_in_brackets_wins_and_components_are_joined() -> None:
    found = in_force("superfed-mm@mnist(lr=0.3, nu=5)+median")
    assert found["superfed-mm"]["lr"] == 0.3
    assert found["superfed-mm"]["nu"] == 5
    assert found["superfed-mm"]["batch_size"] == 10
    assert "median" in found
    found = in_force("q-fedavg@aaggff-berka(q=3, lr=0.5)")
    assert found["q-fedavg"]["q"] == 3
    assert found["fedavg"]["lr"] == 0.5


def test_names_that_are_none() -> None:
    with pytest.raises(GlocalError, match=r"lg-fedavg@minst.*lg-fedavg@mnist"):
        resolve("lg-fedavg@minst")
    with pytest.raises(GlocalError, match="stands at the beginning of a spec"):
        resolve("fedavg+dp@salvaging-cifar10")
    with pytest.raises(GlocalError, match="takes settings by name"):
        resolve("superfed-mm@mnist(3)")


def test_settings_that_are_not_the_methods() -> None:
    fixed = with_presets(["superfed-mm@mnist"], {"rounds": 3})
    assert fixed["rounds"] == 3
    assert (fixed["data"], fixed["clients"], fixed["sampled"]) == ("mnist", 100, 5)
    assert "sampled" not in with_presets(["superfed-mm@mnist"], {"fraction": 0.5})
    of_training = with_presets(["superfed-mm@mnist"], {}, ["Training"])
    assert "data" not in of_training
    assert of_training["model"] == "mlp(200, 200)"
    with pytest.raises(GlocalError, match=r"has rounds 500 and fedavg@lg-mnist has 800.*rounds="):
        with_presets(["lg-fedavg@mnist", "fedavg@lg-mnist"], {})
    assert with_presets(["fedavg"], {}) == {}


def test_a_run_takes_what_its_preset_fixes() -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 4)).astype("float32"), np.arange(60) % 2
    fed = glocal.federation(x, y, 6, partition="iid")
    spec = "fedavg@superfed-mnist(epochs=1)"
    run = glocal.fit(spec, fed, rounds=1, baseline="none", engine="sequential")
    assert run.settings["model"] == "mlp(200, 200)"
    assert run.settings["rounds"] == 1


def test_a_preset_is_shown_with_its_source(capsys: pytest.CaptureFixture[str]) -> None:
    show_method("lg-fedavg@mnist")
    out = capsys.readouterr().out
    assert "Source: Liang et al., Think locally, act globally, 2020, table 5." in out
    assert "classes(2)" in out
    assert "0.05" in out
    show_method("superfed-mm")
    assert "superfed-mm@cifar10" in capsys.readouterr().out
    assert presets.named("fedavg") is None
