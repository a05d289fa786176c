"""Programs in nodes are fused as ops are, and compute what the interpreter of tensor programs says."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.errors import GraphoptError
from graphopt.ir.graph import Graph, Value
from graphopt.ir.infer_nests import NEST
from graphopt.ir.types import TensorType, symbol
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.compute import Tensor
from graphopt.lowering.loops.expressions import apply, cast, maximum, select
from graphopt.lowering.loops.interpret import interpret, value
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.lower.embedded_programs import attributes

RNG = np.random.default_rng(0)
W, B = RNG.standard_normal((6, 6), np.float32), RNG.standard_normal(6, np.float32)


def dense(x: Tensor, w: Tensor) -> Tensor:
    k = te.reduce_axis(w.shape[0])
    return te.compute((x.shape[0], w.shape[1]), lambda i, j: te.sum(x[i, k.var] * w[k.var, j], k))


def add(x: Tensor, b: Tensor) -> Tensor:
    return te.compute(x.shape, lambda i, j: x[i, j] + b[j])


def relu(x: Tensor) -> Tensor:
    return te.compute(x.shape, lambda *i: maximum(x[i], 0.0))


def halves(x: Tensor) -> Tensor:
    narrow = te.compute(x.shape, lambda *i: cast(x[i], "float16"))
    return te.compute(x.shape, lambda *i: cast(narrow[i], "float32") * 0.5)


def softmax(x: Tensor) -> Tensor:
    k, s = te.reduce_axis(x.shape[1]), te.reduce_axis(x.shape[1])
    m = te.compute(x.shape[:1], lambda i: te.max(x[i, k.var], k), name="m")
    e = te.compute(x.shape, lambda i, j: apply("exp", x[i, j] - m[i]), name="e")
    t = te.compute(x.shape[:1], lambda i: te.sum(e[i, s.var], s), name="t")
    return te.compute(x.shape, lambda i, j: e[i, j] / t[i])


def shifted(x: Tensor) -> Tensor:
    return te.compute(x.shape, lambda i, j: select(j > 0, x[i, j - 1], 0.0))


def first_largest(x: Tensor) -> Tensor:
    k = te.reduce_axis(x.shape[1])

    def element(i: Any) -> te.ReduceStage:
        starts = [te.lowest("float32"), te.lowest("int64")]

        def combined(best: Any, new: Any) -> list[Any]:
            return [maximum(best[0], new[0]), select(new[0] > best[0], new[1], best[1])]

        return te.reduction([k], [x[i, k.var], k.var], starts, combined)

    _, place = te.compute_several(x.shape[:1], element, ("largest", "place"))
    return te.compute(x.shape, lambda i, j: x[i, j] + cast(place[i], "float32"))


PROGRAMS: list[tuple[Callable[..., Tensor], list[np.ndarray]]] = [
    (dense, [W]),
    (add, [B]),
    (relu, []),
    (halves, []),
    (softmax, []),
    (shifted, []),
    (first_largest, []),
]
OPS: list[tuple[str, list[np.ndarray], Callable[[np.ndarray], np.ndarray]]] = [
    ("MatMul", [W], lambda x: x @ W),
    ("Add", [B], lambda x: x + B),
    ("Relu", [], lambda x: np.maximum(x, 0)),
    ("Tanh", [], np.tanh),
    ("Mul", [B], lambda x: x * B),
]


def interpreted(nest: Nest, arrays: list[np.ndarray]) -> np.ndarray:
    sizes = {"n": len(arrays[0])}
    (out,) = nest.outputs
    result = np.zeros([value(e, sizes) for e in out.shape], np.float32)
    interpret(nest, [*arrays, result], sizes)
    return result


@pytest.mark.parametrize("seed", range(16))
def test_chains_of_programs_and_ops_compute_what_the_interpreter_says(seed: int) -> None:
    random, b = Random(seed), graphopt.GraphBuilder()
    y = b.input("x", "float32", ("n", 6))
    steps: list[Callable[[np.ndarray], np.ndarray]] = []
    for _ in range(6):
        if random.random() < 0.6:
            function, given = random.choice(PROGRAMS)
            y = b.emit_compute(function, [y, *given])
            nest = b.module[function.__name__]
            assert isinstance(nest, Nest)
            steps.append(lambda a, nest=nest, given=given: interpreted(nest, [a, *given]))
        else:
            op, given, reference = random.choice(OPS)
            y = b.emit(op, [y, *given])
            steps.append(reference)
    b.output("y", y)
    model = graphopt.compile(b.build())
    assert not model.report.unfused
    for rows in (3, 1, 0):
        x = wanted = RNG.standard_normal((rows, 6), np.float32)
        for step in steps:
            wanted = step(wanted)
        np.testing.assert_allclose(model(x)["y"], wanted, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("as_programs", [(0, 1, 2), (0,), (1,), (2,), (0, 2)])
def test_dense_add_and_relu_are_one_kernel(as_programs: tuple[int, ...]) -> None:
    b = graphopt.GraphBuilder()
    y = b.input("x", "float32", ("n", 6))
    for k, (function, op, given) in enumerate([(dense, "MatMul", [W]), (add, "Add", [B]), (relu, "Relu", [])]):
        y = b.emit_compute(function, [y, *given]) if k in as_programs else b.emit(op, [y, *given])
    b.output("y", y)
    model = graphopt.compile(b.build(), optimize=False)
    assert model.report.calls == 1
    x = RNG.standard_normal((4, 6), np.float32)
    np.testing.assert_allclose(model(x)["y"], np.maximum(x @ W + B, 0), atol=1e-4)


def test_a_program_is_the_epilogue_of_a_convolution() -> None:
    w = RNG.standard_normal((4, 3, 3, 3), np.float32)
    calls = []
    for is_program in (False, True):
        b = graphopt.GraphBuilder()
        y = b.emit("Conv", [b.input("x", "float32", (1, 3, 8, 8)), w], {"strides": [2, 2]})
        b.output("y", b.emit_compute(relu, [y]) if is_program else b.emit("Relu", [y]))
        calls.append(graphopt.compile(b.build()).report.calls)
    assert calls[0] == calls[1]


def test_several_outputs_are_one_kernel_with_what_is_before() -> None:
    def both(x: Tensor) -> tuple[Tensor, Tensor]:
        return te.compute(x.shape, lambda i, j: x[i, j] * 2.0), te.compute(x.shape[:1], lambda i: x[i, 0])

    b = graphopt.GraphBuilder()
    x = b.input("x", "float32", ("n", 6))
    doubled, first = b.emit_compute(both, [b.emit("Relu", [x])])
    b.output("y", doubled)
    b.output("z", first)
    a = RNG.standard_normal((3, 6), np.float32)
    found = graphopt.compile(b.build())(a)
    np.testing.assert_array_equal(found["y"], np.maximum(a, 0) * 2)
    np.testing.assert_array_equal(found["z"], np.maximum(a, 0)[:, 0])


ORDERED = """
@program
def running(A: Buffer[("n", 6), "float32"], C: Buffer[("n", 6), "float32"], n: size):
    notes({"schedule": "default"})
    for i, j in grid(n, 6):
        with block("C"):
            v = axis.spatial(n, i)
            w = axis.ordered(6, j)
            C[v, w] = A[v, w] + select(w > 0, C[v, w - 1], 0.0)
"""


def node_of(nest: Nest, shape: Any) -> tuple[Graph, Value]:
    graph = Graph("g")
    x = graph.add_input("x", TensorType("float32", shape))
    return graph, graph.add(NEST, (x,), attributes(nest)).outputs[0]


def test_what_cannot_be_fused_is_reported_with_why() -> None:
    graph, y = node_of(read(ORDERED), (symbol("n"), 6))
    graph.add_output("y", graph.add("Relu", (y,)).outputs[0])
    model = graphopt.compile(graph)
    ((_, why),) = model.report.unfused.items()
    assert why == "block C: its steps are in order"
    x = RNG.standard_normal((3, 6), np.float32)
    np.testing.assert_allclose(model(x)["y"], np.maximum(x.cumsum(1), 0), atol=1e-5)


def test_what_is_scheduled_stays_as_it_is() -> None:
    fixed = read(ORDERED)
    graph, y = node_of(Nest(fixed.name, fixed.params, fixed.body), (symbol("n"), 6))
    graph.add_output("y", y)
    assert list(graphopt.compile(graph).report.unfused.values()) == ["it is scheduled by hand"]


def test_an_input_of_another_shape_is_told_when_it_runs() -> None:
    rows = read(
        """
@program
def rows(A: Buffer[("n", 4), "float32"], C: Buffer[("n",), "float32"], n: size):
    for i, k in grid(n, 4):
        with block("C"):
            v, w = axis.remap("SR", [i, k])
            with init():
                C[v] = 0.0
            C[v] = C[v] + A[v, w]
"""
    )
    graph, y = node_of(Nest(rows.name, rows.params, rows.body, notes=(BY_RULE,)), (symbol("n"), symbol("k")))
    graph.add_output("y", y)
    model = graphopt.compile(graph)
    np.testing.assert_array_equal(model(np.ones((2, 4), np.float32))["y"], [4, 4])
    with pytest.raises(GraphoptError, match="the program takes"):
        model(np.ones((2, 3), np.float32))
