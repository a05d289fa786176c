"""What compiling models takes, in seconds of this processor, with an empty cache.

    python tests/bench/compile_time.py MODEL.onnx ...

For each model: reading and rewriting it, lowering and scheduling it and writing its kernels; then, kernel by kernel in
this process, numba's front end and LLVM. Beside them stands how many kernels there are, and how long their sources.
Seconds that the processor worked are not those that passed: two cores compile kernels in about half of the time.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from graphopt.compile import lowered, prepared
from graphopt.kernels import codegen
from graphopt.kernels import numba_frontend as front_end
from graphopt.kernels.kernel import SHARED, Kernel
from graphopt.lowering.link.options import BY_RULE
from graphopt.run.settings import Settings
from graphopt.run.steps import Steps
from graphopt.runtime.objects import SHARED_PREFIX, undefined

COLUMNS = ("optimize", "loops", "front end", "LLVM", "total")


def timed(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    """How long the processor worked, and what the function gave."""
    begin = process_time()
    made = function(*arguments)
    return process_time() - begin, made


def loops(graph: Any) -> tuple[Kernel, ...]:
    """The kernels of a graph."""
    kernels: tuple[Kernel, ...] = lowered(graph, BY_RULE, Steps()).kernels
    return kernels


def measure(model: str, folder: Path) -> str:
    """The row of a model."""
    optimize, (graph, _) = timed(prepared, model, Settings(), Steps())
    writing, kernels = timed(loops, graph)
    front = 0.0

    def lowered(*arguments: Any) -> Any:
        nonlocal front
        seconds, made = timed(front_end.lowered, *arguments)
        front += seconds
        return made

    codegen.lowered = lowered  # type: ignore[attr-defined]
    made = [timed(codegen.object_code, k, folder / f"{n}.py") for n, k in enumerate(kernels)]
    known: set[str] = set()
    while new := {f for _, code in made for f in undefined(code) if f.startswith(SHARED_PREFIX)} - known:
        made += [timed(codegen.object_code, Kernel(f, (SHARED,)), folder / f) for f in sorted(new)]
        known |= new
    both = sum(seconds for seconds, _ in made)
    seconds = (optimize, writing, front, both - front, optimize + writing + both)
    cells = "".join(f"{s:11.2f}" for s in seconds)
    return f"{Path(model).stem:16}{cells}{len(made):9}{sum(len(k.source) for k in kernels):12}"


def main(models: list[str]) -> None:
    """Prints the table."""
    print(f"{'seconds':16}{''.join(f'{c:>11}' for c in COLUMNS)}{'kernels':>9}{'characters':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            print(measure(model, Path(folder)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
