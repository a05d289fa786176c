"""Weights in bfloat16, made and multiplied by compiled programs."""

import ml_dtypes
import numpy as np

import graphopt
from graphopt.ir import evaluate
from graphopt.ir.bfloat import PRODUCT, WEIGHTS
from graphopt.ir.text import parse


def test_weights_that_are_given_when_a_program_runs():
    graph = parse(f"x: float32[n, 5] w: float32[m, 5] y = {PRODUCT}(x, {WEIGHTS}(w, transposed=1)) return y")
    program = graphopt.compile(graph, optimize=False, strict=True)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((3, 5), np.float32), rng.standard_normal((7, 5), np.float32)
    w[0, 1], w[2, 0], w[3, 3], w[6, 4] = np.inf, np.nan, np.finfo(np.float32).max, -np.inf
    x[1, 3] = 0.5
    feeds = {"x": x, "w": w}
    with np.errstate(invalid="ignore", over="ignore"):
        np.testing.assert_allclose(program(feeds)["y"], evaluate.run(graph, feeds)["y"], rtol=1e-5, atol=1e-5)


def test_weights_as_an_output():
    graph = parse(f"w: float32[3, 4] v = {WEIGHTS}(w) return v")
    w = np.random.default_rng(1).standard_normal((3, 4), np.float32)
    got = graphopt.compile(graph, optimize=False, strict=True)({"w": w})["v"]
    assert got.dtype == ml_dtypes.bfloat16
    assert np.array_equal(got, w.astype(ml_dtypes.bfloat16))
