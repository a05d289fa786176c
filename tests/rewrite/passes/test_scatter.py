"""Scatters with constant indices that fill slabs."""

from __future__ import annotations

import numpy as np
import pytest

from graphopt.ir.evaluate import run
from graphopt.ir.text import parse
from graphopt.rewrite.passes.simplify import simplify

COLUMNS = "int64[2, 3, 1]{%s}"


def column(i: int) -> str:
    return COLUMNS % ", ".join([str(i)] * 6)


def same(text: str) -> list[str]:
    """The ops that are left, which compute what the original does."""
    graph = parse("x: float32[2, 3, 1] y: float32[2, 3, 1] z: float32[2, 3, 2] " + text)
    made = simplify(graph)
    shapes = {"x": (2, 3, 1), "y": (2, 3, 1), "z": (2, 3, 2)}
    inputs = {name: np.random.default_rng(0).random(s, np.float32) for name, s in shapes.items()}
    for a, b in zip(run(graph, inputs).values(), run(made, inputs).values(), strict=True):
        np.testing.assert_array_equal(a, b)
    return sorted(n.op for n in made.nodes() if n.op not in ("Input", "Constant"))


def test_columns_that_are_all_written() -> None:
    text = f"i = {column(0)} j = {column(-1)} a = ScatterElements(z, i, x, axis=-1) "
    assert same(text + "b = ScatterElements(a, j, y, axis=2) return b") == ["ScatterElements", "ScatterElements"]
    zeros = "k = float32[2, 3, 2]{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} "
    text = zeros + text.replace("(z,", "(k,")
    assert same(text + "b = ScatterElements(a, j, y, axis=2) return b") == ["Concat"]
    assert same(text + "return a") == ["Concat"]


def test_everything_at_once() -> None:
    text = "i = int64[2, 1]{0, 1} r = Relu(ScatterND(z, i, Neg(z))) return r"
    assert same(text) == ["Neg", "Relu"]


def test_a_grid_of_indices() -> None:
    grid = ", ".join(f"{i}, {j}" for i in range(2) for j in (1, 2))
    text = (
        f"i = int64[2, 2, 2]{{{grid}}} a = [1] b = [3] k = float32[2, 3, 2]{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}} "
        "u = Slice(z, a, b, a) r = ScatterND(k, i, u) return r"
    )
    assert same(text) == ["Concat", "Slice"]


@pytest.mark.parametrize(
    "text",
    [
        "i = int64[2, 1]{1, 0} r = ScatterND(z, i, Neg(z)) return r",
        'i = int64[2, 1]{0, 1} r = ScatterND(z, i, Neg(z), reduction="add") return r',
        f"i = {column(1)} r = ScatterElements(z, i, x, axis=2) return r",
        "i = int64[2, 3, 1]{0, 1, 0, 0, 1, 1} k = float32[2, 3, 2]{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} "
        "r = ScatterElements(k, i, x, axis=2) return r",
    ],
)
def test_other_scatters_stay(text: str) -> None:
    assert any(op.startswith("Scatter") for op in same(text))
