"""Schedule rules: a list that is asked in order for the schedule of a program; each says why it is not for it.

The default schedules of the compiler are such a list, ``default_rules``. It can be ordered, shortened, and extended
with rules of one's own: subclasses of ``ScheduleRule``, or functions of a ``Schedule``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from graphopt.display import Displayed
from graphopt.errors import ScheduleError, UsageError
from graphopt.frozen import dataclass
from graphopt.lowering.analysis.block_refs import BlockRef, LoopRef
from graphopt.lowering.cpu.register_tiles import IN_REGISTERS
from graphopt.lowering.cpu.scheduling import RULES, Scheduled
from graphopt.lowering.loops.nest import Nest, blocks
from graphopt.lowering.schedule.by_rule import chosen_for
from graphopt.lowering.schedule.element_steps import element_steps
from graphopt.lowering.schedule.schedule import Schedule, TracedInt
from graphopt.target import CPU
from graphopt.target import target as target_named


class ScheduleRule:
    """A schedule rule: subclass it and write ``apply``. It is asked for whole programs."""

    @property
    def name(self) -> str:
        """The name of the rule."""
        return type(self).__name__

    def apply(self, nest: Nest, target: str = CPU.name) -> Schedule | str:
        """The schedule of a program for a target; a reason where the rule is not for it, or a ScheduleError."""
        raise NotImplementedError(f"{self.name} is a rule without apply(nest, target)")

    def __repr__(self) -> str:
        return f"<rule {self.name}>"


class _DefaultRule(ScheduleRule):
    """One of the compiler's rules. Those of a list share the blocks of a program: each block is scheduled by the first
    that is for it."""

    def apply(self, nest: Nest, target: str = CPU.name) -> Schedule | str:
        """The schedule of a program all of whose blocks the rule is for; else the reason."""
        return _by_rule(nest, target, (self.name,))


class Matmul(_DefaultRule):
    """Products of matrices, with what is done to each result: BLAS or our own kernel by price, or tiles in registers;
    on CUDA the library, tensor cores, or tiles in shared memory."""


class GEMV(_DefaultRule):
    """Products of a matrix and a vector: as ``Matmul``, or several dot products at once; on CUDA row by row."""


class Convolution(_DefaultRule):
    """Reductions over windows (convolutions, pools): tiles of pixels in registers, row by row; on CUDA as products.

    >>> schedule.Convolution().apply(nest)
    "no contraction: block 'y' has no reduction axis"
    """


class Reduction(_DefaultRule):
    """Other reductions by themselves, along or across the vectors; on CUDA several threads share out a row.

    >>> schedule.Reduction().apply(nest)
    "no reduction: block 'y' has no reduction axis"
    """


class GeneralReduction(_DefaultRule):
    """Several blocks that reduce the same rows (softmax, normalizations): one loop over the rows, or one kernel."""


class Transpose(_DefaultRule):
    """Blocks that read along another axis than they write: tiles transposed in registers, or in shared memory."""


class ElementWise(_DefaultRule):
    """Blocks without a reduction: vectors along memory, in chunks that are shared out; on CUDA a few elements for each
    thread."""


class Fallback(_DefaultRule):
    """Anything: one result after another, those of outer loops in parallel; on CUDA by a thread each. What is scheduled
    already stays as it is."""


class _Function(ScheduleRule):
    """A function of a ``Schedule`` as a rule."""

    def __init__(self, function: Callable[[Schedule], object]) -> None:
        self.function = function

    @property
    def name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def apply(self, nest: Nest, target: str = CPU.name) -> Schedule | str:
        s = Schedule(nest)
        answer = self.function(s)
        if isinstance(answer, str | Schedule):
            return answer
        if not (answer is None or isinstance(answer, bool | tuple | BlockRef | LoopRef | TracedInt)):
            raise UsageError(
                f"the rule {self.name} gave {answer!r}: nothing is expected of a function that schedules what it is "
                "given, or False, a reason, or a Schedule"
            )
        return "it says no" if answer is False else s


RuleLike: TypeAlias = "ScheduleRule | type[ScheduleRule] | Callable[[Schedule], object]"
"""A rule, its class, or a function that schedules the ``Schedule`` it is given. A function is not for a program where
it gives False or a reason (a text), or raises ScheduleError."""

CLASSES: Final = {
    rule.__name__: rule
    for rule in (Matmul, GEMV, Convolution, Reduction, GeneralReduction, Transpose, ElementWise, Fallback)
}


def default_rules(target: str = CPU.name) -> tuple[ScheduleRule, ...]:
    """The compiler's rules for a target, in the order in which they are asked.

    UsageError where there is no such target.

    >>> len(schedule.default_rules("cuda"))
    8
    """
    target_named(target)
    return tuple(CLASSES[name]() for name in RULES)


def as_rule(rule: RuleLike) -> ScheduleRule:
    """The rule that a class or a function is. UsageError for anything else."""
    if isinstance(rule, type) and issubclass(rule, ScheduleRule):
        return rule()
    if isinstance(rule, ScheduleRule):
        return rule
    if isinstance(rule, type) or not callable(rule):
        raise UsageError(f"{rule!r} is no rule: it should be a ScheduleRule, or a function of a Schedule")
    return _Function(rule)


def schedule_by_rules(nest: Nest, rules: Iterable[RuleLike], target: str = CPU.name) -> Schedule:
    """The schedule of a program by the first of the rules that is for it; those of the compiler, up to where the list
    has come, share its blocks. ScheduleError with all reasons where none is.
    """
    reasons = list[str]()
    for run in runs(rules):
        answer = answer_of(run, nest, target)
        if isinstance(answer, Schedule):
            return answer
        reasons.append(answer if isinstance(run, tuple) else f"{run.name}: {answer}")
    raise ScheduleError(f"no rule is for {nest.name!r}: {'; '.join(reasons) or 'there are none'}")


def runs(rules: Iterable[RuleLike]) -> Iterator[ScheduleRule | tuple[str, ...]]:
    """The rules in order: a user's own; of the compiler's that stand side by side the names, behind those of all
    before."""
    names, waiting = list[str](), False
    for rule in map(as_rule, rules):
        if isinstance(rule, _DefaultRule):
            names, waiting = [*names, rule.name], True
            continue
        if waiting:
            yield tuple(names)
        yield rule
        waiting = False
    if waiting:
        yield tuple(names)


def answer_of(run: ScheduleRule | tuple[str, ...], nest: Nest, target: str) -> Schedule | str:
    """What a user's rule, or the compiler's of these names, make of a program; the reason where they do not."""
    return _by_rule(nest, target, run) if isinstance(run, tuple) else _applied(run, nest, target)


def _applied(rule: ScheduleRule, nest: Nest, target: str) -> Schedule | str:
    """What a user's rule answers. UsageError where that is neither a schedule nor a reason."""
    try:
        answer = rule.apply(nest, target)
    except ScheduleError as error:
        return str(error)
    if not isinstance(answer, Schedule | str):
        raise UsageError(f"the rule {rule.name} gave {type(answer).__name__}: a Schedule, or a reason, is expected")
    return answer


def _by_rule(nest: Nest, target: str, names: Sequence[str]) -> Schedule | str:
    """The schedule of a program by the compiler's rules of these names: steps of primitives where they give the same
    kernels, else one step, which names the rules that were used, and what they decided."""
    try:
        made = chosen_for(target, nest, {}, names)
    except ScheduleError as error:
        return str(error)
    used = {answer.rule for answer in made.answers}
    if used == {ElementWise.__name__} and (steps := element_steps(nest, made.nest)) is not None:
        return steps
    s = Schedule(nest)
    options = {} if target == CPU.name else {"target": target}
    s.by_rule(decisions(made), rules=tuple(name for name in names if name in used), **options)
    return s


def decisions(made: Scheduled) -> tuple[tuple[str, int], ...]:
    """What rules decided, by name. A name that rules of several blocks decide by says nothing of one of them, nor does
    that of tiles, which all go by: such are decided anew."""
    times = Counter(name for answer in made.answers for name in answer.decided)
    if len(made.answers) > 1:
        times[IN_REGISTERS] = 0
    return tuple((n, to) for answer in made.answers for n, to in answer.decided.items() if times[n] == 1)


# ---------------------------------------------------------------------- explanations


@dataclass(frozen=True, slots=True)
class RuleAnswer:
    """What a rule says of some blocks of a program: the ``reason`` why it is not for them, None where it is; and
    whether it schedules them.

    >>> answers = schedule.explain_rules(nest, [schedule.ElementWise]).answers
    >>> answers == (schedule.RuleAnswer("ElementWise", ("y",), None, is_used=True),)
    True
    """

    rule: str
    blocks: tuple[str, ...]
    reason: str | None
    is_used: bool


@dataclass(frozen=True, slots=True, repr=False)
class RuleExplanation(Displayed):
    """The answers of all rules for a program, in order, by the blocks that they are asked for.

    >>> found = schedule.explain_rules(nest, [schedule.Matmul, schedule.Fallback])
    >>> found
    <RuleExplanation of plus_one, for cpu: Fallback>
    >>> print(found)
    plus_one, for cpu
    y
      Matmul    no contraction: block 'y' has no reduction axis
      Fallback  used
    >>> isinstance(found, schedule.RuleExplanation)
    True
    """

    program: str
    target: str
    answers: tuple[RuleAnswer, ...]

    @property
    def used(self) -> tuple[str, ...]:
        """The rules that schedule the program, without repetition."""
        return tuple(dict.fromkeys(a.rule for a in self.answers if a.is_used))

    def __repr__(self) -> str:
        return f"<RuleExplanation of {self.program}, for {self.target}: {', '.join(self.used) or 'no rule'}>"

    def __str__(self) -> str:
        lines, before = [f"{self.program}, for {self.target}"], None
        width = max((len(a.rule) for a in self.answers), default=0)
        for a in self.answers:
            if a.blocks != before:
                lines.append(", ".join(a.blocks))
            before = a.blocks
            said = a.reason if a.reason is not None else "used" if a.is_used else "applies, but comes later"
            lines.append(f"  {a.rule:{width}}  {said}")
        return "\n".join(lines)


def explain(nest: Nest, rules: Iterable[RuleLike], target: str = CPU.name) -> RuleExplanation:
    """What each of the rules says of a program. A user's rule answers for the whole; those of the compiler for the
    blocks that one of them takes together, first for all of them where none is for all."""
    answers, whole = list[RuleAnswer](), tuple(dict.fromkeys(b.name for b in blocks(nest.body)))
    given = list(map(as_rule, rules))
    is_open = True
    for run in runs(given):
        if isinstance(run, ScheduleRule):
            reason = _reason(_applied(run, nest, target))
            answers.append(RuleAnswer(run.name, whole, reason, reason is None and is_open))
            is_open = is_open and reason is not None
            continue
        new = [name for name in run if all(a.rule != name for a in answers)]
        is_taken = is_open and isinstance(_by_rule(nest, target, run), Schedule)
        answers += _said(nest, target, run, new, is_taken)
        is_open = is_open and not is_taken
    return RuleExplanation(nest.name, target, tuple(answers))


def _said(nest: Nest, target: str, names: Sequence[str], new: Sequence[str], is_taken: bool) -> Iterator[RuleAnswer]:
    """What the compiler's rules of these names say: those that are used, and the ``new`` ones."""
    for answer in chosen_for(target, nest, {}, (*names, *(n for n in RULES if n not in names)), asks_all=True).answers:
        for name, reason in answer.reasons.items():
            is_used = is_taken and name == answer.rule
            if name in new or is_used:
                yield RuleAnswer(name, answer.blocks, reason, is_used)


def _reason(answer: Schedule | str) -> str | None:
    return answer if isinstance(answer, str) else None
