"""Programs take constants in the form that they read best, and compute what they did."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt
from graphopt.ir.graph import Graph
from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.lower.embedded_programs import inputs_of
from graphopt.lowering.module.builder import GraphBuilder
from graphopt.lowering.module.fusion import LowerToPrograms
from graphopt.lowering.module.legalize import LegalizeOps
from graphopt.lowering.module.module import Module
from graphopt.lowering.module.packing import pack_constants
from graphopt.lowering.module.passes import Sequential
from graphopt.lowering.module.scheduling import Schedule

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


W, V = floats(96, 96), floats(96, 96)


def shapes(module: Module, name: str) -> list[list[int | None]]:
    """The shapes of a program's inputs, but for open sizes."""
    nest = module[name]
    assert isinstance(nest, Nest)
    return [[known_size([e]) for e in b.shape] for b in inputs_of(nest)]


def dense(*weights: np.ndarray) -> Module:
    builder = GraphBuilder()
    value = builder.input("x", "float32", ("n", 96))
    for weight in weights:
        value = builder.emit("MatMul", [value, weight])
    builder.output("y", value)
    return builder.build()


@pytest.mark.parametrize("n", [0, 1, 5, 300])
def test_each_call_of_a_program_has_a_weight_of_its_own(n: int) -> None:
    module = Sequential([LegalizeOps(), Schedule()])(dense(W, V))
    assert list(module) == ["main", "matmul"]
    (_, weight) = shapes(module, "matmul")
    assert weight != [96, 96]
    assert np.prod(weight) == 96 * 96
    x = floats(n, 96)
    np.testing.assert_allclose(graphopt.compile(module)(x)["y"], x @ W @ V, rtol=1e-4, atol=1e-2)
    beside: list = []
    assert Module.read(module.script(beside), beside) == module


def test_what_not_all_calls_know_stays_as_it_is() -> None:
    builder = GraphBuilder()
    x, w = builder.input("x", "float32", ("n", 96)), builder.input("w", "float32", (96, 96))
    builder.output("y", builder.emit("MatMul", [builder.emit("MatMul", [x, W]), w]))
    module = LegalizeOps()(builder.build())
    nest = module["matmul"]
    assert isinstance(nest, Nest)
    assert pack_constants(module, "matmul", nest) is None
    module = Schedule()(module)
    assert shapes(module, "matmul")[1] == [96, 96]
    (given, weight) = floats(2, 96), floats(96, 96)
    np.testing.assert_allclose(graphopt.compile(module)(given, weight)["y"], given @ W @ weight, rtol=1e-4, atol=1e-2)


def test_rules_of_a_user_see_programs_as_they_are() -> None:
    seen: list[int] = []
    module = Schedule([lambda s: seen.append(len(s.nest.buffers[1].shape))])(LegalizeOps()(dense(W)))
    assert seen == [2]
    assert shapes(module, "matmul")[1] == [96, 96]


def test_what_rests_on_constants_is_computed_now_and_is_read_elsewhere_as_it_was() -> None:
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("b", "n", 96))
    w = builder.constant(W)
    builder.output("y", builder.emit("MatMul", [x, builder.emit("Mul", [w, builder.emit("Exp", [w])])]))
    builder.output("w", builder.emit("Add", [builder.emit("MatMul", [x, w]), V[0]]))
    given = builder.build()
    module = Sequential([LowerToPrograms(), Schedule()])(given)
    inputs = floats(2, 3, 96)
    found = graphopt.compile(module)(inputs)
    np.testing.assert_allclose(found["y"], inputs @ (W * np.exp(W)), rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(found["w"], inputs @ W + V[0], rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("sizes", [("b", "n"), (3, "n"), (3, 5), ("a", "b", "n")])
def test_stacks_of_rows_are_one_matrix(sizes: tuple[str | int, ...], opset: int) -> None:
    builder = GraphBuilder(opset=opset)
    x, y = (builder.input(name, "float32", (*sizes, 96)) for name in "xy")
    with builder.dataflow():
        product = builder.emit("Relu", [builder.emit("Add", [builder.emit("MatMul", [x, W]), y])])
    builder.output("z", product)
    given = builder.build()
    module = Sequential([LowerToPrograms(), Schedule()])(given)
    (name,) = [name for name, _ in module.programs() if "matmul" in name]
    is_stacked = opset == 21 or sizes == (3, 5)
    ranks = [len(shape) for shape in shapes(module, name)]
    assert ranks == ([2, 3, 2] if is_stacked else [len(sizes) + 1, 3, len(sizes) + 1]), ranks
    main = module["main"]
    assert isinstance(main, Graph)
    assert main.script([]).count("dataflow {") == 1
    model, want = graphopt.compile(module), graphopt.compile(given)
    for count in ((0, 3, 2), (2, 0, 4), (1, 1, 1), (3, 5, 2)):
        shape = [n if isinstance(n, int) else count[k] for k, n in enumerate(sizes)]
        arrays = floats(*shape, 96), floats(*shape, 96)
        np.testing.assert_allclose(model(*arrays)["z"], want(*arrays)["z"], rtol=1e-4, atol=1e-4)
    beside: list = []
    assert Module.read(module.script(beside), beside) == module


def test_calls_within_bodies_are_handed_their_constants() -> None:
    builder = GraphBuilder()
    p, x = builder.input("p", "bool", ()), builder.input("x", "float32", ("n", 96))
    bodies: dict[str, Graph] = {}
    for branch, weight in (("then_branch", W), ("else_branch", V)):
        body = GraphBuilder("body")
        inner = body.input("x", "float32", ("n", 96))
        body.output("y", body.emit("MatMul", [inner, weight]))
        bodies[branch] = body.graph
    node = builder.graph.add("If", (p, x), graphopt.ir.graph.Attrs(bodies), captures=1)
    builder.graph.add_output("y", node.outputs[0])
    module = Module({"main": builder.graph})
    made = Sequential([LegalizeOps(), Schedule()])(module)
    assert shapes(made, "matmul")[1] != [96, 96]
    given = floats(4, 96)
    model = graphopt.compile(made)
    for which, weight in ((True, W), (False, V)):
        np.testing.assert_allclose(model(np.array(which), given)["y"], given @ weight, rtol=1e-4, atol=1e-2)
