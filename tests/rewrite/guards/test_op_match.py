"""What calls of patterns ask of ops and attributes."""

from __future__ import annotations

import pytest

from graphopt.ir.graph import Attrs
from graphopt.rewrite.guards.bindings import Bindings, Head
from graphopt.rewrite.guards.op_match import bind, same_attribute
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.rule.rule import CallPattern


def call(text: str) -> CallPattern:
    (left,) = parse_rules(f"# why [A1] exact\nr: {text} => x")[0].lhs
    assert isinstance(left, CallPattern)
    return left


@pytest.mark.parametrize(
    ("actual", "wanted", "same"),
    [
        (0.1, 0.1, True),
        (0.10000000149011612, 0.1, True),
        (1.0, 1, True),
        (1, 1.0, False),
        ((1, 2), [1, 2], True),
        ((1, 2), (1, 2, 3), False),
        (None, None, True),
        (None, 0, False),
        ("a", "a", True),
    ],
)
def test_attributes_are_compared_as_onnx_stores_them(actual: object, wanted: object, same: bool) -> None:
    assert same_attribute(actual, wanted) == same


def test_an_op_variable_binds_what_the_call_does_not_mention() -> None:
    bindings: Bindings[int] = Bindings()
    attrs = Attrs(keepdims=0, noop_with_empty_axes=1)
    assert bind(call("f(x, keepdims=k)"), "ReduceSum", attrs, 2, bindings) is None
    assert bindings.heads == {"f": Head("ReduceSum", Attrs(noop_with_empty_axes=1))}
    assert bindings.attrs == {"k": 0}
    assert bind(call("f(x, keepdims=1)"), "ReduceSum", attrs, 2, bindings) == (
        "attribute keepdims of ReduceSum is 0, the rule wants 1"
    )
    assert bind(call("f(x)"), "ReduceMax", attrs, 2, bindings) == "ReduceMax is not the same op as f"


def test_the_rest_is_what_is_not_mentioned() -> None:
    bindings: Bindings[int] = Bindings()
    assert bind(call("Gemm(x, y, alpha=a, **rest)"), "Gemm", Attrs(transA=1), 2, bindings) is None
    assert bindings.attrs == {"rest": Attrs(transA=1), "a": 1.0}
    assert bind(call("Gemm(x, y, alpha=a)"), "Gemm", Attrs(transA=1), 2, bindings) == (
        "attribute transA of Gemm is 1, the rule wants its default"
    )
