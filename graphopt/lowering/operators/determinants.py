"""Determinants and inverses: Gaussian elimination with column pivoting (Golub and Van Loan, Matrix Computations)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.loops.compute import Tensor, fresh, loop, procedure
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, apply, cast, const, equal, select
from graphopt.lowering.loops.nest import Buffer, Check, For, If, Stmt, Store, seq
from graphopt.lowering.operators.elements import label, wide
from graphopt.lowering.operators.indexing import over
from graphopt.lowering.operators.indices import matching
from graphopt.lowering.operators.operation import LoweringTable, Operation

LINE = 64
"""Bytes from one place to the next at which vectors of rows begin, so that they are read as they were written."""


def determinant(op: Operation) -> Sequence[Tensor]:
    """The determinant of each matrix."""
    x, dtype = op.input(0), op.dtype()
    inner, n = wide(dtype), x.shape[-1]
    step = LINE // numpy_dtype(inner).itemsize
    is_short = isinstance(n, Const) and n.value <= step
    width = n if is_short else (n + (step - 1)) // step * step
    rows, kept = Buffer("rows", (n, width), inner), Buffer("kept", (width,), inner)
    search = Search(rows, inner)
    total, spare = (Buffer(name, (Const(1),), inner, "local") for name in ("product", "spare"))
    zero = (Const(0),)

    def column(k: Expr) -> Stmt:
        # of the columns before, which are not read any more, some are computed as well
        def row(first: Expr, put: Callable[[Expr], Stmt]) -> Stmt:
            start, var = Const(0) if is_short else first // step * step, fresh()
            return For(var, width - start, put(start + var), "vectorized")

        def exchanged() -> Stmt:
            i = search.pivot[0]
            return seq(
                row(k, lambda j: Store(kept, (j,), rows[k, j])),
                row(k, lambda j: Store(rows, (k, j), rows[i, j])),
                row(k, lambda j: Store(rows, (i, j), kept[j])),
                Store(total, zero, -total[0]),
            )

        def eliminated(u: Expr) -> Stmt:
            i = k + 1 + u
            factor = Store(spare, zero, rows[i, k] / rows[k, k])
            return seq(factor, row(k + 1, lambda j: Store(rows, (i, j), rows[i, j] - spare[0] * rows[k, j])))

        return seq(
            search.of_column(k, n),
            If(apply("ne", search.pivot[0], k), exchanged()),
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

    return procedure([(label(op), op.shape(), dtype)], (x,), build, (rows, kept, *search.buffers, total, spare))


class Search:
    """The search for the row with the largest element of a column, from its diagonal on."""

    def __init__(self, rows: Buffer, dtype: str) -> None:
        self.rows, self.pivot = rows, Buffer("pivot", (Const(1),), INDEX, "local")
        self.largest = Buffer("largest", (Const(1),), dtype, "local")

    @property
    def buffers(self) -> tuple[Buffer, Buffer]:
        """What it keeps: the row, and how large its element is."""
        return self.pivot, self.largest

    def of_column(self, k: Expr, n: Expr) -> Stmt:
        """The search of column ``k``, of ``n``."""
        zero = (Const(0),)

        def better(u: Expr) -> Stmt:
            i = k + 1 + u
            size = apply("abs", self.rows[i, k])
            larger = size > self.largest[0]
            return seq(
                Store(self.pivot, zero, select(larger, i, self.pivot[0])),
                Store(self.largest, zero, select(larger, size, self.largest[0])),
            )

        first = Store(self.pivot, zero, k), Store(self.largest, zero, apply("abs", self.rows[k, k]))
        return seq(*first, loop(n - 1 - k, better))


def inverse(op: Operation) -> Sequence[Tensor]:
    """The inverse of each matrix: what makes it the identity makes that of the identity."""
    x, dtype = op.input(0), op.dtype()
    inner, n = wide(dtype), x.shape[-1]
    rows = Buffer("rows", (n, n * 2), inner)
    search, spare = Search(rows, inner), Buffer("spare", (Const(1),), inner, "local")
    pivot = search.pivot
    zero = (Const(0),)

    def column(k: Expr) -> Stmt:
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
            search.of_column(k, n),
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

    return procedure([(label(op), op.shape(), dtype)], (x,), build, (rows, *search.buffers, spare))


TABLE: LoweringTable = {"Det": determinant, "com.microsoft::Inverse": inverse}
