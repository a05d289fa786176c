"""Shape functions against ONNX's reference: one program for all elements that sizes depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import graphopt
from graphopt.compile import CompiledModel
from graphopt.errors import GraphoptError
from graphopt.ir import evaluate
from graphopt.ir.constants import Array
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error

RNG = np.random.default_rng(0)


def ints(*values: int) -> Array:
    return np.array(values, np.int64)


def check(text: str, draws: Sequence[Mapping[str, Array]]) -> CompiledModel:
    """The only program of a graph, which agrees with the reference on each draw."""
    graph = parse(text)
    made = graphopt.compile(graph, optimize=False, strict=True, verify="off")
    for feeds in draws:
        want, got = evaluate.run(graph, feeds), made(dict(feeds))
        for name in want:
            assert got[name].shape == np.asarray(want[name]).shape, feeds
            assert got[name].dtype == np.asarray(want[name]).dtype
            assert error(np.asarray(want[name]), got[name]) <= 1, feeds
    assert len(made._programs) == 1
    return made


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def test_slices() -> None:
    text = "x: float32[n, m] s: int64[2] e: int64[2] t: int64[2] y = Relu(Slice(x, s, e, [1, -2], t)) return y"
    ends = [-1000, -7, -3, -1, 0, 1, 2, 5, 9, 2**40, -(2**40), 2**63 - 1, -(2**63)]
    draws = []
    for _ in range(150):
        s, e = RNG.choice(ends, 2), RNG.choice(ends, 2)
        draws.append({"x": floats(*RNG.integers(0, 7, 2)), "s": s, "e": e, "t": RNG.choice([-3, -2, -1, 1, 2, 5], 2)})
    check(text, draws)


def test_slices_without_axes_and_steps() -> None:
    text = "x: float32[n, m] s: int32[2] e: int32[2] y = Neg(Slice(x, s, e)) return y"
    cases = ((0, 0, 4, 4), (1, -2, -1, 9), (2, 2, 2, 2), (-1, 0, 1, 1))
    check(text, [{"x": floats(4, 5), "s": np.int32([a, b]), "e": np.int32([c, d])} for a, b, c, d in cases])


@pytest.mark.parametrize("allowzero", [0, 1])
def test_reshapes(allowzero: int) -> None:
    text = f"x: float32[n, m] s: int64[3] y = Relu(Reshape(x, s, allowzero={allowzero})) return y"
    asked = [(2, 3, 2), (-1, 2, 3), (3, -1, 1), (1, 12, 1)] + ([] if allowzero else [(0, 0, 1), (0, -1, 2)])
    draws = [{"x": floats(3, 4), "s": ints(*sizes)} for sizes in asked]
    check(text, [*draws, {"x": floats(0, 4), "s": ints(4, 0, 3) if allowzero else ints(0, 4, 3)}])


def test_a_reshape_that_does_not_fit_is_refused() -> None:
    made = check("x: float32[n] s: int64[2] y = Reshape(x, s) return y", [{"x": floats(6), "s": ints(2, 3)}])
    for sizes in ((2, 4), (5, -1), (-1, -1)):
        with pytest.raises(GraphoptError):
            made(floats(6), ints(*sizes))


def test_expansions() -> None:
    text = "x: float32[n, 1, m] s: int64[4] y = Exp(Expand(x, s)) return y"
    asked = [(2, 3, 4, 5), (1, 1, 1, 1), (2, 3, 0, 1), (0, 1, 2, 5)]
    check(text, [{"x": floats(3, 1, 5), "s": ints(*sizes)} for sizes in asked])
    text = "x: float32[n, 1, m] s: int64[1] y = Exp(Expand(x, s)) return y"
    check(text, [{"x": floats(2, 1, 1), "s": ints(size)} for size in (0, 1, 4)])


def test_tiles() -> None:
    text = "x: int32[n, m] r: int64[2] y = Neg(Tile(x, r)) return y"
    repeats = ((1, 1), (2, 3), (0, 2), (1, 5))
    check(text, [{"x": RNG.integers(0, 9, (2, 3)).astype(np.int32), "r": ints(*r)} for r in repeats])


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pads(mode: str) -> None:
    text = f'x: float32[n, m] p: int64[4] y = Neg(Pad(x, p, mode="{mode}")) return y'
    made = check(text, [{"x": floats(4, 5), "p": ints(*p)} for p in ((0, 0, 0, 0), (1, 2, 1, 0), (2, 0, 0, 2))])
    x = floats(4, 5)
    np.testing.assert_array_equal(made(x, ints(-1, 0, 0, -2))["y"], -x[1:, :3])


def test_pads_of_some_axes() -> None:
    text = "x: float32[n, m, 3] p: int64[2] y = Neg(Pad(x, p, 1.0, [-2])) return y"
    check(text, [{"x": floats(2, 4, 3), "p": ints(*p)} for p in ((0, 0), (1, 2), (0, 3))])


@pytest.mark.parametrize("dtype", ["int64", "int32", "float32", "float64"])
def test_ranges(dtype: str) -> None:
    text = f"a: {dtype}[] b: {dtype}[] d: {dtype}[] y = Neg(Range(a, b, d)) return y"
    cases = ((0, 5, 1), (5, 0, -2), (0, 0, 1), (3, 1, 1), (1, 8, 3), (-4, -20, -5), (0, 1, 2), (1, 3, -1))
    draws = [dict(zip("abd", (np.array(v, dtype) for v in case), strict=True)) for case in cases]
    if dtype.startswith("float"):
        draws.append({"a": np.array(0.5, dtype), "b": np.array(2, dtype), "d": np.array(0.25, dtype)})
    check(text, draws)


def test_made_from_sizes() -> None:
    text = "s: int64[2] y = Cos(ConstantOfShape(s)) return y"
    check(text, [{"s": ints(*s)} for s in ((2, 3), (0, 4), (1, 1))])


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot_of_a_depth(axis: int) -> None:
    text = f"i: int64[n] d: int64[] y = Neg(OneHot(i, d, [0.0, 1.0], axis={axis})) return y"
    check(text, [{"i": ints(0, 2, -1, 7), "d": np.array(d)} for d in (1, 3, 9)])


@pytest.mark.parametrize("axis", [0, -1])
def test_so_many_of_the_largest(axis: int) -> None:
    text = f"x: float32[n, m] k: int64[1] y, i = TopK(x, k, axis={axis}) z = Neg(y) return z, i"
    made = check(text, [{"x": floats(40, 50), "k": ints(k)} for k in (0, 1, 3, 40)])
    for k in (51, -1):
        with pytest.raises(GraphoptError):
            made(floats(40, 50), ints(k))


def test_parts_of_sizes() -> None:
    text = "x: float32[n, 2] s: int64[3] a, b, c = Split(x, s) y = Concat(c, b, a, axis=0) return y, b"
    check(text, [{"x": floats(6, 2), "s": ints(*s)} for s in ((1, 2, 3), (0, 6, 0), (2, 2, 2))])


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resized(mode: str) -> None:
    by_size = f'x: float32[1, 2, n, m] s: int64[4] y = Neg(Resize(x, _, _, s, mode="{mode}")) return y'
    check(by_size, [{"x": floats(1, 2, 4, 6), "s": ints(1, 2, *s)} for s in ((4, 6), (7, 5), (8, 12), (1, 1))])
    by_scale = f'x: float32[1, 2, n, m] s: float32[4] y = Neg(Resize(x, _, s, mode="{mode}")) return y'
    check(by_scale, [{"x": floats(1, 2, 4, 6), "s": np.float32([1, 1, *s])} for s in ((2, 2), (0.5, 1.5), (1, 3))])


def test_sizes_in_a_body_that_are_elements_outside() -> None:
    body = "i: ? c: ? a: ? m: ? s = Add(a, ReduceSum(Expand(1.0, m), keepdims=0)) return c, s"
    inputs = "n: int64[] k: int64[90] z: float32[]"
    text = f"{inputs} m = Slice(k, [0], [2], [0]) y = Loop(n, _, z | m, body={{ {body} }}) return y"
    draws = []
    for first in (0, 1, 4):
        k = np.zeros(90, np.int64)
        k[:2] = first, 3
        draws.append({"n": np.array(3), "k": k, "z": np.array(0.5, np.float32)})
    check(text, draws)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_of_any_length(op: str) -> None:
    check(f"n: int64[] y = {op}(n) return y", [{"n": np.array(n)} for n in (9, 1, 64)])


def test_mel_filters_of_any_number() -> None:
    text = "n: int64[] l: int64[] y = MelWeightMatrix(n, l, 16000, 0.0, 8000.0) return y"
    check(text, [{"n": np.array(n), "l": np.array(length)} for n, length in ((8, 64), (20, 512))])
