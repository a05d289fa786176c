"""Convolutions by minimal filtering as compiled programs: when they are taken, and how exact they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphopt
from graphopt.ir.blocked import blocked, packed, unblocked
from graphopt.ir.winograd import transformed
from graphopt.tools.alternatives_report import choices

BOUND = {2: 16.0, 4: 64.0}
"""By the rows of results in a tile: how large an error may be, in units of float32's roundoff times the largest sum of
absolute products of the layer. ``docs/compiling.md`` states it."""

RANDOM = np.random.default_rng(3)


def exact(x: np.ndarray, w: np.ndarray, pads: Sequence[int]) -> np.ndarray:
    """The convolution in double precision."""
    padded = np.pad(x, [(0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])]).astype(np.float64)
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    return np.einsum("nihwab,oiab->nohw", windows, w.astype(np.float64), optimize=True)


def model(nodes: Sequence[Any], x: Sequence[int | str], y: Sequence[int | str] | None, **constants: Any) -> Any:
    """A model of one input x, and one output y."""
    given = [numpy_helper.from_array(np.ascontiguousarray(a), name) for name, a in constants.items()]
    graph = helper.make_graph(
        list(nodes), "test", [helper.make_tensor_value_info("x", TensorProto.FLOAT, x)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, y)], given,
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("graphopt", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def tiled(w: np.ndarray, tile: int, pads: Sequence[int], x: Sequence[int | str]) -> Any:
    """The program of a convolution by tiles, its sizes open, and an activation."""
    conv = helper.make_node("BlockedWinogradConv", ["x", "u", "b"], ["c"], domain="graphopt", tile=tile, pads=pads)
    nodes = [conv, helper.make_node("LeakyRelu", ["c"], ["y"], alpha=0.5)]
    bias = np.arange(-(-w.shape[0] // 16) * 16, dtype=np.float32).reshape(-1, 16)
    made = model(nodes, x, ["N", "O", "H", "W", 16], u=transformed(packed(w, 16, "blocked"), tile), b=bias)
    return graphopt.compile(made, threads=2, optimize=False, cache=False)


@pytest.mark.parametrize(("tile", "deep"), [(2, 16), (4, 32), (4, 160)])
def test_one_program_serves_all_sizes(tile: int, deep: int) -> None:
    w, pads = RANDOM.standard_normal((20, deep, 3, 3)).astype(np.float32), (1, 2, 0, 1)
    program = tiled(w, tile, pads, ["n", deep // 16, "h", "w", 16])
    for batch, height, width in ((1, 13, 11), (3, 4, 5), (1, 2, 1), (1, 40, 33), (0, 6, 6)):
        x = RANDOM.standard_normal((batch, deep, height, width)).astype(np.float32)
        y = program({"x": blocked(x, 16)})["y"]
        want = exact(x, w, pads) + np.arange(20)[:, None, None]
        np.testing.assert_allclose(unblocked(y)[:, :20], np.where(want < 0, want / 2, want), atol=1e-4 * deep)
        assert (unblocked(y)[:, 20:] == np.arange(20, 32)[:, None, None]).all()


def images() -> dict[str, np.ndarray]:
    """Images that are hard to sum exactly."""
    shape = (1, 64, 30, 30)
    noise = RANDOM.standard_normal(shape)
    row, column = np.indices(shape[2:])
    peaks = np.where(RANDOM.random(shape) < 0.01, 1e6, 1.0) * noise
    signs = (-1.0) ** (row + column)
    found = {"noise": noise, "positive": abs(noise), "peaks": peaks, "signs": signs + 0 * noise, "tiny": noise * 1e-30}
    return {name: x.astype(np.float32) for name, x in found.items()}


@pytest.mark.parametrize("tile", [2, 4])
def test_errors_stay_within_the_bound(tile: int) -> None:
    conv = helper.make_node("BlockedWinogradConv", ["x", "u"], ["y"], domain="graphopt", tile=tile, pads=(1,) * 4)
    w = RANDOM.standard_normal((32, 64, 3, 3)).astype(np.float32)
    made = model([conv], [1, 4, 30, 30, 16], None, u=transformed(packed(w, 16, "blocked"), tile))
    program = graphopt.compile(made, optimize=False, cache=False)
    worst = {}
    for name, x in images().items():
        got = unblocked(program({"x": blocked(x, 16)})["y"])
        size = exact(abs(x), abs(w), (1, 1, 1, 1)).max()
        worst[name] = float(abs(got - exact(x, w, (1, 1, 1, 1))).max() / size * 2**24)
    assert max(worst.values()) <= BOUND[tile]
    assert max(worst.values()) > 0


CHOSEN: dict[str, tuple[tuple[int, ...], tuple[int, ...], str]] = {
    "many tiles": ((1, 64, 56, 56), (64, 64, 3, 3), "graphopt::BlockedWinogradConv"),
    "more weights than pixels": ((1, 512, 7, 7), (512, 512, 3, 3), "graphopt::BlockedConv"),
    "one pixel": ((1, 64, 1, 1), (64, 64, 3, 3), "graphopt::BlockedConv"),
    "another window": ((1, 64, 56, 56), (64, 64, 5, 5), "graphopt::BlockedConv"),
}


@pytest.mark.parametrize("name", list(CHOSEN))
def test_costs_choose(name: str) -> None:
    x, w, op = CHOSEN[name]
    pads = [w[-1] // 2] * 4
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=pads)
    made = model([node], x, None, w=np.ones(w, np.float32))
    assert [c.chosen.what for c in choices(made)][:1] == [op]
