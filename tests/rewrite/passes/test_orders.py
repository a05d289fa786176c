"""Transposes vanish where values can be kept in other orders, all over the graph, and stay where nothing is gained."""

from __future__ import annotations

import random
from math import prod

import numpy as np
import pytest

from graphopt.errors import GraphoptError
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.rewrite.checking.check import compute
from graphopt.rewrite.passes.dead import UNUSED
from graphopt.rewrite.passes.fold import FOLD
from graphopt.rewrite.passes.orders import ORDERS
from graphopt.rewrite.passes.simplify import simplify


def turned(text: str) -> Graph:
    """The graph of a text with the orders chosen; it computes the same."""
    graph = parse(text)
    made = simplify(graph, passes=(UNUSED, FOLD, ORDERS))
    draw = np.random.default_rng(1)
    inputs = {
        graph.names[v]: draw.random([n if isinstance(n, int) else 2 for n in graph.types[v].shape]).astype(np.float32)
        for v in graph.inputs
    }
    for want, got in zip(compute(graph, inputs), compute(made, inputs), strict=True):
        np.testing.assert_allclose(want, got, rtol=1e-5, atol=1e-6)
    return made


def left(text: str) -> int:
    """How many transposes are left."""
    return sum(node.op == "Transpose" for node in turned(text).nodes())


LAST, FIRST = "perm=[0, 2, 3, 1]", "perm=[0, 3, 1, 2]"
W = "w = float32[4, 4, 1, 1] {" + ", ".join(["0.5", "0.25"] * 8) + "} "
X = "x: float32[1, 4, 6, 6] " + W
ISLANDS = {
    "a bias and an activation": "b = [1.0, 2.0, 3.0, 4.0] "
    f"y = Conv(Transpose(Relu(Add(Transpose(Conv(x, w), {LAST}), b)), {FIRST}), w)",
    "a pad": f"y = Conv(Transpose(Pad(Transpose(x, {LAST}), [0, 1, 1, 0, 0, 1, 1, 0]), {FIRST}), w)",
    "a concatenation": f"t = Transpose(x, {LAST}) y = Transpose(Concat(t, Relu(t), axis=-1), {FIRST})",
    "a split": f"a, b = Split(Transpose(x, {LAST}), [1, 3], axis=3) y = Transpose(Concat(b, a, axis=3), {FIRST})",
    "a mean that scales": f"t = Transpose(x, {LAST}) y = Transpose(Mul(t, Sigmoid(ReduceMean(t, [1, 2]))), {FIRST})",
    "a softmax": f"y = Transpose(Softmax(Transpose(x, {LAST})), {FIRST})",
    "a squeeze": f"y = Squeeze(Transpose(ReduceMax(x, [2, 3]), {LAST}), [1, 2])",
    "a reshape of positions": f"y = Transpose(Reshape(Transpose(x, {LAST}), [1, 36, 4]), perm=[0, 2, 1])",
    "a slice": f"y = Transpose(Slice(Transpose(x, {LAST}), [0, 1], [2, 3], [1, 3]), {FIRST})",
    "an extreme's place": f"y = ArgMax(Transpose(x, {LAST}), axis=-1, keepdims=0)",
    "quantization": f"q = QuantizeLinear(Transpose(x, {LAST}), [0.1, 0.2, 0.1, 0.2], axis=3) "
    f"y = Transpose(DequantizeLinear(q, [0.1, 0.2, 0.1, 0.2], axis=3), {FIRST})",
    "a norm by channel": "y = Transpose(BatchNormalization(Transpose(x, perm=[0, 1, 3, 2]), [1.0, 2.0, 1.0, 2.0], "
    "[0.0, 1.0, 0.0, 1.0], [0.5, 0.0, 0.5, 0.0], [1.0, 1.0, 2.0, 2.0]), perm=[0, 1, 3, 2])",
    "a product with a matrix": "m = float32[6, 6] {" + ", ".join(["0.1", "0.2"] * 18) + "} "
    "y = Transpose(MatMul(Transpose(x, perm=[0, 2, 1, 3]), m), perm=[0, 2, 1, 3])",
}  # fmt: skip


@pytest.mark.parametrize("text", ISLANDS.values(), ids=ISLANDS)
def test_islands_vanish(text: str) -> None:
    assert left(X + text + " return y") == 0


def test_open_sizes() -> None:
    text = f"y = Transpose(Relu(Add(Transpose(x, {LAST}), [1.0, 2.0, 3.0, 4.0])), {FIRST}) return y"
    assert left("x: float32[n, 4, h, w] " + text) == 0


def test_what_needs_the_order_keeps_its_transpose() -> None:
    assert left(f"{X} y = Reshape(Transpose(x, {LAST}), [-1]) return y") == 1
    assert left(f"{X} y = Relu(Transpose(x, {LAST})) return y") == 1
    assert left(f"{X} y = LayerNormalization(Transpose(x, {LAST}), [1.0, 1.0, 2.0, 2.0]) return y") == 1


def test_a_scale_that_differs_along_other_axes_keeps_them_where_they_are() -> None:
    text = "x: float32[3, 3, 4] s: float32[3, 4] y = Transpose({}(Transpose(Relu(x), {}), s, axis=-1), {}) return y"
    perm = "perm=[1, 0, 2]"
    assert left(text.format("LayerNormalization", perm, perm)) == 2
    assert left(text.format("LayerNormalization", perm, perm).replace("s: float32[3, 4]", "s: float32[1, 4]")) == 0


def test_axes_of_size_1_between_those_that_a_reshape_merges() -> None:
    """As in the attention of a batch of one: a node can always be computed in its own order."""
    text = "x: float32[2, 1, 3, 8] t = Transpose(Relu(x), perm=[1, 0, 2, 3]) a = Neg(t) "
    assert left(text + "y = Transpose(Reshape(Transpose(a, perm=[1, 0, 2, 3]), [6, 8]), perm=[1, 0]) return y") <= 1
    turned(
        "q: float32[1, 2, 3, 3, 8] s = Squeeze(Transpose(q, perm=[3, 1, 2, 0, 4]), [3]) "
        "a = Gather(s, 0, axis=0) b = Gather(s, 1, axis=0) "
        "c = Reshape(Transpose(Reshape(a, [2, 6, 4]), perm=[1, 0, 2]), [3, 2, 2, 4]) "
        "d = Reshape(Transpose(Reshape(b, [2, 6, 4]), perm=[1, 0, 2]), [3, 2, 2, 4]) "
        "y = MatMul(c, Transpose(d, perm=[0, 1, 3, 2])) return y"
    )


def test_a_resize_of_axes_that_are_not_the_last_may_move_them_there() -> None:
    scales = "[1.0, 2.0, 2.0, 1.0]"
    text = f'y = Transpose(Resize(Transpose(x, {LAST}), _, {scales}, mode="linear"), {FIRST}) return y'
    assert left(X + text) == 0


def test_an_einsum_that_moves_axes_itself() -> None:
    turned('x: float32[2, 3, 4] y = Relu(Transpose(Einsum(Relu(x), equation="abc->ca"), perm=[1, 0])) return y')


def test_one_transpose_serves_two_readers() -> None:
    text = f"{X} t = Transpose(x, {LAST}) a = Flatten(Relu(t), axis=0) b = Flatten(Neg(t), axis=0) return a, b"
    assert left(text) == 1


def test_nothing_gained_is_nothing_done() -> None:
    graph = parse(f"{X} y = Relu(Transpose(x, {LAST})) return y")
    assert simplify(graph, passes=(ORDERS,)) is graph
    graph = parse(f"{X} y = Relu(x) return y")
    assert simplify(graph, passes=(ORDERS,)) is graph


def picked(batch: str, width: int) -> str:
    """Elements that are picked of products of each two of some features, in the way of torch's older exporter."""
    places = ", ".join(str(i * width + k) for i in range(width) for k in range(i))
    return (
        f"x: float32[{batch}, {width}, 4] i = [{places}] "
        "t = Transpose(MatMul(x, Transpose(x, perm=[0, 2, 1])), perm=[1, 2, 0]) "
        "y = Transpose(Gather(Flatten(t, axis=2), i, axis=0), perm=[1, 0]) return y"
    )


def test_orders_that_pay_for_one_example_have_to_pay_for_many() -> None:
    assert left(picked("1", 8)) == 1  # of the right side of the product
    assert left(picked("b", 8)) == 3
    assert left(picked("64", 8)) == 3


def test_orders_of_one_example_are_those_of_many_where_both_gain() -> None:
    assert left(f"x: float32[b, 4, 6, 6] y = Transpose(Relu(Transpose(x, {LAST})), {FIRST}) return y") == 0


def test_keys_of_attention_are_left_to_the_product() -> None:
    made = turned(
        "q: float32[2, 3, 4, 5] k: float32[2, 3, 4, 5] "
        "t = Transpose(Relu(k), perm=[0, 1, 3, 2]) y = Softmax(MatMul(q, t)) return y"
    )
    assert [n.op for n in made.order() if n.op not in ("Input", "Constant")] == [
        "Relu",
        "Transpose",
        "MatMul",
        "Softmax",
    ]


STEPS = (
    "Relu({x})",
    "Add({x}, {y})",
    "Mul({x}, {y})",
    "Add({x}, [0.5])",
    "Softmax({x}, axis={k})",
    "Concat({x}, {x}, axis={k})",
    "ReduceMean({x}, [{k}])",
    "CumSum({x}, {k})",
    "Slice({x}, [0], [1], [{k}])",
    "Pad({x}, [0, 1, 0, 1, 1, 0])",
    "Gather({x}, [0, 0], axis={k})",
    "Tile({x}, [1, 2, 1])",
    "Unsqueeze(ReduceMax({x}, [{k}], keepdims=0), [{j}])",
    "Squeeze(Unsqueeze({x}, [{j}]), [{j}])",
    "MatMul({x}, Transpose({x}, perm=[0, 2, 1]))",
    "Reshape({x}, [1, {n}, 1])",
    "Transpose({x}, perm={p})",
    "Transpose({x}, perm={p})",
    "Transpose({x}, perm={p})",
)


def random_text(seed: int) -> str:
    """A graph of rank 3 in which every third step is a transpose."""
    pick = random.Random(seed)
    text, shapes = "x: float32[2, 3, 2] ", {"x": (2, 3, 2)}
    for number in range(14):
        x, y = pick.choices(list(shapes)[-4:], k=2)
        p = pick.sample(range(3), 3)
        step = pick.choice(STEPS).format(x=x, y=y, k=pick.randrange(3), j=pick.randrange(3), p=p, n=prod(shapes[x]))
        try:
            graph = parse(f"{text} v{number} = {step} return v{number}")
            (made,) = (infer(graph)[v].shape for v in graph.outputs)
        except GraphoptError:
            continue  # the shapes do not fit
        if prod(made) <= 200:
            text, shapes[f"v{number}"] = f"{text} v{number} = {step} ", made
    last = list(shapes)[-3:]
    return f"{text} return {', '.join(last)}"


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs_compute_the_same(seed: int) -> None:
    turned(random_text(seed))
