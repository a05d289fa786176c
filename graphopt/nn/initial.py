"""Initial values of parameters: the distributions that they are sampled from where no file has them."""

from __future__ import annotations

from math import sqrt

import numpy as np

from graphopt.ir.constants import Array
from graphopt.nn.tensor import Initial


def uniform(fan_in: int) -> Initial:
    """Evenly within 1 / sqrt(fan_in) of 0, as torch does for weights that sum up so many products."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        bound = 1 / sqrt(max(fan_in, 1))
        return random.uniform(-bound, bound, shape)

    return draw


def constant(value: float) -> Initial:
    """All the same."""

    def draw(random: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.full(shape, value)

    return draw
