from typing import Any

import pytest

from graphopt.interop.onnxscript_pattern import OnnxscriptPattern, one_of
from graphopt.interop.symbolic import NotPlain
from graphopt.rewrite.reading.parse import parse_expr
from graphopt.rewrite.rule.notation import show_expr, show_term
from graphopt.rewrite.rule.rule import FunctionCall, GuardExpr

rewriter = pytest.importorskip("onnxscript.rewriter")


def shown(function: Any) -> list[str]:
    return [
        show_term(t)
        for t in OnnxscriptPattern(rewriter.pattern.RewriteRule(function, lambda op, **_: None)._target_pattern).terms
    ]


def test_terms() -> None:
    assert shown(lambda op, x, w: op.MatMul(op.Transpose(x, perm=[1, 0]), w)) == [
        "MatMul(Transpose(x, perm=(1, 0)), w)"
    ]
    assert shown(lambda op, x, y: (x + 1) * y) == ["Mul(Add(x, 1), y)"]
    assert shown(lambda op, x: op.Gelu(x, _domain="com.microsoft")) == ["com.microsoft::Gelu(x)"]
    assert shown(lambda op, x, k: op.Softmax(x, axis=k, _outputs=["y"])) == ["Softmax(x, axis=k) as y"]
    assert shown(lambda op, x: op.Clip(x, None, 6.0)) == ["Clip(x, _, 6.0)"]


def test_what_is_read_twice_has_a_name() -> None:
    def twice(op: Any, x: Any) -> Any:
        a = op.Sigmoid(x)
        return op.Mul(a, op.Neg(a))

    assert shown(twice) == ["Mul(Sigmoid(x) as m1, Neg(m1))"]


def test_several_outputs() -> None:
    assert shown(lambda op, x: (op.Relu(x), op.Neg(x))) == ["Relu(x)", "Neg(x)"]
    assert shown(lambda op, x: op.Neg(op.TopK(x, 1, _outputs=2)[1])) == ["Neg(TopK(x, 1)[1])"]


def test_attributes_that_became_inputs_stand_there() -> None:
    assert shown(lambda op, x: op.Dropout(x, ratio=0.0)) == ["Dropout(x, 0.0)"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda op, x: op.submodule("torch.nn")(x), "leaves the op"),
        (lambda op, x: op.Clip(x, _allow_other_inputs=True), "its Clip may have any further inputs"),
        (lambda op, x, a: op.Squeeze(x, axes=a), "the attribute a, which is an input since later opsets"),
    ],
)
def test_what_patterns_of_ours_cannot_say(function: Any, message: str) -> None:
    with pytest.raises(NotPlain, match=message):
        shown(function)


def parts(text: str) -> tuple[GuardExpr, ...]:
    expr = parse_expr(text)
    return expr.arguments if isinstance(expr, FunctionCall) and expr.function == "and" else (expr,)


def condition(*alternatives: str) -> list[str]:
    return [show_expr(e) for e in one_of([parts(text) for text in alternatives])]


def test_what_all_share_is_said_once() -> None:
    assert condition("a == 1 and b == 2", "a == 1 and c == 3") == ["a == 1", "b == 2 or c == 3"]
    assert condition("a == 1", "a == 1 and b == 2") == ["a == 1"]


def test_values_of_one_thing_are_a_list() -> None:
    assert condition("t == 1", "t == 10") == ["t in (1, 10)"]


def test_a_length_and_its_elements_are_one_comparison() -> None:
    assert condition("len(p) == 0", "len(p) == 2 and p[0] == 0 and p[1] == 1") == ["p in ((), (0, 1))"]
    assert condition("len(p) == 2 and p[0] == 0 and p[1] == q") == ["len(p) == 2", "p[0] == 0", "p[1] == q"]


def test_that_a_rank_is_known_goes_without_saying() -> None:
    assert condition("x.rank >= 0 and x.rank == 2") == ["x.rank == 2"]
    assert condition("x.rank >= 0 and y.rank == 2") == ["x.rank >= 0", "y.rank == 2"]
    assert condition("x.rank >= 0 and (x.rank == 2 or y.rank == 2)") == ["x.rank >= 0", "x.rank == 2 or y.rank == 2"]
