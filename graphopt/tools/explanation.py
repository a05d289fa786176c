"""Explanations from a journal: where nodes come from, which rewrite breaks a model, a result without some rewrites."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphopt.errors import InvalidModelError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.graph import CONSTANT, INPUT, Graph
from graphopt.ir.infer import infer
from graphopt.optimize import optimize_graph
from graphopt.progress import Event, Listener
from graphopt.rewrite.checking.explain_match import find_node, unknown_node
from graphopt.rewrite.match.describe import name_of
from graphopt.rewrite.match.journal import SIGNATURE, Entry
from graphopt.rewrite.match.matcher import root_ops, why_not
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.rule.rule import Rule, soundness
from graphopt.rewrite.ruleset import Ruleset, ruleset
from graphopt.run.derivation import (
    Derivation,
    check_is_of,
    journal_path,
    read_derivation,
    reverted,
)
from graphopt.run.steps import Steps
from graphopt.run.write_result import deliver
from graphopt.target import PORTABLE, Target
from graphopt.tools.shell_check import failing
from graphopt.verify.verification import Verification


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
    """Where a rule acted in a model, and where it almost did: the reasons why not, with the sites of each."""

    rule: str
    fired: tuple[Entry, ...]
    misses: Mapping[str, tuple[str, ...]]


def explain_rule(
    model: str | Path, name: str, rules: Any = None, target: Target | None = None, policy: str = "reals"
) -> RuleExplanation:
    """Where a rule acts when the model is optimized, and at the other nodes of its op the first thing that it lacks."""
    resolved, weakest = target or PORTABLE, soundness(policy)
    everything = ruleset(rules)
    (rule, *others) = everything.named(name).rules or (None,)
    if rule is None or others:
        raise UsageError(f"{name} is not the name of one rule: `graphopt rules list` shows them all")
    graph = onnx_io.load(model)
    chosen = everything.select(policy=weakest, target=resolved, opset=graph.opset)
    _, report = optimize_graph(graph, chosen, resolved, weakest)
    assert report.derivation is not None
    fired = tuple(e for e in report.derivation.rewrites if e.rule == rule.name)
    tidy = simplify(graph, [r for r in chosen.always if r.name != rule.name], chosen.passes)
    sites = {e.site for e in fired}
    misses: dict[str, list[str]] = {}
    for site, why in near_misses(rule, tidy):
        if site not in sites:
            misses.setdefault(why, []).append(site)
    if rule not in chosen.rules:
        misses = {f"{rule.name} is not on for target {resolved.name} and policy {weakest.value}": []}
    return RuleExplanation(rule.name, fired, {why: tuple(at) for why, at in misses.items()})


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
    """The rewrite with which a check begins to fail; None where the original fails or the result does not."""

    entry: Entry
    rewrites: int
    tries: int


def bisect(
    model: str | Path,
    check: str,
    *,
    rules: Ruleset | None = None,
    target: Target | None = None,
    policy: str = "reals",
    timeout: float = 60,
    listener: Listener | None = None,
) -> Culprit:
    """The single rewrite that makes a shell command fail: with all before it the command still succeeds.

    ``{}`` in the command is the candidate's file; without it, the file is added as last argument. Raises
    UsageError where the command fails on the model as it is, or succeeds on the result.
    """
    graph = onnx_io.load(model)
    _, report = optimize_graph(graph, rules, target or PORTABLE, soundness(policy), None, Steps(listener))
    assert report.derivation is not None
    return bisect_derivation(graph, report.derivation, check, str(model), timeout, listener)


def bisect_derivation(
    graph: Graph,
    derivation: Derivation,
    check: str,
    model: str = "the model",
    timeout: float = 60,
    listener: Listener | None = None,
) -> Culprit:
    """The rewrite of a derivation with which a shell command begins to fail."""
    rewrites = derivation.rewrites
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
        good, bad, tries = 0, len(rewrites), 2
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (good, middle) if fails_with(middle) else (middle, bad)
            tries += 1
    return Culprit(rewrites[bad - 1], len(rewrites), tries)


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
