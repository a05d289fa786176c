"""Sizes: one normal form, and arithmetic that agrees with integers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphopt.ir.types import (
    Size,
    TensorType,
    broadcast,
    fresh_symbol,
    is_anonymous,
    substitute,
    symbol,
    symbols,
    unranked,
)

N, H = symbol("n"), symbol("h")


def test_equal_sums_have_one_form() -> None:
    assert N + H + N == 2 * N + H
    assert (N + 1) * (N - 1) == N * N - 1
    assert N - N == 0
    assert isinstance(2 * N - N - N + 3, int)


def test_even_divisions_leave_no_floor() -> None:
    assert 4 * N // 4 == N
    assert (4 * N * H + 8) // 4 == N * H + 2
    assert (2 * H + 3) // 2 == H + 1
    assert N * H // N == H


def test_broadcasts_do_not_depend_on_order() -> None:
    assert broadcast(N, 1) == N
    assert broadcast(N, 7) == 7
    assert broadcast(broadcast(N, H), N) == broadcast(H, N)
    with pytest.raises(ValueError, match="2 and 3 do not broadcast"):
        broadcast(2, 3)


def test_sizes_nobody_named_are_all_different() -> None:
    a, b = fresh_symbol(), fresh_symbol()
    assert a != b
    assert is_anonymous(a + N)
    assert not is_anonymous(N + 1)
    assert unranked() != unranked()


def test_types_print_as_they_are_written() -> None:
    assert str(TensorType("float32", (N, 3))) == "float32[n, 3]"
    assert TensorType("float32", (N, 3)).size == 3 * N
    assert TensorType("float32", unranked()).rank is None


_SIZES: st.SearchStrategy[Size] = st.recursive(
    st.integers(0, 9) | st.sampled_from([N, H]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: p[0] + p[1]),
        st.tuples(inner, inner).map(lambda p: p[0] * p[1]),
        st.tuples(inner, st.integers(1, 5)).map(lambda p: p[0] // p[1]),
    ),
    max_leaves=8,
)


@given(_SIZES, _SIZES, st.integers(0, 12), st.integers(0, 12))
def test_arithmetic_is_that_of_the_integers(a: Size, b: Size, n: int, h: int) -> None:
    values: dict[str, Size] = {"n": n, "h": h}
    x, y = substitute(a, values), substitute(b, values)
    assert isinstance(x, int)
    assert isinstance(y, int)
    assert substitute(a + b, values) == x + y
    assert substitute(a - b, values) == x - y
    assert substitute(a * b, values) == x * y
    assert substitute(a // 3, values) == x // 3
    assert symbols(a) <= {"n", "h"}


def test_sizes_that_divide_by_zero_do_not_fit() -> None:
    n, m = symbol("n"), symbol("m")
    with pytest.raises(ValueError, match="divides by zero"):
        substitute(m // n, {"n": 0, "m": 4})
