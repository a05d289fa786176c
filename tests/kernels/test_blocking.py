"""Blocks of products fill the caches of any processor, and no more."""

from pathlib import Path

import pytest

from graphopt.kernels import blocking
from graphopt.runtime import cpu


@pytest.mark.parametrize("first", [1 << 14, 3 << 14])
@pytest.mark.parametrize("second", [1 << 18, 1 << 21])
def test_blocks_fit_the_caches(monkeypatch, first, second):
    monkeypatch.setattr(cpu, "cache_bytes", lambda level: {1: first, 2: second}[level])
    for step in (16, 100, 256):
        deep = blocking.depth(step)
        assert deep * step <= first * 3 // 4 < (deep + 1) * step
    for row, rows in ((100, 12), (4096, 6), (second, 12)):
        height = blocking.height(row, rows)
        assert height % rows == 0
        assert height == rows or height * row <= second // 4 < (height + rows) * row


@pytest.mark.parametrize("row", [0, 1, 63, 64, 65, 128, 1536, 4096])
def test_rows_lie_an_odd_number_of_lines_apart(row):
    stride = blocking.stride(row)
    assert stride % 64 == 0
    assert stride // 64 % 2 == 1
    assert row < stride <= row + 128


def test_numbers_are_put_in_for_the_names_that_a_source_gives_them():
    plain = (Path(blocking.__file__).parent / "product_loops.py").read_text(encoding="utf-8").splitlines()
    made = blocking.loops("product_loops.py", {"LANES": 7, "ROWS": 5}).splitlines()
    changed = [new for old, new in zip(plain, made, strict=True) if old != new]
    assert changed == ["LANES = 7", "ROWS = 5"]
