"""Sampling: tile sizes, choices and compute locations, drawn for search spaces.

Each function takes a generator and gives what it decided, which a trace keeps, and what that means. A
``decision`` is taken instead of a draw, where it is possible on this nest.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, isqrt, prod
from random import Random

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import (
    INLINE,
    ROOT,
    AnyBlock,
    AnyLoop,
    LoopRef,
    find_block,
    find_loop,
    get_consumers,
    primitive,
)
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import For, Nest
from graphopt.lowering.schedule.compute_at import compute_at


@primitive
def sample_perfect_tile(
    nest: Nest,
    random: Random,
    loop: AnyLoop,
    n: int,
    max_innermost: int = 64,
    *,
    decision: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw ``n`` factors of the extent of a loop, the last at most ``max_innermost``, all with equal probability.

    Raises ScheduleError where the extent is not a number.
    """
    # As TVM's sample_perfect_tile, but uniform.
    name, extent = _known_extent(nest, loop)
    if n < 1 or max_innermost < 1:
        raise ScheduleError(f"{name}: {n} factors of at most {max_innermost} are none; ask for one or more")
    if decision is not None:
        chosen = tuple(int(f) for f in decision)
        if not _is_tile(chosen, n, extent) or chosen[-1] > max_innermost:
            raise ScheduleError(
                f"{name}: the decision {list(chosen)} is not {n} factors of {extent}, the last at most {max_innermost}"
            )
        return chosen, chosen
    if n == 1 and extent > max_innermost:
        raise ScheduleError(f"{name}: its extent {extent} is more than {max_innermost}; ask for more than one factor")
    tile = _tile(random, extent, n, max_innermost)
    return tile, tile


@primitive
def sample_partitioned_tile(
    nest: Nest,
    random: Random,
    loop: AnyLoop,
    n: int,
    partition_pos: int = 0,
    innerpart_factor: int = 1,
    *,
    decision: Sequence[int] | None = None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw ``n`` factors of the extent of a loop, of which those from ``partition_pos`` on have a multiple of
    ``innerpart_factor`` as their product, all with equal probability.

    Raises ScheduleError where the extent is not a number, or no multiple of that factor.
    """
    # As TVM's sample_partitioned_tile, but uniform: the product of the inner factors is drawn first.
    name, extent = _known_extent(nest, loop)
    if n < 1 or not 0 <= partition_pos < n or innerpart_factor < 1:
        raise ScheduleError(
            f"{name}: {n} factors with a multiple of {innerpart_factor} from position {partition_pos} on are none; "
            f"positions are 0 to {n - 1}, and factors positive"
        )
    if extent % innerpart_factor:
        raise ScheduleError(f"{name}: its extent {extent} is no multiple of {innerpart_factor}; give a divisor of it")
    if decision is not None:
        chosen = tuple(int(f) for f in decision)
        if not _is_tile(chosen, n, extent) or prod(chosen[partition_pos:]) % innerpart_factor:
            raise ScheduleError(
                f"{name}: the decision {list(chosen)} is not {n} factors of {extent}, those from position "
                f"{partition_pos} on with a multiple of {innerpart_factor} as their product"
            )
        return chosen, chosen
    outer, inner = partition_pos, n - partition_pos
    inside = [d for d in divisors(extent) if d % innerpart_factor == 0 and (outer or d == extent)]
    part = _weighed(random, inside, [_ways(extent // d, outer) * _ways(d, inner) for d in inside])
    tile = (*(_tile(random, extent // part, outer) if outer else ()), *_tile(random, part, inner))
    return tile, tile


def _known_extent(nest: Nest, loop: AnyLoop) -> tuple[str, int]:
    """The name of a loop and its extent; raises ScheduleError where that is not a positive number."""
    stmt = find_loop(nest, loop).stmt
    if not isinstance(stmt.extent, Const) or stmt.extent.value < 1:
        raise ScheduleError(f"{stmt.var.name}: its extent is not a number above 0; split it by factors that you choose")
    return stmt.var.name, int(stmt.extent.value)


def _is_tile(factors: Sequence[int], n: int, extent: int) -> bool:
    """Whether these are so many positive factors of a number."""
    return len(factors) == n and prod(factors) == extent and min(factors) >= 1


def _tile(random: Random, extent: int, n: int, max_innermost: int | None = None) -> tuple[int, ...]:
    """Random factors of a number, each tile with equal probability."""
    # From the innermost out, a factor is drawn with the number of factorizations of the rest as its weight.
    factors: list[int] = []
    left = extent
    for k in range(n, 1, -1):
        candidates = [d for d in divisors(left) if factors or max_innermost is None or d <= max_innermost]
        factors.append(_weighed(random, candidates, [_ways(left // d, k - 1) for d in candidates]))
        left //= factors[-1]
    return (left, *reversed(factors))


@primitive
def sample_categorical(
    nest: Nest,
    random: Random,
    candidates: Sequence[int],
    probabilities: Sequence[float] | None = None,
    *,
    decision: int | None = None,
) -> tuple[int, int]:
    """Draw one of the candidates by their probabilities (any weights; equal by default), by its position."""
    weights = [1.0] * len(candidates) if probabilities is None else [float(p) for p in probabilities]
    if not candidates or len(weights) != len(candidates) or min(weights) < 0 or sum(weights) <= 0:
        raise ScheduleError(
            f"{len(candidates)} candidates with the probabilities {list(weights)}: give each one of at least 0"
        )
    if decision is None:
        decision = _weighed(random, range(len(candidates)), weights)
    if not 0 <= decision < len(candidates):
        raise ScheduleError(f"the decision {decision} is not a position among {len(candidates)} candidates")
    return int(decision), int(candidates[decision])


@primitive
def sample_compute_location(
    nest: Nest, random: Random, block: AnyBlock, *, decision: str | None = None
) -> tuple[str, LoopRef]:
    """Draw a place for ``compute_at``: a loop around all consumers, ``ROOT`` (stay) or ``INLINE``. The decision is its
    name.
    """
    places = compute_locations(nest, block)
    if decision is None:
        decision = random.choice(places).name
    chosen = next((p for p in places if p.name == decision), None)
    if chosen is None:
        raise ScheduleError(f"{decision} is no place for this block; use {', '.join(p.name for p in places)}")
    return decision, chosen


def compute_locations(nest: Nest, block: AnyBlock) -> tuple[LoopRef, ...]:
    """The possible compute locations of a block: ``ROOT``, ``INLINE``, and loops around its consumers."""
    places = [ROOT]
    if _possible(nest, block, INLINE):
        places.append(INLINE)
    consumers = [find_block(nest, c).above for c in get_consumers(nest, block)]
    around = [s for s in consumers[0] if all(s in other for other in consumers[1:])] if consumers else []
    loops = [LoopRef(s.var.name) for s in around if isinstance(s, For)]
    return (*places, *(loop for loop in loops if _possible(nest, block, loop)))


def _possible(nest: Nest, block: AnyBlock, loop: LoopRef) -> bool:
    """Whether a block can be computed at a place."""
    try:
        compute_at(nest, block, loop)
    except ScheduleError:
        return False
    return True


def divisors(n: int) -> list[int]:
    """The divisors of a positive number, ascending."""
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    return small + [n // d for d in reversed(small) if d * d != n]


def _ways(n: int, parts: int) -> int:
    """In how many ways a number is a product of so many ordered factors."""
    ways, p = 1, 2
    while n > 1:
        if p * p > n:
            p = n
        times = 0
        while n % p == 0:
            n, times = n // p, times + 1
        ways *= comb(times + parts - 1, times)
        p += 1
    return ways


def _weighed(random: Random, candidates: Sequence[int], weights: Sequence[float]) -> int:
    """One of the candidates, each as likely as its weight says."""
    return random.choices(candidates, weights)[0]
