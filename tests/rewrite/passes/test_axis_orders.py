"""Each op, computed on operands in every order that it takes, gives the same in the order that its form says."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from graphopt.ir import evaluate, infer
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node
from graphopt.ir.text import parse
from graphopt.ir.types import symbol
from graphopt.rewrite.passes.axis_orders import FORMS, compose, factored, form_of, identity, inverse, moved_fact, turn

CALLS = {
    # text, orders that the op takes of those that there are
    "x: float32[2, 3, 4] y = Relu(x)": 6,
    "x: float32[2, 3, 4] z: float32[2, 1, 4] y = Add(x, z)": 6,
    "x: float32[2, 3, 4] z: float32[4] y = Mul(x, z)": 6,
    "x: float32[2, 3, 4] z: float32[3, 1] y = Sub(z, x)": 6,
    "x: float32[2, 3, 4] z: float32[1, 1] y = Max(x, z, 0.5)": 6,
    "x: float32[2, 3] z: float32[4, 1, 3] y = Add(x, z)": 6,
    "x: float32[2, 3] c: bool[2, 1] y = Where(c, x, Neg(x))": 2,
    "x: float32[2, 3, 4] z: float32[3, 1] y = PRelu(x, z)": 6,
    "x: float32[2, 3, 4] y = Clip(x, 0.2, 0.7)": 6,
    "x: float32[2, 3, 4] y = Cast(x, to=7)": 6,
    "x: float32[2, 3, 4] y = Softmax(x, axis=1)": 6,
    "x: float32[2, 3, 4] y = LogSoftmax(x)": 6,
    "x: float32[2, 3, 4] y = ReduceSum(x, [1, -1])": 6,
    "x: float32[2, 3, 4] y = ReduceMax(x, [0], keepdims=0)": 6,
    "x: float32[2, 3, 4] y = ReduceMean(x, keepdims=0)": 6,
    "x: float32[2, 3, 4] y = ArgMax(x, axis=-1)": 6,
    "x: float32[2, 3, 4] y = ArgMin(x, axis=1, keepdims=0)": 6,
    "x: float32[2, 3, 4] z: float32[2, 5, 4] y = Concat(x, z, axis=1)": 6,
    "x: float32[2, 6, 4] y, z = Split(x, [2, 4], axis=1)": 6,
    "x: float32[2, 3, 4] y, z = TopK(x, [2], axis=1)": 6,
    "x: float32[2, 3, 4] y = CumSum(x, 1)": 6,
    "x: float32[2, 3, 4] y = Gather(x, 1, axis=1)": 6,
    "x: float32[2, 3, 4] y = Gather(x, [2, 0, 1, 1], axis=1)": 6,
    "x: float32[2, 3] y = Gather(x, Reshape([1, 0, 1, 1], [2, 2]), axis=0)": 2,
    "x: float32[2, 3, 2] i: int64[2, 2, 2] y = GatherElements(x, i, axis=1)": 6,
    "x: float32[2, 3, 4] y = Pad(x, [1, 0, 2, 0, 1, 0], 0.5)": 6,
    'x: float32[2, 3, 4] y = Pad(x, [1, 2], _, [1], mode="reflect")': 6,
    "x: float32[2, 3, 4] y = Slice(x, [1, 0], [3, 2], [1, -1], [1, 1])": 6,
    "x: float32[2, 3, 4] y = Slice(x, [0, 1], [2, 3])": 6,
    "x: float32[2, 3, 4] y = Tile(x, [1, 2, 3])": 6,
    "x: float32[2, 1, 4] y = Expand(x, [2, 3, 4])": 6,
    "x: float32[3, 1] y = Expand(x, [2, 3, 4])": 6,
    'x: float32[1, 2, 3, 4] y = Resize(x, _, [1.0, 1.0, 2.0, 2.0], mode="nearest")': 24,
    'x: float32[1, 2, 3, 4] y = Resize(x, _, [1.0, 1.0, 2.0, 2.0], mode="linear")': 4,
    'x: float32[1, 2, 3, 4] y = Resize(x, _, _, [6, 8], axes=[2, 3], mode="nearest")': 24,
    "x: float32[2, 1, 3, 1] y = Squeeze(x, [1, -1])": 24,
    "x: float32[2, 1, 3] y = Squeeze(x)": 6,
    "x: float32[2, 3] y = Unsqueeze(x, [0, 2])": 2,
    "x: float32[2, 3, 4] y = Reshape(x, [6, 4])": 2,
    "x: float32[2, 3, 4] y = Reshape(x, [2, 3, 2, 2])": 6,
    "x: float32[2, 1, 3, 4] y = Reshape(x, [2, 12, 1])": 8,
    "x: float32[2, 1, 3] y = Reshape(x, [6])": 3,
    "x: float32[6] y = Reshape(x, [2, 1, 3])": 1,
    "x: float32[3, 1, 2, 1, 4] y = Reshape(x, [2, 6, 2])": 20,
    "x: float32[3, 2, 1, 2, 4] y = Reshape(x, [3, 4, 4])": 30,
    "x: float32[2, 3, 4] y = Flatten(x, axis=2)": 2,
    "x: float32[2, 2, 3, 1] y = BatchNormalization(x, [1.0, 2.0], [0.1, 0.2], [0.0, 0.5], [1.0, 2.0])": 6,
    "x: float32[2, 3, 4, 2] y = LRN(x, size=3)": 6,
    "x: float32[2, 3, 4, 2] y = InstanceNormalization(x, [1.0, 2.0, 3.0], [0.1, 0.2, 0.3])": 2,
    "x: float32[2, 3, 4, 2] y = GlobalAveragePool(x)": 24,
    "x: float32[2, 3, 4, 2] y = GlobalMaxPool(x)": 24,
    "x: float32[1, 2, 5, 6] y = MaxPool(x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 0, 1])": 2,
    "x: float32[1, 2, 5, 6] y = AveragePool(x, kernel_shape=[2, 3])": 2,
    "x: float32[2, 3, 4] y = LayerNormalization(x, [1.0, 2.0, 3.0, 4.0], axis=-1)": 2,
    "x: float32[2, 2, 4, 4] y = Trilu(x)": 2,
    "x: float32[2, 3, 4] z: float32[2, 4, 5] y = MatMul(x, z)": 1,
    "x: float32[2, 3, 4] w: float32[4, 5] y = MatMul(x, w)": 2,
    "w: float32[3, 4] x: float32[2, 4, 5] y = MatMul(w, x)": 1,
    "x: float32[2, 3, 4, 5] z: float32[1, 3, 5, 2] y = MatMul(x, z)": 2,
    'x: float32[2, 3, 4] y = Einsum(x, equation="abc->ac")': 6,
    "x: float32[2, 3, 4] y = QuantizeLinear(x, [0.1, 0.2, 0.3], axis=1)": 6,
    "x: int8[2, 3, 4] y = DequantizeLinear(x, [0.5])": 6,
}  # fmt: skip


def graph_of(text: str) -> tuple[Graph, Node, dict]:
    """The graph of a text, its last call, and what is known of its values."""
    last = text.split(" = ")[0].rsplit("] ", 1)[1]
    graph = parse(f"{text} return {last}")
    facts = infer.infer(graph)
    known = {v: Fact(f.type, f.is_const, graph.constant_of(v), f.elements) for v, f in facts.items()}
    node = graph.producer(graph.outputs[0])
    return graph, node, known


def computed(graph: Graph, node: Node, known: dict) -> list[Array | None]:
    """Arrays for the operands of a call: random for inputs, computed for what is computed."""
    random = np.random.default_rng(5)
    values: dict = {}
    for one in graph.order():
        for v in one.outputs if one.id != node.id else ():
            if one.op == CONSTANT:
                values[v] = graph.constant_of(v)
            elif one.op == INPUT:
                shape, dtype = known[v].shape, known[v].dtype
                drawn = random.random(shape) if dtype == "float32" else random.integers(0, 2, shape)
                values[v] = Constant.of(drawn.astype(dtype))
            else:
                given = [None if i is None else values[i] for i in one.inputs]
                values.update(
                    zip(one.outputs, evaluate.evaluate(one.op, one.attrs, given, one.n_outputs, 21), strict=True)
                )
    return [None if v is None else values[v].array for v in node.inputs]


def kept(array: Array, order: tuple[int, ...] | None) -> Array:
    """An array as it is kept in an order, which may be of higher rank."""
    if order is None:
        return array
    return np.transpose(array.reshape((1,) * (len(order) - array.ndim) + array.shape), order)


@pytest.mark.parametrize("text", CALLS)
def test_every_order_gives_the_same(text: str) -> None:
    graph, node, known = graph_of(text)
    operands = computed(graph, node, known)
    for v in node.inputs:  # what is computed from constants is known too
        if v is not None and known[v].is_const:
            known[v] = Fact(known[v].type, True, Constant.of(operands[node.inputs.index(v)]))
    facts = [None if v is None else known[v] for v in node.inputs]
    results = [known[v] for v in node.outputs]
    form = form_of(node, facts, results)
    assert form is not None
    assert form.forward(identity(form.rank)) == identity(results[0].rank)
    given = [None if a is None else Constant.of(a) for a in operands]
    want = [c.array for c in evaluate.evaluate(node.op, node.attrs, given, node.n_outputs, 21)]
    taken = 0
    for p in permutations(range(form.rank)):
        q = form.forward(p)
        spelling = None if q is None else form.spell(p, q)
        if q is None or spelling is None:
            continue
        taken += 1
        back = form.backward(q)
        assert back is None or form.forward(back) == q
        orders = dict(zip(form.carried, form.orders(facts, p), strict=True))
        moved = [
            o
            if not isinstance(o, int)
            else None
            if operands[o] is None
            else Constant.of(kept(operands[o], orders.get(o)))
            for o in spelling.operands
        ]
        got = evaluate.evaluate(spelling.op, spelling.attrs, moved, node.n_outputs, 21)
        for a, b, fact in zip(want, got, results, strict=True):
            np.testing.assert_allclose(kept(a, q), b.array, rtol=1e-5, atol=1e-6)
            assert moved_fact(fact, q).shape == b.array.shape
    assert taken == CALLS[text]


def test_ops_that_are_listed_exist() -> None:
    assert {"Relu", "Add", "Concat", "ReduceL2", "Reshape", "MatMul"} <= set(FORMS)


def test_orders() -> None:
    p = (0, 3, 1, 2)
    assert compose(p, inverse(p)) == compose(inverse(p), p) == identity(4)
    x = np.random.default_rng(0).random((2, 3, 4, 5))
    made, order = (1, 0, 3, 2), (3, 1, 0, 2)
    np.testing.assert_array_equal(kept(kept(x, made), turn(made, order)), kept(x, order))
    assert turn((1, 0), (0, 2, 1)) == (0, 1, 2)


def test_blocks_of_reshapes() -> None:
    n, m = symbol("n"), symbol("m")
    assert factored((2, 3, 4), (6, 4)) == (((0, 1), (0,)), ((2,), (1,)))
    assert factored((n, 3, 4), (n, 12)) == (((0,), (0,)), ((1, 2), (1,)))
    assert factored((n, m, 4), (n * m, 2, 2)) == (((0, 1), (0,)), ((2,), (1, 2)))
    assert factored((n, 1, 4), (n, 4)) == (((1,), ()), ((0,), (0,)), ((2,), (1,)))
    assert factored((n, 4), (m, 4)) is None
    assert factored((0, 4), (0, 2)) is None
