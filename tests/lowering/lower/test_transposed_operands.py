"""Products by transposed matrices: which read them as they are, and which keep the copy."""

import numpy as np
import pytest

import graphopt
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.lowering.lower.transposed_operands import PRODUCT, with_transposed_operands

KEYS = """\
q: float32[batch, 4, length, 16]
k: float32[batch, 4, keys, 16]
t = Transpose(k, perm=[0, 1, 3, 2])
y = MatMul(q, t)
return y
"""


def ops(graph: Graph) -> list[str]:
    return [node.op for node in graph.order() if node.op not in ("Input", "Constant")]


def test_keys_are_read_as_they_are() -> None:
    graph = parse(KEYS)
    assert ops(with_transposed_operands(graph)) == [PRODUCT]
    assert ops(graph) == ["Transpose", "MatMul"], "the graph that was given stays as it is"
    model = graphopt.compile(graph, verify="off")
    rng = np.random.default_rng(0)
    for length, keys in ((1, 70), (33, 65), (5, 1)):
        q, k = (rng.standard_normal((2, 4, n, 16), np.float32) for n in (length, keys))
        np.testing.assert_allclose(model(q, k)["y"], q @ k.transpose(0, 1, 3, 2), rtol=1e-4, atol=1e-4)
    assert [row.label for row in model.profile(q, k)] == [PRODUCT]


@pytest.mark.parametrize(
    "text",
    [
        KEYS.replace("perm=[0, 1, 3, 2]", "perm=[0, 2, 3, 1]").replace(
            "k: float32[batch, 4, keys", "k: float32[4, 4, 4"
        ),
        KEYS.replace("return y", "return y, t"),
        KEYS.replace("y = MatMul(q, t)", "z = Neg(t)\ny = MatMul(q, t)").replace("return y", "return y, z"),
        KEYS.replace("float32", "float16"),
        KEYS.replace("k: float32[batch, 4, keys, 16]", "k = float32[1, 1, 1, 1]{2.0}").replace("16]\nk", "1]\nk"),
    ],
    ids=["another order", "it is an output", "it has other readers", "halves", "a constant"],
)
def test_other_products_stay_as_they_are(text: str) -> None:
    graph = parse(text)
    assert "MatMul" in ops(with_transposed_operands(graph))
