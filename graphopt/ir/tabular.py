"""Ops of our own that feature ops are said in: leaves of trees, and probabilities of classes from those of pairs;
semantics and type inference."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from graphopt.ir.call import ApplyOp, Arrays, OpCall
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.ir.infer_shapes import Types
from graphopt.ir.types import TensorType

LEAVES, SHARES = "graphopt::TreeLeaves", "graphopt::CoupledShares"
STEPS = 100
"""How often probabilities are improved, at most."""
CLOSE = 0.005
"""Divided by the number of classes, how far they may be off (ONNX Runtime's number, as LIBSVM's)."""


def _leaves(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """From its root on, each tree goes on to the first child where a feature is above the split, to the second where it
    is not, and with NaN to the third, or the first where there are two. There are limits: how many leaves there are,
    which come first and lead to themselves, how many branches to one, and how many features are asked for."""
    table, roots, features, splits, children, limits = (a for a in x if a is not None)
    at = np.repeat(roots[:, None], len(table), 1)
    rows = np.arange(len(table))
    for _ in range(limits[1]):
        values = table[rows, features[at]]
        answer = np.where(np.isnan(values), children.shape[1] // 3 * 2, values <= splits[at])
        at = children[at, answer]
    return (at.astype(np.int32),)


def _shares(apply: ApplyOp, attrs: Attrs, x: Arrays) -> tuple[Array, ...]:
    """The probabilities of classes that go best with those of the first of each pair (Wu, Lin and Weng 2004)."""
    (given,) = (a for a in x if a is not None)
    count = attrs["classes"]
    assert isinstance(count, int)
    pair = np.zeros((len(given), count, count), np.float32)
    for k, (i, j) in enumerate(combinations(range(count), 2)):
        pair[:, i, j], pair[:, j, i] = given[:, k], 1 - given[:, k]
    q = -pair * pair.transpose(0, 2, 1)
    q[:, range(count), range(count)] = (pair**2).sum(1)
    p = np.full((len(given), count), np.float32(1 / count), np.float32)
    for row in range(len(given)):
        for _ in range(STEPS):
            qp = q[row] @ p[row]
            pqp = p[row] @ qp
            if np.abs(qp - pqp).max() < np.float32(CLOSE / count):
                break
            for i in range(count):
                step = (pqp - qp[i]) / q[row, i, i]
                p[row, i] += step
                pqp = (pqp + step * (step * q[row, i, i] + 2 * qp[i])) / (1 + step) / (1 + step)
                qp = (qp + step * q[row, i]) / (1 + step)
                p[row] /= 1 + step
    return (p,)


MEANINGS = {LEAVES: _leaves, SHARES: _shares}
"""By op name: what it computes."""


def _infer_leaves(call: OpCall) -> Types:
    table, roots = call.shape(0), call.shape(1)
    return [None if table is None or roots is None else TensorType("int32", (roots[0], table[0]))]


def _infer_shares(call: OpCall) -> Types:
    pairs = call.shape(0)
    return [None if pairs is None else TensorType("float32", (pairs[0], call.integer("classes")))]


TABULAR = {LEAVES: _infer_leaves, SHARES: _infer_shares}
"""How to infer the types of an op's outputs."""
