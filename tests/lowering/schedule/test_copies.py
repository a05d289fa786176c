"""Copies beside blocks keep what the blocks leave alone, whatever part of a buffer they write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef
from graphopt.lowering.loops.nest import For, Nest, blocks, statements
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.documented import refused, same_results

HEAD = """
@program
def parts(X: Buffer[({n}, {k}), "float32"], I: Buffer[({n},), "int64"], M: Buffer[({n},), "int64"],
          B: Buffer[({size},), "float32"], D: Buffer[({size},), "float32"]):
"""
INSIDE = """
    D = alloc(({size},), "float32")
    for d in serial({size}):
        with block("D"):
            vd = axis.remap("S", [d])
            D[vd] = B[vd] - 1.0
"""
LAST = """    for e in serial({n}):
        with block("E"):
            ve = axis.remap("S", [e])
            X[ve, 0] = D[{at}] + B[ve]
"""
KINDS = {
    "plain": "B[{at}] = X[v{u}, 0] + 1.0",
    "in place": "B[{at}] = B[{at}] * 2.0 + X[v{u}, 0]",
    "scattered": "B[I[v{u}] % {size}] = X[v{u}, 0]",
    "scattered in place": "B[I[v{u}] % {size}] = B[I[v{u}] % {size}] + X[v{u}, 0]",
    "of two": "B[{at}] = D[{at}] - X[v{u}, 0]",
}


def block_text(random: Random, u: int, sizes: dict[str, int]) -> str:
    """Loops and a block that write, or go on from, some part of B or D."""
    n, size = sizes["n"], sizes["size"]
    at = random.choice([f"v{u}", f"v{u} + {size - n}", f"{n - 1} - v{u}", f"v{u} * 2", f"(v{u} + 1) % {size}"])
    condition = random.choice(["", "", f"where(v{u} < 2)", f"where(v{u} % 2 == 0)", f"where(M[v{u}] > 0)",
                               f"where(v{u} != 1 and v{u} < {n - 1})"])  # fmt: skip
    if random.random() < 0.3:
        condition = ""
    if random.random() < 0.35:
        first, update = random.choice(["", "0.0", "1.0"]), f"B[{at}] = B[{at}] + X[v{u}, w{u}]"
        start = f"            with init():\n                B[{at}] = {first}\n" if first else ""
        loops = f"    for i{u}, j{u} in grid({n}, {sizes['k']}):\n"
        axes = f"            v{u}, w{u} = axis.remap('SR', [i{u}, j{u}])\n"
    else:
        start, update = "", KINDS[random.choice(list(KINDS))].format(at=at, u=u, size=size)
        loops = f"    for i{u} in serial({n}):\n"
        axes = f"            v{u} = axis.remap('{'O' if 'I[' in update else 'S'}', [i{u}])\n"  # the last one counts
    where = f"            {condition}\n" if condition else ""
    text = f"{loops}        with block('P{u}'):\n{axes}{where}{start}            {update}\n"
    return text.replace("B[", "T[").replace("D[", "B[").replace("T[", "D[") if random.random() < 0.3 else text


def program_of(random: Random) -> Nest:
    """A program of blocks that write parts of buffers that hold something."""
    n = random.choice([1, 2, 3, 5, 6])
    sizes = {"n": n, "k": random.choice([1, 2, 3]), "size": 2 * n + random.choice([0, 1])}
    body = "".join(block_text(random, u, sizes) for u in range(random.choice([1, 2, 3])))
    if random.random() < 0.5:
        return read(HEAD.format(**sizes) + body)
    head = HEAD.replace('D: Buffer[({size},), "float32"]', "") + INSIDE
    at = random.choice(["ve", f"{n - 1} - ve", "ve * 2", "ve + 1"])
    return read(head.format(**sizes) + body + LAST.format(at=at, **sizes))


def step(s: Schedule, random: Random) -> str:
    """One random step, which may raise; the name of its primitive."""
    loops = [x.var.name for x in statements(s.nest.body) if isinstance(x, For)]
    block, loop = random.choice([b.name for b in blocks(s.nest.body)]), random.choice(loops or ["none"])
    own = [ref.name for ref in s.get_loops(block)] or ["none"]
    buffer, space = random.choice(["B", "D", 0, 0, 1]), random.choice(["global", "local"])

    def near(others: Sequence[BlockRef]) -> LoopRef | str:
        around = [x for other in others for x in s.get_loops(other)]
        return random.choice(around or [loop])

    steps = {
        "split": lambda: s.split(loop, random.choice([[None, 2], [None, 3], [2, None]])),
        "reorder": lambda: s.reorder(*random.sample(own, min(len(own), 2))),
        "cache_read": lambda: s.cache_read(block, buffer, space),
        "cache_write": lambda: s.cache_write(block, space, buffer),
        "cache_inplace": lambda: s.cache_inplace(block, buffer, space),
        "read_at": lambda: s.read_at(random.choice(own), block, buffer, space),
        "write_at": lambda: s.write_at(random.choice(own), block, buffer, space),
        "reindex": lambda: s.reindex(block, buffer if isinstance(buffer, str) else ("write", 0)),
        "transform_block_layout": lambda: s.transform_block_layout(
            block, random.choice(["lambda a: (a // 2, a % 2)", "lambda a, b: (b, a)"])
        ),
        "merge": lambda: s.merge(loop, random.choice(loops or [loop])),
        "decompose_reduction": lambda: s.decompose_reduction(block, random.choice(own)),
        "rfactor": lambda: s.rfactor(random.choice(own), random.randrange(2)),
        "compute_at": lambda: s.compute_at(block, near(s.get_consumers(block))),
        "reverse_compute_at": lambda: s.reverse_compute_at(block, near(s.get_producers(block))),
        "compute_inline": lambda: s.compute_inline(block),
        "reverse_compute_inline": lambda: s.reverse_compute_inline(block),
        "set_scope": lambda: s.set_scope(block, space, buffer),
        "blockize": lambda: s.blockize(loop),
    }
    often = ["split", "cache_write", "cache_write", "cache_inplace", "compute_at", "reverse_compute_at"]
    name = random.choice([*steps, *often])
    steps[name]()
    return name


def walk(seed: int, done: Counter[str]) -> None:
    """Fails where a random schedule of a random program loses an element, or its trace does not say all of it."""
    random = Random(seed)
    nest = program_of(random)
    s = Schedule(nest, seed)
    for _ in range(random.randrange(1, 7)):
        try:
            done[step(s, random)] += 1
        except ScheduleError:
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed}: {show(nest)} after\n{s.trace.script()}") from error
    try:
        same_results(nest, s.nest)
        assert read(show(s.nest)) == s.nest
        assert replay(Trace.from_json(s.trace.to_json()), nest, seed).nest == s.nest
    except Exception as error:
        raise AssertionError(f"seed {seed}: {show(nest)} after\n{s.trace.script()}\n{s.script()}") from error


@pytest.mark.parametrize("part", range(3))
def test_what_blocks_leave_alone_stays(part: int) -> None:
    done: Counter[str] = Counter()
    for seed in range(part * 50, part * 50 + 50):
        walk(seed, done)
    assert done["cache_write"] > 1
    assert done["cache_inplace"] > 5


TWELVE = """
@program
def twelve(X: Buffer[(12,), "float32"], I: Buffer[(12,), "int64"], B: Buffer[(12,), "float32"]):
    for i in serial(10):
        with block("B"):
            v = axis.remap("S", [i])
            {where}
            B[{at}] = X[v]{and_more}
"""


def twelve(at: str = "v", where: str = "where(v >= 0)", and_more: str = "") -> str:
    return TWELVE.format(at=at, where=where, and_more=and_more)


@pytest.mark.parametrize(
    ("at", "where"),
    [
        ("v", ""),
        ("v + 2", ""),
        ("9 - v", ""),
        ("v", "where(v < 7)"),
        ("v + 1", "where(v > 2 and v != 6)"),
        ("v", "where(X[0] > 0.0)"),
    ],
)
@pytest.mark.parametrize("calls", [["s.split('i', [None, 4])", "s.write_at('i_0', 'B')"], ["s.cache_write('B')"]])
def test_just_what_is_written_is_copied_out(at: str, where: str, calls: list[str]) -> None:
    nest = read(twelve(at, where or "where(v >= 0)"))
    s = Schedule(nest)
    for call in calls:
        eval(call, {"s": s})
    same_results(nest, s.nest)


@pytest.mark.parametrize(("at", "extent"), [("v // 4 * 4 + v % 4", 12), ("v // 3 * 3 + v % 3", 9), ("11 - v", 11)])
@pytest.mark.parametrize("factors", [[None, 5], [None, 2, 4], [13]])
def test_an_axis_that_a_condition_ends_is_written_as_a_whole(at: str, extent: int, factors: list[int | None]) -> None:
    nest = read(twelve(at).replace("serial(10)", f"serial({extent})"))
    s = Schedule(nest)
    s.split("i", factors)
    s.cache_write("B")
    same_results(nest, s.nest)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (twelve("I[v] % 12"), "what is written of B by B may have gaps; cache_inplace copies in first"),
        (twelve("v // 5 * 6 + v % 5"), "what is written of B by B may have gaps"),
        (twelve(where="where(v % 2 == 0)"), "B is written only where a condition holds that is not about its indices"),
        (twelve(where="where(I[v] > 0)"), "B is written only where a condition holds that is not about its indices"),
        (twelve("v // 2 + i % 2 * 6").replace("serial(10)", "serial(11)"), "what is written of B by B may have gaps"),
        (twelve(and_more=" + B[v + 1]"), "B goes on from what B held before, which a new buffer does not have"),
    ],
)
def test_what_may_leave_elements_alone_is_not_copied_out(text: str, message: str) -> None:
    assert message in refused(text, "s.cache_write('B')")
    nest = read(text)
    s = Schedule(nest)
    s.cache_inplace("B")
    same_results(nest, s.nest)


AT_ONCE = """
@program
def at_once(X: Buffer[(2, 6), "float32"], I: Buffer[(2, 6), "int64"], B: Buffer[(12,), "float32"],
            C: Buffer[(2, 6), "float32"]):
    for i in parallel(2):
        for j in serial(6):
            with block("B"):
                vi, vj = axis.remap("SS", [i, j])
                B[{at}] = X[vi, vj]
        for k in serial(6):
            with block("C"):
                ui, uk = axis.remap("SS", [i, k])
                C[ui, uk] = B[ui * 6 + uk]
"""


def test_steps_that_run_at_once_copy_out_elements_of_their_own() -> None:
    text = AT_ONCE.format(at="I[vi, vj] % 12")
    message = "steps of i, which is parallel, would copy out the same elements of B"
    assert message in refused(text, "s.cache_inplace('B')")
    nest = read(AT_ONCE.format(at="vi * 6 + vj * 5 % 6"))
    s = Schedule(nest)
    s.cache_inplace("B")
    same_results(nest, s.nest)
