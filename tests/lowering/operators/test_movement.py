"""Ops that put elements elsewhere, against ONNX's cases and the reference, at sizes that are known and that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphopt.errors import ExecutionError
from graphopt.lowering.loops.compute import ElementwiseStage, Tensor, reads
from graphopt.lowering.loops.expressions import Apply
from graphopt.lowering.operators.movement import TABLE
from graphopt.lowering.operators.operation import NotKnown
from graphopt.lowering.operators.table import describe
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, computed, not_lowered
from tests.lowering.operators.shaped import ints, numbers, operation, run

END = np.iinfo(np.int64).max
"""Where slices end that go to the end."""


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


# -- shapes


@pytest.mark.parametrize("shape", [(), (1,), (3, 1, 4), (2, 0, 3), (2, 3, 4, 2)])
def test_transpose(shape: tuple[int, ...]) -> None:
    agree("Transpose", [numbers(*shape)])
    agree("Transpose", [numbers(*shape)], [[f"n{k}" for k in range(len(shape))]])
    if shape:
        agree("Transpose", [numbers(*shape)], perm=(*range(1, len(shape)), 0))


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        ((2, 3, 4), (2, 12)), ((2, 3, 4), (-1,)), ((2, 3, 4), (4, 0, 2)), ((6, 4), (3, 8)), ((), (1, 1)), ((1, 1), ()),
        ((0, 3), (3, 0)), ((2, 12), (0, 3, -1)), ((5,), (5, 1)), ((4, 9), (6, 6)), ((2, 3, 5, 7), (6, 35)),
    ],
)  # fmt: skip
def test_reshape(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    allowzero = int(0 in shape)
    agree("Reshape", [numbers(*shape), ints(*target)], known={1}, allowzero=allowzero)


@pytest.mark.parametrize("sizes", [(1, 1), (2, 5), (3, 4), (0, 2)])
def test_reshape_of_sizes_with_names(sizes: tuple[int, int]) -> None:
    n, m = sizes
    agree("Reshape", [numbers(n, m, 12), ints(0, 0, 3, 4)], [["n", "m", 12], [4]], known={1})
    agree("Reshape", [numbers(n, m, 3, 4), ints(0, 0, -1)], [["n", "m", 3, 4], [3]], known={1}) if n * m else None
    agree("Reshape", [numbers(n, m, 3), ints(-1, 3)], [["n", "m", 3], [2]], known={1})


def test_a_shape_that_does_not_fit_is_met() -> None:
    assert np.array_equal(run("Reshape", [numbers(2, 3), ints(6)], (6,)), np.arange(1, 7))
    with pytest.raises(ExecutionError, match="Reshape"):
        run("Reshape", [numbers(2, 3), ints(7)], (7,))


def test_flatten_and_squeeze_and_unsqueeze() -> None:
    for axis in range(-3, 4):
        agree("Flatten", [numbers(2, 3, 4)], axis=axis)
    agree("Flatten", [numbers(2, 3, 4)], [["n", 3, "m"]], axis=2)
    agree("Squeeze", [numbers(1, 3, 1)])
    agree("Squeeze", [numbers(1, 3, 1), ints(-1)], known={1})
    agree("Squeeze", [numbers(1, 3, 1), ints(0)], [["n", "m", 1], [1]], known={1})
    agree("Unsqueeze", [numbers(2, 3), ints(0, -1)], [["n", "m"], [2]], known={1})
    agree("Unsqueeze", [numbers(), ints(0)], known={1})


def test_an_axis_to_be_squeezed_has_the_size_1() -> None:
    with pytest.raises(ExecutionError, match="Squeeze"):
        computed("Squeeze", [numbers(2, 3), ints(0)], [["n", "m"], [1]], known={1})


@pytest.mark.parametrize(("shape", "target"), [((3, 1), (2, 1, 4)), ((), (2, 2)), ((1, 3), (1,)), ((2, 1), (2, 0))])
def test_expand(shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    agree("Expand", [numbers(*shape), ints(*target)], known={1})
    if 0 not in target:
        agree(
            "Expand", [numbers(*shape), ints(*target)], [[f"n{k}" for k in range(len(shape))], [len(target)]], known={1}
        )


def test_a_size_that_does_not_expand_is_met() -> None:
    with pytest.raises(ExecutionError, match="Expand"):
        run("Expand", [numbers(3, 2), ints(5, 2)], (5, 2))


def test_tile() -> None:
    agree("Tile", [numbers(2, 3), ints(2, 3)], known={1})
    agree("Tile", [numbers(2, 1, 3), ints(1, 4, 0)], known={1})
    agree("Tile", [numbers(2, 3), ints(1, 2)], [["n", "m"], [2]], known={1})
    for times in (0, 1, 3, 4, 5):
        agree("Tile", [numbers(2, 3), ints(2, times)], [["n", "m"], [2]], known={1})
        agree("Tile", [numbers(2, 0), ints(1, times)], [["n", "m"], [2]], known={1})


# -- parts


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concat(count: int, axis: int) -> None:
    shapes = [[2, 3, 2] for _ in range(count)]
    for k, shape in enumerate(shapes):
        shape[axis] = (k * 2) % 3
    arrays = [numbers(*shape) + 100 * k for k, shape in enumerate(shapes)]
    agree("Concat", arrays, axis=axis)
    named: list[list[int | str]] = [[*shape] for shape in shapes]
    for k, name in enumerate(named):
        name[axis] = f"n{k}"
    agree("Concat", arrays, named, axis=axis)


def test_the_inputs_of_a_concat_are_told_apart_in_few_steps() -> None:
    arrays = [numbers(2, 1) for _ in range(64)]
    (made,) = describe(operation("Concat", arrays, (2, 64), axis=1))
    assert isinstance(made.stage, ElementwiseStage)

    def depth(e: Any) -> int:
        own = isinstance(e, Apply) and e.fn == "select"
        return int(own) + max((depth(c) for c in e.args), default=0) if isinstance(e, Apply) else 0

    assert depth(made.stage.values[0]) == 6


def test_other_axes_of_a_concat_have_to_agree() -> None:
    with pytest.raises(ExecutionError, match="Concat"):
        computed("Concat", [numbers(3, 1), numbers(2, 1)], [["n", 1], ["m", 1]], axis=1)


def test_split() -> None:
    agree("Split", [numbers(7, 2)], n_outputs=3, axis=0, num_outputs=3)
    agree("Split", [numbers(2, 6), ints(1, 0, 5)], known={1}, n_outputs=3, axis=-1)
    agree("Split", [numbers(2, 6), ints(2, 4)], [["n", 6], [2]], known={1}, n_outputs=2, axis=1)
    agree("Split", [numbers(6, 2)], [["n", "m"]], n_outputs=2, axis=0, num_outputs=2)


SLICES = [
    (1, 4, 1), (0, 100, 2), (-3, -1, 1), (4, -100, -1), (-1, 0, -2), (3, 3, 1), (-100, 2, 1), (100, 0, -3)
]  # fmt: skip


@pytest.mark.parametrize(("start", "end", "step"), SLICES)
def test_slice_with_all_that_is_known(start: int, end: int, step: int) -> None:
    for axis in (1, -2):
        agree("Slice", [numbers(5, 6), ints(start), ints(end), ints(axis), ints(step)], known={1, 2, 3, 4})


@pytest.mark.parametrize("size", [0, 1, 2, 5])
@pytest.mark.parametrize(
    ("start", "end", "step"),
    [
        (1, END, 1), (0, 2, 1), (-2, END, 1), (0, -1, 1), (0, END, 2), (-1, -END, -1), (3, -END - 1, -1),
        (-2, -END - 1, -2), (END, 1, -3), (4, -3, -1), (-1, -4, -2), (-END - 1, 3, 1),
    ],
)  # fmt: skip
def test_slice_of_sizes_with_names(size: int, start: int, end: int, step: int) -> None:
    arrays = [numbers(size), ints(start), ints(end), ints(0), ints(step)]
    agree("Slice", arrays, [["n"], [1], [1], [1], [1]], known={1, 2, 3, 4})


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(-8, 8), st.integers(-8, 8), st.sampled_from([1, 2, -1, -3]))
def test_slice_whose_bounds_are_read_when_it_runs(size: int, start: int, end: int, step: int) -> None:
    x = numbers(2, size)
    want = x[:, start:end:step]
    arrays = [x, ints(0, start), ints(9, end), ints(0, 1), ints(1, step)]
    assert np.array_equal(run("Slice", arrays, want.shape, known={3}), want)


@pytest.mark.parametrize(("start", "step"), [(3, 1), (-1, 1), (0, 2), (10**12, 1), (0, -1), (-(10**15), -1)])
def test_a_slice_that_would_leave_memory_is_met(start: int, step: int) -> None:
    with pytest.raises(ExecutionError, match="Slice"):
        run("Slice", [numbers(5), ints(start), ints(99), ints(0), ints(step)], (4,), known={3})


def test_axes_have_to_be_known() -> None:
    with pytest.raises(NotKnown) as raised:
        describe(operation("Slice", [numbers(5), ints(0), ints(2), ints(0)], (2,)))
    assert raised.value.input == 3


# -- other arrangements


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
def test_depth_and_space(mode: str) -> None:
    agree("DepthToSpace", [numbers(2, 8, 2, 3)], blocksize=2, mode=mode)
    agree("DepthToSpace", [numbers(2, 8, 2, 3)], [["n", 8, "h", "w"]], blocksize=2, mode=mode)
    agree("SpaceToDepth", [numbers(2, 3, 4, 6)], blocksize=2)


def test_reverse_sequence_never_leaves_a_sequence() -> None:
    x = numbers(4, 3)
    agree("ReverseSequence", [x, ints(1, 4, 0)], time_axis=0, batch_axis=1)
    agree("ReverseSequence", [x, ints(3, 2, 1, 0)], time_axis=1, batch_axis=0)
    computed("ReverseSequence", [x, ints(-5, 99, 2)], time_axis=0, batch_axis=1)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [-9, -1, 0, 2, 9])
def test_trilu(upper: int, k: int) -> None:
    agree("Trilu", [numbers(2, 3, 4), np.array(k, np.int64)], [["n", "h", "w"], []], upper=upper)
    agree("Trilu", [numbers(3, 4, dtype="int8"), np.array(k, np.int64)], known={1}, upper=upper)


def test_everything_here_is_one_stage_that_fusion_can_write_out() -> None:
    made: list[Tensor] = []
    for op, arrays, shape, attrs in [
        ("Transpose", [numbers(2, 3)], (3, 2), {}),
        ("Reshape", [numbers(2, 3), ints(3, 2)], (3, 2), {}),
        ("Concat", [numbers(2, 3), numbers(2, 3)], (4, 3), {"axis": 0}),
        ("Tile", [numbers(2, 3), ints(2, 1)], (4, 3), {}),
    ]:
        made += describe(operation(op, arrays, shape, **attrs))
    for tensor in made:
        assert isinstance(tensor.stage, ElementwiseStage)
        assert not tensor.stage.requirements
        assert all(source.stage is None for source in reads(tensor))
