"""E-matching: keeps egglog in step with the classes, and gives the matches of rules that were not looked at before.
Apart from saturation, which decides what to look for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from itertools import islice

from graphopt.frozen import dataclass
from graphopt.ir.constants import SMALL, Constant
from graphopt.ir.graph import CONSTANT, INPUT, Graph
from graphopt.ir.ops import is_commutative
from graphopt.rewrite.egraph.classes import ABSENT, CONSTANTS, Classes
from graphopt.rewrite.egraph.egglog import ConstructorTable, EGraph, MatchRow
from graphopt.rewrite.egraph.egraph_snapshot import PROJECTION
from graphopt.rewrite.egraph.joins import JoinTables
from graphopt.rewrite.egraph.queries import (
    LITERAL,
    OUTPUT,
    OpForm,
    Query,
    by_op,
    named_ops,
    queries_by_op,
    table_of_literal,
)
from graphopt.rewrite.egraph.substitutions import RowReader
from graphopt.rewrite.guards.expressions import matches_literal
from graphopt.rewrite.rule.rule import Literal, Rule

CONSTANT_TABLE = "constant"
"""The constructor of all that is made of constants alone, told apart by the number of the term."""

WIDE_TABLE = "wide"
"""The constructor of calls of very many children, told apart by the number of the term."""
WIDE = 16
"""Calls of more children are no tables of egglog's,"""
SQUARES = 200_000
"""and the squares of the columns of what is declared to it, which is what that costs, add up to this at most. Queries
beyond that are joined here."""

DECLARING = 500
"""In so many steps a query is joined here before egglog is told of it, which takes about as long."""

WAYS = 100
"""In so many ways the left side of a rule is looked for; what a variadic op makes possible beyond that (a concatenation
of dozens inside another, at every place) is left to the directed matcher."""


@dataclass(slots=True)
class Relation:
    """The matches of one query: rows that wait to be looked at, and rows that were, with whether that settled them."""

    name: str
    query: Query
    reader: RowReader
    waiting: list[MatchRow] = field(default_factory=list)
    seen: dict[MatchRow, bool] = field(default_factory=dict)
    is_narrow: bool = True
    """Whether egglog may be told of the query; the others are joined here."""
    left: int | None = None
    """Steps of joins here that are left before egglog is told of it; None where it is."""
    last_run: int = -1
    """The round in which new rows were last asked for."""

    def settle(self, row: MatchRow, settled: bool) -> None:
        """The row was looked at. Where that did not settle it, it comes up again when its classes are better known."""
        self.seen[row] = settled


class Matching:
    """The matches of rules among classes. Rules are named by their position."""

    def __init__(self, classes: Classes, rules: Sequence[Rule]) -> None:
        self.classes = classes
        self.rules = rules
        self.relations: list[list[Relation]] = [[] for _ in rules]
        self._by_name: dict[str, Relation] = {}
        self._engine = EGraph()
        self._rows = JoinTables(classes)
        self.squares = 0
        """The squares of the columns of all that was declared to egglog, together."""
        self.put_off: set[str] = set()
        """The rules of which not all matches were found, because that would have taken too long."""
        self._forms: set[OpForm] = set()
        self._declared: set[str] = set()
        self._named = [named_ops(rule) for rule in rules]
        self._literals: dict[Literal, int] = {}
        self._constants: list[tuple[int, Constant]] = []
        self._related = 0, 0
        self._terms = self._unions = self._round = 0
        self._changed: dict[str, int] = {}
        """The round in which a table last got rows, or rows with other classes."""
        self._engine.declare_table(ConstructorTable(OUTPUT, 1))
        self._engine.declare_table(ConstructorTable(CONSTANT_TABLE, 0))
        self._engine.declare_table(ConstructorTable(WIDE_TABLE, 0))
        self._engine.declare_relation(LITERAL, 1)

    def search(self, rules: Sequence[int]) -> None:
        """Look for matches of these rules among all that was made and joined so far."""
        self._send()
        self._rename()
        relations = [relation for rule in rules for relation in self.relations[rule] if self._may_have_more(relation)]
        rows = {relation.name: found for relation in relations if (found := self._joined(relation)) is not None}
        wanted = [relation.name for relation in relations if relation.name not in rows]
        counts = self._engine.run(wanted)
        more = [name for name in wanted if counts.get(name)]
        rows |= self._engine.read(more)[1] if more else {}
        for name, all_rows in rows.items():
            relation = self._by_name[name]
            relation.waiting = [row for row in all_rows if row not in relation.seen]

    def _joined(self, relation: Relation) -> list[MatchRow] | None:
        """All rows of a query that are joined here; None where egglog is to find them."""
        if not relation.is_narrow:
            rows, steps = self._rows.join(relation.query)
            if steps is None:
                self.put_off.add(relation.query.rule.name)
            return rows
        if relation.left is None:
            return None
        if not self._rows.may_join(relation.query):
            return []
        rows, steps = self._rows.join(relation.query, relation.left)
        if steps is not None:
            relation.left -= steps
            return rows
        relation.left = None
        self._engine.declare_query(relation.name, relation.query.atoms, relation.query.columns)
        return None

    def _may_have_more(self, relation: Relation) -> bool:
        """Whether a query has rows that egglog was not asked for: only where one of its tables has changed."""
        last_run, relation.last_run = relation.last_run, self._round
        return last_run < 0 or any(self._changed.get(table, 0) > last_run for table in relation.query.tables)

    def reconsider(self) -> bool:
        """Have matches looked at again of whose classes more is known than then; whether there are any."""
        improved, self.classes.improved = self.classes.improved, set()
        if not improved:
            return False
        self._rename()
        any_ = False
        for relation in self._by_name.values():
            places = [i for i, c in enumerate(relation.query.columns) if not c.startswith("s")]
            again = [r for r, done in relation.seen.items() if not done and any(r[i] in improved for i in places)]
            for row in again:
                del relation.seen[row]
            relation.waiting = sorted({*relation.waiting, *again})
            any_ = any_ or bool(again)
        return any_

    def _rename(self) -> None:
        """Classes have new names where they were joined."""
        old, self.classes.renamed = self.classes.renamed, set()
        if not old:
            return
        find = self.classes.find
        for relation in self._by_name.values():
            moved = [row for row in relation.seen if not old.isdisjoint(row)]
            if not moved and not relation.waiting:
                continue
            symbols = [c.startswith("s") for c in relation.query.columns]
            for row in moved:
                settled = relation.seen.pop(row)
                new = tuple([n if s else find(n) for s, n in zip(symbols, row, strict=True)])
                relation.seen[new] = relation.seen.get(new, True) and settled
            renamed = {tuple([n if s else find(n) for s, n in zip(symbols, r, strict=True)]) for r in relation.waiting}
            relation.waiting = sorted(r for r in renamed if r not in relation.seen)

    # -- sending

    def _send(self) -> None:
        self._round += 1
        new = range(self._terms, len(self.classes.terms))
        for term in new:
            self._send_term(term)
        for a, b in self.classes.unions[self._unions :]:
            self._engine.union(a, b)
        self._terms, self._unions = len(self.classes.terms), len(self.classes.unions)
        for form in self.classes.touched:
            self._changed[OUTPUT if form.op == PROJECTION else form.table] = self._round
            if form == CONSTANTS:
                self._changed.update((table_of_literal(n), self._round) for n in range(len(self._literals)))
        self.classes.touched.clear()
        self._declare({self.classes.form(t) for t in new if _is_plain(self.classes, t)} - self._forms)
        self._send_literals()

    def _send_term(self, term: int) -> None:
        classes = self.classes
        if term == ABSENT:
            self._engine.add(term, None)
            return
        index, children = classes.terms[term]
        symbol = classes.symbols[index]
        fact = classes.fact(term)
        if fact.is_const:
            self._engine.add(term, CONSTANT_TABLE, term)
            self._rows.add(term, None)
            if isinstance(fact.size, int) and fact.size <= SMALL and (fact.constant is not None or fact.size == 1):
                constant = classes.constant(term)
                self._constants += [] if constant is None else [(term, constant)]
        elif symbol.op == PROJECTION:
            self._engine.add(term, OUTPUT, classes.port(term), children)
            self._rows.add(term, OUTPUT)
            self._changed[OUTPUT] = self._round
        else:
            form = classes.form(term)
            if form.arity > WIDE:  # a leaf there, with a class to itself until it is joined here with others
                self._engine.add(term, WIDE_TABLE, term)
            else:
                self._declare_table(
                    ConstructorTable(form.table, form.arity, is_commutative(form.op) and form.arity == 2)
                )
                self._engine.add(term, form.table, index, children)
            self._rows.add(term, form.table)
            self._changed[form.table] = self._round

    def _declare(self, new: set[OpForm]) -> None:
        """Write the queries that forms make possible which did not occur before."""
        if not new:
            return
        self._forms |= new
        forms, ops = by_op(self._forms), {form.op for form in new}
        for index, rule in enumerate(self.rules):
            named = self._named[index]
            if named is not None and named.isdisjoint(ops):
                continue
            for query in islice(queries_by_op(rule, forms, self._literals), WAYS):
                if query.forms & new and len(self.relations[index]) < WAYS:
                    name = f"q{len(self._by_name)}"
                    relation = self._by_name[name] = Relation(name, query, RowReader(query))
                    self.relations[index].append(relation)
                    relation.is_narrow = self._is_narrow(relation)

    def _declare_table(self, table: ConstructorTable) -> None:
        if table.name not in self._declared:
            self._declared.add(table.name)
            self._engine.declare_table(table)
            self.squares += (table.arity + 2) ** 2

    def _is_narrow(self, relation: Relation) -> bool:
        """Whether egglog is to find the matches of a query, which then counts; False where that is too wide."""
        columns = len(relation.query.columns)
        if self.squares + columns**2 > SQUARES or any(form.arity > WIDE for form in relation.query.forms):
            return False
        self.squares += columns**2
        relation.left = DECLARING
        return True

    def _send_literals(self) -> None:
        """Fill the relation between literals and constants."""
        literals, constants = self._related
        for number, literal in enumerate(self._literals):
            for term, constant in self._constants[constants if number < literals else 0 :]:
                if _may_match(literal, constant) and matches_literal(constant, literal.value):
                    self._engine.relate(LITERAL, number, term)
                    self._rows.relate(number, term)
                    self._changed[table_of_literal(number)] = self._round
        self._related = len(self._literals), len(self._constants)


def _is_plain(classes: Classes, term: int) -> bool:
    """Whether patterns can look for a term: not for leaves, ops in an old form, ops with bodies, and not within what is
    made of constants alone, which is folded in the end."""
    symbol = classes.symbols[classes.terms[term][0]]
    return (
        term != ABSENT
        and not classes.fact(term).is_const
        and symbol.op not in (INPUT, CONSTANT, PROJECTION)
        and "@" not in symbol.op
        and not any(isinstance(a, Graph) for a in symbol.attrs.values())
    )


def _may_match(literal: Literal, constant: Constant) -> bool:
    """A quick look at the number of elements."""
    return constant.size == (len(literal.value) if isinstance(literal.value, tuple) else 1)
