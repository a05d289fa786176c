"""Sizes: one normal form, and arithmetic that agrees with integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphopt.ir.types import (
    Real,
    Size,
    TensorType,
    broadcast,
    fresh_symbol,
    is_anonymous,
    is_size,
    maximum,
    minimum,
    real,
    substitute,
    symbol,
    symbols,
    unranked,
)
from graphopt.lowering.loops.sizes import Symbols
from graphopt.runtime.sizes import evaluate

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


def test_polynomials_that_divide_leave_no_floor() -> None:
    assert (96 * N * H + 96 * N) // (24 * N * H + 24 * N) == 4
    assert (N * N - 1) // (N + 1) == N - 1
    assert (2 * N + 2) // 2 == N + 1
    assert (2 * N) // 4 == N // 2
    assert (6 * N + 3) // 4 == N + (2 * N + 3) // 4
    assert str((N * N + 2) // (N + 1)) == "((n*n + 2) // (n + 1))"


def test_what_is_left_of_a_division_is_a_size() -> None:
    left = N - 8 * (N // 8)
    assert is_size(left)
    assert is_size(8 - left)
    assert not is_size(7 - left - 1)
    assert is_size(N - minimum(N, H))
    assert is_size(maximum(N - H, 0))
    assert is_size(7 * ((N + 6) // 7) - N)
    assert not is_size(7 * (N // 7) - N)


def number(value: float) -> Real:
    constant = Real.constant(float(np.float32(value)), "float32")
    assert constant is not None
    return constant


_NUMPYS = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum, "sub": np.subtract}
_NUMPYS |= {"div": np.divide, "floor": np.floor, "ceil": np.ceil, "round": np.rint, "neg": np.negative, "abs": np.abs}


@given(st.data(), st.integers(1, 5000), st.integers(1, 5000))
def test_floats_of_sizes_are_rounded_as_numpys(data: st.DataObject, n: int, h: int) -> None:
    """What is computed of symbols and then of numbers is what numpy computes of the numbers in float32."""
    sizes: dict[str, Size] = {"n": n, "h": h}

    def drawn(depth: int) -> tuple[Real, np.float32]:
        if not depth or data.draw(st.booleans()):
            if data.draw(st.booleans()):
                size = data.draw(st.sampled_from([N, H, N * H, N // 3 + 1]))
                return Real.of(size, "float32"), np.float32(substitute(size, sizes))
            value = data.draw(st.sampled_from([0.5, 0.7, 2.0, 1 / 3, 3.0]))
            return number(value), np.float32(value)
        function = data.draw(st.sampled_from(sorted(_NUMPYS)))
        parts = [drawn(depth - 1) for _ in range(_NUMPYS[function].nin)]
        result = _NUMPYS[function](*(p[1] for p in parts))
        assume(np.isfinite(result))
        return real(function, *(p[0] for p in parts)), result

    with np.errstate(all="ignore"):
        symbolic, expected = drawn(4)
    assume(abs(expected) < 2**60)
    whole = symbolic.truncated()
    assert substitute(whole, sizes) == int(expected)
    assert evaluate(Symbols().size(whole), {"n": n, "h": h}) == int(expected)


def test_what_is_no_less_than_zero_is_proved_in_a_bounded_number_of_steps() -> None:
    few, many = (n - sum(minimum(symbol(f"n{i}"), 1) for i in range(n)) for n in (3, 90))
    assert is_size(few)
    before = is_size.cache_info().misses
    is_size(many)  # each of the sum's 90 bounds can be tried, and after each of them 89 others
    assert is_size.cache_info().misses - before < 1_000
