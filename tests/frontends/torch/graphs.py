"""Functions of tensors as graphs, and what these give by ONNX's reference evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.ir.onnx_io import to_proto

torch: Any = pytest.importorskip("torch")


def of_function(function: Any, *inputs: Any, **options: Any) -> graphopt.Graph:
    """The graph of a module that calls the function."""

    class Module(torch.nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return function(*arguments)

    return graphopt.from_torch(Module(), inputs, **options)


def run(graph: graphopt.Graph, *inputs: Any) -> list[np.ndarray[Any, Any]]:
    """The graph's outputs for tensors."""
    from onnx.reference import ReferenceEvaluator

    feeds = dict(zip([graph.names[v] for v in graph.inputs], (x.numpy() for x in inputs), strict=True))
    found: list[np.ndarray[Any, Any]] = ReferenceEvaluator(to_proto(graph)).run(None, feeds)
    return found
