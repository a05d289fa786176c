"""What programs do on a GPU, as a Markdown table: run as a script, with paths of models to measure.

    python -m tests.device.bench [--seconds N] [--only PART ...] [MODEL ...]

Where no model is named, six are written that need no download. Each part runs in a process of its own (``parts``), so
that what goes wrong in one leaves the others alone; ``--simulated`` runs all of it on a few numbers without a GPU, to
see that it runs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from graphopt.errors import DeviceError, MissingDependencyError
from tests.device.given import written
from tests.device.kernels import kernels, launches
from tests.device.ladder import ladder
from tests.device.machine import Gpu, Machine, Simulated
from tests.device.models import ENGINES, model
from tests.device.parts import Part, failed, finished, kept
from tests.device.products import products
from tests.device.table import Line, markdown

PARTS: Mapping[str, float] = {"kernels": 3, "products": 5, "ladder": 3, "launches": 1}
"""What is measured besides models, in order, and which part of the time each may take."""
MODELS = 4.0
"""Which part of the time models may take together. They are compiled while the others are measured."""


def lines_of(part: str, machine: Machine, path: Path | None) -> Iterable[Line]:
    """The lines of one part; of a model, whose path this is, once the parent says that it is its turn."""
    is_tried = isinstance(machine, Simulated)
    if part == "kernels":
        return kernels(machine, *((8, 16) if is_tried else (1 << 16, 1 << 10)))  # 256 MB of float32
    if part == "products":
        return products(machine, (8,) if is_tried else (512, 1024, 2048, 4096, 8192))
    if part == "ladder":
        return ladder(machine)
    if part == "launches":
        return launches(machine)
    assert path is not None
    return model(machine, path, sys.stdin.readline, {} if is_tried else ENGINES)


def measured(options: argparse.Namespace, paths: list[Path], folder: Path) -> Iterator[Line]:
    """The lines of all parts; one that fails is told of, and one that there is no time for."""
    end = time.monotonic() + options.seconds
    more = ["--simulated"] if options.simulated else []
    waiting = [Part("model", MODELS / len(paths), [str(p.resolve()), *more], folder, case=p.stem) for p in paths]
    sections = [Part(name, share, more, folder) for name, share in PARTS.items() if name in options.only]
    left = [*sections, *waiting]
    try:
        for part in waiting:
            part.begin(niceness=10)
        while left:
            share = left[0].share / sum(p.share for p in left)
            yield from finished(left.pop(0), share * (end - time.monotonic()))
    finally:
        for part in (*sections, *waiting):
            part.stop()


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code is 1 where a part failed, another one where there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="ONNX files")
    parser.add_argument("--seconds", type=float, default=300.0, help="how long all may take")
    parser.add_argument("--only", nargs="+", choices=[*PARTS, "model"], default=[*PARTS, "model"], help="these parts")
    parser.add_argument("--simulated", action="store_true", help="without a GPU, on a few numbers")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        machine: Machine = Simulated() if options.simulated else Gpu()
    except (DeviceError, MissingDependencyError) as error:
        print(f"nothing is measured: {error}")
        return error.exit_code
    if options.part:
        kept(lines_of(options.part, machine, *options.models or [None]), options.part, options.into)
        return 0
    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as name:
        paths = options.models if "model" in options.only else []
        try:
            if not paths and "model" in options.only and not options.simulated:
                paths = written(Path(name))
        except Exception as error:  # the rest is worth having
            traceback.print_exc()
            lines.append(failed("model", error))
        for line in measured(options, paths, Path(name)):
            print(*filter(None, line.cells), sep=" | ", file=sys.stderr, flush=True)
            lines.append(line)
    print(markdown(f"Measured on one {machine.name}, medians by the device's clock; models by the host's.", lines))
    return int(any(line.ours.startswith("failed") for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
