"""Times the rules of default schedules beside the same kinds of loops by steps of primitives, in turns, one thread.

    python tests/bench/rules.py [NAME ...] [--count N]

A row has the milliseconds of a run by the rule and by steps, their ratio (below 1: the rule is faster), and how often
longer it takes to schedule by steps: the least of series that take turns.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from functools import partial

from turns import Table, geometric_mean, least

import graphopt
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.expressions import Var, apply, maximum
from graphopt.lowering.loops.nest import Nest
from graphopt.program.nest_function import time_nest
from graphopt.schedule import ScheduleRule, default_rules

SECONDS, ROUNDS = 0.01, 10
"""How long a series takes, at least, and how many there are."""
TABLE = Table("", 18, "rule:9.3f steps:9.3f ratio:8.2f schedules:10.1f")
CHUNK = 4096
"""Elements of a flat loop that a work item takes."""


def elements() -> Nest:
    x = te.placeholder((4, 256, 256))
    return te.nest("elements", [x], [te.compute(x.shape, lambda *at: maximum(x[at] * 2.0, 0.0), name="y")])


def in_chunks(s: graphopt.Schedule) -> None:
    one = s.fuse(*s.get_loops("y"))
    s.parallel(one)
    s.vectorize(s.split(one, [None, CHUNK], tail="short")[1])


def transpose() -> Nest:
    x = te.placeholder((1024, 1024))
    return te.nest("transpose", [x], [te.compute(x.shape, lambda i, j: x[j, i], name="y")])


def in_squares(s: graphopt.Schedule) -> None:
    i, j = s.get_loops("y")
    i0, i1 = s.split(i, [None, 16])
    j0, j1 = s.split(j, [None, 16])
    s.reorder(i0, j0, i1, j1)
    s.unroll(i1)
    s.vectorize(j1)
    s.parallel(i0)


def along() -> Nest:
    x, k = te.placeholder((2048, 1024)), te.reduce_axis(1024)
    return te.nest("along", [x], [te.compute((2048,), lambda i: te.sum(x[i, k.var], k), name="y")])


def in_lanes(s: graphopt.Schedule) -> None:
    """Partial sums in the lanes of a few vectors."""
    rows, k = s.get_loops("y")
    _, lanes = s.split(k, [None, 64])
    part = s.rfactor(lanes, 1)
    s.set_scope(part, "local")
    rows, *_ = s.get_loops("y")
    s.compute_at(part, rows)
    *_, first, second = s.get_loops(part)
    s.reorder(second, first)
    start = s.decompose_reduction(part, second)
    for block in (part, start):
        s.vectorize(s.get_loops(block)[-1])
    s.parallel(rows)


def across() -> Nest:
    x, k = te.placeholder((1024, 2048)), te.reduce_axis(1024)
    return te.nest("across", [x], [te.compute((2048,), lambda j: te.sum(x[k.var, j], k), name="y")])


def in_columns(s: graphopt.Schedule) -> None:
    """A few vectors of results at a time, in memory of their own while they are summed up."""
    copy = s.cache_write("y", "local")
    j, k = s.get_loops("y")
    j0, j1 = s.split(j, [None, 64])
    s.reorder(j0, k, j1)
    s.reverse_compute_at(copy, j0)
    start = s.decompose_reduction("y", k)
    for block in ("y", start, copy):
        s.vectorize(s.get_loops(block)[-1])
    s.parallel(j0)


def softmax() -> Nest:
    x, k, q = te.placeholder((1024, 512)), te.reduce_axis(512), te.reduce_axis(512)
    largest = te.compute((1024,), lambda i: te.max(x[i, k.var], k), name="largest")
    e = te.compute(x.shape, lambda i, j: apply("exp", x[i, j] - largest[i]), name="e")
    total = te.compute((1024,), lambda i: te.sum(e[i, q.var], q), name="total")
    return te.nest("softmax", [x], [te.compute(x.shape, lambda i, j: e[i, j] / total[i], name="y")])


def in_rows(s: graphopt.Schedule) -> None:
    rows, columns = s.get_loops("y")
    s.vectorize(columns)
    for block in ("total", "e", "largest"):
        s.set_scope(block, "local")
        s.compute_at(block, rows)
    s.vectorize(s.get_loops("e")[-1])
    s.parallel(rows)


def vector() -> Nest:
    a, x, k = te.placeholder((2048, 2048)), te.placeholder((2048,), name="v"), te.reduce_axis(2048)
    return te.nest("vector", [a, x], [te.compute((2048,), lambda i: te.sum(a[i, k.var] * x[k.var], k), name="y")])


def product() -> Nest:
    a, b, k = te.placeholder((512, 512), name="a"), te.placeholder((512, 512), name="b"), te.reduce_axis(512)
    y = te.compute((512, 512), lambda i, j: te.sum(a[i, k.var] * b[k.var, j], k), name="y")
    return te.nest("product", [a, b], [y])


def in_tiles(s: graphopt.Schedule) -> None:
    """A tile of results in registers while they are summed up."""
    copy = s.cache_write("y", "local")
    i, j, k = s.get_loops("y")
    i0, i1 = s.split(i, [None, 8])
    j0, j1 = s.split(j, [None, 32])
    s.reorder(i0, j0, k, i1, j1)
    s.reverse_compute_at(copy, j0)
    start = s.decompose_reduction("y", k)
    for block in ("y", start, copy):
        *_, rows, columns = s.get_loops(block)
        s.unroll(rows)
        s.vectorize(columns)
    s.parallel(i0)


def convolution() -> Nest:
    x, w = te.placeholder((1, 32, 58, 58)), te.placeholder((64, 32, 3, 3), name="w")
    c, h, v = te.reduce_axis(32), te.reduce_axis(3), te.reduce_axis(3)

    def element(n: Var, f: Var, i: Var, j: Var) -> te.ReduceStage:
        return te.sum(x[n, c.var, i + h.var, j + v.var] * w[f, c.var, h.var, v.var], c, h, v)

    return te.nest("convolution", [x, w], [te.compute((1, 64, 56, 56), element, name="y")])


def in_pixels(s: graphopt.Schedule) -> None:
    """A tile of channels and pixels in registers while they are summed up."""
    copy = s.cache_write("y", "local")
    _, f, i, j, c, h, v = s.get_loops("y")
    f0, f1 = s.split(f, [None, 8])
    j0, j1 = s.split(j, [None, 28])
    s.reorder(f0, i, j0, c, h, v, f1, j1)
    s.reverse_compute_at(copy, j0)
    start = s.decompose_reduction("y", c)
    for block in ("y", start, copy):
        *_, channels, pixels = s.get_loops(block)
        s.unroll(channels)
        s.vectorize(pixels)
    s.parallel(f0)


KINDS: dict[str, tuple[Callable[[], Nest], Callable[[graphopt.Schedule], None]]] = {
    "ElementWise": (elements, in_chunks),
    "Transpose": (transpose, in_squares),
    "Reduction along": (along, in_lanes),
    "Reduction across": (across, in_columns),
    "GeneralReduction": (softmax, in_rows),
    "GEMV": (vector, in_lanes),
    "Matmul": (product, in_tiles),
    "Convolution": (convolution, in_pixels),
}
"""Programs by the rule that is for them, and steps."""


def by_steps(nest: Nest, steps: Callable[[graphopt.Schedule], None]) -> Nest:
    """The nest scheduled by steps."""
    s = graphopt.Schedule(nest)
    steps(s)
    return s.nest


def seconds(call: Callable[[], object]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="beginnings of names of rules")
    parser.add_argument("--count", type=int, default=ROUNDS, help="how often each has its turn")
    given = parser.parse_args()
    print(TABLE.heading)
    ratios = []
    for name, (make, steps) in KINDS.items():
        if given.names and not name.startswith(tuple(given.names)):
            continue
        nest, rule = make(), name.split()[0]
        assert graphopt.explain_rules(nest).used == (rule,), name
        nests = graphopt.apply_rules(nest, [rule_of(rule)]).nest, by_steps(nest, steps)
        numbers = [max(1, math.ceil(SECONDS / time_nest(n, number=1, repeat=1).best)) for n in nests]

        def timed(k: int, nests: tuple[Nest, Nest] = nests, numbers: list[int] = numbers) -> float:
            return time_nest(nests[k], number=numbers[k], repeat=1).best

        ours, theirs = least(partial(timed, 0), partial(timed, 1), rounds=given.count)
        makers = partial(scheduled, nest), partial(by_steps, nest, steps)
        own, other = least(*(partial(seconds, maker) for maker in makers), rounds=given.count)
        ratios.append(ours / theirs)
        print(TABLE.line(name, ours * 1e3, theirs * 1e3, ours / theirs, other / own), flush=True)
    print(geometric_mean(ratios))


def rule_of(name: str) -> ScheduleRule:
    """The rule of that name."""
    return next(rule for rule in default_rules() if rule.name == name)


if __name__ == "__main__":
    main()
