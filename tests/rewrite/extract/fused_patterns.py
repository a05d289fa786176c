"""What ONNX Runtime makes one op of by itself, as exporters write it, each in a layer of usual size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

ROWS, WIDTH = 64, 128
IMAGE = (1, 32, 28, 28)


class Layer:
    """A model under construction: each call of an op gives the name of its result."""

    def __init__(self, opset: int = 17) -> None:
        self.opset = opset
        self.nodes: list[onnx.NodeProto] = []
        self.held: list[onnx.TensorProto] = []
        self.random = np.random.default_rng(7)

    def __call__(self, op: str, *inputs: Any, **attrs: Any) -> str:
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(op, names, [f"v{len(self.nodes)}"], **attrs))
        return f"v{len(self.nodes) - 1}"

    def constant(self, value: Any) -> str:
        """A constant; a list is one of integers, a tuple the shape of random numbers."""
        if isinstance(value, tuple):
            array = self.random.standard_normal(value).astype(np.float32) / 8
        else:
            array = np.array(value, np.int64 if isinstance(value, list) else np.float32)
        self.held.append(numpy_helper.from_array(array, f"c{len(self.held)}"))
        return f"c{len(self.held) - 1}"

    def model(self, result: str, shape: tuple[int, ...], rank: int) -> onnx.ModelProto:
        """The model, which works on its input and on whose result something else works."""
        self.nodes[0:0] = [helper.make_node("Abs", ["input"], ["x"])]
        self.nodes.append(helper.make_node("Abs", [result], ["y"]))
        ports = helper.make_tensor_value_info("input", 1, shape), helper.make_tensor_value_info("y", 1, [None] * rank)
        graph = helper.make_graph(self.nodes, "layer", ports[:1], ports[1:], self.held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)

    def mean(self, x: str) -> str:
        """The mean of each row."""
        if self.opset < 18:
            return self("ReduceMean", x, axes=[-1], keepdims=1)
        return self("ReduceMean", x, [-1], keepdims=1)


def rms_norm(n: Layer) -> str:
    root = n("Sqrt", n("Add", n.mean(n("Pow", "x", 2.0)), 1e-6))
    return n("Mul", (WIDTH,), n("Div", "x", root))


def rms_norm_reciprocal(n: Layer) -> str:
    root = n("Sqrt", n("Add", n.mean(n("Pow", "x", 2.0)), 1e-6))
    return n("MatMul", n("Mul", n("Mul", "x", n("Div", 1.0, root)), (WIDTH,)), (WIDTH, WIDTH))


def layer_norm(n: Layer) -> str:
    d = n("Sub", "x", n.mean("x"))
    root = n("Sqrt", n("Add", n.mean(n("Pow", d, 2.0)), 1e-6))
    normal = n("Add", n("Mul", n("Div", d, root), (WIDTH,)), (WIDTH,))
    return n("MatMul", normal, (WIDTH, WIDTH))


def skip_layer_norm(n: Layer) -> str:
    return n("LayerNormalization", n("Add", "x", n("MatMul", "x", (WIDTH, WIDTH))), (WIDTH,), (WIDTH,))


def gelu(n: Layer) -> str:
    return n("Mul", n("Mul", "x", n("Add", n("Erf", n("Div", "x", 2**0.5)), 1.0)), 0.5)


def gelu_first(n: Layer) -> str:
    return n("Mul", n("Mul", "x", 0.5), n("Add", n("Erf", n("Div", "x", 2**0.5)), 1.0))


def bias_gelu(n: Layer) -> str:
    x = n("Add", n("MatMul", "x", (WIDTH, WIDTH)), (WIDTH,))
    return n("Mul", n("Mul", x, n("Add", n("Erf", n("Div", x, 2**0.5)), 1.0)), 0.5)


def fast_gelu(n: Layer) -> str:
    inner = n("Mul", n("Add", "x", n("Mul", n("Pow", "x", 3.0), 0.044715)), (2 / np.pi) ** 0.5)
    return n("Mul", n("Mul", "x", 0.5), n("Add", n("Tanh", inner), 1.0))


def fast_gelu_inside(n: Layer) -> str:
    inner = n("Mul", n("Mul", "x", (2 / np.pi) ** 0.5), n("Add", n("Mul", n("Mul", "x", 0.044715), "x"), 1.0))
    return n("Mul", n("Mul", "x", 0.5), n("Add", n("Tanh", inner), 1.0))


def quick_gelu(n: Layer) -> str:
    return n("Mul", "x", n("Sigmoid", n("Mul", "x", 1.702)))


def scaled_product(n: Layer) -> str:
    q, k = n("MatMul", "x", (WIDTH, WIDTH)), n("MatMul", "x", (WIDTH, WIDTH))
    return n("Softmax", n("Div", n("MatMul", q, n("Transpose", k, perm=[0, 2, 1])), 8.0))


def gram(n: Layer) -> str:
    return n("Mul", n("MatMul", n("Transpose", "x", perm=[0, 2, 1]), "x"), 0.125)


def layer_of(activation: str) -> Callable[[Layer], str]:
    def build(n: Layer) -> str:
        rows = n("Reshape", "x", [ROWS, WIDTH])
        return n(activation, n("Gemm", rows, (WIDTH, 32), (32,)))

    return build


def convolution(activation: str) -> Callable[[Layer], str]:
    def build(n: Layer) -> str:
        bounds = (0.0, 6.0) if activation == "Clip" else ()
        return n(activation, n("Conv", "x", (32, 32, 3, 3), (32,), pads=[1] * 4), *bounds)

    return build


def turned_convolution(n: Layer) -> str:
    return n("Transpose", n("Sigmoid", n("Conv", "x", (32, 32, 1, 1), (32,))), perm=[0, 2, 3, 1])


def measured_convolution(n: Layer) -> str:
    """What is filled up to the size of an activation."""
    y = n("Relu", n("Conv", "x", (32, 32, 3, 3), (32,), pads=[1] * 4))
    return n("Mul", y, n("Expand", n("Reshape", n("GlobalAveragePool", y), [0, 0, 1, 1]), n("Shape", y)))


ROWS_OF = (rms_norm, rms_norm_reciprocal, layer_norm, skip_layer_norm, gelu, gelu_first, bias_gelu)
ROWS_OF += (fast_gelu, fast_gelu_inside, quick_gelu, scaled_product, gram)


def patterns() -> Iterator[tuple[str, onnx.ModelProto]]:
    """Each by a name, the ops that are found in it first."""
    for build in ROWS_OF:
        n = Layer(13 if build is layer_norm else 17)
        yield build.__name__, n.model(build(n), (1, ROWS, WIDTH), 3)
    for activation in ("Relu", "Sigmoid", "Tanh", "LeakyRelu"):
        n = Layer()
        yield f"gemm {activation}", n.model(layer_of(activation)(n), (1, ROWS, WIDTH), 2)
    for activation in ("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Clip", "HardSigmoid"):
        n = Layer()
        yield f"conv {activation}", n.model(convolution(activation)(n), IMAGE, 4)
    for build in (turned_convolution, measured_convolution):
        n = Layer()
        yield build.__name__, n.model(build(n), IMAGE, 4)
