import numpy as np

from graphopt.lowering.analysis.access_analysis import point_of, taken_apart
from graphopt.lowering.loops.expressions import Const, Expr, Var, substitute
from graphopt.lowering.loops.nest import Axis

N = Var("n")
SHAPE = (3, 1, 4, 2)


def value(expr: Expr, number: int) -> Expr:
    return substitute(expr, {N: Const(number)})


def test_a_number_becomes_its_place_in_row_major_order() -> None:
    places = point_of(N, [Const(n) for n in SHAPE])
    for number in range(int(np.prod(SHAPE))):
        assert [value(p, number) for p in places] == [Const(int(i)) for i in np.unravel_index(number, SHAPE)]


def test_axes_are_taken_apart_in_their_order() -> None:
    rows, columns = Axis(Var("r"), Const(3)), Axis(Var("c"), Const(5))
    found = taken_apart(N, (rows, columns))
    assert [value(found[a.var], 13) for a in (rows, columns)] == [Const(2), Const(3)]


def test_one_axis_is_the_number_itself() -> None:
    assert point_of(N, [Var("m")]) == [N]
    assert point_of(N, []) == []
