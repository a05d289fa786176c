"""Schedules of elements by steps of primitives give the kernels that the rule gives."""

from __future__ import annotations

import pytest

from graphopt.lowering.schedule.by_rule import chosen_for
from graphopt.lowering.schedule.element_steps import element_steps
from graphopt.lowering.schedule.rules import ElementWise
from graphopt.lowering.schedule.schedule import Schedule
from tests.lowering.cuda.simulated import check as check_simulated
from tests.lowering.described import FIXED, SYMBOLIC
from tests.lowering.native import check

ALL = FIXED | SYMBOLIC
CPU = {
    "flat": ["fuse", "parallel", "split", "vectorize"],
    "any_elements": ["fuse", "parallel", "split", "vectorize"],
    "broadcast": ["vectorize"],
    "padded": ["vectorize"],
    "half": ["fuse", "vectorize"],
}


@pytest.mark.parametrize("name", CPU)
def test_elements_on_the_cpu_are_steps(name: str) -> None:
    nest = ALL[name]()
    s = ElementWise().apply(nest)
    assert isinstance(s, Schedule)
    assert [step.primitive for step in s.trace.steps if not step.question] == CPU[name]
    check(nest, s.nest, [9] if nest.sizes else (), pieces=2)


BOUND = ["split", "vectorize", "split", "bind", "bind"]


@pytest.mark.parametrize("name", ["flat", "padded", "half"])
def test_elements_on_a_gpu_are_steps(name: str) -> None:
    nest = ALL[name]()
    s = ElementWise().apply(nest, "simulated")
    assert isinstance(s, Schedule)
    assert [
        step.primitive for step in s.trace.steps if step.primitive not in ("get_block", "get_loops", "fuse")
    ] == BOUND
    check_simulated(nest, s.nest)


@pytest.mark.parametrize("name", ["joined_in_blocks", "empty", "softmax", "scalar", "transposed"])
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_other_loops_are_none(name: str, target: str) -> None:
    nest = ALL[name]()
    made = chosen_for(target, nest, {})
    steps = element_steps(nest, made.nest)
    assert steps is None or {answer.rule for answer in made.answers} == {"ElementWise"}
    assert name == "transposed" or steps is None


def test_a_loop_of_no_elements_is_bound() -> None:
    nest = ALL["empty"]()
    s = Schedule(nest)
    block, thread = s.split(s.fuse(*s.get_loops(s.get_child_blocks(s.get_block("root"))[0])), [None, 32])
    s.bind(block, "blockIdx.x")
    s.bind(thread, "threadIdx.x")
    check_simulated(nest, s.nest, is_run=False)
