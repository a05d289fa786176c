"""Which loops of a procedure are independent."""

from __future__ import annotations

import pytest

from graphopt.lowering.cuda.independence import is_independent, own_buffers
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, select
from graphopt.lowering.loops.nest import Buffer, For, If, Stmt, Store, seq

ROW, COLUMN = Var("i"), Var("j")
X = Buffer("x", (Const(8), Const(8)))
Y = Buffer("y", (Const(8), Const(8)))
AT = Buffer("at", (Const(8),), "int64")
S = Buffer("s", (Const(2),), "float32", "local")
ONE = Const(1.0, "float32")


def _nested(body: Stmt) -> tuple[For, For]:
    inner = For(COLUMN, Const(8), body)
    return For(ROW, Const(8), inner), inner


@pytest.mark.parametrize(
    ("value", "place", "expected"),
    [
        (X[ROW, COLUMN], (ROW, COLUMN), (True, True)),
        (X[ROW, COLUMN], (COLUMN, ROW), (True, True)),
        (Y[ROW - 1, COLUMN], (ROW, COLUMN), (False, True)),
        (Y[ROW, 7 - COLUMN], (ROW, COLUMN), (True, False)),
        (X[ROW, COLUMN], (Const(0), COLUMN), (False, True)),
        (X[ROW, COLUMN], (Load(AT, (ROW,)), COLUMN), (False, True)),
        (Y[ROW, COLUMN] + Y[COLUMN, ROW], (ROW, COLUMN), (False, False)),
    ],
)
def test_iterations_that_keep_to_their_own_elements(
    value: Expr, place: tuple[Expr, ...], expected: tuple[bool, bool]
) -> None:
    outer, inner = _nested(Store(Y, place, value))
    assert (is_independent(outer, outer, ()), is_independent(inner, outer, ())) == expected


def _scratch(k: int) -> Store:
    return Store(S, (Const(k),), X[ROW, COLUMN])


def test_what_is_written_first_is_each_iterations_own() -> None:
    use = Store(Y, (ROW, COLUMN), S[0])
    assert own_buffers(seq(_scratch(0), use), [S]) == {S}
    assert own_buffers(seq(use, _scratch(0)), [S]) == set()
    assert own_buffers(seq(_scratch(1), use), [S]) == set()


def test_what_may_not_be_written_is_not() -> None:
    use, some = Store(Y, (ROW, COLUMN), S[0]), X[ROW, COLUMN] > ONE
    assert own_buffers(seq(If(some, _scratch(0)), use), [S]) == set()
    assert own_buffers(seq(If(some, _scratch(0), _scratch(0)), use), [S]) == {S}
    assert own_buffers(seq(For(COLUMN, Var("n"), _scratch(0)), use), [S]) == set()
    assert own_buffers(seq(For(COLUMN, Const(2), _scratch(0)), use), [S]) == {S}
    assert own_buffers(Store(S, (Const(0),), select(some, S[0], ONE)), [S]) == set()


def test_loops_over_own_buffers_are_independent() -> None:
    outer, _ = _nested(seq(_scratch(0), Store(Y, (ROW, COLUMN), S[0])))
    assert not is_independent(outer, outer, ())
    assert is_independent(outer, outer, {S})
