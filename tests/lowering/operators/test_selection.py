"""Selections against ONNX's reference and ONNX Runtime: empty results, sizes 0 and 1, several dtypes, negative axes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphopt
from graphopt.compile import CompiledModel
from graphopt.ir import onnx_io
from graphopt.ir.constants import Array
from graphopt.ir.text import parse

RNG = np.random.default_rng(0)


@cache
def compiled(text: str) -> CompiledModel:
    """The program of a graph, in which nothing is left out."""
    made = graphopt.compile(parse(text), optimize=False, strict=True, verify="off")
    assert made.report.unlowered == ()
    return made


@cache
def session(text: str) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(onnx_io.to_bytes(parse(text)), providers=["CPUExecutionProvider"])


def run(text: str, feeds: Mapping[str, Array]) -> list[Array]:
    return list(compiled(text)(dict(feeds)).values())


def agree(text: str, feeds: Mapping[str, Array]) -> list[Array]:
    """What the program gives, which ONNX Runtime gives, too."""
    got = run(text, feeds)
    for want, found in zip(session(text).run(None, dict(feeds)), got, strict=True):
        assert found.dtype == want.dtype
        np.testing.assert_array_equal(found, want)
    return got


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "float16", "uint8"])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4), (0,), (3, 0), (1, 1), (0, 0, 2)])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_where_elements_are_not_zero(dtype: str, shape: tuple[int, ...], share: float) -> None:
    x = (RNG.random(shape) < share).astype(dtype)
    names = ", ".join("abc"[: len(shape)])
    (found,) = run(f"x: {dtype}[{names}] y = NonZero(x) return y", {"x": x})
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, np.array(np.nonzero(x), np.int64).reshape(len(shape), -1))


@pytest.mark.parametrize("rows", [0, 1, 3])
@pytest.mark.parametrize("text", ["c = Exp(x)", "a = Abs(x) c = Add(a, 1.0)", "a = Abs(x) b = Add(a, 1.0) c = Neg(b)"])
def test_positions_of_elements_none_of_which_can_be_zero_need_no_search(text: str, rows: int) -> None:
    x = RNG.standard_normal((rows, 4)).astype(np.float32)
    (found,) = agree(f"x: float32[n, 4] {text} y = NonZero(c) return y", {"x": x})
    assert found.shape == (2, rows * 4)


def test_nan_is_not_zero_and_minus_zero_is() -> None:
    (found,) = run("x: float32[a] y = NonZero(x) return y", {"x": np.array([0.0, np.nan, -0.0, 1e-45], np.float32)})
    assert found.tolist() == [[1, 3]]


@pytest.mark.parametrize("axis", [None, 0, 1, -1, -2])
@pytest.mark.parametrize("dtype", ["float32", "int32", "bool", "float16"])
def test_what_a_condition_holds_for(axis: int | None, dtype: str) -> None:
    given_axis = "" if axis is None else f", axis={axis}"
    text = f"x: {dtype}[a, b] c: bool[n] y = Compress(x, c{given_axis}) return y"
    for shape in ((4, 6), (1, 1), (3, 0), (0, 2), (5, 4)):
        size = int(np.prod(shape)) if axis is None else shape[axis]
        for count in {size, size // 2, min(size, 1), 0}:
            for share in (0.0, 0.5, 1.0):
                x, c = RNG.integers(0, 2, shape).astype(dtype), RNG.random(count) < share
                (found,) = run(text, {"x": x, "c": c})
                np.testing.assert_array_equal(found, np.compress(c, x, axis))
                assert found.dtype == x.dtype


def test_a_condition_that_is_longer_than_the_axis_ends_with_it() -> None:
    (found,) = run(
        "x: float32[a, b] c: bool[n] y = Compress(x, c, axis=0) return y",
        {"x": np.ones((2, 3), np.float32), "c": np.ones(5, bool)},
    )
    assert found.shape == (2, 3)


def uniques(x: Array, axis: int | None, is_sorted: bool) -> tuple[Array, ...]:
    """What ONNX's Unique gives, by numpy."""
    values, first, which, often = np.unique(x, True, True, True, axis)
    which = which.reshape(-1)
    if not is_sorted:
        order = np.argsort(first, kind="stable")
        place = np.argsort(order, kind="stable")
        values, first, often = np.take(values, order, axis or 0), first[order], often[order]
        which = place[which] if which.size else which
    return values, first, which, often


@pytest.mark.parametrize("is_sorted", [0, 1])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8"])
def test_each_once(is_sorted: int, axis: int | None, dtype: str) -> None:
    given_axis = "" if axis is None else f", axis={axis}"
    text = f"x: {dtype}[a, b] y, i, j, n = Unique(x, sorted={is_sorted}{given_axis}) return y, i, j, n"
    for shape in ((6, 4), (1, 1), (1, 9), (30, 2)):
        for most in (1, 2, 9):
            x = RNG.integers(0, most, shape).astype(dtype)
            for want, found in zip(uniques(x, axis, bool(is_sorted)), run(text, {"x": x}), strict=True):
                np.testing.assert_array_equal(found, want)


ORDERED = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


@pytest.mark.parametrize("dtype", [*ORDERED, "float16", "float32", "float64"])
def test_all_of_a_dtype_are_in_order(dtype: str) -> None:
    kind = np.dtype(dtype)
    if kind.kind == "f":
        ends = [np.finfo(kind).max, np.finfo(kind).min, np.finfo(kind).tiny, np.inf, -np.inf, np.nan, -0.0]
        x = np.concatenate([RNG.normal(size=700) * 100, ends, ends, [0.0]]).astype(kind)
    elif kind.kind == "b":
        x = RNG.integers(0, 2, 9).astype(bool)
    else:
        info = np.iinfo(kind)
        x = np.append(RNG.integers(info.min, info.max, 700, kind, True), np.array([info.min, info.max], kind))
    RNG.shuffle(x)
    for is_sorted in (0, 1):
        text = f"x: {dtype}[a] y, i, j, n = Unique(x, sorted={is_sorted}) return y, i, j, n"
        for want, found in zip(uniques(x, None, bool(is_sorted)), run(text, {"x": x}), strict=True):
            np.testing.assert_array_equal(found, want)


def test_each_of_nothing_once() -> None:
    text = "x: float32[a] y, i, j, n = Unique(x) return y, i, j, n"
    assert [a.shape for a in run(text, {"x": np.zeros(0, np.float32)})] == [(0,)] * 4


def test_only_values_are_asked_for() -> None:
    (found,) = run("x: int64[a, b, c] y = Unique(x) return y", {"x": np.array([[[3, 1], [3, 2]]])})
    assert found.tolist() == [1, 2, 3]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.0, 1.0, -2.0, np.inf, -np.inf, np.nan]), min_size=1, max_size=40))
def test_nan_is_one_value_and_the_largest(values: list[float]) -> None:
    x = np.array(values, np.float32)
    found = run("x: float32[a] y, i, j, n = Unique(x) return y, i, j, n", {"x": x})
    for want, got in zip(np.unique(x, True, True, True), found, strict=True):
        np.testing.assert_array_equal(got, want.reshape(-1))


SUPPRESSION = "b: float32[i, n, 4] s: float32[i, c, n] y = NonMaxSuppression(b, s{}) return y"
LIMITED = "m: int64[1] t: float32[1] u: float32[1] y = NonMaxSuppression(b, s, m, t, u{}) return y"
LIMITS = f"b: float32[i, n, 4] s: float32[i, c, n] {LIMITED}"


def drawn(images: int, classes: int, count: int, center: bool = False, width: int = 12) -> dict[str, Array]:
    """Boxes of which many overlap, some without area, and scores of which some are equal."""
    low = RNG.integers(0, width, (images, count, 2))
    size = RNG.integers(0 if count > 5 else 1, 9, (images, count, 2))
    corners = [low, size] if center else [low + size, low] if count % 2 else [low, low + size]
    scores = RNG.integers(0, 8, (images, classes, count)) / 8
    return {"b": np.concatenate(corners, -1).astype(np.float32), "s": scores.astype(np.float32)}


@pytest.mark.parametrize("center", [0, 1])
def test_boxes_that_overlap_better_ones_are_left_out(center: int) -> None:
    text = LIMITS.format(f", center_point_box={center}")
    for images, classes, count in ((1, 1, 30), (2, 3, 21), (1, 1, 1), (3, 2, 6)):
        for most in (0, 1, 4, 1000):
            for threshold, least in ((0.0, 0.0), (0.3, 0.2), (0.5, 0.9), (1.0, 0.5), (0.7, 2.0)):
                limits = {"m": np.array([most]), "t": np.float32([threshold]), "u": np.float32([least])}
                (found,) = agree(text, {**drawn(images, classes, count, bool(center)), **limits})
                assert found.shape[1] == 3


def test_many_boxes_are_left() -> None:
    for count in (64, 97, 300):
        for far in (np.float32(0), np.inf, np.nan):
            feeds = drawn(2, 2, count, width=90)
            feeds["b"][:, 5:9, 1:3] = far
            limits = {"m": np.array([1000]), "t": np.float32([0.2]), "u": np.float32([0])}
            (found,) = agree(LIMITS.format(""), {**feeds, **limits})
            assert len(found) > 4 * 40


@pytest.mark.parametrize("count", [0, 1])
def test_of_no_boxes_none_are_left(count: int) -> None:
    feeds = {"b": np.zeros((1, count, 4), np.float32), "s": np.ones((1, 2, count), np.float32)}
    limits = {"m": np.array([5]), "t": np.float32([0.5]), "u": np.float32([0])}
    (found,) = run(LIMITS.format(""), {**feeds, **limits})
    assert found.tolist() == [[0, k, 0] for k in range(2)] * count


@pytest.mark.parametrize("limits", ["", ", m", ", m, t", ", m, _, u", ", 3", ", 3, 0.5", ", [2], [0.5], [0.25]", ", 0"])
def test_limits_may_be_left_out_and_be_of_any_rank(limits: str) -> None:
    inputs = "m: int64[] t: float32[] u: float32[]"
    text = SUPPRESSION.format(limits).replace(" y =", f" {inputs} y =")
    for count in (9, 16):
        feeds = {**drawn(2, 2, count), "m": np.array(3), "t": np.float32(0.25), "u": np.float32(0.5)}
        named = {i.name for i in session(text).get_inputs()}
        agree(text, {n: np.asarray(a) for n, a in feeds.items() if n in named})


def test_what_follows_is_told_the_sizes() -> None:
    chosen = "k = NonMaxSuppression(b, s, [9], [0.5]) z = Gather(b, Squeeze(Slice(k, [2], [3], [1]), [1]), axis=1)"
    text = f"b: float32[i, n, 4] s: float32[i, c, n] {chosen} y = MatMul(z, Transpose(z, perm=[0, 2, 1])) return y"
    for count in (1, 7, 40):
        agree(text, drawn(1, 2, count))


def test_sizes_that_the_model_states_are_those_of_one_run() -> None:
    text = "x: float32[4] y: int64[1, 2] = NonZero(x) z: int64[2] = Squeeze(y, [0]) w: int64[2] = Neg(z) return w"
    for x in ([0, 1, 0, 1], [1, 1, 1, 1], [0, 0, 0, 0]):
        (found,) = run(text, {"x": np.array(x, np.float32)})
        assert found.tolist() == [-k for k in range(4) if x[k]]
