"""Passes act on graphs and on parts of them; pipelines are put together, run them in order, and say what they did."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphopt
from graphopt.errors import UsageError
from graphopt.ir import evaluate
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.text import parse
from graphopt.ir.visitor import Visitor
from graphopt.lowering.module.mutator import Mutator, Result
from graphopt.lowering.module.passes import FUSE, SCHEDULE, Done, Pass, Pipeline, as_pass, count, lower_only
from graphopt.program.pipelines import PIPELINES, pipeline_named

CHAIN = """
x: float32[n, 8]
a = Relu(x)
b = Neg(a)
c = Relu(b)
d = Add(c, a)
return d
"""
X = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)


class ReluToAbs(Mutator):
    def visit_Relu(self, node: Node) -> Result:
        return replace(node, op="Abs")


class Counter(Visitor[str]):
    seen: list[str]

    def __init__(self) -> None:
        self.seen = []

    def visit_other(self, node: Node) -> str:
        self.seen.append(node.op)
        return node.op


def nothing(graph: Graph) -> Graph:
    return graph


def doubled(graph: Graph) -> Graph:
    """Each Neg twice more."""
    graph = graph.copy()
    for node in [n for n in graph.nodes() if n.op == "Neg"]:
        one = graph.add("Neg", node.outputs)
        two = graph.add("Neg", one.outputs)
        graph.replace(node.outputs[0], two.outputs[0])
        graph.update(one.id, inputs=node.outputs)
    return graph


def ops(graph: Graph) -> str:
    return " ".join(n.op for n in graph.order() if n.op not in ("Input", "Constant"))


def same_meaning(a: Graph, b: Graph) -> None:
    want, got = evaluate.run(a, {"x": X}), evaluate.run(b, {"x": X})
    assert list(want) == list(got)
    for name in want:
        np.testing.assert_array_equal(want[name], got[name])


# ------------------------------------------------------------------ passes


def test_functions_and_classes_are_passes_by_their_names() -> None:
    graph = parse(CHAIN)
    for part, name in ((ReluToAbs, "ReluToAbs"), (ReluToAbs(), "ReluToAbs"), (doubled, "doubled")):
        made = as_pass(part)
        assert made.name == name
        assert isinstance(made, Pass)
        assert made(graph) is not graph
    assert as_pass(doubled, "mine").name == "mine"
    assert ops(as_pass(ReluToAbs)(graph)) == "Abs Neg Abs Add"
    with pytest.raises(UsageError, match="is no pass"):
        as_pass(3)  # type: ignore[arg-type]


def test_what_changes_nothing_gives_the_graph_itself() -> None:
    graph = parse(CHAIN.replace("Relu", "Exp"))
    assert as_pass(ReluToAbs)(graph) is graph
    assert as_pass(nothing)(graph) is graph
    assert Pass("x", nothing).on("a")(graph) is graph


def test_a_visitor_sees_the_graph_and_leaves_it() -> None:
    graph, counter = parse(CHAIN), Counter()
    assert Pass("count", counter).on(lambda n: n.op != "Input")(graph) is graph
    assert counter.seen == ["Relu", "Neg", "Relu", "Add"]


def test_a_pass_that_edits_what_it_is_given_is_refused() -> None:
    def bad(graph: Graph) -> Graph:
        graph.update(graph.order()[1].id, op="Abs")
        return graph

    def worse(graph: Graph) -> Graph:
        graph.outputs = [graph.inputs[0]]
        return graph

    with pytest.raises(UsageError, match=r"the pass bad edits .* graph\.copy"):
        as_pass(bad)(parse(CHAIN))  # type: ignore[operator]
    with pytest.raises(UsageError, match="the pass worse edits the outputs"):
        as_pass(worse)(parse(CHAIN))  # type: ignore[operator]
    with pytest.raises(UsageError, match="gave NoneType"):
        Pass("none", lambda graph: None)(parse(CHAIN))  # type: ignore[arg-type,return-value]


# ------------------------------------------------------------------ parts


def test_a_mutator_is_shown_the_chosen_nodes_only() -> None:
    graph = parse(CHAIN)
    for where in ("c", ["c"], lambda node: graph.names.get(node.outputs[0]) == "c"):
        assert ops(Pass("p", ReluToAbs()).on(where)(graph)) == "Relu Neg Abs Add"
    with pytest.raises(UsageError, match="no node 'q'"):
        Pass("p", ReluToAbs()).on(["c", "q"])(graph)


def test_a_function_is_given_the_chosen_nodes_as_a_graph() -> None:
    graph, seen = parse(CHAIN), []

    def look(part: Graph) -> Graph:
        seen.append((ops(part), len(part.inputs), len(part.outputs)))
        return doubled(part)

    made = Pass("p", look).on(["b", "c"])(graph)
    assert seen == [("Neg Relu", 1, 1)]
    assert ops(made).count("Neg") == 3
    assert ops(graph).count("Neg") == 1
    assert made.output_names == graph.output_names
    same_meaning(graph, made)


def test_constants_and_values_that_are_read_outside_come_along() -> None:
    graph = parse("x: float32[n, 8]\na = Add(x, 1.0)\nb = Neg(a)\nc = Mul(a, b)\nreturn c, b")
    made = Pass("p", doubled).on(["a", "b"])(graph)
    assert ops(made).count("Neg") == 3
    same_meaning(graph, made)


def test_a_part_does_not_lie_around_other_nodes() -> None:
    with pytest.raises(UsageError, match="a path between them leads through 'b'"):
        Pass("p", doubled).on(["a", "c"])(parse(CHAIN))


def test_nodes_with_effects_are_not_cut_out() -> None:
    graphopt.register("test.act", lambda x, out: None, effects=True, outputs=lambda x: x)
    graph = parse("x: float32[n]\na = test::act(x)\nb = Neg(a)\nreturn b")
    with pytest.raises(UsageError, match="'a' has effects"):
        Pass("p", doubled).on(["a", "b"])(graph)


def test_what_is_made_of_a_part_has_its_inputs_and_outputs() -> None:
    with pytest.raises(UsageError, match="the part's inputs and outputs"):
        Pass("p", lambda part: parse("z: float32[n, 8]\ny = Neg(z)\nreturn y")).on("b")(parse(CHAIN))


# ------------------------------------------------------------------ pipelines


def test_a_pipeline_says_what_it_did() -> None:
    graph, said = parse(CHAIN), list[Done]()
    made = Pipeline("mine", (Pass("double", doubled), Pass("nothing", nothing))).telling(said.append)(graph)
    assert count(made) == 6
    assert [(d.name, d.before, d.after, d.is_changed) for d in said] == [
        ("double", 4, 6, True),
        ("nothing", 6, 6, False),
    ]
    assert "4 ->     6 nodes" in str(said[0])
    assert "6 nodes, as before" in str(said[1])
    assert "ms" in str(said[0])


def test_pipelines_are_put_together() -> None:
    zero = pipeline_named("zero")
    assert zero.names == ("tidy", "schedule")
    mine = zero + [doubled]  # noqa: RUF005  this is how a pass is added
    assert mine.names == ("tidy", "doubled", "schedule")
    assert (zero + ReluToAbs + FUSE).names == ("tidy", "ReluToAbs", "schedule", "fuse")
    assert (zero + pipeline_named("cpu")).names == ("tidy", "optimize", "schedule", "fuse", "schedule")
    assert mine.without("tidy", "schedule").names == ("doubled",)
    assert mine.before("tidy", nothing, ReluToAbs).names == ("nothing", "ReluToAbs", "tidy", "doubled", "schedule")
    assert mine.after("doubled", nothing).names == ("tidy", "doubled", "nothing", "schedule")
    assert str(mine) == "zero: tidy, doubled, schedule"
    assert zero.names == ("tidy", "schedule")
    for change in (mine.without, mine.before, mine.after):
        with pytest.raises(UsageError, match="there is no 'fold' in the pipeline zero: tidy, doubled, schedule"):
            change("fold")


def test_a_pipeline_acts_on_a_part() -> None:
    assert ops(Pipeline("p", (Pass("abs", ReluToAbs()), SCHEDULE)).on("a")(parse(CHAIN))) == "Abs Neg Relu Add"


@pytest.mark.parametrize("name", list(PIPELINES))
def test_named_pipelines_compile_to_the_same_function(name: str) -> None:
    graph = parse(CHAIN)
    model = graphopt.compile(graph, pipeline=name)
    np.testing.assert_array_equal(model(X)["d"], evaluate.run(graph, {"x": X})["d"])
    assert [s.name for s in model.report.steps][:1] == [pipeline_named(name).names[0]]


def test_lowering_steps_decide_how_loops_are_made() -> None:
    graph = parse(CHAIN)
    assert graphopt.compile(graph, pipeline=pipeline_named("zero")).report.calls == 4
    assert graphopt.compile(graph, pipeline=pipeline_named("zero") + FUSE).report.calls == 1
    plain = graphopt.compile(graph, pipeline=pipeline_named("zero").without("schedule"))
    assert all("store(" not in p.emitted.kernel.source for p in plain.compiled.linked.parts)
    with pytest.warns(UserWarning, match="it was left out"):
        some = graphopt.compile(graph, pipeline=pipeline_named("zero") + lower_only("Relu", "Add"))
    assert [r[1] for r in some.report.unlowered] == ["Neg"]
    for model in (plain, some):
        np.testing.assert_array_equal(model(X)["d"], evaluate.run(graph, {"x": X})["d"])


def test_a_pipeline_that_does_not_exist_is_told() -> None:
    with pytest.raises(UsageError, match="no pipeline is called 'fast': there are zero, default"):
        graphopt.compile(parse(CHAIN), pipeline="fast")


def test_a_value_that_a_part_hands_through_keeps_its_readers() -> None:
    graph = parse("x: float32[n, 8]\na = Identity(x)\nb = Neg(a)\nreturn b")

    def through(part: Graph) -> Graph:
        part = part.copy()
        part.replace(part.outputs[0] or Value(0), part.inputs[0])
        return part

    same_meaning(graph, Pass("p", through).on("a")(graph))
