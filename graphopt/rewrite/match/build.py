"""Instantiation of right sides, for the graph and for the e-graph alike.

Bottom-up, each new term's type is inferred and checked against ``onnx.defs`` at the model's opset
before it is made; at the end each root's type must provably equal the left side's. That one check
stands behind every guard: what cannot be shown to fit is refused, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any, Generic, TypeAlias, TypeVar

import ml_dtypes
import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import infer, ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, Attrs, Graph, trimmed
from graphopt.ir.op_table import OPS
from graphopt.ir.types import TensorType
from graphopt.rewrite.guards import expressions
from graphopt.rewrite.guards.bindings import Bindings, Builder, is_several
from graphopt.rewrite.rule.rule import (
    AnyOf,
    CallPattern,
    Computed,
    GuardExpr,
    Literal,
    Rule,
    Term,
    VarPattern,
    by_identity,
)

H = TypeVar("H", bound=Hashable)


class Refused(Exception):  # noqa: N818 - a right side that does not fit is no error
    """The right side does not fit here; the message says why. ``opset`` is the first that has what this one lacks."""

    def __init__(self, why: str, opset: int | None = None) -> None:
        super().__init__(why)
        self.opset = opset


def build(
    term: Term, bindings: Bindings[H], builder: Builder[H], n_outputs: int | None = None
) -> H | tuple[H, ...] | None:
    """The value that a right side makes: a tuple for a family of terms or where ``n_outputs`` are asked for.

    Raises Refused where the term does not fit; nodes made until then stay with the builder.
    """
    return _Instantiation(_RightSidePlan((term,)), bindings, builder).root(term, n_outputs, None)


def replacements(rule: Rule, bindings: Bindings[H], roots: Sequence[H], builder: Builder[H]) -> list[H]:
    """What takes the place of each root, in order.

    Raises Refused where the right side does not fit, or a type is not provably the left side's.
    """
    site = _Instantiation(_plan(rule.rhs), bindings, builder)
    values: list[H] = []
    for left, right in zip(rule.lhs, rule.rhs, strict=True):
        families = family(left, bindings) if site.several else ()  # a star without a value stands for none
        n = _length(families, bindings) if families else None
        dtype = builder.fact(roots[len(values)]).dtype
        result = site.root(right, n, dtype)
        family_values = result if is_several(result) and n is not None else (result,)
        if None in family_values or len(family_values) != (1 if n is None else n):
            raise Refused(f"{rule.name} makes {len(family_values)} values for {n or 1} roots")
        values.extend(family_values)
    for root, value in zip(roots, values, strict=True):
        wanted, actual = builder.fact(root).type, builder.fact(value).type
        if wanted is None or wanted != actual:
            raise Refused(
                f"the right side is {actual or 'of unknown type'}, the left side {wanted or 'of unknown type'}"
            )
    return values


def family(term: Term, bindings: Bindings[Any] | None = None) -> tuple[str, ...]:
    """The starred variables that make the term a family of terms: those that no variadic op takes in.

    Where there are bindings, they say which names stand for several values.
    """
    return _stars(term) if bindings is None else _family(term, bindings)


@by_identity
def _stars(term: Term) -> tuple[str, ...]:
    return _family(term, None)


def _family(term: Term, bindings: Bindings[Any] | None) -> tuple[str, ...]:
    match term:
        case VarPattern(name, _, starred):
            if bindings is not None and name in bindings.values:
                starred = is_several(bindings.values[name])
            return (name,) if starred else ()
        case CallPattern(inputs=inputs):
            start = _variadic(term)
            fixed = inputs if start is None else inputs[:start]
            return tuple(dict.fromkeys(n for t in fixed for n in _family(t, bindings)))
        case AnyOf(options=options):
            return tuple(dict.fromkeys(n for t in options for n in _family(t, bindings)))
        case _:
            return ()


def element(bindings: Bindings[H], names: Sequence[str], index: int) -> Bindings[H]:
    """The bindings of one term of a family: each starred variable stands for its value number ``index``."""
    one = bindings.copy()
    for name in names:
        value = one.values[name]
        if is_several(value):
            one.values[name] = value[index]
    return one


def _variadic(call: CallPattern) -> int | None:
    return None if call.is_variable else ops.variadic_input(call.op)


def _length(names: Sequence[str], bindings: Bindings[Any]) -> int:
    lengths = {len(v) for n in names if is_several(v := bindings.values.get(n))}
    if len(lengths) != 1:
        raise Refused(f"{' and '.join(names)} do not stand for equally many values")
    return lengths.pop()


class _RightSidePlan:
    """Which calls of right sides are equal, so that they are made once, and how many outputs are asked of each.

    Made once for each rule: to hash a term takes as long as to build it.
    """

    def __init__(self, terms: Sequence[Term]) -> None:
        self.terms = terms
        self.outputs: dict[int, int] = {}
        self._numbers: dict[CallPattern, int] = {}
        self._by_identity: dict[int, int] = {}
        for call in (c for t in terms for c in _all_calls(t)):
            number = self._by_identity[id(call)] = self.number(call)
            self.outputs[number] = max(self.outputs.get(number, 1), call.output + 1)

    def number(self, call: CallPattern) -> int:
        """The number that calls have in common which differ in nothing but the choice of an output."""
        number = self._by_identity.get(id(call))
        return self._numbers.setdefault(_plain(call), len(self._numbers)) if number is None else number


_plan: Callable[[Sequence[Term]], _RightSidePlan] = by_identity(_RightSidePlan)
"""The plan of these very terms."""


Inferred: TypeAlias = "dict[tuple[str, Attrs, tuple[int, ...], int], tuple[Sequence[Fact | None], Any]]"
"""What was inferred of calls, or why they do not fit: by op, attributes, the identity of the facts of their inputs
(which are kept with it), and the number of outputs."""


@dataclass(frozen=True, slots=True)
class _Misfit:
    """Why a call does not fit, and the first opset of which that is not true, where the model's stands in the way."""

    why: str
    opset: int | None = None


def _infer(
    op: str, exact: Attrs, attrs: Attrs, facts: Sequence[Fact | None], count: int, opset: int
) -> tuple[Fact, ...] | _Misfit:
    """What is known of the outputs of a call, or why it does not fit."""
    reason = ops.refusal(op, attrs, facts, opset)
    if reason is not None:
        newer = (n for n in range(opset + 1, ops.LATEST + 1) if ops.refusal(op, attrs, facts, n) is None)
        return _Misfit(reason, next(newer, None))
    reason = _lacking(op, facts) or _rounded(exact, facts)
    if reason is not None:
        return _Misfit(reason)
    try:
        return infer.infer_node(op, attrs, facts, count, opset)
    except GraphoptError as error:
        return _Misfit(str(error))


class _Instantiation(Generic[H]):
    """One place where right sides are built; equal terms are made once."""

    def __init__(self, plan: _RightSidePlan, bindings: Bindings[H], builder: Builder[H]) -> None:
        self.bindings = bindings
        self.builder = builder
        self.plan = plan
        self.several = any(map(is_several, bindings.values.values()))
        self.outputs = dict(plan.outputs)
        self.inferred: Inferred = getattr(builder, "inferred", {})  # an e-graph keeps it: there, equal calls are many
        self.instances: dict[tuple[int, int | None], tuple[H, ...]] = {}

    def root(self, term: Term, n: int | None, dtype: str | None) -> H | tuple[H, ...] | None:
        """The value of a root; with ``n``, that many: one for each term of a family, or the outputs of one call."""
        if n is None or not isinstance(term, CallPattern) or family(term, self.bindings):
            return self.term(term, self.bindings, None, dtype)
        if _spreads(term):
            return self.call(term, self.bindings, None, dtype, n)
        # Squeeze(Split(x)): one Squeeze for each output of the Split
        for call in filter(_spreads, _all_calls(term)):
            self.outputs[self.plan.number(call)] = n
        parts: list[Any] = [self.term(_with_output(term, i), self.bindings, None, dtype) for i in range(n)]
        return tuple(parts)

    def term(self, term: Term, bindings: Bindings[H], index: int | None, dtype: str | None) -> H | tuple[H, ...] | None:
        names = family(term, bindings) if self.several else ()
        if names and not isinstance(term, VarPattern):
            length = _length(names, bindings)
            parts: list[Any] = [self.term(term, element(bindings, names, i), i, dtype) for i in range(length)]
            return tuple(parts)
        match term:
            case VarPattern("_"):
                return None
            case VarPattern(name):
                if name not in bindings.values:
                    raise Refused(f"{name} is not bound by the left side")
                return bindings.values[name]
            case Literal(value):
                return self.builder.make_constant(constant_of(value, dtype))
            case Computed(expr, like):
                return self.computed(expr, like, bindings, dtype)
            case CallPattern():
                return self.call(term, bindings, index, dtype)[term.output]
            case AnyOf():
                raise Refused("alternatives stand only in left sides")

    def computed(self, expr: GuardExpr, like: str | None, bindings: Bindings[H], dtype: str | None) -> H:
        if like is not None:
            operand: Any = bindings.values.get(like)
            if operand is None or is_several(operand):
                raise Refused(f"{like} does not stand for one value")
            dtype = self.builder.fact(operand).dtype
            if dtype is None:
                raise Refused(f"the dtype of {like} is not known")
        value = self.evaluate(expr, bindings)
        return self.builder.make_constant(constant_of(value, dtype))

    def evaluate(self, expr: GuardExpr, bindings: Bindings[H]) -> object:
        try:
            return expressions.evaluate(expr, bindings, self.builder)
        except expressions.Unknown as unknown:
            raise Refused(str(unknown)) from unknown

    def call(
        self, call: CallPattern, bindings: Bindings[H], index: int | None, dtype: str | None, n: int | None = None
    ) -> tuple[H, ...]:
        """All outputs of a call."""
        key = (self.plan.number(call), index)
        if key in self.instances:
            return self.instances[key]
        op, exact = self.head(call, bindings)
        attrs = ops.canonical(op, exact)
        inputs = self.inputs(call, op, bindings, index, dtype)
        facts_of_inputs = [None if v is None else self.builder.fact(v) for v in inputs]
        count = n or _n_outputs(op, attrs, facts_of_inputs) or self.outputs.get(key[0], 1)
        table = self.inferred
        signature = (op, exact, tuple(map(id, facts_of_inputs)), count)
        if signature not in table:
            table[signature] = facts_of_inputs, _infer(op, exact, attrs, facts_of_inputs, count, self.builder.opset)
        facts = table[signature][1]
        if isinstance(facts, _Misfit):
            raise Refused(facts.why, facts.opset)
        outputs = self.builder.call(op, inputs, attrs, facts)
        self.instances[key] = outputs
        return outputs

    def head(self, call: CallPattern, bindings: Bindings[H]) -> tuple[str, Attrs]:
        """The op and its attributes, as the rule computes them."""
        op, attrs = call.op, Attrs()
        if call.is_variable:
            if op not in bindings.heads:
                raise Refused(f"op {op} is not bound by the left side")
            op, attrs = bindings.heads[op].op, bindings.heads[op].attrs
        if call.rest is not None:
            rest = bindings.attrs.get(call.rest)
            attrs = attrs.with_(**rest) if isinstance(rest, Attrs) else attrs
        explicit = {name: attribute_value(op, name, self.evaluate(e, bindings)) for name, e in call.attrs}
        return op, attrs.with_(**explicit)

    def inputs(
        self, call: CallPattern, op: str, bindings: Bindings[H], index: int | None, dtype: str | None
    ) -> tuple[H | None, ...]:
        """The inputs in order; numbers last, since their neighbours give them their dtype."""
        parts: list[Any] = [None] * len(call.inputs)
        numbers: list[int] = []
        for i, term in enumerate(call.inputs):
            if isinstance(term, Literal | Computed):
                numbers.append(i)
            else:
                same = ops.input_constraint(op, i) == ops.output_constraint(op, 0)
                parts[i] = self.term(term, bindings, index, dtype if same else None)
        dtypes = [
            None if p is None or p == () else self.builder.fact(p[0] if is_several(p) else p).dtype for p in parts
        ]
        for i in numbers:
            wanted = _dtype_of_input(op, i, dtypes, dtype)
            if wanted is None and _is_float(call.inputs[i]):
                wanted = next((d for d in dtypes if d in _FLOATS), None)
            parts[i] = self.term(call.inputs[i], bindings, index, wanted)
        values: list[H | None] = []
        for part in parts:
            values.extend(part) if is_several(part) else values.append(part)
        return trimmed(op, values)


def _lacking(op: str, inputs: Sequence[Fact | None]) -> str | None:
    """Why a call would be valid ONNX that runtimes cannot run, or None."""
    row = OPS.get(op)
    data = inputs[row.data] if row is not None and row.data < len(inputs) else None
    if row is None or data is None or data.dtype not in row.lacks.split():
        return None
    return f"ONNX Runtime has no {op} of {data.dtype}"


def _rounded(attrs: Attrs, inputs: Sequence[Fact | None]) -> str | None:
    """Why an attribute would cost data in double precision its digits, or None: ONNX stores single precision."""
    if not any(f is not None and f.dtype == "float64" for f in inputs):
        return None
    with np.errstate(over="ignore"):
        for name, value in attrs.items():
            if isinstance(value, float) and isfinite(value) and float(np.float32(value)) != value:
                return f"{name}={value} would be rounded to single precision"
    return None


def _all_calls(term: Term) -> list[CallPattern]:
    return [term, *(c for t in term.inputs for c in _all_calls(t))] if isinstance(term, CallPattern) else []


def _plain(call: CallPattern) -> CallPattern:
    """The call without the choice of an output, so that several outputs of one call are seen to be that."""
    return replace(call, output=0, name=None)


def _spreads(call: CallPattern) -> bool:
    """Whether the op makes any number of outputs."""
    return not call.is_variable and ops.schema(call.op) is not None and ops.max_outputs(call.op) is None


def _with_output(term: Term, index: int) -> Term:
    """The term in which each call that makes any number of outputs stands for output ``index``."""
    if not isinstance(term, CallPattern):
        return term
    if _spreads(term):
        return replace(term, output=index)
    return replace(term, inputs=tuple(_with_output(t, index) for t in term.inputs))


def _n_outputs(op: str, attrs: Attrs, inputs: Sequence[Fact | None]) -> int | None:
    """How many outputs the op has where its operands say so."""
    if op != "Split":
        return None
    sizes = inputs[1] if len(inputs) > 1 else None
    if sizes is not None and sizes.shape and isinstance(sizes.shape[0], int):
        return sizes.shape[0]
    given = attrs.get("num_outputs")
    return given if isinstance(given, int) else None


def _dtype_of_input(op: str, index: int, dtypes: Sequence[str | None], output: str | None) -> str | None:
    """The dtype that the schema's type constraints give a number at an input, from its neighbours or the output."""
    letter = ops.input_constraint(op, index)
    if letter.startswith("tensor("):
        return ops.dtype_name(letter)
    for i, dtype in enumerate(dtypes):
        if i != index and dtype is not None and ops.input_constraint(op, i) == letter:
            return dtype
    schema = ops.schema(op)
    if schema is not None and "int64" in schema.allowed.get(letter, ()) and "float32" not in schema.allowed[letter]:
        return "int64"
    if letter and output is not None and ops.output_constraint(op, 0) == letter:
        return output
    return None


def _is_float(term: Term) -> bool:
    """Whether a number may be a float: a literal that is one, or a constant that is yet to be computed."""
    return isinstance(term, Computed) or (isinstance(term, Literal) and isinstance(term.value, float))


_FLOATS = ("float16", "bfloat16", "float32", "float64")


_constants: dict[tuple[str, str | None], Constant] = {}


def constant_of(value: object, dtype: str | None) -> Constant:
    """A number, or nested sequences of numbers, as a constant of that dtype.

    ``dtype`` None means what the numbers say: int64, float32 or bool. Raises Refused where the numbers do not fit.
    """
    if not isinstance(value, int | float):
        return _constant_of(value, dtype)
    key = repr(value), dtype  # 1, 1.0 and true are equal, and so are 0.0 and -0.0
    if key not in _constants:
        _constants[key] = _constant_of(value, dtype)
    return _constants[key]


def _constant_of(value: object, dtype: str | None) -> Constant:
    if isinstance(value, Constant):
        value = value.array
    try:
        array = np.asarray(value)
    except (ValueError, TypeError) as error:
        raise Refused(f"{value} is not a tensor") from error
    if isinstance(value, tuple | list) and not array.size:
        array = array.astype(np.int64)
    if array.dtype.kind in "OUS":
        if dtype == "string" or array.dtype.kind in "US":
            return Constant.of(array.astype(object), "string")
        raise Refused(f"{value} is not known as a number")
    name = dtype or {"b": "bool", "i": "int64", "u": "int64"}.get(array.dtype.kind, "float32")
    target = np.dtype(getattr(ml_dtypes, name, name))
    with np.errstate(all="ignore"):
        cast = array.astype(target)
    if name in _FLOATS:
        if array.dtype.kind == "f" and not np.array_equal(np.isfinite(array), np.isfinite(cast.astype(np.float64))):
            raise Refused(f"{value} does not fit {name}")
    elif not np.array_equal(cast.astype(array.dtype), array):
        raise Refused(f"{value} does not fit {name}")
    return Constant.of(cast, name)


def attribute_value(op: str, name: str, value: object) -> Attr | None:
    """The value as an attribute: a whole number becomes a float where the schema's default is one.

    Raises Refused for values that no attribute can have, such as sizes that are not known.
    """
    schema = ops.schema(op)
    default = schema.defaults.get(name) if schema else None
    if isinstance(value, list | tuple):
        like = default[0] if isinstance(default, tuple) and default else None
        return tuple(_item(op, name, v, like) for v in value)
    return None if value is None else _item(op, name, value, default)


def _item(op: str, name: str, value: object, like: object) -> Any:
    if isinstance(value, bool | int) and not isinstance(like, float):
        return int(value)
    if isinstance(value, int | float) and isinstance(like, int):
        raise Refused(f"attribute {name} of {op} is a whole number, not {value}")
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, str | bytes | Constant | Graph | TensorType):
        return value
    raise Refused(f"attribute {name} of {op} cannot be {value}")
