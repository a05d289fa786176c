from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.ir.types import (
    Size,
    broadcast,
    fresh_number,
    is_anonymous,
    is_size,
    minimum,
    substitute,
    symbol,
    symbols,
)

N, M = symbol("N"), symbol("M")


def test_floors_have_one_form() -> None:
    assert (N - 1) // 2 + 1 == (N + 1) // 2
    assert (N // 2) // 2 == N // 4
    assert ((N + 1) // 2 + 1) // 2 == (N + 3) // 4
    assert (2 * N + 3) // 2 == N + 1
    assert (3 * N) // 2 == N + N // 2
    assert N * M // M == N
    assert (4 * N * M) // (2 * M) == 2 * N


def test_minimum() -> None:
    assert minimum(3, 5) == 3
    assert minimum(N, N + 2) == N
    assert minimum(N, 3, N + 1) == minimum(3, N)
    assert minimum(minimum(N, 3), M) == minimum(N, 3, M)
    assert minimum(N, 0) == 0


def test_what_gives_way_in_a_broadcast() -> None:
    assert broadcast(N, minimum(N, 512)) == N
    assert broadcast(N, minimum(N, 0, M)) != N
    assert broadcast(N, 5) == 5
    assert broadcast(N, 1, N) == N


def test_what_is_a_size() -> None:
    assert is_size(N + 2 * M)
    assert is_size(N // 2)
    assert is_size(N - minimum(N, 1))
    assert not is_size(N - 1)
    assert not is_size(fresh_number())
    assert not is_size(N - minimum(M, 1))


def test_symbols_are_found_everywhere() -> None:
    size = (N + 1) // 2 + broadcast(M, N) * minimum(symbol("K"), 3)
    assert symbols(size) == {"N", "M", "K"}
    assert not is_anonymous(size)
    assert is_anonymous(size + fresh_number())


@st.composite
def computations(draw: st.DrawFn, n: int, m: int, depth: int = 4) -> tuple[Size, int]:
    """A size built from N and M, and what it comes to for two numbers."""
    if depth == 0 or draw(st.booleans()):
        number = draw(st.integers(-3, 5))
        return draw(st.sampled_from([(N, n), (M, m), (number, number)]))
    (a, x), (b, y) = draw(computations(n, m, depth - 1)), draw(computations(n, m, depth - 1))
    match draw(st.integers(0, 5)):
        case 0:
            return a + b, x + y
        case 1:
            return a - b, x - y
        case 2:
            return a * b, x * y
        case 3:
            return minimum(a, b), min(x, y)
        case 4 if y != 0 and b != 0:
            return a // b, x // y
    divisor = draw(st.sampled_from([1, 2, 3, 4, -2, -1]))
    return a // divisor, x // divisor


@settings(deadline=None)
@given(st.integers(0, 7), st.integers(0, 7), st.data())
def test_normal_forms_keep_the_value(n: int, m: int, data: st.DataObject) -> None:
    size, value = data.draw(computations(n, m))
    with suppress(ZeroDivisionError):  # a divisor within a floor may be 0 for these numbers
        assert substitute(size, {"N": n, "M": m}) == value
    if is_size(size):
        assert value >= 0
