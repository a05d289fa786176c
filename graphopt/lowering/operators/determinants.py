"""Determinants and inverses: Gaussian elimination with column pivoting (Golub and Van Loan, Matrix Computations)."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.lowering.loops.compute import Tensor, fresh, loop, procedure
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, apply, cast, const, equal, select
from graphopt.lowering.loops.nest import Buffer, Check, For, If, Stmt, Store, seq
from graphopt.lowering.operators.elements import label, wide
from graphopt.lowering.operators.indexing import over
from graphopt.lowering.operators.indices import matching
from graphopt.lowering.operators.operation import LoweringTable, Operation


def determinant(op: Operation) -> Sequence[Tensor]:
    """The determinant of each matrix."""
    x, dtype = op.input(0), op.dtype()
    inner, n = wide(dtype), x.shape[-1]
    rows = Buffer("rows", (n, n), inner)
    pivot = Buffer("pivot", (Const(1),), INDEX, "local")
    total = Buffer("product", (Const(1),), inner, "local")
    spare = Buffer("spare", (Const(1),), inner, "local")
    zero = (Const(0),)

    def column(k: Expr) -> Stmt:
        def better(u: Expr) -> Stmt:
            i = k + 1 + u
            larger = apply("abs", rows[i, k]) > apply("abs", rows[pivot[0], k])
            return Store(pivot, zero, select(larger, i, pivot[0]))

        def exchanged(u: Expr) -> Stmt:
            j = k + u
            first, second = Store(spare, zero, rows[k, j]), Store(rows, (k, j), rows[pivot[0], j])
            return seq(first, second, Store(rows, (pivot[0], j), spare[0]))

        def eliminated(u: Expr) -> Stmt:
            i, var = k + 1 + u, fresh()
            j = k + 1 + var
            step = Store(rows, (i, j), rows[i, j] - spare[0] * rows[k, j])
            return seq(Store(spare, zero, rows[i, k] / rows[k, k]), For(var, n - 1 - k, step, "vectorized"))

        swap = seq(loop(n - k, exchanged), Store(total, zero, -total[0]))
        return seq(
            Store(pivot, zero, k),
            loop(n - 1 - k, better),
            If(apply("ne", pivot[0], k), swap),
            Store(total, zero, total[0] * rows[k, k]),
            If(equal(rows[k, k], 0), Store(spare, zero, const(0, inner)), loop(n - 1 - k, eliminated)),
        )

    def build(out: Buffer) -> Stmt:
        def matrix(at: tuple[Expr, ...]) -> Stmt:
            def copy(where: tuple[Expr, ...]) -> Stmt:
                return Store(rows, where, cast(x[(*at, *where)], inner))

            start = Store(total, zero, const(1, inner))
            return seq(over((n, n), copy), start, loop(n, column), Store(out, at, cast(total[0], dtype)))

        fits = [Check(r.condition, r.message) for r in matching(op, x.shape[-2:-1], x.shape[-1:])]
        return seq(*fits, over(x.shape[:-2], matrix))

    return procedure([(label(op), op.shape(), dtype)], (x,), build, (rows, pivot, total, spare))


def inverse(op: Operation) -> Sequence[Tensor]:
    """The inverse of each matrix: what makes it the identity makes that of the identity."""
    x, dtype = op.input(0), op.dtype()
    inner, n = wide(dtype), x.shape[-1]
    rows = Buffer("rows", (n, n * 2), inner)
    pivot, spare = Buffer("pivot", (Const(1),), INDEX, "local"), Buffer("spare", (Const(1),), inner, "local")
    zero = (Const(0),)

    def column(k: Expr) -> Stmt:
        def better(u: Expr) -> Stmt:
            i = k + 1 + u
            larger = apply("abs", rows[i, k]) > apply("abs", rows[pivot[0], k])
            return Store(pivot, zero, select(larger, i, pivot[0]))

        def exchanged(j: Expr) -> Stmt:
            first, second = Store(spare, zero, rows[k, j]), Store(rows, (k, j), rows[pivot[0], j])
            return seq(first, second, Store(rows, (pivot[0], j), spare[0]))

        def divided(j: Expr) -> Stmt:
            return Store(rows, (k, j), rows[k, j] / spare[0])

        def eliminated(i: Expr) -> Stmt:
            j = fresh()
            step = For(j, n * 2, Store(rows, (i, j), rows[i, j] - spare[0] * rows[k, j]), "vectorized")
            return If(apply("ne", i, k), seq(Store(spare, zero, rows[i, k]), step))

        return seq(
            Store(pivot, zero, k),
            loop(n - 1 - k, better),
            If(apply("ne", pivot[0], k), loop(n * 2, exchanged)),
            Store(spare, zero, rows[k, k]),
            loop(n * 2, divided),
            loop(n, eliminated),
        )

    def build(out: Buffer) -> Stmt:
        def matrix(at: tuple[Expr, ...]) -> Stmt:
            def beside(where: tuple[Expr, ...]) -> Stmt:
                i, j = where
                one = select(equal(i, j), const(1, inner), const(0, inner))
                return seq(Store(rows, where, cast(x[(*at, *where)], inner)), Store(rows, (i, j + n), one))

            def taken(where: tuple[Expr, ...]) -> Stmt:
                i, j = where
                return Store(out, (*at, *where), cast(rows[i, j + n], dtype))

            return seq(over((n, n), beside), loop(n, column), over((n, n), taken))

        fits = [Check(r.condition, r.message) for r in matching(op, x.shape[-2:-1], x.shape[-1:])]
        return seq(*fits, over(x.shape[:-2], matrix))

    return procedure([(label(op), op.shape(), dtype)], (x,), build, (rows, pivot, spare))


TABLE: LoweringTable = {"Det": determinant, "com.microsoft::Inverse": inverse}
