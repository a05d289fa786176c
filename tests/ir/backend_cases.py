"""ONNX's own node tests as calls of one op on constants: what inference and evaluation are measured against."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, Node
from graphopt.ir.onnx_io import load
from tests.onnx_suite import suite

LARGE = 20_000
"""Tests on more elements take seconds in the reference implementation, and test nothing else."""


@dataclass(frozen=True)
class Case:
    name: str
    node: Node
    inputs: tuple[Constant | None, ...]
    outputs: tuple[Constant | None, ...]
    """What the test expects; None for outputs that are not tensors or that the model does not give."""
    opset: int


@cache
def cases() -> tuple[Case, ...]:
    """All node tests whose model is one op on tensors."""
    found = [_case(test) for test in suite("node")]
    return tuple(case for case in found if case is not None)


def _case(test: Any) -> Case | None:
    if not test.data_sets:
        return None
    graph = load(test.model or onnx.load(f"{test.model_dir}/model.onnx"))
    nodes = [n for n in graph.nodes() if n.op not in (INPUT, CONSTANT)]
    given, expected = (list(map(_constant, values)) for values in test.data_sets[0])
    if len(nodes) != 1 or any(c is None or c.size > LARGE for c in given):
        return None
    (node,) = nodes
    values = dict(zip(graph.inputs, given, strict=False))
    inputs = tuple(None if v is None else graph.constant_of(v) or values[v] for v in node.inputs)
    outputs = tuple(expected[graph.outputs.index(v)] if v in graph.outputs else None for v in node.outputs)
    return Case(test.name, node, inputs, outputs, graph.opset)


def _constant(value: Any) -> Constant | None:
    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    return Constant.of(np.asarray(value)) if isinstance(value, (np.ndarray, np.generic)) else None
