"""Times models in ONNX Runtime before and after ``graphopt optimize``, taking turns, and prints a table.

    python tests/bench/speed.py MODEL.onnx ... [--threads 1] [--shape NAME=1,3,224,224]

Each figure is the geometric mean of the ratios of paired bursts, with its 95 % interval; above 1 is
faster than the original. Each result is verified as it is made. Machines are noisy: look at the
interval, and quote ratios only.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from turns import burst, session

import graphopt
from graphopt.cli.values import shapes
from graphopt.ir.onnx_io import load
from graphopt.verify.inputs import draw, ranges, sizes

TARGETS = ("portable", "ort")
ROUNDS, BURSTS, SECONDS = 3, 5, 0.15


def feeds(path: Path, fixed: dict[str, tuple[int, ...]], threads: int) -> dict[str, Any]:
    """Random inputs that the model accepts, of the shapes that the user fixed."""
    graph = load(path)
    found = ranges(graph)
    for chosen in sizes(graph, {}):
        drawn = draw(graph, chosen, found, {}, seed=0, kind=0)
        rng = np.random.default_rng(0)
        drawn |= {name: rng.random(shape, np.float32) for name, shape in fixed.items() if name in drawn}
        try:
            session(str(path), threads).run(None, drawn)
        except Exception as refused:
            reason = refused
            continue
        return drawn
    raise SystemExit(f"{path}: no random input fits ({reason}); give --shape")


def measure(path: Path, fixed: dict[str, tuple[int, ...]], threads: int, folder: Path) -> str:
    """One row of the table."""
    inputs = feeds(path, fixed, threads)
    variants = {"original": path}
    counts: list[int] = []
    for target in TARGETS:
        variants[target] = folder / f"{target}.onnx"
        _, report = graphopt.optimize(path, output=variants[target], target=target, return_report=True)
        counts = [*(counts or [sum(report.ops_before.values())]), sum(report.ops_after.values())]
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(ROUNDS):
        runners = {name: session(str(file), threads) for name, file in variants.items()}
        for _ in range(BURSTS):
            for name, runner in runners.items():
                times[name].append(burst(partial(runner.run, None, inputs), SECONDS))
    cells = [path.stem, f"{1e3 * statistics.median(times['original']):.2f} ms", str(counts[0])]
    for target, count in zip(TARGETS, counts[1:], strict=True):
        logs = [math.log(a / b) for a, b in zip(times["original"], times[target], strict=True)]
        mean, half = statistics.mean(logs), 2.145 * statistics.stdev(logs) / len(logs) ** 0.5
        interval = f"[{math.exp(mean - half):.2f}-{math.exp(mean + half):.2f}]"
        cells += [str(count), f"**{math.exp(mean):.2f}x** {interval}"]
    return "| " + " | ".join(cells) + " |"


def main() -> None:
    """Read the command line and print a row for each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shape", action="append", default=[])
    arguments = parser.parse_args()
    fixed = shapes(arguments.shape)
    print("| model | original | ops | portable: ops | speed | ort: ops | speed |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for path in arguments.models:
            print(measure(path, {k: tuple(v) for k, v in fixed.items()}, arguments.threads, Path(name)), flush=True)


if __name__ == "__main__":
    main()
