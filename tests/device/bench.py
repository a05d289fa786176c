"""What programs do on a GPU, as a Markdown table: run as a script, with paths of models to measure as well.

    python -m tests.device.bench [--seconds N] [MODEL ...]

``--simulated`` runs all of it on a few numbers without a GPU, to see that it runs.
"""

from __future__ import annotations

import argparse
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from graphopt.errors import DeviceError, MissingDependencyError
from tests.device.kernels import kernels, launches
from tests.device.ladder import ladder
from tests.device.machine import Gpu, Machine, Simulated
from tests.device.models import models, warmed
from tests.device.products import products
from tests.device.table import Line, markdown

Section = Callable[[], Iterable[Line]]


def sections(machine: Machine, paths: list[Path], ready: set[Path]) -> list[Section]:
    """All that is measured; of the models those that are ready."""
    is_tried = isinstance(machine, Simulated)
    rows, columns = (8, 16) if is_tried else (1 << 16, 1 << 10)  # 256 MB of float32
    sizes = (8,) if is_tried else (512, 1024, 2048, 4096, 8192)
    return [
        partial(launches, machine),
        partial(kernels, machine, rows, columns),
        partial(products, machine, sizes),
        partial(ladder, machine),
        partial(models, machine, paths, ready),
    ]


def measured(found: Iterable[Section], end: float) -> Iterator[Line]:
    """The lines of all sections; one that fails is told of, and those that there is no time for."""
    for section in found:
        name = getattr(section, "func", section).__name__
        try:
            for line in section():
                yield line
                if time.monotonic() > end:
                    yield Line(name, "", "no time was left for more", "", "")
                    break
        except Exception as error:  # the rest is worth having
            traceback.print_exc()
            yield Line(name, "", f"failed: {type(error).__name__}: {' '.join(str(error).split())[:200]}", "", "")


def main(arguments: list[str] | None = None) -> int:
    """Print the table; the exit code is 1 where a section failed, another one where there is no GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, help="ONNX files")
    parser.add_argument("--seconds", type=float, default=360.0, help="how long all may take")
    parser.add_argument("--simulated", action="store_true", help="without a GPU, on a few numbers")
    options = parser.parse_args(arguments)
    try:
        machine: Machine = Simulated() if options.simulated else Gpu()
    except (DeviceError, MissingDependencyError) as error:
        print(f"nothing is measured: {error}")
        return error.exit_code
    end = time.monotonic() + options.seconds
    ready = warmed(machine, options.models, options.seconds / 3)
    lines = list(measured(sections(machine, options.models, ready), end))
    print(markdown(f"Measured on one {machine.name}, medians by the device's clock; models by the host's.", lines))
    return int(any(line.ours.startswith("failed") for line in lines))


if __name__ == "__main__":
    raise SystemExit(main())
