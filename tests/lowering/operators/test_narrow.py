"""Narrow dtypes against ONNX's node tests and ml_dtypes: every code, and what rounds to it."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphopt.ir.constants import Array
from graphopt.ir.tolerance import error
from graphopt.lowering.loops.compute import compute, nest, placeholder
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.operators.narrow import FLOATS, INTEGERS, POWERS, decoded, encoded
from graphopt.lowering.operators.operation import CODE, NARROW, NotLowered
from tests.ir.backend_cases import Case, cases
from tests.lowering.operators.lowered import SMALL, described, interpreted


def _cases() -> list[Any]:
    found = [c for c in cases() if {x.dtype for x in (*c.inputs, *c.outputs) if x is not None} & NARROW]
    small = [c for c in found if sum(o.size for o in c.outputs if o is not None) <= SMALL]
    return [pytest.param(c, id=c.name) for c in small]


def _codes(array: Array) -> Array:
    return array.view(np.uint8) if array.dtype.name in NARROW else array


@pytest.mark.parametrize("case", _cases())
def test_onnx_cases(case: Case) -> None:
    operation, tensors = described(case)
    outputs = interpreted(operation, tensors, [None if c is None else _codes(c.array) for c in case.inputs])
    for want, got in zip(case.outputs, outputs, strict=False):
        assert want is not None
        if want.dtype in NARROW:
            np.testing.assert_array_equal(_codes(want.array), got)
        else:
            assert error(want.array, got) <= 1.0


def _applied(array: Array, formula: Any, dtype: str) -> Array:
    x = placeholder(array.shape, array.dtype.name)
    y = compute(array.shape, lambda i: formula(x[i]), dtype)
    out = np.empty(array.shape, dtype)
    interpret(nest("each", [x], [y]), [array, out], {})
    return out


ALL = sorted({*FLOATS, *INTEGERS, POWERS})


@pytest.mark.parametrize("dtype", ALL)
def test_every_code(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype))
    count = {"2": 4, "4": 16, "6": 64, "8": 256}[next(c for c in dtype if c.isdigit())]
    codes = np.arange(count, dtype=np.uint8)
    want = codes.view(kind).astype(np.float32)
    wide = "int32" if dtype in INTEGERS else "float32"
    got = _applied(codes, lambda x: decoded(x, dtype), wide)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_rounding(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype))
    random = np.random.default_rng(0)
    top = FLOATS[dtype].largest
    x = np.concatenate(
        [
            random.uniform(-1.2 * top, 1.2 * top, 300),
            random.uniform(-1, 1, 300) * 2.0 ** random.integers(-20, 4, 300),
            np.arange(16) / 8 * 2.0 ** (1 - FLOATS[dtype].bias),
            [0.0, -0.0, np.inf, -np.inf, np.nan, top, -top, 1e-30, 3e38],
        ]
    ).astype(np.float32)
    whole = _applied(x, lambda v: encoded(v, dtype, saturate=False), CODE)
    np.testing.assert_array_equal(whole, x.astype(kind).view(np.uint8))
    saturated = _applied(x, lambda v: encoded(v, dtype), CODE)
    np.testing.assert_array_equal(saturated, np.clip(x, -top, top).astype(kind).view(np.uint8))


def test_doubles_are_not_rounded_twice() -> None:
    with pytest.raises(NotLowered, match="one step"):
        _applied(np.ones(2), lambda v: encoded(v, "float8_e5m2"), CODE)
