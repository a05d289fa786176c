"""Rewrite rules of onnxscript as rules of graphopt, where they are plain patterns.

The pattern graph that onnxscript made of a pattern function is written as terms; condition and replacement
functions run on stand-ins (``symbolic``). What cannot be written as a rule is refused with the reason: a
condition is never left out. Two things are narrower than in onnxscript: an attribute that a pattern does
not mention must have its default, since the replacement does not hand it on, and a number in a pattern must
be that number as far as the constant's dtype can tell, not within a tolerance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphopt.errors import RuleError
from graphopt.frozen import dataclass
from graphopt.interop.onnxscript_pattern import OnnxscriptPattern, one_of
from graphopt.interop.symbolic import NotPlain, StandIn, SymbolicOperand, Trail, as_expr, ways
from graphopt.ir import ops
from graphopt.rewrite.reading.constants import term_of
from graphopt.rewrite.reading.region import as_expr as attribute_expr
from graphopt.rewrite.reading.wellformed import check, place
from graphopt.rewrite.rule.notation import show_rule, show_term
from graphopt.rewrite.rule.rule import (
    ABSENT,
    CallPattern,
    Computed,
    GuardExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    RuleStage,
    Soundness,
    Term,
    VarPattern,
)
from graphopt.rewrite.rule.rule import soundness as soundness_of
from graphopt.rewrite.ruleset import Ruleset


def rules_from_onnxscript(
    rules: Any,
    *,
    soundness: str | Soundness = "reals",
    always: bool = True,
    refused: dict[str, str] | None = None,
) -> Ruleset:
    """onnxscript's rules as a rule set: a ``RewriteRule``, a ``RewriteRuleSet``, a ``RewriteRuleClassBase`` or several.

    ``soundness`` is your claim, which ``graphopt rules check`` tries. Rules apply wherever they match, as in
    onnxscript; without ``always``, where costs say so. A rule whose replacement takes several ways becomes several
    rules; rules that differ only in the order of operands become one.

    Raises RuleError with name and reason for the first rule that cannot be translated; with ``refused``, reasons are
    put there by name, and the others are translated.
    """
    claimed = soundness_of(soundness, "soundness class")
    rules_by_name: dict[str, Rule] = {}
    for name, rule in _named(rules):
        try:
            translated = list(_translated(name, rule, claimed, RuleStage.ALWAYS if always else RuleStage.EXPLORE))
        except (NotPlain, RuleError) as error:
            reason = str(error)
            if refused is None:
                raise RuleError(f"the rule {name} of onnxscript cannot be written as a rule: {reason}") from None
            refused[name] = reason
            continue
        for one in translated:
            rules_by_name.setdefault(_canonical(one), one)
    return Ruleset(tuple(rules_by_name.values()))


def _named(rules: Any) -> Iterator[tuple[str, Any]]:
    """Every single rule, with a name that no other has."""
    counts: dict[str, int] = {}
    for rule in _single(rules):
        base = re.sub(r"[^\w-]+", "-", rule.name or _ops_of(rule), flags=re.ASCII).strip("-") or "rule"
        base = base if base[0].isalpha() else f"rule-{base}"
        counts[base] = counts.get(base, 0) + 1
        yield base if counts[base] == 1 else f"{base}-{counts[base]}", rule


def _single(rules: Any) -> Iterator[Any]:
    from onnxscript.rewriter import pattern

    if isinstance(rules, type) and issubclass(rules, pattern.RewriteRuleClassBase):
        rules = rules()
    if isinstance(rules, pattern.RewriteRuleClassBase):
        yield pattern.RewriteRule(
            rules.pattern,
            rules.rewrite,
            rules.check,
            name=rules.name,
            graph_pre_visitor=rules.setup,
            graph_post_visitor=rules.cleanup,
            as_function=rules.as_function,
        )
    elif isinstance(rules, pattern.RewriteRule):
        yield rules
    elif isinstance(rules, Iterable):
        for rule in rules:
            yield from _single(rule)
    else:
        raise RuleError(f"a rule of onnxscript is expected, found {type(rules).__name__}")


def _ops_of(rule: Any) -> str:
    """A name for a rule that has none: the ops of its pattern."""
    return "onnxscript-" + "-".join(str(node.op).lower() for node in reversed(list(rule._target_pattern)))


def _translated(name: str, rule: Any, soundness: Soundness, stage: RuleStage) -> Iterator[Rule]:
    """The rules that say what one of onnxscript's does."""
    from onnxscript.rewriter import pattern

    rewrite_class = pattern.RewriteRuleClassBase
    for visitor, plain in (
        (rule.graph_pre_visitor, rewrite_class.setup),
        (rule.graph_post_visitor, rewrite_class.cleanup),
    ):
        if visitor is not None and getattr(visitor, "__func__", visitor) is not plain:
            raise NotPlain("it looks at the whole graph first or last")
    if rule.as_function:
        raise NotPlain("it makes a local function of what it matches")
    left = OnnxscriptPattern(rule._target_pattern)
    conditions: dict[tuple[Term, ...], list[tuple[GuardExpr, ...]]] = {}
    for condition, right in ways(lambda trail: _run(rule, left, trail)):
        if right is not None:
            conditions.setdefault(right, []).append(condition)
    if not conditions:
        raise NotPlain("its condition holds on no way that guards can take")
    for number, (right, alternatives) in enumerate(conditions.items(), 1):
        where = one_of(alternatives)
        yield check(
            Rule(
                name if len(conditions) == 1 else f"{name}-{number}",
                left.terms,
                right,
                where,
                reason=_reason(rule),
                soundness=soundness,
                stage=stage,
                source="onnxscript",
            )
        )


def _reason(rule: Any) -> str:
    """The first paragraph of what a rule's class says of itself."""
    owner = getattr(rule._replacement_pattern._function, "__self__", None)
    paragraph = ((type(owner).__doc__ or "") if owner is not None else "").strip().partition("\n\n")[0]
    return " ".join(paragraph.split()).rstrip(".").replace("`", "")


def _run(rule: Any, left: OnnxscriptPattern, trail: Trail) -> tuple[Term, ...] | None:
    """The replacement on one way through a rule's functions, or None where its condition fails."""
    bound = left.stand_ins(trail)
    try:
        for value, method in left.checks:
            if not method(_OpaqueArgument(trail, "context"), SymbolicOperand(trail, NameRef(value))):
                return None
        if not rule._condition_function(_OpaqueArgument(trail, "context"), **bound):
            return None
        builder = _ReplacementBuilder(trail)
        replacement = rule._replacement_pattern._function(builder, **bound)
    except NotPlain:
        raise
    except Exception as error:
        if type(error).__name__ == "MatchFailureError":
            return None
        raise NotPlain(f"its functions fail without a model: {error or type(error).__name__}") from None
    if (
        replacement is None
        or replacement is False
        or (not isinstance(replacement, StandIn | Sequence) and not replacement)
    ):
        return None
    outputs = replacement if isinstance(replacement, Sequence) else [replacement]
    if len(outputs) != len(left.terms):
        raise NotPlain(f"it makes {len(outputs)} values of {len(left.terms)}")
    return tuple(_without_identity(builder.term(v)) for v in outputs)


def _without_identity(term: Term) -> Term:
    return term.inputs[0] if isinstance(term, CallPattern) and term.op == "Identity" else term


def _canonical(rule: Rule) -> str:
    """The text of a rule without its name, operands of ops that commute in one order."""

    def sort(term: Term) -> Term:
        if not isinstance(term, CallPattern):
            return term
        inputs = [sort(t) for t in term.inputs]
        return replace(term, inputs=tuple(sorted(inputs, key=show_term) if ops.is_commutative(term.op) else inputs))

    return show_rule(replace(rule, name="rule", lhs=tuple(map(sort, rule.lhs))))


class _OpaqueArgument(StandIn):
    """What a function may take, but not look at."""

    def __init__(self, trail: Trail, name: str) -> None:
        super().__init__(trail, NameRef(name))


@dataclass(frozen=True)
class _Made:
    """A value that the replacement makes."""

    value: Term


class _ReplacementBuilder:
    """Takes the calls by which a replacement function makes nodes, as onnxscript's context does."""

    def __init__(self, trail: Trail) -> None:
        self._trail = trail

    def __getattr__(self, op: str) -> Callable[..., Any]:
        return lambda *inputs, **attributes: self.op(op, *inputs, **attributes)

    def op(
        self,
        op_type: str,
        *inputs: Any,
        _domain: str = "",
        _version: int | None = None,
        _outputs: int | Sequence[str | None] = 1,
        **attributes: Any,
    ) -> Any:
        """What a call of an op gives: one value, or several."""
        if op_type == "Constant":
            return _Made(self.constant(attributes))
        name = f"{_domain}::{op_type}" if _domain else op_type
        flat = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], list | tuple) else inputs
        given = tuple((n, self.attribute(a)) for n, a in attributes.items() if a is not None)
        call = place(CallPattern(name, tuple(self.term(v) for v in flat), given))
        count = _outputs if isinstance(_outputs, int) else len(_outputs)
        results = [_Made(replace(call, output=port)) for port in range(count)]
        return results[0] if count == 1 else results

    def initializer(self, tensor: Any, name: str | None = None) -> Any:
        """A constant."""
        return _Made(self.tensor(tensor))

    def term(self, value: Any) -> Term:
        """What a replacement hands to an op, as a term."""
        if value is None:
            return ABSENT
        if isinstance(value, _Made):
            return value.value
        if issubclass(type(value), SymbolicOperand):
            return VarPattern(value._expr.name)
        if isinstance(value, int | float | list | tuple):
            return _number(as_expr(value))
        raise NotPlain(f"its replacement uses {value!r} as a value")

    def constant(self, attributes: Mapping[str, Any]) -> Term:
        """What ``op.Constant`` makes."""
        ((name, value),) = attributes.items()
        return self.tensor(value) if name == "value" else _number(as_expr(value))

    def tensor(self, tensor: Any) -> Term:
        if issubclass(type(tensor), StandIn) or not hasattr(tensor, "numpy"):
            raise NotPlain(f"its replacement computes the constant {tensor!r}")
        return term_of(tensor.numpy())

    def attribute(self, value: Any) -> GuardExpr:
        """An attribute of what is made."""
        if issubclass(type(value), StandIn):
            return as_expr(value)
        plain = value.value if hasattr(value, "is_ref") else value
        expr = attribute_expr(tuple(plain) if isinstance(plain, list) and not _holds_stand_ins(plain) else plain)
        return as_expr(plain) if expr is None else expr


def _holds_stand_ins(values: Sequence[Any]) -> bool:
    return any(issubclass(type(v), StandIn) for v in values)


def _number(expr: GuardExpr) -> Term:
    """A literal where the expression is made of numbers, else what it computes to."""
    if isinstance(expr, Lit) and isinstance(expr.value, int | float):
        return Literal(expr.value)
    return Computed(expr)
