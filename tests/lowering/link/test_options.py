"""Nests of compiled models are taken out, scheduled by hand, and put back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import graphopt
from graphopt.errors import GraphoptError, UsageError
from graphopt.ir import evaluate
from graphopt.ir.text import parse
from graphopt.ir.tolerance import error
from graphopt.lowering.loops.nest import For, Nest, blocks, statements
from graphopt.lowering.schedule.schedule import Schedule

TEXT = """
x: float32[n, 16]
w = float32[16, 8]{0.125, ...}
h = MatMul(x, w)
y = Relu(h)
return y
"""
X = np.random.default_rng(0).standard_normal((5, 16)).astype(np.float32)


def test_a_nest_is_scheduled_by_a_function_or_taken_as_it_is() -> None:
    graph = parse(TEXT)
    model = graphopt.compile(graph, optimize=False)
    assert set(model.nests) == {"h", "y"}
    assert model.nests["h"] is model.nests["y"]
    names = [b.name for b in model.nests["h"].allocs]

    def mine(s: Schedule) -> None:
        (block,) = (s.get_block(name) for name in names)
        i, j, k = s.get_loops(block)
        s.reorder(i, k, j)
        s.decompose_reduction(block, k)
        s.vectorize(j)

    schedule = Schedule(model.nests["h"])
    mine(schedule)
    for given in (mine, schedule.nest):
        again = graphopt.compile(graph, optimize=False, schedules={"h": given})
        (part,) = again.compiled.linked.parts
        assert part.nest == schedule.nest
        assert any(isinstance(s, For) and s.kind == "vectorized" for s in statements(part.nest.body))
        assert error(evaluate.run(graph, {"x": X})["y"], again(X)["y"]) <= 1


def test_a_nest_that_was_scheduled_by_rule_is_a_schedule_by_hand() -> None:
    attrs = "kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]"
    graph = parse(f"x: float32[1, 2, 9, 70]\ny = MaxPool(x, {attrs})\nreturn y")
    model = graphopt.compile(graph, optimize=False)
    schedule = Schedule(model.nests["y"])
    schedule.by_rule()
    assert max(Counter(b.name for b in blocks(schedule.nest.body)).values()) > 1  # at the edges, and between them
    again = graphopt.compile(graph, optimize=False, schedules={"y": schedule.nest})
    x = np.random.default_rng(0).standard_normal((1, 2, 9, 70), np.float32)
    assert np.array_equal(again(x)["y"], model(x)["y"])


def test_mistakes_are_told() -> None:
    graph = parse(TEXT)
    nest = graphopt.compile(graph, optimize=False).nests["y"]
    with pytest.raises(UsageError, match="no nest computes a node 'q'; there are h, y"):
        graphopt.compile(graph, optimize=False, schedules={"q": nest})
    with pytest.raises(UsageError, match=r"the nest for 'y' takes .*compiled\.nests"):
        graphopt.compile(graph, optimize=False, schedules={"y": replace(nest, params=nest.params[::-1])})
    broken = Nest(nest.name, nest.params, nest.body)  # its own buffer is gone
    with pytest.raises(GraphoptError):
        graphopt.compile(graph, optimize=False, schedules={"y": broken})
