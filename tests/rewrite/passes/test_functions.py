"""Local functions are inlined, with their attributes, and never without end."""

from __future__ import annotations

import pytest

from graphopt.errors import InvalidModelError, LimitError
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse, show
from graphopt.rewrite.passes import PASSES
from graphopt.rewrite.passes.simplify import simplify


def inlined(source: str) -> Graph:
    return simplify(parse(source), passes=PASSES)


def body(graph: Graph) -> str:
    return "; ".join(line.strip() for line in show(graph).split("\n") if " = " in line)


def test_nested_calls() -> None:
    made = inlined("""
        graph g (ir 9, opset 17, my 1)
        x: float32[2] y = my::outer(x) z = my::inner(x) return y, z
        function my::inner() (opset 17) { a: ? b = Neg(a) return b }
        function my::outer() (opset 17, my 1) { a: ? b = my::inner(a) c = my::inner(b) d = Exp(c) return d }
    """)
    assert not made.functions
    assert made.header.opsets == (("", 17),)
    assert sorted(n.op for n in made.nodes()) == ["Exp", "Input", "Neg", "Neg"]
    assert made.output_names == ["y", "z"]


def test_attributes_of_the_call() -> None:
    made = inlined("""
        graph g (ir 9, opset 17, my 1)
        x: float32[2] y = my::f(x, slope=0.5) z = my::f(x) return y, z
        function my::f(slope=0.25) (opset 17) { a: ? b = LeakyRelu(a, alpha=@slope:1) return b }
    """)
    assert body(made) == "y = LeakyRelu(x, alpha=0.5); z = LeakyRelu(x, alpha=0.25)"


def test_missing_arguments() -> None:
    made = inlined("""
        graph g (ir 9, opset 17, my 1)
        x: float32[2] y = my::f(x) return y
        function my::f() (opset 17) { a: ? lo: ? hi: ? b = Clip(a, lo, hi) return b }
    """)
    assert body(made) == "y = Clip(x)"


def test_a_function_that_calls_itself() -> None:
    with pytest.raises(InvalidModelError, match="calls itself"):
        inlined("""
            graph g (ir 9, opset 17, my 1)
            x: float32[2] y = my::f(x) return y
            function my::f() (opset 17, my 1) { a: ? b = my::f(a) return b }
        """)


def test_calls_are_counted_before_they_are_expanded() -> None:
    text = ["graph g (ir 9, opset 17, my 1)", "x: float32[2] y = my::f25(x) return y"]
    text.append("function my::f0() (opset 17) { a: ? b = Neg(a) return b }")
    for i in range(1, 26):
        text.append(f"function my::f{i}() (opset 17, my 1) {{ a: ? b = my::f{i - 1}(a) c = my::f{i - 1}(b) return c }}")
    with pytest.raises(LimitError, match="33554432 nodes"):
        inlined("\n".join(text))


def test_a_function_of_another_opset_stays_where_its_ops_are_missing() -> None:
    made = inlined("""
        graph g (ir 9, opset 17, my 1)
        x: float32[2] y = my::f(x) return y
        function my::f() (opset 20) { a: ? b = Gelu(a) return b }
    """)
    assert [n.op for n in made.nodes() if n.inputs] == ["my::f"]
