"""Indices in other shapes: the same place in row-major order, with as few divisions as it takes."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var, as_expr, walk
from graphopt.lowering.loops.interpret import value
from graphopt.lowering.operators.indices import digits, equally_many, linear, relocated, same_size

n, m, i, j, k, p = map(Var, "nmijkp")


def exprs(*sizes: Expr | int) -> list[Expr]:
    return [as_expr(s) for s in sizes]


def divisions(found: tuple[Expr, ...]) -> int:
    """How many divisions a tuple of expressions carries out."""
    return sum(isinstance(e, Apply) and e.fn in ("floordiv", "mod") for f in found for e in walk(f))


def shapes_of(total: int, cuts: list[int]) -> list[int]:
    """A shape of so many elements: a divisor chain taken from the cuts."""
    found, rest = [], total
    for cut in cuts:
        size = next((d for d in range(min(cut, rest), 0, -1) if rest % d == 0), 1)
        found.append(size)
        rest //= size
    return [*found, rest]


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from([1, 6, 8, 12, 30, 36, 64, 72]),
    st.lists(st.integers(1, 9), max_size=4),
    st.lists(st.integers(1, 9), max_size=4),
)
def test_the_place_in_row_major_order_stays(total: int, ours: list[int], theirs: list[int]) -> None:
    source, target = shapes_of(total, ours), shapes_of(total, theirs)
    axes = [Var(f"a{k}") for k in range(len(target))]
    found = relocated(exprs(*source), exprs(*target), axes)
    for place, at in enumerate(np.ndindex(*target)):
        known = {a.name: index for a, index in zip(axes, at, strict=True)}
        assert tuple(value(e, known) for e in found) == np.unravel_index(place, source)


@pytest.mark.parametrize(
    ("source", "target", "at", "most"),
    [
        ((2, 3, 4), (2, 12), (i, j), 2),
        ((2, 12), (2, 3, 4), (i, j, k), 0),
        ((2, 3, 4), (6, 4), (i, j), 2),
        ((4, 6), (2, 12), (i, j), 2),
        ((2, 3, 4, 5), (2, 12, 5), (i, j, k), 2),
        ((1, 7, 1, 5), (7, 5), (i, j), 0),
        ((n, 3, 4), (n, 12), (i, j), 2),
        ((n, m, 64), (n * m, 64), (i, j), 2),
        ((n * m, 64), (n, m, 64), (i, j, k), 0),
        ((n, m + 1, 8), (n * m + n, 8), (i, j), 2),
        ((n, m, 8, 16), (n, m, 128), (i, j, k), 2),
        ((n, 12, m, 64), (n * 12, m, 64), (i, j, k), 2),
    ],
)
def test_axes_that_match_stay_apart(
    source: tuple[Expr, ...], target: tuple[Expr, ...], at: tuple[Expr, ...], most: int
) -> None:
    assert divisions(relocated(exprs(*source), exprs(*target), at)) <= most


def test_sizes_of_names_are_split_like_numbers() -> None:
    found = relocated(exprs(n * 4, m), exprs(4, n * m), (i, j))
    for at in np.ndindex(4, 6):
        place = int(np.ravel_multi_index(at, (4, 6)))
        known = {"n": 2, "m": 3, "i": at[0], "j": at[1]}
        assert tuple(value(e, known) for e in found) == np.unravel_index(place, (8, 3))


def test_sizes_that_are_not_known_to_fit_are_looked_up_by_their_place() -> None:
    found = relocated(exprs(n, 3), exprs(p, m), (i, j))
    known = {"n": 4, "p": 6, "m": 2, "i": 5, "j": 1}
    assert tuple(value(e, known) for e in found) == (3, 2)
    assert equally_many(exprs(n, 3), exprs(p, m), "no fit")
    assert not equally_many(exprs(n, 3, m), exprs(n * m, 3), "no fit")


def test_shapes_without_elements() -> None:
    assert relocated(exprs(0, 3), exprs(3, 0, 2), (i, j, k)) == (Const(0), Const(0))
    assert relocated(exprs(), exprs(1, 1), (i, j)) == ()
    assert relocated(exprs(1, 1), exprs(), ()) == (Const(0), Const(0))
    assert same_size(exprs(0, n), exprs(m, 0))


@pytest.mark.parametrize("shape", [(5,), (2, 3), (4, 1, 3), (2, 2, 2, 2)])
def test_digits_take_apart_what_linear_puts_together(shape: tuple[int, ...]) -> None:
    for place in range(prod(shape)):
        at = [value(e, {"i": place}) for e in digits(i, exprs(*shape))]
        assert value(linear([Const(a) for a in at], exprs(*shape)), {}) == place
