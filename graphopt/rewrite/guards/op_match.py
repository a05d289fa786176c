"""Op matching: a pattern's op and attributes, for the graph matcher and the e-graph alike."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir import ops
from graphopt.ir.graph import Attrs
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import Bindings, Head
from graphopt.rewrite.rule.notation import show_expr
from graphopt.rewrite.rule.rule import CallPattern, GuardExpr, Lit, NameRef, Series


def bind(call: CallPattern, op: str, attrs: Attrs, rank: int | None, bindings: Bindings[Any]) -> str | None:
    """Bind what a call names of an op and its canonical attributes; why they do not fit, or None.

    An op variable binds the op with all attributes that the call does not mention.
    """
    others = attrs
    if call.attrs:
        mentioned = {name for name, _ in call.attrs}
        others = Attrs({n: a for n, a in attrs.items() if n not in mentioned})
    if call.is_variable:
        head = Head(op, others)
        if bindings.heads.setdefault(call.op, head) != head:
            return f"{op} is not the same op as {call.op}"
    elif others and call.rest is None:
        name = next(iter(others))
        return f"attribute {name} of {op} is {others[name]!r}, the rule wants its default"
    if call.rest is not None and bindings.attrs.setdefault(call.rest, others) != others:
        return f"the attributes of {op} differ from {call.rest}"
    for name, expr in call.attrs:
        if isinstance(expr, NameRef) and expr.name not in bindings.attrs and expr.name not in expressions.SETS:
            bindings.attrs[expr.name] = ops.attribute(op, attrs, name, rank)
        elif _is_plain(expr) and not same_attribute(ops.attribute(op, attrs, name, rank), plain(expr)):
            return _differs(op, attrs, name, rank, expr)
    return None


def check(
    call: CallPattern, op: str, attrs: Attrs, rank: int | None, bindings: Bindings[Any], operands: expressions.Questions
) -> str | None:
    """Why an attribute is not what an expression of the pattern says, once everything is bound; None where all are."""
    for name, expr in call.attrs:
        if _is_plain(expr):
            continue
        try:
            if isinstance(expr, NameRef) and expr.name in bindings.attrs:
                wanted: object = bindings.attrs[expr.name]
            else:
                wanted = expressions.evaluate(expr, bindings, operands)
            fits = same_attribute(ops.attribute(op, attrs, name, rank), wanted)
        except expressions.Unknown as unknown:
            return str(unknown)
        if not fits:
            return _differs(op, attrs, name, rank, expr)
    return None


def same_attribute(actual: object, wanted: object) -> bool:
    """Whether an attribute is what an expression says; floats are compared in the single precision that ONNX stores."""
    if isinstance(actual, tuple) and isinstance(wanted, tuple | list):
        return len(actual) == len(wanted) and all(map(same_attribute, actual, wanted))
    if isinstance(actual, float) and isinstance(wanted, int | float):
        return bool(np.float32(actual) == np.float32(wanted))
    return type(actual) is type(wanted) and actual == wanted


def _is_plain(expr: GuardExpr) -> bool:
    """Whether the expression is made of numbers alone."""
    return isinstance(expr, Lit) or (isinstance(expr, Series) and all(map(_is_plain, expr.items)))


def plain(expr: GuardExpr) -> object:
    """The number, text or sequence that an expression says; None where it says none."""
    match expr:
        case Lit(value):
            return value
        case Series(items):
            values = tuple(map(plain, items))
            return None if any(value is None for value in values) else values
    return None


def _differs(op: str, attrs: Attrs, name: str, rank: int | None, expr: GuardExpr) -> str:
    actual = ops.attribute(op, attrs, name, rank)
    shown = "absent" if actual is None else repr(actual)
    return f"attribute {name} of {op} is {shown}, the rule wants {show_expr(expr)}"
