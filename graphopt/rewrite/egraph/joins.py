"""Joins of queries that are too wide for egglog, or too small to be worth its while, over the e-nodes of the classes:
apart from e-matching in egglog, in whose place they stand.

To declare a table or a relation to egglog takes time and memory by the square of its columns, and calls of
variadic ops have as many children as the model likes. So what is wide is joined here, and so is what takes less time
here than that: from an e-node of a wide call to the classes that it reads, and from those to who reads them, one atom
of the query at a time. The rows are those that egglog would give.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from graphopt.ir.ops import is_commutative
from graphopt.rewrite.egraph.classes import ABSENT as ABSENT_TERM
from graphopt.rewrite.egraph.classes import Classes
from graphopt.rewrite.egraph.egglog import ABSENT, Atom, MatchRow
from graphopt.rewrite.egraph.queries import LITERAL, NOBODY, OUTPUT, Query

STEPS = 20_000_000
"""In so many steps all joins of a search are done, each the comparison of one argument of an atom; what would take more
is left to the directed matcher. A query that each of many classes can match in several ways has no end else."""
EACH = 1_000_000
"""Steps of one join."""


class Spent(Exception):  # noqa: N818
    """The steps of a join are used up."""


class JoinTables:
    """The rows of all tables, as they were sent."""

    def __init__(self, classes: Classes) -> None:
        self.classes = classes
        self._tables: list[str | None] = []
        """By term."""
        self._terms: dict[str, list[int]] = {}
        self._unordered: set[str] = set()
        self._literals: dict[int, list[int]] = {}
        self.left = STEPS
        self.steps = 0

    def add(self, term: int, table: str | None) -> None:
        """The next term, and its table if it has one."""
        self._tables += [None] * (term + 1 - len(self._tables))
        self._tables[term] = table
        if table is not None:
            self._terms.setdefault(table, []).append(term)
            if table != OUTPUT:
                symbol, children = self.classes.terms[term]
                if len(children) == 2 and is_commutative(self.classes.symbols[symbol].op):
                    self._unordered.add(table)

    def relate(self, number: int, term: int) -> None:
        """The term is a literal."""
        self._literals.setdefault(number, []).append(term)

    def may_join(self, query: Query) -> bool:
        """Whether every table that a query reads has rows: there is nothing to join else."""
        return all(
            a.arguments[0] in self._literals if a.table == LITERAL else a.table in self._terms
            for a in query.atoms
            if a.table != ABSENT
        )

    def join(self, query: Query, most: int | None = None) -> tuple[list[MatchRow], int | None]:
        """The rows of a query, sorted, and the steps that they took; None where these are not all.

        ``most`` is how many steps it may take, which then count for this join alone.
        """
        rows: set[MatchRow] = set()
        self.steps = allowed = min(EACH, self.left) if most is None else most
        try:
            for bound in self._solutions(query.in_turn):
                self._spend(len(query.columns))
                rows.add(tuple([bound[c] for c in query.columns]))
        except Spent:
            pass
        taken = allowed - max(self.steps, 0)
        self.left -= taken if most is None else 0
        return sorted(rows), None if self.steps < 0 else taken

    def _spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise Spent

    def _solutions(self, atoms: Sequence[Atom]) -> Iterator[dict[str, int]]:
        """What variables can stand for so that all atoms hold. The same mapping each time, as it is then."""
        bound: dict[str, int] = {}
        waiting: list[Iterator[list[str]]] = []
        bindings: list[list[str]] = []
        while True:
            if len(waiting) == len(atoms):
                yield bound
            else:
                waiting.append(self._extend(bound, atoms[len(waiting)]))
            while waiting:
                for variable in bindings.pop() if len(bindings) == len(waiting) else ():
                    del bound[variable]
                new = next(waiting[-1], None)
                if new is not None:
                    bindings.append(new)
                    break
                waiting.pop()
            else:
                return

    def _extend(self, bound: dict[str, int], atom: Atom) -> Iterator[list[str]]:
        """The ways in which an atom holds; each binds variables, and says which."""
        wanted = (*atom.arguments, *([] if atom.output is None else [atom.output]))
        for row in self._candidates(bound, atom):
            self._spend(len(row))
            new: list[str] = []
            for name, value in zip(wanted, row, strict=True):
                value_of_name = name if isinstance(name, int) else bound.get(name)
                if value_of_name is None:
                    assert isinstance(name, str)
                    bound[name] = value
                    new.append(name)
                elif value_of_name != value:
                    break
            else:
                yield new
                continue
            for name in new:
                del bound[name]

    def _candidates(self, bound: dict[str, int], atom: Atom) -> list[MatchRow]:
        """The rows of an atom's table that have what is bound already, at one place at least; in order."""
        find = self.classes.find
        if atom.table == ABSENT:
            return [(find(ABSENT_TERM),)]
        if atom.table == LITERAL:
            number = atom.arguments[0]
            assert isinstance(number, int)
            return sorted({(number, find(term)) for term in self._literals.get(number, ())})
        terms: Sequence[int] = self._terms.get(atom.table, ())
        if atom.output in bound:
            terms = self.classes.in_class(bound[atom.output])
        else:
            for child in atom.arguments[1:]:
                if isinstance(child, str) and child in bound and child != NOBODY:
                    terms = min(terms, self.classes.readers(bound[child]), key=len)
        rows: set[MatchRow] = set()
        for term in terms:
            if term < len(self._tables) and self._tables[term] == atom.table:
                rows.update(self._rows(term, atom.table))
        return sorted(rows)

    def _rows(self, term: int, table: str) -> Iterator[MatchRow]:
        index, children = self.classes.terms[term]
        find = self.classes.find
        if table == OUTPUT:
            index = self.classes.port(term)
        yield (index, *map(find, children), find(term))
        if table in self._unordered:
            yield (index, *map(find, reversed(children)), find(term))
