"""Products of matrices of bytes within nests, each operand counted from its zero points, as calls of our own kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from graphopt.kernels.integer_form import DTYPES, QUAD, groups, panel
from graphopt.lowering.analysis.access_analysis import is_finished, known_size
from graphopt.lowering.analysis.canonical_nest import Chain, chain_of
from graphopt.lowering.cpu.library_dispatch import Matrix, axes_of, factors_of, matrix
from graphopt.lowering.cpu.tiled_calls import OF_BYTES, wanted
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, const, variables
from graphopt.lowering.loops.nest import Axis, Nest, Range, Region, Seq

SUMS = "int32"
SMALLEST = 1 << 9
"""Multiplications below which a call costs more than it gains."""


@dataclass(frozen=True)
class Quads:
    """A second operand ``[ceil(n / w), ceil(k / 4) + 1, w, 4]``, neighbouring columns of which lie together, by four
    elements each; then what they add up to."""

    load: Load

    def region(self, rows: Range, columns: Range, rest: Mapping[Var, Expr]) -> Region:
        """Some columns of the matrix, of which the first starts a panel."""
        _, deep, width, quad = self.load.buffer.shape
        panels = Range(columns.start // width, (columns.extent + (width - 1)) // width)
        return Region(self.load.buffer, (panels, *(Range(Const(0), n) for n in (deep, width, quad))))


@dataclass(frozen=True)
class IntegerProduct:
    """``C = (A - zero of A) @ (B - zero of B)`` for each point of the other axes: the axes of its rows, columns and
    steps. A zero point may depend on the row, or column."""

    m: Axis
    n: Axis
    k: Axis
    a: Matrix
    b: Matrix | Quads
    c: Matrix
    zeros: tuple[Expr, Expr]

    @property
    def name(self) -> str:
        """The intrinsic that computes it."""
        way = "q" if isinstance(self.b, Quads) else "t" if self.b.is_transposed else "n"
        return f"integer_product_{way}_{self.a.load.dtype}_{self.b.load.dtype}"


def integer_product_of(chain: Chain) -> IntegerProduct | None:
    """The product of bytes that a reduction is; None where there is none that is worth a call."""
    found = factors_of(chain, (SUMS,))
    if found is None:
        return None
    own, x, y, k = found
    parts = [_counted(e) for e in (x, y)]
    for first, second in (parts, parts[::-1]):
        if first is None or second is None:
            return None
        (a, zero_a), (b, zero_b) = first, second
        for m in axes_of(chain, a, b):
            left = matrix(a, m, k)
            if left is None or left.is_transposed or {k.var} & variables(zero_a):
                continue
            plain: list[tuple[Axis, Matrix | Quads | None]] = [(n, matrix(b, k, n)) for n in axes_of(chain, b, a)]
            for n, right in plain or [(n, Quads(b)) for n in _in_quads(chain, b, k)]:
                result = matrix(own, m, n)
                if right is None or result is None or result.is_transposed or {k.var, m.var} & variables(zero_b):
                    continue
                if n.var in variables(zero_a) or (known_size([m.extent, n.extent, k.extent]) or SMALLEST) < SMALLEST:
                    continue
                return IntegerProduct(m, n, k, left, right, result, (zero_a, zero_b))
    return None


def _counted(factor: Expr) -> tuple[Load, Expr] | None:
    """A byte that is read, and the zero point that it is counted from."""
    zero: Expr = const(0, SUMS)
    if isinstance(factor, Apply) and factor.fn == "sub":
        factor, zero = factor.args
    if not (isinstance(factor, Apply) and factor.fn == "cast" and isinstance(factor.args[0], Load)):
        return None
    return (factor.args[0], zero) if factor.args[0].dtype in DTYPES else None


def _in_quads(chain: Chain, load: Load, k: Axis) -> list[Axis]:
    """The axis of the columns of an operand in quads."""
    if len(load.indices) != 4:
        return []
    return [n for n in chain.spatial if load.indices == in_quad(k.var, n.var)]


def integer_product_in(nest: Nest) -> IntegerProduct | None:
    """The first product of bytes of a nest, wherever it stands."""
    parts = nest.body.stmts if isinstance(nest.body, Seq) else (nest.body,)
    found = (c for c in map(chain_of, parts) if c is not None and c.reduced)
    return next((p for p in map(integer_product_of, found) if p is not None), None)


def called_integer_product(found: Sequence[Chain], nest: Nest) -> IntegerProduct | None:
    """The product of bytes that the chains of a nest are, with what is done to its elements."""
    return integer_product_of(found[0]) if is_finished(found, nest) else None


def quads_of(k: int, n: int) -> tuple[Expr, ...]:
    """The shape of a matrix of so many rows and columns in quads."""
    return tuple(map(Const, (-(-n // panel()), groups(k) + 1, panel(), QUAD)))


def in_quad(row: Expr, column: Expr) -> tuple[Expr, ...]:
    """Where an element of a matrix lies in quads."""
    return column // panel(), row // QUAD, column % panel(), row % QUAD


# ------------------------------------------------------------------ pieces

OPEN = 128
"""Rows of a piece at most: of so many, the second operand is not read too often."""
NEAR = 1 << 15
"""Sums of a piece, which stay near until they are read again."""
PANELS = 4
"""Panels that a piece has at least, where pieces are made smaller so that there are more of them."""


def pieces(product: IntegerProduct) -> dict[Axis, int]:
    """How many rows and columns of a product are computed at once."""
    sizes = [known_size([a.extent]) for a in (product.m, product.n, product.k)]
    m, n, k = (OPEN if s is None else max(s, 1) for s in sizes)
    down = -(-m // OPEN)
    rows = -(-m // down)
    columns = columns_of(None if sizes[1] is None else n, rows, -(-wanted(m * n * k, OF_BYTES) // down), NEAR)
    return {product.m: rows, product.n: columns}


def columns_of(columns: int | None, rows: int, count: int, near: int) -> int:
    """How many of the columns of some rows are computed at once: whole panels, of no more sums than ``near``, in about
    so many pieces as ``count``; as many as can be where it is not known how many there are."""
    width = panel()
    most = max(near // rows // width, 1) * width
    if columns is None:
        return most
    across = max(-(-columns // most), min(count, -(-columns // (PANELS * width))))
    return -(-columns // across // width) * width
