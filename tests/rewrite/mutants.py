"""Mutants of rules: a rule with one thing changed: a guard dropped or other, an operand, an attribute, a constant."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from graphopt.ir import ops
from graphopt.rewrite.rule.notation import show_expr, show_term
from graphopt.rewrite.rule.rule import (
    AnyOf,
    CallPattern,
    Computed,
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    Literal,
    Rule,
    Series,
    Term,
    calls,
)

SYMMETRIC = frozenset({"+", "*", "near", "disjoint", "mergeable", "cancels", "moderate", "times"})
"""Functions of which the order of two arguments says nothing."""
ADDING = frozenset({"com.microsoft::SkipSimplifiedLayerNormalization"})
"""Ops that add their first two operands, whose shapes are one, before anything else."""
RELAXED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


Heads: TypeAlias = Mapping[str, Mapping[str, GuardExpr]]
"""The attributes that the left side gives each op that it binds."""


@dataclass(frozen=True)
class Mutant:
    """A rule with one thing changed, and what was."""

    rule: Rule
    change: str
    kind: str
    guard: GuardExpr | None = None
    """The guard that was taken away or changed."""
    given: GuardExpr | None = None
    """What took its place."""


def mutants(rule: Rule) -> list[Mutant]:
    """All mutants of a rule, each content once."""
    made: dict[Rule, Mutant] = {}
    for mutant in (*_of_guards(rule), *_of_terms(rule)):
        if mutant.rule != rule:
            made.setdefault(mutant.rule, mutant)
    return list(made.values())


def _of_guards(rule: Rule) -> Iterator[Mutant]:
    for i, guard in enumerate(rule.where):
        before, after = rule.where[:i], rule.where[i + 1 :]
        yield Mutant(replace(rule, where=before + after), f"without `{show_expr(guard)}`", "dropped", guard)
        for other in _changed(guard):
            changed = replace(rule, where=(*before, other, *after))
            yield Mutant(changed, f"`{show_expr(other)}` as guard {i + 1}", "guard", guard, other)


def _changed(expr: GuardExpr) -> Iterator[GuardExpr]:
    """The expression with one operator, number or order of arguments changed."""
    match expr:
        case FunctionCall(function, arguments):
            if function in RELAXED:
                yield FunctionCall(RELAXED[function], arguments)
            if function == "not":
                yield arguments[0]
            if function in ("and", "or") and len(arguments) > 1:
                for i in range(len(arguments)):
                    rest = (*arguments[:i], *arguments[i + 1 :])
                    yield rest[0] if len(rest) == 1 else FunctionCall(function, rest)
            if function not in (*RELAXED, *SYMMETRIC, "and", "or", "in") and len(arguments) == 2:
                yield FunctionCall(function, (arguments[1], arguments[0]))
            for i, part in enumerate(arguments):
                for other in _changed(part):
                    yield FunctionCall(function, (*arguments[:i], other, *arguments[i + 1 :]))
        case Lit(bool(value)):
            yield Lit(not value)
        case Lit(int(value) | float(value)):
            yield Lit(value + 1)
        case Series(items):
            for i, part in enumerate(items):
                for other in _changed(part):
                    yield Series((*items[:i], other, *items[i + 1 :]))
        case IndexExpr(of, index, stop, slice):
            for other in _changed(of):
                yield IndexExpr(other, index, stop, slice)
            if index is not None:
                for other in _changed(index):
                    yield IndexExpr(of, other, stop, slice)
        case Field(of, name):
            for other in _changed(of):
                yield Field(other, name)
        case Each(body):
            for other in _changed(body):
                yield Each(other)


def _of_terms(rule: Rule) -> Iterator[Mutant]:
    heads = {call.op: dict(call.attrs) for term in rule.lhs for call in calls(term) if call.is_variable}
    for side in ("lhs", "rhs"):
        terms: tuple[Term, ...] = getattr(rule, side)
        for term in terms:
            for other, what, kind in _mutated(term, heads if side == "rhs" else None):
                changed = tuple(_instead(t, term, other) for t in terms)
                yield Mutant(
                    replace(rule, **{side: changed}), f"{what} on the {'left' if side == 'lhs' else 'right'}", kind
                )


def _instead(term: Term, old: Term, new: Term) -> Term:
    """A term after another has changed, which may be one more output of the same call."""
    match term, old, new:
        case CallPattern(), CallPattern(), CallPattern() if term == replace(old, output=term.output):
            return replace(new, output=term.output)
    return new if term == old else term


def _mutated(term: Term, heads: Heads | None) -> Iterator[tuple[Term, str, str]]:
    match term:
        case Literal(bool(value)):
            yield Literal(not value), f"{not value} for {value}", "constant"
        case Literal(int(value) | float(value)):
            yield Literal(value + 1), f"{value + 1} for {value}", "constant"
        case Literal(tuple(value)) if value:
            other = (value[0] + 1, *value[1:])
            yield Literal(other), f"{list(other)} for {list(value)}", "constant"
        case Computed(expr, like):
            for changed in _changed(expr):
                yield Computed(changed, like), f"`{show_expr(changed)}` for `{show_expr(expr)}`", "constant"
        case AnyOf(options):
            for i, option in enumerate(options):
                for changed_term, what, kind in _mutated(option, heads):
                    yield AnyOf((*options[:i], changed_term, *options[i + 1 :])), what, kind
        case CallPattern():
            yield from _mutated_call(term, heads)


def _mutated_call(call: CallPattern, heads: Heads | None) -> Iterator[tuple[Term, str, str]]:
    inputs = call.inputs
    is_right = heads is not None
    carried = (heads or {}).get(call.op, {})  # an op that the left side binds brings its attributes along
    if len(inputs) >= 2 and inputs[0] != inputs[1] and not _is_symmetric(call):
        swapped = replace(call, inputs=(inputs[1], inputs[0], *inputs[2:]))
        yield swapped, f"{show_term(swapped)} for {show_term(call)}", "operand"
    for i, (name, expr) in enumerate(call.attrs):
        rest = (*call.attrs[:i], *call.attrs[i + 1 :])
        if is_right and not _is_default(call.op, name, expr) and carried.get(name) != expr:
            yield replace(call, attrs=rest), f"{call.op} without {name}", "attribute"
        for changed in _changed(expr):
            given = (*call.attrs[:i], (name, changed), *call.attrs[i + 1 :])
            yield replace(call, attrs=given), f"{call.op} with {name}={show_expr(changed)}", "attribute"
    if is_right and call.rest is not None and not call.is_variable:
        yield replace(call, rest=None), f"{call.op} without **{call.rest}", "attribute"
    for i, part in enumerate(inputs):
        for other, what, kind in _mutated(part, heads):
            yield replace(call, inputs=(*inputs[:i], other, *inputs[i + 1 :])), what, kind


def _is_symmetric(call: CallPattern) -> bool:
    """Whether the first two operands may change places, by what the op is."""
    return call.op in ADDING or (call.op[0].isupper() and ops.is_commutative(call.op))


def _is_default(op: str, name: str, expr: GuardExpr) -> bool:
    """Whether an attribute is given what it has where it is not given: of a convolution the weights say how large the
    window is, and a transpose turns the axes round."""
    if op == "Transpose" and name == "perm" and isinstance(expr, Series):
        return expr == Series(tuple(Lit(i) for i in reversed(range(len(expr.items)))))
    if name == "kernel_shape" and op in ("Conv", "ConvTranspose", "com.microsoft::FusedConv"):
        return True
    schema = None if op[0].islower() and "::" not in op else ops.schema(op)
    return schema is not None and isinstance(expr, Lit) and expr == Lit(schema.defaults.get(name))  # type: ignore[arg-type]
