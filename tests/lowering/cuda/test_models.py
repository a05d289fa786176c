"""Each distinct nest of whole models, at its real size: its kernels compute what it says, and do in the simulation of a
GPU, block by block, what they mean."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from graphopt.calibration.table import priced
from graphopt.compile import linked_for
from graphopt.lowering.cuda.card import CARD, SIMULATED, Card
from graphopt.lowering.link.cuda_options import on
from graphopt.lowering.loops.nest import Nest
from graphopt.run.settings import Settings
from graphopt.target import SIMULATED as TARGET
from tests.lowering.cuda.in_turn import Interpreted, Kernels, Runner, arrays_for
from tests.lowering.native import Native
from tests.test_platforms import model, weights

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
SIZE = 3
"""What all sizes are that are not known ahead of time."""


def transformer(width: int, heads: int = 2) -> bytes:
    """A layer of a transformer of sequences of any length."""
    node, each = helper.make_node, width // heads
    nodes = []
    for side in "qkv":
        nodes += [
            node("MatMul", ["x", f"w{side}"], [f"{side}0"]),
            node("Reshape", [f"{side}0", "split"], [f"{side}1"]),
            node("Transpose", [f"{side}1"], [side], perm=[0, 2, 3, 1] if side == "k" else [0, 2, 1, 3]),
        ]
    nodes += [
        node("MatMul", ["q", "k"], ["s0"]),
        node("Mul", ["s0", "scale"], ["s1"]),
        node("Softmax", ["s1"], ["s"]),
        node("MatMul", ["s", "v"], ["o0"]),
        node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "whole"], ["o"]),
        node("Add", ["x", "o"], ["r"]),
        node("LayerNormalization", ["r", "gain", "bias"], ["n"]),
        node("MatMul", ["n", "up"], ["h0"]),
        node("Gelu", ["h0"], ["h"]),
        node("MatMul", ["h", "down"], ["d"]),
        node("Add", ["n", "d"], ["y"]),
    ]
    integers = {"split": [0, 0, heads, each], "whole": [0, 0, width]}
    held = [onnx.numpy_helper.from_array(np.array(v, np.int64), k) for k, v in integers.items()]
    held.append(onnx.numpy_helper.from_array(np.float32(each**-0.5), "scale"))
    sides = {f"w{side}": (width, width) for side in "qkv"} | {"up": (width, 4 * width), "down": (4 * width, width)}
    held += [weights(k, *shape) for k, shape in (sides | {"gain": (width,), "bias": (width,)}).items()]
    return model(nodes, [1, "n", width], [1, "n", width], *held, opset=20)


def recurrent(hidden: int, inputs: int = 8) -> bytes:
    """A bidirectional LSTM of sequences of any length, and a classifier."""
    node = helper.make_node
    nodes = [
        node("LSTM", ["x", "w", "r", "b"], ["h0"], hidden_size=hidden, direction="bidirectional"),
        node("Transpose", ["h0"], ["h1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["h1", "joined"], ["h"]),
        node("MatMul", ["h", "v"], ["c"]),
        node("Softmax", ["c"], ["y"]),
    ]
    joined = onnx.numpy_helper.from_array(np.array([0, 0, -1], np.int64), "joined")
    sides = {"w": (2, 4 * hidden, inputs), "r": (2, 4 * hidden, hidden), "b": (2, 8 * hidden), "v": (2 * hidden, 5)}
    held = [weights(k, *shape) for k, shape in sides.items()]
    return model(nodes, ["n", 2, inputs], ["n", 2, 5], joined, *held)


def nests_of(source: bytes) -> list[Nest]:
    """The distinct nests of a model."""
    return list(dict.fromkeys(linked_for(source, Settings(target=TARGET)).nests.values()))


def check(nests: list[Nest], card: Card, runner: Callable[[Nest], Runner] = Native) -> int:
    """Checks each nest's kernels for a card; returns how many there are."""
    options = on(card, priced(TARGET, "auto").target.prices.products, "own")
    simulated = 0
    for nest in nests:
        sizes = dict.fromkeys(nest.sizes, SIZE)
        simulated += Kernels(options, sizes, runner).check(nest, arrays_for(nest, sizes))
    return simulated


@pytest.mark.slow
@pytest.mark.parametrize("make", [transformer, recurrent])
def test_kernels_of_small_models_do_what_their_nests_say(make: Callable[[int], bytes]) -> None:
    nests = nests_of(make(8))
    assert check(nests, SIMULATED, Interpreted) >= len(nests)


@pytest.mark.slow
@pytest.mark.parametrize("card", [SIMULATED, CARD], ids=["simulated", "card"])
@pytest.mark.parametrize(
    "name", ["squeezenet", "shufflenet", "resnet50", "densenet121", "inception_v1", "vgg19", "transformer", "recurrent"]
)
def test_kernels_of_models_do_what_their_nests_say(name: str, card: Card) -> None:
    made = {"transformer": lambda: transformer(384, 6), "recurrent": lambda: recurrent(128)}
    source = made[name]() if name in made else (LIGHT / f"light_{name}.onnx").read_bytes()
    nests = nests_of(source)
    assert check(nests, card) >= len(nests)
