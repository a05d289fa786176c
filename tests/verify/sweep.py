"""Default verification of real models: what it says of each result, and how long it takes.

    python -m tests.verify.sweep [--target NAME ...] [--json FILE] [PATH ...]

``PATH`` are models and folders of models: by default those that onnx brings (``light_*``) and the exporters' in
``tests/corpus``; ``tests/bench/fetch_models.py`` and ``more_models.py`` make larger ones. A row has the status, the
seconds of verification, those of the whole and of one run of the original, and whether the first are within the limit:
0.3 s or half of the whole, whichever is larger, and at most 10 s or five runs of the original. The last lines count.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnx

from graphopt.errors import GraphoptError
from graphopt.ir import onnx_io
from graphopt.optimize import optimize
from graphopt.verify.inputs import draw, ranges, sizes
from graphopt.verify.runtimes import EngineError, open_model

DEFAULT = Path(onnx.__file__).parent / "backend/test/data/light", Path(__file__).parents[1] / "corpus"


def row(path: Path, target: str) -> dict[str, Any]:
    """What ``optimize`` with its defaults says of a model."""
    told = {"model": path.stem, "target": target}
    with TemporaryDirectory(prefix="graphopt-") as folder:
        start = time.perf_counter()
        try:
            _, report = optimize(path, output=Path(folder) / "result.onnx", target=target, return_report=True)
        except GraphoptError as error:
            return {**told, "status": "error", "reason": str(error), "verification": 0.0, "whole": 0.0, "run": 0.0}
    whole, verified = time.perf_counter() - start, report.verification
    status = "refused" if report.left_out else verified.status
    reason = str(report.left_out[0]) if report.left_out else verified.reason
    times = {"verification": verified.seconds, "whole": whole, "run": seconds_of_a_run(path, verified.sizes)}
    return {**told, "status": status, "reason": reason, **{name: round(t, 3) for name, t in times.items()}}


def seconds_of_a_run(path: Path, drawn: tuple[dict[str, int], ...]) -> float:
    """How long the original takes, at the sizes that were drawn."""
    graph = onnx_io.load(path)
    try:
        feeds = draw(graph, drawn[0] if drawn else next(sizes(graph, {})), ranges(graph), {}, 0, 0)
        run, _ = open_model(path)
        run(feeds)
        start = time.perf_counter()
        run(feeds)
    except (EngineError, ValueError):
        return 0.0
    return time.perf_counter() - start


def is_in_time(row: dict[str, Any]) -> bool:
    """Whether verification took no longer than it may by default."""
    return bool(row["verification"] <= min(max(0.3, row["whole"] / 2), max(10.0, 5 * row["run"])))


def main() -> None:
    """Sweep, and count."""
    parser = argparse.ArgumentParser()
    parser.add_argument("paths", nargs="*", type=Path, default=DEFAULT)
    parser.add_argument("--target", action="append", help="by default portable and ort")
    parser.add_argument("--json", type=Path, help="a line for each row")
    options = parser.parse_args()
    found = (sorted(p.rglob("*.onnx")) if p.is_dir() else [p] for p in options.paths)
    rows = []
    for path in (path for paths in found for path in paths):
        for target in options.target or ("portable", "ort"):
            rows.append(made := row(path, target))
            late = "" if is_in_time(made) else " late"
            seconds = " ".join(f"{made[name]:7.2f}" for name in ("verification", "whole", "run"))
            print(
                f"{made['model'][:40]:40} {target:8} {made['status']:12} {seconds}{late} {made['reason']}", flush=True
            )
            if options.json:
                with options.json.open("a") as file:
                    file.write(json.dumps(made) + "\n")
    counts = Counter(row["status"] for row in rows)
    print(f"{counts['verified'] / max(1, len(rows)):.1%} of {len(rows)} verified", dict(counts))
    print(f"{sum(map(is_in_time, rows))} of {len(rows)} in time")


if __name__ == "__main__":
    main()
