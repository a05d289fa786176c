"""Checks and proofs of rules in Python: what ``graphopt rules check`` and ``graphopt rules prove`` do to one rule."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from graphopt.errors import UsageError
from graphopt.frozen import dataclass
from graphopt.rewrite.checking.check import DEEP, QUICK, CheckReport, check_rule
from graphopt.rewrite.rule.rule import Rule

if TYPE_CHECKING:
    from graphopt.proof.evidence import Evidence


@dataclass(frozen=True)
class RuleEvidence:
    """What is known of a rule: the strongest evidence, or the counterexample that refutes it; why there is no proof."""

    rule: Rule
    evidence: Evidence | None
    why: str = ""
    counterexample: str | None = None

    def __str__(self) -> str:
        if self.evidence is None:
            return f"{self.rule.name}: refuted\n{self.counterexample}"
        return f"{self.rule.name}: {self.evidence}{f'; no proof: {self.why}' if self.why else ''}"


def check(rule: Rule, *, deep: bool = False, seconds: float = inf) -> CheckReport:
    """What comes of running both sides of a rule on random tensors and special values, as ``graphopt rules check``
    does: its ``problem`` is None, or says with a counterexample what is wrong.

    ``deep`` tries many more graphs and inputs; ``seconds``, of the processor, end it early. Raises UsageError for what
    is no rule.

    >>> from graphopt import ops
    >>> @graphopt.rule(family="H4", reals=True)
    ... def root_of_square(x):
    ...     "The root of a square is the number itself."
    ...     return ops.Sqrt(ops.Mul(x, x)).becomes(x)
    >>> print(graphopt.check(root_of_square).problem)
    Sqrt(Mul(x, x))  =>  x  with x: ...
    """
    return check_rule(_rule(rule), depth=replace(DEEP if deep else QUICK, seconds=seconds))


def prove(rule: Rule, *, timeout: float = 4.0) -> RuleEvidence:
    """The strongest evidence for a rule, as ``graphopt rules prove`` finds it: its ``evidence`` is a proof, or the
    check on random tensors where there is none, or None with a ``counterexample`` that refutes the rule.

    ``timeout`` is of each question to the solver, in seconds. Raises MissingDependencyError where z3 is not installed,
    and UsageError for what is no rule.

    >>> from graphopt import ops
    >>> @graphopt.rule(family="H6", reals=True)
    ... def magnitude(x):
    ...     "The larger of a number and its negative is its magnitude."
    ...     return ops.Max(x, ops.Neg(x)).becomes(ops.Abs(x), when=x.dtype.in_("float"))
    >>> print(graphopt.prove(magnitude))
    magnitude: proved ieee (float16, float32)
    """
    from graphopt.proof.prove import find_evidence

    found = find_evidence(_rule(rule), int(1000 * timeout))
    return RuleEvidence(found.rule, found.evidence, found.why, found.counterexample)


def _rule(rule: Rule) -> Rule:
    if not isinstance(rule, Rule):
        raise UsageError(f"expected a rule, as the decorator graphopt.rule makes one, found {type(rule).__name__}")
    return rule
