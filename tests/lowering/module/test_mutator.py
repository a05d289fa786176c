"""Mutators change copies of graphs and of modules, to which they add functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphopt.errors import UsageError
from graphopt.ir.graph import Attrs, Node
from graphopt.ir.text import parse, show
from graphopt.lowering.module.mutator import DELETE, Mutator

CHAIN = """
x: float32[n]
y = Relu(Neg(x))
return y
"""


def test_a_mutator_that_changes_nothing_returns_the_graph_itself() -> None:
    graph = parse("c: bool[] x: float32[2] y = If(c | x, then_branch={a: ? b = Neg(a) return b}) return y")
    assert Mutator().mutate(graph) is graph


class NegToSub(Mutator):
    def visit_Neg(self, node: Node):
        return replace(node, op="Abs", attrs=Attrs(a=1))


def test_a_changed_node_takes_the_place_of_the_old_one() -> None:
    graph = parse(CHAIN)
    before = show(graph)
    assert "%0 = Abs(x, a=1)" in show(NegToSub().mutate(graph))
    assert show(graph) == before


def test_bodies_are_mutated_too() -> None:
    graph = parse("c: bool[] x: float32[2] y = If(c | x, then_branch={a: ? b = Neg(a) return b}) return y")
    assert "b = Abs(a, a=1)" in show(NegToSub().mutate(graph))
    assert "Abs" not in show(graph)


def test_a_value_takes_the_place_of_an_output() -> None:
    class Drop(Mutator):
        def visit_Neg(self, node: Node):
            return node.inputs[0]

    assert show(Drop().mutate(parse(CHAIN))) == show(parse("x: float32[n] y = Relu(x) return y"))


def test_a_node_can_be_wrapped_in_new_ones() -> None:
    class Wrap(Mutator):
        def visit_Neg(self, node: Node):
            return self.add("Exp", node.outputs)

    assert show(Wrap().mutate(parse(CHAIN))) == show(parse("x: float32[n] y = Relu(Exp(Neg(x))) return y"))


def test_deletion_is_explicit() -> None:
    class Delete(Mutator):
        def visit_Exp(self, node: Node):
            return DELETE

    class Forget(Mutator):
        def visit_Exp(self, node: Node):
            return None

    graph = parse("x: float32[n] y = Relu(x) z = Exp(y) return y")
    assert "Exp" not in show(Delete().mutate(graph))
    with pytest.raises(TypeError, match=r"visit_Exp returned None .* DELETE"):
        Forget().mutate(graph)
    with pytest.raises(ValueError, match="still used"):
        Delete().mutate(parse("x: float32[n] y = Exp(x) return y"))


def test_as_many_values_as_outputs() -> None:
    class Short(Mutator):
        def visit_Split(self, node: Node):
            return node.inputs[0]

    with pytest.raises(TypeError, match="1 values cannot replace the 2 outputs"):
        Short().mutate(parse("x: float32[4] a, b = Split(x, num_outputs=2) return a, b"))


def test_a_method_that_no_op_goes_to_is_named() -> None:
    class Misspelt(Mutator):
        def visit_Rleu(self, node: Node) -> Node:
            return node

    with pytest.raises(UsageError, match=r"no op goes to Misspelt\.visit_Rleu; did you mean visit_Relu"):
        Misspelt().mutate(parse(CHAIN))
