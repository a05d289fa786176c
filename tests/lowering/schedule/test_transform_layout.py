"""Buffers get other layouts where no two elements meet."""

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.script import read, show_expr
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace
from graphopt.lowering.schedule.transform_layout import mapped, transform_layout, written_map
from tests.lowering.documented import check, refused, same_results


def test_documented():
    check(transform_layout)


CHAIN = """
@program
def chain(A: Buffer[({n}, {m}), "float32"], C: Buffer[({n}, {m}), "float32"]):
    B = alloc(({n}, {m}), "float32")
    for i, j in grid({n}, {m}):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1.0
    for i1, j1 in grid({n}, {m}):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = B[vi1, vj1] * 2.0
"""


@pytest.mark.parametrize(
    ("index_map", "shape"),
    [
        (lambda n, c: (c, n), "8 6"),
        (lambda n, c: (n, c // 4, c % 4), "6 2 4"),
        (lambda n, c: (c // 4, n, c % 4), "2 6 4"),
        (lambda n, c: (c // 2 % 2, n, c % 2, c // 4), "2 6 2 2"),
        (lambda n, c: (n * 8 + c,), "48"),
        (lambda n, c: ((n * 8 + c) // 12, (n * 8 + c) % 12), "4 12"),
        (lambda n, c: (n // 2, (n % 2) * 8 + c), "3 16"),
        (lambda n, c: (0, n, c), "1 6 8"),
    ],
)
def test_maps(index_map, shape):
    nest = read(CHAIN.format(n=6, m=8))
    s = Schedule(nest)
    s.transform_layout("C", "B", index_map)
    assert " ".join(show_expr(n) for n in s.nest.allocs[0].shape) == shape
    same_results(nest, s.nest)
    assert replay(Trace.from_json(s.trace.to_json()), nest).nest == s.nest


@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 5), (2, 16)])
def test_places_are_left_over_where_that_is_asked_for(n, m):
    nest = read(CHAIN.format(n=n, m=m))
    s = Schedule(nest)
    s.transform_layout("B", "B", lambda n, c: (n, c // 8, c % 8), pad=True)
    assert show_expr(s.nest.allocs[0].shape[2]) == "8"
    same_results(nest, s.nest)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            "s.transform_layout('B', 'A', lambda n, c: (c, n))",
            "A is a parameter of chain, and lies as its caller",
        ),
        ("s.transform_layout('B', 'C', lambda n, c: (c, n))", "B does not use C; it uses A, B"),
        ("s.transform_layout('B', 'B', lambda n: (n,))", "B has 2 axes, and the map takes 1 indices"),
        ("s.transform_layout('B', 'B', lambda n, c: (n, c // 3, c % 3))", "the map has more places, 6 * 3 * 3, than B"),
        ("s.transform_layout('B', 'B', lambda n, c: (n + c,))", "n + c of the map is the same for several indices"),
        ("s.transform_layout('B', 'B', lambda n, c: (n,))", "the map forgets c"),
        (
            "s.transform_layout('B', 'B', lambda n, c: (n, c, c))",
            "the map does not tell all of c apart, or parts",
        ),
        ("s.transform_layout('B', 'B', lambda n, c: (n, c % 4))", "the map forgets a part of c"),
        ("s.transform_layout('B', 'B', lambda n, c: (n, c // 2, c % 4))", "the map does not tell all of c apart"),
        ("s.transform_layout('B', 'B', lambda n, c: (n, c + 1))", "c + 1 of the map is no sum of parts of indices"),
        ("s.transform_layout('B', 'B', lambda n, c: (n * c,))", "of the map is no sum of parts of indices"),
        ("s.transform_layout('B', 'B', 'n, c: (c, n)')", "is no map of indices"),
        ("s.transform_layout('B', 'B', 'lambda n, c: (c, print(n))')", "is no map of indices"),
    ],
)
def test_what_is_refused(call, message):
    assert message in refused(CHAIN.format(n=6, m=8), call)


def test_maps_are_text():
    text = "lambda n, c: (n, c // 16, c % 16 * 2 + 1)"
    assert written_map(text) == text
    assert mapped(text) == mapped(lambda n, c: (n, c // 16, c % 16 * 2 + 1))
    with pytest.raises(ScheduleError, match="is no map of indices"):
        mapped("__import__('os')")


def test_intrinsics_keep_their_buffers():
    text = """
@program
def product(A: Buffer[(4, 4), "float32"], B: Buffer[(4, 4), "float32"], D: Buffer[(4, 4), "float32"]):
    C = alloc((4, 4), "float32")
    for i, j in grid(4, 4):
        with block("C_init"):
            vi0, vj0 = axis.remap("SS", [i, j])
            C[vi0, vj0] = 0.0
    for i1, j1, k in grid(4, 4, 4):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i1, j1, k])
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
    for i2, j2 in grid(4, 4):
        with block("D"):
            vi2, vj2 = axis.remap("SS", [i2, j2])
            D[vi2, vj2] = C[vi2, vj2]
"""
    calls = ["s.tensorize('i1', 'product_4x4_float32')", "s.transform_layout('D', 'C', lambda a, b: (b, a))"]
    assert "product_4x4_float32 works on C as it lies; change it before" in refused(text, *calls)
