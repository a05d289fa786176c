"""Recipes from ONNX's own tests: any op as a test of nodes has it, its inputs bound to values of the graph."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from onnx import numpy_helper

from graphopt.errors import GraphoptError
from graphopt.ir import onnx_io, ops
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Value
from graphopt.ir.types import TensorType
from tests.onnx_suite import suite
from tests.recipes.maker import FLOATS, LARGEST, Maker, Misfit
from tests.recipes.repeats import bound

Sample = tuple[Graph, dict[Value, Any]]
"""A graph of few nodes, and what its test gives it."""


@cache
def samples() -> tuple[Sample, ...]:
    """The tests of nodes that any model could hold: pure ops of ONNX's own domain on tensors of numbers."""
    found = []
    for case in suite("node"):
        model = case.model
        if model is None or not case.data_sets:
            continue
        try:
            graph = onnx_io.load(model)
        except GraphoptError:
            continue
        given = dict(zip(graph.inputs, map(_array, case.data_sets[0][0]), strict=False))
        nodes = [node for node in graph.order() if node.op not in (INPUT, CONSTANT)]
        are_plain = len(given) == len(graph.inputs) and all(_is_plain(a) for a in given.values())
        if are_plain and all("::" not in n.op and not n.bodies and ops.is_pure(n.op, n.attrs) for n in nodes):
            found.append((graph, given))
    return tuple(found)


def _array(given: Any) -> Any:
    return numpy_helper.to_array(given) if hasattr(given, "raw_data") else given


def _is_plain(array: Any) -> bool:
    return isinstance(array, np.ndarray) and array.dtype.kind in "fiub" and array.size <= LARGEST


def sample(m: Maker) -> None:
    """What one of the tests does. Floats are values of the graph; what else is given says sizes, and stays."""
    graph, given = m.random.choice(samples())
    copies: dict[Value, Value] = {}
    for node in graph.order():
        if node.op == INPUT:
            value = node.outputs[0]
            array = given[value]
            is_data = array.dtype.name in FLOATS and array.ndim and 0 not in array.shape
            kind = TensorType(array.dtype.name, array.shape)
            copies[value] = bound(m, kind) if is_data else m.space.make_constant(Constant.of(array))
        elif node.op == CONSTANT:
            constant = graph.constant_of(node.outputs[0])
            if constant is None:
                raise Misfit("no dense constant")
            copies[node.outputs[0]] = m.space.make_constant(constant)
        else:
            inputs = [None if v is None else copies[v] for v in node.inputs]
            copies.update(zip(node.outputs, m.calls(node.op, inputs, node.attrs, node.n_outputs), strict=True))
