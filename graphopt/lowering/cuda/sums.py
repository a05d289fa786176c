"""Sum of products: the reduction and its epilogue that library functions are matched against."""

from __future__ import annotations

from typing import Final

from graphopt.frozen import dataclass
from graphopt.ir.dtypes import HALVES
from graphopt.lowering.loops.accumulation import factors
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load
from graphopt.lowering.loops.loop_nests import peeled
from graphopt.lowering.loops.nest import For, Note, Seq, Stmt, Store
from graphopt.lowering.operators.activations import gelu

APPROXIMATE: Final[tuple[str, Note]] = ("approximate", 1)
"""The note of loops that a function may be used for which computes something near: see ``Card.is_approximate``."""
DTYPES: Final = HALVES.keys() | {"float32", "float64"}


@dataclass(frozen=True, slots=True)
class Sums:
    """Loops around the sum of the products of two elements, what is stored of each sum, and where. The factors are as
    they were before they were converted to the type of sums."""

    loops: tuple[For, ...]
    steps: tuple[For, ...]
    sum: Load
    factors: tuple[Expr, Expr]
    stored: Store

    @property
    def dtype(self) -> str:
        """The type of both factors."""
        return self.factors[0].dtype


@dataclass(frozen=True, slots=True)
class SumEpilogue:
    """The epilogue of a sum: the terms added to it, and then ``""``, ``relu`` or ``gelu_tanh``."""

    added: tuple[Load, ...]
    epilogue: str


def sums_of(stmt: Stmt) -> Sums | None:
    """The sums that a statement computes, each by itself; None where it does something else."""
    loops, body = peeled(stmt)
    if not isinstance(body, Seq) or len(body.stmts) != 3:
        return None
    start, around, end = body.stmts
    steps, step = peeled(around)
    if not (isinstance(start, Store) and isinstance(step, Store) and isinstance(end, Store)):
        return None
    accumulator = Load(step.buffer, step.indices)
    operands = factors(accumulator, step.value)
    is_own = step.buffer.scope == "local" and not step.indices and start.buffer == step.buffer
    if operands is None or not is_own or start.value != Const(0.0, accumulator.dtype):
        return None
    x, y = map(_factor, operands)
    if x.dtype != y.dtype or x.dtype not in DTYPES:
        return None
    if accumulator.dtype != ("float64" if x.dtype == "float64" else "float32"):
        return None
    return Sums(loops, steps, accumulator, (x, y), end)


def is_approximate(stmt: Stmt) -> bool:
    """Whether a function may be used that computes something near to what a statement says."""
    return isinstance(stmt, For) and APPROXIMATE in stmt.notes


def _factor(expr: Expr) -> Expr:
    """A factor before it was converted to the type that sums are of, which loses nothing."""
    while isinstance(expr, Apply) and expr.fn == "cast" and _is_wider(expr.dtype, expr.args[0].dtype):
        expr = expr.args[0]
    return expr


def _is_wider(dtype: str, than: str) -> bool:
    """Whether floats of one type have all values of another."""
    return dtype == than or (dtype == "float32" and than in HALVES) or (dtype == "float64" and than in DTYPES)


def finish_of(sums: Sums, is_approximate: bool) -> SumEpilogue | None:
    """The epilogue of each sum, where the result has the factors' type; None where libraries have no such epilogue.

    They round the result once, where the nest may round it to that type several times. ``is_approximate``: gelu may be
    the one by tanh.
    """
    accumulator, dtype = sums.sum, sums.dtype

    def rounded(expr: Expr) -> Expr:
        while (
            isinstance(expr, Apply)
            and expr.fn == "cast"
            and {expr.dtype, expr.args[0].dtype} <= {dtype, accumulator.dtype}
        ):
            expr = expr.args[0]
        return expr

    def addends(expr: Expr) -> list[Expr]:
        expr = rounded(expr)
        if isinstance(expr, Apply) and expr.fn == "add":
            return [a for side in expr.args for a in addends(side)]
        return [expr]

    if sums.stored.buffer.dtype != dtype:
        return None
    value, epilogue = rounded(sums.stored.value), ""
    inside = _activated(value, is_approximate)
    if inside is not None:
        value, epilogue = inside
    parts = addends(value)
    if parts.count(accumulator) != 1:
        return None
    added = tuple(p for p in parts if isinstance(p, Load) and p != accumulator and p.dtype == dtype)
    return SumEpilogue(added, epilogue) if len(added) == len(parts) - 1 else None


def _activated(value: Expr, is_approximate: bool) -> tuple[Expr, str] | None:
    """The operand of an activation, and its name; None where libraries have no such activation."""
    if not isinstance(value, Apply) or value.fn not in ("max", "mul"):
        return None
    first = value.args[0]
    if value.fn == "max":
        return (first, "relu") if isinstance(value.args[1], Const) and value.args[1].value == 0 else None
    if gelu(first, True) == value:
        return first, "gelu_tanh"
    if is_approximate and isinstance(first, Apply) and gelu(first.args[0]) == value:
        return first.args[0], "gelu_tanh"
    return None
