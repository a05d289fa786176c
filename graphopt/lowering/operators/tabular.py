"""Ops that feature ops (ai.onnx.ml) are said in: leaves of trees, and probabilities of classes from those of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from graphopt.ir.tabular import CLOSE, LEAVES, SHARES, STEPS
from graphopt.lowering.loops.compute import Tensor, loop, procedure
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, apply, cast, const, maximum, select
from graphopt.lowering.loops.nest import Buffer, Check, If, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, label
from graphopt.lowering.operators.operation import LoweringTable, Operation

ZERO = (Const(0),)


def _leaves(op: Operation) -> Sequence[Tensor]:
    """A tree after another, which stays in the cache for all rows; a row goes down as far as the tree has branches."""
    table, roots, depths, features, splits, children = (op.input(k) for k in range(6))
    width = int(op.known(5).shape[1])
    at = Buffer("at", (Const(1),), "int32", "local")

    def build(out: Buffer) -> Stmt:
        def row(tree: Expr, n: Expr) -> Stmt:
            def step(_: Expr) -> Stmt:
                node = cast(at[0], INDEX)
                value = table[n, cast(features[node], INDEX)]
                answer = select(value <= splits[node], Const(0), Const(1))
                if width == 3:
                    answer = select(apply("isnan", value), Const(2), answer)
                return Store(at, ZERO, children[node, answer])

            down = loop(cast(depths[tree], INDEX), step)
            return seq(Store(at, ZERO, roots[tree]), down, Store(out, (tree, n), at[0]))

        wanted = int(op.known(3).max(initial=0)) + 1
        fits = Check(table.shape[1] >= wanted, f"{op.op}: a tree asks for feature {wanted - 1}")
        return seq(fits, loop(roots.shape[0], lambda tree: loop(table.shape[0], lambda n: row(tree, n))))

    inputs = (table, roots, depths, features, splits, children)
    return procedure([(label(op), op.shape(), op.dtype())], inputs, build, (at,))


def _shares(op: Operation) -> Sequence[Tensor]:
    """One row after another, each until it is close enough (Wu, Lin and Weng 2004)."""
    given, count, dtype = op.input(0), integer(op, "classes"), op.dtype()
    classes = range(count)
    q, qp = Buffer("q", (Const(count), Const(count)), dtype), Buffer("qp", (Const(count),), dtype)
    whole, off, by = (Buffer(name, (Const(1),), dtype, "local") for name in ("whole", "off", "by"))
    zero, one = const(0, dtype), const(1, dtype)
    first = [sum(count - 1 - k for k in range(i)) for i in classes]

    def build(out: Buffer) -> Stmt:
        def row(n: Expr) -> Stmt:
            def pair(i: int, j: int) -> Expr:
                return given[n, first[i] + j - i - 1] if i < j else one - given[n, first[j] + i - j - 1]

            def add(i: Expr, j: Expr) -> Stmt:
                return Store(qp, (i,), qp[i] + q[i, j] * out[n, j])

            def multiplied(i: Expr) -> Stmt:
                total = Store(whole, ZERO, whole[0] + out[n, i] * qp[i])
                return seq(Store(qp, (i,), zero), loop(count, lambda j: add(i, j)), total)

            def improved(i: Expr) -> Stmt:
                def other(j: Expr) -> Stmt:
                    new = Store(qp, (j,), (qp[j] + by[0] * q[i, j]) / (by[0] + one))
                    return seq(new, Store(out, (n, j), out[n, j] / (by[0] + one)))

                more = by[0] * (by[0] * q[i, i] + qp[i] * 2.0)
                return seq(
                    Store(by, ZERO, (whole[0] - qp[i]) / q[i, i]),
                    Store(out, (n, i), out[n, i] + by[0]),
                    Store(whole, ZERO, (whole[0] + more) / (by[0] + one) / (by[0] + one)),
                    loop(count, other),
                )

            def worst(i: Expr) -> Stmt:
                return Store(off, ZERO, maximum(off[0], apply("abs", qp[i] - whole[0])))

            def step(_: Expr) -> Stmt:
                measured = seq(
                    Store(whole, ZERO, zero), loop(count, multiplied), Store(off, ZERO, zero), loop(count, worst)
                )
                again = If(off[0] >= CLOSE / count, loop(count, improved))
                return If(off[0] >= CLOSE / count, seq(measured, again))

            parts = [
                Store(q, (Const(i), Const(j)), -pair(i, j) * pair(j, i) if i != j else _squares(pair, i, classes))
                for i in classes
                for j in classes
            ]
            start = loop(count, lambda i: Store(out, (n, i), const(1 / count, dtype)))
            return seq(*parts, start, Store(off, ZERO, one), loop(STEPS, step))

        return loop(given.shape[0], row)

    return procedure([(label(op), op.shape(), dtype)], (given,), build, (q, qp, whole, off, by))


def _squares(pair: Callable[[int, int], Expr], i: int, classes: range) -> Expr:
    """The sum of the squares of what the other classes of a class's pairs have."""
    return reduce(lambda a, b: a + b, (pair(j, i) * pair(j, i) for j in classes if j != i))


TABLE: LoweringTable = {LEAVES: _leaves, SHARES: _shares}
