"""Provenance (proof forest): why two terms are equal, as a forest of unions, each with its rule or its congruence.

The forest of an explaining e-graph (Flatt et al., "Small proofs from congruence closure", 2022):
every union adds one edge between the two terms that it was made for, so that between any two equal
terms there is exactly one path, made of nothing but unions that came before whatever rests on it. An
edge of a rule holds the two sides as they were matched and built; where they are not spelled like the
terms that stand for them, their children are equal, and are explained in turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.graph import CONSTANT, INPUT, Attrs

COMMUTE = "commute"
"""The name of a step that only changes the order of the operands of a commutative op."""


@dataclass(frozen=True, slots=True)
class TermSymbol:
    """What a term applies to its children. ``only`` is set for what is equal to nothing else: inputs of the graph, ops
    with effects, ops with bodies."""

    op: str
    attrs: Attrs
    n_outputs: int = 1
    only: int | None = None


@dataclass(frozen=True, slots=True)
class Spelled:
    """A term as a side of a rule spells it: equal to ``term`` up to equal children, in the given order of those."""

    term: int
    children: tuple[TermSpelling, ...]
    order: tuple[int, ...] | None = None
    """Which child of ``term`` each child is equal to, where that is not the one at the same position."""


TermSpelling: TypeAlias = int | Spelled


@dataclass(frozen=True, slots=True)
class Applied:
    """A rule was applied: match number ``match`` of the run. Left and right sides as they were spelled."""

    rule: str
    match: int
    left: TermSpelling
    right: TermSpelling


@dataclass(frozen=True, slots=True)
class Congruent:
    """Two terms have one symbol and equal children, of the second in this order (None: as they stand)."""

    order: tuple[int, ...] | None = None


Reason: TypeAlias = Applied | Congruent


@dataclass(frozen=True, slots=True)
class Application:
    """All of one application of a rule: its number is its position among them."""

    rule: str
    left: tuple[TermSpelling, ...]
    """The roots, as they were matched."""
    right: tuple[TermSpelling, ...]
    """What was built for each."""
    first: int
    """Terms from this one on, up to the next application's, were made for it."""


@dataclass(frozen=True, slots=True)
class ProofStep:
    """One rewrite within a term: ``before`` becomes ``after`` at ``site``, given by the positions of children."""

    rule: str
    site: tuple[int, ...]
    before: TermSpelling
    after: TermSpelling
    backward: bool = False
    """The rule is read from right to left."""
    match: int = -1
    """Steps of one number are one application of the rule, at several places or with several roots."""


@dataclass(slots=True)
class _Edge:
    to: int
    reason: Reason
    forward: bool


@dataclass
class Provenance:
    """Terms, numbered in the order in which they were made, and the reasons for which they are equal."""

    symbols: list[TermSymbol] = field(default_factory=list)
    terms: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """For each term its symbol (an index into ``symbols``) and its children (terms)."""
    names: dict[int, str] = field(default_factory=dict)
    """What the graph calls its own terms."""
    applications: list[Application] = field(default_factory=list)
    """Applications of rules, in order."""
    _parent: dict[int, _Edge] = field(default_factory=dict)

    # -- recording

    def connect(self, a: int, b: int, reason: Reason) -> None:
        """Remember why two terms are equal that no earlier union made equal."""
        self._make_root(a)
        self._parent[a] = _Edge(b, reason, True)

    def _make_root(self, term: int) -> None:
        edge, below = self._parent.pop(term, None), term
        while edge is not None:
            above = edge.to
            after = self._parent.pop(above, None)
            self._parent[above] = _Edge(below, edge.reason, not edge.forward)
            edge, below = after, above

    # -- explaining

    def explain(self, a: int, b: int) -> list[ProofStep]:
        """Steps that turn term ``a`` into term ``b``, in order. ValueError where they are not equal."""
        return list(self._between(a, b, ()))

    def _between(self, a: TermSpelling, b: TermSpelling, site: tuple[int, ...]) -> Iterator[ProofStep]:
        """From one spelling to another of an equal term. Depth-first with a stack of its own: terms are deep."""
        waiting: list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep] = [(a, b, site)]
        while waiting:
            item = waiting.pop()
            if isinstance(item, ProofStep):
                yield item
            else:
                waiting.extend(reversed(self._expand(*item)))

    def _expand(
        self, a: TermSpelling, b: TermSpelling, site: tuple[int, ...]
    ) -> list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep]:
        if a == b:
            return []
        if isinstance(a, int) and isinstance(b, int):
            return self._path(a, b, site)
        items: list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep] = []
        start, end = term_of(a), term_of(b)
        if isinstance(a, Spelled):
            items += self._respell(start, a, site, False)
        items.append((start, end, site))
        if isinstance(b, Spelled):
            items += self._respell(end, b, site, True)
        return items

    def _respell(
        self, term: int, spelled: Spelled, site: tuple[int, ...], into: bool
    ) -> list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep]:
        """Between a term and another spelling of it, in either direction."""
        return self._children(term, self.terms[term][1], spelled.children, spelled.order, site, into)

    def _children(
        self,
        term: int,
        children: Sequence[TermSpelling],
        others: Sequence[TermSpelling],
        order: tuple[int, ...] | None,
        site: tuple[int, ...],
        forward: bool,
    ) -> list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep]:
        """Between a term with its own children and one with others; with an order, its own are put into that first."""
        steps: list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep] = []
        swapped = tuple(children[i] for i in order) if order is not None else tuple(children)
        if order is not None:
            steps.append(ProofStep(COMMUTE, site, Spelled(term, tuple(children)), Spelled(term, swapped, order)))
        steps += [(mine, other, (*site, i)) for i, (mine, other) in enumerate(zip(swapped, others, strict=True))]
        return steps if forward else _reversed(steps)

    def are_equal(self, a: int, b: int) -> bool:
        """Whether unions made two terms equal."""
        return a == b or self._to_root(a)[-1] == self._to_root(b)[-1]

    def path(self, a: int, b: int) -> list[tuple[int, int, Reason]]:
        """The unions that make two terms equal, in order: the two terms of each and its reason, as they were given.

        ValueError where they are not equal.
        """
        up, down = self._meet(a, b)
        edges = [(term, self._parent[term]) for term in (*up[:-1], *reversed(down[:-1]))]
        return [(t, e.to, e.reason) if e.forward else (e.to, t, e.reason) for t, e in edges]

    def _meet(self, a: int, b: int) -> tuple[list[int], list[int]]:
        """From each of two terms the way to the first one that both lead to."""
        up, down = self._to_root(a), self._to_root(b)
        while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
            up.pop()
            down.pop()
        if up[-1] != down[-1]:
            raise ValueError(f"terms {a} and {b} are not equal")
        return up, down

    def _path(
        self, a: int, b: int, site: tuple[int, ...]
    ) -> list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep]:
        """The edges between two terms, each with what leads up to it."""
        up, down = self._meet(a, b)
        items: list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep] = []
        for term in up[:-1]:
            edge = self._parent[term]
            items += self._cross(term, edge.to, edge.reason, edge.forward, site)
        for term in reversed(down[:-1]):
            edge = self._parent[term]
            items += self._cross(edge.to, term, edge.reason, not edge.forward, site)
        return items

    def _to_root(self, term: int) -> list[int]:
        path = [term]
        while (edge := self._parent.get(path[-1])) is not None:
            path.append(edge.to)
        return path

    def _cross(
        self, a: int, b: int, reason: Reason, forward: bool, site: tuple[int, ...]
    ) -> list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep]:
        match reason:
            case Applied(rule, match, left, right):
                before, after = (left, right) if forward else (right, left)
                return [
                    (a, before, site),
                    ProofStep(rule, site, before, after, not forward, match),
                    (after, b, site),
                ]
            case Congruent(order):
                first, second = (a, b) if forward else (b, a)
                return self._children(first, self.terms[first][1], self.terms[second][1], order, site, forward)

    # -- words

    def spell(self, term: TermSpelling) -> tuple[TermSymbol, tuple[TermSpelling, ...]]:
        """The symbol and the children."""
        symbol, children = self.terms[term_of(term)]
        return self.symbols[symbol], term.children if isinstance(term, Spelled) else children

    def text(self, term: TermSpelling, depth: int = 4) -> str:
        """The term in call notation, cut off at a depth."""
        symbol, children = self.spell(term)
        if isinstance(term, int) and (not children or depth == 0):
            return self.names.get(term) or _leaf(symbol)
        if depth == 0:
            return "..."
        inputs = [self.text(c, depth - 1) for c in children]
        while inputs and inputs[-1] == "_":
            inputs.pop()
        if symbol.op == "<output>":
            return f"{inputs[0]}[{symbol.attrs['index']}]"
        return f"{symbol.op}({', '.join([*inputs, *(f'{n}={v}' for n, v in symbol.attrs.items())])})"


def term_of(spelling: TermSpelling) -> int:
    """The term that a spelling is equal to."""
    return spelling if isinstance(spelling, int) else spelling.term


def _leaf(symbol: TermSymbol) -> str:
    if symbol.op == CONSTANT:
        return str(symbol.attrs.get("value"))
    return symbol.op if symbol.op in (INPUT, "_") else f"{symbol.op}(...)"


def _reversed(
    items: Sequence[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep],
) -> list[tuple[TermSpelling, TermSpelling, tuple[int, ...]] | ProofStep]:
    """The same steps, walked the other way."""
    return [
        ProofStep(item.rule, item.site, item.after, item.before, not item.backward, item.match)
        if isinstance(item, ProofStep)
        else (item[1], item[0], item[2])
        for item in reversed(items)
    ]
