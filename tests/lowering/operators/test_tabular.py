"""Leaves of trees and probabilities of pairs: descriptions against what the ops mean."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import Array
from graphopt.ir.tabular import LEAVES, SHARES
from graphopt.lowering.operators.tabular import FEW, LANES
from tests.lowering.operators.lowered import agree


def trees(count: int, depth: int, width: int) -> list[Array]:
    """Random trees as operands: roots, features, splits and children, leaves first."""
    rng = np.random.default_rng(count)
    leaves = count * (depth + 1)
    features, splits = [0] * leaves, [0.0] * leaves
    children = [[k] * width for k in range(leaves)]
    roots = []
    for tree in range(count):  # each branch has a leaf on one side, and the next on the other
        first, below = tree * (depth + 1), tree * (depth + 1)
        for level in range(depth):
            features.append(int(rng.integers(3)))
            splits.append(float(rng.choice([-0.5, 0.0, 0.5])))
            pair = [below, first + level + 1]
            children.append([*(pair if rng.random() < 0.5 else pair[::-1]), pair[level % 2]][:width])
            below = len(children) - 1
        roots.append(below)
    tables = [np.array(part, np.int32) for part in (roots, features, children, [leaves, depth, 3])]
    return [*tables[:2], np.array(splits, np.float32), *tables[2:]]


@pytest.mark.parametrize("width", [2, 3])
@pytest.mark.parametrize("rows", [0, 1, LANES, LANES + 3])
@pytest.mark.parametrize("count", [1, FEW - 1, FEW, LANES + 1])
def test_leaves(count: int, rows: int, width: int) -> None:
    rng = np.random.default_rng(rows)
    x = rng.choice([-0.75, -0.5, 0.0, 0.25, 0.5, np.nan], (rows, 3)).astype(np.float32)
    operands = trees(count, 1 + count % 6, width)
    shapes = [("n", 3), *(a.shape for a in operands)]
    agree(LEAVES, [x, *operands], shapes)


def test_trees_of_one_leaf() -> None:
    x = np.zeros((3, 3), np.float32)
    agree(LEAVES, [x, *trees(2, 0, 2)])


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("rows", [0, 1, 6])
def test_shares(rows: int, classes: int) -> None:
    pairs = classes * (classes - 1) // 2
    x = np.random.default_rng(classes).uniform(0.01, 0.99, (rows, pairs)).astype(np.float32)
    agree(SHARES, [x], [("n", pairs)], classes=classes)
