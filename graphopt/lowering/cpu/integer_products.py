"""Integer matrix multiply: byte products with zero points, recognized in nests and called as our own kernel."""

from __future__ import annotations

from collections.abc import Sequence

from graphopt.frozen import dataclass
from graphopt.kernels.product_form import BYTES, panel
from graphopt.lowering.analysis.access_analysis import is_finished, known_size
from graphopt.lowering.analysis.canonical_nest import Chain, chain_of
from graphopt.lowering.cpu.library_dispatch import MatrixOperand, Panels, axes_of, factors_of, matrix, second_operands
from graphopt.lowering.cpu.tiled_calls import OF_BYTES, wanted
from graphopt.lowering.loops.expressions import Apply, Expr, Load, const, variables
from graphopt.lowering.loops.nest import Axis, Nest, Seq

SUMS = "int32"
SMALLEST = 1 << 9
"""Multiplications below which a call costs more than it gains."""


@dataclass(frozen=True)
class IntegerProduct:
    """``C = (A - zero of A) @ (B - zero of B)`` for each point of the other axes: the axes of its rows, columns and
    steps. A zero point may depend on the row, or column."""

    m: Axis
    n: Axis
    k: Axis
    a: MatrixOperand
    b: MatrixOperand | Panels
    c: MatrixOperand
    zeros: tuple[Expr, Expr]

    @property
    def name(self) -> str:
        """The intrinsic that computes it."""
        way = "q" if isinstance(self.b, Panels) else "t" if self.b.is_transposed else "n"
        return f"integer_product_{way}_{self.a.load.dtype}_{self.b.load.dtype}"


def integer_product_of(chain: Chain) -> IntegerProduct | None:
    """The product of bytes that a reduction is; None where there is none that is worth a call."""
    operands = factors_of(chain, (SUMS,))
    if operands is None:
        return None
    accumulator, x, y, k = operands
    parts = [_counted(e) for e in (x, y)]
    for first, second in (parts, parts[::-1]):
        if first is None or second is None:
            return None
        (a, zero_a), (b, zero_b) = first, second
        for m in axes_of(chain, a, b):
            left = matrix(a, m, k)
            if left is None or left.is_transposed or {k.var} & variables(zero_a):
                continue
            for n, right in second_operands(chain, a, b, k):
                result = matrix(accumulator, m, n)
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
    return (factor.args[0], zero) if factor.args[0].dtype in BYTES else None


def integer_product_in(nest: Nest) -> IntegerProduct | None:
    """The first product of bytes of a nest, wherever it stands."""
    parts = nest.body.stmts if isinstance(nest.body, Seq) else (nest.body,)
    reductions = (c for c in map(chain_of, parts) if c is not None and c.reduced)
    return next((p for p in map(integer_product_of, reductions) if p is not None), None)


def called_integer_product(chains: Sequence[Chain], nest: Nest) -> IntegerProduct | None:
    """The product of bytes that the chains of a nest are, with what is done to its elements."""
    return integer_product_of(chains[0]) if is_finished(chains, nest) else None


# ------------------------------------------------------------------ pieces

OPEN = 128
"""Rows of a piece at most: of so many, the second operand is not read too often."""
NEAR = 1 << 15
"""Sums of a piece, which stay near until they are read again."""
PANELS = 4
"""Panels that a piece has at least, where pieces are made smaller so that there are more of them."""


def pieces(product: IntegerProduct) -> dict[Axis, int]:
    """The number of rows and columns of a product in a piece."""
    sizes = [known_size([a.extent]) for a in (product.m, product.n, product.k)]
    m, n, k = (OPEN if s is None else max(s, 1) for s in sizes)
    down = -(-m // OPEN)
    rows = -(-m // down)
    columns = columns_of(None if sizes[1] is None else n, rows, -(-wanted(m * n * k, OF_BYTES) // down), NEAR)
    return {product.m: rows, product.n: columns}


def columns_of(columns: int | None, rows: int, count: int, near: int) -> int:
    """The number of columns in a piece of some rows: whole panels, of no more sums than ``near``, in about ``count``
    pieces; as many as can be where the number of columns is not known."""
    width = panel(SUMS)
    most = max(near // rows // width, 1) * width
    if columns is None:
        return most
    across = max(-(-columns // most), min(count, -(-columns // (PANELS * width))))
    return -(-columns // across // width) * width
