"""Blocks are written into their consumers and producers, and only where that changes nothing."""

import pytest

from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.compute_inline import compute_inline, reverse_compute_inline
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import check, refused, same_results


@pytest.mark.parametrize("primitive", [compute_inline, reverse_compute_inline])
def test_documented(primitive):
    check(primitive)


CHAIN = """
@program
def chain(A: Buffer[(4, 6), "float32"], C: Buffer[(4, 6), "float32"], D: Buffer[(4, 6), "float32"]):
    B = alloc((4, 6), "float32")
    for i, j in grid(4, 6):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            B[vi, vj] = {b}
    for i1, j1 in grid(4, 6):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = {c}
    for i2, j2 in grid(4, 6):
        with block("D"):
            vi2, vj2 = axis.remap("SS", [i2, j2])
            D[vi2, vj2] = {d}
"""


def chain(b: str = "A[vi, vj] + 1.0", c: str = "B[vi1, vj1] * 2.0", d: str = "1.0") -> str:
    return CHAIN.format(b=b, c=c, d=d)


SUMS = """
@program
def sums(A: Buffer[(4, 6), "float32"], C: Buffer[(4,), "float32"]):
    B = alloc((4,), "float32")
    for i, j in grid(4, 6):
        with block("B"):
            vi, vj = axis.remap("SR", [i, j])
            with init():
                B[vi] = 0.0
            B[vi] = B[vi] + A[vi, vj]
    for i1 in serial(4):
        with block("C"):
            vi1 = axis.remap("S", [i1])
            C[vi1] = B[vi1] * 2.0
"""
DIAGONAL = """
@program
def diagonal(A: Buffer[(4,), "float32"], C: Buffer[(4,), "float32"]):
    B = alloc((4, 4), "float32")
    for i in serial(4):
        with block("B"):
            vi = axis.remap("S", [i])
            B[vi, vi] = A[vi]
    for i1 in serial(4):
        with block("C"):
            vi1 = axis.remap("S", [i1])
            C[vi1] = B[vi1, vi1]
"""
TWO = """
@program
def two(A: Buffer[(4,), "float32"], C: Buffer[(4,), "float32"]):
    B = alloc((4,), "float32")
    for i in serial(4):
        with block("B"):
            vi = axis.remap("S", [i])
            B[vi] = A[vi]
            C[vi] = A[vi]
    for i1 in serial(4):
        with block("C"):
            vi1 = axis.remap("S", [i1])
            C[vi1] = B[vi1]
"""
PREFIX = """
@program
def prefix(A: Buffer[(4,), "float32"], C: Buffer[(4,), "float32"]):
    T = alloc((1,), "float32")
    B = alloc((4,), "float32")
    for k in serial(4):
        with block("T"):
            vk = axis.reduce(4, k)
            with init():
                T[0] = 0.0
            T[0] = T[0] + A[vk]
        with block("B"):
            v = axis.remap("S", [k])
            B[v] = T[0]
    for i1 in serial(4):
        with block("C"):
            vi1 = axis.remap("S", [i1])
            C[vi1] = B[vi1]
"""


@pytest.mark.parametrize(
    ("text", "block", "message"),
    [
        (chain(), "C", "C is a parameter of chain; only what lives while the program runs"),
        (SUMS, "B", "B reduces or is ordered; only a block of spatial axes can be inlined"),
        (chain(c="1.0"), "B", "nothing reads B"),
        (DIAGONAL, "B", "B does not write B at just its own axes, each once"),
        (TWO, "B", "B holds more than one store"),
        (PREFIX, "B", "block T changes T before all consumers of B have run"),
        (chain(d="B[vi2, vj2]", b="D[vi, vj]"), "B", "block D changes D before all consumers of B have run"),
        (chain(b="B[vi, vj] + 1.0"), "B", "B reads B, which it writes"),
        (chain(), "E", "there is no block E"),
    ],
)
def test_what_cannot_be_computed_where_it_is_read(text, block, message):
    assert message in refused(text, f"s.compute_inline({block!r})")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (chain(c="A[vi1, vj1]"), "C reads nothing that a block beside it makes"),
        (chain(c="B[vi1, 0]"), "C reads nothing that a block beside it makes at just its own axes"),
        (chain(c="B[vi1, vj1] + B[vi1, 0]"), "C reads nothing that a block beside it makes at just its own axes"),
        (chain(d="B[vi2, vj2]"), "B is read by D as well"),
        (SUMS, "B reduces: C may only see what is complete"),
        (chain(b="C[vi, 5 - vj]"), "C writes what is read there"),
        (chain(c="B[vi1, vj1] + C[vi1, 5 - vj1]"), "C writes what is read there"),
        (TWO, "B holds more than one store"),
    ],
)
def test_what_cannot_be_computed_where_it_is_made(text, message):
    assert message in refused(text, "s.reverse_compute_inline('C')")


def test_two_readers_and_permuted_indices():
    nest = read(chain(c="B[vi1, vj1] * B[vi1, 5 - vj1]", d="B[vi2, vj2] + C[vi2, vj2]"))
    s = Schedule(nest)
    s.compute_inline("B")
    assert "B" not in [b.name for b in s.nest.allocs]
    same_results(nest, s.nest)


def test_a_consumer_of_a_part_runs_for_that_part():
    text = """
@program
def part(A: Buffer[(7, 5), "float32"], C: Buffer[(3, 4), "float32"]):
    B = alloc((7, 5), "float32")
    for i, j in grid(7, 5):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1.0
    for i1, j1 in grid(3, 4):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = B[vi1, vj1] * 2.0
"""
    nest = read(text)
    s = Schedule(nest)
    s.split("i", [None, 4])
    s.reverse_compute_inline("C")
    assert len(s.get_loops("B")) == 3
    same_results(nest, s.nest)


PARTS = """
@program
def parts(A: Buffer[(6,), "float32"], I: Buffer[(6,), "int64"], C: Buffer[(6,), "float32"]):
    B = alloc((6,), "{dtype}")
    for i in serial(6):
        with block("B"):
            v = axis.remap("S", [i])
            {where_b}
            B[v] = {value}
    for j in serial(6):
        with block("C"):
            w = axis.remap("{kind}", [j])
            {where}
            C[{at}] = {read}
"""


def parts(
    value="A[v] + 1.0", read="B[w]", at="w", where="where(j >= 0)", where_b="where(i >= 0)", dtype="float32", kind="S"
) -> str:
    return PARTS.format(value=value, read=read, at=at, where=where, where_b=where_b, dtype=dtype, kind=kind)


@pytest.mark.parametrize("where", ["where(w % 2 == 0)", "where(j < 3)", "where(A[w] > 0.0)"])
def test_a_block_that_runs_at_some_points_stays(where):
    assert "C runs only where a condition holds" in refused(parts(where=where), "s.reverse_compute_inline('C')")
    condition = where.replace("w", "v", 2).replace("vhere", "where").replace("(j", "(i")
    assert "B runs only where a condition holds" in refused(parts(where_b=condition), "s.compute_inline('B')")


def test_where_a_consumer_writes_may_be_found_by_the_producer():
    nest = read(parts(value="(I[v] + v * 2 + I[v] * 5) % 6", read="A[w]", at="B[w]", dtype="int64"))
    s = Schedule(nest)
    s.reverse_compute_inline("C")
    assert not s.nest.allocs
    s = Schedule(nest)
    s.compute_inline("B")
    same_results(nest, s.nest)


def test_what_a_statement_outside_of_blocks_writes_is_not_inlined():
    text = parts().replace("    for j in serial", "    B[3] = 7.0\n    for j in serial")
    assert "B is written by a statement outside of blocks as well" in refused(text, "s.compute_inline('B')")
