"""Reductions, arg-reductions and running sums against ONNX's cases, and where there is nothing to reduce."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.ir import ops
from graphopt.ir.tolerance import error
from graphopt.lowering.operators.reductions import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered

REDUCE = sorted(op for op in TABLE if op.startswith("Reduce"))
AXES: list[tuple[int, ...] | None] = [None, (), (0,), (-1,), (0, 2), (2, 1, 0), (1, -1)]


def image(dtype: str = "float32") -> np.ndarray[Any, Any]:
    """[2, 3, 4] of numbers that are all above 0."""
    return np.random.default_rng(1).integers(1, 9, (2, 3, 4)).astype(dtype)


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


def test_every_reduction_is_described() -> None:
    assert ops.KINDS["reduce"] <= TABLE.keys()


@pytest.mark.parametrize("axes", AXES)
@pytest.mark.parametrize("op", REDUCE)
def test_axes(op: str, axes: tuple[int, ...] | None) -> None:
    given = [image(), None if axes is None else np.array(axes, np.int64)]
    for keepdims in (0, 1):
        agree(op, given, known=(1,), keepdims=keepdims)
    if axes:
        agree(op, given, [("n", 3, "m"), ()], known=(1,), keepdims=0)


def test_no_axes_can_mean_none() -> None:
    for axes in (None, np.zeros(0, np.int64)):
        for op, want in (("ReduceSum", image()), ("ReduceL1", image()), ("ReduceSumSquare", image() ** 2)):
            got = computed(op, [image(), axes], known=(1,), noop_with_empty_axes=1)[0]
            assert np.array_equal(got, want)


@pytest.mark.parametrize("dtype", ["float64", "float16", "int32", "int64"])
@pytest.mark.parametrize("op", REDUCE)
def test_dtypes(op: str, dtype: str) -> None:
    x = image(dtype)[:, :, :2]
    wide = x.astype(np.float64)
    function = {
        "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod,
        "ReduceL1": lambda a, axis: np.abs(a).sum(axis), "ReduceL2": lambda a, axis: np.sqrt((a * a).sum(axis)),
        "ReduceSumSquare": lambda a, axis: (a * a).sum(axis), "ReduceLogSum": lambda a, axis: np.log(a.sum(axis)),
        "ReduceLogSumExp": lambda a, axis: np.log(np.exp(a).sum(axis)),
    }[op]  # fmt: skip
    want = function(wide, axis=1).astype(dtype)
    got = computed(op, [x, np.array([1], np.int64)], known=(1,), keepdims=0)[0]
    assert error(want, got) <= 1.0


def test_integers_wrap_around() -> None:
    x = np.array([[2**31 - 1, 1], [5, 6]], np.int32)
    assert computed("ReduceSum", [x, np.array([1])], known=(1,), keepdims=0)[0].tolist() == [-(2**31), 11]


@pytest.mark.parametrize(
    ("op", "want"),
    [("ReduceSum", 0), ("ReduceProd", 1), ("ReduceMax", -np.inf), ("ReduceMin", np.inf), ("ReduceLogSumExp", -np.inf)],
)
def test_nothing_to_reduce(op: str, want: float) -> None:
    got = computed(op, [np.zeros((2, 0), np.float32), np.array([1])], known=(1,), keepdims=0)[0]
    assert got.tolist() == [want, want]
    empty = [np.zeros((2, 0), np.float32), np.array([1])]
    for keepdims in (0, 1):
        got = computed(op, empty, [("n", "m"), (1,)], known=(1,), keepdims=keepdims)[0]
        assert got.ravel().tolist() == [want, want]
    assert computed(op, [np.zeros((0, 2), np.float32), np.array([1])], known=(1,), keepdims=0)[0].shape == (0,)


@pytest.mark.parametrize("op", REDUCE)
def test_scalars(op: str) -> None:
    want = {"ReduceLogSum": np.log(3), "ReduceSumSquare": 9}.get(op, 3)
    assert error(np.array(want, np.float32), computed(op, [np.array(3, np.float32)])[0]) <= 1.0


def test_large_and_infinite_exponents() -> None:
    x = np.array([[1000, 1000], [-1000, -1001], [-np.inf, -np.inf], [np.inf, 0], [np.nan, 0]], np.float32)
    got = computed("ReduceLogSumExp", [x, np.array([1])], known=(1,), keepdims=0)[0]
    want = np.array([1000 + np.log(2), -1000 + np.log1p(np.exp(-1)), -np.inf, np.inf, np.nan], np.float32)
    assert error(want, got) <= 1.0


# -- positions


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_ties(op: str, last: int, axis: int) -> None:
    x = np.random.default_rng(2).integers(0, 3, (4, 3, 5))
    for dtype in ("float32", "int32", "uint8", "float16"):
        for keepdims in (0, 1):
            given = x.astype(dtype)
            agree(op, [given], [("n", 3, "m")], axis=axis, keepdims=keepdims, select_last_index=last)


@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_infinities_and_nan_have_positions(op: str) -> None:
    inf, nan = np.inf, np.nan
    x = np.array([[-inf, -inf], [inf, inf], [nan, nan], [1, nan], [nan, 1], [inf, nan], [-inf, nan], [-0.0, 0.0]])
    for shape in ((8, 2), (8, "n")):  # few elements are compared one after another
        for last in (0, 1):
            agree(op, [x.astype(np.float32)], [shape], axis=1, select_last_index=last)


def test_integer_limits_have_positions() -> None:
    for op in ("ArgMax", "ArgMin"):
        for value in (-128, 127):
            agree(op, [np.full((2, 3), value, np.int8)], axis=1)


def test_the_largest_of_each_row_is_marked() -> None:
    agree("Hardmax", [np.array([[1, 3, 3], [2, 0, 1]], np.float32)], [("n", "m")], axis=-1)
    agree("Hardmax", [image("float16")], axis=1)


# -- running sums


@pytest.mark.parametrize("op", ["CumSum", "CumProd"])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running(op: str, exclusive: int, reverse: int) -> None:
    for axis in (0, 1, -1):
        for shape in ((3, 4), (1, 1), (2, 0), (0, 2)):
            x = np.random.default_rng(3).integers(-3, 4, shape).astype(np.float32)
            given = [x, np.array(axis, np.int64)]
            agree(op, given, [("n", "m"), ()], known=(1,), exclusive=exclusive, reverse=reverse)


def test_long_sums_in_half_precision() -> None:
    x = np.full(600, 0.1, np.float16)
    got = computed("CumSum", [x, np.array(0, np.int64)], known=(1,))[0]
    assert abs(float(got[-1]) - 600 * float(x[0])) < 0.1


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_random_shapes(data: st.DataObject) -> None:
    rank = data.draw(st.integers(1, 4))
    sizes = tuple(data.draw(st.sampled_from([1, 2, 3])) for _ in range(rank))
    shape = [data.draw(st.sampled_from([n, f"n{k}"])) for k, n in enumerate(sizes)]
    axes = np.array(data.draw(st.lists(st.integers(0, rank - 1), min_size=1, unique=True)), np.int64)
    x = np.random.default_rng(4).normal(size=sizes).astype(np.float32)
    op = data.draw(st.sampled_from(["ReduceSum", "ReduceMax", "ReduceMean", "ReduceLogSumExp"]))
    agree(op, [x, axes], [shape, axes.shape], known=(1,), keepdims=data.draw(st.integers(0, 1)))


@pytest.mark.parametrize("attrs", [{}, {"reverse": 1, "exclusive": 1}])
def test_sums_across_the_last_axis_go_in_vectors(attrs: dict[str, int]) -> None:
    node = helper.make_node("CumSum", ["x", "a"], ["y"], **attrs)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [5, "m"]) for n in "xy"]
    axis = numpy_helper.from_array(np.array(0), "a")
    model = helper.make_model(helper.make_graph([node], "g", values[:1], values[1:], [axis]))
    with graphopt.compile(model, strict=True, jobs=1) as compiled:
        assert "store(" in compiled.compiled.linked.parts[0].emitted.kernel.source
        for m in (0, 1, 19, 33):
            x = np.random.default_rng(0).standard_normal((5, m)).astype(np.float32)
            got = compiled(x)["y"]
            want = np.cumsum(x[::-1], 0)[::-1] - x if attrs else np.cumsum(x, 0)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
