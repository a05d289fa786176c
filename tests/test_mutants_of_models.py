"""Models that are wrong at random end as documented: optimized, compiled or refused, and never in a traceback."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest
from onnx import ModelProto

import graphopt
from graphopt.compile import linked_for
from graphopt.ir import onnx_io
from graphopt.ir.suite import suite
from graphopt.run.settings import Settings
from tests.mutants_of_models import mutant, outcome
from tests.random_graphs import random_graph

WAYS = {
    "portable": lambda model: graphopt.optimize(model, verify="off"),
    "ort": lambda model: graphopt.optimize(model, target="ort", verify="off"),
    "compile": lambda model: linked_for(model, Settings()),
}
LARGE = 20_000
"""Bytes of models that are left out."""
SECONDS = 20.0
"""None takes a tenth of it on an idle machine."""


def test_some_mutants_of_random_graphs(way: str) -> None:
    for seed in range(25):
        random = Random(seed)
        ends_as_documented(way, seed, mutant(random, onnx_io.to_proto(random_graph(random, 6))))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_mutants_of_the_models_of_onnx(way: str, part: int) -> None:
    models = onnx_models()
    for seed in range(1000 * part, 1000 * (part + 1)):
        random = Random(seed)
        ends_as_documented(way, seed, mutant(random, random.choice(models)))


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@cache
def onnx_models() -> list[ModelProto]:
    return [model for _, model in suite() if model.ByteSize() < LARGE]


def ends_as_documented(way: str, seed: int, model: bytes) -> None:
    ending = outcome(lambda: WAYS[way](model), SECONDS)
    assert ending in ("ok", "refused"), f"mutant {seed}: {ending}"
