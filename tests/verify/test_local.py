"""Parts in which two graphs differ agree where what they begin with is rounded, and differ where they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.verify.local import LocalComparison
from graphopt.verify.runtimes import Runner, open_in_onnxruntime

pytest.importorskip("onnxruntime")

NORMALIZED = """
x: float32[64, 3]
s = Sub(x, [0.1, 0.2, 0.3])
d = Sub(s, ReduceMean(s, [-1]))
v = Add(ReduceMean(Mul(d, d), [-1]), 0.001)
n = Div(d, Sqrt(v))
y = Erf(n)
return y, v
"""
FUSED = """
x: float32[64, 3]
s = Sub(x, [0.1, 0.2, 0.3])
d = Sub(s, ReduceMean(s, [-1]))
v = Add(ReduceMean(Mul(d, d), [-1]), 0.001)
n = LayerNormalization(s, [1.0, 1.0, SCALE], axis=-1, epsilon=0.001)
y = Erf(n)
return y, v
"""


def in_onnxruntime(graph: Graph, path: Path) -> Runner:
    from graphopt.ir import onnx_io

    onnx_io.save(graph, path)
    return open_in_onnxruntime(str(path))


@pytest.mark.parametrize(("scale", "is_right"), [(1.0, True), (1.001, False)])
def test_a_part_may_begin_with_a_value_and_with_what_was_made_of_it(scale: float, is_right: bool) -> None:
    """Rows of nearly equal elements: what their mean leaves of them is mostly rounding, which both parts share."""
    before, after = parse(NORMALIZED), parse(FUSED.replace("SCALE", str(scale)))
    rng = np.random.default_rng(3)
    x = (1 + 1e-2 * rng.normal(size=(64, 3))).astype(np.float32)
    faults = LocalComparison(before, after, in_onnxruntime).faults({"x": x})
    assert (not faults) == is_right, [fault.words for fault in faults]
