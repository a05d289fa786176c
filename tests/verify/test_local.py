"""Parts in which two graphs differ agree where what they begin with is rounded, and differ where they do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.verify.local import LocalComparison
from graphopt.verify.runtimes import EngineError, Runner, open_in_onnxruntime

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


@pytest.mark.parametrize(("times", "outcome"), [(1.00001, "agrees"), (1.002, "cannot be told"), (1.5, "differs")])
def test_where_float64_cannot_tell_only_what_is_gross_differs(times: float, outcome: str) -> None:
    """A Loop is computed by the engine alone."""
    loop = "y = Loop(2, _, x, body={{ i: int64[] c: bool[] q: float32[3] k = Identity(c) r = Mul(q, {}) return k, r }})"
    before, after = (parse(f"x: float32[3] {loop.format(factor)} return y") for factor in (1.5, 1.5 * times))
    x = np.array([1, 2, 3], np.float32)
    comparison = LocalComparison(before, after, in_onnxruntime)
    if outcome == "cannot be told":
        with pytest.raises(EngineError):
            comparison.faults({"x": x})
    else:
        assert bool(comparison.faults({"x": x})) == (outcome == "differs")


def test_what_was_made_of_a_wrongly_guessed_pair_is_not_wrong() -> None:
    """The last product reads in either graph what has the same place and type, and is not the same."""
    before = parse("x: float32[4, 8] m: float32[1, 8] v = Neg(m) s = Mul(x, 0.125) y = Mul(s, v) return y")
    after = parse("x: float32[4, 8] m: float32[1, 8] v = Neg(m) s = Mul(v, 0.125) y = Mul(x, s) return y")
    wrong = parse("x: float32[4, 8] m: float32[1, 8] v = Neg(m) s = Mul(v, 0.25) y = Mul(x, s) return y")
    rng = np.random.default_rng(0)
    feeds = {"x": rng.standard_normal((4, 8), np.float32), "m": rng.standard_normal((1, 8), np.float32)}
    assert LocalComparison(before, after, in_onnxruntime).faults(feeds) == []
    (fault,) = LocalComparison(before, wrong, in_onnxruntime).faults(feeds)
    assert fault.value == before.outputs[0]


def test_rounding_of_half_precision_is_judged_in_float64() -> None:
    x = np.linspace(-2, 2, 64).astype(np.float16).reshape(4, 16)
    before = parse("x: float16[4, 16] y = Cast(Mul(Cast(x, to=1), 0.7), to=10) return y")
    after = parse("x: float16[4, 16] c = Cast(0.7, to=10) y = Mul(x, c) return y")
    wrong = parse("x: float16[4, 16] c = Cast(0.71, to=10) y = Mul(x, c) return y")
    assert LocalComparison(before, after, in_onnxruntime).faults({"x": x}) == []
    assert LocalComparison(before, wrong, in_onnxruntime).faults({"x": x})
