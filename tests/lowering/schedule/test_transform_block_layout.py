"""Blocks get other axes by maps that take each point to one of its own."""

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace
from graphopt.lowering.schedule.transform_block_layout import transform_block_layout
from tests.lowering.documented import check, refused, same_results


def test_documented():
    check(transform_block_layout)


PRODUCT = """
@program
def product({size}A: Buffer[({n}, {k}), "float32"], B: Buffer[({k}, 6), "float32"], C: Buffer[({n}, 6), "float32"]):
    for i, j, k in grid({n}, 6, {k}):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                C[vi, vj] = 1.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
MAPS = [
    "lambda i, j, k: (k, j, i)",
    "lambda i, j, k: (i * 6 + j, k)",
    "lambda i, j, k: (i, j // 2, j % 2, k)",
    "lambda i, j, k: (i, j // 4, k, j % 4)",
    "lambda i, j, k: (j, 0, i, k // 3, k % 3)",
    "lambda i, j, k: (i // 2 * 12 + j * 2 + i % 2, k)",
    "lambda i, j, k: (i * 8 + j, k)",
    "lambda i, j, k: ((i * 6 + j) // 4, (i * 6 + j) % 4, k)",
]


@pytest.mark.parametrize("index_map", MAPS)
def test_maps(index_map):
    done = 0
    for n, k in ((0, 2), (1, 1), (3, 4), (4, 0), (5, 3)):
        nest = read(PRODUCT.format(n=n, k=k, size=""))
        s = Schedule(nest)
        try:
            s.transform_block_layout("C", index_map)
        except ScheduleError:
            assert s.nest is nest
            continue
        done += 1
        same_results(nest, s.nest)
        assert replay(Trace.from_json(s.trace.to_json()), nest).nest == s.nest
    assert done > 2


@pytest.mark.parametrize("n", [0, 1, 3, 4])
@pytest.mark.parametrize("index_map", MAPS[:4])
def test_maps_of_open_sizes(n, index_map):
    nest = read(PRODUCT.format(n="n", k=2, size="n: size, "))
    s = Schedule(nest)
    s.transform_block_layout("C", index_map)
    same_results(nest, s.nest, n=n)


def test_a_function_is_a_map():
    nest = read(PRODUCT.format(n=3, k=2, size=""))
    s = Schedule(nest)
    s.transform_block_layout("C", lambda i, j, k: (j, i, k))
    assert "lambda i, j, k: (j, i, k)" in s.trace.script()
    same_results(nest, s.nest)


ORDERED = """
@program
def ordered(A: Buffer[(4,), "float32"]):
    for t in serial(4):
        with block("A"):
            vt = axis.remap("O", [t])
            A[vt] = A[0] + 1.0
"""


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (["s.transform_block_layout('C', 'lambda i, j: (i, j)')"], "C has 3 axes, and the map takes 2"),
        (["s.transform_block_layout('C', 'lambda i, j, k: (i, j * 2 + k)')"], "joins spatial axes of C with reduced"),
        (["s.transform_block_layout('C', 'lambda i, j, k: (i, j)')"], "the map forgets vk"),
        (["s.transform_block_layout('C', 'lambda i, j, k: (i + j, k)')"], "is the same for several indices"),
        (["s.transform_block_layout('C', 'lambda i, j, k: i(')"], "is no map of indices"),
        (["s.parallel('i')", "s.transform_block_layout('C', 'lambda i, j, k: (j, i, k)')"], "i is parallel; do this"),
        (
            ["s.split('i', [None, 2])", "s.transform_block_layout('C', 'lambda i, j, k: (j, i, k)')"],
            "is not one of its",
        ),
    ],
)
def test_what_is_refused(calls, message):
    assert message in refused(PRODUCT.format(n=3, k=2, size=""), *calls)


def test_ordered_axes_stay():
    assert "A has ordered axes" in refused(ORDERED, "s.transform_block_layout('A', 'lambda t: (t // 2, t % 2)')")
