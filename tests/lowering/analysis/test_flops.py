"""Operations of nests: what blocks say, however they are scheduled, and what procedures and intrinsics do."""

from __future__ import annotations

import pytest

from graphopt.compile import lowered
from graphopt.ir.text import parse
from graphopt.lowering.analysis.flops import flops, iterations
from graphopt.lowering.link.options import BY_RULE
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.run.steps import Steps
from graphopt.runtime.sizes import evaluate
from graphopt.runtime.steps import KernelStep, walk

SQUARES = """
@program
def squares(x: Buffer[("n", 6), "float32"], y: Buffer[("n", 6), "float32"], n: size):
    for i, j in grid(n, 6):
        with block("y"):
            vi, vj = axis.remap("SS", [i, j])
            y[vi, vj] = x[vi, vj] * x[vi, vj] + 1.0
"""


def counted(text: str, **sizes: int) -> list[int]:
    """The operations of each call of a graph."""
    steps = walk(lowered(parse(text), BY_RULE, Steps()).steps)
    return [evaluate(s.flops, sizes) for s in steps if isinstance(s, KernelStep)]


def test_a_block_counts_once_however_it_is_scheduled() -> None:
    nest = read(SQUARES)
    n = {nest.sizes[0]: "n"}
    assert evaluate(flops(nest, n), {"n": 5}) == 2 * 6 * 5
    schedule = Schedule(nest)
    i, j = schedule.get_loops(schedule.get_block("y"))
    schedule.split(j, [None, 4])  # the last step is not a full one
    schedule.reorder(*schedule.get_loops(schedule.get_block("y"))[1:], i)
    assert evaluate(flops(schedule.nest, n), {"n": 5}) == 2 * 6 * 5


def test_iterations_are_elements_that_are_stored() -> None:
    nest = read("""
@program
def rows(k: Buffer[("n",), "int64"], x: Buffer[("n", 6), "int64"], y: Buffer[("n", 6), "int64"], n: size):
    for i in serial(n):
        y[i, 0] = 0
        for j in serial(k[i]):
            y[i, 0] = y[i, 0] + x[i, j]
""")
    n = {nest.sizes[0]: "n"}
    assert evaluate(flops(nest, n), {"n": 5}) == 0
    assert evaluate(iterations(nest, n, unknown=100), {"n": 5}) == 5 + 100 * 5


def test_a_block_in_two_places_is_one() -> None:
    nest = read("""
@program
def ends(x: Buffer[("n",), "float32"], y: Buffer[("n",), "float32"], n: size):
    if n >= 4:
        for i in serial(n):
            with block("y"):
                v = axis.spatial(n, i)
                y[v] = x[v] * 2.0
    else:
        for i in serial(n):
            with block("y"):
                v = axis.spatial(n, i)
                y[v] = x[v] * 2.0
""")
    assert evaluate(flops(nest, {nest.sizes[0]: "n"}), {"n": 3}) == 3


def test_loops_count_as_long_as_they_may_be_and_the_longer_way_is_taken() -> None:
    nest = read("""
@program
def tiles(x: Buffer[("n",), "float32"], y: Buffer[("n",), "float32"], n: size):
    for o in serial((n + 3) // 4):
        for i in serial(min(4, n - o * 4)):
            if i > 0:
                y[o * 4 + i] = x[o * 4 + i] * 2.0 + 1.0
            else:
                y[o * 4 + i] = x[o * 4 + i] * 2.0
""")
    size = {nest.sizes[0]: "n"}
    assert [evaluate(flops(nest, size), {"n": n}) for n in (0, 3, 4, 5)] == [0, 6, 8, 16]


def test_what_is_invoked_counts_as_its_description() -> None:
    nest = read("""
@program
def products(a: Buffer[(8, 5), "float32"], b: Buffer[(5, 7), "float32"], c: Buffer[(8, 7), "float32"]):
    for i in serial(2):
        invoke("gemm_nn_float32", c[i * 4:i * 4 + 4, :], a[i * 4:i * 4 + 4, :], b[:, :], 4, 7, 5)
""")
    assert flops(nest, {}) == 2 * 8 * 5 * 7


def test_what_elements_decide_counts_for_nothing() -> None:
    nest = read("""
@program
def some(k: Buffer[(), "int64"], x: Buffer[(9,), "float32"], y: Buffer[(9,), "float32"]):
    for i in serial(k[()]):
        y[i] = x[i] * 2.0
""")
    assert flops(nest, {Var("n"): 1}) == 0


@pytest.mark.parametrize("keys", [64, 300])
def test_attention_counts_its_products(keys: int) -> None:
    text = (
        f"graph main (ir 10, opset 23)\nq: float32[2, 3, 32, 16] k: float32[2, 3, {keys}, 16] "
        f"v: float32[2, 3, {keys}, 16] y = Attention(q, k, v) return y"
    )
    least = 4 * 2 * 3 * 32 * keys * 16
    assert least < sum(counted(text)) < 1.6 * least  # rows are filled up to tiles, and there are powers


def test_recurrences_count_their_products() -> None:
    text = (
        "x: float32[t, 2, 8] w: float32[1, 64, 8] r: float32[1, 64, 16] y, h, c = LSTM(x, w, r, hidden_size=16) "
        "return y, h, c"
    )
    least = 2 * 64 * 2 * (8 + 16)
    each = [sum(counted(text, t=n)) for n in (5, 10)]
    assert 5 * least < each[0] < 1.5 * 5 * least
    assert each[1] - each[0] == pytest.approx(each[0], rel=0.2)


def test_minimal_filtering_counts_fewer_products_than_the_convolution() -> None:
    text = (
        "x: float32[1, 2, 16, 16, 16] w: float32[2, 2, 3, 3, 16, 16] "
        "u = graphopt::WinogradWeights(w, tile=4) "
        "y = graphopt::BlockedWinogradConv(x, u, tile=4, pads=[1, 1, 1, 1]) return y"
    )
    direct = 2 * 16 * 16 * 32 * 32 * 9
    *_, made = counted(text)
    assert direct / 4 < made < direct
