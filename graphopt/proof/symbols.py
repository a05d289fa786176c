"""Symbolic evaluation of graphs on tensors of symbols: graphs that give the same symbols are equal for all elements.

An element is a number that stands for a term, and equal terms have equal numbers. Ops that move elements are computed
by ONNX's reference implementation on those numbers. Ops that compute make new terms: in the free algebra a sum is just
``Add`` of two terms, whose order does not matter; over the reals terms are polynomials in normal form.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import isfinite
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import evaluate, ops
from graphopt.ir.constants import Array, Constant
from graphopt.ir.contrib_semantics import MEANINGS
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, Attr, Attrs, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.op_table import ZERO, ops_where
from graphopt.ir.types import TensorType

Polynomial = tuple[tuple[tuple[tuple[int, int], ...], Fraction], ...]
"""Monomials (atoms with exponents) with their coefficients, in order."""


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


MOVING = _set(
    "Transpose Reshape Flatten Squeeze Unsqueeze Slice Concat Split Gather GatherND GatherElements Expand Tile "
    "Identity DepthToSpace SpaceToDepth ReverseSequence Shape Size Pad ConstantOfShape Trilu"
)
"""Ops that only move elements, or say how many there are."""
PARAMETERS = {
    "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Slice": (1, 2, 3, 4), "Split": (1,), "Gather": (1,),
    "GatherND": (1,), "GatherElements": (1,), "Expand": (1,), "Tile": (1,), "Pad": (1, 3), "ReverseSequence": (1,),
    "ConstantOfShape": (0,), "Trilu": (1,),
}  # fmt: skip
"""Which inputs of an op that moves elements say where to, and must be known numbers."""


_KEEP_ZERO = ops_where(kind="unary", at_zero=ZERO)
"""Ops on one element that make 0 of 0; a negation makes the other zero of it."""
_EXTREMES = {"Max": "Max", "ReduceMax": "Max", "Min": "Min", "ReduceMin": "Min"}


class Opaque(Exception):  # noqa: N818 - not an error: such a rule is not proved here
    """Something cannot be computed on symbols; the message says what."""


class Algebra:
    """The terms that numbers stand for."""

    def __init__(self, is_real: bool, named: dict[float, str] | None = None) -> None:
        self.is_real = is_real
        self.named = {} if named is None else named
        """Numbers that stand for any number."""
        self._numbers: dict[Hashable, int] = {}
        self._terms: list[Any] = []

    _zeros = (("polynomial", ()), ("value", "0"), ("value", "0.0"))

    def intern(self, term: Hashable) -> int:
        """The number of a term."""
        if term not in self._numbers:
            self._numbers[term] = len(self._terms)
            self._terms.append(term)
        return self._numbers[term]

    def symbol(self, name: Hashable) -> int:
        """An element of which nothing is known."""
        return self._atom(("symbol", name))

    def value(self, number: float | int | bool) -> int:
        """A known element, or the symbol that a number stands for."""
        name = self.named.get(number) if isinstance(number, float) else None
        if name is not None:
            return self.symbol((name, ()))
        if self.is_real and not isinstance(number, bool) and isfinite(number):
            exact = Fraction(number).limit_denominator(1000)
            if abs(exact - Fraction(number)) > abs(Fraction(number)) / 10**7:
                exact = Fraction(repr(float(number)))
            return self._polynomial({(): exact})
        return self._atom(("value", repr(number)))

    def known(self, number: int) -> Any:
        """The value that a number stands for. Raises Opaque where it is none."""
        term = self._terms[number]
        if self.is_real and term[0] == "polynomial":
            parts = term[1]
            if not parts:
                return 0
            if len(parts) == 1 and parts[0][0] == ():
                exact = parts[0][1]
                return int(exact) if exact.denominator == 1 else float(exact)
            if len(parts) == 1 and parts[0][1] == 1 and len(parts[0][0]) == 1:
                return self.known(parts[0][0][0][0])
        if term[0] == "value":
            text = term[1]
            return (
                {"True": True, "False": False}.get(text, float(text) if "." in text or "n" in text else text)
                if not text.lstrip("-").isdigit()
                else int(text)
            )
        raise Opaque("what elements decide")

    def call(self, op: str, attrs: Hashable, inputs: Sequence[int]) -> int:
        """What an op makes of one element of each input."""
        if self.is_real and attrs == ():
            result = self._arithmetic(op, inputs)
            if result is not None:
                return result
        if op in _EXTREMES and attrs == () and inputs:
            return self._extreme(_EXTREMES[op], inputs)
        if op in _KEEP_ZERO and (self.is_real or op != "Neg") and self._terms[inputs[0]] in self._zeros:
            return inputs[0]
        given = tuple(sorted(inputs)) if op in ops.COMMUTATIVE else tuple(inputs)
        return self._atom((op, attrs, given))

    def _extreme(self, op: str, inputs: Sequence[int]) -> int:
        """A maximum or minimum, which is that of a set: NaN is the maximum of what has one, and -0 less than 0."""
        found: set[int] = set()
        for number in inputs:
            term = self._terms[self._lone(number)]
            found |= {*term[2]} if term[:2] == (op, ()) else {number}
        return found.pop() if len(found) == 1 else self._atom((op, (), tuple(sorted(found))))

    def _lone(self, number: int) -> int:
        """The atom that a number is, where it is one; else the number."""
        match self._terms[number]:
            case ("polynomial", ((((atom, 1),), 1),)):
                return int(atom)
        return number

    def _atom(self, term: Hashable) -> int:
        number = self.intern(term)
        return self._polynomial({((number, 1),): Fraction(1)}) if self.is_real else number

    # -- polynomials

    def _arithmetic(self, op: str, inputs: Sequence[int]) -> int | None:
        match op:
            case "Add" | "Sum" | "ReduceSum":
                return self._sum([(i, 1) for i in inputs])
            case "Mean" | "ReduceMean" if inputs:
                return self._times(self._sum([(i, 1) for i in inputs]), self.value(1 / len(inputs)))
            case "Sub":
                return self._sum([(inputs[0], 1), (inputs[1], -1)])
            case "Neg":
                return self._sum([(inputs[0], -1)])
            case "Mul" | "ReduceProd":
                power = self.value(1)
                for i in inputs:
                    power = self._times(power, i)
                return power
            case "Pow":
                return self._power(*inputs)
            case "Div":
                return self._times(inputs[0], self._inverse(inputs[1]))
            case "Reciprocal":
                return self._inverse(inputs[0])
            case "DequantizeLinear":
                shifted = inputs[0] if len(inputs) < 3 else self._sum([(inputs[0], 1), (inputs[2], -1)])
                return self._times(shifted, inputs[1])
            case "Sqrt":
                return self._atom(("sqrt", inputs[0]))
            case "ReduceSumSquare":
                return self._sum([(self._times(i, i), 1) for i in inputs])
            case "ReduceL2":
                return self._atom(("sqrt", self._sum([(self._times(i, i), 1) for i in inputs])))
            case "Relu":
                return self._extreme("Max", [inputs[0], self.value(0)])
        return None

    def _power(self, base: int, exponent: int) -> int | None:
        """A power where it is a product, a root, or one by such."""
        match self._terms[exponent]:
            case ("polynomial", (((), n),)) if n.denominator == 1 and abs(n) <= 4:
                whole = self.value(1)
                for _ in range(abs(int(n))):
                    whole = self._times(whole, base)
            case ("polynomial", (((), n),)) if abs(n) == Fraction(1, 2):
                whole = self._atom(("sqrt", base))
            case _:
                return None
        return whole if n > 0 else self._inverse(whole)

    def _parts(self, number: int) -> Polynomial:
        term = self._terms[number]
        return term[1] if term[0] == "polynomial" else ((((number, 1),), Fraction(1)),)

    def _polynomial(self, parts: dict[tuple[tuple[int, int], ...], Fraction]) -> int:
        return self.intern(("polynomial", tuple(sorted((m, c) for m, c in parts.items() if c))))

    def _sum(self, terms: Sequence[tuple[int, int]]) -> int:
        sums: dict[tuple[tuple[int, int], ...], Fraction] = {}
        for number, factor in terms:
            for monomial, coefficient in self._parts(number):
                sums[monomial] = sums.get(monomial, Fraction(0)) + factor * coefficient
        return self._polynomial(sums)

    def _times(self, a: int, b: int) -> int:
        terms: dict[tuple[tuple[int, int], ...], Fraction] = {}
        roots: list[int] = []
        left, right = self._parts(a), self._parts(b)
        if len(left) * len(right) > 4000:
            raise Opaque("a product of long sums")
        for (m, c), (n, d) in product(left, right):
            powers = dict(m)
            for atom, exponent in n:
                powers[atom] = powers.get(atom, 0) + exponent
            extra = [x for x, e in powers.items() if abs(e) > 1 and self._terms[x][0] == "sqrt"]
            if extra:
                roots.append(self._simplified(powers, extra, c * d))
                continue
            key = tuple(sorted((x, e) for x, e in powers.items() if e))
            terms[key] = terms.get(key, Fraction(0)) + c * d
        total = self._polynomial(terms)
        return self._sum([(total, 1), *((r, 1) for r in roots)]) if roots else total

    def _simplified(self, powers: dict[int, int], extra: Sequence[int], coefficient: Fraction) -> int:
        """A monomial in which squares of roots are what they are roots of."""
        rest = {x: e for x, e in powers.items() if x not in extra}
        product = self._polynomial({tuple(sorted((x, e) for x, e in rest.items() if e)): coefficient})
        for atom in extra:
            exponent = powers[atom]
            inner = self._terms[atom][1]
            factor = inner if exponent > 0 else self._inverse(inner)
            for _ in range(abs(exponent) // 2):
                product = self._times(product, factor)
            if exponent % 2:
                single = self._polynomial({((atom, 1 if exponent > 0 else -1),): Fraction(1)})
                product = self._times(product, single)
        return product

    def _inverse(self, number: int) -> int:
        parts = self._parts(number)
        if not parts:
            raise Opaque("a division by zero")
        if len(parts) == 1:
            monomial, coefficient = parts[0]
            return self._polynomial({tuple((x, -e) for x, e in monomial): 1 / coefficient})
        lead = parts[0][1]
        monic = self._polynomial({m: c / lead for m, c in parts})
        return self._polynomial({((monic, -1),): 1 / lead})


def compute(graph: Graph, algebra: Algebra, symbolic: dict[Value, str]) -> list[Array]:
    """The outputs of a graph as arrays of numbers of terms. ``symbolic``: inputs and constants that are symbols."""
    values: dict[Value, Array] = {}
    facts = infer(graph)
    for node in graph.order():
        first = Value(node.id)
        if first in symbolic:
            shape = _shape(graph, first)
            symbols = [algebra.symbol((symbolic[first], i)) for i in np.ndindex(*shape)]
            values[first] = np.asarray(symbols, np.int64).reshape(shape)
        elif node.op == CONSTANT:
            constant = graph.constant_of(first)
            assert constant is not None
            numbers = [algebra.value(v) for v in constant.array.reshape(-1).tolist()]
            values[first] = np.asarray(numbers, np.int64).reshape(constant.shape)
        elif graph.is_used(node.id):
            given = [None if v is None else values[v] for v in node.inputs]
            results = tuple(facts.get(v) for v in node.outputs)
            call = _Call(node.op, node.attrs, given, node.n_outputs, graph.opset, results)
            values.update(zip(node.outputs, _apply(call, algebra), strict=False))
    return [values[v] for v in graph.outputs if v is not None]


def _shape(graph: Graph, value: Value) -> tuple[int, ...]:
    constant = graph.constant_of(value)
    shape_source: Any = graph.types[value] if constant is None else constant
    return tuple(shape_source.shape)


def integer(attrs: Attrs, name: str, default: int) -> int:
    """An attribute that is a whole number."""
    value: Any = attrs.get(name, default)
    return int(value)


@dataclass(frozen=True)
class _Call:
    """An op on numbers of terms; of the results, what is known of them without their elements."""

    op: str
    attrs: Attrs
    inputs: Sequence[Array | None]
    n_outputs: int
    opset: int
    facts: tuple[Fact | None, ...] = ()


def _apply(call: _Call, algebra: Algebra) -> list[Array]:
    op, attrs, inputs = call.op, call.attrs, list(call.inputs)
    if op in MOVING:
        return _move(call, algebra)
    if op in ops.KINDS["reduce"]:
        return [_reduce(op, attrs, inputs, algebra)]
    if op == "LayerNormalization" and algebra.is_real:
        return _normalized(attrs, inputs, algebra, True)[: call.n_outputs]
    if op in _PRODUCTS:
        try:
            return [_PRODUCTS[op](attrs, inputs, algebra)]
        except Opaque:
            return _whole(call, algebra)
    if op in ("Softmax", "LogSoftmax"):
        return [_along(op, integer(attrs, "axis", -1), inputs[0], algebra)]
    if op in _ROWS:
        return _of_rows(call, algebra)
    if op in ops.KINDS["elementwise"] and not is_defined_otherwise(op):
        return [_elementwise(op, attrs, inputs, algebra)]
    if op in MEANINGS:
        return _by_meaning(call, algebra)
    return _whole(call, algebra)


def is_defined_otherwise(op: str) -> bool:
    """Whether an op that acts on each element is an exporter's name for others of ONNX."""
    return op in MEANINGS and "::" in op


def _elementwise(op: str, attrs: Attrs, inputs: Sequence[Array | None], algebra: Algebra) -> Array:
    given = [a for a in inputs if a is not None]
    shape = np.broadcast_shapes(*(a.shape for a in given))
    spread = [np.broadcast_to(a, shape).reshape(-1).tolist() for a in given]
    key = (*(("absent", i) for i, a in enumerate(inputs) if a is None), *_plain(attrs))
    results = [algebra.call(op, key, parts) for parts in zip(*spread, strict=True)]
    return np.asarray(results, np.int64).reshape(shape)


def is_computable(op: str) -> bool:
    """Whether an op gives the same on the same operands, which is the least that symbols are computed by."""
    return op not in ops.IMPURE


# -- ops that are other ops


class Element:
    """A term as an element of an array, on which numpy's arithmetic is that of terms."""

    __slots__ = ("algebra", "number")

    def __init__(self, algebra: Algebra, number: int) -> None:
        self.algebra, self.number = algebra, number

    def _with(self, op: str, *others: Any, reverse: bool = False) -> Element:
        numbers = [self.number, *(_number(o, self.algebra) for o in others)]
        return Element(self.algebra, self.algebra.call(op, (), numbers[::-1] if reverse else numbers))

    def __add__(self, other: Any) -> Element:
        return self._with("Add", other)

    def __radd__(self, other: Any) -> Element:
        return self._with("Add", other, reverse=True)

    def __sub__(self, other: Any) -> Element:
        return self._with("Sub", other)

    def __rsub__(self, other: Any) -> Element:
        return self._with("Sub", other, reverse=True)

    def __mul__(self, other: Any) -> Element:
        return self._with("Mul", other)

    def __rmul__(self, other: Any) -> Element:
        return self._with("Mul", other, reverse=True)

    def __truediv__(self, other: Any) -> Element:
        return self._with("Div", other)

    def __rtruediv__(self, other: Any) -> Element:
        return self._with("Div", other, reverse=True)

    def __neg__(self) -> Element:
        return self._with("Neg")

    def __float__(self) -> float:
        raise Opaque("a computation with an element's value")

    __int__ = __index__ = __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __float__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def _number(element: Any, algebra: Algebra) -> int:
    """The number of a term, or of the value that a plain number is."""
    if isinstance(element, Element):
        return element.number
    if isinstance(element, bool | int | float | np.bool_ | np.integer | np.floating):
        return algebra.value(element.item() if isinstance(element, np.generic) else element)
    raise Opaque("an element that is no number")


def _elements(array: Array | None, algebra: Algebra) -> Array | None:
    if array is None:
        return None
    elements = np.empty(array.shape, object)
    for index in np.ndindex(*array.shape):
        elements[index] = Element(algebra, int(array[index]))
    return elements


def _numbers(array: Any, algebra: Algebra) -> Array | None:
    if array is None:
        return None
    elements = np.asarray(array)
    numbers = [_number(e, algebra) for e in elements.reshape(-1).tolist()]
    return np.asarray(numbers, np.int64).reshape(elements.shape)


def _by_meaning(call: _Call, algebra: Algebra) -> list[Array]:
    """What an op is in other ops, as graphs are evaluated with it; its own arithmetic is that of terms."""

    def apply(op: str, inputs: Sequence[Any], n_outputs: int = 1, **attrs: Attr) -> tuple[Any, ...]:
        given = [_numbers(x, algebra) for x in inputs]
        results = _apply(_Call(op, Attrs(attrs), given, n_outputs, ops.LATEST), algebra)
        return tuple(_elements(r, algebra) for r in results)

    try:
        outputs = MEANINGS[call.op](apply, call.attrs, [_elements(x, algebra) for x in call.inputs])
    except Opaque:
        raise
    except Exception as error:  # whatever the Python of a meaning raises on symbols
        raise Opaque(f"{call.op} on symbols") from error
    numbers = [_numbers(x, algebra) for x in outputs[: call.n_outputs]]
    return [x for x in numbers if x is not None]


# -- ops of which nothing is known but what their results depend on

_ROWS = ("Hardmax", "CumSum", "ArgMax", "ArgMin", "LpNormalization")
"""Ops on each row along an axis."""


def _of_rows(call: _Call, algebra: Algebra) -> list[Array]:
    """A function of the row and of the place in it."""
    x = call.inputs[0]
    assert x is not None
    axis = integer(call.attrs, "axis", -1 if call.op != "ArgMax" and call.op != "ArgMin" else 0)
    if call.op == "CumSum":
        (axis,) = _known(call.inputs[1], algebra).array.reshape(-1).tolist()  # type: ignore[arg-type]
    axis %= x.ndim or 1
    kept = Attrs({n: a for n, a in call.attrs.items() if n not in ("axis", "keepdims")})
    rows = np.moveaxis(x, axis, -1)
    is_one = call.op in ("ArgMax", "ArgMin")
    results = np.empty((*rows.shape[:-1], 1) if is_one else rows.shape, np.int64)
    for index in np.ndindex(*rows.shape[:-1]):
        row = tuple(rows[index].tolist())
        for place in range(results.shape[-1]):
            results[(*index, place)] = algebra.call(call.op, ("row", *_plain(kept), place), row)
    moved = np.moveaxis(results, -1, axis)
    return [moved if not is_one or call.attrs.get("keepdims", 1) else moved.squeeze(axis)]


def _whole(call: _Call, algebra: Algebra) -> list[Array]:
    """Functions of all elements of all operands, and of the place: equal operands have equal results."""
    if call.op in ops.IMPURE or any(isinstance(a, Graph) for a in call.attrs.values()):
        raise Opaque(call.op)
    given = tuple(None if x is None else (x.shape, tuple(x.reshape(-1).tolist())) for x in call.inputs)
    key = ("whole", tuple(None if g is None else g[0] for g in given), *_plain(call.attrs))
    elements = [e for g in given if g is not None for e in g[1]]
    results = []
    for output in range(call.n_outputs):
        fact = call.facts[output] if output < len(call.facts) else None
        shape = None if fact is None or not isinstance(fact.type, TensorType) else fact.shape
        if shape is None or not all(isinstance(n, int) for n in shape):
            raise Opaque(call.op)
        sizes = [n for n in shape if isinstance(n, int)]
        array = np.zeros(sizes, np.int64)
        for index in np.ndindex(*sizes):
            array[index] = algebra.call(call.op, (*key, output, index), elements)
        results.append(array)
    return results


def _plain(attrs: Attrs) -> tuple[Hashable, ...]:
    return tuple((name, repr(value)) for name, value in attrs.items())


def _known(array: Array, algebra: Algebra) -> Constant:
    elements = [algebra.known(i) for i in array.reshape(-1).tolist()]
    if not all(isinstance(v, int) for v in elements):
        raise Opaque("what elements decide")
    return Constant.of(np.asarray(elements, np.int64).reshape(array.shape))


def _move(node: _Call, algebra: Algebra) -> list[Array]:
    inputs, opset = node.inputs, node.opset
    if node.op == "ConstantOfShape":
        filled = node.attrs.get("value")
        number = filled.array.reshape(-1).tolist()[0] if isinstance(filled, Constant) else 0.0
        assert inputs[0] is not None
        return [np.full(_known(inputs[0], algebra).array.tolist(), algebra.value(number), np.int64)]
    if node.op in ("DepthToSpace", "SpaceToDepth"):
        _check_blocks(node)
    parameters = PARAMETERS.get(node.op, ())
    given: list[Constant | None] = [
        None if a is None else _known(a, algebra) if i in parameters else Constant.of(a) for i, a in enumerate(inputs)
    ]
    if node.op == "Pad" and len(given) < 3:
        given.append(None)
    if node.op == "Pad" and given[2] is None:
        given[2] = Constant.of(np.asarray(algebra.value(0.0), np.int64))
    elif node.op == "Pad":
        assert inputs[2] is not None
        given[2] = Constant.of(inputs[2].reshape(()))
    try:
        moved = [c.array for c in evaluate.evaluate(node.op, node.attrs, given, node.n_outputs, opset)]
    except (GraphoptError, ValueError) as error:
        raise Opaque(f"{node.op} of such operands") from error
    if node.op in ("Shape", "Size"):
        return [np.asarray([algebra.value(int(n)) for n in a.reshape(-1)], np.int64).reshape(a.shape) for a in moved]
    return moved


def _check_blocks(node: _Call) -> None:
    x, size = node.inputs[0], integer(node.attrs, "blocksize", 1)
    assert x is not None
    divided = {x.shape[1]: size * size} if node.op == "DepthToSpace" else dict.fromkeys(x.shape[2:], size)
    if x.ndim != 4 or any(n % by for n, by in divided.items()):
        raise ValueError("blocks that do not fit")


def _reduce(op: str, attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x = inputs[0]
    assert x is not None
    keep = bool(attrs.get("keepdims", 1))
    given = inputs[1] if len(inputs) > 1 else None
    axes = None if given is None else [int(a) % x.ndim for a in _known(given, algebra).array.reshape(-1)]
    if not axes:
        if attrs.get("noop_with_empty_axes"):
            return x
        axes = list(range(x.ndim))
    kept = [i for i in range(x.ndim) if i not in axes]
    moved = np.transpose(x, kept + axes).reshape(*(x.shape[i] for i in kept), -1)
    reduced = np.zeros(moved.shape[:-1], np.int64)
    for index in np.ndindex(*reduced.shape):
        reduced[index] = algebra.call(op, (), sorted(moved[index].tolist()))
    return reduced.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keep else reduced


def _along(op: str, axis: int, x: Array | None, algebra: Algebra) -> Array:
    assert x is not None
    rows = np.moveaxis(x, axis, -1)
    results = np.empty_like(rows)
    for index in np.ndindex(*rows.shape[:-1]):
        row = rows[index].tolist()
        together = tuple(sorted(row))
        results[index] = [algebra.call(op, ("row", together), [e]) for e in row]
    return np.moveaxis(results, -1, axis)


# -- products, over the reals


def _dot(a: Sequence[int], b: Sequence[int], algebra: Algebra) -> int:
    if not algebra.is_real:
        return algebra.call(
            "dot", (), [algebra.intern(("pair", min(p), max(p))) for p in sorted(map(sorted, zip(a, b, strict=True)))]
        )
    return algebra.call("Add", (), [algebra.call("Mul", (), [x, y]) for x, y in zip(a, b, strict=True)])


def _matmul(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    product = np.zeros((*batch, left.shape[-2], right.shape[-1]), np.int64)
    for index in np.ndindex(*product.shape):
        *where, i, j = index
        product[index] = _dot(left[(*where, i)].tolist(), right[(*where, slice(None), j)].tolist(), algebra)
    if a.ndim == 1:
        product = product[..., 0, :]
    return product[..., 0] if b.ndim == 1 else product


def _scaled(factor: Any, x: Array, algebra: Algebra) -> Array:
    if factor in (None, 1.0):
        return x
    number = algebra.value(float(factor))
    return np.asarray([algebra.call("Mul", (), [number, e]) for e in x.reshape(-1).tolist()], np.int64).reshape(x.shape)


def _gemm(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    if not algebra.is_real:
        raise Opaque("Gemm")
    a, b, c = (*inputs, None)[:3]
    assert a is not None
    assert b is not None
    left, right = (a.T if attrs.get("transA") else a), (b.T if attrs.get("transB") else b)
    product = _scaled(attrs.get("alpha"), _matmul(attrs, [left, right], algebra), algebra)
    return product if c is None else _added(product, _scaled(attrs.get("beta"), c, algebra), algebra)


def _added(a: Array, b: Array, algebra: Algebra) -> Array:
    spread = np.broadcast_arrays(a, b)
    pairs = zip(*(s.reshape(-1).tolist() for s in spread), strict=True)
    return np.asarray([algebra.call("Add", (), p) for p in pairs], np.int64).reshape(spread[0].shape)


def _conv(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x, w, b = (*inputs, None)[:3]
    assert x is not None
    assert w is not None
    n = x.ndim - 2
    if not algebra.is_real or attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Opaque("Conv")
    plain = (("strides", (1,) * n), ("dilations", (1,) * n), ("pads", (0,) * (2 * n)), ("group", 1))
    given: list[Any] = [attrs.get(name) or default for name, default in plain]
    strides, dilations, pads, group = given
    zero = algebra.value(0.0)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)], constant_values=zero)
    kernel = w.shape[2:]
    sizes = [(s - d * (k - 1) - 1) // t + 1 for s, k, t, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)]
    if min(sizes, default=1) < 1:
        raise Opaque("an empty convolution")
    result = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    per, filters = w.shape[1], w.shape[0] // group
    for index in np.ndindex(*result.shape):
        image, channel, *position = index
        start = (channel // filters) * per
        window = tuple(
            slice(p * t, p * t + d * (k - 1) + 1, d)
            for p, t, d, k in zip(position, strides, dilations, kernel, strict=True)
        )
        window_values = x[(image, slice(start, start + per), *window)]
        result[index] = _dot(window_values.reshape(-1).tolist(), w[channel].reshape(-1).tolist(), algebra)
    if b is None:
        return result
    if b.shape != w.shape[:1]:
        raise ValueError("a bias that has not one number for each filter")
    return _added(result, b.reshape(1, -1, *(1,) * n), algebra)


def _batch_norm(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x, scale, bias, mean, variance = inputs[:5]
    assert x is not None
    if attrs.get("training_mode"):
        raise Opaque("training")
    if x.ndim < 2 or any(p is not None and p.shape != x.shape[1:2] for p in (scale, bias, mean, variance)):
        raise ValueError("a parameter that has not one number for each channel")
    given: Any = attrs.get("epsilon", 1e-5)
    epsilon = algebra.value(float(given))
    result = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        c = index[1]
        s, o, m, v = (int(p[c]) for p in (scale, bias, mean, variance) if p is not None)
        root = algebra.call("Sqrt", (), [algebra.call("Add", (), [v, epsilon])])
        centred = algebra.call("Sub", (), [int(x[index]), m])
        result[index] = algebra.call(
            "Add", (), [algebra.call("Div", (), [algebra.call("Mul", (), [centred, s]), root]), o]
        )
    return result


def _global_mean(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x = inputs[0]
    assert x is not None
    means = np.zeros(x.shape[:2], np.int64)
    for index in np.ndindex(*means.shape):
        means[index] = algebra.call("ReduceMean", (), sorted(x[index].reshape(-1).tolist()))
    return means.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


def _fused_matmul(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    if attrs.get("transBatchA") or attrs.get("transBatchB"):
        raise Opaque("FusedMatMul of transposed batches")
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    left = np.swapaxes(a, -1, -2) if attrs.get("transA") and a.ndim > 1 else a
    right = np.swapaxes(b, -1, -2) if attrs.get("transB") and b.ndim > 1 else b
    return _scaled(attrs.get("alpha"), _matmul(attrs, [left, right], algebra), algebra)


def _rms_norm(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    return _normalized(attrs, inputs, algebra, False)[0]


def _normalized(attrs: Attrs, inputs: list[Array | None], algebra: Algebra, is_centred: bool) -> list[Array]:
    """Rows divided by the root of the mean of their squares, over the reals; the means, and one by the roots."""
    if not algebra.is_real:
        raise Opaque("a normalization bit by bit")
    x, scale, bias = (*inputs, None, None)[:3]
    assert x is not None
    if not x.ndim:
        raise ValueError("a row of a number")
    axis = integer(attrs, "axis", -1) % x.ndim
    given: Any = attrs.get("epsilon", 1e-5)
    result = np.zeros_like(x)
    means, inverses = (np.zeros((*x.shape[:axis], *(1,) * (x.ndim - axis)), np.int64) for _ in range(2))
    for index in np.ndindex(*x.shape[:axis]):
        row = x[index].reshape(-1).tolist()
        mean = algebra.call("ReduceMean", (), row)
        if is_centred:
            row = [algebra.call("Sub", (), [e, mean]) for e in row]
        squares = algebra.call("ReduceMean", (), [algebra.call("Mul", (), [e, e]) for e in row])
        root = algebra.call("Sqrt", (), [algebra.call("Add", (), [squares, algebra.value(float(given))])])
        means[index], inverses[index] = mean, algebra.call("Reciprocal", (), [root])
        quotients = [algebra.call("Div", (), [e, root]) for e in row]
        result[index] = np.asarray(quotients, np.int64).reshape(x.shape[axis:])
    if scale is not None:
        result = _elementwise("Mul", Attrs(), [result, scale], algebra)
    result = result if bias is None else _elementwise("Add", Attrs(), [result, bias], algebra)
    return [result, means, inverses]


def _along_axis(parameter: Array, x: Array, attrs: Attrs) -> Array:
    """A scale or zero point as it is broadcast to what is quantized."""
    if parameter.ndim != 1 or parameter.size == 1:
        return parameter
    if not x.ndim:
        raise ValueError("an axis of a number")
    axis = integer(attrs, "axis", 1) % x.ndim
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def _quantized(op: str) -> Callable[[Attrs, list[Array | None], Algebra], Array]:
    def compute(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
        x, scale, zero = (*inputs, None)[:3]
        assert x is not None
        assert scale is not None
        if attrs.get("block_size"):
            raise Opaque("blocks of scales")
        given = [x, _along_axis(scale, x, attrs), None if zero is None else _along_axis(zero, x, attrs)]
        if (zero is not None and zero.shape != scale.shape) or np.broadcast_shapes(x.shape, scale.shape) != x.shape:
            raise ValueError("a scale or zero point that does not fit")
        rest = Attrs({n: a for n, a in attrs.items() if n != "axis"})
        return _elementwise(op, rest, given, algebra)

    return compute


_PRODUCTS: dict[str, Callable[[Attrs, list[Array | None], Algebra], Array]] = {
    "MatMul": _matmul, "Gemm": _gemm, "Conv": _conv, "BatchNormalization": _batch_norm,
    "RMSNormalization": _rms_norm, "QuantizeLinear": _quantized("QuantizeLinear"),
    "DequantizeLinear": _quantized("DequantizeLinear"), "GlobalAveragePool": _global_mean,
    "com.microsoft::FusedMatMul": _fused_matmul,
}  # fmt: skip
