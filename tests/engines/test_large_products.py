"""Large products by oneDNN: on which processors, the same numbers, and called by compiled steps."""

from __future__ import annotations

import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from glocal.engines.compiled import inductor, large_products

WIDE = "flags : fpu avx2 avx512f avx512bw\n"


@pytest.mark.parametrize(
    ("processor", "expected"),
    [
        ("vendor_id : AuthenticAMD\n" + WIDE, True),
        ("vendor_id : GenuineIntel\n" + WIDE, False),  # MKL uses all there is
        ("vendor_id : AuthenticAMD\nflags : fpu avx2\n", False),  # and here
        (None, False),
    ],
)
def test_which_processors(processor: str | None, expected: bool, tmp_path: Path) -> None:
    if processor is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/cpuinfo").write_text(processor)
    assert large_products.pays(tmp_path) == expected


def test_from_how_many_multiplications() -> None:
    a, b = torch.zeros(3, 10, 1000), torch.zeros(3, 1000, 100)
    assert large_products.is_large(a, b)
    assert not large_products.is_large(a[:, :9], b)
    assert not large_products.is_large(a.double(), b.double())
    assert not large_products.is_large(a.bfloat16(), b.bfloat16())
    assert not large_products.is_large(a.repeat(6, 1, 1), b.repeat(6, 1, 1))  # a call for each
    assert not large_products.is_large(a[:0], b[:0])
    assert not large_products.is_faster(a, b)
    assert large_products.is_faster(a.repeat(1, 3, 1), b)


def test_fewer_tricks_where_torch_does_not_know_them(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, asked = torch.device("cpu"), []
    monkeypatch.setattr(large_products, "pays", lambda: True)

    def make(tricks: inductor.Tricks, most: int) -> str:
        asked.append(sum(tricks))
        if sum(tricks) > most:
            raise AttributeError("no such name")
        return "made"

    for most in (2, 1, 0):
        asked.clear()
        assert inductor._first_that_works(
            lambda tricks, most=most: make(tricks, most), inductor.tricks_of(cpu), lambda: None
        )
        assert asked == [2, 1, 0][: 3 - most]
    monkeypatch.setattr(large_products, "pays", lambda: False)
    assert [sum(each) for each in inductor.tricks_of(cpu)] == [1, 0]
    assert [sum(each) for each in inductor.tricks_of(torch.device("cuda"))] == [3, 2, 2, 2, 1, 0]


@pytest.mark.skipif(
    not hasattr(torch.ops.mkldnn, "_linear_pointwise"), reason="torch has no oneDNN"
)
@pytest.mark.parametrize("clients", [1, 3])
@pytest.mark.parametrize("transposed", [(False, False), (True, False), (False, True)])
def test_the_same_numbers(clients: int, transposed: tuple[bool, bool]) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(clients, 7, 33), torch.randn(clients, 33, 12)
    a, b = (x.mT.contiguous().mT if turn else x for x, turn in zip((a, b), transposed, strict=True))
    exact = a.double() @ b.double()
    torch.testing.assert_close(large_products.product(a, b).double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("clients", [1, 2])
@pytest.mark.parametrize("single_thread", [False, True])
def test_compiled_steps_call_it(
    clients: int, single_thread: bool, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    def step(w: Tensor, y: Tensor, x: Tensor) -> None:
        y.copy_(x @ w.mT + 1)
        w.copy_(w - 0.01 * (y.mT @ x).tanh() - 0.01 * (y @ w).mean())

    asked: list[torch.Size] = []
    monkeypatch.setattr(inductor, "_MADE", OrderedDict())  # what another test had made
    monkeypatch.setattr(large_products, "pays", lambda: True)
    monkeypatch.setattr(large_products, "LARGE", 1000)
    one = large_products.product
    monkeypatch.setattr(large_products, "product", lambda a, b: asked.append(a.shape) or one(a, b))
    torch.manual_seed(0)
    w, y, x = (
        torch.randn(clients, 40, 30),
        torch.zeros(clients, 20, 40),
        torch.randn(clients, 20, 30),
    )
    # With all tricks, or not at all.
    monkeypatch.setattr(inductor, "tricks_of", lambda _: [inductor.Tricks(fused=True, large=True)])
    made = inductor.compile_step(step, [w, y, x], 2, single_thread=single_thread)
    assert made is not None, capsys.readouterr().err
    assert {tuple(shape) for shape in asked} == {
        (clients, 20, 30),
        (clients, 40, 20),
        (clients, 20, 40),
    }
    ours, plain = [w.clone(), y.clone()], [w.clone(), y.clone()]
    made[0](*ours, x)
    step(*plain, x)
    torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_tricks_that_come_out_wrong_are_done_without(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked, whole = [], inductor._compiled

    def wrong_with_tricks(*given: Any) -> Any:
        program, unread = whole(*given)
        asked.append(given[4])

        def off(*tensors: Tensor) -> None:
            program(*tensors)
            tensors[0].add_(0 if given[4].is_plain else 1)

        return off, unread

    monkeypatch.setattr(inductor, "_compiled", wrong_with_tricks)
    monkeypatch.setattr(
        inductor, "tricks_of", lambda _: [inductor.Tricks(fused=True), inductor.Tricks()]
    )
    made = inductor.compile_step(lambda w, x: w.sub_(0.1 * x), [torch.ones(3), torch.ones(3)], 1)
    assert made is not None
    assert capsys.readouterr().err == ""
    assert asked == [inductor.Tricks(fused=True), inductor.Tricks()]
    w = torch.ones(3)
    made[0](w, torch.ones(3))
    torch.testing.assert_close(w, torch.full((3,), 0.9))
