"""Workloads that take no time to measure, and candidates for them."""

import graphopt
from graphopt.lowering.loops.script import read
from graphopt.lowering.schedule.trace import Trace
from graphopt.tuning.record import Candidate
from graphopt.tuning.workload import Workload

PRODUCT = """
@program
def product(a: Buffer[("n", 32), "float32"], b: Buffer[(32, 64), "float32"], c: Buffer[("n", 64), "float32"], n: size):
    for i, j, k in grid(n, 64, 32):
        with block("c"):
            v0, v1, v2 = axis.remap("SSR", [i, j, k])
            with init():
                c[v0, v1] = 0.0
            c[v0, v1] = c[v0, v1] + a[v0, v2] * b[v2, v1]
"""


def product(text: str = PRODUCT) -> Workload:
    return Workload.of(read(text), {"n": 48})


def by_rows(workload: Workload, width: int = 16, threads: int = 1) -> Candidate:
    """The product in vectors, a row at a time, which are shared out where there are several threads."""
    s = graphopt.Schedule(workload.nest)
    block = s.get_block("c")
    i, j, k = s.get_loops(block)
    jo, ji = s.split(j, [None, width])
    s.reorder(i, jo, k, ji)
    s.decompose_reduction(block, k)
    s.vectorize(ji)
    if threads > 1:
        s.parallel(i)
    return Candidate(workload, s.trace.to_json(), threads)


def as_written(workload: Workload) -> Candidate:
    """No step is done."""
    return Candidate(workload, Trace().to_json())
