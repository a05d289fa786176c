import numpy as np
import onnxruntime
import pytest

import graphopt
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.lowering.link.passes import needed
from graphopt.lowering.loops.sizes import symbols_in
from graphopt.lowering.lower.lower import (
    Bodied,
    Described,
    LoweredNode,
    NeedsValues,
    Sizes,
    Unlowered,
    Viewed,
    lower,
)
from tests import size_patterns


def lowered(text: str) -> dict[str, LoweredNode]:
    """What becomes of each node, by the name of what it makes (its op where that has none)."""
    graph = parse(text)
    return {graph.names.get(low.node.outputs[0], low.node.op): low for low in of(graph).values()}


def of(graph: Graph) -> dict[int, LoweredNode]:
    return lower(graph, infer(graph))


def test_what_has_a_description_becomes_a_nest() -> None:
    found = lowered("x: float32[n, 3]\ny = Relu(x)\nreturn y")
    assert isinstance(found["y"], Described)


@pytest.mark.parametrize(
    "call",
    [
        "Reshape(x, [6, 4])",
        "Flatten(x, axis=2)",
        "Squeeze(x, [0])",
        "Unsqueeze(x, [0])",
        "Identity(x)",
        "Transpose(x, perm=[1, 2, 0, 3])",
    ],
)
def test_the_same_elements_in_the_same_order_are_a_view(call: str) -> None:
    found = lowered(f"x: float32[1, 2, 3, 4]\ny = {call}\nreturn y")
    assert isinstance(found["y"], Viewed)


@pytest.mark.parametrize(
    "call", ["Transpose(x, perm=[0, 2, 1, 3])", "Expand(x, [2, 2, 3, 4])", "Slice(x, [0], [1], [1])"]
)
def test_elements_in_another_order_are_no_view(call: str) -> None:
    found = lowered(f"x: float32[1, 2, 3, 4]\ny = {call}\nreturn y")
    assert isinstance(found["y"], Described)


def test_an_op_without_a_description_is_left_to_reference() -> None:
    found = lowered("x: float32[3]\ny = my.domain::Unheard(x)\nreturn y")
    low = found["y"]
    assert isinstance(low, Unlowered)
    assert "my.domain::Unheard" in low.reason


def test_shape_arithmetic_is_not_read_and_so_not_computed() -> None:
    graph = parse("x: float32[n, m]\ns = Shape(x)\nt = Concat(s, [1], axis=0)\ny = Reshape(x, t)\nreturn y")
    found = of(graph)
    assert [found[id].node.op for id in needed(graph, found, infer(graph))] == ["Reshape"]


def test_shape_arithmetic_that_is_asked_for_reads_no_memory() -> None:
    found = lowered("x: float32[n, m]\ns = Shape(x)\nt = Concat(s, [1], axis=0)\nreturn t")
    low = found["t"]
    assert isinstance(low, Described)
    assert low.is_known
    assert low.reads == ()


def test_axes_that_are_an_input_have_to_have_a_value() -> None:
    graph = parse("x: float32[n, m]\ns: int64[1]\ny = ReduceSum(x, s, keepdims=0)\nreturn y")
    with pytest.raises(NeedsValues) as caught:
        of(graph)
    assert {graph.names[v] for v in caught.value.inputs} == {"s"}


@pytest.mark.parametrize("asked", ["s: int64[2]", "m: int64[90]\ns = Slice(m, [0], [2], [0])"])
def test_a_shape_that_depends_on_elements_is_computed_before(asked: str) -> None:
    graph = parse(f"x: float32[n]\n{asked}\ny = Reshape(x, s)\nreturn y")
    facts = infer(graph)
    found = lower(graph, facts)
    before, view = list(found.values())[-2:]
    assert isinstance(before, Sizes)
    assert isinstance(view, Viewed)
    shape = facts[view.node.outputs[0]].shape or ()
    assert before.symbols == tuple(s for size in shape for s in symbols_in(size))
    assert [graph.names[v] for v in before.reads] == ["s"]
    assert needed(graph, found, facts)[-2:] == [~view.node.id, view.node.id]


def test_a_size_that_is_an_element_of_another_value_is_read_there() -> None:
    first = "m: int64[90]\nk = Slice(m, [0], [1], [0])"
    graph = parse(f"{first}\nc = Concat(k, [3], axis=0)\ny = ConstantOfShape(c)\nreturn y")
    (before,) = [low for low in of(graph).values() if isinstance(low, Sizes)]
    assert [graph.names[v] for v in before.reads] == ["k"]


@pytest.mark.parametrize(("left_out", "live"), [("", [Sizes, Described]), ("NonZero", [Unlowered, Described])])
def test_what_finds_sizes_out_is_run_where_only_those_are_asked_for(left_out: str, live: list[type]) -> None:
    graph = parse("x: float32[n, 2]\nz = NonZero(x)\ny = Shape(z)\nreturn y")
    facts = infer(graph)
    found = lower(graph, facts, takes=lambda node: node.op != left_out)
    assert [type(found[id]) for id in needed(graph, found, facts)] == live


def test_branches_that_give_one_size_become_steps() -> None:
    yes, no = "q: ? r = Neg(q) return r", "q: ? r = Abs(q) return r"
    found = lowered(f"x: float32[n] c: bool[] y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y")
    assert isinstance(found["y"], Bodied)


def test_the_size_of_branches_that_differ_is_known_behind_them() -> None:
    yes, no = "q: ? r = Neg(q) return r", "q: ? r = Concat(q, q, axis=0) return r"
    call = f"c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}"
    found = lowered(f"x: float32[n] c: bool[] z = If({call}) y = Neg(z) return y")
    assert isinstance(found["z"], Bodied)
    assert found["z"].handed == {0}
    assert isinstance(found["y"], Described)


def test_branches_that_give_different_ranks_are_left_out() -> None:
    yes, no = "q: ? r = Neg(q) return r", "q: ? r = Unsqueeze(q, [0]) return r"
    found = lowered(f"x: float32[n] c: bool[] y = If(c | x, then_branch={{ {yes} }}, else_branch={{ {no} }}) return y")
    assert isinstance(found["y"], Unlowered)


def test_a_node_with_sizes_that_are_forbidden_is_left_to_reference() -> None:
    graph = parse("x: float32[2, 3] i: int64[2] y = GatherElements(x, i) return y")
    (lowered,) = lower(graph, infer(graph)).values()
    assert isinstance(lowered, Unlowered)
    assert "its lowering failed" in lowered.reason


def test_a_size_that_is_computed_is_read_before_it_is_needed() -> None:
    found = lowered("""
        x: float32[n]
        most = Cast(ReduceMax(x, keepdims=0), to=7)
        y = Range(int64[]{0}, Add(most, most), int64[]{1})
        z = Neg(y)
        return z
    """)
    assert isinstance(found["y"], Described)
    assert isinstance(found["z"], Described)


def test_elements_that_are_read_may_be_negative() -> None:
    graph = parse("""
        x: float32[n]
        last = Reshape(Cast(ReduceMax(x, keepdims=0), to=7), [1])
        y = Slice(x, last, [9223372036854775807], [0])
        return y
    """)
    compiled = graphopt.compile(graph, jobs=0)
    assert not compiled.report.unlowered
    for most in (-2, 1, 0, 7):
        x = np.array([most, most - 5, most - 1], np.float32)
        np.testing.assert_array_equal(compiled({"x": x})["y"], x[most:])


@pytest.mark.parametrize("name", ["scaled_sizes", "computed_scales", "grid", "padded_to_multiples", "centre"])
def test_computed_sizes_leave_no_node_out(name: str) -> None:
    proto = size_patterns.model(size_patterns.PATTERNS[name], 0)
    compiled = graphopt.compile(proto, jobs=0)
    assert not compiled.report.unlowered
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for sizes in ({"b": 1, "h": 20, "w": 31, "p": 9, "q": 12}, {"b": 2, "h": 33, "w": 16, "p": 40, "q": 7}):
        feeds = size_patterns.feeds(proto, sizes)
        assert compiled(feeds)["y"].shape == session.run(None, feeds)[0].shape
