import pytest

from graphopt.lowering.loops.accumulation import accumulated, factors, is_accumulation
from graphopt.lowering.loops.expressions import Expr, Load, Var, apply
from graphopt.lowering.loops.nest import Buffer, Store

ROW = Var("i")
A, B, C = (Buffer(name, (ROW,)) for name in "ABC")
OWN, X, Y = C[ROW], A[ROW], B[ROW]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (OWN + X * Y, (X, Y)),
        (X * Y + OWN, (X, Y)),
        (OWN + X, None),
        (X + X * Y, None),
        (apply("max", OWN, X * Y), None),
        (OWN - X * Y, None),
    ],
    ids=["sum", "other_way", "no_product", "of_another", "maximum", "difference"],
)
def test_the_factors_are_those_of_a_product_that_is_added(value: Expr, expected: tuple[Load, Load] | None) -> None:
    assert factors(OWN, value) == expected


@pytest.mark.parametrize("fn", ["add", "mul", "min", "max"])
def test_what_is_combined_is_found_on_either_side(fn: str) -> None:
    for value in (apply(fn, OWN, X), apply(fn, X, OWN)):
        assert accumulated(OWN, value) == (fn, X)
        assert is_accumulation(Store(C, (ROW,), value))


def test_a_store_that_does_not_combine_is_no_accumulation() -> None:
    assert not is_accumulation(Store(C, (ROW,), X + Y))
    assert not is_accumulation(Store(C, (ROW,), apply("div", OWN, X)))
