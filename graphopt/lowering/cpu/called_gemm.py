"""GEMM calls: matrix products by a library call, in pieces for parallel loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.cpu.convolution_tiles import convolution_of
from graphopt.lowering.cpu.library_dispatch import LibraryPrices, blocks, called_product, fastest, pieces, steps, ways
from graphopt.lowering.cpu.scheduling import Scheduling
from graphopt.lowering.cpu.tiled_calls import finished, in_pieces, loops_over
from graphopt.lowering.loops.expressions import Expr, Var
from graphopt.lowering.loops.nest import Range, Stmt, seq


def called(owner: Scheduling, chains: Sequence[Chain], prices: LibraryPrices) -> Stmt | None:
    """A product by the function that takes the least by its price, in pieces that can be shared out, each followed by
    what is done to its elements; None where it is worth no call."""
    first, rest = chains[0], chains[1:]
    product = called_product(chains, owner.nest)
    if product is None or convolution_of(first, rest) is not None:
        return None
    names = sorted(ways(product, prices))
    name = names[owner.choose("function", range(len(names)), names.index(fastest(product, prices)))]
    result = first.stores[0].buffer
    target = result
    if rest:  # the library writes where the result will stand, if that is of the same kind
        store = rest[0].stores[0]
        if len(rest[0].stores) == 1 and store.buffer.dtype == result.dtype:
            target = replace(store.buffer)
            owner.gone.add(result)

    sizes_of_blocks = [owner.choose(block, [0, *some], 0) for block, some in blocks(product, name).items()]

    def piece(values: Mapping[Var, Expr], rows: Range, columns: Range) -> Stmt:
        call = product.call(name, target, rows, columns, values, sizes_of_blocks)
        if not rest:
            return call
        loops, parts = loops_over(owner, rows, columns), {product.m: rows, product.n: columns}
        return seq(call, finished(rest[0], first, parts, loops, values, (target, rest[0].stores[0].indices)))

    sizes = {
        axis: owner.choose(f"piece {k}", steps(product, axis), size)
        for k, (axis, size) in enumerate(pieces(product).items())
    }
    return in_pieces(owner, first, (product.m, product.n, product.k), sizes, piece)
