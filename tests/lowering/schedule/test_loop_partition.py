"""A loop in parts computes what it did, and its main part tests nothing."""

from random import Random

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.nest import TRUE, For, If, blocks, statements
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.loop_partition import loop_partition
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.lowering.schedule.trace import Trace
from tests.lowering import native
from tests.lowering.documented import check, refused, same_results


def test_documented() -> None:
    check(loop_partition)


def term(random: Random, names: str) -> str:
    """A random sum of multiples."""
    chosen = random.sample(names, random.randint(1, len(names)))
    return " + ".join(f"{v} * {random.choice([1, 1, 2, 3, -1, -2])}" for v in chosen)


def condition(random: Random, names: str) -> str:
    parts = [
        f"{term(random, names)} {random.choice(['<', '<=', '>', '>='])} {random.randint(-3, 12)}"
        for _ in range(random.randint(1, 2))
    ]
    return " and ".join(parts)


def guarded(random: Random) -> str:
    """A random program with conditions of every kind."""
    n, m = random.choice([("5", "4"), ("n", "4"), ("5", "n"), ("n", "n"), ("1", "3"), ("7", "1")])
    lines = [f"for i in serial({n}):", f"    for j in {random.choice(['serial', 'parallel'])}({m}):"]
    at = "        "
    if random.random() < 0.3:
        lines.append(f"{at}if {condition(random, 'ij')}:")
        at += "    "
    if random.random() < 0.4:
        value = f"select({condition(random, 'uv')}, A[u, v], -1.0)"
        axes = ["u = axis.spatial(40, i)", "v = axis.spatial(40, j)"]
    else:
        value = "A[u, v] + 1.0"
        axes = ["u = axis.spatial(40, i * 2 + j)", "v = axis.spatial(40, j)"]
    lines += [f'{at}with block("B"):', *(f"{at}    {axis}" for axis in axes)]
    if random.random() < 0.7:
        lines.append(f"{at}    where({condition(random, 'ij')})")
    lines.append(f"{at}    B[u, v] = {value}")
    if random.random() < 0.5:
        lines += [
            '        with block("S"):',
            "            w = axis.spatial(40, i)",
            "            r = axis.reduce(40, j)",
            f"            where({condition(random, 'ij')})",
            "            with init():",
            "                S[w] = 0.0",
            "            S[w] = S[w] + A[w, r]",
        ]
    head = 'A: Buffer[(40, 40), "float32"], B: Buffer[(40, 40), "float32"], S: Buffer[(40,), "float32"], n: size'
    return f"@program\ndef f({head}):\n" + "".join(f"    {line}\n" for line in lines)


def test_random_conditions() -> None:
    done = 0
    for seed in range(36):
        random = Random(seed)
        nest = read(guarded(random))
        s = Schedule(nest)
        for _ in range(2):
            names = [x.var.name for x in statements(s.nest.body) if isinstance(x, For)]
            where = random.choice([*names, *(b.name for b in blocks(s.nest.body))])
            try:
                s.loop_partition(where)
            except ScheduleError:
                continue
            done += 1
            for size in (0, 1, 3, 6):
                same_results(nest, s.nest, n=size)
            assert Trace.from_json(s.trace.to_json()).replay(nest).nest == s.nest
    assert done > 20


TAIL = """
@program
def tail(A: Buffer[("n", 10), "float32"], B: Buffer[("n", 10), "float32"], n: size):
    for i, j in grid(n, 10):
        with block("B"):
            vi, vj = axis.remap("SS", [i, j])
            B[vi, vj] = A[vi, vj] * 2.0
"""


@pytest.mark.parametrize("n", [0, 1, 4, 7, 8])
def test_tails_of_splits(n: int) -> None:
    nest = read(TAIL)
    s = Schedule(nest)
    s.split("i", [None, 4])
    s.split("j", [None, 4])
    parts = s.loop_partition("B")
    assert len(parts) > 1
    main, *rest = blocks(s.nest.body)
    assert main.predicate == TRUE
    assert all(b.predicate == TRUE for b in rest)
    same_results(nest, s.nest, n=n)
    s.vectorize(s.get_loops("B")[-1])
    native.check(nest, s.nest, sizes=(n,))


def test_windows_at_the_edge_of_an_image() -> None:
    nest = read("""
@program
def windows(A: Buffer[(16,), "float32"], B: Buffer[(16,), "float32"]):
    for i, k in grid(16, 3):
        with block("B"):
            vi, vk = axis.remap("SR", [i, k])
            with init():
                B[vi] = 0.0
            B[vi] = B[vi] + select(vi + vk >= 1 and vi + vk < 17, A[vi + vk - 1], 0.0)
""")
    s = Schedule(nest)
    loops = s.loop_partition("i")
    assert [loop.name for loop in loops] == ["i_head", "i", "i_tail"]
    assert "select" not in show(s.nest).partition("for i, k in grid(14, 3)")[2].partition("i_tail")[0]
    same_results(nest, s.nest)


def test_the_steps_of_a_reduction_start_once() -> None:
    text = """
@program
def sums(A: Buffer[(10, 6), "float32"], B: Buffer[(6,), "float32"]):
    for j, k in grid(6, 10):
        with block("B"):
            vj, vk = axis.remap("SR", [j, k])
            with init():
                B[vj] = 0.0
            B[vj] = B[vj] + A[vk, vj]
"""
    nest = read(text)
    s = Schedule(nest)
    s.split("k", [None, 4])
    s.loop_partition("k_0")
    assert [b.init is not None for b in blocks(s.nest.body)] == [True, False]
    same_results(nest, s.nest)
    s.loop_partition("B_tail")
    s.rfactor("k_1_tail")
    same_results(nest, s.nest)
    open_size = (
        text.replace("(10, 6)", '("n", 6)').replace("grid(6, 10)", "grid(6, n)").replace("):\n", ", n: size):\n", 1)
    )
    message = refused(open_size, "s.split('k', [None, 4])", "s.loop_partition('k_0')")
    assert "B may begin to reduce in any part of k_0; decompose_reduction before" in message


def test_a_branch_is_gone_where_its_condition_holds() -> None:
    nest = read("""
@program
def branches(A: Buffer[(9,), "float32"], B: Buffer[(9,), "float32"]):
    for i in serial(9):
        if i >= 2:
            with block("B"):
                vi = axis.remap("S", [i])
                B[vi] = A[vi]
        else:
            with block("C"):
                vi1 = axis.remap("S", [i])
                B[vi1] = 3.0
""")
    s = Schedule(nest)
    assert s.loop_partition("i") == s.get_loops("C_head") + s.get_loops("B")
    assert not any(isinstance(x, If) for x in statements(s.nest.body))
    same_results(nest, s.nest)


GUARDED = """
@program
def guarded(A: Buffer[(12,), "float32"], B: Buffer[(12,), "float32"]):
    for i in {loop}:
        with block("B"):
            vi = axis.spatial(12, i)
            where({condition})
            B[vi] = A[vi]
"""


def test_elements_are_tested_as_they_are_then() -> None:
    nest = """
@program
def lengths(L: Buffer[(2,), "int64"], B: Buffer[(12,), "float32"]):
    for i in serial(12):
        with block("B"):
            vi = axis.spatial(12, i)
            where(i < L[0])
            B[vi] = 2.0
            L[0] = 5
"""
    assert "i: no condition in it begins or ceases" in refused(nest, "s.loop_partition('i')")


@pytest.mark.parametrize(
    ("condition", "loop", "call", "message"),
    [
        (
            "A[i] < 1.0",
            "serial(12)",
            "s.loop_partition('i')",
            "i: no condition in it begins or ceases",
        ),
        (
            "A[i] < 1.0",
            "serial(12)",
            "s.loop_partition('B')",
            "B: no condition on it begins or ceases",
        ),
        ("i < 0", "serial(12)", "s.loop_partition('i')", "i: its conditions hold together in none of its steps"),
        ("i < 8", 'bind("threadIdx.x", 12)', "s.loop_partition('i')", "i is bound to threadIdx.x"),
        ("i < 8", "serial(12)", "s.loop_partition('x')", "there is no loop x"),
    ],
)
def test_what_is_refused(condition: str, loop: str, call: str, message: str) -> None:
    assert message in refused(GUARDED.format(condition=condition, loop=loop), call)


ENDS = """
@program
def ends(A: Buffer[("k", "n", "m"), "float32"], B: Buffer[("k",), "float32"], k: size, n: size, m: size):
    for i in serial(k):
        with block("B"):
            vi = axis.spatial(k, i)
            where({})
            B[vi] = 2.0
"""


@pytest.mark.parametrize("sizes", ["nm", "mn"])
def test_bounds_stand_in_the_order_of_their_conditions(sizes: str) -> None:
    nest = read(ENDS.format(" and ".join(f"i < {size}" for size in sizes)))
    after, _ = loop_partition(nest, "i")
    assert f"min(min(k, {sizes[0]}), {sizes[1]})" in show(after)
