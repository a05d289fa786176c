"""Changes by rewrites: which nodes each one consumed and produced, in the graph before the rules and in the result.
Apart from ``rewriting`` by size.

What a rewrite matched may have been made by others, and what it made may have been matched by others in turn;
then it is followed back to nodes of the one graph, and on to nodes of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.graph import CONSTANT, Graph, Node, Value
from graphopt.rewrite.match.journal import SIGNATURE, Action, Entry, Respelled, places

Scope: TypeAlias = tuple[int | str, ...]
"""A graph of a model: nothing for the main graph, node and attribute after node and attribute for a body."""

KEPT, CHANGED, OTHER = "kept", "changed", "other"
"""What became of a node: it is as it was, it has other inputs or attributes, it is on one side only."""


@dataclass(frozen=True, slots=True)
class Sides:
    """What a rewrite took and what it made, by node ids; ``around`` are nodes of the result beside which it acted,
    where it made nothing that is left."""

    scope: Scope
    before: tuple[int, ...]
    after: tuple[int, ...]
    around: tuple[int, ...] = ()


def scopes(before: Graph, after: Graph) -> dict[Scope, tuple[Graph | None, Graph | None]]:
    """The graphs of a model before and after, the main one first, then bodies, by where they are."""
    scopes_by_path: dict[Scope, tuple[Graph | None, Graph | None]] = {}
    waiting: list[tuple[Scope, Graph | None, Graph | None]] = [((), before, after)]
    while waiting:
        scope, old, new = waiting.pop(0)
        scopes_by_path[scope] = old, new
        bodies = [_bodies(g) for g in (old, new)]
        for at in dict.fromkeys([*bodies[0], *bodies[1]]):
            waiting.append(((*scope, *at), bodies[0].get(at), bodies[1].get(at)))
    return scopes_by_path


def _bodies(graph: Graph | None) -> dict[tuple[int, str], Graph]:
    if graph is None:
        return {}
    return {(node.id, name): body for node in graph.nodes() for name, body in node.bodies.items()}


def marks(graph: Graph | None, other: Graph | None) -> dict[int, str]:
    """What became of each node of a graph, seen from the other: KEPT, CHANGED or OTHER."""
    if graph is None:
        return {}
    return {node.id: _mark(node, other) for node in graph.nodes() if node.op != CONSTANT}


def _mark(node: Node, other: Graph | None) -> str:
    if other is None or node.id not in other:
        return OTHER
    twin = other.node(node.id)
    if twin.op != node.op:
        return OTHER
    is_same = twin is node or (
        twin.inputs == node.inputs
        and twin.attrs.keys() == node.attrs.keys()
        and all(
            a is b or isinstance(a, Graph) or a == b
            for a, b in zip(node.attrs.values(), twin.attrs.values(), strict=True)
        )
    )
    return KEPT if is_same else CHANGED


def sides(entries: Iterable[Entry], graphs: Mapping[Scope, tuple[Graph | None, Graph | None]]) -> dict[int, Sides]:
    """What each rewrite took and made, by its number."""
    by_scope: dict[Scope, list[Entry]] = {}
    scope: list[Scope] = []
    for entry in entries:
        if entry.action is Action.OPEN:
            above = scope[-1] if scope else ()
            scope.append((*above, *(a for a in entry.at if isinstance(a, int | str))))
        elif entry.action is Action.CLOSE:
            scope.pop()
        elif entry.is_rewrite and scope:
            by_scope.setdefault(scope[-1], []).append(entry)
    sides_by_entry: dict[int, Sides] = {}
    for at, of_scope in by_scope.items():
        if at in graphs:
            sides_by_entry |= _Traced(at, of_scope, *graphs[at]).sides()
    return sides_by_entry


class _Traced:
    """The rewrites of one graph, followed back and on."""

    def __init__(self, scope: Scope, entries: Sequence[Entry], before: Graph | None, after: Graph | None) -> None:
        self.scope, self.entries = scope, entries
        self.before, self.after = before, after
        self.takers: dict[int, list[int]] = {}
        self.makers: dict[int, list[int]] = {}
        for number, entry in enumerate(entries):
            for id in entry.made:
                self.makers.setdefault(id, []).append(number)
            for id in _matched(entry):
                self.takers.setdefault(id, []).append(number)
        self.signed = self._signed()

    def _signed(self) -> dict[str, list[int]]:
        """The nodes of the result that carry the signature of a rewrite, but those that did so before."""
        by_signature: dict[str, list[int]] = {}
        for node in () if self.after is None else self.after.nodes():
            signature = dict(node.origin.metadata).get(SIGNATURE)
            old = self.before.node(node.id) if self.before is not None and node.id in self.before else None
            if signature and (old is None or dict(old.origin.metadata).get(SIGNATURE) != signature):
                by_signature.setdefault(signature, []).append(node.id)
        return by_signature

    def sides(self) -> dict[int, Sides]:
        consumed: list[tuple[int, ...]] = []
        for number, entry in enumerate(self.entries):
            consumed.append(_several(self._origins(id, number, consumed) for id in _matched(entry)))
        produced: list[tuple[int, ...]] = [()] * len(self.entries)
        for number in range(len(self.entries) - 1, -1, -1):
            produced[number] = self._results(number, produced)
        return {
            entry.id: Sides(self.scope, before, after, () if after else self._around(before))
            for entry, before, after in zip(self.entries, consumed, produced, strict=True)
        }

    def _origins(self, id: int, number: int, consumed: Sequence[tuple[int, ...]]) -> Iterable[int]:
        """The nodes of the first graph from which a node comes that a rewrite matched."""
        if _is_drawn(self.before, id):
            return (id,)
        earlier = [m for m in self.makers.get(id, ()) if m < number]
        return consumed[earlier[-1]] if earlier else ()

    def _results(self, number: int, produced: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """The nodes of the result that a rewrite led to."""
        entry = self.entries[number]
        results = dict.fromkeys(self.signed.get(entry.signature, ()))
        if entry.action is Action.PASS:  # which may have changed its node where it is
            results |= {id: None for id in entry.matched if _is_drawn(self.after, id)}
        if not results:
            later = (n for id in entry.made for n in self.takers.get(id, ()) if n > number)
            results |= {id: None for n in later for id in produced[n]}
        return tuple(results)

    def _around(self, ids: Iterable[int]) -> tuple[int, ...]:
        """The nodes of the result nearest to some of the first graph: those that still read what came after them."""
        if self.before is None or self.after is None:
            return ()
        waiting, seen = list(ids), set(ids)
        around: dict[int, None] = {}
        while waiting and len(seen) < _FAR:
            reached = [u for id in waiting for u in self.before.readers(id)]
            waiting = [u for u in dict.fromkeys(reached) if u not in seen]
            seen.update(waiting)
            around |= {u: None for u in waiting if _is_drawn(self.after, u)}
            waiting = [u for u in waiting if u not in around]
        if not around:
            sources = [v for id in ids for v in self.before.node(id).inputs if v is not None]
            around = {v.node: None for v in sources if _is_drawn(self.after, v.node)}
        return tuple(around)


_FAR = 200
"""How many nodes are looked at for those nearest to what a rewrite took."""


def _matched(entry: Entry) -> tuple[int, ...]:
    """The nodes that a rewrite matched, those too in whose place it spelled equal ones anew."""
    respelled = (v.node for site in entry.at if isinstance(site, Respelled) for v in places(site))
    return tuple(dict.fromkeys([*entry.matched, *respelled]))


def _several(parts: Iterable[Iterable[int]]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(id for part in parts for id in part))


def _is_drawn(graph: Graph | None, id: int) -> bool:
    return graph is not None and id in graph and graph.node(id).op != CONSTANT


def scope_name(graph: Graph, scope: Scope) -> str:
    """What a graph is called: where it is a body, by the node and the attribute that it is in."""
    words: list[str] = []
    for owner, attribute in zip(scope[::2], scope[1::2], strict=True):
        assert isinstance(owner, int)
        if owner not in graph:
            return " / ".join([*words, f"%{owner}", str(attribute)])
        node = graph.node(owner)
        words.append(f"{node.op} {node.origin.name or graph.names.get(Value(owner), f'%{owner}')}, {attribute}")
        graph = node.bodies.get(str(attribute), graph)
    return " / ".join(words) or "main graph"
