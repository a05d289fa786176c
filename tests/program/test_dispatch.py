"""Regions that match a pattern become one call, which gets what the pattern names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.errors import RuleError, UsageError
from graphopt.ir import evaluate
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.lowering.loops.script import read
from graphopt.program.dispatch import fuse_by_pattern
from graphopt.program.pipelines import pipeline_named

DENSE = """
x: float32[n, 8]
w = float32[8, 4]{0.25, ...}
b = float32[4]{0.5, ...}
"""
X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def linear() -> list[int]:
    calls: list[int] = []

    @graphopt.register("test.linear")
    def linear(x: Any, w: Any, b: Any, out: Any, scale: float = 1.0) -> None:
        calls.append(1)
        np.matmul(x * np.float32(scale), w, out=out)
        out += b

    return calls


def ops(graph: graphopt.Graph) -> list[str]:
    return [n.op for n in graph.order() if n.op not in ("Input", "Constant")]


@pytest.mark.parametrize("name", ["zero", "cpu"])
def test_a_region_is_handed_to_a_function(linear: list[int], name: str) -> None:
    graph = parse(DENSE + "y = Relu(Add(MatMul(x, w), b))\nreturn y")
    mine = fuse_by_pattern({"Add(MatMul(x, w), b)": "test.linear"})
    made = mine(graph)
    assert ops(made) == ["test::linear", "Relu"]
    assert ops(graph) == ["MatMul", "Add", "Relu"]
    first = pipeline_named(name).passes[0].name
    model = graphopt.compile(graph, pipeline=pipeline_named(name).before(first, mine))
    assert error(evaluate.run(graph, {"x": X})["y"], model(X)["y"]) <= 1
    assert linear == [1]


def test_operands_come_in_the_order_of_the_pattern_however_the_op_has_them(linear: list[int]) -> None:
    graph = parse(DENSE + "y = Add(b, MatMul(x, w))\nreturn y")
    mine = fuse_by_pattern({"Add(MatMul(x, w), b)": "test.linear"})
    model = graphopt.compile(graph, pipeline=pipeline_named("zero") + mine)
    assert error(evaluate.run(graph, {"x": X})["y"], model(X)["y"]) <= 1
    assert linear == [1]


def test_guards_hold_and_attributes_that_are_bound_are_handed_on() -> None:
    text = DENSE + "y = Gemm(x, w, b, alpha={alpha})\nreturn y"
    mine = fuse_by_pattern({"Gemm(x, w, b, alpha=scale) where scale > 1.0": "test.linear"})
    assert ops(mine(parse(text.replace("{alpha}", "0.5")))) == ["Gemm"]
    graph = parse(text.replace("{alpha}", "2.0"))
    (node,) = [n for n in mine(graph).nodes() if n.op == "test::linear"]
    assert dict(node.attrs) == {"scale": 2.0}
    model = graphopt.compile(graph, pipeline=pipeline_named("zero") + mine)
    assert error(evaluate.run(graph, {"x": X})["y"], model(X)["y"]) <= 1


def test_a_region_is_handed_to_a_program() -> None:
    shifted = read(
        """
@program
def shifted(A: Buffer[("n", 8), "float32"], C: Buffer[("n", 8), "float32"], n: size):
    for i, j in grid(n, 8):
        with block("C"):
            vi, vj = axis.remap("SS", [i, j])
            C[vi, vj] = max(A[vi, vj], 0.0) + 1.0
"""
    )
    graph = parse("x: float32[n, 8]\ny = Add(Relu(x), 1.0)\nreturn y")
    made = fuse_by_pattern({"Add(Relu(x), 1.0)": shifted})(graph)
    assert ops(made) == ["graphopt::Nest"]
    np.testing.assert_array_equal(graphopt.compile(made)(X)["y"], np.maximum(X, 0) + 1)
    np.testing.assert_array_equal(evaluate.run(made, {"x": X})["y"], np.maximum(X, 0) + 1)


@pytest.mark.parametrize(
    "rest",
    [
        "h = MatMul(x, w)\ny = Add(h, b)\nreturn y, h",
        "h = MatMul(x, w)\ny = Add(h, b)\nz = Relu(h)\nreturn y, z",
        "h = MatMul(x, w)\ny = Sub(h, b)\nreturn y",
    ],
)
def test_what_is_read_elsewhere_and_what_is_something_else_stays(rest: str) -> None:
    graph = parse(DENSE + rest)
    assert fuse_by_pattern({"Add(MatMul(x, w), b)": "test.linear"})(graph) is graph


def test_the_first_pattern_goes_first() -> None:
    graphopt.register("test.all", lambda x, w, b, out: np.maximum(x @ w + b, 0, out=out))
    graph = parse(DENSE + "y = Relu(Add(MatMul(x, w), b))\nz = Add(MatMul(x, w), b)\nreturn y, z")
    mine = fuse_by_pattern({"Relu(Add(MatMul(x, w), b))": "test.all", "Add(MatMul(x, w), b)": "test.linear"})
    assert sorted(ops(mine(graph))) == ["test::all", "test::linear"]


def test_mistakes_are_told() -> None:
    with pytest.raises(RuleError, match="<pattern>"):
        fuse_by_pattern({"Add(MatMul(x, w": "test.linear"})
    with pytest.raises(UsageError, match=r"graphopt\.register\('no\.such'"):
        fuse_by_pattern({"Relu(x)": "no.such"})
