"""Our own product of bytes: calls of it, as kernel source has them, and the code that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import integer_form, values
from graphopt.kernels.integer_form import COLUMNS, DTYPES, QUADS, ROWS, WINDOWS
from graphopt.kernels.memory import Pointer
from graphopt.kernels.numba_frontend import exported
from graphopt.kernels.values import Value
from graphopt.kernels.vector_type import procedure

_POINTERS = ("c", "a", "b", "za", "zb")
_MATRIX = ("ldc", "lda", "ldb", "na", "nb", "shift", "m", "n", "k", "form")
_WINDOWS = ("line", "pixel", "kernel_0", "kernel_1", "wide", "step_0", "step_1", "dilation_0", "dilation_1")
PATTERN = r"graphopt_integer_product_(uint8|int8)_(\d+)x(\d+)_(dot|plain)"
"""Names of the shared code: the dtype of the second operand, the rows of a tile, the lanes of its vectors, and how they
are multiplied."""


def product(right: str, rows: int, lanes: int, instruction: str) -> Any:
    """The module of LLVM that has the product."""
    dtypes = (types.int32, types.uint8, types.uint8, types.int32, types.int32)
    words = (types.int64,) * (len(_MATRIX) + len(_WINDOWS))
    return exported(
        f"graphopt_integer_product_{right}_{rows}x{lanes}_{instruction}",
        integer_form.source(right, rows, lanes, instruction),
        (*(types.CPointer(t) for t in dtypes), *words),  # type: ignore[no-untyped-call]
    )


# ------------------------------------------------------------------ calls

SIZES = ("m", "n", "k", "n_za", "n_zb")
"""What any of them is called with behind the operands: rows, columns and products of a sum (in a window, the channels),
and how many zero points there are of either operand, one or as many as rows and columns."""
NO_WINDOWS: Mapping[str, int] = {
    **dict.fromkeys(("line", "pixel"), 0),
    **dict.fromkeys(_WINDOWS[2:], 1),
}


def _product(name: str, form: int, strides: Sequence[str], windows: Sequence[str] = (), right: str = "") -> Any:
    """The function of that name: C, A, B and the zero points of A and B as pointers, each with the element where it
    starts and how far apart its sides but the last lie (of the second operand as named); then sizes. The bytes of the
    second operand are of dtype ``right`` where it holds quads of them."""
    places = ("c", "start_c", "ldc", "a", "start_a", "lda", "b", "start_b", *strides)
    are_bytes = [False, True, not right, False, False]

    def define(given: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], None]:
        kinds = [getattr(given[p], "dtype", None) for p in _POINTERS]
        others = {k for k, is_byte in zip(kinds, are_bytes, strict=True) if not is_byte}
        if [str(k) in DTYPES for k in kinds] != are_bytes or others != {types.int32}:
            raise TypingError(f"a product of {kinds[1]} and {kinds[2]} into {kinds[0]}: expected bytes, and int32")
        return lambda operands: _call(operands, form, right or str(kinds[2]))

    return procedure(name, (*places, "za", "start_za", "zb", "start_zb", *SIZES, *windows), define)


def _call(given: Mapping[str, Any], form: int, right: str) -> None:
    """Calls the shared code."""
    one: Value = given["k"].number(1)
    passed = {n: one.number(x) for n, x in NO_WINDOWS.items()}
    passed |= {"form": one.number(form), "shift": one.number(integer_form.shift(str(given["a"].dtype), right))}
    passed |= {n: values.cast(given[f"n_z{n[1]}"], types.int64) > 1 for n in ("na", "nb")}
    passed |= {n: given[n] for n in (*_MATRIX, *_WINDOWS) if n in given}
    pointers = []
    for name in _POINTERS:
        place: Pointer = given[name].at(given[f"start_{name}"])
        if name == "b" and form == ROWS:  # lines of an image are one row
            place = place.at(passed["pixel"])
        pointers.append((place.cast(types.uint8) if name in ("a", "b") else place).ir)
    words = [values.cast(passed[n], types.int64).ir for n in (*_MATRIX, *_WINDOWS)]
    values.call(given["c"].builder, integer_form.name(right), llvm.VoidType(), [*pointers, *words])


_OVER = (*_WINDOWS[1:], "quads", "side_0", "side_1")

integer_product_q = _product("integer_product_q", QUADS, ("ldb", "ldb_group", "ldb_column"))
integer_product_n = _product("integer_product_n", ROWS, ("ldb",))
integer_product_t = _product("integer_product_t", COLUMNS, ("ldb",))
integer_pixels = _product("integer_pixels", ROWS, ("ldb", "line"), ("pixel", "side_0", "side_1"))
integer_windows_int8 = _product("integer_windows_int8", WINDOWS, ("line", "ldb"), _OVER, "int8")
integer_windows_uint8 = _product("integer_windows_uint8", WINDOWS, ("line", "ldb"), _OVER, "uint8")
