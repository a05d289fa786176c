"""Which products of a nest a device's library computes: where that takes less time, by prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from graphopt.ir.constants import BITS
from graphopt.lowering.chain_facts import is_follower
from graphopt.lowering.chains import Chain, chains
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.multiplication import GEMM, Gemm, gemm_of
from graphopt.lowering.cuda.sums import APPROXIMATE
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.expressions import Apply, Const, Expr, Load, Var, rewrite, substitute
from graphopt.lowering.library import OPEN
from graphopt.lowering.loop_nests import Loop, wrapped
from graphopt.lowering.loops import Buffer, For, Nest, Stmt, Store, is_accumulation, seq
from graphopt.target import ProductPrices

Way: TypeAlias = Literal["auto", "library", "own"]
"""Who computes products: whoever is faster, the library wherever it can, or our own kernels."""
Choice: TypeAlias = Callable[[Gemm, bool], bool]
"""Whether the library computes a product; and whether nothing is left to be done to the result in a pass of its own."""


def choice(way: Way, prices: Mapping[str, ProductPrices]) -> Choice:
    """How it is decided who computes a product."""
    if way != "auto":
        return lambda gemm, is_whole: way == "library"
    return lambda gemm, is_whole: seconds(gemm, prices["gemm"], is_whole) < seconds(gemm, prices["product"], True)


def seconds(gemm: Gemm, prices: ProductPrices, is_whole: bool) -> float:
    """What a product takes: the longer of arithmetic and memory. Sizes that are not known are taken to be moderate."""
    m, n, k, batch = (int(e.value) if isinstance(e, Const) else OPEN for e in (gemm.m, gemm.n, gemm.k, gemm.batch))
    width = BITS[gemm.a.buffer.dtype] / BITS["float32"]
    moved = batch * (m * k + k * n + m * n * (1 if is_whole else 3))
    return prices.call + width * max(prices.step * batch * m * n * k, prices.moved[1] * moved)


def compared(nest: Nest, card: Card, prices: Mapping[str, ProductPrices]) -> dict[str, float]:
    """Modelled seconds that the product takes with which a nest begins, by who computes it; nothing where it is none
    that the library can compute."""
    told: dict[str, float] = {}

    def chosen(gemm: Gemm, is_whole: bool) -> bool:
        told.update(gemm=seconds(gemm, prices["gemm"], is_whole), product=seconds(gemm, prices["product"], True))
        return False

    found = chains(nest)
    if found:
        multiplied(DeviceScheduling(nest, card), found, chosen)
    return told


def multiplied(owner: DeviceScheduling, found: Sequence[Chain], chosen: Choice) -> tuple[Stmt, int] | None:
    """The product that the first blocks are, for the library, with as much of what follows as it does itself."""
    first = found[0]
    if first.block.init is None or len(first.stores) != 1 or not is_accumulation(first.stores[0]):
        return None
    if any(a.extent == Const(0) for a in first.axes):
        return None
    follows = len(found) > 1 and len(found[1].stores) == 1 and is_follower(found[1], first, owner.nest)
    is_last = all(a.buffer != first.stores[0].buffer for c in found[2:] for a in c.accesses)
    for taken in (2, 1) if follows and is_last else (1,):
        own = Buffer(f"{owner.var('sum').name}_l", (), first.stores[0].buffer.dtype, "local")
        stmt = _multiplying(owner, found[:taken], own)
        gemm = None if stmt is None else gemm_of(stmt)
        if stmt is None or gemm is None or not (_is_plain(gemm) or (owner.card.has_epilogues and _is_finished(gemm))):
            continue
        if not chosen(gemm, taken == 2 or not follows):
            return None
        owner.locals.append(own)
        if taken == 2:
            owner.gone.add(first.stores[0].buffer)
        return stmt, taken
    return None


def _is_plain(gemm: Gemm) -> bool:
    return gemm.bias is None and not gemm.epilogue


def _is_finished(gemm: Gemm) -> bool:
    """Whether the library finishes such a product itself: not in double precision, and not where steps may be none."""
    return gemm.a.buffer.dtype != "float64" and isinstance(gemm.k, Const) and gemm.k.value != 0


def _multiplying(owner: DeviceScheduling, found: Sequence[Chain], sums: Buffer) -> Stmt | None:
    """The loops of a reduction, one result after another, and of what is done to each; None where nothing is summed."""
    first, store, init = found[0], found[0].stores[0], found[0].block.init
    loops = [Loop(owner.var("i"), a.extent) for a in first.spatial]
    steps = [Loop(owner.var("r"), a.extent) for a in first.reduced]
    where: dict[Var, Expr] = {a.var: x.var for a, x in zip(first.spatial, loops, strict=True)}
    where |= {a.var: x.var for a, x in zip(first.reduced, steps, strict=True)}
    sum_, value = Load(sums, ()), substitute(store.value, where)
    own = Load(store.buffer, tuple(substitute(i, where) for i in store.indices))
    if not (loops and isinstance(init, Store) and isinstance(value, Apply) and value.fn == "add"):
        return None
    added = value.args[1] if value.args[0] == own else value.args[0]
    end = Store(own.buffer, own.indices, sum_)
    if len(found) > 1:
        last = found[1].stores[0]
        at: dict[Var, Expr] = {a.var: x.var for a, x in zip(found[1].axes, loops, strict=True)}
        after = rewrite(substitute(last.value, at), lambda e: sum_ if e == own else None)
        end = Store(last.buffer, tuple(substitute(i, at) for i in last.indices), after)
    step = Store(sums, (), Apply("add", (sum_, added), sum_.dtype))
    around = wrapped(loops[1:], seq(Store(sums, (), init.value), wrapped(steps, step), end))
    return For(
        loops[0].var, loops[0].extent, around, notes=(GEMM, APPROXIMATE) if owner.card.is_approximate else (GEMM,)
    )
