"""Rule statistics of a run: how often each rule was tried, how often it fired, and the time that it took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from time import monotonic

from graphopt.errors import words_of
from graphopt.frozen import dataclass
from graphopt.rewrite.match.matcher import Match
from graphopt.rewrite.rule.rule import Rule


@dataclass(slots=True)
class RuleStatistics:
    """What became of one rule's matches."""

    tried: int = 0
    """Matches whose guards were evaluated."""
    fired: int = 0
    """Matches that made two classes one, or gave a class a new e-node."""
    refused: dict[str, int] = field(default_factory=dict)
    """How many matches were refused, by reason."""
    seconds: float = 0.0
    failed: str = ""
    """Where something went wrong in the rule first, and what: it was left out there."""


def failed_at(name: str, site: str, error: Exception) -> str:
    """What reports say of a rule or pass in which something went wrong at a place."""
    return f"{name} was left out, since it failed at {site}: {words_of(error)}"


class Statistics:
    """Sums up the statistics of the stages of a run, by rule."""

    def __init__(self) -> None:
        self.rules: dict[str, RuleStatistics] = {}
        self.failed: dict[str, str] = {}
        """Where something went wrong in a rule or native pass first, and what, by name: it was left out there."""

    def of(self, rule: str) -> RuleStatistics:
        """What is known of a rule so far."""
        return self.rules.setdefault(rule, RuleStatistics())

    def add(self, others: Mapping[str, RuleStatistics]) -> None:
        """Add what an exploration found."""
        for rule, more in others.items():
            total = self.of(rule)
            total.tried += more.tried
            total.fired += more.fired
            total.seconds += more.seconds
            if more.failed:
                self.failed.setdefault(rule, more.failed)
            for reason, times in more.refused.items():
                total.refused[reason] = total.refused.get(reason, 0) + times

    def watched(self, rule: Rule, matches: Iterator[Match]) -> Iterator[Match]:
        """The same matches of the directed matcher, counted and timed until they are given up: what is done with each
        is counted in."""
        counts, start = self.of(rule.name), monotonic()
        try:
            for match in matches:
                counts.tried += 1
                yield match
        finally:
            counts.seconds += monotonic() - start
