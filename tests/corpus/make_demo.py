"""Writes the model that ``graphopt demo`` optimizes: an image classifier with random weights.

    python tests/corpus/make_demo.py

Its blocks are those of MobileNetV3 (Howard et al., 2019): expansion, depthwise convolution, squeeze and excite,
projection. It is written down as exporters do that keep batch norms, and that know neither hard-swish nor hard-sigmoid
as ops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graphopt.tools.demo import MODEL

BLOCKS = ((16, 1), (24, 2), (40, 2))
"""Of each block its channels and its stride."""
EXPANSION, REDUCTION = 4, 4
"""How many times as wide a block is inside, and how many times narrower its squeeze."""
STEM, HEAD, CLASSES, SIDE = 16, 256, 100, 192
"""Channels before and behind the blocks, classes, and the side of an image."""


@dataclass
class Net:
    """Nodes and weights so far, and where random ones come from."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    weights: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, array: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(array, np.float32), name))
        return name

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def kernel(self, *shape: int) -> str:
        """Weights by which a product has the variance of its input."""
        return self.constant(self.random.normal(0, math.sqrt(2 / math.prod(shape[1:])), shape))

    def norm(self, x: str, width: int) -> str:
        near_one = [self.random.uniform(0.5, 1.5, width) for _ in ("scale", "variance")]
        near_zero = [self.random.normal(0, 0.2, width) for _ in ("bias", "mean")]
        return self.op("BatchNormalization", x, *map(self.constant, (near_one[0], *near_zero, near_one[1])))

    def hard_swish(self, x: str) -> str:
        inside = self.op("Clip", self.op("Add", x, self.constant(3)), self.constant(0), self.constant(6))
        return self.op("Div", self.op("Mul", x, inside), self.constant(6))

    def hard_sigmoid(self, x: str) -> str:
        line = self.op("Add", self.op("Mul", x, self.constant(1 / 6)), self.constant(1 / 2))
        return self.op("Clip", line, self.constant(0), self.constant(1))

    def convolution(self, x: str, inner: int, outer: int, size: int = 1, stride: int = 1, groups: int = 1) -> str:
        weights = self.kernel(outer, inner // groups, size, size)
        pads, strides = [size // 2] * 4, [stride] * 2
        return self.norm(self.op("Conv", x, weights, pads=pads, strides=strides, group=groups), outer)

    def squeeze_excite(self, x: str, width: int) -> str:
        narrow, zero = width // REDUCTION, np.zeros
        pooled = self.op("GlobalAveragePool", x)
        down = self.op("Conv", pooled, self.kernel(narrow, width, 1, 1), self.constant(zero(narrow)))
        up = self.op("Conv", self.op("Relu", down), self.kernel(width, narrow, 1, 1), self.constant(zero(width)))
        return self.op("Mul", x, self.hard_sigmoid(up))

    def block(self, x: str, inner: int, outer: int, stride: int) -> str:
        width = inner * EXPANSION
        y = self.hard_swish(self.convolution(x, inner, width))
        y = self.hard_swish(self.convolution(y, width, width, 3, stride, width))
        y = self.convolution(self.squeeze_excite(y, width), width, outer)
        return self.op("Add", x, y) if (inner, stride) == (outer, 1) else y


def demo_model() -> onnx.ModelProto:
    """The model, the same at each call."""
    net = Net(np.random.default_rng(0))
    x, width = net.hard_swish(net.convolution("image", 3, STEM, 3, 2)), STEM
    for channels, stride in BLOCKS:
        x, width = net.block(x, width, channels, stride), channels
    x = net.op("GlobalAveragePool", net.hard_swish(net.convolution(x, width, HEAD)))
    logits = net.op("Gemm", net.op("Flatten", x), net.kernel(HEAD, CLASSES), net.constant(np.zeros(CLASSES)))
    net.nodes.append(helper.make_node("Softmax", [logits], ["classes"], name="softmax"))
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, SIDE, SIDE])]
    outputs = [helper.make_tensor_value_info("classes", TensorProto.FLOAT, [1, CLASSES])]
    graph = helper.make_graph(net.nodes, "demo", inputs, outputs, net.weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


if __name__ == "__main__":
    onnx.save(demo_model(), MODEL)
