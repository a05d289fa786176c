"""Who watches sees each choice with what it was made from."""

from __future__ import annotations

from graphopt.ir.text import parse
from graphopt.optimize import optimize_graph
from graphopt.rewrite.extract.choose import extract
from graphopt.rewrite.extract.cost import CostModel
from graphopt.run.observer import Watch
from graphopt.target import CPU


def test_a_choice_is_made_again_from_what_was_seen() -> None:
    watch = Watch()
    optimize_graph(parse("x: float32[4, 6]\ny = Transpose(Transpose(Relu(Relu(x))))\nreturn y"), target=CPU, step=watch)
    assert watch.seen
    for seen in watch.seen:
        assert isinstance(seen.model, CostModel)
        assert extract(seen.saturated, seen.model, seen.growth).choice == seen.extraction.choice
    assert {step.name for step in watch.done} >= {"tidy", "explore", "choose"}
