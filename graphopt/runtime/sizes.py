"""Sizes: numbers that a program knows only when its inputs have shapes, as expressions over symbols."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

from graphopt.errors import InputError

Size: TypeAlias = "int | str | tuple[Any, ...]"
"""A number, a symbol, or an operation with its arguments: ``("*", 2, ("+", "n", 1))``.

Operations: ``+ * max min`` of any number of arguments; ``-``, ``//`` and ``%`` (rounding down) of two; ``broadcast``
of any number is the size that axes of these sizes have together, and an error where they do not go together.
Conditions are 1 where they hold, else 0: ``== != < <= > >= and or`` of two.
"""


def evaluate(size: Size, symbols: Mapping[str, int]) -> int:
    """The number that a size is; raises ``InputError`` where it has none, ``KeyError`` where a symbol is unknown."""
    if isinstance(size, int):
        return size
    if isinstance(size, str):
        return symbols[size]
    operation = _OPERATIONS[size[0]]
    try:
        return operation([evaluate(s, symbols) for s in size[1:]])
    except ZeroDivisionError:
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
_OPERATIONS: Mapping[str, Callable[[list[int]], int]] = {
    "+": sum,
    "-": lambda a: a[0] - a[1],
    "*": lambda a: reduce(int.__mul__, a, 1),
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
}
