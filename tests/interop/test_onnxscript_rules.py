"""onnxscript's rules as ours: they load, and fire on models made for them, whose results stay what they were."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from graphopt.errors import RuleError
from graphopt.interop.onnxscript_rules import rules_from_onnxscript
from graphopt.ir.graph import CONSTANT, INPUT
from graphopt.ir.onnx_io import load, to_proto
from graphopt.rewrite.checking.check import check_rule
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.notation import show_rule
from graphopt.rewrite.rule.rule import RuleStage, Soundness
from graphopt.rewrite.ruleset import Ruleset

pattern = pytest.importorskip("onnxscript.rewriter").pattern


@pytest.fixture(scope="module")
def default() -> tuple[Ruleset, dict[str, str]]:
    from onnxscript import rewriter

    refused: dict[str, str] = {}
    return rules_from_onnxscript(rewriter._DEFAULT_REWRITE_RULES, refused=refused), refused


FIRING = {
    "onnxscript-mul": ("(float[2,3] x) => (float[2,3] y) <float one = {1}> { a = Mul(one, x)  y = Neg(a) }", ["Neg"]),
    "onnxscript-add": ("(float[2,3] x) => (float[2,3] y) <float z = {0}> { a = Add(x, z)  y = Neg(a) }", ["Neg"]),
    "onnxscript-sub": ("(float[2,3] x) => (float[2,3] y) <float z = {0}> { a = Sub(x, z)  y = Neg(a) }", ["Neg"]),
    "onnxscript-div": ("(float[2,3] x) => (float[2,3] y) <float one = {1}> { a = Div(x, one)  y = Neg(a) }", ["Neg"]),
    "onnxscript-dropout": (
        "(float[2,3] x) => (float[2,3] y) <float z = {0}> { a = Dropout(x, z)  y = Neg(a) }",
        ["Neg"],
    ),
    "onnxscript-slice": (
        "(float[2,3] x) => (float[2,3] y) <int64[1] b = {0}, int64[1] e = {9}, int64[1] k = {1}, int64[1] s = {1}> "
        "{ a = Slice(x, b, e, k, s)  y = Neg(a) }",
        ["Neg"],
    ),
    "FuseSuccessiveRelu": ("(float[2,3] x) => (float[2,3] y) { a = Relu(x)  y = Relu(a) }", ["Relu"]),
    "CastCast": (
        "(double[2,3] x) => (float16[2,3] y) { a = Cast <to=1> (x)  y = Cast <to=10> (a) }",
        ["Cast"],
    ),
    "CastIdentity": ("(float[2,3] x) => (float[2,3] y) { a = Cast <to=1> (x)  y = Neg(a) }", ["Neg"]),
    "ExpandIdentity": (
        "(float[2,3] x) => (float[2,3] y) <int64[2] s = {2, 3}> { a = Expand(x, s)  y = Neg(a) }",
        ["Neg"],
    ),
    "TransposeIdentity": (
        "(float[2,3] x) => (float[2,3] y) { a = Transpose <perm=[0, 1]> (x)  y = Neg(a) }",
        ["Neg"],
    ),
    "SqueezeReshape1d": (
        "(float[1] x) => (float[1] y) <int64[1] s = {-1}> { a = Squeeze(x)  b = Reshape(a, s)  y = Neg(b) }",
        ["Neg"],
    ),
    "SlicesSplit": (
        "(float[2,4] x) => (float[2,2] y, float[2,2] z) "
        "<int64[1] b = {0}, int64[1] m = {2}, int64[1] e = {4}, int64[1] k = {-1}> "
        "{ y = Slice(x, b, m, k)  z = Slice(x, m, e, k) }",
        ["Split"],
    ),
}


def model(text: str) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {text}')


@pytest.mark.parametrize("name", FIRING)
def test_rules_of_the_default_set_fire(default: tuple[Ruleset, dict[str, str]], name: str) -> None:
    text, ops = FIRING[name]
    (rule,) = (r for r in default[0].rules if r.name == name)
    proto = model(text)
    graph = load(proto)
    result = simplify(graph, [rule], (UNUSED,))
    assert [n.op for n in result.order() if n.op not in (INPUT, CONSTANT)] == ops
    value = proto.graph.input[0].type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.elem_type)
    feeds = {"x": np.random.default_rng(0).normal(size=[d.dim_value for d in value.shape.dim]).astype(dtype)}
    before, after = (ReferenceEvaluator(m).run(None, feeds) for m in (proto, to_proto(result)))
    for a, b in zip(before, after, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3 if a.dtype == np.float16 else 1e-6)


def test_the_whole_default_set_is_translated_or_refused(default: tuple[Ruleset, dict[str, str]]) -> None:
    rules, refused = default
    assert {r.name for r in rules.rules} == set(FIRING) | {"onnxscript-dropout-2"}
    assert refused["FuseSuccessiveClip"] == "its Clip may have any further inputs"
    assert refused["Flatten2Reshape"] == "it asks for .root of context"
    assert not set(refused) & set(FIRING)


def test_conditions_do_not_get_lost(default: tuple[Ruleset, dict[str, str]]) -> None:
    rules = {r.name: r for r in default[0].rules}
    for text, name in (
        ("(float[2,3] x) => (double[2,3] y) { a = Cast <to=11> (x)  y = Neg(a) }", "CastIdentity"),
        ("(float[2,3] x) => (float[3,2] y) { a = Transpose <perm=[1, 0]> (x)  y = Neg(a) }", "TransposeIdentity"),
        ("(float[1,3] x) => (float[2,3] y) <int64[2] s = {2, 3}> { a = Expand(x, s)  y = Neg(a) }", "ExpandIdentity"),
        (
            "(float[n,4] x) => (float[n,4] y) <int64[1] b = {0}, int64[1] e = {9}, int64[1] k = {0}, int64[1] s = {1}> "
            "{ a = Slice(x, b, e, k, s)  y = Neg(a) }",
            "onnxscript-slice",
        ),
    ):
        graph = load(model(text))
        assert simplify(graph, [rules[name]], ()) is graph


def test_rules_read_back_from_their_text(default: tuple[Ruleset, dict[str, str]]) -> None:
    for rule in default[0].rules:
        assert parse_rules(show_rule(rule)) == [rule]


def test_rules_are_checked_as_others_are(default: tuple[Ruleset, dict[str, str]]) -> None:
    rules = {r.name: r for r in default[0].rules}
    for name in ("FuseSuccessiveRelu", "TransposeIdentity"):
        assert check_rule(rules[name]).problem is None


class Gemm(pattern.RewriteRuleClassBase):  # type: ignore[misc, name-defined]
    """A product and a sum are one op.

    More of it.
    """

    def pattern(self, op: Any, x: Any, w: Any, b: Any) -> Any:
        return op.Add(op.MatMul(x, w), b)

    def check(self, context: Any, x: Any, w: Any, b: Any) -> Any:
        return x.shape is not None and x.shape.rank() == 2 and w.shape is not None and w.shape.rank() == 2

    def rewrite(self, op: Any, x: Any, w: Any, b: Any) -> Any:
        return op.Gemm(x, w, b, alpha=1.0) if b.shape.rank() == 1 else op.Gemm(x, w, b)


def test_a_replacement_with_two_ways_is_two_rules() -> None:
    for given in (Gemm, Gemm(), Gemm.rule(), pattern.RewriteRuleSet([Gemm.rule()]), [Gemm.rule()]):
        rules = rules_from_onnxscript(given, soundness="exact", always=False).rules
        assert [r.name for r in rules] == ["Gemm-1", "Gemm-2"]
        assert {(r.reason, r.soundness, r.stage) for r in rules} == {
            ("A product and a sum are one op", Soundness.EXACT, RuleStage.EXPLORE)
        }


@pytest.mark.parametrize(
    ("left", "right", "condition", "message"),
    [
        (lambda op, x: op.Relu(x), lambda op, x: op.Clip(x, float(x.const_value.numpy().item())), None, "x.scalar"),
        (lambda op, x: op.Relu(x), lambda op, x: op.Neg(x), lambda context, x: context.nodes, "nodes of context"),
        (lambda op, x: op.Relu(x, _check=lambda c, n: True), lambda op, x: op.Neg(x), None, "condition of its own"),
        (lambda op, x: op.Relu(x), lambda op, x: None, None, "its condition holds on no way"),
        (lambda op, x: op.Relu(x), lambda op, x: [op.Neg(x), x], None, "2 values of 1"),
        (lambda op, x: op.Relu(x), lambda op, x: op.Neg(1 / 0), None, "division by zero"),
    ],
)
def test_what_is_no_plain_pattern_is_refused_by_name(left: Any, right: Any, condition: Any, message: str) -> None:
    with pytest.raises(RuleError, match=f"the rule mine of onnxscript cannot be written as a rule: .*{message}"):
        rules_from_onnxscript(pattern.RewriteRule(left, right, condition, name="mine"))


def test_what_is_no_rule() -> None:
    with pytest.raises(RuleError, match="found int"):
        rules_from_onnxscript(3)
