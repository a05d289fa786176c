"""Finds the strongest evidence for a rule: proofs are tried from the strongest on, then the check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from graphopt.ir.op_table import ops_where
from graphopt.proof.evidence import Evidence
from graphopt.rewrite.checking.check import Report, check_rule
from graphopt.rewrite.rule.rule import Apply, Lit, Ref, Rule, Series, calls

ARITHMETIC = ops_where(group=("arithmetic", "comparison", "logic", "bits"))
"""The ops of arithmetic, comparisons, choices, truth values and integers."""


@dataclass(frozen=True)
class Finding:
    """What came of proving a rule: its evidence, or the counterexample that refutes it; and why there is no proof."""

    rule: Rule
    evidence: Evidence | None
    why: str = ""
    counterexample: str | None = None


def find_evidence(rule: Rule, milliseconds: int = 4000, check: Callable[[Rule], Report] = check_rule) -> Finding:
    """The strongest evidence for a rule. Raises MissingDependencyError where z3 is not installed."""
    from graphopt.proof import demonstration, indices, scalars

    proof = scalars.prove(rule, milliseconds)
    if proof.kind is not None:
        return Finding(rule, Evidence(proof.kind, ", ".join(proof.dtypes)))
    if proof.counterexample is not None:
        shown = demonstration.demonstrate(rule, proof.counterexample)
        if shown is not None:
            return Finding(rule, None, proof.why, shown)
    bounded = indices.prove(rule)
    if bounded.kind is not None:
        return Finding(rule, Evidence(bounded.kind, bounded.scope))
    report = check(rule)
    why = bounded.why if "does not act on each element" in proof.why else proof.why
    return Finding(rule, None if report.problem else Evidence("checked"), why, report.problem)


def is_arithmetic(rule: Rule) -> bool:
    """Whether both sides use only the ops of ``ARITHMETIC``."""
    used = [c.op for side in (*rule.lhs, *rule.rhs) for c in calls(side)]
    return bool(used) and all(op in ARITHMETIC or _stands_for_arithmetic(rule, op) for op in used)


def _stands_for_arithmetic(rule: Rule, op: str) -> bool:
    for guard in rule.where:
        match guard:
            case Apply("in", (Ref(name), Series(items))) if name == op:
                return all(isinstance(i, Lit) and i.value in ARITHMETIC for i in items)
    return False


def figures(found: Iterable[tuple[Rule, Evidence | None]]) -> str:
    """How many rules are proved: of those of arithmetic, and of all."""
    pairs = list(found)
    proved = [rule for rule, evidence in pairs if evidence is not None and evidence.is_proof]
    arithmetic = [rule for rule, _ in pairs if is_arithmetic(rule)]
    among = sum(map(is_arithmetic, proved))
    share = f" ({100 * among // len(arithmetic)} %)" if arithmetic else ""
    return (
        f"{among} of {len(arithmetic)} rules of arithmetic, comparisons, choices, truth values and integers alone are "
        f"proved{share}; {len(proved)} of all {len(pairs)}"
    )
