"""Terms that the elements of tensors are: equal terms have equal numbers.

In the free algebra a sum is just ``Add`` of two terms, whose order does not matter, and only that is true of terms
which is so bit by bit; over the reals terms are polynomials in normal form.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from math import isfinite
from typing import Any

from graphopt.ir import ops
from graphopt.ir.graph import Attrs
from graphopt.ir.op_table import FINITE, ZERO, ops_where
from graphopt.rewrite.guards.weights import lossless

Polynomial = tuple[tuple[tuple[tuple[int, int], ...], Fraction], ...]
"""Monomials (atoms with exponents) with their coefficients, in order."""


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_POSITIVE_AT_ZERO = ops_where(kind="unary", at_zero=FINITE)
"""Ops on one element that make a positive number of 0."""
_REALS = _set("bfloat16 float16 float32 float64")
_WHOLE = _set("int8 int16 int32 int64 uint8 uint16 uint32 uint64")
_KEEP_ZERO = ops_where(kind="unary", at_zero=ZERO)
"""Ops on one element that make 0 of 0; a negation makes the other zero of it."""
_EXTREMES = {"Max": "Max", "ReduceMax": "Max", "Min": "Min", "ReduceMin": "Min"}


class Opaque(Exception):  # noqa: N818 - not an error: such a rule is not proved here
    """Something cannot be computed on symbols; the message says what."""


@dataclass(frozen=True)
class Laws:
    """What the guards of a rule say of the elements of its operands, by name."""

    steps: frozenset[str] = frozenset()
    """Scales by which quantizing gives back what was dequantized."""
    bytes: frozenset[str] = frozenset()
    """Integers of at most eight bits."""


class Algebra:
    """The terms that numbers stand for."""

    def __init__(self, is_real: bool, named: dict[float, str] | None = None, laws: Laws | None = None) -> None:
        self.is_real = is_real
        self.laws = Laws() if laws is None else laws
        self.named = {} if named is None else named
        """Numbers that stand for any number."""
        self._numbers: dict[Hashable, int] = {}
        self._values: dict[float, int] = {}
        self._terms: list[Any] = []
        self.undefined = self._atom(("undefined",))
        """No number, as the mean and the largest of nothing are: arithmetic with it gives none."""

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
            if number not in self._values:
                exact = Fraction(number).limit_denominator(1000)
                if abs(exact - Fraction(number)) > abs(Fraction(number)) / 10**7:
                    exact = Fraction(repr(float(number)))
                self._values[number] = self._polynomial({(): exact})
            return self._values[number]
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
        if op in _EXTREMES and attrs == () and (inputs or self.is_real):
            return self._extreme(_EXTREMES[op], inputs)
        result = self._law(op, attrs, inputs)
        if result is not None:
            return result
        if op in _KEEP_ZERO and (self.is_real or op != "Neg") and self._terms[inputs[0]] in self._zeros:
            return inputs[0]
        given = tuple(sorted(inputs)) if op in ops.COMMUTATIVE else tuple(inputs)
        return self._atom((op, attrs, given))

    def _law(self, op: str, attrs: Hashable, inputs: Sequence[int]) -> int | None:
        """What is true bit by bit: of zeros that fill up, of casts there and back, and of quantizing what was."""
        terms = [self._terms[i] for i in inputs]
        zeros = [n for n, t in zip(inputs, terms, strict=True) if t in self._zeros]
        match op:
            case "Add" | "Sub" | "Mul" if len(zeros) == len(inputs) == 2:
                return inputs[0]
            case "Mul" if zeros and any(t[0] in _POSITIVE_AT_ZERO and t[2] == (zeros[0],) for t in terms):
                return zeros[0]
            case "Mul" if ("value", "1.0") in terms:
                return inputs[1 - terms.index(("value", "1.0"))]
            case "Cast":
                return self._cast(attrs, inputs[0])
            case "QuantizeLinear" if len(inputs) == 3:
                return self._requantized(attrs, inputs)
        return None

    def _requantized(self, attrs: Hashable, inputs: Sequence[int]) -> int | None:
        """What quantizing by the scale that it was dequantized by gives back, where that is a step; of extremes too."""
        given = self._terms[self._lone(inputs[0])]
        extreme = given[0] if given[0] in ("Max", "Min") and given[1] == () else ""
        parts = [self._terms[self._lone(n)] for n in given[2]] if extreme else [given]
        found = []
        for part in parts:
            if part[:2] != ("DequantizeLinear", attrs) or [*part[2][1:]] != [*inputs[1:]]:
                return None
            x, scale = (self._terms[self._lone(n)] for n in part[2][:2])
            if not (self._is_of(x, self.laws.bytes) and self._is_of(scale, self.laws.steps)):
                return None
            found.append(int(part[2][0]))
        return (self._extreme(extreme, found) if extreme else found[0]) if found else None

    def _is_of(self, term: Any, names: frozenset[str]) -> bool:
        """Whether a term is an element of one of some operands, or of one of the values of a starred one."""
        return term[0] == "symbol" and term[1][0].split(".")[0] in names

    def _cast(self, attrs: Any, number: int) -> int | None:
        """A cast that changes nothing, or undoes one that lost nothing; over the reals, one to reals."""
        kinds = dict(attrs)
        source, target = kinds.get("from"), kinds.get("to")
        if source is None or target is None:
            return None
        if source == target or (self.is_real and target in _REALS and source in (*_REALS, *_WHOLE)):
            return number
        match self._terms[self._lone(number)]:
            case ("Cast", before, (inner,)):
                first = dict(before)
                if first.get("from") == target and first.get("to") == source and lossless(target, source):
                    return int(inner)
        return None

    def _extreme(self, op: str, inputs: Sequence[int]) -> int:
        """A maximum or minimum, which is that of a set: NaN is the maximum of what has one, and -0 less than 0."""
        found: set[int] = set()
        for number in inputs:
            term = self._terms[self._lone(number)]
            found |= {*term[2]} if term[:2] == (op, ()) else {number}
        if len(found) == 1:
            return found.pop()
        if self.is_real and (not found or self.undefined in found):
            return self.undefined
        if self.is_real and found:
            found = {e for number in found for e in self._distributed(op, number)}
            shared = {*self._parts(min(found))}.intersection(*map(self._parts, found)) - {*self._parts(self.value(0))}
            if shared:  # the extreme of sums with a part in common is that of the rest, and the part
                common = self._polynomial(dict(shared))
                rest = tuple(sorted(self._sum([(number, 1), (common, -1)]) for number in found))
                return self._sum([(common, 1), (self._atom((op, (), rest)) if len(rest) > 1 else rest[0], 1)])
        return self._atom((op, (), tuple(sorted(found))))

    def _distributed(self, op: str, number: int) -> list[int]:
        """The numbers whose extreme a sum of numbers and an extreme is."""
        parts = self._parts(number)
        for monomial, coefficient in parts if len(parts) > 1 else ():
            term: Any = self._terms[monomial[0][0]] if len(monomial) == 1 else ()
            if term[:2] == (op, ()) and term[2] and coefficient == 1 and monomial[0][1] == 1:
                rest = self._sum([(number, 1), (self._polynomial({monomial: coefficient}), -1)])
                return [self._sum([(rest, 1), (inner, 1)]) for inner in term[2]]
        return [number]

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
            case "Mean" | "ReduceMean" if not inputs:
                return self.undefined
            case "Mean" | "ReduceMean":
                return self._times(self._sum([(i, 1) for i in inputs]), self.value(1 / len(inputs)))
            case "Sub":
                return self._sum([(inputs[0], 1), (inputs[1], -1)])
            case "Neg":
                return self._sum([(inputs[0], -1)])
            case "Mul" | "ReduceProd":
                if not inputs:
                    return self.value(1)
                return reduce(self._times, inputs)
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
            case "ReduceLogSum":
                return self.call("Log", (), [self._sum([(i, 1) for i in inputs])])
            case "ReduceLogSumExp":
                return self.call("Log", (), [self._sum([(self.call("Exp", (), [i]), 1) for i in inputs])])
            case "ReduceL1":
                return self._sum([(self.call("Abs", (), [i]), 1) for i in inputs])
            case "Abs" if self._is_nonnegative(inputs[0]):
                return inputs[0]
            case "Relu":
                return self._extreme("Max", [inputs[0], self.value(0)])
            case "Exp":
                result = self.value(1)
                for monomial, coefficient in self._parts(inputs[0]):
                    log: Any = self._terms[monomial[0][0]] if len(monomial) == 1 and monomial[0][1] == 1 else ()
                    whole = int(coefficient) if coefficient.denominator == 1 and abs(coefficient) < 5 else 1
                    inner = self._polynomial({monomial: coefficient / whole})
                    power = self._atom(("Exp", (), (inner,)))
                    if log[:1] == ("Log",) and coefficient == whole:
                        power = log[2][0]
                    power = power if whole > 0 else self._inverse(power)
                    for _ in range(abs(whole)):
                        result = self._times(result, power)
                return result
            case "Log":
                parts = self._parts(inputs[0])
                if len(parts) == 1:
                    monomial, coefficient = parts[0]
                    powers = [(a, e) for a, e in monomial if self._terms[a][0] == "Exp"]
                    rest = self._polynomial({tuple(p for p in monomial if p not in powers): coefficient})
                    if not powers and coefficient == 1 and [e for _, e in monomial] == [-1]:
                        return self._sum(
                            [(self.call("Log", (), [self._polynomial({((monomial[0][0], 1),): Fraction(1)})]), -1)]
                        )
                    if powers:
                        terms = [(self._terms[a][2][0], e) for a, e in powers]
                        if rest != self.value(1):
                            terms.append((self.call("Log", (), [rest]), 1))
                        return self._sum(terms)
                return None
        return None

    def _is_nonnegative(self, number: int) -> bool:
        """Whether a term is a sum of products of what is never negative."""
        return all(
            c > 0 and all(e % 2 == 0 or self._terms[a][0] in ("Abs", "Exp", "sqrt") for a, e in m)
            for m, c in self._parts(number)
        )

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
        if any(number == self.undefined for number, _ in terms):
            return self.undefined
        for number, factor in terms:
            for monomial, coefficient in self._parts(number):
                part = coefficient if factor == 1 else factor * coefficient
                sums[monomial] = sums[monomial] + part if monomial in sums else part
        return self._polynomial(sums)

    def _times(self, a: int, b: int) -> int:
        terms: dict[tuple[tuple[int, int], ...], Fraction] = {}
        roots: list[int] = []
        if self.undefined in (a, b):
            return self.undefined
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
            factor = d if c == 1 else c * d
            terms[key] = terms[key] + factor if key in terms else factor
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
        if number == self.undefined:
            return number
        if len(parts) == 1:
            monomial, coefficient = parts[0]
            return self._polynomial({tuple((x, -e) for x, e in monomial): 1 / coefficient})
        # what all terms of the sum have in common is divided by apart, so that quotients have one form
        common = dict(parts[0][0])
        for monomial, _ in parts[1:]:
            powers = dict(monomial)
            common = {x: min(e, powers[x]) for x, e in common.items() if x in powers and (e > 0) == (powers[x] > 0)}
        divided = [({x: e - common.get(x, 0) for x, e in m}, c) for m, c in parts]
        rest = sorted((tuple((x, e) for x, e in m.items() if e), c) for m, c in divided)
        lead = rest[0][1]
        monic = self._polynomial({m: c / lead for m, c in rest})
        inverse = self._polynomial({((monic, -1),): 1 / lead})
        return self._times(inverse, self._polynomial({tuple((x, -e) for x, e in sorted(common.items())): Fraction(1)}))


def integer(attrs: Attrs, name: str, default: int) -> int:
    """An attribute that is a whole number."""
    value: Any = attrs.get(name, default)
    return int(value)
