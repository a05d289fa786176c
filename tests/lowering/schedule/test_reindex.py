"""Copies on a block's own axes change no result, wherever the block reads and writes."""

from random import Random

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.reindex import reindex
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.documented import check, refused, same_results


def test_documented():
    check(reindex)


CONV = """
@program
def conv({size}X: Buffer[({n} + 2, 6), "float32"], W: Buffer[(3, 6, 5), "float32"], Y: Buffer[({n}, 5), "float32"]):
    for i, f, r, c in grid({n}, 5, 3, 6):
        with block("Y"):
            vi, vf, vr, vc = axis.remap("SSRR", [i, f, r, c])
            with init():
                Y[vi, vf] = 0.0
            Y[vi, vf] = Y[vi, vf] + X[vi + vr, vc] * W[vr, vc, vf]
"""


@pytest.mark.parametrize("n", [0, 1, 4])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_convolution_is_a_product_of_matrices_on_its_axes(n, is_open):
    nest = read(CONV.format(size="n: size, " if is_open else "", n="n" if is_open else n))
    s = Schedule(nest)
    for buffer in ("X", "W", "Y"):
        s.reindex("Y", buffer)
    text = show(s.nest)
    assert "Y_reindex[vi, vf] + X_reindex[vi, vr, vc] * W_reindex[vf, vr, vc]" in text
    same_results(nest, s.nest, **({"n": n} if is_open else {}))
    assert replay(Trace.from_json(s.trace.to_json()), nest).nest == s.nest


PLACES = """
@program
def places(X: Buffer[(30, 30), "float32"], I: Buffer[({n},), "int64"], Y: Buffer[(30, 30), "float32"]):
    for i, j in grid({n}, {m}):
        with block("Y"):
            v, w = axis.remap("SS", [i, j])
            {where}
            Y[{y0}, {y1}] = X[{x0}, {x1}] + 1.0
"""


def test_random_places():
    """Copies are made wherever elements are told apart, and hold all that is written and no more."""
    done = 0
    for seed in range(120):
        random = Random(seed)
        n, m = random.choice([1, 2, 3, 5]), random.choice([1, 2, 4])
        y0 = random.choice(["v", "w", f"{n - 1} - v", "v * 2", "v // 2", f"v * {m} + w"])
        y1 = random.choice(["w", "v", "w * 3 + 1", "v % 2", "0", "w + v"])
        x0, x1 = random.choice(["v", "v + w", "I[v] % 30", "3"]), random.choice(["w", "w * 2", "v"])
        where = random.choice(["where(i >= 0)", "where(i < 2)", "where(j > 0)", "where(i + j < 3)"])
        nest = read(PLACES.format(n=n, m=m, y0=y0, y1=y1, x0=x0, x1=x1, where=where))
        s = Schedule(nest)
        for buffer in random.sample(["X", "Y"], 2):
            try:
                if random.random() < 0.3:
                    s.split("i", [None, 2])
                s.reindex("Y", buffer)
                done += 1
            except ScheduleError:
                continue
        same_results(nest, s.nest)
    assert done > 120


SEVERAL = """
@program
def several(X: Buffer[(8,), "float32"], Y: Buffer[(8,), "float32"], Z: Buffer[(8,), "float32"]):
    for i in serial(4):
        with block("Y"):
            v = axis.remap("S", [i])
            Y[v // 2] = X[v] + X[v + 4]
        with block("Z"):
            w = axis.remap("S", [i])
            Z[w] = Z[w] + Y[w]
"""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("s.reindex('Y', 'X')", "reindex: Y uses X at several places; a copy is indexed by one"),
        ("s.reindex('Y', 'Y')", "several points of Y may write one element; a copy has one for each"),
        ("s.reindex('Y', 'W')", "Y reads, and does not write, X: W is none of these"),
        ("s.reindex('Y', ('write', 1))", "Y writes Y: 1 is none of these"),
        ("s.reindex('Y', ('both', 0))", "a buffer is a name, or ('read', 0) or ('write', 0), and not ('both', 0)"),
        ("s.reindex('Z', 'Z')", "Z goes on from what Z held before"),
        ("s.reindex('V', 'Z')", "there is no block V"),
    ],
)
def test_what_is_refused(call, message):
    assert message in refused(SEVERAL, call)


def test_a_buffer_written_beside_the_block_is_copied_in_each_step():
    nest = read(SEVERAL)
    s = Schedule(nest)
    copy = s.reindex("Z", "Y")
    assert s.get_loops(copy)[0].name == "i"
    same_results(nest, s.nest)
