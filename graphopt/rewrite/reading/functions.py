"""Rules as pairs of ONNX functions in a model file: what the pattern computes, the replacement computes, too.

Both functions have the rule's name, one in the domain ``graphopt.pattern`` and one in ``graphopt.replacement``; inputs
are the rule's variables, attributes those that it binds. What functions cannot say stays in the metadata of the
pattern: the rule as it is written, with its guards. Of several ways in which a rule matches (an input that may be left
out, attributes that may be any, alternatives) they show one: all inputs, default attributes, the first. Where somebody
changed the functions, they are what counts, under the guards that stand there. A pattern that was written by hand says
how equal the two are (``soundness``), and may say ``family`` and ``always``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from graphopt.errors import GraphoptError, RuleError, UsageError
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attr, AttrRef, Attrs, Function, Graph, Header, Origin, Value
from graphopt.rewrite.guards.op_match import plain
from graphopt.rewrite.match.build import Refused, attribute_value
from graphopt.rewrite.reading.pairs import rule_from_pair
from graphopt.rewrite.reading.parse import parse_rules
from graphopt.rewrite.reading.wellformed import check
from graphopt.rewrite.rule.notation import show_body, show_expr, show_rule, show_term
from graphopt.rewrite.rule.rule import (
    ABSENT,
    AnyOf,
    CallPattern,
    Computed,
    GuardExpr,
    Literal,
    NameRef,
    Rule,
    Soundness,
    Term,
    VarPattern,
    calls,
    variables,
)

PATTERN: Final = "graphopt.pattern"
"""The domain of left sides."""
REPLACEMENT: Final = "graphopt.replacement"
"""The domain of right sides."""
RULE: Final = "rule"
"""The key of the metadata of a pattern under which the rule stands as it is written in files."""


class UnwritableRule(RuleError):  # noqa: N818 - one among several is left out
    """A rule that no pair of functions says; the message says what of it."""


def save_rules(rules: Sequence[Rule], path: str | Path) -> None:
    """Write a model file with a pair of functions for each rule. Raises UnwritableRule for the first that is none."""
    from graphopt.ir import onnx_io

    graph = Graph("rules")
    for rule in rules:
        for function in functions_of(rule):
            graph.functions[function.op, ""] = function
    onnx_io.save(onnx_io.convert_opset(graph, ops.LATEST), path)


def load_rules(path: str | Path, strict: bool = False) -> list[Rule]:
    """The rules of a model file, one for each pair of functions, in order.

    Raises ReadError and InvalidModelError where it cannot be read, RuleError where a function has no counterpart, or
    the two make no rule.
    """
    from graphopt.ir import onnx_io

    functions = onnx_io.load(path).functions.values()
    sides: dict[str, dict[str, Function]] = {PATTERN: {}, REPLACEMENT: {}}
    for function in functions:
        if function.domain in sides:
            sides[function.domain][function.name] = function
    if not sides[PATTERN] and not sides[REPLACEMENT]:
        raise RuleError(f"{path}: holds no rules: pairs of functions of one name in the domains {' and '.join(sides)}")
    for here, there in ((PATTERN, REPLACEMENT), (REPLACEMENT, PATTERN)):
        for name in sides[here]:
            if name not in sides[there]:
                raise RuleError(f"{path}: {name} is a function of {here}, and {there} has none of that name")
    rules = [_read(sides[PATTERN][name], sides[REPLACEMENT][name], f"{path}: {name}") for name in sides[PATTERN]]
    return [check(replace(rule, source=str(path)), strict) for rule in rules]


def functions_of(rule: Rule) -> tuple[Function, Function]:
    """The pattern and the replacement of a rule. Raises UnwritableRule where functions cannot say them."""
    pattern, replacement = _functions_of(rule)
    try:
        _pair(pattern, replacement, rule)
    except GraphoptError as error:
        raise UnwritableRule(f"{rule.name}: {error}") from None
    return pattern, replacement


def only_for_us(rule: Rule) -> str:
    """What other tools do not see of a pair of functions, and the metadata say; nothing where they see all."""
    optional = [v.name for side in rule.lhs for v in variables(side) if v.optional]
    others = [call.op for side in rule.lhs for call in calls(side) if call.rest is not None]
    parts = [f"where {show_body(rule)[2]}"] if rule.where else []
    parts += [f"without {', '.join(dict.fromkeys(optional))} too"] if optional else []
    parts += [f"with other attributes of {', '.join(dict.fromkeys(others))} too"] if others else []
    parts += [f"{show_term(term)} too" for side in rule.lhs for any_of in _alternatives(side) for term in any_of[1:]]
    parts += [f"for {', '.join(sorted(rule.targets))}"] if rule.targets else []
    return "; ".join(parts)


def _alternatives(term: Term) -> list[tuple[Term, ...]]:
    """The alternatives in a term, of which functions have the first."""
    match term:
        case AnyOf(options):
            return [options, *(found for option in options for found in _alternatives(option))]
        case CallPattern(inputs=inputs):
            return [found for inner in inputs for found in _alternatives(inner)]
    return []


# -- reading


def _read(pattern: Function, replacement: Function, where: str) -> Rule:
    """The rule of a pair: as it is written in the metadata, where that is the rule of these functions."""
    metadata = dict(pattern.origin.metadata)
    if RULE not in metadata:
        if "soundness" not in metadata:
            kinds = ", ".join(kind.value for kind in Soundness)
            raise RuleError(f"{where}: the metadata of the pattern must say how equal the sides are: soundness={kinds}")
        try:
            return rule_from_pair(
                pattern,
                replacement,
                name=pattern.name,
                soundness=metadata["soundness"],
                reason=" ".join(pattern.origin.doc.split()),
                family=metadata.get("family", ""),
                always=metadata.get("always", "false") == "true",
            )
        except (RuleError, UsageError) as error:
            raise RuleError(f"{where}: {error}") from None
    written = parse_rules(metadata[RULE], where)
    if len(written) != 1:
        raise RuleError(f"{where}: the metadata of the pattern hold {len(written)} rules, and not one")
    (rule,) = written
    try:
        found = _pair(pattern, replacement, rule)
        if found == _pair(*_functions_of(rule), rule):
            return rule
        guards = tuple(guard for guard in found.where if guard not in rule.where)
        return check(replace(rule, lhs=found.lhs, rhs=found.rhs, where=rule.where + guards))
    except (RuleError, UsageError) as error:
        raise RuleError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None


def _pair(pattern: Function, replacement: Function, rule: Rule) -> Rule:
    """What a pair says of the terms of a rule."""
    return rule_from_pair(pattern, replacement, name=pattern.name, soundness=rule.soundness)


# -- writing


def _functions_of(rule: Rule) -> tuple[Function, Function]:
    names = list(dict.fromkeys(v.name for side in rule.lhs for v in variables(side)))
    named = {call.name: call for side in rule.lhs for call in calls(side) if call.name}
    bound = [n for side in rule.lhs for call in calls(side) for n in _bound(call)]
    attributes = tuple(dict.fromkeys(bound))
    metadata = ((RULE, show_rule(rule)),)
    functions = []
    for domain, terms in ((PATTERN, rule.lhs), (REPLACEMENT, rule.rhs)):
        body = _Body(rule, names, {} if domain == PATTERN else named, attributes)
        for term in terms:
            body.give(term)
        origin = Origin(doc=rule.reason, metadata=metadata) if domain == PATTERN else Origin()
        header = body.graph.header
        functions.append(
            Function(domain, rule.name, "", body.graph, attributes, opsets=header.opsets, origin=origin),
        )
    return functions[0], functions[1]


def _bound(call: CallPattern) -> list[str]:
    """The attributes that a call binds, by name."""
    return [expr.name for _, expr in call.attrs if isinstance(expr, NameRef)]


class _Body:
    """The graph of one side, as it grows term by term."""

    def __init__(
        self, rule: Rule, names: Sequence[str], named: Mapping[str, CallPattern], attributes: Sequence[str]
    ) -> None:
        """``named`` are terms of the other side, which are spelled again."""
        self.rule, self.named, self.attributes = rule, named, attributes
        self.graph = Graph(rule.name, Header())
        self.values: dict[str, Value] = {name: self.graph.add_input(name) for name in names}

    def give(self, term: Term) -> None:
        """Let the term be the next output."""
        self.graph.add_output(f"out{len(self.graph.outputs)}", self.value(term))

    def value(self, term: Term) -> Value | None:
        match term:
            case VarPattern() if term == ABSENT:
                return None
            case VarPattern(starred=True):
                raise self.unwritable(f"{show_term(term)} stands for several values")
            case VarPattern(name) if name in self.named:
                return self.value(replace(self.named[name], name=None))
            case VarPattern(name):
                return self.values[name]
            case Literal(value):
                return self.constant(value)
            case Computed(expr, like) if isinstance(number := plain(expr), bool | int | float | tuple):
                constant = self.constant(number)
                return constant if like is None else Value(self.graph.add("CastLike", (constant, self.values[like])).id)
            case CallPattern():
                return self.call(term)
            case AnyOf(options):
                return self.value(options[0])
        raise self.unwritable(f"functions have no computed constants, as {show_term(term)} is")

    def constant(self, value: bool | int | float | tuple[Any, ...]) -> Value:
        kind = type(value[0] if isinstance(value, tuple) and value else value)
        dtype = {bool: "bool", int: "int64"}.get(kind, "float32")
        return self.graph.add_constant(Constant.of(np.asarray(value, dtype), dtype))

    def call(self, call: CallPattern) -> Value:
        if call.is_variable:
            raise self.unwritable(f"{call.op} stands for any op")
        schema = ops.schema(call.op)
        lacking = sorted(schema.required - {name for name, _ in call.attrs}) if schema else []
        if call.rest is not None and (lacking or schema is None):
            named = ", ".join(lacking) or "attributes"
            raise self.unwritable(f"**{call.rest} stands for {named} of {call.op}, which functions have to name")
        inputs = tuple(map(self.value, call.inputs))
        attrs = {name: self.attribute(call, name, expr) for name, expr in call.attrs}
        node = self.graph.add(call.op, inputs, Attrs(attrs), max(call.output + 1, schema.min_outputs if schema else 1))
        value = Value(node.id, call.output)
        if call.name:
            self.graph.names[value] = call.name
            self.values[call.name] = value
        return value

    def attribute(self, call: CallPattern, name: str, expr: GuardExpr) -> Attr:
        said = f"{name}={show_expr(expr)} of {call.op}"
        if isinstance(expr, NameRef) and expr.name in self.attributes:
            kind = ops.attribute_kind(call.op, name)
            if kind is None:
                raise self.unwritable(f"the type of {said} is not known")
            return AttrRef(expr.name, kind)
        number = plain(expr)
        if number is None:
            raise self.unwritable(f"{said} is computed, and attributes of functions are numbers, texts or handed on")
        try:
            value = attribute_value(call.op, name, number)
        except Refused as refused:
            raise self.unwritable(str(refused)) from None
        assert value is not None
        return value

    def unwritable(self, why: str) -> UnwritableRule:
        return UnwritableRule(f"{self.rule.name}: {why}")
