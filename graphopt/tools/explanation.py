"""Explanations from a journal: where nodes come from, which rewrite breaks a model, a result without some rewrites."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import isclose
from pathlib import Path
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from graphopt.display import duration
from graphopt.errors import InvalidModelError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import CONSTANT, INPUT, Graph
from graphopt.ir.infer import infer
from graphopt.ir.work import stored_bytes
from graphopt.optimize import optimize_graph
from graphopt.progress import Event, Listener
from graphopt.rewrite.checking.explain_match import find_node, unknown_node
from graphopt.rewrite.egraph.egraph_snapshot import Place, Saturated
from graphopt.rewrite.egraph.saturate import SaturationBudget, saturate
from graphopt.rewrite.extract.choose import forced
from graphopt.rewrite.extract.terms import Terms
from graphopt.rewrite.match.describe import name_of
from graphopt.rewrite.match.journal import SIGNATURE, Entry
from graphopt.rewrite.match.matcher import footprint, match, root_ops, why_not
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import Rule, soundness
from graphopt.rewrite.ruleset import Ruleset, ruleset, why_off
from graphopt.run.derivation import (
    Derivation,
    check_is_of,
    journal_path,
    read_derivation,
    reverted,
)
from graphopt.run.observer import Chosen, Watch
from graphopt.run.steps import Steps
from graphopt.run.write_result import deliver
from graphopt.target import PORTABLE, Target
from graphopt.tools.egraph import names_of_classes
from graphopt.tools.shell_check import failing
from graphopt.verify.verification import Verification

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origins:
    """Where a node of a result comes from: the rewrites that led to it, in order; none for a node of the original."""

    node: str
    op: str
    chain: tuple[Entry, ...]


def explain_node(output: str | Path, name: str, journal: str | Path | None = None) -> Origins:
    """The rewrites that led to a node of an optimized model, which is called by its name or that of a value it makes.

    Raises UsageError where the model has no such node.
    """
    graph = onnx_io.load(output)
    node = find_node(graph, name)
    if node is None:
        raise UsageError(f"{output}: {unknown_node(graph, name)}")
    made_by = dict(node.origin.metadata).get(SIGNATURE)
    if made_by is None:
        return Origins(name, node.op, ())
    derivation = read_derivation(journal or journal_path(output))
    number = made_by.rpartition("#")[2]
    chain = derivation.behind(int(number)) if number.isdecimal() else []
    if not chain or chain[-1].signature != made_by:
        raise InvalidModelError(f"{output}: {name} was made by {made_by}, which the journal {derivation.model} lacks")
    return Origins(name, node.op, tuple(chain))


@dataclass(frozen=True, slots=True)
class RuleExplanation:
    """Where a rule acted in a model, and where it almost did: the reasons why not, with the sites of each.

    ``places`` counts where its left side came to be, in the model or by other rewrites.
    """

    rule: str
    fired: tuple[Entry, ...]
    misses: Mapping[str, tuple[str, ...]]
    places: int = 0


FITS = "it fits"
"""What is said of a place before it is known what came of it."""
PRICED = 20
"""At so many places at most the whole model is chosen anew to see what it costs with the right side of a rule, where
that does not go with all else as it is."""


def explain_rule(
    model: str | Path | Graph,
    name: str,
    rules: Any = None,
    target: Target | None = None,
    policy: str = "reals",
    budget: SaturationBudget | None = None,
) -> RuleExplanation:
    """Where a rule acts when the model is optimized, and why nowhere else.

    Wherever its left side came to be, in the model or by other rewrites, that is the first guard that fails with its
    value, the opset, the budget, or what the model would cost with it; at other nodes of its op, the first operand that
    the rule lacks; and where its left side is in the model as it was read and not later, what acted there first.
    """
    resolved, weakest = target or PORTABLE, soundness(policy)
    everything = ruleset(rules)
    (rule, *others) = everything.named(name).rules or (None,)
    if rule is None or others:
        raise UsageError(f"{name} is not the name of one rule: `graphopt rules list` shows them all")
    graph = model if isinstance(model, Graph) else onnx_io.load(model)
    chosen = everything.select(policy=weakest, target=resolved, opset=graph.opset)
    watch = _Places(rule)
    _, report = optimize_graph(graph, chosen, resolved, weakest, budget, watch)
    assert report.derivation is not None
    fired = tuple(e for e in report.derivation.rewrites if e.rule == rule.name)
    why_not_on = why_off(rule, weakest, resolved, graph.opset)
    off = f"{rule.name} is not on for target {resolved.name} and policy {weakest.value}: {why_not_on}"
    reasons: dict[str, str] = {}
    for site, why in watch.told(off if why_not_on else ""):
        reasons.setdefault(site, why)
    count = len(reasons.keys() | {e.site for e in fired})
    tidy = simplify(graph, [r for r in chosen.always if r.name != rule.name], chosen.passes)
    for site, why in (*_taken(rule, graph, report.derivation), *near_misses(rule, tidy)):
        reasons.setdefault(site, off if why_not_on and why == FITS else why)
    misses: dict[str, list[str]] = {off: []} if why_not_on else {}
    for site, why in reasons.items():
        if why not in ("", FITS) and site not in {e.site for e in fired}:
            misses.setdefault(why, []).append(site)
    return RuleExplanation(rule.name, fired, {why: tuple(at) for why, at in misses.items()}, count)


class _Places(Watch):
    """Keeps the choices of a pipeline, and all places of one rule in what was explored for each."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        self.rule = rule
        self.priced = 0

    def __call__(self, name: str, function: Callable[P, T], /, *arguments: P.args, **options: P.kwargs) -> T:
        """What the function gives; saturation is asked about the rule."""
        asked = partial(function, about=self.rule) if function is saturate else function
        return super().__call__(name, asked, *arguments, **options)

    def told(self, off: str) -> Iterator[tuple[str, str]]:
        """Each place with what came of the rule there; nothing where its right side was chosen."""
        for seen in self.seen:
            best: dict[tuple[int, ...], Place] = {}
            for place in seen.saturated.places:
                if place.roots not in best or place.rank > best[place.roots].rank:
                    best[place.roots] = place
            terms = Terms(seen.saturated, seen.model)
            for place in best.values():
                yield self._site(seen.saturated, place), place.why or self._outcome(place, seen, terms, off)

    def _site(self, saturated: Saturated, place: Place) -> str:
        """The name of the value at whose place the left side is; of a value that rules made, the left side."""
        names = names_of_classes(saturated)
        return next((names[root] for root in place.roots if root in names), place.left)

    def _outcome(self, place: Place, seen: Chosen, terms: Terms, off: str) -> str:
        """Why the right side, which fits, is not in the result; nothing where it is."""
        if off or not place.right:
            return off or FITS
        choice, classes = seen.extraction.choice, seen.saturated.classes
        ends = {
            root: node
            for root, id in zip(place.roots, place.right, strict=True)
            for node in classes.get(root, ())
            if node.id == id
        }
        if not any(root in choice for root in place.roots):
            return "what was chosen does not need it"
        if all(choice.get(root) == node for root, node in ends.items()):
            return ""
        here, there = (duration(seen.model.of_calls(calls)) for calls in (place.after, place.before))
        prices = f"{here} for it, {there} for what it replaces"
        self.priced += 1
        with_it = forced(terms, ends, choice) if len(ends) == len(set(place.roots)) else None
        if with_it is None and self.priced <= PRICED:
            with_it = forced(terms, ends)
        if with_it is None:
            return f"something else costs less ({prices})"
        total, least = with_it.cost.total.seconds, seen.extraction.cost.total.seconds
        kept = [c for c in place.inner if c in with_it.choice and c not in terms.constants]
        still = f"; {_named(seen.saturated, kept)} needed all the same" if kept else ""
        stored = with_it.nbytes - stored_bytes(seen.saturated.graph)
        if total < least and stored > seen.growth.free:
            return f"its constants would take {stored:,} bytes more, of {seen.growth.free:,} that are free (--growth)"
        if isclose(total, least, rel_tol=1e-9):
            return f"something else costs as little ({prices})"
        return f"costs more: {duration(total)} for the model, {duration(least)} without it ({prices}{still})"


def _named(saturated: Saturated, classes: Sequence[int]) -> str:
    """The values that classes are, as the graph or else the e-graph calls them, and the verb for so many."""
    names = names_of_classes(saturated)
    words = [names.get(c) or saturated.provenance.text(c) for c in classes]
    return f"{', '.join(words)} {'is' if len(words) == 1 else 'are'}"


def _taken(rule: Rule, graph: Graph, derivation: Derivation) -> Iterator[tuple[str, str]]:
    """Where a rule applies in the model as it was read, and what acted there first."""
    facts, wanted = infer(graph), root_ops(rule)
    for node in graph.order():
        if node.op in (INPUT, CONSTANT) or (wanted is not None and node.op not in wanted):
            continue
        if not why_not(rule, graph, facts, node.id):
            covered = {id for found in match(rule, graph, facts, node.id) for id in footprint(graph, found)}
            first = next((e for e in derivation.rewrites if covered.intersection(e.matched)), None)
            yield name_of(graph, node), FITS if first is None else f"{first.rule} (#{first.id}) acted there first"


def near_misses(rule: Rule, graph: Graph) -> Iterator[tuple[str, str]]:
    """The nodes that a rule might be about, by name, each with the first thing that the rule lacks there."""
    facts, names = infer(graph), set(graph.names.values())
    wanted = root_ops(rule)
    for node in graph.order():
        if node.op not in (INPUT, CONSTANT) and (wanted is None or node.op in wanted):
            why = why_not(rule, graph, facts, node.id)
            operand, _, what = why.partition(" is ")
            if why:  # told without the operand's name, it is one reason at many sites
                yield name_of(graph, node), f"an operand is {what}" if operand in names else why


@dataclass(frozen=True, slots=True)
class Culprit:
    """The rewrite with which a check begins to fail, among so many, found in so many tries.

    ``ending`` is what ended the search early, ``interrupted`` or ``time``; then ``others`` may be to blame as well.
    """

    entry: Entry
    rewrites: int
    tries: int
    ending: str = ""
    others: tuple[Entry, ...] = ()


def bisect(
    model: str | Path,
    check: str,
    *,
    rules: Ruleset | None = None,
    target: Target | None = None,
    policy: str = "reals",
    timeout: float = 60,
    seconds: float | None = None,
    listener: Listener | None = None,
) -> Culprit:
    """The single rewrite that makes a shell command fail: with all before it the command still succeeds.

    ``{}`` in the command is the candidate's file; without it, the file is added as last argument. Raises
    UsageError where the command fails on the model as it is, or succeeds on the result.
    """
    graph = onnx_io.load(model)
    _, report = optimize_graph(graph, rules, target or PORTABLE, soundness(policy), None, Steps(listener))
    assert report.derivation is not None
    return bisect_derivation(graph, report.derivation, check, str(model), timeout, listener, seconds)


def bisect_derivation(
    graph: Graph,
    derivation: Derivation,
    check: str,
    model: str = "the model",
    timeout: float = 60,
    listener: Listener | None = None,
    seconds: float | None = None,
) -> Culprit:
    """The rewrite of a derivation with which a shell command begins to fail, or those that are left after so many
    seconds, or on Ctrl-C, once the result is known to fail."""
    rewrites, deadline = derivation.rewrites, None if seconds is None else monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        fails = failing(check, Path(folder) / "candidate.onnx", timeout)
        if fails(graph):
            raise UsageError(f"--check {check!r} fails on {model} itself: no rewrite is to blame")

        def fails_with(count: int) -> bool:
            if listener is not None:
                listener(Event("bisect", size=count))
            return fails(derivation.apply(graph, [e.id for e in rewrites[count:]]).graph)

        if not rewrites or not fails_with(len(rewrites)):
            raise UsageError(f"--check {check!r} succeeds on the optimized model too: there is nothing to find")
        good, bad, tries, ending = 0, len(rewrites), 2, ""
        try:
            while bad - good > 1 and not ending:
                middle = (good + bad) // 2
                good, bad = (good, middle) if fails_with(middle) else (middle, bad)
                tries += 1
                if deadline is not None and monotonic() > deadline and bad - good > 1:
                    ending = "time"
        except KeyboardInterrupt:
            ending = "interrupted"
    return Culprit(rewrites[bad - 1], len(rewrites), tries, ending, tuple(rewrites[good : bad - 1]))


@dataclass(frozen=True, slots=True)
class Revert:
    """What was taken back, what went with it, and how the verification of the rest went."""

    taken_back: tuple[Entry, ...]
    lost: tuple[Entry, ...]
    verification: Verification


def revert(
    model: str | Path,
    result: str | Path,
    rewrites: Sequence[str],
    output: str | Path,
    *,
    journal: str | Path | None = None,
    verify: int | str = 1,
    listener: Listener | None = None,
) -> Revert:
    """Write the optimized model without some rewrites (their numbers, or rules' names) and what needed them.

    ``result`` is the optimized model, beside which its journal lies; another is written beside ``output``.
    """
    derivation = read_derivation(journal or journal_path(result))
    check_is_of(derivation, model)
    without = derivation.meant(rewrites)
    step = Steps(listener)
    graph = step("read", onnx_io.load, model)
    replayed = step("replay", derivation.apply, graph, without)
    kept = reverted(derivation, without, replayed.lost)
    original = derivation.preparation.fixed(graph)
    source = Path(model) if original is graph else original
    texts = {journal_path(output): kept.to_json()}
    _, verified, _ = deliver(step, model, source, replayed.graph, output, verify, None, lambda *_: texts)
    taken_back = tuple(e for e in derivation.entries if e.id in without)
    return Revert(taken_back, replayed.lost, verified)
