"""Six models to measure that need no download: the onnx package's own with random weights, and layers of an encoder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LIGHT = ("densenet121", "inception_v2", "resnet50", "shufflenet", "squeezenet")
_TOKENS, _WIDTH, _HEADS, _LAYERS = 128, 768, 12, 4


def written(folder: Path) -> list[Path]:
    """The files, in a folder."""
    found = []
    for name in LIGHT:
        path = Path(onnx.__file__).parent / "backend/test/data/light" / f"light_{name}.onnx"
        found.append(folder / f"{name}.onnx")
        onnx.save(weighted(onnx.load(path)), found[-1])
    found.append(folder / "encoder.onnx")
    onnx.save(encoder(), found[-1])
    return found


def weighted(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose weights of one repeated number (``ConstantOfShape``) are random ones of about that purpose."""
    rng, graph = np.random.default_rng(0), model.graph
    shapes = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
    users = {value: (node, k) for node in reversed(graph.node) for k, value in enumerate(node.input)}
    made = [n for n in graph.node if n.op_type == "ConstantOfShape" and n.input[0] in shapes]
    for node in made:
        shape = tuple(int(d) for d in shapes[node.input[0]])
        user, k = users[node.output[0]]
        while user.op_type in ("Unsqueeze", "Reshape"):
            user, k = users[user.output[0]]
        graph.initializer.append(numpy_helper.from_array(_drawn(rng, user.op_type, k, shape), node.output[0]))
        graph.node.remove(node)
    held = {i.name for i in graph.initializer}
    inputs = [i for i in graph.input if i.name not in held]
    read = {value for node in graph.node for value in node.input}
    weights = [i for i in graph.initializer if i.name in read]
    del graph.initializer[:]
    graph.initializer.extend(weights)
    del graph.input[:]
    graph.input.extend(inputs)
    model.ir_version = max(model.ir_version, 4)  # before it, initializers are inputs
    return model


def _drawn(rng: np.random.Generator, op: str, k: int, shape: tuple[int, ...]) -> np.ndarray:  # type: ignore[type-arg]
    if len(shape) > 1 and op in ("Conv", "Gemm", "MatMul"):
        return rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape).astype(np.float32)
    if op == "Mul" or (op == "BatchNormalization" and k in (1, 4)):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    return rng.normal(0, 0.1, shape).astype(np.float32)


def encoder() -> onnx.ModelProto:
    """Layers of a transformer's encoder, as wide as BERT's."""
    rng, nodes, held = np.random.default_rng(0), [], []

    def node(op: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [f"v{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def weight(*shape: int) -> str:
        values = rng.normal(0, 1 / shape[0] ** 0.5, shape).astype(np.float32)
        held.append(numpy_helper.from_array(values, f"w{len(held)}"))
        return str(held[-1].name)

    def shape(*sizes: int) -> str:
        held.append(numpy_helper.from_array(np.array(sizes, np.int64), f"w{len(held)}"))
        return str(held[-1].name)

    def dense(x: str, rows: int, columns: int) -> str:
        return node("Add", node("MatMul", x, weight(rows, columns)), weight(columns))

    def heads(x: str, *perm: int) -> str:
        apart = node("Reshape", dense(x, _WIDTH, _WIDTH), shape(0, 0, _HEADS, _WIDTH // _HEADS))
        return node("Transpose", apart, perm=perm)

    def normed(x: str) -> str:
        return node("LayerNormalization", x, weight(_WIDTH), weight(_WIDTH))

    x = "x"
    for _ in range(_LAYERS):
        scores = node("MatMul", heads(x, 0, 2, 1, 3), heads(x, 0, 2, 3, 1))
        scores = node("Softmax", node("Mul", scores, weight(1)))
        mixed = node("Transpose", node("MatMul", scores, heads(x, 0, 2, 1, 3)), perm=(0, 2, 1, 3))
        x = normed(node("Add", x, dense(node("Reshape", mixed, shape(0, 0, _WIDTH)), _WIDTH, _WIDTH)))
        x = normed(node("Add", x, dense(node("Gelu", dense(x, _WIDTH, 4 * _WIDTH)), 4 * _WIDTH, _WIDTH)))
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, _TOKENS, _WIDTH])
    output = helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, _TOKENS, _WIDTH])
    graph = helper.make_graph(nodes, "encoder", [given], [output], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
