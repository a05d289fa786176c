"""Loop-invariant code motion of index arithmetic: invariant parts of indices are computed in the heads of outer loops.

An index is a sum of terms. Those over the variables of outer loops are summed up where the last of these variables is
known, and have a name from there on; so a tile written out in full adds a number to the same name in each of its
lines. Compilers could find that out by themselves at a much higher price, except for divisions, which they do not move
out of branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import field
from functools import lru_cache
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.lowering.emit.statement_text import ATOM, PRODUCT, SUM, UNARY, Text
from graphopt.lowering.index.polynomials import Polynomial, Product, by_text
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Var, loads_in, variables

InvariantKey: TypeAlias = "Expr | frozenset[tuple[Product, int]]"
"""The key of a name: an atom, or the terms of a sum."""
Spell: TypeAlias = Callable[[Expr], Text]
"""Source of an expression."""


@dataclass
class LoopLevel:
    """A loop level of the source (first the function): where its head's next line goes, and the names bound there."""

    number: int
    line: int
    depth: int
    names: dict[InvariantKey, str] = field(default_factory=dict)


class IndexNames:
    """Code generator of indices, which binds invariant parts of them to names in the heads of the loops around.

    ``plain`` are those that need no name, each with the number of its loop: as found by ``used_once`` when the same
    kernel was written before, and ``given`` what takes the place of sizes, as found by ``replacing``: a kernel that is
    given a quotient serves whatever it is the quotient of. ``value`` spells what is no index arithmetic, ``applied`` a
    function of its arguments; within ``apart`` they take no names that only the line has which is being written.
    """

    def __init__(
        self,
        lines: list[str],
        fresh: Callable[[str], str],
        value: Spell,
        applied: Callable[[Apply], Text],
        sizes: Sequence[Var],
        plain: frozenset[tuple[int, InvariantKey]],
        given: frozenset[Expr] = frozenset(),
        apart: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.lines, self.fresh, self.value, self.applied, self.plain = lines, fresh, value, applied, plain
        self.apart = apart
        self.levels = [LoopLevel(0, 0, 1)]
        self.opened = 1
        self.of_var = dict.fromkeys(sizes, 0)
        self.uses: Counter[tuple[int, InvariantKey]] = Counter()
        self.outside: set[tuple[int, InvariantKey]] = set()
        """Divisions and the like that are used in loops within the one that they belong to."""
        self.given, self.parameters = given, dict[Expr, str]()
        """Quotients of sizes that are parameters of the kernel, and what those are called that it uses."""
        self.quotients: set[Expr] = set()
        self.mentioned: set[Var] = set()
        """Quotients of sizes, and the variables that are used otherwise than within them."""

    @contextmanager
    def loop(self, var: Var, depth: int) -> Iterator[None]:
        """A context manager: the lines behind the last one are the body of a loop over ``var``."""
        self.levels.append(LoopLevel(self.opened, len(self.lines), depth))
        self.of_var[var] = len(self.levels) - 1
        self.opened += 1
        yield
        self.levels.pop()
        del self.of_var[var]

    def used_once(self) -> frozenset[tuple[int, InvariantKey]]:
        """Names not worth binding: used by one line, and cheap or not leaving a loop."""
        return frozenset(use for use, n in self.uses.items() if n == 1 and use not in self.outside)

    def is_steady(self, expr: Expr) -> bool:
        """Whether an expression is over loop variables and sizes alone."""
        return self.level(_free(expr)) is not None

    def level(self, free: frozenset[Var] | None) -> int | None:
        """The innermost loop of these variables; None where one is of no loop."""
        if free is None:
            return None
        levels = [self.of_var.get(v) for v in free]
        return None if None in levels else max((n for n in levels if n is not None), default=0)

    def sum(self, address: Polynomial) -> Text:
        """The sum as source."""
        steady: dict[int, dict[Product, int]] = {}
        rest: dict[Product, int] = {}
        for product in sorted(address.terms, key=by_text):
            level = self.level(_free_of(product)) if product else None
            (rest if level is None else steady.setdefault(level, {}))[product] = address.terms[product]
        constant = rest.pop((), None)
        if constant is not None:
            rest[()] = constant
        first = self.prefix([(level, steady[level]) for level in sorted(steady)])
        return self.joined(first, rest) if rest or first is None else first

    def prefix(self, parts: Sequence[tuple[int, dict[Product, int]]]) -> Text | None:
        """The sum of the terms of some loops, outermost first, as a name at the innermost one of them."""
        if not parts:
            return None
        level, terms = parts[-1]
        only = next(iter(terms)) if len(parts) == 1 and len(terms) == 1 else ()
        if len(only) == 1 and terms[only] == 1:
            return self.atom(only[0])
        key = frozenset(term for _, terms in parts for term in terms.items())
        return self.named(level, key, lambda: self.joined(self.prefix(parts[:-1]), terms))

    def atom(self, atom: Expr) -> Text:
        """A factor as source: a variable, or any expression that is no sum."""
        level = self.level(_free(atom))
        if not isinstance(atom, Apply):
            return self.value(atom)
        if level is None:
            return self.applied(atom)
        if atom in self.given:
            if atom not in self.parameters:
                self.parameters[atom] = self.fresh("n")
            return Text(self.parameters[atom])
        if level < len(self.levels) - 1:
            self.outside.add((self.levels[level].number, atom))
        if level > 0 or atom.fn != "floordiv" or not _is_size(atom):
            return self.named(level, atom, lambda: self.applied(atom))
        mentioned = set(self.mentioned)
        text = self.named(level, atom, lambda: self.applied(atom))
        self.quotients.add(atom)
        self.mentioned = mentioned
        return text

    def replacing(self) -> frozenset[Expr]:
        """The quotients of sizes that a kernel can take as parameters, in place of sizes without other uses."""
        candidates, mentioned = self.quotients, self.mentioned
        while removed := {q for q in candidates if not mentioned.isdisjoint(variables(q))}:
            candidates, mentioned = candidates - removed, mentioned.union(*map(variables, removed))
        return frozenset(candidates)

    def named(self, level: int, key: InvariantKey, make: Callable[[], Text]) -> Text:
        """The name of the source that ``make`` gives, or that source where it needs no name."""
        at = self.levels[level]
        self.uses[at.number, key] += 1
        if key in at.names:
            return Text(at.names[key])
        with self.apart():
            text = make()
        if (at.number, key) in self.plain:
            return text
        name = at.names[key] = self.fresh("p")
        self.lines.insert(at.line, "    " * at.depth + f"{name} = {text.text}")
        for inner in self.levels[level:]:
            inner.line += 1
        return Text(name)

    def joined(self, first: Text | None, terms: dict[Product, int]) -> Text:
        """The sum of a prefix and the terms."""
        text = first
        for product, times in sorted(terms.items(), key=lambda term: not term[0] or term[1] < 0):
            if text is None:
                text = self.term(product, times)
            else:
                term = self.term(product, abs(times))
                text = Text(f"{text.within(SUM)} {'+' if times > 0 else '-'} {term.within(PRODUCT)}", SUM)
        return text or Text("0")

    def term(self, product: Product, times: int) -> Text:
        """A product with its coefficient. A sign goes before the first factor: it binds tighter than ``%`` does."""
        if not product:
            return Text(str(times), ATOM if times >= 0 else UNARY)
        text = self.atom(product[0])
        if times < 0:
            text = Text(f"-{text.within(UNARY)}", UNARY)
        for factor in [self.atom(a).within(ATOM) for a in product[1:]] + [str(abs(times))] * (abs(times) != 1):
            text = Text(f"{text.within(PRODUCT)} * {factor}", PRODUCT)
        return text


def _is_size(expr: Expr) -> bool:
    """Whether an expression is a sum or product of sizes, or a quotient by a number."""
    match expr:
        case Var() | Const():
            return True
        case Apply(fn="floordiv", args=(a, Const(value=n))):
            return n > 0 and _is_size(a)
        case Apply(fn="add" | "sub" | "mul", args=(a, b)):
            return _is_size(a) and _is_size(b)
    return False


def _free(expr: Expr) -> frozenset[Var] | None:
    """The variables of an expression; None where it reads memory."""
    return None if loads_in(expr) else variables(expr)


@lru_cache(1 << 14)
def _free_of(product: Product) -> frozenset[Var] | None:
    vars = [_free(atom) for atom in product]
    return None if None in vars else frozenset().union(*(f for f in vars if f is not None))
