"""Passes of modules that schedule programs and plan memory, as ``graphopt.compile`` does behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from graphopt.errors import ScheduleError, UsageError
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.link.options import BY_RULE as OPTIONS
from graphopt.lowering.link.passes import NestFailed, emit, fuse_ops, legalize_ops, lower_to_programs, schedule
from graphopt.lowering.link.plan_memory import plan_memory
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.lower.lower import NeedsValues
from graphopt.lowering.module.module import Module
from graphopt.lowering.module.packing import pack_constants
from graphopt.lowering.module.passes import ModulePass
from graphopt.lowering.schedule.schedule import Schedule as NestSchedule
from graphopt.rewrite.passes.functions import INLINE
from graphopt.rewrite.passes.simplify import simplify

ScheduleRule: TypeAlias = Callable[[NestSchedule], object]
"""A schedule rule: it schedules what it is given. It does not apply where it gives False or a reason (a text), or
raises ScheduleError."""


def by_default(s: NestSchedule) -> object:
    """The default schedule for the CPU, as a step ``s.by_rule()``; the pass ``Schedule`` packs constants for it."""
    s.by_rule()
    return True


class Schedule(ModulePass):
    """Programs that are not scheduled get a schedule: the first of the ``rules`` that applies.

    A rule is a function of a ``graphopt.Schedule``; it does not apply where it raises ScheduleError or gives False or a
    reason. A program for which none applies stays as it is. The default rule is ``by_default``, what the compiler does
    for the CPU: what a program computes of constants alone is computed now, and weights of products are packed, where
    all calls of the program hand it constants. It takes other constants then.
    """

    def __init__(self, rules: Iterable[ScheduleRule] = (by_default,)) -> None:
        self.rules = tuple(rules)

    def change(self, module: Module) -> Module:
        """The module with scheduled programs."""
        for name, nest in list(module.programs()):
            if BY_RULE in nest.notes:
                self._schedule(module, name, nest)
        return module

    def _schedule(self, module: Module, name: str, nest: Nest) -> None:
        for rule in self.rules:
            packed = pack_constants(module, name, nest) if rule is by_default else None
            s = NestSchedule(nest if packed is None else packed.nest)
            try:
                answer = rule(s)
            except ScheduleError:
                continue
            if answer is not False and not isinstance(answer, str):
                module[name] = answer.nest if isinstance(answer, NestSchedule) else s.nest
                if packed is not None:
                    packed.put_in(module)
                return


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The memory of an entry function: its buffers, and the steps that fill them."""

    name: str
    plan: Linked

    def __str__(self) -> str:
        return f"{self.name}\n{self.plan}"


class PlanMemory(ModulePass):
    """Memory is planned for each entry function, with its kernels as they are now: which buffers there are, which share
    memory, and the steps that fill them. ``tell`` is given each plan; the module stays as it is.

    ``plans`` has the last module's plans by name. UsageError where loops depend on the elements of inputs.
    """

    def __init__(self, tell: Callable[[MemoryPlan], object] | None = None) -> None:
        self.tell = tell
        self.plans: Mapping[str, MemoryPlan] = {}

    def change(self, module: Module) -> Module:
        """The module itself."""
        self.plans = {name: MemoryPlan(name, _planned(module, name)) for name in module.entries}
        if self.tell is not None:
            for plan in self.plans.values():
                self.tell(plan)
        return module


def _planned(module: Module, name: str) -> Linked:
    graph, options = simplify(module.graph(name), (), (INLINE,)), OPTIONS
    while True:
        try:
            program = legalize_ops(graph, options)
            for step in (fuse_ops, lower_to_programs, schedule, emit):
                program = step(program)
            return plan_memory(program).plan
        except NestFailed as failure:
            options = failure.options
        except NeedsValues as needs:
            names = ", ".join(sorted(graph.names[v] for v in needs.inputs))
            raise UsageError(f"the loops of {name} depend on what {names} holds: bind it first") from None
