"""What needs Ray, where Ray is not there; what a cohort in parts comes to."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

import glocal
from glocal.core.errors import GlocalError
from glocal.engines import Devices
from glocal.testing import ragged


@pytest.mark.parametrize(
    ("settings", "what"), [({"engine": "ray"}, "engine='ray'"), ({"jobs": "ray"}, "--jobs ray")]
)
def test_without_ray_one_sentence(
    settings: dict[str, Any], what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(GlocalError, match=rf"^{what} needs Ray, which is not installed: pip inst"):
        glocal.fit("fedavg", ragged(), **settings)


def test_jobs_are_a_number_or_ray() -> None:
    with pytest.raises(GlocalError, match="jobs must be an integer of 0 or more, or ray, not 'x'"):
        glocal.fit("fedavg", ragged(), jobs="x")
    with pytest.raises(GlocalError, match="jobs must be an integer of 0 or more, not -1"):
        glocal.fit("fedavg", ragged(), jobs=-1)


@pytest.mark.parametrize("engine", ["sequential", "vectorised"])
def test_several_devices_share_out_a_cohort(engine: str) -> None:
    given: dict[str, Any] = {"model": "mlp(7)", "rounds": 2, "baseline": "none", "engine": engine}
    one = glocal.fit("ditto", ragged(), **given)
    three = glocal.fit("ditto", ragged(), device="cpu,cpu, cpu", **given)
    assert three.settings["engine"] == engine
    tolerance = 0.0 if engine == "sequential" else 1e-5
    for ours, theirs in ((three.model, one.model), (three.states["v"], one.states["v"])):
        for name, w in theirs.items():
            torch.testing.assert_close(ours[name], w, rtol=tolerance, atol=tolerance)
    assert isinstance(three.trained.training.engine, Devices)  # type: ignore[union-attr]


def test_devices_that_are_not_there() -> None:
    with pytest.raises(GlocalError, match="unknown device 'x': use 'cpu' or 'cuda'"):
        glocal.fit("fedavg", ragged(), device="cpu,x")


def test_a_cluster_is_taken_once() -> None:
    with pytest.raises(GlocalError, match="jobs and engine cannot both take the cluster"):
        glocal.fit("fedavg", ragged(), jobs="ray", engine="ray")
