"""Weights moved by an ulp, which show what rounding does to a model whose inputs hold whole numbers.

Apart from ``compare``, its only user, for length.
"""

from __future__ import annotations

import numpy as np

from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import CONSTANT, Graph

_FLOATS = ("float16", "float32", "float64")


def moved(graph: Graph, ulps: int, rng: np.random.Generator) -> Graph:
    """The graph with every float of its constants moved by some ulps, up or down."""
    twin = graph.copy()
    for node in graph.nodes():
        constant = node.attrs.get("value") if node.op == CONSTANT else None
        if isinstance(constant, Constant) and constant.dtype in _FLOATS and not is_whole(constant.array):
            array = nudged(constant.array, ulps, rng)
            twin.update(node.id, attrs=node.attrs.with_(value=Constant.of(array)))
    return twin


def nudged(array: Array, ulps: int, rng: np.random.Generator) -> Array:
    """Floats moved by some ulps, each up or down; but 0 stays, since zeros are exact."""
    toward = np.where(rng.random(array.shape) < 0.5, -np.inf, np.inf).astype(array.dtype)
    toward[array == 0] = 0
    for _ in range(ulps):
        array = np.asarray(np.nextafter(array, toward))
    return array


def is_whole(array: Array) -> bool:
    """Whether all the floats are whole numbers: indices, lengths and flags that are held as floats, which are exact."""
    return bool((array == np.rint(array)).all())
