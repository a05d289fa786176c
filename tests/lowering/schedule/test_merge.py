"""Loops are merged where their nests use nothing that the other makes in another step."""

from random import Random

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.merge import merge
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.documented import check, refused, same_results


def test_documented():
    check(merge)


BODIES = [
    "A[{v}, {w}] = X[{v}, {w}] + 1.0",
    "B[{v}, {w}] = A[{v}, {w}] * 2.0",
    "B[{w}, {v}] = A[{v}, {w}] * 2.0",
    "A[{v}, {w}] = A[{v}, {w}] - B[{v}, {w}]",
    "A[{v}, {w}] = B[{v}, 3 - {w}]",
    "B[{v}, {w}] = B[{v}, {w}] + A[3 - {v}, {w}]",
    "B[{v}, {w}] = A[0, {w}]",
    "X[{v}, {w}] = A[{v}, {w}] + B[{v}, {w}]",
    "X[{v}, {w}] = X[{v}, {w}] + 1.0\n            where(A[{i}, {j}] > 0.0)",
]
HEAD = """
@program
def nests(X: Buffer[(4, 4), "float32"], A: Buffer[(4, 4), "float32"], B: Buffer[(4, 4), "float32"],
          S: Buffer[(4,), "float32"]):
"""
SUM = """    for i{u}, j{u} in grid(4, 4):
        with block("S{u}"):
            v{u}, w{u} = axis.remap("SR", [i{u}, j{u}])
            with init():
                S[v{u}] = 0.0
            S[v{u}] = S[v{u}] + A[v{u}, w{u}]
"""
NEST = """    for i{u}, j{u} in grid(4, 4):
        with block("P{u}"):
            v{u}, w{u} = axis.remap("SS", [i{u}, j{u}])
            {body}
"""


def random_text(random: Random) -> str:
    """A program of nests over the same loops, which use what others write in many ways."""
    text = HEAD
    for u in range(random.choice([2, 3])):
        body, *rest = random.choice(BODIES).format(v=f"v{u}", w=f"w{u}", i=f"i{u}", j=f"j{u}").split("\n")
        body = "\n".join([*(r.strip() for r in rest), body if not rest else " " * 12 + body])
        text += SUM.format(u=u) if random.random() < 0.2 else NEST.format(u=u, body=body)
    return text


def test_random_nests():
    done = 0
    for seed in range(150):
        random = Random(seed)
        nest = read(random_text(random))
        s = Schedule(nest)
        count = nest.script().count("with block")
        loops = [f"{random.choice('ij')}{u}" for u in range(count)]
        if random.random() < 0.8:
            loops = [loop.replace("j", "i") if seed % 2 else loop.replace("i", "j") for loop in loops]
        try:
            s.merge(*random.sample(loops, len(loops)))
            done += 1
        except ScheduleError:
            assert s.nest is nest
            continue
        same_results(nest, s.nest)
        assert replay(Trace.from_json(s.trace.to_json()), nest).nest == s.nest
    assert done > 20


APART = """
@program
def apart(n: size, X: Buffer[(n, 6), "float32"], Y: Buffer[(n, 6), "float32"], Z: Buffer[(n, 6), "float32"]):
    for i in serial(n):
        for j in serial(6):
            with block("Y"):
                v, w = axis.remap("SS", [i, j])
                Y[v, w] = X[v, w] + 1.0
        for k in serial(6):
            with block("Z"):
                v1, w1 = axis.remap("SS", [i, k])
                Z[v1, w1] = {z}
    for i2, j2 in grid(n, 6):
        with block("X"):
            v2, w2 = axis.remap("SS", [i2, j2])
            X[v2, w2] = Z[v2, w2]
    for i3, j3 in grid(n, 5):
        with block("W"):
            v3, w3 = axis.remap("SS", [i3, j3])
            X[v3, w3] = X[v3, w3] + 1.0
"""


@pytest.mark.parametrize("n", [0, 1, 5])
def test_open_sizes(n):
    nest = read(APART.format(z="Y[v1, w1] + X[v1, w1]"))
    s = Schedule(nest)
    assert s.merge("j", "k").name == "j"
    assert s.merge("i", "i2").name == "i"
    assert s.merge("i3", "i").name == "i"
    same_results(nest, s.nest, n=n)


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        (["s.merge('j')"], "merge: name at least two loops to merge"),
        (["s.merge('j', 'i2')"], "j does not stand beside the others, in loops that hold only it"),
        (["s.merge('i', 'i3')"], "other statements stand between i and i3"),
        (["s.merge('i2', 'j3')"], "i2 is 1 loops deep in its nest, and j3 2"),
        (["s.merge('j2', 'j3')"], "j2 and j3 are not equally long"),
        (["s.merge('i2', 'j2')"], "i2 and j2 stand in one loop; name loops of nests beside each other"),
        (["s.parallel('i2')", "s.merge('i2', 'i3')"], "i2 is parallel and i3 serial; merge serial or parallel loops"),
        (["s.annotate('i2', 'a', 1)", "s.merge('i2', 'i3')"], "i2 and i3 have other notes; use unannotate"),
        (["s.merge('j', 'k')"], "j: block Z uses elements of Y that block Y may write in another iteration"),
        (["s.merge('j', 'x')"], "there is no loop x"),
    ],
)
def test_what_is_refused(calls, message):
    assert message in refused(APART.format(z="Y[v1, 5 - w1]"), *calls)


def test_loops_that_run_at_once_are_merged():
    nest = read(APART.format(z="Y[v1, w1]"))
    s = Schedule(nest)
    s.parallel("i2")
    s.parallel("i3")
    s.merge("i2", "i3")
    same_results(nest, s.nest, n=4)
