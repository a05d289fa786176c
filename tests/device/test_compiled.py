"""Models compiled for a real GPU compute what the reference evaluator does."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import graphopt

pytestmark = pytest.mark.device

SHAPES = {
    "product": ([("MatMul", ["x", "w"])], {"x": ["n", 96], "w": [96, 200]}),
    "softmax": ([("Softmax", ["x"])], {"x": ["n", 1000]}),
    "norm": ([("LayerNormalization", ["x", "s"])], {"x": ["n", 768], "s": [768]}),
    "transpose": ([("Transpose", ["x"])], {"x": ["n", 300]}),
    "chain": ([("Exp", ["x"]), ("Add", ["v0", "x"]), ("Relu", ["v1"])], {"x": ["n", 333]}),
    "convolution": ([("Conv", ["x", "w"]), ("Relu", ["v0"])], {"x": ["n", 8, 20, 20], "w": [16, 8, 3, 3]}),
    "residual": (
        [("Conv", ["x", "w", "b"]), ("Add", ["v0", "z"]), ("Relu", ["v1"])],
        {"x": ["n", 8, 20, 20], "w": [16, 8, 3, 3], "b": [16], "z": ["n", 16, 18, 18]},
    ),
    "reduction": ([("ReduceSum", ["x"])], {"x": ["n", 70, 50]}),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dispatch", ["library", "own"])
def test_ops(gpu: Any, name: str, dispatch: Any) -> None:
    ops, shapes = SHAPES[name]
    values = [*(f"v{n}" for n in range(len(ops) - 1)), "y"]
    nodes = [helper.make_node(op, inputs, [value]) for (op, inputs), value in zip(ops, values, strict=True)]
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in shapes.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, name, inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    compiled = graphopt.compile(model, target="cuda", dispatch=dispatch)
    draw = np.random.default_rng(4).standard_normal
    for n in (5, 1, 130, 5, 5):
        feeds = {k: draw([n if s == "n" else s for s in shape]).astype("f") for k, shape in shapes.items()}
        wanted = ReferenceEvaluator(model).run(None, feeds)[0]
        np.testing.assert_allclose(compiled(feeds)["y"], wanted, rtol=1e-3, atol=1e-3)
