"""Loop fission: one nest becomes several that are scheduled apart, or with a parallel loop each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphopt.lowering.analysis.canonical_nest import Chain, chain_of
from graphopt.lowering.cpu.epilogue_fusion import follows
from graphopt.lowering.cpu.integer_products import integer_product_of
from graphopt.lowering.cpu.library_dispatch import is_worth_a_call, panels_made, product_of
from graphopt.lowering.loops.expressions import Var, variables
from graphopt.lowering.loops.nest import (
    Block,
    Buffer,
    BufferRegion,
    For,
    Invoke,
    Nest,
    Seq,
    Stmt,
    Store,
    expressions,
    loads,
    seq,
    statements,
)


def separated(nest: Nest) -> tuple[Nest, ...]:
    """The nest as nests that are scheduled one by one: procedures, and products with what follows from each element.

    A nest without procedures that holds one product at most stays whole where that is the first.
    """
    parts = nest.body.stmts if isinstance(nest.body, Seq) else ()
    chains = [chain_of(s) for s in parts]
    heads = [c is None or _is_product(c) for c in chains]
    if all(c is not None for c in chains) and sum(heads) < 2 and not any(heads[1:]):
        return (nest,)
    groups: list[list[Stmt]] = []
    for k, (part, chain) in enumerate(zip(parts, chains, strict=True)):
        is_fed = k > 0 and _feeds(chains[k - 1], chain, nest)
        if k == 0 or (heads[k] and not is_fed) or chain is None or not (is_fed or _continues(chain, groups[-1])):
            groups.append([part])
        else:
            groups[-1].append(part)
    return _nests(nest, [seq(*group) for group in groups])


def divided(nest: Nest) -> tuple[Nest, ...]:
    """The nest's parallel loops and what stands between them as nests of their own, else the nest itself.

    What stands between two parallel loops stays together: it may hand on what is in registers.
    """
    parts = nest.body.stmts if isinstance(nest.body, Seq) else ()
    if not any(map(_is_parallel, parts)):
        return (nest,)
    groups: list[list[Stmt]] = []
    for part in parts:
        if groups and not _is_parallel(part) and not _is_parallel(groups[-1][-1]):
            groups[-1].append(part)
        else:
            groups.append([part])
    return _nests(nest, [seq(*group) for group in groups])


def _is_parallel(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind == "parallel"


def _nests(nest: Nest, parts: Sequence[Stmt]) -> tuple[Nest, ...]:
    """The parts of a nest as nests. What one of them leaves to another in a buffer that was the nest's own becomes a
    parameter."""
    used = [set(buffers_in(s)) for s in parts]
    shared = [b for b in nest.allocs if sum(b in u for u in used) > 1]
    nests = []
    for part, buffers in zip(parts, used, strict=True):
        params = [b for b in (*nest.buffers, *shared) if b in buffers]
        local = tuple(b for b in nest.allocs if b in buffers and b not in shared)
        names = _variables(part, (*params, *local))
        nests.append(Nest(nest.name, (*params, *(v for v in nest.sizes if v in names)), part, local, nest.notes))
    return tuple(nests)


def _is_product(chain: Chain) -> bool:
    if chain.block.init is None:
        return False
    product = product_of(chain)
    return integer_product_of(chain) is not None if product is None else is_worth_a_call(product)


def _feeds(maker: Chain | None, chain: Chain | None, nest: Nest) -> bool:
    """Whether a chain makes panels for the product behind it, and for nothing else."""
    product = None if maker is None or chain is None else panels_made(maker, chain, nest)
    parts = nest.body.stmts if isinstance(nest.body, Seq) else ()
    return product is not None and sum(product.b.load.buffer in set(buffers_in(part)) for part in parts) == 2


def _continues(chain: Chain, group: Sequence[Stmt]) -> bool:
    """Whether a chain belongs to those before it: behind a product what takes each of its elements, else what reads
    what they make."""
    if len(group) > 1 and (second := chain_of(group[1])) is not None and _is_product(second):
        group = group[1:]
    first = chain_of(group[0])
    if first is None:
        return follows(chain, group[0])
    if _is_product(first):
        reduces = chain.block.init is not None
        return not reduces and len(group) == 1 and [a.extent for a in chain.axes] == [a.extent for a in first.spatial]
    written = {s.buffer for part in group for s in statements(part) if isinstance(s, Store)}
    return any(load.buffer in written for load in loads(chain.block.body))


def buffers_in(stmt: Stmt) -> Iterator[Buffer]:
    """The buffers that a statement reads or writes, some of them more than once."""
    yield from (load.buffer for load in loads(stmt))
    for s in statements(stmt):
        if isinstance(s, Store):
            yield s.buffer
        elif isinstance(s, Block):
            yield from (r.buffer for r in (*s.reads, *s.writes))
        elif isinstance(s, Invoke):
            yield from (a.buffer for a in s.args if isinstance(a, BufferRegion))


def _variables(stmt: Stmt, buffers: tuple[Buffer, ...]) -> set[Var]:
    used = {v for s in statements(stmt) for e in expressions(s) for v in variables(e)}
    for buffer in buffers:
        for extent in buffer.row_major + buffer.shape:
            used |= variables(extent)
    return used
