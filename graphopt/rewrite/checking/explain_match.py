"""Match explanation: tries a rule at one node and tells every step: which operands do not fit, and what each guard
rests on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from graphopt.errors import UsageError, nearest
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import is_several
from graphopt.rewrite.guards.comparison import Unknown
from graphopt.rewrite.guards.expressions import SETS, show_value
from graphopt.rewrite.match.build import Refused, replacements
from graphopt.rewrite.match.describe import describe, names_of
from graphopt.rewrite.match.match_terms import ValueBindings
from graphopt.rewrite.match.matcher import Match, Matcher
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import Field, FunctionCall, GuardExpr, Lit, NameRef, Rule, Series, subexpressions

_JOINS = frozenset(("not", "and", "or", "==", "!=", "<", "<=", ">", ">=", "in"))


@dataclass(frozen=True, slots=True)
class GuardResult:
    """A guard, why it does not hold (empty where it does), and what it rests on: expressions with their values."""

    guard: str
    reason: str
    values: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way in which the left side fits: what its names stand for, the guards, and why nothing came of it."""

    bindings: tuple[tuple[str, str], ...]
    guards: tuple[GuardResult, ...]
    refused: str = ""
    """Why the right side does not fit where all guards hold; empty where it does."""

    @property
    def applies(self) -> bool:
        """Whether the rule applies so."""
        return not self.refused and not any(guard.reason for guard in self.guards)


@dataclass(slots=True)
class Trial:
    """What came of a rule at a node."""

    rule: Rule
    misfits: list[tuple[int, str]] = field(default_factory=list)
    """Operands that do not fit, with their depth in the pattern, each once, in the order in which they were met."""
    attempts: list[Attempt] = field(default_factory=list)


def attempt(rule: Rule, graph: Graph, facts: Mapping[Value, Fact] | None, node_id: int) -> Trial:
    """What comes of the rule at the node. The graph is not changed."""
    space = Workspace(graph.copy(), facts)
    tracer = _Tracer(rule, space)
    for match in tracer.run(graph.node(node_id)):
        first = space.graph.next_id
        try:
            values = replacements(rule, match.bindings, match.roots, space)
            refused = "the right side is what is there already" if list(values) == list(match.roots) else ""
        except Refused as error:
            refused = str(error)
        space.undo(first)
        tracer.trial.attempts[-1] = replace(tracer.trial.attempts[-1], refused=refused)
    return tracer.trial


def attempt_in(model: str | Path, rules: Sequence[Rule], name: str) -> list[Trial]:
    """What comes of rules at the node of that name in a model as it is read. Raises UsageError where there is none."""
    graph = onnx_io.load(model)
    node = find_node(graph, name)
    if node is None:
        raise UsageError(f"{model}: {unknown_node(graph, name)}")
    facts = infer(graph)
    return [attempt(rule, graph, facts, node.id) for rule in rules]


class _Tracer(Matcher):
    """A matcher that writes down what it does."""

    def __init__(self, rule: Rule, space: Workspace) -> None:
        super().__init__(rule, space)
        self.is_asked_why = True
        self.trial = Trial(rule)

    def fail(self, reason: str, depth: int | None = None) -> None:
        step = (self.depth, reason)
        if step not in self.trial.misfits:
            self.trial.misfits.append(step)

    def guarded(self, roots: Sequence[Value], bindings: ValueBindings) -> Iterator[Match]:
        guards = tuple(self.asked(guard, bindings) for guard in self.rule.where)
        self.trial.attempts.append(Attempt(self.shown(bindings), guards))
        if not any(result.reason for result in guards):
            yield Match(self.rule, tuple(roots), bindings)

    def asked(self, guard: GuardExpr, bindings: ValueBindings) -> GuardResult:
        values = []
        for part in dict.fromkeys(_parts(guard)):
            try:
                value = show_value(expressions.evaluate(part, bindings, self.space))
            except Unknown as unknown:
                value = f"not known: {unknown}"
            values.append((show_expr(part), value))
        return GuardResult(show_expr(guard), expressions.holds(guard, bindings, self.space) or "", tuple(values))

    def shown(self, bindings: ValueBindings) -> tuple[tuple[str, str], ...]:
        """What each name stands for: values by name, attributes, ops."""
        names = []
        for name, bound in bindings.values.items():
            several = bound if is_several(bound) else (bound,)
            names.append((name, ", ".join(describe(self.graph, v, depth=0) for v in several)))
        names += [(name, show_value(value)) for name, value in bindings.attrs.items() if not isinstance(value, Mapping)]
        names += [(name, head.op) for name, head in bindings.heads.items()]
        return tuple(names)


def _parts(expr: GuardExpr) -> Iterator[GuardExpr]:
    """What a guard compares or asks: the expressions below its comparisons and logic that are not written out, and the
    facts that these are computed from."""
    match expr:
        case FunctionCall(function, arguments) if function in _JOINS:
            for argument in arguments:
                yield from _parts(argument)
        case Lit() | NameRef() if isinstance(expr, Lit) or expr.name in SETS:
            return
        case Series(items) if all(isinstance(item, Lit) for item in items):
            return
        case _:
            yield expr
            if isinstance(expr, FunctionCall):
                yield from (part for part in subexpressions(expr) if isinstance(part, Field) and part.name != "value")


def find_node(graph: Graph, name: str) -> Node | None:
    """The node of that name, or number (``%7``), or that makes the value of that name; None where there is none.

    Bodies of If, Loop and Scan are not looked into.
    """
    return next((n for n in graph.nodes() if name in (*names_of(graph, n), *_numbers(n))), None)


def _numbers(node: Node) -> list[str]:
    """A node's number, and those of its outputs."""
    return [f"%{node.id}", *(f"%{node.id}.{v.port}" for v in node.outputs)]


def unknown_node(graph: Graph, name: str) -> str:
    """What is wrong with a name that ``find_node`` does not find: with the nearest names."""
    names = {called for n in graph.nodes() for called in names_of(graph, n)}
    hint = nearest(name, names) or "; `graphopt inspect MODEL --nodes` lists them"
    return f"no node is called {name!r}, and none makes a value of that name{hint}"
