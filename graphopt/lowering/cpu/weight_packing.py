"""Weight packing: constant operands of products in the layout that the kernel reads.

Batch flattening goes with it: a batch of matrices times one packed matrix becomes one matrix of all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from graphopt.frozen import dataclass
from graphopt.ir.constants import Array
from graphopt.kernels.product_form import in_panels
from graphopt.lowering.analysis.access_analysis import collapsed, known_size, used_as_numbers
from graphopt.lowering.analysis.canonical_nest import Access, Chain, chains
from graphopt.lowering.cpu.integer_products import IntegerProduct, called_integer_product, integer_product_in
from graphopt.lowering.cpu.library_dispatch import (
    THIN,
    MatrixOperand,
    MatrixProduct,
    called_product,
    is_worth_a_call,
    panels_made,
    panels_of,
    place_of,
)
from graphopt.lowering.loops.expressions import Expr, Load, Var, variables
from graphopt.lowering.loops.loop_nests import loops_of, wrapped
from graphopt.lowering.loops.nest import Axis, Block, Buffer, Nest, Stmt, Store, described, map_expressions, mutate, seq

SMALLEST = 1 << 12
"""Elements of an operand below which a tile of registers does better with them as they are, for few rows."""


@dataclass(frozen=True, slots=True)
class Laid:
    """A nest that reads an operand in panels: which of its buffers that is, and whether columns became rows for it."""

    nest: Nest
    plain: Buffer
    is_transposed: bool

    def array(self, plain: Array) -> Array:
        """The operand as the nest reads it."""
        return in_panels(plain.T if self.is_transposed else plain)


def laid_out(nest: Nest, constants: Collection[Buffer], *, is_stacked: bool = True) -> Laid | None:
    """The nest with the second operand of its product in panels, where it is one of the constants and that pays; then,
    unless the other parameters are to stay as they are, matrices that are all multiplied by it are one."""
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
    if isinstance(product, MatrixProduct):
        is_small = k * n < SMALLEST and not is_worth_a_call(product)
        if is_small or min(k, n) < THIN:
            return None
    nest = with_rows_stacked(nest) if is_stacked else nest
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


def with_rows_stacked(nest: Nest) -> Nest:
    """The nest with the rows of a stack as those of one matrix, in a product by one matrix and what is done to its
    elements; as it is where they do not lie as one in memory. What makes panels for the product stays as it is."""
    every = chains(nest)
    if every is None:
        return nest
    is_fed = len(every) > 1 and panels_made(every[0], every[1], nest) is not None
    makers, nest_chains = every[:is_fed], every[is_fed:]
    product = called_product(nest_chains, nest, large=False) or called_integer_product(nest_chains, nest)
    if product is None:
        return nest
    for dim, pair in enumerate(pairwise(nest_chains[0].spatial)):
        parts = {b: at for c in nest_chains for b, at in _parts(c, dim)} if _is_stack(product, pair) else {}
        if parts and all(_are_one(c, dim, parts) for c in nest_chains):
            return with_rows_stacked(_stacked(nest, makers, nest_chains, dim, parts))
    return nest


def _is_stack(product: MatrixProduct | IntegerProduct, pair: tuple[Axis, Axis]) -> bool:
    """Whether neighbouring axes number the rows of the first operand, and nothing of the second."""
    at = {a.var for a in pair}
    read = [set().union(*map(variables, x.load.indices)) for x in (product.a, product.b)]
    return at <= read[0] and not at & read[1]


def _pair(chain: Chain, dim: int) -> tuple[Axis, Axis]:
    return chain.spatial[dim], chain.spatial[dim + 1]


def _parts(chain: Chain, dim: int) -> Iterator[tuple[Buffer, int]]:
    """The buffers that are read or written along a pair of axes, and at which of their own axes it begins."""
    for access in chain.accesses:
        at = _begin(access, *_pair(chain, dim))
        if at is not None:
            yield access.buffer, at


def _begin(access: Access, outer: Axis, inner: Axis) -> int | None:
    for at, (one, other) in enumerate(pairwise(access.indices)):
        if (one, other) == (outer.var, inner.var):
            return at
    return None


def _are_one(chain: Chain, dim: int, parts: Mapping[Buffer, int]) -> bool:
    """Whether a pair of axes is as one of a buffer's for whatever is read or written along it, and nothing else."""
    outer, inner = _pair(chain, dim)
    if collapsed(chain, [outer, inner]) != [[outer, inner]] or {outer.var, inner.var} & used_as_numbers(chain.block):
        return False
    for access in chain.accesses:
        at, sizes = _begin(access, outer, inner), access.buffer.shape
        if at != parts.get(access.buffer):
            return False
        if at is not None and (sizes[at + 1] != inner.extent or access.buffer.strides is not None):
            return False
        rest = [i for k, i in enumerate(access.indices) if at is None or k not in (at, at + 1)]
        if any({outer.var, inner.var} & variables(i) for i in rest):
            return False
    return True


def _stacked(
    nest: Nest, makers: Sequence[Chain], chains: Sequence[Chain], dim: int, parts: Mapping[Buffer, int]
) -> Nest:
    """The nest with the pair of axes, and those of the buffers, as one, behind what makes an operand."""
    buffers = {
        b: replace(b, shape=(*b.shape[:at], b.shape[at] * b.shape[at + 1], *b.shape[at + 2 :]))
        for b, at in parts.items()
    }
    body = [*(wrapped(c.loops, c.block) for c in makers), *(_with_one_axis(c, dim, parts, buffers) for c in chains)]
    params = tuple(buffers.get(p, p) if isinstance(p, Buffer) else p for p in nest.params)
    return replace(nest, params=params, body=seq(*body), allocs=tuple(buffers.get(b, b) for b in nest.allocs))


def _with_one_axis(chain: Chain, dim: int, parts: Mapping[Buffer, int], buffers: Mapping[Buffer, Buffer]) -> Stmt:
    outer, inner = _pair(chain, dim)
    one = Axis(Var(f"{outer.var.name}{inner.var.name}"), outer.extent * inner.extent, "spatial")

    def there(b: Buffer, indices: tuple[Expr, ...]) -> tuple[Buffer, tuple[Expr, ...]]:
        at = parts[b]
        return buffers[b], (*indices[:at], one.var, *indices[at + 2 :])

    def load(e: Expr) -> Expr | None:
        return Load(*there(e.buffer, e.indices)) if isinstance(e, Load) and e.buffer in buffers else None

    def store(s: Stmt) -> Stmt | None:
        return Store(*there(s.buffer, s.indices), s.value) if isinstance(s, Store) and s.buffer in buffers else None

    def part(s: Stmt) -> Stmt:
        return mutate(map_expressions(s, load), store)

    block = chain.block
    axes = tuple(one if a == outer else a for a in block.axes if a != inner)
    loops = loops_of(axes)
    block = replace(
        block,
        axes=axes,
        values=tuple(loop.var for loop in loops),
        body=part(block.body),
        init=None if block.init is None else part(block.init),
    )
    return wrapped(loops, described(block))
