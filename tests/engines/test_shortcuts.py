"""Shortcuts through code generation change nothing but its time."""

from __future__ import annotations

import pytest
import sympy

from glocal.engines.compiled.shortcuts import read_off, shortcuts

X, Y = sympy.symbols("d0 d1", integer=True, nonnegative=True)


def by_torch(index: sympy.Expr, var: sympy.Symbol) -> sympy.Expr:
    from torch._inductor.sizevars import stride_at_vec_range

    return stride_at_vec_range(index, var, 16)


@pytest.mark.parametrize("index", [X, 7 * X, X + 64 * Y + 5, 640 * Y - X, sympy.Integer(3), Y])
def test_read_off_is_what_torch_finds(index: sympy.Expr) -> None:
    assert read_off(index, X) == by_torch(index, X)


def test_multiples_of_one_variable_in_several_forms_add_up() -> None:
    index = sympy.Add(X, 3 * X, evaluate=False)
    assert read_off(index, X) == 4 == by_torch(index, X)


def test_anything_else_is_left_to_torch() -> None:
    from torch.utils._sympy.functions import FloorDiv, ModularIndexing

    for index in (X * Y, X**2, FloorDiv(X, 3), Y + ModularIndexing(X, 1, 8), sympy.Ge(X, 3)):
        assert read_off(index, X) is None


def test_of_one_that_is_no_part_of_it() -> None:
    from torch.utils._sympy.functions import FloorDiv

    assert read_off(8 * X + FloorDiv(Y, 4), X) == 8


def test_names_are_torchs_own_again_afterwards() -> None:
    from torch._inductor.codegen import common, cpp

    before = cpp.stride_at_vec_range, common.DtypePropagationOpsHandler
    with shortcuts():
        assert cpp.stride_at_vec_range is not before[0]
    assert (cpp.stride_at_vec_range, common.DtypePropagationOpsHandler) == before


def test_a_torch_without_these_names_goes_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor.codegen import common, cpp

    monkeypatch.delattr(cpp, "stride_at_vec_range")
    monkeypatch.delattr(common, "DtypePropagationOpsHandler")
    with shortcuts():
        assert not hasattr(cpp, "stride_at_vec_range")
