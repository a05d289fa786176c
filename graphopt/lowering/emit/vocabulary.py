"""Names in kernel source: operators, functions by module, and reserved names."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping

from graphopt.ir.dtypes import HALVES
from graphopt.lowering.loops.expressions import Apply, Const, Expr, apply, select

FLOATS = frozenset({"float32", "float64", *HALVES})
"""The dtypes whose products are rounded."""
OPERATORS = {
    "mul": ("*", 6),
    "div": ("/", 6),
    "floordiv": ("//", 6),
    "mod": ("%", 6),
    "add": ("+", 5),
    "sub": ("-", 5),
    "shl": ("<<", 4),
    "shr": (">>", 4),
    "bitand": ("&", 3),
    "and": ("&", 3),
    "bitxor": ("^", 2),
    "bitor": ("|", 1),
    "or": ("|", 1),
    "lt": ("<", 0),
    "le": ("<=", 0),
    "gt": (">", 0),
    "ge": (">=", 0),
    "eq": ("==", 0),
    "ne": ("!=", 0),
}
"""Functions that are operators in the source, with how tightly they bind."""
VECTORS = {
    "min": "minimum",
    "max": "maximum",
    "fmod": "remainder",
    "round": "round_even",
    "saturate": "saturate",
    "shl": "shift_left",
    "shr": "shift_right",
    **{name: name for name in ("sqrt", "floor", "ceil", "trunc", "copysign", "fma", "isnan", "isinf")},
}
"""Functions of ``graphopt.kernels.vectors``, by what they are called here."""
MATH = {
    name: name
    for name in (
        *("exp", "log", "log1p", "expm1", "sigmoid", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
        *("cosh", "tanh", "asinh", "acosh", "atanh", "atan2", "pow"),
    )
}
"""Functions of ``graphopt.kernels.math``."""
OF_INTEGERS: Mapping[str, Callable[..., Expr]] = {
    **dict.fromkeys(["floor", "ceil", "trunc", "round"], lambda a: a),
    **dict.fromkeys(["isnan", "isinf"], lambda a: Const(False, "bool")),
    "fmin": lambda a, b: Apply("min", (a, b), a.dtype),
    "fmax": lambda a, b: Apply("max", (a, b), a.dtype),
    "copysign": lambda a, b: select(b >= 0, apply("abs", a), -apply("abs", a)),
    "fma": lambda a, b, c: a * b + c,
}
"""Functions of floats, as what they are of integers."""
MASKS = frozenset(
    [
        "first_lanes",
        "from_bfloat",
        "from_half",
        "gather_where",
        "load_strided_where",
        "load_where",
        "scatter_where",
        "sign",
        "stack",
        "store_where",
        "to_bfloat",
        "to_half",
    ]
)
"""Functions of ``graphopt.kernels.masks``."""
NARROW = frozenset({"int8", "int16", "int32", "uint8", "uint16", "uint32"})
"""Integers that numba widens in arithmetic, so that every result is cast back."""
RESERVED = MASKS.union(
    dir(builtins),
    [
        "lo",
        "hi",
        "kernel",
        "inf",
        "nan",
        "range",
        "load",
        "load_repeated",
        "load_swapped",
        "load_strided",
        "store",
        "store_strided",
        "gather",
        "scatter",
        "lookup",
        "offset",
        "splat",
        "select",
        "cast",
        "iota",
        "lane",
        "quotient",
        "product",
        "gemm",
        "transpose",
    ],
    *(
        VECTORS.values(),
        MATH.values(),
        ("reduce_add", "reduce_mul", "reduce_max", "reduce_min", "reduce_or", "reduce_and"),
    ),
)
"""Names that mean something in the source, so that no buffer may have them."""


def imports(used: set[str], libraries: Mapping[str, str]) -> Mapping[str, list[str]]:
    """The imported names by module, in order."""
    dtypes = {n for n in used if n in ("bool",) or n.rstrip("0123456789") in ("int", "uint", "float")}
    helpers = used - dtypes - {"inf", "nan"}
    mathematics = helpers & set(MATH.values())
    others = {m: sorted(n for n, library in libraries.items() if library == m) for m in sorted(set(libraries.values()))}
    return {
        "numba": sorted(dtypes),
        **others,
        "graphopt.kernels.masks": sorted(helpers & MASKS),
        "graphopt.kernels.math": sorted(mathematics),
        "graphopt.kernels.vectors": sorted(helpers - mathematics - MASKS),
    }
