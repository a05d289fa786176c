"""Guards that others imply: what a solver makes of the guards of a rule, of the dtypes that ops take, and of the ranks
that inference admits."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise, product
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import ops
from graphopt.ir.bounds import fact_of, fact_of_type
from graphopt.ir.constants import Constant
from graphopt.ir.contrib import CONTRIB
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
    Literal,
    NameRef,
    Rule,
    Series,
    Term,
    VarPattern,
    calls,
    subexpressions,
)


def implied(rule: Rule, guard: GuardExpr) -> str | None:
    """Why a guard holds wherever those of a rule do and its right side can be made, as a solver shows it: what is no
    arithmetic is a variable. Whose elements are asked of is a constant, and ops take the dtypes that ONNX says."""
    import z3

    if why := _only(rule, guard):
        return why
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
            case FunctionCall("//", (of, Lit(int(step)))) if step > 0:
                return z3.ToReal(z3.ToInt(term(of)) / step)
            case FunctionCall("%", (of, Lit(int(step)))) if step > 0:
                return z3.ToReal(z3.ToInt(term(of)) % step)
            case Field(_, "rank" | "size") | IndexExpr(Field(_, "shape"), _, None, False):
                size = z3.Int(show_expr(_counted_from_end(expr)))
                axioms.append(size >= 0)
                return z3.ToReal(size)
            case FunctionCall("len", (Field() | NameRef(),)):
                length = z3.Int(show_expr(expr))
                axioms.append(length >= 0)
                return z3.ToReal(length)
        return z3.Real(show_expr(expr))

    def axis(of: GuardExpr, index: int) -> Any:
        return term(IndexExpr(Field(of, "shape"), Lit(index)))

    def truth(expr: GuardExpr) -> Any:
        match expr:
            case FunctionCall("and", parts):
                return z3.And(*map(truth, parts))
            case FunctionCall("or", parts):
                return z3.Or(*map(truth, parts))
            case FunctionCall("not", (part,)):
                return z3.Not(truth(part))
            case FunctionCall("==" | "!=" as comparison, (Field(of, "shape"), Series(items))) if not any(
                isinstance(i, Each) for i in items
            ):
                sizes = [axis(of, i) == term(item) for i, item in enumerate(items)]
                is_equal = z3.And(term(Field(of, "rank")) == len(items), *sizes)
                return is_equal if comparison == "==" else z3.Not(is_equal)
            case FunctionCall("==", (IndexExpr(Field(of, "shape"), Lit(int(start)), None, True), Series(items))) if (
                start >= 0 and items and not any(isinstance(i, Each) for i in items)
            ):
                sizes = [axis(of, i) == term(item) for i, item in enumerate(items, start)]
                return z3.And(term(Field(of, "rank")) == start + len(items), *sizes)
            case FunctionCall("==" | "!=" as comparison, (Field(of, "shape"), Field(other, "shape"))) if of != other:
                rank = term(Field(of, "rank"))
                sizes = [z3.Or(rank <= i, axis(of, i) == axis(other, i)) for i in range(2 * MOST_AXES)]
                is_equal = z3.And(rank == term(Field(other, "rank")), *sizes)
                return is_equal if comparison == "==" else z3.Not(is_equal)
            case FunctionCall("is_known", (IndexExpr(Field(_, "shape"), _, None, False) as size,)):
                return known(size)
            case FunctionCall("known", (IndexExpr(Field(of, "shape"), start, stop, True),)) if (
                places := _places(start, stop)
            ) is not None:
                rank = term(Field(of, "rank"))
                return z3.And(*(z3.Or(rank <= i, known(IndexExpr(Field(of, "shape"), Lit(i)))) for i in places))
            case FunctionCall("known", (Field(_, "shape") as shape,)):
                return truth(FunctionCall("known", (IndexExpr(shape, None, None, True),)))
            case FunctionCall("divides", (Lit(int(step)), size)) if step > 0:
                return z3.ToInt(term(size)) % step == 0
            case Field(of, "causal"):
                return z3.And(term(Field(of, "rank")) >= 2, axis(of, -1) == axis(of, -2), z3.Bool(show_expr(expr)))
            case FunctionCall("per_channel", (Field(of, "shape"), Field(_, "rank") | Lit() as axes)):
                rank, whole = term(Field(of, "rank")), term(axes)
                ones = [z3.Or(rank <= i, rank - 1 - i == whole - 2, axis(of, i) == 1) for i in range(2 * MOST_AXES)]
                return z3.And(rank <= whole, *ones)
            case FunctionCall("is_last", (Field(_, "value") as axes, Field() as rank)):
                last = term(IndexExpr(axes, Lit(0)))
                is_last = z3.Or(last == -1, last == term(rank) - 1)
                return z3.And(term(FunctionCall("len", (axes,))) == 1, term(rank) >= 1, is_last)
            case FunctionCall(
                "heads_fit" | "heads_match" as function, (Field(q, "shape"), Field(k, "shape"), Field(v, "shape"))
            ):
                ranks = [term(Field(of, "rank")) == 4 for of in (q, k, v)]
                pairs = ((q, 0, k, 0), (k, 0, v, 0), (k, 1, v, 1), (q, 3, k, 2))
                sizes = [axis(a, i) == axis(b, j) for a, i, b, j in pairs]
                heads = axis(k, 1) == axis(q, 1)
                if function == "heads_fit":
                    heads = z3.Or(axis(k, 1) == 1, heads)
                return z3.And(*ranks, *sizes, heads, z3.Bool(show_expr(expr)))
            case FunctionCall("==", (Field(of, "value"), FunctionCall("triangle", (rows, exclusive, reverse)))):
                sizes = [axis(of, i) == term(rows) for i in (0, 1)]
                form = f"{show_expr(of)} is triangle({show_expr(exclusive)}, {'0' if reverse == Lit(0) else '1'})"
                return z3.And(term(Field(of, "rank")) == 2, *sizes, z3.Bool(form))
            case FunctionCall("all_in_order", (Each(Field(of, "value")), _)):  # of vectors, no number is in order
                return z3.And(term(Field(of, "rank")) == 0, z3.Bool(show_expr(expr)))
            case FunctionCall("is_eye", (Field(of, "value"),)):
                low, high = (term(Field(of, end)) for end in ("low", "high"))
                return z3.And(high == 1, z3.Or(low == 0, low == 1), z3.Bool(show_expr(expr)))
            case FunctionCall("==" | "!=" | "<" | "<=" | ">" | ">=" as comparison, (left, right)):
                a, b = term(left), term(right)
                made = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
                return made[comparison]
            case FunctionCall("in", (of, Series(items))) if all(isinstance(i, Lit) for i in items):
                return z3.Or(*(term(of) == term(i) for i in items))
            case FunctionCall("in", (of, NameRef(kind))) if kind in SETS:
                return z3.Or(*(term(of) == number(name) for name in sorted(named_set(kind))))
        return z3.Bool(show_expr(expr))

    def known(size: GuardExpr) -> Any:
        is_known = z3.Bool(f"known({show_expr(_counted_from_end(size))})")
        match size:
            case IndexExpr(Field(NameRef() as of, "shape")):
                return z3.Or(is_known, truth(Field(of, "is_const")))
        return is_known

    needed = [p for e in (*_plain(rule.where), *right_expressions(rule)) for p in subexpressions(e)]
    for size in (s for e in right_expressions(rule) for s in _numbers_of(e)):
        axioms.append(known(size))
    for part in needed:
        if isinstance(part, IndexExpr) and isinstance(part.of, Field) and part.of.name == "shape" and not part.slice:
            match part.index:
                case Lit(int(index)):
                    axioms.append(term(Field(part.of.of, "rank")) >= (index + 1 if index >= 0 else -index))
        if isinstance(part, FunctionCall) and part.function in ("min", "max") and len(part.arguments) == 1:
            match part.arguments[0]:
                case (Field(_, "value") as of) | FunctionCall("axes", (Field(_, "value") as of, *_)):
                    axioms.append(term(FunctionCall("len", (of,))) >= 1)  # of nothing there is neither
        if isinstance(part, FunctionCall) and part.function in ("%", "//") and len(part.arguments) == 2:
            axioms.append(term(part.arguments[1]) != 0)
        if isinstance(part, FunctionCall) and part.function in OF_FOUR_AXES:
            match part.arguments[0]:
                case Field(of, "shape"):
                    axioms.append(term(Field(of, "rank")) == 4)
        if isinstance(part, FunctionCall) and part.function in OF_FLOATS:
            match part.arguments[0]:  # whose dtype is looked at first, if it is a constant
                case Field(NameRef() as of, "numbers"):
                    is_float = truth(FunctionCall("in", (Field(of, "dtype"), NameRef("float"))))
                    axioms.append(z3.Implies(truth(Field(of, "is_const")), is_float))
        if isinstance(part, Field) and isinstance(part.of, NameRef) and part.name in OF_CONSTANTS:
            axioms.append(truth(Field(part.of, "is_const")))
            if part.name == "scalar":
                axioms.append(term(Field(part.of, "size")) == 1)
    is_of_shapes = any(isinstance(p, Field) and p.name in ("rank", "shape", "size") for p in subexpressions(guard))
    waiting = list(rule.lhs)
    while waiting:
        call = waiting.pop()
        if isinstance(call, CallPattern):  # of alternatives only one has to be there
            axioms += _typed(call, term, number)
            axioms += (*_ranked(call, term), *_sized(call, term)) if is_of_shapes else ()
            for one, other in pairwise(call.inputs[: ALIKE.get(call.op, 0)]):
                if (a := _name_of(one)) is not None and (b := _name_of(other)) is not None:
                    axioms.append(term(Field(a, "rank")) == term(Field(b, "rank")))
            if call.op in SPECIFIED and (first := _name_of(call.inputs[0])) is not None:
                axioms.append(z3.Or(*(term(Field(first, "rank")) == rank for rank in SPECIFIED[call.op])))
            waiting += call.inputs
    waiting = list(rule.rhs)
    while waiting:
        call = waiting.pop()
        if isinstance(call, CallPattern):  # sizes that are not known are not refused where they should be equal
            axioms += _typed(call, term, number)
            axioms += _ranked(call, term) if is_of_shapes else ()
            waiting += call.inputs
    for left, right in zip(rule.lhs, rule.rhs, strict=True) if is_of_shapes else ():
        axioms += _alike(left, right, term)
    for name in {p.of for e in (*rule.where, guard) for p in subexpressions(e) if isinstance(p, Field)}:
        rank, size = term(Field(name, "rank")), term(Field(name, "size"))
        axioms.append(z3.Implies(rank == 0, size == 1))
        axioms.append(z3.Implies(size == 1, z3.And(*(z3.Or(rank <= i, axis(name, i) == 1) for i in range(MOST_AXES)))))
        axioms.append(z3.Implies(rank == 1, size == axis(name, 0)))

    solver = z3.Solver()
    solver.set("timeout", 1000)
    goal = truth(guard)
    solver.add(*map(truth, rule.where), *axioms)
    solver.add(*_from_both_ends(solver.assertions(), goal))
    if solver.check() != z3.sat:
        return None
    solver.add(z3.Not(goal))
    return "z3: its guards hold only where the rule's do" if solver.check() == z3.unsat else None


def _only(rule: Rule, guard: GuardExpr) -> str | None:
    """Why an op variable of a rule is one of those of a guard: no others take its operands and attributes."""
    match guard:
        case FunctionCall("in", (NameRef(name), NameRef(kind))) if kind in SETS:
            wanted = named_set(kind)
        case _:
            return None
    uses = [call for side in (*rule.lhs, *rule.rhs) for call in calls(side) if call.is_variable and call.op == name]
    taken = {op for op in (*ops.names(), *CONTRIB) if all(_takes(op, call) for call in uses)}
    inner = {o for side in (*rule.lhs, *rule.rhs) for call in calls(side) for o in call.inputs}
    if inner & set(uses):  # no op but those on sequences takes one
        taken = {op for op in taken if ops.kind(op) != "sequence"}
    return f"only {', '.join(sorted(taken))} take what {name} does" if uses and taken <= wanted else None


def _takes(op: str, call: CallPattern) -> bool:
    """Whether an op takes as many operands as a call has, and its attributes."""
    schema = ops.schema(op)
    if schema is None or any(name not in schema.defaults for name, _ in call.attrs):
        return False
    starred = any(isinstance(o, VarPattern) and o.starred for o in call.inputs)
    fewest = sum(not (isinstance(o, VarPattern) and (o.optional or o.starred)) for o in call.inputs)
    most = 1 << 30 if starred else len(call.inputs)
    return most >= schema.min_inputs and (schema.max_inputs is None or schema.max_inputs >= fewest)


OF_FLOATS = frozenset({"absorbs", "mergeable", "moderate"})
"""Functions that ask how many digits, or what exponents, the dtype of a constant has."""
OF_FOUR_AXES = frozenset({"in_row", "in_square"})
"""Functions of the shape of a kernel for images of two axes, which have no value for others."""
SPECIFIED = {"RotaryEmbedding": (3, 4), "com.microsoft::RotaryEmbedding": (3, 4)}
"""Ranks of the first operand that the text of an op asks for, and inference does not."""
ALIKE = {"Attention": 3}
"""Ops of which so many operands are to have one rank, by their text."""
OF_NUMBERS = frozenset({"alpha", "beta", "epsilon", "scale", "softcap", "is_causal", "unidirectional", "interleaved"})
"""Attributes that say nothing of ranks."""
OF_CONSTANTS = frozenset({"value", "scalar", "causal", "period", "row_high"})
"""What is known of constants alone."""


def _plain(guards: Iterable[GuardExpr]) -> Iterator[GuardExpr]:
    """Guards all of whose parts have to be known to hold."""
    for guard in guards:
        if not any(isinstance(p, FunctionCall) and p.function in ("and", "or", "if") for p in subexpressions(guard)):
            yield guard


def _counted_from_end(expr: GuardExpr) -> GuardExpr:
    """An axis that is counted from the rank as one that is counted from the end: ``x.shape[x.rank - 1]``."""
    match expr:
        case IndexExpr(Field(of, "shape") as shape, FunctionCall("-", (Field(other, "rank"), Lit(int(back))))) if (
            of == other and back > 0
        ):
            return IndexExpr(shape, Lit(-back))
    return expr


def _places(start: GuardExpr | None, stop: GuardExpr | None) -> range | None:
    """The axes of a slice that is written out, of as many as ranks go to."""
    first = Lit(0) if start is None else start
    end = Lit(2 * MOST_AXES) if stop is None else stop
    match first, end:
        case Lit(int(i)), Lit(int(k)) if i >= 0 and k >= 0:
            return range(i, k)
    return None


def _numbers_of(expr: GuardExpr) -> Iterator[GuardExpr]:
    """Sizes that have to be numbers where a constant is made of an expression."""
    match expr:
        case IndexExpr(Field(_, "shape"), _, None, False):
            yield expr
        case Series(items):
            for item in items:
                yield from _numbers_of(item)
        case FunctionCall("+" | "-" | "*" | "//" | "%", parts):
            for part in parts:
                yield from _numbers_of(part)


def _from_both_ends(*given: Any) -> Iterator[Any]:
    """That an axis is the same whether it is counted from the front or from the end, for all that are spoken of."""
    import z3

    spoken: dict[str, set[int]] = {}
    waiting, seen = [e for g in given for e in (g if not z3.is_expr(g) else [g])], set()
    while waiting:
        expr = waiting.pop()
        if expr.get_id() in seen:
            continue
        seen.add(expr.get_id())
        waiting += expr.children()
        if z3.is_const(expr) and (found := re.fullmatch(r"(.*)\.shape\[(-?\d+)\]", expr.decl().name())):
            spoken.setdefault(found[1], set()).add(int(found[2]))
    for of, indices in spoken.items():
        rank = z3.Int(f"{of}.rank")
        for back in (i for i in indices if i < 0):
            for front in range(2 * MOST_AXES):
                same = z3.Int(f"{of}.shape[{back}]") == z3.Int(f"{of}.shape[{front}]")
                yield z3.Implies(rank + back == front, same)


def _typed(call: CallPattern, term: Callable[[GuardExpr], Any], number: Callable[[str], Any]) -> Iterator[Any]:
    """What ONNX says of the dtypes of the operands and results of a call, for a solver."""
    import z3

    schema = None if call.is_variable else ops.schema(call.op)
    if schema is None:
        return
    letters = [
        (operand, ops.input_constraint(call.op, i)) for i, operand in enumerate(call.inputs) if operand != ABSENT
    ]
    for part, letter in (*letters, (call, _letter_of(call))):
        dtype = z3.Real(f"{letter} of {show_term(call)}")
        match part:
            case VarPattern(name) | CallPattern(name=str(name)):
                yield term(Field(NameRef(name), "dtype")) == dtype
            case CallPattern():
                inner = _letter_of(part)
                if part is not call and inner:
                    yield z3.Real(f"{inner} of {show_term(part)}") == dtype
        allowed = {ops.dtype_name(letter)} if letter.startswith("tensor(") else schema.allowed.get(letter)
        if allowed:
            yield z3.Or(*(dtype == number(name) for name in sorted(allowed)))


def _letter_of(call: CallPattern) -> str:
    """The constraint on the dtype of the result of a call; where no attribute says what it is, that of what was
    quantized is its scale's."""
    if call.is_variable:
        return ""
    is_open = call.rest is not None or "output_dtype" in dict(call.attrs)
    scale = 1 if call.op == "DequantizeLinear" and not is_open else None
    return ops.output_constraint(call.op, call.output) if scale is None else ops.input_constraint(call.op, scale)


MOST_AXES = 5
"""Ranks of operands are taken up to so many axes."""
SAME_SHAPE = ops.SETS["unary"] | {
    "Clip", "Dropout", "LayerNormalization", "LogSoftmax", "RMSNormalization", "RotaryEmbedding", "Softmax",
    "com.microsoft::RotaryEmbedding",
}  # fmt: skip
"""Ops whose result has the shape of their first operand."""


def _alike(left: Term, right: Term, term: Callable[[GuardExpr], Any]) -> Iterator[Any]:
    """That both sides have one shape, else the right side does not take the place of the left."""
    import z3

    a, b = _name_of(left), _name_of(right)
    if a is not None and b is not None and not any(isinstance(t, CallPattern) and t.output for t in (left, right)):
        yield term(Field(a, "rank")) == term(Field(b, "rank"))
        for i in range(2 * MOST_AXES):
            sizes = (term(IndexExpr(Field(of, "shape"), Lit(i))) for of in (a, b))
            yield z3.Or(term(Field(a, "rank")) <= i, next(sizes) == next(sizes))


def _sized(call: CallPattern, term: Callable[[GuardExpr], Any]) -> Iterator[Any]:
    """What ONNX says of the sizes of the operands and the result of a call, for a solver."""
    import z3

    if call.is_variable or call.output or any(isinstance(o, VarPattern) and o.starred for o in call.inputs):
        return

    def rank(part: NameRef) -> Any:
        return term(Field(part, "rank"))

    def axis(part: NameRef, index: int) -> Any:
        return term(IndexExpr(Field(part, "shape"), Lit(index)))

    operands = [_name_of(operand) for operand in call.inputs]
    result = _name_of(call)
    assert result is not None
    attrs = dict(call.attrs)
    match call.op, operands:
        case op, [NameRef() as x, *_] if op in SAME_SHAPE:
            yield rank(x) == rank(result)
            yield from (z3.Or(rank(x) <= i, axis(x, i) == axis(result, i)) for i in range(2 * MOST_AXES))
        case op, [NameRef() as x, NameRef() as y] if op in ops.SETS["binary"]:
            yield rank(result) == z3.If(rank(x) > rank(y), rank(x), rank(y))
            for back in range(-MOST_AXES, 0):
                a, b, c = (axis(part, back) for part in (x, y, result))
                in_x, in_y = rank(x) >= -back, rank(y) >= -back
                yield z3.Implies(z3.And(in_x, in_y), z3.Or(a == b, a == 1, b == 1))
                yield z3.Implies(in_x, c == z3.If(z3.And(in_y, a == 1), b, a))
                yield z3.Implies(z3.And(in_y, z3.Not(in_x)), c == b)
        case "Transpose", [NameRef() as x]:
            yield rank(x) == rank(result)
            match attrs.get("perm"):
                case NameRef() as perm:
                    yield rank(x) == term(FunctionCall("len", (perm,)))
                case Series(items) if isinstance(perm := _literal(Series(items)), tuple):
                    yield rank(x) == len(perm)
                    yield from (axis(result, i) == axis(x, k) for i, k in enumerate(perm))
        case "Reshape" | "Expand", [NameRef() as x, NameRef() as shape]:
            yield rank(shape) == 1
            many = axis(shape, 0)
            if call.op == "Expand":
                many = z3.If(rank(x) > many, rank(x), many)
            yield rank(result) == many
        case "Concat", [*parts] if isinstance(k := _literal(attrs.get("axis", ABSENT)), int):
            if all(isinstance(part, NameRef) for part in parts):
                yield axis(result, k) == sum(axis(part, k) for part in parts if part is not None)
                for part in (part for part in parts if part is not None):
                    yield rank(part) == rank(result)
                    for i in (i for i in (range(MOST_AXES) if k >= 0 else range(-MOST_AXES, 0)) if i != k):
                        there = rank(part) > i if k >= 0 else rank(part) >= -i
                        yield z3.Implies(there, axis(part, i) == axis(result, i))
        case "QuantizeLinear" | "DequantizeLinear", [NameRef() as x, NameRef() as scale, *zeros]:
            yield rank(x) == rank(result)
            yield from (z3.Or(rank(x) <= i, axis(x, i) == axis(result, i)) for i in range(2 * MOST_AXES))
            block = term(attrs.get("block_size", Lit(0)))
            yield z3.If(block == 0, rank(scale) <= 1, rank(scale) == rank(x))
            for zero in (zero for zero in zeros if zero is not None):
                yield rank(zero) == rank(scale)
                yield from (z3.Or(rank(zero) <= i, axis(zero, i) == axis(scale, i)) for i in range(MOST_AXES))
        case "Attention", [NameRef() as q, NameRef(), NameRef() as v, *_] if not call.output:
            yield z3.Implies(rank(q) == 4, z3.And(*(axis(result, i) == axis(q, i) for i in range(3))))
            yield z3.Implies(rank(q) == 4, axis(result, 3) == axis(v, 3))
        case "Pad", [NameRef() as x, NameRef() as pads, *rest] if len(rest) < 2:
            yield rank(x) == rank(result)
            yield term(FunctionCall("len", (Field(pads, "value"),))) == 2 * rank(x)
        case "Expand", [NameRef() as x, *_]:
            yield rank(result) >= rank(x)
        case "GatherElements", [NameRef() as x, NameRef() as indices]:
            yield z3.And(rank(x) == rank(indices), rank(result) == rank(indices))
        case "GatherND", [NameRef() as x, NameRef() as indices]:
            many = _literal(attrs.get("batch_dims", Lit(0)))
            if isinstance(many, int):
                taken = axis(indices, -1)
                yield z3.And(taken >= 1, rank(result) == rank(indices) - 1 + rank(x) - many - taken)
                yield from (axis(x, i) == axis(indices, i) for i in range(many))
        case "graphopt::Block", [NameRef() as x]:
            yield z3.And(rank(result) == rank(x) + 1, rank(x) >= 3)
        case "graphopt::Unblock", [NameRef() as x]:
            yield z3.And(rank(result) == rank(x) - 1, rank(x) >= 4)
        case "MatMul", [NameRef() as x, NameRef() as y]:
            last = z3.If(rank(y) >= 2, axis(y, -2), axis(y, -1))
            yield z3.And(rank(x) >= 1, rank(y) >= 1, axis(x, -1) == last)
            many = z3.And(rank(x) >= 2, rank(y) >= 2)
            yield z3.Implies(many, z3.And(axis(result, -1) == axis(y, -1), axis(result, -2) == axis(x, -2)))
            yield z3.Implies(many, rank(result) == z3.If(rank(x) > rank(y), rank(x), rank(y)))
            for back in range(-MOST_AXES, -2):
                a, b, c = (axis(part, back) for part in (x, y, result))
                in_x, in_y = rank(x) >= -back, rank(y) >= -back
                yield z3.Implies(z3.And(in_x, in_y), z3.Or(a == b, a == 1, b == 1))
                yield z3.Implies(z3.And(many, in_x), c == z3.If(z3.And(in_y, a == 1), b, a))
                yield z3.Implies(z3.And(many, in_y, z3.Not(in_x)), c == b)
        case "Conv" | "com.microsoft::FusedConv", [NameRef() as x, NameRef() as w, *rest]:
            yield z3.And(rank(x) == rank(w), rank(result) == rank(x), rank(x) >= 3)
            yield z3.And(axis(result, 0) == axis(x, 0), axis(result, 1) == axis(w, 0))
            if "group" in attrs:
                yield axis(x, 1) == axis(w, 1) * term(attrs["group"])
            if rest and rest[0] is not None:
                yield z3.And(rank(rest[0]) == 1, axis(rest[0], 0) == axis(w, 0))


def _name_of(part: Term) -> NameRef | None:
    """The name under which a solver knows a part of a rule; None of what may be absent."""
    match part:
        case VarPattern(name, optional=False) | CallPattern(name=str(name)):
            return NameRef(name)
        case CallPattern():
            return NameRef(show_term(part))
    return None


def _literal(expr: GuardExpr) -> Any:
    """The value of an attribute that is written out; None where it is not."""
    match expr:
        case Lit(value):
            return value
        case Series(items) if all(isinstance(i, Lit) for i in items):
            return tuple(i.value for i in items if isinstance(i, Lit))
    return None


def _ranked(call: CallPattern, term: Callable[[GuardExpr], Any]) -> Iterator[Any]:
    """What inference says of the ranks of the operands and the result of a call, for a solver."""
    import z3

    operands = tuple(operand for operand in call.inputs)
    schema = None if call.is_variable else ops.schema(call.op)
    least = len(operands) if schema is None else schema.min_inputs
    if sum(o != ABSENT for o in operands) > 4:
        operands = operands[:least]
    literal = {name: value for name, expr in call.attrs if (value := _literal(expr)) is not None}
    asked = [name for name, _ in call.attrs if name not in OF_NUMBERS]
    is_open = any(name not in literal for name in asked) or call.rest is not None
    is_of_attributes = is_open and ("::" in call.op or call.op == "Attention")
    if call.is_variable or is_of_attributes or any(isinstance(o, VarPattern) and o.starred for o in operands):
        return
    taken = tuple(o != ABSENT and not (isinstance(o, VarPattern) and o.optional) for o in operands)
    values = tuple(o.value if isinstance(o, Literal) and isinstance(o.value, tuple) else None for o in operands)
    table = _ranks(call.op, taken, tuple(sorted(literal.items())), values)

    def rank(part: Term, place: int) -> Any:
        match part:
            case VarPattern(name) | CallPattern(name=str(name)):
                return term(Field(NameRef(name), "rank"))
            case CallPattern():
                return term(Field(NameRef(show_term(part)), "rank"))
        return z3.ToReal(z3.Int(f"rank of {show_term(part)} {place}"))

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
    op: str, taken: tuple[bool, ...], literal: tuple[tuple[str, Any], ...], values: tuple[Any, ...] = ()
) -> tuple[tuple[tuple[int | None, ...], int | None], ...]:
    """The ranks that operands of an op may have, None where one is not looked at, each with that of the result where
    that is known."""
    schema = ops.schema(op)
    if schema is None or sum(taken) > 4:
        return ()
    dtypes = []
    for i in range(len(taken)):
        letter = ops.input_constraint(op, i)
        allowed = {ops.dtype_name(letter)} if letter.startswith("tensor(") else schema.allowed.get(letter, {"float32"})
        dtypes.append("float32" if "float32" in allowed else min(allowed))
    found = []
    written = [None if v is None else Constant.of(np.asarray(v, np.int64)) for v in values or (None,) * len(taken)]
    options = [
        (1,) if w is not None else range(MOST_AXES + 1) if t else (None,) for t, w in zip(taken, written, strict=True)
    ]
    for ranks in product(*options):
        facts = [
            fact_of(w)
            if w is not None
            else None
            if r is None
            else fact_of_type(TensorType(d, tuple(fresh_symbol() for _ in range(r))))
            for r, d, w in zip(ranks, dtypes, written, strict=True)
        ]
        with suppress(GraphoptError):
            outputs = infer_node(op, ops.canonical(op, Attrs(dict(literal))), facts, 1, ops.LATEST)
            found.append((ranks, outputs[0].rank))
    return tuple(found)
