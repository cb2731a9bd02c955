"""What is compiled for a GPU depends on no stopwatch, where this torch can do without."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from glocal.engines.compiled import inductor

config = pytest.importorskip("torch._inductor.config")
GPU = torch.device("cuda")


def settings(untimed: bool) -> dict[str, Any]:
    return inductor._settings(config, GPU, False, False, untimed)


@pytest.mark.skipif(not hasattr(config, "deterministic"), reason="older torch tries out more")
def test_sums_are_not_divided_as_a_trial_was_fastest() -> None:
    assert "deterministic" not in settings(False)
    asked = settings(True)
    assert asked["deterministic"] is True
    assert asked["dynamic_scale_rblock"] is False
    with config.patch(asked):  # it has settings of these names
        assert config.deterministic


def test_torch_that_has_no_such_setting() -> None:
    class Older:
        unroll_reductions_threshold = 8

    assert "deterministic" not in inductor._settings(Older, GPU, False, False, True)


def test_it_is_given_up_after_what_is_only_fast() -> None:
    tricks = inductor.tricks_of(GPU)
    assert tricks[0] == inductor.Tricks(apart=True, epilogue=True, untimed=True)
    assert [each.untimed for each in tricks] == [True, True, True, False, True, False]
