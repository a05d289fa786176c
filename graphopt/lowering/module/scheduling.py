"""Passes of modules that schedule programs and plan memory, as ``graphopt.compile`` does behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import overload

from graphopt.display import Displayed
from graphopt.errors import UsageError
from graphopt.frozen import dataclass
from graphopt.ir.graph import Graph
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.link.options import BY_RULE as OPTIONS
from graphopt.lowering.link.passes import NestFailed, emit, fuse_ops, legalize_ops, lower_to_programs, schedule
from graphopt.lowering.link.plan_memory import plan_memory
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.lower.lower import NeedsValues
from graphopt.lowering.module.module import Module
from graphopt.lowering.module.packing import pack_constants
from graphopt.lowering.module.passes import ModulePass
from graphopt.lowering.schedule.rules import (
    Matmul,
    RuleExplanation,
    RuleLike,
    answer_of,
    as_rule,
    default_rules,
    explain,
    runs,
    schedule_by_rules,
)
from graphopt.lowering.schedule.schedule import Schedule as NestSchedule
from graphopt.rewrite.passes.functions import INLINE
from graphopt.rewrite.passes.simplify import simplify
from graphopt.target import CPU
from graphopt.target import target as target_named


class Schedule(ModulePass):
    """Programs that are not scheduled get a schedule: by the first of the ``rules`` that is for them, or else none.

    A rule is a ``graphopt.schedule.ScheduleRule``, or a function of a ``graphopt.Schedule``; it is not for a program
    where it gives False or a reason, or raises ScheduleError. By default they are those of the compiler
    (``graphopt.schedule.default_rules``). For these, on the CPU, what a program computes of constants alone is computed
    now, and weights of products are packed, where all calls of the program hand it constants. It takes other constants
    then.

    >>> def rows(s):
    ...     s.parallel(s.get_loops("relu")[0])
    >>> print(passes.Schedule([rows])(passes.LegalizeOps()(dense))["relu"])
    @program
    def relu(x0: Buffer[("n", 2), "float32"], relu: Buffer[("n", 2), "float32"], n: size):
        for i0 in parallel(n):
            for i1 in serial(2):
                with block("relu"):
                    v0, v1 = axis.remap("SS", [i0, i1])
                    relu[v0, v1] = max(x0[v0, v1], 0.0)
    """

    def __init__(self, rules: Iterable[RuleLike] | None = None, target: str = CPU.name) -> None:
        self.rules = default_rules(target) if rules is None else tuple(map(as_rule, rules))
        self.target = target

    def change(self, module: Module) -> Module:
        """The module with scheduled programs."""
        for name, nest in list(module.programs()):
            if BY_RULE in nest.notes:
                self._schedule(module, name, nest)
        return module

    def _schedule(self, module: Module, name: str, nest: Nest) -> None:
        is_for_host = not target_named(self.target).device.has_blocks
        for run in runs(self.rules):
            packs = is_for_host and isinstance(run, tuple) and Matmul.__name__ in run
            packed = pack_constants(module, name, nest) if packs else None
            s = answer_of(run, nest if packed is None else packed.nest, self.target)
            if isinstance(s, NestSchedule):
                module[name] = s.nest
                if packed is not None:
                    packed.put_in(module)
                return


@overload
def apply_rules(given: Nest, rules: Iterable[RuleLike] | None = None, target: str = CPU.name) -> NestSchedule: ...
@overload
def apply_rules(given: Graph | Module, rules: Iterable[RuleLike] | None = None, target: str = CPU.name) -> Module: ...
def apply_rules(
    given: Nest | Graph | Module, rules: Iterable[RuleLike] | None = None, target: str = CPU.name
) -> NestSchedule | Module:
    """The schedule of a program by the first of the rules that is for it, by default of those of the compiler for a
    target; of a module, the module in which programs that were not scheduled are so.

    The compiler's rules, up to where the list has come, share the blocks of a program; a rule of one's own is asked for
    all of it. ScheduleError with the reasons where no rule is for the program; in a module such programs stay as they
    are.

    >>> rules: list[schedule.RuleLike] = [schedule.Matmul, lambda s: s.vectorize(s.get_loop("j"))]
    >>> print(schedule.apply_rules(nest, rules).trace)
    l0 = s.get_loop('j')
    s.vectorize(l0)
    """
    if isinstance(given, Nest):
        return schedule_by_rules(given, default_rules(target) if rules is None else rules, target)
    return Schedule(rules, target)(given)


@overload
def explain_rules(given: Nest, rules: Iterable[RuleLike] | None = None, target: str = CPU.name) -> RuleExplanation: ...
@overload
def explain_rules(
    given: Graph | Module, rules: Iterable[RuleLike] | None = None, target: str = CPU.name
) -> Mapping[str, RuleExplanation]: ...
def explain_rules(
    given: Nest | Graph | Module, rules: Iterable[RuleLike] | None = None, target: str = CPU.name
) -> RuleExplanation | Mapping[str, RuleExplanation]:
    """Why each rule is for the blocks of a program or not, and which schedules them; of a module, by the name of each
    program that is not scheduled. ``print`` it.

    >>> schedule.explain_rules(nest, [schedule.Transpose, schedule.ElementWise]).used
    ('ElementWise',)
    """
    asked = default_rules(target) if rules is None else tuple(map(as_rule, rules))
    if isinstance(given, Nest):
        return explain(given, asked, target)
    programs = Module.of(given).programs()
    return {name: explain(nest, asked, target) for name, nest in programs if BY_RULE in nest.notes}


@dataclass(frozen=True, slots=True, repr=False)
class MemoryPlan(Displayed):
    """The memory of an entry function: its buffers, and the steps that fill them.

    >>> planned = passes.PlanMemory()
    >>> same = planned(dense)
    >>> isinstance(planned.plans["main"], passes.MemoryPlan), planned.plans["main"].name
    (True, 'main')
    """

    name: str
    plan: Linked

    def __repr__(self) -> str:
        return f"<MemoryPlan of {self.name}: {self.plan!r}>"

    def __str__(self) -> str:
        return f"{self.name}\n{self.plan}"


class PlanMemory(ModulePass):
    """Memory is planned for each entry function, with its kernels as they are now: which buffers there are, which share
    memory, and the steps that fill them. ``tell`` is given each plan; the module stays as it is.

    ``plans`` has the last module's plans by name. UsageError where loops depend on the elements of inputs.

    >>> same = passes.PlanMemory(print)(dense)
    main
    # inputs: x = b0, w = b1
    # outputs: y = b2
    b0: float32[n, 4] input
    b1: float32[4, 2] input
    b2: float32[n, 2] output
    MatMul+Relu: k0(b0, b1, b2, n)
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
