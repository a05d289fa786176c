"""Symbolic sizes in their three forms: in types, in nests, and in running programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import add, floordiv, mul, sub

from graphopt.ir.types import Broadcast, FloorDiv, Maximum, Minimum, Real, SizeAtom, Symbol, Truncated
from graphopt.ir.types import Size as Dimension
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var
from graphopt.runtime import sizes as runtime

_OPERATIONS = {"add": "+", "sub": "-", "mul": "*", "floordiv": "//", "mod": "%", "min": "min", "max": "max"}
_OPERATIONS |= {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "and": "and", "or": "or"}
_OF_REALS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


class Symbols:
    """Names of symbols in programs, the same for the same graph in every process: unnamed sizes are numbered in order
    of first use."""

    def __init__(self) -> None:
        self.names: dict[Symbol, str] = {}

    def name(self, symbol: Symbol) -> str:
        """The name of a symbol."""
        if symbol not in self.names:
            plain = symbol.name if not symbol.name.startswith("?") else f"?{len(self.names)}"
            self.names[symbol] = plain
        return self.names[symbol]

    def size(self, size: Dimension) -> runtime.Size:
        """A type's size in the form that programs use."""
        if isinstance(size, int):
            return size
        terms: list[runtime.Size] = []
        for monomial, coefficient in size.terms:
            factors: list[runtime.Size] = [self(a) for a in monomial]
            if coefficient != 1 or not factors:
                factors.insert(0, coefficient)
            terms.append(("*", *factors) if len(factors) > 1 else factors[0])
        return ("+", *terms) if len(terms) > 1 else terms[0]

    def __call__(self, atom: SizeAtom) -> runtime.Size:
        """The size that an atom is."""
        match atom:
            case Symbol():
                return self.name(atom)
            case FloorDiv():
                return ("//", self.size(atom.numerator), self.size(atom.denominator))
            case Broadcast():
                return ("broadcast", *map(self.size, atom.sizes))
            case Minimum():
                return ("min", *map(self.size, atom.sizes))
            case Maximum():
                return ("max", *map(self.size, atom.sizes))
            case Truncated():
                return ("trunc", self.real(atom.number))

    def real(self, number: Real) -> runtime.Size:
        """A float that is computed of sizes, in the form that programs use."""
        if number.value is not None:
            return number.value
        if number.parts:
            above, below = number.parts
            return (number.dtype, self.size(above) if below == 1 else ("/", self.size(above), below))
        parts = [self.real(a) for a in number.arguments if isinstance(a, Real)]
        return (
            (number.dtype, *parts)
            if number.function == "cast"
            else (number.dtype, (_OF_REALS.get(number.function, number.function), *parts))
        )


def symbols_in(size: Dimension) -> set[Symbol]:
    """The symbols that a size mentions."""
    atoms = () if isinstance(size, int) else (atom for monomial, _ in size.terms for atom in monomial)
    return {symbol for atom in atoms for symbol in symbols_of(atom)}


def symbols_of(atom: SizeAtom) -> set[Symbol]:
    """The symbols that an atom mentions."""
    match atom:
        case Symbol():
            return {atom}
        case FloorDiv():
            return symbols_in(atom.numerator) | symbols_in(atom.denominator)
        case Broadcast() | Minimum() | Maximum():
            return set().union(*map(symbols_in, atom.sizes))
        case Truncated():
            return set().union(*map(symbols_in, atom.number.sizes))


def size_of(expr: Expr, values: Mapping[Var, runtime.Size]) -> runtime.Size:
    """An index expression or condition over a nest's sizes, as a program's size. Raises ValueError where it is
    neither."""
    match expr:
        case Const():
            return int(expr.value)
        case Var():
            return values[expr]
        case Apply(fn="select", args=(Apply(fn="eq", args=(a, Const(value=1))), b, c)) if a == c:
            return ("broadcast", size_of(a, values), size_of(b, values))  # how ``Sizes`` writes a broadcast
        case Apply(fn=fn, args=args) if fn in _OPERATIONS:
            return (_OPERATIONS[fn], *(size_of(a, values) for a in args))
    raise ValueError(f"{expr} is no size")


def dimension_of(expr: Expr, atom: Callable[[Expr], Dimension]) -> Dimension:
    """An index expression as a type's size: a polynomial with floor divisions. Anything else in it is what ``atom``
    makes of that; a division by zero is such an expression."""
    match expr:
        case Const():
            return int(expr.value)
        case Apply(fn=fn, args=(a, b)) if fn in _OF_DIMENSIONS:
            left, right = dimension_of(a, atom), dimension_of(b, atom)
            if fn != "floordiv" or right != 0:
                return _OF_DIMENSIONS[fn](left, right)
    return atom(expr)


_OF_DIMENSIONS: Mapping[str, Callable[[Dimension, Dimension], Dimension]] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "floordiv": floordiv,
}


def product(*sizes: runtime.Size) -> runtime.Size:
    """The product of sizes, folded where possible."""
    number, rest = 1, []
    for size in sizes:
        for factor in size[1:] if isinstance(size, tuple) and size[0] == "*" else (size,):
            if isinstance(factor, int):
                number *= factor
            else:
                rest.append(factor)
    if not rest or number == 0:
        return number
    factors = rest if number == 1 else [number, *rest]
    return ("*", *factors) if len(factors) > 1 else factors[0]


def total(*sizes: runtime.Size) -> runtime.Size:
    """The sum of sizes, folded where possible."""
    number, rest = 0, []
    for size in sizes:
        for term in size[1:] if isinstance(size, tuple) and size[0] == "+" else (size,):
            if isinstance(term, int):
                number += term
            else:
                rest.append(term)
    terms = rest if number == 0 and rest else [*rest, number]
    return ("+", *terms) if len(terms) > 1 else terms[0]
