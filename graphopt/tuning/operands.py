"""Operands of workloads: the arrays on which they are checked and measured, the same ones each time.

Apart from the oracle, its only user, for length.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf, nan
from typing import Any, Final

import ml_dtypes
import numpy as np

from graphopt.ir.constants import Array
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.loops.expressions import Expr, Var, loads_in
from graphopt.lowering.loops.nest import Buffer, Nest, Store, loads, statements
from graphopt.lowering.loops.sizes import size_of
from graphopt.lowering.lower.embedded_programs import inputs_of
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.sizes import evaluate
from graphopt.tuning.workload import Workload

NORMAL, WHOLE, SPECIAL = 0, 1, 2
CASES: Final = {NORMAL: "random numbers", WHOLE: "small whole numbers", SPECIAL: "infinities and NaN among the numbers"}
"""What inputs may hold. Sums of small whole numbers are exact, in whatever order they are made."""

_SPECIALS: Final = (nan, inf, -inf, -0.0, 1e-40)
_SMALL: Final = 4
_SOME: Final = 100


def operands(workload: Workload, case: int, are_integers_zero: bool = False) -> list[Array]:
    """The inputs of the nest, in the order of its parameters. Integers by which it indexes are within range, as far as
    that can be seen; or all are 0."""
    nest, sizes = workload.nest, dict(workload.sizes)
    size_by_var = {var: sizes[var.name] for var in nest.sizes}
    ends = index_ends(nest, size_by_var)
    random = np.random.default_rng([case, int(workload.key, 16)])
    arrays = []
    for buffer in inputs_of(nest):
        shape = tuple(evaluate(size_of(e, size_by_var), {}) for e in buffer.shape)
        array = _drawn(random, buffer.dtype, shape, case, 1 if are_integers_zero else ends.get(buffer))
        arrays.append(np.ascontiguousarray(array))
    return arrays


def stored(array: Array) -> Array:
    """The elements as they lie in memory, in a type that numpy knows by itself."""
    return array.view(STORAGE[array.dtype.name])


def restored(array: Array, dtype: str) -> Array:
    """The elements in their own type again."""
    return array.view(numpy_dtype(dtype))


def index_ends(nest: Nest, sizes: Mapping[Var, int]) -> dict[Buffer, int]:
    """Of each buffer with whose elements the nest indexes others, what they have to be below."""
    ends: dict[Buffer, int] = {}
    for buffer, indices in _places(nest):
        for index, extent in zip(indices, buffer.shape, strict=True):
            end = evaluate(size_of(extent, sizes), {})
            for load in loads_in(index):
                ends[load.buffer] = min(ends.get(load.buffer, end), end)
    return ends


def _places(nest: Nest) -> Iterator[tuple[Buffer, Sequence[Expr]]]:
    yield from ((load.buffer, load.indices) for load in loads(nest.body))
    yield from ((s.buffer, s.indices) for s in statements(nest.body) if isinstance(s, Store))


def _drawn(random: np.random.Generator, dtype: str, shape: tuple[int, ...], case: int, end: int | None) -> Array:
    """Random elements; integers from 0 up to ``end`` where it is given."""
    kind = numpy_dtype(dtype)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    if "float" not in dtype and kind.kind != "c":
        least, most = _range(dtype) if end is None else (0, max(end, 1) - 1)
        return random.integers(least, most, shape, endpoint=True).astype(kind)
    if case == WHOLE:
        return random.integers(-_SMALL, _SMALL, shape, endpoint=True).astype(kind)
    array = random.standard_normal(shape).astype(kind)
    if case == SPECIAL and array.size:
        places = random.integers(0, array.size, len(_SPECIALS))
        array.reshape(-1)[places] = np.array(_SPECIALS).astype(kind)
    return array


def _range(dtype: str) -> tuple[int, int]:
    """The least and the greatest number to draw: all of a byte, since products of bytes saturate at the ends."""
    limits: Any = ml_dtypes.iinfo(numpy_dtype(dtype))  # type: ignore[no-untyped-call]
    return (int(limits.min), int(limits.max)) if limits.bits <= 8 else (max(int(limits.min), -_SOME), _SOME)
