"""Proofs of rules whose ops act on each element alone: what is true of all numbers is true of all tensors.

Both sides have one type, and an elementwise op broadcasts its operands by the place of the element alone, so that it
is enough to look at one element: a variable is any number, a guard on bounds or values an assumption about it. A guard
that has no translation is left out, which only makes the claim harder to prove.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from graphopt.ir import ops
from graphopt.ir.dtypes import CODES
from graphopt.proof import solver
from graphopt.proof.solver import BITS, FLOATS, Answer, Unspoken, World
from graphopt.proof.solver import Term as Number
from graphopt.proof.typing import Dtypes
from graphopt.rewrite.checking.examples.pattern import variants
from graphopt.rewrite.guards import expressions, weights
from graphopt.rewrite.guards.functions import FUNCTIONS
from graphopt.rewrite.rule.rule import (
    CallPattern,
    Computed,
    Field,
    FunctionCall,
    GuardExpr,
    IndexExpr,
    Lit,
    Literal,
    NameRef,
    Rule,
    Series,
    Soundness,
    Term,
    VarPattern,
    calls,
    subexpressions,
)

SOLVABLE = "elementwise"
VIEWS = frozenset({"Squeeze", "Unsqueeze", "Reshape", "Expand"})
SMALLEST = frozenset({"float16", "int8", "uint8", "bool"})
"""Dtypes for which there must be a proof; others are named where there is one too."""
MILLISECONDS = 4000
"""How long one question may take; for IEEE floats of a rule that claims less, a quarter."""


@dataclass(frozen=True)
class Proof:
    """What came of proving a rule: ``ieee`` or ``reals``; else why not, and maybe a counterexample."""

    kind: str | None
    why: str = ""
    dtypes: tuple[str, ...] = ()
    counterexample: Counterexample | None = None
    work: int = 0


@dataclass(frozen=True)
class Counterexample:
    """Numbers on which both sides of a variant of a rule differ, as the solver has it."""

    rule: Rule
    numbers: dict[str, Any]
    dtypes: dict[str, str]


def prove(rule: Rule, milliseconds: int = MILLISECONDS) -> Proof:
    """The strongest proof of a rule: over IEEE floats, else over the reals if its class is content with that."""
    written = [v for variant in variants(rule) for v in headed(variant)]
    solver.forget()
    ways = (True, False) if rule.soundness in (Soundness.REALS, Soundness.APPROX) else (True,)
    proof = Proof(None)
    for is_ieee in ways:
        patience = milliseconds // 4 if is_ieee and len(ways) > 1 else milliseconds
        try:
            proof = _all(written, is_ieee, patience)
        except Unspoken as unspoken:
            proof = Proof(None, f"has no translation: {unspoken}")
        if proof.kind is not None:
            return replace(proof, work=solver.steps())
    return proof


def _all(written: list[Rule], is_ieee: bool, milliseconds: int) -> Proof:
    """The proof of all ways of writing a rule, in all dtypes."""
    seen: set[str] = set()
    doubtful: set[str] = set()
    for rule in written:
        types = Dtypes(rule)
        for dtypes in types.worlds():
            proof = _Claim(rule, types, dtypes, is_ieee).prove(milliseconds)
            if proof is None:
                continue
            if proof.status == "refuted":
                named = {k[1]: d for k, d in dtypes.items() if isinstance(k, tuple)}
                example = Counterexample(rule, proof.numbers, named)
                return Proof(None, "the solver has a counterexample", counterexample=example)
            if proof.status != "proved":
                if all(d in SMALLEST for d in dtypes.values()):
                    return Proof(None, f"the solver does not know ({', '.join(sorted(set(dtypes.values())))})")
                doubtful.update(d for d in dtypes.values() if d not in SMALLEST)
                milliseconds = milliseconds // 2
                continue
            seen.update(dtypes.values())
    if not seen:
        return Proof(None, "the solver does not know" if doubtful else "no dtypes fit the rule")
    kind = "ieee" if is_ieee or not seen & FLOATS.keys() else "reals"
    return Proof(kind, dtypes=tuple(sorted(seen - doubtful)))


def headed(rule: Rule) -> Iterator[Rule]:
    """The rule with its op variables written out, where guards name few ops; else once for any function at all."""
    names = [c.op for side in (*rule.lhs, *rule.rhs) for c in calls(side) if c.is_variable]
    for name in dict.fromkeys(names):
        for guard in rule.where:
            match guard:
                case FunctionCall("in", (NameRef(head), Series(items))) if head == name:
                    options = [str(i.value) for i in items if isinstance(i, Lit)]
                    for op in options:
                        yield from headed(_with_head(rule, name, op))
                    return
    yield rule


def _with_head(rule: Rule, name: str, op: str) -> Rule:
    def put(term: Term) -> Term:
        if not isinstance(term, CallPattern):
            return term
        return replace(term, op=op if term.op == name else term.op, inputs=tuple(map(put, term.inputs)))

    where = tuple(_decided(guard, name, op) for guard in rule.where)
    return replace(rule, lhs=tuple(map(put, rule.lhs)), rhs=tuple(map(put, rule.rhs)), where=where)


def _decided(guard: GuardExpr, name: str, op: str) -> GuardExpr:
    """A guard once it is known which op an op variable is."""
    match guard:
        case FunctionCall("in", (NameRef(head), Series(items))) if head == name:
            return Lit(op in [i.value for i in items if isinstance(i, Lit)])
        case FunctionCall("==" | "!=" as operator, (NameRef(head), Lit(str(value)))) if head == name:
            return Lit((op == value) == (operator == "=="))
        case FunctionCall("and" | "or" | "not", parts):
            return replace(guard, arguments=tuple(_decided(p, name, op) for p in parts))
    return guard


class _Claim:
    """One way of writing a rule, with dtypes for all its terms."""

    def __init__(self, rule: Rule, types: Dtypes, dtypes: dict[Hashable, str], is_ieee: bool) -> None:
        self.rule, self.types, self.dtypes = rule, types, dtypes
        self.world = World(is_ieee)
        self.attrs: dict[str, Any] = {}
        self.single = {
            g.arguments[0].of.name
            for g in rule.where
            if isinstance(g, FunctionCall) and g.function == "==" and isinstance(g.arguments[0], Field)
            and g.arguments[0].name == "size" and g.arguments[1] == Lit(1) and isinstance(g.arguments[0].of, NameRef)
        }  # fmt: skip
        self.named: dict[str, Number] = {}
        self.facts: list[Number] = []

    def prove(self, milliseconds: int) -> Answer | None:
        """What the solver says; None where the guards do not admit these dtypes."""
        if self._is_excluded():
            return None
        try:
            left = [self.term(t) for t in self.rule.lhs]
        except _Impossible:
            return None
        except Unspoken:
            if self._is_excluded():  # by an attribute that is known by now
                return None
            raise
        defined = self._taken()
        assumptions = list(defined)
        for guard in self.rule.where:
            try:
                condition = _Guard(self).truth(guard)
            except Unspoken:
                continue
            if condition is False:
                return None
            if condition is not True:
                assumptions.append(condition)
        if self.rule.soundness is Soundness.FINITE or not self.world.is_ieee:
            assumptions += [self.world.is_finite(v) for v, _ in self.world.variables.values()]
        self._taken()
        right = [self.term(t) for t in self.rule.rhs]
        needed = self._taken()
        assumptions += self.facts
        if not self.world.possible(assumptions, milliseconds):
            return None
        return self.world.prove(assumptions, list(zip(left, right, strict=True)), needed, milliseconds)

    def _is_excluded(self) -> bool:
        """Whether a guard does not admit these dtypes, whatever the numbers are."""
        for guard in self.rule.where:
            try:
                if _Guard(self).truth(guard) is False:
                    return True
            except Unspoken:
                continue
        return False

    def _taken(self) -> list[Number]:
        defined, self.world.defined = self.world.defined, []
        return defined

    def dtype(self, term: Term) -> str:
        """The dtype of a term here."""
        return self.dtypes[self.types.key(term)]

    def term(self, term: Term) -> Number:
        """One element of what the term is."""
        match term:
            case VarPattern("_"):
                return None
            case VarPattern(name) if name in self.named:
                return self.named[name]
            case VarPattern(name, _, False):
                return self.world.variable(name, self.dtype(term))
            case Literal(value) if not isinstance(value, tuple):
                dtype = self.dtype(term)
                if (dtype == "bool") != isinstance(value, bool) or not _is_one(value, dtype):
                    raise _Impossible
                return self.world.number(value, dtype)
            case Computed(expr):
                return self._computed(expr, self.dtype(term))
            case CallPattern():
                return self._call(term)
        raise Unspoken(f"the term {term}")

    def _computed(self, expr: GuardExpr, dtype: str) -> Number:
        value = _Guard(self).value(expr)
        if isinstance(value, int | float):
            return self.world.number(value, dtype)
        if isinstance(value, tuple):
            raise Unspoken("a constant of several elements")
        return self.world.narrow(value, dtype) if self.world.is_whole(value) else value

    def _call(self, call: CallPattern) -> Number:
        if call.op in VIEWS and isinstance(call.inputs[0], VarPattern) and call.inputs[0].name in self.single:
            return self.term(call.inputs[0])  # one number in other brackets
        if call.op == "Expand" and isinstance(call.inputs[0], Literal | Computed):
            return self.term(call.inputs[0])  # one number, however often
        if call.output or (not call.is_variable and call.op not in ops.KINDS[SOLVABLE]):
            raise Unspoken(f"{call.op} does not act on each element alone")
        inputs = [self.term(t) for t in call.inputs]
        attrs = {name: self._attr(call, name, expr) for name, expr in call.attrs}
        if call.rest is not None and call.op not in ("Cast", "CastLike"):
            attrs["rest"] = call.rest
        result = self.dtype(call)
        source = self.dtype(call.inputs[0]) if call.inputs else result
        if call.is_variable:
            result_symbol = self.world.unknown(call.op, attrs, inputs, result)
        else:
            if "rest" in attrs and _has_attributes(call.op):
                raise Unspoken(f"attributes of {call.op}")
            result_symbol = self.world.apply(call.op, attrs, inputs, source, result)
        if call.name is not None:
            self.named[call.name] = result_symbol
        return result_symbol

    def _attr(self, call: CallPattern, name: str, expr: GuardExpr) -> Any:
        if call.op == "Cast" and name == "to":
            code = CODES[self.dtype(call)]
            if isinstance(expr, NameRef) and self.attrs.setdefault(expr.name, code) != code:
                raise _Impossible
            return code
        if isinstance(expr, NameRef) and expr.name not in self.attrs:
            schema = ops.schema(call.op)
            default = schema.defaults.get(name) if schema else None
            if not isinstance(default, float):
                self.attrs[expr.name] = f"any {expr.name}"
            elif self.world.is_ieee:
                self.attrs[expr.name] = self.world.variable(expr.name, "float32")
            else:
                self.attrs[expr.name] = self.world.variable(expr.name, "float32")
        value = _Guard(self).value(expr)
        return self.world.real(value) if isinstance(value, int | float) and not self.world.is_ieee else value


def _has_attributes(op: str) -> bool:
    schema = ops.schema(op)
    return schema is not None and bool(schema.defaults)


def _is_one(value: float, dtype: str) -> bool:
    """Whether a number is one of the dtype's."""
    if dtype not in BITS:
        return True
    least = -(1 << (BITS[dtype] - 1)) if dtype[0] == "i" else 0
    return isfinite(value) and int(value) == value and least <= value < least + (1 << BITS[dtype])


class _Impossible(Exception):  # noqa: N818 - not an error: other dtypes are tried
    """The left side cannot have these dtypes."""


class _Guard:
    """Translates expressions: to Python's values where they are known, else to the solver's."""

    def __init__(self, claim: _Claim) -> None:
        self.claim, self.world = claim, claim.world

    def truth(self, guard: GuardExpr) -> Any:
        """A guard as an assumption, or whether it holds in any case."""
        # Structural recursion over the guard with partial evaluation: what Python decides becomes True or False, the
        # rest a term of the solver (SMT-LIB's core theory). A conjunct without translation is dropped, which only
        # weakens the assumptions; anywhere else it ends the proof (Unspoken).
        match guard:
            case FunctionCall("and", parts):
                conditions = []
                for part in parts:
                    try:
                        conditions.append(self.truth(part))
                    except Unspoken:
                        continue
                if False in [m for m in conditions if isinstance(m, bool)]:
                    return False
                return self._all([m for m in conditions if not isinstance(m, bool)])
            case FunctionCall("or", parts):
                options = [o for p in parts if (o := self.truth(p)) is not False]
                if any(o is True for o in options):
                    return True
                rest = [o for o in options if not isinstance(o, bool)]
                return self._any(rest) if rest else False
            case FunctionCall("all", (FunctionCall("flat", (Field(NameRef(), "value") as elements,)),)):
                return self.value(elements)
            case FunctionCall(
                "not", (FunctionCall("any", (FunctionCall("flat", (Field(NameRef(), "value") as elements,)),)),)
            ):
                return self.world.apply("Not", {}, [self.value(elements)], "bool", "bool")
            case FunctionCall("not", (FunctionCall("and" | "or" as junction, parts),)):
                # a conjunct that is left out makes its negation stronger: negations go to the parts first
                negated = tuple(FunctionCall("not", (p,)) for p in parts)
                return self.truth(FunctionCall("or" if junction == "and" else "and", negated))
            case FunctionCall("not", (part,)):
                inner = self.truth(part)
                return not inner if isinstance(inner, bool) else inner == self.world.number(False, "bool")
            case FunctionCall("==" | "!=" | "<" | "<=" | ">" | ">=" as operator, (left, right)):
                return self.comparison(operator, left, right)
            case FunctionCall("in", (Field(NameRef(name), "dtype"), container)):
                dtype = self.value(Field(NameRef(name), "dtype"))
                if isinstance(container, NameRef) and container.name in expressions.SETS:
                    return dtype in expressions.named_set(container.name)
                if isinstance(container, Series):
                    return dtype in [i.value for i in container.items if isinstance(i, Lit)]
            case FunctionCall("near", (left, right, *_)):
                return self.comparison("==", left, right)
            case FunctionCall("holds_numbers", (Field(NameRef(), "dtype") as of, *numbers)):
                return self._hold(str(self.value(of)), [self.value(n) for n in numbers])
            case FunctionCall("bounded", _):
                if not self.world.is_ieee:
                    return True
            case FunctionCall(
                "lossless", (Field(NameRef(), "dtype") as source, FunctionCall("dtype", (NameRef(code),)))
            ) if code in self.claim.attrs:
                return bool(weights.lossless(self.value(source), weights.dtype(self.claim.attrs[code])))
            case Lit(bool(value)):
                return value
        raise Unspoken("a guard")

    def _hold(self, dtype: str, numbers: list[Any]) -> Any:
        """That numbers are far from overflow in a dtype of integers."""
        if dtype not in BITS or not all(isinstance(n, int) or self.world.is_whole(n) for n in numbers):
            raise Unspoken("what a dtype holds")
        return self._all([self.world.is_far_from_overflow(n, dtype) for n in numbers])

    def _all(self, parts: list[Any]) -> Any:
        return True if not parts else parts[0] if len(parts) == 1 else parts[0] & _joined(parts[1:], True)

    def _any(self, parts: list[Any]) -> Any:
        return parts[0] if len(parts) == 1 else _joined(parts, False)

    def comparison(self, operator: str, left: GuardExpr, right: GuardExpr) -> Any:
        """A comparison of two values."""
        a, b = self.value(left), self.value(right)
        if isinstance(a, int | float | str) and isinstance(b, int | float | str):
            return {"==": a == b, "!=": a != b}.get(operator) if isinstance(a, str) else _compare(operator, a, b)
        if isinstance(a, str) or isinstance(b, str) or isinstance(a, tuple) or isinstance(b, tuple):
            raise Unspoken("a comparison")
        dtype = self._dtype_of(left) or self._dtype_of(right) or "float32"
        if dtype in BITS:
            return self.world.compare(operator, a, b, dtype)
        a, b = (self._number(v, dtype) for v in (a, b))
        if operator in (">", ">="):
            a, b = b, a
        if operator in ("<", ">"):
            return self.world.less(a, b, dtype)
        if operator in ("<=", ">="):
            return self.world.at_most(a, b, dtype)
        equal = self.world.apply("Equal", {}, [a, b], dtype, "bool")
        return equal if operator == "==" else self.world.apply("Not", {}, [equal], "bool", "bool")

    def _number(self, value: Any, dtype: str) -> Number:
        return self.world.number(value, dtype) if isinstance(value, int | float) else value

    def _dtype_of(self, expr: GuardExpr) -> str | None:
        for part in subexpressions(expr):
            if isinstance(part, Field) and isinstance(part.of, NameRef):
                return self.claim.dtypes.get(("variable", part.of.name))
        return None

    def value(self, expr: GuardExpr) -> Any:
        """The value of an expression."""
        match expr:
            case Lit(value):
                return value
            case NameRef(name) if name in self.claim.attrs:
                return self.claim.attrs[name]
            case Field(NameRef(name), fact) if ("variable", name) in self.claim.dtypes:
                return self._fact(name, fact)
            case FunctionCall("neg", (part,)):
                value = self.value(part)
                return -value if isinstance(value, int | float) else self._arithmetic("*", -1, value)
            case FunctionCall("+" | "-" | "*" | "/" | "%" as operator, (left, right)):
                return self._arithmetic(operator, self.value(left), self.value(right))
            case IndexExpr(Field(NameRef(name), "value") as of, Lit(0), None):
                return self.value(Field(of.of, "scalar"))
        raise Unspoken("an expression")

    def _arithmetic(self, operator: str, a: Any, b: Any) -> Any:
        if isinstance(a, int | float) and isinstance(b, int | float):
            if operator == "/" and b == 0:
                raise Unspoken("a division by zero")
            return FUNCTIONS[operator](a, b)
        if isinstance(a, str | tuple) or isinstance(b, str | tuple):
            raise Unspoken("arithmetic of what is no number")
        if self.world.is_whole(a) or self.world.is_whole(b):
            return self.world.exactly(operator, a, b)
        if self.world.is_ieee:
            raise Unspoken("arithmetic in double precision")
        left, right = self.world.real(a), self.world.real(b)
        if operator == "/":
            return self.world.quotient(left, right)
        return {"+": left + right, "-": left - right, "*": left * right}[operator]

    def _fact(self, name: str, fact: str) -> Any:
        dtype = self.claim.dtypes["variable", name]
        if fact == "dtype":
            return dtype
        variable = self.world.variable(name, dtype)
        if fact in ("scalar", "value"):
            return variable
        if fact in ("low", "high"):
            low, high = (self.world.variable(f"{name}.{side}", dtype) for side in ("low", "high"))
            self.claim.facts.append(self.world.between(variable, dtype, low, high))
            self.claim.facts.append(self.world.at_most(low, high, dtype))
            return low if fact == "low" else high
        raise Unspoken(f"{name}.{fact}")


def _compare(operator: str, a: Any, b: Any) -> bool:
    table = {"==": a == b, "!=": a != b, "<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}
    return bool(table[operator])


def _joined(parts: list[Any], is_and: bool) -> Any:
    whole = parts[0]
    for part in parts[1:]:
        whole = whole & part if is_and else whole | part
    return whole
