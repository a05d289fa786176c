"""Library dispatch: products and convolutions that a device's library computes, chosen by prices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Final, Literal, TypeAlias

from graphopt.ir.constants import BITS
from graphopt.lowering.analysis.access_analysis import is_follower
from graphopt.lowering.analysis.canonical_nest import Chain, chains
from graphopt.lowering.cpu.library_dispatch import OPEN
from graphopt.lowering.cpu.scheduling import Taken
from graphopt.lowering.cuda.card import Card
from graphopt.lowering.cuda.library_calls import READERS, Recognized, note
from graphopt.lowering.cuda.products import moved_by, with_element
from graphopt.lowering.cuda.sums import APPROXIMATE
from graphopt.lowering.cuda.threads import DeviceScheduling
from graphopt.lowering.loops.accumulation import factors
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, rewrite, substitute
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Buffer, For, Nest, Store, seq
from graphopt.target import ProductPrices

DispatchMode: TypeAlias = Literal["auto", "library", "own"]
"""Who computes products: whoever is faster, the library wherever it can, or our own kernels."""
DispatchChoice: TypeAlias = Callable[[str, Recognized, bool], bool]
"""Whether the library's function of a name computes something; and whether nothing is left to be done to the result in
a pass of its own."""
OWN: Final = "product"
"""Under which targets have the price of our own kernels of products and convolutions."""


def choice(way: DispatchMode, prices: Mapping[str, ProductPrices]) -> DispatchChoice:
    """The decision who computes a product: library, our own kernel, or the faster one."""
    if way != "auto":
        return lambda name, recognized, is_whole: way == "library"

    def is_faster(name: str, recognized: Recognized, is_whole: bool) -> bool:
        return name in prices and seconds(recognized, prices[name], is_whole) < seconds(recognized, prices[OWN], True)

    return is_faster


def seconds(recognized: Recognized, prices: ProductPrices, is_whole: bool) -> float:
    """The predicted time of a product. Unknown sizes are taken to be moderate."""

    def count(sizes: Sequence[Expr]) -> int:
        return prod(int(e.value) if isinstance(e, Const) else OPEN for e in sizes)

    moved = sum(map(count, recognized.moved)) + (0 if is_whole else 2 * count(recognized.moved[-1]))
    return prices.seconds(count(recognized.multiplied), moved, BITS[recognized.dtype])


def compared(nest: Nest, card: Card, prices: Mapping[str, ProductPrices]) -> dict[str, float]:
    """Modelled seconds that the product or convolution takes with which a nest begins, by the function that computes
    it; nothing where it is none that a library can compute."""
    times: dict[str, float] = {}

    def chosen(name: str, recognized: Recognized, is_whole: bool) -> bool:
        if name in prices:
            times[name] = seconds(recognized, prices[name], is_whole)
            times[OWN] = seconds(recognized, prices[OWN], True)
        return False

    nest_chains = chains(nest)
    if nest_chains:
        multiplied(DeviceScheduling(nest, card), nest_chains, chosen)
    return times


def multiplied(owner: DeviceScheduling, chains: Sequence[Chain], chosen: DispatchChoice) -> Taken | None:
    """The product or convolution that the first blocks are, for a library, with as much of what follows as it does
    itself."""
    moved = moved_by(owner, chains)
    if moved is not None:
        rest = multiplied(owner, [with_element(chains[1], moved), *chains[2:]], chosen)
        if rest is None:
            return None
        owner.gone.add(moved.stores[0].buffer)
        return Taken(rest.stmt, rest.count + 1)
    first = chains[0]
    if first.block.init is None or len(first.stores) != 1:
        return None
    if any(a.extent == Const(0) for a in first.axes):
        return None
    follows = len(chains) > 1 and len(chains[1].stores) == 1 and is_follower(chains[1], first, owner.nest)
    is_last = all(a.buffer != first.stores[0].buffer for c in chains[2:] for a in c.accesses)
    for consumed in (2, 1) if follows and is_last else (1,):
        register = Buffer(f"{owner.var('sum').name}_l", (), first.stores[0].buffer.dtype, "local")
        stmt = _multiplying(owner, chains[:consumed], register)
        if stmt is None:
            return None
        for name, read in READERS.items():
            recognized = read(stmt)
            if recognized is None or not recognized.is_for(owner.card):
                continue
            by_rule = chosen(name, recognized, consumed == 2 or not follows)
            if not owner.choose("library", (0, 1), by_rule):
                return None
            owner.locals.append(register)
            if consumed == 2:
                owner.gone.add(first.stores[0].buffer)
            return Taken(replace(stmt, notes=(note(name), *stmt.notes)), consumed)
    return None


def _multiplying(owner: DeviceScheduling, chains: Sequence[Chain], sums: Buffer) -> For | None:
    """The loops of a sum of products, result by result, and of what is done to each; None where there is none."""
    first, store, init = chains[0], chains[0].stores[0], chains[0].block.init
    loops = [LoopSpec(owner.var("i"), a.extent) for a in first.spatial]
    steps = [LoopSpec(owner.var("r"), a.extent) for a in first.reduced]
    where: dict[Var, Expr] = {a.var: x.var for a, x in zip(first.spatial, loops, strict=True)}
    where |= {a.var: x.var for a, x in zip(first.reduced, steps, strict=True)}
    sum_, accumulator = Load(sums, ()), Load(store.buffer, tuple(substitute(i, where) for i in store.indices))
    product = factors(accumulator, substitute(store.value, where))
    if product is None or not loops or not isinstance(init, Store):
        return None
    end = Store(accumulator.buffer, accumulator.indices, sum_)
    if len(chains) > 1:
        last = chains[1].stores[0]
        at: dict[Var, Expr] = {a.var: x.var for a, x in zip(chains[1].axes, loops, strict=True)}
        after = rewrite(substitute(last.value, at), lambda e: sum_ if e == accumulator else None)
        end = Store(last.buffer, tuple(substitute(i, at) for i in last.indices), after)
    step = Store(sums, (), Apply("add", (sum_, Apply("mul", product, sum_.dtype)), sum_.dtype))
    around = wrapped(loops[1:], seq(Store(sums, (), init.value), wrapped(steps, step), end))
    notes = (APPROXIMATE,) if owner.card.is_approximate else ()
    return For(loops[0].var, loops[0].extent, around, notes=notes)
