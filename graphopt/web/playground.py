"""Playground's part of pages: a model as it is drawn before anything ran, and rules that somebody wrote with what they
did."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from graphopt.frozen import dataclass
from graphopt.web.changes import scope_name, scopes
from graphopt.web.drawing import Drawing, draw, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphopt.ir.graph import Graph
    from graphopt.rewrite.rule.rule import Rule
    from graphopt.run.report import Report
    from graphopt.tools.explanation import RuleExplanation

SITES = 4
"""Nodes that are named where a rule acted, or for a reason why it did not."""
REASONS = 8
"""Reasons that are told, those of most places first."""


@dataclass(frozen=True, slots=True)
class DrawnModel:
    """A model: what is said of it, names and values, and its graphs, the main one first."""

    facts: tuple[tuple[str, str], ...]
    graphs: tuple[tuple[str, Drawing], ...]


class Miss(NamedTuple):
    """A reason why a rule is not in the result, at how many places, and the names of some."""

    why: str
    places: int
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fired:
    """What became of a rule: on which line it stands, at how many places its left side matched, its guards held, and it
    is in the result, with the names of some of these; and why it is nowhere else, where that was asked."""

    rule: str
    line: int | None
    tried: int
    fired: int
    kept: int
    sites: tuple[str, ...]
    misses: tuple[Miss, ...] | None = None


@dataclass(frozen=True, slots=True)
class WrittenRules:
    """Rules that somebody wrote: the text, in which language, the command that runs them again, and what they did."""

    text: str
    language: str
    command: str
    fired: tuple[Fired, ...]


def drawn_model(graph: Graph) -> DrawnModel:
    """A model as it is drawn. MissingDependencyError where nothing lays graphs out."""
    from graphopt.ir.infer import infer

    facts = infer(graph)
    inputs = [f"{graph.names.get(v, '')}: {shown(facts.get(v))}" for v in graph.inputs]
    outputs = [
        name if v is None else f"{name}: {shown(facts.get(v))}"
        for name, v in zip(graph.output_names, graph.outputs, strict=True)
    ]
    told = (
        ("opset", str(graph.opset)),
        ("inputs", ", ".join(inputs)),
        ("outputs", ", ".join(outputs)),
    )
    named = {scope_name(graph, scope): body for scope, (body, _) in scopes(graph, graph).items() if body is not None}
    return DrawnModel(told, tuple((name, draw(body)) for name, body in named.items()))


def line_of(rule: Rule) -> int | None:
    """The line on which a rule stands in its file, where that is known."""
    line = rule.source.rpartition(":")[2]
    return int(line) if line.isdecimal() else None


def fired(rules: Sequence[Rule], report: Report) -> tuple[Fired, ...]:
    """What became of each rule in a run."""
    uses = {use.rule: use for use in report.rules}
    rows = []
    for rule in rules:
        sites = [r.site for r in report.rewrites if r.rule == rule.name]
        use = uses.get(rule.name)
        counts = (use.tried, use.fired, use.kept) if use is not None else (0, 0, 0)
        rows.append(Fired(rule.name, line_of(rule), *counts, tuple(dict.fromkeys(sites))[:SITES]))
    return tuple(rows)


def misses(found: RuleExplanation) -> tuple[Miss, ...]:
    """Why a rule is not in the result, the reasons of most places first."""
    by_count = sorted(found.misses.items(), key=lambda item: (-len(item[1]), item[0]))
    return tuple(Miss(why, len(sites), sites[:SITES]) for why, sites in by_count[:REASONS])
