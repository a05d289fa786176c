"""Semantics of ops on one number in the z3 solver: IEEE floats or reals, machine integers, truth values. The one module
that imports z3.

Floats are either bits (z3's theory of IEEE 754, one NaN, zeros with signs, rounding to nearest) or real numbers, where
functions such as exp are unknown functions with the laws that are stated here. Where ONNX leaves something open, it is
as IEEE 754-2019 has it: a maximum with NaN is NaN, and -0 is less than +0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import isfinite, pi, sqrt
from typing import Any, TypeAlias

from graphopt.errors import MissingDependencyError
from graphopt.ir.op_table import ops_where

try:
    import z3
except ImportError as error:
    raise MissingDependencyError("proofs need z3-solver: install it with `pip install 'graphopt[prove]'`") from error

Term: TypeAlias = Any
"""A z3 expression."""

FLOATS = {"float16": (5, 11), "bfloat16": (8, 8), "float32": (8, 24), "float64": (11, 53)}
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
WIDTHS = {8: 32, 16: 64, 32: 100, 64: 200}
"""The bits in which guards reckon with numbers of so many: enough for a product of three."""


class Unspoken(Exception):  # noqa: N818 - not an error: what cannot be said is not proved
    """Something has no translation; the message says what."""


@dataclass(frozen=True)
class Answer:
    """What the solver found: ``proved``, ``refuted`` with numbers for the variables, or ``unknown``."""

    status: str
    numbers: dict[str, Any] = field(default_factory=dict)


class World:
    """One way of reading numbers: floats as bits (``is_ieee``) or as reals. Keeps what must hold besides."""

    def __init__(self, is_ieee: bool) -> None:
        self.is_ieee = is_ieee
        self.variables: dict[str, tuple[Term, str]] = {}
        self.axioms: list[Term] = []
        self.defined: list[Term] = []
        """What must hold for the terms made since this was emptied to have a value."""
        self._exponents: list[Term] = []
        self._named: dict[str, Term] = {}

    # -- leaves

    def variable(self, name: str, dtype: str) -> Term:
        """Any number of a dtype; the same one for the same name."""
        if name not in self.variables:
            self.variables[name] = z3.Const(name, self.sort(dtype)), dtype
        return self.variables[name][0]

    def sort(self, dtype: str) -> Any:
        """What stands for a dtype."""
        if dtype == "bool":
            return z3.BoolSort()
        if dtype in BITS:
            return z3.BitVecSort(BITS[dtype])
        if dtype in FLOATS:
            return z3.FPSort(*FLOATS[dtype]) if self.is_ieee else z3.RealSort()
        raise Unspoken(f"numbers of dtype {dtype}")

    def number(self, value: Any, dtype: str) -> Term:
        """A constant of a dtype."""
        if dtype == "bool":
            return z3.BoolVal(bool(value))
        if dtype in BITS:
            if int(value) != value:
                raise Unspoken(f"{value} as {dtype}")
            return z3.BitVecVal(int(value), BITS[dtype])
        if self.is_ieee:
            return z3.FPVal(float(value), self.sort(dtype))
        return self.real(value)

    def real(self, value: Any) -> Term:
        """A number as the real that it stands for: 0.16666667 is a sixth, 1.4142135 the root of two."""
        if isinstance(value, z3.ExprRef):
            return value
        if not isfinite(value):
            raise Unspoken(f"{value} as a real number")
        for name, number in (("root of 2", sqrt(2)), ("root of 2/pi", sqrt(2 / pi))):
            for power in (1, -1):
                if abs(value - number**power) < 1e-7 * number**power:
                    root = self._known(name)
                    return root if power == 1 else 1 / root
        near = Fraction(value).limit_denominator(1000)
        exact = near if abs(near - Fraction(value)) <= abs(Fraction(value)) / 10**7 else Fraction(repr(float(value)))
        return z3.RealVal(str(exact))

    def _known(self, name: str) -> Term:
        if name not in self._named:
            self._named[name] = z3.Real(name)
            self.axioms.append(self._named[name] > 0)
            if name == "root of 2":
                self.axioms.append(self._named[name] * self._named[name] == 2)
        return self._named[name]

    def between(self, value: Term, dtype: str, low: Term, high: Term) -> Term:
        """That a number lies between two others, or is NaN."""
        inside = z3.And(self.at_most(low, value, dtype), self.at_most(value, high, dtype))
        return z3.Or(z3.fpIsNaN(value), inside) if self.is_float(value) else inside

    def at_most(self, a: Term, b: Term, dtype: str) -> Term:
        """``a <= b``."""
        return z3.Not(self.less(b, a, dtype)) if not self.is_float(a) else z3.fpLEQ(a, b)

    def less(self, a: Term, b: Term, dtype: str) -> Term:
        """``a < b``."""
        if self.is_float(a):
            return z3.fpLT(a, b)
        if isinstance(a, z3.BoolRef):
            return z3.And(z3.Not(a), b)
        return z3.ULT(a, b) if dtype.startswith("u") and dtype in BITS else a < b

    def is_float(self, value: Term) -> bool:
        """Whether a term is bits of a float."""
        return isinstance(value, z3.FPRef)

    def is_finite(self, value: Term) -> Term:
        """That a number is neither NaN nor infinite."""
        return z3.Not(z3.Or(z3.fpIsNaN(value), z3.fpIsInf(value))) if self.is_float(value) else z3.BoolVal(True)

    # -- whole numbers without bounds, for guards: bits enough for a product of three

    def is_whole(self, value: Any) -> bool:
        """Whether a term is a machine integer, or a number made of some."""
        return isinstance(value, z3.BitVecRef)

    def exactly(self, operator: str, a: Any, b: Any) -> Term:
        """Arithmetic that does not wrap around."""
        left, right = _widened(a, b)
        if operator == "/":
            raise Unspoken("a quotient in a guard")
        results = {"+": left + right, "-": left - right, "*": left * right}
        return left % right if operator == "%" else results[operator]

    def compare(self, operator: str, a: Any, b: Any, dtype: str) -> Term:
        """A comparison of whole numbers."""
        left, right = _widened(a, b, dtype.startswith("u"))
        table = {
            "==": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right,
            ">=": left >= right,
        }  # fmt: skip
        return table[operator]

    def is_far_from_overflow(self, value: Any, dtype: str) -> Term:
        """That a number is within half of what a dtype holds."""
        half = 1 << (BITS[dtype] - (1 if dtype.startswith("u") else 2))
        least = 0 if dtype.startswith("u") else -half
        wide = _widened(value, least)[0]
        return z3.And(wide >= least, wide < half)

    def narrow(self, value: Any, dtype: str) -> Term:
        """A number that a dtype holds, in that dtype."""
        return z3.Extract(BITS[dtype] - 1, 0, value) if value.size() > BITS[dtype] else value

    # -- ops

    def apply(self, op: str, attrs: dict[str, Any], inputs: Sequence[Term | None], source: str, result: str) -> Term:
        """One element of the result of an op on one element of each input; ``source`` is the first input's dtype."""
        meaning = MEANINGS.get(op)
        if meaning is None or (self.is_ieee and op in ROUNDED and result in FLOATS):
            return self.unknown(op, attrs, inputs, result)
        return meaning(_Call(self, op, attrs, [*inputs], source, result))

    def unknown(self, op: str, attrs: dict[str, Any], inputs: Sequence[Term | None], result: str) -> Term:
        """A function of which nothing is known but that it is one."""
        given = [i for i in inputs if i is not None]
        symbolic = {n: a for n, a in attrs.items() if isinstance(a, z3.ExprRef)}
        plain = sorted((n, repr(a)) for n, a in attrs.items() if n not in symbolic)
        name = f"{op}{[i is not None for i in inputs]}{plain}"
        given += [symbolic[n] for n in sorted(symbolic)]
        return z3.Function(name, *(g.sort() for g in given), self.sort(result))(*given)

    def exp(self, x: Term) -> Term:
        """e to a power, over the reals: positive, and a sum becomes a product."""
        function = z3.Function("exp", z3.RealSort(), z3.RealSort())
        x = z3.simplify(x)
        if not any(x.eq(e) for e in self._exponents):
            self.axioms += [function(x) > 0, z3.Implies(x == 0, function(x) == 1)]
            for other in self._exponents:
                self.axioms.append(z3.Implies(x == -other, function(x) * function(other) == 1))
                for third in self._exponents:
                    for a, b, c in ((x, other, third), (other, third, x)):
                        self.axioms.append(z3.Implies(c == a + b, function(c) == function(a) * function(b)))
            self._exponents.append(x)
        return function(x)

    def log(self, x: Term) -> Term:
        """The logarithm, over the reals."""
        function = z3.Function("log", z3.RealSort(), z3.RealSort())
        self.defined.append(x > 0)
        self.axioms.append(z3.Implies(x > 0, self.exp(function(x)) == x))
        for e in list(self._exponents):
            self.axioms.append(function(self.exp(e)) == e)
        return function(x)

    def root(self, x: Term) -> Term:
        """The square root, over the reals."""
        square_root = z3.Function("sqrt", z3.RealSort(), z3.RealSort())(x)
        self.defined.append(x >= 0)
        self.axioms.append(z3.Implies(x >= 0, z3.And(square_root >= 0, square_root * square_root == x)))
        return square_root

    def quotient(self, a: Term, b: Term) -> Term:
        """``a / b`` over the reals, which has no value where b is zero."""
        self.defined.append(b != 0)
        return a / b

    # -- asking

    def prove(
        self,
        assumptions: Sequence[Term],
        sides: Sequence[tuple[Term, Term]],
        defined: Sequence[Term],
        milliseconds: int,
    ) -> Answer:
        """Whether both sides are equal, and have a value, wherever the assumptions hold."""
        solver = _solver(milliseconds)
        solver.add(*self.axioms, *assumptions)
        solver.add(z3.Not(z3.And(*(a == b for a, b in sides), *defined)))
        verdict = solver.check()
        if verdict == z3.unsat:
            return Answer("proved")
        if verdict != z3.sat:
            return Answer("unknown")
        model = solver.model()
        numbers = {n: _python(model.eval(term, model_completion=True)) for n, (term, _) in self.variables.items()}
        return Answer("refuted", numbers)

    def possible(self, assumptions: Sequence[Term], milliseconds: int) -> bool:
        """Whether the assumptions can hold at all, as far as can be told: what follows from nothing is no proof."""
        solver = _solver(milliseconds)
        solver.add(*self.axioms, *assumptions)
        return bool(solver.check() != z3.unsat)


def _solver(milliseconds: int) -> Any:
    """A solver that gives up after so many steps, however busy the machine is."""
    solver = z3.Solver()
    solver.set("rlimit", 1500 * milliseconds)
    solver.set("random_seed", 0)
    return solver


def forget() -> None:
    """Let the solver begin anew, so that what it finds does not depend on what it was asked before.

    Terms from before cannot be used with those from after.
    """
    # The names and numbers that z3 gave terms before decide the order in which it searches, and so what it finds within
    # its steps. The library makes its context when there is none, and has no other way to replace it.
    z3.z3._main_ctx = None


def steps() -> int:
    """How many steps the solver has taken since it began, in thousands."""
    solver = z3.Solver()
    solver.check()
    taken = {name: value for name, value in solver.statistics()}  # noqa: C416 - pairs, though it has keys()
    return int(taken.get("rlimit count", 0)) // 1000


def version() -> str:
    """The solver's version."""
    return str(z3.get_version_string())


def _widened(a: Any, b: Any, is_unsigned: bool = False) -> tuple[Term, Term]:
    """Two whole numbers in as many bits as guards reckon in."""
    terms = [v for v in (a, b) if isinstance(v, z3.BitVecRef)]
    width = max((WIDTHS.get(t.size(), t.size()) for t in terms), default=WIDTHS[64])
    wide = []
    for value in (a, b):
        if isinstance(value, int):
            wide.append(z3.BitVecVal(value, width))
        elif isinstance(value, z3.BitVecRef):
            more = width - value.size()
            wide.append(value if not more else (z3.ZeroExt if is_unsigned else z3.SignExt)(more, value))
        else:
            raise Unspoken("a guard on a fraction")
    return wide[0], wide[1]


def _python(value: Any) -> Any:
    """A number of the solver as Python's."""
    if z3.is_bool(value):
        return z3.is_true(value) if z3.is_true(value) or z3.is_false(value) else None
    if isinstance(value, z3.BitVecNumRef):
        return value.as_long()
    if isinstance(value, z3.FPNumRef):
        if value.isNaN():
            return float("nan")
        if value.isInf():
            return float("-inf") if value.isNegative() else float("inf")
        if value.isZero():
            return -0.0 if value.isNegative() else 0.0
        return float(z3.simplify(z3.fpToReal(value)).as_fraction())
    if isinstance(value, z3.RatNumRef):
        return float(value.as_fraction())
    if isinstance(value, z3.AlgebraicNumRef):
        return float(value.approx(20).as_fraction())
    return None


# -- meanings


@dataclass
class _Call:
    world: World
    op: str
    attrs: dict[str, Any]
    inputs: list[Term]
    source: str
    result: str

    @property
    def ieee(self) -> bool:
        return self.world.is_float(self.inputs[0])

    @property
    def is_unsigned(self) -> bool:
        return self.source.startswith("u")

    def number(self, value: Any) -> Term:
        return self.world.number(value, self.source)

    def attr(self, name: str, default: float) -> Term:
        value = self.attrs.get(name)
        value = default if value is None else value
        if not self.ieee:
            return self.world.real(value)
        if isinstance(value, z3.ExprRef):
            return (
                value if value.sort() == self.inputs[0].sort() else z3.fpFPToFP(z3.RNE(), value, self.inputs[0].sort())
            )
        return self.number(value)


Meaning = Callable[[_Call], Term]


def _arithmetic(symbol: str) -> Meaning:
    def meaning(c: _Call) -> Term:
        result = c.inputs[0]
        for other in c.inputs[1:]:
            result = _operate(c, symbol, result, other)
        return result

    return meaning


def _operate(c: _Call, symbol: str, a: Term, b: Term) -> Term:
    if c.world.is_float(a):
        return {"+": z3.fpAdd, "-": z3.fpSub, "*": z3.fpMul, "/": z3.fpDiv}[symbol](z3.RNE(), a, b)
    if symbol == "/":
        if z3.is_bv(a):
            c.world.defined.append(b != 0)
            if not c.is_unsigned:
                least = 1 << (a.size() - 1)
                c.world.defined.append(z3.Not(z3.And(a == least, b == -1)))
            return z3.UDiv(a, b) if c.is_unsigned else a / b
        return c.world.quotient(a, b)
    return {"+": a + b, "-": a - b, "*": a * b}[symbol] if symbol != "-" else a - b


def _extreme(is_max: bool) -> Meaning:
    def meaning(c: _Call) -> Term:
        result = c.inputs[0]
        for other in c.inputs[1:]:
            result = _larger(c, result, other) if is_max else _smaller(c, result, other)
        return result

    return meaning


def _larger(c: _Call, a: Term, b: Term) -> Term:
    if c.world.is_float(a):
        return _float_extreme(a, b, z3.fpGT(a, b), z3.And(z3.fpIsNegative(a), z3.fpIsNegative(b)))
    return z3.If(c.world.less(b, a, c.source), a, b)


def _smaller(c: _Call, a: Term, b: Term) -> Term:
    if c.world.is_float(a):
        return _float_extreme(a, b, z3.fpLT(a, b), z3.Or(z3.fpIsNegative(a), z3.fpIsNegative(b)))
    return z3.If(c.world.less(a, b, c.source), a, b)


def _float_extreme(a: Term, b: Term, first: Term, negative: Term) -> Term:
    zero = z3.If(negative, z3.fpMinusZero(a.sort()), z3.fpPlusZero(a.sort()))
    zeros = z3.And(z3.fpIsZero(a), z3.fpIsZero(b))
    nan = z3.Or(z3.fpIsNaN(a), z3.fpIsNaN(b))
    return z3.If(nan, z3.fpNaN(a.sort()), z3.If(zeros, zero, z3.If(first, a, b)))


def _clip(c: _Call) -> Term:
    x, low, high = (*c.inputs, None, None)[:3]
    x = x if low is None else _larger(c, x, low)
    return x if high is None else _smaller(c, x, high)


def _neg(c: _Call) -> Term:
    return z3.fpNeg(c.inputs[0]) if c.ieee else -c.inputs[0]


def _abs(c: _Call) -> Term:
    x = c.inputs[0]
    if c.ieee:
        return z3.fpAbs(x)
    return x if c.is_unsigned else z3.If(x < 0, -x, x)


def _relu(c: _Call) -> Term:
    return _larger(c, c.inputs[0], c.number(0.0))


def _compare(op: str) -> Meaning:
    def meaning(c: _Call) -> Term:
        a, b = c.inputs
        if op == "Equal":
            return z3.fpEQ(a, b) if c.ieee else a == b
        if op in ("Greater", "GreaterOrEqual"):
            a, b = b, a
        return c.world.less(a, b, c.source) if op in ("Less", "Greater") else c.world.at_most(a, b, c.source)

    return meaning


def _pow(c: _Call) -> Term:
    x, power = c.inputs
    constant = z3.simplify(power)
    exponent = constant.as_signed_long() if isinstance(constant, z3.BitVecNumRef) else _python(constant)
    if exponent == 1:
        return x
    if exponent is None or not isfinite(exponent):
        raise Unspoken("a power that is no constant")
    if c.ieee:
        return c.world.unknown("Pow", {"exponent": exponent}, c.inputs[:1], c.result)
    if exponent == 0.5 and not z3.is_bv(x):
        return c.world.root(x)
    if z3.is_bv(x) and exponent < 0:
        c.world.defined.append(z3.BoolVal(False))
        return x
    if int(exponent) != exponent or abs(exponent) > 4:
        raise Unspoken(f"a power of {exponent}")
    power_product = c.number(1)
    for _ in range(abs(int(exponent))):
        power_product = power_product * x
    return power_product if exponent >= 0 else c.world.quotient(c.number(1), power_product)


def _sqrt(c: _Call) -> Term:
    return z3.fpSqrt(z3.RNE(), c.inputs[0]) if c.ieee else c.world.root(c.inputs[0])


def _reciprocal(c: _Call) -> Term:
    return _operate(c, "/", c.number(1), c.inputs[0])


def _round(mode: str) -> Meaning:
    def meaning(c: _Call) -> Term:
        x = c.inputs[0]
        if c.ieee:
            how = {"Round": z3.RNE, "Floor": z3.RTN, "Ceil": z3.RTP}[mode]()
            return z3.fpRoundToIntegral(how, x)
        down = z3.ToReal(z3.ToInt(x))
        if mode == "Floor":
            return down
        if mode == "Ceil":
            return -z3.ToReal(z3.ToInt(-x))
        rest = x - down
        is_even = z3.ToInt(x) % 2 == 0
        return z3.If(z3.Or(rest < 0.5, z3.And(rest == 0.5, is_even)), down, down + 1)

    return meaning


def _sign(c: _Call) -> Term:
    x, zero, one = c.inputs[0], c.number(0), c.number(1)
    if c.ieee:
        minus = z3.If(z3.fpIsNegative(x), z3.fpNeg(one), one)
        return z3.If(z3.Or(z3.fpIsNaN(x), z3.fpIsZero(x)), z3.If(z3.fpIsNaN(x), x, zero), minus)
    if c.is_unsigned:
        return z3.If(x == zero, zero, one)
    return z3.If(x < zero, -one, z3.If(x == zero, zero, one))


def _leaky(c: _Call) -> Term:
    x = c.inputs[0]
    slope = c.inputs[1] if c.op == "PRelu" else c.attr("alpha", 0.01)
    scaled = _operate(c, "*", x, slope)
    return z3.If(c.world.less(x, c.number(0), c.source), scaled, x)


def _hard_sigmoid(c: _Call) -> Term:
    return _unit(c.attr("alpha", 0.2) * c.inputs[0] + c.attr("beta", 0.5))


def _hard_swish(c: _Call) -> Term:
    return c.inputs[0] * _unit(c.inputs[0] / 6 + z3.RealVal("1/2"))


def _unit(x: Term) -> Term:
    return z3.If(x < 0, z3.RealVal(0), z3.If(x > 1, z3.RealVal(1), x))


def _sigmoid_of(world: World, x: Term) -> Term:
    return 1 / (1 + world.exp(-x))


def _swish(c: _Call) -> Term:
    alpha = c.attr("alpha", 1.702 if "QuickGelu" in c.op else 1.0)
    return c.inputs[0] * _sigmoid_of(c.world, alpha * c.inputs[0])


def _softplus(world: World, x: Term) -> Term:
    return world.log(1 + world.exp(x))


def _function(name: str, x: Term) -> Term:
    return z3.Function(name, z3.RealSort(), z3.RealSort())(x)


def _gelu(c: _Call) -> Term:
    x, half = c.inputs[0], z3.RealVal("1/2")
    if c.attrs.get("approximate") == "tanh":
        cubic = x + z3.RealVal("0.044715") * x * x * x
        return half * x * (1 + _function("tanh", z3.simplify(c.world.real(sqrt(2 / pi)) * cubic, som=True)))
    return half * x * (1 + _function("erf", z3.simplify(x / c.world.real(sqrt(2)))))


def _mod(c: _Call) -> Term:
    a, b = c.inputs
    if not z3.is_bv(a):
        raise Unspoken("a remainder of floats")
    c.world.defined.append(b != 0)
    if c.is_unsigned:
        return z3.URem(a, b)
    return z3.SRem(a, b) if c.attrs.get("fmod") else a % b


def _cast(c: _Call) -> Term:
    x, source, result = c.inputs[0], c.source, c.result
    if source == result:
        return x
    if source == "bool":
        return z3.If(x, c.world.number(1, result), c.world.number(0, result))
    if result == "bool":
        zero = c.world.number(0, source)
        return z3.Not(z3.fpEQ(x, zero)) if c.ieee else x != zero
    if source in BITS and result in BITS:
        more = BITS[result] - BITS[source]
        if more < 0:
            return z3.Extract(BITS[result] - 1, 0, x)
        return (z3.ZeroExt if c.is_unsigned else z3.SignExt)(more, x)
    if source in FLOATS and result in FLOATS:
        return z3.fpFPToFP(z3.RNE(), x, c.world.sort(result)) if c.ieee else x
    if source in BITS and result in FLOATS and c.world.is_ieee:
        to = z3.fpUnsignedToFP if c.is_unsigned else z3.fpSignedToFP
        return to(z3.RNE(), x, c.world.sort(result))
    if source in FLOATS and result in BITS and c.world.is_ieee:
        return _to_integer(c, x)
    raise Unspoken(f"a cast of {source} to {result}")


def _to_integer(c: _Call, x: Term) -> Term:
    """A float without its fraction, which has no value where it does not fit."""
    bits, is_unsigned = BITS[c.result], c.result.startswith("u")
    most = float(1 << (bits if is_unsigned else bits - 1))
    least = -1.0 if is_unsigned else -most - 1
    with_ends = [z3.fpToFP(z3.RNE(), z3.RealVal(str(int(v))), x.sort()) for v in (least, most)]
    c.world.defined.append(z3.And(z3.fpGT(x, with_ends[0]), z3.fpLT(x, with_ends[1])))
    to = z3.fpToUBV if is_unsigned else z3.fpToSBV
    return to(z3.RTZ(), x, c.world.sort(c.result))


def _where(c: _Call) -> Term:
    condition, yes, no = c.inputs
    return z3.If(condition, yes, no)


def _logic(function: Callable[..., Any]) -> Meaning:
    return lambda c: function(*c.inputs)


def _bitwise(symbol: str) -> Meaning:
    def meaning(c: _Call) -> Term:
        a, *more = c.inputs
        if symbol == "~":
            return ~a
        return {"&": a & more[0], "|": a | more[0], "^": a ^ more[0]}[symbol]

    return meaning


def _mean(c: _Call) -> Term:
    if c.ieee:
        raise Unspoken("a mean")
    return _arithmetic("+")(c) / len(c.inputs)


def _elu(c: _Call) -> Term:
    x, alpha = c.inputs[0], c.attr("alpha", 1.0)
    return z3.If(x < 0, alpha * (c.world.exp(x) - 1), x)


MEANINGS: dict[str, Meaning] = {
    "Add": _arithmetic("+"), "Sub": _arithmetic("-"), "Mul": _arithmetic("*"), "Div": _arithmetic("/"),
    "Sum": _arithmetic("+"), "Mean": _mean, "Max": _extreme(True), "Min": _extreme(False), "Clip": _clip, "Neg": _neg,
    "Abs": _abs, "Relu": _relu, "Equal": _compare("Equal"), "Less": _compare("Less"), "Greater": _compare("Greater"),
    "LessOrEqual": _compare("LessOrEqual"), "GreaterOrEqual": _compare("GreaterOrEqual"), "Pow": _pow, "Sqrt": _sqrt,
    "Reciprocal": _reciprocal, "Round": _round("Round"), "Floor": _round("Floor"), "Ceil": _round("Ceil"),
    "Sign": _sign, "LeakyRelu": _leaky, "PRelu": _leaky, "HardSigmoid": _hard_sigmoid, "HardSwish": _hard_swish,
    "Mod": _mod, "Cast": _cast, "CastLike": _cast, "Where": _where, "Identity": lambda c: c.inputs[0],
    "Not": _logic(z3.Not), "And": _logic(z3.And), "Or": _logic(z3.Or), "Xor": _logic(z3.Xor),
    "BitwiseAnd": _bitwise("&"), "BitwiseOr": _bitwise("|"), "BitwiseXor": _bitwise("^"), "BitwiseNot": _bitwise("~"),
    "Exp": lambda c: c.world.exp(c.inputs[0]), "Log": lambda c: c.world.log(c.inputs[0]),
    "Sigmoid": lambda c: _sigmoid_of(c.world, c.inputs[0]), "Swish": _swish, "com.microsoft::QuickGelu": _swish,
    "Softplus": lambda c: _softplus(c.world, c.inputs[0]),
    "Tanh": lambda c: _function("tanh", z3.simplify(c.inputs[0], som=True)),
    "Erf": lambda c: _function("erf", z3.simplify(c.inputs[0])), "Gelu": _gelu, "com.microsoft::Gelu": _gelu,
    "Mish": lambda c: c.inputs[0] * _function("tanh", z3.simplify(_softplus(c.world, c.inputs[0]), som=True)),
    "Elu": _elu, "Softsign": lambda c: c.inputs[0] / (1 + z3.If(c.inputs[0] < 0, -c.inputs[0], c.inputs[0])),
}  # fmt: skip
"""What one element of each op's result is."""

ROUNDED = ops_where(is_approximate=True)
"""Ops of which IEEE 754 does not say how their results are rounded: over floats they are functions, no more."""
