"""The steps of lowering: each run alone, in place of another, or after one, and each with a text of what it gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.compile import ReferenceWarning, lowered
from graphopt.errors import UsageError
from graphopt.ir.text import parse
from graphopt.lowering.link.lowered import Lowered
from graphopt.lowering.link.options import BY_RULE, Options
from graphopt.lowering.link.passes import emit, fuse_ops, legalize_ops, lower_to_programs, schedule
from graphopt.lowering.link.plan_memory import plan_memory
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.script import show
from graphopt.run.steps import COMPILE, Steps

TEXT = "x: float32[4, 8] w: float32[8, 3] a = MatMul(x, w) b = Relu(a) c = Reshape(b, [-1]) y = Exp(c) return y"
LOOP = """
n: int64[] c: bool[] x: float32[2]
y = Loop(n, c, x, body={ i: int64[] k: bool[] a: float32[2] b = Neg(a) return k, b })
return y
"""


def test_each_step_adds_what_its_name_says() -> None:
    program = legalize_ops(parse(TEXT))
    assert "Reshape is a view" in program.script()
    program = fuse_ops(program)
    assert "MatMul (anchor) + Relu (elementwise)" in program.script()
    program = lower_to_programs(program)
    assert program.script().count("@program") == 2
    assert not program.scheduled
    program = schedule(program)
    assert "vectorized" in program.script()
    assert not program.kernels
    program = emit(program)
    assert "def kernel(" in program.script()
    assert program.linked is None
    program = plan_memory(program)
    assert "view of" in program.script()
    assert program.plan.kernels == lowered(parse(TEXT), BY_RULE, Steps()).kernels


def test_a_step_can_be_run_on_what_another_made() -> None:
    program = lower_to_programs(fuse_ops(legalize_ops(parse(TEXT))))
    plain = replace(program, options=Options(schedule=lambda nest: nest))
    assert "vectorized" in schedule(program).script()
    assert "vectorized" not in schedule(plain).script()
    assert "vectorized" in schedule(program).script()  # nothing was changed


def test_a_step_of_the_users_own_in_place_of_the_schedule_and_after_it() -> None:
    graph, seen = parse("x: float32[64] y = Exp(x) return y"), list[Nest]()

    def plain(step: Callable[[Lowered], Lowered], program: Lowered) -> Lowered:
        return schedule(replace(program, options=replace(program.options, schedule=lambda nest: nest)))

    def looked(step: Callable[[Lowered], Lowered], program: Lowered) -> Lowered:
        found = step(program)
        return found.with_schedules(lambda nest: seen.append(nest) or nest)  # type: ignore[func-returns-value]

    x = np.linspace(0, 1, 64, dtype=np.float32)
    made = graphopt.compile(graph, steps={"Schedule": plain})
    (part,) = made.compiled.linked.parts
    assert "vectorized" not in show(part.nest)
    np.testing.assert_allclose(made(x)["y"], np.exp(x), rtol=1e-6)
    graphopt.compile(graph, steps={"schedule": looked})
    assert ["vectorized" in show(nest) for nest in seen] == [True]


def test_every_step_is_timed_under_its_name() -> None:
    steps = [s.name for s in graphopt.compile(parse(TEXT)).report.steps]
    assert steps == [name for name in COMPILE if name in steps]
    assert steps[-8:] == list(COMPILE[-9:-1])  # the report is there before the program is verified
    with pytest.raises(UsageError, match="there is no step 'FuseOp'; did you mean FuseOps"):
        graphopt.compile(parse(TEXT), steps={"FuseOp": lambda step, value: step(value)})


def test_copies_of_loops_are_nests_that_are_scheduled_like_others() -> None:
    program = lower_to_programs(fuse_ops(legalize_ops(parse(LOOP))))
    nests = list(dict.fromkeys(program.nests()))
    program = plan_memory(emit(schedule(program)))
    assert set(program.kernels) == set(nests)
    assert "for b" in program.script()


def test_kernels_are_begun_as_they_are_written() -> None:
    program, begun = schedule(lower_to_programs(fuse_ops(legalize_ops(parse(TEXT))))), list[object]()
    made = plan_memory(emit(program, begun.append), begun.append)
    assert begun == list(made.plan.kernels)


@pytest.mark.parametrize("step", ["write", "scheduled", "emitted"])
def test_nodes_with_whose_nest_something_goes_wrong_are_left_to_reference(
    step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("graphopt.lowering.link.passes")
    real = getattr(module, step)

    def fails(*arguments: Any, **options: Any) -> Any:
        if "Tanh" in str(arguments) or "tanh" in str(arguments):
            raise IndexError("tuple index out of range")
        return real(*arguments, **options)

    monkeypatch.setattr(module, step, fails)
    graph = parse("x: float32[4] y: float32[3] t = Tanh(x) r = Relu(y) return t, r")
    with pytest.warns(ReferenceWarning, match=r"^t .*its lowering failed: IndexError"):
        compiled = graphopt.compile(graph).compiled
    feeds = {"x": np.ones(4, np.float32), "y": -np.ones(3, np.float32)}
    outputs = compiled.program(feeds)
    assert [(name, op) for name, op, *_ in compiled.report.unlowered] == [("t", "Tanh")]
    np.testing.assert_allclose(outputs["t"], np.tanh(feeds["x"]), rtol=1e-6)
    assert not outputs["r"].any()


def test_a_node_with_whose_shape_function_something_goes_wrong_is_left_to_reference() -> None:
    text = """boxes: float32[2, 1, 6, 4], scores: float32[1, 1, 6]
        y = NonMaxSuppression(boxes, scores, [3], 0.5, 0.1)
        return y"""
    with pytest.warns(ReferenceWarning, match="^y .*sizes of its output depend on what its inputs hold"):
        compiled = graphopt.compile(parse(text), verify="off")
    assert [(name, op) for name, op, *_ in compiled.report.unlowered] == [("y", "NonMaxSuppression")]
