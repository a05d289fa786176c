"""Which blocks are of the same rows, whatever the order of their axes."""

from __future__ import annotations

from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.cuda.rows import RowBlocks, rows_of
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Const, Expr
from graphopt.lowering.loops.nest import Nest
from tests.lowering.cuda.row_nests import channel_softmax, layer_norm, of_groups


def _found(nest: Nest) -> tuple[Chain, ...]:
    found = chains(nest)
    assert found is not None
    return found


def _sizes(rows: RowBlocks | None) -> tuple[list[Expr], list[Expr]]:
    assert rows is not None
    return list(rows.extents), list(rows.length)


def _numbers(*sizes: int) -> list[Expr]:
    return [Const(n) for n in sizes]


def test_rows_may_lie_across_memory() -> None:
    assert _sizes(rows_of(_found(channel_softmax()))) == (_numbers(2, 37), _numbers(21))


def test_axes_of_one_element_are_no_matter() -> None:
    assert _sizes(rows_of(_found(layer_norm()))) == (_numbers(2, 5), _numbers(96))


def test_groups_are_rows() -> None:
    assert _sizes(rows_of(_found(of_groups()))) == (_numbers(2, 2), _numbers(3, 20))


def test_a_reduction_alone_has_a_row_for_each_result() -> None:
    x, k = t.placeholder((4, 5, 6)), t.reduce_axis(5)
    total = t.compute((4, 6), lambda i, j: t.sum(x[i, k.var, j], k), name="y")
    assert _sizes(rows_of(_found(t.nest("total", [x], [total])))) == (_numbers(4, 6), _numbers(5))


def test_what_reads_another_element_of_its_row_is_not_of_it() -> None:
    x, k = t.placeholder((4, 6)), t.reduce_axis(6)
    e = t.compute((4, 6), lambda i, j: x[i, j] * 2.0, name="e")
    y = t.compute((4,), lambda i: t.sum(e[i, 5 - k.var], k), name="y")
    assert rows_of(_found(t.nest("backwards", [x], [y]))) is None


def test_what_reads_another_row_is_not_of_it() -> None:
    x, k = t.placeholder((4, 6)), t.reduce_axis(6)
    y = t.compute((4,), lambda i: t.sum(x[i, k.var], k), name="y")
    z = t.compute((4, 6), lambda i, j: x[i, j] - y[3 - i], name="z")
    assert rows_of(_found(t.nest("other_rows", [x], [z]))) is None


def test_elements_alone_are_no_rows() -> None:
    x = t.placeholder((4, 6))
    assert rows_of(_found(t.nest("twice", [x], [t.compute((4, 6), lambda *at: x[at] * 2.0, name="y")]))) is None
