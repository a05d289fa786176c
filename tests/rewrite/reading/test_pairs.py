"""Pairs of models and of functions become rules, which fire and agree on both sides."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from graphopt.errors import RuleError, UsageError
from graphopt.ir.graph import CONSTANT, INPUT, Graph
from graphopt.ir.onnx_io import load, to_proto
from graphopt.rewrite.checking.check import check_rule
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.reading.pairs import rule_from_pair
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_rule
from graphopt.rewrite.rule.rule import Rule, RuleStage, Soundness


def function(text: str) -> onnx.FunctionProto:
    return parser.parse_function(f'<domain: "com.example", opset_import: ["" : 18]> {text}')


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')


def body(rule: Rule) -> str:
    return show_rule(rule).partition("\n")[2].strip()


def work(graph: Graph) -> list[str]:
    return [n.op for n in graph.order() if n.op not in (INPUT, CONSTANT)]


def rewritten(rule: Rule, proto: onnx.ModelProto) -> list[str]:
    """The ops of a model in which the rule has been applied, whose outputs are still those of the original."""
    result = simplify(load(proto), [rule], (UNUSED,))
    draw = np.random.default_rng(0)
    feeds = {
        i.name: draw.normal(size=[d.dim_value or 3 for d in i.type.tensor_type.shape.dim]).astype(np.float32)
        for i in proto.graph.input
    }
    before, after = (ReferenceEvaluator(m).run(None, feeds) for m in (proto, to_proto(result)))
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return work(result)


GEMM = (
    function("matmul_add (x, w, b) => (y) { t = MatMul(x, w)  y = Add(t, b) }"),
    function("gemm (x, w, b) => (y) { y = Gemm(x, w, b) }"),
)


def test_functions_make_a_rule_that_fires() -> None:
    rule = rule_from_pair(*GEMM, name="gemm", soundness="reals", always=True, reason="one op")
    assert show_rule(rule) == "# one op\n# reals always\ngemm:  Add(MatMul(x, w), b)  =>  Gemm(x, w, b)\n"
    assert check_rule(rule).problem is None
    proto = model("g (float[n,4] a, float[4,5] k, float[5] c) => (float[n,5] y) { t = MatMul(a, k)  y = Add(c, t) }")
    assert rewritten(rule, proto) == ["Gemm"]


def test_attributes_whose_default_rests_on_the_rank_are_handed_on() -> None:
    left = function("p <perm> (x) => (y) { t = Transpose <perm: ints = @perm> (x)  y = Relu(t) }")
    right = function("q <perm> (x) => (y) { t = Relu(x)  y = Transpose <perm: ints = @perm> (t) }")
    rule = rule_from_pair(left, right, name="relu-first", soundness="exact")
    assert body(rule) == "relu-first:  Relu(Transpose(x, perm=perm))  =>  Transpose(Relu(x), perm=perm)"


def test_an_output_that_is_an_input_is_the_variable() -> None:
    left = function("p (x) => (y) { t = Neg(x)  y = Neg(t) }")
    right = function("q (x) => (y) { y = Identity(x) }")
    assert body(rule_from_pair(left, right, name="twice", soundness="exact")) == "twice:  Neg(Neg(x))  =>  x"


def test_attributes_of_functions_are_attributes_of_the_rule() -> None:
    left = function("p <alpha> (x) => (y) { t = LeakyRelu <alpha: float = @alpha> (x)  y = Relu(t) }")
    right = function("q <alpha> (z) => (y) { y = Relu(z) }")
    rule = rule_from_pair(left, right, name="leaky-relu", soundness="exact", always=True)
    assert body(rule) == "leaky-relu:  Relu(LeakyRelu(x, alpha=alpha))  =>  Relu(x)"
    proto = model("g (float[n,4] a) => (float[n,4] y) { t = LeakyRelu <alpha=0.3> (a)  y = Relu(t) }")
    assert rewritten(rule, proto) == ["Relu"]


def test_types_of_the_inputs_of_models_are_guards() -> None:
    left = model("g (float[n,4] x, float[n,4] y) => (float[n,4] z) { a = Add(x, y)  z = Mul(a, a) }")
    right = model(
        "g (float[n,4] x, float[n,4] y) => (float[n,4] z) <float two = {2}> { a = Add(x, y)  z = Pow(a, two) }"
    )
    rule = rule_from_pair(left, right, name="square", soundness="reals", always=True)
    assert body(rule).split("where ")[1].split(" and ") == [
        'x.dtype == "float32"',
        "x.rank == 2",
        "x.shape[1] == 4",
        'y.dtype == "float32"',
        "y.rank == 2",
        "y.shape[0] == x.shape[0]",
        "y.shape[1] == 4",
    ]
    assert rewritten(rule, left) == ["Add", "Pow"]
    other = model("g (float[n,5] x, float[n,5] y) => (float[n,5] z) { a = Add(x, y)  z = Mul(a, a) }")
    assert rewritten(rule, other) == ["Add", "Mul"]


def test_constants_of_the_left_side_must_be_these_and_those_of_the_right_side_are_made() -> None:
    text = "g (float[n,2] x) => (float[n,2] z) <float[2,2] k = {1,2,3,4}> { z = MatMul(x, k) }"
    right = model("g (float[n,2] x) => (float[n,2] z) <float[2,2] k = {1,3,2,4}> { z = Gemm <transB=1> (x, k) }")
    rule = rule_from_pair(model(text), right, name="k", soundness="reals", always=True)
    assert "b.value == ((1.0, 2.0), (3.0, 4.0))" in body(rule)
    assert rewritten(rule, model(text)) == ["Gemm"]
    assert rewritten(rule, model(text.replace("{1,2", "{1,5"))) == ["MatMul"]


def test_dtypes_of_constants_on_the_right_are_kept() -> None:
    left = model("g (float[n,2] x) => (float[n,2] z) { z = Add(x, x) }")
    right = model(
        "g (float[n,2] x) => (float[n,2] z) <double[1] h = {0.1}, double[1] t = {20}> "
        "{ p = Mul(h, t)  c = Cast <to=1> (p)  z = Mul(x, c) }"
    )
    rule = rule_from_pair(left, right, name="twice", soundness="reals", always=True)
    assert rewritten(rule, left)[-1] == "Mul"


def test_several_outputs_are_several_terms() -> None:
    left = model("g (float[n,4] x) => (float[n,4] y, float[n,4] z) { y = Relu(x)  a = Neg(x)  z = Relu(a) }")
    right = model("g (float[n,4] x) => (float[n,4] y, float[n,4] z) { y = Relu(x)  z = Sub(y, x) }")
    rule = rule_from_pair(left, right, name="halves", soundness="finite", always=True)
    assert (rule.soundness, rule.stage) == (Soundness.FINITE, RuleStage.ALWAYS)
    assert len(rule.lhs) == len(rule.rhs) == 2
    assert body(rule).startswith("halves:  Relu(x), Relu(Neg(x))  =>  Relu(x), Sub(Relu(x), x)")


def test_the_text_of_a_pair_reads_back() -> None:
    text = "g (float[n,2] x) => (float[n,2] z) <float[2,2] k = {1,2,3,4}> { a = MatMul(x, k) z = Mul(a, a) }"
    rule = rule_from_pair(
        model(text), model(text.replace("z = Mul(a, a)", "z = Mul(a, a)")), name="r", soundness="exact"
    )
    assert parse_rules(show_rule(rule)) == [rule]


def test_onnxscript_functions_are_taken() -> None:
    onnxscript = pytest.importorskip("onnxscript")
    op = onnxscript.opset18

    @onnxscript.script()
    def left(a: Any, b: Any, c: Any) -> Any:
        return op.Add(op.MatMul(a, b), c)

    @onnxscript.script()
    def right(a: Any, b: Any, c: Any) -> Any:
        return op.Gemm(a, b, c)

    rule = rule_from_pair(left, right, name="gemm", soundness="reals")
    assert body(rule) == "gemm:  Add(MatMul(a, b), c)  =>  Gemm(a, b, c)"


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ("(float[n] x) => (float[n] y) { y = Relu(x) }", "(float[n] z) => (float[n] y) { y = Relu(z) }", "inputs"),
        (
            "(float[n] x) => (float[n] y) { y = Relu(x) }",
            "(float[n] x) => (float[n] y, float[n] z) { y = Relu(x)  z = Relu(x) }",
            "1 and 2 outputs",
        ),
        ("(float[n] x) => (float[n] y) { y = Relu(x) }", "(double[n] x) => (double[n] y) { y = Relu(x) }", "float64"),
    ],
)
def test_sides_that_do_not_correspond_are_refused(left: str, right: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        rule_from_pair(model(f"g {left}"), model(f"g {right}"), name="r", soundness="exact")


def test_a_wrong_claim_is_found_by_the_check() -> None:
    left, right = (function(f"f (x) => (y) {{ y = {op}(x) }}") for op in ("Relu", "Abs"))
    rule = rule_from_pair(left, right, name="wrong", soundness="exact")
    assert check_rule(rule).problem is not None


def test_a_soundness_class_that_is_none() -> None:
    with pytest.raises(UsageError, match="no soundness class is called 'sure'; there are exact"):
        rule_from_pair(*GEMM, name="r", soundness="sure")
