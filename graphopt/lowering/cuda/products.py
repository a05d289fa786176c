"""Matrix product schedule on CUDA, for all contractions that are products along some axes (convolutions, too)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from graphopt.lowering.analysis.access_analysis import is_follower
from graphopt.lowering.analysis.axis_transforms import following, with_axes_redrawn
from graphopt.lowering.analysis.canonical_nest import Chain
from graphopt.lowering.cpu.scheduling import Taken
from graphopt.lowering.cuda.contraction import AxisGroup, Contraction, contraction_of
from graphopt.lowering.cuda.product_tiles import PointInTile, ProductTiles, TileEpilogue, finished_by
from graphopt.lowering.cuda.tensor_tiles import TensorTiles, WarpTile, warp_tile_for
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.cuda.tile_shapes import tile_for
from graphopt.lowering.loops.expressions import INDEX, Apply, Const, Expr, Load, substitute, walk
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Stmt, Store, described, map_expressions, seq

MOVING: Final = ("select", "cast")
"""Functions that leave an element as it is, or leave it out."""


def product(owner: DeviceScheduling, chains: Sequence[Chain]) -> Taken | None:
    """A product of matrices with what is done to each of its results, tile by tile."""
    first, move = chains[0], moved_by(owner, chains)
    if move is not None:
        rest_of = product(owner, [with_element(chains[1], move), *chains[2:]])
        if rest_of is not None:
            owner.gone.add(move.stores[0].buffer)
            return Taken(rest_of.stmt, rest_of.count + 1)
    if first.block.init is None or any(a.extent == Const(0) for a in first.axes):
        return None
    after, consumed = followers(owner, chains)
    first, rest = with_axes_redrawn(first, after)
    contraction = contraction_of(first, rest)
    if contraction is None:
        return None
    if rest:
        owner.gone.add(contraction.result)
    warps = warp_tile_for(contraction, owner)
    tile = tile_for(contraction, owner) if warps is None else warps

    def kernel(finish: TileEpilogue) -> Stmt:
        if isinstance(tile, WarpTile):
            return TensorTiles(owner, contraction, tile, finish).kernel()
        return ProductTiles(owner, contraction, tile, finish).kernel()

    finish = finished_by(first, rest)
    if tile.splits == 1:
        return Taken(kernel(finish), consumed)
    return Taken(split_product(owner, contraction, tile.splits, kernel, finish), consumed)


def moved_by(owner: DeviceScheduling, chains: Sequence[Chain]) -> Chain | None:
    """The first block, where it only moves elements, and puts some between them, for a reduction behind it alone."""
    first = chains[0]
    if first.block.init is not None or len(first.stores) != 1 or len(chains) < 2 or chains[1].block.init is None:
        return None
    (store,) = first.stores
    is_moving = all(not isinstance(e, Apply) or e.fn in MOVING or e.dtype in (INDEX, "bool") for e in walk(store.value))
    is_plain = store.indices == tuple(a.var for a in first.axes) and store.buffer in owner.nest.allocs
    others = [a.buffer for c in chains[2:] for a in c.accesses]
    return first if is_moving and is_plain and store.buffer not in others else None


def with_element(chain: Chain, maker: Chain) -> Chain:
    """A block that computes the elements itself that another one made for it."""
    (store,) = maker.stores

    def load(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and e.buffer == store.buffer):
            return None
        return substitute(store.value, dict(zip((a.var for a in maker.axes), e.indices, strict=True)))

    block = replace(chain.block, body=map_expressions(chain.block.body, load))
    return Chain(chain.loops, described(block))


def followers(owner: DeviceScheduling, chains: Sequence[Chain]) -> tuple[list[Chain], int]:
    """The blocks behind the first that do something to each of its elements, on its axes, and how many blocks these
    are with it; none where others need these elements as well."""
    first, rest = chains[0], list[Chain]()
    result = first.stores[0].buffer
    for follower in chains[1:]:
        chain = following(follower, first)
        if not is_follower(chain, first, owner.nest, follower):
            break
        rest.append(chain)
    others = (a.buffer for c in chains[1 + len(rest) :] for a in c.accesses)
    return ([], 1) if result in others else (rest, 1 + len(rest))


def split_product(
    owner: DeviceScheduling,
    contraction: Contraction,
    splits: int,
    kernel: Callable[[TileEpilogue], Stmt],
    finish: TileEpilogue,
) -> Stmt:
    """A product of few results and many steps: blocks share out the steps of a tile, and another kernel sums up what
    they found, always in the same order."""
    spatial = contraction.chain.spatial
    shape = (Const(splits), *(a.extent for a in spatial))
    parts = owner.memory(contraction.result.name, shape, contraction.result.dtype)

    def keep(where: PointInTile, split: Expr, value: Load) -> Stmt:
        return Store(parts, (split, *(where[a.var] for a in spatial)), value)

    total = Load(owner.local(contraction.result.name, (), contraction.result.dtype), ())

    def result(element: Expr) -> Stmt:
        where, part = AxisGroup(spatial).at(element, Const(0)), LoopSpec(owner.var("s"), shape[0])
        value = Load(parts, (part.var, *(where[a.var] for a in spatial)))
        start = Store(total.buffer, (), Const(0.0, total.dtype))
        return seq(start, wrapped([part], Store(total.buffer, (), total + value)), finish(where, Const(0), total))

    return seq(kernel(keep), owner.over_threads(AxisGroup(spatial).extent, result))
