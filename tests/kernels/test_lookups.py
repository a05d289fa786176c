"""Lookups of bytes against numpy's, by each instruction that this processor has, and by none."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest
from numba.core.errors import TypingError

from graphopt.kernels import host, lookups
from graphopt.kernels.host import ENTRIES, PERMUTATIONS, Permutation
from graphopt.runtime import cpu
from tests.kernels.test_masks import fenced  # noqa: F401 - a fixture
from tests.kernels.test_vectors import compiled

Array = np.ndarray[Any, Any]
CODES = ["int8", "uint8"]


def looked_up(table: Array, codes: Array, lanes: int) -> Array:
    """The entries of a table of bytes by codes, so many at a time."""
    out = np.zeros(codes.size, table.dtype)
    compiled(f"""
def kernel(table, codes, out, n):
    p, c, q = pointer(table, {table.dtype}), pointer(codes, {codes.dtype}), pointer(out, {table.dtype})
    for i in range(0, n, {lanes}):
        store(q, i, lookup(p, load(c, i, {lanes})))
""")(table.ctypes.data, codes.ctypes.data, out.ctypes.data, codes.size)
    return out


@pytest.mark.parametrize("lanes", [1, 2, 16, 32, 64, 128])
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("how", [*PERMUTATIONS, None], ids=lambda how: how.name if how else "none")
def test_each_code_finds_its_entry(
    how: Permutation | None, code: str, lanes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how is not None and how.needed not in cpu.features():
        pytest.skip(f"this processor has no {how.needed}")
    monkeypatch.setattr(lookups, "permutation", lambda: how)
    random = np.random.default_rng(0)
    codes = random.permutation(np.arange(2 * ENTRIES) % ENTRIES).astype(np.uint8).view(code)
    for dtype in CODES:
        table = random.integers(0, 256, ENTRIES).astype(np.uint8).view(dtype)
        got = looked_up(table, codes, lanes)
        np.testing.assert_array_equal(got, table[codes.astype(int) - np.iinfo(code).min])


@pytest.mark.parametrize("start", [0, mmap.PAGESIZE - ENTRIES])
def test_nothing_beyond_the_table_is_read(start: int, fenced: Array) -> None:  # noqa: F811
    fenced[:] = np.arange(fenced.size) * 7 % 251
    codes = np.arange(ENTRIES, dtype=np.uint8)
    table = fenced[start : start + ENTRIES]
    np.testing.assert_array_equal(looked_up(table, codes, 64), table)


def test_the_best_instruction_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    for how in PERMUTATIONS:
        monkeypatch.setattr(host, "vector_bytes", lambda how=how: how.lanes)
        monkeypatch.setattr(cpu, "features", lambda how=how: frozenset({"ssse3", how.needed}))
        assert host.permutation() == how
    monkeypatch.setattr(cpu, "features", frozenset)
    assert host.permutation() is None


def test_only_half_a_table_at_once_is_looked_up_soon() -> None:
    how = host.permutation()
    assert host.looks_up() == (how is not None and how.entries == ENTRIES // 2)


@pytest.mark.parametrize(("table", "codes"), [("float32", "int8"), ("uint8", "int16")])
def test_only_bytes_are_looked_up(table: str, codes: str) -> None:
    with pytest.raises(TypingError, match="expected bytes"):
        looked_up(np.zeros(ENTRIES, table), np.zeros(16, codes), 16)
