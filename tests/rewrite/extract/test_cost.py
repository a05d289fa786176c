"""Costs follow bytes, multiplications and calls, and know what symbols count as."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import NO_ATTRS, Attrs, Graph
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.ir.types import Size, TensorType, symbol, unranked
from graphopt.rewrite.extract.cost import UNKNOWN, Breakdown, Cost, CostModel, counted_at, graph_cost, stated_sizes
from graphopt.target import CPU, ORT, PORTABLE, T4


def tensor(*shape: Size, dtype: str = "float32") -> Fact:
    return Fact(TensorType(dtype, shape))


MODEL = CostModel(PORTABLE)
NODE = PORTABLE.prices.node


def seconds(op: str, inputs: list[Fact | None], *outputs: Fact, **attrs: int | str) -> float:
    return MODEL.cost(op, Attrs(attrs), inputs, outputs).seconds


def test_a_view_costs_the_call() -> None:
    x = tensor(1, 64, 56, 56)
    assert seconds("Reshape", [x, tensor(2, dtype="int64")], tensor(64, 3136)) == NODE


def test_cheap_ops_cost_their_bytes() -> None:
    x = tensor(1, 64, 56, 56)
    cost = MODEL.cost("Add", NO_ATTRS, [x, x], [x])
    assert cost.bytes == 3 * 4 * 64 * 56 * 56
    assert cost.seconds == pytest.approx(NODE + cost.bytes / PORTABLE.prices.bandwidth[0], rel=1e-3)


def test_transcendental_ops_cost_their_arithmetic() -> None:
    x = tensor(100_000)
    assert seconds("Relu", [x], x) < seconds("Exp", [x], x) < seconds("Pow", [x, tensor()], x) < seconds("LRN", [x], x)


def test_products_cost_their_multiplications() -> None:
    a, b, c = tensor(128, 256), tensor(256, 512), tensor(128, 512)
    assert MODEL.cost("MatMul", NO_ATTRS, [a, b], [c]).flops == 2 * 128 * 256 * 512
    assert MODEL.cost("Gemm", Attrs(transA=1), [tensor(256, 128), b], [c]).flops == 2 * 128 * 256 * 512
    assert MODEL.cost("Einsum", Attrs(equation="ij,jk->ik"), [a, b], [c]).flops == 2 * 128 * 256 * 512


def test_an_einsum_costs_more_than_the_products_of_matrices_that_it_is() -> None:
    a, b, c = tensor(40, 64, 32), tensor(40, 32, 48), tensor(40, 64, 48)
    product = seconds("MatMul", [a, b], c)
    assert product < MODEL.cost("Einsum", Attrs(equation="bij,bjk->bik"), [a, b], [c]).seconds < 3 * product
    rows = Attrs(equation="bij,bij->bij")
    assert MODEL.cost("Einsum", rows, [a, a], [a]).seconds > 100 * seconds("Mul", [a, a], a)


def test_heads_that_share_keys_read_them_once_where_the_kernels_are_ours() -> None:
    q, k, shares = tensor(1, 12, 1, 64), tensor(1, 4, 1024, 64), tensor(1, 4, 3, 1024)
    rows, turned = tensor(1, 4, 3, 64), tensor(1, 4, 64, 1024)
    parts: list[tuple[str, list[Fact | None], Fact]] = [
        ("MatMul", [rows, turned], shares), ("Softmax", [shares], shares), ("MatMul", [shares, k], rows)
    ]  # fmt: skip
    shares_of = {}
    for target in (CPU, ORT):
        model = CostModel(target)
        written = sum(model.cost(op, NO_ATTRS, inputs, [y]).seconds for op, inputs, y in parts)
        shares_of[target.name] = model.cost("Attention", NO_ATTRS, [q, k, k], [q]).seconds / written
    assert shares_of["cpu"] < 1.1
    assert shares_of["ort"] > 1.5


def test_products_fill_vectors() -> None:
    def product(columns: int) -> float:
        return seconds("MatMul", [tensor(512, 512), tensor(512, columns)], tensor(512, columns))

    assert product(17) == pytest.approx(product(32))
    assert product(32) > 1.5 * product(16)


def test_convolutions_fill_vectors_of_channels() -> None:
    x = tensor(1, 64, 56, 56)
    few, many = (seconds("Conv", [x, tensor(n, 64, 3, 3)], tensor(1, n, 56, 56), kernel_shape=str(n)) for n in (1, 16))
    assert few == pytest.approx(many, rel=0.01)


def test_short_runs_of_a_broadcast_are_dear() -> None:
    x, one = tensor(1, 172, 309, 1), tensor(1)
    assert seconds("Mul", [x, one], x) > 20 * seconds("Mul", [tensor(1, 172, 309), one], tensor(1, 172, 309))


def test_reductions_across_rows_are_dear() -> None:
    def axis(n: int) -> Fact:
        return Fact(TensorType("int64", (1,)), True, Constant.of(np.array([n])))

    x = tensor(64, 512, 256)
    assert seconds("ReduceSum", [x, axis(1)], tensor(64, 1, 256)) > 5 * seconds(
        "ReduceSum", [x, axis(2)], tensor(64, 512, 1)
    )
    assert seconds("Softmax", [x], x, axis=1) > 5 * seconds("Softmax", [x], x)


def test_a_mode_of_an_op_may_have_a_price_of_its_own() -> None:
    x, sizes = tensor(1, 8, 64, 64), tensor(4, dtype="int64")
    linear, cubic = (seconds("Resize", [x, None, None, sizes], x, mode=mode) for mode in ("linear", "cubic"))
    assert cubic > 10 * linear


def test_a_square_is_a_cheap_power() -> None:
    def number(x: float) -> Fact:
        return Fact(TensorType("float32", ()), True, Constant.of(np.array(x, np.float32)))

    x = tensor(100_000)
    assert seconds("Pow", [x, number(2.0)], x) < seconds("Pow", [x, number(0.75)], x) / 5


@pytest.mark.parametrize(
    ("perm", "shape", "dear"),
    [
        ((0, 2, 3, 1), (1, 64, 28, 28), False),
        ((0, 2, 1, 3), (1, 64, 28, 28), False),
        ((0, 3, 2, 1), (1, 4, 127, 512), True),
        ((2, 3, 0, 4, 1), (4, 4, 64, 14, 14), True),
        ((0, 3, 1, 2), (1, 1, 127, 512), False),
        ((2, 0, 3, 1), (32, 128, 1, 64), True),  # the axis of size 1 moves as well
        ((0, 2, 3, 1), (32, 128, 1, 64), False),
        ((2, 0, 1), (32, 128, 1), False),  # nothing else moves
    ],
)
def test_transpositions_that_scatter_are_dear(perm: tuple[int, ...], shape: tuple[int, ...], dear: bool) -> None:
    found = MODEL.cost("Transpose", Attrs(perm=perm), [tensor(*shape)], [tensor(*(shape[p] for p in perm))])
    assert (found.seconds > 2e-9 * MODEL.elements(tensor(*shape))) == dear


def test_convolutions_by_kind() -> None:
    x = tensor(1, 64, 56, 56)
    dense = MODEL.cost("Conv", NO_ATTRS, [x, tensor(64, 64, 3, 3)], [x])
    deep = MODEL.cost("Conv", Attrs(group=64), [x, tensor(64, 1, 3, 3)], [x])
    assert dense.flops == 64 * deep.flops
    assert dense.seconds < 64 * deep.seconds


def test_slices_read_what_they_write() -> None:
    whole, part = tensor(1000, 1000), tensor(10, 1000)
    assert seconds("Slice", [whole], part) < seconds("Relu", [part], part) + seconds("Relu", [part], part)


def test_gathered_elements_cost_more_than_rows() -> None:
    def gathered(rows: int, width: int, **attrs: int) -> float:
        shape = (width, 1000) if attrs else (1000, width)
        out = (width, rows) if attrs else (rows, width)
        return seconds("Gather", [tensor(*shape), tensor(rows, dtype="int64")], tensor(*out), **attrs)

    assert gathered(400, 32, axis=1) > 10 * gathered(400, 32)
    assert gathered(400, 32, axis=-1) == gathered(400, 32, axis=1)


def test_places_of_rows_cost_by_row() -> None:
    x, rows, elements = tensor(20, 50, 16), tensor(20, 30, 16), tensor(20, 30, 16)
    of_rows = seconds("GatherND", [x, tensor(20, 30, 2, dtype="int64")], rows)
    within = seconds("GatherND", [x, tensor(20, 30, 1, dtype="int64")], rows, batch_dims=1)
    assert within == of_rows
    assert seconds("GatherND", [x, tensor(20, 30, 16, 3, dtype="int64")], elements) > 10 * of_rows


def test_fourier_transforms_are_dear_of_lengths_that_are_no_power_of_two() -> None:
    def spectra(length: int) -> float:
        return seconds("DFT", [tensor(8, length, 1)], tensor(8, length // 2 + 1, 2), onesided=1)

    def frames(length: int) -> float:
        inputs: list[Fact | None] = [tensor(8, 4000, 1), tensor(dtype="int64"), tensor(length), None]
        return seconds("STFT", inputs, tensor(8, 10, length // 2 + 1, 2))

    assert spectra(400) > 5 * spectra(512)
    assert frames(400) > 5 * frames(512)
    last = Fact(TensorType("int64", ()), True, Constant.of(np.array(1)))
    assert seconds("DFT", [tensor(8, 400, 1), None, last], tensor(8, 201, 2)) == spectra(400)


def test_unknown_sizes_count_as_stated() -> None:
    graph = Graph()
    graph.add_input("x", TensorType("float32", (symbol("N"), 3, symbol("H"), symbol("H") * 2)))
    model = CostModel(PORTABLE, stated_sizes(graph))
    assert model.shape(tensor(symbol("N"), symbol("H") * 2)) == (1, 2 * UNKNOWN)
    assert model.elements(Fact(TensorType("float32", unranked()))) == UNKNOWN
    assert model.elements(None) == 0


def test_a_graph_is_priced_by_op() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType("float32", (1, 8)))
    y = graph.add("Relu", (x,)).outputs[0]
    z = graph.add("Relu", (y,)).outputs[0]
    graph.add_output("z", graph.add("Exp", (z,)).outputs[0])
    facts = {v: tensor(1, 8) for n in graph.nodes() for v in n.outputs}
    found = graph_cost(graph, facts, PORTABLE)
    assert {op: count for op, (count, _) in found.by_op.items()} == {"Relu": 2, "Exp": 1}
    assert found.total.seconds == sum(cost.seconds for _, cost in found.by_op.values())


def test_parts_sum_up() -> None:
    found = Breakdown.of([("A", Cost(1, 2, 3)), ("B", Cost(5)), ("A", Cost(1))])
    assert found.total == Cost(7, 2, 3)
    assert list(found.by_op.items()) == [("B", (1, Cost(5))), ("A", (2, Cost(2, 2, 3)))]


def test_the_last_tiles_of_a_product_leave_processors_idle() -> None:
    def product(rows: int) -> float:
        a, b, y = tensor(rows, 4096), tensor(4096, 64), tensor(rows, 64)
        return CostModel(T4).cost("MatMul", NO_ATTRS, [a, b], [y]).seconds - T4.prices.node

    assert product(64 * 40) == pytest.approx(product(64 * 21), rel=1e-6)
    assert product(64 * 41) == pytest.approx(2 * product(64 * 40), rel=1e-6)


def test_views_are_free_where_the_target_says_so() -> None:
    x = tensor(8, 64)
    assert CostModel(T4).cost("Split", NO_ATTRS, [x], [tensor(4, 64)] * 2) == Cost()


def test_every_open_size_of_the_inputs_counts_as_something() -> None:
    graph = parse("x: float32[n, seq, 8]\ny = Relu(x)\nreturn y")
    assert counted_at(graph) == {"n": 1, "seq": UNKNOWN}


def test_sizes_may_be_stated() -> None:
    graph = parse("x: float32[n, seq, 8]\ny = Relu(x)\nreturn y")
    costs = [graph_cost(graph, infer(graph), PORTABLE, {"seq": n}).total.seconds for n in (1, UNKNOWN, 9999)]
    assert costs == sorted(costs)
    assert costs[1] == graph_cost(graph, infer(graph), PORTABLE).total.seconds


@pytest.mark.parametrize(
    ("perm", "shape", "slow"),
    [
        ((0, 2, 1, 3), (1, 512, 256, 1), False),
        ((0, 2, 1, 3), (1, 172, 309, 2), False),
        ((0, 3, 2, 1), (1, 64, 56, 56), True),
    ],
)
def test_transposes_that_move_one_axis_are_quick(perm: tuple[int, ...], shape: tuple[int, ...], slow: bool) -> None:
    x = Fact(TensorType("float32", shape))
    y = Fact(TensorType("float32", tuple(shape[p] for p in perm)))
    moved = MODEL.cost("Transpose", Attrs(perm=perm), [x], [y]).seconds
    copied = MODEL.cost("Relu", Attrs(), [x], [y]).seconds
    assert (moved > 5 * copied) is slow


def test_weights_cost_as_much_to_load_inside_a_body_as_outside() -> None:
    product = "Gemm(x, w, b)"
    weights = f"w = float32[8, 8]{{{', '.join(['1'] * 64)}}}\nb = float32[8]{{{', '.join(['1'] * 8)}}}\n"
    outside = f"x: float32[2, 8]\n{weights}y = {product}\nreturn y\n"
    inside = (
        f"x: float32[2, 8]\nc: bool[]\n{weights}"
        f"y = If(c | x, w, b, then_branch={{\nx: ?\nw: ?\nb: ?\nz = {product}\nreturn z\n}}, "
        "else_branch={\nx: ?\nw: ?\nb: ?\nz = Identity(x)\nreturn z\n})\nreturn y\n"
    )
    prices = [graph_cost(g, infer(g), PORTABLE).by_op["Gemm"] for g in map(parse, (outside, inside))]
    assert prices[0] == prices[1]
