"""Steps of a pipeline: each is timed, told to the listener, kept for the report, and may be a user's own; garbage
collection while they run."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator
from difflib import get_close_matches
from threading import Lock
from typing import Any, ParamSpec, TypeAlias, TypeVar

from graphopt.errors import UsageError
from graphopt.ir.graph import CONSTANT, INPUT, Graph
from graphopt.progress import Event, Listener
from graphopt.run.report import StepReport

P = ParamSpec("P")
T = TypeVar("T")

OwnStep: TypeAlias = Callable[[Callable[[Any], Any], Any], Any]
"""A user's own step: a function of the step whose place it takes and of what that step is given.

It gives what the step would give: ``lambda step, graph: mine(step(graph))`` does something after it,
``lambda step, graph: step(mine(graph))`` before it, and one that never calls ``step`` replaces it.
"""

REWRITE = ("tidy", "explore", "choose", "look up times", "derive", "replicate", "fold")
"""The steps from a graph to one that costs less, in the order in which they first come,"""
OPTIMIZE = ("read", "prepare", *REWRITE, "measure", "write", "verify", "leave out")
"""those of ``graphopt optimize``,"""
LOWER = ("LegalizeOps", "FuseOps", "LowerToPrograms", "Schedule", "Emit", "PlanMemory")
"""those from a graph to the plan of a program,"""
COMPILE = ("read", *REWRITE, *LOWER, "compile", "load", "verify")
"""and those of ``graphopt compile``."""


class Steps:
    """Runs the steps of one pipeline: ``graph = step("tidy", simplify, graph, rules)``.

    ``names`` are those of the steps that the pipeline has, and ``of_user`` has steps that take the place of some of
    them. UsageError where a name is none of these.
    """

    def __init__(
        self,
        listener: Listener | None = None,
        names: Sequence[str] = (),
        of_user: Mapping[str, OwnStep] | None = None,
    ) -> None:
        self.listen: Listener = listener or (lambda event: None)
        self.of_user = {step_named(name, names): step for name, step in (of_user or {}).items()}
        self.done: list[StepReport] = []
        self.names, self.reached = names, 0.0

    def _share(self, name: str) -> float | None:
        """The part of the pipeline's steps that come before one; what comes again takes nothing back."""
        if name not in self.names:
            return None
        self.reached = max(self.reached, self.names.index(name) / len(self.names))
        return self.reached

    def __call__(self, name: str, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """What the function gives. Several steps of one name are one row of the report, with their times added."""
        self.listen(Event(name, share=self._share(name)))
        start = time.perf_counter()
        if name in self.of_user:
            result = self._by_user(name, function, *arguments, **options)
        else:
            result = function(*arguments, **options)
        seconds = time.perf_counter() - start
        self.listen(Event(name, seconds=seconds))
        self._keep(StepReport(name, seconds, sum(count_ops(result).values()) if isinstance(result, Graph) else None))
        return result

    def _by_user(self, name: str, function: Callable[..., T], value: object, *arguments: Any, **options: Any) -> T:
        """What the user's own step gives. UsageError where that is nothing."""
        given: list[T] = []

        def step(value: Any) -> T:
            given.append(function(value, *arguments, **options))
            return given[-1]

        result: T = self.of_user[name](step, value)
        if result is None and None not in given:
            raise UsageError(f"your own step {name!r} gave None, and what the step gives is expected")
        return result

    def _keep(self, step: StepReport) -> None:
        for index, old in enumerate(self.done):
            if old.name == step.name:
                self.done[index] = StepReport(step.name, old.seconds + step.seconds, step.ops)
                return
        self.done.append(step)


class Collections(ContextDecorator):
    """Garbage collection while large graphs are built: nearly all that is made stays, and is looked at in vain."""

    YOUNG = 100_000
    """So many new objects are made between two collections."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.running = 0
        self.threshold = gc.get_threshold()

    def __enter__(self) -> None:
        with self.lock:
            if not self.running:
                self.threshold = gc.get_threshold()
                if self.threshold[0]:  # whoever switched it off keeps it so
                    gc.set_threshold(max(self.YOUNG, self.threshold[0]), *self.threshold[1:])
            self.running += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.running -= 1
            if not self.running:
                gc.set_threshold(*self.threshold)


rare_collections = Collections()


def step_named(name: str, names: Sequence[str]) -> str:
    """The step of this name, however its words are joined: ``PlanMemory``, ``plan-memory`` and ``plan memory`` are one.

    UsageError where there is none.
    """
    there = {_plain(n): n for n in names}
    if _plain(name) in there:
        return there[_plain(name)]
    alike = get_close_matches(_plain(name), there, 3)
    hint = f"; did you mean {' or '.join(there[n] for n in alike)}?" if alike else f"; there are {', '.join(names)}"
    raise UsageError(f"there is no step {name!r}{hint}")


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def count_ops(graph: Graph) -> dict[str, int]:
    """How many nodes apply each op, bodies included, the most frequent first."""
    counts: Counter[str] = Counter()
    nodes = list(graph.nodes())
    counts.update([node.op for node in nodes if node.op not in (INPUT, CONSTANT)])
    for node in nodes:
        for body in node.bodies.values():
            counts.update(count_ops(body))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
