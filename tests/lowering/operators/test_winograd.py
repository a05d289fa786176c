"""Convolutions by tiles, interpreted: strips by themselves and from a transform of the whole image."""

import numpy as np
import pytest

from graphopt.ir.blocked import packed
from graphopt.ir.constants import Array
from graphopt.ir.winograd import TILES, transformed
from tests.lowering.operators.lowered import agree

RNG = np.random.default_rng(4)


def array(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def weights(wide: int, deep: int, tile: int) -> Array:
    return transformed(packed(array(wide, deep, 3, 3), 16, "blocked"), tile)


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("pads", [(1, 1, 1, 1), (0, 2, 3, 0)])
def test_images_of_known_sizes(tile: int, pads: tuple[int, ...]) -> None:
    agree(
        "graphopt::BlockedWinogradConv",
        [array(2, 1, 5, 4, 16), weights(20, 16, tile), array(2, 16)],
        tile=tile,
        pads=pads,
    )


@pytest.mark.parametrize("tile", TILES)
@pytest.mark.parametrize("size", [(1, 7), (1, 1), (2, 0)])
def test_images_of_open_sizes(tile: int, size: tuple[int, int]) -> None:
    given = [array(2, 1, *size, 16), weights(16, 16, tile)]
    agree(
        "graphopt::BlockedWinogradConv", given, [("n", 1, "h", "w", 16), given[1].shape], tile=tile, pads=(1, 1, 1, 1)
    )


@pytest.mark.parametrize("tile", TILES)
def test_weights_that_are_not_known_ahead_of_time(tile: int) -> None:
    agree("graphopt::WinogradWeights", [packed(array(5, 3, 3, 3), 16, "blocked")], tile=tile)
