"""Matrix product calls from kernel source, and the code that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import product_form, values
from graphopt.kernels.numba_frontend import exported
from graphopt.kernels.product_form import (
    BLOCKS,
    BYTES,
    FIXED,
    FLOATS,
    KINDS,
    PANELS,
    PLAIN,
    QUAD,
    TRANSPOSED,
    WINDOWS,
)
from graphopt.kernels.values import VectorValue
from graphopt.kernels.vector_type import procedure

MATRICES = ("c", "start_c", "ldc", "a", "start_a", "lda", "b", "start_b")
"""C, A and B as pointers, each with the element where the matrix starts, and how far apart the rows of C and A lie."""
SIZES = ("m", "n", "k")
"""C is m by n, and its elements are sums of k products (in a window, of the channels)."""
PATTERN = rf"graphopt_product_({'|'.join(KINDS)})_(\d+)x(\d+)"
"""Names of the shared code: the kind, the rows of a tile, and the lanes of its vectors."""
_WORDS = ("ldc", "row", "step", "ldb", *SIZES, "form", *(f"most_{b}" for b in BLOCKS))
"""What the shared code is called with behind the pointers, but for what its kind fixes,"""
_WINDOW = ("kernel_0", "kernel_1", "wide", "step_0", "step_1", "dilation_0", "dilation_1")
_OF_BYTES = ("n_za", "n_zb", "shift", "line", "pixel", *_WINDOW)
"""and, for bytes, behind that."""
_DEFAULTS: Mapping[str, int] = {**dict.fromkeys(("line", "pixel"), 0), **dict.fromkeys(_WINDOW, 1)}
"""What calls pass that are not given it: a window of one place."""


def _words(right: str) -> list[str]:
    """The sizes that the shared code is called with, by the dtype of the second operand."""
    return [w for w in (*_WORDS, *(_OF_BYTES if right in BYTES else ())) if w not in FIXED[right]]


def product(kind: str, rows: int, lanes: int) -> Any:
    """The module of LLVM that has the product."""
    spec = KINDS[kind]
    is_byte = spec.group == QUAD
    dtypes = [spec.sums, spec.left, spec.right, *([spec.sums] * 2 if is_byte else [])]
    pointers = [types.CPointer(getattr(types, dtype)) for dtype in dtypes]  # type: ignore[no-untyped-call]
    words = [types.int64] * len(_words(kind.partition("_")[0]))
    source = product_form.source(kind, rows, lanes)
    return exported(f"graphopt_product_{kind}_{rows}x{lanes}", source, (*pointers, *words))


# ------------------------------------------------------------------ calls

Names = Sequence[str]


def _floats(c: str, a: str, b: str) -> str:
    """The dtype that says which product it is, of operands of such dtypes; none where there is no such product."""
    return c if c == a == b and c in FLOATS else ""


def _mixed_with(right: str) -> Callable[[str, str, str], str]:
    """The same for weights in half precision, of which no dtype of a pointer tells which it is."""
    return lambda c, a, b: right if (c, a, b) == ("float32", "float32", "uint16") else ""


def _bytes(c: str, a: str, b: str) -> str:
    return b if c == "int32" and a in BYTES and b in BYTES else ""


def _quads_of(right: str) -> Callable[[str, str, str], str]:
    """The same for an image of quads of bytes, which no dtype of a pointer tells."""
    return lambda c, a, b: right if c == b == "int32" and a in BYTES else ""


def _product(
    name: str, kind: Callable[[str, str, str], str], form: int, strides: Names, sizes: Names, transpose_a: bool = False
) -> Any:
    """The function of that name, ``C = op(A) @ op(B)``: C and A as pointers, each with the element where the matrix
    starts and how far apart its rows lie, B with how far apart its sides but the last lie, as named; of bytes then the
    zero points of A and B; then sizes."""
    zeros = ("za", "zb") if "n_za" in sizes else ()
    pointers = ("c", "a", "b", *zeros)

    def define(kinds: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], None]:
        dtypes = [str(getattr(kinds[p], "dtype", None)) for p in pointers]
        kind_name = kind(*dtypes[:3])
        if not kind_name or any(dtype != "int32" for dtype in dtypes[3:]):
            raise TypingError(f"{name} of {kinds['a']} and {kinds['b']} into {kinds['c']}: there is no such product")
        return partial(call, kind_name)

    def call(right: str, given: Mapping[str, Any]) -> None:
        one: VectorValue = given["k"].number(1)
        passed: dict[str, Any] = {n: one.number(x) for n, x in _DEFAULTS.items()} | dict(given)
        passed |= {f"most_{b}": given[b] for b in BLOCKS if b in given}
        passed |= {"form": one.number(form), "row": given["lda"], "step": one}
        if transpose_a:
            passed |= {"row": one, "step": given["lda"]}
        if zeros:
            passed["shift"] = one.number(product_form.shift(str(given["a"].dtype), right))
            passed |= {n: values.cast(given[n], types.int64) > 1 for n in ("n_za", "n_zb")}
        places = {p: given[p].at(given[f"start_{p}"]) for p in pointers}
        if zeros and form == PLAIN:  # lines of an image are one row
            places["b"] = places["b"].at(passed["pixel"])
        if zeros:
            places |= {p: places[p].cast(types.uint8) for p in ("a", "b")}
        words = [values.cast(passed[n], types.int64).ir for n in _words(right)]
        callee = product_form.name(right)
        values.call(one.builder, callee, llvm.VoidType(), [*(p.ir for p in places.values()), *words])

    zero_parameters = [part for z in zeros for part in (z, f"start_{z}")]
    return procedure(name, (*MATRICES, *strides, *zero_parameters, *sizes), define)


_FLOAT, _BYTE = (*SIZES, *BLOCKS), (*SIZES, "n_za", "n_zb")
_IMAGE = (*_BYTE, "pixel", *_WINDOW, "quads", "side_0", "side_1")

product_np = _product("product_np", _floats, PANELS, ("ldb", "width"), _FLOAT)
product_tp = _product("product_tp", _floats, PANELS, ("ldb", "width"), _FLOAT, True)
product_nn = _product("product_nn", _floats, PLAIN, ("ldb",), _FLOAT)
product_nt = _product("product_nt", _floats, TRANSPOSED, ("ldb",), _FLOAT)
product_tn = _product("product_tn", _floats, PLAIN, ("ldb",), _FLOAT, True)
product_tt = _product("product_tt", _floats, TRANSPOSED, ("ldb",), _FLOAT, True)
bfloat_product = _product("bfloat_product", _mixed_with("bfloat16"), PANELS, ("ldb", "ldb_pair", "ldb_column"), SIZES)
half_product = _product("half_product", _mixed_with("float16"), PANELS, ("ldb", "width"), SIZES)
integer_product_q = _product("integer_product_q", _bytes, PANELS, ("ldb", "ldb_group", "ldb_column"), _BYTE)
integer_product_n = _product("integer_product_n", _bytes, PLAIN, ("ldb",), _BYTE)
integer_product_t = _product("integer_product_t", _bytes, TRANSPOSED, ("ldb",), _BYTE)
integer_pixels = _product("integer_pixels", _bytes, PLAIN, ("ldb", "line"), (*_BYTE, "pixel", "side_0", "side_1"))
integer_windows_int8 = _product("integer_windows_int8", _quads_of("int8"), WINDOWS, ("line", "ldb"), _IMAGE)
integer_windows_uint8 = _product("integer_windows_uint8", _quads_of("uint8"), WINDOWS, ("line", "ldb"), _IMAGE)
