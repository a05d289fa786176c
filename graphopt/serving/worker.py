"""Worker process of one run: a model and rules in, a page's data out. Started with ``-m``.

Models and rules come from strangers. What they cost is bounded here, and whatever they break is this process.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from graphopt.errors import GraphoptError
from graphopt.runtime.limits import confine, memory_of

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph
    from graphopt.rewrite.rule.rule import Rule
    from graphopt.run.report import Report

FILE: Final = "your.rules"
"""What messages call the rules that were sent."""
_PLACE = re.compile(re.escape(FILE) + r":(\d+):(\d+): (.*)", re.S)
SITES: Final = 4
"""Nodes that are named for each reason."""
ALONE: Final = "mine"
"""The rules that were sent, without the standard ones."""


@dataclass(frozen=True, slots=True)
class Fired:
    """What became of a rule that was sent: where it acted, and the reasons why not elsewhere, each with how many nodes
    it holds for, and some of them."""

    rule: str
    tried: int
    fired: int
    kept: int
    sites: tuple[str, ...]
    misses: tuple[tuple[str, int, tuple[str, ...]], ...]


def main() -> None:
    """Read a request from stdin, write the answer to stdout: ``page`` and ``fired``, or ``error`` with its place."""
    request = json.loads(sys.stdin.read())
    model = Path(request["model"])
    confine(memory_of(model.stat().st_size if model.is_file() else 0, request.get("memory")), int(request["seconds"]))
    out = os.dup(1)  # what else is printed is no answer
    os.dup2(2, 1)
    try:
        answer = run(request)
    except GraphoptError as error:
        answer = complaint(str(error).replace(request["model"], request["name"]))
    except MemoryError:
        answer = {"error": "the model, or what was made of it, does not fit the memory that a run may take"}
    with os.fdopen(out, "w") as file:
        file.write(json.dumps(answer, allow_nan=False))


def complaint(message: str) -> dict[str, Any]:
    """An error as the page shows it, with the line and column where it is one in the rules."""
    match = _PLACE.match(message)
    if match is None:
        return {"error": message}
    return {"error": match[3], "line": int(match[1]), "column": int(match[2])}


def run(request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to a request: ``model`` is a path, ``name`` what it is called, ``rules`` text, ``with`` which rules
    run, ``target`` and ``policy`` as ``graphopt optimize`` has them."""
    from graphopt.ir import onnx_io
    from graphopt.optimize import optimize_graph
    from graphopt.rewrite.reading.parse import parse_rules
    from graphopt.rewrite.rule.rule import soundness
    from graphopt.rewrite.ruleset import Ruleset, standard
    from graphopt.target import target as target_named
    from graphopt.web.page import data
    from graphopt.web.runs import page_of_report

    mine = parse_rules(request["rules"], FILE)
    rules = Ruleset(tuple(mine)) if request["with"] == ALONE else standard() + Ruleset(tuple(mine))
    target, policy = target_named(request["target"], makes_models=True), soundness(request["policy"])
    graph = onnx_io.load(request["model"])
    _, report = optimize_graph(graph, rules.select(policy=policy, target=target), target, policy)
    report = replace(report, model=request["name"])
    return {"page": data(page_of_report(report)), "fired": [asdict(f) for f in fired(mine, report, graph)]}


def fired(rules: Sequence[Rule], report: Report, graph: Graph) -> list[Fired]:
    """What became of each rule."""
    from graphopt.tools.explanation import near_misses

    uses = {use.rule: use for use in report.rules}
    rows = []
    for rule in rules:
        sites = tuple(r.site for r in report.rewrites if r.rule == rule.name)
        reasons: dict[str, list[str]] = {}
        for site, why in near_misses(rule, graph):
            if site not in sites:
                reasons.setdefault(why, []).append(site)
        by_count = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
        use = uses.get(rule.name)
        rows.append(
            Fired(
                rule.name,
                use.tried if use else 0,
                use.fired if use else 0,
                use.kept if use else 0,
                sites[:SITES],
                tuple((why, len(at), tuple(at[:SITES])) for why, at in by_count[:8]),
            )
        )
    return rows


if __name__ == "__main__":
    main()
