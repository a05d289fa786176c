"""Fourier transforms, windows and mel filters against ONNX's cases, the reference and numpy."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.lowering.operators.signals import TABLE
from tests.ir.backend_cases import Case
from tests.lowering.operators.lowered import agree, cases_of, check, not_lowered
from tests.lowering.operators.shaped import agree_in_shape, ints, run

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("case", cases_of(TABLE))
def test_onnx_cases(case: Case) -> None:
    check(case)


def test_all_cases_are_lowered() -> None:
    assert not_lowered(TABLE) == set()


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("length", [None, 4, 7, 9])
@pytest.mark.parametrize("axis", [1, -2, 2])
@pytest.mark.parametrize("inverse", [0, 1])
def test_dft(parts: int, length: int | None, axis: int, inverse: int) -> None:
    x = RNG.standard_normal((1, 6, 7, parts)).astype(np.float32)
    arrays = [x, None if length is None else np.array(length), np.array(axis)]
    agree_in_shape("DFT", arrays, known={1, 2}, inverse=inverse)


@pytest.mark.parametrize("length", [None, 5, 6, 8, 9])
def test_one_side_of_a_dft(length: int | None) -> None:
    given = None if length is None else np.array(length)
    x = RNG.standard_normal((2, 7, 1)).astype(np.float32)
    agree_in_shape("DFT", [x, given, np.array(1)], known={1, 2}, onesided=1)
    half = RNG.standard_normal((2, 5, 2)).astype(np.float32)
    agree_in_shape("DFT", [half, given, np.array(1)], known={1, 2}, onesided=1, inverse=1)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_dft_of_a_size_with_a_name(size: int) -> None:
    x = RNG.standard_normal((1, size, 1)).astype(np.float64)
    agree("DFT", [x, None, np.array(1)], [["b", "n", 1], None, []], known={2})


@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("parts", [1, 2])
def test_stft(onesided: int, parts: int) -> None:
    if onesided and parts == 2:
        return
    x = RNG.standard_normal((2, 20, parts)).astype(np.float32)
    window = RNG.standard_normal(6).astype(np.float32)
    agree_in_shape("STFT", [x, np.array(3), window], known={1}, onesided=onesided)
    agree_in_shape("STFT", [x, np.array(4), None, np.array(8)], known={1, 3}, onesided=onesided)
    agree_in_shape("STFT", [x, np.array(5), window, np.array(6)], known={1, 3}, onesided=onesided)


@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("dtype", [1, 11, 10])
def test_windows(op: str, periodic: int, dtype: int) -> None:
    agree_in_shape(op, [np.array(9)], known={0}, periodic=periodic, output_datatype=dtype)
    agree_in_shape(op, [np.array(0)], known={0}, periodic=periodic, output_datatype=dtype)


@pytest.mark.parametrize(("bins", "length", "rate"), [(8, 16, 8192), (20, 256, 16000), (5, 12, 8000)])
def test_mel_filters(bins: int, length: int, rate: int) -> None:
    edges = [np.array(0, np.float32), np.array(rate / 2, np.float32)]
    arrays = [np.array(bins), np.array(length), np.array(rate), *edges]
    agree_in_shape("MelWeightMatrix", arrays, known={0, 1, 2, 3, 4})
    agree_in_shape("MelWeightMatrix", arrays, known={0, 1})


@pytest.mark.parametrize(("bins", "low", "high"), [(1, 0, 4000), (7, 300, 2500), (40, 50, 60), (3, 1000, 1000)])
def test_mel_filters_between_any_frequencies(bins: int, low: float, high: float) -> None:
    edges = [np.array(low, np.float32), np.array(high, np.float32)]
    agree_in_shape("MelWeightMatrix", [np.array(bins), np.array(64), np.array(8000), *edges], known={0, 1})


def test_a_long_transform_is_exact() -> None:
    x = RNG.standard_normal((1, 300, 1)).astype(np.float32)
    found = run("DFT", [x, ints(300), np.array(1)], (1, 151, 2), known={1, 2}, onesided=1)
    want = np.fft.rfft(x[0, :, 0].astype(np.float64))
    assert np.abs(found[0, :, 0] + 1j * found[0, :, 1] - want).max() < 2e-5 * np.abs(want).max()
