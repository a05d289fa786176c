"""Epilogue fusion: element-wise consumers of a procedure's result run where the procedure stores it.

A procedure may say of itself that it stores each element once, and does not read it again. What follows element by
element then joins its stores, so that nothing lies in memory in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graphopt.lowering.analysis.access_analysis import takes_each
from graphopt.lowering.analysis.canonical_nest import Chain, chain_of
from graphopt.lowering.loops.expressions import Expr, Load
from graphopt.lowering.loops.nest import (
    STORES_ONCE,
    Block,
    Buffer,
    Nest,
    Seq,
    Stmt,
    Store,
    described,
    loads,
    map_expressions,
    mutate,
    seq,
    statements,
)


def follows(chain: Chain, procedure: Stmt) -> bool:
    """Whether a block takes each element that a procedure has finished by itself."""
    return _made(procedure, [chain]) is not None


def finished(nest: Nest) -> Nest:
    """The nest of a procedure with what follows element by element in the place of its stores, its loops outermost; any
    other nest as it is."""
    first, *rest = nest.body.stmts if isinstance(nest.body, Seq) else (nest.body,)
    chains = [c for c in map(chain_of, rest) if c is not None]
    if not (isinstance(first, Block) and STORES_ONCE in first.notes) or len(chains) < len(rest):
        return nest
    if not chains:
        return replace(nest, body=first.body)
    result = _made(first, chains)
    if result is None:
        return nest

    def store(s: Stmt) -> Stmt | None:
        if not (isinstance(s, Store) and s.buffer == result):
            return None
        return seq(*(_at(c, result, s) for c in chains))

    return replace(nest, body=mutate(first.body, store), allocs=tuple(b for b in nest.allocs if b != result))


def _at(chain: Chain, result: Buffer, store: Store) -> Block:
    """The block for the element that a store writes, with the value in its place."""

    def load(e: Expr) -> Expr | None:
        return store.value if isinstance(e, Load) and e.buffer == result else None

    return described(replace(chain.block, body=map_expressions(chain.block.body, load), values=store.indices))


def _made(procedure: Stmt, chains: Sequence[Chain]) -> Buffer | None:
    """The buffer that a procedure stores once and all of the blocks take element by element; None where there is
    none."""
    if not (isinstance(procedure, Block) and STORES_ONCE in procedure.notes):
        return None
    stored = {s.buffer for s in statements(procedure) if isinstance(s, Store)}
    read = [e.buffer for e in loads(chains[0].block) if e.buffer in stored]
    buffer = read[0] if read else None
    return buffer if buffer is not None and all(takes_each(c, buffer, buffer.shape) for c in chains) else None
