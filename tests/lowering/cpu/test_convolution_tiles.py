"""Convolutions that a function sums tile by tile, against ONNX's reference, over images of any size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.ir.constants import Array
from graphopt.ir.evaluate import compute
from graphopt.ir.graph import Attrs
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.lowering.cpu.default_schedules import scheduled
from graphopt.lowering.intrinsics.tensor_intrin import find_intrinsic
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.expressions import Const, Expr, select, substitute
from graphopt.lowering.loops.interpret import interpret
from graphopt.lowering.loops.nest import BufferRegion, Invoke, Nest, Range, rename_buffers, statements, substitute_in
from tests.lowering.native import check, random_arrays, run

RNG = np.random.default_rng(5)
WEIGHTS = {  # how many blocks of how many channels, which kernel
    "blocked": (2, 1, 3, 3, 16, 16),
    "strided": (2, 1, 3, 3, 16, 16),
    "pointwise": (5, 2, 1, 1, 16, 16),
    "along": (1, 1, 3, 16, 16),
    "grouped": (2, 1, 3, 1, 16, 16),
    "solid": (1, 1, 2, 2, 2, 16, 16),
    "plain": (2, 3, 3, 2, 16),
    "plain pointwise": (2, 3, 1, 1, 16),
    "plain windows": (2, 1, 256, 16),
    "large": (2, 1, 5, 5, 16, 16),
    "apart": (2, 1, 3, 3, 16, 16),
    "apart and strided": (1, 1, 2, 5, 16, 16),
    "plain apart": (2, 3, 3, 3, 16),
}
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "blocked": {"pads": [1, 1, 1, 1]},
    "strided": {"pads": [0, 0, 1, 1], "strides": [2, 2]},
    "along": {"pads": [2, 1], "dilations": [2]},
    "grouped": {"pads": [1, 0, 1, 0], "group": 2, "dilations": [2, 1]},
    "solid": {"pads": [1, 0, 0, 0, 1, 1]},
    "plain": {"pads": [1, 1, 0, 1], "strides": [2, 1]},
    "plain windows": {"strides": [128]},
    "large": {"pads": [4, 2, 2, 2], "dilations": [2, 1]},
    "apart": {"pads": [12, 12, 12, 12], "dilations": [12, 12]},
    "apart and strided": {"pads": [3, 31, 4, 33], "dilations": [7, 13], "strides": [2, 3]},
    "plain apart": {"pads": [9, 9, 9, 9], "dilations": [9, 9]},
}
IMAGES: list[tuple[str, Sequence[int]]] = [
    *(("blocked", hw) for hw in ((1, 1), (3, 2), (5, 30), (2, 15))),
    *(("strided", hw) for hw in ((3, 3), (9, 40))),
    *(("pointwise", hw) for hw in ((1, 1), (3, 5), (9, 29))),
    *(("along", (n,)) for n in (1, 2, 17, 200)),
    *(("grouped", hw) for hw in ((4, 4), (3, 20))),
    ("solid", (2, 3, 5)),
    *(("plain", hw) for hw in ((2, 3), (8, 31))),
    *(("plain pointwise", hw) for hw in ((1, 1), (6, 7))),
    *(("large", hw) for hw in ((2, 1), (3, 33))),
    *(("apart", hw) for hw in ((1, 1), (2, 12), (3, 13), (14, 33))),
    *(("apart and strided", hw) for hw in ((2, 4), (9, 40))),
    *(("plain apart", hw) for hw in ((2, 3), (10, 31))),
]


def text_of(name: str, sides: Sequence[int | str], follower: str = "Relu(c)") -> str:
    """A graph with the convolution of that name, and something done to each of its elements."""
    weights, attributes = WEIGHTS[name], dict(ATTRIBUTES.get(name, {}))
    form = "plain" if name.startswith("plain") else "blocked"
    attributes |= {"form": f'"{form}"'}
    channels = weights[1] * attributes.get("group", 1)
    image = [2, channels, *sides, *([16] if form == "blocked" else [])]
    given = ", ".join(f"{n}={v}" for n, v in attributes.items())
    return (
        f"x: float32[{', '.join(map(str, image))}]\nw: float32[{', '.join(map(str, weights))}]\n"
        f"b: float32[{weights[0]}, 16]\nc = graphopt::BlockedConv(x, w, b, {given})\ny = {follower}\nreturn y"
    )


def surrounded(shape: Sequence[int]) -> Array:
    """Random numbers, with NaN before and behind them in memory."""
    size = int(np.prod(shape))
    whole = np.full(size + 2048, np.nan, np.float32)
    whole[1024 : 1024 + size] = RNG.standard_normal(size)
    return whole[1024 : 1024 + size].reshape(shape)


def expected(name: str, x: Array, w: Array, b: Array) -> Array:
    """What the reference makes of it."""
    given = {n: tuple(v) if isinstance(v, list) else v for n, v in ATTRIBUTES.get(name, {}).items()}
    given["form"] = "plain" if name.startswith("plain") else "blocked"
    (y,) = compute("graphopt::BlockedConv", Attrs(given), [x, w, b], 1)
    return np.maximum(y, 0)


def agree(name: str, sides: Sequence[int], program: graphopt.CompiledModel) -> None:
    """Asserts that the program computes what the reference does, and reads nothing outside of its inputs."""
    weights, group = WEIGHTS[name], ATTRIBUTES.get(name, {}).get("group", 1)
    x = surrounded([2, weights[1] * group, *sides, *([] if name.startswith("plain") else [16])])
    w, b = surrounded(weights), surrounded([weights[0], 16])
    (got,) = program({"x": x, "w": w, "b": b}).values()
    assert error(expected(name, x, w, b), got) <= 1.0


@lru_cache
def open_program(name: str, rank: int) -> graphopt.CompiledModel:
    sides = [f"side{k}" for k in range(rank)]
    return graphopt.compile(parse(text_of(name, sides)), optimize=False, strict=True)


@pytest.mark.parametrize(("name", "sides"), IMAGES)
def test_one_program_serves_images_of_any_size(name: str, sides: Sequence[int]) -> None:
    program = open_program(name, len(sides))
    agree(name, sides, program)
    assert calls(program) > 0


@pytest.mark.parametrize(("name", "sides"), IMAGES[1::3])
def test_sizes_may_be_known(name: str, sides: Sequence[int]) -> None:
    program = graphopt.compile(parse(text_of(name, sides)), optimize=False, strict=True)
    agree(name, sides, program)
    assert calls(program) > 0


def test_windows_of_a_batch_of_any_size_are_no_product_of_its_rows() -> None:
    text = text_of("plain windows", ["n"]).replace("x: float32[2,", "x: float32[batch,")
    program = graphopt.compile(parse(text), optimize=False, strict=True)
    agree("plain windows", (640,), program)
    assert calls(program) > 0


def test_an_image_without_rows_has_no_results() -> None:
    zeros = [np.zeros(s, np.float32) for s in ([2, 1, 0, 4, 16], WEIGHTS["blocked"], [2, 16])]
    (got,) = open_program("blocked", 2)(*zeros).values()
    assert got.shape == (2, 2, 0, 4, 16)


def calls(program: graphopt.CompiledModel) -> int:
    """How often the program's nests sum a tile."""
    nests = [p.nest for p in program.compiled.linked.parts if p.nest is not None]
    return sum(s.intrinsic.startswith("convolve") for n in nests for s in statements(n.body) if isinstance(s, Invoke))


def test_what_follows_is_done_to_each_tile() -> None:
    text = text_of("blocked", [4, 5], "Add(Sigmoid(c), z)").replace(
        "b: float32", "z: float32[2, 2, 4, 5, 16]\nb: float32"
    )
    program = graphopt.compile(parse(text), optimize=False, strict=True)
    assert program.report.calls == 1
    x, w, b = surrounded([2, 1, 4, 5, 16]), surrounded(WEIGHTS["blocked"]), surrounded([2, 16])
    z = surrounded([2, 2, 4, 5, 16])
    (c,) = compute("graphopt::BlockedConv", Attrs({"pads": (1, 1, 1, 1), "form": "blocked"}), [x, w, b], 1)
    (got,) = program({"x": x, "w": w, "b": b, "z": z}).values()
    assert error(1 / (1 + np.exp(-c)) + z, got) <= 1.0


# ------------------------------------------------------------------ what is no convolution, or not of that kind


def nest(pads: int = 1, fill: float = 0.0, step: int = 1, is_read_twice: bool = False) -> Nest:
    """A convolution of a row, with its image padded."""
    x, w, k = t.placeholder((1, 1, 9, 16)), t.placeholder((1, 1, 3, 16, 16), name="w"), t.reduce_axis(3)
    m, depth = t.reduce_axis(16), t.reduce_axis(1)

    def inside(n: Expr, c: Expr, i: Expr, lane: Expr) -> Expr:
        return select((i >= pads) & (i < 9 + pads), x[n, c, i - pads, lane], fill)

    padded = t.compute((1, 1, 9 + 2 * pads, 16), inside, "float32", "padded")
    shape = (1, 1, (9 + 2 * pads - 3) // step + 1, 16)

    def element(n: Expr, b: Expr, i: Expr, lane: Expr) -> t.ReduceStage:
        value = padded[n, depth.var, i * step + k.var, m.var] * w[b, depth.var, k.var, m.var, lane]
        return t.sum(value, depth, k, m)

    y = t.compute(shape, element, name="y")
    z = t.compute(shape, lambda *at: y[at] + (padded[at] if is_read_twice else 1.0), name="z")
    return t.nest("row", [x, w], [z])


@pytest.mark.parametrize("step", [1, 2])
def test_padding_is_left_to_the_function(step: int) -> None:
    made = scheduled(nest(step=step))
    check(nest(step=step), made)
    assert [b.scope for b in made.allocs] == ["local"]


@pytest.mark.parametrize("given", [{"fill": 1.0}, {"is_read_twice": True}])
def test_other_padding_is_written_down(given: Mapping[str, Any]) -> None:
    made = scheduled(nest(**given))
    check(nest(**given), made)
    assert any(b.name.startswith("padded") for b in made.allocs)


@pytest.mark.parametrize("name", ["convolve_blocked_2d_float32", "convolve_plain_2d_float32"])
def test_the_function_does_what_its_description_says(name: str) -> None:
    intrinsic = find_intrinsic(name)
    known = {"blocks": 2, "most": 14, "w": 3, "lanes": 16, "channels": 2, "kernel_0": 2, "kernel_1": 3, "size": 16}
    known |= {"side_0": 3, "side_1": 8, "start": 2, "before": 3, "step": 2, "dilation_0": 2, "dilation_1": 3}
    known |= {"low": 1, "high": 2, "deep": 2}
    values = {v: Const(known[v.name]) for v in intrinsic.description.sizes}
    params = intrinsic.description.buffers
    buffers = {b: replace(b, shape=tuple(substitute(e, values) for e in b.shape)) for b in params}
    body = rename_buffers(substitute_in(intrinsic.description.body, values), buffers)
    described = Nest("described", tuple(buffers.values()), body)
    regions = [BufferRegion(b, tuple(Range(Const(0), n) for n in b.shape)) for b in buffers.values()]
    call = Invoke(name, (*regions, *values.values()))
    want = random_arrays(described)
    got = [a.copy() for a in want]
    interpret(described, want)
    run(Nest("called", tuple(buffers.values()), call), got)
    assert error(want[0], got[0]) <= 1.0
