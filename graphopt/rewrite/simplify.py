"""Directed rewriting to a fixed point: rules and native passes that always help, tried wherever something changed."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from graphopt.errors import RuleError
from graphopt.ir import infer
from graphopt.ir.facts import Fact
from graphopt.ir.functions import callee
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.rewrite.bindings import is_several
from graphopt.rewrite.build import Refused, replacements
from graphopt.rewrite.match import Match, depth, input_ops, matches, root_ops
from graphopt.rewrite.passes import PASSES, Pass
from graphopt.rewrite.passes.dead import UNUSED, remove_unused
from graphopt.rewrite.rule import Rule, variables
from graphopt.rewrite.workspace import Workspace, captured_facts

log = logging.getLogger(__name__)

ROUNDS = 20
"""How often the whole-graph passes are repeated at most."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One application of a rule or native pass: its name, the value it replaced, and both sides in call notation."""

    rule: str
    site: str
    before: str
    after: str


def simplify(
    graph: Graph,
    rules: Iterable[Rule] = (),
    passes: Sequence[Pass] = PASSES,
    *,
    facts: Mapping[Value, Fact] | None = None,
    journal: list[Applied] | None = None,
    limit: int | None = None,
) -> Graph:
    """A graph to which none of the rules and passes applies any more, bodies of its nodes included.

    The graph itself is never changed, and it is what comes back where nothing applied. ``facts`` is
    what is known of its inputs beyond their types; what is done is appended to ``journal``. Raises
    RuleError after ``limit`` applications (a generous multiple of the graph's size): rules undo each
    other, or make what they apply to.
    """
    space = Workspace(graph.copy(), infer.infer(graph, facts))
    _Simplifier(space, tuple(rules), passes, journal, limit).run()
    return space.graph if space.edits else graph


class _Simplifier:
    """One run on one workspace."""

    def __init__(
        self,
        space: Workspace,
        rules: Sequence[Rule],
        passes: Sequence[Pass],
        journal: list[Applied] | None,
        limit: int | None,
    ) -> None:
        self.space = space
        self.graph = space.graph
        self.rules = rules
        self.passes = passes
        self.journal = journal
        self.limit = limit or 50 * len(space.graph) + 10_000
        self.applied: Counter[str] = Counter()
        self.steps = 0
        space.reach = max((depth(term) for rule in rules for term in rule.lhs), default=1)
        self.roots = [(rule, root_ops(rule)) for rule in rules]
        self.by_op: dict[str, list[tuple[Rule, frozenset[str]]]] = {}
        self.settled: dict[int, Graph] = {}

    def run(self) -> None:
        self.drop_unused()
        for node in self.graph.order():
            self.space.touch(node.id)
        for _ in range(ROUNDS):
            before = self.space.edits
            for native in self.passes:
                if native.sweep is not None:
                    self.sweep(native.name, native.sweep)
            self.settle()
            self.bodies()
            if self.space.edits == before:
                return

    def drop_unused(self) -> None:
        """Remove what nobody reads to begin with; what later loses its last reader is gone without a note."""
        if UNUSED not in self.passes:
            return
        for node in reversed(self.graph.order()):
            site, text = _name(self.graph, node), self.shown(node)
            if remove_unused(self.space, node) and node.op != CONSTANT:
                self.note(UNUSED.name, site, text, "")

    def sweep(self, name: str, act: Callable[[Workspace], bool]) -> None:
        """Let a pass go over the whole graph."""
        before = self.space.edits
        if act(self.space):
            self.note(name, self.graph.name, f"{self.space.edits - before} places", "")

    def settle(self) -> None:
        """Look at nodes until none is pending."""
        while (node := self.space.next()) is not None:
            if self.steps > self.limit:
                raise self.endless()
            if self.visit(node):
                self.steps += 1
                if node.id in self.graph:
                    self.space.touch(node.id)

    def endless(self) -> RuleError:
        """What is wrong where rewriting does not end: the rules applied about as often as any are at fault."""
        known = {rule.name for rule in self.rules}
        counts = [(name, n) for name, n in self.applied.most_common() if name in known] or self.applied.most_common()
        names = ", ".join(name for name, n in counts[:3] if 2 * n >= counts[0][1])
        return RuleError(
            f"rewriting does not end ({self.steps} rewrites of one graph), most often applied: {names}; "
            "a rule that always runs must not undo another or make what it applies to"
        )

    def visit(self, node: Node) -> bool:
        """Apply the first pass or rule that changes something at the node."""
        if self.graph.functions and callee(node, self.graph.functions):
            return UNUSED in self.passes and remove_unused(self.space, node)
        for native in self.passes:
            if native.visit is not None and native.visit(self.space, node):
                if native is not UNUSED:
                    self.note(native.name, _name(self.graph, node), self.shown(node), "")
                return True
        rules = self.rules_at(node.op)
        if not rules:
            return False
        around = {self.graph.node(v.node).op for v in node.inputs if v is not None}
        return any(
            self.apply(found) for rule, needed in rules if needed <= around for found in matches(rule, self.space, node)
        )

    def shown(self, node: Node) -> str:
        """The node in call notation, where somebody keeps a journal."""
        return "" if self.journal is None else show_call(self.graph, node)

    def rules_at(self, op: str) -> list[tuple[Rule, frozenset[str]]]:
        """The rules that may apply at an op, each with the ops that its inputs must have been made by."""
        if op in (INPUT, CONSTANT):
            return []
        found = self.by_op.get(op)
        if found is None:
            found = [(rule, input_ops(rule)) for rule, ops in self.roots if ops is None or op in ops]
            self.by_op[op] = found
        return found

    def apply(self, found: Match) -> bool:
        """Replace the roots of a match; whether its right side fits."""
        if not all(map(self.space.uses, found.roots)):
            return False
        first = self.graph.next_id
        try:
            made = replacements(found.rule, found.bindings, found.roots, self.space)
        except Refused as refused:
            log.debug("%s: %s", found.rule.name, refused)
            self.space.undo(first)
            return False
        if all(a == b for a, b in zip(found.roots, made, strict=True)):
            self.space.undo(first)
            return False
        if self.journal is not None:
            leaves = _leaves(found)
            before, after = (", ".join(describe(self.graph, v, leaves) for v in side) for side in (found.roots, made))
            self.note(found.rule.name, _name(self.graph, self.graph.node(found.roots[0].node)), before, after)
        else:
            self.note(found.rule.name, "", "", "")
        moved: dict[Value, Value] = {}
        for old, new in zip(found.roots, made, strict=True):
            new = moved.get(new, new)
            if old != new:
                self.space.replace(old, new, first)
                moved[old] = new
        return True

    def bodies(self) -> None:
        """Simplify the bodies of If, Loop and Scan, which know what they capture."""
        for node in list(self.graph.nodes()):
            for name, body in node.bodies.items():
                if id(body) in self.settled:
                    continue
                known = captured_facts(node, body, self.space.facts)
                result = self.body(body, known)
                self.settled[id(result)] = result
                if result is not body:
                    current = self.graph.node(node.id)
                    self.space.update(node.id, attrs=current.attrs.with_(**{name: result}))

    def body(self, body: Graph, known: Mapping[Value, Fact]) -> Graph:
        """The simplified body; ``known`` is what is known of its inputs."""
        space = Workspace(body.copy(), infer.infer(body, known), is_body=True)
        _Simplifier(space, self.rules, self.passes, self.journal, self.limit).run()
        return space.graph if space.edits else body

    def note(self, rule: str, site: str, before: str, after: str) -> None:
        self.applied[rule] += 1
        if self.journal is not None:
            self.journal.append(Applied(rule, site, before, after))


def describe(graph: Graph, value: Value | None, leaves: Sequence[Value] = (), depth: int = 8) -> str:
    """The term that makes a value in call notation, down to the leaves (or to the depth), which stand by name."""
    if value is None:
        return "_"
    if value.node not in graph:
        return f"%{value.node}"
    node = graph.node(value.node)
    constant = graph.constant_of(value)
    if constant is not None and constant.size <= 8 and value not in leaves:
        return str(constant.array.tolist())
    if value in leaves or depth == 0 or node.op in (INPUT, CONSTANT):
        return _name(graph, node, value.port)
    port = f"[{value.port}]" if value.port else ""
    return show_call(graph, node, leaves, depth) + port


def show_call(graph: Graph, node: Node, leaves: Sequence[Value] = (), depth: int = 1) -> str:
    """A node in call notation, its operands as ``describe`` shows them."""
    parts = [describe(graph, v, leaves, depth - 1) for v in node.inputs]
    parts += [f"{name}={'{...}' if isinstance(a, Graph) else repr(a)}" for name, a in node.attrs.items()]
    return f"{node.op}({', '.join(parts)})"


def _leaves(found: Match) -> tuple[Value, ...]:
    names = {v.name for term in found.rule.lhs for v in variables(term)}
    bound = [b for name, b in found.bindings.values.items() if name in names and b is not None]
    return tuple(v for b in bound for v in (b if is_several(b) else (b,)))


def _name(graph: Graph, node: Node, port: int = 0) -> str:
    value = Value(node.id, port)
    if value in graph.names:
        return graph.names[value]
    if value in graph.outputs:
        return graph.output_names[graph.outputs.index(value)]
    return f"%{node.id}" if not port else f"%{node.id}.{port}"
