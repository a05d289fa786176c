"""Tensor intrinsics of a warp of 32 threads: products on tensor cores, and what brings their operands to them.

A *fragment* is the part of a small matrix that each thread of a warp holds: an array of the warp's threads by the
elements of each. Which element is whose is as PTX's documentation of ``mma.sync`` has it.
"""

from __future__ import annotations

from functools import lru_cache

from graphopt.lowering.loops import Nest
from graphopt.lowering.script import read

PRODUCT, FRAGMENT = "mma_{}", "fragment_{}_{}"


@lru_cache(maxsize=2)
def product(dtype: str) -> Nest:
    """``C += A @ B`` for fragments of 16 by 8, 16 by 16 and 16 by 8 elements, summed up in float32."""
    row, column = "vl // 4 + vr // 2 * 8", "vl % 4 * 2 + vr % 2"
    a = f"A[({row}) % 8 * 4 + vk % 8 // 2, (({row}) // 8 + vk // 8 * 2) * 2 + vk % 2]"
    b = f"B[({column}) * 4 + vk % 8 // 2, vk // 8 * 2 + vk % 2]"
    return read(f"""\
@program
def {PRODUCT.format(dtype)}(
    C: Buffer[(32, 4), "float32"], A: Buffer[(32, 8), "{dtype}"], B: Buffer[(32, 4), "{dtype}"],
):
    for l, r, k in grid(32, 4, 16):
        with block("product"):
            vl, vr, vk = axis.remap("SSR", [l, r, k])
            C[vl, vr] = C[vl, vr] + cast({a}, "float32") * cast({b}, "float32")
""")


@lru_cache(maxsize=8)
def fragment(operand: str, way: str, dtype: str) -> Nest:
    """The fragment of a first operand (``a``), or the fragments of two neighbouring second ones (``b``), of a matrix of
    16 by 16 in shared memory, which lies there transposed (``t``) or not (``n``)."""
    first, last = ("ve // 2 % 2", "ve // 4") if operand == "a" else ("ve // 4", "ve // 2 % 2")
    outer, step = f"vl // 4 + {first} * 8", f"vl % 4 * 2 + ve % 2 + {last} * 8"
    is_deep = (operand == "a") == (way == "n")
    place = f"{outer}, {step}" if is_deep else f"{step}, {outer}"
    name = f"{FRAGMENT.format(operand, way)}_{dtype}"
    return read(f"""\
@program
def {name}(F: Buffer[(32, 8), "{dtype}"], S: Buffer[(16, 16), "{dtype}"]):
    for l, e in grid(32, 8):
        with block("fragment"):
            vl, ve = axis.remap("SS", [l, e])
            F[vl, ve] = S[{place}]
""")
