"""Copies at a loop hold what its steps read and write, and change no result."""

import pytest

from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.cache_at import read_at, write_at
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import check, refused, same_results

PRODUCT = """
@program
def product(A: Buffer[({n}, 5), "float32"], B: Buffer[(5, 7), "float32"], C: Buffer[({n}, 7), "float32"]):
    for i, j, k in grid({n}, 7, 5):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
OPEN = PRODUCT.replace("def product(", "def product(n: size, ").replace("{n}", "n")


@pytest.mark.parametrize("primitive", [read_at, write_at])
def test_documented(primitive):
    check(primitive)


@pytest.mark.parametrize("n", [0, 1, 3, 9])
@pytest.mark.parametrize("loop", ["i_0", "i_1", "j", "k"])
@pytest.mark.parametrize("text", [PRODUCT, OPEN])
def test_tiles_are_copied_at_each_loop(n, loop, text):
    nest = read(text.format(n=n))
    s = Schedule(nest)
    s.split("i", [None, 4])
    for buffer in "AB":
        copy = s.read_at(loop, "C", buffer)
        assert loop in [ref.name for ref in s.get_loops(copy)]
    copy = s.write_at(loop, "C")
    assert loop in [ref.name for ref in s.get_loops(copy)]
    same_results(nest, s.nest, **({"n": n} if text is OPEN else {}))


BESIDE = """
@program
def beside(A: Buffer[(4, 3), "float32"], C: Buffer[(4, 3), "float32"]):
    for t in serial(4):
        for i in serial(3):
            with block("A"):
                vt, vi = axis.remap("SS", [t, i])
                A[vt, vi] = A[vt, vi] * 2.0
            with block("C"):
                vt1, vi1 = axis.remap("SS", [t, i])
                C[vt1, vi1] = A[vt1, vi1] + 1.0
            with block("D"):
                vt2, vi2 = axis.remap("SS", [t, i])
                C[vt2, vi2] = C[vt2, vi2] * 3.0
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("s.read_at('t', 'C', 'A')", "read_at: A is written beside C; name a loop within that"),
        ("s.read_at('x', 'C', 'A')", "x is not around C; its loops are t, i"),
        ("s.read_at('i', 'C', 'C')", "C reads, and does not write, A: C is none of these"),
        ("s.read_at('i', 'C', 'A', 'stack')", "there is no scope stack"),
        ("s.write_at('t', 'C')", "write_at: C is used beside C; name a loop within that"),
        ("s.write_at('i', 'D')", "D goes on from what C held before"),
        ("s.write_at('i', 'C', 'A')", "C writes C: A is none of these"),
    ],
)
def test_what_is_refused(call, message):
    if "'i', 'D'" in call:
        assert "C is written by C as well" in refused(BESIDE, call)
    else:
        assert message in refused(BESIDE, call)


def test_a_copy_within_the_inmost_loop():
    nest = read(BESIDE)
    s = Schedule(nest)
    s.read_at("i", "C", "A")
    s.write_at("i", "C")
    same_results(nest, s.nest)


RAGGED = """
@program
def ragged(X: Buffer[(12,), "float32"], P: Buffer[(4, 12), "float32"]):
    for o in serial(4):
        for i in serial({extent}):
            with block("P"):
                vo = axis.remap("S", [o])
                vi = axis.spatial(12, {index})
                P[vo, vi] = X[vi] + 1.0
"""
SAME = RAGGED.replace('vo = axis.remap("S", [o])', 'vo, vi = axis.remap("SS", [o, i])').replace(
    "                vi = axis.spatial(12, {index})\n", ""
)


@pytest.mark.parametrize("text", [RAGGED, SAME])
@pytest.mark.parametrize("extent", ["o + 1", "5 - o", "min(o, 3)", "min(o * -3 + 10, 3)", "3"])
@pytest.mark.parametrize("index", ["i", "o * 2 + i"])
def test_a_loop_that_others_end_copies_out_what_it_wrote(text, extent, index):
    """Its other elements were there before, and stay."""
    nest = read(text.format(extent=extent, index=index))
    s = Schedule(nest)
    s.write_at("o", "P")
    same_results(nest, s.nest)
    if extent != "3" and index == "i":
        message = "P is written only where a condition holds that is not about its indices; cache_inplace"
        assert message in refused(text.format(extent=extent, index=index), "s.cache_write('P')")
