from math import inf

import pytest

from graphopt.ir.types import broadcast, fresh_number, symbol
from graphopt.rewrite.guards.comparison import Unknown, Unproven, all_hold, at_most, equal, least, less

n, m = symbol("n"), symbol("m")


def test_sizes_are_at_least_zero() -> None:
    assert least(3) == 3
    assert least(n) == 0
    assert least(n * m + 2) == 2
    assert least((n + 1) // 2) == 0
    assert least(broadcast(n, m)) == 0
    assert least(n - 1) == -1
    assert least(1 - n) == -inf
    assert least((n - 1) // 2) == -1
    assert least(fresh_number()) == -inf


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        (1, 1, True),
        (n, n, True),
        (n + 1, n, False),
        (n, n + m + 1, False),
        ((1, n), (1, n), True),
        ((2, n), (3, m), False),
        ((n,), (n, 1), False),
        ([1], (1,), True),
        ("a", "a", True),
        ("a", 1, False),
        (1, 1.0, True),
        (None, 0, False),
        (n, "n", False),
    ],
)
def test_equal(a: object, b: object, answer: bool) -> None:
    assert equal(a, b) is answer


def test_equal_is_open_where_it_depends() -> None:
    with pytest.raises(Unproven, match="n is not known to equal m"):
        equal(n, m)
    with pytest.raises(Unproven):
        equal((n, 3), (4, 3))


def test_order() -> None:
    assert at_most(n, n + 1)
    assert at_most(n, inf)
    assert not at_most(n + 1, n)
    assert less(n, n + m + 1)
    assert not less(n, n)
    assert not less(n, 0)
    with pytest.raises(Unproven, match="n is not known to be at most 4"):
        at_most(n, 4)
    with pytest.raises(Unproven, match="n is not known to be less than m"):
        less(n, m)
    with pytest.raises(Unproven):
        at_most(n, 4.0)


def test_one_known_failure_decides() -> None:
    assert not all_hold(equal, [(n, m), (1, 2)])
    assert all_hold(equal, [])
    with pytest.raises(Unknown):
        all_hold(equal, [(n, m), (1, 1)])
