"""Backend tests of ONNX as models: one op each, or a few."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from graphopt.ir import ops

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")
"""The kinds of test whose models are in the onnx package."""


def model_of_node(node: Any, arrays: Sequence[Any]) -> Any:
    """A model (``onnx.ModelProto``) of one node (``onnx.NodeProto``) for inputs like these, in the newest opset."""
    from onnx import TypeProto, helper

    names = [name for name in node.input if name]
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    outputs = [helper.make_value_info(name, TypeProto()) for name in node.output if name]
    opsets = [helper.make_opsetid("", ops.LATEST)]
    if node.domain:
        opsets.append(helper.make_opsetid(node.domain, 1))
    return helper.make_model(helper.make_graph([node], "node", inputs, outputs), opset_imports=opsets)


def suite() -> Iterator[tuple[str, Any]]:
    """The name and the model (an ``onnx.ModelProto``) of each test, in the suite's order."""
    import onnx
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tests are computed as they are made: overflow and division by zero
        cases = [case for kind in KINDS for case in load_model_tests(kind=kind)]
    for case in cases:
        yield case.name, case.model or onnx.load(f"{case.model_dir}/model.onnx")
