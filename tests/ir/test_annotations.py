"""Annotations stand in metadata, and make a difference to who compares."""

from __future__ import annotations

from graphopt.ir.annotations import free_region, in_region, is_primitive, primitive, region_of
from graphopt.ir.graph import Origin
from graphopt.ir.structure import same
from graphopt.ir.text import parse


def test_primitive_functions_differ_from_others_and_read_back() -> None:
    graph = parse("graph f (ir 10, opset 21)\nx: float32[n]\ny = Relu(x)\nreturn y")
    marked = primitive(graph)
    assert is_primitive(marked)
    assert not is_primitive(graph)
    assert primitive(marked) is marked
    assert same(graph, marked) == "only one of them is primitive"
    assert same(parse(marked.script()), marked) is None


def test_a_node_is_in_one_region() -> None:
    origin = in_region(in_region(Origin(name="a", metadata=(("k", "v"),)), "0"), "3")
    assert origin == Origin(name="a", metadata=(("k", "v"), ("dataflow", "3")))
    assert in_region(origin, "") is origin
    graph = parse("x: float32[n]\ndataflow { a = Relu(x) }\ndataflow { b = Neg(a) }\nc = Abs(b)\nreturn c")
    assert [region_of(n) for n in graph.order()] == ["", "0", "1", ""]
    assert free_region(graph) == "2"
