"""Weights in bfloat16: how they are rounded, and what products by them are."""

import ml_dtypes
import numpy as np
import pytest

from graphopt.ir import evaluate
from graphopt.ir.bfloat import LARGEST, PRODUCT, WEIGHTS
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs
from graphopt.ir.infer import infer
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType

TRIED = {PRODUCT, WEIGHTS}
"""The ops that are tried here."""


def rounded(w: np.ndarray, transposed: int = 0) -> np.ndarray:
    (made,) = evaluate.evaluate(WEIGHTS, Attrs(transposed=transposed), [Constant.of(w)], 1, {"": 21})
    return made.array


def test_weights_are_the_nearest():
    bits = np.random.default_rng(0).integers(0, 1 << 32, 4096, np.uint64).astype(np.uint32)
    ties = np.array([0x3F808000, 0x3F818000, 0x00008000, 0x00018000, 0x7F7F7FFF], np.uint32)
    w = np.concatenate([bits, ties]).view(np.float32)
    w = w[np.isfinite(w)].reshape(-1, 1)
    made = rounded(w).astype(np.float64)
    codes = np.arange(1 << 16, dtype=np.uint16)
    steps = np.sort(codes[codes & 0x7F80 != 0x7F80].view(ml_dtypes.bfloat16).astype(np.float64))
    place = np.clip(np.searchsorted(steps, w), 1, len(steps) - 1)
    nearest = np.minimum(np.abs(steps[place] - w), np.abs(steps[place - 1] - w))
    assert (np.abs(made - w) == nearest).all()
    normal = np.abs(w) >= np.finfo(np.float32).tiny
    assert (np.abs(made - w)[normal] <= 2.0**-8 * np.abs(w)[normal]).all()
    even = rounded(ties[:4].view(np.float32).reshape(-1, 1)).view(np.uint16)
    assert even.ravel().tolist() == [0x3F80, 0x3F82, 0x0000, 0x0002]


def test_special_weights():
    top = np.finfo(np.float32).max
    with np.errstate(invalid="ignore"):
        made = rounded(np.array([[np.nan, np.inf, -np.inf, top, -top, -0.0]], np.float32)).astype(np.float64)
    assert np.isnan(made[0, 0])
    assert made[0, 1:5].tolist() == [np.inf, -np.inf, LARGEST, -LARGEST]
    assert np.signbit(made[0, 5])


def test_a_product_is_that_of_the_rounded_weights():
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 3, 5), np.float32), rng.standard_normal((4, 5), np.float32)
    held = Constant.of(rounded(w, transposed=1))
    (y,) = evaluate.evaluate(PRODUCT, Attrs(), [Constant.of(x), held], 1, {"": 21})
    assert y.array.dtype == np.float32
    np.testing.assert_allclose(y.array, x @ w.T.astype(ml_dtypes.bfloat16).astype(np.float32), rtol=1e-6, atol=1e-6)


def test_types():
    graph = parse(
        f"x: float32[n, 3, 5] w: float32[4, 5] v = {WEIGHTS}(w, transposed=1) y = {PRODUCT}(x, v) return v, y"
    )
    facts = infer(graph)
    made = [facts[v].type for v in graph.outputs if v is not None]
    assert [t.dtype for t in made if isinstance(t, TensorType)] == ["bfloat16", "float32"]
    assert [str(t) for t in made] == ["bfloat16[5, 4]", "float32[n, 3, 4]"]
    with pytest.raises(Exception, match="weights are a matrix"):
        infer(parse(f"w: float32[4] v = {WEIGHTS}(w) return v"))
