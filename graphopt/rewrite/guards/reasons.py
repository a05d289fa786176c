"""Failure reasons: sentences that say why a guard does not hold.

The words are an interface: ``explain`` prints them and tests assert them.
"""

from __future__ import annotations

from graphopt.rewrite.guards.comparison import Unknown, Unproven
from graphopt.rewrite.guards.expressions import LAZY, GuardOperand, GuardScope, compiled, show_value, truth
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import Field, FunctionCall, GuardExpr, Lit

_WANTS = {
    "==": "", "!=": "anything but ", "<": "less than ", "<=": "at most ", ">": "more than ", ">=": "at least ",
    "in": "",
}  # fmt: skip
_MIRRORED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def reason(guard: GuardExpr, scope: GuardScope) -> str:
    """Why a guard that was found not to hold does not."""
    match guard:
        case FunctionCall("and", parts):
            return next(reason(p, scope) for p in parts if not _holds(p, scope))
        case FunctionCall("or", parts):
            return "; and ".join(dict.fromkeys(reason(p, scope) for p in parts))
        case FunctionCall("not", (part,)):
            return _negated(part, scope)
        case FunctionCall(operator, (left, right)) if operator in _WANTS:
            return _compared(operator, left, right, scope)
        case Field(_, "is_const"):
            return _asked(guard, scope, "is not a constant")
    try:
        return f"{_subject(guard, scope)}, the rule wants it true"
    except Unknown as unknown:
        return str(unknown)


def _holds(guard: GuardExpr, scope: GuardScope) -> bool:
    try:
        return truth(compiled(guard)(scope))
    except Unknown:
        return False


def _unknown(parts: tuple[GuardExpr, ...], scope: GuardScope) -> str:
    """Why it is not known whether any of the parts holds."""
    return next(reason(p, scope) for p in parts if not _is_known(p, scope))


def _is_known(part: GuardExpr, scope: GuardScope) -> bool:
    try:
        compiled(part)(scope)
    except Unknown:
        return False
    return True


def _negated(part: GuardExpr, scope: GuardScope) -> str:
    match part:
        case FunctionCall("or", parts):
            return next((_negated(p, scope) for p in parts if _holds(p, scope)), "") or _unknown(parts, scope)
        case FunctionCall("and", parts):
            return "; and ".join(dict.fromkeys(_negated(p, scope) for p in parts))
        case FunctionCall("not", (inner,)):
            return reason(inner, scope)
        case FunctionCall("in", (left, right)):
            return _compared("in", left, right, scope, "anything but ")
        case FunctionCall(operator, (left, right)) if operator in _OPPOSITE:
            return _compared(_OPPOSITE[operator], left, right, scope)
        case Field(_, "is_const"):
            return _asked(part, scope, "is a constant, the rule wants it computed")
    try:
        return f"{_subject(part, scope)}, the rule wants it false"
    except Unknown as unknown:
        return str(unknown)


def _asked(guard: Field, scope: GuardScope, words: str) -> str:
    try:
        compiled(guard)(scope)
    except Unknown as unknown:
        return str(unknown)
    return f"`{_owner(guard, scope)}` {words}"


def _compared(operator: str, left: GuardExpr, right: GuardExpr, scope: GuardScope, wants: str | None = None) -> str:
    if isinstance(left, Lit) and operator in _MIRRORED:
        operator, left, right = _MIRRORED[operator], right, left
    try:
        subject, value, wanted = _subject(left, scope), compiled(left)(scope), compiled(right)(scope)
        words = _WANTS[operator] if wants is None else wants
        if operator == "in" and isinstance(wanted, tuple):
            words = "none of " if wants else "one of "
        try:
            LAZY[operator]((lambda _: value, lambda _: wanted))(scope)
        except Unproven:
            return f"{subject}, which is not known to be {words}{show_value(wanted)}"
        return f"{subject}, the rule wants {words}{show_value(wanted)}"
    except Unknown as unknown:
        return str(unknown)


def _subject(expr: GuardExpr, scope: GuardScope) -> str:
    """The expression with its value: "`b` has rank 2", "perm is (1, 0)"."""
    value = compiled(expr)(scope)
    if isinstance(expr, Field):
        owner = _owner(expr, scope)
        match expr.name:
            case "uses":
                return f"`{owner}` is used {value} times" if value != 1 else f"`{owner}` is used once"
            case "is_const":
                return f"`{owner}` is {'' if value else 'not '}a constant"
        return f"`{owner}` has {expr.name} {show_value(value)}"
    return f"{show_expr(expr)} is {show_value(value)}"


def _owner(expr: Field, scope: GuardScope) -> str:
    """The operand that a fact is asked of, by the name that the pattern gives it."""
    value = compiled(expr.of)(scope)
    if isinstance(value, tuple) and value:
        value = value[next(iter(scope.positions.values()), 0)]
    return value.name if isinstance(value, GuardOperand) else show_expr(expr.of)
