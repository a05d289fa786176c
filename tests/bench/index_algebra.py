"""Races the CPU kernels of this tree against those of another checkout of it, where their sources differ.

    python tests/bench/index_algebra.py CHECKOUT [NAME ...] [--rounds N] [--count N]

Names are beginnings of those of ``noalias.py``'s cases; all of them, where none is given. Each tree runs in a process
of its own; the two have their turns one after the other. A row has the microseconds of a program's kernels, each by its
least time, in either tree, and their ratio (above 1: this tree is faster), with the interval that the rounds give it:
between the lower and the upper quartile of the ratios of neighbouring turns. The last line is the geometric mean.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import warnings
from pathlib import Path
from random import randrange
from statistics import quantiles
from typing import Any

import numpy as np
from turns import Table, keep_to_cores

HERE = Path(__file__).resolve()
TABLE = Table("", 40, "other:10.1f here:10.1f ratio:8.3f lower:8.3f upper:8.3f")
PLACES = 12
"""In how many places operands lie in a turn: how fast a kernel is depends on where they lie to each other."""


def elsewhere(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy some cache lines behind the beginning of a page."""
    room = np.empty(array.nbytes + 8192, np.uint8)
    begin = -room.ctypes.data % 4096 + 64 * randrange(64)
    placed = room[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    placed[...] = array
    return placed


class Tree:
    """A process that runs the code of one checkout."""

    def __init__(self, checkout: Path) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(checkout), str(HERE.parent)])}
        command = [sys.executable, str(HERE), "--serve", str(checkout)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment, cwd=checkout)

    def ask(self, *question: Any) -> Any:
        """The answer of the process."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(question), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def serve() -> None:
    """Answers questions about the kernels of the tree that is imported: their sources, and how long they take."""
    sys.path.insert(0, str(Path(sys.argv[-1], "tests", "bench")))  # its own cases, which go by its names
    import noalias

    import graphopt
    from graphopt.compile import linked_for
    from graphopt.run.settings import Settings

    warnings.simplefilter("ignore")
    keep_to_cores(1)
    cases = {
        name: (model, feeds) for name, model, feeds in (*noalias.single_ops(), *noalias.on_rows(), *noalias.of_bytes())
    }
    program: Any = None
    feeds: Any = {}
    for line in sys.stdin:
        verb, *rest = json.loads(line)
        answer: Any = None
        if verb == "cases":
            answer = list(cases)
        else:
            optimize = not isinstance(cases[rest[0]][0], graphopt.Graph) if rest else False
        if verb == "sources":
            linked = linked_for(cases[rest[0]][0], Settings(optimize=optimize))
            answer = [k.source for k in linked.kernels]
        elif verb == "compile":
            model, feeds = cases[rest[0]]
            program = graphopt.compile(model, cache=False, optimize=optimize, jobs=1)
            program(feeds)
        elif verb == "turn":
            turns = []
            for _ in range(PLACES):
                placed = {name: elsewhere(array) for name, array in feeds.items()}
                turns += [[r.seconds for r in program.profile(placed) if r.is_native] for _ in range(4)]
            answer = sum(map(min, zip(*turns, strict=True)))
        print(json.dumps(answer), flush=True)


def row(name: str, other: Tree, here: Tree, rounds: int) -> tuple[str, float]:
    """A line of the table, and its ratio."""
    for tree in (other, here):
        tree.ask("compile", name)
    turns = [(other.ask("turn"), here.ask("turn")) for _ in range(rounds)]
    lower, _, upper = quantiles((a / b for a, b in turns), n=4)
    first, second = (min(times) for times in zip(*turns, strict=True))
    return TABLE.line(name[:40], first * 1e6, second * 1e6, first / second, lower, upper), first / second


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="the other tree")
    parser.add_argument("names", nargs="*", help="beginnings of the names of cases")
    parser.add_argument("--rounds", type=int, default=9, help="how often each has its turn")
    parser.add_argument("--count", type=int, help="how many cases at most")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve()
        return
    other, here = Tree(given.checkout.resolve()), Tree(HERE.parents[2])
    starts = tuple(given.names)
    names = [n for n in here.ask("cases") if not starts or n.startswith(starts)]
    changed = [n for n in names if other.ask("sources", n) != here.ask("sources", n)]
    print(f"{len(changed)} of {len(names)} programs have other kernels\n{TABLE.heading}", flush=True)
    ratios = []
    for name in changed[: given.count]:
        line, ratio = row(name, other, here, given.rounds)
        ratios.append(ratio)
        print(line, flush=True)
    print(f"geometric mean of {len(ratios)}: {math.exp(sum(map(math.log, ratios)) / max(len(ratios), 1)):.3f}")


if __name__ == "__main__":
    main()
