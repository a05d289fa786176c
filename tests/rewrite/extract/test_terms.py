"""Terms know what is constant, what it takes to store it, and what each e-node costs."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import TensorType
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION, ENode
from graphopt.rewrite.extract.cost import Cost, CostModel
from graphopt.rewrite.extract.terms import CONSTANT_BYTES, Terms, as_classes
from graphopt.target import PORTABLE
from tests.rewrite.hand_made import classes_of, constant, e

MODEL = CostModel(PORTABLE)
X = Fact(TensorType("float32", (1, 64)))


def split_graph() -> tuple[Graph, dict[Value, Fact]]:
    graph = Graph()
    x = graph.add_input("x", X.type)
    parts = graph.add("Split", (x,), Attrs(axis=1), n_outputs=2).outputs
    graph.add_output("y", graph.add("Add", (parts[0], parts[1])).outputs[0])
    graph.add_output("first", parts[0])
    return graph, {v: X for node in graph.nodes() for v in node.outputs}


def test_a_graph_as_classes() -> None:
    s = as_classes(*split_graph())
    assert [own[0].op for own in s.classes.values()] == [INPUT, "Split", PROJECTION, PROJECTION, "Add"]
    assert s.roots == (4, 2)
    assert [s.classes[c][0].projection for c in (2, 3)] == [0, 1]
    assert s.outputs(s.classes[1][0], 1) == (X, X)


def test_inputs_and_projections_cost_nothing() -> None:
    terms = Terms(as_classes(*split_graph()), MODEL)
    free = {c for c, (node,) in terms.working.items() if terms.cost(c, node) == Cost()}
    assert free == {0, 2, 3}


def test_the_graph_s_own_e_node_comes_first() -> None:
    s = classes_of([e(0, INPUT, node=True)], [e(1, "Exp", 0), e(2, "Log", 0, node=True)], roots=(1,))
    assert [n.op for n in Terms(s, MODEL).working[1]] == ["Log", "Exp"]


def test_constants_are_made_from_constants_in_the_fewest_ops() -> None:
    attrs, fact = constant(np.ones(8, np.float32))
    other = Fact(fact.type, True)
    s = classes_of(
        [e(0, INPUT, node=True)],
        [ENode(1, CONSTANT, attrs, node=1)],
        [e(2, "Neg", 1), e(3, "Abs", 4, node=True)],
        [e(5, "Mul", 0, 2, node=True)],
        [e(4, "Exp", 1, node=True)],
        facts={1: fact, 2: other, 4: other},
        roots=(3,),
    )
    terms = Terms(s, MODEL)
    assert {c: n.op for c, n in terms.constants.items()} == {1: CONSTANT, 2: "Neg", 4: "Exp"}
    assert terms.working.keys() == {0, 3}
    assert terms.stored(s.classes[3][0]) == 64, "what folding adds is stored beside what the file holds"


def test_one_element_repeated_takes_few_bytes() -> None:
    splat = Constant.full((1000,), np.float32(1)[()])
    fact = Fact(TensorType("float32", (1000,)), True, splat)
    s = classes_of([e(0, "ConstantOfShape", node=True)], facts={0: Fact(fact.type, True)}, roots=(0,))
    assert Terms(s, MODEL).constant_bytes == {0: CONSTANT_BYTES}
    s = classes_of([ENode(0, CONSTANT, Attrs(value=splat), node=0)], facts={0: fact}, roots=(0,))
    assert Terms(s, MODEL).constant_bytes == {0: 4}


def test_a_choice_with_its_constants_is_in_order_and_no_circle() -> None:
    s = classes_of(
        [e(0, INPUT, node=True)],
        [e(1, "Neg", 0, node=True), e(3, "Neg", 2)],
        [e(2, "Neg", 1, node=True)],
        roots=(2,),
    )
    terms = Terms(s, MODEL)
    assert list(terms.complete(s.originals) or ()) == [0, 1, 2]
    assert terms.complete({**s.originals, 1: s.classes[1][1]}) is None


def test_restricted_terms_have_one_e_node_each() -> None:
    s = classes_of([e(0, INPUT, node=True)], [e(1, "Exp", 0, node=True), e(2, "Log", 0)], roots=(1,))
    found = Terms(s, MODEL).restrict({0: s.classes[0][0], 1: s.classes[1][1]})
    assert not found.is_open
    assert [n.op for n in found.working[1]] == ["Log"]


def test_what_is_computed_from_stored_weights_takes_nothing_beside_them() -> None:
    weights, fact = constant(np.random.default_rng(0).standard_normal((1024, 512)).astype(np.float32))
    turned = Fact(TensorType("float32", (512, 1024)), True)
    s = classes_of(
        [e(0, INPUT, node=True)],
        [ENode(1, CONSTANT, weights, node=1)],
        [e(2, "Transpose", 1, node=True)],
        [e(3, "Gather", 1, 0, node=True)],
        [e(4, "MatMul", 3, 2, node=True)],
        facts={1: fact, 2: turned},
        roots=(4,),
    )
    terms = Terms(s, MODEL)
    assert terms.stored_by(s.originals) == 1024 * 512 * 4  # not twice
    alone = {c: node for c, node in s.originals.items() if c != 3} | {4: e(5, "MatMul", 0, 2)}
    assert terms.stored_by(alone) == 1024 * 512 * 4


@pytest.mark.parametrize("n", [64, 1280])
def test_what_is_too_much_to_do_ahead_costs_what_each_run_takes(n: int) -> None:
    """A product of two weights was thought free, and was then computed in every run."""
    graph = Graph()
    x = graph.add_input("x", TensorType("float32", (1, n)))
    weights = [graph.add_constant(Constant.of(np.full((n, n), k, np.float32))) for k in (1, 2)]
    product = graph.add("MatMul", weights).outputs[0]
    graph.add_output("y", graph.add("MatMul", (x, product)).outputs[0])
    terms = Terms(as_classes(graph, infer(graph)), MODEL)
    working = [own[0].children for own in terms.working.values() if own[0].op == "MatMul"]
    assert len(working) == (1 if n == 64 else 2)


@pytest.mark.parametrize(("dtype", "op", "stays"), [
    ("float32", "Neg", True), ("float16", "Transpose", True), ("float16", "Neg", False),
])  # fmt: skip
def test_runtimes_compute_half_precision_in_each_run_unless_it_is_only_moved(dtype: str, op: str, stays: bool) -> None:
    weights, fact = constant(np.random.default_rng(0).standard_normal((1024, 1024)).astype(dtype))
    nbytes = 1024 * 1024 * np.dtype(dtype).itemsize
    s = classes_of(
        [e(0, INPUT, node=True)],
        [ENode(1, CONSTANT, weights, node=1)],
        [e(2, op, 1, node=True)],
        [e(3, "Gather", 1, 0, node=True)],
        [e(4, "MatMul", 3, 2, node=True)],
        facts={1: fact, 2: Fact(fact.type, True)},
        roots=(4,),
    )
    terms = Terms(s, MODEL)
    assert terms.stored_by(s.originals) == nbytes * (1 if stays else 2)
    assert terms.stored(s.classes[4][0]) == (0 if stays else 2 * nbytes), "the weights are read by others"
