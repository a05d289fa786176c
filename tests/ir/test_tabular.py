"""Leaves have bounds, and probabilities of classes that agree with those of all pairs are found."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import compute
from graphopt.ir.graph import Attrs
from graphopt.ir.infer import infer_node
from graphopt.ir.ops import LATEST
from graphopt.ir.tabular import CLOSE, LEAVES, SHARES


def test_leaves() -> None:
    x = np.array([[0.0, 5.0], [2.0, 5.0], [np.nan, 5.0]], np.float32)
    roots, features = np.array([2], np.int32), np.array([0, 0, 0], np.int32)
    splits, limits = np.array([0, 0, 1], np.float32), np.array([2, 1, 1], np.int32)
    children = np.array([[0, 0], [1, 1], [0, 1]], np.int32)
    operands = [x, roots, features, splits, children, limits]
    assert compute(LEAVES, Attrs(), operands, 1)[0].tolist() == [[1, 0, 0]]
    (fact,) = infer_node(LEAVES, Attrs(), [fact_of(Constant.of(a)) for a in operands], 1, LATEST)
    assert (fact.dtype, fact.shape, fact.low, fact.high) == ("int32", (1, 3), 0, 1)


def test_shares() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(4), 5)
    pairs = [p[:, i] / (p[:, i] + p[:, j]) for i, j in combinations(range(4), 2)]
    (got,) = compute(SHARES, Attrs(classes=4), [np.float32(pairs).T], 1)
    np.testing.assert_allclose(got, p, atol=20 * CLOSE)
    np.testing.assert_allclose(got.sum(1), 1, rtol=1e-5)
