"""Substitutions: what the names of a pattern stand for in a row that egglog gave, attributes included."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from graphopt.frozen import dataclass
from graphopt.rewrite.egraph.classes import ABSENT, Classes
from graphopt.rewrite.egraph.egglog import MatchRow
from graphopt.rewrite.egraph.provenance import TermSpelling, term_of
from graphopt.rewrite.egraph.queries import NOBODY, Query
from graphopt.rewrite.guards import op_match
from graphopt.rewrite.guards.bindings import Bindings, is_several
from graphopt.rewrite.match.build import element
from graphopt.rewrite.rule.rule import CallPattern, Rule


@dataclass(frozen=True, slots=True)
class Instance:
    """Where the left side of a rule occurs: the classes of its roots, and what its names stand for."""

    rule: Rule
    roots: tuple[int, ...]
    bindings: Bindings[int]
    rows: tuple[tuple[RowReader, MatchRow], ...]

    def left(self, classes: Classes) -> tuple[TermSpelling, ...]:
        """The terms of the roots, as the rule spells them."""
        return tuple(spelling for reader, row in self.rows for spelling in reader.spell(row, classes))


class RowReader:
    """Reads the rows of one query."""

    def __init__(self, query: Query) -> None:
        self.query = query
        column = {name: i for i, name in enumerate(query.columns)}
        self._roots = [column[r] for r in query.roots]
        self._required = [column[r] for r in query.required if r != NOBODY]
        self._values = [
            (name, column.get(b, -1) if isinstance(b, str) else tuple([column[v] for v in b]))
            for name, b in query.values
        ]
        self._calls = [(m, column[m.symbol], column.get(m.children[0], -1) if m.children else -1) for m in query.calls]
        self._by_value = {m.value: m for m in query.calls}
        self._column = column

    def read(self, row: MatchRow, classes: Classes) -> Instance | str:
        """What the row says, or why the attributes do not fit. Guards are not looked at."""
        find = classes.find
        if any(row[i] == ABSENT for i in self._required):
            return "an input that the rule wants is absent"
        bindings: Bindings[int] = Bindings()
        for name, column in self._values:
            if isinstance(column, tuple):
                bindings.values[name] = tuple([find(row[i]) for i in column])
            else:
                absent = column < 0 or row[column] == ABSENT
                bindings.values[name] = None if absent else find(row[column])
        calls = [
            (m.call, classes.symbols[row[symbol]], None if first < 0 else classes.fact(row[first]).rank)
            for m, symbol, first in self._calls
        ]
        for call, symbol, rank in calls:
            if (why := op_match.bind(call, symbol.op, symbol.attrs, rank, bindings)) is not None:
                return why
        for call, symbol, rank in calls:
            if (why := op_match.check(call, symbol.op, symbol.attrs, rank, bindings, classes)) is not None:
                return why
        return Instance(self.query.rule, tuple([find(row[i]) for i in self._roots]), bindings, ((self, row),))

    def spell(self, row: MatchRow, classes: Classes) -> tuple[TermSpelling, ...]:
        """The terms of the roots, as the rule spells them."""
        return tuple(self._spell(r, row, classes) for r in self.query.roots)

    def terms(self, row: MatchRow, classes: Classes) -> list[int]:
        """The terms that the calls of the pattern stand for, the outermost first."""
        at = self._column
        children = ([ABSENT if c == NOBODY else classes.find(row[at[c]]) for c in m.children] for m in self.query.calls)
        calls = zip(self.query.calls, children, strict=True)
        return [term_of(classes.spell(row[at[m.symbol]], read)) for m, read in calls]

    def _spell(self, variable: str, row: MatchRow, classes: Classes) -> TermSpelling:
        matched = self._by_value.get(variable)
        if matched is None:
            return ABSENT if variable == NOBODY else classes.find(row[self._column[variable]])
        children = [self._spell(c, row, classes) for c in matched.children]
        spelled = classes.spell(row[self._column[matched.symbol]], children)
        return classes.spell_output(spelled, matched.call.output) if matched.form.several else spelled


# -- several roots


def joined(members: Sequence[Instance]) -> Instance:
    """One instance of a rule whose root stands for all calls of a kind, from instances for each of them."""
    first = members[0]
    bindings = first.bindings.copy()
    for name in own_names(first):
        bindings.values[name] = tuple(v for m in members for v in _several(m.bindings.values[name]))
    rows = tuple(r for m in members for r in m.rows)
    return Instance(first.rule, tuple(m.roots[0] for m in members), bindings, rows)


def alone(member: Instance) -> Bindings[int]:
    """The bindings of one member of a family, for the guards on it alone."""
    return element(member.bindings, own_names(member), 0)


def own_names(member: Instance) -> list[str]:
    """The names that stand for something else in each member of a family."""
    return [name for name, value in member.bindings.values.items() if is_several(value)]


def shared(member: Instance) -> Hashable:
    """What all members of one family have in common."""
    members = set(own_names(member))
    bindings = member.bindings
    return (
        tuple((n, v) for n, v in bindings.values.items() if n not in members),
        tuple(bindings.attrs.items()),
        tuple(bindings.heads.items()),
    )


def independent(instance: Instance, classes: Classes) -> bool:
    """Whether no root is computed from another: what replaces them reads what all of them read."""
    roots = {classes.find(r) for r in instance.roots}
    lowest = min(term_of(left) for left in instance.left(classes))
    of_roots = {t.name for t in instance.rule.lhs if isinstance(t, CallPattern)}
    read = [bound for name, bound in instance.bindings.values.items() if name not in of_roots]
    waiting = [v for bound in read for v in _several(bound) if v is not None]
    seen = set(waiting)
    while waiting:
        term = waiting.pop()
        if classes.find(term) in roots:
            return False
        for child in classes.terms[term][1]:
            if child >= lowest and child not in seen:
                seen.add(child)
                waiting.append(child)
    return True


def _several(bound: object) -> tuple[Any, ...]:
    return bound if is_several(bound) else (bound,)
