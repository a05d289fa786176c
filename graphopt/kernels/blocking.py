"""How much of a product is worked on at a time, so that it stays in registers and caches, and loops for that."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from graphopt.kernels import host
from graphopt.runtime import cpu

_LINE = 64
"""Bytes of a line of a cache."""


def rows() -> int:
    """How many rows a tile has at most: its sums, two vectors a row, take three quarters of the registers."""
    return host.registers() * 3 // 8


def depth(step: int) -> int:
    """How many steps of the sums are done at a time, of so many bytes each: they take three quarters of the first
    cache."""
    return cpu.cache_bytes(1) * 3 // 4 // step


def height(row: int, rows: int) -> int:
    """How many rows, of so many bytes each, are done between two readings of the second operand: they take a quarter of
    the second cache, and are a multiple of ``rows``."""
    return max(cpu.cache_bytes(2) // 4 // row // rows, 1) * rows


def stride(row: int) -> int:
    """How far apart rows of so many bytes are laid out: an odd number of lines, so that they do not meet in caches."""
    return (row // _LINE + 1 | 1) * _LINE


def loops(file: str, numbers: Mapping[str, int]) -> str:
    """The source of a module beside this one, with numbers in the place of those that it gives names to."""
    text = (Path(__file__).parent / file).read_text(encoding="utf-8")
    for word, number in numbers.items():
        text = re.sub(rf"^{word} = .*$", f"{word} = {number}", text, flags=re.MULTILINE)
    return text
