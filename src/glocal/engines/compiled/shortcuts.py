"""Shortcuts through TorchInductor's code generation, which takes longer than the C++ compiler.

Two things cost it most in a step of many small operations: it simplifies every index with sympy to
learn its stride, though nearly all are sums of multiples, and it sets up its table of types anew
for every operation. Here a stride is read off such a sum, and the table is set up once. The
programs are the same to the letter; a torch without these names goes its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch


@contextmanager
def shortcuts() -> Iterator[None]:
    """While a step is compiled, of which there is one at a time."""
    from torch._inductor.codegen import common, cpp

    with ExitStack() as patched:
        whole = getattr(cpp, "stride_at_vec_range", None)
        if whole is not None:
            patched.enter_context(patch.object(cpp, "stride_at_vec_range", _quick(whole)))
        types = getattr(common, "DtypePropagationOpsHandler", None)
        if types is not None and hasattr(types, "_instance"):  # there is but one
            patched.enter_context(patch.object(common, "DtypePropagationOpsHandler", cache(types)))
        yield


def _quick(whole: Callable[..., Any]) -> Callable[..., Any]:
    """``whole``, unless the stride can be read off."""

    def stride_at(index: Any, var: Any, length: int | None = None) -> Any:
        found = read_off(index, var)
        return whole(index, var, length) if found is None else found

    return stride_at


def read_off(index: Any, var: Any) -> Any:
    """By how much a sum of multiples grows where ``var`` grows by one; None for anything else."""
    import sympy

    if not isinstance(index, sympy.Expr):
        return None
    stride = sympy.S.Zero
    for term in sympy.Add.make_args(index):
        if term == var:
            stride += 1
        elif term.has(var):
            factor, of = term.as_coeff_Mul()
            if of != var or not factor.is_Integer:
                return None
            stride += factor
    return stride
