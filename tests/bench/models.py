"""Small models to measure: a few ops, their inputs, and the constants that they have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto, helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

DOMAINS = {"": 17, "com.microsoft": 1, "graphopt": 1}


def model(
    nodes: Sequence[NodeProto],
    feeds: Mapping[str, Any],
    held: Mapping[str, Any],
    outputs: Sequence[str] = ("y",),
    shapes: Mapping[str, Sequence[int | str]] | None = None,
) -> bytes:
    """The file of a model of inputs like these, of their shapes or of those given, and of these constants."""
    inputs = [
        helper.make_tensor_value_info(n, np_dtype_to_tensor_dtype(a.dtype), (shapes or {}).get(n, a.shape))
        for n, a in feeds.items()
    ]
    kept = [numpy_helper.from_array(np.ascontiguousarray(a).reshape(a.shape), n) for n, a in held.items()]
    made = [helper.make_empty_tensor_value_info(n) for n in outputs]
    opsets = [helper.make_opsetid(domain, version) for domain, version in DOMAINS.items()]
    graph = helper.make_graph(list(nodes), "layer", inputs, made, kept)
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


def single(op: str, feeds: Mapping[str, Any], held: Mapping[str, Any], names: str, **attrs: Any) -> bytes:
    """A model of one op, whose inputs are named with spaces between; those called ``-`` are absent."""
    node = helper.make_node(op, ["" if n == "-" else n for n in names.split()], ["y"], **attrs)
    return model([node], feeds, held)
