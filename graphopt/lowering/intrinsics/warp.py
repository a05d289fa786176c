"""Tensor intrinsics of warps (32 threads): matrix products on tensor cores, and loads of their fragments.

A *fragment* is the part of a small matrix that each thread of a warp holds: an array of the warp's threads by the
elements of each. Which element is whose is as PTX's documentation of ``mma.sync`` has it.
"""

from __future__ import annotations

from functools import lru_cache

from graphopt.ir.constants import BITS
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read

PRODUCT, FRAGMENT = "mma_{}", "fragment_{}_{}"
FUNCTIONS = {"float16": "mma_f16", "bfloat16": "mma_bf16", "float32": "mma_tf32"}
"""By the type of operands: what multiplies them."""


def together(dtype: str) -> int:
    """The number of neighbouring elements in a 32-bit register of a thread: a warp multiplies along eight times as many
    steps at once."""
    return 32 // BITS[dtype]


@lru_cache(maxsize=4)
def product(dtype: str) -> Nest:
    """``C += A @ B`` for fragments of 16 by 8, 16 by 16 and 16 by 8 elements, summed up in float32. Of float32 there
    are 8 steps, and tensor cores see 10 bits behind the point."""
    each, row, column = together(dtype), "vl // 4 + vr // 2 * 8", "vl % 4 * 2 + vr % 2"
    thread, last, element = f"vk % {4 * each} // {each}", f"vk // {4 * each}", f"vk % {each}"
    a = f"A[({row}) % 8 * 4 + {thread}, (({row}) // 8 + {last} * 2) * {each} + {element}]"
    b = f"B[({column}) * 4 + {thread}, {last} * {each} + {element}]"
    return read(f"""\
@program
def {PRODUCT.format(dtype)}(
    C: Buffer[(32, 4), "float32"], A: Buffer[(32, {4 * each}), "{dtype}"], B: Buffer[(32, {2 * each}), "{dtype}"],
):
    for l, r, k in grid(32, 4, {8 * each}):
        with block("product"):
            vl, vr, vk = axis.remap("SSR", [l, r, k])
            C[vl, vr] = C[vl, vr] + cast({a}, "float32") * cast({b}, "float32")
""")


@lru_cache(maxsize=16)
def fragment(operand: str, way: str, dtype: str) -> Nest:
    """The fragment of a first operand (``a``), or the fragments of two neighbouring second ones (``b``), of a matrix of
    16 by 16, of float32 of 8 steps, in shared memory, which lies there transposed (``t``) or not (``n``)."""
    each = together(dtype)
    outer, step = place_of(operand, each)
    deep = is_deep(operand, way)
    name = f"{FRAGMENT.format(operand, way)}_{dtype}"
    return read(f"""\
@program
def {name}(F: Buffer[(32, {4 * each}), "{dtype}"], S: Buffer[{(16, 8 * each) if deep else (8 * each, 16)}, "{dtype}"]):
    for l, e in grid(32, {4 * each}):
        with block("fragment"):
            vl, ve = axis.remap("SS", [l, e])
            F[vl, ve] = S[{f"{outer}, {step}" if deep else f"{step}, {outer}"}]
""")


def is_deep(operand: str, way: str) -> bool:
    """Whether neighbouring steps of an operand are contiguous."""
    return (operand == "a") == (way == "n")


def place_of(operand: str, each: int) -> tuple[str, str]:
    """The row or column, and the step, of the element ``ve`` of thread ``vl``, with ``each`` elements in a register."""
    word, half = f"ve // {each} % 2", f"ve // {2 * each}"
    first, last = (word, half) if operand == "a" else (half, word)
    return f"vl // 4 + {first} * 8", f"vl % 4 * {each} + ve % {each} + {last} * {4 * each}"
