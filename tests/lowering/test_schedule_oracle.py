"""Random steps on random sizes: whatever a schedule lets through computes what the program did before."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from graphopt.errors import ScheduleError
from graphopt.lowering.loops.nest import For, Nest, blocks, statements
from graphopt.lowering.loops.script import read, show
from graphopt.lowering.schedule.schedule import Schedule, replay
from graphopt.lowering.schedule.trace import Trace
from tests.lowering.documented import same_results

PROGRAMS = {
    "chain": """
@program
def chain(X: Buffer[({n}, {m}), "float32"], Z: Buffer[({m}, {n}), "float32"]):
    Y = alloc(({n}, {m}), "float32")
    W = alloc(({n}, {m}), "float32")
    for i, j in grid({n}, {m}):
        with block("Y"):
            vi, vj = axis.remap("SS", [i, j])
            Y[vi, vj] = X[vi, vj] + 1.0
    for i1, j1 in grid({n}, {m}):
        with block("W"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            W[vi1, vj1] = Y[vi1, vj1] * X[vi1, vj1]
    for i2, j2 in grid({m}, {n}):
        with block("Z"):
            vi2, vj2 = axis.remap("SS", [i2, j2])
            Z[vi2, vj2] = max(W[vj2, vi2], Y[vj2, 0])
""",
    "product": """
@program
def product(A: Buffer[({n}, {k}), "float32"], B: Buffer[({k}, {m}), "float32"], C: Buffer[({n}, {m}), "float32"]):
    Y = alloc(({n}, {m}), "float32")
    for i, j, k in grid({n}, {m}, {k}):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * B[vk, vj]
    for i1, j1 in grid({n}, {m}):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = max(Y[vi1, vj1], 0.0)
""",
    "stencil": """
@program
def stencil(X: Buffer[({n}, {m}), "float32"], Z: Buffer[({n}, {m}), "float32"], S: Buffer[({n},), "float32"]):
    P = alloc(({n}, {m} + 2), "float32")
    Y = alloc(({n}, {m}), "float32")
    for i, j in grid({n}, {m} + 2):
        with block("P"):
            vi, vj = axis.remap("SS", [i, j])
            P[vi, vj] = select(vj >= 1 and vj < {m} + 1, X[vi, vj - 1], 0.0)
    for i1, j1, t in grid({n}, {m}, 3):
        with block("Y"):
            vi1, vj1, vt = axis.remap("SSR", [i1, j1, t])
            with init():
                Y[vi1, vj1] = -9.0
            Y[vi1, vj1] = max(Y[vi1, vj1], P[vi1, vj1 + vt])
    for i2, j2 in grid({n}, {m}):
        with block("Z"):
            vi2, vj2 = axis.remap("SS", [i2, j2])
            Z[vi2, vj2] = Y[vi2, vj2] + P[vi2, vj2]
    for i3, j3 in grid({n}, {m}):
        with block("S"):
            vi3, vj3 = axis.remap("SR", [i3, j3])
            with init():
                S[vi3] = 0.0
            S[vi3] = S[vi3] + Z[vi3, vj3]
""",
    "halves": """
@program
def halves(X: Buffer[({n}, {m}), "float32"], Z: Buffer[({n}, {m} * 2), "float32"]):
    Y = alloc(({n}, {m} * 2), "float32")
    for i, j in grid({n}, {m}):
        with block("Y"):
            vi, vj = axis.remap("SS", [i, j])
            Y[vi, vj * 2] = X[vi, vj] + 1.0
    for i1, j1 in grid({n}, {m}):
        with block("V"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            Y[vi1, vj1 * 2 + 1] = X[vi1, {m} - 1 - vj1] * 2.0
    for i2, j2 in grid({n}, {m} * 2):
        with block("Z"):
            vi2, vj2 = axis.remap("SS", [i2, j2])
            Z[vi2, vj2] = Y[vi2, vj2] * 3.0
""",
    "norm": """
@program
def norm(X: Buffer[({n}, {m}), "float32"], Z: Buffer[({n}, {m}), "float32"]):
    T = alloc(({n},), "float32")
    for i, j in grid({n}, {m}):
        with block("T"):
            vi, vj = axis.remap("SR", [i, j])
            with init():
                T[vi] = 0.0
            T[vi] = T[vi] + X[vi, vj]
    for i1, j1 in grid({n}, {m}):
        with block("Z"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            Z[vi1, vj1] = X[vi1, vj1] * T[vi1] - X[vi1, 0]
""",
    "bias": """
@program
def bias(A: Buffer[({n}, {k}), "float32"], V: Buffer[({m},), "float32"], C: Buffer[({n}, {m}), "float32"],
         E: Buffer[({n}, {m}), "float32"]):
    Y = alloc(({n}, {m}), "float32")
    for i, j, k in grid({n}, {m}, {k}):
        with block("Y"):
            vi, vj, vk = axis.remap("SSR", [i, j, k])
            with init():
                Y[vi, vj] = 0.0
            Y[vi, vj] = Y[vi, vj] + A[vi, vk] * V[vj]
    for i1, j1 in grid({n}, {m}):
        with block("C"):
            vi1, vj1 = axis.remap("SS", [i1, j1])
            C[vi1, vj1] = V[vj1] + Y[vi1, vj1]
    for i2, j2 in grid({n}, {m}):
        with block("E"):
            vi2, vj2 = axis.remap("SS", [i2, j2])
            E[vi2, vj2] = C[vi2, vj2] * A[vi2, 0]
""",
}
MAPS = (
    "lambda a, b: (b, a)",
    "lambda a, b: (a, b // 2, b % 2)",
    "lambda a: (a // 2, a % 2)",
    "lambda a, b: (b // 3, a, b % 3)",
)
BLOCK_MAPS = (
    *MAPS,
    "lambda a, b: (a + b * 7,)",
    "lambda a, b, c: (b, a, c)",
    "lambda a, b, c: (c // 2, a, c % 2, b)",
    "lambda a, b, c: (a * 6 + b, c)",
)


def step(s: Schedule, random: Random) -> str:
    """One random step, which may raise; the name of its primitive."""
    loops = [x.var.name for x in statements(s.nest.body) if isinstance(x, For)]
    names = [b.name for b in blocks(s.nest.body)]
    block, loop = random.choice(names), random.choice(loops or ["none"])
    own = [ref.name for ref in s.get_loops(block)] or ["none"]
    inner = random.choice(own)
    buffers = [b.name for b in (*s.nest.allocs, *s.nest.buffers)]
    scope = random.choice(["global", "local"])
    steps = {
        "split": lambda: s.split(loop, random.choice([[None, 2], [None, 3], [2, None], [None, 1, 2]])),
        "fuse": lambda: s.fuse(*own[(k := random.randrange(len(own))) : k + 2]),
        "reorder": lambda: s.reorder(*random.sample(own, min(len(own), 2))),
        "parallel": lambda: s.parallel(loop),
        "compute_at": lambda: s.compute_at(block, loop, random.random() < 0.5),
        "reverse_compute_at": lambda: s.reverse_compute_at(block, loop, random.random() < 0.5),
        "compute_inline": lambda: s.compute_inline(block),
        "reverse_compute_inline": lambda: s.reverse_compute_inline(block),
        "cache_read": lambda: s.cache_read(block, random.randrange(2), scope),
        "cache_write": lambda: s.cache_write(block, scope),
        "set_scope": lambda: s.set_scope(block, scope),
        "storage_align": lambda: s.storage_align(block, random.randrange(2), 4, random.randrange(2)),
        "double_buffer": lambda: s.double_buffer(block, loop),
        "decompose_reduction": lambda: s.decompose_reduction(block, inner),
        "rfactor": lambda: s.rfactor(inner, random.randrange(2)),
        "blockize": lambda: s.blockize(loop),
        "tensorize": lambda: s.tensorize(loop, f"product_{random.choice([1, 2, 3])}x{random.choice([2, 3])}_float32"),
        "loop_partition": lambda: s.loop_partition(random.choice([block, loop])),
        "decompose_padding": lambda: s.decompose_padding(block, inner),
        "rolling_buffer": lambda: s.rolling_buffer(block),
        "pad_einsum": lambda: s.pad_einsum(block, [random.choice([1, 2, 4]) for _ in range(3)]),
        "transform_layout": lambda: s.transform_layout(
            block, random.choice(buffers), random.choice(MAPS), pad=random.random() < 0.5
        ),
        "cache_inplace": lambda: s.cache_inplace(block, random.randrange(2), scope),
        "read_at": lambda: s.read_at(inner, block, random.randrange(2), scope),
        "write_at": lambda: s.write_at(inner, block, 0, scope),
        "reindex": lambda: s.reindex(block, random.choice([random.choice(buffers), ("read", 0), ("write", 0)])),
        "transform_block_layout": lambda: s.transform_block_layout(block, random.choice(BLOCK_MAPS)),
        "merge": lambda: s.merge(loop, random.choice(loops or [loop])),
        "fuse_reduction_epilogue": lambda: s.fuse_reduction_epilogue(block, random.choice(names)),
    }
    name = random.choice(list(steps))
    steps[name]()
    return name


def walk_of(name: str, seed: int, done: Counter[str] | None = None) -> tuple[Nest, Schedule]:
    """A program, and a random walk through its schedules."""
    done = Counter() if done is None else done
    random = Random(f"{name} {seed}")
    sizes = {x: random.choice([1, 2, 3, 4, 5, 6]) for x in "nmk"}
    nest: Nest = read(PROGRAMS[name].format(**sizes))
    s = Schedule(nest, seed)
    for _ in range(random.randrange(4, 16)):
        try:
            done[step(s, random)] += 1
        except ScheduleError:
            continue
        except Exception as error:
            raise AssertionError(f"{name} {sizes} after\n{s.trace}") from error
    return nest, s


def walk(name: str, seed: int, done: Counter[str]) -> None:
    """Fails where a random schedule computes something else, or its script or trace does not say all of it."""
    nest, s = walk_of(name, seed, done)
    try:
        same_results(nest, s.nest)
        assert read(show(s.nest)) == s.nest
        assert replay(Trace.from_json(s.trace.to_json()), nest, seed).nest == s.nest
    except Exception as error:
        raise AssertionError(f"{show(nest)} after\n{s.trace}\n{s.script()}") from error


@pytest.mark.parametrize("name", PROGRAMS)
def test_random_schedules_compute_the_same(name):
    done: Counter[str] = Counter()
    for seed in range(25):
        walk(name, seed, done)
    assert len(done) > 8, done
