"""Constant precomputation: parts of a nest that read constants alone run at compile time (packed weights, sums of
biases)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from math import prod
from typing import Any, Final

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir.constants import Array
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.analysis.canonical_nest import Chain, chain_of
from graphopt.lowering.cpu.loop_fission import buffers_in
from graphopt.lowering.loops.expressions import FLOATS, Apply, Const, Expr, Load, Var, walk
from graphopt.lowering.loops.nest import Buffer, Nest, Seq, Stmt, seq

FUNCTIONS: Final[Mapping[str, Callable[..., Any]]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "neg": np.negative,
    "select": np.where,
    "min": np.minimum,
    "max": np.maximum,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
}
"""What is computed ahead of time, alike for one element and for an array of them."""


LARGE: Final = 1 << 22
"""So many bytes may be computed ahead, or twice as many as the constants have; more are left to each run."""


@dataclass(frozen=True, slots=True)
class PrecomputedNest:
    """A nest that reads what was computed ahead of time, and what that is."""

    nest: Nest
    precomputed: tuple[Chain, ...]

    def arrays(self, constants: Mapping[Buffer, Array]) -> dict[Buffer, Array]:
        """Computes the precomputed buffers from the nest's constants."""
        arrays = dict(constants)
        for chain in self.precomputed:
            (store,) = chain.stores
            arrays[store.buffer] = _computed(chain, arrays)
        return {b: arrays[b] for b in self.nest.buffers if b in arrays and b not in constants}


def prepared(nest: Nest, constants: Collection[Buffer]) -> PrecomputedNest | None:
    """The nest without what it computes from constants alone for itself, each in a buffer of which it becomes a
    parameter; None where there is no such thing."""
    known_buffers = set(constants)
    most = max(LARGE, 2 * sum(_bytes(b.shape, b.dtype) for b in constants))
    precomputed: list[Chain] = []
    rest: list[Stmt] = []
    for stmt in nest.body.stmts if isinstance(nest.body, Seq) else (nest.body,):
        chain = chain_of(stmt)
        if (
            chain is not None
            and _is_known(chain, known_buffers)
            and chain.stores[0].buffer in nest.allocs
            and _bytes((a.extent for a in chain.axes), chain.stores[0].buffer.dtype) <= most
        ):
            precomputed.append(chain)
            known_buffers.add(chain.stores[0].buffer)
        else:
            rest.append(stmt)
    if not precomputed:
        return None
    left = seq(*rest)
    used = set(buffers_in(left))
    results = [c.stores[0].buffer for c in precomputed]
    params = (*(b for b in results if b in used), *(p for p in nest.params if p in used or p not in constants))
    allocs = tuple(b for b in nest.allocs if b not in results)
    return PrecomputedNest(replace(nest, params=params, body=left, allocs=allocs), tuple(precomputed))


def _bytes(sizes: Iterable[Expr], dtype: str) -> int:
    """The bytes of a buffer, of those of its sizes that are numbers."""
    return prod(int(n.value) for n in sizes if isinstance(n, Const)) * numpy_dtype(dtype).itemsize


def _is_known(chain: Chain, buffers: Collection[Buffer]) -> bool:
    """Whether a block stores a value for each point, of constants and of where it is."""
    if chain.block.init is not None or len(chain.stores) != 1 or chain.stores != (chain.block.body,):
        return False
    store = chain.stores[0]
    if store.indices != tuple(a.var for a in chain.axes) or not all(isinstance(a.extent, Const) for a in chain.axes):
        return False
    allowed: set[Buffer | Var] = {*buffers, *(a.var for a in chain.axes)}
    return all(_is_ahead(e, allowed) for e in walk(store.value))


def _is_ahead(e: Expr, allowed: Collection[Buffer | Var]) -> bool:
    """Whether a part of an expression is known ahead of time if those in it are."""
    if isinstance(e, Var):
        return e in allowed
    if isinstance(e, Load):
        return e.buffer in allowed and all(isinstance(n, Const) and n.value for n in e.buffer.shape)
    if isinstance(e, Apply) and e.fn == "cast":
        return e.dtype in FLOATS or e.args[0].dtype not in FLOATS  # out of range, C and numpy need not agree
    if isinstance(e, Apply) and e.fn in ("min", "max"):
        return e.dtype not in FLOATS  # of zeros with signs, either may be the least
    return not isinstance(e, Apply) or e.fn in FUNCTIONS


def _computed(chain: Chain, arrays: Mapping[Buffer, Array]) -> Array:
    """The array that a block stores."""
    (store,) = chain.stores
    shape = tuple(int(a.extent.value) for a in chain.axes if isinstance(a.extent, Const))
    axes = dict(zip((a.var for a in chain.axes), np.ogrid[tuple(slice(n) for n in shape)], strict=True))
    value = np.broadcast_to(_value(store.value, axes, arrays), shape)
    return np.ascontiguousarray(value, numpy_dtype(store.buffer.dtype))


def _value(e: Expr, axes: Mapping[Var, Array], arrays: Mapping[Buffer, Array]) -> Any:
    """An expression for all points of the axes; what it reads outside of a buffer, where nobody looks, is anything."""
    match e:
        case Const():
            return numpy_dtype(e.dtype).type(e.value)
        case Var():
            return axes[e]
        case Load():
            at = zip(e.indices, arrays[e.buffer].shape, strict=True)
            return arrays[e.buffer][tuple(np.clip(_value(i, axes, arrays), 0, n - 1) for i, n in at)]
        case Apply(fn="cast"):
            return np.asarray(_value(e.args[0], axes, arrays)).astype(numpy_dtype(e.dtype))
    assert isinstance(e, Apply)
    return FUNCTIONS[e.fn](*(_value(a, axes, arrays) for a in e.args))
