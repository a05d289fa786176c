"""Attention in tiles, compiled, against what the reference computes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import graphopt
from graphopt.ir import evaluate
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.tolerance import error


def _floats(*shape: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


@pytest.mark.parametrize("is_open", [False, True])
def test_tiles_of_queries_meet_tiles_of_keys(is_open: bool) -> None:
    """More queries and keys than a tile has, some hidden and some that nobody sees, in whole tiles and in parts."""
    q, k, v = _floats(1, 4, 70, 24), _floats(1, 2, 150, 24, seed=2), _floats(1, 2, 150, 20, seed=3)
    mask = np.where(_floats(70, 150, seed=4) > -0.5, _floats(70, 150, seed=5) * 4, -np.inf).astype(np.float32)
    mask[3] = -np.inf
    arrays = dict(zip("qkvm", (q * 9, k, v, mask), strict=True))
    sizes = {70: "i", 150: "j"} if is_open else {}
    inputs = [helper.make_tensor_value_info(n, 1, [sizes.get(e, e) for e in a.shape]) for n, a in arrays.items()]
    node = helper.make_node("Attention", [*arrays], ["y"], is_causal=1)
    model = helper.make_model(helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 1, None)]))
    with graphopt.compile(model, strict=True, optimize=False) as compiled:
        got = compiled(arrays)["y"]
    (want,) = evaluate.compute("Attention", Attrs({"is_causal": 1}), [*arrays.values()], 1)
    assert error(np.asarray(want), got) <= 1.0
    assert not got[0, :, 3].any()
