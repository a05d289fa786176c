"""Numbers for convolutions: pads, positions as channels, fast products."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.rewrite.guards import convolutions as c
from graphopt.rewrite.guards.comparison import Unknown


def test_pads_of_channels() -> None:
    assert c.channel_pads(4, 3) == (0, 0, 0, 0, 0, 3, 0, 0)
    assert c.channels_added((0, 0, 0, 0, 0, 3, 0, 0)) == 3
    assert c.output_pads(3, 2) == (0, 0, 0, 2, 0, 0)
    with pytest.raises(ValueError, match="more than add channels"):
        c.channels_added((0, 0, 1, 0, 0, 3, 0, 0))


def test_positions_fill_a_block_of_channels() -> None:
    assert c.in_row((8, 8, 3, 39), (1, 1)) == (1, 2)
    assert c.in_row((1, 1, 1, 256), (1, 2)) == (1, 16)
    assert c.in_square((1, 8, 5, 5), (1, 1)) == (4, 4)
    assert c.in_square((64, 64, 3, 3), (1, 1)) == (1, 1)
    assert c.in_row((16, 3, 3, 3), (2, 2)) == (1, 1)


@pytest.mark.parametrize(("size", "stride", "positions"), [(23, 1, 4), (22, 2, 2), (17, 3, 4)])
def test_the_larger_kernel_reaches_all_positions(size: int, stride: int, positions: int) -> None:
    pads, kernel = (1, 1), 3
    out = (size + sum(pads) - kernel) // stride + 1
    (begin, end) = c.folded_pads((size,), (out,), (kernel,), (stride,), pads, (positions,))
    (reach,) = c.folded_kernel((kernel,), (stride,), (positions,))
    assert (size + begin + end - reach) // (stride * positions) + 1 == -(-out // positions)


def test_placements() -> None:
    kernel = np.arange(1.0, 4.0)
    placed = (kernel @ c.placements((1, 3), (1, 2), (1, 2))).reshape(2, 5)
    np.testing.assert_array_equal(placed, [[1, 2, 3, 0, 0], [0, 0, 1, 2, 3]])


@pytest.mark.parametrize("taps", [3, 4, 5])
def test_toom_cook(taps: int) -> None:
    random = np.random.default_rng(taps)
    line, kernel = random.standard_normal(taps + 3), random.standard_normal(taps)
    transformed = c.toom_cook_input(taps).reshape(taps + 3, taps + 3) @ line
    made = c.toom_cook_output(taps) @ (transformed * (c.toom_cook_kernel(taps) @ kernel))
    np.testing.assert_allclose(made, np.correlate(line, kernel, "valid"), atol=1e-9)


def test_toom_cook_has_points_for_few_taps() -> None:
    with pytest.raises(Unknown):
        c.toom_cook_kernel(8)


def test_winograd() -> None:
    random = np.random.default_rng(0)
    tile, kernel = random.standard_normal((6, 6)), random.standard_normal((3, 3))
    products = (c.winograd_input().reshape(36, 36) @ tile.ravel()) * (c.winograd_kernel() @ kernel.ravel())
    made = (c.winograd_output() @ products).reshape(4, 4).T
    wanted = [[(tile[i : i + 3, j : j + 3] * kernel).sum() for j in range(4)] for i in range(4)]
    np.testing.assert_allclose(made, wanted, atol=1e-9)


def test_pads_of_tiles() -> None:
    assert c.winograd_tiles((14, 13)) == (4, 4)
    assert c.winograd_pads((14, 14), (14, 14), (1, 1, 1, 1)) == (1, 1, 3, 3)
    assert c.line_pads(512, 508, 5, None) == (0, 0, 0, 0)
    assert c.line_pads(9, 9, 3, (1, 0, 1, 0)) == (0, 1, 0, 4)
    assert c.is_line((1, 9), (1, 3), (1, 7))
    assert not c.is_line((1, 9), (3, 1), (1, 7))
