"""Uses of each rule and native pass in a run, counted from its statistics and its journal.

Apart from the report, which a compiled model reads without rules, and for length from ``optimization``, its only
user.
"""

from __future__ import annotations

from collections import Counter

from graphopt.rewrite.match.journal import Action, Journal
from graphopt.rewrite.match.statistics import Statistics
from graphopt.rewrite.ruleset import Ruleset
from graphopt.run.report import RuleUse

REASONS = 3
"""How many reasons are told of each rule."""


def rule_uses(rules: Ruleset, statistics: Statistics, journal: Journal) -> tuple[RuleUse, ...]:
    """The rules that were tried and the passes that acted, those that took longest first."""
    kept = Counter(entry.rule for entry in journal.rewrites)
    directed = Counter(entry.rule for entry in journal.rewrites if entry.action is Action.REWRITE)
    uses = []
    for rule in rules.rules:
        counts = statistics.of(rule.name)
        fired = counts.fired + directed[rule.name]
        if counts.tried or fired:
            reasons = Counter(counts.refused).most_common(REASONS)
            refused = sum(counts.refused.values())
            uses.append(
                RuleUse(
                    rule.name, rule.family, rule.stage.value, max(counts.tried, fired), fired, kept[rule.name],
                    counts.seconds, refused, tuple(reasons),
                )
            )  # fmt: skip
    for item in rules.passes:
        if kept[item.name]:
            uses.append(RuleUse(item.name, item.family, "native", 0, kept[item.name], kept[item.name], 0.0))
    return tuple(sorted(uses, key=lambda use: (-use.seconds, -use.kept, use.rule)))
