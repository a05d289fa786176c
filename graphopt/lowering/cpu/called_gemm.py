"""GEMM calls: matrix products by a library call, in pieces for parallel loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from graphopt.lowering.analysis.canonical_nest import Chain, exchange
from graphopt.lowering.cpu.convolution_tiles import convolution_of
from graphopt.lowering.cpu.library_dispatch import (
    LibraryPrices,
    MadePanels,
    MatrixProduct,
    blocks,
    called_product,
    fastest,
    near_pieces,
    panels_made,
    pieces,
    steps,
    ways,
)
from graphopt.lowering.cpu.scheduling import Scheduling
from graphopt.lowering.cpu.tiled_calls import finished, in_pieces, loops_over
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, minimum
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Range, Stmt, described, seq


def called(owner: Scheduling, chains: Sequence[Chain], prices: LibraryPrices) -> Stmt | None:
    """A product by the function that takes the least by its price, in pieces that can be shared out, each followed by
    what is done to its elements; None where it is worth no call. Panels of its second operand that the chain before it
    makes are made piece by piece, and read while they are in a cache."""
    maker = chains[0] if len(chains) > 1 and panels_made(chains[0], chains[1], owner.nest) else None
    chains = chains if maker is None else chains[1:]
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
    sizes = {
        # of panels that are made, no more than stay in the cache lie on the stack
        axis: owner.choose(f"piece {k}", [n for n in steps(product, axis) if maker is None or n <= size], size)
        for k, (axis, size) in enumerate((pieces(product) if maker is None else near_pieces(product)).items())
    }
    made = None if maker is None else _Made(owner, maker, product, sizes[product.n])

    def piece(values: Mapping[Var, Expr], rows: Range, columns: Range) -> Stmt:
        source = product if made is None else made.product
        call = source.call(name, target, rows, columns, values, sizes_of_blocks)
        before = () if made is None else (made.panels(columns),)
        if not rest:
            return seq(*before, call)
        loops, parts = loops_over(owner, rows, columns), {product.m: rows, product.n: columns}
        return seq(*before, call, finished(rest[0], first, parts, loops, values, (target, rest[0].stores[0].indices)))

    return in_pieces(owner, first, (product.m, product.n, product.k), sizes, piece)


class _Made:
    """The panels of a piece: the product that reads them, and the block that makes them."""

    def __init__(self, owner: Scheduling, maker: Chain, product: MatrixProduct, columns: int) -> None:
        self.owner, self.maker, self.whole = owner, maker, product.b.load.buffer
        _, deep, width = self.whole.shape
        self.width, self.most = width, -(-columns // int(width.value)) if isinstance(width, Const) else 1
        self.buffer = owner.local(self.whole.name, (Const(self.most), deep, width), self.whole.dtype)
        self.product = replace(product, b=MadePanels(Load(self.buffer, product.b.load.indices)))
        owner.gone.add(self.whole)

    def panels(self, columns: Range) -> Stmt:
        """The panels of some columns."""
        many, deep, width = self.whole.shape
        first = columns.start // self.width
        loops = [  # for no rows, none are made
            LoopSpec(self.owner.var("p"), minimum(self.most, many - first) * minimum(self.product.m.extent, 1)),
            LoopSpec(self.owner.var("k"), deep),
            LoopSpec(self.owner.var("c"), width, "vectorized"),
        ]
        panel, step, lane = (loop.var for loop in loops)
        block = self.maker.with_values((first + panel, step, lane))
        body = exchange(block.body, {self.whole: (self.buffer, (panel, step, lane))})
        return wrapped(loops, described(replace(block, body=body)))
