"""Filled first and copied then, a padded buffer holds what it did."""

from contextlib import suppress
from random import Random

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.nest import TRUE, For, blocks, statements
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.decompose_padding import decompose_padding
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from tests.lowering import native
from tests.lowering.documented import check, refused, same_results


def test_documented() -> None:
    check(decompose_padding)


PADDED = """
@program
def padded(A: Buffer[("n", "m"), "float32"], B: Buffer[("n + 3", "m + 2"), "float32"], n: size, m: size):
    for i, j in grid(n + 3, m + 2):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            B[vi, vj] = {value}
"""
INSIDE = "vi >= 1 and vi < n + 1 and vj < m"
VALUES = [
    f"select({INSIDE}, A[vi - 1, vj], -1.0)",
    f'select(not ({INSIDE}), cast(vi + vj, "float32"), A[vi - 1, vj])',
    "select(vi >= 1, select(vi - 1 < n, select(m > vj, A[vi - 1, vj], 2.0), 2.0), 2.0)",
    "select(vi >= 3 and vj >= 2, A[n - (vi - 2), vj - 2], 0.0)",
    "select(vi + vj < min(n, m), A[vi, vj], 5.0)",
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("loop", ["i", "j"])
def test_any_padding_of_any_size(value: str, loop: str) -> None:
    nest = read(PADDED.format(value=value))
    s = Schedule(nest)
    assert s.decompose_padding("B", loop).name == "B_fill"
    assert "select" not in show(s.nest)
    for n in (0, 1, 4):
        for m in (0, 1, 5):
            same_results(nest, s.nest, n=n, m=m)
    assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest


def test_loops_end_with_the_middle() -> None:
    s = Schedule(read(PADDED.format(value=VALUES[0])))
    s.decompose_padding("B", "i")
    fill, copy = blocks(s.nest.body)
    assert (fill.name, fill.predicate, copy.predicate) == ("B_fill", TRUE, TRUE)
    assert "for i, j in grid(n, m):" in show(s.nest)
    s.vectorize(s.get_loops("B_fill")[-1])
    s.vectorize(s.get_loops("B")[-1])
    native.check(read(PADDED.format(value=VALUES[0])), s.nest, sizes=(5, 17))


def test_after_random_splits() -> None:
    done = 0
    for seed in range(24):
        random = Random(seed)
        value = random.choice(VALUES)
        nest = read(PADDED.format(value=value))
        s = Schedule(nest)
        for loop in ("i", "j"):
            if random.random() < 0.7:
                s.split(loop, [None, random.choice([2, 3])])
        loops = [ref.name for ref in s.get_loops("B")]
        if random.random() < 0.4:
            s.reorder(*random.sample(loops, 2))
        loops = [ref.name for ref in s.get_loops("B")]
        s.decompose_padding("B", random.choice(loops))
        if random.random() < 0.5:
            with suppress(ScheduleError):
                s.loop_partition(random.choice(["B", "B_fill"]))
                done += 1
        for n, m in ((0, 2), (1, 1), (3, 4)):
            same_results(nest, s.nest, n=n, m=m)
    assert done > 3


def test_a_row_of_padding_in_each_step() -> None:
    nest = read("""
@program
def rows(A: Buffer[(6, 8), "float32"], C: Buffer[(6, 8), "float32"]):
    P = alloc((10,), "float32")
    for i in serial(6):
        for j in serial(10):
            with block("P"):
                vi, vj = axis.remap("SS", [i, j])
                P[vj] = select(vj >= 1 and vj < 9 and vi != 2, A[vi, vj - 1], 0.0)
        for k in serial(8):
            with block("C"):
                vi1, vk = axis.remap("SS", [i, k])
                C[vi1, vk] = P[vk] + P[vk + 1] * P[vk + 2]
""")
    s = Schedule(nest)
    with pytest.raises(ScheduleError, match="block C uses P within i; name a loop within that"):
        s.decompose_padding("P", "i")
    s.decompose_padding("P", "j")
    assert [x.var.name for x in statements(s.nest.body) if isinstance(x, For)] == ["i", "j_fill", "j", "k"]
    same_results(nest, s.nest)


ONE = """
@program
def one(A: Buffer[(8,), "float32"], B: Buffer[(10,), "float32"]):
    for i, j in grid(10, 2):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            B[vi] = {value}
"""


@pytest.mark.parametrize(
    ("value", "loop", "message"),
    [
        ("A[min(vi, 7)]", "i", "B pads nothing: it writes no select"),
        ("select(vi < 8, A[vi], A[0])", "i", "B pads nothing"),
        ("select(A[0] > 0.0, A[min(vi, 7)], 0.0)", "i", "B pads where elements say so"),
        ("select(vi < 8, B[vi], 0.0)", "i", "or with what it wrote before"),
        ("select(vi < 8 and vj < 1, A[vi], 0.0)", "i", "B writes elements of B for several vj, which its condition"),
        ("select(vi < 8, A[vi], 0.0)", "k", "k is not around B; its loops are i, j"),
    ],
)
def test_what_is_refused(value: str, loop: str, message: str) -> None:
    assert message in refused(ONE.format(value=value), f"s.decompose_padding('B', '{loop}')")


def test_more_than_one_store_is_refused() -> None:
    text = ONE.format(value="0.0") + "            B[vi] = 1.0\n"
    assert "B is no single store" in refused(text, "s.decompose_padding('B', 'i')")


TRIANGLE = """
@program
def triangle(A: Buffer[(8, 8), "float32"], B: Buffer[(8, 8), "float32"]):
    for i in serial(8):
        for j in serial(i + 1):
            with block("B"):
                vi, vj = axis.remap("SS", [i, j])
                B[vi, vj] = select(vi >= 2 and vj >= 1 and vj < 5, A[vi - 2, vj - 1], 0.0)
"""


@pytest.mark.parametrize("loop", ["i", "j"])
def test_rows_of_different_lengths(loop: str) -> None:
    nest = read(TRIANGLE)
    same_results(nest, decompose_padding(nest, "B", loop)[0])
