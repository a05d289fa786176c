"""Indexing and reshaping of tensors, as numpy writes them, in ONNX's ops."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.types import Dim, Size, symbol
from graphopt.nn.scope import one

if TYPE_CHECKING:
    from graphopt.nn.tensor import Tensor

_FAR = np.iinfo(np.int64).max


def reshaped(x: Tensor, shape: Sequence[Any]) -> Tensor:
    """The tensor in another shape; open sizes are copied or left to be told wherever Reshape can."""
    wanted = [_size(s) for s in shape]
    if wanted.count(-1) > 1:
        raise UsageError(f"one size may be -1, and {tuple(shape)} has several")
    if 0 not in wanted:
        old = x.shape
        spelled: list[Size] = [
            0 if isinstance(s, Dim) and k < len(old) and old[k] == s else s for k, s in enumerate(wanted)
        ]
        rest = [k for k, s in enumerate(spelled) if isinstance(s, Dim)]
        if len(rest) == 1 and -1 not in spelled and prod(wanted) == x.type.size:
            spelled[rest.pop()] = -1
        if not rest:
            return one("Reshape", [x, np.array(spelled, np.int64)])
    attrs = {"allowzero": 1} if 0 in wanted else {}
    return one("Reshape", [x, shape_tensor(x, wanted)], **attrs)


def shape_tensor(x: Tensor, sizes: Sequence[Any]) -> Tensor:
    """The sizes as an int64 tensor of the graph that ``x`` is in."""
    scope = x.scope
    return scope.tensor(scope.shape([_size(s) for s in sizes]))


def indexed(x: Tensor, key: Any) -> Tensor:
    """``x[key]``. UsageError for what is no index of it."""
    from graphopt.nn.tensor import Tensor

    if isinstance(key, Tensor):
        return one("Gather", [x, key], axis=0)
    keys = _spread(x, key if isinstance(key, tuple) else (key,))
    bounds = [(axis, k) for axis, k in enumerate(k for k in keys if k is not None) if k != slice(None)]
    result = _sliced(x, [(axis, k) for axis, k in bounds if isinstance(k, slice)])
    for axis, k in reversed(bounds):
        if not isinstance(k, slice):
            result = one("Gather", [result, np.int64(k)], axis=axis)
    new = [position for position, k in enumerate(k for k in keys if not isinstance(k, int)) if k is None]
    return result.unsqueeze(new) if new else result


def axis_of(x: Tensor, axis: int, extra: int = 0) -> int:
    """The axis as a number from 0. UsageError where the tensor, with so many axes more, has none such."""
    if not isinstance(axis, int) or not -x.rank <= axis < x.rank + extra:
        raise UsageError(f"{x!r} has no axis {axis}")
    return axis % x.rank if axis < 0 else axis


def _spread(x: Tensor, keys: tuple[Any, ...]) -> list[Any]:
    """The index of each axis in order, and None for each new one."""
    plain = [int(k) if isinstance(k, int | np.integer) and not isinstance(k, bool) else k for k in keys]
    if not all(k is None or k is Ellipsis or (isinstance(k, int | slice) and not isinstance(k, bool)) for k in plain):
        raise UsageError(f"{x!r} is indexed by numbers, slices, None and ..., or by one tensor of integers")
    dots = [position for position, k in enumerate(plain) if k is Ellipsis] or [len(plain)]
    missing = x.rank - sum(k is not None and k is not Ellipsis for k in plain)
    if missing < 0 or len(dots) > 1:
        raise UsageError(f"{x!r} has {x.rank} axes: there are more indices, or more than one ...")
    return [*plain[: dots[0]], *[slice(None)] * missing, *plain[dots[0] + 1 :]]


def _sliced(x: Tensor, slices: Sequence[tuple[int, slice]]) -> Tensor:
    if not slices:
        return x
    steps = [1 if s.step is None else s.step for _, s in slices]
    pairs = list(zip(slices, steps, strict=True))
    starts = [(0 if step > 0 else _FAR) if s.start is None else s.start for (_, s), step in pairs]
    ends = [(_FAR if step > 0 else -_FAR) if s.stop is None else s.stop for (_, s), step in pairs]
    axes = np.array([axis for axis, _ in slices], np.int64)
    places: list[Any] = [shape_tensor(x, starts), shape_tensor(x, ends), axes, np.array(steps, np.int64)]
    return one("Slice", [x, *places])


def _size(size: Any) -> Size:
    """A size as a user gives it: a number, a name, or what a shape holds."""
    if isinstance(size, str):
        return symbol(size)
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        return int(size)
    if isinstance(size, Dim):
        return size
    raise UsageError(f"a size is a number, a name, or what a shape holds, not {size!r}")
