"""What nobody reads goes; inputs and outputs stay."""

from __future__ import annotations

from graphopt.ir.graph import Header
from graphopt.ir.text import parse, show
from graphopt.rewrite.passes.dead import FUNCTIONS, OUTPUTS, UNUSED
from graphopt.rewrite.passes.simplify import simplify

PASSES = (UNUSED, OUTPUTS, FUNCTIONS)


def test_unused_nodes() -> None:
    graph = simplify(parse("x: float32[2] u: float32[2] a = Neg(x) b = Exp(a) y = Abs(x) return y"), passes=PASSES)
    assert [n.op for n in graph.nodes()] == ["Input", "Input", "Abs"]
    assert [graph.names[v] for v in graph.inputs] == ["x", "u"]


def test_unused_optional_outputs() -> None:
    graph = simplify(parse("x: float32[1, 2, 4, 4] v, i = MaxPool(x, kernel_shape=[2, 2]) return v"), passes=PASSES)
    assert [n.n_outputs for n in graph.nodes() if n.op == "MaxPool"] == [1]
    both = parse("x: float32[1, 2, 4, 4] v, i = MaxPool(x, kernel_shape=[2, 2]) return v, i")
    assert simplify(both, passes=PASSES) is both
    top = parse("x: float32[4] v, i = TopK(x, [2]) return v")
    assert simplify(top, passes=PASSES) is top


def test_unused_functions_and_operator_sets() -> None:
    graph = parse("""
        graph g (ir 9, opset 17, com.microsoft 1, my 1)
        x: float32[2] y = my::used(x) return y
        function my::inner() (opset 17) { a: ? b = Neg(a) return b }
        function my::used() (opset 17, my 1) { a: ? b = my::inner(a) return b }
        function my::unused() (opset 17) { a: ? b = Abs(a) return b }
    """)
    made = simplify(graph, passes=PASSES)
    assert sorted(made.functions) == [("my::inner", ""), ("my::used", "")]
    assert made.header == Header(9, (("", 17), ("my", 1)))
    assert "unused" not in show(made)
