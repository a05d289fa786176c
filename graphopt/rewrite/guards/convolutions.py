"""Convolution guards: functions of rules on pads, output positions and Toom-Cook matrices."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod as product
from typing import Any

import numpy as np

from graphopt.rewrite.guards.comparison import Unknown


def channel_pads(rank: int, more: int) -> tuple[int, ...]:
    """The pads of all axes that put ``more`` channels (axis 1) behind those that are there."""
    return (0,) * (rank + 1) + (more,) + (0,) * (rank - 2)


def channels_added(pads: Sequence[int]) -> int:
    """The number of channels that pads of all axes append; ValueError where they do anything else."""
    rank = len(pads) // 2
    if any(n for i, n in enumerate(pads) if i != rank + 1) or pads[rank + 1] < 0:
        raise ValueError(f"pads {tuple(pads)} do more than add channels at the end")
    return pads[rank + 1]


def output_pads(rank: int, more: int) -> tuple[int, ...]:
    """The pads of all axes that put ``more`` outputs (axis 0) behind the weights of a convolution."""
    return (0,) * rank + (more,) + (0,) * (rank - 1)


# -- neighbouring output positions as channels: a convolution that computes them at a time fills a block of channels


BLOCK = 16
"""Channels that a runtime computes at a time."""


def in_row(weights: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The number of neighbours of a row (in height, in width) that are best computed as channels.

    (1, 1) where none saves a quarter of the work.
    """
    return _best(weights, strides, [(1, n) for n in (2, 4, 8, 16)])


def in_square(weights: Sequence[int], strides: Sequence[int]) -> tuple[int, int]:
    """The number of neighbours of a square to compute as channels; (1, 1) where none saves a quarter of the work."""
    return _best(weights, strides, [(n, n) for n in (2, 4)])


def _best(weights: Sequence[int], strides: Sequence[int], choices: Sequence[tuple[int, int]]) -> tuple[int, int]:
    def work(positions: tuple[int, int]) -> float:
        n = positions[0] * positions[1]
        height, width = folded_kernel(weights[2:], strides, positions)
        return -(-weights[0] * n // BLOCK) * BLOCK * height * width / n

    best = min(choices, key=work)
    return best if work(best) < 0.75 * work((1, 1)) else (1, 1)


def folded_kernel(kernel: Sequence[int], strides: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
    """The kernel that sees what those of all these neighbouring positions see."""
    return tuple(k + (n - 1) * s for k, s, n in zip(kernel, strides, positions, strict=True))


def folded_pads(
    size: Sequence[int],
    out: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int] | None,
    positions: Sequence[int],
) -> tuple[int, ...]:
    """The pads with which the larger kernel reaches every position of the output, whatever the sizes."""
    begins = tuple(pads or ())[: len(size)] or (0,) * len(size)
    reach = folded_kernel(kernel, strides, positions)
    ends = (
        (-(-o // n) - 1) * s * n + k - i - begin
        for i, o, k, s, n, begin in zip(size, out, reach, strides, positions, begins, strict=True)
    )
    return (*begins, *(max(end, 0) for end in ends))


def folded_weights(weights: Sequence[int], strides: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
    """The shape of the weights that compute these neighbouring positions as channels."""
    return (product(positions) * weights[0], weights[1], *folded_kernel(weights[2:], strides, positions))


def row_order(out: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
    """The shape (but the batch) in which neighbours of a row that were computed as channels can be transposed."""
    return (product(positions), out[0] * out[1] * -(-out[2] // positions[1]))


def row_filled(out: Sequence[int], positions: Sequence[int]) -> tuple[int, ...]:
    """The shape (but the batch) of the output, its rows rounded up to whole groups of neighbours."""
    return (out[0], out[1], positions[1] * -(-out[2] // positions[1]))


def placements(kernel: Sequence[int], strides: Sequence[int], positions: Sequence[int]) -> Any:
    """For each of the neighbouring positions, the matrix that places a kernel (as a row) in the larger kernel."""
    height, width = folded_kernel(kernel, strides, positions)
    weights = np.zeros((*positions, *kernel, height, width), dtype=np.float32)
    for a, b, i, j in np.ndindex(*positions, *kernel):
        weights[a, b, i, j, a * strides[0] + i, b * strides[1] + j] = 1.0
    return weights.reshape(positions[0] * positions[1], kernel[0] * kernel[1], height * width)


# -- Winograd's minimal filtering F(4x4, 3x3): tiles of 4 x 4 outputs from tiles of 6 x 6 inputs, in 36 products

_INPUT = np.array([
    [4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0],
    [0, 4, 0, -5, 0, 1],
], dtype=np.float64)  # fmt: skip
_KERNEL = np.array([
    [1 / 4, 0, 0], [-1 / 6, -1 / 6, -1 / 6], [-1 / 6, 1 / 6, -1 / 6], [1 / 24, 1 / 12, 1 / 6], [1 / 24, -1 / 12, 1 / 6],
    [0, 0, 1],
], dtype=np.float64)  # fmt: skip
_OUTPUT = np.array(
    [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], dtype=np.float64
)


def winograd_input() -> Any:
    """The weights [36, 1, 6, 6] of a convolution that transforms the input, one channel at a time."""
    return np.kron(_INPUT, _INPUT).reshape(36, 1, 6, 6)


def winograd_kernel() -> Any:
    """The matrix [36, 9] that transforms a kernel of 3 x 3."""
    return np.kron(_KERNEL, _KERNEL)


def winograd_output() -> Any:
    """The matrix [16, 36] that transforms products to outputs, column by column of the tile."""
    return np.kron(_OUTPUT, _OUTPUT).reshape(4, 4, 36).transpose(1, 0, 2).reshape(16, 36)


def winograd_tiles(out: Sequence[int]) -> tuple[int, int]:
    """The number of tiles of 4 x 4 in an output, down and across."""
    return (-(-out[0] // 4), -(-out[1] // 4))


def winograd_pads(size: Sequence[int], out: Sequence[int], pads: Sequence[int] | None) -> tuple[int, ...]:
    """The pads with which tiles of 6 x 6, four apart, reach all that a padded convolution of 3 x 3 reads."""
    begins = tuple(pads or (0, 0))[:2]
    ends = (4 * n + 2 - i - b for n, i, b in zip(winograd_tiles(out), size, begins, strict=True))
    return (*begins, *ends)


# -- Toom and Cook's products of polynomials F(4, r): four outputs of a line from r + 3 inputs, in r + 3 products

_POINTS = (0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5)
"""Where the polynomials are evaluated, besides infinity: numbers whose powers stay small."""


def toom_cook_input(taps: int) -> Any:
    """The weights [taps + 3, 1, 1, taps + 3] of a convolution that transforms the input, one channel at a time."""
    points = _points(taps)
    rows = [np.pad(_with_roots(np.delete(points, i)), (0, 1)) for i in range(len(points))]
    return np.stack([*rows, _with_roots(points)]).reshape(taps + 3, 1, 1, taps + 3)


def toom_cook_kernel(taps: int) -> Any:
    """The matrix [taps + 3, taps] that transforms a kernel."""
    points = _points(taps)
    scales = [np.prod(p - np.delete(points, i)) for i, p in enumerate(points)]
    return np.vstack([np.vander(points, taps, increasing=True) / np.array(scales)[:, None], np.eye(taps)[-1:]])


def toom_cook_output(taps: int) -> Any:
    """The matrix [4, taps + 3] that transforms products to outputs."""
    return np.vstack([np.vander(_points(taps), 4, increasing=True), np.eye(4)[-1:]]).T


def _points(taps: int) -> Any:
    if not 3 <= taps <= len(_POINTS) - 2:
        raise Unknown(f"there is no fast convolution of {taps} taps here")
    return np.array(_POINTS[: taps + 2])


def _with_roots(points: Any) -> Any:
    """The coefficients, the lowest first, of the polynomial with these roots."""
    return np.poly(points)[::-1]


def is_line(*shapes: Sequence[Any]) -> bool:
    """Whether all of these images (height, width) have one pixel across, in the same direction."""
    return any(all(s[k] == 1 for s in shapes) for k in (0, 1))


def line_pads(size: int, out: int, taps: int, pads: Sequence[int] | None) -> tuple[int, ...]:
    """The pads with which tiles of ``taps + 3``, four apart, reach all that a padded convolution along a line reads."""
    begin = max((pads or (0, 0))[:2])
    return (0, begin, 0, 4 * -(-out // 4) + taps - 1 - size - begin)
