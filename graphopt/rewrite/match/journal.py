"""Journal of a run (its derivation): what was done to the model, entry by entry, so that a replay gives the same bytes.

Each entry is a rule instance (or a native pass) with its site; ``rewrite/derivations/replay.py`` applies them in
order by the directed matcher, which checks every guard again, so that a journal cannot make a model that its rules
do not allow. Graphs are opened and closed by entries of their own. In a graph that is opened to be explored, a rule
makes its right side *beside* its left side, and the last entry says which of the equal values are kept.

Nodes are named by their ids: those that the model has when it is read, then in order of creation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import TypeAlias

from graphopt.frozen import dataclass
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.rewrite.match.workspace import Workspace

SIGNATURE = "graphopt"
"""The key in a node's metadata that says which entry made it."""


class Action(StrEnum):
    """What an entry does."""

    OPEN = "open"
    """A graph is taken up: the model's, or (``at``: node and attribute) the body of a node of the one that is open."""
    CLOSE = "close"
    """It is put back."""
    REWRITE = "rewrite"
    """The right side of a rule took the place of its left side, whose roots are ``at``."""
    PASS = "pass"
    """A native pass acted, at the node ``at``, or on the whole graph."""
    EQUAL = "equal"
    """The right side of a rule was made beside its left side, which is spelled ``at``."""
    SAME = "same"
    """Two nodes apply one op to equal operands."""
    CHOOSE = "choose"
    """Of values that are equal these are kept; nodes that no output rests on are dropped."""
    FOLD = "fold"
    """Everything that rests on constants alone was computed, as far as the model then stores ``way`` bytes."""


FOLD_EXACTLY = "fold-exactly"
"""The rule of an entry that computed only that for which every runtime gives the same bits."""
REWRITES = frozenset((Action.REWRITE, Action.PASS, Action.EQUAL, Action.FOLD))
"""Actions that a user would call a rewrite; the others are what replaying takes beside them."""


@dataclass(frozen=True, slots=True)
class Respelled:
    """The call that makes ``value``, with equal operands in the place of its own."""

    value: Value
    inputs: tuple[ValueSpelling | None, ...]


ValueSpelling: TypeAlias = "Value | Respelled"


@dataclass(frozen=True, slots=True)
class Entry:
    """One step of a derivation. Sites and sides are text for people; ``at``, ``way`` and ``made`` are for replaying."""

    id: int
    action: Action
    rule: str = ""
    family: str = ""
    site: str = ""
    """The name of the value that was rewritten."""
    before: str = ""
    after: str = ""
    at: tuple[ValueSpelling | int | str, ...] = ()
    way: int = 0
    """Which of the rule's matches at that site, in the order of the directed matcher."""
    made: tuple[int, ...] = ()
    """The nodes that the entry made."""
    needs: tuple[int, ...] = ()
    """Entries that made or changed what this one matched."""
    nodes: tuple[int, int] = (0, 0)
    """How many ops the left side is, and the right side."""
    gain: float | None = None
    """What the right side is cheaper by: modelled seconds of one inference, the two sides by themselves."""
    matched: tuple[int, ...] = ()
    """The nodes that the left side is."""

    @property
    def is_rewrite(self) -> bool:
        """Whether the entry is a rewrite, and not what replaying takes beside those."""
        return self.action in REWRITES

    @property
    def signature(self) -> str:
        """What the nodes that it made carry in their metadata."""
        return f"{self.rule} #{self.id}"


JournalState: TypeAlias = tuple[int, tuple[int, ...], dict[tuple[int, ...], dict[int, dict[int, None]]]]
"""How much a journal holds: entries, the graphs that are open, and which entries made or changed each node."""


class Journal:
    """Collects the entries of one run. ``price`` gives the modelled seconds of a node."""

    def __init__(self, price: Callable[[Workspace, Node], float] | None = None) -> None:
        self.entries: list[Entry] = []
        self.families: dict[str, str] = {}
        self.price = price
        self._writers: list[dict[int, dict[int, None]]] = []
        """For each graph that is open: which entries made or changed each node."""
        self._kept: dict[tuple[int, ...], dict[int, dict[int, None]]] = {}
        self._path: list[int] = []

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def rewrites(self) -> list[Entry]:
        """The entries that a user would call rewrites."""
        return [e for e in self.entries if e.is_rewrite]

    # -- taking graphs up

    def open(self, owner: int | None = None, attribute: str = "") -> int:
        """Take up the model's graph, or the body of a node; the mark that comes back is for ``close``."""
        at: tuple[int | str, ...] = () if owner is None else (owner, attribute)
        mark = len(self.entries)
        self._path.append(-1 if owner is None else owner)
        self._writers.append(self._kept.setdefault(tuple(self._path), {}))
        self._append(Entry(mark, Action.OPEN, at=at))
        return mark

    def close(self, mark: int, changed: bool = True) -> None:
        """Put the graph back that was taken up last; where it was not changed, nothing is kept from the mark on."""
        self._writers.pop()
        self._path.pop()
        if changed:
            self._append(Entry(len(self.entries), Action.CLOSE))
        else:
            del self.entries[mark:]

    # -- taking back

    def state(self) -> JournalState:
        """All that was noted so far, for ``restore``."""
        kept = {path: {node: dict(numbers) for node, numbers in by.items()} for path, by in self._kept.items()}
        return len(self.entries), tuple(self._path), kept

    def restore(self, state: JournalState) -> None:
        """Forget what was noted since a state."""
        length, path, self._kept = state
        del self.entries[length:]
        self._path = list(path)
        self._writers = [self._kept.setdefault(path[: i + 1], {}) for i in range(len(path))]

    # -- noting

    def note(
        self,
        space: Workspace,
        action: Action,
        rule: str = "",
        *,
        at: Sequence[ValueSpelling | int | str] = (),
        way: int = 0,
        site: str = "",
        before: str = "",
        after: str = "",
        first: int | None = None,
        footprint: Sequence[int] = (),
        needs: Sequence[int] = (),
        changed: Sequence[int] = (),
    ) -> Entry:
        """An entry for what was just done: nodes from id ``first`` on were made by it, and ``changed`` were changed;
        ``footprint`` are the nodes of the left side."""
        writers = self._writers[-1]
        number = len(self.entries)
        created = () if first is None else tuple(n.id for n in space.graph.since(first))
        needed = dict.fromkeys(needs) | {e: None for n in footprint for e in writers.get(n, ())}
        for node in (*created, *changed):
            writers.setdefault(node, {})[number] = None
        working = [n for n in created if space.graph.node(n).op not in (INPUT, CONSTANT)]
        gain = None
        if self.price is not None and action in (Action.REWRITE, Action.EQUAL):
            price, graph = self.price, space.graph
            gain = sum(price(space, graph.node(n)) for n in footprint if n in graph)
            gain -= sum(price(space, graph.node(n)) for n in working)
        return self._append(
            Entry(
                number,
                action,
                rule,
                self.families.get(rule, ""),
                site,
                before,
                after,
                tuple(at),
                way,
                created,
                tuple(sorted(needed)),
                (len(footprint), len(working)),
                gain,
                tuple(footprint),
            )
        )

    def fold(self, limit: int, exactly: bool = False) -> None:
        """Constants were folded in the model's graph."""
        rule, family = (FOLD_EXACTLY, "A18") if exactly else ("fold-constants", "A17")
        self._append(Entry(len(self.entries), Action.FOLD, rule, family, way=limit))

    def _append(self, entry: Entry) -> Entry:
        self.entries.append(entry)
        return entry


def sign(graph: Graph, nodes: Iterable[int], entry: Entry, matched: Iterable[int]) -> None:
    """Write into the metadata of the nodes that an entry made which one it was; constants have none.

    The name and what else the metadata say (torch's scopes and stack traces) are those of the nodes that it matched and
    that are still there, the first first.
    """
    origins = [graph.node(id).origin for id in matched if id in graph and graph.node(id).op not in (INPUT, CONSTANT)]
    name = next((origin.name for origin in origins if origin.name), "")
    inherited = {key: text for origin in reversed(origins) for key, text in origin.metadata if key != SIGNATURE}
    for id in nodes:
        if id in graph and graph.node(id).op not in (INPUT, CONSTANT):
            origin = graph.node(id).origin
            metadata = {**inherited, **dict(origin.metadata), SIGNATURE: entry.signature}
            graph.update(id, origin=replace(origin, name=origin.name or name, metadata=tuple(metadata.items())))


def unsigned(graph: Graph) -> Graph:
    """The graph without what ``sign`` wrote, bodies and functions included; the graph itself where nothing was."""
    twin = graph.copy()
    for node in graph.nodes():
        bodies = {name: unsigned(body) for name, body in node.bodies.items()}
        if any(bodies[name] is not body for name, body in node.bodies.items()):
            twin.update(node.id, attrs=node.attrs.with_(**bodies))
        kept = tuple(pair for pair in node.origin.metadata if pair[0] != SIGNATURE)
        if kept != node.origin.metadata:
            twin.update(node.id, origin=replace(node.origin, metadata=kept))
    for key, function in graph.functions.items():
        twin.functions[key] = replace(function, body=unsigned(function.body))
    same = all(twin.node(n.id) is n for n in graph.nodes())
    return graph if same and not graph.functions else twin


def places(site: ValueSpelling) -> Iterator[Value]:
    """All values that a place names."""
    if isinstance(site, Respelled):
        yield site.value
        for inner in site.inputs:
            if inner is not None:
                yield from places(inner)
    else:
        yield site
