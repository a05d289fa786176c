"""Our own product of matrices: calls of it, as kernel source has them, and the code that all of them share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as binding
import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import product_form, values
from graphopt.kernels.front_end import lowered
from graphopt.kernels.memory import Pointer
from graphopt.kernels.product_form import DTYPES, PANELS, PLAIN, TRANSPOSED
from graphopt.kernels.values import Value
from graphopt.kernels.vector_type import function

_WORD = llvm.IntType(64)
_WORDS = 8
"""Sizes behind the three pointers."""
PATTERN = r"graphopt_product_(float32|float64)_(\d+)x(\d+)"
"""Names of the shared code: the dtype, the rows of a tile, and the lanes of its vectors."""


def product(dtype: str, rows: int, lanes: int) -> Any:
    """The module of LLVM that has the product."""
    names: dict[str, Any] = {"__name__": f"graphopt_product_{dtype}"}
    exec(compile(product_form.source(dtype, rows, lanes), product_form.name(dtype), "exec", dont_inherit=True), names)
    kind = types.CPointer(getattr(types, dtype))  # type: ignore[no-untyped-call]
    library, described, context = lowered(names["kernel"], (kind,) * 3 + (types.int64,) * _WORDS)
    module = context.codegen()._create_empty_module("product")
    pointer = context.get_value_type(kind)
    signature = llvm.FunctionType(llvm.VoidType(), [pointer] * 3 + [_WORD] * _WORDS)
    function = llvm.Function(module, signature, f"graphopt_product_{dtype}_{rows}x{lanes}")
    builder = llvm.IRBuilder(function.append_basic_block())
    callee = context.declare_function(module, described)
    context.call_conv.call_function(builder, callee, described.restype, described.argtypes, function.args)
    builder.ret_void()
    library._final_module.link_in(binding.parse_assembly(str(module)))
    return library._final_module


def _product(name: str, transpose_a: bool, form: int) -> Callable[..., Any]:
    """A function of C, A and B (each a pointer, the element where the matrix starts, and how far apart its rows, or its
    panels and their rows, lie), and of m, n and k: ``C = op(A) @ op(B)``, m by k times k by n."""

    def define(
        c: Any, start_c: Any, ldc: Any, a: Any, start_a: Any, lda: Any, b: Any, start_b: Any, ldb: Any, m: Any, n: Any,
        k: Any,
    ) -> Any:  # fmt: skip
        if not all(isinstance(p, types.CPointer) and p.dtype == c.dtype and str(p.dtype) in DTYPES for p in (a, b, c)):
            raise TypingError(f"a product of {a} and {b} into {c}: expected pointers to float32 or to float64")

        def trace(
            c: Pointer, start_c: Value, ldc: Value, a: Pointer, start_a: Value, lda: Value, b: Pointer, start_b: Value,
            ldb: Value, m: Value, n: Value, k: Value,
        ) -> None:  # fmt: skip
            one = lda.number(1)
            ways = (one, lda) if transpose_a else (lda, one)
            places = [p.at(s).ir for p, s in ((c, start_c), (a, start_a), (b, start_b))]
            sizes = [values.cast(x, types.int64).ir for x in (ldc, *ways, ldb, m, n, k, one.number(form))]
            values.call(c.builder, product_form.name(str(c.dtype)), llvm.VoidType(), [*places, *sizes])

        return types.none, trace

    def define_in_panels(
        c: Any, start_c: Any, ldc: Any, a: Any, start_a: Any, lda: Any, b: Any, start_b: Any, ldb: Any, width: Any,
        m: Any, n: Any, k: Any,
    ) -> Any:  # fmt: skip
        result, trace = define(c, start_c, ldc, a, start_a, lda, b, start_b, ldb, m, n, k)
        return result, lambda *given: trace(*given[:9], *given[10:])

    chosen = define_in_panels if form == PANELS else define
    chosen.__name__ = f"_{name}"
    return chosen


product_np = function(_product("product_np", False, PANELS))
product_tp = function(_product("product_tp", True, PANELS))
product_nn = function(_product("product_nn", False, PLAIN))
product_nt = function(_product("product_nt", False, TRANSPOSED))
product_tn = function(_product("product_tn", True, PLAIN))
product_tt = function(_product("product_tt", True, TRANSPOSED))
