"""Times elementary functions of kernels against numpy: nanoseconds for an element of data that is in the first cache.

Run as a script. On one core of an AMD EPYC with AVX-512, float32, in one run: the kernel, numpy, and the ratio:

    exp       0.170 /  0.604    3.5x
    tanh      0.265 /  0.513    1.9x
    erf       0.505 / 21.400   42.4x
    sigmoid   0.256 /  1.728    6.7x
    log       0.395 /  0.527    1.3x
    sin       0.490 /  0.686    1.4x
    pow       1.487 /  0.891    0.6x

The first cache holds all; numpy's sigmoid is 1 / (1 + exp(-x)), and erf is scipy's. The power is x**x.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit
from scipy import special

from graphopt.kernels import math, vectors
from graphopt.kernels.host import vector_bytes

SIZE = 2048
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "tanh": np.tanh,
    "erf": special.erf,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "log": np.log,
    "sin": np.sin,
    "pow": lambda x: np.power(x, x),
}


def kernel(name: str) -> Any:
    """The function over all elements, many times."""
    lanes = vector_bytes() // 4
    call = "pow(x, x)" if name == "pow" else f"{name}(x)"
    names = {**vars(numba), **vars(vectors), **vars(math)}
    exec(
        f"""
def kernel(a, out, n, repeats):
    p, q = pointer(a, float32), pointer(out, float32)
    for _ in range(repeats):
        for i in range(0, n, {lanes}):
            x = load(p, i, {lanes})
            store(q, i, {call})
""",
        names,
    )
    return njit(error_model="numpy", fastmath={"contract"})(names["kernel"])


def fastest(run: Callable[[], object], calls: int) -> float:
    """Nanoseconds for an element in the fastest of ten runs, each of so many calls over all elements."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) / calls / SIZE * 1e9


def main() -> None:
    """Prints a line for each function."""
    x = np.linspace(0.01, 6, SIZE, dtype="float32")
    out = np.empty_like(x)
    for name, oracle in FUNCTIONS.items():
        ours = kernel(name)
        ours(x.ctypes.data, out.ctypes.data, SIZE, 1)

        def numpy_runs(oracle: Callable[..., Any] = oracle) -> None:
            for _ in range(200):
                oracle(x)

        own = fastest(lambda ours=ours: ours(x.ctypes.data, out.ctypes.data, SIZE, 1000), 1000)  # type: ignore[misc]
        theirs = fastest(numpy_runs, 200)
        print(f"{name:8} {own:6.3f} / {theirs:6.3f}  {theirs / own:5.1f}x")


if __name__ == "__main__":
    main()
