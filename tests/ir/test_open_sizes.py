import pytest

from graphopt.ir.graph import Graph
from graphopt.ir.open_sizes import WEIGHTS, demanded, equations, holds, smallest, solved
from graphopt.ir.text import parse
from graphopt.verify.inputs import sizes

# inputs, what is computed of them, and what is left no choice
CASES = {
    "a traced Reshape": (
        "x: float32[t, b, 64]",
        "n = Shape(x, start=1, end=2) s = Concat([37], Mul(n, [4]), [16], axis=0) y = Reshape(x, s)",
        {"t": 37},
    ),
    "a Reshape with -1": ("x: float32[b, t]", "y = Reshape(x, [-1, 7])", {}),
    "positions": ("x: float32[b, t, 8]", "y = Add(x, ConstantOfShape([1, 100, 8]))", {"t": 100}),
    "rows of a product": ("x: float32[b, c]", "y = MatMul(x, ConstantOfShape([5, 7]))", {"c": 5}),
    "a product turned over": ("x: float32[c, b]", "y = Gemm(x, ConstantOfShape([7, 5]), transA=1, transB=1)", {"c": 5}),
    "channels": ("x: float32[b, c, h, w]", "y = Conv(x, ConstantOfShape([4, 3, 3, 3]), group=2)", {"c": 6}),
    "two inputs": ("x: float32[b, 4] z: float32[n, 4]", "y = Add(x, z)", {"b": "n"}),
    "joined": ("x: float32[b, t] z: float32[n, 4]", "y = Concat(x, z, axis=0)", {"t": 4}),
    "halves that meet again": (
        "x: float32[h, 4]",
        "n = Shape(x, start=0, end=1) y = Sub(x, Expand(1.0, Concat(Sub(n, [3]), [4], axis=0)))",
        {},
    ),
    "squeezed": ("x: float32[b, t]", "y = Squeeze(x, [0])", {"b": 1}),
    "more than one root": (
        "x: float32[b, n]",
        "y = MatMul(Slice(x, [0], [4096], [1]), ConstantOfShape([4096, 3]))",
        {"n": 4096},
    ),
    "a factor that may be 0": (
        "x: float32[b, c] z: float32[b, 5]",
        "y = MatMul(Reshape(x, [-1]), Reshape(z, [-1]))",
        {"c": 5},
    ),
    "a rank that the op does not take": ("x: float32[c] s: float32[1]", "y = BatchNormalization(x, s, s, s, s)", {}),
    "a size that may be 1": ("x: float32[n]", "y = Add(x, Expand(1.0, Min(Shape(x), [1])))", {}),
}


def graph_of(inputs: str, body: str) -> Graph:
    return parse(f"{inputs} {body} return y")


@pytest.mark.parametrize("case", CASES)
def test_what_ops_ask_of_sizes_is_solved(case: str) -> None:
    inputs, body, wanted = CASES[case]
    found = solved(equations(graph_of(inputs, body)), {})
    assert {name: str(size) for name, size in found.items()} == {name: str(size) for name, size in wanted.items()}


DEMANDED = {
    "rows of a product": {"c": 5},
    "a product turned over": {"c": 5},
    "channels": {"c": 6},
    "positions": {},  # one row may be added to all
    "a traced Reshape": {},  # a batch of none has any number of rows
    "two inputs": {},
    "more than one root": {},
    "a factor that may be 0": {},
    "a rank that the op does not take": {},
}


@pytest.mark.parametrize("case", DEMANDED)
def test_sizes_that_an_op_takes_in_every_run(case: str) -> None:
    assert demanded(graph_of(*CASES[case][:2])) == DEMANDED[case]


QUANTIZED = "s: float32[] z: uint8[]"
TAKEN = {
    "MatMul": ("x: float32[b, c] w: float32[5, 7]", "x, w"),
    "MatMulInteger": ("x: uint8[b, c] w: uint8[5, 7]", "x, w"),
    "QLinearMatMul": (f"x: uint8[b, c] w: uint8[5, 7] {QUANTIZED}", "x, s, z, w, s, z, s, z"),
    "Gemm": ("x: float32[b, c] w: float32[5, 7]", "x, w"),
    "Conv": ("x: float32[b, c, n] w: float32[4, 5, 3]", "x, w"),
    "ConvInteger": ("x: uint8[b, c, n] w: uint8[4, 5, 3]", "x, w"),
    "QLinearConv": (f"x: uint8[b, c, n] w: uint8[4, 5, 3] {QUANTIZED}", "x, s, z, w, s, z, s, z"),
    "ConvTranspose": ("x: float32[b, c, n] w: float32[5, 4, 3]", "x, w"),
    "LSTM": ("x: float32[t, b, c] w: float32[1, 16, 5] r: float32[1, 16, 4]", "x, w, r, hidden_size=4"),
    "GRU": ("x: float32[t, b, c] w: float32[1, 12, 5] r: float32[1, 12, 4]", "x, w, r, hidden_size=4"),
    "RNN": ("x: float32[t, b, c] w: float32[1, 4, 5] r: float32[1, 4, 4]", "x, w, r, hidden_size=4"),
    "BatchNormalization": ("x: float32[b, c, n] s: float32[5]", "x, s, s, s, s"),
    "InstanceNormalization": ("x: float32[b, c, n] s: float32[5]", "x, s, s"),
}


@pytest.mark.parametrize("op", sorted(WEIGHTS))
def test_every_op_takes_as_many_channels_as_its_weights(op: str) -> None:
    inputs, operands = TAKEN[op]
    assert demanded(parse(f"{inputs} y = {op}({operands}) return y")) == {"c": 5}


def test_sizes_that_are_given_stay() -> None:
    asked = equations(graph_of(*CASES["two inputs"][:2]))
    assert solved(asked, {"n": 5}) == {"n": 5, "b": 5}


def test_where_nothing_solves_all_equations_the_rest_is_tried_too() -> None:
    graph = graph_of("x: float32[t]", "y = Add(Add(x, ConstantOfShape([9])), Reshape(x, [1]))")  # 9 or 1, and 1
    assert {"t": 1} in list(sizes(graph, {}))


def test_sizes_with_a_common_divisor_come_before_those_without() -> None:
    graph = graph_of("x: float32[b, t]", "y = Reshape(x, [-1, 48])")
    first = next(sizes(graph, {}))
    assert first["b"] * first["t"] % 48 == 0
    assert holds(equations(graph), first)


def test_pictures_are_squares_where_a_file_has_as_many_anchors_as_one_size_gives() -> None:
    body = (
        "c = MaxPool(x, kernel_shape=[1, 1], strides=[8, 8]) d = MaxPool(c, kernel_shape=[1, 1], "
        "strides=[2, 2]) y = Add(Concat(Reshape(c, [1, -1]), Reshape(d, [1, -1]), axis=1), ConstantOfShape([1, 540]))"
    )
    graph = graph_of("x: float32[1, 3, h, w]", body)
    first = next(sizes(graph, {}))
    assert first == {"h": 96, "w": 96}
    assert holds(equations(graph), first)
    assert next(sizes(graph, {"h": 48}))["h"] == 48


def test_a_graph_that_is_not_valid_asks_nothing() -> None:
    graph = graph_of("x: float32[b, 3]", "y = MatMul(x, ConstantOfShape([5, 7]))")
    assert equations(graph) == []
    assert next(sizes(graph, {}))["b"] > 0


@pytest.mark.parametrize(
    ("inputs", "body", "wanted"),
    [
        ("x: float32[n, 4]", "y, i = TopK(x, [5], axis=0)", {"n": 5}),
        ("x: float32[2, n, 4]", "y, i = TopK(x, [40], axis=1)", {"n": 40}),
        ("x: float32[4, m]", "y, i = TopK(x, [3], axis=0)", {}),
        ("x: float32[1, t]", 'y = Pad(x, [0, 128, 0, 100], mode="reflect")', {"t": 129}),
        ("x: float32[b, t]", "y = Pad(x, [0, 128, 0, 100])", {}),
    ],
)
def test_where_a_number_of_elements_is_asked_for_there_are_so_many(
    inputs: str, body: str, wanted: dict[str, int]
) -> None:
    graph = graph_of(inputs, body)
    assert {name: n for name, n in smallest(graph).items() if n > 1} == wanted
    found = list(sizes(graph, {}))
    assert found
    assert all(size[name] >= n for size in found for name, n in wanted.items())
