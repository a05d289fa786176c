"""The section on kernels: each call with its loops, source, nodes and times, and the arena over time."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import graphopt
from graphopt.benchmark.bench import EngineTiming
from graphopt.benchmark.ceilings import NEAR, Ceilings
from graphopt.compile import CompiledModel
from graphopt.ir.text import parse
from graphopt.web.drawing import draw
from graphopt.web.kernels import LARGEST, Kernels, kernels

TEXT = """
    graph chain (ir 8, opset 17)
    x: float32[n, 8]
    a = Relu(x)
    s = ReduceSum(a, int64[1]{1})
    b = Softmax(a, axis=1)
    c = Mul(b, s)
    return c
"""
FEEDS = [np.arange(16, dtype=np.float32).reshape(2, 8)]


@pytest.fixture(scope="module")
def model() -> CompiledModel:
    return graphopt.compile(parse(TEXT), jobs=1)


def section(model: CompiledModel, **more: object) -> Kernels:
    found = model.compiled
    return kernels(found.linked, found.program, drawing=draw(found.graph), **more)  # type: ignore[arg-type]


def test_each_call_has_its_loops_its_source_and_its_nodes(model: CompiledModel) -> None:
    found = section(model)
    assert len(found.calls) == len(model.compiled.linked.parts) > 0
    boxes = draw(model.graph).boxes
    assert "".join(call.label for call in found.calls).count("Softmax") == 1
    for call in found.calls:
        assert "def " in found.texts[call.source]
        assert "for " in found.texts[call.loops]
        assert call.plain is not None
        assert {v.name for k in call.boxes for v in boxes[k].makes} & set(call.nodes)
        assert call.seconds is None
    assert len(set(found.texts)) == len(found.texts)
    assert found.arena is None  # which takes sizes


def test_a_profile_gives_calls_their_times(model: CompiledModel) -> None:
    rows = model.profile(FEEDS)
    ceilings = Ceilings(1e9, 1e8, 1e10, 2)
    timings = [EngineTiming("ort", 2e-6, 3e-6, 5, 0.1, 2.0, 0.25)]
    found = section(model, rows=rows, ceilings=ceilings, timings=timings)
    assert sum(c.seconds or 0 for c in found.calls) == pytest.approx(sum(r.seconds for r in rows if r.is_native))
    assert sum(c.flops for c in found.calls) == sum(r.flops for r in rows)
    assert found.limits is not None
    assert (found.limits.flops, found.limits.near) == (1e9, 2 * NEAR)
    assert [(e.name, e.ratio) for e in found.engines] == [("ort", 2.0)]
    python = section(model, rows=[replace(rows[0], is_native=False, label="Loop", nodes=("body",), seconds=0.5)])
    assert python.steps == (("Loop body", 0.5),)


def test_the_arena_holds_every_value_where_its_lifetime_says(model: CompiledModel) -> None:
    arena = section(model, sizes={"n": 1000}).arena
    assert arena is not None
    assert arena.sizes == {"n": 1000}
    assert arena.leases
    for one in arena.leases:
        assert one.offset + one.bytes <= arena.arena
        assert 0 <= one.first <= one.last
        for other in arena.leases:
            if one is not other and one.first <= other.last and other.first <= one.last:
                assert one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset


def test_a_long_source_is_cut(model: CompiledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphopt.web.kernels.LARGEST", 50)
    assert LARGEST > 50
    found = section(model)
    assert all("characters more" in found.texts[c.source] for c in found.calls)
    assert max(map(len, found.texts)) < 100
