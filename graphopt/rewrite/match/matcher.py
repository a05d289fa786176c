"""Matching of left sides in a graph, and the reason why one does not match.

A match is found by walking the pattern and the graph together, from the root up through the inputs,
with backtracking where there is a choice: the operand orders of commutative ops, alternatives, and
which inputs a starred variable takes. Several roots are found from the first through the users of
what they share.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import Bindings, is_several
from graphopt.rewrite.match.build import Refused, element, family, replacements
from graphopt.rewrite.match.match_terms import TermMatcher, ValueBindings, call_names, starred_names
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.rule.rule import (
    AnyOf,
    CallPattern,
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    Lit,
    NameRef,
    Rule,
    Series,
    Term,
    VarPattern,
    by_identity,
    subexpressions,
    variables,
)


@dataclass(frozen=True, slots=True)
class Match:
    """Where a rule's left side occurs: the values of its roots in order, and what its names stand for."""

    rule: Rule
    roots: tuple[Value, ...]
    bindings: ValueBindings


def match(rule: Rule, graph: Graph, facts: Mapping[Value, Fact] | None, node_id: int) -> Iterator[Match]:
    """All matches of the rule whose first root is (an output of) the node, guards included."""
    return matches(rule, Workspace(graph, facts), graph.node(node_id))


def matches(rule: Rule, space: Workspace, node: Node, roots: Collection[Value] | None = None) -> Iterator[Match]:
    """All matches of the rule in a workspace whose first root is the node. Where ``roots`` are given, those are meant,
    and no other value is looked at for one."""
    return Matcher(rule, space, roots=roots).run(node)


def footprint(graph: Graph, match: Match) -> list[int]:
    """The nodes of a match: those that its pattern names an op for, roots first."""
    named = call_names(match.rule.lhs)
    bound = [b for name, b in match.bindings.values.items() if name not in named]
    leaves = {v for b in bound for v in (b if is_several(b) else (b,))}
    inside: dict[int, None] = {}
    waiting = [r for r in reversed(match.roots) if r not in leaves]
    while waiting:
        id = waiting.pop().node
        if id in inside or graph.node(id).op in (CONSTANT, INPUT):
            continue
        inside[id] = None
        waiting += [v for v in reversed(graph.node(id).inputs) if v is not None and v not in leaves]
    return list(inside)


def why_not(rule: Rule, graph: Graph, facts: Mapping[Value, Fact] | None, node_id: int) -> str:
    """Why the rule does not apply at the node, in words; empty where it does.

    Of several ways in which it fails, the one that came furthest through the pattern is told.
    """
    space = Workspace(graph.copy(), facts)
    matcher = Matcher(rule, space, reasons=[])
    for match in matcher.run(graph.node(node_id)):
        try:
            replacements(rule, match.bindings, match.roots, space)
            return ""
        except Refused as refused:
            matcher.fail(str(refused), GUARD)
    assert matcher.reasons is not None
    return max(matcher.reasons, key=lambda r: r[0])[1] if matcher.reasons else f"{rule.name} does not match"


def root_ops(rule: Rule) -> frozenset[str] | None:
    """The ops at which the rule's first root can be; None where it can be any."""
    return _ops_of(rule.lhs[0], rule.where)


def input_ops(rule: Rule) -> frozenset[str]:
    """Ops that must be among those that make the inputs of the rule's first root: a quick test before matching."""
    root = rule.lhs[0]
    inputs = root.inputs if isinstance(root, CallPattern) else ()
    return frozenset(t.op for t in inputs if isinstance(t, CallPattern) and not t.is_variable)


def input_dtypes(rule: Rule) -> frozenset[str] | None:
    """The dtypes of which some input of the rule's first root must have one; None where guards do not say: another."""
    root = rule.lhs[0]
    ways = root.options if isinstance(root, AnyOf) else (root,)
    inputs = [
        {t.name for t in w.inputs if isinstance(t, VarPattern)} if isinstance(w, CallPattern) else () for w in ways
    ]
    asked = ((name, dtypes) for guard in rule.where for name, dtypes in _dtypes_asked(guard))
    return next((dtypes for name, dtypes in asked if all(name in names for names in inputs)), None)


def _dtypes_asked(guard: GuardExpr) -> Iterator[tuple[str, frozenset[str]]]:
    """The operand whose dtype a guard asks for, and which it may be."""
    match guard:
        case FunctionCall("in", (Field(NameRef(name), "dtype"), NameRef(kind))) if kind in expressions.SETS:
            yield name, expressions.named_set(kind)
        case FunctionCall("in", (Field(NameRef(name), "dtype"), Series(items))):
            if all(isinstance(item, Lit) for item in items):
                yield name, frozenset(str(item.value) for item in items if isinstance(item, Lit))
        case FunctionCall("==", (Field(NameRef(name), "dtype"), Lit(str(dtype)))):
            yield name, frozenset([dtype])
        case FunctionCall("or", parts):
            asked = [part for p in parts for part in _dtypes_asked(p)]
            if len(asked) == len(parts) and len({name for name, _ in asked}) == 1:
                yield asked[0][0], frozenset().union(*(dtypes for _, dtypes in asked))


def depth(term: Term) -> int:
    """How many calls lie between the root of a pattern and its deepest operand."""
    inner = term.inputs if isinstance(term, CallPattern) else term.options if isinstance(term, AnyOf) else ()
    return isinstance(term, CallPattern) + max(map(depth, inner), default=0)


def _ops_of(term: Term, where: Sequence[GuardExpr]) -> frozenset[str] | None:
    match term:
        case CallPattern(op=op) if not term.is_variable:
            return frozenset([op])
        case CallPattern(op=op):
            for guard in where:
                match guard:
                    case FunctionCall("in", (NameRef(name), NameRef(kind))) if name == op and kind in ops.SETS:
                        return ops.SETS[kind]
                    case FunctionCall("in", (NameRef(name), Series(items))) if name == op:
                        return frozenset(i.value for i in items if isinstance(i, Lit) and isinstance(i.value, str))
            return None
        case AnyOf(options=options):
            op_sets = [_ops_of(t, where) for t in options]
            return None if None in op_sets else frozenset().union(*(f for f in op_sets if f is not None))
        case _:
            return None


GUARD = 1 << 20
"""How far a match has come that fails only in its guards."""


class Matcher(TermMatcher):
    """One rule on one workspace."""

    def __init__(
        self,
        rule: Rule,
        space: Workspace,
        reasons: list[tuple[int, str]] | None = None,
        roots: Collection[Value] | None = None,
    ) -> None:
        super().__init__(space, reasons)
        self.rule = rule
        self.only = roots
        self._first: dict[object, Value | None] = {}
        """By what the calls of a family share, the first of them that fits, where no reasons are asked for."""

    def run(self, node: Node) -> Iterator[Match]:
        """All matches of the rule with its first root at the node."""
        first = self.rule.lhs[0]
        if family(first):
            yield from self.families(first, node)
            return
        for roots, bindings in self.root(first, node, Bindings()):
            for others, all_bindings in self.others(self.rule.lhs[1:], [roots], bindings):
                yield from self.guarded(others, all_bindings)

    def root(
        self, term: Term, node: Node, bindings: ValueBindings, index: int | None = None
    ) -> Iterator[tuple[Value, ValueBindings]]:
        """Matches of a root term at any output of a node that it can stand for."""
        for port in _ports(term):
            value = Value(node.id, port)
            if port < node.n_outputs and (self.only is None or value in self.only):
                for bound in self.term(term, value, bindings, index):
                    yield value, bound

    def others(
        self, terms: Sequence[Term], roots: list[Value], bindings: ValueBindings
    ) -> Iterator[tuple[list[Value], ValueBindings]]:
        """The roots after the first, looked for among the users of what they share with those before."""
        if not terms:
            if len(roots) == 1 or self.independent(roots, bindings):
                yield roots, bindings
            return
        candidates = self.candidates(terms[0], bindings)
        if candidates is None:
            self.fail("the roots share no variable")
            return
        for value in candidates:
            if value not in roots and (self.only is None or value in self.only):
                for bound in self.term(terms[0], value, bindings, None):
                    yield from self.others(terms[1:], [*roots, value], bound)

    def candidates(self, term: Term, bindings: ValueBindings) -> list[Value] | None:
        """Where a term could be, seen from a variable that is bound already; None where it has none."""
        match term:
            case VarPattern(name):
                value = bindings.values.get(name)
                return [value] if isinstance(value, Value) else None
            case AnyOf(options=options):
                parts = [self.candidates(t, bindings) for t in options]
                return None if None in parts else [v for p in parts if p is not None for v in p]
            case CallPattern():
                for part in term.inputs:
                    sources = self.candidates(part, bindings)
                    if sources is None:
                        continue
                    users = sorted({user for s in sources for user, _ in self.graph.users(s)})
                    return [
                        Value(user, term.output)
                        for user in users
                        if (term.is_variable or self.graph.node(user).op == term.op)
                        and term.output < self.graph.node(user).n_outputs
                    ]
        return None

    def families(self, term: Term, node: Node) -> Iterator[Match]:
        """Matches of a root that stands for all calls of a kind (``MatMul(x, a*)``), found at the first of them."""
        stars = family(term)
        if len(self.rule.lhs) > 1:
            self.fail("a family of roots stands alone")
            return
        for root, one in self.root(term, node, Bindings(), 0):
            shared = one.copy()
            for name in starred_names(term):
                shared.values.pop(name, None)
            common = tuple(frozenset(bound.items()) for bound in (shared.values, shared.attrs, shared.heads))
            if self._first.get(common, root) != root and self.reasons is None:
                continue  # among n calls, n - 1 are not the first
            candidates = self.candidates(term, shared)
            if candidates is None:
                self.fail("the family shares no variable")
                return
            roots: list[Value] = []
            bindings = shared
            for value in candidates if self.only is None else [v for v in self.only if v in candidates]:
                for bound in self.term(term, value, bindings, len(roots)):
                    if not self.unfit(element(bound, starred_names(term), len(roots)), stars):
                        roots.append(value)
                        bindings = bound
                        break
            self._first[common] = roots[0] if roots else None
            if len(roots) < 2:
                self.fail(f"only {len(roots)} of the calls match, the rule wants at least two")
            elif roots[0] != root:
                self.fail("the family is found at its first call")
            elif self.independent(roots, bindings):
                yield from self.guarded(roots, bindings)

    def unfit(self, bindings: ValueBindings, stars: Sequence[str]) -> bool:
        """Whether one member of a family does not satisfy the guards on it alone."""
        for guard in self.rule.where:
            is_on_each = _names(guard) & set(stars) and not is_on_all(guard, stars)
            if is_on_each and not self.holds(guard, bindings):
                return True
        return False

    def holds(self, guard: GuardExpr, bindings: ValueBindings) -> bool:
        """Whether a guard holds; the words that say why it does not are made where somebody wants to know."""
        if not self.is_asked_why:
            return expressions.is_true(guard, bindings, self.space)
        reason = expressions.holds(guard, bindings, self.space)
        if reason is not None:
            self.fail(reason, GUARD)
        return reason is None

    def independent(self, roots: Sequence[Value], bindings: ValueBindings) -> bool:
        """Whether no root is computed from another: what replaces them reads what all of them read."""
        targets = {r.node for r in roots}
        names = {v.name for term in self.rule.lhs for v in variables(term)} - set(call_names(self.rule.lhs))
        bound = [b for name, b in bindings.values.items() if name in names]
        waiting = [v.node for b in bound for v in (b if is_several(b) else (b,)) if v is not None]
        lowest = min(targets)
        seen = set(waiting)
        while waiting:
            id = waiting.pop()
            if id in targets:
                self.fail("one root is computed from another", GUARD)
                return False
            node = self.graph.node(id)
            if node.op == CONSTANT or (not node.inputs and id < lowest):
                continue
            for value in node.inputs:
                if value is not None and value.node not in seen:
                    seen.add(value.node)
                    waiting.append(value.node)
        return True

    def guarded(self, roots: Sequence[Value], bindings: ValueBindings) -> Iterator[Match]:
        """The match with these roots, where all guards hold."""
        for guard in self.rule.where:
            if not self.holds(guard, bindings):
                return
        yield Match(self.rule, tuple(roots), bindings)


def _heads(term: Term) -> list[CallPattern]:
    """The calls that a term can start with."""
    if isinstance(term, AnyOf):
        return [c for t in term.options for c in _heads(t)]
    return [term] if isinstance(term, CallPattern) else []


@by_identity
def _ports(term: Term) -> list[int]:
    """The outputs of nodes that a term can stand for."""
    return sorted({c.output for c in _heads(term)})


def _names(expr: GuardExpr) -> set[str]:
    """All names in an expression."""
    return {e.name for e in subexpressions(expr) if isinstance(e, NameRef)}


def is_on_all(guard: GuardExpr, stars: Sequence[str]) -> bool:
    """Whether a guard says something of all values of a starred variable together, not of each of them."""
    inside = subexpressions(guard)
    named = [e for e in inside if isinstance(e, NameRef) and e.name in stars]
    fields = [e for e in inside if isinstance(e, Field) and e.of in named]
    return len(named) > len(fields) or any(isinstance(e, Each) for e in inside)


Families = frozenset[tuple[str, tuple[Value, ...]]]
"""Names of rules, each with the roots of one match."""


def families(rules: Iterable[Rule], graph: Graph) -> Families:
    """All matches of those rules in the graph that have several roots."""
    there = {node.op for node in graph.nodes()}
    possible = [(rule, ops) for rule in rules if (ops := root_ops(rule)) is None or not ops.isdisjoint(there)]
    several = [(rule, ops) for rule, ops in possible if len(rule.lhs) > 1 or family(rule.lhs[0])]
    space = Workspace(graph)
    roots = (
        (rule.name, match.roots)
        for rule, ops in several
        for matcher in (Matcher(rule, space),)
        for node in graph.nodes()
        if ops is None or node.op in ops
        for match in matcher.run(node)
    )
    return frozenset(roots)
