"""A trace, the rules, or nothing makes a program of a workload."""

import numpy as np
import pytest

from graphopt.kernels.product_form import BLOCKS
from graphopt.lowering.cpu.default_schedules import chosen
from graphopt.lowering.schedule.schedule import Schedule
from graphopt.runtime.program import Program
from graphopt.runtime.steps import LoopStep
from graphopt.tuning.building import Order, Way, built
from graphopt.tuning.processes import CandidateError
from graphopt.tuning.runner import NUMBER
from graphopt.tuning.workload import Workload
from tests.tuning.nests import product as naive
from tests.tuning.products import by_rows, product


@pytest.mark.parametrize("way", ["written", "default", "trace"])
def test_a_program_runs_as_often_as_it_is_told(way: Way) -> None:
    code = built(Order(product(), way=way, trace=by_rows(product()).trace), 60)
    assert [type(step) for step in code.steps] == [LoopStep]
    random = np.random.default_rng(0)
    a, b = random.standard_normal((48, 32)), random.standard_normal((32, 64))
    inputs = {"a": a.astype(np.float32), "b": b.astype(np.float32)}
    with Program(code, threads=1) as program:
        for number in (1, 3):
            found = program({**inputs, NUMBER: np.array(number)})
            np.testing.assert_allclose(found["c"], a @ b, atol=1e-4)
        nothing = {"c": np.full((48, 64), 7, np.float32)}
        program({**inputs, NUMBER: np.array(0)}, out=nothing)
        assert (nothing["c"] == 7).all()


def test_who_has_no_time_has_no_program() -> None:
    with pytest.raises(CandidateError, match=r"^not built: no answer after 0 s$"):
        built(Order(product()), 0)
    with pytest.raises(CandidateError, match=r"^not built: .*<script>"):
        built(Order(type(product())("no script")), 60)


@pytest.mark.parametrize("function", [0, 1])
def test_what_a_called_function_makes_goes_out(function: int) -> None:
    workload = Workload.of(naive(64, 64, 64))
    s = Schedule(workload.nest)
    s.by_rule((("function", function),))
    code = built(Order(workload, way="trace", trace=s.trace.to_json()), 60)
    assert ([p.name for p in code.inputs], [p.name for p in code.outputs]) == (["a", "b", NUMBER], ["c"])


def test_blocks_of_our_own_product_are_a_choice() -> None:
    workload = Workload.of(naive(400, 64, 800))
    offered = chosen(workload.nest, {"function": 1})[1]
    assert all(len(offered[block]) > 1 for block in BLOCKS)
    s = Schedule(workload.nest)
    s.by_rule((("function", 1), *((block, offered[block][1]) for block in BLOCKS)))
    random = np.random.default_rng(0)
    a, b = random.standard_normal((400, 800), np.float32), random.standard_normal((800, 64), np.float32)
    with Program(built(Order(workload, way="trace", trace=s.trace.to_json()), 60), threads=1) as program:
        np.testing.assert_allclose(program({"a": a, "b": b, NUMBER: np.array(1)})["c"], a @ b, atol=1e-3)
