"""Rewrites that made a result wrong: found by their checks at their places, or else by bisection over the journal,
reduced to a small model on which their rule alone does it, and left out with all others of their rule."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from graphopt.errors import VerificationError
from graphopt.frozen import dataclass
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.ir.infer import infer
from graphopt.rewrite.extract.cost import graph_cost
from graphopt.rewrite.match.journal import Entry
from graphopt.rewrite.rule.rule import Rule
from graphopt.run.derivation import Derivation, reverted
from graphopt.run.local_checks import check_places
from graphopt.run.reproducer import reproducer
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


@dataclass(frozen=True, slots=True, kw_only=True)
class WrongRewrite:
    """A rewrite that makes a result wrong."""

    id: int
    """Its number in the journal."""
    rule: str
    source: str
    """Where the rule is written; empty for a native pass."""
    site: str
    why: str
    """What shows that it is wrong."""
    reproducer: str = ""
    """The file of a small model on which the rule alone makes the result wrong; empty where none was asked or found."""
    command: str = ""
    """What to run next."""

    def __str__(self) -> str:
        return f"the rewrite {self.rule} at {self.site or 'the graph'} (#{self.id}) {self.why}"

    @property
    def notes(self) -> tuple[str, ...]:
        """What to look at, a line each."""
        written = f" ({self.source})" if self.source else ""
        lines = (
            ("rule", f"{self.rule}{written} at {self.site or 'the graph'}, #{self.id} of the journal"),
            ("reproducer", self.reproducer),
            ("next", self.command),
        )
        return tuple(f"{title:<12}{text}" for title, text in lines if text)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut(WrongRewrite):
    """A rewrite that made a result wrong, and how many went with it."""

    others: int
    """Other rewrites by its rule."""
    lost: int
    """Rewrites by other rules that needed them."""

    def __str__(self) -> str:
        more = f", with {self.others} more of the rule" if self.others else ""
        needed = f", and {self.lost} that needed what they made" if self.lost else ""
        return f"{WrongRewrite.__str__(self)}; left out{more}{needed}"


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


@dataclass(frozen=True)
class Search:
    """How wrong rewrites of a graph (as read) are looked for: how a result is compared, with what inputs, and where the
    model goes on which a rule is wrong by itself."""

    graph: Graph
    original: Graph | Path
    verify: int | str
    inputs: Mapping[str, Given] | None = None
    memory: int | None = None
    demands: Demands = DEMANDS
    reproducer: Path | None = None

    def fails(self, candidate: Graph) -> str:
        """What is wrong with a result; empty where nothing is."""
        return mismatch(self.original, candidate, self.verify, self.inputs, self.memory, self.demands)

    def differ(self, before: Graph, after: Graph) -> str:
        """How a result for a part of the model differs from the part."""
        return mismatch(before, after, self.verify, None, self.memory, self.demands)

    def told(self, derivation: Derivation, entry: Entry, why: str, is_first: bool = True) -> WrongRewrite:
        """A wrong rewrite, with its reproducer where it is the first."""
        rule = next((rule for rule in derivation.rules if rule.name == entry.rule), None)
        source = "" if rule is None else rule.source
        wrong = WrongRewrite(id=entry.id, rule=entry.rule, source=source, site=entry.site, why=why)
        found = None
        if is_first and self.reproducer is not None:
            found = reproducer(self.graph, derivation, entry, self.differ)
        if found is not None and self.reproducer is not None:
            onnx_io.save(found, self.reproducer)
            wrong = replace(wrong, reproducer=str(self.reproducer))
        return replace(wrong, command=_command(wrong, rule, "" if found is None else found.output_names[0]))


def _command(wrong: WrongRewrite, rule: Rule | None, node: str) -> str:
    """What to run next to see a wrong rewrite, by a rule or else by a pass, or else to do without it."""
    from graphopt.run.kept_evidence import file_of, kept_with

    file = None if rule is None else file_of(rule)
    if wrong.reproducer and rule is None:
        words = ["optimize", wrong.reproducer, "--only", wrong.rule, "--verify", "require", "--dry-run"]
    elif wrong.reproducer and rule is not None and kept_with(rule) is not None:
        words = ["rules", "try", wrong.rule if file is None else str(file), wrong.reproducer, node]
    elif file is not None:
        words = ["rules", "check", str(file)]
    else:
        return f"the same with --without {wrong.rule}"
    return shlex.join(["graphopt", *words])


def without_wrong(
    search: Search, derivation: Derivation, seconds: float = SECONDS
) -> tuple[Graph, Derivation, tuple[LeftOut, ...]]:
    """The result without the rules that make it wrong, its derivation, and what was left out.

    Raises VerificationError where the rest is wrong too, or nothing to leave out is found in time.
    """
    until = time.perf_counter() + seconds
    gone: list[LeftOut] = []
    for _ in range(ROUNDS):
        found = wrong_rewrite(search.graph, derivation, search.fails, search.inputs, until)
        if found is None:
            break
        told = search.told(derivation, *found, is_first=not gone)
        without = {e.id for e in derivation.rewrites if e.rule == told.rule}
        replayed, before = derivation.apply(search.graph, without), len(derivation.rewrites)
        derivation, result = reverted(derivation, without, replayed.lost), replayed.graph
        lost = before - len(derivation.rewrites) - len(without)
        gone.append(LeftOut(**asdict(told), others=len(without) - 1, lost=lost))
        if not search.fails(result):
            return result, derivation, tuple(gone)
    if gone:
        raise VerificationError("the rest is wrong too: " + "; ".join(map(str, gone)), gone[0])
    raise VerificationError(f"the rewrite that did it was not found in {seconds:g} s")


def check_undecided(graph: Graph, derivation: Derivation, inputs: Mapping[str, Given] | None) -> None:
    """Check the rewrites of a result at their places where comparing its outputs settled nothing. Raises
    VerificationError where one is wrong."""
    checks = check_places(graph, derivation, inputs, SECONDS / 2)
    for entry in derivation.rewrites:
        if checks[entry.id].status == "differs":
            raise VerificationError(f"the rewrite {entry.rule} at {entry.site or 'the graph'} is wrong there")


def mended(
    search: Search, derivation: Derivation, error: VerificationError, is_refused: bool
) -> tuple[Graph, Derivation, tuple[LeftOut, ...]]:
    """The same for a result that verification refused with an error, which is raised where the result is not mended:
    because that ``is_refused``, in which case the message names the rewrite, or because it cannot be."""
    if is_refused:
        if not search.fails(derivation.apply(search.graph).graph):
            raise error
        found = wrong_rewrite(search.graph, derivation, search.fails, search.inputs, time.perf_counter() + SECONDS)
        if found is None:
            raise error
        told = search.told(derivation, *found)
        raise VerificationError(f"{error}; {told}", told)
    try:
        return without_wrong(search, derivation)
    except VerificationError as rest:
        raise VerificationError(f"{error}; {rest}", rest.rewrite) from None


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
