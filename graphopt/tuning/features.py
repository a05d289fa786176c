"""Features of scheduled nests for the cost model: numbers that say how loops run and what they reach in memory.

They are of the kinds that Ansor's cost model has (Zheng et al., OSDI 2020): extents of loops, vector and parallel
degree, reuse, strides, working sets, arithmetic intensity, all as logarithms. The statement that does most is described
in full, the others by their share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import log2, prod
from typing import Final, Literal, TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.constants import BITS
from graphopt.lowering.analysis.flops import flops, longest
from graphopt.lowering.index.arithmetic import address_of
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, substitute, variables, walk
from graphopt.lowering.loops.nest import Block, Buffer, BufferRegion, For, Invoke, LoopKind, Nest, Stmt, Store, inner
from graphopt.lowering.loops.sizes import size_of
from graphopt.runtime.sizes import evaluate

LEVELS: Final = 5
"""Loops, from the innermost out, for which it is said what they reach."""
ARGUMENTS: Final = 3
"""Arguments of a call that are described."""
NAMES: Final = (
    "flops", "steps", "other steps", "statements", "calls", "blocks' waste", "vector", "unrolled", "parallel", "blocks",
    "threads", "serial loops", *(f"extent {k}" for k in range(LEVELS)), "loads", "loads side by side",
    "loads of one element", "loads far apart", "loads per step", "local bytes",
    *(f"bytes within {k}" for k in range(LEVELS)), "bytes", "intensity", "library",
    *(f"{what} of argument {k}" for k in range(ARGUMENTS) for what in ("rows", "columns", "bytes")),
)  # fmt: skip
"""What each of the numbers is."""


_Running: TypeAlias = LoopKind | Literal["blocks", "threads"]
"""How a loop runs; one that is bound, over blocks of threads or over the threads of one."""
_Loop: TypeAlias = tuple[Var, int, _Running]


@dataclass(frozen=True)
class _Statement:
    """A statement within no other that does something, and the loops around it, from the outermost in."""

    stmt: Store | Invoke
    loops: tuple[_Loop, ...]
    values: Mapping[Var, Expr]

    @property
    def steps(self) -> int:
        return prod(n for _, n, _ in self.loops)


def features(nest: Nest, sizes: Mapping[str, int]) -> tuple[float, ...]:
    """The numbers of a scheduled nest where its sizes are these: one for each of ``NAMES``."""
    sizes_by_var = {var: Const(sizes[var.name]) for var in nest.sizes}
    leaves = list(_leaves(nest.body, (), {}, sizes_by_var))
    wanted = {var: sizes[var.name] for var in nest.sizes}
    work = float(evaluate(flops(nest, wanted), {}))
    if not leaves:
        return (0.0,) * len(NAMES)
    # of a start and a step in the same loops, the step, which is the later
    main = max(reversed(leaves), key=lambda leaf: leaf.steps * _weight(leaf, sizes_by_var))
    calls = sum(leaf.steps for leaf in leaves if isinstance(leaf.stmt, Invoke))
    local = sum(_bytes(b, sizes_by_var) for b in nest.allocs)
    moved = sum(_bytes(b, sizes_by_var) for b in nest.buffers)
    waste = main.steps / max(work / 2, 1) if isinstance(main.stmt, Store) else 0
    numbers = [work, main.steps, sum(leaf.steps for leaf in leaves) - main.steps, len(leaves), calls, waste]
    numbers += _loops(main)
    numbers += _loads(main)
    numbers += [local, *_reached(main, sizes_by_var), moved, work / max(moved, 1)]
    numbers += [_is_library(main), *_arguments(main, sizes_by_var)]
    return tuple(round(log2(1 + max(x, 0)), 4) for x in numbers)


def _leaves(
    stmt: Stmt, loops: tuple[_Loop, ...], values: Mapping[Var, Expr], sizes: Mapping[Var, Expr]
) -> Iterator[_Statement]:
    match stmt:
        case Store() | Invoke():
            yield _Statement(stmt, loops, values)
        case For():
            extent = _most(stmt.extent, loops, values, sizes)
            yield from _leaves(stmt.body, (*loops, (stmt.var, extent, _running(stmt))), values, sizes)
        case Block():
            bound = {a.var: substitute(e, dict(values)) for a, e in zip(stmt.axes, stmt.values, strict=True)}
            for child in inner(stmt):
                yield from _leaves(child, loops, {**values, **bound}, sizes)
        case _:
            for child in inner(stmt):
                yield from _leaves(child, loops, values, sizes)


def _running(loop: For) -> _Running:
    if loop.thread is None:
        return loop.kind
    return "blocks" if loop.thread.startswith("blockIdx") else "threads"


def _most(extent: Expr, loops: Sequence[_Loop], values: Mapping[Var, Expr], sizes: Mapping[Var, Expr]) -> int:
    """How long a loop may be; 1 where elements say that."""
    most = longest(substitute(extent, {**values, **sizes}), {v: Const(n) for v, n, _ in loops})
    return 1 if most is None else _number(most, sizes)


def _number(expr: Expr, sizes: Mapping[Var, Expr]) -> int:
    """The value of a size; 1 where it is not known."""
    try:
        return max(int(evaluate(size_of(substitute(expr, dict(sizes)), {}), {})), 0)
    except (KeyError, ValueError, TypeError):
        return 1


def _is_library(leaf: _Statement) -> bool:
    """Whether the statement is a call of BLAS."""
    return isinstance(leaf.stmt, Invoke) and leaf.stmt.intrinsic.startswith("gemm_")


def _weight(leaf: _Statement, sizes: Mapping[Var, Expr]) -> int:
    """How much one step of a statement does: a call, as much as its regions are large."""
    if isinstance(leaf.stmt, Store):
        return 1
    return max([1, *(prod(_sides(leaf, a, sizes)) for a in leaf.stmt.args if isinstance(a, BufferRegion))])


def _sides(leaf: _Statement, region: BufferRegion, sizes: Mapping[Var, Expr]) -> list[int]:
    """How large a region is that a call is given."""
    whole = [_number(e, sizes) for e in region.buffer.shape]
    parts = [_most(r.extent, leaf.loops, leaf.values, sizes) for r in region.ranges]
    return [min(part, n) or n for part, n in zip(parts, whole, strict=True)]


def _bytes(buffer: Buffer, sizes: Mapping[Var, Expr]) -> int:
    return prod(_number(e, sizes) for e in buffer.shape) * BITS[buffer.dtype] // 8


def _loops(leaf: _Statement) -> list[float]:
    """How the loops around a statement run, and the extents of the innermost serial ones."""
    kinds = ("vectorized", "unrolled", "parallel", "blocks", "threads")
    of = {kind: prod(n for _, n, k in leaf.loops if k == kind) for kind in kinds}
    serial = [n for _, n, k in leaf.loops if k == "serial"][::-1]
    extents = (serial + [0] * LEVELS)[:LEVELS]
    return [*of.values(), len(serial), *extents]


def _addresses(leaf: _Statement) -> list[tuple[Load, Polynomial]]:
    """What a statement reads, and where, by the loops around it."""
    if not isinstance(leaf.stmt, Store):
        return []
    loads = dict.fromkeys(e for e in walk(leaf.stmt.value) if isinstance(e, Load))
    extents = {v: n for v, n, _ in leaf.loops}
    values = dict(leaf.values)
    return [
        (load, address_of(Load(load.buffer, tuple(substitute(i, values) for i in load.indices)), extents))
        for load in loads
    ]


def _loads(leaf: _Statement) -> list[float]:
    """How many loads there are, of which kinds along the vectors, and how many a step takes where those that do not
    change between neighbouring steps are kept."""
    lane = next((v for v, _, k in leaf.loops if k == "vectorized"), None)
    tile = [(v, n) for v, n, k in leaf.loops if k == "unrolled"]
    kinds, reuse = [0, 0, 0], 0.0
    read = [(load, at) for load, at in _addresses(leaf) if load.buffer.scope != "local"]
    for _, at in read:
        parts = at.split(lane) if lane is not None else None
        stride = 0 if lane is None else None if parts is None else parts[0].number
        kinds[0 if stride == 1 else 1 if stride == 0 else 2] += 1
        reuse += prod(n for v, n in tile if _varies(at, v)) / max(prod(n for _, n in tile), 1)
    return [len(read), *kinds, reuse]


def _varies(at: Polynomial, var: Var) -> bool:
    return any(var in variables(atom) for product in at.terms for atom in product)


def _reached(leaf: _Statement, sizes: Mapping[Var, Expr]) -> list[float]:
    """How many bytes are read within each of the innermost serial loops."""
    places = [k for k, (_, _, kind) in enumerate(leaf.loops) if kind == "serial"][::-1][:LEVELS]
    read = [(load, at) for load, at in _addresses(leaf) if load.buffer.scope != "local"]
    numbers: list[float] = []
    for depth in places:
        within = leaf.loops[depth:]
        numbers.append(
            sum(
                min(prod(n for v, n, _ in within if _varies(at, v)) * BITS[load.buffer.dtype] // 8, whole)
                for load, at in read
                for whole in [_bytes(load.buffer, sizes)]
            )
        )
    return (numbers + [0.0] * LEVELS)[:LEVELS]


def _arguments(leaf: _Statement, sizes: Mapping[Var, Expr]) -> list[float]:
    """The sides and bytes of what a call is given."""
    regions = [a for a in leaf.stmt.args if isinstance(a, BufferRegion)] if isinstance(leaf.stmt, Invoke) else []
    numbers: list[float] = []
    for region in regions[:ARGUMENTS]:
        sides = _sides(leaf, region, sizes)
        rows, columns = ([1, 1, *sides])[-2:]
        numbers += [rows, columns, prod(sides) * BITS[region.buffer.dtype] // 8]
    return numbers + [0.0] * (3 * ARGUMENTS - len(numbers))
