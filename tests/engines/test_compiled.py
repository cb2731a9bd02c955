"""Every method with its steps compiled: one client a block on its thread, or all as one program."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext

import pytest

from glocal.engines.compiled import blocks
from glocal.engines.compiled import inductor as compiling
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
        monkeypatch.setattr(compiling, "SMALL_PRODUCT", 0)  # so that updates are fused
    sampler = Fixed(len(SIZES)) if spec in EVERYBODY else None
    check_method(SMALL.get(spec, spec), sampler=sampler, compiled=True)
    assert capsys.readouterr().err == ""  # nothing went on uncompiled


@pytest.mark.parametrize("name", OF_IMAGES_OR_TEXTS)
def test_auxiliaries_of_images_and_texts(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    spec, model, data = OF_IMAGES_OR_TEXTS[name]
    check_method(spec, model=model, fed=data(), rounds=2, compiled=True)
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
