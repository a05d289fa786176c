"""Inline PTX: instructions without an LLVM intrinsic, with their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.ir as llvm

from graphopt.kernels.cuda.limits import SHARED_SPACE
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import element

WORD = llvm.IntType(32)
SINGLE = llvm.FloatType()


def written(builder: Any, text: str, constraints: str, result: Any, args: Sequence[Any], effects: bool) -> Any:
    """Results of a line of PTX that all threads of a warp reach together."""
    kind = llvm.FunctionType(result, [arg.type for arg in args])
    whole = ",".join(filter(None, [constraints, "~{memory}" if effects else ""]))
    asm = llvm.InlineAsm(kind, text, whole, effects)
    return builder.call(asm, args, attrs=("convergent",))


def parts(first: int, count: int) -> str:
    """PTX's text for so many operands in one, from a number on."""
    return "{" + ", ".join(f"${first + k}" for k in range(count)) + "}"


def array(builder: Any, struct: Any, kind: Any, count: int) -> Any:
    """The elements of a struct, as numba keeps a tuple of equal ones."""
    result = llvm.Constant(llvm.ArrayType(kind, count), llvm.Undefined)
    for k in range(count):
        result = builder.insert_value(result, builder.extract_value(struct, k), k)
    return result


def address(p: Pointer, space: int) -> Any:
    """The address within a space, global (1) or shared (3), as the instructions want it that know the space."""
    there = p.builder.addrspacecast(p.ir, llvm.PointerType(element(p.dtype), addrspace=space))
    return p.builder.ptrtoint(there, WORD if space == SHARED_SPACE else llvm.IntType(64))
