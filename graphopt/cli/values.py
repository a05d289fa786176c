"""Option values such as ``x=1,3,640,640`` and ``nodes=20000,seconds=10``, parsed and checked."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from graphopt.errors import UsageError

LARGEST = (1 << 63) - 1
"""The largest size that ONNX can state."""


def shapes(options: Iterable[str]) -> dict[str, tuple[int, ...]]:
    """``--shape NAME=1,3,640,640``, repeatable: shapes by input."""
    return {
        name: tuple(_size("--shape", o, n) for n in value.split(",") if n)
        for name, value, o in _pairs("--shape", options)
    }


def dims(options: Iterable[str]) -> dict[str, int]:
    """``--dim N=1``, repeatable: sizes by the name of the dimension."""
    return {name: _size("--dim", option, value) for name, value, option in _pairs("--dim", options)}


def inputs(options: Iterable[str]) -> dict[str, str]:
    """``--input x=FILE.npy`` or ``--input x=0..1000``, repeatable: what follows the sign, by input."""
    return {name: value for name, value, _ in _pairs("--input", options)}


LIMITS = ("nodes", "rows", "builds", "members", "iters", "seconds", "unroll")
"""What ``--budget`` limits."""


def budget(option: str) -> dict[str, Any]:
    """``--budget nodes=N,rows=N,builds=N,members=N,iters=N,seconds=S,unroll=N``: numbers by what they limit."""
    limits: dict[str, Any] = {}
    for name, value, _ in _pairs("--budget", option.split(",")):
        if name not in LIMITS:
            known = f"{', '.join(LIMITS[:-1])} and {LIMITS[-1]}"
            raise UsageError(f"--budget {option}: {name!r} is no limit; there are {known}")
        try:
            limits[name] = float(value) if name == "seconds" else int(value)
        except ValueError:
            raise UsageError(f"--budget {option}: {value!r} is not a number") from None
        if not limits[name] >= 0:
            raise UsageError(f"--budget {option}: {name} must not be negative")
    return limits


def draws(option: str) -> int | str:
    """``--verify N|off|require|full``: the number of draws, or the word."""
    if option in ("off", "require", "full"):
        return option
    if option.isdecimal():
        return int(option) or "off"
    raise UsageError(f"--verify {option}: expected a number of random inputs, off, require, or full")


def nbytes(option: str | None) -> int | None:
    """``--memory 512MB``: bytes, by the powers of 1024; None where it is not given."""
    if option is None:
        return None
    digits = option.strip().upper().removesuffix("B").removesuffix("I")
    unit = "KMGT".find(digits[-1:]) + 1 if digits[-1:] else 0
    number = digits[:-1] if unit else digits
    if not number.isdecimal() or int(number) < 1:
        raise UsageError(f"--memory {option}: expected a number of bytes, such as 512MB or 4GB")
    return int(number) << 10 * unit


def number(option: str, value: float | None, smallest: float | None = None) -> None:
    """Refuse what is no number, which every comparison would let through, and what is below the smallest."""
    if value is None:
        return
    if value != value:
        raise UsageError(f"{option} {value}: expected a number")
    if smallest is not None and value < smallest:
        raise UsageError(f"{option} {value:g}: expected at least {smallest:g}")


def _pairs(option: str, values: Iterable[str]) -> list[tuple[str, str, str]]:
    """Name, value and the whole text of each ``name=value``. Names may hold ``=``, values may not."""
    pairs: list[tuple[str, str, str]] = []
    for text in values:
        name, sign, value = text.rpartition("=")
        if not sign or not name or not value:
            raise UsageError(f"{option} {text}: expected NAME=VALUE")
        if any(name == earlier for earlier, _, _ in pairs):
            raise UsageError(f"{option} {text}: {name!r} is given twice")
        pairs.append((name, value, text))
    return pairs


def _size(option: str, text: str, number: str) -> int:
    try:
        size = int(number)
    except ValueError:
        raise UsageError(f"{option} {text}: {number!r} is not a size") from None
    if size < 0:
        raise UsageError(f"{option} {text}: a size is not negative")
    if size > LARGEST:
        raise UsageError(f"{option} {text}: a size is at most {LARGEST}")
    return size


def counts(option: str, value: str) -> list[int]:
    """``1,2``: numbers of 1 or more."""
    parts = value.split(",")
    if not all(p.strip().isdecimal() and int(p) >= 1 for p in parts):
        raise UsageError(f"{option} {value}: expected a number of 1 or more, or several with commas between them")
    return [int(p) for p in parts]
