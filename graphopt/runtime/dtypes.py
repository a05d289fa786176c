"""Element types by name, and their layout in memory.

numpy knows most of them. Those that it does not know (bfloat16, 8-bit floats, 4-bit integers) lie in unsigned or signed
integers of the same width; whoever has a numpy type for them, as ml_dtypes has, hands it in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

OBJECTS: Final = frozenset({"string", "object"})
"""Elements that are Python objects, which no kernel sees."""

_FLOATS = ("float64", "float32", "float16", "complex64", "complex128")
_INTEGERS = ("int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8")
_STORED = {
    "bfloat16": "uint16",
    **dict.fromkeys(["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"], "uint8"),
    **dict.fromkeys(["float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "uint4", "uint2"], "uint8"),
    **dict.fromkeys(["int4", "int2"], "int8"),
}

STORAGE: Final[Mapping[str, np.dtype[Any]]] = {
    **{name: np.dtype(name) for name in (*_FLOATS, *_INTEGERS)},
    "bool": np.dtype(np.bool_),
    **{name: np.dtype(kind) for name, kind in _STORED.items()},
    **dict.fromkeys(OBJECTS, np.dtype(object)),
}
"""The numpy type in which elements lie; one element takes a byte at least."""
