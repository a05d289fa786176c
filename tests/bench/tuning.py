"""What tuning gains: a product by hand, at random and guided; the heavy nests of models; guided against random search;
what it finds of small spaces with a third of an exhaustive search's trials.

    python tests/bench/tuning.py classic [--trials 64] [--picture FILE.svg]
    python tests/bench/tuning.py workloads MODEL.onnx ... [--trials 64] [--count 10]
    python tests/bench/tuning.py seeds [--trials 64] [--seeds 10]
    python tests/bench/tuning.py exhaustive [--seeds 20]

``classic`` is a product of 128 x 128 x 128 from a naive nest. ``workloads`` are those in which models spend most time,
the heaviest of each model first. ``seeds`` has both searches spend equal trials on the product of ``classic``.
``exhaustive`` measures all of three small spaces, has an evolution choose a third of each, and compares the best of
both in turn; then the same with other seeds, on the times of the first.

Sessions keep what they measure in ``--databases FOLDER``, so that a script that was interrupted goes on where it was.
What is compared is measured beside the default schedule at the end, several times in turn, and the medians are told. A
trial takes one to two seconds, most of it to build a program in a process of its own.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, Future
from itertools import zip_longest
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import turns

import graphopt
from graphopt.benchmark.bench import accepted_feeds, random_feeds
from graphopt.benchmark.tune import tasks_of
from graphopt.calibration.schedule_tables import setting_here
from graphopt.ir import onnx_io
from graphopt.lowering.analysis.flops import flops
from graphopt.lowering.cpu.default_schedules import chosen
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.runtime.sizes import evaluate
from graphopt.tuning.database import Records
from graphopt.tuning.executors import executor_named
from graphopt.tuning.measuring import measure
from graphopt.tuning.record import Candidate, Outcome
from graphopt.tuning.search import SearchName
from graphopt.tuning.session import Budget, Task, default_trace, tune_tasks
from graphopt.tuning.spaces import Space
from graphopt.tuning.workload import Workload

SIDE: Final = 128
AGAIN: Final = 5
"""How often each of what is compared is measured."""
WAYS: Final[tuple[SearchName, ...]] = ("random", "evolution")


def naive() -> Nest:
    """The product as it is defined."""
    return read(f"""
@program
def product(a: Buffer[({SIDE}, {SIDE}), "float32"], b: Buffer[({SIDE}, {SIDE}), "float32"],
            c: Buffer[({SIDE}, {SIDE}), "float32"]):
    for i, j, k in grid({SIDE}, {SIDE}, {SIDE}):
        with block("c"):
            v0, v1, v2 = axis.remap("SSR", [i, j, k])
            with init():
                c[v0, v1] = 0.0
            c[v0, v1] = c[v0, v1] + a[v0, v2] * b[v2, v1]
""")


def by_hand(nest: Nest, rows: int = 14, vectors: int = 2, lanes: int = 16) -> graphopt.Schedule:
    """Tiles of results that stay in vector registers while the sum runs."""
    s = graphopt.Schedule(nest)
    block = s.get_block("c")
    i, j, k = s.get_loops(block)
    i0, i1 = s.split(i, [None, rows])
    j0, j1, j2 = s.split(j, [None, vectors, lanes])
    s.reorder(i0, j0, k, i1, j1, j2)
    copy = s.cache_write(block, "local")
    s.reverse_compute_at(copy, j0)
    start = s.decompose_reduction(block, k)
    *_, width = s.get_loops(copy)
    s.split(width, [None, lanes])
    for stage in (block, start, copy):
        *_, row, vector, lane = s.get_loops(stage)
        s.unroll(row)
        s.unroll(vector)
        s.vectorize(lane)
    return s


def by_rule(nest: Nest, **choices: int) -> str:
    """The trace of a schedule by rule."""
    s = graphopt.Schedule(nest)
    s.by_rule(tuple(choices.items()))
    return s.trace.to_json()


def functions(nest: Nest) -> list[str]:
    """The traces of all functions that may compute a product: the library's and our own; the default one of others."""
    return [by_rule(nest, function=n) for n in chosen(nest, {})[1].get("function", ())] or [by_rule(nest)]


def session(workload: Workload, path: Path, trials: int, way: SearchName, seed: int = 0) -> list[float]:
    """How many times as fast as the default schedule the best was after each trial; all of them are in the database."""
    with Records(path, write=True) as records, executor_named() as executor:
        done = len(drawn(records, workload))
        if done < trials:
            tune_tasks([Task(workload)], records, executor, Budget(trials - done), search=way, seed=seed)
        gains = [r.outcome.gain for r in drawn(records, workload)]
    return [float(x) for x in np.maximum.accumulate([1e-9, *gains])[1:]]


def drawn(records: Records, workload: Workload) -> list[Any]:
    """What was measured of a workload, but for the default schedule."""
    default = default_trace(workload).to_json()
    return [r for r in records.history(workload, setting_here()) if r.candidate.trace != default]


def best(workload: Workload, path: Path) -> str:
    """The trace of the best schedule in a database, or of the default one."""
    with Records(path) as records:
        found = records.best(workload, setting_here())
    return found.candidate.trace if found else default_trace(workload).to_json()


def compared(workload: Workload, traces: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Seconds of each, and how many times as fast as the default schedule it is: medians of measurements in turn."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in traces}
    for _ in range(AGAIN):
        for name, trace in traces.items():
            outcome = measure(Candidate(workload, trace))
            if outcome.problem:
                raise SystemExit(f"{name}: {outcome.problem}")
            found[name].append((median(outcome.seconds), outcome.speedup))
    return {name: (median(s for s, _ in pairs), median(x for _, x in pairs)) for name, pairs in found.items()}


def operations(workload: Workload) -> float:
    """How many additions and multiplications a run does."""
    sizes = dict(workload.sizes)
    return float(evaluate(flops(workload.nest, {var: sizes[var.name] for var in workload.nest.sizes}), {}))


def classic(given: argparse.Namespace) -> None:
    """The product by hand, at random, guided, by our own function and by the library's."""
    nest = naive()
    workload = Workload.of(nest)
    paths = {way: given.databases / f"classic-{way}.sqlite" for way in WAYS}
    curves = {way: session(workload, path, given.trials, way) for way, path in paths.items()}
    library, ours = functions(nest)
    traces = {
        "by hand, with primitives": by_hand(nest).trace.to_json(),
        f"{given.trials} trials at random": best(workload, paths["random"]),
        f"{given.trials} trials, guided": best(workload, paths["evolution"]),
        "our own function": ours,
        "BLAS": library,
    }
    table = turns.Table(f"{SIDE} x {SIDE} x {SIDE}", 28, "GFLOP/s:10.1f ours:8.2f BLAS:8.2f")
    print(table.heading)
    found = compared(workload, traces)
    for name, (seconds, speed) in found.items():
        ratios = (speed / found[n][1] for n in ("our own function", "BLAS"))
        print(table.line(name, operations(workload) / seconds / 1e9, *ratios))
    if given.picture:
        draw(curves, {n: found[n][1] for n in ("by hand, with primitives", "our own function", "BLAS")}, given.picture)


def draw(curves: Mapping[str, Sequence[float]], levels: Mapping[str, float], path: Path) -> None:
    """The picture of the best after each trial."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"svg.hashsalt": path.name, "svg.fonttype": "none"}):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        axes: Any = figure.subplots()
        for (name, curve), label in zip(curves.items(), ("at random", "guided"), strict=True):
            axes.step(range(1, len(curve) + 1), curve, where="post", label=label, gid=name)
        for number, (name, level) in enumerate(levels.items()):
            axes.axhline(level, linestyle=("-.", "--", ":")[number], color="0.4", label=name)
        axes.set(xlabel="trials", ylabel="speed; the default schedule is 1", ylim=(0, None))
        axes.legend(frameon=False, fontsize="small")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def heavy(path: str, given: argparse.Namespace) -> list[Task]:
    """The tasks of a model, those in which it spends most time first."""
    model = graphopt.compile(path, tuned="off", cache=False)
    feeds = accepted_feeds(random_feeds(onnx_io.load(path), {}, {}, {}), model)
    spent: dict[str, float] = {}
    for _ in range(3):
        for row in model.profile(feeds):
            for node in row.nodes:
                spent[node] = spent.get(node, 0.0) + row.seconds
    return sorted(tasks_of(model, feeds), key=lambda task: -sum(spent.get(n, 0.0) for n in task.nodes))


def workloads(given: argparse.Namespace) -> None:
    """Heavy workloads: the default schedule and the tuned one as multiples of the better function."""
    rows = zip_longest(*(heavy(path, given) for path in given.models))
    picked = list({t.workload: t for row in rows for t in row if t is not None}.values())[: given.count]
    table = turns.Table("", 44, "us:10.1f default:9.2f tuned:8.2f")
    print(table.heading)
    ratios = []
    for task in picked:
        workload, path = task.workload, given.databases / "workloads.sqlite"
        session(workload, path, given.trials, "evolution")
        known = dict(zip(("library", "ours"), functions(workload.nest), strict=False))
        others = {"tuned": best(workload, path), "default": default_trace(workload).to_json()}
        found = compared(workload, known | others)
        name = max(known, key=lambda n: found[n][1])
        ratios.append([found[n][1] / found[name][1] for n in ("default", "tuned")])
        print(table.line(task.nodes[0][-43:], found[name][0] * 1e6, *ratios[-1]), flush=True)
    for name, of in zip(("default", "tuned"), zip(*ratios, strict=True), strict=True):
        print(f"{name}: {turns.geometric_mean(of)}")


def seeds(given: argparse.Namespace) -> None:
    """What both searches find with other seeds."""
    workload = Workload.of(naive())
    table = turns.Table("seed", 8, "random:10.3f guided:10.3f")
    print(table.heading)
    found = []
    for seed in range(given.seeds):
        paths = [given.databases / f"seed-{seed}-{way}.sqlite" for way in WAYS]
        for way, path in zip(WAYS, paths, strict=True):
            session(workload, path, given.trials, way, seed)
        measured = compared(workload, {way: best(workload, path) for way, path in zip(WAYS, paths, strict=True)})
        found.append([measured[way][1] for way in WAYS])
        print(table.line(str(seed), *found[-1]), flush=True)
    print(table.line("median", *np.median(found, axis=0)))


def rows_and_columns(s: graphopt.Schedule) -> None:
    """A product: columns that are done side by side, and rows that share what is read of them."""
    block = s.get_block("c")
    i, j, k = s.get_loops(block)
    i0, i1 = s.split(i, [None, s.sample_categorical([1, 2, 4, 8, 14])])
    j0, j1 = s.split(j, s.sample_perfect_tile(j, 2))
    s.reorder(i0, j0, k, i1, j1)
    if s.sample_categorical([0, 1]):
        s.unroll(i1)
    s.vectorize(j1)
    s.decompose_reduction(block, k)


def windows() -> Nest:
    """A convolution of 3 x 3, of an image without padding."""
    return read("""
@program
def convolution(x: Buffer[(16, 34, 34), "float32"], w: Buffer[(32, 16, 3, 3), "float32"],
                y: Buffer[(32, 32, 32), "float32"]):
    for o, i, j, c, p, q in grid(32, 32, 32, 16, 3, 3):
        with block("y"):
            v0, v1, v2, v3, v4, v5 = axis.remap("SSSRRR", [o, i, j, c, p, q])
            with init():
                y[v0, v1, v2] = 0.0
            y[v0, v1, v2] = y[v0, v1, v2] + x[v3, v1 + v4, v2 + v5] * w[v0, v3, v4, v5]
""")


def channels_and_pixels(s: graphopt.Schedule) -> None:
    """A convolution: channels that share the pixels that are read, the reduction outside of both or not."""
    block = s.get_block("y")
    o, i, j, c, p, q = s.get_loops(block)
    o0, o1 = s.split(o, [None, s.sample_categorical([1, 2, 4, 8])])
    j0, j1 = s.split(j, s.sample_perfect_tile(j, 2))
    inner = s.sample_categorical([0, 1, 2])  # how many of the reduction's loops are within the channels'
    steps = (c, p, q)
    s.reorder(o0, i, j0, *steps[: 3 - inner], o1, *steps[3 - inner :], j1)
    s.vectorize(j1)
    s.decompose_reduction(block, c)


def rows() -> Nest:
    """The sums of squares of rows, after a scale."""
    return read("""
@program
def squares(x: Buffer[(256, 512), "float32"], y: Buffer[(256,), "float32"]):
    scaled = alloc((256, 512), "float32")
    for a, b in grid(256, 512):
        with block("scaled"):
            v0, v1 = axis.remap("SS", [a, b])
            scaled[v0, v1] = x[v0, v1] * 0.5 + 1.0
    for i, k in grid(256, 512):
        with block("y"):
            v2, v3 = axis.remap("SR", [i, k])
            with init():
                y[v2] = 0.0
            y[v2] = y[v2] + scaled[v2, v3] * scaled[v2, v3]
""")


def lanes_of_sums(s: graphopt.Schedule) -> None:
    """A reduction of rows: partial sums side by side, and where what is summed is made."""
    _, k = s.get_loops(s.get_block("y"))
    _, k1 = s.split(k, s.sample_perfect_tile(k, 2, 128))
    s.compute_at(s.get_block("scaled"), s.sample_compute_location(s.get_block("scaled")))
    part = s.rfactor(k1, 0)
    loops = s.get_loops(part)
    if s.sample_categorical([0, 1]):
        s.reorder(*loops[1:], loops[0])
        s.vectorize(loops[0])


SMALL: Final[tuple[tuple[str, Nest, Space], ...]] = (
    ("product, rows and columns", naive(), rows_and_columns),
    ("convolution, channels and pixels", windows(), channels_and_pixels),
    ("sums of rows, lanes and places", rows(), lanes_of_sums),
)
"""Spaces that are small enough to measure all of them."""


class Replayed(Executor):
    """Measures nothing: it answers by what was measured."""

    def __init__(self, outcomes: Mapping[str, Outcome]) -> None:
        self.outcomes = outcomes

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The outcome of a candidate."""
        future: Future[Any] = Future()
        future.set_result(self.outcomes[args[0].trace])
        return future


def exhaustive(given: argparse.Namespace) -> None:
    """What an evolution finds with a third of the trials of an exhaustive search."""
    table = turns.Table("", 34, "points:8.0f trials:8.0f all/us:10.2f tuned/us:10.2f found:9.3f seeds:9.3f least:9.3f")
    print(table.heading)
    for number, (name, nest, space) in enumerate(SMALL):
        workload = Workload.of(nest)
        path = given.databases / f"exhaustive-{number}.sqlite"
        everything = graphopt.tune(nest, space=space, search="exhaustive", database=path)
        with Records(path) as records:
            history = {r.candidate.trace: r for r in records.history(workload, setting_here())}
        trials = (len(history) - 1) // 3  # one is the default schedule's
        tuned = graphopt.tune(nest, space=space, trials=trials)
        both = {"all": everything.trace.to_json(), "tuned": tuned.trace.to_json()}
        least = dict.fromkeys(both, inf)
        for _ in range(AGAIN):
            for which, trace in both.items():
                least[which] = min(least[which], measure(Candidate(workload, trace)).fastest)
        outcomes = {trace: record.outcome for trace, record in history.items()}
        shares = [
            everything.seconds
            / graphopt.tune(nest, space=space, trials=trials, seed=seed, executor=Replayed(outcomes)).seconds
            for seed in range(given.seeds)
        ]
        row = len(history) - 1, trials, *(s * 1e6 for s in least.values()), least["all"] / least["tuned"]
        line = table.line(name, *row, median(shares), min(shares))
        print(line, flush=True)


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--databases", type=Path, default=Path("tuning-bench"), help="a folder to keep sessions in")
    commands = parser.add_subparsers(required=True)
    for do in (classic, workloads, seeds, exhaustive):
        command = commands.add_parser(do.__name__)
        command.set_defaults(do=do)
        command.add_argument("--trials", type=int, default=64)
    commands.choices["classic"].add_argument("--picture", type=Path, help="where to draw the best over trials")
    commands.choices["workloads"].add_argument("models", nargs="+", metavar="MODEL.onnx")
    commands.choices["workloads"].add_argument("--count", type=int, default=10)
    commands.choices["seeds"].add_argument("--seeds", type=int, default=10)
    commands.choices["exhaustive"].add_argument("--seeds", type=int, default=20)
    given = parser.parse_args()
    given.databases.mkdir(parents=True, exist_ok=True)
    given.do(given)


if __name__ == "__main__":
    main()
