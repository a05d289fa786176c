"""Rules with several roots are found in the graph that is there."""

from __future__ import annotations

from graphopt.ir.text import parse
from graphopt.rewrite.match.families import families
from graphopt.rewrite.reading.parse import parse_rules

RULES = parse_rules(
    """
# the products of one input are one                                                 [J5] reals
shared:  MatMul(x, a*)  =>  Split(MatMul(x, Concat(a*, axis=1)), axis=-1, split=[each a.shape[1]])
    where a.is_const and a.rank == 2

# a rule with one root                                                              [C1] exact
relu-relu:  Relu(Relu(x))  =>  Relu(x)
"""
)
GRAPH = """
x: float32[2, 2]
w = float32[2, 2]{1.0, 2.0, 3.0, 4.0}
v = float32[2, 2]{1.0, 2.0, 3.0, 5.0}
a = MatMul(x, w)
b = MatMul(OTHER, v)
c = Relu(Relu(b))
return a, c
"""


def test_the_roots_of_each_match_are_found() -> None:
    graph = parse(GRAPH.replace("OTHER", "x"))
    found = families(RULES, graph)
    assert {name for name, _ in found} == {"shared"}
    assert {frozenset(graph.names[v] for v in roots) for _, roots in found} == {frozenset("ab")}


def test_one_call_is_no_family() -> None:
    assert not families(RULES, parse(GRAPH.replace("OTHER", "a")))
