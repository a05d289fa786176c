"""Batch flattening: a batch of matrices times one matrix becomes one matrix of all rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from graphopt.lowering.analysis.access_analysis import collapsed, used_as_numbers
from graphopt.lowering.analysis.canonical_nest import Access, Chain, chains
from graphopt.lowering.cpu.integer_products import IntegerProduct, called_integer_product
from graphopt.lowering.cpu.library_dispatch import MatrixProduct, called_product
from graphopt.lowering.loops.expressions import Expr, Load, Var, variables
from graphopt.lowering.loops.loop_nests import loops_of, wrapped
from graphopt.lowering.loops.nest import Axis, Buffer, Nest, Stmt, Store, described, map_expressions, mutate, seq


def with_rows_stacked(nest: Nest) -> Nest:
    """The nest with the rows of a stack as those of one matrix, in a product by one matrix and what is done to its
    elements; as it is where they do not lie as one in memory."""
    nest_chains = chains(nest)
    if nest_chains is None:
        return nest
    product = called_product(nest_chains, nest, large=False) or called_integer_product(nest_chains, nest)
    if product is None:
        return nest
    for dim, pair in enumerate(pairwise(nest_chains[0].spatial)):
        parts = {b: at for c in nest_chains for b, at in _parts(c, dim)} if _is_stack(product, pair) else {}
        if parts and all(_are_one(c, dim, parts) for c in nest_chains):
            return with_rows_stacked(_stacked(nest, nest_chains, dim, parts))
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
        if at is not None and (sizes[at : at + 2] != (outer.extent, inner.extent) or access.buffer.strides is not None):
            return False
        rest = [i for k, i in enumerate(access.indices) if at is None or k not in (at, at + 1)]
        if any({outer.var, inner.var} & variables(i) for i in rest):
            return False
    return True


def _stacked(nest: Nest, chains: Sequence[Chain], dim: int, parts: Mapping[Buffer, int]) -> Nest:
    """The nest with the pair of axes, and those of the buffers, as one."""
    buffers = {
        b: replace(b, shape=(*b.shape[:at], b.shape[at] * b.shape[at + 1], *b.shape[at + 2 :]))
        for b, at in parts.items()
    }
    body = [_with_one_axis(c, dim, parts, buffers) for c in chains]
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
