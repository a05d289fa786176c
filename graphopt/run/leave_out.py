"""Rewrites that made a result wrong: found by their checks at their places, or else by bisection over the journal, and
left out with all others of their rule."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.errors import VerificationError
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.rewrite.extract.cost import graph_cost
from graphopt.rewrite.match.journal import Entry
from graphopt.run.derivation import Derivation, reverted
from graphopt.run.local_checks import check_places
from graphopt.run.steps import count_ops
from graphopt.run.write_result import mismatch
from graphopt.target import Target
from graphopt.verify.verification import DEMANDS, Demands

if TYPE_CHECKING:
    from graphopt.run.report import Report
    from graphopt.verify.inputs import Given

SECONDS = 60.0
"""How long the search for wrong rewrites may take."""

ROUNDS = 4
"""How many rules, one after the other, are left out at most."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A rewrite that made the result wrong, and how many went with it."""

    id: int
    """Its number in the journal."""
    rule: str
    site: str
    why: str
    """What shows that it is wrong."""
    others: int
    """Other rewrites by its rule."""
    lost: int
    """Rewrites by other rules that needed them."""

    def __str__(self) -> str:
        more = f", with {self.others} more of the rule" if self.others else ""
        needed = f", and {self.lost} that needed what they made" if self.lost else ""
        return f"the rewrite {self.rule} at {self.site or 'the graph'} (#{self.id}) {self.why}; left out{more}{needed}"


Check = Callable[[Graph], str]
"""What is wrong with a result; empty where nothing is."""


def wrong_rewrite(
    graph: Graph, derivation: Derivation, fails: Check, inputs: Mapping[str, Given] | None, until: float
) -> tuple[Entry, str] | None:
    """The first rewrite of a wrong result that is wrong, and what shows it; None where none is found in time."""
    checks = check_places(graph, derivation, inputs, max(1.0, min(SECONDS / 2, until - time.perf_counter())))
    rewrites = derivation.rewrites
    for entry in rewrites:
        if checks[entry.id].status == "differs":
            return entry, f"is wrong ({checks[entry.id].why})"
    good, bad, why = 0, len(rewrites), ""
    while bad - good > 1:
        if time.perf_counter() > until:
            return None
        middle = (good + bad) // 2
        found = fails(derivation.apply(graph, [e.id for e in rewrites[middle:]]).graph)
        good, bad, why = (good, middle, found) if found else (middle, bad, why)
    if not rewrites or fails(derivation.apply(graph, [e.id for e in rewrites]).graph):
        return None
    return rewrites[bad - 1], "makes the result wrong" + (f" ({why})" if why else "")


def without_wrong(
    graph: Graph, derivation: Derivation, fails: Check, inputs: Mapping[str, Given] | None, seconds: float = SECONDS
) -> tuple[Graph, Derivation, tuple[LeftOut, ...]]:
    """The result (of a graph as read) without the rules that make it wrong, its derivation, and what was left out.

    Raises VerificationError where the rest is wrong too, or nothing to leave out is found in time.
    """
    until = time.perf_counter() + seconds
    gone: list[LeftOut] = []
    for _ in range(ROUNDS):
        found = wrong_rewrite(graph, derivation, fails, inputs, until)
        if found is None:
            break
        entry, why = found
        without = {e.id for e in derivation.rewrites if e.rule == entry.rule}
        replayed, before = derivation.apply(graph, without), len(derivation.rewrites)
        derivation, result = reverted(derivation, without, replayed.lost), replayed.graph
        lost = before - len(derivation.rewrites) - len(without)
        gone.append(LeftOut(entry.id, entry.rule, entry.site, why, len(without) - 1, lost))
        if not fails(result):
            return result, derivation, tuple(gone)
    if gone:
        raise VerificationError("the rest is wrong too: " + "; ".join(map(str, gone)))
    raise VerificationError(f"the rewrite that did it was not found in {seconds:g} s")


def check_undecided(graph: Graph, derivation: Derivation, inputs: Mapping[str, Given] | None) -> None:
    """Check the rewrites of a result at their places where comparing its outputs settled nothing. Raises
    VerificationError where one is wrong."""
    checks = check_places(graph, derivation, inputs, SECONDS / 2)
    for entry in derivation.rewrites:
        if checks[entry.id].status == "differs":
            raise VerificationError(f"the rewrite {entry.rule} at {entry.site or 'the graph'} is wrong there")


def mended(
    graph: Graph,
    derivation: Derivation,
    error: VerificationError,
    original: Graph | Path,
    verify: int | str,
    inputs: Mapping[str, Given] | None,
    is_refused: bool,
    memory: int | None = None,
    demands: Demands = DEMANDS,
) -> tuple[Graph, Derivation, tuple[LeftOut, ...]]:
    """The same for a result that verification refused with an error, which is raised where the result is not mended:
    because that ``is_refused``, in which case the message names the rewrite, or because it cannot be."""

    def fails(candidate: Graph) -> str:
        return mismatch(original, candidate, verify, inputs, memory, demands)

    if is_refused:
        if not fails(derivation.apply(graph).graph):
            raise error
        found = wrong_rewrite(graph, derivation, fails, inputs, time.perf_counter() + SECONDS)
        if found is None:
            raise error
        entry, why = found
        raise VerificationError(f"{error}; the rewrite {entry.rule} at {entry.site or 'the graph'} (#{entry.id}) {why}")
    try:
        return without_wrong(graph, derivation, fails, inputs)
    except VerificationError as rest:
        raise VerificationError(f"{error}; {rest}") from None


def report_without(
    report: Report, graph: Graph, derivation: Derivation, left_out: tuple[LeftOut, ...], target: Target
) -> Report:
    """The report of a result of which rewrites were left out."""
    kept = {entry.id for entry in derivation.rewrites}
    return replace(
        report,
        ops_after=count_ops(graph),
        cost_after=graph_cost(graph, infer(graph), target, profiles=report.profiles).total.seconds,
        rewrites=tuple(rewrite for rewrite in report.rewrites if rewrite.id in kept),
        left_out=left_out,
        warnings=(*report.warnings, *map(str, left_out)),
    )
