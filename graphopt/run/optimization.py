"""State of one optimization: its settings, the regions of a graph that are explored, and what its report needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.types import is_anonymous
from graphopt.ir.work import stored_bytes
from graphopt.progress import Event
from graphopt.rewrite.derivations.derive import derive as apply_chosen
from graphopt.rewrite.derivations.repeats import Repeats, find_repeats
from graphopt.rewrite.derivations.replicate_to_copies import transfer
from graphopt.rewrite.egraph.egraph_snapshot import Saturated
from graphopt.rewrite.egraph.saturate import SaturationBudget
from graphopt.rewrite.extract.choose import Extraction, allowance
from graphopt.rewrite.extract.cost import CostModel, counted_at, graph_cost, shape_profiles, stated_sizes
from graphopt.rewrite.extract.terms import calls
from graphopt.rewrite.match.evaluation import OperationBudget
from graphopt.rewrite.match.journal import Journal
from graphopt.rewrite.match.matcher import families
from graphopt.rewrite.match.multi_version_graph import Alternatives
from graphopt.rewrite.match.statistics import Statistics
from graphopt.rewrite.match.workspace import Workspace, facts_within
from graphopt.rewrite.passes import fold_within
from graphopt.rewrite.passes.functions import INLINE
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import Soundness
from graphopt.rewrite.ruleset import Ruleset
from graphopt.run.attentions import CHEAPER, attentions, explored_reason
from graphopt.run.derivation import Derivation, Preparation
from graphopt.run.report import AppliedRewrite, Exploration, Report
from graphopt.run.rule_uses import rule_uses
from graphopt.run.steps import Steps, count_ops
from graphopt.target import Target

Timed: TypeAlias = Callable[[Target, Sequence[str], Sequence[str]], Target]
"""From a target, the calls (``rewrite.workload``) among which to choose, and those that its prices chose: the target
with prices that know what of all these was timed; the very same where nothing was."""


LIMITS = ("nodes", "rows", "iterations", "seconds")
"""Why an exploration stops before there is nothing left to find."""


@dataclass(frozen=True)
class ExploredRegion:
    """Part of a graph that is explored as a whole: the graph, the body of a node, or a block that the graph repeats."""

    space: Workspace
    """What the rewrites that were chosen are applied to."""
    journal: Journal
    lost: list[str]
    """In words, the rewrites that were chosen and could not be applied."""
    repeats: Repeats | None = None
    """Of a block: the copies that it stands for."""

    @property
    def graph(self) -> Graph:
        """The region's graph."""
        return self.space.graph

    @property
    def facts(self) -> dict[Value, Fact]:
        """What is known of its values."""
        return dict(self.space.facts)

    def become(self, graph: Graph) -> None:
        """Take over a graph; that which the region's own was edited into is there already."""
        if graph is not self.space.graph:
            self.space.graph, self.space.facts = graph, infer(graph)
            self.space.edits += 1


class Optimization:
    """One optimization: its settings, and what is collected on the way for the report."""

    def __init__(
        self,
        graph: Graph,
        rules: Ruleset,
        target: Target,
        policy: Soundness,
        budget: SaturationBudget,
        step: Steps,
        timed: Timed | None = None,
        growth: float | None = None,
    ) -> None:
        self.rules, self.policy, self.budget, self.step, self.timed = rules, policy, budget, step, timed
        self.stated = self.target = target
        """The target as it was stated, and with the prices that choices went by."""
        self.sizes = stated_sizes(graph)
        """What the model's named sizes count as, in bodies too, which capture values that have them."""
        self.growth = allowance(stored_bytes(graph), target, growth)
        self.limit = stored_bytes(graph) + self.growth.free
        """Bytes of constants that the result may store: as many as it may grow by for any gain, or as choices took."""
        self.profiles = shape_profiles(graph, target)
        """The sizes at which graphs are priced, where those of decode and of prefill are."""
        self.journal = Journal(_price(self.model(graph)))
        self.journal.families = {r.name: r.family for r in rules.rules} | {p.name: p.family for p in rules.passes}
        self.by_name = {r.name: r for r in rules.rules}
        self.explorations: list[Exploration] = []
        self.lost: list[str] = []
        self.attention_reason = ""
        """Why attentions that explorations came to are none of the result; empty where they came to none."""
        self.tidied = graph
        """The graph that the first round explores."""
        self.explored = graph
        """The graph of this round, once all its regions were explored."""
        self.as_expected = True
        """Whether all that was chosen in this round costs what the search took it for."""
        self.is_ahead_spent = False
        """Whether more could be computed ahead than there is time for."""
        self.ahead = OperationBudget.of(graph)
        """What tidying may compute ahead in all rounds."""
        self.statistics = Statistics()
        self.waiting: Counter[int] = Counter()
        """By opset, at how many places of the first round that is all that a cheaper right side needs."""
        self.round = 0
        self.put_off: set[str] = set()
        """The rules of which explorations put matches off, or that were stopped by a limit while they fired."""

    # -- regions

    def regions(self, graph: Graph) -> Iterator[ExploredRegion]:
        """The regions of a graph, bodies of its nodes first: each is to be changed before the next is asked for. The
        graph itself is not changed; ``explored`` is what became of it."""
        self.as_expected = True
        self.round += 1
        mark = self.journal.open()
        space = Workspace(graph.copy(), infer(graph, is_model=True))
        yield from self._within(space)
        self.journal.close(mark, space.edits > 0)
        self.explored = space.graph if space.edits else graph

    def _within(self, space: Workspace) -> Iterator[ExploredRegion]:
        """The regions of a workspace, which takes over what they become."""
        yield from self._bodies(space)
        if not len(space.graph):
            return
        repeats = find_repeats(space.graph, space.facts)
        if repeats is not None:
            short = repeats.shortened()
            block = ExploredRegion(Workspace(short, infer(short)), Journal(), [], repeats)
            block.journal.open()
            yield block
            if self._copied(block, repeats, space):
                return
        yield ExploredRegion(space, self.journal, self.lost)

    def _bodies(self, space: Workspace) -> Iterator[ExploredRegion]:
        """The regions of the bodies of the graph's nodes, given what is known of the values that they capture."""
        for node in [node for node in space.graph.order() if node.bodies]:
            for name, body in node.bodies.items():
                inner = Workspace(body.copy(), infer(body, facts_within(node, body, space.facts)), is_body=True)
                mark = self.journal.open(node.id, name)
                yield from self._within(inner)
                self.journal.close(mark, inner.edits > 0)
                if inner.edits:
                    attrs = space.graph.node(node.id).attrs
                    space.update(node.id, attrs=attrs.with_(**{name: inner.graph}))

    def _copied(self, block: ExploredRegion, repeats: Repeats, space: Workspace) -> bool:
        """Do to every copy what was chosen for a block that the graph repeats, unless that makes the graph dearer;
        whether it fitted all of them, so that there is nothing left to explore."""
        whole, mark = Workspace(space.graph.copy(), space.facts), len(self.journal)
        entries, side = block.journal.entries, Alternatives(whole)
        misfits = self.step("replicate", transfer, entries, repeats, self.by_name, side, self.journal)
        if misfits and self._seconds(whole.graph) > self._seconds(space.graph):
            del self.journal.entries[mark:]
            return False
        self.lost += block.lost
        space.graph, space.facts, space.edits = whole.graph, whole.facts, space.edits + whole.edits
        return not misfits

    def _seconds(self, graph: Graph) -> float:
        """What the graph costs, as modelled."""
        return graph_cost(graph, infer(graph), self.target, profiles=self.profiles).total.seconds

    # -- choosing

    def model(self, graph: Graph) -> CostModel:
        """The prices of the target for a graph of these sizes."""
        return CostModel(self.stated, self.sizes | stated_sizes(graph), profiles=self.profiles)

    def timed_model(self, saturated: Saturated, extraction: Extraction, graph: Graph) -> CostModel | None:
        """The prices by what was timed of the terms among which was chosen; None where nothing was."""
        if self.timed is None:
            return None
        model = self.model(graph)
        chosen = calls(saturated, model, {c: (node,) for c, node in extraction.choice.items()})
        every = calls(saturated, model, saturated.classes)
        self.target = self.timed(self.stated, every, chosen)
        if self.target is self.stated:
            return None
        return CostModel(self.target, self.sizes | stated_sizes(graph), profiles=self.profiles)

    @property
    def noted(self) -> dict[str, Any]:
        """Where tidying notes what it does, how far it unrolls loops, and which rules it applies where they pay."""
        paying = [self.by_name[name] for name in sorted(self.put_off)]
        return {
            "journal": self.journal, "statistics": self.statistics, "unroll": self.budget.unroll, "paying": paying,
            "ahead": self.ahead,
        }  # fmt: skip

    def fold(self, graph: Graph) -> Graph:
        """The graph with all computed that may be done ahead; itself once an earlier round took all the time that there
        is for that."""
        if self.is_ahead_spent:
            return graph
        ahead = OperationBudget.of(graph)
        folded = fold_within(graph, self.limit, self.is_strict, ahead)
        self.is_ahead_spent = ahead.is_spent
        return folded

    def note_folding(self, before: Graph, after: Graph) -> Graph:
        """The graph after folding, which is noted where it changed anything."""
        if after is not before:
            self.journal.fold(self.limit, self.is_strict)
        return after

    def keep(self, saturated: Saturated, extraction: Extraction, graph: Graph) -> None:
        """Note a choice for the report, and the bytes that it takes of those that may be added."""
        self.step.listen(Event("choose", cost=extraction.cost.total.seconds))
        taken = max(0, extraction.nbytes - stored_bytes(graph))
        self.limit += max(0, taken - max(0, self.growth.free))
        self.growth = self.growth.less(taken)
        self.as_expected &= extraction.as_expected
        if self.attention_reason != CHEAPER:
            self.attention_reason = explored_reason(saturated) or self.attention_reason
        self.explorations.append(
            Exploration(
                saturated.nodes,
                len(saturated.classes),
                saturated.iterations,
                saturated.stop,
                saturated.reproducible and extraction.reproducible,
                saturated.rounds,
                tuple(saturated.put_off.items()),
            )
        )
        self.statistics.add(saturated.statistics)
        self.put_off.update(name for name, count in saturated.put_off.items() if count)
        if saturated.stop in LIMITS:
            self.put_off.update(name for name, counts in saturated.statistics.items() if counts.fired)

    def note_waiting(self, saturated: Saturated, model: CostModel, region: ExploredRegion) -> None:
        """Note where a newer opset is all that something cheaper needs, which the target then takes."""
        lowest: dict[tuple[int, ...], int] = {}
        for place in saturated.waiting if self.round == 1 else ():
            opset = place.opset
            if opset is None or not self.stated.reads(opset):
                continue
            is_taken = all(self.stated.allows(call.op, opset) for call in place.after)
            if is_taken and model.of_calls(place.after) < model.of_calls(place.before):
                lowest[place.roots] = min(opset, lowest.get(place.roots, opset))
        values = saturated.first_values
        for roots, opset in lowest.items():
            node = next((values[c].node for c in roots if c in values), None)
            self.waiting[opset] += 1 if region.repeats is None or node is None else region.repeats.copies_like(node)

    def derive(self, extraction: Extraction, saturated: Saturated, region: ExploredRegion) -> Graph:
        """The chosen graph, which the rewrites that lead to it make of the region's."""
        lost = apply_chosen(saturated, extraction.choice, self.by_name, Alternatives(region.space), region.journal)
        region.lost.extend(lost)
        return region.graph

    @property
    def is_strict(self) -> bool:
        """Whether every bit counts, be it of finite numbers alone."""
        return self.policy in (Soundness.EXACT, Soundness.FINITE)

    # -- telling

    @property
    def is_stopped(self) -> bool:
        """Whether a limit stopped an exploration: another would go the same way."""
        return any(e.stop in LIMITS for e in self.explorations)

    def is_worth_another_round(self, before: Graph, after: Graph) -> bool:
        """Whether the round chose by prices that proved wrong, or made places for rules with several roots, which
        apply to what was there to begin with."""
        if before is after or any(e.stop != "saturated" for e in self.explorations):
            return False  # what was left over is done already, as far as it pays
        if not self.as_expected:
            return True
        possible = families(self.rules.explore, after)
        return bool(possible) and not possible <= families(self.rules.explore, before)

    def derivation(self, preparation: Preparation) -> Derivation:
        """What was done, and what it takes to do it again."""
        entries = tuple(self.journal)
        applied = {e.rule for e in entries}
        rules = tuple(r for r in self.rules.rules if r.name in applied)
        passes = tuple(p.name for p in self.rules.passes)
        return Derivation(entries, rules, passes, preparation, target=self.target.name, policy=self.policy.value)

    def report(self, before: Graph, after: Graph, preparation: Preparation) -> Report:
        """What the run did. Calls of functions that were inlined are counted, and priced, as what they compute."""
        inlined = before if after.functions or not before.functions else simplify(before, (), (INLINE,))
        facts, facts_after = infer(inlined), infer(after)
        cost_after = graph_cost(after, facts_after, self.target, profiles=self.profiles).total.seconds
        cost_before: float | None = cost_after
        if after is not before:
            is_guess = _has_open_sizes(facts) and not _has_open_sizes(facts_after)
            priced = None if is_guess else graph_cost(inlined, facts, self.target, profiles=self.profiles)
            cost_before = None if priced is None else priced.total.seconds
        return Report(
            model=before.name,
            target=self.target.name,
            policy=self.policy.value,
            steps=tuple(self.step.done),
            ops_before=count_ops(inlined),
            ops_after=count_ops(after),
            cost_before=cost_before,
            cost_after=cost_after,
            counted_at=counted_at(before),
            profiles=self.profiles,
            attentions=attentions(self.tidied, after, self.rules.rules, self.attention_reason),
            exploration=_together(self.explorations),
            explorations=tuple(self.explorations),
            waiting=tuple(sorted(self.waiting.items())),
            rewrites=tuple(
                AppliedRewrite(e.rule, e.family, e.site, e.before, e.after, e.id, e.nodes, e.gain, e.needs)
                for e in self.journal.rewrites
            ),
            rules=rule_uses(self.rules, self.statistics, self.journal),
            derivation=self.derivation(preparation),
            graphs=(before, after),
            priced_by=self.target,
            warnings=(
                *self._unread(after),
                *self._idle_rules(),
                *self.statistics.failed.values(),
                *(f"found, but not applied: {why}" for why in self.lost),
            ),
        )

    def _unread(self, graph: Graph) -> Iterator[str]:
        """That the target does not read models of this opset."""
        if self.target.opsets is not None and not self.target.reads(graph.opset):
            first, last = self.target.opsets
            yield f"{self.target.name} reads opsets {first} to {last}, and the model has opset {graph.opset}"

    def _idle_rules(self) -> Iterator[str]:
        """Of the rules that do not come with graphopt: those that changed nothing, and why."""
        acted = {e.rule for e in self.journal}
        for rule in self.rules.rules:
            if rule.name not in acted and not rule.source.startswith("rules/"):
                times = self.statistics.of(rule.name).fired
                why = f"applies {times} times, but never makes the graph cheaper" if times else "applies nowhere"
                yield f"the rule {rule.name} {why}"


def _price(cost_model: CostModel) -> Callable[[Workspace, Node], float]:
    """What a node of a workspace costs by itself, in modelled seconds."""

    def price(space: Workspace, node: Node) -> float:
        inputs = [None if v is None else space.fact(v) for v in node.inputs]
        return cost_model.cost(node.op, node.attrs, inputs, [space.fact(v) for v in node.outputs]).seconds

    return price


def _has_open_sizes(facts: Mapping[Value, Fact]) -> bool:
    """Whether some tensor has a size that depends on values: what is computed of it has no price."""
    return any(is_anonymous(size) for fact in facts.values() for size in fact.shape or ())


def _together(explorations: Sequence[Exploration]) -> Exploration | None:
    """The main graph's exploration (the last), with the sizes of the bodies' added."""
    if not explorations:
        return None
    stops = [e.stop for e in explorations if e.stop != "saturated"]
    put_off: Counter[str] = Counter()
    for e in explorations:
        put_off.update(dict(e.put_off))
    return Exploration(
        sum(e.nodes for e in explorations),
        sum(e.classes for e in explorations),
        max(e.iterations for e in explorations),
        stops[0] if stops else "saturated",
        all(e.reproducible for e in explorations),
        put_off=tuple(sorted(put_off.items())),
    )
