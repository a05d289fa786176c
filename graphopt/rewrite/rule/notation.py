"""Notation of rules: the text of expressions, terms and rules, which ``rewrite/reading/parse.py`` reads back."""

from __future__ import annotations

import json
import textwrap

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
    NameRef,
    Rule,
    RuleStage,
    Series,
    Term,
    VarPattern,
)

RESERVED = frozenset(
    ("where", "like", "as", "each", "if", "else", "and", "or", "not", "in", "true", "false", "none", "inf")
)
"""Words of the notation, which cannot be names."""

INFIX = {
    "or": 2, "and": 3,
    "==": 5, "!=": 5, "<": 5, "<=": 5, ">": 5, ">=": 5, "in": 5,
    "+": 6, "-": 6, "*": 7, "/": 7, "//": 7, "%": 7, "**": 9,
}  # fmt: skip
"""Operators between their arguments, with how tightly they bind."""

_EACH, _CHOICE, _NOT, _COMPARISON, _SIGN, _POSTFIX, _ATOM = 0, 1, 4, 5, 8, 10, 11


def show_expr(expr: GuardExpr) -> str:
    """The expression as it is written in a rule file."""
    return _expr(expr)[0]


def show_term(term: Term) -> str:
    """The term as it is written in a rule file."""
    match term:
        case VarPattern(name, optional, starred):
            return f"{name}{'?' if optional else ''}{'*' if starred else ''}"
        case Literal(value):
            return f"[{', '.join(map(show_number, value))}]" if isinstance(value, tuple) else show_number(value)
        case Computed(expr, like):
            return f"{{{show_expr(expr)}{f' like {like}' if like else ''}}}"
        case AnyOf(options):
            return f"({' | '.join(map(show_term, options))})"
        case CallPattern():
            return _call(term)


def show_rule(rule: Rule) -> str:
    """The rule as it is written in a rule file, its reason above it."""
    left, right, where = show_body(rule)
    head = f"{rule.name}:  {left}"
    joint = "  =>  " if len(head) + len(right) < 110 else "\n    =>  "
    return f"{_reason(rule)}{head}{joint}{right}" + (f"\n    where {where}\n" if where else "\n")


def show_body(rule: Rule) -> tuple[str, str, str]:
    """The left side, the right side and the guards of a rule as they are written; no guards are empty."""
    guards = (f"pays({show_expr(g)})" if g in rule.pays else _within(g, _NOT) for g in rule.where)
    return _terms(rule.lhs), _terms(rule.rhs), " and ".join(guards)


def show_number(value: int | float | str | bool | None) -> str:
    """A literal: ``3``, ``3.0``, ``-inf``, ``true``, ``none`` or ``"text"``."""
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _reason(rule: Rule) -> str:
    header = f"[{rule.family}] " if rule.family else ""
    header += rule.soundness.value
    header += " always" if rule.stage is RuleStage.ALWAYS else ""
    header += f" for {', '.join(sorted(rule.targets))}" if rule.targets else ""
    lines = textwrap.wrap(rule.reason, 100, break_long_words=False, break_on_hyphens=False)
    if rule.family and lines:
        lines[-1] += f"  {header}"
    else:
        lines.append(header)
    return "".join(f"# {line}\n" for line in lines)


def _terms(terms: tuple[Term, ...]) -> str:
    return ", ".join(map(show_term, terms))


def _call(call: CallPattern) -> str:
    arguments = [*map(show_term, call.inputs), *(f"{name}={show_expr(e)}" for name, e in call.attrs)]
    if call.rest:
        arguments.append(f"**{call.rest}")
    output = f"[{call.output}]" if call.output else ""
    name = f" as {call.name}" if call.name else ""
    return f"{call.op}({', '.join(arguments)}){output}{name}"


def _within(expr: GuardExpr, level: int) -> str:
    """The text of a part, in parentheses where it binds less tightly than what is around it."""
    text, own_level = _expr(expr)
    return text if own_level >= level else f"({text})"


def _expr(expr: GuardExpr) -> tuple[str, int]:
    """The text, and how tightly it binds."""
    match expr:
        case Lit(value):
            negative = isinstance(value, int | float) and show_number(value).startswith("-")
            return show_number(value), _SIGN if negative else _ATOM
        case NameRef(name):
            return name, _ATOM
        case Field(of, name):
            owner = f"({show_expr(of)})" if isinstance(of, Lit) else _within(of, _POSTFIX)
            return f"{owner}.{name}", _POSTFIX
        case IndexExpr(of, index, stop, slice):
            start = "" if index is None else show_expr(index)
            end = "" if stop is None else show_expr(stop)
            return f"{_within(of, _POSTFIX)}[{f'{start}:{end}' if slice else start}]", _POSTFIX
        case Series(items):
            body = ", ".join(map(show_expr, items))
            if any(isinstance(i, Each) for i in items):
                return f"[{body}]", _ATOM
            return f"({body},)" if len(items) == 1 else f"({body})", _ATOM
        case Each(body):
            return f"each {show_expr(body)}", _EACH
        case FunctionCall(function, arguments):
            return _apply(function, arguments)


def _apply(function: str, arguments: tuple[GuardExpr, ...]) -> tuple[str, int]:
    match function, arguments:
        case "not", (FunctionCall("in", (item, container)),):
            return f"{_within(item, _COMPARISON + 1)} not in {_within(container, _COMPARISON + 1)}", _COMPARISON
        case "not", (part,):
            return f"not {_within(part, _NOT)}", _NOT
        case "neg", (part,):
            return f"-{_within(part, _SIGN)}", _SIGN
        case "if", (condition, yes, no):
            text = f"{_within(yes, _CHOICE + 1)} if {_within(condition, _CHOICE + 1)} else {_within(no, _EACH)}"
            return text, _CHOICE
        case "**", (left, right):
            return f"{_within(left, _POSTFIX)} ** {_within(right, _SIGN)}", INFIX["**"]
        case _ if function in INFIX:
            level = INFIX[function]
            # "and" and "or" hold any number of parts; the others group to the left, and comparisons not at all
            first = level if 5 < level < 9 else level + 1
            parts = [_within(arguments[0], first), *(_within(a, level + 1) for a in arguments[1:])]
            return f" {function} ".join(parts), level
    return f"{function}({', '.join(map(show_expr, arguments))})", _ATOM
