"""Gathering and scattering ops against ONNX's cases and the reference; indices that are out of range end the
program."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from graphopt.errors import ExecutionError
from graphopt.ir.constants import Array
from graphopt.lowering.loops.compute import ElementwiseStage
from graphopt.lowering.operators.indexing import TABLE
from graphopt.lowering.operators.table import describe
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, interpreted, not_lowered
from tests.lowering.operators.shaped import ints, numbers, operation


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("indices", [np.array(1), ints(0, -2, 1), np.array([[0, 1], [-1, 1]], np.int32), ints()])
def test_gather(axis: int, indices: Array) -> None:
    x, shape = numbers(2, 3, 2), indices.shape
    agree("Gather", [x, indices], axis=axis)
    agree("Gather", [x, indices], known={1}, axis=axis)
    agree("Gather", [x, indices], [["n", "m", 2], shape], axis=axis)
    agree("Gather", [x, indices], [["n", 3, "m"], [f"k{k}" for k in range(len(shape))]], axis=axis)


def test_gather_of_a_known_index_reads_it_nowhere() -> None:
    (made,) = describe(operation("Gather", [numbers(2, 3), np.array(1)], (3,), known={1}, axis=0))
    assert isinstance(made.stage, ElementwiseStage)
    assert not made.stage.requirements
    assert str(made.stage.values[0]).count("x0[") == 1


@pytest.mark.parametrize("axis", [0, 1])
def test_gather_elements(axis: int) -> None:
    indices = np.array([[0, -1, 1], [1, 0, -2]])
    agree("GatherElements", [numbers(2, 3), indices], axis=axis)
    agree("GatherElements", [numbers(2, 3), indices], [["n", "m"], ["k", "l"]], axis=axis)
    smaller = computed("GatherElements", [numbers(2, 3), indices[:1, :2]], axis=axis)[0]
    assert np.array_equal(smaller, np.take_along_axis(numbers(2, 3), indices, axis)[:1, :2])


@pytest.mark.parametrize(
    ("shape", "indices", "batch"),
    [
        ((2, 3, 4), [[0, 1], [1, -1]], 0),
        ((2, 3, 4), [[[1]], [[-1]]], 1),
        ((2, 3, 4), [[[0, 1]], [[2, -1]]], 1),
        ((2, 2, 3), [[[0], [1]], [[2], [-3]]], 2),
        ((3,), [[[2]]], 0),
    ],
)
def test_gather_nd(shape: tuple[int, ...], indices: list[Any], batch: int) -> None:
    x, where = numbers(*shape), np.array(indices)
    agree("GatherND", [x, where], batch_dims=batch)
    named = [f"n{k}" for k in range(len(shape))]
    agree("GatherND", [x, where], [named, [*named[:batch], *where.shape[batch:]]], batch_dims=batch)


@pytest.mark.parametrize("index", [3, -4, 10**15, -(10**15)])
@pytest.mark.parametrize(
    ("op", "attrs", "shape"),
    [
        ("Gather", {"axis": 0}, (1,)),
        ("GatherElements", {"axis": 0}, (1,)),
        ("GatherND", {}, (1, 1)),
    ],
)
@pytest.mark.parametrize("known", [(), (1,)])
def test_an_index_out_of_range_ends_the_program(
    op: str, attrs: dict[str, Any], shape: tuple[int, ...], index: int, known: tuple[int, ...]
) -> None:
    with pytest.raises(ExecutionError, match="an index is out of range"):
        computed(op, [numbers(3), np.full(shape, index)], known=known, **attrs)


def test_even_unchecked_a_position_never_leaves_the_axis() -> None:
    indices = ints(-(2**63), -4, -3, 0, 2, 3, 2**63 - 1)
    op = operation("Gather", [numbers(3), indices], (7,), axis=0)
    (made,) = describe(op)
    assert isinstance(made.stage, ElementwiseStage)
    object.__setattr__(made, "stage", ElementwiseStage(made.stage.axes, made.stage.values))
    (found,) = interpreted(op, [made], [numbers(3), indices])
    assert set(found.tolist()) <= {1.0, 2.0, 3.0}


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_scattered_elements(reduction: str, axis: int, dtype: str) -> None:
    indices = np.array([[0, 1, 0], [-1, 1, -2]])
    arrays: list[Array] = [numbers(3, 4, dtype=dtype), indices, (numbers(2, 3, dtype=dtype) - 2).astype(dtype)]
    agree("ScatterElements", arrays, axis=axis, reduction=reduction)
    agree("ScatterElements", arrays, [["n", "m"], ["k", "l"], ["k", "l"]], axis=axis, reduction=reduction)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(
    ("indices", "updates"),
    [
        ([[0, 1], [-1, 1]], (2, 2)),
        ([[1], [1], [-2]], (3, 3, 2)),
        ([[[0, 2, 1]]], (1, 1)),
        (np.zeros((0, 1)), (0, 3, 2)),
    ],
)
def test_scattered_slices(reduction: str, indices: Any, updates: tuple[int, ...]) -> None:
    x, where = numbers(2, 3, 2), np.array(indices, np.int64)
    arrays = [x, where, numbers(*updates)]
    agree("ScatterND", arrays, reduction=reduction)
    named = [["n", 3, "m"], ["k", *where.shape[1:]], ["k", *updates[1:]]]
    agree("ScatterND", arrays, named, reduction=reduction) if len(updates) < 3 else None


def test_what_narrow_floats_add_up_to_is_rounded_at_each_step() -> None:
    x, updates = np.array([1], ml_dtypes.bfloat16), np.full(9, 2**-8, ml_dtypes.bfloat16)
    (found,) = computed("ScatterElements", [x, np.zeros(9, np.int64), updates], axis=0, reduction="add")
    assert found.tolist() == [1.0]


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_stretch_of_a_cache(mode: str) -> None:
    cache, update = numbers(2, 1, 4, 3), -numbers(2, 1, 2, 3)
    starts = ints(1, 2) if mode == "linear" else ints(3, 9)
    agree("TensorScatter", [cache, update, starts], mode=mode)
    named = [["b", "h", "s", 3], ["b", "h", "t", 3], ["b"]]
    agree("TensorScatter", [cache, update, starts], named, mode=mode)
    agree("TensorScatter", [cache, update], mode=mode)


@pytest.mark.parametrize("index", [3, -4, 10**15, -(10**15)])
def test_an_update_out_of_range_ends_the_program(index: int) -> None:
    for op, where in (("ScatterElements", ints(index)), ("ScatterND", np.array([[index]]))):
        with pytest.raises(ExecutionError, match="an index is out of range"):
            computed(op, [numbers(3), where, numbers(1)])


@pytest.mark.parametrize("start", [3, -1, 10**15])
def test_a_stretch_beyond_the_cache_ends_the_program(start: int) -> None:
    with pytest.raises(ExecutionError, match="TensorScatter"):
        computed("TensorScatter", [numbers(1, 1, 4, 2), numbers(1, 1, 2, 2), ints(start)])


def test_indices_that_reach_beyond_other_axes_end_the_program() -> None:
    arrays = [numbers(2, 2), np.zeros((3, 1), np.int64), numbers(3, 1)]
    with pytest.raises(ExecutionError, match="ScatterElements"):
        computed("ScatterElements", arrays, [["n", "m"], ["k", "l"], ["k", "l"]], axis=1)


def test_updates_that_do_not_fit_the_indices_end_the_program() -> None:
    with pytest.raises(ExecutionError, match="ScatterElements"):
        computed("ScatterElements", [numbers(4), ints(0, 1, 2), numbers(2)], [["n"], ["k"], ["l"]], axis=0)
    with pytest.raises(ExecutionError, match="ScatterND"):
        computed("ScatterND", [numbers(4), np.zeros((3, 1), np.int64), numbers(2)], [["n"], ["k", 1], ["l"]])
