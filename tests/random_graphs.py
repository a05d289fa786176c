"""Random graphs that are well typed: recipes for how exporters use ops, and instances of the rules' left sides.

``random_graph`` is a function of a ``random.Random`` alone, so that hypothesis can shrink what it draws.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

from graphopt.ir.graph import Graph
from graphopt.verify.compare import compare as compare_models
from graphopt.verify.verification import DEMANDS
from tests.recipes.control_flow import branch, loop, optional, scan, sequence
from tests.recipes.elements import binary, cast, clip, compare, integer, logic, power, rough, unary, variadic, where
from tests.recipes.layers import (
    arg,
    batch_norm,
    convolution,
    gemm,
    layer_norm,
    matmul,
    matmul_of_two,
    pool,
    reduce,
    softmax,
    squeeze_and_excite,
)
from tests.recipes.maker import Maker, Recipe
from tests.recipes.movements import (
    cut,
    expand,
    expand_to,
    fill,
    flatten,
    gather,
    join,
    pad,
    reshape,
    reshape_by_shape,
    split,
    squeeze,
    tile,
    transpose,
    unsqueeze,
)
from tests.recipes.repeats import left_side, twin
from tests.recipes.trial import Trial

RECIPES: tuple[Recipe, ...] = (
    *(left_side,) * 14,
    *(unary, binary) * 4,
    *(transpose, reshape, convolution, matmul, reshape_by_shape) * 2,
    *(rough, integer, power, variadic, clip, compare, logic, where, cast, expand_to, expand, fill, squeeze, unsqueeze),
    *(flatten, cut, join, split, gather, pad, tile, reduce, softmax, arg, layer_norm, matmul_of_two, gemm, batch_norm),
    *(pool, squeeze_and_excite, branch, twin, loop, scan, sequence, optional),
)  # fmt: skip
"""How a graph grows; what stands here twice is drawn twice as often."""


def random_graph(random: Random, steps: int, special: bool = False, recipes: tuple[Recipe, ...] = RECIPES) -> Graph:
    """A graph of about so many recipes; with ``special``, constants may hold NaN and infinities."""
    return _started(random, special, recipes).finished(steps)


def graph_on_trial(random: Random, steps: int, recipes: tuple[Recipe, ...] = RECIPES) -> Graph:
    """The same of steps that an engine runs, with outputs that depend on inputs, so that verification can tell."""
    maker = _started(random, False, recipes)
    maker.trial = Trial(random)
    maker.trial.run(maker.graph, 0)
    return maker.finished(steps)


def _started(random: Random, special: bool, recipes: tuple[Recipe, ...]) -> Maker:
    maker = Maker(random, recipes, random.choice((17, 18, 20, 21, 22)), special)
    for _ in range(random.randint(1, 3)):
        maker.new_input()
    return maker


def compared(before: Path, after: Path) -> dict[str, Any]:
    """What verification answers of two models, on two draws, in this process. Raises what ``compare`` does."""
    request = {"original": str(before), "result": str(after), "draws": 2, "inputs": {}, "names": ("a", "b")}
    return compare_models({**request, "demands": asdict(DEMANDS), "full": False}, lambda phase: None)
