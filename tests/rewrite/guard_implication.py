"""Guards that others imply: what a solver makes of the guards of a rule, of the dtypes that ops take, and of the ranks
that inference admits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import product
from typing import Any

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of_type
from graphopt.ir.graph import Attrs
from graphopt.ir.infer import infer_node
from graphopt.ir.types import TensorType, fresh_symbol
from graphopt.proof.evidence import right_expressions
from graphopt.rewrite.guards.expressions import SETS, named_set
from graphopt.rewrite.rule.notation import show_expr, show_term
from graphopt.rewrite.rule.rule import (
    ABSENT,
    CallPattern,
    Each,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    NameRef,
    Rule,
    Series,
    Term,
    VarPattern,
    subexpressions,
)


def implied(rule: Rule, guard: GuardExpr) -> str | None:
    """Why a guard holds wherever those of a rule do and its right side can be made, as a solver shows it: what is no
    arithmetic is a variable. Whose elements are asked of is a constant, and ops take the dtypes that ONNX says."""
    import z3

    words: dict[str, int] = {}
    axioms: list[Any] = []

    def number(value: str) -> Any:
        return z3.RealVal(-(10**6) - words.setdefault(value, len(words)))

    def term(expr: GuardExpr) -> Any:
        match expr:
            case Lit(str(value)):
                return number(value)
            case Lit(int() | float() as value) if not isinstance(value, bool) and abs(value) < 10**6:
                return z3.RealVal(repr(value))
            case FunctionCall("+" | "-" | "*" as operator, (left, right)):
                a, b = term(left), term(right)
                return a + b if operator == "+" else a - b if operator == "-" else a * b
            case Field(_, "rank" | "size") | IndexExpr(Field(_, "shape"), _, None, False):
                size = z3.Int(show_expr(expr))
                axioms.append(size >= 0)
                return z3.ToReal(size)
        return z3.Real(show_expr(expr))

    def truth(expr: GuardExpr) -> Any:
        match expr:
            case FunctionCall("and", parts):
                return z3.And(*map(truth, parts))
            case FunctionCall("or", parts):
                return z3.Or(*map(truth, parts))
            case FunctionCall("not", (part,)):
                return z3.Not(truth(part))
            case FunctionCall("==" | "!=" | "<" | "<=" | ">" | ">=" as comparison, (left, right)):
                a, b = term(left), term(right)
                made = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
                return made[comparison]
            case FunctionCall("in", (of, Series(items))) if all(isinstance(i, Lit) for i in items):
                return z3.Or(*(term(of) == term(i) for i in items))
            case FunctionCall("in", (of, NameRef(kind))) if kind in SETS:
                return z3.Or(*(term(of) == number(name) for name in sorted(named_set(kind))))
        return z3.Bool(show_expr(expr))

    needed = [p for e in (*_plain(rule.where), *right_expressions(rule)) for p in subexpressions(e)]
    for part in needed:
        if isinstance(part, IndexExpr) and isinstance(part.of, Field) and part.of.name == "shape" and not part.slice:
            match part.index:
                case Lit(int(index)):
                    axioms.append(term(Field(part.of.of, "rank")) >= (index + 1 if index >= 0 else -index))
        if isinstance(part, Field) and isinstance(part.of, NameRef) and part.name == "numbers":
            axioms.append(truth(FunctionCall("in", (Field(part.of, "dtype"), NameRef("float")))))
        if isinstance(part, Field) and isinstance(part.of, NameRef) and part.name in ("value", "scalar"):
            axioms.append(truth(Field(part.of, "is_const")))
            if part.name == "scalar":
                axioms.append(term(Field(part.of, "size")) == 1)
    for guarded in rule.where:
        match guarded:
            case FunctionCall("==", (Field(of, "shape"), Series(items))) if not any(isinstance(i, Each) for i in items):
                axioms.append(term(Field(of, "rank")) == len(items))
    is_of_shapes = any(isinstance(p, Field) and p.name in ("rank", "shape", "size") for p in subexpressions(guard))
    waiting = list(rule.lhs)
    while waiting:
        call = waiting.pop()
        if isinstance(call, CallPattern):  # of alternatives only one has to be there
            axioms += _typed(call, term, number)
            axioms += _ranked(call, term) if is_of_shapes else ()
            waiting += call.inputs

    solver = z3.Solver()
    solver.set("timeout", 200)
    solver.add(*map(truth, rule.where), *axioms)
    if solver.check() != z3.sat:
        return None
    solver.add(z3.Not(truth(guard)))
    return "z3: its guards hold only where the rule's do" if solver.check() == z3.unsat else None


def _plain(guards: Iterable[GuardExpr]) -> Iterator[GuardExpr]:
    """Guards all of whose parts have to be known to hold."""
    for guard in guards:
        if not any(isinstance(p, FunctionCall) and p.function in ("and", "or", "not") for p in subexpressions(guard)):
            yield guard


def _typed(call: CallPattern, term: Callable[[GuardExpr], Any], number: Callable[[str], Any]) -> Iterator[Any]:
    """What ONNX says of the dtypes of the operands and results of a call, for a solver."""
    import z3

    schema = None if call.is_variable else ops.schema(call.op)
    if schema is None:
        return
    letters = [
        (operand, ops.input_constraint(call.op, i)) for i, operand in enumerate(call.inputs) if operand != ABSENT
    ]
    for part, letter in (*letters, (call, ops.output_constraint(call.op, call.output))):
        dtype = z3.Real(f"{letter} of {show_term(call)}")
        match part:
            case VarPattern(name) | CallPattern(name=str(name)):
                yield term(Field(NameRef(name), "dtype")) == dtype
            case CallPattern():
                inner = ops.output_constraint(part.op, part.output) if not part.is_variable else ""
                if part is not call and inner:
                    yield z3.Real(f"{inner} of {show_term(part)}") == dtype
        allowed = {ops.dtype_name(letter)} if letter.startswith("tensor(") else schema.allowed.get(letter)
        if allowed:
            yield z3.Or(*(dtype == number(name) for name in sorted(allowed)))


MOST_AXES = 5
"""Ranks of operands are taken up to so many axes."""


def _ranked(call: CallPattern, term: Callable[[GuardExpr], Any]) -> Iterator[Any]:
    """What inference says of the ranks of the operands and the result of a call, for a solver."""
    import z3

    operands = tuple(operand for operand in call.inputs)
    literal = {name: expr.value for name, expr in call.attrs if isinstance(expr, Lit)}
    is_open = len(literal) < len(call.attrs) or call.rest is not None
    is_of_attributes = is_open and ("::" in call.op or call.op == "Attention")
    if call.is_variable or is_of_attributes or any(isinstance(o, VarPattern) and o.starred for o in operands):
        return
    taken = tuple(o != ABSENT and not (isinstance(o, VarPattern) and o.optional) for o in operands)
    table = _ranks(call.op, taken, tuple(sorted(literal.items())))

    def rank(part: Term, place: int) -> Any:
        match part:
            case VarPattern(name) | CallPattern(name=str(name)):
                return term(Field(NameRef(name), "rank"))
        return z3.ToReal(z3.Int(f"rank of {show_term(part)}" + ("" if isinstance(part, CallPattern) else f" {place}")))

    if not table:
        return
    terms = [rank(operand, place) for place, operand in enumerate(operands)]
    is_known = not is_open and call.output == 0 and all(result is not None for _, result in table)
    result_term = rank(call, 0)
    are = [[part == r for r in range(2 * MOST_AXES)] for part in (*terms, result_term)]
    ways = []
    for ranks, result in table:
        inputs = [is_rank[r] for is_rank, r in zip(are, ranks, strict=False) if r is not None]
        output = [are[-1][result]] if is_known and result is not None and result < len(are[-1]) else []
        ways.append(z3.And(*inputs, *output))
    yield z3.Or(*ways)


@cache
def _ranks(
    op: str, taken: tuple[bool, ...], literal: tuple[tuple[str, Any], ...]
) -> tuple[tuple[tuple[int | None, ...], int | None], ...]:
    """The ranks that operands of an op may have, None where one is not looked at, each with that of the result where
    that is known."""
    schema = ops.schema(op)
    if schema is None or sum(taken) > 3:
        return ()
    dtypes = []
    for i in range(len(taken)):
        letter = ops.input_constraint(op, i)
        allowed = {ops.dtype_name(letter)} if letter.startswith("tensor(") else schema.allowed.get(letter, {"float32"})
        dtypes.append("float32" if "float32" in allowed else min(allowed))
    found = []
    for ranks in product(*(range(MOST_AXES + 1) if t else (None,) for t in taken)):
        facts = [
            None if r is None else fact_of_type(TensorType(d, tuple(fresh_symbol() for _ in range(r))))
            for r, d in zip(ranks, dtypes, strict=True)
        ]
        with suppress(GraphoptError):
            outputs = infer_node(op, ops.canonical(op, Attrs(dict(literal))), facts, 1, ops.LATEST)
            found.append((ranks, outputs[0].rank))
    return tuple(found)
