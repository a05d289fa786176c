"""Programs, graphs, modules and schedules are compared up to the names within them."""

import pytest

import graphopt
from graphopt.errors import UsageError
from graphopt.ir.text import parse
from graphopt.lowering.loops.script import read
from graphopt.lowering.module.structural_equality import difference, equal, structural_hash
from tests.lowering.loops.test_script import MM_RELU

GRAPH = "x: float32[4]\ny = Relu(x)\nz = Neg(y)\nreturn z"


def test_graphs_are_equal_whatever_their_inner_values_are_called() -> None:
    one, other = parse(GRAPH), parse(GRAPH.replace("y", "inner"))
    assert equal(one, other)
    assert structural_hash(one) == structural_hash(other)
    told = difference(one, parse(GRAPH.replace("Neg", "Abs")))
    assert told is not None
    assert "Neg" in told
    assert "Abs" in told


def test_a_schedule_counts_as_its_nest() -> None:
    nest = read(MM_RELU)
    s = graphopt.Schedule(nest)
    assert equal(s, nest)
    s.parallel("i")
    assert difference(nest, s) == "`for i in serial(128)` against `for i in parallel(128)`: serial against parallel"
    assert structural_hash(s) == structural_hash(s.nest) != structural_hash(nest)


def test_modules_are_compared_function_by_function() -> None:
    nest, graph = read(MM_RELU), parse(GRAPH)
    one, other = graphopt.Module({"f": nest, "main": graph}), graphopt.Module({"main": graph, "f": nest})
    assert equal(one, other)
    assert structural_hash(one) == structural_hash(other)
    other["f"] = read(MM_RELU.replace("max", "min"))
    told = difference(one, other)
    assert told is not None
    assert told.startswith("f: block C: ")
    assert structural_hash(one) != structural_hash(other)
    del other["f"]
    assert difference(one, other) == "the second has no function f; there is main"
    assert difference(other, one) == "the first has no function f; there is main"


def test_what_is_of_two_kinds_or_of_none_is_said() -> None:
    assert difference(read(MM_RELU), parse(GRAPH)) == "a tensor program against a graph"
    with pytest.raises(UsageError, match="programs, graphs, modules and schedules are compared by structure, not 3"):
        equal(3, 3)  # type: ignore[arg-type]
