"""Branches that compute alike are computed at once, and mean what they did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.evaluate import run
from graphopt.ir.graph import Attr, Attrs, Graph, Value
from graphopt.ir.types import TensorType, symbol
from graphopt.optimize import optimize
from graphopt.rewrite.passes.parallel import LEAST, PACKED
from graphopt.rewrite.passes.simplify import simplify

N = 6


class Model:
    """A graph that is written, in which ``x`` is of [b, 6, 8] and ``y`` of [b, 2]."""

    def __init__(self) -> None:
        self.graph, self.rng = Graph(), np.random.default_rng(1)
        self.x = self.graph.add_input("x", TensorType("float32", (symbol("b"), N, 8)))
        self.y = self.graph.add_input("y", TensorType("float32", (symbol("b"), 2)))

    def __call__(self, op: str, *inputs: Value | None, n_outputs: int = 1, **attrs: Attr) -> Value:
        return self.graph.add(op, inputs, Attrs(**attrs), n_outputs).outputs[0]

    def numbers(self, *numbers: int) -> Value:
        return self.graph.add_constant(Constant.of(np.array(numbers, np.int64)))

    def weights(self, *shape: int) -> Value:
        return self.graph.add_constant(Constant.of(self.rng.uniform(-2, 2, shape).astype(np.float32)))

    def number_of(self, number: int) -> Value:
        return self.graph.add_constant(Constant.of(np.array(number, np.int64)))

    def number(self, number: float) -> Value:
        return self.graph.add_constant(Constant.of(np.array(number, np.float32)))

    def slice(self, n: int, size: int = 1) -> Value:
        """Rows of x, of [b, size, 8]."""
        return self("Slice", self.x, self.numbers(n), self.numbers(n + size), self.numbers(1))

    def row(self, n: int) -> Value:
        """A row of x, of [b, 8]."""
        return self("Squeeze", self.slice(n), self.numbers(1))

    def gathered(self, n: int) -> Value:
        """A row of x, of [b, 8]."""
        return self("Gather", self.x, self.graph.add_constant(Constant.of(np.array(n - N, np.int64))), axis=1)

    def linear(self, value: Value, n: int = 3) -> Value:
        return self("Gemm", value, self.weights(n, 8), self.weights(n), transB=1)

    def total(self, branches: list[Value]) -> Value:
        while len(branches) > 1:
            branches = [*branches[2:], self("Add", *branches[:2])]
        return branches[0]


def compared(m: Model, result: Value, b: int = 3) -> tuple[Counter[str], Counter[str]]:
    """The ops of a model and of what it becomes, which computes the same."""
    m.graph.add_output("result", result)
    made = simplify(m.graph, passes=PACKED)
    for batch in (b, 1, 0):
        rng = np.random.default_rng(0)
        feeds = {"x": rng.standard_normal((batch, N, 8), np.float32), "y": rng.standard_normal((batch, 2), np.float32)}
        wanted, found = run(m.graph, feeds)["result"], run(made, feeds)["result"]
        assert (wanted.dtype, wanted.shape) == (found.dtype, found.shape)
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)
    return ops(m.graph), ops(made)


def ops(graph: Graph) -> Counter[str]:
    return Counter(n.op for n in graph.nodes() if n.op not in ("Input", "Constant"))


def stacked(m: Model, branch: Callable[[int], Value], axis: int = 1) -> Value:
    """Branches of [b, n], one behind the other along a new axis."""
    parts = [m("Unsqueeze", branch(n), m.numbers(axis)) for n in range(N)]
    return m("Concat", *parts, axis=axis)


BRANCHES: dict[str, Callable[[Model, int], Value]] = {
    "activation": lambda m, n: m("Relu", m.row(n)),
    "product": lambda m, n: m("MatMul", m.row(n), m.weights(8, 3)),
    "bias": lambda m, n: m("Add", m("MatMul", m.row(n), m.weights(8, 3)), m.weights(3)),
    "linear": lambda m, n: m.linear(m.row(n)),
    "gathered": lambda m, n: m.linear(m.gathered(n)),
    "layers": lambda m, n: m.linear(m("Tanh", m.linear(m.row(n), 8)), 2),
    "softmax": lambda m, n: m("Softmax", m.linear(m.row(n)), axis=1),
    "norm": lambda m, n: m("LayerNormalization", m.row(n), m.graph.add_constant(Constant.of(np.ones(8, np.float32)))),
    "mean": lambda m, n: m("ReduceMean", m("Mul", m.row(n), m.weights(8)), m.numbers(-1), keepdims=1),
    "turned": lambda m, n: m("Transpose", m("MatMul", m("Transpose", m.row(n), perm=(1, 0)), m.y), perm=(1, 0)),
    "shared": lambda m, n: m("Mul", m.linear(m.row(n), 2), m.y),
    "reversed": lambda m, n: m("Mul", m.row(N - 1 - n), m.weights(8)),
    "repeated": lambda m, n: m.linear(m.row(n % 3)),
    "reshaped": lambda m, n: m("Reshape", m("Reshape", m.linear(m.row(n), 4), m.numbers(0, 2, 2)), m.numbers(0, 4)),
    "clipped": lambda m, n: m("Clip", m.linear(m.row(n)), m.number(-1)),
    "two slices": lambda m, n: m("Mul", m.row(n), m.row((n + 1) % N)),
}


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_that_are_concatenated(name: str, axis: int) -> None:
    m = Model()
    before, after = compared(m, stacked(m, lambda n: BRANCHES[name](m, n), axis))
    assert after.total() < before.total() / 2
    assert after["Concat"] == 0
    assert max((after[op] for op in ("MatMul", "Tanh", "Softmax", "Relu", "Mul")), default=0) <= 2


@pytest.mark.parametrize("name", BRANCHES)
def test_branches_that_are_added(name: str) -> None:
    m = Model()
    before, after = compared(m, m.total([BRANCHES[name](m, n) for n in range(N)]))
    assert after.total() < before.total() / 2
    assert before["Add"] >= N - 1
    assert after["Add"] <= 3


def step(m: Model, kind: int, v: Value, before: int, after: int) -> Value:
    """One op on a value of [b, before]."""
    match kind:
        case 0:
            return m("MatMul", v, m.weights(before, after))
        case 1:
            return m("Gemm", v, m.weights(after, before), m.weights(after), transB=1)
        case 2:
            return m("Gemm", v, m.weights(before, after))
        case 3:
            return m("Add", m.weights(before), v)
        case 4:
            return m("Mul", v, m("ReduceMax", v, m.numbers(-1), keepdims=1))
        case 5:
            return m("Squeeze", m("Abs", m("Unsqueeze", v, m.numbers(0, 3))), m.numbers(-1, 0))
        case 6:
            return m("LogSoftmax", v, axis=-1)
    return m("Tanh", v)


def drawn(m: Model, rng: np.random.Generator) -> Callable[[int], Value]:
    """Branches of ops that are drawn."""
    orders = [list(range(N)), [2, 1, 0, 5, 4, 3], [0, 0, 1, 1, 2, 2]]
    order, leaf = orders[rng.integers(3)], m.row if rng.integers(2) else m.gathered
    widths, kinds = [8], [int(kind) for kind in rng.integers(8, size=rng.integers(1, 5))]
    for kind in kinds:
        widths.append(int(rng.integers(1, 5)) if kind < 3 else widths[-1])

    def branch(n: int) -> Value:
        value = m("Neg", leaf(order[n]))
        for kind, before, after in zip(kinds, widths, widths[1:], strict=False):
            value = step(m, kind, value, before, after)
        return value

    return branch


@pytest.mark.parametrize("seed", range(40))
def test_branches_that_are_drawn(seed: int) -> None:
    m, rng = Model(), np.random.default_rng(seed)
    branch = drawn(m, rng)
    joins: list[Callable[[], Value]] = [
        lambda: stacked(m, branch, int(rng.integers(3))),
        lambda: m.total([branch(n) for n in range(N)]),
    ]
    joins.append(lambda: m("Concat", *map(branch, range(N)), axis=1))
    compared(m, joins[seed % 3]())


def test_a_sum_of_products_with_weights_is_one_product() -> None:
    m = Model()
    rows = [m.row(n) for n in range(3)]
    parts = [m("Unsqueeze", m("MatMul", rows[n % 3], m.weights(8, 4)), m.numbers(1)) for n in range(N)]
    _, after = compared(m, m.total([m("Add", part, m.weights(4)) for part in parts]))
    assert (after["MatMul"], after["ReduceSum"], after["Gather"]) == (1, 0, 0)


def test_branches_of_several_rows() -> None:
    m = Model()
    parts = [m("MatMul", m.slice(n % 2 * 3, 3), m.weights(8, 8)) for n in range(4)]
    _, after = compared(m, m("Concat", *parts, axis=1))
    assert (after["MatMul"], after["Concat"]) == (1, 0)


def test_parts_of_a_split() -> None:
    m = Model()
    split = m.graph.add("Split", (m.x, m.numbers(*[1] * N)), Attrs(axis=1), N)
    parts = [m("Unsqueeze", m.linear(m("Squeeze", v, m.numbers(1))), m.numbers(1)) for v in split.outputs]
    _, after = compared(m, m("Concat", *parts, axis=1))
    assert (after["Split"], after["Gemm"], after["MatMul"]) == (0, 0, 1)


def heads(m: Model, n: int) -> Value:
    """One head of attention over the rows of x, whose width is of four heads."""
    q, k, v = (m("Slice", m.x, m.numbers(2 * n), m.numbers(2 * n + 2), m.numbers(2)) for _ in range(3))
    scores = m("MatMul", q, m("Transpose", k, perm=(0, 2, 1)))
    return m("MatMul", m("Softmax", scores, axis=-1), v)


def test_heads_of_attention_that_are_written_one_by_one() -> None:
    m = Model()
    _, after = compared(m, m("Concat", *(heads(m, n) for n in range(4)), axis=2))
    assert (after["MatMul"], after["Softmax"], after["Concat"]) == (2, 1, 0)


@pytest.mark.parametrize(
    "name",
    [
        "few",
        "used elsewhere",
        "other attributes",
        "other shapes",
        "other ops",
        "slices alone",
        "no slices",
        "random",
        "sizes",
    ],
)
def test_branches_that_stay(name: str) -> None:
    m = Model()
    match name:
        case "few":
            parts = [m("Relu", m.slice(n)) for n in range(LEAST - 1)]
        case "used elsewhere":
            parts = [m("Tanh", m("Relu", m.slice(n))) for n in range(N)]
            m.graph.add_output("other", m.graph.node(parts[2].node).inputs[0])
        case "other attributes":
            parts = [m("LeakyRelu", m.slice(n), alpha=0.1 * (n + 1)) for n in range(N)]
        case "other shapes":
            parts = [m("Relu", m.slice(n, 1 + n % 2)) for n in range(N - 1)]
        case "other ops":
            parts = [m(op, m.slice(n)) for n, op in enumerate(["Relu", "Abs", "Neg", "Relu", "Abs", "Neg"])]
        case "slices alone":
            parts = [m.slice(n) for n in (1, 0, 3, 2, 5)]
        case "sizes":
            sizes = [m("Gather", m("Shape", m.x), m.number_of(n % 3)) for n in range(N)]
            parts = [m("Unsqueeze", m("Mul", size, m.number_of(n)), m.numbers(0)) for n, size in enumerate(sizes)]
            m.graph.add_output("result", m("Concat", *parts, axis=0))
            assert simplify(m.graph, passes=PACKED) is m.graph
            return
        case "random":
            parts = [m("RandomNormalLike", m.slice(n)) for n in range(N)]
        case _:
            parts = [m("Relu", m("MatMul", m.x, m.weights(8, 3))) for _ in range(N)]
    result = m("Concat", *parts, axis=1)
    m.graph.add_output("result", result)
    assert simplify(m.graph, passes=PACKED) is m.graph


def test_constants_that_round_stay_where_they_are() -> None:
    m = Model()
    magic = [m.number(c) for c in (12582912, -12582912, 1, 1, 1)]
    value = m.x
    for constant in magic:
        value = m("Add", value, constant)
    m.graph.add_output("result", value)
    assert simplify(m.graph, passes=PACKED) is m.graph


def test_many_constants_of_a_sum_are_one() -> None:
    m = Model()
    value = m.x
    for _ in range(50):
        value = m("Add", value, m.weights(8))
    _, after = compared(m, value)
    assert after == {"Add": 1, "Sum": 1}


def test_no_branch_is_packed_where_bits_are_kept() -> None:
    m = Model()
    m.graph.add_output("result", stacked(m, lambda n: BRANCHES["bias"](m, n)))
    kept, free = (optimize(m.graph, policy=policy, verify="off") for policy in ("exact", "reals"))
    assert isinstance(kept, Graph)
    assert isinstance(free, Graph)
    assert [sum(n.op == "MatMul" for n in g.nodes()) for g in (kept, free)] == [N, 1]
