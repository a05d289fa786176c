"""Pattern graphs and conditions of onnxscript's rules as terms and guards. Apart from the rules by size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from graphopt.interop.symbolic import Attribute, NotPlain, SymbolicOperand, Trail, as_expr
from graphopt.ir import ops
from graphopt.rewrite.reading.wellformed import place
from graphopt.rewrite.rule.rule import (
    ABSENT,
    AnyOf,
    CallPattern,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    Literal,
    NameRef,
    Series,
    Term,
    VarPattern,
    joined,
    subexpressions,
)


class OnnxscriptPattern:
    """The left side: terms of a pattern graph, and what its names stand for."""

    def __init__(self, graph: Any) -> None:
        self.checks: list[tuple[str, Callable[..., Any]]] = []
        self.operands: dict[str, None] = {}
        self.attributes: dict[str, tuple[str, str]] = {}
        """By variable: the op and the attribute that it is."""
        self.names: dict[int, str] = {}
        self.shared = _read_twice(graph)
        self.parameters = [v.name for v in graph.inputs]
        self.terms = tuple(self.term(output) for output in graph.outputs)

    def stand_ins(self, trail: Trail) -> dict[str, Any]:
        """What condition and replacement are called with: a stand-in for each name; None for what nothing binds."""
        operands: dict[str, Any] = dict.fromkeys(self.parameters)
        operands |= {name: SymbolicOperand(trail, NameRef(name)) for name in self.operands}
        for name, (op, attribute) in self.attributes.items():
            kind = ops.attribute_kind(op, attribute)
            operands[name] = Attribute(trail, name, kind, is_dtype=(op, attribute) in DTYPES)
        return operands

    def term(self, value: Any) -> Term:
        """A value of the pattern graph as a term."""
        kind = type(value).__name__
        if value is None:
            return ABSENT
        if kind == "Constant":
            number = value.value
            return Literal(tuple(number) if isinstance(number, list) else number)
        if kind == "NodeOutputPattern":
            return self.node(value)
        if kind == "BacktrackingOr":
            return self.any_of(value, value._values)
        if kind == "OpIdDispatchOr":
            return self.any_of(value, [option for _, option in value._op_to_pattern.values()])
        if kind in ("Var", "ValuePattern", "AnyValue"):
            return self.variable(value)
        raise NotPlain(f"its pattern holds a {kind}")

    def variable(self, value: Any) -> Term:
        """A variable of the pattern; where it has none, a name of ours."""
        if value.can_match_none:
            raise NotPlain(f"its variable {value.name} may match nothing")
        name = value.name or self.names.setdefault(id(value), f"any{len(self.names) + 1}")
        self.operands[name] = None
        if value.check_method is not None:
            self.checks.append((name, value.check_method))
        return VarPattern(name)

    def any_of(self, value: Any, options: Sequence[Any]) -> Term:
        """Alternatives of the pattern."""
        if value.tag_var is not None or value.name is not None:
            raise NotPlain("its alternatives have names, which say afterwards which one matched")
        return AnyOf(tuple(self.term(option) for option in options))

    def node(self, value: Any) -> Term:
        """A call of the pattern."""
        node = value.producer()
        if value.name in self.operands or id(value) in self.names:
            return VarPattern(value.name or self.names[id(value)])
        if {type(node.op).__name__, type(node.domain).__name__} != {"StringConstantPattern"}:
            raise NotPlain(f"its pattern leaves the op {node.op} open")
        if node.allow_other_inputs:
            raise NotPlain(f"its {node.op} may have any further inputs")
        if node.check_method is not None:
            raise NotPlain(f"a condition of its own is on the node of its {node.op}")
        domain = node.domain.value()
        op = f"{domain}::{node.op}" if domain not in ("", "ai.onnx") else str(node.op)
        inputs = tuple(self.term(v) for v in node.inputs)
        call = place(CallPattern(op, inputs, tuple((n, self.attribute(op, n, a)) for n, a in node.attributes.items())))
        left = {e.name for _, e in call.attrs if isinstance(e, NameRef)}
        for pattern in node.attributes.values():
            if pattern.name is not None and pattern.name not in left:
                raise NotPlain(f"its {op} has the attribute {pattern.name}, which is an input since later opsets")
        name = value.name
        if name is None and self.shared.get(id(value), 0) > 1:
            name = self.names[id(value)] = f"m{len(self.names) + 1}"
        if name is not None:
            self.operands[name] = None
        return replace(call, output=value.output_index, name=name)

    def attribute(self, op: str, name: str, pattern: Any) -> GuardExpr:
        """What an attribute must be, or the variable that it is."""
        if pattern.can_match_none:
            raise NotPlain(f"its attribute {pattern.name or name} may be absent")
        if type(pattern).__name__ == "AttrConstantPattern":
            return as_expr(pattern._value)
        variable = pattern.name or f"{name}{len(self.attributes) + 1}"
        self.attributes[variable] = (op, name)
        return NameRef(variable)


DTYPES = frozenset((("Cast", "to"),))
"""Attributes that are one of ONNX's numbers for dtypes."""


def _read_twice(graph: Any) -> Mapping[int, int]:
    """How often each value of a pattern graph is read or given."""
    counts: dict[int, int] = {}
    for value in (*graph.outputs, *(v for node in graph for v in node.inputs)):
        counts[id(value)] = counts.get(id(value), 0) + 1
    return counts


def one_of(alternatives: Sequence[tuple[GuardExpr, ...]]) -> tuple[GuardExpr, ...]:
    """What holds where any of the conjunctions does: what is in all of them, and the alternatives of the rest."""
    merged = list(dict.fromkeys(_merged(one) for one in alternatives))
    shared = [e for e in merged[0] if all(e in other for other in merged)]
    rest = [tuple(e for e in one if e not in shared) for one in merged]
    if all(rest):
        shared += _either(rest)
    return tuple(e for e in shared if not _is_implied(e, shared))


def _merged(conjunction: tuple[GuardExpr, ...]) -> tuple[GuardExpr, ...]:
    """The conjunction, with one comparison in the place of one of a sequence's length and one of each element."""
    equal = {e.arguments[0]: e.arguments[1] for e in conjunction if isinstance(e, FunctionCall) and e.function == "=="}
    for left, right in list(equal.items()):
        if not (isinstance(left, FunctionCall) and left.function == "len" and isinstance(right, Lit)):
            continue
        sequence = left.arguments[0]
        items: list[GuardExpr] = [IndexExpr(sequence, Lit(i)) for i in range(right.value)]  # type: ignore[arg-type]
        if all(isinstance(equal.get(i), Lit) for i in items):
            compared: list[GuardExpr] = [left, *items]
            parts: set[GuardExpr] = {FunctionCall("==", (e, equal[e])) for e in compared}
            whole = FunctionCall("==", (sequence, Series(tuple(equal[i] for i in items))))
            conjunction = (*(e for e in conjunction if e not in parts), whole)
    return conjunction


def _either(rest: Sequence[tuple[GuardExpr, ...]]) -> tuple[GuardExpr, ...]:
    """That one of the conjunctions holds; where all say what one thing equals, that it is among these."""
    if len(rest) == 1:
        return rest[0]
    single = [one[0] for one in rest if len(one) == 1 and isinstance(one[0], FunctionCall) and one[0].function == "=="]
    if len(single) == len(rest) and len({e.arguments[0] for e in single}) == 1:
        return (FunctionCall("in", (single[0].arguments[0], Series(tuple(e.arguments[1] for e in single)))),)
    return (joined("or", tuple(joined("and", one) for one in rest)),)


def _is_implied(expr: GuardExpr, others: Sequence[GuardExpr]) -> bool:
    """Whether that a rank is known, as a guard says, is also asked by another, which does not hold where it is not."""
    if not (isinstance(expr, FunctionCall) and expr.function == ">=" and isinstance(expr.arguments[0], Field)):
        return False
    of = expr.arguments[0].of
    comparisons = [e for other in others if other != expr and _is_asked_whole(other) for e in subexpressions(other)]
    return any(isinstance(e, Field) and e.of == of and e.name in ("rank", "shape") for e in comparisons)


def _is_asked_whole(expr: GuardExpr) -> bool:
    """Whether a guard looks at all of its parts."""
    return not any(
        isinstance(e, FunctionCall) and e.function in ("or", "and", "if", "in") for e in subexpressions(expr)
    )
