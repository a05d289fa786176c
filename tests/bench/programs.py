"""Times compiled models beside ONNX Runtime and beside greedy fusion, taking turns, and prints a table.

    python tests/bench/programs.py MODEL.onnx ... [--threads 1] [--dim NAME=N ...]
    python tests/bench/programs.py --applications [NAME ...] [--threads 1]
    python tests/bench/programs.py --applications --ways graphopt,ort,portable

The second form takes the application models of the corpus, all or those of these names, with inputs of their own. A
column is how many times faster than the model in ONNX Runtime a way to run it is: ``graphopt`` as ``graphopt.compile``
makes it, its layouts, library calls and fusions chosen in the e-graph; ``greedy`` from the model as it is, ops fused
greedily; a target's name is the model optimized for that target, in ONNX Runtime. Behind the ratio of the least times
stand the quartiles of the ratios of the bursts; ``error`` is the largest difference from ONNX Runtime, in units of the
tolerance (above 1 is wrong); ``reference`` counts nodes that no kernel computes; ``ready`` is how long it took to make
all of them. The last line is the geometric mean.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import Any

from turns import burst

import graphopt
from graphopt.benchmark.bench import ENGINES, accepted_feeds, random_feeds
from graphopt.cli.values import dims
from graphopt.compile import compile
from graphopt.ir.tolerance import error

SECONDS = 0.1
ROUNDS = 20
WAYS = ("graphopt", "greedy")


def row(
    path: Path, threads: int, ways: Sequence[str], fixed: dict[str, int], feeds: dict[str, Any] | None = None
) -> list[float]:
    """The ratios of a model's ways, printed."""
    ort = ENGINES["ort"](str(path), threads)
    feeds = feeds or accepted_feeds(random_feeds(graphopt.load(path), {}, fixed), ort)
    begin = time.perf_counter()
    runs = [_opened(way, path, threads) for way in ways]
    ready = time.perf_counter() - begin
    want = ort(feeds)
    worst = max(error(a, b) for run in runs for a, b in zip(want, run(feeds), strict=True))
    bursts = [[burst(partial(run, feeds), SECONDS) for run in (ort, *runs)] for _ in range(ROUNDS)]
    theirs, *times = (min(column) for column in zip(*bursts, strict=True))
    ratios = [theirs / spent for spent in times]
    spread = (quantiles([round_[0] / round_[k] for round_ in bursts]) for k in range(1, len(ways) + 1))
    told = " ".join(
        f"{ratio:6.2f} ({low:.2f}-{high:.2f})" for ratio, (low, _, high) in zip(ratios, spread, strict=True)
    )
    left = sum(len(run.report.unlowered) for run in runs if isinstance(run, _Program))
    print(f"{path.stem:32} {theirs * 1e3:9.2f} ms {told} {worst:9.2g} {left:9} {ready:7.1f} s", flush=True)
    return ratios


class _Program:
    """A compiled model that is called as another engine is."""

    def __init__(self, path: Path, threads: int, optimize: bool) -> None:
        self._compiled = compile(path, threads=threads, optimize=optimize)
        self.report = self._compiled.report

    def __call__(self, feeds: dict[str, Any]) -> list[Any]:
        return list(self._compiled(feeds).values())


def _opened(way: str, path: Path, threads: int) -> Callable[[dict[str, Any]], list[Any]]:
    if way in WAYS:
        return _Program(path, threads, way == "graphopt")
    better = path.with_suffix(f".{way}.onnx")
    graphopt.optimize(path, output=better, target=way, verify="off")
    return ENGINES["ort"](str(better), threads)


def applications(names: list[str], threads: int, ways: Sequence[str]) -> Iterator[list[float]]:
    """The rows of application models."""
    sys.path.append(str(Path(__file__).parents[2]))
    from tests.corpus.make_applications import MODELS, QUANTIZED, feeds, made

    with tempfile.TemporaryDirectory() as folder:
        for name in names or (*MODELS, *QUANTIZED):
            model, path = made(name), Path(folder, f"{name}.onnx")
            path.write_bytes(model.SerializeToString())
            yield row(path, threads, ways, {}, feeds(model, 0))


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--applications", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dim", action="append", default=[])
    parser.add_argument("--ways", default=",".join(WAYS))
    given = parser.parse_args()
    ways = given.ways.split(",")
    warnings.simplefilter("ignore")
    print(
        f"{'model':32} {'ort':>12} "
        + " ".join(f"{w:18}" for w in ways)
        + f" {'error':>9} {'reference':>9} {'ready':>9}"
    )
    if given.applications:
        found = [*applications(given.models, given.threads, ways)]
    else:
        found = [row(Path(path), given.threads, ways, dims(given.dim)) for path in given.models]
    means = (math.exp(sum(map(math.log, column)) / len(found)) for column in zip(*found, strict=True))
    print(f"{'geometric mean':32} {'':12} " + " ".join(f"{m:6.2f}{'':12}" for m in means))


if __name__ == "__main__":
    main()
