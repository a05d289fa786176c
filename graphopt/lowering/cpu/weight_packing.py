"""Weight packing: constant operands of products in the layout that the kernel reads."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from graphopt.ir.constants import Array
from graphopt.kernels.product_form import in_panels
from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.batch_flattening import with_rows_stacked
from graphopt.lowering.cpu.integer_products import integer_product_in
from graphopt.lowering.cpu.library_dispatch import THIN, MatrixOperand, called_product, panels_of, place_of
from graphopt.lowering.loops.expressions import Expr, Load
from graphopt.lowering.loops.nest import Block, Buffer, Nest, Stmt, described, map_expressions, mutate

SMALLEST = 1 << 12
"""Elements of an operand below which a tile of registers does as well with them as they are."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A nest that reads an operand in panels: which of its buffers that is, and whether columns became rows for it."""

    nest: Nest
    plain: Buffer
    is_transposed: bool

    def array(self, plain: Array) -> Array:
        """The operand as the nest reads it."""
        return in_panels(plain.T if self.is_transposed else plain)


def laid_out(nest: Nest, constants: Collection[Buffer]) -> Laid | None:
    """The nest with the second operand of its product in panels, where it is one of the constants and that pays; then
    matrices that are all multiplied by it are one."""
    nest_chains = chains(nest)
    integers = integer_product_in(nest)
    product = integers or (None if nest_chains is None else called_product(nest_chains, nest, large=False))
    if product is None or not isinstance(product.b, MatrixOperand):
        return None
    plain, is_transposed = product.b.load.buffer, product.b.is_transposed
    sizes = [known_size([product.k.extent]), known_size([product.n.extent])]
    if plain not in constants or len(plain.shape) != 2 or None in sizes:
        return None
    k, n = (size or 0 for size in sizes)
    if integers is None and (min(k, n) < THIN or k * n < SMALLEST):
        return None
    nest = with_rows_stacked(nest)
    laid = replace(plain, shape=panels_of(k, n, plain.dtype))

    def load(e: Expr) -> Expr | None:
        if not isinstance(e, Load) or e.buffer != plain:
            return None
        row, column = e.indices[::-1] if is_transposed else e.indices
        return Load(laid, place_of(laid, row, column))

    def block(s: Stmt) -> Stmt | None:
        return described(s) if isinstance(s, Block) else None

    params = tuple(laid if p == plain else p for p in nest.params)
    return Laid(
        replace(nest, params=params, body=mutate(map_expressions(nest.body, load), block)), plain, is_transposed
    )
