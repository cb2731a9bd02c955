from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glocal.core.errors import GlocalError
from glocal.core.spec import Call, parse_call, split_plus


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mlp", ("mlp", (), {})),
        ("mlp()", ("mlp", (), {})),
        (" mlp ( 200 , 200 ) ", ("mlp", (200, 200), {})),
        ("mlp(512,dropout=0.2)", ("mlp", (512,), {"dropout": 0.2})),
        ("q-fedavg(q=1e+3)", ("q-fedavg", (), {"q": 1000.0})),
        (
            "superfed-mm(mu=.01, nu=-1., k=+3)",
            ("superfed-mm", (), {"mu": 0.01, "nu": -1.0, "k": 3}),
        ),
        ("m(True, FALSE, None)", ("m", (True, False, None), {})),
        ("m('true', \"a, (b)\", '')", ("m", ("true", "a, (b)", ""), {})),
        ("lg(shared=layers.2*)", ("lg", (), {"shared": "layers.2*"})),
        ("lg(shared=*.bias)", ("lg", (), {"shared": "*.bias"})),
        ("lg(2nd, 1.2.3, 1-2)", ("lg", ("2nd", "1.2.3", "1-2"), {})),
        ("lg(shared=last(2))", ("lg", (), {"shared": Call("last", (2,), {})})),
        (
            "a(b(c(1),d=e()))",
            ("a", (Call("b", (Call("c", (1,), {}),), {"d": Call("e", (), {})}),), {}),
        ),
        ("by(word-1.x_y)", ("by", ("word-1.x_y",), {})),
        ("local(grid=[0.1, 1])", ("local", (), {"grid": (0.1, 1)})),
        ("a([], [b, [1]])", ("a", ((), ("b", (1,))), {})),
    ],
)
def test_a_call_is_read(text: str, expected: tuple[Any, ...]) -> None:
    got = parse_call(text)
    assert got == expected
    assert [type(v) for v in got[1]] == [type(v) for v in expected[1]]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "a name"),
        ("(1)", "a name"),
        ("2(1)", "a name"),
        ("mlp(", "a value is missing"),
        ("mlp(1", "closed by"),
        ("mlp(1 2)", "separated by"),
        ("mlp(1,)", "a value is missing"),
        ("mlp([1,])", "a value is missing"),
        ("mlp([1)", "closed by ']'"),
        (f"mlp({'[' * 30}{']' * 30})", "nested too deep"),
        ("mlp(,1)", "a value is missing"),
        ("mlp(a=)", "a value is missing"),
        ("mlp(a=1,a=2)", "'a' is given twice"),
        ("mlp(a=1,2)", "come before"),
        ("mlp(1))", "all there is"),
        ("mlp(1)x", "all there is"),
        ("mlp+yogi", "all there is"),
        ("mlp('a)", "a value is missing"),
        ("mlp(1+2)", "separated by"),
        ("mlp(a*(1))", "separated by"),
        ("mlp(batch-size=1)", "separated by"),
        ("mlp(1e999)", "too long"),
        (f"mlp({'9' * 5000})", "too long"),
        ("a(" * 5000, "too deep"),
    ],
)
def test_a_malformed_call_is_one_sentence_with_an_example(text: str, why: str) -> None:
    with pytest.raises(GlocalError) as caught:
        parse_call(text)
    message = str(caught.value)
    assert why in message
    assert repr(text[:60])[:-1] in message
    assert "write it like name(" in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("ditto", ["ditto"]),
        (
            "ditto(lam=0.1) + aaggff-d+yogi(lr=1e+3)",
            ["ditto(lam=0.1)", "aaggff-d", "yogi(lr=1e+3)"],
        ),
        ("a('+)')+b", ["a('+)')", "b"]),
        ("a([1e+3])+b", ["a([1e+3])", "b"]),
        ("a(b(1)+c)+d", ["a(b(1)+c)", "d"]),
    ],
)
def test_parts_are_split_outside_brackets_and_quotes(text: str, parts: list[str]) -> None:
    assert split_plus(text) == parts


@pytest.mark.parametrize("text", ["", "+", "a+", "+a", "a++b", "a(+b", "a)+b", "a)(", "a('+b)"])
def test_malformed_sums(text: str) -> None:
    with pytest.raises(GlocalError, match=r"write it like base\(key=1\)\+other\."):
        split_plus(text)


@given(st.text(st.sampled_from("ab1e.*-_+ ,=()'\"\n\té²")) | st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (parse_call, split_plus):
        with contextlib.suppress(GlocalError):
            read(text)


def test_a_call_can_be_looked_up() -> None:
    assert Call("last", (2,), {"k": 1}) not in {"relu": 0}
    assert hash(Call("a", (), {"k": 1})) == hash(Call("a", (), {"k": 1}))


_names = st.from_regex(r"[A-Za-z][A-Za-z0-9_.-]{0,8}", fullmatch=True)
_keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
_plain = (
    st.integers(-(10**9), 10**9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([True, False, None])
    | st.text(st.characters(exclude_characters='"'), max_size=8)
)


def _calls(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Call]:
    args = st.lists(values, max_size=3).map(tuple)
    return st.builds(Call, _names, args, st.dictionaries(_keys, values, max_size=3))


def _write(value: Any) -> str:
    if isinstance(value, Call):
        items = [_write(v) for v in value.args]
        items += [f"{k}={_write(v)}" for k, v in value.kwargs.items()]
        return f"{value.name}({', '.join(items)})"
    return f'"{value}"' if isinstance(value, str) else str(value)


@given(_calls(st.recursive(_plain, _calls, max_leaves=6)))
def test_what_is_written_is_read_back(call: Call) -> None:
    assert Call(*parse_call(_write(call))) == call
    assert split_plus(f"{_write(call)} + {_write(call)}") == [_write(call)] * 2
