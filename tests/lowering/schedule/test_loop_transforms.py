"""Loops are split, fused and reordered, and run in every way that their blocks allow and in no other."""

import re
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.nest import For, Nest, Stmt, mutate, statements, substitute_in
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule import annotations, loop_transforms
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.documented import check, same_results

PRIMITIVES = [
    loop_transforms.split,
    loop_transforms.fuse,
    loop_transforms.reorder,
    loop_transforms.add_unit_loop,
    annotations.parallel,
    annotations.vectorize,
    annotations.unroll,
    annotations.bind,
    annotations.annotate,
    annotations.unannotate,
]


@pytest.mark.parametrize("primitive", PRIMITIVES, ids=lambda p: p.__name__)
def test_documented(primitive):
    check(primitive)


PRODUCT = """
@program
def product(A: Buffer[(7, 6), "float32"], B: Buffer[(6, 5), "float32"], C: Buffer[(7, 5), "float32"]):
    for i, j, k in grid(7, 5, 6):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""
SIZED = """
@program
def sized(A: Buffer[("n", "m"), "float32"], B: Buffer[("m", 5), "float32"], C: Buffer[("n", 5), "float32"], n: size, m: size):
    for i, j, k in grid(n, 5, m):
        with block("C"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                C[vi, vj] = 0.0
            C[vi, vj] = C[vi, vj] + A[vi, vk] * B[vk, vj]
"""  # noqa: E501
SUMS = """
@program
def sums(X: Buffer[(4, 9), "float32"], Y: Buffer[(4, 9), "float32"]):
    for i, t in grid(4, 9):
        with block("Y"):
            vi = axis.spatial(4, i)
            vt = axis.ordered(9, t)
            Y[vi, vt] = select(vt > 0, Y[vi, max(vt - 1, 0)], 0.0) + X[vi, vt]
"""
RECURRENCE = """
@program
def recurrence(X: Buffer[(6, 4), "float32"], H: Buffer[(7, 4), "float32"]):
    for t, i in grid(6, 4):
        with block("H"):
            vt = axis.ordered(6, t)
            vi = axis.spatial(4, i)
            H[vt + 1, vi] = H[vt, 3 - vi] + X[vt, vi]
"""
PAIR = """
@program
def pair(X: Buffer[(8, 6), "float32"], Y: Buffer[(8, 6), "float32"]):
    T = alloc((8, 6), "float32")
    for i, j in grid(8, 6):
        with block("T"):
            vi, vj = axis.remap("SS", [i, j])
            T[vi, vj] = X[vi, vj] * 2.0
        with block("Y"):
            ui, uj = axis.remap("SS", [i, j])
            Y[ui, uj] = T[ui, uj] + 1.0
"""
SHIFTED = PAIR.replace("T[ui, uj] + 1.0", "select(ui > 0, T[max(ui - 1, 0), uj], 0.0)")
# each row of the tile is computed with the halo that the window wants, so that tiles compute some rows twice
HALO = """
@program
def halo(X: Buffer[(10,), "float32"], Y: Buffer[(8,), "float32"]):
    T = alloc((10,), "float32", scope="local")
    for i in serial(4):
        for j in serial(4):
            with block("T"):
                v = axis.spatial(10, i * 2 + j)
                T[v] = X[v] * 2.0
        for k in serial(2):
            with block("Y"):
                u = axis.spatial(8, i * 2 + k)
                Y[u] = T[u] + T[u + 1] + T[u + 2]
"""
NARROW = HALO.replace("for j in serial(4)", "for j in serial(3)")
TRIANGLE = """
@program
def triangle(X: Buffer[(6, 6), "float32"], Y: Buffer[(6, 6), "float32"]):
    for i in serial(6):
        for j in serial(i + 1):
            with block("Y"):
                vi = axis.spatial(6, i)
                vj = axis.spatial(6, j)
                Y[vi, vj] = X[vi, vj]
"""
BARE = """
@program
def bare(X: Buffer[(6,), "float32"], Y: Buffer[(6,), "float32"]):
    for i in serial(6):
        Y[i] = X[i]
"""
FOLDED = """
@program
def folded(X: Buffer[(8,), "float32"], Y: Buffer[(4,), "float32"]):
    for i in serial(8):
        with block("Y"):
            v = axis.spatial(4, i % 4)
            Y[v] = X[v]
"""


def schedule(text: str) -> Schedule:
    return Schedule(read(text))


MIXED = """
@program
def mixed(A: Buffer[(2, 2), "float32"], C: Buffer[(2,), "float32"]):
    for a, b in grid(2, 3):
        with block("C"):
            vj = axis.spatial(2, (a * 3 + b) // 2)
            vk = axis.reduce(2, (a * 3 + b) % 2)
            where(a * 3 + b < 4)
            with init():
                C[vj] = 0.0
            C[vj] = C[vj] + A[vj, vk]
"""
TWICE = """
@program
def twice(A: Buffer[(4, 6), "float32"], C: Buffer[(4,), "float32"]):
    for r, i, k in grid(2, 4, 6):
        with block("C"):
            vi, vk = axis.remap("SR", [i, k])
            with init():
                C[vi] = 0.0
            C[vi] = C[vi] + A[vi, vk]
"""
ORDERS = """
@program
def orders(A: Buffer[(4, 6), "float32"]):
    for t, u in grid(3, 5):
        with block("A"):
            vt, vu = axis.remap("OO", [t, u])
            A[vt + 1, vu + 1] = A[vt, vu + 1] + A[vt + 1, vu]
"""
T = "threadIdx.x"
ILLEGAL = {
    "two open factors": (PRODUCT, lambda s: s.split("i", [None, None]), "leave at most one None"),
    "too few iterations": (PRODUCT, lambda s: s.split("i", [3, 2]), "3 * 2 = 6 iterations do not cover its 7"),
    "no factors": (PRODUCT, lambda s: s.split("i", []), "leave at most one None"),
    "a factor of zero": (PRODUCT, lambda s: s.split("i", [None, 0]), "not all positive"),
    "sizes are not covered": (SIZED, lambda s: s.split("i", [4, 4]), "leave one factor None"),
    "no such loop": (PRODUCT, lambda s: s.split("x", [None, 2]), "there is no loop x; the loops are i, j, k"),
    "a vector is not split": (PAIR, lambda s: (s.vectorize("j"), s.split("j", [None, 2])), "split it before"),
    "no such tail": (PRODUCT, lambda s: s.split("i", [None, 2], tail="none"), "the tail is one of guard, short"),
    "a short tail of three": (PRODUCT, lambda s: s.split("i", [None, 2, 2], tail="short"), "that of two loops"),
    "fused with a parallel loop": (PRODUCT, lambda s: (s.parallel("i"), s.fuse("i", "j")), "i is parallel; fuse it"),
    "fused out of order": (PRODUCT, lambda s: s.fuse("j", "i"), "j does not hold i and nothing else"),
    "fused over a gap": (PRODUCT, lambda s: s.fuse("i", "k"), "i does not hold k and nothing else"),
    "fused with what it bounds": (TRIANGLE, lambda s: s.fuse("i", "j"), "the extent of j changes with i"),
    "nothing to fuse": (PRODUCT, lambda s: s.fuse(), "name at least one"),
    "named twice": (PRODUCT, lambda s: s.reorder("i", "j", "i"), "named twice"),
    "inside what it bounds": (TRIANGLE, lambda s: s.reorder("j", "i"), "has to stay around it"),
    "not in one chain": (HALO, lambda s: s.reorder("j", "k"), "only loops with nothing else between them"),
    "an order is kept": (RECURRENCE, lambda s: s.reorder("i", "t"), "keeps the order of t"),
    "another's element first": (SHIFTED, lambda s: s.reorder("j", "i"), "block Y uses elements of T"),
    "a beginning in the middle": (MIXED, lambda s: s.reorder("b", "a"), "might not start at its beginning"),
    "a sum twice": (TWICE, lambda s: s.reorder("k", "r"), "adds up the same elements in several of its iterations"),
    "another recurrence": (RECURRENCE, lambda s: s.vectorize("t"), "loop i stands in it"),
    "an order within another": (ORDERS, lambda s: s.reorder("u", "t"), "both move ordered axes"),
    "a reduction at once": (PRODUCT, lambda s: s.parallel("k"), "axis vk of block C is reduced into one element"),
    "an order at once": (SUMS, lambda s: s.parallel("t"), "axis vt of block Y keeps its order"),
    "one element twice": (FOLDED, lambda s: s.parallel("i"), "writes the same elements of Y in several of its iter"),
    "elements of another iteration": (SHIFTED, lambda s: s.parallel("i"), "may write in another iteration"),
    "statements without blocks": (BARE, lambda s: s.parallel("i"), "written outside of blocks"),
    "a shared halo": (HALO.replace(', scope="local"', ""), lambda s: s.parallel("i"), "or set_scope T to"),
    "a halo too small": (NARROW, lambda s: s.parallel("i"), "may write in another"),
    "loops in a vector": (PRODUCT, lambda s: s.vectorize("i"), "loop j stands in it"),
    "a reduced vector": (PRODUCT, lambda s: s.vectorize("k"), "is reduced into one element"),
    "a vector is parallel": (PRODUCT, lambda s: (s.parallel("i"), s.vectorize("i")), "it is parallel already"),
    "parallel in CUDA": (PRODUCT, lambda s: (s.bind("i", "blockIdx.x"), s.parallel("j")), "take a loop around that"),
    "CUDA in parallel": (PRODUCT, lambda s: (s.parallel("i"), s.bind("j", "threadIdx.x")), "CUDA threads are not"),
    "unrolled without end": (SIZED, lambda s: s.unroll("i"), "split it, and unroll the inner loop"),
    "no such threads": (PRODUCT, lambda s: s.bind("i", "warp"), "'warp' is no axis of threads; use blockIdx.x"),
    "threads twice": (PRODUCT, lambda s: (s.bind("i", T), s.bind("j", T)), "bound to threadIdx.x already"),
    "blocks do not reduce": (PRODUCT, lambda s: s.bind("k", "blockIdx.x"), "is reduced into one element"),
    "no such note": (PRODUCT, lambda s: s.unannotate("C", "x"), "block C has no note 'x'; it has none"),
    "no such place": (PRODUCT, lambda s: s.annotate("D", "x", 1), "there is no loop D"),
}  # fmt: skip


@pytest.mark.parametrize("case", ILLEGAL)
def test_illegal(case: str) -> None:
    text, step, message = ILLEGAL[case]
    s = schedule(text)
    with pytest.raises(ScheduleError, match=re.escape(message)) as caught:
        step(s)
    assert "\n" not in str(caught.value)
    assert str(caught.value).split(":")[0] in {p.__name__ for p in PRIMITIVES}


def test_loops_that_may_move_do() -> None:
    s = schedule(SUMS)
    s.reorder("t", "i")  # rows go on side by side
    s.vectorize("i")
    same_results(read(SUMS), s.nest)
    s = schedule(PAIR)
    s.reorder("j", "i")
    s.parallel("j")
    same_results(read(PAIR), s.nest)
    s = schedule(HALO)
    s.parallel("i")
    same_results(read(HALO), s.nest)
    s = schedule(PRODUCT)
    s.reorder("k", "j", "i")
    s.bind("j", "blockIdx.x")
    s.bind("i", "threadIdx.x")
    same_results(read(PRODUCT), s.nest)
    s = schedule(PRODUCT)
    s.bind("k", "threadIdx.x")  # the threads of a block reduce together


def test_tiles_of_tiles_are_told_apart() -> None:
    s = schedule(PRODUCT)
    i0, i1 = s.split("i", [None, 2])
    j0, j1 = s.split("j", [None, 3])
    s.reorder(i0, j0, "k", i1, j1)
    outer = s.fuse(i0, j0)
    s.parallel(outer)
    s.vectorize(j1)
    s.unroll(i1)
    same_results(read(PRODUCT), s.nest)
    inner = schedule(PRODUCT)
    f = inner.fuse("i", "j")
    f0, f1 = inner.split(f, [None, 4])
    inner.parallel(f0)
    inner.reorder("k", f1)
    inner.vectorize(f1)
    same_results(read(PRODUCT), inner.nest)


def test_sizes_are_split_by_numbers() -> None:
    s = schedule(SIZED)
    i0, i1 = s.split("i", [None, 4])
    k0, k1 = s.split("k", [None, 4])
    s.reorder(i0, k0, i1, k1, "j")
    s.parallel(i0)
    s.vectorize("j")
    for n, m in [(1, 1), (4, 4), (5, 3), (0, 2)]:
        same_results(read(SIZED), s.nest, n=n, m=m)
    fused = schedule(SIZED)
    fused.parallel(fused.fuse("i", "j"))
    same_results(read(SIZED), fused.nest, n=3, m=2)


def test_parts_of_parallel_loops_are_parallel() -> None:
    s = schedule(SIZED)
    s.parallel("i")
    s.parallel("j")
    outer, inner = s.split(s.fuse("i", "j"), [None, 4], tail="short")
    kinds = {loop.var.name: loop.kind for loop in statements(s.nest.body) if isinstance(loop, For)}
    assert (kinds[outer.name], kinds[inner.name]) == ("parallel", "serial")
    for n, m in [(1, 1), (4, 4), (5, 3), (0, 2)]:
        same_results(read(SIZED), s.nest, n=n, m=m)


@pytest.mark.parametrize(("extent", "width"), [(7, 3), (8, 4), (2, 5)])
def test_a_short_tail_needs_no_guard(extent: int, width: int) -> None:
    text = PRODUCT.replace("7", str(extent))
    s = schedule(text)
    s.split("i", [None, width], tail="short")
    assert "where" not in s.script()
    same_results(read(text), s.nest)


@pytest.mark.parametrize("factors", [[3, None], [3, 4], [2, 6], [4, None], [5, 5]])
def test_a_short_tail_of_so_many_outer_iterations(factors: list[int | None]) -> None:
    """There are fewer where the inner loop has all iterations before; two such tails are fused."""
    text = PRODUCT.replace("7", "6").replace("5", "6")
    s = schedule(text)
    (i0, i1), (j0, j1) = (s.split(loop, factors, tail="short") for loop in "ij")
    same_results(read(text), s.nest)
    s.reorder(i0, j0, i1, j1)
    s.fuse(i1, j1)
    same_results(read(text), s.nest)


def test_what_does_not_change_is_the_same_nest() -> None:
    s = schedule(PRODUCT)
    before = s.nest
    s.reorder("i", "k")
    assert s.fuse("i").name == "i"
    assert s.nest is before


def test_notes_stay_with_the_outer_loop() -> None:
    s = schedule(PRODUCT)
    s.annotate("i", "a", [1, "b"])
    s.annotate("C", "c", True)
    i0, _ = s.split("i", [None, 2])
    noted = {x.var.name: dict(x.notes) for x in statements(s.nest.body) if isinstance(x, For)}
    assert noted == {i0.name: {"a": (1, "b")}, "i_1": {}, "j": {}, "k": {}}
    s.unannotate(i0, "a")
    s.unannotate("C", "c")
    assert "notes" not in s.script()


PROGRAMS = [PRODUCT, PRODUCT, PAIR, SUMS, HALO, RECURRENCE, MIXED, TWICE, ORDERS]
EXTENTS = st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8])


@given(EXTENTS, EXTENTS, EXTENTS, st.integers(0, 2**32), st.sampled_from(PROGRAMS))
@settings(max_examples=60, deadline=None)
def test_whatever_is_allowed_computes_the_same(a: int, b: int, c: int, seed: int, text: str) -> None:
    if text is PRODUCT:
        text = text.replace("7", str(a)).replace("5", str(b)).replace("6", str(c))
    before = read(text)
    random = Random(seed)
    s = Schedule(before)
    for _ in range(5):
        try:
            step(s, random)
        except ScheduleError:
            continue
    same_results(before, backwards(s.nest))


def step(s: Schedule, random: Random) -> None:
    """One step of a schedule, legal or not."""
    names = [x.var.name for x in statements(s.nest.body) if isinstance(x, For)]
    match random.randrange(6):
        case 0 | 1:
            factors = random.choice([[None, 2], [2, None], [4, None], [None, 3], [None, 2, 2], [8], [3, 3]])
            s.split(random.choice(names), factors, tail=random.choice(["guard", "short"]))
        case 2:
            start = random.randrange(len(names))
            s.fuse(*names[start : start + random.randrange(2, 4)])
        case 3 | 4:
            s.reorder(*random.sample(names, min(len(names), random.randrange(2, 5))))
        case 5:
            random.choice([s.parallel, s.vectorize, lambda name: s.bind(name, "blockIdx.x")])(random.choice(names))


def backwards(nest: Nest) -> Nest:
    """The nest with the iterations of loops that are not serial from the last to the first."""

    def turned(stmt: Stmt) -> Stmt | None:
        if not isinstance(stmt, For) or stmt.kind == "serial":
            return None
        return replace(stmt, body=substitute_in(stmt.body, {stmt.var: stmt.extent - 1 - stmt.var}))

    return replace(nest, body=mutate(nest.body, turned))


MASKED = """
@program
def masked(A: Buffer[(7,), "float32"], M: Buffer[(7,), "int64"], B: Buffer[(7,), "float32"]):
    for i in serial(7):
        with block("B"):
            v = axis.remap("S", [i])
            where(M[{at}] > 0 and {at} < 6)
            B[v] = A[v]
"""


@pytest.mark.parametrize("at", ["i", "v"])
@pytest.mark.parametrize("factors", [[None, 2], [None, 3, 2], [8]])
def test_a_mask_is_read_only_where_there_is_an_iteration(at, factors):
    nest = read(MASKED.format(at=at))
    s = Schedule(nest)
    s.split("i", factors)
    s.split(s.get_loops("B")[-1], [None, 2])
    same_results(nest, s.nest)


TRIANGLE = """
@program
def triangle(A: Buffer[(2, 4, 8), "float32"], B: Buffer[(2, 4, 8), "float32"]):
    for h, i in grid(2, 4):
        for j in serial(h * 4 + i + 1):
            with block("B"):
                vh, vi, vj = axis.remap("SSS", [h, i, j])
                B[vh, vi, vj] = A[vh, vi, vj] * 2.0
"""


@pytest.mark.parametrize("call", ["s.split('i', [None, 2])", "s.split('i', [None, 3])", "s.fuse('h', 'i')"])
def test_axes_may_be_as_long_as_loops_around_them_say(call: str) -> None:
    nest = read(TRIANGLE)
    s = Schedule(nest)
    eval(call, {"s": s})
    same_results(nest, s.nest)
