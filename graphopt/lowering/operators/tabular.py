"""Ops that feature ops (ai.onnx.ml) are said in: leaves of trees, and probabilities of classes from those of pairs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce

from graphopt.ir.tabular import CLOSE, LEAVES, SHARES, STEPS
from graphopt.lowering.loops.compute import Tensor, loop, procedure
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, apply, cast, const, maximum
from graphopt.lowering.loops.nest import Buffer, Check, If, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, label
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation

ZERO = (Const(0),)


LANES = 8
"""Ways down trees that are gone at once, since each step of one waits for the step before."""
FEW = 4
"""Fewer trees are gone down one after another, by several rows at once."""
STEPS_AT_ONCE = 4
"""Branches that are passed before it is asked whether all ways have come to leaves."""


def _leaves(op: Operation) -> Sequence[Tensor]:
    """Each row goes down several trees at once, or several rows one tree; a way that is at its leaf stays there."""
    inputs = table, roots, features, splits, children, limits = tuple(op.input(k) for k in range(6))
    many, count, width = table.shape[0], _whole(op, roots.shape[0]), _whole(op, children.shape[1])
    first, depth, wanted = (cast(limits[k], INDEX) for k in range(3))
    at = Buffer("at", (Const(LANES),), "int32", "local")

    def down(out: Buffer, lanes: int, place: Callable[[int], tuple[Expr, Expr]]) -> Stmt:
        def step(k: int) -> Stmt:
            node, (_, row) = cast(at[k], INDEX), place(k)
            value = table[row, cast(features[node], INDEX)]
            answer = cast(value <= splits[node], INDEX)  # a number, which no processor has to guess
            if width == 3:
                answer = answer + cast(apply("isnan", value), INDEX) * 2
            return Store(at, (Const(k),), children[node, answer])

        level = seq(*(step(k) for k in range(lanes)))
        is_inner = reduce(lambda a, b: a | b, (cast(at[k], INDEX) >= first for k in range(lanes)))
        steps = loop(
            (depth + (STEPS_AT_ONCE - 1)) // STEPS_AT_ONCE, lambda _: If(is_inner, loop(STEPS_AT_ONCE, lambda _: level))
        )
        starts = (Store(at, (Const(k),), roots[place(k)[0]]) for k in range(lanes))
        ends = (Store(out, place(k), at[k]) for k in range(lanes))
        return seq(*starts, steps, *ends)

    def build(out: Buffer) -> Stmt:
        fits = Check(table.shape[1] >= wanted, f"{op.op}: a tree asks for features that rows do not have")
        if count < FEW:

            def tree(t: Expr) -> Stmt:
                whole = many // LANES
                together = loop(whole, lambda n: down(out, LANES, lambda k: (t, n * LANES + k)))
                rest = loop(many % LANES, lambda n: down(out, 1, lambda k: (t, whole * LANES + n)))
                return seq(together, rest)

            return seq(fits, loop(count, tree))
        lanes = -(-count // -(-count // LANES))
        whole, left = divmod(count, lanes)

        def trees(start: Expr, lanes: int) -> Stmt:
            return loop(many, lambda n: down(out, lanes, lambda k: (start + k, n)))

        rest = [trees(Const(whole * lanes), left)] if left else []
        return seq(fits, loop(whole, lambda t: trees(t * lanes, lanes)), *rest)

    return procedure([(label(op), op.shape(), op.dtype())], inputs, build, (at,))


def _whole(op: Operation, size: Expr) -> int:
    if not isinstance(size, Const):
        raise NotLowered(f"{op.op} of a size that is not known")
    return int(size.value)


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
