"""Every standard rule fires on an example of its own left side, and both its sides agree there."""

from __future__ import annotations

import pytest

from graphopt.rewrite.check import check_rule
from graphopt.rewrite.rule import Rule
from graphopt.rewrite.ruleset import standard


@pytest.mark.parametrize("rule", standard().rules, ids=lambda rule: rule.name)
def test_both_sides_of_the_rule_agree(rule: Rule) -> None:
    problem = check_rule(rule).problem
    assert problem is None, f"{rule.source}: {problem}"
