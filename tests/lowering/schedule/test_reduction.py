"""Reductions are started by blocks of their own, and done in parts."""

import pytest

from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.reduction import decompose_reduction, rfactor
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import check, refused, same_results


@pytest.mark.parametrize("primitive", [decompose_reduction, rfactor])
def test_documented(primitive):
    check(primitive)


SUMS = """
@program
def sums(A: Buffer[({n}, {m}), "{dtype}"], B: Buffer[({n},), "{dtype}"]):
    for i, j in grid({n}, {m}):
        with block("B"):
            vi, vj = axis.remap("SR", [i, j])
            with init():
                B[vi] = {start}
            B[vi] = {step}
"""
COMBINED = [
    ("int32", "0", "B[vi] + A[vi, vj]"),
    ("int32", "7", "A[vi, vj] + B[vi]"),
    ("int32", "1", "B[vi] * A[vi, vj]"),
    ("float32", "-inf", "max(B[vi], A[vi, vj])"),
    ("int32", "100", "min(B[vi], A[vi, vj] * 2)"),
    ("bool", "True", "B[vi] and A[vi, vj]"),
    ("bool", "False", "B[vi] or A[vi, vj]"),
]


@pytest.mark.parametrize(("dtype", "start", "step"), COMBINED)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 8), (2, 7), (4, 2)])
@pytest.mark.parametrize("inner", [True, False])
def test_partial_results(dtype, start, step, n, m, inner):
    nest = read(SUMS.format(dtype=dtype, start=start, step=step, n=n, m=m))
    s = Schedule(nest)
    parts = s.split("j", [None, 4])
    partial = s.rfactor(parts[inner], int(inner))
    same_results(nest, s.nest)
    if s.nest.allocs and any(loop.name == "j_0" for loop in s.get_loops(partial)) and inner:
        s.reorder("j_1", "j_0")
        if m > 4:
            s.decompose_reduction(partial, "j_0")
    s.decompose_reduction("B", s.get_loops("B")[-1])
    same_results(nest, s.nest)


@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 3), (8, 8)])
def test_what_is_left_over_starts_too(n, m):
    nest = read(SUMS.format(dtype="int32", start="3", step="B[vi] + A[vi, vj]", n=n, m=m))
    s = Schedule(nest)
    s.split("i", [None, 4])
    s.split("j", [None, 2])
    s.decompose_reduction("B", "i_1" if n > 1 else "j_0")
    same_results(nest, s.nest)


PLAIN = SUMS.format(dtype="float32", start="0.0", step="B[vi] + A[vi, vj]", n=4, m=6)
TWICE = """
@program
def twice(A: Buffer[(4, 6), "float32"], C: Buffer[(4, 6), "float32"]):
    B = alloc((4,), "float32")
    for i, j in grid(4, 6):
        with block("B"):
            vi, vj = axis.remap("SR", [i, j])
            with init():
                B[vi] = 0.0
            B[vi] = B[vi] + A[vi, vj]
    for i1, j1 in grid(4, 6):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = B[vi1] + A[vi1, vj1]
"""
ARGMAX = """
@program
def argmax(A: Buffer[(4, 6), "float32"], B: Buffer[(4,), "float32"], K: Buffer[(4,), "int64"]):
    for i, j in grid(4, 6):
        with block("B"):
            vi, vj = axis.remap("SR", [i, j])
            with init():
                B[vi] = -inf
                K[vi] = 0
            K[vi] = select(A[vi, vj] > B[vi], vj, K[vi])
            B[vi] = max(B[vi], A[vi, vj])
"""
RUNNING = """
@program
def running(A: Buffer[(4, 3), "float32"], C: Buffer[(3,), "float32"]):
    for t, i in grid(4, 3):
        with block("C"):
            vt, vi = axis.remap("OS", [t, i])
            with init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vt, vi]
"""


@pytest.mark.parametrize(
    ("text", "calls", "message"),
    [
        (TWICE, ["s.decompose_reduction('C', 'i1')"], "C has no init to take out of it"),
        (RUNNING, ["s.decompose_reduction('C', 't')"], "C has ordered axes"),
        (PLAIN, ["s.decompose_reduction('B', 'k')"], "k is not around B; its loops are i, j"),
        (
            PLAIN,
            ["s.split('j', [3, 2])", "s.decompose_reduction('B', 'j_1')"],
            "j_0 around j_1 is a loop of the reduction: B would start again in each of its steps",
        ),
        (PLAIN, ["s.fuse('i', 'j')", "s.decompose_reduction('B', 'i_j')"], "i_j is at once a loop of B's spatial axes"),
        (
            TWICE,
            ["s.compute_at('B', 'j1')", "s.decompose_reduction('B', 'i1')"],
            "j1 runs B for some elements again, which would then not start anew; name a loop within it",
        ),
        (PLAIN, ["s.rfactor('i')"], "i is no loop of a reduction of B"),
        (PLAIN, ["s.rfactor('j', 2)"], "B has 1 axes, and position 2 is not among them"),
        (PLAIN, ["s.fuse('i', 'j')", "s.rfactor('i_j')"], "i_j is at once a loop of B's spatial axes"),
        (ARGMAX, ["s.rfactor('j')"], "B holds more than one store"),
        (
            PLAIN.replace("B[vi]", "B[vj % 4]"),
            ["s.rfactor('j')"],
            "B finds the element of B to reduce into by its reduce axis vj",
        ),
        (
            SUMS.format(dtype="float32", start="0.0", step="B[vi] - A[vi, vj]", n=4, m=6),
            ["s.rfactor('j')"],
            "B does not combine into B by one of add, and, max, min, mul, or",
        ),
        (TWICE, ["s.reorder('j', 'i')", "s.reverse_compute_at('C', 'i')"], "block B still reduces in i"),
    ],
)
def test_what_is_refused(text, calls, message):
    assert message in refused(text, *calls)


TRIANGLE = """
@program
def triangle(A: Buffer[(8, 8, 4), "float32"], B: Buffer[(8, 8), "float32"]):
    for i in serial(8):
        for j in serial(i + 1):
            for k in serial(4):
                with block("B"):
                    vi, vj, vk = axis.remap("SSR", [i, j, k])
                    with init():
                        B[vi, vj] = 0.0
                    B[vi, vj] = B[vi, vj] + A[vi, vj, vk]
"""


@pytest.mark.parametrize("loop", ["i", "j", "k"])
def test_a_loop_may_be_as_long_as_one_around_it_says(loop):
    nest = read(TRIANGLE)
    same_results(nest, decompose_reduction(nest, "B", loop)[0])


def test_several_values_start_together():
    nest = read(ARGMAX)
    s = Schedule(nest)
    s.decompose_reduction("B", "i")
    same_results(nest, s.nest)


def test_ordered_axes_are_not_factored():
    text = """
@program
def running(A: Buffer[(4, 6), "float32"], B: Buffer[(6,), "float32"]):
    for t, j in grid(4, 6):
        with block("B"):
            vt, vj = axis.remap("OR", [t, j])
            B[vt] = B[vt] + A[vt, vj]
"""
    assert "B has ordered axes, which have to stay in their order" in refused(text, "s.rfactor('j')")


def test_a_loop_as_long_as_another_one_says_is_not_factored():
    rows = SUMS.format(n=8, m=8, dtype="int32", start="0", step="B[vi] + A[vi, vj]")
    rows = rows.replace("for i, j in grid(8, 8):", "for i in serial(8):\n      for j in serial(i + 1):")
    assert "the extent of j changes with i" in refused(rows, "s.rfactor('j', 0)")
