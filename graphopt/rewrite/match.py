"""The directed matcher: finds where the left side of a rule occurs in a graph, and says why it does not.

A match is found by walking the pattern and the graph together, from the root up through the inputs,
with backtracking where there is a choice: the operand orders of commutative ops, alternatives, and
which inputs a starred variable takes. Several roots are found from the first through the users of
what they share.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.rewrite import expressions, heads
from graphopt.rewrite.bindings import Bindings, is_several
from graphopt.rewrite.build import Refused, element, family, replacements
from graphopt.rewrite.notation import show_number
from graphopt.rewrite.rule import (
    AnyOf,
    Apply,
    Call,
    Each,
    Expr,
    Field,
    Lit,
    Literal,
    Ref,
    Rule,
    Series,
    Term,
    Var,
    calls,
    subexpressions,
    variables,
)
from graphopt.rewrite.workspace import Workspace

Found = Bindings[Value]


@dataclass(frozen=True, slots=True)
class Match:
    """Where a rule's left side occurs: the values of its roots in order, and what its names stand for."""

    rule: Rule
    roots: tuple[Value, ...]
    bindings: Found


def match(rule: Rule, graph: Graph, facts: Mapping[Value, Fact] | None, node_id: int) -> Iterator[Match]:
    """All matches of the rule whose first root is (an output of) the node, guards included."""
    return matches(rule, Workspace(graph, facts), graph.node(node_id))


def matches(rule: Rule, space: Workspace, node: Node) -> Iterator[Match]:
    """All matches of the rule in a workspace whose first root is the node."""
    return _Matcher(rule, space).run(node)


def why_not(rule: Rule, graph: Graph, facts: Mapping[Value, Fact] | None, node_id: int) -> str:
    """Why the rule does not apply at the node, in words; empty where it does.

    Of several ways in which it fails, the one that came furthest through the pattern is told.
    """
    space = Workspace(graph.copy(), facts)
    matcher = _Matcher(rule, space, reasons=[])
    for found in matcher.run(graph.node(node_id)):
        try:
            replacements(rule, found.bindings, found.roots, space)
            return ""
        except Refused as refused:
            matcher.fail(str(refused), _GUARD)
    assert matcher.reasons is not None
    return max(matcher.reasons, key=lambda r: r[0])[1] if matcher.reasons else f"{rule.name} does not match"


def root_ops(rule: Rule) -> frozenset[str] | None:
    """The ops at which the rule's first root can be; None where it can be any."""
    return _ops_of(rule.lhs[0], rule.where)


def _ops_of(term: Term, where: Sequence[Expr]) -> frozenset[str] | None:
    match term:
        case Call(op=op) if not term.is_variable:
            return frozenset([op])
        case Call(op=op):
            for guard in where:
                match guard:
                    case Apply("in", (Ref(name), Ref(kind))) if name == op and kind in ops.KINDS:
                        return ops.KINDS[kind]
                    case Apply("in", (Ref(name), Series(items))) if name == op:
                        return frozenset(i.value for i in items if isinstance(i, Lit) and isinstance(i.value, str))
            return None
        case AnyOf(options=options):
            found = [_ops_of(t, where) for t in options]
            return None if None in found else frozenset().union(*(f for f in found if f is not None))
        case _:
            return None


_GUARD = 1 << 20
"""How far a match has come that fails only in its guards."""


class _Matcher:
    """One rule on one workspace. ``reasons`` collects failures with how far the match had come, where asked for."""

    def __init__(self, rule: Rule, space: Workspace, reasons: list[tuple[int, str]] | None = None) -> None:
        self.rule = rule
        self.space = space
        self.graph = space.graph
        self.reasons = reasons
        self.depth = 0
        self.place = "the root"

    def fail(self, reason: str, depth: int | None = None) -> None:
        if self.reasons is not None:
            self.reasons.append((self.depth if depth is None else depth, reason))

    # -- roots

    def run(self, node: Node) -> Iterator[Match]:
        first = self.rule.lhs[0]
        if family(first):
            yield from self.families(first, node)
            return
        for roots, found in self.root(first, node, Bindings()):
            for others, all_found in self.others(self.rule.lhs[1:], [roots], found):
                yield from self.guarded(others, all_found)

    def root(self, term: Term, node: Node, found: Found, index: int | None = None) -> Iterator[tuple[Value, Found]]:
        """Matches of a root term at any output of a node that it can stand for."""
        for port in sorted({c.output for c in _heads(term)}):
            value = Value(node.id, port)
            if port < node.n_outputs:
                for bound in self.term(term, value, found, index):
                    yield value, bound

    def others(self, terms: Sequence[Term], roots: list[Value], found: Found) -> Iterator[tuple[list[Value], Found]]:
        """The roots after the first, looked for among the users of what they share with those before."""
        if not terms:
            if len(roots) == 1 or self.independent(roots, found):
                yield roots, found
            return
        candidates = self.candidates(terms[0], found)
        if candidates is None:
            self.fail("the roots share no variable")
            return
        for value in candidates:
            if value not in roots:
                for bound in self.term(terms[0], value, found, None):
                    yield from self.others(terms[1:], [*roots, value], bound)

    def candidates(self, term: Term, found: Found) -> list[Value] | None:
        """Where a term could be, seen from a variable that is bound already; None where it has none."""
        match term:
            case Var(name):
                value = found.values.get(name)
                return [value] if isinstance(value, Value) else None
            case AnyOf(options=options):
                parts = [self.candidates(t, found) for t in options]
                return None if None in parts else [v for p in parts if p is not None for v in p]
            case Call():
                for part in term.inputs:
                    sources = self.candidates(part, found)
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
            for name in _starred_names(term):
                shared.values.pop(name, None)
            candidates = self.candidates(term, shared)
            if candidates is None:
                self.fail("the family shares no variable")
                return
            roots: list[Value] = []
            found = shared
            for value in candidates:
                for bound in self.term(term, value, found, len(roots)):
                    if self.unfit(element(bound, _starred_names(term), len(roots)), stars) is None:
                        roots.append(value)
                        found = bound
                        break
            if len(roots) < 2:
                self.fail(f"only {len(roots)} of the calls match, the rule wants at least two")
            elif roots[0] != root:
                self.fail("the family is found at its first call")
            elif self.independent(roots, found):
                yield from self.guarded(roots, found)

    def unfit(self, found: Found, stars: Sequence[str]) -> str | None:
        """Why one member of a family does not satisfy the guards on it alone."""
        for guard in self.rule.where:
            if _names(guard) & set(stars) and not _is_on_all(guard, stars):
                reason = expressions.holds(guard, found, self.space)
                if reason is not None:
                    self.fail(reason, _GUARD)
                    return reason
        return None

    def independent(self, roots: Sequence[Value], found: Found) -> bool:
        """Whether no root is computed from another: what replaces them reads what all of them read."""
        targets = {r.node for r in roots}
        names = {v.name for term in self.rule.lhs for v in variables(term)} - set(_call_names(self.rule.lhs))
        bound = [b for name, b in found.values.items() if name in names]
        waiting = [v.node for b in bound for v in (b if is_several(b) else (b,)) if v is not None]
        lowest = min(targets)
        seen = set(waiting)
        while waiting:
            id = waiting.pop()
            if id in targets:
                self.fail("one root is computed from another", _GUARD)
                return False
            node = self.graph.node(id)
            if node.op == CONSTANT or (not node.inputs and id < lowest):
                continue
            for value in node.inputs:
                if value is not None and value.node not in seen:
                    seen.add(value.node)
                    waiting.append(value.node)
        return True

    def guarded(self, roots: Sequence[Value], found: Found) -> Iterator[Match]:
        for guard in self.rule.where:
            reason = expressions.holds(guard, found, self.space)
            if reason is not None:
                self.fail(reason, _GUARD)
                return
        yield Match(self.rule, tuple(roots), found)

    # -- terms

    def term(self, term: Term, value: Value | None, found: Found, index: int | None) -> Iterator[Found]:
        """Bindings under which the term is this value. ``index``: the position within a family, if in one."""
        match term:
            case Var():
                bound = self.variable(term, value, found, index)
                if bound is not None:
                    yield bound
            case _ if value is None:
                self.fail("an input that the rule wants is absent")
            case Literal(wanted):
                if self.literal(wanted, value):
                    yield found
            case AnyOf(options=options):
                for option in options:
                    yield from self.term(option, value, found, index)
            case Call():
                yield from self.call(term, value, found, index)
            case _:
                self.fail("computed constants stand only in right sides")

    def variable(self, var: Var, value: Value | None, found: Found, index: int | None) -> Found | None:
        name = var.name
        if name == "_":
            if value is not None:
                self.fail(f"{self.says(value)} stands where the rule wants no input")
            return found if value is None else None
        if value is None and not var.optional:
            self.fail(f"{name} is absent")
            return None
        if var.starred and index is not None and value is not None:
            return self.member(name, value, found, index)
        if name in found.values:
            if self.same(found.values[name], value):
                return found
            self.fail(f"{self.says(value)} is not the same value as {name}")
            return None
        bound = found.copy()
        bound.values[name] = value
        return bound

    def member(self, name: str, value: Value, found: Found, index: int) -> Found | None:
        """Bind value number ``index`` of a starred variable."""
        members = found.values.get(name, ())
        assert is_several(members)
        if index < len(members):
            if self.same(members[index], value):
                return found
            self.fail(f"{self.says(value)} is not the same value as {name}")
            return None
        bound = found.copy()
        bound.values[name] = (*members, value)
        return bound

    def same(self, a: object, b: object) -> bool:
        """Whether two values are one, or constants with equal elements."""
        if a == b:
            return True
        if not (isinstance(a, Value) and isinstance(b, Value)):
            return False
        left, right = self.graph.constant_of(a), self.graph.constant_of(b)
        if left is None or right is None:
            return False
        return left == right or ((left.dtype, left.shape) == (right.dtype, right.shape) and left.digest == right.digest)

    def literal(self, wanted: int | float | bool | tuple[int, ...] | tuple[float, ...], value: Value) -> bool:
        constant = self.space.constant(value)
        if constant is None:
            self.fail(f"{self.says(value)} is not a constant, the rule wants {_written(wanted)}")
            return False
        if not expressions.matches_literal(constant, wanted):
            self.fail(f"{self.says(value)} is {_elements(constant)}, the rule wants {_written(wanted)}")
            return False
        return True

    def call(self, call: Call, value: Value, found: Found, index: int | None) -> Iterator[Found]:
        node = self.graph.node(value.node)
        bound = self.head(call, node, value, found, index)
        if bound is None:
            return
        self.depth += 1
        for inner in self.inputs(call, node, bound, index):
            attrs = ops.canonical(node.op, node.attrs)
            reason = heads.check(call, node.op, attrs, self.rank(node), inner, self.space) if call.attrs else None
            if reason is None:
                yield inner
            else:
                self.fail(reason)
        self.depth -= 1

    def head(self, call: Call, node: Node, value: Value, found: Found, index: int | None) -> Found | None:
        """Check the op, and bind what can be bound before the inputs: op variable, name, and plain attributes."""
        if not call.is_variable and node.op != call.op:
            kind = {INPUT: "an input of the graph", CONSTANT: "a constant"}.get(node.op, node.op)
            self.fail(f"{self.says(value)} is {kind}, the rule wants {call.op}")
            return None
        if value.port != call.output:
            self.fail(f"output {value.port} of {node.op} is used, the rule wants output {call.output}")
            return None
        bound = found
        if call.name is not None:
            taken = self.variable(Var(call.name, starred=index is not None), value, bound, index)
            if taken is None:
                return None
            bound = taken
        if call.is_variable and (node.n_outputs != 1 or node.captures or node.op == CONSTANT):
            self.fail(f"{node.op} cannot stand for {call.op}")
            return None
        if bound is found:
            bound = found.copy()
        reason = heads.bind(call, node.op, ops.canonical(node.op, node.attrs), self.rank(node), bound)
        if reason is not None:
            self.fail(reason)
            return None
        return bound

    def rank(self, node: Node) -> int | None:
        """The rank of the first input, on which some default attributes depend."""
        return self.space.fact(node.inputs[0]).rank if node.inputs and node.inputs[0] is not None else None

    # -- inputs

    def inputs(self, call: Call, node: Node, found: Found, index: int | None) -> Iterator[Found]:
        if node.captures:
            self.fail(f"{node.op} has bodies that capture values")
            return
        start = None if call.is_variable else ops.variadic_input(node.op)
        commutative = ops.is_commutative(node.op)
        if start is not None:
            terms, values = call.inputs[:start], node.inputs[:start]
            for bound in self.fixed(terms, values, found, index, node):
                yield from self.variadic(call.inputs[start:], node.inputs[start:], bound, index, commutative, node)
            return
        yield from self.fixed(call.inputs, node.inputs, found, index, node)
        if commutative and len(call.inputs) == 2 == len(node.inputs) and node.inputs[0] != node.inputs[1]:
            yield from self.fixed(call.inputs, node.inputs[::-1], found, index, node)

    def fixed(
        self, terms: Sequence[Term], values: Sequence[Value | None], found: Found, index: int | None, node: Node
    ) -> Iterator[Found]:
        """Terms and inputs one by one; missing terms and missing inputs at the end are absent."""
        if len(values) > len(terms):
            self.fail(f"{node.op} has {len(values)} inputs, the rule wants {len(terms)}")
            return
        yield from self.sequence(terms, [*values, *[None] * (len(terms) - len(values))], found, index, node, 0)

    def sequence(
        self,
        terms: Sequence[Term],
        values: Sequence[Value | None],
        found: Found,
        index: int | None,
        node: Node,
        position: int,
    ) -> Iterator[Found]:
        if position == len(terms):
            yield found
            return
        self.look(node, values[position])
        for bound in self.term(terms[position], values[position], found, index):
            yield from self.sequence(terms, values, bound, index, node, position + 1)

    def variadic(
        self,
        terms: Sequence[Term],
        values: Sequence[Value | None],
        found: Found,
        index: int | None,
        commutative: bool,
        node: Node,
    ) -> Iterator[Found]:
        """Terms against any number of inputs: starred variables and families take as many as fit."""
        if not terms:
            if values:
                self.fail(f"{node.op} has {len(values)} inputs more than the rule wants")
            else:
                yield found
            return
        term, rest = terms[0], terms[1:]
        stars = family(term)
        if commutative and not stars:
            for i, value in enumerate(values):
                self.look(node, value)
                for bound in self.term(term, value, found, index):
                    yield from self.variadic(rest, [*values[:i], *values[i + 1 :]], bound, index, True, node)
            return
        if commutative and rest and not all(family(t) for t in rest):  # single terms choose first
            yield from self.variadic([*rest, term], values, found, index, True, node)
            return
        if not stars:
            if not values:
                self.fail(f"{node.op} has too few inputs")
                return
            self.look(node, values[0])
            for bound in self.term(term, values[0], found, index):
                yield from self.variadic(rest, values[1:], bound, index, commutative, node)
            return
        for n in [len(values)] if not rest else range(len(values) + 1):
            for bound in self.several(term, values[:n], found, 0):
                yield from self.variadic(rest, values[n:], bound, index, commutative, node)

    def several(self, term: Term, values: Sequence[Value | None], found: Found, position: int) -> Iterator[Found]:
        """A starred variable, or each member of a family, against these values."""
        names = _starred_names(term)
        if position == 0:
            if isinstance(term, Var):
                taken = tuple(v for v in values if v is not None)
                known = found.values.get(term.name)
                if len(taken) < len(values):
                    self.fail(f"an input of {term.name} is absent")
                elif known is None:
                    bound = found.copy()
                    bound.values[term.name] = taken
                    yield bound
                elif is_several(known) and len(known) == len(taken) and all(map(self.same, known, taken)):
                    yield found
                return
            if not values:
                return
            found = found.copy()
            for name in names:
                found.values.setdefault(name, ())
        if position == len(values):
            if all(len(m) == len(values) for n in names if is_several(m := found.values[n])):
                yield found
            return
        for bound in self.term(term, values[position], found, position):
            yield from self.several(term, values, bound, position + 1)

    # -- words

    def says(self, value: Value | None) -> str:
        """The value in words: its name, or where it is read."""
        if value is None:
            return "nothing"
        return self.graph.names.get(value, self.place)

    def look(self, node: Node, value: Value | None) -> None:
        """Remember which input is looked at, for the words of a failure."""
        if self.reasons is not None:
            self.place = f"input {node.inputs.index(value) if value in node.inputs else len(node.inputs)} of {node.op}"


def _heads(term: Term) -> list[Call]:
    """The calls that a term can start with."""
    if isinstance(term, AnyOf):
        return [c for t in term.options for c in _heads(t)]
    return [term] if isinstance(term, Call) else []


def _starred_names(term: Term) -> list[str]:
    """What each member of a family binds for itself: its starred variables, and the names of its calls."""
    return [*family(term), *_call_names((term,))]


def _call_names(terms: Sequence[Term]) -> list[str]:
    """The names that calls give their values."""
    return list(dict.fromkeys(c.name for t in terms for c in calls(t) if c.name is not None))


def _names(expr: Expr) -> set[str]:
    """All names in an expression."""
    return {e.name for e in subexpressions(expr) if isinstance(e, Ref)}


def _is_on_all(guard: Expr, stars: Sequence[str]) -> bool:
    """Whether a guard says something of all values of a starred variable together, not of each of them."""
    inside = subexpressions(guard)
    named = [e for e in inside if isinstance(e, Ref) and e.name in stars]
    asked = [e for e in inside if isinstance(e, Field) and e.of in named]
    return len(named) > len(asked) or any(isinstance(e, Each) for e in inside)


def _written(wanted: object) -> str:
    if isinstance(wanted, tuple):
        return f"[{', '.join(map(_written, wanted))}]"
    return show_number(wanted)  # type: ignore[arg-type]


def _elements(constant: Constant) -> str:
    if constant.size == 1:
        return str(constant.array.reshape(-1)[0])
    return f"{constant.dtype}{list(constant.shape)}"
