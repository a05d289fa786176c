"""Transforms of known lengths as products, against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphopt.ir import evaluate
from graphopt.ir.graph import Graph
from graphopt.ir.text import parse
from graphopt.lowering.lower.expand import expanded

RNG = np.random.default_rng(0)


def made(graph: Graph, x: Any) -> Any:
    """What the products of a transform make of a signal."""
    products = expanded(graph)
    assert not transforms(products)
    (y,) = evaluate.run(products, {"x": x}).values()
    return y


def transforms(graph: Graph) -> list[Any]:
    """The transforms that are left."""
    return [n for n in graph.nodes() if n.op in ("DFT", "STFT") and not n.origin.overload]


def numbers(y: Any) -> Any:
    return y[..., 0] + 1j * y[..., 1]


@pytest.mark.parametrize("count", [1, 12, 37, 60, 64, 1024, 1200])
@pytest.mark.parametrize("inverse", [0, 1])
def test_a_transform_is_that_of_numpy(count: int, inverse: int) -> None:
    graph = parse(f"x: float32[2, {count}, 3, 2] y = DFT(x, _, 1, inverse={inverse}) return y")
    x = RNG.standard_normal((2, count, 3, 2)).astype(np.float32)
    want = (np.fft.ifft if inverse else np.fft.fft)(numbers(x), axis=1)
    assert np.abs(numbers(made(graph, x)) - want).max() < 1e-5 * np.abs(want).max()


@pytest.mark.parametrize("length", [64, 60, 90, 121])
def test_one_side_of_a_real_signal_that_is_cut_or_padded(length: int) -> None:
    graph = parse(f"x: float64[n, 90, 1] y = DFT(x, {length}, 1, onesided=1) return y")
    x = RNG.standard_normal((3, 90, 1))
    want = np.fft.rfft(x[..., 0], length)
    y = made(graph, x)
    assert y.shape == (3, length // 2 + 1, 2)
    assert np.abs(numbers(y) - want).max() < 1e-12 * np.abs(want).max()


def test_the_inverse_of_one_side_is_real() -> None:
    graph = parse("x: float64[2, 33, 2] y = DFT(x, 64, 1, onesided=1, inverse=1) return y")
    signal = RNG.standard_normal((2, 64))
    half = np.fft.rfft(signal)
    y = made(graph, np.stack([half.real, half.imag], -1))
    assert np.abs(y[..., 0] - signal).max() < 1e-12


@pytest.mark.parametrize("size", ["500", "n"])
def test_frames_of_a_signal(size: str) -> None:
    graph = parse(f"x: float32[2, {size}, 1] w: float32[96] y = STFT(x, 40, w, 96) return y")
    x, w = RNG.standard_normal((2, 500, 1)).astype(np.float32), np.hanning(96).astype(np.float32)
    products = expanded(graph)
    assert not transforms(products)
    (y,) = evaluate.run(products, {"x": x, "w": w}).values()
    frames = np.stack([x[:, at : at + 96, 0] for at in range(0, 500 - 95, 40)], 1)
    want = np.fft.rfft(frames * w)
    assert y.shape == (2, 11, 49, 2)
    assert np.abs(numbers(y) - want).max() < 1e-5 * np.abs(want).max()


def test_what_has_no_factors_or_no_known_length_keeps_its_sum() -> None:
    long = parse("x: float32[2, 10007, 1] y = DFT(x, _, 1) return y")
    assert transforms(expanded(long))
    open = parse("x: float32[2, n, 1] y = DFT(x, _, 1) return y")
    assert transforms(expanded(open))
