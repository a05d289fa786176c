"""Blocks of products fill the caches of any processor, and no more."""

import pytest

from graphopt.kernels import product_form
from graphopt.runtime import cpu


@pytest.mark.parametrize("first", [1 << 14, 3 << 14])
@pytest.mark.parametrize("second", [1 << 18, 1 << 21])
def test_blocks_fit_the_caches(monkeypatch, first, second):
    monkeypatch.setattr(cpu, "cache_bytes", lambda level: {1: first, 2: second}[level])
    for step in (16, 100, 256):
        deep = product_form.depth(step)
        assert deep * step <= first * 3 // 4 < (deep + 1) * step
    for row, rows in ((100, 12), (4096, 6), (second, 12)):
        height = product_form.height(row, rows)
        assert height % rows == 0
        assert height == rows or height * row <= second // 4 < (height + rows) * row


@pytest.mark.parametrize("row", [0, 1, 63, 64, 65, 128, 1536, 4096])
def test_rows_lie_an_odd_number_of_lines_apart(row):
    stride = product_form.stride(row)
    assert stride % 64 == 0
    assert stride // 64 % 2 == 1
    assert row < stride <= row + 128


TEXT = """
LANES = 16
GROUP = 1
ROWS = 12


def kernel(a, b, n, zero):
    far = 2 if GROUP == 1 else zero
    if GROUP == 4:
        a[n] = zero
    elif n == 0:
        a[n] = LANES * far
    return b
"""


@pytest.mark.parametrize(
    ("group", "body"),
    [
        (1, "kernel(a, b, n):\n    far = 2\n    if n == 0:\n        a[n] = LANES * far\n    return b"),
        (4, "kernel(a, b, n, zero):\n    far = zero\n    a[n] = zero\n    return b"),
    ],
)
def test_loops_are_specialized_by_what_constants_decide(group, body):
    made = product_form.specialized(TEXT, {"LANES": 7, "GROUP": group})
    assert made == f"LANES = 7\nGROUP = {group}\nROWS = 12\n\ndef {body}"


@pytest.mark.parametrize("kind", product_form.KINDS)
def test_only_bytes_have_zero_points(kind):
    made = product_form.source(kind, 6, 8)
    assert ("def kernel(c, a, b, za, zb," in made) == (product_form.KINDS[kind].group == 4)
    assert "if GROUP" not in made
