"""TVM's half of ``ladder.py``, run by a Python that has it: it is told exercises and levels, and answers seconds.

A line in is ``EXERCISE/LEVEL/NUMBER``; a line out is the seconds of a run, of so many in a row, or what went wrong.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import cache
from time import thread_time
from typing import Any

import ladder_steps
import numpy as np
import tvm
from tvm import s_tir, te, tirx


class TvmScheduling:
    """A schedule of TVM's."""

    def __init__(self, s: Any) -> None:
        self.s = s

    def block(self, name: str) -> Any:
        """The block of that name, or what is left of it."""
        try:
            return self.s.get_sblock(name)
        except Exception:
            return self.s.get_sblock(f"{name}_update")

    def written_apart(self, block: Any) -> Any:
        """The block that copies out what a block writes from then on."""
        return self.s.cache_write(block, 0, "global")

    def in_panels(self, block: Any) -> Any:
        """The block that copies the second operand of a block into panels of columns before it."""
        copy, width = self.s.cache_read(block, 1, "global"), ladder_steps.PANEL
        self.s.transform_layout(copy, ("write", 0), lambda k, j: (j // width, k, j % width))
        return copy


def product(n: int) -> list[Any]:
    """The operands and the result of a product of squares."""
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="Y")]


def batched(count: int, n: int) -> list[Any]:
    """The operands and the result of products, of which what is below zero is zero."""
    a, b = te.placeholder((count, n, n), name="A"), te.placeholder((count, n, n), name="B")
    k = te.reduce_axis((0, n), "k")
    y = te.compute((count, n, n), lambda m, i, j: te.sum(a[m, i, k] * b[m, k, j], k), name="Y")
    return [a, b, te.compute((count, n, n), lambda *i: te.max(y(*i), tirx.const(0.0, "float32")), name="C")]


def convolution(channels: int, filters: int, side: int) -> list[Any]:
    """The operands and the result of a convolution by filters of 3 x 3."""
    a = te.placeholder((1, channels, side + 2, side + 2), name="A")
    w = te.placeholder((filters, channels, 3, 3), name="W")
    c, y, x = (te.reduce_axis((0, n), name) for n, name in ((channels, "c"), (3, "y"), (3, "x")))
    return [
        a,
        w,
        te.compute(
            (1, filters, side, side),
            lambda n, f, i, j: te.sum(a[n, c, i + y, j + x] * w[f, c, y, x], [c, y, x]),
            name="Y",
        ),
    ]


KINDS: dict[str, Callable[..., list[Any]]] = {"product": product, "batched": batched, "convolution": convolution}


def array(shape: list[int]) -> Any:
    """An array of random numbers, as ``graphopt.lowering.link.timing`` makes them."""
    size = 4 * math.prod(shape)
    memory = np.empty(size + 64, np.uint8)
    start = -memory.ctypes.data % 64
    found = memory[start : start + size].view(np.float32).reshape(shape)
    found[...] = np.random.default_rng(0).standard_normal(shape)
    return tvm.runtime.from_dlpack(found)


@cache
def built(exercise: str, level: str) -> tuple[Any, list[Any]]:
    """The compiled program, and its arrays."""
    kind, sizes, levels = ladder_steps.EXERCISES[exercise]
    tensors = KINDS[kind](*sizes)
    schedule = s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func(tensors)}))
    levels[level](TvmScheduling(schedule))
    library = tvm.compile(schedule.mod, target={"kind": "llvm", "mcpu": sys.argv[1]})
    return library.mod, [array([int(n) for n in t.shape]) for t in tensors]


def main() -> None:
    """Answers until there is nothing more to answer."""
    print(tvm.__version__, flush=True)
    for line in sys.stdin:
        exercise, level, number = line.rstrip("\n").split("/")
        try:
            library, arrays = built(exercise, level)
            timer = library.time_evaluator("main", tvm.cpu(), number=int(number), repeat=1)
            start = thread_time()
            timer(*arrays)  # it runs once before, to warm up
            print((thread_time() - start) / (int(number) + 1), flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}", flush=True)


if __name__ == "__main__":
    main()
