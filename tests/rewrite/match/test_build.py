"""Right sides are built where they fit, and refused with a reason where they do not."""

from __future__ import annotations

import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.text import parse, show
from graphopt.rewrite.match.build import Refused, constant_of, family, replacements
from graphopt.rewrite.match.matcher import matches
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import Rule


def rule(text: str) -> Rule:
    return parse_rules(f"# why [A1] reals\nr: {text}")[0]


def applied(text: str, source: str) -> str:
    """The graph after the rule was applied where its output is made, without what became unused; raises Refused."""
    space = Workspace(parse(source))
    outputs = space.graph.outputs
    (found, *_) = matches(rule(text), space, space.graph.node(outputs[0].node))  # type: ignore[union-attr]
    first = space.graph.next_id
    made = replacements(found.rule, found.bindings, found.roots, space)
    for old, new in zip(found.roots, made, strict=True):
        space.replace(old, new, first)
    while (node := space.next()) is not None:
        if node.op != "Input" and not space.graph.is_used(node.id):
            space.remove(node.id)
    return body(space.graph)


def body(graph: Graph) -> str:
    lines = show(graph).strip().split("\n")
    return "; ".join(line.strip() for line in lines if ": float" not in line.split("=")[0] and "graph" not in line)


def unary(op: str, right: str, dtype: str = "float32", shape: str = "2, 3") -> str:
    return applied(f"{op}(x) => {right}", f"x: {dtype}[{shape}] out = {op}(x) return out")


def test_numbers_take_the_dtype_of_their_neighbours() -> None:
    assert unary("Neg", "Mul(x, -1.0)") == "out = Mul(x, -1.0); return out"
    assert "float16[]{-1.0}" in unary("Neg", "Mul(x, -1.0)", "float16")
    assert "float64[]{-1.0}" in unary("Neg", "Mul(x, -1)", "float64")
    assert "float16[]{2.0}" in unary("Neg", "Mul(Sub(x, Mul(x, 2.0)), 1.0)", "float16")


def test_numbers_take_the_dtype_of_the_result_where_they_have_no_neighbours() -> None:
    text = "Neg(x) => Where(Less(x, 0.0), 0.0, 0.0)"
    assert applied(text, "x: float64[] out = Neg(x) return out").count("float64[]{0.0}") == 3


def test_numbers_without_neighbours() -> None:
    assert "Reshape(x, [2, 3])" in unary("Relu", "Reshape(x, [2, 3])")
    assert "Unsqueeze" in unary("Relu", "Squeeze(Unsqueeze(x, [0]), [0])")
    assert "float16[]{2.0}" in unary("Relu", "Pow(x, 2.0)", "float16")


def test_computed_constants() -> None:
    assert "Reshape(x, [2, 3])" in unary("Relu", "Reshape(x, {x.shape})")
    assert "float16[]{0.5}" in unary("Relu", "Mul(x, {1.0 / x.shape[0] like x})", "float16")
    with pytest.raises(Refused, match="n"):
        unary("Relu", "Reshape(x, {x.shape})", shape="n, 3")


def test_types_must_be_equal() -> None:
    with pytest.raises(Refused, match=r"the right side is float32\[3, 2\], the left side float32\[2, 3\]"):
        unary("Relu", "Transpose(x)")
    assert unary("Relu", "Transpose(x)", shape="n, n") == "out = Transpose(x); return out"
    with pytest.raises(Refused, match=r"float32\[m, n\]"):
        unary("Relu", "Transpose(x)", shape="n, m")


def test_a_right_side_that_the_opset_does_not_have_is_refused() -> None:
    with pytest.raises(Refused, match="Gelu needs opset 20, the model has 17"):
        applied("Relu(x) => Gelu(x)", "graph g (ir 8, opset 17) x: float32[2] out = Relu(x) return out")
    with pytest.raises(Refused, match="int32"):
        unary("Neg", "Sigmoid(x)", "int32")


def test_attributes_and_the_rest() -> None:
    source = "x: float32[2, 2] out = Gemm(x, x, transB=1, alpha=0.5) return out"
    text = "Gemm(x, y, transB=t, **rest) => Gemm(y, x, transB=1 - t, **rest)"
    assert applied(text, source) == "out = Gemm(x, x, alpha=0.5); return out"
    assert unary("Relu", "LeakyRelu(x, alpha=2)") == "out = LeakyRelu(x, alpha=2.0); return out"
    with pytest.raises(Refused, match="axis of Softmax is a whole number"):
        unary("Relu", "Softmax(x, axis=0.5)")


def test_op_variables_and_optional_inputs() -> None:
    source = "x: float32[2, 3] t = Transpose(x) out = Abs(t) return out"
    text = "f(Transpose(x, perm=p)) => Transpose(f(x), perm=p) where f in unary"
    assert applied(text, source) == "%0 = Abs(x); out = Transpose(%0); return out"
    clip = "x: float32[2] h: float32[] out = Clip(Relu(x), _, h) return out"
    assert (
        applied("Clip(Relu(x), lo?, hi?) => Relu(Clip(x, lo, hi))", clip)
        == "%0 = Clip(x, _, h); out = Relu(%0); return out"
    )


def test_families() -> None:
    source = "x: float32[2] y: float32[3] out = Concat(Relu(x), Relu(y), axis=0) return out"
    assert applied("Concat(Relu(a*), axis=k) => Relu(Concat(a*, axis=k))", source).startswith(
        "%0 = Concat(x, y, axis=0)"
    )
    back = "x: float32[2] y: float32[3] out = Relu(Concat(x, y, axis=0)) return out"
    made = applied("Relu(Concat(a*, axis=k)) => Concat(Relu(a*), axis=k)", back)
    assert made == "%0 = Relu(x); %1 = Relu(y); out = Concat(%0, %1, axis=0); return out"
    each = applied("Relu(Concat(a*, axis=k)) => Concat(Reshape(Relu(a*), {a.shape}), axis=k)", back)
    assert "Reshape(%0, [2])" in each
    assert "Reshape(%2, [3])" in each


def test_the_outputs_of_one_call_go_to_the_roots_in_order() -> None:
    source = "x: float32[2, 3] a: float32[3, 4] b: float32[3, 5] p = MatMul(x, a) q = MatMul(x, b) return p, q"
    text = "MatMul(x, a*) => Split(MatMul(x, Concat(a*, axis=1)), {[each a.shape[1]]}, axis=1)"
    assert applied(text, source).endswith("p, q = Split(%1, [4, 5], axis=1); return p, q")


def test_one_call_for_each_output() -> None:
    source = "x: float32[2, 3] p = Gather(x, 0) q = Gather(x, 1) return p, q"
    text = "Gather(x, i*, axis=k) => Squeeze(Split(x, {fill(len(i), 1)}, axis=k), {[k]})"
    made = applied(text, source)
    assert made.count("Split") == 1
    assert made.endswith("p = Squeeze(%0, [0]); q = Squeeze(%1, [0]); return p, q")


def test_several_roots_share_what_they_are_made_of() -> None:
    source = "x: float32[4] p = Neg(x) q = Abs(x) return p, q"
    made = applied(
        "Neg(x), Abs(x) => Split(Concat(Neg(x), Abs(x), axis=0), [4, 4])[0], "
        "Split(Concat(Neg(x), Abs(x), axis=0), [4, 4])[1]",
        source,
    )
    assert made.count("Split") == made.count("Concat") == 1
    assert "p, q = Split" in made


def test_a_right_side_may_read_the_root() -> None:
    assert unary("Relu", "x").startswith("return x")
    made = applied("Relu(x) as m => Abs(m)", "x: float32[2] out = Relu(x) return out")
    assert made == "%0 = Relu(x); out = Abs(%0); return out"


@pytest.mark.parametrize(
    ("value", "dtype"), [(0.5, "int64"), (300, "uint8"), (-1, "uint8"), (1e10, "float16"), ((1, (2, 3)), None)]
)
def test_numbers_that_do_not_fit(value: object, dtype: str | None) -> None:
    with pytest.raises(Refused):
        constant_of(value, dtype)


def test_constants_of_numbers() -> None:
    assert (constant_of(3, None).dtype, constant_of(3.0, None).dtype, constant_of(True, None).dtype) == (
        "int64", "float32", "bool",
    )  # fmt: skip
    assert constant_of((), None).dtype == "int64"
    assert constant_of(((1.0, 2.0), (3.0, 4.0)), "bfloat16").shape == (2, 2)
    assert constant_of(float("inf"), "float16").array == float("inf")


def test_family() -> None:
    (left,) = rule("MatMul(x, a*) => MatMul(x, a*)").lhs
    assert family(left) == ("a",)


def test_what_runtimes_do_not_have_for_a_dtype_is_refused() -> None:
    with pytest.raises(Refused, match="ONNX Runtime has no LeakyRelu of float64"):
        unary("Neg", "LeakyRelu(x)", "float64")
    with pytest.raises(Refused, match="ONNX Runtime has no Where of bool"):
        unary("Not", "Where(x, x, x)", "bool")
    assert "LeakyRelu" in unary("Neg", "LeakyRelu(x)", "float32")


def test_attributes_that_would_lose_digits_of_doubles_are_refused() -> None:
    with pytest.raises(Refused, match=r"alpha=0\.1 would be rounded to single precision"):
        unary("Neg", "Gemm(x, x, transB=1, alpha=0.1)", "float64", "2, 2")
    assert "alpha=0.5" in unary("Neg", "Gemm(x, x, transB=1, alpha=0.5)", "float64", "2, 2")
    assert "alpha=0.1" in unary("Neg", "Gemm(x, x, transB=1, alpha=0.1)", "float32", "2, 2")


def test_sizes_of_a_split_that_are_no_list_are_refused() -> None:
    source = "x: float32[4, 3] s: int64[] y = Relu(x) out = Pow(y, s) return out"
    with pytest.raises(Refused):
        applied("Pow(Relu(x), s) => Split(x, s, axis=0)", source)
