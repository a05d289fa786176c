"""TopK against ONNX's cases and numpy's stable sort: few and many elements, ties, and NaN."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphopt
from graphopt.errors import ExecutionError
from graphopt.ir.constants import Array
from graphopt.ir.facts import Fact
from graphopt.ir.text import parse
from graphopt.ir.text.elements import numpy_dtype
from graphopt.ir.types import TensorType, symbol
from graphopt.lowering.operators import sorting
from graphopt.lowering.operators.sorting import TABLE
from graphopt.lowering.operators.table import describe
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import cases_of, check, computed, interpreted, not_lowered
from tests.lowering.operators.shaped import ints, operation


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


def expected(x: Array, k: int, axis: int, largest: int) -> tuple[Array, Array]:
    """What a stable sort puts first; NaN is the largest."""
    key = np.unique(x, return_inverse=True, equal_nan=True)[1].reshape(x.shape)
    order = np.argsort(-key if largest else key, axis=axis, kind="stable").take(range(k), axis)
    return np.take_along_axis(x, order, axis), order


def assert_top(x: Array, k: int, axis: int = -1, largest: int = 1, named: bool = False) -> None:
    shapes = [[f"n{a}" for a in range(x.ndim)], [1]] if named else None
    got = computed("TopK", [x, ints(k)], shapes, known={1}, n_outputs=2, axis=axis, largest=largest)
    for want, found in zip(expected(x, k, axis, largest), got, strict=True):
        assert np.array_equal(want, found, equal_nan=want.dtype.kind == "f")


@pytest.mark.parametrize("k", [0, 1, 3, 5])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_along_axes(k: int, largest: int, axis: int) -> None:
    x = np.random.default_rng(k).integers(0, 4, (5, 6, 5)).astype(np.float32)
    assert_top(x, k, axis, largest)
    assert_top(x, k, axis, largest, named=True)


SPECIAL = [0.0, -0.0, 1.0, 2.0, -3.0, np.inf, -np.inf, np.nan, -np.nan, 1e-42, -1e-42]
WAYS: dict[str, dict[str, object]] = {
    "few": {"FEW": 99},
    "blocks": {"FEW": 99, "BLOCK": 2},
    "heap": {"FEW": 0, "CODED": frozenset()},
    "ranked": {"FEW": 0, "SHORT": 99},
    "digits": {"FEW": 0, "SHORT": 0},
    "part": {"FEW": 0, "SHORT": 0, "MANY": 0, "PART": 1},
}
"""What makes TopK go each of its ways, whatever the sizes are."""


@settings(max_examples=15, deadline=None)
@given(st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=12), st.integers(1, 12), st.integers(0, 1))
@pytest.mark.parametrize("way", [way for way in WAYS if way != "part"])
def test_ties_and_nan(way: str, values: list[float], k: int, largest: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in WAYS[way].items():
            patch.setattr(sorting, name, value)
        assert_top(np.array(values, np.float32), min(k, len(values)), largest=largest)


@pytest.mark.parametrize("k", [1, 4, 7, 16])
@pytest.mark.parametrize("largest", [0, 1])
def test_a_part_is_sorted_alone(k: int, largest: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in WAYS["part"].items():
        monkeypatch.setattr(sorting, name, value)
    assert_top(np.array([*SPECIAL, 1.25, 1.5, 0.1, 0.1, -2.0], np.float32), k, largest=largest)


@pytest.mark.parametrize(
    "dtype", ["float32", "int64", "int32", "uint32", "int8", "uint8", "bool", "float16", "float64"]
)
def test_dtypes(dtype: str) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (2, 80 * np.dtype(dtype).itemsize), np.uint8)
    x = bits % 2 == 0 if dtype == "bool" else bits.view(dtype)
    for size in (60, 80):
        for largest in (0, 1):
            assert_top(np.ascontiguousarray(x[:, :size]), 40, largest=largest)


@pytest.mark.parametrize("dtype", ["float32", "int64", "uint8", "bool", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("size", [511, 512, 1111])
@pytest.mark.parametrize("largest", [0, 1])
def test_blocks_without_anything_to_keep_are_passed_over(largest: int, size: int, dtype: str) -> None:
    x = np.random.default_rng(size).standard_normal((3, size)) * 40
    x[1], x[2, 300:] = np.sort(x[1])[:: 1 if largest else -1], -100  # all are kept for a while, and hardly any
    x = np.abs(x) if dtype == "uint8" else x
    x = (x > 0 if dtype == "bool" else x.astype(numpy_dtype(dtype))).copy()
    rows = [x]
    if "float" in dtype:
        rows.append(x.copy())
        rows[1][:, ::100] = np.nan
    for text in (f"x: {dtype}[3, {size}]", f"x: {dtype}[b, n]"):
        program = graphopt.compile(
            parse(f"{text}\nk = int64[1]{{7}}\ny, i = TopK(x, k, largest={largest})\nreturn y, i"), jobs=0
        )
        for row in rows:
            found = program(row)
            for name, want in zip("yi", expected(row.astype(np.float64), 7, -1, largest), strict=True):
                np.testing.assert_array_equal(found[name].astype(np.float64), want)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "bool"])
@pytest.mark.parametrize("largest", [0, 1])
def test_codes_of_narrow_elements_have_as_many_bits(dtype: str, largest: int) -> None:
    """In rows of which a part is sorted, and all, of known size and of any; with the limits of the dtype."""
    x = np.random.default_rng(3).integers(0, 1 << 16, (2, 4100)).astype(np.uint16)
    x = (x > 60_000) if dtype == "bool" else x.astype(dtype)
    x[1] = np.sort(x[1])
    for k in (40, 3000):
        for shape in ("2, 4100", "b, n"):
            text = f"x: {dtype}[{shape}]\nk = int64[1]{{{k}}}\ny, i = TopK(x, k, largest={largest})\nreturn y, i"
            found = graphopt.compile(parse(text), jobs=0)(x)
            for name, want in zip("yi", expected(x, k, -1, largest), strict=True):
                np.testing.assert_array_equal(found[name], want)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint32", "int8"])
@pytest.mark.parametrize("largest", [0, 1])
def test_a_small_part_is_looked_for_in_few_blocks(dtype: str, largest: int) -> None:
    """Of numbers, ties, and rows that rise or fall; of more NaN than are asked for, and of fewer."""
    x = np.random.default_rng(4).standard_normal((7, 4133)) * 50
    x[1], x[2], x[3] = np.sort(x[1]), -np.sort(-x[2]), np.arange(4133) // 1000
    x = np.abs(x).astype(dtype) if dtype == "uint32" else x.astype(numpy_dtype(dtype))
    if "float" in dtype:
        x[4, ::9], x[5, ::999], x[6, 1::2], x[6, ::2] = np.nan, np.nan, -0.0, 0.0
    text = f"x: {dtype}[7, 4133]\nk = int64[1]{{50}}\ny, i = TopK(x, k, largest={largest})\nreturn y, i"
    program = graphopt.compile(parse(text), jobs=0)
    assert any(b.name.startswith("firsts") for nest in program.nests.values() for b in nest.allocs)
    found = program(x)
    for name, want in zip("yi", expected(x.astype(np.float64), 50, -1, largest), strict=True):
        np.testing.assert_array_equal(found[name].astype(np.float64), want)


@pytest.mark.parametrize("count", [0, 1, 2, 6])
def test_how_many_may_be_known_only_when_it_runs(count: int) -> None:
    x = np.array([3, 1, 4, 1, 5, 9], np.float32)
    op = operation("TopK", [x, ints(count), np.zeros(count)], (6,), (6,), axis=-1, largest=1)
    shape = (symbol("k"),)
    size = op.size(shape[0])
    third = op.inputs[2]
    assert third is not None
    object.__setattr__(third, "shape", (size,))
    object.__setattr__(op, "outputs", (Fact(TensorType("float32", shape)), Fact(TensorType("int64", shape))))
    got = interpreted(op, describe(op), [x, ints(count), np.zeros(count)])
    for want, found in zip(expected(x, count, -1, 1), got, strict=True):
        assert np.array_equal(want, found)


def test_more_than_there_are_end_the_program() -> None:
    op = operation("TopK", [np.zeros(3, np.float32), ints(4)], (4,), (4,), axis=-1, largest=1)
    object.__setattr__(op, "outputs", (op.outputs[0], Fact(TensorType("int64", (4,)))))
    with pytest.raises(ExecutionError, match="TopK"):
        interpreted(op, describe(op), [np.zeros(3, np.float32), ints(4)])
