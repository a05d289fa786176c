"""Tensor intrinsics of products with int4 or int8 weights quantized in blocks, by rows of int8 in the same blocks."""

from __future__ import annotations

from functools import lru_cache

from graphopt.kernels.product_form import panel
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read

PRODUCT = "block_quantized_product_{}"


@lru_cache(maxsize=2)
def product(bits: int) -> Nest:
    """``C = (A * SA) @ ((B - Z) * SB)``, block by block, with ``B``, ``SB`` and ``Z`` in panels of columns.

    A word of ``B`` has four weights of 8 bits, or eight of 4: the low nibbles of its bytes, then the high ones.
    ``SUMS`` are those of ``A``. All weights have one zero point where ``lanes_z`` is 1, else each column has one in
    each block.
    """
    width = panel("int32")
    panels = f"(n + {width - 1}) // {width}"
    scale = f"SA[vi, vg] * SB[vj // {width}, vg, vj % {width}]"
    each, place = 32 // bits, "vp % 4 * 8" if bits == 8 else "vp % 4 * 8 + vp // 4 % 2 * 4"
    weight = f'B[vj // {width}, vg, vp // {each}, vj % {width}] >> cast({place}, "uint32")'
    zero = f"Z[vj // {width} % panels_z, vg % blocks_z, vj % {width} % lanes_z]"
    return read(f"""\
@program
def {PRODUCT.format(bits)}(
    C: Buffer[(m, n), "float32"], A: Buffer[(m, blocks, deep * {each}), "int8"], SA: Buffer[(m, blocks), "float32"],
    SUMS: Buffer[(m, blocks), "int32"], B: Buffer[({panels}, blocks, deep, {width}), "uint32"],
    SB: Buffer[({panels}, blocks, {width}), "float32"], Z: Buffer[(panels_z, blocks_z, lanes_z), "uint8"],
    m: size, n: size, blocks: size, deep: size, panels_z: size, blocks_z: size, lanes_z: size,
):
    for i, j in grid(m, n):
        with block("start"):
            vi, vj = axis.remap("SS", [i, j])
            C[vi, vj] = 0.0
    for i, j, g, p in grid(m, n, blocks, deep * {each}):
        with block("product"):
            vi, vj, vg, vp = axis.remap("SSRR", [i, j, g, p])
            C[vi, vj] = C[vi, vj] + {scale} * cast(
                cast(A[vi, vg, vp], "int32") * cast(({weight}) & {2**bits - 1}, "int32"), "float32")
    for i, j, g in grid(m, n, blocks):
        with block("zeros"):
            vi, vj, vg = axis.remap("SSR", [i, j, g])
            C[vi, vj] = C[vi, vj] - {scale} * cast(SUMS[vi, vg] * cast({zero}, "int32"), "float32")
""")
