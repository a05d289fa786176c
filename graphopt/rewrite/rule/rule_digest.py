"""Digest of what a rule claims, under which verdicts and evidence are kept."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

from graphopt.rewrite.rule.notation import show_rule
from graphopt.rewrite.rule.rule import Rule, RuleStage


def content(rule: Rule) -> str:
    """A digest of both sides, guards and soundness class; not of the rule's name, reason, targets or place, nor of
    what its guards are for."""
    plain = replace(rule, name="rule", reason="", family="", stage=RuleStage.EXPLORE, targets=frozenset(), pays=())
    return sha256(show_rule(plain).encode()).hexdigest()[:16]
