"""Times kernels that are told that their operands are apart (``Kernel.noalias``) beside the same ones that are not.

    python tests/bench/noalias.py [MODEL.onnx | NAME ...] [--threads N] [--slower RATIO] [--count N]

Names are beginnings of those of cases: schedules by hand of a product (``ladder``), those of ``ops.py`` (``op``),
``rows.py`` (``row``, with ``half`` those in float16) and ``quantized.py`` (``bytes``); all of them, where neither these
nor models are given. A row has the microseconds of a call of either kind, the least of bursts that take turns, and
their ratio (above 1: to know it makes it faster), the same of the kernels alone, each by its own least time, the
seconds of this processor that the kernels take to compile, and how many there are. ``--slower 0.9`` lists the single
kernels whose ratio is below that. The last lines are geometric means.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import ops
import quantized
import rows
from compile_time import timed
from tuning import SIDE, by_hand, naive
from turns import ROUNDS, Table, arguments, burst, keep_to_cores, least

import graphopt
from graphopt.benchmark.bench import accepted_feeds, random_feeds
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.kernels import codegen
from graphopt.kernels.compile import compile_kernels, native_driver
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.lower.embedded_programs import attributes
from graphopt.platforms import HostPlatform
from graphopt.runtime.profile import ProfileRow, best_rows

TABLE = Table(
    "", 34, "plain:10.1f noalias:10.1f ratio:8.2f plain:10.1f noalias:10.1f ratio:8.2f plain:8.2f noalias:8.2f n:5"
)
SHAPES = ("16x64", "128x768", "1x64x56x56")
BYTES = ("64x64x64", "128x768x3072", "->64 56x56", "512->512", "in 96")

Case = tuple[str, Any, Mapping[str, Any]]
"""A name, a model, and its inputs."""


# ------------------------------------------------------------------ what is raced


def packed(nest: Nest) -> graphopt.Schedule:
    """The product by panels of its second operand that lie in a row."""
    s = graphopt.Schedule(nest)
    block = s.get_block("c")
    copy = s.cache_read(block, "b", "global")
    s.transform_layout(copy, "b_global", lambda k, j: (j // 16, k, j % 16))
    blocked(s, 16)
    return s


def blocked(s: graphopt.Schedule, width: int, is_decomposed: bool = True) -> graphopt.Schedule:
    """Columns in strips, within which rows of the second operand are added up."""
    block = s.get_block("c")
    i, j, k = s.get_loops(block)
    j0, j1 = s.split(j, [None, width])
    s.reorder(i, j0, k, j1)
    if is_decomposed:
        s.decompose_reduction(block, k)
    return s


LADDER: Mapping[str, Callable[[Nest], graphopt.Schedule]] = {
    "naive": graphopt.Schedule,
    "strips of 4": lambda nest: blocked(graphopt.Schedule(nest), 4, False),
    "strips of 16": lambda nest: blocked(graphopt.Schedule(nest), 16, False),
    "decomposed, 4": lambda nest: blocked(graphopt.Schedule(nest), 4),
    "decomposed, 16": lambda nest: blocked(graphopt.Schedule(nest), 16),
    "packed": packed,
    "tiles": by_hand,
}
"""Schedules of a product, one step after the other."""


def ladder() -> Iterator[Case]:
    """The product in each of its schedules."""
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal((SIDE, SIDE), np.float32) for name in "ab"}
    for name, schedule in LADDER.items():
        nest = schedule(naive()).nest
        b = graphopt.GraphBuilder()
        given = [b.input(n, a.dtype.name, a.shape) for n, a in feeds.items()]
        b.output("c", b.emit("graphopt::Nest", given, attributes(nest)))
        yield f"ladder {name}", b.graph, feeds


def single_ops() -> Iterator[Case]:
    """Those of ``ops.py``."""
    for name, text in ops.CASES.items():
        graph = parse(text)
        yield f"op {name}", graph, ops.feeds(graph)


def on_rows() -> Iterator[Case]:
    """Those of ``rows.py``."""
    rng = np.random.default_rng(0)
    for name, text in rows.CASES.items():
        for shape in SHAPES:
            lengths = tuple(map(int, shape.split("x")))
            if (name in rows.ON_CHANNELS) != (len(lengths) > 2):
                continue
            for dtype in ("float32", "float16"):
                graph = rows.model(text, lengths, dtype, False)
                feeds = {
                    graph.names[v]: rng.standard_normal(graph.types[v].shape).astype(dtype)  # type: ignore[arg-type]
                    for v in graph.inputs
                }
                yield f"row{' half' * (dtype == 'float16')} {name} {shape}", graph, feeds


def of_bytes() -> Iterator[Case]:
    """Some of ``quantized.py``."""
    for name, model, feeds, _ in (*quantized.products(), *quantized.convolutions()):
        if any(part in name for part in BYTES):
            yield f"bytes {name}", model, feeds


def models(paths: Sequence[str]) -> Iterator[Case]:
    """Models of files, with random inputs."""
    for path in paths:
        program = graphopt.compile(path)
        yield Path(path).stem, path, accepted_feeds(random_feeds(graphopt.load(path), {}, {}), program)


# ------------------------------------------------------------------ the race


def told(linked: Linked, noalias: bool) -> tuple[Kernel, ...]:
    """The kernels of a program as they are, or such that know nothing of their operands."""
    return linked.kernels if noalias else tuple(replace(k, noalias=False) for k in linked.kernels)


def compile_seconds(kernels: Sequence[Kernel]) -> float:
    """Seconds of this processor that kernels take to become object code."""
    with tempfile.TemporaryDirectory() as folder:
        places = (Path(folder) / f"{n}.py" for n in range(len(kernels)))
        return sum(timed(codegen.object_code, k, place)[0] for k, place in zip(kernels, places, strict=True))


def row(case: Case, threads: int, slower: float, count: int) -> tuple[str, tuple[float, float, float]]:
    """A line of the table, with those of slow kernels below it, and its ratios."""
    name, model, feeds = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        is_case = isinstance(model, Graph)
        linked = graphopt.compile(model, threads=threads, cache=False, optimize=not is_case, jobs=1).compiled.linked
    programs, spent = [], []
    for noalias in (False, True):
        kernels = told(linked, noalias)
        objects = compile_kernels((native_driver(), *kernels))
        spent.append(compile_seconds(kernels))
        programs.append(HostPlatform().program(linked, objects, threads))
    outs = [program(feeds) for program in programs]
    calls = [partial(program, feeds, out=out) for program, out in zip(programs, outs, strict=True)]
    plain, noalias_ = least(*(partial(burst, call) for call in calls), rounds=count)
    profiles: list[list[Sequence[ProfileRow]]] = [[], []]
    for _ in range(3 * count):
        for program, found in zip(programs, profiles, strict=True):
            found.append(program.profile(feeds))
    best = [[r for r in best_rows(found) if r.is_native] for found in profiles]
    sums = [sum(r.seconds for r in found) for found in best]
    ratios = plain / noalias_, sums[0] / max(sums[1], 1e-9), spent[0] / max(spent[1], 1e-9)
    figures = (plain * 1e6, noalias_ * 1e6, ratios[0], sums[0] * 1e6, sums[1] * 1e6, ratios[1], *spent)
    lines = [TABLE.line(name[:34], *figures, len(linked.kernels))]
    for one, other in zip(*best, strict=True):
        if one.seconds < slower * other.seconds:
            what = f"{one.label} ({', '.join(one.nodes)})"
            lines.append(f"    {one.seconds * 1e6:.2f} -> {other.seconds * 1e6:.2f} us: {what[:120]}")
    return "\n".join(lines), ratios


def main() -> None:
    """The table."""
    parser = arguments(__doc__, "models, or beginnings of the names of cases", "MODEL|NAME")
    parser.add_argument("--slower", type=float, default=0.0, help="list the kernels of ratios below this")
    parser.add_argument("--count", type=int, default=ROUNDS, help="how often each has its turn")
    given = parser.parse_args()
    keep_to_cores(given.threads)
    paths = [n for n in given.names if n.endswith(".onnx")]
    starts = tuple(n for n in given.names if n not in paths)
    own = (*ladder(), *single_ops(), *on_rows(), *of_bytes()) if starts or not paths else ()
    chosen = (case for case in own if not starts or case[0].startswith(starts))
    print(f"{'':34}{'microseconds of a call':>28}{'of kernels alone':>28}{'seconds to compile':>21}")
    print(TABLE.heading)
    found: list[tuple[float, float, float]] = []
    for case in chain(models(paths), chosen):
        try:
            line, ratios = row(case, given.threads, given.slower, given.count)
            found.append(ratios)
        except Exception as failed:
            line = f"{case[0]:34} failed: {type(failed).__name__}: {str(failed)[:200]}"
        print(line, flush=True)
    for what, k in (("calls", 0), ("kernels alone", 1), ("compiling", 2)):
        mean = math.exp(sum(math.log(r[k]) for r in found) / max(len(found), 1))
        print(f"geometric mean of {what}, {len(found)} rows: {mean:.3f}")


if __name__ == "__main__":
    main()
