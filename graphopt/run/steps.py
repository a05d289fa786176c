"""The steps of a pipeline: each is timed, told to whoever listens, and kept for the report."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from graphopt.ir.graph import CONSTANT, INPUT, Graph
from graphopt.progress import Event, Listener
from graphopt.run.report import Step

P = ParamSpec("P")
T = TypeVar("T")


class Steps:
    """Runs the steps of one pipeline: ``graph = step("tidy", simplify, graph, rules)``."""

    def __init__(self, listener: Listener | None = None) -> None:
        self.listen: Listener = listener or (lambda event: None)
        self.done: list[Step] = []

    def __call__(self, name: str, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """What the function gives. Several steps of one name are one row of the report, with their times added."""
        self.listen(Event(name))
        start = time.perf_counter()
        result = function(*arguments, **options)
        seconds = time.perf_counter() - start
        self.listen(Event(name, seconds=seconds))
        self._keep(Step(name, seconds, sum(count_ops(result).values()) if isinstance(result, Graph) else None))
        return result

    def _keep(self, step: Step) -> None:
        for index, old in enumerate(self.done):
            if old.name == step.name:
                self.done[index] = Step(step.name, old.seconds + step.seconds, step.ops)
                return
        self.done.append(step)


def count_ops(graph: Graph) -> dict[str, int]:
    """How many nodes apply each op, bodies included, the most frequent first."""
    counts: Counter[str] = Counter()
    for node in graph.nodes():
        if node.op not in (INPUT, CONSTANT):
            counts[node.op] += 1
        for body in node.bodies.values():
            counts.update(count_ops(body))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
