"""What would change a choice is asked for, by made-up times, and changes it; nothing else is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.benchmark.active_measurement import Answers, described, tune_choices
from graphopt.compile import prepared
from graphopt.errors import ReadError, UsageError
from graphopt.ir.text import parse
from graphopt.rewrite.extract.workload import OpWorkload as Call
from graphopt.run.settings import Settings
from graphopt.run.steps import Steps
from graphopt.tuning import Budget
from graphopt.tuning.record import Candidate, Outcome
from graphopt.tuning.tuned_prices import nests
from tests.tuning.made_up import MadeUp, times_as_fast
from tests.tuning.test_tuned_prices import convolution

BLOCKED = "graphopt::BlockedConv"
PLAIN = '{"op":"Conv","inputs":["float32[1,64,28,28]","const float32[64,64,1,1]"]}'
LAYOUT = {BLOCKED, "graphopt::Block", "graphopt::Unblock"}


def pointwise() -> bytes:
    """A convolution of 1 x 1, for which prices choose blocks, and not by far."""
    w = np.random.default_rng(0).standard_normal((64, 64, 1, 1), np.float32)
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 64, 28, 28]) for name in "xy")
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "pointwise", [x], [y], [numpy_helper.from_array(w, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


def by_layout(plain: float, blocked: float) -> Callable[[Candidate], Outcome]:
    """So many seconds of the plain convolution, and of all other nests."""
    own = nests(Call.parse(PLAIN))
    assert own
    return lambda candidate: times_as_fast(1.0, plain if candidate.workload in own else blocked)


def ops(calls: Mapping[str, int]) -> set[str]:
    return {Call.parse(text).op for text in calls}


def asked(found: Answers) -> set[str]:
    return {Call.parse(question.call).op for question in found.questions}


def test_times_that_change_a_layout_are_asked_for_and_change_it(tmp_path: Path) -> None:
    executor = MadeUp(by_layout(plain=1e-6, blocked=1.0))
    found = tune_choices(pointwise(), tmp_path / "t.sqlite", executor=executor)
    assert asked(found) == LAYOUT | {"Conv"}
    assert all(question.answer for question in found.questions)
    assert (ops(found.before), ops(found.after), found.ending) == (LAYOUT, {"Conv"}, "done")
    assert (ops(found.gone), dict(found.new)) == (LAYOUT, {PLAIN: 1})
    assert found.trials == len(executor.asked) == 4
    assert executor.drawn == []  # default schedules
    graph = prepared(pointwise(), Settings(database=tmp_path / "t.sqlite"), Steps())[0]
    assert "Conv" in {node.op for node in graph.nodes()}


def test_the_prices_are_those_of_the_target(tmp_path: Path) -> None:
    file = tmp_path / "slow-blocks.toml"
    file.write_text('[prices]\nlike = "cpu"\nsource = "assumed"\n[prices.efficiency]\n"blocked dense" = 1e-4\n')
    found = tune_choices(pointwise(), tmp_path / "t.sqlite", Budget(trials=0), executor=MadeUp(), target=str(file))
    assert ops(found.before) == {"Conv"}
    file.write_text('device = "cuda"\n[prices]\nlike = "cpu"\nsource = "assumed"\n')
    with pytest.raises(UsageError, match="measured on the CPU: the target slow-blocks is for cuda"):
        tune_choices(pointwise(), tmp_path / "u.sqlite", target=str(file))


def test_times_that_say_the_same_as_prices_change_nothing_and_are_not_asked_for_again(tmp_path: Path) -> None:
    executor = MadeUp(by_layout(plain=1.0, blocked=1e-6))
    first = tune_choices(pointwise(), tmp_path / "t.sqlite", executor=executor)
    assert "Conv" in asked(first)
    assert not first.gone
    assert not first.new
    again = tune_choices(pointwise(), tmp_path / "t.sqlite", executor=executor)
    assert (again.questions, again.trials, again.before) == ((), 0, first.after)
    assert len(executor.asked) == first.trials


@pytest.mark.parametrize("model", [convolution(), parse("x: float32[64, 64]\ny = Sigmoid(x)\nreturn y")])
def test_where_nothing_could_change_nothing_is_asked(model: object, tmp_path: Path) -> None:
    # blocks are far ahead by prices, or there is one way only
    executor = MadeUp()
    found = tune_choices(model, tmp_path / "t.sqlite", executor=executor)
    assert (found.questions, executor.asked, found.ending) == ((), [], "done")
    assert found.before == found.after
    assert found.before


def test_the_budget_ends_it(tmp_path: Path) -> None:
    executor = MadeUp(by_layout(plain=1e-6, blocked=1.0))
    one = tune_choices(pointwise(), tmp_path / "t.sqlite", Budget(trials=1), executor=executor)
    assert (one.ending, one.trials, len(one.questions)) == ("trials", 1, 1)
    none = tune_choices(pointwise(), tmp_path / "t.sqlite", Budget(seconds=0), executor=executor)
    assert none.ending == "seconds"
    rest = tune_choices(pointwise(), tmp_path / "t.sqlite", Budget(trials=100), executor=executor)
    assert rest.ending == "done"
    assert ops(rest.after) == {"Conv"}


def test_what_cannot_be_measured_is_asked_once_and_changes_nothing(tmp_path: Path) -> None:
    executor = MadeUp(lambda candidate: Outcome(problem="crash: it ended by signal 11"))
    found = tune_choices(pointwise(), tmp_path / "t.sqlite", executor=executor)
    assert found.ending == "done"
    assert [question.answer for question in found.questions] == [None] * 4
    assert not found.gone


def test_an_interruption_keeps_what_was_measured(tmp_path: Path) -> None:
    count = 0

    def answer(candidate: Candidate) -> Outcome:
        nonlocal count
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return times_as_fast(1.0, 1e-3)

    found = tune_choices(pointwise(), tmp_path / "t.sqlite", executor=MadeUp(answer))
    assert found.ending == "interrupted"
    assert [question.answer is None for question in found.questions].count(False) == found.trials == 2


def test_a_model_that_cannot_be_read_leaves_no_database(tmp_path: Path) -> None:
    with pytest.raises(ReadError):
        tune_choices(tmp_path / "nothing.onnx", tmp_path / "t.sqlite", executor=MadeUp())
    assert not (tmp_path / "t.sqlite").exists()


def test_calls_are_described_by_what_they_read() -> None:
    assert described(PLAIN) == "Conv(float32[1,64,28,28], float32[64,64,1,1])"
