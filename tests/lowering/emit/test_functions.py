"""Every function of expressions, of every dtype that it is defined on, compiled beside the interpreter."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.lowering.loops.expressions import COMPARISONS, FUNCTIONS, LOGIC, Apply, Const, Load, Var
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import Buffer, For, Nest, Store, seq
from graphopt.lowering.loops.scalars import is_defined
from tests.lowering.native import numpy_dtype, run

N = 32
NEAR = {"float16": 2e-3, "float32": 2e-6, "float64": 1e-14}
"""Relative errors: kernels compute in single precision what is kept in half, and functions within 4 units of the last
place (``docs/functions.md``); the rest is exact."""
PARTIAL = {"floordiv", "mod", "shl", "shr"}
"""Functions that may give anything by 0, by what is negative, or of what is infinite."""
PLAIN = sorted(FUNCTIONS.keys() - {"select", "cast", "saturate", "bits"})


def values(dtype: str, seed: int) -> np.ndarray:
    """Numbers of both signs, and the special ones of the dtype."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.random(N) > 0.5
    if dtype.startswith("float"):
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5]
        return rng.permutation(np.array([*special, *rng.uniform(-4, 4, N - len(special))])).astype(dtype)
    low = 0 if dtype.startswith("uint") else -7
    return rng.integers(low, 7, N).astype(dtype)


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64", "int8", "uint32", "int64"])
def test_a_function_is_what_the_interpreter_makes_of_it(dtype: str, kind: str) -> None:
    inputs = [Buffer(name, (Const(N),), dtype) for name in "ABC"]
    outputs, loops = [], []
    for k, fn in enumerate(name for name in PLAIN if is_defined(name, dtype)):
        result = "bool" if fn in COMPARISONS | LOGIC else dtype
        i, output = Var(f"i{k}"), Buffer(f"D{k}", (Const(N),), result)
        value = Apply(fn, tuple(Load(b, (i,)) for b in inputs[: FUNCTIONS[fn]]), result)
        outputs.append((fn, output))
        loops.append(For(i, Const(N), Store(output, (i,), value), kind))  # type: ignore[arg-type]
    assert len(outputs) > 10
    nest = Nest("functions", (*inputs, *(b for _, b in outputs)), seq(*loops))
    given = [values(dtype, k) for k in range(3)]
    ordinary = np.isfinite(given[0].astype(float)) & np.isfinite(given[1].astype(float)) & (given[1] > 0)
    want, got = ([np.zeros(N, numpy_dtype(b.dtype)) for _, b in outputs] for _ in range(2))
    with np.errstate(all="ignore"):
        interpret(nest, [*given, *want])
    run(nest, [*given, *got])
    for (fn, _), expected, found in zip(outputs, want, got, strict=True):
        where = ordinary if fn in PARTIAL else slice(None)
        np.testing.assert_allclose(found[where], expected[where], rtol=NEAR.get(dtype, 0), atol=0, err_msg=fn)
