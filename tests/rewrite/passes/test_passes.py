"""Native passes in ONNX Runtime: each acts by itself on a model at the edge of what it takes, which computes the same
after it, bit by bit: open sizes that are 0 and 1, both branches, loops of no pass and of several."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import onnx.parser
import pytest

from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import Soundness
from graphopt.verify.runtimes import EngineError, open_in_onnxruntime

SIZES = (0, 1, 3)
"""What open sizes stand for."""
NEG, ABS = "{ q: ? r = Neg(q) return r }", "{ q: ? r = Abs(q) return r }"
LOOP = """x: float32[2] n: int64[] c = true y, z = Loop(n, c, x, x | x,
    body={ i: int64[] go: bool[] s: float32[2] t: float32[2] k: ? e = Exp(k) u = Add(s, e) v = %s
    return go, u, v }) return %s"""
COLUMN = "int64[2, 3, 1]{{{0}, {0}, {0}, {0}, {0}, {0}}}"
FILL = "k = float32[2, 3, 2]{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} "
SCATTERED = f"""x: float32[2, 3, 1] i = {COLUMN.format(0)} {FILL}
    a = ScatterElements(k, i, x, axis=-1) """
MODELS = {
    "inline-functions": """graph g (ir 9, opset 17, my 1)
        x: float32[n, 2] y = my::f(x, slope=0.5) z = my::f(x) return y, z
        function my::f(slope=0.25) (opset 17) { a: ? b = LeakyRelu(a, alpha=@slope:1) return b }""",
    "unused-node": "x: float32[n] y = Neg(x) z = Exp(x) return y",
    "unused-output": "x: float32[1, 2, 4, 4] v, i = MaxPool(x, kernel_shape=[2, 2]) return v",
    "unused-function": """graph g (ir 9, opset 17, my 1)
        x: float32[n] y = Neg(x) return y
        function my::f() (opset 17) { a: ? b = Abs(a) return b }""",
    "known-shape": "x: float32[2, 0, 1] s = Shape(x) y = Add(s, [1]) return y",
    "known-size": "x: float32[n, 0, 3] y = Gather(Shape(x), [-1, 1]) return y",
    "known-sizes": "x: float32[n, 0, 3] y = Slice(Shape(x), [-2], [9]) return y",
    "known-range": "x: float32[2] y = Add(Range(5, -1, -2), 1) return y",
    "scattered-sizes": "x: float32[2, 0] i = int64[1, 1]{-1} y = ScatterND(Shape(x), i, [7]) return y",
    "known-elements": "x: float32[2, 0] y = Mul(Concat(Shape(x), [3], axis=0), [2]) return y",
    "constant-folding": "x: float32[n] y = Add(x, Exp(float32[1]{-1.0})) return y",
    "exact-folding": "x: int64[n] y = Add(x, Mul(int64[1]{9223372036854775807}, [2])) return y",
    "known-target": "x: float32[n, 1] s = Shape(x) y = Expand(x, Concat(Gather(s, [0]), [5], axis=0)) return y",
    "aligned-target": "x: float32[n, m, 4] z: float32[n, 2] "
    "y = Reshape(x, Concat(Gather(Shape(z), [0]), [-1], [2], axis=0)) return y",
    "reshape-as": "x: float32[n, m, 12] y = Reshape(x, Concat(Gather(Shape(x), [0, 1]), [3, 4], axis=0)) return y",
    "open-size": "x: float32[3, n, 4] y = Reshape(x, Concat(Gather(Shape(x), [1]), [12], axis=0)) return y",
    "range-of-shape": "x: float32[a, b, 4] y = Gather(Shape(x), [0, 1]) return y",
    "taken-sizes": "x: float32[a, b, 4] s = Shape(x) y = Concat(Gather(s, [0]), Gather(s, [1]), axis=0) return y",
    "picked-elements": "x: float32[n, 3] a = [0] b = Gather(Shape(x), [0]) c = Concat(a, b, b, a, axis=0) "
    "y = Reshape(Transpose(Reshape(c, [2, 2])), [4]) return y",
    "complete-scatter": "x: float32[2, 3] i = int64[2, 1]{0, -1} r = ScatterND(x, i, Neg(x)) return r",
    "scatter-into-fill": SCATTERED + "return a",
    "view-calculus": "x: float32[n, 4, 6] s = [-1, 4, 2, 3] t = [-1, 4, 6] r = Relu(Reshape(Transpose(Transpose("
    "Reshape(x, s), perm=[0, 2, 3, 1]), perm=[0, 3, 1, 2]), t)) return r",
    "decided-if": f"x: float32[n] c = false y = If(c | x, then_branch={NEG}, else_branch={ABS}) return y",
    "idle-if": f"x: float32[n] c: bool[] y = If(c | x, then_branch={NEG}, else_branch={NEG}) return y",
    "only-branch": "x: float32[4, 5] c: bool[] k = float32[1, 4, 1]{1.0, 2.0, 3.0, 4.0} y = If(c | x, "
    "then_branch={ q: ? a = [0] r = Unsqueeze(q, a) return r }, else_branch={ q: ? return q }) z = Conv(y, k) return z",
    "squeezed-axes": "x: float32[n, 2, 1] b: float32[n, 3] s = Squeeze(x) y = Concat(s, b, axis=1) return y",
    "common-head": "x: float32[n, 2] c: bool[] y = If(c | x, then_branch={ q: ? t = Exp(q) r = Neg(t) return r }, "
    "else_branch={ q: ? t = Exp(q) r = Abs(t) return r }) return y",
    "common-tail": "x: float32[n, 2] c: bool[] y = If(c | x, then_branch={ q: ? t = Exp(q) r = Mul(t, 2.0) return r }, "
    "else_branch={ q: ? t = Abs(q) r = Mul(t, 2.0) return r }) return y",
    "open-sequence": "x: float32[n] s = SequenceConstruct(x, Neg(x)) last = -1 t = SequenceAt(s, last) return t",
    "open-optional": "x: float32[n] o = Optional(x) r = OptionalGetElement(o) t = Neg(r) return t",
    "stacked-sequence": """x: float32[3, 2] n: int64[] c = true e = SequenceEmpty()
        s = Loop(n, c, e | x, body={ i: int64[] go: bool[] s: sequence(float32[*]) x: ? r = Gather(x, i) t = Neg(r)
            u = SequenceInsert(s, t) return go, u }) y = ConcatFromSequence(s, axis=0, new_axis=1) return y""",
    "repeated-parts": """x: float32[3] b: bool[3] c = true e = SequenceEmpty() n = 3
        r = Cast(b, to=7) s = SplitToSequence(x) q = SplitToSequence(r)
        l = Loop(n, c, e | s, q, body={ i: int64[] go: bool[] l: sequence(float32[*])
            s: sequence(float32[1]) q: sequence(int64[1]) p = SequenceAt(s, i)
            t = SequenceAt(q, i) u = Unsqueeze(p, [1]) one = [1] w = Concat(one, t, axis=0) v = Expand(u, w)
            z = [-1] y = Reshape(v, z) m = SequenceInsert(l, y) return go, m }) y = ConcatFromSequence(l, axis=0)
        return y""",
    "short-loop": LOOP.replace("n: int64[]", "n = 3") % ("Neg(t)", "y, z"),
    "carried-for-nobody": LOOP % ("Neg(t)", "y"),
    "unread-start": "x: float32[2, 3] n = 100 c = true d = 0.0 y, z = Loop(n, c, x, d, body={ i: int64[] go: bool[] "
    "t: float32[2, 3] u: float32[*] v = Mul(t, 0.5) w = Neg(t) g = Less(i, 2) return g, v, w }) return y, z",
    "unchanged-state": (LOOP % ("Neg(t)", "y, z"))
    .replace("Exp(k)", "Exp(t)")
    .replace("v = Neg(t)\n", "")
    .replace("u, v", "u, t"),
    "loop-invariant": LOOP % ("Neg(t)", "y, z"),
    "own-constants": "x: float32[1000] c: bool[] w: float32[1000] y = If(c | x, w, "
    "then_branch={ q: ? v: ? r = Mul(q, v) return r }, else_branch={ q: ? v: ? r = Neg(q) return r }) return y",
    "captures": "x: float32[n] c: bool[] k = 2.0 y = If(c | x, k, x, "
    "then_branch={ q: ? v: ? u: ? r = Mul(q, v) return r }, else_branch={ q: ? v: ? u: ? return q }) return y",
    "duplicate-constant": "x: float32[n] y = Mul(Add(Div(x, -0.0), 0.0), Sub(x, 0.0)) return y",
    "common-node": "x: float32[n, 2] y = Sub(Softmax(x, axis=-1), Mul(Softmax(x), Softmax(x, axis=0))) return y",
    "common-reshape": "x: float32[n, m, 6] z: float32[n, 2] "
    "a = Reshape(x, Concat(Gather(Shape(x), [0]), [-1], axis=0)) "
    "b = Reshape(x, Concat(Gather(Shape(z), [0]), [-1], axis=0)) y = Add(a, b) return y",
    "common-size": "x: float32[a, 4] y: float32[b, 4] m = Gather(Shape(x), 0) n = Gather(Shape(y), 0) s = Add(m, n) "
    "t = Gather(Shape(Concat(x, y, axis=0)), 0) return s, t",
    "axis-orders": "x: float32[1, 4, 6, n] y = Transpose(Relu(Transpose(x, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]) "
    "return y",
    "unsigned-products": "x: float32[n, 3] s = 0.1 t = 0.3 z = int8[]{-5} i = int8[]{0} "
    "k = int8[3, 2]{1, -2, 3, 4, -128, 9} q = QuantizeLinear(x, s, z) "
    "p = QLinearMatMul(q, s, z, k, t, i, t, z) y = DequantizeLinear(p, t, z) return y",
    "constant-node": """<ir_version: 8, opset_import: ["" : 17]> g (float[n] x) => (float[n] y) {
        c = Constant<value_float = -0.0>() y = Add(x, c) }""",
    "parallel-branches": (
        "x: float32[n, 4] a, b, c, d = Split(x, axis=1, num_outputs=4) "
        "y = Concat(Neg(a), Neg(b), Neg(c), Neg(d), axis=1) return y"
    ),
    "parallel-terms": (
        "x: float32[n, 4] a, b, c, d = Split(x, axis=1, num_outputs=4) y = Sum(Neg(a), Neg(b), Neg(c), Neg(d)) return y"
    ),
}
"""A model on which each pass acts, w a constant where it is an input."""


def model(text: str) -> Graph:
    """The graph of a text, or of one in ONNX's own syntax."""
    graph = onnx_io.load(onnx.parser.parse_model(text)) if text.startswith("<") else parse(text)
    for value in [v for v in graph.inputs if graph.names[v] == "w"]:
        large = Constant.of(np.linspace(-1, 1, 1000, dtype=np.float32))
        graph.replace(value, graph.add_constant(large, "w"))
        graph.remove(value.node)
    return graph


def feeds(graph: Graph) -> list[dict[str, Any]]:
    """Inputs for every choice of open sizes, truth values and counts."""
    types = {graph.names[v]: t for v in graph.inputs if isinstance(t := graph.types[v], TensorType)}
    names = sorted({str(n) for t in types.values() for n in t.shape or () if not isinstance(n, int)})
    made = []
    for sizes in product(SIZES, repeat=len(names)):
        known = dict(zip(names, sizes, strict=True))
        draw = np.random.default_rng(0)
        for choice in (0, 1, 3):
            given = {}
            for name, type_ in types.items():
                shape = tuple(n if isinstance(n, int) else known[str(n)] for n in type_.shape or ())
                numbers = draw.normal(0, 2, shape)
                given[name] = np.asarray(choice if not shape else numbers).astype(type_.dtype)
                if type_.dtype == "float32" and given[name].size > 1:
                    given[name].flat[0] = -0.0
            made.append(given)
    return made


def computed(graph: Graph, given: dict[str, Any]) -> list[Any] | None:
    """The outputs in ONNX Runtime; None where it fails."""
    try:
        return open_in_onnxruntime(onnx_io.to_proto(graph).SerializeToString(), threads=1)(given)
    except EngineError:
        return None


def test_every_pass_has_a_model() -> None:
    assert sorted(MODELS) == sorted(p.name for p in PASSES)


@pytest.mark.parametrize("name", MODELS)
def test_a_pass_keeps_what_onnxruntime_computes(name: str) -> None:
    pytest.importorskip("onnxruntime")
    (native,) = [p for p in PASSES if p.name == name]
    graph = model(MODELS[name])
    made = simplify(graph, passes=(UNUSED, native))
    assert made is not graph
    compared = 0
    for given in feeds(graph):
        want, got = computed(graph, given), computed(made, given)
        if want is None:
            continue
        assert got is not None
        compared += 1
        for a, b in zip(want, got, strict=True):
            if native.soundness is Soundness.REALS:
                np.testing.assert_allclose(a, b, rtol=1e-6)
            else:
                np.testing.assert_array_equal(a, b)
                assert a.dtype == b.dtype
                assert a.shape == b.shape
                assert a.dtype.kind != "f" or np.array_equal(np.signbit(a), np.signbit(b))
    assert compared
