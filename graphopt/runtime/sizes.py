"""Sizes: numbers that a program knows only when its inputs have shapes, as expressions over symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from math import ceil, floor, sqrt
from operator import mul
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import InputError

Size: TypeAlias = "int | float | str | tuple[Any, ...]"
"""A number, a symbol, or an operation with its arguments: ``("*", 2, ("+", "n", 1))``.

Operations: ``+ * max min`` of any number of arguments; ``-``, ``//`` and ``%`` (rounding down) of two; ``broadcast``
of any number is the size that axes of these sizes have together, and an error where they do not go together.
Conditions are 1 where they hold, else 0: ``== != < <= > >= and or`` of two.
``trunc`` is the whole part of a float: one that ``float32`` or ``float64`` rounds another to, ``/`` of two, or
``abs ceil floor neg round sqrt`` of one.
"""


def evaluate(size: Size, symbols: Mapping[str, int]) -> Any:
    """The number that a size is; raises ``InputError`` where it has none, ``KeyError`` where a symbol is unknown."""
    if isinstance(size, int | float):
        return size
    if isinstance(size, str):
        return symbols[size]
    operation = _OPERATIONS[size[0]]
    try:
        return operation([evaluate(s, symbols) for s in size[1:]])
    except InputError:
        raise
    except (ArithmeticError, ValueError):
        values = {name: symbols[name] for name in symbols_of(size)}
        raise InputError(
            f"the size {show(size)} divides by zero, with {values}: inputs of this shape cannot be run"
        ) from None


def symbols_of(size: Size) -> Iterator[str]:
    """The symbols in a size, each as often as it occurs."""
    if isinstance(size, str):
        yield size
    elif isinstance(size, tuple):
        for part in size[1:]:
            yield from symbols_of(part)


def show(size: Size) -> str:
    """A size as people write it."""
    if not isinstance(size, tuple):
        return str(size)
    operation, *parts = size
    shown = [f"({show(p)})" if isinstance(p, tuple) and p[0] in _INFIX else show(p) for p in parts]
    return f" {operation} ".join(shown) if operation in _INFIX else f"{operation}({', '.join(shown)})"


def _broadcast(sizes: Sequence[int]) -> int:
    wide = {s for s in sizes if s != 1}
    if len(wide) > 1:
        raise InputError(
            f"axes of sizes {' and '.join(map(str, sizes))} do not go together: expected equal sizes, or 1"
        )
    return wide.pop() if wide else 1


_INFIX = frozenset({"+", "-", "*", "//", "%", "==", "!=", "<", "<=", ">", ">=", "and", "or"})
_OPERATIONS: Mapping[str, Callable[[list[Any]], Any]] = {
    "+": sum,
    "-": lambda a: a[0] - a[1],
    "*": lambda a: reduce(mul, a, 1),
    "//": lambda a: a[0] // a[1],
    "%": lambda a: a[0] % a[1],
    "max": max,
    "min": min,
    "broadcast": _broadcast,
    "==": lambda a: int(a[0] == a[1]),
    "!=": lambda a: int(a[0] != a[1]),
    "<": lambda a: int(a[0] < a[1]),
    "<=": lambda a: int(a[0] <= a[1]),
    ">": lambda a: int(a[0] > a[1]),
    ">=": lambda a: int(a[0] >= a[1]),
    "and": min,
    "or": max,
    "/": lambda a: a[0] / a[1],
    "abs": lambda a: abs(a[0]),
    "ceil": lambda a: ceil(a[0]),
    "float32": lambda a: float(np.float32(a[0])),
    "float64": lambda a: float(a[0]),
    "floor": lambda a: floor(a[0]),
    "neg": lambda a: -a[0],
    "round": lambda a: round(a[0]),
    "sqrt": lambda a: sqrt(a[0]),
    "trunc": lambda a: int(a[0]),
}
