"""Directed rewriting to a fixed point: rules and native passes that always help, tried wherever something changed."""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import ParamSpec, TypeAlias

from graphopt.errors import SENSELESS, RuleError
from graphopt.ir import infer
from graphopt.ir.facts import Fact
from graphopt.ir.functions import callee
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.work import nbytes
from graphopt.rewrite.match.build import Refused, family, replacements
from graphopt.rewrite.match.describe import describe, leaves_of, name_of, show_call
from graphopt.rewrite.match.evaluation import OperationBudget
from graphopt.rewrite.match.journal import Action, Journal, sign
from graphopt.rewrite.match.matcher import Match, depth, footprint, input_dtypes, input_ops, matches, root_ops
from graphopt.rewrite.match.statistics import Statistics, failed_at
from graphopt.rewrite.match.workspace import UNROLL, Workspace, facts_within
from graphopt.rewrite.passes import PASSES, NativePass
from graphopt.rewrite.passes.dead import UNUSED, remove_unused
from graphopt.rewrite.rule.rule import Rule

P = ParamSpec("P")
Visit: TypeAlias = Callable[[Workspace, Node], bool]
RuleAt: TypeAlias = "tuple[Rule, frozenset[str], frozenset[str] | None]"
"""A rule, the ops that inputs of its root must have been made by, and the dtypes of which one must have one: a quick
test before matching."""
log = logging.getLogger(__name__)

ROUNDS = 20
"""How often the whole-graph passes are repeated at most."""
PLACES = 3
"""A rule or pass that failed at so many places is tried nowhere any more."""


def simplify(
    graph: Graph,
    rules: Iterable[Rule] = (),
    passes: Sequence[NativePass] = PASSES,
    *,
    facts: Mapping[Value, Fact] | None = None,
    journal: Journal | None = None,
    limit: int | None = None,
    statistics: Statistics | None = None,
    unroll: float = UNROLL,
    paying: Iterable[Rule] = (),
    ahead: OperationBudget | None = None,
) -> Graph:
    """A graph to which none of the rules and passes applies any more, bodies of its nodes included.

    The graph itself is never changed, and it is what comes back where nothing applied. ``facts`` is
    what is known of its inputs beyond their types; what is done is noted in the ``journal``. A rule or pass in which
    something goes wrong is left out at that place, after ``PLACES`` of them everywhere, and warned of, or told to the
    ``statistics``. Raises RuleError after ``limit`` applications (a generous multiple of the graph's size): rules undo
    each other, or make what they apply to. Loops are unrolled to ``unroll`` nodes at most. Rules that are ``paying``
    are applied where that pays by the journal's prices and stores no more. ``ahead`` is what may be computed ahead, by
    default as much as the graph may take.
    """
    paying = [rule for rule in paying if len(rule.lhs) == 1 and not family(rule.lhs[0])]
    rules, facts_of = (*rules, *paying), infer.infer(graph, facts)
    priced = frozenset(rule.name for rule in paying)
    left_out: dict[str, set[str]] = {}
    while True:
        before = None if journal is None else journal.state()
        space = Workspace(graph.copy(), dict(facts_of))
        space.unroll, space.ahead = unroll, ahead or OperationBudget.of(graph)
        try:
            mark = 0 if journal is None else journal.open()
            _Simplifier(space, rules, passes, journal, limit, statistics, left_out, priced).run()
            if journal is not None:
                journal.close(mark, space.edits > 0)
            return space.graph if space.edits else graph
        except _Failed as failure:  # half of an edit may be done: all begins again from the graph that was given
            places = left_out.setdefault(failure.name, set())
            places.add(failure.site)
            if len(places) == PLACES:
                passes = tuple(native for native in passes if native.name != failure.name)
                rules = tuple(rule for rule in rules if rule.name != failure.name)
            if journal is not None and before is not None:
                journal.restore(before)
            if statistics is None:
                warnings.warn(str(failure), stacklevel=2)
            else:
                statistics.failed.setdefault(failure.name, str(failure))


class _Failed(Exception):  # noqa: N818
    """Something went wrong in a rule or pass. Inference accepted the model before, so the fault is theirs."""

    def __init__(self, name: str, site: str, error: Exception) -> None:
        self.name, self.site = name, site
        super().__init__(failed_at(name, site, error))


def replace_roots(space: Workspace, match: Match, values: Sequence[Value], first: int) -> None:
    """Let what reads the roots of a match read what was made for them, by nodes from id ``first`` on."""
    moved: dict[Value, Value] = {}
    for old, new in zip(match.roots, values, strict=True):
        new = moved.get(new, new)
        if old != new:
            space.replace(old, new, first)
            moved[old] = new


class _Simplifier:
    """One run on one workspace."""

    def __init__(
        self,
        space: Workspace,
        rules: Sequence[Rule],
        passes: Sequence[NativePass],
        journal: Journal | None,
        limit: int | None,
        statistics: Statistics | None,
        left_out: Mapping[str, Collection[str]],
        paying: Collection[str] = (),
    ) -> None:
        self.space = space
        self.graph = space.graph
        self.rules = rules
        self.passes = passes
        self.journal = journal
        self.statistics = statistics
        self.left_out = left_out
        """By name the places at which rules and passes failed before."""
        self.paying = paying
        """The rules that are applied only where it pays."""
        self.limit = limit or 50 * len(space.graph) + 10_000
        self.applied: Counter[str] = Counter()
        self.steps = 0
        space.reach = max((depth(term) for rule in rules for term in rule.lhs), default=1)
        self.roots = [(rule, root_ops(rule)) for rule in rules]
        self.by_op: dict[str, list[RuleAt]] = {}
        self.visits: dict[str, list[tuple[str, Visit]]] = {}
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
            if node.id not in self.graph or self.graph.is_used(node.id):
                continue
            site, text = name_of(self.graph, node), self.shown(node)
            if remove_unused(self.space, node):
                self.note(UNUSED.name, site, text, (node.id,), (node.id,))

    def sweep(self, name: str, act: Callable[[Workspace], bool]) -> None:
        """Let a pass go over the whole graph."""
        before, first = self.space.edits, self.graph.next_id
        there = self.calls()
        if self.tried(name, None, act, self.space):
            gone = self.space.unread()
            replaced = [id for id in there if id in gone or id not in self.graph]
            self.note(name, self.graph.name, f"{self.space.edits - before} places", (), replaced, first)

    def calls(self) -> list[int]:
        """The nodes that apply an op, where somebody keeps a journal."""
        if self.journal is None:
            return []
        return [node.id for node in self.graph.nodes() if node.op not in (INPUT, CONSTANT)]

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
        names_of_rules = {rule.name for rule in self.rules}
        counts = [
            (name, n) for name, n in self.applied.most_common() if name in names_of_rules
        ] or self.applied.most_common()
        names = ", ".join(name for name, n in counts[:3] if 2 * n >= counts[0][1])
        return RuleError(
            f"rewriting does not end ({self.steps} rewrites of one graph), most often applied: {names}; "
            "a rule that always runs must not undo another or make what it applies to"
        )

    def visit(self, node: Node) -> bool:
        """Apply the first pass or rule that changes something at the node."""
        if self.graph.functions and callee(node, self.graph.functions):
            return UNUSED in self.passes and remove_unused(self.space, node)
        first = self.graph.next_id
        for name, visit in self.passes_at(node.op):
            if self.tried(name, node, visit, self.space, node):
                self.note(name, name_of(self.graph, node), self.shown(node), (node.id,), (node.id,), first)
                return True
        rules = self.rules_at(node.op)
        if not rules:
            return False
        inputs = [v for v in node.inputs if v is not None]
        around = {self.graph.node(v.node).op for v in inputs}
        given = {self.space.fact(v).dtype for v in inputs}
        for rule, needed, dtypes in rules:
            fits = needed <= around and (dtypes is None or None in given or not given.isdisjoint(dtypes))
            if fits and self.tried(rule.name, node, self.rewritten, rule, node):
                return True
        return False

    def rewritten(self, rule: Rule, node: Node) -> bool:
        """Whether a rule changes something at a node."""
        return any(self.apply(match, way) for way, match in enumerate(self.matches(rule, node)))

    def tried(self, name: str, node: Node | None, act: Callable[P, bool], *given: P.args, **named: P.kwargs) -> bool:
        """Whether a rule or pass changes something at a node, or in the graph: nothing where it failed before."""
        if name in self.left_out and self.site(node) in self.left_out[name]:
            return False
        try:
            return act(*given, **named)
        except SENSELESS as error:
            raise _Failed(name, self.site(node), error) from error

    def site(self, node: Node | None) -> str:
        """What messages call a node, or the graph."""
        if node is None:
            return f"graph {self.graph.name!r}"
        return f"node {infer.label_of(self.graph, node)!r} ({node.op})"

    def matches(self, rule: Rule, node: Node) -> Iterator[Match]:
        """The matches of a rule at a node, watched where somebody counts."""
        matches_ = matches(rule, self.space, node)
        return matches_ if self.statistics is None else self.statistics.watched(rule, matches_)

    def shown(self, node: Node) -> str:
        """The node in call notation, where somebody keeps a journal."""
        return "" if self.journal is None else show_call(self.graph, node)

    def passes_at(self, op: str) -> list[tuple[str, Visit]]:
        """The passes that may change a node of an op, by name."""
        visits = self.visits.get(op)
        if visits is None:
            at_op = [p for p in self.passes if p.ops is None or op in p.ops]
            visits = self.visits[op] = [(p.name, p.visit) for p in at_op if p.visit is not None]
        return visits

    def rules_at(self, op: str) -> list[RuleAt]:
        """The rules that may apply at an op."""
        if op in (INPUT, CONSTANT):
            return []
        rules = self.by_op.get(op)
        if rules is None:
            here = (rule for rule, ops in self.roots if ops is None or op in ops)
            rules = [(rule, input_ops(rule), input_dtypes(rule)) for rule in here]
            self.by_op[op] = rules
        return rules

    def apply(self, match: Match, way: int) -> bool:
        """Replace the roots of a match, number ``way`` at its node; whether its right side fits."""
        if not all(map(self.space.uses, match.roots)):
            return False
        first = self.graph.next_id
        try:
            values = replacements(match.rule, match.bindings, match.roots, self.space)
        except Refused as refused:
            log.debug("%s: %s", match.rule.name, refused)
            self.space.undo(first)
            return False
        is_same = all(a == b for a, b in zip(match.roots, values, strict=True))
        if is_same or (match.rule.name in self.paying and not self.pays(match, first)):
            self.space.undo(first)
            return False
        self.applied[match.rule.name] += 1
        if self.journal is None:
            replace_roots(self.space, match, values, first)
        else:
            self.journalled(self.journal, match, way, values, first)
        self.space.drop_orphans()
        if match.rule.name in self.paying:  # chains of constants that wait are inferred anew with each that is folded
            for node in list(self.graph.since(first)):
                if node.id in self.graph and all(self.space.fact(v).is_const for v in node.outputs):
                    self.visit(node)
        return True

    def pays(self, match: Match, first: int) -> bool:
        """Whether what a match replaces costs more than the nodes from id ``first`` on, and reads as many bytes of
        constants."""
        price = None if self.journal is None else self.journal.price
        if price is None:
            return False
        space, gone = self.space, {root.node for root in match.roots}
        for id in footprint(self.graph, match):
            if gone.issuperset(self.graph.readers(id)) and not any(
                map(self.graph.is_output, self.graph.node(id).outputs)
            ):
                gone.add(id)
        sides = [[self.graph.node(id) for id in gone], list(self.graph.since(first))]
        computed = [[n for n in side if not all(space.fact(v).is_const for v in n.outputs)] for side in sides]
        before, after = (sum(price(space, node) for node in side) for side in computed)
        read, made = ({v for n in side for v in n.inputs if v and space.fact(v).is_const} for side in computed)
        old, new = (sum(nbytes(space.fact(v)) for v in side) for side in (read - made, made - read))
        return after < before and new <= old

    def journalled(self, journal: Journal, match: Match, way: int, values: Sequence[Value], first: int) -> None:
        """Replace the roots of a match and write down that it was done."""
        leaves, inside = leaves_of(match), footprint(self.graph, match)
        before, after = (", ".join(describe(self.graph, v, leaves) for v in side) for side in (match.roots, values))
        entry = journal.note(
            self.space,
            Action.REWRITE,
            match.rule.name,
            at=match.roots,
            way=way,
            site=name_of(self.graph, self.graph.node(match.roots[0].node)),
            before=before,
            after=after,
            first=first,
            footprint=inside,
            changed=sorted({user for old in match.roots for user, _ in self.graph.users(old) if user < first}),
        )
        replace_roots(self.space, match, values, first)
        sign(self.graph, entry.made, entry, inside)

    def bodies(self) -> None:
        """Simplify the bodies of If, Loop and Scan, which know what they capture."""
        for node in list(self.graph.nodes()):
            for name, body in node.bodies.items():
                if id(body) in self.settled:
                    continue
                facts = facts_within(node, body, self.space.facts)
                mark = 0 if self.journal is None else self.journal.open(node.id, name)
                result = self.body(body, facts)
                if self.journal is not None:
                    self.journal.close(mark, result is not body)
                self.settled[id(result)] = result
                if result is not body:
                    current = self.graph.node(node.id)
                    self.space.update(node.id, attrs=current.attrs.with_(**{name: result}))

    def body(self, body: Graph, facts: Mapping[Value, Fact]) -> Graph:
        """The simplified body; ``facts`` is what is known of its inputs."""
        space = Workspace(body.copy(), infer.infer(body, facts), is_body=True)
        space.unroll, space.ahead = self.space.unroll, self.space.ahead
        arguments = self.rules, self.passes, self.journal, self.limit, self.statistics, self.left_out, self.paying
        _Simplifier(space, *arguments).run()
        return space.graph if space.edits else body

    def note(
        self, name: str, site: str, text: str, at: Sequence[int], replaced: Sequence[int], first: int | None = None
    ) -> None:
        """A pass acted, at a node or (at none) on the whole graph, and replaced the nodes ``replaced``. What it left
        unread goes with them."""
        self.applied[name] += 1
        if self.journal is not None:
            entry = self.journal.note(
                self.space,
                Action.PASS,
                name,
                at=at,
                site=site,
                before=text,
                first=first,
                footprint=replaced,
                changed=at,
            )
            sign(self.graph, entry.made, entry, [*replaced, *at])
        self.space.drop_orphans()
