"""Matrix multiply matching: products in nests, recognized by their addresses, as calls of a device's library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from graphopt.frozen import dataclass
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.sums import Sums, finish_of, is_approximate, sums_of
from graphopt.lowering.emit.kernel_source import LibraryCall
from graphopt.lowering.index.arithmetic import address_of, polynomial
from graphopt.lowering.index.polynomials import Polynomial, number
from graphopt.lowering.loops.expressions import Const, Expr, Load
from graphopt.lowering.loops.nest import Buffer, For, Stmt

ONE: Final = number(1)
NONE: Final = number(0)


@dataclass(frozen=True, slots=True)
class StridedMatrix:
    """A matrix: the element of its buffer with which it begins, and the distances between rows, and between the
    matrices of several products."""

    buffer: Buffer
    offset: Expr
    rows: Expr
    step: Expr
    is_transposed: bool = False


@dataclass(frozen=True, slots=True)
class Multiplication:
    """``c = epilogue(a @ b + bias)`` for each of ``batch`` products; ``a`` is of ``m`` by ``k``, ``b`` of ``k`` by
    ``n``."""

    a: StridedMatrix
    b: StridedMatrix
    c: StridedMatrix
    bias: StridedMatrix | None
    epilogue: str
    m: Expr
    n: Expr
    k: Expr
    batch: Expr

    @property
    def dtype(self) -> str:
        """The type of the operands."""
        return self.a.buffer.dtype

    @property
    def multiplied(self) -> tuple[Expr, ...]:
        """The product of these is how many multiplications it is."""
        return self.batch, self.m, self.n, self.k

    @property
    def moved(self) -> tuple[tuple[Expr, ...], ...]:
        """The same for the elements of each operand, the result last."""
        sides = (self.a, self.m, self.k), (self.b, self.k, self.n), (self.c, self.m, self.n)
        return tuple((m, n) if o.step == Const(0) else (self.batch, m, n) for o, m, n in sides)

    def is_for(self, card: Card) -> bool:
        """Whether the library computes it: what is done to it not in double precision, and not where steps may be
        none."""
        if self.bias is None and not self.epilogue:
            return True
        return card.has_epilogues and self.dtype != "float64" and isinstance(self.k, Const) and self.k.value != 0

    def call(self, is_approximate: bool) -> LibraryCall:
        """The call that computes it."""
        operands = (self.a, self.b, self.c)
        places = [*operands, *([] if self.bias is None else [self.bias])]
        sizes = (self.m, self.n, self.k, *(o.rows for o in operands), self.batch, *(o.step for o in operands))
        attributes: dict[str, bool | str] = {
            "dtype": self.dtype,
            "transpose_a": self.a.is_transposed,
            "transpose_b": self.b.is_transposed,
            "has_bias": self.bias is not None,
            "epilogue": self.epilogue,
            "tf32": self.dtype == "float32" and is_approximate,
        }
        settings = tuple((name, value) for name, value in attributes.items() if value)
        return LibraryCall("gemm", tuple((o.buffer, o.offset) for o in places), sizes, settings)


@dataclass(frozen=True, slots=True)
class _Group:
    """Loops that are one loop to every address: how often it runs, and how far each operand moves in a step."""

    extent: Expr
    strides: tuple[Polynomial, ...]


def multiplication_of(stmt: Stmt) -> Multiplication | None:
    """The product that a statement is, where the library's function computes it; None where it does not."""
    sums = sums_of(stmt)
    finish = None if sums is None else finish_of(sums, is_approximate(stmt))
    if sums is None or finish is None or len(finish.added) > 1:
        return None
    result = Load(sums.stored.buffer, sums.stored.indices)
    for x, y in (sums.factors, sums.factors[::-1]):
        if not (isinstance(x, Load) and isinstance(y, Load)):
            return None
        multiplication = _oriented(sums, result, x, y, next(iter(finish.added), None))
        if multiplication is not None:
            return replace(multiplication, epilogue=finish.epilogue)
    return None


def _oriented(sums: Sums, result: Load, x: Load, y: Load, bias: Load | None) -> Multiplication | None:
    """The product with ``x`` as its first operand, where the result is row-major that way."""
    loads = [result, x, y, *([] if bias is None else [bias])]
    bounds = {s.var: int(s.extent.value) for s in (*sums.loops, *sums.steps) if isinstance(s.extent, Const)}
    addresses = [address_of(load, bounds) for load in loads]
    spatial, steps = (_groups(loops, addresses) for loops in (sums.loops, sums.steps))
    if spatial is None or steps is None or len(steps) > 1:
        return None
    kinds: dict[str, _Group] = {}
    for group in reversed(spatial):  # of several that only one operand has, the outer ones are of matrices
        _, in_x, in_y = (bool(s.terms) for s in group.strides[:3])
        kind = "batch" if in_x == in_y else "m" if in_x else "n"
        kind = "batch" if kind in kinds else kind
        if kind in kinds:
            return None
        kinds[kind] = group
    still = _Group(Const(1), (NONE,) * len(loads))
    m, n, batch, k = *(kinds.get(kind, still) for kind in ("m", "n", "batch")), (steps or [still])[0]
    if n is still or n.strides[0] != ONE or (bias is not None and not _is_row(m, n, batch)):
        return None
    if not (m is still or _is_distance(m.strides[0], n.extent)):
        return None
    a, b = _matrix(x, m.strides[1], k.strides[1], k, m), _matrix(y, k.strides[2], n.strides[2], n, k)
    if a is None or b is None:
        return None
    offsets = [_rest(address, (*sums.loops, *sums.steps)) for address in addresses]
    c = StridedMatrix(result.buffer, Const(0), (n.extent if m is still else m.strides[0].expr()), Const(0))
    made_of = [
        replace(side, offset=offset.expr(), step=batch.strides[at].expr())
        for at, (side, offset) in enumerate(zip((c, a, b), offsets, strict=False))
    ]
    added = None if bias is None else StridedMatrix(bias.buffer, offsets[3].expr(), Const(0), Const(0))
    c, a, b = made_of
    return Multiplication(a, b, c, added, "", m.extent, n.extent, k.extent, batch.extent)


def _is_row(m: _Group, n: _Group, batch: _Group) -> bool:
    """Whether a bias is one number for each column."""
    return n.strides[3] == ONE and not m.strides[3].terms and not batch.strides[3].terms


def _matrix(load: Load, outer: Polynomial, inner: Polynomial, columns: _Group, rows: _Group) -> StridedMatrix | None:
    """An operand whose rows lie ``outer`` apart and whose columns ``inner``; None where neither are neighbours."""
    if any(not stride.terms and group.extent != Const(1) for stride, group in ((outer, rows), (inner, columns))):
        return None  # the same element again and again
    for apart, near, along, is_transposed in ((outer, inner, columns, False), (inner, outer, rows, True)):
        if near == ONE or not near.terms:
            if not apart.terms:
                return StridedMatrix(load.buffer, Const(0), along.extent, Const(0), is_transposed)
            if _is_distance(apart, along.extent):
                return StridedMatrix(load.buffer, Const(0), apart.expr(), Const(0), is_transposed)
    return None


def _is_distance(apart: Polynomial, extent: Expr) -> bool:
    """Whether rows of so many elements lie so far apart that they do not overlap."""
    least = polynomial(extent)
    if apart.number is not None and least.number is not None:
        return apart.number >= least.number
    rest = [(product, times) for product, times in apart.terms.items() if product not in least.terms]
    return all(apart.terms.get(p, 0) >= t for p, t in least.terms.items()) and all(times > 0 for _, times in rest)


def _groups(loops: Sequence[For], addresses: Sequence[Polynomial]) -> list[_Group] | None:
    """The loops, those that are one to every address together; None where an address is no sum over them."""
    groups: list[_Group] = []
    for loop in loops:
        if loop.extent == Const(1):
            continue
        parts = [address.split(loop.var) for address in addresses]
        strides = tuple(part[0] for part in parts if part is not None)
        if len(strides) < len(parts):
            return None
        here, extent = _Group(loop.extent, strides), polynomial(loop.extent)
        if groups and all(o.terms == (i * extent).terms for o, i in zip(groups[-1].strides, strides, strict=True)):
            here = _Group(groups.pop().extent * loop.extent, strides)
        groups.append(here)
    return groups


def _rest(address: Polynomial, loops: Sequence[For]) -> Polynomial:
    """The offset of an operand: its address at the start of all loops."""
    for loop in loops:
        parts = address.split(loop.var)
        if parts is not None:
            address = parts[1]
    return address
