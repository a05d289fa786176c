"""Convolutions of bytes in programs: exact beside numpy, whatever the windows, groups, signs and zero points."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graphopt.errors import InputError
from graphopt.ir.constants import Array
from tests.lowering.cpu.test_integer_products import bytes_, compiled, kernels, one


def sums(x: Array, w: Array, zx: int, zw: Array, pads: int, stride: int, dilation: int, group: int) -> Array:
    """The convolution, place by place in the window."""
    n, rank = x.shape[0], x.ndim - 2
    size = [
        (s + 2 * pads - (k - 1) * dilation - 1) // stride + 1 for s, k in zip(x.shape[2:], w.shape[2:], strict=True)
    ]
    padded = np.pad(x.astype(np.int64) - zx, [(0, 0)] * 2 + [(pads, pads)] * rank)
    weights = w.astype(np.int64) - zw.reshape(-1, *(1,) * (rank + 1))
    out = np.zeros((n, w.shape[0], *size), np.int64)
    share = w.shape[0] // group
    for g, *place in itertools.product(range(group), *map(range, w.shape[2:])):
        first = [i * dilation for i in place]
        seen = [slice(i, i + (s - 1) * stride + 1, stride) for i, s in zip(first, size, strict=True)]
        own = padded[:, g * w.shape[1] : (g + 1) * w.shape[1], *seen]
        part = slice(g * share, (g + 1) * share)
        out[:, part] += np.einsum("nc...,oc->no...", own, weights[part, :, *place])
    return out


@pytest.mark.parametrize(
    ("shape", "weights", "pads", "stride", "dilation", "group"),
    [
        ((2, 5, 9, 20), (7, 5, 3, 3), 1, 1, 1, 1),
        ((1, 6, 11, 13), (12, 3, 3, 2), 1, 2, 1, 2),
        ((1, 9, 6, 7), (5, 9, 1, 1), 0, 1, 1, 1),
        ((1, 4, 15, 40), (300, 4, 2, 3), 2, 3, 2, 1),
        ((2, 6, 50), (10, 3, 5), 2, 2, 1, 2),
        ((1, 9, 70), (300, 9, 3), 1, 1, 3, 1),
        ((3, 8, 37), (6, 8, 1), 0, 1, 1, 1),
        ((2, 3, 6, 7, 8), (5, 3, 3, 2, 3), 1, 2, 1, 1),
        ((1, 8, 4, 5, 6), (12, 4, 2, 3, 1), 1, 1, 2, 2),
        ((1, 5, 3, 4, 5), (7, 5, 1, 1, 1), 0, 1, 1, 1),
        ((1, 2, 3, 4, 4, 5), (5, 2, 2, 1, 2, 2), 0, 1, 1, 1),
    ],
)
@pytest.mark.parametrize("open_", [False, True])
def test_convolutions_of_constants(shape, weights, pads, stride, dilation, group, open_):
    x, w = bytes_(*shape), bytes_(*weights, dtype="int8")
    rank = len(shape) - 2
    attrs = {"pads": [pads] * 2 * rank, "strides": [stride] * rank, "dilations": [dilation] * rank, "group": group}
    program, got = compiled("ConvInteger", [x, w, one(77, "uint8")], (1, 2), open_, **attrs)
    is_pointwise = weights[2:] == (1, 1)
    assert kernels(program) == {"integer_pixels_int8_uint8" if is_pointwise else "integer_windows_uint8_int8"}
    assert program.report.calls == (1 if is_pointwise else 2)
    assert np.array_equal(got, sums(x, w, 77, np.zeros(1, int), pads, stride, dilation, group))


@pytest.mark.parametrize("signs", [("uint8", "uint8"), ("int8", "int8")])
def test_zero_points_of_channels(signs):
    x, w, bias = bytes_(1, 8, 5, 6, dtype=signs[0]), bytes_(6, 8, 3, 3, dtype=signs[1]), np.arange(6, dtype=np.int32)
    scales, zeros = np.linspace(0.1, 0.2, 6).astype(np.float32), bytes_(6, dtype=signs[1], seed=3)
    inputs = [x, one(0.02), one(9, signs[0]), w, scales, zeros, one(2.0), one(5, signs[0]), bias]
    program, got = compiled("QLinearConv", inputs, range(1, 9), open_=False)
    assert kernels(program) == {f"integer_windows_{signs[0]}_{signs[1]}"}
    total = sums(x, w, 9, zeros, 0, 1, 1, 1) + bias.reshape(-1, 1, 1)
    factors = np.float32(0.02) * scales / np.float32(2.0)
    info = np.iinfo(signs[0])
    want = np.clip(np.rint(total.astype(np.float32) * factors.reshape(-1, 1, 1)) + 5, info.min, info.max)
    assert np.array_equal(got, want.astype(signs[0]))


def test_weights_and_zero_points_that_are_inputs():
    x, w = bytes_(1, 4, 7, 8), bytes_(5, 4, 3, 3)
    program, got = compiled("ConvInteger", [x, w, one(3, "uint8"), one(200, "uint8")], (), open_=False)
    assert kernels(program) == {"integer_windows_uint8_uint8"}
    assert np.array_equal(got, sums(x, w, 3, np.array([200]), 0, 1, 1, 1))


@pytest.mark.parametrize("kernel", [1, 3])
def test_zero_points_of_which_it_turns_out_how_many_there_are(kernel):
    x, w, zeros = bytes_(1, 4, 7, 8), bytes_(8, 4, kernel, kernel), bytes_(8, seed=3)
    inputs = [x, w, one(3, "uint8"), zeros]
    program, got = compiled("ConvInteger", inputs, (1,), False, {"x3": ["n"]})
    assert len(kernels(program)) == 1
    assert np.array_equal(got, sums(x, w, 3, zeros, 0, 1, 1, 1))
    got = program({"x0": x, "x2": inputs[2], "x3": zeros[5:6]})["y"]
    assert np.array_equal(got, sums(x, w, 3, zeros[5:6], 0, 1, 1, 1))
    for count in (0, 3):
        with pytest.raises(InputError, match="a size of an input is neither 1 nor that of the result"):
            program({"x0": x, "x2": inputs[2], "x3": zeros[:count]})


def test_zero_points_that_are_too_few():
    scales = np.full(8, 0.1, np.float32)
    inputs = [bytes_(1, 4, 7, 8), one(0.02), one(9, "uint8"), bytes_(8, 4, 3, 3), scales, bytes_(3)]
    with pytest.raises(InputError, match="a size of an input is neither 1 nor that of the result"):
        compiled("QLinearConv", [*inputs, one(2.0), one(5, "uint8")], (), open_=False)


@pytest.mark.parametrize("kernel", [1, 3])
def test_an_image_has_one_zero_point(kernel):
    x, w, zeros = bytes_(1, 4, 7, 8), bytes_(8, 4, kernel, kernel), bytes_(8, seed=3)
    program, got = compiled("ConvInteger", [x, w, zeros[:1]], (1,), False, {"x2": ["n"]}, pads=[1] * 4)
    assert len(kernels(program)) == 1
    assert np.array_equal(got, sums(x, w, int(zeros[0]), np.zeros(1, int), 1, 1, 1, 1))
    for count in (0, 8):
        with pytest.raises(InputError, match="a size of an input is neither 1 nor that of the result"):
            program({"x0": x, "x2": zeros[:count]})


@pytest.mark.parametrize("known", [False, True])
def test_images_without_pixels(known):
    x, w = bytes_(1, 8, 6, 5), bytes_(16, 8, 1, 1)
    given = x[:, :, :0] if known else x
    program, got = compiled("ConvInteger", [given, w], (1,), not known, strides=[2, 2])
    assert np.array_equal(got, sums(given, w, 0, np.zeros(1, int), 0, 2, 1, 1))
    assert program({"x0": x[:, :, :0]})["y"].shape == (1, 16, 0, 3)


@pytest.mark.parametrize("size", [(7, 8), (40,), (3, 4, 5)])
@pytest.mark.parametrize("window", [3, 17])
def test_each_channel_by_itself_is_no_product(size, window):
    rank = len(size)
    x, w = bytes_(1, 40, *size), bytes_(40, 1, *(window,) * rank, dtype="int8")
    x[:, :2], w[:2] = 255, -128  # the largest sums, which are exact as well
    attrs = {"group": 40, "pads": [window // 2] * 2 * rank}
    program, got = compiled("ConvInteger", [x, w, one(3, "uint8")], (1, 2), open_=False, **attrs)
    assert kernels(program) == set()
    assert np.array_equal(got, sums(x, w, 3, np.zeros(1, int), window // 2, 1, 1, 40))
