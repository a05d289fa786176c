"""The pipeline: every step of ``graphopt optimize``, one line each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from graphopt.calibration.table import priced
from graphopt.errors import UsageError, names_its_model
from graphopt.ir import onnx_io
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.lowering.module.module import Module
from graphopt.progress import Event, Listener
from graphopt.rewrite.derivations.derive import derive
from graphopt.rewrite.derivations.repeats import Repeats, find_repeats
from graphopt.rewrite.derivations.replicate_to_copies import transfer
from graphopt.rewrite.egraph.egraph_snapshot import ENode, Saturated
from graphopt.rewrite.egraph.saturate import Budget, saturate
from graphopt.rewrite.extract.choose import allowance, extract, stored_bytes
from graphopt.rewrite.extract.cost import CostModel, counted_at, graph_cost, stated_sizes
from graphopt.rewrite.extract.terms import calls
from graphopt.rewrite.match.families import families
from graphopt.rewrite.match.journal import Journal, unsigned
from graphopt.rewrite.match.multi_version_graph import Alternatives
from graphopt.rewrite.match.statistics import Statistics
from graphopt.rewrite.match.workspace import Workspace, captured_facts
from graphopt.rewrite.passes import fold_within
from graphopt.rewrite.rule.rule import Soundness, soundness
from graphopt.rewrite.ruleset import Ruleset, standard
from graphopt.rewrite.simplify import simplify
from graphopt.run.derivation import Derivation, Preparation, digest_of
from graphopt.run.measure import MARGIN, SECONDS, fastest
from graphopt.run.report import Exploration, Report, Rewrite
from graphopt.run.rule_uses import rule_uses
from graphopt.run.steps import Steps, count_ops
from graphopt.run.write_result import deliver
from graphopt.target import PORTABLE, Target
from graphopt.target import target as target_named

if TYPE_CHECKING:
    from graphopt.verify.inputs import Given


T = TypeVar("T")

Timed = Callable[[Target, Sequence[str], Sequence[str]], Target]
"""From a target, the calls (``rewrite.workload``) among which to choose, and those that its prices chose: the target
with prices that know what of all these was timed; the very same where nothing was."""

ROUNDS = 3
"""How often at most what was chosen is explored again: what rules with several roots made may root another."""


def optimize_graph(
    graph: Graph,
    rules: Ruleset | None = None,
    target: Target = PORTABLE,
    policy: Soundness = Soundness.REALS,
    budget: Budget | None = None,
    step: Steps | None = None,
    timed: Timed | None = None,
) -> tuple[Graph, Report]:
    """An equivalent graph that costs less on the target, and what was done. The graph itself is not changed.

    Where ``timed`` knows of times, each choice is made again by the prices that it gives.
    """
    chosen = (rules or standard()).select(policy=policy, target=target, opset=graph.opset)
    run = _Run(graph, chosen, target, budget or Budget(), step or Steps(), timed)
    start = graph
    limit = stored_bytes(graph) + allowance(stored_bytes(graph), target)
    graph = run.tidy(graph)
    for _ in range(ROUNDS):
        start_of_round, run.as_expected = graph, True
        # from here equal graphs live side by side: nothing is lost by trying a rule
        graph = run.explore(graph)
        # one graph again; names, inputs and outputs are the caller's
        graph = folded = run.fold(graph, limit)
        graph = run.tidy(graph)
        if graph is folded and not run.is_worth_another_round(start_of_round, graph):
            break
    return graph, run.report(start, graph, policy)


class _Run:
    """One optimization: its settings, and what is collected on the way for the report."""

    def __init__(
        self, graph: Graph, rules: Ruleset, target: Target, budget: Budget, step: Steps, timed: Timed | None
    ) -> None:
        self.rules = rules
        self.given = self.target = target
        """The target, and with the prices that choices went by."""
        self.timed = timed
        self.budget = budget
        self.step = step
        self.growth = allowance(stored_bytes(graph), target)
        self.journal = Journal(_price(CostModel(target, stated_sizes(graph))))
        self.journal.families = {r.name: r.family for r in rules.rules} | {p.name: p.family for p in rules.passes}
        self.by_name = {r.name: r for r in rules.rules}
        self.explorations: list[Exploration] = []
        self.lost: list[str] = []
        self.as_expected = True
        """Whether all that was chosen in this round costs what the search took it for."""
        self.statistics = Statistics()

    def tidy(self, graph: Graph) -> Graph:
        """The graph with all done that always helps."""
        return self.step(
            "tidy",
            simplify,
            graph,
            self.rules.always,
            self.rules.passes,
            journal=self.journal,
            statistics=self.statistics,
        )

    def fold(self, graph: Graph, limit: int) -> Graph:
        """The graph with everything computed that rests on constants alone, as far as it then stores so many bytes."""
        folded = self.step("fold", fold_within, graph, limit)
        if folded is not graph:
            self.journal.fold(limit)
        return folded

    def explore(self, graph: Graph) -> Graph:
        """The cheapest of all graphs that the rules make equal to this one, bodies of its nodes first."""
        mark = self.journal.open()
        space = Workspace(graph.copy(), infer(graph, is_model=True))
        self.explored(space)
        self.journal.close(mark, space.edits > 0)
        return space.graph if space.edits else graph

    def explored(self, space: Workspace) -> None:
        """Let the cheapest of all equal graphs take the place of the workspace's."""
        self.explore_bodies(space)
        if not len(space.graph):
            return
        repeats = find_repeats(space.graph, space.facts)
        if repeats is None or not self.explored_once(space, repeats):
            start = space.graph.copy()
            saturated, choice = self.search(start, space.facts)
            side = Alternatives(space)
            self.lost += self.step("derive", derive, saturated, choice, self.by_name, side, self.journal)

    def explored_once(self, space: Workspace, repeats: Repeats) -> bool:
        """Explore a block that the graph repeats once, and do to every copy what was chosen for it; whether that made
        the graph cheaper."""
        short = repeats.shortened()
        facts = infer(short)
        saturated, choice = self.search(short, facts)
        drawn = Journal()
        drawn.open()
        start = Workspace(short.copy(), facts)
        lost = self.step("derive", derive, saturated, choice, self.by_name, Alternatives(start), drawn)
        whole, mark = Workspace(space.graph.copy(), space.facts), len(self.journal)
        misfits = self.step("derive", transfer, drawn.entries, repeats, self.by_name, Alternatives(whole), self.journal)
        if misfits and self.seconds(whole.graph) > self.seconds(space.graph):
            del self.journal.entries[mark:]
            return False
        self.lost += lost
        space.graph, space.facts, space.edits = whole.graph, whole.facts, space.edits + whole.edits
        return True

    def seconds(self, graph: Graph) -> float:
        """What the graph costs, as modelled."""
        return graph_cost(graph, infer(graph), self.target).total.seconds

    def search(self, graph: Graph, facts: Mapping[Value, Fact]) -> tuple[Saturated, Mapping[int, ENode]]:
        """All that equals the graph, and of that the cheapest."""
        rules = self.rules.rules  # those that always help too: what they lead to may be worth more than they are
        saturated = self.step("explore", saturate, graph, dict(facts), rules, self.budget, self.step.listen)
        model = CostModel(self.given, stated_sizes(graph))
        found = self.step("choose", extract, saturated, model, self.growth)
        if self.timed is not None:
            chosen = calls(saturated, model, {c: (node,) for c, node in found.choice.items()})
            every = calls(saturated, model, saturated.classes)
            self.target = self.step("look up times", self.timed, self.given, every, chosen)
            if self.target is not self.given:
                model = CostModel(self.target, stated_sizes(graph))
                found = self.step("choose", extract, saturated, model, self.growth)
        self.step.listen(Event("choose", cost=found.cost.total.seconds))
        self.growth -= max(0, found.nbytes - stored_bytes(graph))
        self.as_expected &= found.as_expected
        self.explorations.append(
            Exploration(
                saturated.nodes,
                len(saturated.classes),
                saturated.iterations,
                saturated.stop,
                saturated.reproducible and found.reproducible,
                saturated.rounds,
                tuple(saturated.put_off.items()),
            )
        )
        self.statistics.add(saturated.statistics)
        return saturated, found.choice

    def explore_bodies(self, space: Workspace) -> None:
        """Explore the bodies of the graph's nodes, given what is known of the values that they capture."""
        for node in [node for node in space.graph.order() if node.bodies]:
            for name, body in node.bodies.items():
                inner = Workspace(body.copy(), infer(body, captured_facts(node, body, space.facts)), is_body=True)
                mark = self.journal.open(node.id, name)
                self.explored(inner)
                self.journal.close(mark, inner.edits > 0)
                if inner.edits:
                    attrs = space.graph.node(node.id).attrs
                    space.update(node.id, attrs=attrs.with_(**{name: inner.graph}))

    def is_worth_another_round(self, before: Graph, after: Graph) -> bool:
        """Whether the round chose by prices that proved wrong, or made places for rules with several roots, which
        apply to what was there to begin with."""
        if before is after or any(e.stop != "saturated" for e in self.explorations):
            return False
        if not self.as_expected:
            return True
        found = families(self.rules.explore, after)
        return bool(found) and not found <= families(self.rules.explore, before)

    def _idle_rules(self) -> Iterator[str]:
        """Of the rules that do not come with graphopt: those that changed nothing, and why."""
        acted = {e.rule for e in self.journal}
        for rule in self.rules.rules:
            if rule.name not in acted and not rule.source.startswith("rules/"):
                times = self.statistics.of(rule.name).fired
                why = f"applies {times} times, but never makes the graph cheaper" if times else "applies nowhere"
                yield f"the rule {rule.name} {why}"

    def derivation(self, policy: Soundness) -> Derivation:
        """What was done, and what it takes to do it again."""
        entries = tuple(self.journal)
        applied = {e.rule for e in entries}
        rules = tuple(r for r in self.rules.rules if r.name in applied)
        passes = tuple(p.name for p in self.rules.passes)
        return Derivation(entries, rules, passes, target=self.target.name, policy=policy.value)

    def report(self, before: Graph, after: Graph, policy: Soundness) -> Report:
        """What the run did."""
        cost_before = graph_cost(before, infer(before), self.target).total.seconds
        cost_after = graph_cost(after, infer(after), self.target).total.seconds if after is not before else cost_before
        return Report(
            model=before.name,
            target=self.target.name,
            policy=policy.value,
            steps=tuple(self.step.done),
            ops_before=count_ops(before),
            ops_after=count_ops(after),
            cost_before=cost_before,
            cost_after=cost_after,
            counted_at=counted_at(before),
            exploration=_together(self.explorations),
            explorations=tuple(self.explorations),
            rewrites=tuple(
                Rewrite(e.rule, e.family, e.site, e.before, e.after, e.id, e.nodes, e.gain, e.needs)
                for e in self.journal.rewrites
            ),
            rules=rule_uses(self.rules, self.statistics, self.journal),
            derivation=self.derivation(policy),
            graphs=(before, after),
            warnings=(*self._idle_rules(), *(f"found, but not applied: {why}" for why in self.lost)),
        )


def _price(model: CostModel) -> Callable[[Workspace, Node], float]:
    """What a node of a workspace costs by itself, in modelled seconds."""

    def price(space: Workspace, node: Node) -> float:
        inputs = [None if v is None else space.fact(v) for v in node.inputs]
        return model.cost(node.op, node.attrs, inputs, [space.fact(v) for v in node.outputs]).seconds

    return price


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


@names_its_model
def optimize(
    model: Any,
    *,
    output: str | Path | None = None,
    rules: Ruleset | str | Path | Sequence[str | Path] | None = None,
    only: str | Sequence[str] = (),
    without: str | Sequence[str] = (),
    target: str | Target = "portable",
    policy: str | Soundness = "reals",
    opset: int | None = None,
    freeze: bool = False,
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    budget: Budget | None = None,
    verify: int | str = 1,
    inputs: Mapping[str, Given] | None = None,
    journal: str | Path | None = None,
    costs: str | Path = "auto",
    measure: bool | float = False,
    margin: float = MARGIN,
    signed: bool = True,
    return_report: bool = False,
    listener: Listener | None = None,
) -> Any:
    """An equivalent model that runs faster, of the kind that was given; the argument is never changed.

    ``model`` is bytes, an ``onnx.ModelProto``, an ``onnx_ir.Model``, a ``torch.onnx.ONNXProgram``, a ``Graph``, a
    ``Module``, of which the graph comes back, or a path, which needs ``output`` and gives it back. ``rules`` are a
    ``Ruleset``, or rule files that are added to the standard set; ``only`` and ``without`` name rules or families.
    ``shapes`` and ``dims`` fix open dimensions of the
    inputs, ``opset`` converts first, ``freeze`` folds initializers that a caller could override.
    ``journal`` is where to write what was done, from which ``graphopt.tools.explanation`` tells, and takes back.
    ``costs`` are the prices to go by: ``"analytic"``, ``"measured"`` (``graphopt calibrate``), ``"auto"`` for measured
    ones where there are some, or a database of them. ``measure`` runs results beside the original, for so many seconds
    (30 where it is True), and keeps what is not slower, by a ``margin`` for noise.
    Nodes carry the rewrite that made them in their metadata (``graphopt: RULE #NUMBER``) unless ``signed`` is False.
    ``verify`` is a number of random inputs on which original and result are compared, ``"off"``, or
    ``"require"``; ``inputs`` says what some of them hold. With ``return_report`` the report comes too.

    Raises the exceptions of ``graphopt.errors``; nothing is written then.
    """
    place = target_named(target, makes_models=True) if isinstance(target, str) else target
    if not place.makes_models:
        raise UsageError(f"the target {place.name} makes programs, no ONNX models: use graphopt.compile")
    weakest = soundness(policy)
    going_by = priced(place, costs)
    everything, names = ruleset(rules), (_several(only), _several(without))
    everything.select(*names, weakest, place)  # names that do not exist are told before anything is read
    if isinstance(model, str | Path) and output is None:
        raise UsageError("optimizing a file needs output=, the path to write")
    step = Steps(listener)
    preparation = Preparation(opset, freeze, shapes or {}, dims or {})
    if isinstance(model, Module):
        model = model.graph()
    read = step("read", onnx_io.load, model)
    bytes_before = onnx_io.bytes_on_disk(model, read) if isinstance(model, str | Path) else None
    graph = read if preparation == Preparation() else step("prepare", preparation.prepared, read)
    original, prepared = preparation.fixed(read), graph

    def attempt(place: Target) -> tuple[Graph, Report]:
        chosen = everything.select(*names, weakest, place, prepared.opset)
        found, report = optimize_graph(prepared, chosen, place, weakest, budget, step)
        return found, replace(
            report, derivation=report.derivation and replace(report.derivation, preparation=preparation)
        )

    graph, report = attempt(going_by.target)
    if measure:
        others = {"analytic prices": place, "portable": PORTABLE}
        found = {"the result": (graph, report)} | {
            name: attempt(other) for name, other in others.items() if other != going_by.target
        }
        seconds = SECONDS if measure is True else measure
        raced = step("measure", fastest, found, original, prepared, read, inputs, margin, seconds, going_by.target)
        graph, report = raced
    report = replace(report, prices=going_by.prices, warnings=(*report.warnings, *filter(None, (going_by.warning,))))
    assert report.derivation is not None
    derivation = replace(
        report.derivation,
        model=Path(model).name if isinstance(model, str | Path) else graph.name,
        digest=digest_of(model) if isinstance(model, str | Path) else "",
    )
    source = Path(model) if original is read and isinstance(model, str | Path) else original
    beside = {} if journal is None else {Path(journal): derivation.to_json()}
    graph = graph if signed else unsigned(graph)
    result, verified, size = deliver(step, model, source, graph, output, verify, inputs, beside)
    report = replace(
        report,
        model=str(model) if isinstance(model, str | Path) else graph.name,
        output=None if output is None else str(output),
        steps=tuple(step.done),
        bytes_before=bytes_before,
        bytes_after=size,
        verification=verified,
        derivation=derivation,
        graphs=(prepared, graph),
    )
    return (result, report) if return_report else result


def ruleset(rules: Ruleset | str | Path | Sequence[str | Path] | None) -> Ruleset:
    """The rules that are meant: the standard set, the standard set and some files, or the set itself."""
    if isinstance(rules, Ruleset):
        return rules
    files = [rules] if isinstance(rules, Path) else _several(rules or ())
    return standard() + Ruleset.from_files(files) if files else standard()


def _several(names: str | Sequence[T]) -> Sequence[str | T]:
    """The names, where one alone may stand for a list of one."""
    return [names] if isinstance(names, str) else names
