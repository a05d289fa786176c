"""Times the functions that compute products of matrices, called as kernels call them, beside what prices say.

    python tests/bench/product_ways.py [--threads N] [ROWSxDEPTHxCOLUMNS ...]

For each form (plain or transposed operands) the rate of our own product and of BLAS in GFLOP/s, the functions taking
turns, the least of bursts; a star marks the one that ``graphopt.lowering.cpu.library_dispatch`` takes. The prices in
``graphopt.target`` were fitted to this.
"""

from __future__ import annotations

from functools import partial

from turns import arguments, keep_to_cores, least, sides

from graphopt.lowering.analysis.canonical_nest import chains
from graphopt.lowering.cpu.library_dispatch import SMALLEST, called_product, fastest
from graphopt.lowering.loops.compute import ReduceStage, compute, nest, placeholder, reduce_axis
from graphopt.lowering.loops.compute import sum as total
from graphopt.lowering.loops.expressions import Const, Expr
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from graphopt.program.nest_function import time_nest

SIZES = [(n, n, n) for n in (32, 64, 96, 128, 256, 512, 1024)]
SIZES += [(32, 64, 64), (32, 256, 256), (32, 768, 768), (128, 768, 768), (128, 64, 128), (1024, 256, 32)]
FORMS, NAMES = ("nn", "nt", "tn"), ("product", "gemm")


def called(name: str, form: str, m: int, k: int, n: int) -> Nest:
    """One call of a function."""
    a = f"({m}, {k})" if form[0] == "n" else f"({k}, {m})"
    b = f"({k}, {n})" if form[1] == "n" else f"({n}, {k})"
    return read(
        f"""
@program
def call(C: Buffer[({m}, {n}), "float32"], A: Buffer[{a}, "float32"], B: Buffer[{b}, "float32"]):
    invoke("{name}_{form}_float32", C[:, :], A[:, :], B[:, :], {m}, {n}, {k})
"""
    )


def taken(form: str, m: int, k: int, n: int) -> str | None:
    """The function that is taken; None where loops are."""
    x = placeholder((Const(m), Const(k)) if form[0] == "n" else (Const(k), Const(m)), "float32", "x")
    y = placeholder((Const(k), Const(n)) if form[1] == "n" else (Const(n), Const(k)), "float32", "y")
    p = reduce_axis(Const(k))

    def element(i: Expr, j: Expr) -> ReduceStage:
        left = x[i, p.var] if form[0] == "n" else x[p.var, i]
        return total(left * (y[p.var, j] if form[1] == "n" else y[j, p.var]), p)

    written = nest("product", [x, y], [compute((Const(m), Const(n)), element)], [])
    found = chains(written)
    product = None if found is None else called_product(found, written)
    return None if product is None else fastest(product)


def spent(name: str, form: str, threads: int, m: int, k: int, n: int) -> float:
    """Seconds of one call of a function, of as many as fill a while."""
    return time_nest(called(name, form, m, k, n), max(1, SMALLEST * 300 // (m * k * n)), 3, threads=threads).best


def main() -> None:
    given = arguments(__doc__, "rows x products of a sum x columns, as in 128x768x3072", "SIZES").parse_args()
    keep_to_cores(given.threads)
    ways = [(name, form) for form in FORMS for name in NAMES]
    print(" " * 20, *(f"{f'{name} {form}':>12}" for name, form in ways))
    for m, k, n in [sides(s) for s in given.names] or SIZES:
        seconds = least(*(partial(spent, name, form, given.threads, m, k, n) for name, form in ways))
        marks = ("*" if taken(form, m, k, n) == name else " " for name, form in ways)
        rates = " ".join(f"{2 * m * k * n / s / 1e9:11.1f}{mark}" for s, mark in zip(seconds, marks, strict=True))
        print(f"{f'{m} x {k} x {n}':20} {rates}", flush=True)


if __name__ == "__main__":
    main()
