"""Derivation: the rule instances that the chosen graph rests on, applied one by one.

The e-graph says which terms were chosen and, in its provenance, why they are equal to what the graph
had. Only the instances that this needs are applied, in an order in which each finds what it matches:
those that made its operands and those that made them equal come first.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, Graph, Value, trimmed
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION, ENode, Saturated
from graphopt.rewrite.egraph.provenance import Application, Applied, Congruent, Spelled, TermSpelling, term_of
from graphopt.rewrite.match.build import Refused
from graphopt.rewrite.match.describe import describe, leaves_of, name_of
from graphopt.rewrite.match.journal import Action, Journal, Respelled, ValueSpelling, places, sign
from graphopt.rewrite.match.matcher import depth, footprint
from graphopt.rewrite.match.multi_version_graph import Alternatives, RuleApplication
from graphopt.rewrite.rule.rule import Rule

log = logging.getLogger(__name__)

ABSENT = 0
"""The term of the input that is not there."""

Goal: TypeAlias = "tuple[str, int, int]"
"""What must be there or be equal: ``term`` t, ``match`` m, ``equal`` a b, ``congruent`` a b, ``twin`` a b (nodes)."""


def derive(
    saturated: Saturated, choice: Mapping[int, ENode], rules: Mapping[str, Rule], side: Alternatives, journal: Journal
) -> list[str]:
    """Apply what leads to the chosen graph, and choose it; ``side`` holds the explored graph and becomes the result.

    Gives, in words, what could not be applied (which then is not in the result): nothing, as a rule.
    """
    run = _Derivation(saturated, choice, rules, side, journal)
    run.run()
    return run.lost


def note_equal(
    journal: Journal,
    side: Alternatives,
    rule: Rule,
    at: Sequence[ValueSpelling],
    replacement: RuleApplication,
    first: int,
    needs: Sequence[int] = (),
) -> int:
    """Write down that a rule was applied at these places, by nodes from id ``first`` on; the number of the entry."""
    graph, leaves = side.graph, leaves_of(replacement.match)
    before, after = (
        ", ".join(describe(graph, v, leaves) for v in values)
        for values in (replacement.match.roots, replacement.values)
    )
    original = min(side.members(next(places(at[0]))))
    entry = journal.note(
        side.space,
        Action.EQUAL,
        rule.name,
        at=at,
        way=replacement.way,
        site=name_of(graph, graph.node(original.node), original.port),
        before=before,
        after=after,
        first=first,
        footprint=footprint(graph, replacement.match),
        needs=needs,
    )
    sign(graph, entry.made, entry, entry.matched)
    return entry.id


class _Derivation:
    def __init__(
        self,
        saturated: Saturated,
        choice: Mapping[int, ENode],
        rules: Mapping[str, Rule],
        side: Alternatives,
        journal: Journal,
    ) -> None:
        self.saturated = saturated
        self.choice = choice
        self.why = saturated.provenance
        self.rules = rules
        self.side = side
        self.graph: Graph = side.graph
        self.journal = journal
        self.lost: list[str] = []
        self.starts = [a.first for a in self.why.applications]
        self.originals = self.starts[0] if self.starts else len(self.why.terms)
        self.values: dict[int, Value] = {}
        """The value that is each term (its first output, for a term that has several)."""
        self.operands: dict[int, tuple[int, ...]] = {}
        """The terms that a node reads, where it was made here."""
        self.done: dict[Goal, tuple[int, ...]] = {}
        """For each goal that was reached, the entries that it rests on."""
        self.twins: list[Goal] = []
        self._read_graph()

    def _read_graph(self) -> None:
        for value, term in self.saturated.terms.items():
            self.values.setdefault(term, value)
            if self._op(term) == PROJECTION:
                self.values.setdefault(self._operands(term)[0], Value(value.node))

    def run(self) -> None:
        pairs = [
            (self.saturated.terms[v], self.choice[c].id)
            for v, c in zip(self.graph.outputs, self.saturated.roots, strict=True)
            if v is not None and c is not None
        ]
        chosen = self.saturated.chosen(self.choice)
        for name in chosen:
            term = self.choice[name].id
            self.reach(("term", term, 0))
            operands = zip(self.choice[name].children, self._operands(term), strict=False)
            pairs += [(read, self.choice[c].id) for c, read in operands if c is not None]
        for pair in dict.fromkeys(pairs):
            self.reach(("equal", *pair))
        self._unite_copies()
        self._choose([self.choice[name].id for name in chosen])

    def _unite_copies(self) -> None:
        """Values of the graph that are one term are equal: their nodes apply one op to the same."""
        for value, term in self.saturated.terms.items():
            first = self.values[term]
            if first != value and value.port == first.port and self._is_needed(value):
                self._same(first.node, value.node, ())

    def _is_needed(self, value: Value) -> bool:
        return self.graph.is_used(value.node) and self.side.find(value) != self.side.find(
            self.values[self.saturated.terms[value]]
        )

    def _choose(self, terms: Sequence[int]) -> None:
        kept = [self.values[t] for t in terms if t in self.values and self._is_value(t)]
        kept = [v for v in kept if len(self.side.members(v)) > 1]
        try:
            changed = self.side.choose(kept)
        except ValueError as error:
            self.lost.append(str(error))
            kept = []
            changed = self.side.choose(kept)
        if changed:
            self.journal.note(self.side.space, Action.CHOOSE, at=kept)

    def _is_value(self, term: int) -> bool:
        return self.why.symbols[self.why.terms[term][0]].n_outputs == 1

    # -- goals

    def reach(self, goal: Goal) -> None:
        """Do what a goal takes, depth-first, with a stack of its own: derivations are deep."""
        waiting: list[tuple[Goal, list[Goal] | None]] = [(goal, None)]
        entered: set[Goal] = set()
        while waiting:
            goal, needs = waiting.pop()
            if goal in self.done:
                continue
            if needs is None:
                if goal in entered:
                    continue
                entered.add(goal)
                needs = list(self._needs(goal))
                waiting.append((goal, needs))
                waiting += [(need, None) for need in reversed(needs) if need not in self.done]
                continue
            rests_on = tuple(dict.fromkeys(e for need in needs for e in self.done.get(need, ())))
            try:
                self.done[goal] = self._do(goal, rests_on)
            except Refused as refused:
                log.debug("%s: %s", goal, refused)
                self.lost.append(f"{self._words(goal)}: {refused}")
                self.done[goal] = ()
            waiting += [(twin, None) for twin in self.twins]  # operands were learned last, and come first
            self.twins = []

    def _needs(self, goal: Goal) -> Iterator[Goal]:
        kind, a, b = goal
        if kind == "term":
            if a not in self.values and a >= self.originals:
                yield "match", bisect_right(self.starts, a) - 1, 0
        elif kind == "match":
            for left in self.why.applications[a].left:
                yield from self._spelled(left)
        elif kind == "equal":
            yield from self._path(a, b)
        elif kind == "congruent":
            yield "term", a, 0
            yield "term", b, 0
            order = self._order(a, b)
            children, others = self.why.terms[a][1], self.why.terms[b][1]
            children = tuple(children[i] for i in order) if order is not None else children
            yield from (("equal", x, y) for x, y in zip(children, others, strict=True) if x != y)
        else:
            yield from (("equal", x, y) for x, y in self._pairs(self._read_by(a), self._read_by(b)) if x != y)

    def _pairs(self, one: Sequence[int], other: Sequence[int]) -> list[tuple[int, int]]:
        """Operands that are equal, in whichever order; what has no partner is left out."""
        left = list(other)
        pairs: list[tuple[int, int]] = []
        for position, x in enumerate(one):
            straight = other[position] if position < len(other) else None
            order = sorted(left, key=lambda y: y != straight)
            y = next((y for y in order if self.why.are_equal(x, y)), None)
            if y is not None:
                left.remove(y)
                pairs.append((x, y))
        return pairs

    def _spelled(self, spelling: TermSpelling) -> Iterator[Goal]:
        """What must be there for a left side to be spelled so."""
        yield "term", term_of(spelling), 0
        if isinstance(spelling, Spelled):
            for child, wanted in zip(self._in_order(spelling), spelling.children, strict=True):
                if child != wanted:
                    yield from self._spelled(wanted)
                    if child != term_of(wanted):
                        yield "equal", child, term_of(wanted)

    def _in_order(self, spelling: Spelled) -> tuple[int, ...]:
        children = self.why.terms[spelling.term][1]
        return children if spelling.order is None else tuple(children[i] for i in spelling.order)

    def _path(self, a: int, b: int) -> Iterator[Goal]:
        yield "term", a, 0
        yield "term", b, 0
        for one, other, reason in self.why.path(a, b):
            if isinstance(reason, Applied):
                yield "match", reason.match, 0
                yield "term", one, 0
                yield "term", other, 0
            else:
                yield "congruent", one, other

    def _order(self, a: int, b: int) -> tuple[int, ...] | None:
        reason = next(r for _, _, r in self.why.path(a, b))
        return reason.order if isinstance(reason, Congruent) else None

    # -- doing

    def _do(self, goal: Goal, rests_on: tuple[int, ...]) -> tuple[int, ...]:
        kind, a, b = goal
        if kind == "match":
            return self._apply(a, rests_on)
        if kind == "congruent" and self._op(a) != PROJECTION and a in self.values and b in self.values:
            return self._same(self.values[a].node, self.values[b].node, rests_on)
        if kind == "twin":
            return self._same(a, b, rests_on)
        return rests_on

    def _same(self, a: int, b: int, rests_on: tuple[int, ...]) -> tuple[int, ...]:
        if a == b or all(
            self.side.find(x) == self.side.find(y)
            for x, y in zip(self.graph.node(a).outputs, self.graph.node(b).outputs, strict=False)
        ):
            return rests_on
        self.side.same(a, b)
        entry = self.journal.note(self.side.space, Action.SAME, at=(a, b), footprint=(a, b), needs=rests_on)
        return (entry.id,)

    def _apply(self, match: int, rests_on: tuple[int, ...]) -> tuple[int, ...]:
        application = self.why.applications[match]
        rule = self.rules[application.rule]
        first = self.graph.next_id
        try:
            at, replacement = self._matched(application, rule, 0)
        except Refused:  # a node that was made for a term may read values of other ops than the term's operands have
            at, replacement = self._matched(application, rule, max(map(depth, rule.lhs)))
        for right, value in zip(application.right, replacement.values, strict=True):
            self._learn(right, value)
        return (note_equal(self.journal, self.side, rule, at, replacement, first, rests_on),)

    def _matched(
        self, application: Application, rule: Rule, levels: int
    ) -> tuple[list[ValueSpelling], RuleApplication]:
        """The rule applied to its left side, whose operands are spelled out so many levels deep."""
        at = [self._site(left, levels) for left in application.left]
        roots = [self.side.respell(site) for site in at]
        replacement = self.side.apply(
            rule, roots, fits=lambda values: all(map(self._corresponds, application.right, values))
        )
        return at, replacement

    def _site(self, spelling: TermSpelling, levels: int = 0) -> ValueSpelling:
        """Where the left side of a rule is to be matched."""
        term = term_of(spelling)
        if term not in self.values:
            raise Refused("what it matches could not be made")
        value = self._value(term)
        if isinstance(spelling, int):
            return self._in_full(term, value, levels)
        inner: TermSpelling = spelling
        if self._op(term) == PROJECTION:
            inner = spelling.children[0]
            if isinstance(inner, int):
                return value
        assert isinstance(inner, Spelled)
        children = list(inner.children)
        if inner.order is not None:
            for position, child in zip(inner.order, inner.children, strict=True):
                children[position] = child
        return Respelled(value, trimmed(self._op(term), self._sites(children, levels - 1)))

    def _sites(self, spellings: Sequence[TermSpelling], levels: int) -> list[ValueSpelling | None]:
        """Where a left side's operands are to be matched."""
        return [None if s == ABSENT else self._site(s, levels) for s in spellings]

    def _in_full(self, term: int, value: Value, levels: int) -> ValueSpelling:
        """A term's value as it stands, or reading the values of the term's own operands."""
        node, children = self.graph.node(value.node), self._operands(term)
        apart = [c for c in children if c != ABSENT]
        if levels < 1 or self._op(term) in (PROJECTION, CONSTANT) or self._op(term) != node.op or not apart:
            return value
        if any(c not in self.values for c in apart):
            return value
        inputs: tuple[ValueSpelling | None, ...] = trimmed(node.op, self._sites(children, levels - 1))
        return value if inputs == node.inputs else Respelled(value, inputs)

    def _value(self, term: int) -> Value:
        return self.values[term]

    # -- what was made, against what the search made

    def _corresponds(self, spelling: TermSpelling, value: Value | None) -> bool:
        """Whether a value is what the search built for a term."""
        term = term_of(spelling)
        if term == ABSENT or value is None:
            return term == ABSENT and value is None
        earlier = self.values.get(term)
        if earlier is not None and self.side.find(earlier) == self.side.find(value):
            return True
        index, _ = self.why.terms[term]
        symbol = self.why.symbols[index]
        children = self._children(spelling)
        node = self.graph.node(value.node)
        if symbol.op == PROJECTION:
            return symbol.attrs["index"] == value.port and self._corresponds(children[0], Value(value.node))
        if symbol.only is not None or symbol.op != node.op or symbol.n_outputs != node.n_outputs:
            return False
        if symbol.op == CONSTANT:
            return _is_one_constant(symbol.attrs["value"], node.attrs["value"])
        inputs = [*node.inputs, *[None] * (len(children) - len(node.inputs))]
        return (
            len(inputs) == len(children)
            and symbol.attrs == ops.canonical(node.op, node.attrs)
            and all(map(self._corresponds, children, inputs))
        )

    def _learn(self, spelling: TermSpelling, value: Value) -> None:
        """Remember which values are the terms that the search made; where there was one already, the two are twins."""
        waiting: list[tuple[TermSpelling, Value | None]] = [(spelling, value)]
        while waiting:
            spelled, current = waiting.pop()
            term = term_of(spelled)
            if current is None or term == ABSENT:
                continue
            current = self._spelled_by(term, current)
            node = self.graph.node(current.node)
            if self._op(term) != PROJECTION and self._op(term) != node.op:  # an equal value stands in its place
                self.values.setdefault(term, current)
                continue
            children = self._children(spelled)
            earlier = self.values.get(term)
            if earlier == current:
                continue
            if self._op(term) != PROJECTION and current.node not in self.operands and current.node >= self.side.first:
                self.operands[current.node] = tuple(term_of(c) for c in children if c != ABSENT)
            if earlier is None:
                self.values[term] = current
            elif self.side.find(earlier) != self.side.find(current) and self._op(term) != PROJECTION:
                self.twins.append(("twin", current.node, earlier.node))
            if current.node < self.side.first:
                continue
            if self._op(term) == PROJECTION:
                waiting.append((children[0], Value(current.node)))
            else:
                waiting += zip(children, node.inputs, strict=False)

    def _spelled_by(self, term: int, value: Value) -> Value:
        """Of the values that equal this one, the first that applies the term's op; the value itself where none does.

        What was there already when a right side was made may read an equal value of another op.
        """
        op = self._op(term)
        if op == PROJECTION or self.graph.node(value.node).op == op:
            return value
        attrs = self.why.symbols[self.why.terms[term][0]].attrs
        for member in self.side.members(value):
            node = self.graph.node(member.node)
            if node.op == op and node.n_outputs == 1 and ops.canonical(op, node.attrs) == attrs:
                return member
        return value

    def _read_by(self, node: int) -> tuple[int, ...]:
        """The terms that a node reads."""
        if node in self.operands:
            return self.operands[node]
        terms = self.saturated.terms
        return tuple(terms[v] for v in self.graph.node(node).inputs if v is not None and v in terms)

    def _children(self, spelling: TermSpelling) -> tuple[TermSpelling, ...]:
        return spelling.children if isinstance(spelling, Spelled) else self.why.terms[spelling][1]

    def _operands(self, term: int) -> tuple[int, ...]:
        return self.why.terms[term][1]

    def _op(self, term: int) -> str:
        return self.why.symbols[self.why.terms[term][0]].op

    def _words(self, goal: Goal) -> str:
        kind, a, _ = goal
        return self.why.applications[a].rule if kind == "match" else "two equal terms"


def _is_one_constant(a: object, b: object) -> bool:
    if not (isinstance(a, Constant) and isinstance(b, Constant)):
        return False
    return a is b or ((a.dtype, a.shape) == (b.dtype, b.shape) and a.digest == b.digest)
