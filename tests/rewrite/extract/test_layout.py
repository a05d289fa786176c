"""The layout policy gives the reorders that ONNX Runtime makes, and decides between spellings as they measure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.ir import onnx_io
from graphopt.ir.infer import infer
from graphopt.rewrite.extract.cost import Breakdown, graph_cost
from graphopt.target import ORT, PORTABLE, Target

CHANNELS = 32


class Model:
    """An ONNX model in the making."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, array: object) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def op(self, op: str, *inputs: str, domain: str = "", **attrs: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], domain=domain, **attrs))
        return name

    def conv(self, x: str, deep: int, out: int, size: int = 3, group: int = 1) -> str:
        weights = np.random.default_rng(0).standard_normal((out, deep // group, size, size)).astype(np.float32)
        return self.op(
            "Conv", x, self.constant(weights), self.constant(weights[:, 0, 0, 0]), group=group, pads=[size // 2] * 4
        )

    def done(self, output: str, channels: int = 16) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, channels, 16, 16])],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def cost(model: onnx.ModelProto, target: Target = ORT) -> Breakdown:
    graph = onnx_io.load(model)
    return graph_cost(graph, infer(graph), target)


def reorders_in_runtime(model: onnx.ModelProto, folder: Path) -> int:
    """How many nodes of the graph that ONNX Runtime saves change the layout."""
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.optimized_model_filepath = str(folder / "saved.onnx")
    options.log_severity_level = 4
    runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    saved = onnx.load(folder / "saved.onnx")
    return sum(node.op_type in ("ReorderInput", "ReorderOutput") for node in saved.graph.node)


@pytest.fixture(scope="module")
def blocks_of_16(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skips where ONNX Runtime has blocks of another size on this CPU, or none."""
    for channels, reorders in ((8, 0), (16, 2)):
        m = Model()
        found = reorders_in_runtime(m.done(pool(m, "x"), channels), tmp_path_factory.mktemp("probe"))
        if found != reorders:
            pytest.skip("ONNX Runtime has no blocks of 16 channels on this CPU")


def between(f: Callable[[Model, str], str], channels: int = CHANNELS) -> onnx.ModelProto:
    """A convolution, something, and another convolution."""
    m = Model()
    y = f(m, m.conv("x", 16, CHANNELS))
    return m.done(m.conv(y, channels, 16))


def scalar(m: Model, x: float) -> str:
    return m.constant(np.float32(x))


def by_channel(m: Model) -> str:
    return m.constant(np.full((CHANNELS, 1, 1), 2, np.float32))


def batch_norm(m: Model, x: str) -> str:
    return m.op("BatchNormalization", x, *(m.constant(np.ones(CHANNELS, np.float32)) for _ in range(4)))


def pool(m: Model, x: str) -> str:
    return m.op("MaxPool", x, kernel_shape=[2, 2])


def squeeze_excite(m: Model, x: str) -> str:
    small = m.conv(m.op("GlobalAveragePool", x), CHANNELS, 8, 1)
    return m.op("Mul", x, m.op("HardSigmoid", m.conv(m.op("Relu", small), 8, CHANNELS, 1), alpha=0.2))


CASES: dict[str, Callable[[Model, str], str]] = {
    "activation": lambda m, y: m.op("Relu", y),
    "activation that only fuses": lambda m, y: m.op("LeakyRelu", y, alpha=0.1),
    "activation that only fuses, alone": lambda m, y: m.op("LeakyRelu", m.op("Relu", y), alpha=0.1),
    "clip": lambda m, y: m.op("Clip", y, scalar(m, 0), scalar(m, 6)),
    "activation that leaves": lambda m, y: m.op("Elu", y),
    "gelu": lambda m, y: m.op("Gelu", y),
    "gelu written out": lambda m, y: m.op(
        "Mul",
        m.op("Mul", y, m.op("Add", m.op("Erf", m.op("Div", y, scalar(m, 2**0.5))), scalar(m, 1))),
        scalar(m, 0.5),
    ),
    "swish": lambda m, y: m.op("Mul", y, m.op("Sigmoid", y)),
    "hard-swish": lambda m, y: m.op("HardSwish", y),
    "hard-sigmoid times x": lambda m, y: m.op("Mul", y, m.op("HardSigmoid", y, alpha=1 / 6)),
    "hard-swish written out": lambda m, y: m.op(
        "Div",
        m.op("Mul", y, m.op("Clip", m.op("Add", y, scalar(m, 3)), scalar(m, 0), scalar(m, 6))),
        scalar(m, 6),
    ),
    "add a number": lambda m, y: m.op("Add", y, scalar(m, 3)),
    "times a number": lambda m, y: m.op("Mul", y, scalar(m, 3)),
    "times a number in a tensor": lambda m, y: m.op("Mul", y, m.constant(np.full(1, 3, np.float32))),
    "scale by channel": lambda m, y: m.op("Mul", y, by_channel(m)),
    "shift by channel": lambda m, y: m.op("Add", y, by_channel(m)),
    "scale by channel later": lambda m, y: m.op("Mul", m.op("Relu", y), by_channel(m)),
    "shift by channel later": lambda m, y: m.op("Add", m.op("Relu", y), by_channel(m)),
    "batch norm": batch_norm,
    "batch norm later": lambda m, y: m.op("Relu", batch_norm(m, m.op("Relu", y))),
    "batch norm, scale, shift": lambda m, y: m.op(
        "Relu", m.op("Add", m.op("Mul", batch_norm(m, y), by_channel(m)), by_channel(m))
    ),
    "batch norm of a pool, scale, shift": lambda m, y: m.op(
        "Add", m.op("Mul", batch_norm(m, pool(m, y)), by_channel(m)), by_channel(m)
    ),
    "residual": lambda m, y: m.op("Relu", m.op("Add", m.conv(y, CHANNELS, CHANNELS), m.op("Relu", y))),
    "residual from outside": lambda m, y: m.op("Add", m.conv(y, CHANNELS, CHANNELS), m.op("Neg", y)),
    "two users": lambda m, y: m.op("Add", m.op("Relu", y), m.op("Sigmoid", y)),
    "subtract": lambda m, y: m.op("Sub", y, m.op("Relu", y)),
    "squeeze and excite": squeeze_excite,
    "softmax": lambda m, y: m.op("Softmax", y),
    "local response": lambda m, y: m.op("LRN", y, size=5),
    "pool": pool,
    "global pool": lambda m, y: m.op("GlobalAveragePool", y),
    "mean": lambda m, y: m.op("ReduceMean", y, m.constant(np.array([2, 3]))),
    "nearest": lambda m, y: m.op(
        "Resize",
        y,
        "",
        m.constant(np.array([1, 1, 2, 2], np.float32)),
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    ),
    "nearest in the middle": lambda m, y: m.op("Resize", y, "", m.constant(np.array([1, 1, 2, 2], np.float32))),
    "linear": lambda m, y: m.op("Resize", y, "", m.constant(np.array([1, 1, 2, 2], np.float32)), mode="linear"),
    "channels last and back": lambda m, y: m.op(
        "Transpose", m.op("Exp", m.op("Transpose", y, perm=[0, 2, 3, 1])), perm=[0, 3, 1, 2]
    ),
    "concat along rows": lambda m, y: m.op("Concat", y, m.op("Relu", y), axis=2),
    "a convolution fused in the model": lambda m, y: m.op(
        "FusedConv",
        y,
        m.constant(np.ones((CHANNELS, CHANNELS, 1, 1), np.float32)),
        m.constant(np.ones(CHANNELS, np.float32)),
        domain="com.microsoft",
        activation="Relu",
    ),
    "depthwise": lambda m, y: m.conv(y, CHANNELS, CHANNELS, group=CHANNELS),
    "groups that fill blocks": lambda m, y: m.conv(y, CHANNELS, CHANNELS, group=2),
    "groups that do not": lambda m, y: m.conv(y, CHANNELS, CHANNELS, group=4),
}


@pytest.mark.usefixtures("blocks_of_16")
@pytest.mark.parametrize("name", CASES)
def test_reorders_between_two_convolutions(name: str, tmp_path: Path) -> None:
    model = between(CASES[name])
    assert cost(model).reorders == reorders_in_runtime(model, tmp_path)


@pytest.mark.usefixtures("blocks_of_16")
@pytest.mark.parametrize(("deep", "out"), [(3, 16), (12, 8), (16, 16), (17, 16), (20, 24), (33, 33), (64, 1)])
def test_reorders_of_channel_counts(deep: int, out: int, tmp_path: Path) -> None:
    m = Model()
    model = m.done(m.conv("x", deep, out), deep)
    assert cost(model).reorders == reorders_in_runtime(model, tmp_path)


@pytest.mark.usefixtures("blocks_of_16")
def test_reorders_of_joined_branches(tmp_path: Path) -> None:
    for widths in ((32, 16), (24, 24)):
        m = Model()
        y = m.conv("x", 16, CHANNELS)
        parts = [m.conv(y, CHANNELS, width) for width in widths]
        model = m.done(m.conv(m.op("Concat", *parts, axis=1), sum(widths), 16))
        assert cost(model).reorders == reorders_in_runtime(model, tmp_path)


def test_what_a_convolution_takes_along_costs_next_to_nothing() -> None:
    plain = cost(between(lambda m, y: y)).total.seconds
    for name in ("activation", "batch norm", "hard-swish", "hard-sigmoid times x"):
        assert cost(between(CASES[name])).total.seconds < 1.02 * plain


def test_hard_swish_by_its_spelling() -> None:
    named, product, written = (
        [cost(between(CASES[name]), target).total.seconds for target in (ORT, PORTABLE)]
        for name in ("hard-swish", "hard-sigmoid times x", "hard-swish written out")
    )
    assert named[0] <= product[0] < written[0]
    assert named[1] < product[1] < written[1]


def test_local_response_normalization_is_dearer_than_its_convolution() -> None:
    def banded(m: Model, y: str) -> str:
        t = m.conv(m.op("Mul", y, y), CHANNELS, CHANNELS, 1)
        root = m.op("Sqrt", t)
        return m.op("Div", y, m.op("Mul", root, m.op("Sqrt", root)))

    for target in (ORT, PORTABLE):
        lrn = cost(between(CASES["local response"]), target).total.seconds
        assert cost(between(banded), target).total.seconds < lrn


def test_a_target_without_layouts_counts_no_reorders() -> None:
    assert cost(between(CASES["subtract"]), PORTABLE).reorders == 0
