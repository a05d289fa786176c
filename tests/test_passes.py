"""What each pass gives is printed, and read back as it is: primitive functions and dataflow regions, too."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt import passes
from graphopt.ir.constants import Constant
from graphopt.ir.onnx_io import load
from graphopt.lowering.module.builder import GraphBuilder
from graphopt.lowering.module.module import Module
from graphopt.program.pipelines import PIPELINES
from tests.corpus.make_applications import made
from tests.random_graphs import random_graph

LOWERING = (
    passes.LegalizeOps(),
    passes.AnnotateKinds(),
    passes.FuseOps(),
    passes.FuseTensorPrograms(),
    passes.DeadCode(),
    passes.FoldConstants(),
    passes.Schedule(),
    passes.PlanMemory(),
)
RNG = np.random.default_rng(0)


def read_back_after_each(module: Module, each_of: Iterable[Any]) -> Module:
    """What the passes make of a module, which is printed and read after each of them."""
    for each in each_of:
        made_of_it = each(module)
        beside: list[Constant] = []
        text = made_of_it.script(beside)
        module = Module.read(text, beside)
        assert graphopt.difference(module, made_of_it) is None, each
        assert marks(module.script([])) == marks(text), each
    return module


def marks(text: str) -> list[str]:
    """The lines of primitive functions and dataflow regions."""
    return [line for line in text.split("\n") if "primitive" in line or "dataflow" in line]


def network() -> Module:
    """Ops in a region and outside of it, and a call with effects."""
    graphopt.register("passes.log", lambda x: None, effects=True)
    builder = GraphBuilder()
    x = builder.input("x", "float32", ("n", 16))
    with builder.dataflow():
        product = builder.emit("MatMul", [x, RNG.standard_normal((16, 16), np.float32)])
        h = builder.emit("Relu", [builder.emit("Add", [product, RNG.standard_normal(16, np.float32)])])
        builder.call("passes.log", [h], out_shape=[])
    builder.output("y", builder.emit("Softmax", [builder.emit("Mul", [h, 2.0])]))
    return builder.build()


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_what_each_pass_of_a_pipeline_gives_reads_back(pipeline: str) -> None:
    module = network()
    lowered = read_back_after_each(module, (*PIPELINES[pipeline].passes, *LOWERING))
    assert "dataflow {" in lowered.script([])
    x = RNG.standard_normal((3, 16), np.float32)
    want, found = (graphopt.compile(m)(x)["y"] for m in (module, lowered))
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", [3, 7])
def test_what_each_pass_makes_of_any_graph_reads_back(seed: int) -> None:
    graph = random_graph(Random(seed), steps=6)
    read_back_after_each(Module.of(graph), (*PIPELINES["cpu"].passes, *LOWERING))


@pytest.mark.parametrize("name", ["encoder", "decoder_step", "lists"])
def test_what_each_pass_makes_of_a_model_reads_back(name: str) -> None:
    graph = load(made(name).SerializeToString())
    read_back_after_each(Module.of(graph), (*PIPELINES["zero"].passes, *LOWERING))
