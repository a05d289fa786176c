"""Blocks move under the loops of those that read them or that they read, and only where that changes nothing."""

import pytest

from graphopt.lowering.analysis.block_refs import INLINE, ROOT
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.compute_at import compute_at, reverse_compute_at
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import TRIANGLE, check, refused, same_results


@pytest.mark.parametrize("primitive", [compute_at, reverse_compute_at])
def test_documented(primitive):
    check(primitive)


PRODUCT = """
@program
def product(A: Buffer[(6, 5), "float32"], B: Buffer[(5, 8), "float32"], C: Buffer[(6, 8), "float32"],
            D: Buffer[(6, 8), "float32"], E: Buffer[(6,), "float32"]):
    Y = alloc((6, 8), "float32")
    for i, k, j in grid(6, 5, 8):
        with block("Y"):
            vi, vk, vj = axis.remap("SRS", [i, k, j])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i1, j1 in grid(6, 8):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = {c}
    for i2, j2 in grid(6, 8):
        with block("D"):
            vi2, vj2 = axis.remap("SS", [i2, j2])
            D[vi2, vj2] = {d}
    for i3, j3 in grid(6, 8):
        with block("E"):
            vi3, vj3 = axis.remap("SR", [i3, j3])
            with init():
                E[vi3] = 0.0
            E[vi3] = E[vi3] + {e}
"""


def product(c: str = "Y[vi1, vj1] * 2.0", d: str = "1.0", e: str = "1.0") -> str:
    return PRODUCT.format(c=c, d=d, e=e)


ORDERED = """
@program
def ordered(A: Buffer[(4, 4), "float32"], C: Buffer[(4, 4), "float32"]):
    Y = alloc((4, 4), "float32")
    for t, i in grid(4, 4):
        with block("Y"):
            vt, vi = axis.remap("OS", [t, i])
            Y[vt, vi] = A[vt, vi]
    for t1, i1 in grid(4, 4):
        with block("C"):
            vt1, vi1 = axis.remap("OS", [t1, i1])
            C[vt1, vi1] = Y[vt1, vi1]
"""
HOLES = """
@program
def holes(A: Buffer[(8,), "float32"], C: Buffer[(8,), "float32"]):
    Y = alloc((8,), "float32")
    for j, i in grid(2, 4):
        with block("Y"):
            v = axis.spatial(8, {v})
            {where}
            Y[v] = A[v]
    for i1 in serial(8):
        with block("C"):
            v1 = axis.remap("S", [i1])
            C[v1] = {c}
"""


def holes(v: str = "i * 2 + j", where: str = "pass", c: str = "Y[v1]") -> str:
    return HOLES.format(v=v, where=where, c=c)


@pytest.mark.parametrize(
    ("text", "calls", "message"),
    [
        (product(), ["s.compute_at('C', 'i')"], "C is a parameter of product: C has to write all of it"),
        (product(d="Y[vi2, vj2]"), ["s.compute_at('Y', 'i1')"], "block D reads Y outside of i1"),
        (product(c="1.0"), ["s.compute_at('Y', 'i1')"], "nothing reads Y"),
        (product(), ["s.compute_at('Y', 'i')"], "Y runs within i already"),
        (product(), ["s.compute_at('Y', 'q')"], "there is no loop q"),
        (ORDERED, ["s.compute_at('Y', 't1')"], "Y has ordered axes, which have to stay in their order"),
        (product(), ["s.vectorize('j1')", "s.compute_at('Y', 'j1')"], "j1 is vectorized; move Y before"),
        (
            product(),
            ["s.decompose_reduction('Y', 'k')", "s.compute_at('Y', 'i1')"],
            "Y is written by block Y_init as well",
        ),
        (
            product(c="Y[vi1, vj1] + Y[5 - vi1, vj1]"),
            ["s.parallel('i1')", "s.compute_at('Y', 'i1')"],
            "steps of i1, which is parallel, would reduce into the same elements of Y; use set_scope to make it local",
        ),
        (holes(where="where(i < 3)"), ["s.compute_at('Y', 'i1')"], "Y runs only where a condition holds that is not"),
        (product(), ["s.blockize('i')", "s.compute_at('Y', 'i1')"], "i1 and Y do not stand in one block"),
    ],
)
def test_what_cannot_move_to_its_readers(text, calls, message):
    assert message in refused(text, *calls)


@pytest.mark.parametrize(
    ("text", "calls", "message"),
    [
        (
            product(),
            ["s.reverse_compute_at('C', 'j')"],
            "block Y still reduces in j: C would read what is not",
        ),
        (product(), ["s.reverse_compute_at('C', 'k')"], "block Y still reduces in k"),
        (product(), ["s.reverse_compute_at('D', 'i')"], "nothing that D reads is made within i"),
        (product(), ["s.reverse_compute_at('C', 'i1')"], "C runs within i1 already"),
        (
            product(d="C[vi2, vj2] + Y[vi2, vj2]"),
            ["s.reverse_compute_at('D', 'i')"],
            "block C behind i makes what D reads",
        ),
        (product(c="Y[5 - vi1, vj1]"), ["s.reverse_compute_at('C', 'i')"], "C does not read Y at just its own axes"),
        (
            product(c="Y[vi1, vj1] + Y[0, vj1]"),
            ["s.reverse_compute_at('C', 'i')"],
            "C does not read Y at just its own axes, and so not in one step",
        ),
        (
            product(c="Y[vi1, vj1]", d="select(vi2 < 5, Y[vi2 + 1, vj2], 0.0) + Y[vi2, vj2]"),
            ["s.reverse_compute_at('D', 'i')"],
            "D may not read all that it names of Y",
        ),
        (product(c="Y[vi1, vj1]", d="C[vi2, vj2]"), ["s.reverse_compute_at('D', 'i')"], "nothing that D reads is made"),
        (product(e="Y[vi3, vj3]"), ["s.parallel('i')", "s.reorder('j', 'k')", "s.reverse_compute_at('E', 'j')"], ""),
        (ORDERED, ["s.reverse_compute_at('C', 't')"], "C has ordered axes, which have to stay in their order"),
        (holes(), ["s.reverse_compute_at('C', 'j')"], "what is written of Y in a step of j may have gaps"),
        (
            holes(v="j * 4 + i", where="where(i < 3)"),
            ["s.reverse_compute_at('C', 'j')"],
            "Y runs only where a condition holds that is not about the ends of its axes",
        ),
        (holes(v="j * 3 + i"), ["s.reverse_compute_at('C', 'j')"], "C reads more of Y than is written in j"),
    ],
)
def test_what_cannot_move_to_what_it_reads(text, calls, message):
    if message:
        assert message in refused(text, *calls)
    else:
        nest = read(text)
        s = Schedule(nest)
        for call in calls:
            eval(call, {"s": s})
        same_results(nest, s.nest)


def test_a_reduction_moves_into_steps_of_its_own_loop_only_serially():
    text = product(e="Y[vi3, vj3]")
    calls = ["s.reorder('j', 'i', 'k')", "s.parallel('j')", "s.reverse_compute_at('E', 'j')"]
    assert "E would reduce over j, which is parallel" in refused(text, *calls)
    nest = read(text)
    s = Schedule(nest)
    s.reorder("j", "i", "k")
    s.reverse_compute_at("E", "j")
    same_results(nest, s.nest)


def test_places_that_are_no_loops():
    text = """
@program
def chain(A: Buffer[(4,), "float32"], C: Buffer[(4,), "float32"]):
    B = alloc((4,), "float32")
    for i in serial(4):
        with block("B"):
            vi = axis.remap("S", [i])
            B[vi] = A[vi] + 1.0
    for i1 in serial(4):
        with block("C"):
            vi1 = axis.remap("S", [i1])
            C[vi1] = B[vi1] * 2.0
"""
    s = Schedule(read(text))
    s.compute_at("B", ROOT)
    assert s.nest == read(text)
    s.compute_at("B", INLINE)
    assert s.nest.allocs == ()


def test_sizes_may_be_open():
    text = """
@program
def rows(A: Buffer[("n", "m"), "float32"], C: Buffer[("n", "m"), "float32"], n: size, m: size):
    B = alloc(("n", "m"), "float32")
    for i, j in grid(n, m):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] + 1.0
    for i1, j1 in grid(n, m):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = B[vi1, vj1] * 2.0
"""
    nest = read(text)
    for n, m in [(1, 1), (5, 3), (4, 8)]:
        s = Schedule(nest)
        s.split("i1", [None, 4])
        s.compute_at("B", "i1_0")
        same_results(nest, s.nest, n=n, m=m)
        s = Schedule(nest)
        s.split("j", [None, 4])
        s.reverse_compute_at("C", "j_0")
        same_results(nest, s.nest, n=n, m=m)


EACH_STEP = """
@program
def rows(X: Buffer[(4, 6), "float32"], Z: Buffer[(4, 6), "float32"]):
    T = alloc((6,), "float32")
    C = alloc((4, 6), "float32")
    for a, b in grid(4, 6):
        with block("C"):
            va, vb = axis.remap("SS", [a, b])
            C[va, vb] = X[va, vb] + 1.0
    for i in serial(4):
        for j in serial(6):
            with block("T"):
                vi, vj = axis.remap("SS", [i, j])
                T[vj] = C[vi, vj] * 3.0
        for j1 in serial(6):
            with block("Z"):
                vi1, vj1 = axis.remap("SS", [i, j1])
                Z[vi1, vj1] = T[5 - vj1]
"""


def test_what_each_step_writes_anew_is_computed_for_that_step():
    nest = read(EACH_STEP)
    s = Schedule(nest)
    s.compute_at("T", "j1")
    same_results(nest, s.nest)


def test_what_each_step_writes_anew_stays_in_the_loop():
    message = "T writes the same elements of T in each step of i, where others use them"
    for call in ("s.reverse_compute_at('T', 'a')", "s.reverse_compute_inline('T')"):
        assert message in refused(EACH_STEP, call)


@pytest.mark.parametrize("call", ["s.compute_at('B', 'p')", "s.reverse_compute_at('C', 'i')"])
def test_axes_whose_extents_change_stay_in_their_loops(call):
    assert "how long an axis of" in refused(TRIANGLE, call)
