"""Products as libraries of a GPU compute them, against numpy's of float64 on the same elements."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphopt.kernels.cuda.simulated_library import gemm
from graphopt.runtime.library_calls import Gemm

DTYPES = {"float32": np.float32, "float16": np.float16, "float64": np.float64, "bfloat16": ml_dtypes.bfloat16}
ROUNDED = {"float32": 2e-6, "float64": 1e-13, "float16": 1e-3, "bfloat16": 8e-3}


def gelu(x: Any) -> Any:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_products(dtype: str, transpose_a: bool, transpose_b: bool) -> None:
    draw, kind = np.random.default_rng(1).standard_normal, DTYPES[dtype]
    batch, m, n, k, more = 3, 4, 5, 6, 2
    # rows lie further apart than they are long, and all products share b
    a = draw((batch, *((k, m + more) if transpose_a else (m, k + more)))).astype(kind)
    b = draw((n, k + more) if transpose_b else (k, n + more)).astype(kind)
    c, bias = draw((batch, m, n + more)).astype(kind), draw(n).astype(kind)
    stored = {"a": a, "b": b, "c": c.copy(), "bias": bias}
    sizes = {"m": m, "n": n, "k": k, "lda": a.shape[2], "ldb": b.shape[1], "ldc": n + more, "batch": batch}
    steps = {"step_a": a[0].size, "step_b": 0, "step_c": c[0].size}
    places = {name: place for place, name in enumerate(stored)}

    def memory(address: int, dtype: Any) -> Any:
        return list(stored.values())[address].reshape(-1).view(dtype)

    function = Gemm(dtype, transpose_a, transpose_b, 0.5, 2.0, has_bias=True, epilogue="gelu_tanh")
    gemm(function, {**places, **sizes, **steps}, memory)
    wide = [x.astype(np.float64) for x in (a, b, c, bias)]
    left = wide[0].swapaxes(1, 2)[:, :m] if transpose_a else wide[0][:, :, :k]
    right = wide[1].T[:k] if transpose_b else wide[1][:, :n]
    wanted = gelu(0.5 * left @ right + 2.0 * wide[2][:, :, :n] + wide[3])
    close = ROUNDED[dtype]
    np.testing.assert_allclose(stored["c"][:, :, :n].astype(np.float64), wanted, rtol=close, atol=close)
    np.testing.assert_array_equal(stored["c"][:, :, n:], c[:, :, n:])


def test_a_tensor_that_is_not_there_is_an_error() -> None:
    function = Gemm()
    sizes = dict.fromkeys(function.params, 0) | {"m": 4, "n": 4, "k": 4, "lda": 4, "ldb": 4, "ldc": 4, "batch": 1}
    with pytest.raises(IndexError, match=r"\(4, 4\) with elements \(4, 1\) apart goes beyond 15 elements"):
        gemm(function, sizes, lambda address, dtype: np.zeros(15, dtype))
