"""Schedule traces: recorded primitives, printed as Python, saved, and replayed with other decisions.

A step's arguments name what earlier steps gave (``Reference``) rather than its value, so that a tile
size that is drawn anew reaches every step that used it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from graphopt.display import Scripted, counted
from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass

if TYPE_CHECKING:
    from graphopt.lowering.loops.nest import Nest
    from graphopt.lowering.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Reference:
    """A reference to an earlier result: the step's position in the trace and, of several results, which one."""

    step: int
    item: int | None = None


Argument: TypeAlias = "bool | int | float | str | Reference | tuple[Argument, ...] | None"


@dataclass(frozen=True, slots=True)
class TraceStep:
    """A step of a trace: one call of a method of ``Schedule``.

    ``results`` says what it gave: one letter each, ``b`` for a block, ``l`` for a loop, ``v`` for a number, ``n`` for
    nothing; ``single`` is false where they came as a tuple. ``decision`` is what a sampling step drew.

    >>> s.parallel("i")
    >>> step = s.trace.steps[-1]
    >>> isinstance(step, schedule.TraceStep), step.primitive, step.args
    (True, 'parallel', ('i',))
    >>> step.references
    ()
    """

    primitive: str
    args: tuple[Argument, ...] = ()
    kwargs: tuple[tuple[str, Argument], ...] = ()
    decision: Argument = None
    results: str = "n"
    single: bool = True
    question: bool = False

    @property
    def references(self) -> tuple[Reference, ...]:
        """The earlier results in the arguments."""
        return tuple(r for a in (*self.args, *(v for _, v in self.kwargs)) for r in _references(a))


def _references(argument: Argument) -> tuple[Reference, ...]:
    if isinstance(argument, Reference):
        return (argument,)
    return tuple(r for a in argument for r in _references(a)) if isinstance(argument, tuple) else ()


@dataclass(frozen=True, slots=True, repr=False)
class Trace(Scripted):
    """A trace: the steps of a schedule in order.

    >>> s.parallel("i")
    >>> trace = s.trace
    >>> isinstance(trace, schedule.Trace), trace
    (True, <Trace of 1 step>)
    >>> schedule.Trace.from_json(trace.to_json()) == trace
    True
    >>> i, j = s.get_loops("y")
    >>> tiles = s.sample_perfect_tile(j, 2)
    >>> s.trace.decisions
    {2: (1, 8)}
    >>> s.trace.with_decisions({2: [2, 4]}).decisions
    {2: (2, 4)}
    >>> print(trace)
    s.parallel('i')
    >>> trace.replay(nest).nest == schedule.replay(trace, nest).nest
    True
    """

    steps: tuple[TraceStep, ...] = ()

    @property
    def decisions(self) -> dict[int, Argument]:
        """The decisions of the sampling steps, by position."""
        return {k: s.decision for k, s in enumerate(self.steps) if s.decision is not None}

    def with_decisions(self, decisions: Mapping[int, Argument | Sequence[Argument]]) -> Trace:
        """The trace with other decisions at the positions given; raises ScheduleError where a step draws nothing."""
        decisions_now = self.decisions
        for position in decisions:
            if position not in decisions_now:
                places = ", ".join(map(str, decisions_now)) or "nowhere"
                raise ScheduleError(f"with_decisions: step {position} draws nothing; decisions stand at {places}")
        steps = list(self.steps)
        for position, decision in decisions.items():
            steps[position] = replace(steps[position], decision=_frozen(decision))
        return Trace(tuple(steps))

    def replay(self, nest: Nest, seed: int = 0) -> Schedule:
        """The schedule of a nest by these steps; raises ScheduleError where one does not apply."""
        from graphopt.lowering.schedule.schedule import replay  # schedules hold traces, so this stands here

        return replay(self, nest, seed)

    def __repr__(self) -> str:
        return f"<Trace of {counted(len(self.steps), 'step')}>"

    def script(self) -> str:
        """The steps as Python."""
        return "".join(f"{line}\n" for line in _lines(self))

    def to_json(self) -> str:
        """The trace as JSON, which ``from_json`` reads."""
        steps = [
            {
                "primitive": s.primitive,
                "args": [_plain(a) for a in s.args],
                "kwargs": {k: _plain(v) for k, v in s.kwargs},
                "decision": _plain(s.decision),
                "results": s.results,
                "single": s.single,
                "question": s.question,
            }
            for s in self.steps
        ]
        return json.dumps({"format": FORMAT, "steps": steps}, indent=1) + "\n"

    @staticmethod
    def from_json(text: str) -> Trace:
        """The trace from the JSON of ``to_json``; raises ScheduleError for any other text."""
        try:
            held = json.loads(text)
            if held["format"] != FORMAT:
                raise ScheduleError(f"from_json: the trace has format {held['format']}, and {FORMAT} is read")
            steps = tuple(
                TraceStep(
                    str(s["primitive"]),
                    tuple(_frozen(a) for a in s["args"]),
                    tuple((str(k), _frozen(v)) for k, v in s["kwargs"].items()),
                    _frozen(s["decision"]),
                    str(s["results"]),
                    bool(s["single"]),
                    bool(s["question"]),
                )
                for s in held["steps"]
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ScheduleError(f"from_json: this is not a saved trace ({error!r})") from None
        return Trace(steps)


FORMAT = 1
"""The number of the format that ``Trace.to_json`` writes."""


def _plain(argument: Argument) -> object:
    """The argument in values that JSON has; a reference is an object."""
    if isinstance(argument, Reference):
        return {"step": argument.step, "item": argument.item}
    return [_plain(a) for a in argument] if isinstance(argument, tuple) else argument


def _frozen(value: object) -> Argument:
    """The argument that a plain value stands for."""
    if isinstance(value, dict):
        return Reference(int(value["step"]), None if value["item"] is None else int(value["item"]))
    if isinstance(value, list | tuple):
        return tuple(_frozen(v) for v in value)
    if value is None or isinstance(value, bool | int | float | str | Reference):
        return value
    raise TypeError(f"a step of a trace cannot hold {value!r}")


def _lines(trace: Trace) -> list[str]:
    """The trace as Python, one line a step; what no later step uses is not named."""
    # Linear: names are given where a step's results are used later, in order.
    used = {r for s in trace.steps for r in s.references}
    names: dict[Reference, str] = {}
    lines = []
    for position, step in enumerate(trace.steps):
        items = [Reference(position, None if step.single else k) for k in range(len(step.results))]
        for item, letter in zip(items, step.results, strict=True):
            if item in used:
                names[item] = f"{letter}{len(names)}"
        words = [_text(a, names) for a in step.args] + [f"{k}={_text(v, names)}" for k, v in step.kwargs]
        if step.decision is not None:
            words.append(f"decision={_text(step.decision, names)}")
        call = f"s.{step.primitive}({', '.join(words)})"
        if any(item in used for item in items):
            left = ", ".join(names.get(item, "_") for item in items)
            call = f"{left if step.single else f'({left},)' if len(items) == 1 else left} = {call}"
        lines.append(call)
    return lines


def _text(argument: Argument, names: Mapping[Reference, str]) -> str:
    if isinstance(argument, Reference):
        return names[argument]
    if isinstance(argument, tuple):
        return f"[{', '.join(_text(a, names) for a in argument)}]"
    if isinstance(argument, float) and not abs(argument) < float("inf"):
        return f"float({str(argument)!r})"
    return repr(argument)
