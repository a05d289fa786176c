"""Code generation of expressions, for one element or for the lanes of a vector."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from math import isfinite, isnan

from graphopt.frozen import dataclass
from graphopt.ir.dtypes import HALVES
from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.emit.loop_invariants import IndexNames
from graphopt.lowering.emit.statement_text import ATOM, CHOICE, UNARY, Lanes, Text
from graphopt.lowering.emit.vocabulary import FLOATS, MATH, NARROW, OF_INTEGERS, OPERATORS, VECTORS
from graphopt.lowering.index.arithmetic import address_of, polynomial
from graphopt.lowering.index.polynomials import Polynomial, atom, replaced
from graphopt.lowering.loops.expressions import (
    CODES,
    INDEX,
    LEAST_CODE,
    Apply,
    Const,
    Expr,
    Load,
    Var,
    apply,
    loads_in,
    rewrite,
    variables,
)
from graphopt.lowering.loops.nest import Buffer

STRIDES = (-1, 2, 3, 4)
"""Distances of elements that are read as whole vectors, of which the rest is dropped."""


@dataclass
class Speller:
    """Code generator of expressions; lines that it needs before them (masks, shared values) go to ``line``."""

    line: Callable[[str], None]
    name: Callable[[Buffer], str]
    local: Callable[[Load, Polynomial, Lanes | None], Text | None]
    """The variable of a local buffer's element; None where the buffer is in memory."""
    fresh: Callable[[str], str]
    bounds: Mapping[Var, Expr]
    order: list[Var]
    names: IndexNames
    used: set[str] = field(default_factory=set)
    """The names that the source takes from elsewhere: functions and dtypes."""
    shared: set[Expr] = field(default_factory=set)
    """Common subexpressions, to be computed once."""
    held: dict[Expr, Text] = field(default_factory=dict)
    """Invariants of the current loop, computed before it."""
    safe: set[Expr] = field(default_factory=set)
    """Loads that are carried out whatever is chosen."""
    known: dict[tuple[Expr, Lanes | None], Text] = field(default_factory=dict)
    outside: Lanes | None = None
    """The lanes around the choice that is being written, which leaves some of them out."""
    lazy: int = 0
    """How many choices are being written that what is written is a side of."""
    taken: tuple[str, ...] = ()
    """The conditions of those that are branches: what a mask is computed from is only there where they hold."""
    contract: bool = True
    """Whether a product and a sum may be contracted to a fused multiply-add."""
    product: str = ""
    """The function that computes a product which is rounded by itself, where a compiler contracts those of ``*``."""
    libraries: dict[str, str] = field(default_factory=dict)
    """The modules of other functions that the source calls, by their names."""
    own: Callable[[Buffer, Polynomial], Polynomial] = lambda buffer, address: address
    """The part of an address by which whoever runs the kernel finds an element: on a device each thread has its own
    local buffers."""

    def use(self, name: str) -> str:
        """The name, added to the imports."""
        self.used.add(name)
        return name

    def library(self, dotted: str) -> str:
        """The name of a function of another module, added to the imports."""
        module, _, name = dotted.rpartition(".")
        self.libraries[name] = module
        return name

    def dtype(self, dtype: str) -> str:
        """The dtype of computations on elements of the dtype."""
        return self.use("float32" if dtype in HALVES else dtype)

    def value(self, expr: Expr, lanes: Lanes | None = None) -> Text:
        """The expression as source."""
        if expr in self.held:
            return self.held[expr]
        if self.outside is not None and lanes not in (None, self.outside) and (read := self.carried_out(expr)):
            return self.unchosen(rewrite(expr, read.get), self.outside)
        if expr not in self.shared or self.lazy:
            return self.known.get((expr, lanes)) or self.spelled(expr, lanes)
        if (expr, lanes) not in self.known:
            text = self.spelled(expr, lanes)
            name = self.fresh("t")
            self.line(f"{name} = {text.text}")
            self.known[expr, lanes] = Text(name, ATOM, text.wide)
        return self.known[expr, lanes]

    def carried_out(self, expr: Expr) -> dict[Expr, Expr]:
        """For each load of an expression, the one of the same element that is carried out whatever is chosen; none
        where one is not."""
        there = {(e.buffer, self.address(e)): e for e in self.safe if isinstance(e, Load)}
        read = loads_in(expr) if isinstance(expr, (Apply, Load)) else ()
        found = {e: there.get((e.buffer, self.address(e))) for e in read}
        return {e: load for e, load in found.items() if load is not None} if None not in found.values() else {}

    def unchosen(self, expr: Expr, lanes: Lanes) -> Text:
        """The expression as source, for lanes that are not chosen too: other choices have the same."""
        kept = self.lazy, self.taken, self.outside
        self.lazy, self.taken, self.outside = 0, (), None
        text = self.value(expr, lanes)
        self.lazy, self.taken, self.outside = kept
        return text

    def spelled(self, expr: Expr, lanes: Lanes | None) -> Text:
        """The expression as source, whether or not it is bound to a name."""
        match expr:
            case Const():
                return self.constant(expr)
            case Var():
                return self.variable(expr, lanes)
            case Load():
                return self.load(expr, lanes)
            case Apply():
                return self.indexed(expr, lanes) if expr.dtype == INDEX else self.applied(expr, lanes)
        raise AssertionError(expr)

    def indexed(self, expr: Apply, lanes: Lanes | None) -> Text:
        """A function of integers that may be a part of an index."""
        is_sum = expr.fn in ("add", "sub", "mul", "floordiv", "mod", "min", "max")
        if lanes is None or (lanes.var not in variables(expr) and self.names.is_steady(expr)):
            if is_sum:
                return self.names.sum(polynomial(expr, self.bounds))
            return self.names.atom(expr)
        if not is_sum:
            return self.applied(expr, lanes)
        tidied = self.summed(polynomial(expr, self.bounds), lanes)
        return self.applied(tidied, lanes) if isinstance(tidied, Apply) else self.value(tidied, lanes)

    def summed(self, p: Polynomial, lanes: Lanes) -> Expr:
        """A polynomial as an expression: terms that are the same in all lanes come first."""
        rank = {v: k for k, v in enumerate(self.order)}
        wide = {t: n for t, n in p.terms.items() if any(lanes.var in variables(a) for a in t)}
        steady = Polynomial({t: n for t, n in p.terms.items() if t not in wide})
        return apply("add", steady.expr(rank), Polynomial(wide).expr(rank))

    def constant(self, const: Const) -> Text:
        """A constant of its dtype."""
        if const.dtype in ("bool", INDEX):
            return Text(repr(const.value), ATOM if const.dtype == "bool" or const.value >= 0 else UNARY)
        number = const.value
        if isinstance(number, float) and not isfinite(number):
            word = self.use("nan" if isnan(number) else "inf")
            return Text(f"{self.dtype(const.dtype)}({'-' if number < 0 else ''}{word})")
        return Text(f"{self.dtype(const.dtype)}({number!r})")

    def variable(self, var: Var, lanes: Lanes | None) -> Text:
        """A loop variable or size; the vectorized loop's differs between lanes."""
        if lanes is None or var != lanes.var:
            self.names.mentioned.add(var)
            return Text(var.name)
        iota = f"{self.use('iota')}({lanes.count})"
        return (
            Text(iota, ATOM, True)
            if lanes.base == Const(0)
            else Text(f"{iota} + {self.value(lanes.base).within(5)}", 5, True)
        )

    # ------------------------------------------------------------------ memory

    def address(self, load: Load) -> Polynomial:
        """The address of an element, counted from the buffer's start."""
        return self.own(load.buffer, address_of(load, self.bounds))

    def load(self, load: Load, lanes: Lanes | None) -> Text:
        """A load of one element, or of a vector."""
        address = self.address(load)
        register = self.local(load, address, lanes)
        return self.read(load.buffer, address, lanes) if register is None else register

    def read(self, buffer: Buffer, address: Polynomial, lanes: Lanes | None) -> Text:
        """A load from an address in memory."""
        # Instruction selection, the cheapest first: a broadcast, a contiguous load, a strided one, repeated elements,
        # swapped ones, one of two loads, a lookup in a table of bytes, a gather.
        p, dtype = self.name(buffer), buffer.dtype
        if lanes is None or not _varies(address, lanes.var):
            at = self.names.sum(address).text
            if lanes is not None and lanes.mask is not None and self.lazy:
                zero = f"{self.use('uint16') if dtype in HALVES else self.use(_stored(dtype))}(0)"
                text = Text(f"{p}[{at}] if {self.use('reduce_or')}({lanes.mask}) else {zero}", CHOICE)
                return self.loaded(Text(f"({text.text})"), dtype)
            return self.loaded(Text(f"{p}[{at}]"), dtype)
        mask = f", {lanes.mask}" if lanes.mask else ""
        start = self.start(address, lanes)
        if start is not None:
            fn = self.use("load_where" if lanes.mask else "load")
            return self.loaded(Text(f"{fn}({p}, {start}, {lanes.count}{mask})", ATOM, True), dtype)
        if (stride := self.stride(address, lanes)) is not None:
            factor, start = stride
            fn = self.use("load_strided_where" if lanes.mask else "load_strided")
            return self.loaded(Text(f"{fn}({p}, {start}, {factor}, {lanes.count}{mask})", ATOM, True), dtype)
        if not lanes.mask and (repeated := self.repeated(address, lanes)) is not None:
            times, start = repeated
            fn = self.use("load_repeated")
            return self.loaded(Text(f"{fn}({p}, {start}, {times}, {lanes.count})", ATOM, True), dtype)
        if not lanes.mask and (start := self.swapped(address, lanes)) is not None:
            fn = self.use("load_swapped")
            return self.loaded(Text(f"{fn}({p}, {start}, {lanes.count})", ATOM, True), dtype)
        if (two := self.two_addresses(address, lanes)) is not None:
            condition, *addresses = two
            one, other = self.same_width([self.read(buffer, a, lanes) for a in addresses], lanes)
            return Text(f"({one} if {self.value(condition).within(0)} else {other})", ATOM, True)
        if (table := self.lookup(buffer, address, lanes)) is not None:
            code, start = table
            at = p if start == "0" else f"{self.use('offset')}({p}, {start})"
            by = self.value(code, lanes)
            return self.loaded(Text(f"{self.use('lookup')}({at}, {by.text})", ATOM, by.wide), dtype)
        fn = self.use("gather_where" if lanes.mask else "gather")
        at = self.value(self.summed(address, lanes), lanes).text
        return self.loaded(Text(f"{fn}({p}, {at}{mask})", ATOM, True), dtype)

    def two_addresses(self, address: Polynomial, lanes: Lanes) -> tuple[Expr, Polynomial, Polynomial] | None:
        """What all lanes choose by, and both addresses, of which one does not vary (an axis of any size may be of one
        element, which all have); None where there is no such choice."""
        for choice in address.atoms:
            if not (isinstance(choice, Apply) and choice.fn == "select" and lanes.var in variables(choice)):
                continue
            condition, *sides = choice.args
            if lanes.var in variables(condition):
                continue
            one, other = (polynomial(_replaced(address, choice, side).expr(), self.bounds) for side in sides)
            if _varies(one, lanes.var) != _varies(other, lanes.var):
                return condition, one, other
        return None

    def lookup(self, buffer: Buffer, address: Polynomial, lanes: Lanes) -> tuple[Expr, str] | None:
        """The codes by which lanes read from one table of bytes that has an entry for each code, and where it begins;
        None where they do not. No lane reads anything else, whatever a mask leaves out."""
        wide = [term for term in address.terms if any(lanes.var in variables(a) for a in term)]
        if _stored(buffer.dtype) not in LEAST_CODE or buffer.shape[-1:] != (Const(CODES),) or len(wide) != 1:
            return None
        cast = wide[0][0]
        if len(wide[0]) != 1 or address.terms[wide[0]] != 1 or not (isinstance(cast, Apply) and cast.fn == "cast"):
            return None
        code = cast.args[0]
        start = address - atom(cast) + LEAST_CODE.get(code.dtype, 0)
        if code.dtype not in LEAST_CODE or any(n % CODES for n in start.terms.values()):
            return None
        return code, self.names.sum(start).text

    def start(self, address: Polynomial, lanes: Lanes) -> str | None:
        """The address of the first lane, where the lanes are contiguous."""
        parts = address.split(lanes.var)
        if parts is None or parts[0].number != 1:
            return None
        first = parts[1] + polynomial(lanes.base, self.bounds)
        return self.names.sum(first).text

    def stride(self, address: Polynomial, lanes: Lanes) -> tuple[str, str] | None:
        """The stride of the lanes, and the address of the first; with a mask, where whole vectors cover them."""
        # lanes that are a known distance apart are loads of their own: processors take longer to gather them
        parts = address.split(lanes.var)
        if parts is None or parts[0].number == 0 or (lanes.mask and parts[0].number not in STRIDES):
            return None
        factor, base = parts[0], polynomial(lanes.base, self.bounds)
        if any(lanes.var in variables(a) or not self.names.is_steady(a) for a in factor.atoms):
            return None
        return self.names.sum(factor).text, self.names.sum(parts[1] + base * factor).text

    def repeated(self, address: Polynomial, lanes: Lanes) -> tuple[int, str] | None:
        """The number of neighbouring lanes with the same element, where these elements are contiguous, and the address
        of the first: the address has ``lane // n`` in it. A vector starts at a multiple of its length."""
        # Pattern match of the address: (base + lane) // n, where the base is a multiple of n, so that each vector
        # starts at a new element.
        wide = [product for product in address.terms if any(lanes.var in variables(atom) for atom in product)]
        if len(wide) != 1 or len(wide[0]) != 1 or address.terms[wide[0]] != 1:
            return None
        atom = wide[0][0]
        if not (isinstance(atom, Apply) and atom.fn == "floordiv" and isinstance(atom.args[1], Const)):
            return None
        times, parts = int(atom.args[1].value), polynomial(atom.args[0], self.bounds).split(lanes.var)
        if times not in (2, 4, 8) or times >= lanes.count or parts is None or parts[0].number != 1:
            return None
        rest, base = parts[1], polynomial(lanes.base, self.bounds)
        steady = Polynomial({p: t for p, t in base.terms.items() if p != (lanes.var,)}) + rest
        if any(t % times for t in steady.terms.values()):
            return None
        first = Apply("floordiv", (self.summed(base + rest, lanes), atom.args[1]), INDEX)
        others = Polynomial({p: t for p, t in address.terms.items() if p != wide[0]})
        return times, self.names.sum(others + Polynomial({(first,): 1})).text

    def swapped(self, address: Polynomial, lanes: Lanes) -> str | None:
        """The address of the first of two lanes, where each reads what is next to the other's: the address has
        ``lane - lane % 2 * 2`` in it. A vector starts at a multiple of its length."""
        turns = [p for p in address.terms if len(p) == 1 and isinstance(p[0], Apply) and p[0].fn == "mod"]
        turns = [p for p in turns if lanes.var in variables(p[0])]
        if len(turns) != 1 or address.terms[turns[0]] != -2:
            return None
        (turn,) = turns[0]
        assert isinstance(turn, Apply)
        rest = Polynomial({p: t for p, t in address.terms.items() if p != turns[0]})
        counted, base = polynomial(turn.args[0], self.bounds), polynomial(lanes.base, self.bounds)
        steady = Polynomial({p: t for p, t in base.terms.items() if p != (lanes.var,)}) + counted - atom(lanes.var)
        if turn.args[1] != Const(2) or any(t % 2 for t in steady.terms.values()):
            return None
        return self.start(rest - 1, lanes)

    def loaded(self, text: Text, dtype: str) -> Text:
        """The loaded value, converted to the dtype of computations."""
        if dtype == "bool":
            return Text(f"{text.within(1)} != {self.use('uint8')}(0)", 0, text.wide)
        if dtype in HALVES:
            return Text(f"{self.use('from_' + HALVES[dtype])}({text.text})", ATOM, text.wide)
        return text

    def stored(self, text: Text, dtype: str) -> str:
        """The value to store, converted to the dtype in memory."""
        if dtype == "bool":
            return f"{self.use('cast')}({text.text}, {self.use('uint8')})"
        if dtype in HALVES:
            kept = text.argument(f"from_{HALVES[dtype]}")  # what is only moved stays as it is kept
            return f"{self.use('to_' + HALVES[dtype])}({text.text})" if kept is None else kept
        return text.text

    def store(self, target: Load, value: Text, lanes: Lanes | None) -> None:
        """The line of a store."""
        address = self.address(target)
        p, dtype = self.name(target.buffer), target.dtype
        kept = self.stored(value, dtype)
        if lanes is None or not _varies(address, lanes.var):
            assert not value.wide, "lanes that all write one element"
            self.line(f"{p}[{self.names.sum(address).text}] = {kept}")
            return
        if not value.wide:
            kept = f"{self.use('splat')}({kept}, {lanes.count})"
        mask = f", {lanes.mask}" if lanes.mask else ""
        start = self.start(address, lanes)
        if start is not None:
            self.line(f"{self.use('store_where' if mask else 'store')}({p}, {start}, {kept}{mask})")
        elif not mask and (stride := self.stride(address, lanes)) is not None:
            factor, start = stride
            self.line(f"{self.use('store_strided')}({p}, {start}, {factor}, {kept})")
        else:
            at = self.value(self.summed(address, lanes), lanes).text
            self.line(f"{self.use('scatter_where' if mask else 'scatter')}({p}, {at}, {kept}{mask})")

    # ------------------------------------------------------------------ functions

    def applied(self, expr: Apply, lanes: Lanes | None) -> Text:
        """A function of its arguments."""
        # Instruction selection, special forms first: choices, conversions, fused multiply-add, neutral factors; then
        # one operator or function for each dtype.
        if expr.fn == "select":
            return self.choice(expr, lanes)
        if expr.fn == "cast":
            return self.cast(expr, lanes)
        if expr.fn in OF_INTEGERS and expr.args[0].dtype not in FLOATS:
            return self.value(OF_INTEGERS[expr.fn](*expr.args), lanes)
        if expr.fn in ("min", "max") and expr.dtype == "bool":
            return self.value(Apply("and" if expr.fn == "min" else "or", expr.args, "bool"), lanes)
        if fused := self.fused(expr, lanes):
            return fused
        if expr.fn in ("mul", "div") and expr.args[1] == Const(1.0, expr.dtype):
            return self.value(expr.args[0], lanes)
        last = expr.args[-1]
        if expr.fn == "add" and isinstance(last, Const) and last.dtype == INDEX and last.value < 0:
            expr = Apply("sub", (expr.args[0], Const(-last.value)), INDEX)
        args = [self.value(a, lanes) for a in expr.args]
        wide = any(a.wide for a in args)
        kind = expr.args[0].dtype
        if expr.fn == "div" and kind not in HALVES and not kind.startswith("float"):
            return self.narrowed(Text(f"{self.use('quotient')}({args[0].text}, {args[1].text})", ATOM, wide), expr)
        if expr.fn == "mul" and self.product and expr.dtype in FLOATS:
            return Text(f"{self.use(self.product)}({args[0].text}, {args[1].text})", ATOM, wide)
        if expr.fn in OPERATORS and not _may_leave_nothing(expr):
            sign, level = OPERATORS[expr.fn]
            right = args[1].within(level + 1)
            text = Text(f"{args[0].within(level if level else 1)} {sign} {right}", level, wide)
            return self.narrowed(text, expr)
        if expr.fn == "neg":
            return self.narrowed(Text(f"-{args[0].within(UNARY)}", UNARY, wide), expr)
        if expr.fn in ("not", "invert"):
            word = "~" if wide or expr.fn == "invert" else "not "
            return self.narrowed(Text(f"{word}{args[0].within(UNARY)}", UNARY if word == "~" else CHOICE, wide), expr)
        if expr.fn in ("fmin", "fmax"):
            return self.passing_nan(expr, args, lanes)
        if expr.fn == "bits":
            return self.reinterpreted(args[0], kind, expr.dtype)
        if expr.fn == "abs":
            return self.narrowed(Text(f"abs({args[0].text})", ATOM, wide), expr)
        spelled = "sign" if expr.fn == "sign" else VECTORS.get(expr.fn) or MATH[expr.fn]
        values = ", ".join(
            self.same_width(args, lanes) if spelled in ("fma", "minimum", "maximum") else [a.text for a in args]
        )
        if expr.fn == "saturate":
            values += f", {self.dtype(expr.dtype)}"
        return Text(f"{self.use(spelled)}({values})", ATOM, wide)

    def narrowed(self, text: Text, expr: Apply) -> Text:
        """The result of integer arithmetic, wrapped to its own width."""
        if expr.dtype in NARROW and not text.wide:
            return Text(f"{self.dtype(expr.dtype)}({text.text})")
        return text

    def fused(self, expr: Apply, lanes: Lanes | None) -> Text | None:
        """Fused multiply-add on vectors: ``a * b + c``, rounded once."""
        if not self.contract or expr.fn != "add" or lanes is None or not expr.dtype.startswith("float"):
            return None
        for product, other in (expr.args[::-1], expr.args):
            if isinstance(product, Apply) and product.fn == "mul" and product not in self.shared:
                args = [self.value(e, lanes) for e in (*product.args, other)]
                if any(a.wide for a in args):
                    return Text(f"{self.use('fma')}({', '.join(self.same_width(args, lanes))})", ATOM, True)
        return None

    def same_width(self, args: list[Text], lanes: Lanes | None) -> list[str]:
        """The arguments, broadcast to vectors where one is a vector."""
        if lanes is None or not any(a.wide for a in args):
            return [a.text for a in args]
        return [a.text if a.wide else f"{self.use('splat')}({a.text}, {lanes.count})" for a in args]

    def chosen(self, mask: str, wide: str, identity: Const, lanes: Lanes) -> str:
        """The vector with the neutral element in masked lanes."""
        nothing = f"{self.use('splat')}({self.constant(identity).text}, {lanes.count})"
        return f"{self.use('select')}({mask}, {wide}, {nothing})"

    def passing_nan(self, expr: Apply, args: list[Text], lanes: Lanes | None) -> Text:
        """The smaller or larger; the other where one is NaN."""
        a, b = self.same_width(args, lanes)
        sign = "<" if expr.fn == "fmin" else ">"
        wide = any(x.wide for x in args)
        nan = self.use("isnan")
        condition = f"({a} {sign} {b}) | {nan}({b})"
        return Text(f"{self.use('select')}({condition}, {a}, {b})", ATOM, wide)

    def cast(self, expr: Apply, lanes: Lanes | None) -> Text:
        """The value in another dtype."""
        value, before, after = self.value(expr.args[0], lanes), expr.args[0].dtype, expr.dtype
        if after == "bool":
            zero = self.constant(Const(0.0 if before.startswith(("float", "bfloat")) else 0, before))
            return Text(f"{value.within(1)} != {zero.text}", 0, value.wide)
        if after in HALVES:
            single = value if before in ("float32", *HALVES) else self.converted(value, "float32")
            name = HALVES[after]
            return Text(f"{self.use('from_' + name)}({self.use('to_' + name)}({single.text}))", ATOM, value.wide)
        if before in HALVES and after == "float32":
            return value
        return self.converted(value, after)

    def reinterpreted(self, value: Text, before: str, after: str) -> Text:
        """A bit cast to another dtype, by way of integers."""
        if before in HALVES:
            value, before = Text(f"{self.use('to_' + HALVES[before])}({value.text})", ATOM, value.wide), "uint16"
        elif before.startswith("float"):
            value, before = Text(f"{self.use('bits')}({value.text})", ATOM, value.wide), before.replace("float", "int")
        whole = after if "float" not in after else "uint16" if after in HALVES else after.replace("float", "int")
        value = value if before == whole else self.converted(value, whole)
        if whole == after:
            return value
        name = "from_" + HALVES[after] if after in HALVES else "from_bits"
        return Text(f"{self.use(name)}({value.text})", ATOM, value.wide)

    def converted(self, value: Text, dtype: str) -> Text:
        """A conversion as in C."""
        return Text(f"{self.use('cast')}({value.text}, {self.dtype(dtype)})", ATOM, value.wide)

    def choice(self, expr: Apply, lanes: Lanes | None) -> Text:
        """A choice of two values. The other one is not loaded: by a branch, or by masked lanes."""
        condition = self.value(expr.args[0], lanes)
        if condition.wide and lanes is not None:
            return self.masked_choice(expr, condition, lanes)
        reads = any(map(self.reads, expr.args[1:]))
        self.lazy += reads
        then = self.side(condition.within(ATOM), expr.args[1], lanes)
        otherwise = self.side(f"(not {condition.within(ATOM)})", expr.args[2], lanes)
        self.lazy -= reads
        wide = then.wide or otherwise.wide
        if not reads and wide:
            a, b = self.same_width([then, otherwise], lanes)
            return Text(f"{self.use('select')}({condition.text}, {a}, {b})", ATOM, True)
        a, b = self.same_width([then, otherwise], lanes) if wide else [then.within(0), otherwise.within(CHOICE)]
        if a == then.text:
            a = then.within(0)
        return Text(f"{a} if {condition.within(0)} else {b}", CHOICE, wide)

    def side(self, condition: str, expr: Expr, lanes: Lanes | None) -> Text:
        """A side of a branch, which is taken where the condition holds."""
        self.taken += (condition,)
        text = self.value(expr, lanes)
        self.taken = self.taken[:-1]
        return text

    def reads(self, expr: Expr) -> bool:
        """Whether an expression has loads that might be out of bounds."""
        if isinstance(expr, Load):
            return expr not in self.safe
        return isinstance(expr, Apply) and any(map(self.reads, expr.args))

    def masked_choice(self, expr: Apply, condition: Text, lanes: Lanes) -> Text:
        """A choice of two values in each lane."""
        then, otherwise = expr.args[1:]
        mask = condition.within(4)
        around, self.outside = self.outside, self.outside or lanes
        if any(map(self.reads, (then, otherwise))):
            mask, text = self.fresh("m"), condition.text
            if self.taken:
                nowhere = f"{self.use('splat')}(False, {lanes.count})"
                text = f"{condition.within(0)} if {' and '.join(self.taken)} else {nowhere}"
            self.line(f"{mask} = {text}")
        sides = []
        for side, side_mask in ((then, mask), (otherwise, f"~{mask}")):
            inner = lanes
            if self.reads(side):
                both = side_mask if lanes.mask is None else f"{side_mask} & {lanes.mask}"
                inner = Lanes(lanes.var, lanes.base, lanes.count, f"({both})" if both != mask else both)
                self.lazy += 1
            sides.append(self.value(side, inner))
            self.lazy -= inner is not lanes
        self.outside = around
        a, b = self.same_width(sides, lanes) if any(s.wide for s in sides) else [s.text for s in sides]
        if not any(s.wide for s in sides):
            a, b = (f"{self.use('splat')}({s}, {lanes.count})" for s in (a, b))
        return Text(f"{self.use('select')}({mask}, {a}, {b})", ATOM, True)


def _replaced(address: Polynomial, one: Expr, by: Expr) -> Polynomial:
    values: dict[Expr, Polynomial] = {one: polynomial(by)}
    return replaced(address, values.get)


def _varies(address: Polynomial, var: Var) -> bool:
    return any(var in variables(atom) for product in address.terms for atom in product)


def _stored(dtype: str) -> str:
    """The type that elements of a dtype are kept in."""
    return "uint8" if dtype == "bool" else dtype


def _may_leave_nothing(expr: Apply) -> bool:
    """Whether an expression may shift by as many bits as there are or more, or by less than none, which processors do
    each in their own way."""
    if expr.fn not in ("shl", "shr") or expr.args[1].dtype != expr.dtype:
        return False
    count = expr.args[1]
    return not (isinstance(count, Const) and 0 <= count.value < 8 * numpy_dtype(expr.dtype).itemsize)
