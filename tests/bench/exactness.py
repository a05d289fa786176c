"""Measures how far elementary functions of kernels are from exact, and prints the page that states it.

    python -m tests.bench.exactness [--every N] [NAME ...] > docs/functions.md

Of float32, every N-th number of all that there are is taken (1: each of them, which takes an hour); of float64, and of
powers, random numbers for each exponent. Functions go by vectors and by scalars, which have to give the same bits.
"""

from __future__ import annotations

import argparse
from itertools import chain
from math import ceil, isfinite

from tests.kernels import exactness

EACH = 500
"""Random float64 for each exponent."""
ORDINARY, PAIRS = 1 << 19, 1 << 22
HEAD = """\
# Elementary functions

Largest errors of the elementary functions in kernels (`graphopt/kernels/math.py`), in units in the last place of the
result (of the argument for `gelu`, `gelu_tanh`), plus a tenth: {which}, over {each:,} random
numbers for each exponent and more around 0 for float64 and `pow`. Vectors of any width and scalars give the same bits;
infinities, NaN, signed zeros, overflow and underflow follow IEEE 754 and C. `tests/kernels/test_math.py` tests this;
`python -m tests.bench.exactness --every {every} > docs/functions.md` writes this page.

| function | float32 | largest at | float64 |
|---|---|---|---|
"""


def measured(name: str, every: int) -> tuple[exactness.Worst, exactness.Worst]:
    """The largest errors of a function in float32 and in float64."""
    found = []
    for dtype in ("float32", "float64"):
        kernel = exactness.kernel(exactness.expression(name), dtype)
        if name in exactness.PAIRED:
            parts = [exactness.worst(name, kernel, *exactness.pairs(dtype, PAIRS))]
        else:
            fine = [exactness.exponents(dtype, EACH), exactness.ordinary(dtype, ORDINARY)]
            points = chain(fine, exactness.all_floats(every)) if dtype == "float32" else fine
            parts = [exactness.worst(name, kernel, x) for x in points]
        found.append(max(parts, key=lambda w: w.ulps if isfinite(w.ulps) else float("inf")))
    return found[0], found[1]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", help="functions (default: all)")
    arguments.add_argument("--every", type=int, default=251, help="of float32, every so many numbers")
    given = arguments.parse_args()
    which = "over all numbers of float32" if given.every == 1 else f"over every {given.every}th number of float32"
    print(HEAD.format(which=which, each=EACH, every=given.every), end="")
    for name in exactness.ORACLES:
        if not given.names or name in given.names:
            narrow, wide = measured(name, given.every)
            figures = [f"{ceil(w.ulps * 11) / 10:.1f}" if isfinite(w.ulps) else str(w.ulps) for w in (narrow, wide)]
            print(f"| `{name}` | {figures[0]} | {narrow.x:.9g} | {figures[1]} |", flush=True)


if __name__ == "__main__":
    main()
