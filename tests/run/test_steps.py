"""Steps are timed, told to whoever listens, and kept for the report."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from graphopt.errors import UsageError
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType
from graphopt.progress import Event
from graphopt.run.steps import Steps, count_ops, rare_collections


def body(n: int) -> Graph:
    graph = Graph()
    value = graph.add_input("b", TensorType("float32", (2,)))
    for _ in range(n):
        value = Value(graph.add("Neg", (value,)).id)
    graph.add_output("r", value)
    return graph


def test_a_step_gives_what_its_function_gives() -> None:
    assert Steps()("divide", divmod, 7, 2) == (3, 1)
    assert Steps()("sort", sorted, [1, 2], reverse=True) == [2, 1]


def test_a_step_is_told_when_it_starts_and_when_it_ends() -> None:
    heard: list[Event] = []
    Steps(heard.append)("look", len, [])
    assert [e.step for e in heard] == ["look", "look"]
    assert heard[0].seconds is None
    assert heard[1].seconds is not None


def test_it_tells_what_part_of_its_steps_is_done() -> None:
    heard: list[Event] = []
    step = Steps(heard.append, ("read", "tidy", "explore", "write"))
    for name in ("read", "explore", "tidy", "write", "of nobody"):
        step(name, len, [])
    assert [e.share for e in heard if e.seconds is None] == [0, 0.5, 0.5, 0.75, None]


def test_steps_of_one_name_are_one_row() -> None:
    steps = Steps()
    first, second = (parse(f"x: float32[2]\ny = {text}\nreturn y") for text in ("Relu(Relu(x))", "Relu(x)"))
    steps("tidy", lambda: first)
    steps("explore", lambda: None)
    before = steps.done[0].seconds
    steps("tidy", lambda: second)
    assert [(s.name, s.ops) for s in steps.done] == [("tidy", 1), ("explore", None)]
    assert steps.done[0].seconds >= before


def test_a_step_of_the_users_own_takes_the_place_of_another() -> None:
    def twice(step: Callable[[int], int], value: int) -> int:
        return 2 * step(value + 1)

    steps = Steps(None, ("add", "PlanMemory"), {"add": twice, "plan-memory": lambda step, value: 7})
    assert steps("add", int.__add__, 3, 10) == 28
    assert steps("PlanMemory", len, []) == 7
    assert steps("other", len, []) == 0
    assert [s.name for s in steps.done] == ["add", "PlanMemory", "other"]


def test_a_step_that_does_not_exist_or_gives_nothing_is_an_error_of_one_line() -> None:
    with pytest.raises(UsageError, match=r"^there is no step 'tidying'; did you mean tidy\?$"):
        Steps(None, ("tidy", "fold"), {"tidying": lambda step, value: value})
    steps = Steps(None, ("tidy", "write"), {"tidy": lambda step, value: None, "write": lambda step, value: step(value)})
    with pytest.raises(UsageError, match="your own step 'tidy' gave None"):
        steps("tidy", len, [])
    assert steps("write", [].extend, []) is None  # type: ignore[func-returns-value]


def test_ops_are_counted_with_those_of_bodies() -> None:
    graph = parse("x: float32[2]\nw = [1.0, 2.0]\ny = Relu(Relu(Add(x, w)))\nreturn y")
    x = graph.inputs[0]
    condition = graph.add_input("c", TensorType("bool", ()))
    graph.add("If", (condition, x), Attrs(then_branch=body(2), else_branch=body(1)), captures=1)
    assert list(count_ops(graph).items()) == [("Neg", 3), ("Relu", 2), ("Add", 1), ("If", 1)]


def test_garbage_is_collected_less_often_for_a_while() -> None:
    before = gc.get_threshold()
    with rare_collections:
        with rare_collections:
            assert gc.get_threshold()[0] >= rare_collections.YOUNG
        assert gc.get_threshold()[0] >= rare_collections.YOUNG
    assert gc.get_threshold() == before
