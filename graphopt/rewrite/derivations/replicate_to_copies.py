"""Replication: what was derived for a shortened chain of copies is applied to the whole chain. Apart from finding the
copies, for it works on journals.

An entry that speaks of one copy in the middle, or of two that follow each other, is applied to each
of the copies in the middle, or to each two; the others where they stand. Every application is looked
at by the directed matcher: an entry that does not fit a copy is left out there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.graph import Value
from graphopt.rewrite.derivations.derive import note_equal
from graphopt.rewrite.derivations.repeats import KEPT, Repeats
from graphopt.rewrite.match.build import Refused
from graphopt.rewrite.match.journal import Action, Entry, Journal, Respelled, ValueSpelling
from graphopt.rewrite.match.multi_version_graph import Alternatives
from graphopt.rewrite.rule.rule import Rule

_What: TypeAlias = tuple[str, Hashable, int]
"""A node, whichever copy it is in: ``node`` number i of a copy, a ``leaf`` that stands for this one of copy 1, number i
of what an entry ``made`` (with its key), or what all copies ``share``."""


@dataclass(frozen=True, slots=True)
class _General:
    """An entry as seen from the first copy that it speaks of: equal for entries that do the same in other copies."""

    key: Hashable
    base: int | None
    """The first of the four copies that it speaks of; None: of no copy."""
    span: int
    """How many copies on it reaches."""


def transfer(
    entries: Sequence[Entry], repeats: Repeats, rules: Mapping[str, Rule], side: Alternatives, journal: Journal
) -> int:
    """Apply entries of the shortened graph to the whole one, which ``side`` holds; gives how many did not fit."""
    run = _Transfer(entries, repeats, rules, side, journal)
    run.run()
    return run.misfits


class _Transfer:
    def __init__(
        self,
        entries: Sequence[Entry],
        repeats: Repeats,
        rules: Mapping[str, Rule],
        side: Alternatives,
        journal: Journal,
    ) -> None:
        self.entries = [e for e in entries if e.action in (Action.EQUAL, Action.SAME, Action.CHOOSE)]
        self.repeats = repeats
        self.rules = rules
        self.side = side
        self.journal = journal
        self.misfits = 0
        self.last = len(repeats.copies) - 1
        self.makers = {id: (e, i) for e in self.entries for i, id in enumerate(e.made)}
        self.leaf_copies = self._leaf_copies()
        self.general: dict[int, _General] = {}
        self.created: dict[tuple[Hashable, int | None], tuple[int, ...]] = {}
        for entry in self.entries:
            if entry.action is not Action.CHOOSE:
                self.general[entry.id] = self._general(entry)
        self.inner = {g.key for g in self.general.values() if g.base == 1}

    def _leaf_copies(self) -> dict[int, tuple[int, int]]:
        """Constants and inputs that one copy alone reads: which, and what stands in its place in copy 1."""
        owners: dict[int, set[int]] = {}
        for copy, leaves in enumerate(self.repeats.leaves):
            for leaf in leaves.values():
                owners.setdefault(leaf, set()).add(copy)
        return {
            leaf: (copy, like)
            for copy, leaves in enumerate(self.repeats.leaves)
            for like, leaf in leaves.items()
            if owners[leaf] == {copy}
        }

    def run(self) -> None:
        done: dict[Hashable, set[int | None]] = {}
        for entry in self.entries:
            if entry.action is Action.CHOOSE:
                self.choose(entry)
                continue
            general = self.general[entry.id]
            before = done.setdefault(general.key, set()) if self.is_inner(general) else set()
            for copy in self.copies_of(general):
                if copy not in before:
                    before.add(copy)
                    self.apply(entry, general, copy)

    def is_inner(self, general: _General) -> bool:
        """Whether an entry speaks of a copy in the middle, and so of each."""
        return general.base in (1, 2) and general.key in self.inner

    def copies_of(self, general: _General) -> Sequence[int | None]:
        """The copies in which an entry is applied."""
        if general.base is None:
            return [None]
        if self.is_inner(general):
            assert general.base is not None
            reaches_last = general.base + general.span == KEPT - 1
            return range(1, self.last - general.span + reaches_last)
        return [self._actual(general.base)]

    def _actual(self, base: int) -> int:
        """The copy of the whole chain that a copy of the short one is."""
        return base if base < 2 else self.last - 3 + base

    # -- seen from a copy

    def _copy_of(self, id: int) -> tuple[_What, int | None]:
        """What a node of the shortened graph is, and in which of the four copies."""
        if id in self.makers:
            entry, index = self.makers[id]
            general = self.general[entry.id]
            return ("made", general.key, index), general.base
        if id in self.repeats.positions:
            copy, position = self.repeats.positions[id]
            return ("node", None, position), self._short(copy)
        if id in self.leaf_copies:
            copy, like = self.leaf_copies[id]
            return ("leaf", None, like), self._short(copy)
        return ("share", None, id), None

    def _reach(self, id: int) -> int:
        """The last of the four copies that a node needs: what is made of others is where all of these are."""
        (_, copy), maker = self._copy_of(id), self.makers.get(id)
        span = 0 if maker is None else self.general[maker[0].id].span
        return -1 if copy is None else copy + span

    def _short(self, copy: int) -> int:
        return copy if copy < 2 else copy - self.last + 3

    def _general(self, entry: Entry) -> _General:
        named = [id for site in entry.at for id in _nodes(site)]
        base = min((copy for id in named if (copy := self._copy_of(id)[1]) is not None), default=None)
        places = tuple(self._relative(site, base) for site in entry.at)
        span = 0 if base is None else max(map(self._reach, named)) - base
        return _General((entry.action, entry.rule, places), base, span)

    def _relative(self, site: ValueSpelling | int | str | None, base: int | None) -> Hashable:
        match site:
            case Value():
                what, copy = self._copy_of(site.node)
                return what, site.port, None if copy is None or base is None else copy - base
            case Respelled():
                return self._relative(site.value, base), tuple(self._relative(p, base) for p in site.inputs)
            case int():
                what, copy = self._copy_of(site)
                return what, None if copy is None or base is None else copy - base
        return site

    # -- in the whole graph

    def _node(self, id: int, base: int | None, actual: int | None) -> int:
        """The node of the whole graph, where copy ``base`` is copy ``actual``."""
        (kind, key, number), copy = self._copy_of(id)
        at = None if copy is None or base is None or actual is None else actual + copy - base
        if at is not None and not 0 <= at <= self.last:
            raise Refused("there is no such copy")
        if kind == "made":
            created = self.created.get((key, copy if at is None else at), ())
            if number >= len(created):
                raise Refused("it was not made in this copy")
            return created[number]
        if at is None:
            return id
        if kind == "node":
            return self.repeats.copies[at][number]
        return self.repeats.leaves[at].get(number, id)

    def _translated(self, site: ValueSpelling, base: int | None, actual: int | None) -> ValueSpelling:
        if isinstance(site, Value):
            return Value(self._node(site.node, base, actual), site.port)
        value = self._translated(site.value, base, actual)
        assert isinstance(value, Value)
        return Respelled(value, tuple(None if p is None else self._translated(p, base, actual) for p in site.inputs))

    def apply(self, entry: Entry, general: _General, actual: int | None) -> None:
        """Apply an entry in one copy."""
        first = self.side.graph.next_id
        try:
            if entry.action is Action.SAME:
                a, b = (self._node(n, general.base, actual) for n in entry.at if isinstance(n, int))
                self.side.same(a, b)
                self.journal.note(self.side.space, Action.SAME, at=(a, b), footprint=(a, b))
                return
            at = [self._translated(p, general.base, actual) for p in entry.at if isinstance(p, Value | Respelled)]
            roots = [self.side.respell(site) for site in at]
            replacement = self.side.apply(self.rules[entry.rule], roots, entry.way)
        except Refused:
            self.misfits += 1
            return
        number = note_equal(self.journal, self.side, self.rules[entry.rule], at, replacement, first)
        self.created[general.key, actual] = self.journal.entries[number].made

    def choose(self, entry: Entry) -> None:
        """Keep in each copy what was kept in the short chain."""
        kept: list[Value] = []
        kept_in_first = {
            self._copy_of(p.node)[0] for p in entry.at if isinstance(p, Value) and self._copy_of(p.node)[1] == 1
        }
        for site in entry.at:
            if not isinstance(site, Value):
                continue
            what, copy = self._copy_of(site.node)
            if copy == 2 and what in kept_in_first:
                continue
            general = _General(None, copy, 0)
            for actual in range(1, self.last) if copy == 1 else self.copies_of(general):
                kept += self._kept(site, copy, actual)
        try:
            changed = self.side.choose(kept)
        except ValueError:  # what was kept in some copies does not go together
            self.misfits += 1
            return
        if changed:
            self.journal.note(self.side.space, Action.CHOOSE, at=kept)

    def _kept(self, value: Value, base: int | None, actual: int | None) -> Iterator[Value]:
        try:
            id = self._node(value.node, base, actual)
        except Refused:
            return
        if id in self.side.graph:
            yield Value(id, value.port)


def _nodes(site: ValueSpelling | int | str | None) -> Iterator[int]:
    match site:
        case Value(node, _):
            yield node
        case Respelled(value, inputs):
            yield value.node
            for inner in inputs:
                yield from _nodes(inner)
        case int():
            yield site
