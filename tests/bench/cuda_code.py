"""Compiles models' kernels for GPUs, which needs none, and prints what they take as rows of a Markdown table.

    python tests/bench/cuda_code.py MODEL.onnx ... [--dim NAME=N ...]

Figures are those of the worst kernel of a model: registers of a thread, bytes that it spills, and that a block shares.
``library`` counts calls of cuBLAS in one run, ``host`` the steps that are left to the processor, and which these are.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphopt.cli.values import dims
from graphopt.kernels.cuda.machine import Capability, architecture
from graphopt.run.settings import Settings
from graphopt.target import CUDA
from graphopt.tools.device_code import capability_of, device_code

COLUMNS = ("model", "for", "kernels", "registers", "spilled", "shared", "library", "host")


def row(cells: tuple[object, ...]) -> str:
    """A row of the table."""
    return f"| {' | '.join(map(str, cells))} |"


def taken(path: str, settings: Settings, capability: Capability) -> str:
    """What a model's kernels take."""
    made = device_code(Path(path), settings, capability)
    worst = [
        max((getattr(k.machine, figure) for k in made.kernels), default=0)
        for figure in ("registers", "spilled", "shared")
    ]
    host = f"{len(made.host)} ({', '.join(sorted(set(made.host)))})" if made.host else "0"
    name = architecture(capability)
    return row((Path(path).stem, name, len(made.kernels), *worst, len(made.library), host))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="files of models")
    parser.add_argument("--dim", action="append", default=[], metavar="NAME=N", help="what an open size is")
    parser.add_argument("--capability", action="append", metavar="M.N", help="8.0 and 9.0 where none is given")
    given = parser.parse_args()
    capabilities = [capability_of(text) for text in given.capability or ("8.0", "9.0")]
    settings = Settings(target=CUDA, dims=dims(given.dim))
    print(row(COLUMNS))
    print(row(("---",) * len(COLUMNS)))
    for path in given.models:
        for capability in capabilities:
            print(taken(path, settings, capability), flush=True)


if __name__ == "__main__":
    main()
