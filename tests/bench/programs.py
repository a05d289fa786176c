"""Times compiled models beside ONNX Runtime and beside greedy fusion, taking turns, and prints a table.

    python tests/bench/programs.py MODEL.onnx ... [--threads 1] [--dim NAME=N ...]
    python tests/bench/programs.py --applications [NAME ...] [--threads 1]

The second form takes the application models of the corpus, all or those of these names, with inputs of their own. A
column is how many times faster than ONNX Runtime a program is: ``graphopt`` as ``graphopt.compile`` makes it, its
layouts, library calls and fusions chosen in the e-graph; ``greedy`` from the model as it is, ops fused greedily.
Figures are ratios of the least times of several bursts; ``error`` is the largest difference from ONNX Runtime, in
units of the tolerance (above 1 is wrong). ``reference`` counts nodes that no kernel computes. The last line is the
geometric mean.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from turns import burst, least

import graphopt
from graphopt.benchmark.bench import ENGINES, accepted_feeds, random_feeds
from graphopt.cli.values import dims
from graphopt.compile import compile
from graphopt.ir.tolerance import error

SECONDS = 0.4


def row(path: Path, threads: int, fixed: dict[str, int], feeds: dict[str, Any] | None = None) -> tuple[float, float]:
    ort = ENGINES["ort"](str(path), threads)
    feeds = feeds or accepted_feeds(random_feeds(graphopt.load(path), {}, fixed), ort)
    begin = time.perf_counter()
    ours = compile(path, threads=threads)
    ready = time.perf_counter() - begin
    greedy = compile(path, threads=threads, optimize=False)
    runs = (lambda: ort(feeds), lambda: ours(feeds), lambda: greedy(feeds))
    want, got = ort(feeds), list(ours(feeds).values())
    worst = max(error(a, b) for a, b in zip(want, got, strict=True))
    theirs, *times = least(*(partial(burst, run, SECONDS) for run in runs))
    ratio, plain = (theirs / spent for spent in times)
    left = len(ours.report.unlowered)
    print(
        f"{path.stem:32} {theirs * 1e3:9.2f} ms {ratio:9.2f} {plain:9.2f} {worst:9.2g} {left:9} {ready:7.1f} s",
        flush=True,
    )
    return ratio, plain


def applications(names: list[str], threads: int) -> Iterator[tuple[float, float]]:
    """The rows of application models."""
    sys.path.append(str(Path(__file__).parents[2]))
    from tests.corpus.make_applications import MODELS, QUANTIZED, feeds, made

    with tempfile.TemporaryDirectory() as folder:
        for name in names or (*MODELS, *QUANTIZED):
            model, path = made(name), Path(folder, f"{name}.onnx")
            path.write_bytes(model.SerializeToString())
            yield row(path, threads, {}, feeds(model, 0))


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*")
    parser.add_argument("--applications", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dim", action="append", default=[])
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'model':32} {'ort':>12} {'graphopt':>9} {'greedy':>9} {'error':>9} {'reference':>9} {'ready':>9}")
    if given.applications:
        found = [*applications(given.models, given.threads)]
    else:
        found = [row(Path(path), given.threads, dims(given.dim)) for path in given.models]
    means = (math.exp(sum(math.log(r[k]) for r in found) / len(found)) for k in (0, 1))
    print(f"{'geometric mean':32} {'':12} " + " ".join(f"{m:9.2f}" for m in means))


if __name__ == "__main__":
    main()
