"""Well-formedness of rules: names are bound, ops, attributes and functions exist."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from graphopt.errors import RuleError, nearest
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.rewrite.guards.expressions import FACTS, LAZY, SETS
from graphopt.rewrite.guards.functions import FUNCTIONS, arity
from graphopt.rewrite.rule.rule import (
    ABSENT,
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
    Series,
    Term,
    VarPattern,
    subexpressions,
    variables,
)

FAMILIES = {
    "A": 23, "B": 16, "C": 15, "D": 11, "E": 12, "F": 14, "G": 7, "H": 16, "I": 7, "J": 18, "K": 13, "L": 11, "M": 15,
    "N": 14, "O": 7, "P": 7, "Q": 16,
}  # fmt: skip
"""The families of rewrites, A1 to Q16: how many there are of each letter."""

DEEPEST = 64
"""How deep terms and expressions may be nested."""


@dataclass(frozen=True)
class Complaint:
    """What is wrong with a rule, and the term or expression it is wrong in."""

    part: object
    message: str


def check(rule: Rule, strict: bool = False) -> Rule:
    """The rule as it is kept, where nothing is wrong with it; otherwise RuleError with the first thing that is."""
    wrong = complaint(rule, strict)
    if wrong:
        raise RuleError(f"{rule.source or 'rule'}: {rule.name}: {wrong.message}")
    return unify(rule)


def complaint(rule: Rule, strict: bool = False) -> Complaint | None:
    """The first thing that is wrong with a rule, or None. ``strict`` also wants a reason and a family."""
    return next(_complaints(rule, strict), None)


def unify(rule: Rule) -> Rule:
    """The rule with each variable marked optional or starred everywhere, where it is so anywhere."""
    marked: dict[str, VarPattern] = {}
    for term in (*rule.lhs, *rule.rhs):
        for part in _parts(term):
            if isinstance(part, VarPattern):
                old = marked.get(part.name, part)
                marked[part.name] = VarPattern(part.name, old.optional or part.optional, old.starred or part.starred)
    lhs, rhs = (tuple(_mark(t, marked) for t in side) for side in (rule.lhs, rule.rhs))
    return replace(rule, lhs=lhs, rhs=rhs)


def _mark(term: Term, marked: dict[str, VarPattern]) -> Term:
    match term:
        case VarPattern(name):
            return marked[name]
        case CallPattern(inputs=inputs):
            return replace(term, inputs=tuple(_mark(t, marked) for t in inputs))
        case AnyOf(options):
            return AnyOf(tuple(_mark(t, marked) for t in options))
    return term


@cache
def named_inputs(op: str) -> dict[str, int]:
    """Where the inputs of an op stand that can be given by name, as attributes are (``Clip(x, max=6.0)``)."""
    schema = None if op[0].islower() else ops.schema(op)
    if schema is None:
        return {}
    return {formal.name: i for i, formal in enumerate(schema.inputs) if formal.name not in schema.defaults}


def place(call: CallPattern) -> CallPattern:
    """The call with what was given by the name of an input at that input's place. RuleError where it is given twice."""
    places = named_inputs(call.op) if call.attrs else {}
    named = {name: as_term(e) for name, e in call.attrs if name in places}
    if not named:
        return call
    return replace(
        call,
        inputs=placed(call.inputs, {places[name]: term for name, term in named.items()}),
        attrs=tuple(a for a in call.attrs if a[0] not in named),
    )


def placed(inputs: tuple[Term, ...], named: dict[int, Term]) -> tuple[Term, ...]:
    """Inputs with more of them at their places, and what is missing between absent."""
    terms = [*inputs, *[ABSENT] * (max(named, default=-1) + 1 - len(inputs))]
    for index, term in named.items():
        if index < len(inputs) and inputs[index] != ABSENT:
            raise RuleError(f"input {index} is given twice: at its place and by its name")
        terms[index] = term
    return tuple(terms)


def as_term(expr: GuardExpr) -> Term:
    """An expression where a term stands: a name is a variable, numbers are a literal, anything else is computed."""
    match expr:
        case NameRef(name):
            return VarPattern(name)
        case Lit(int() | float() as value):
            return Literal(value)
        case Series(items) if all(isinstance(i, Lit) and isinstance(i.value, int | float) for i in items):
            return Literal(tuple(i.value for i in items))  # type: ignore[union-attr, arg-type]
    return Computed(expr)


@dataclass(frozen=True)
class BoundNames:
    """What the left side of a rule binds."""

    operands: frozenset[str]
    attrs: frozenset[str]
    heads: frozenset[str]
    rests: frozenset[str]
    starred: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        """Every name that an expression may use."""
        return self.operands | self.attrs | self.heads | self.rests


def bound(terms: tuple[Term, ...]) -> BoundNames:
    """What patterns bind."""
    parts = [p for t in terms for p in _parts(t)]
    calls_ = [c for c in parts if isinstance(c, CallPattern)]
    variables_ = [v for v in parts if isinstance(v, VarPattern) and v.name != "_"]
    return BoundNames(
        frozenset(v.name for v in variables_) | frozenset(c.name for c in calls_ if c.name),
        frozenset(e.name for c in calls_ for _, e in c.attrs if isinstance(e, NameRef) and e.name not in SETS),
        frozenset(c.op for c in calls_ if c.is_variable),
        frozenset(c.rest for c in calls_ if c.rest),
        frozenset(v.name for v in variables_ if v.starred)
        | frozenset(c.name for c in calls_ if c.name and any(v.starred for v in variables(c))),
    )


def _complaints(rule: Rule, strict: bool) -> Iterator[Complaint]:
    names = bound(rule.lhs)
    yield from _head(rule, strict)
    yield from _depths(rule)
    yield from _clashes(rule.lhs, names)
    for term in (*rule.lhs, *rule.rhs):
        for part in _parts(term):
            if isinstance(part, CallPattern):
                yield from _call(part)
    for term in rule.lhs:
        yield from _pattern(term)
    for term in rule.rhs:
        yield from _replacement(term, names)
    for expr in _expressions(rule):
        for inner in subexpressions(expr):
            yield from _expression(inner, names)


def _head(rule: Rule, strict: bool) -> Iterator[Complaint]:
    if strict and not rule.reason:
        yield Complaint(None, "expected a reason: a sentence in the comment above the rule")
    if strict and not rule.family:
        yield Complaint(None, "expected a family in brackets before the soundness class, such as [H8]")
    for family in filter(None, rule.family.split(",")):
        number = family[1:]
        if not number.isdigit() or not 1 <= int(number) <= FAMILIES.get(family[0], 0):
            yield Complaint(None, f"expected a family from A1 to Q16, found '{family}'")
    if len(rule.lhs) != len(rule.rhs):
        yield Complaint(
            rule.rhs[0], f"expected as many terms on the right as on the left: {len(rule.lhs)}, found {len(rule.rhs)}"
        )
    for root in rule.lhs:
        if not all(isinstance(t, CallPattern) for t in (root.options if isinstance(root, AnyOf) else (root,))):
            yield Complaint(root, "expected an op on the left, `Op(...)`: a variable alone matches every value")


def _depths(rule: Rule) -> Iterator[Complaint]:
    for part in (*rule.lhs, *rule.rhs, *_expressions(rule)):
        if _depth(part) > DEEPEST:
            yield Complaint(part, f"this is nested more than {DEEPEST} deep")


def _depth(part: Term | GuardExpr) -> int:
    inside: tuple[Term | GuardExpr | None, ...] = ()
    match part:
        case CallPattern(inputs=terms) | AnyOf(options=terms):
            inside = terms
        case Field(of) | Each(of):
            inside = (of,)
        case IndexExpr(of, index, stop):
            inside = (of, index, stop)
        case FunctionCall(arguments=items) | Series(items):
            inside = items
    return 1 + max((_depth(p) for p in inside if p is not None), default=0)


def _clashes(lhs: tuple[Term, ...], names: BoundNames) -> Iterator[Complaint]:
    kinds = {"an operand": names.operands, "an attribute": names.attrs, "an op": names.heads, "`**`": names.rests}
    for part in (p for t in lhs for p in _parts(t)):
        for name in _own_names(part):
            used = [kind for kind, members in kinds.items() if name in members]
            if len(used) > 1:
                yield Complaint(part, f"`{name}` is bound as {' and '.join(used)}: give one of them another name")
            if (name in SETS or name == "opset") and name not in names.rests:
                yield Complaint(part, f"`{name}` is a name that guards use: give the variable another one")


def _own_names(part: Term) -> list[str]:
    """The names that a term itself binds."""
    match part:
        case VarPattern(name):
            return [name]
        case CallPattern(op=op, name=name, rest=rest):
            attributes = [e.name for _, e in part.attrs if isinstance(e, NameRef)]
            return [n for n in (name, rest, *attributes, op if part.is_variable else None) if n]
    return []


def _call(call: CallPattern) -> Iterator[Complaint]:
    if call.is_variable:
        return
    schema = ops.schema(call.op)
    if schema is None:
        if "::" not in call.op:
            yield Complaint(call, f"unknown op {call.op}{nearest(call.op, ops.names())}")
        return
    for item in call.attrs:
        if item[0] not in schema.defaults:
            attributes = sorted(schema.defaults)
            hint = nearest(item[0], attributes) or f"; it has {', '.join(attributes) or 'none'}"
            yield Complaint(item, f"{call.op} has no attribute {item[0]}{hint}")
    if schema.max_inputs is not None and len(call.inputs) > schema.max_inputs:
        several = "inputs" if schema.max_inputs != 1 else "input"
        yield Complaint(call, f"{call.op} takes at most {schema.max_inputs} {several}, found {len(call.inputs)}")
    if schema.max_outputs is not None and call.output >= schema.max_outputs:
        yield Complaint(call, f"{call.op} has no output {call.output}: it has at most {schema.max_outputs}")


def _pattern(term: Term) -> Iterator[Complaint]:
    for part in _parts(term):
        if isinstance(part, Computed):
            yield Complaint(part, "a computed constant can stand on the right only")
        if isinstance(part, AnyOf):
            sets = [bound((option,)).all for option in part.options]
            if any(s != sets[0] for s in sets):
                odd = sorted(frozenset.union(*sets) - frozenset.intersection(*sets))
                yield Complaint(
                    part.options[0], f"`{odd[0]}` is not bound by all alternatives: they must bind the same"
                )


def _replacement(term: Term, names: BoundNames) -> Iterator[Complaint]:
    for part in _parts(term):
        match part:
            case VarPattern(name) if name != "_" and name not in names.operands:
                yield Complaint(part, f"`{name}` is not bound on the left{_or_nearest(name, names.operands)}")
            case CallPattern(op=op) if part.is_variable and op not in names.heads:
                yield Complaint(part, f"the op `{op}` is not bound on the left{_or_nearest(op, names.heads)}")
            case CallPattern(rest=str(rest)) if rest not in names.rests:
                yield Complaint(part, f"`**{rest}` is not bound on the left{_or_nearest(rest, names.rests)}")
            case Computed(like=str(like)) if like not in names.operands:
                yield Complaint(part, f"`{like}` is not bound on the left{_or_nearest(like, names.operands)}")
            case AnyOf():
                yield Complaint(part.options[0], "alternatives can stand on the left only")


def _expressions(rule: Rule) -> Iterator[GuardExpr]:
    """All expressions of a rule, but for the attribute variables that the left side binds."""
    for side, terms in ((0, rule.lhs), (1, rule.rhs)):
        for part in (p for t in terms for p in _parts(t)):
            if isinstance(part, CallPattern):
                yield from (e for _, e in part.attrs if side or not isinstance(e, NameRef))
            if isinstance(part, Computed):
                yield part.expr
    yield from rule.where


def _expression(expr: GuardExpr, names: BoundNames) -> Iterator[Complaint]:
    match expr:
        case NameRef(name):
            if name not in names.all and name not in SETS and name != "opset":
                yield Complaint(expr, f"`{name}` is not bound on the left{_or_nearest(name, names.all | SETS)}")
        case Field(of, name):
            if not (isinstance(of, NameRef) and of.name in names.heads | names.rests) and name not in FACTS:
                hint = nearest(f".{name}", [f".{f}" for f in FACTS]) or f"; facts are {', '.join(FACTS)}"
                yield Complaint(expr, f"unknown fact .{name}{hint}")
        case Each(body):
            if not any(isinstance(e, NameRef) and e.name in names.starred for e in subexpressions(body)):
                yield Complaint(expr, "`each` needs a starred variable in what follows it")
        case FunctionCall(function, arguments) if function not in LAZY:
            if function == "pays":
                yield Complaint(expr, "pays(...) goes around one whole guard, not around a part of it")
            elif function not in FUNCTIONS:
                yield Complaint(expr, f"unknown function {function}{nearest(function, FUNCTIONS)}")
            else:
                least, most = arity(function)
                if not least <= len(arguments) <= most:
                    wants = f"{least}" if least == most else f"at least {least}" if most > 99 else f"{least} to {most}"
                    noun = "argument" if wants.endswith(" 1") or wants == "1" else "arguments"
                    yield Complaint(expr, f"{function} takes {wants} {noun}, found {len(arguments)}")


def _parts(term: Term) -> Iterator[Term]:
    """The term and all terms in it."""
    yield term
    inside = term.inputs if isinstance(term, CallPattern) else term.options if isinstance(term, AnyOf) else ()
    for part in inside:
        yield from _parts(part)


def _or_nearest(name: str, bound: frozenset[str]) -> str:
    return nearest(name, bound) or f"; it binds {', '.join(sorted(bound - SETS)) or 'nothing'}"
