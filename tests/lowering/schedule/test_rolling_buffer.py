"""A window that rolls along holds what the whole buffer did."""

from contextlib import suppress
from random import Random

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.loops.nest import TRUE, Nest, blocks
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.rolling_buffer import rolling_buffer
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from tests.lowering import native
from tests.lowering.documented import check, refused, same_results


def test_documented() -> None:
    check(rolling_buffer)


POOLS = """
@program
def pools(A: Buffer[({n}, {m}), "float32"], D: Buffer[({n} - 4, {m} - 4), "float32"]):
    B = alloc(({n}, {m}), "float32")
    C = alloc(({n} - 2, {m} - 2), "float32")
    for i, j in grid({n}, {m}):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
    for i1, j1, k1, l1 in grid({n} - 2, {m} - 2, 3, 3):
        with block("C"):
            vi1, vj1, vk1, vl1 = axis.remap("SSRR", [i1, j1, k1, l1])
            with init():
                C[vi1, vj1] = -99.0
            C[vi1, vj1] = max(C[vi1, vj1], B[vi1 + vk1, vj1 + vl1])
    for i2, j2, k2, l2 in grid({n} - 4, {m} - 4, 3, 3):
        with block("D"):
            vi2, vj2, vk2, vl2 = axis.remap("SSRR", [i2, j2, k2, l2])
            with init():
                D[vi2, vj2] = 0.0
            D[vi2, vj2] = D[vi2, vj2] + C[vi2 + vk2, vj2 + vl2]
"""


def rows(nest: Nest, name: str) -> list[object]:
    """The shape of a buffer, numbers as such."""
    (buffer,) = (b for b in nest.allocs if b.name == name)
    return [int(e.value) if isinstance(e, Const) else e for e in buffer.shape]


def test_stages_of_windows_compute_each_row_once() -> None:
    nest = read(POOLS.format(n=16, m=10))
    s = Schedule(nest)
    i0, _ = s.split("i2", [None, 4])
    s.compute_at("C", i0)
    s.compute_at("B", i0)
    s.rolling_buffer("C")
    s.rolling_buffer("B")
    assert (rows(s.nest, "C"), rows(s.nest, "B")) == ([6, 8], [8, 10])
    same_results(nest, s.nest)
    s.vectorize(s.get_loops("B")[-1])
    native.check(nest, s.nest)
    s.loop_partition("B")  # all rows in the first step, the new ones in others
    s.loop_partition("C_tail")
    assert [b.name for b in blocks(s.nest.body)] == ["B", "C", "D", "B_tail", "C_tail", "D_tail"]
    assert all(b.predicate == TRUE for b in blocks(s.nest.body))
    same_results(nest, s.nest)
    assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest


def test_random_windows() -> None:
    done = 0
    for seed in range(40):
        random = Random(seed)
        nest = read(POOLS.format(n=random.randint(5, 12), m=random.randint(5, 9)))
        s = Schedule(nest)
        loops = ["i2", "j2"] if random.random() < 0.7 else ["j2", "i2"]
        s.reorder(*loops)
        outer, inner = (s.split(loop, [None, random.choice([1, 2, 3])]) for loop in loops)
        s.reorder(outer[0], inner[0], outer[1], inner[1])
        places = [outer[0], inner[0]]
        for block in ("C", "B"):
            try:
                s.compute_at(block, random.choice(places))
            except ScheduleError:
                continue
        for block in random.sample(["B", "C", "D"], 3):
            try:
                s.rolling_buffer(block)
            except ScheduleError:
                continue
            done += 1
            if random.random() < 0.3:
                with suppress(ScheduleError):
                    s.loop_partition(block)
        same_results(nest, s.nest)
    assert done > 15


@pytest.mark.parametrize("n", [0, 1, 3, 8])
def test_a_loop_of_open_size(n: int) -> None:
    nest = read("""
@program
def windows(A: Buffer[("n * 2 + 3",), "float32"], C: Buffer[("n",), "float32"], n: size):
    B = alloc(("n * 2 + 3",), "float32")
    for i in serial(n):
        for k in serial(5):
            with block("B"):
                v = axis.spatial(n * 2 + 3, i * 2 + k)
                B[v] = A[v] + 1.0
        for k1 in serial(5):
            with block("C"):
                w = axis.spatial(n, i)
                r = axis.reduce(5, k1)
                with init():
                    C[w] = 0.0
                C[w] = C[w] + B[w * 2 + r]
""")
    s = Schedule(nest)
    s.rolling_buffer("B")
    assert rows(s.nest, "B") == [5]
    same_results(nest, s.nest, n=n)


WINDOWS = """
@program
def windows(A: Buffer[(64,), "float32"], C: Buffer[(16,), "float32"]):
    P = alloc((64,), "float32")
    B = alloc((64,), "float32")
    for i in {loop}:
        for a in serial(8):
            with block("P"):
                {axes}
                P[{made}] = A[vp] * 3.0
        for k in serial({window}):
            with block("B"):
                v = axis.spatial(64, i * {step} + k)
                u = axis.spatial(16, k)
                B[v] = {value}
        with block("C"):
            w = axis.spatial(16, i)
            C[w] = B[w * {step}] + B[w * {step} + {window} - 1]
    {rest}
"""


MADE = "vp = axis.spatial(64, i * 2 + a)"
TWICE = "vi = axis.spatial(16, i); va = axis.spatial(8, a); vp = axis.spatial(64, i * 2 + a)"


def windows(**parts: object) -> str:
    given = {"loop": "serial(16)", "window": 5, "step": 2, "value": "A[v] + 1.0"}
    given |= {"axes": MADE, "made": "vp", "rest": "pass"}
    return WINDOWS.format(**(given | parts))


def test_what_others_make_in_the_same_step_may_be_read() -> None:
    nest = read(windows(value="P[v]").replace("u = axis.spatial(16, k)", "u = axis.spatial(1, 0)"))
    s = Schedule(nest)
    s.rolling_buffer("B")
    s.rolling_buffer("P")
    assert (rows(s.nest, "B"), rows(s.nest, "P")) == ([5], [8])
    same_results(nest, s.nest)


@pytest.mark.parametrize(
    ("parts", "block", "message"),
    [
        ({}, "C", "C is a parameter of windows, which others see whole; use cache_write"),
        ({}, "B", "B writes elements that do not tell its u: they may change"),
        ({"loop": "parallel(16)"}, "P", "steps of i run at once, and would share P; use set_scope"),
        ({"rest": "C[0] = P[3]"}, "P", "P is used outside of i"),
        ({"axes": TWICE, "made": "va"}, "B", "B writes elements that do not tell its u: they may change"),
        ({"axes": TWICE, "made": "vi * 2 + va", "rest": "pass"}, "P", "P writes elements that do not tell its vi"),
        ({"rest": "P[0] = 1.0"}, "P", "P is written by a statement outside of blocks as well"),
    ],
)
def test_what_is_refused(parts: dict[str, object], block: str, message: str) -> None:
    assert message in refused(windows(**parts), f"s.rolling_buffer('{block}')")


U, PLAIN_U = "u = axis.spatial(16, k)", "u = axis.spatial(1, 0)"
PLAIN = windows().replace(U, PLAIN_U)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ("i * 5", "the windows of B in two steps of i do not overlap"),
        ("60 - i * 2", "the window of B moves backwards with i"),
        ("3", "each step of i writes the same elements of B"),
    ],
)
def test_windows_that_do_not_roll_are_refused(start: str, message: str) -> None:
    text = PLAIN.replace("i * 2 + k", f"{start} + k").replace("w * 2", start.replace("i", "w")).replace("64", "96")
    assert message in refused(text, "s.rolling_buffer('B')")


def test_steps_that_do_not_repeat_what_they_read_are_refused() -> None:
    text = windows(axes=TWICE, made="va", value="P[3]").replace(U, PLAIN_U)
    assert "P writes elements that do not tell its vi" in refused(text, "s.rolling_buffer('B')")


def test_buffers_with_strides_are_refused() -> None:
    calls = ["s.storage_align('B', 0, 4, 1)", "s.rolling_buffer('B')"]
    assert "B has strides; use storage_align after" in refused(PLAIN, *calls)


def test_loops_of_threads_do_not_roll() -> None:
    assert "no loop around B is serial" in refused(PLAIN.replace("serial", "parallel"), "s.rolling_buffer('B')")


def test_threads_need_windows_of_their_own() -> None:
    text = """
@program
def rows(A: Buffer[(4, 18), "float32"], C: Buffer[(4, 16), "float32"]):
    B = alloc((4, 18), "float32")
    for p in parallel(4):
        for i in serial(4):
            for a in serial(6):
                with block("B"):
                    q = axis.spatial(4, p)
                    v = axis.spatial(18, i * 4 + a)
                    B[q, v] = A[q, v] + 1.0
            for j in serial(4):
                with block("C"):
                    q1 = axis.spatial(4, p)
                    w = axis.spatial(16, i * 4 + j)
                    C[q1, w] = B[q1, w] + B[q1, w + 2]
"""
    assert "steps of p run at once, and would share B; use set_scope" in refused(text, "s.rolling_buffer('B')")
    nest = read(text)
    s = Schedule(nest)
    s.set_scope("B", "local")
    s.rolling_buffer("B")
    assert rows(s.nest, "B") == [4, 6]
    same_results(nest, s.nest)
