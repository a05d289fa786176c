"""Programs stand in nodes: their types follow from the inputs, and what does not fit is told."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import graphopt
from graphopt.errors import InvalidModelError, NestError
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.infer_nests import NEST
from graphopt.ir.text import parse, show
from graphopt.ir.types import Size, TensorType, symbol
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.lowering.lower.embedded_programs import attributes, program_of
from graphopt.lowering.schedule.decomposed import decomposed

SUMS = read(
    """
@program
def sums(A: Buffer[("n", "m"), "float32"], C: Buffer[("n * 2",), "float32"], n: size, m: size):
    for i, k in grid(n * 2, m):
        with block("C"):
            vi, vk = axis.remap("SR", [i, k])
            with init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vi // 2, vk]
"""
)


def applied(nest: Nest, *shape: Size) -> Graph:
    graph = Graph("g")
    x = graph.add_input("x", TensorType("float32", shape))
    node = graph.add(NEST, (x,), attributes(nest))
    graph.add_output("y", node.outputs[0])
    return graph


@pytest.mark.parametrize("shape", [(3, 4), (symbol("batch"), 4), (3, symbol("b"))])
def test_types_and_sizes_follow_from_the_inputs(shape: tuple[Size, ...]) -> None:
    graph = applied(SUMS, *shape)
    (output,) = graph.outputs
    assert output is not None
    assert infer(graph)[output].type == TensorType("float32", (shape[0] * 2,))
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(graphopt.compile(graph)(x)["y"], np.repeat(x.sum(1), 2))


def test_a_program_survives_text_and_files(tmp_path: Path) -> None:
    graph = applied(SUMS, symbol("n"), 4)
    for again in (parse(show(graph)), onnx_io.load(onnx_io.to_bytes(graph))):
        (node,) = [n for n in again.nodes() if n.op == NEST]
        assert program_of(node) == SUMS
        x = np.ones((2, 4), np.float32)
        np.testing.assert_array_equal(graphopt.compile(again)(x)["y"], np.full(4, 4))
    graphopt.compile(graph).save(tmp_path / "p")


def test_a_scheduled_program_is_compiled_as_it_is_but_for_where_its_sum_starts() -> None:
    schedule = graphopt.Schedule(SUMS)
    schedule.split("i", [None, 2])
    graph = applied(schedule.nest, symbol("n"), 4)
    (part,) = graphopt.compile(graph).compiled.linked.parts
    assert part.nest == decomposed(schedule.nest) != schedule.nest


def test_what_does_not_fit_is_told_with_the_node() -> None:
    with pytest.raises(InvalidModelError, match="the program takes"):
        infer(applied(SUMS, 3))
    fixed = read(
        """
@program
def copied(A: Buffer[(4,), "float32"], C: Buffer[(4,), "float32"]):
    for i in serial(4):
        with block("C"):
            vi = axis.spatial(4, i)
            C[vi] = A[vi]
"""
    )
    with pytest.raises(InvalidModelError, match=r"takes \[4\], not \[5\]"):
        infer(applied(fixed, 5))


def test_a_size_that_no_input_has_is_refused() -> None:
    ramp = read(
        """
@program
def ramp(C: Buffer[("n",), "float32"], n: size):
    for i in serial(n):
        with block("C"):
            vi = axis.spatial(n, i)
            C[vi] = 1.0
"""
    )
    with pytest.raises(NestError, match="the size n is no axis of an input"):
        attributes(ramp)
