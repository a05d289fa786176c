"""Convolutional networks run in blocks of channels from end to end: two changes of layout, and the same results."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import run
from graphopt.ir.graph import CONSTANT, Attrs, Graph
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.ir.types import TensorType
from graphopt.optimize import optimize_graph
from graphopt.target import CPU

PLAIN = ("dense", "pointwise", "narrow", "grouped", "depthwise")
SLOW = replace(CPU, prices=replace(CPU.prices, efficiency={**CPU.prices.efficiency, **dict.fromkeys(PLAIN, 0.01)}))
"""Where convolutions of plain images are slow, whatever they are worth on this machine."""

STEM = """
x: float32[1, 32, 12, 12]
w1: float32[{c}, 32, 3, 3]
w2: float32[{c}, 1, 3, 3]
w3: float32[{c}, {c}, 1, 1]
w4: float32[{c}, {c}, 2, 3]
b4: float32[{c}]
b: float32[{c}]
{scale}a = Conv(x, w1, b, pads=[1, 1, 1, 1])
"""
BODIES = {
    "residual": "r = Relu(a)\nd = Conv(r, w3, b)\ns = Add(d, r)\ny = Relu(s)",
    "depthwise": "r = Clip(a, 0.0, 6.0)\nd = Conv(r, w2, b, pads=[1, 1, 1, 1], group={c})\ny = Conv(d, w3)",
    "pools": "m = MaxPool(a, kernel_shape=[2, 2], strides=[2, 2])\n"
    "n = AveragePool(m, kernel_shape=[3, 3], pads=[1, 1, 1, 1])\ny = Conv(n, w3, b)",
    "squeeze and excite": "r = Relu(a)\ng = GlobalAveragePool(r)\nh = Conv(g, w3, b)\ns = HardSigmoid(h)\n"
    "m = Mul(r, s)\ny = Conv(m, w3)",
    "hard swish": "p = Add(a, 3.0)\nq = Clip(p, 0.0, 6.0)\nm = Mul(a, q)\nd = Div(m, 6.0)\ny = Conv(d, w3)",
    "swish": "s = Sigmoid(a)\nm = Mul(a, s)\ny = Conv(m, w3)",
    "resize": "z = Resize(a, _, [1.0, 1.0, 2.0, 2.0])\ny = Conv(z, w2, b, group={c})",
    "depth to space": "u = ConvTranspose(a, w4, b4, kernel_shape=[2, 3], strides=[2, 3])\nr = Relu(u)\n"
    "y = Conv(r, w3, b)",
    "edges": 'p = Pad(a, [0, 0, 1, 1, 0, 0, 1, 1], mode="reflect")\ny = Conv(p, w3)',
    "channels": "m = Mul(a, t)\nn = Add(m, t)\nr = Relu(n)\ny = Conv(r, w3)",
}


def network(text: str) -> Graph:
    """A graph whose inputs are weights, but for the first."""
    graph = parse(text)
    generator = np.random.default_rng(0)
    for value in graph.inputs[1:]:
        kind = graph.types.pop(value)
        assert isinstance(kind, TensorType)
        weights = generator.standard_normal(kind.shape).astype(np.float32) / 8  # type: ignore[arg-type]
        graph.update(value.node, op=CONSTANT, attrs=Attrs(value=Constant.of(weights)))
    del graph.inputs[1:]
    return graph


@pytest.mark.parametrize("name", list(BODIES))
@pytest.mark.parametrize("channels", [32, 24])
def test_a_network_enters_blocks_once_and_leaves_them_once(name: str, channels: int) -> None:
    body = BODIES[name].replace("{c}", str(channels))
    scale = f"t: float32[{channels}, 1, 1]\n" if "t)" in body else ""
    graph = network(STEM.format(c=channels, scale=scale) + body + "\nreturn y")
    found, report = optimize_graph(graph, target=SLOW)
    ops = Counter(node.op for node in found.nodes())
    assert (ops["graphopt::Block"], ops["graphopt::Unblock"], ops["Conv"]) == (1, 1, 0), ops
    assert report.warnings == ()
    x = {"x": np.random.default_rng(1).standard_normal((1, 32, 12, 12)).astype(np.float32)}
    assert error(run(graph, x)["y"], run(found, x)["y"]) <= 1


def test_a_network_of_pictures_only_leaves_blocks() -> None:
    text = "x: float32[1, 3, 12, 12]\nw: float32[32, 3, 3, 3]\na = Conv(x, w)\ny = Relu(a)\nreturn y"
    found, _ = optimize_graph(network(text), target=SLOW)
    ops = Counter(node.op for node in found.nodes())
    assert (ops["graphopt::Block"], ops["graphopt::Unblock"], ops["graphopt::BlockedConv"]) == (0, 1, 1)


def test_pixels_that_only_strides_skip_are_not_computed() -> None:
    text = """
    x: float32[1, 32, 13, 12]
    w1: float32[32, 32, 3, 3]
    w2: float32[32, 32, 1, 1]
    w3: float32[64, 32, 1, 1]
    b: float32[32]
    a = Conv(x, w1, b, pads=[1, 1, 1, 1])
    d = Conv(a, w2, b)
    s = Add(d, x)
    r = Relu(s)
    p = Conv(r, w2, strides=[2, 2])
    q = Conv(r, w3, strides=[2, 2])
    return p, q
    """
    graph = network(text)
    found, _ = optimize_graph(graph, target=SLOW)
    shapes = [found.types[node.outputs[0]].shape for node in found.nodes() if "Conv" in node.op]  # type: ignore[union-attr]
    assert all(shape[2:4] == (7, 6) for shape in shapes), shapes
    x = {"x": np.random.default_rng(1).standard_normal((1, 32, 13, 12)).astype(np.float32)}
    want, got = run(graph, x), run(found, x)
    assert all(error(want[name], got[name]) <= 1 for name in want)
