"""Every standard rule fires on examples of its own left side, and both its sides agree there."""

from __future__ import annotations

import pytest

from graphopt.rewrite.checking.check import DEEP, check_rule
from graphopt.rewrite.checking.verdicts import Verdicts
from graphopt.rewrite.rule.rule import Rule
from graphopt.rewrite.ruleset import standard

VERDICTS = Verdicts()
"""What earlier runs found, kept by the content of rules and by all that a check rests on."""


@pytest.mark.parametrize("rule", standard().rules, ids=lambda rule: rule.name)
def test_both_sides_of_the_rule_agree(rule: Rule) -> None:
    problem = VERDICTS.check(rule).problem
    assert problem is None, f"{rule.source}: {problem}"


@pytest.mark.slow
@pytest.mark.parametrize("rule", standard().rules, ids=lambda rule: rule.name)
def test_both_sides_of_the_rule_agree_on_many_more(rule: Rule) -> None:
    problem = check_rule(rule, depth=DEEP).problem
    assert problem is None, f"{rule.source}: {problem}"
