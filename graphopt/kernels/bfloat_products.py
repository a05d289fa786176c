"""Our own product of float32 by weights in bfloat16: calls of it, as kernel source has them, and the shared code."""

from __future__ import annotations

from typing import Any

import llvmlite.binding as binding
import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import bfloat_form, values
from graphopt.kernels.front_end import lowered
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import Value
from graphopt.kernels.vector_type import function

_WORD = llvm.IntType(64)
_WORDS = 6
"""Sizes behind the three pointers."""
_KINDS = (types.float32, types.float32, types.uint16)
PATTERN = r"graphopt_bfloat_product_(\d+)x(\d+)"
"""Names of the shared code: the rows of a tile, and the lanes of its vectors."""


def product(rows: int, lanes: int) -> Any:
    """The module of LLVM that has the product."""
    name = f"graphopt_bfloat_product_{rows}x{lanes}"
    names: dict[str, Any] = {"__name__": name}
    exec(compile(bfloat_form.source(rows, lanes), name, "exec", dont_inherit=True), names)
    kinds = [types.CPointer(t) for t in _KINDS]  # type: ignore[no-untyped-call]
    library, described, context = lowered(names["kernel"], (*kinds, *[types.int64] * _WORDS))
    module = context.codegen()._create_empty_module("product")
    pointers = [context.get_value_type(k) for k in kinds]
    made = llvm.Function(module, llvm.FunctionType(llvm.VoidType(), [*pointers, *[_WORD] * _WORDS]), name)
    builder = llvm.IRBuilder(made.append_basic_block())
    callee = context.declare_function(module, described)
    context.call_conv.call_function(builder, callee, described.restype, described.argtypes, made.args)
    builder.ret_void()
    library._final_module.link_in(binding.parse_assembly(str(module)))
    return library._final_module


def _bfloat_product(
    c: Any, start_c: Any, ldc: Any, a: Any, start_a: Any, lda: Any, b: Any, start_b: Any, ldb: Any, ldb_pair: Any,
    ldb_column: Any, m: Any, n: Any, k: Any,
) -> Any:  # fmt: skip
    """A function of C, A and B (each a pointer, the element where the matrix starts, and how far apart its sides but
    the last lie), and of m, n and k: ``C = A @ B``, m by k times k by n, with B in panels of pairs."""
    if tuple(getattr(p, "dtype", None) for p in (c, a, b)) != _KINDS:
        raise TypingError(f"a product of {a} and {b} into {c}: expected pointers to float32, and to uint16 for weights")

    def trace(
        c: Pointer, start_c: Value, ldc: Value, a: Pointer, start_a: Value, lda: Value, b: Pointer, start_b: Value,
        ldb: Value, ldb_pair: Value, ldb_column: Value, m: Value, n: Value, k: Value,
    ) -> None:  # fmt: skip
        places = [p.at(s).ir for p, s in ((c, start_c), (a, start_a), (b, start_b))]
        sizes = [values.cast(x, types.int64).ir for x in (ldc, lda, ldb, m, n, k)]
        values.call(c.builder, bfloat_form.name(), llvm.VoidType(), [*places, *sizes])

    return types.none, trace


bfloat_product = function(_bfloat_product)
