"""Programs of modules are scheduled by lists of rules."""

from __future__ import annotations

import numpy as np
import pytest

import graphopt
from graphopt.lowering.loops import compute as te
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.module.module import Module
from graphopt.lowering.module.scheduling import Schedule, apply_rules, explain_rules
from graphopt.lowering.schedule import schedule
from graphopt.lowering.schedule.rules import Fallback, Matmul, Reduction


def two_programs() -> Module:
    """The sums of rows of a transposed matrix of open size."""
    b = graphopt.GraphBuilder()
    x = b.input("x", "float32", ("n", 12))

    def sums(y: te.Tensor) -> te.Tensor:
        k = te.reduce_axis(y.shape[1])
        return te.compute((y.shape[0],), lambda i: te.sum(y[i, k.var], k))

    y = b.emit_compute(lambda x: te.compute((12, x.shape[0]), lambda i, j: x[j, i]), [x], name="turn")
    b.output("z", b.emit_compute(sums, [y], name="sums"))
    return b.build()


def test_programs_of_a_module_are_scheduled_by_the_rules_that_are_for_them() -> None:
    module = two_programs()
    used = {name: each.used for name, each in explain_rules(module).items()}
    assert used == {"turn": ("Transpose",), "sums": ("Reduction",)}
    made = apply_rules(module)
    assert explain_rules(made) == {}
    assert graphopt.equal(made, Schedule()(module))
    x = np.arange(60, dtype=np.float32).reshape(5, 12)
    assert np.array_equal(graphopt.compile(made)(x)["z"], x.sum(0))


def test_programs_that_no_rule_is_for_stay() -> None:
    module = two_programs()
    made = apply_rules(module, [Matmul, Reduction])
    assert made["turn"] is module["turn"]
    assert BY_RULE in made["turn"].notes  # type: ignore[union-attr]
    assert BY_RULE not in made["sums"].notes  # type: ignore[union-attr]
    assert apply_rules(made, []) is made


def test_rules_of_a_pass_may_be_functions_and_classes() -> None:
    def long_rows(s: schedule.Schedule) -> object:
        return "it has no reduction" if len(s.get_loops("turn")) == 2 else True

    made = Schedule([long_rows, Fallback])(two_programs())
    turn = made["turn"]
    assert isinstance(turn, Nest)
    assert "vectorized" not in turn.script()
    assert "parallel" in turn.script() or "serial" in turn.script()


def test_a_module_is_scheduled_for_a_gpu() -> None:
    made = apply_rules(two_programs(), target="simulated")
    for _, nest in made.programs():
        assert "threadIdx.x" in nest.script()


def test_a_target_that_is_none_is_an_error() -> None:
    with pytest.raises(graphopt.errors.UsageError):
        apply_rules(two_programs(), target="none")
