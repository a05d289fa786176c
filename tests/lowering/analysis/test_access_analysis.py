import numpy as np

import graphopt
from graphopt.ir.text import parse
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


def test_indices_may_be_made_of_narrow_elements() -> None:
    """Of int32 elements, wrapped as Python's negative indices are, along two axes that lie as one."""
    text = """
    d: float32[5, 2, 3] x: int32[5, 2]
    r = Reshape(x, [5, 2, 1])
    i = Where(Less(r, int32[1]{0}), Add(r, int32[1]{5}), r)
    g = GatherND(Transpose(d, perm=[1, 0, 2]), Cast(Transpose(i, perm=[1, 0, 2]), to=7), batch_dims=1)
    y = Transpose(g, perm=[1, 0, 2])
    return y
    """
    program = graphopt.compile(parse(text))
    assert not program.report.unlowered
    d, x = np.arange(30, dtype=np.float32).reshape(5, 2, 3), np.array([[0, -1], [2, -5], [4, 1]] * 2, np.int32)[:5]
    wanted = np.take_along_axis(d, np.where(x < 0, x + 5, x)[..., None].astype(np.int64), 0)
    np.testing.assert_array_equal(program(d, x)["y"], wanted)
