"""What is read off the indices of a convolution is what cuDNN is told."""

from __future__ import annotations

from typing import Any

import pytest

from graphopt.lowering.cuda.card import CARD, Card
from graphopt.lowering.cuda.dispatch import choice
from graphopt.lowering.cuda.emit import emit
from graphopt.lowering.cuda.schedules import scheduled
from graphopt.lowering.emit.kernel_source import LibraryCall
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import read
from tests.lowering.cuda.simulated import check
from tests.lowering.cuda.test_sums import nest_of

DNN = Card(has_convolutions=True)


def conv(
    attributes: str = "", x: str = "2, 4, 7, 6", w: str = "6, 4, 3, 3", dtype: str = "float32", more: str = ""
) -> Nest:
    """A convolution, ``h``, and what is done to it."""
    given = f"x: {dtype}[{x}]\nw: {dtype}[{w}]\nb: {dtype}[6]\n"
    made = f"h = Conv(x, w{', b' * bool(more)}, {attributes})" if attributes else f"h = Conv(x, w{', b' * bool(more)})"
    return nest_of(f"{given}{made}\n{more}\nreturn {'y' if more else 'h'}".replace("\n\n", "\n"))


def called(nest: Nest, card: Card = DNN) -> Nest:
    return scheduled(nest, card, choice("library", {}))


def told(made: Nest) -> dict[str, Any]:
    ((_, call),) = emit(made)
    assert isinstance(call, LibraryCall)
    assert call.name == "convolution"
    return dict(call.attributes)


SIDES = "1, 2, 5, 4", "3, 2, 2, 2"
"""An image, and filters."""


def windows(x: str, w: str, y: str, term: str, window: str = "2, 2, 2") -> Nest:
    """The sums of a term over windows, for each element of the result."""
    return read(f"""
@program
def windows(x: Buffer[({x}), "float32"], w: Buffer[({w}), "float32"], y: Buffer[({y}), "float32"]):
    for i0, i1, i2, i3, i4, i5, i6 in grid({y}, {window}):
        with block("y"):
            v0, v1, v2, v3, v4, v5, v6 = axis.remap("SSSSRRR", [i0, i1, i2, i3, i4, i5, i6])
            with init():
                y[v0, v1, v2, v3] = 0.0
            y[v0, v1, v2, v3] = y[v0, v1, v2, v3] + {term}
""")


CASES = {
    "plain": conv(),
    "one element": conv("strides=[2, 1]", w="6, 4, 1, 1"),
    "padded": conv("pads=[1, 0, 2, 1]"),
    "same": conv('auto_pad="SAME_UPPER", strides=[2, 2]'),
    "steps": conv("strides=[2, 3], dilations=[1, 2], pads=[1, 1, 1, 1]"),
    "groups": conv("group=2, pads=[1, 1, 1, 1]", w="6, 2, 3, 3"),
    "each channel": conv("group=4, pads=[1, 1, 1, 1]", w="4, 1, 3, 3"),
    "each channel twice": conv("group=4", w="8, 1, 3, 3"),
    "one image": conv("pads=[1, 1, 1, 1]", x="1, 4, 7, 6"),
    "line": conv("strides=[2], pads=[1, 0]", x="2, 4, 9", w="6, 4, 3"),
    "volume": conv("pads=[0, 1, 0, 1, 0, 1]", x="1, 2, 3, 4, 5", w="6, 2, 2, 2, 3"),
    "halves": conv("pads=[1, 1, 1, 1]", dtype="float16"),
    "bias": conv("pads=[1, 1, 1, 1]", more="y = Relu(h)"),
    "residual": nest_of(
        "x: float32[2, 4, 7, 6]\nw: float32[6, 4, 3, 3]\nb: float32[6]\nz: float32[2, 6, 5, 4]\n"
        "h = Conv(x, w, b)\ns = Add(z, h)\ny = Relu(s)\nreturn y"
    ),
    "halves with a residual": nest_of(
        "x: float16[2, 4, 7, 6]\nw: float16[6, 4, 3, 3]\nb: float16[6]\nz: float16[2, 6, 5, 4]\n"
        "h = Conv(x, w, b)\ns = Add(h, z)\ny = Relu(s)\nreturn y"
    ),
    "last": windows(
        "2, 5, 6, 4", "3, 2, 2, 4", "2, 4, 5, 3", "x[v0, v1 + v5, v2 + v6, v4] * w[v3, v5, v6, v4]", "4, 2, 2"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_library_computes_what_the_loops_say(name: str) -> None:
    made = called(CASES[name])
    attributes = told(made)
    finished = name in ("bias", "residual", "halves with a residual")
    assert attributes.get("epilogue", "") == ("relu" if finished else "")
    assert attributes.get("has_residual", False) == ("residual" in name)
    check(CASES[name], made)


OTHERS = {
    "a residual of each channel": nest_of(
        "x: float32[2, 4, 7, 6]\nw: float32[6, 4, 3, 3]\nz: float32[2, 6, 1, 1]\n"
        "h = Conv(x, w)\ns = Add(h, z)\ny = Relu(s)\nreturn y"
    ),
    "another activation": conv(more="y = Sigmoid(h)"),
    "double precision": conv(dtype="float64"),
    "filled with ones": windows(
        *SIDES, "1, 3, 5, 3", "select(v2 + v5 < 5, x[v0, v4, v2 + v5, v3 + v6], 1.0) * w[v1, v4, v5, v6]"
    ),
    "turned weights": windows(*SIDES, "1, 3, 4, 3", "x[v0, v4, v2 + v5, v3 + v6] * w[v1, v4, v6, v5]"),
    "windows of each filter": windows(
        "1, 2, 7, 4", "3, 2, 2, 2", "1, 3, 4, 3", "x[v0, v4, v2 + v5 + v1, v3 + v6] * w[v1, v4, v5, v6]"
    ),
    "windows that are cut": windows(*SIDES, "1, 3, 3, 3", "x[v0, v4, v2 + v5 + 1, v3 + v6] * w[v1, v4, v5, v6]"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_the_library_does_not_compute_is_left_to_kernels(name: str) -> None:
    made = called(OTHERS[name])
    assert not all(isinstance(m, LibraryCall) for _, m in emit(made))
    check(OTHERS[name], made, is_run=False)


def test_without_the_library_it_is_left_to_kernels() -> None:
    assert not any(isinstance(m, LibraryCall) for _, m in emit(called(CASES["padded"], CARD)))


@pytest.mark.parametrize("size", [3, 8])
def test_sizes_may_be_open(size: int) -> None:
    nest = conv("pads=[1, 1, 1, 1], strides=[2, 1]", x="n, 4, n, 6", more="y = Relu(h)")
    made = called(nest)
    told(made)
    check(nest, made, [size] * len(nest.sizes))


@pytest.mark.parametrize("is_allowed", [False, True])
def test_operands_are_rounded_to_tf32_only_where_that_is_allowed(is_allowed: bool) -> None:
    made = called(conv(), Card(has_convolutions=True, is_approximate=is_allowed))
    assert told(made).get("tf32", False) is is_allowed
