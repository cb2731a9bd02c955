"""Every method with its steps compiled: one client a block on its thread, or all as one program."""

from __future__ import annotations

import re
import shutil
from collections import OrderedDict
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import glocal
from glocal.engines.compiled import blocks, decompositions, large_products
from glocal.engines.compiled import inductor as compiling
from glocal.nn import client_convolutions
from glocal.testing import SIZES, check_method
from glocal.training.sampling import Fixed
from specs import EVERYBODY, OF_IMAGES_OR_TEXTS, SMALL, SPECS

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler"),
]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("narrow", [False, True])
def test_methods(
    spec: str,
    narrow: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if narrow:
        monkeypatch.setattr(blocks, "CACHE", 1)
        monkeypatch.setattr(decompositions, "SMALL_PRODUCT", 0)  # so that updates are fused
    sampler = Fixed(len(SIZES)) if spec in EVERYBODY else None
    check_method(SMALL.get(spec, spec), sampler=sampler, compiled=True)
    assert capsys.readouterr().err == ""  # nothing went on uncompiled


@pytest.mark.parametrize("spec", ["fedavg", "fedavg(batch_size=0)", "scaffold", "apfl", "fedevg"])
def test_methods_with_products_by_another_library(
    spec: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(blocks, "CACHE", 1)
    monkeypatch.setattr(decompositions, "SMALL_PRODUCT", 0)
    monkeypatch.setattr(large_products, "pays", lambda: True)  # whatever the processor is
    monkeypatch.setattr(large_products, "LARGE", 1)
    monkeypatch.setattr(large_products, "LARGE_UPDATE", 1)
    monkeypatch.setattr(compiling, "_MADE", OrderedDict())  # made with other rules
    monkeypatch.setattr(
        compiling, "tricks_of", lambda _: [compiling.Tricks(fused=True, large=True)]
    )
    check_method(SMALL.get(spec, spec), compiled=True)
    assert capsys.readouterr().err == ""  # nothing went on uncompiled


@pytest.mark.parametrize("name", OF_IMAGES_OR_TEXTS)
def test_auxiliaries_of_images_and_texts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec, model, data = OF_IMAGES_OR_TEXTS[name]
    check_method(spec, model=model, fed=data(), rounds=2, compiled=True)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("stride", [1, 2])
def test_tiled_convolutions(
    stride: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(client_convolutions, "DEVICES", frozenset({"cpu"}))
    ways: list[str] = []
    rule = client_convolutions.way_of
    monkeypatch.setattr(
        client_convolutions, "way_of", lambda *given: ways.append(rule(*given)) or ways[-1]
    )
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(3, 4, (3, 2), stride=stride),
        nn.Flatten(),
        nn.Linear(4 * ((6 - 1) // stride + 1) * ((7 - 1) // stride + 1), 10),
    )
    fed = glocal.load("digits", clients=3, seed=0)
    check_method("fedavg", model=model, fed=fed, rounds=2, compiled=True)
    assert set(ways) == {"tiled"}
    assert capsys.readouterr().err == ""


def test_shortcuts_give_the_same_programs_to_the_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config
    from torch._inductor.graph import GraphLowering

    written: list[str] = []
    monkeypatch.setattr(GraphLowering, "save_output_code", staticmethod(written.append))

    def programs() -> list[str]:
        compiling._MADE.clear()
        written.clear()
        with config.patch(force_disable_caches=True):
            check_method("ditto", compiled=True)
        return [re.sub(r"\d+_inference", "", text) for text in written]  # a count of programs

    short = programs()
    monkeypatch.setattr(compiling, "shortcuts", nullcontext)
    assert short == programs()
    assert short
