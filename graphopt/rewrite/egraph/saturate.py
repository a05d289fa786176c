"""Equality saturation: rules are applied to everything equal to the graph, until nothing is new or the budget is spent.

Each round finds the matches of all rules first and applies them then, rule by rule and match by
match in an order that depends on nothing but the graph and the rules. A rule that matches far more
often than others sits out some rounds (egg's back-off), so that one that explodes does not starve the rest;
and where a class is large, a rule that made it so makes no more of it: there is no end to the ways to group a sum.
What is put off so is left to the directed matcher, which applies it to the chosen graph as far as that pays.
Rules with several roots apply to terms of the graph only, and to each of those once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from time import monotonic, thread_time

from graphopt.errors import SENSELESS
from graphopt.frozen import dataclass
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Value
from graphopt.ir.infer import infer, label_of
from graphopt.progress import Event, Listener
from graphopt.rewrite.egraph.classes import Classes, Contradiction, Full
from graphopt.rewrite.egraph.egglog import MatchRow
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Place, Saturated, SaturationRound
from graphopt.rewrite.egraph.matching import Matching, Relation
from graphopt.rewrite.egraph.places import place
from graphopt.rewrite.egraph.provenance import Application, Applied, TermSpelling, term_of
from graphopt.rewrite.egraph.substitutions import Instance, alone, independent, joined, own_names, shared
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.match.build import Refused, family, replacements
from graphopt.rewrite.match.matcher import is_on_all
from graphopt.rewrite.match.statistics import RuleStatistics, failed_at
from graphopt.rewrite.match.workspace import UNROLL
from graphopt.rewrite.rule.rule import Field, GuardExpr, NameRef, Rule, subexpressions

OFTEN = 1000
"""A rule that has more new matches than this in a round sits out,"""
EACH = 4
"""unless they are no more than so many for each term of the graph."""
BAN = 4
"""Rounds that a rule sits out the first time; twice as many each time after that."""

ROOTS = "a root was rewritten already, is not the graph's, or reads another"
"""Why a rule with several roots is not applied to some."""
FOLDED = "all that it reads is constant, so that it is computed ahead"
"""Why no rule is applied to what costs nothing at run time."""

TERMS = 800
"""Graphs of fewer terms than this have as many matches as those of so many."""
ASKED = 64
"""The clock is asked at every so many matches, for that may take longer than a match."""
BUSY = 500
"""Once a rule has fired more often than that,"""
FEW = 4
"""so many times fewer members are enough: what the terms of two classes make together is the square of that."""


@dataclass(frozen=True, slots=True)
class SaturationBudget:
    """When saturation stops at the latest, and loops are left as they are."""

    nodes: int = 10_000
    """Distinct e-nodes that rules may add to those of the graph; never exceeded."""
    iters: int = 20
    """Rounds of finding and applying matches."""
    seconds: float = 60.0
    """A safety stop, in seconds of the processor, whatever else it does: a run that it ends cannot be reproduced."""
    unroll: int = UNROLL
    """Nodes that a loop is unrolled to at most, those of its bodies included; a loop of one pass always is."""
    rows: int = 25
    """Matches that are looked at, for each term of the graph, of which at least ``TERMS`` are counted."""
    builds: int = 1000
    """Right sides that one rule may add; what else it matches is put off."""
    members: int = 16
    """In a class of at least so many terms, a rule that made as many of them makes no more: its matches are put off."""


def saturate(
    graph: Graph,
    facts: Mapping[Value, Fact] | None,
    rules: Sequence[Rule],
    budget: SaturationBudget | None = None,
    listener: Listener | None = None,
    about: Rule | None = None,
) -> Saturated:
    """All that the rules prove equal to the graph, within the budget (the standard one where none is given).

    Of the rule that is asked ``about``, one of these or another, which is then not applied, all places are told.
    """
    known = infer(graph) if facts is None else facts
    run = _Run(graph, known, rules, budget or SaturationBudget(), listener, about)
    stop = run.run()
    saturated = run.result(stop)
    return saturated if about is None else replace(saturated, places=tuple(run.places(about, stop)))


class _BudgetSpent(Exception):  # noqa: N818
    """The budget is spent; the message is the reason."""


class _Run:
    def __init__(
        self,
        graph: Graph,
        facts: Mapping[Value, Fact],
        rules: Sequence[Rule],
        budget: SaturationBudget,
        listener: Listener | None,
        about: Rule | None = None,
    ) -> None:
        self.started, self.begun = monotonic(), thread_time()
        self.graph = graph
        self.rules = [r for r in rules if not asks_uses(r)]
        self.budget = budget
        self.listener = listener
        self.classes = Classes(graph, facts, budget.nodes)
        more = [] if about is None or about in self.rules or asks_uses(about) else [about]
        self.matching = Matching(self.classes, [*self.rules, *more])
        self.statistics = {rule.name: RuleStatistics() for rule in self.rules}
        self.often = max(OFTEN, EACH * self.classes.originals)
        self.bans = [0] * len(self.rules)
        self.free_at = [0] * len(self.rules)
        self.rooted: list[set[int]] = [set() for _ in self.rules]
        """For rules with several roots, the terms that were roots already."""
        self.given: dict[tuple[int, int], int] = {}
        """How often a rule has fired at a class."""
        self.too_new: dict[tuple[int, tuple[int, ...]], Instance] = {}
        """Where a rule was refused for the opset of the model: by rule and roots, one of its matches."""
        self.refusals: list[tuple[MatchRow, str]] | None = None
        """Matches that were refused, and why, once all is explored and a rule is asked about."""
        self.iteration = 0
        self.matches = self.looked = 0
        self.rounds = [self.grown()]

    # -- rounds

    def run(self) -> str:
        """Explore; why it stopped."""
        try:
            while self.iteration < self.budget.iters:
                if self.classes.size >= self.classes.limit:
                    return "nodes"
                is_over = not self.round()
                self.rounds.append(self.grown())
                if is_over:
                    return "put off" if self.put_off() else "saturated"
        except _BudgetSpent as stopped:
            self.rounds.append(self.grown())
            return str(stopped)
        return "iterations"

    def grown(self) -> SaturationRound:
        """How much there is now."""
        return SaturationRound(self.classes.size, len(self.classes.terms) - len(self.classes.unions), self.matches)

    def round(self) -> bool:
        """Find and apply matches; whether another round may find more."""
        ready = [i for i, at in enumerate(self.free_at) if at <= self.iteration]
        self.matching.search(ready)
        self.iteration += 1
        before = len(self.classes.terms), len(self.classes.unions)
        for index in ready:
            self.apply(index)
        more = self.matching.reconsider() or before != (len(self.classes.terms), len(self.classes.unions))
        if self.listener is not None:
            self.listener(Event("explore", size=self.classes.size, iteration=self.iteration))
        if more:
            return True
        waiting = [at for at in self.free_at if at > self.iteration]
        if waiting:  # nothing else is left to do: end the first ban now
            self.free_at = [self.iteration if at == min(waiting) else at for at in self.free_at]
        return bool(waiting)

    def apply(self, index: int) -> None:
        """Apply all new matches of a rule, or have it sit out."""
        rule = self.rules[index]
        queries = self.matching.relations[index]
        matches = [(f, row) for f in queries for row in f.waiting if not self.is_crowded(index, row)]
        if not matches:
            return
        if len(matches) > self.often << self.bans[index]:
            self.free_at[index] = self.iteration + (BAN << self.bans[index])
            self.bans[index] += 1
            return
        start = monotonic()
        if family(rule.lhs[0]):
            self.apply_to_families(index, matches)
        else:
            for query, row in matches:
                if not self.is_crowded(index, row):
                    self.apply_to_row(index, query, row)
        for query in queries:
            query.waiting = [row for row in query.waiting if row not in query.seen]
        self.statistics[rule.name].seconds += monotonic() - start

    def is_crowded(self, index: int, row: MatchRow) -> bool:
        """Whether there is enough of a rule, in all or in the class of a match (which may have less again when terms
        prove to be equal)."""
        fired = self.statistics[self.rules[index].name].fired
        if fired >= self.budget.builds:
            return True
        root = self.classes.find(row[0])
        most = self.budget.members if fired <= BUSY else max(self.budget.members // FEW, 1)
        return self.given.get((index, root), 0) >= most <= self.classes.distinct(root)

    def put_off(self) -> dict[str, int]:
        """By rule, how many of its matches wait because there is enough of it; 0 where some were not found."""
        counts = dict.fromkeys(sorted(self.matching.put_off), 0)
        for index, queries in enumerate(self.matching.relations[: len(self.rules)]):
            if count := sum(self.is_crowded(index, row) for query in queries for row in query.waiting):
                counts[self.rules[index].name] = count
        return counts

    def apply_to_row(self, index: int, relation: Relation, row: MatchRow) -> None:
        instance = self.read(index, relation, row)
        if instance is None:
            return None
        if len(instance.roots) > 1 and not self.are_fresh_roots(index, instance):
            return self.refuse(index, relation, row, ROOTS)
        why = self.tried(index, row, partial(self.made, index, instance))
        if why is not None:
            self.refuse(index, relation, row, why)
        return None

    def read(self, index: int, relation: Relation, row: MatchRow) -> Instance | None:
        """The instance that a row stands for; None, and counted as refused, where attributes do not fit."""
        self.looked += 1
        if self.looked > self.budget.rows * max(TERMS, self.classes.originals):
            raise _BudgetSpent("rows")
        if self.looked % ASKED == 1 and thread_time() - self.begun > self.budget.seconds:
            raise _BudgetSpent("seconds")
        relation.settle(row, True)
        if any(self.classes.fact(row[i]).is_const for i in range(len(set(relation.query.roots)))):
            return None  # terms of constants alone cost nothing
        self.statistics[self.rules[index].name].tried += 1
        instance = relation.reader.read(row, self.classes)
        if isinstance(instance, Instance):
            return instance
        self.refuse(index, relation, row, instance)
        return None

    def refuse(self, index: int, relation: Relation, row: MatchRow, why: str) -> None:
        relation.settle(row, False)
        if self.refusals is not None:
            self.refusals.append((row, why))
        refused = self.statistics[self.rules[index].name].refused
        refused[why] = refused.get(why, 0) + 1

    def made(self, index: int, instance: Instance) -> str | None:
        """Make the right side; why that was refused, or None."""
        return self.guards(instance) or self.build(index, instance)

    def tried(self, index: int, row: MatchRow, act: Callable[[], str | None]) -> str | None:
        """Why a rule is refused at a place, or None: also where something goes wrong in it, which reports say."""
        mark, joined_before = self.classes.begin(), len(self.classes.unions)
        try:
            return act()
        except SENSELESS as error:
            if len(self.classes.unions) > joined_before:  # there is no way back
                raise
            self.classes.undo(mark)
            term, statistics = self.classes.enode(row[0]), self.statistics[self.rules[index].name]
            node = None if term.node is None else self.graph.node(term.node)
            site = f"a term of {term.op}" if node is None else f"node {label_of(self.graph, node)!r} ({node.op})"
            why = failed_at(self.rules[index].name, site, error)
            statistics.failed = statistics.failed or why
            return why

    def guards(self, instance: Instance) -> str | None:
        """Why a guard does not hold, or None."""
        for guard in instance.rule.where:
            why = expressions.holds(guard, instance.bindings, self.classes)
            if why is not None:
                return why
        return None

    # -- several roots

    def apply_to_families(self, index: int, matches: Sequence[tuple[Relation, MatchRow]]) -> None:
        """Apply the rule to each group of matches of single members."""
        for instance, members in self.groups(index, matches):
            act = partial(self.made, index, instance)
            fresh = self.are_fresh_roots(index, instance)
            why = self.tried(index, members[0][1], act) if fresh else "one root is computed from another"
            if why is not None:
                for query, row in members:
                    self.refuse(index, query, row, why)

    def groups(
        self, index: int, matches: Sequence[tuple[Relation, MatchRow]]
    ) -> Iterator[tuple[Instance, list[tuple[Relation, MatchRow]]]]:
        """The matches of single members grouped by what they share, each with the one match that they are together;
        those that cannot be members, or of which there is one alone, are refused."""
        families: dict[object, list[tuple[Instance, Relation, MatchRow]]] = {}
        for query, row in matches:
            instance = self.read(index, query, row)
            if instance is None:
                continue
            why = self.tried(index, row, partial(self.unfit, index, instance))
            if why is None:
                families.setdefault(shared(instance), []).append((instance, query, row))
            else:
                self.refuse(index, query, row, why)
        for members in families.values():
            by_root = {instance.roots[0]: instance for instance, _, _ in reversed(members)}
            kept = sorted(by_root.values(), key=lambda m: term_of(m.left(self.classes)[0]))
            if len(kept) < 2:
                for _, query, row in members:
                    self.refuse(index, query, row, "only one of the calls fits, the rule wants at least two")
            else:
                yield joined(kept), [(query, row) for _, query, row in members]

    def unfit(self, index: int, member: Instance) -> str | None:
        """Why one call cannot be a member of a family, or None."""
        if not self.is_fresh_root(index, member.left(self.classes)[0]):
            return "the root was rewritten already, or is not the graph's"
        bindings = alone(member)
        for guard in member.rule.where:
            if not _names(guard) & member.bindings.values.keys() or is_on_all(guard, own_names(member)):
                continue
            if (why := expressions.holds(guard, bindings, self.classes)) is not None:
                return why
        return None

    def is_fresh_root(self, index: int, left: TermSpelling) -> bool:
        term = term_of(left)
        return term < self.classes.originals and term not in self.rooted[index]

    def are_fresh_roots(self, index: int, instance: Instance) -> bool:
        """Whether a rule with several roots may be applied to these."""
        return (
            len({self.classes.find(r) for r in instance.roots}) == len(instance.roots)
            and all(self.is_fresh_root(index, left) for left in instance.left(self.classes))
            and independent(instance, self.classes)
        )

    # -- building

    def build(self, index: int, instance: Instance) -> str | None:
        """Build the right side and join it with the left; why that was refused, or None."""
        classes, rule = self.classes, instance.rule
        mark = classes.begin()
        try:
            terms = replacements(rule, instance.bindings, instance.roots, classes)
        except Refused as refused:
            classes.undo(mark)
            if refused.opset is not None:
                self.too_new.setdefault((index, instance.roots), instance)
            return str(refused)
        except Full:
            classes.undo(mark)
            raise _BudgetSpent("nodes") from None
        if all(
            m >= mark and classes.has_alike(classes.find(r), m, mark)
            for m, r in zip(terms, instance.roots, strict=True)
        ):
            classes.undo(mark)
            return "nothing but constants would differ from what is known"
        left, right = instance.left(classes), [classes.spelling(m) for m in terms]
        changed, why = False, None
        for before, term, after in zip(left, terms, right, strict=True):
            reason = Applied(rule.name, self.matches, before, after)
            try:
                changed |= classes.union(term_of(before), term, reason)
            except Contradiction as contradiction:
                why = str(contradiction)
                break
        if changed:
            classes.provenance.applications.append(Application(rule.name, tuple(left), tuple(right), mark))
            self.matches += 1
            self.statistics[rule.name].fired += 1
            given = index, classes.find(instance.roots[0])
            self.given[given] = self.given.get(given, 0) + 1
        elif why is not None:
            classes.undo(mark)
        if why is None and len(instance.roots) > 1:
            self.rooted[index].update(map(term_of, left))
        return why

    # -- the result

    def result(self, stop: str) -> Saturated:
        classes = self.classes
        roots = tuple(None if v is None else classes.find(classes.values[v]) for v in self.graph.outputs)
        nodes: dict[int, tuple[ENode, ...]] = {}
        waiting = [r for r in roots if r is not None]
        while waiting:
            name = waiting.pop()
            if name not in nodes:
                nodes[name] = tuple(classes.enode(t) for t in classes.members(name))
                waiting += [c for node in nodes[name] for c in node.children if c is not None]
        ordered = {name: nodes[name] for name in sorted(nodes)}
        originals = {n: e for n, es in ordered.items() for e in es[:1] if e.id < classes.originals}
        return Saturated(
            self.graph,
            ordered,
            {name: classes.fact(name) for name in ordered},
            roots,
            {value: classes.find(term) for value, term in sorted(classes.values.items())},
            originals,
            classes.provenance,
            self.statistics,
            stop,
            self.iteration,
            classes.size,
            monotonic() - self.started,
            classes.values,
            tuple(classes.contradictions),
            tuple(self.rounds),
            self.put_off(),
            tuple(self.waiting()),
        )

    def waiting(self) -> Iterator[Place]:
        """Where nothing but the opset of the model is in the way of a rule."""
        told: set[tuple[str, tuple[int, ...]]] = set()
        for instance in self.too_new.values():
            found = place(instance, self.classes)
            if found.opset is not None and (found.rule, found.roots) not in told:
                told.add((found.rule, found.roots))
                yield found

    # -- the places of one rule

    def places(self, about: Rule, stop: str) -> Iterator[Place]:
        """All places of a rule once all is explored, whether it was tried there or not."""
        if asks_uses(about):
            return
        index = next(i for i, rule in enumerate(self.matching.rules) if rule == about)
        tried = {row for relation in self.matching.relations[index] for row in relation.seen}
        self.matching.search([index])
        rows = [(f, row) for f in self.matching.relations[index] for row in sorted({*f.seen, *f.waiting})]
        held = {row: "" if row in tried else self.held(index, row, stop) for _, row in rows}
        # what is asked from here on is no part of the run
        self.statistics, self.rooted = {about.name: RuleStatistics()}, [set() for _ in self.matching.rules]
        self.budget = replace(self.budget, rows=sys.maxsize, seconds=inf)
        self.refusals = []
        if family(about.lhs[0]):
            for instance, members in self.groups(index, rows):
                fits = self.are_fresh_roots(index, instance)
                why = next(filter(None, (held[row] for _, row in members)), "")
                yield place(instance, self.classes, why if fits else "one root is computed from another")
            yield from (self.misfit(about, row, why) for row, why in self.refusals)
            return
        for relation, row in rows:
            root = self.classes.find(row[0])
            found = FOLDED if self.classes.fact(root).is_const else relation.reader.read(row, self.classes)
            if isinstance(found, Instance):
                fits = len(found.roots) == 1 or self.are_fresh_roots(index, found)
                yield place(found, self.classes, held[row] if fits else ROOTS)
            else:
                yield self.misfit(about, row, found)

    def misfit(self, about: Rule, row: MatchRow, why: str) -> Place:
        """A place at which the left side fits but for its attributes, or in which there is nothing to gain."""
        root = self.classes.find(row[0])
        return Place(about.name, (root,), self.classes.provenance.text(root), why)

    def held(self, index: int, row: MatchRow, stop: str) -> str:
        """Why a match was not tried."""
        if index >= len(self.rules):
            return ""
        if self.is_crowded(index, row):
            fired = self.statistics[self.rules[index].name].fired
            limit = f"builds={fired}" if fired >= self.budget.builds else f"members={self.budget.members}"
            return f"held back by the budget: there is enough of it ({limit})"
        if self.free_at[index] > self.iteration:
            return "held back: it matches far more often than others, and sat out when exploration ended"
        return f"held back by the budget: exploration stopped at its limit on {stop}"


def asks_uses(rule: Rule) -> bool:
    """Whether a guard counts readers: such rules are directed."""
    return any(isinstance(e, Field) and e.name == "uses" for guard in rule.where for e in subexpressions(guard))


def _names(expr: GuardExpr) -> set[str]:
    return {e.name for e in subexpressions(expr) if isinstance(e, NameRef)}
