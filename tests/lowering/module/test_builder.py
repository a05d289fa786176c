"""Graphs made in Python compute what they say, and refuse what makes no sense."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.errors import GraphoptError, InvalidModelError, UsageError
from graphopt.ir import evaluate
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.onnx_io import load, to_bytes
from graphopt.ir.tolerance import error
from graphopt.ir.types import TensorType, symbol
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import Tensor, compute, reduce_axis
from graphopt.lowering.loops.expressions import maximum
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.module.builder import GraphBuilder
from graphopt.lowering.module.external import register
from graphopt.lowering.module.legalize import LegalizeOps
from graphopt.lowering.module.module import Module
from graphopt.lowering.module.mutator import Mutator, Result
from graphopt.lowering.module.passes import Pass
from graphopt.lowering.schedule.schedule import Schedule

RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def dense(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    k = reduce_axis(x.shape[1])
    product = compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(x[i, k.var] * w[k.var, j], k))
    return compute(product.shape, lambda i, j: maximum(product[i, j] + b[j], 0.0))


@pytest.fixture(autouse=True)
def functions() -> None:
    def linear(x: Any, w: Any, b: Any, out: Any) -> None:
        np.matmul(x, w, out=out)
        out += b

    graphopt.register("test.linear", linear)
    graphopt.register("test.twice", lambda x, a, b: (np.copyto(a, x), np.copyto(b, x)), outputs=lambda x: [x, x])
    graphopt.register("test.note", lambda x: None, effects=True)


W, B, V = floats(16, 32), floats(32), floats(32, 8)


def network() -> GraphBuilder:
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("n", 16))
    w = builder.input("w", "float32", (16, 32))
    with builder.dataflow():
        h = builder.emit_compute(dense, [x, w, B])
        t = builder.emit("Tanh", [h])
    y = builder.call("test.linear", [t, V, np.zeros(8, np.float32)], out_shape=("n", 8))
    builder.call("test.note", [y], out_shape=[])
    builder.output("y", builder.emit("Add", [y, 1.0]))
    builder.bind_params({"w": W})
    return builder


def expected(x: np.ndarray) -> np.ndarray:
    return np.tanh(np.maximum(x @ W + B, 0)) @ V + 1


@pytest.mark.parametrize("optimize", [False, True])
def test_ops_tensor_functions_and_calls_make_a_program(optimize: bool) -> None:
    model = graphopt.compile(network().build(), optimize=optimize)
    assert model.input_names == ("x",)
    for n in (1, 7):
        x = floats(n, 16)
        assert error(expected(x).astype(np.float32), model(x)["y"]) <= 1
    assert model.report.unlowered == ()


def test_a_module_prints_as_one_script() -> None:
    text = network().build().script()
    assert "def dense(\n" in text
    assert "external test.linear\n" in text
    assert "external test.note (effects)\n" in text
    assert "graph main" in text
    assert "= module::dense(" in text
    assert "= test::linear(" in text
    assert text == network().build().script()


def test_a_tensor_function_has_a_meaning_for_the_reference_evaluator() -> None:
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("n", 16))
    builder.output("y", builder.emit_compute(dense, [x, W, B]))
    x_ = floats(3, 16)
    want = np.maximum(x_ @ W + B, 0)
    assert error(want, evaluate.run(builder.build().graph(), {"x": x_})["y"]) <= 1


def test_an_input_may_be_of_a_type() -> None:
    builder = GraphBuilder()
    type = TensorType("int64", (symbol("n"), 3))
    assert builder.type(builder.input("x", type)) == type


def test_types_follow() -> None:
    builder = GraphBuilder()
    n = symbol("n")
    x = builder.input("x", "float32", (n, 16))
    assert builder.type(builder.emit_compute(dense, [x, W, B])) == TensorType("float32", (n, 32))
    assert builder.type(builder.emit("Concat", [x, x], {"axis": 0})) == TensorType("float32", (n * 2, 16))
    a, b = builder.call("test.twice", [x])
    assert builder.type(a) == builder.type(b) == TensorType("float32", (n, 16))
    assert builder.type(builder.emit("Split", [x, np.array([4, 12])], {"axis": 1}, n_outputs=2)[1]).shape == (n, 12)
    assert (
        builder.type(builder.call("test.linear", [x, W, B], out_shape=("n", 32), out_dtype="float64")).dtype
        == "float64"
    )
    assert builder.call("test.note", [x], out_shape=[]) == ()


def test_equal_tensor_functions_are_one_program_and_others_of_the_name_are_not() -> None:
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("n", 16))
    h = builder.emit_compute(dense, [x, W, B])
    same = builder.emit_compute(dense, [x, W, B])
    other = builder.emit_compute(dense, [h, V, floats(8)])
    lambdas = builder.emit_compute(lambda x: compute(x.shape, lambda i, j: -x[i, j]), [other])
    for k, value in enumerate((same, other, lambdas)):
        builder.output(f"y{k}", value)
    module = builder.build()
    assert [name for name in module if name != "main"] == ["dense", "dense_1", "compute"]
    nodes = [n.origin.name for n in module.graph().nodes() if n.origin.name]
    assert nodes == ["dense", "dense_1", "dense_1_1", "compute"]


def test_a_program_is_taken_out_scheduled_and_put_back() -> None:
    module = network().build()
    nest = module["dense"]
    assert isinstance(nest, Nest)
    schedule = Schedule(nest)
    block = schedule.get_block("t_1")
    i, j, k = schedule.get_loops(block)
    schedule.reorder(i, k, j)
    schedule.decompose_reduction(block, k)
    schedule.vectorize(j)
    module["dense"] = schedule.nest
    model = graphopt.compile(module)
    (part,) = [p for p in model.compiled.linked.parts if p.nodes == ("dense",)]
    assert part.nest is not None
    assert part.nest.body == schedule.nest.body
    x = floats(5, 16)
    assert error(expected(x).astype(np.float32), model(x)["y"]) <= 1


def test_graphs_call_graphs_and_programs_of_their_module() -> None:
    inner = GraphBuilder("layer")
    x = inner.input("x", "float32", ("m", 16))
    inner.output("y", inner.emit_compute(dense, [x, W[:, :16], B[:16]]))
    module = inner.build()
    module["negated"] = read(
        """
@program
def negated(A: Buffer[("n", 16), "float32"], C: Buffer[("n", 16), "float32"], n: size):
    for i, j in grid(n, 16):
        with block("C"):
            vi, vj = axis.remap("SS", [i, j])
            C[vi, vj] = 0.0 - A[vi, vj]
"""
    )
    outer = GraphBuilder("main", module=module)
    x = outer.input("x", "float32", ("n", 16))
    h = outer.emit("module::layer", [outer.emit("module::layer", [x])])
    y = outer.emit("module::negated", [h])
    assert outer.type(y) == TensorType("float32", (symbol("n"), 16))
    outer.output("y", y)
    model = graphopt.compile(outer.build())
    x_ = floats(3, 16)
    h_ = np.maximum(x_ @ W[:, :16] + B[:16], 0)
    want = -np.maximum(h_ @ W[:, :16] + B[:16], 0)
    assert error(want, model(x_)["y"]) <= 1


def test_a_region_knows_its_nodes() -> None:
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("n",))
    with builder.dataflow() as region:
        y = builder.emit("Relu", [x])
    z = builder.emit("Relu", [y])
    builder.output("z", z)
    graph = builder.build().graph()
    assert [region(graph.producer(v)) for v in (x, y, z)] == [False, True, False]


def test_regions_are_kept_by_passes_models_and_scripts() -> None:
    seen: list[float] = []
    register("test.seen", lambda x: seen.append(float(x.sum())), effects=True)
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("n", 16))
    with builder.dataflow():
        builder.emit("Relu", [x])
    with builder.dataflow() as second:
        y = builder.emit("Neg", [builder.emit("Relu", [x])])
        builder.call("test.seen", [y], out_shape=[])
        y = builder.emit("Exp", [y])
    builder.output("y", builder.emit("Abs", [y]))
    module = builder.build()
    for made in (LegalizeOps()(module), Pass("abs", _NegToSub()).on(second)(module), Module.of(saved(module))):
        graph = made["main"]
        assert isinstance(graph, Graph)
        kept = [node.op for node in graph.order() if second(node)]
        assert len(kept) == 4, kept
        assert graph.script().count("dataflow {") == 2
        assert Module.read(made.script()).script() == made.script()
        ones = np.ones((1, 16), np.float32)
        np.testing.assert_allclose(graphopt.compile(made)(ones)["y"], np.exp(-ones), rtol=1e-6)
        assert seen.pop() == -16


class _NegToSub(Mutator):
    def visit_Neg(self, node: Node) -> Result:
        return self.emit("Sub", [0.0, node.inputs[0]])  # type: ignore[no-any-return]


def saved(module: Module) -> Graph:
    """The graph as a model that was written and read."""
    return load(to_bytes(module.graph()))


def build(text: str) -> None:
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("n", 16))
    exec(text, {"b": builder, "x": x, "np": np, "te": te, "Value": Value})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("b.input('x')", "there is an input 'x' already"),
        ("b.output('y', x); b.output('y', x)", "there is an output 'y' already"),
        ("b.emit('MatMull', [x, x])", "ONNX has no op 'MatMull'"),
        ("b.emit('MatMul', [x])", "1 input, MatMul has 2"),
        ("b.emit('Relu', [x], {'alpha': 1.0})", "unknown attribute 'alpha'"),
        ("b.emit('MatMul', [x, np.ones((3, 4), np.float32)])", "MatMul of "),
        ("b.emit('Add', [x, np.ones(16)])", "one dtype"),
        ("b.emit('Relu', [Value(99)])", "no value of this builder's graph"),
        ("b.emit('module::nope', [x])", "no function 'nope'; there is none"),
        ("b.emit_compute(lambda x: x, [x])", "may not give back what it takes"),
        ("b.emit_compute(lambda x: x, [b.constant(np.array(['a']))])", "kernels do not compute with string"),
        ("b.call('no.such', [x])", r"graphopt.register\('no.such'"),
        ("b.call('test.linear', [x])", "say out_shape="),
        ("b.call('test.linear', [], out_shape=(3,))", "needs an out_dtype"),
        ("with b.dataflow():\n with b.dataflow(): pass", "within another"),
        ("b.bind_params({'q': 1})", "no input 'q' to bind; there is x"),
        ("b.bind_params({'x': np.ones((2, 3), np.float32)})", r"'x' is float32\[n, 16\], and the array for it is"),
        ("b.build()", "has no output"),
        ("b.input('z', 'floaty')", "no dtype is called 'floaty': there are bfloat16, bool"),
        ("b.input('z', 'float32', (-2,))", "a size is 0 or more, not -2"),
        ("b.input('z', 'float32', 'n')", r"a shape is a sequence of sizes, as in \('n', 64\), not 'n'"),
        ("b.emit_compute(lambda x: None, [x])", "gives tensors that compute makes, not None"),
        ("b.call('test.linear', [x], out_shape=('q',))", "nothing tells the size 'q'; there is n$"),
        ("b.call('test.linear', [x], out_shape=[(1,), (2,)], out_dtype=['bool'])", "2 shapes of outputs, and 1 dtype"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(GraphoptError, match=said) as caught:
        build(text)
    assert isinstance(caught.value, UsageError | InvalidModelError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("number", "dtype"), [(1.5, "float32"), (2, "int64"), (True, "bool")])
def test_numbers_of_python_have_a_dtype_where_nobody_says(number: float, dtype: str) -> None:
    builder = GraphBuilder()
    x = builder.input("x", "float32", (2,))
    builder.output("y", builder.emit_compute(lambda x: te.compute((2,), lambda i: number), [x]))
    assert graphopt.compile(builder.build())(floats(2))["y"].tolist() == [number, number]
    assert builder.type(builder.graph.outputs[0]).dtype == dtype


def test_what_was_refused_leaves_nothing_behind() -> None:
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("n", 16))
    before = len(builder.graph)
    with pytest.raises(InvalidModelError):
        builder.emit("MatMul", [x, np.ones((3, 4), np.float32)])
    assert len(builder.graph) == before
