"""How well modelled costs predict measured ones: for single ops, and for whole models before and after optimization.

    python tests/bench/prices.py DATABASE MODEL.onnx ...

DATABASE is one of ``graphopt calibrate MODEL.onnx ... --database DATABASE``. Models run in ONNX Runtime
at one thread, original and result taking turns. Ratios are modelled to measured: 1 is right. *analytic*
are the prices that the target comes with, *fitted* those fitted to the database, *measured* the times
in it with fitted prices for what it lacks.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from scipy.stats import spearmanr
from turns import burst

from graphopt.calibration.fit import quality, rows
from graphopt.calibration.store import TimesDatabase
from graphopt.calibration.table import priced, setting
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.ir.onnx_io import load, save
from graphopt.optimize import optimize_graph
from graphopt.rewrite.extract.cost import graph_cost, stated_sizes
from graphopt.target import ORT, Target
from graphopt.verify.inputs import draw, ranges, sizes
from graphopt.verify.runtimes import EngineError, open_for_timing

TURNS, BURST = 9, 0.1


def targets(database: Path) -> dict[str, Target]:
    """The target under each kind of prices."""
    full = priced(ORT, database).target
    return {"analytic": ORT, "fitted": replace(full, measured=None), "measured": full}


def feeds(graph: Graph, path: Path) -> tuple[dict[str, Any], Mapping[str, int]]:
    """Inputs that the model runs on, and the sizes of its open dimensions, the likeliest of costs first."""
    stated = stated_sizes(graph)
    for chosen in sorted(
        sizes(graph, {}), key=lambda s: (any(s.get(k, v) != v for k, v in stated.items()), -max([0, *s.values()]) < 128)
    ):
        drawn = draw(graph, chosen, ranges(graph), {}, seed=0, kind=1)
        try:
            open_for_timing(path, drawn, 1)()
        except EngineError:
            continue
        return drawn, chosen
    raise SystemExit(f"{path}: no input fits")


def whole(path: Path, kinds: Mapping[str, Target], folder: Path) -> dict[str, dict[str, float]]:
    """For the original, and the results under analytic and under measured prices: seconds measured, and modelled."""
    graph = load(path)
    drawn, chosen = feeds(graph, path)
    graphs = {"original": graph} | {
        kind: optimize_graph(graph, target=kinds[kind])[0] for kind in ("analytic", "measured")
    }
    runs = {}
    for name, g in graphs.items():
        save(g, folder / f"{name}.onnx")
        runs[name] = open_for_timing(folder / f"{name}.onnx", drawn, 1)
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TURNS):
        for name, run in runs.items():
            times[name].append(burst(run, BURST, time.thread_time))  # while this thread had a processor
    found = {}
    for name, g in graphs.items():
        facts = infer(g)
        found[name] = {kind: graph_cost(g, facts, t, chosen).total.seconds for kind, t in kinds.items()}
        found[name]["ran"] = min(times[name])
        found[name]["speed"] = statistics.median(a / b for a, b in zip(times["original"], times[name], strict=True))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("database", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    args = parser.parse_args()
    kinds = targets(args.database)
    here = setting(ORT.runtime)
    assert here is not None
    with TimesDatabase(args.database) as store:
        times = rows({text: t.seconds for text, t in store.times(here).items() if t.seconds is not None})
    print("single calls\n")
    for kind in ("analytic", "fitted"):
        print(f"{kind:9}", ", ".join(f"{k} {v:g}" for k, v in quality(ORT, kinds[kind].prices, times).items()))
    print(
        "\n| model | ms | analytic | fitted | measured | chosen by analytic: modelled, ran "
        "| chosen by measured: modelled, ran |"
    )
    print("|---|---|---|---|---|---|---|")
    table = []
    for path in args.models:
        with tempfile.TemporaryDirectory() as folder:
            found = whole(path, kinds, Path(folder))
        table.append(found)
        before = found["original"]
        ratios = " | ".join(f"{before[kind] / before['ran']:.2f}" for kind in kinds)
        gains = " | ".join(
            f"{before[k] / found[k][k]:.2f}x, {found[k]['speed']:.2f}x" for k in ("analytic", "measured")
        )
        print(f"| {path.stem} | {before['ran'] * 1e3:.3g} | {ratios} | {gains} |", flush=True)
    for kind in kinds:
        parts = [(f[name][kind], f[name]["ran"]) for f in table for name in f]
        ranks = spearmanr([p[0] for p in parts], [p[1] for p in parts]).statistic
        print(
            f"{kind:9} whole models: rank correlation {ranks:.3f}, "
            f"median ratio {statistics.median(a / b for a, b in parts):.3f}"
        )
    for kind in ("analytic", "measured"):
        logs = statistics.geometric_mean(f[kind]["speed"] for f in table)
        print(f"chosen by {kind} prices: {logs:.3f}x, geometric mean of what ran")


if __name__ == "__main__":
    main()
