"""Local comparison: each part in which two graphs differ, on the values that the first computed where that part begins.

Values of both graphs are paired: those that the same ops make of paired values, those of one name, those that the same
op makes outputs of. The parts between pairs are compared by what they make of the first graph's values, so that a
difference shows where it arises, whatever becomes of it further on. float64 tells rounding from another function: parts
are the same where float64 sees no more between them than what moving their constants by one unit in the last place
does. A pair that differs was either none, or there is a fault behind which nothing shows: its part is joined to the
next, and where the first graph does not show there what the second made of the pair, other values are tried.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, INPUT, Graph, Node, Value
from graphopt.ir.infer_bodies import scan_axis
from graphopt.ir.tolerance import error, is_inexact
from graphopt.ir.types import TensorType, Type
from graphopt.verify.arrays import dtype_name, type_name
from graphopt.verify.bodies import OWN, closed, head_shape, outer_name, own_name, paired_bodies, slice_position, typed
from graphopt.verify.double import DIGITS, Ulps, evaluated, within
from graphopt.verify.pairs import facts_of, head, paired
from graphopt.verify.rounding import (
    ROUNDING,
    cancelled,
    epsilon,
    in_words,
    is_another_constant,
    is_as_near,
    is_equal_but_for,
    is_moved,
    is_near,
    is_seen,
    is_suspicious,
    is_within,
    largest_difference,
)
from graphopt.verify.runtimes import EngineError, Feeds, Runner

Open: TypeAlias = Callable[[Graph, Path], Runner]
"""Opens a graph in the engine that compares, by way of a file."""

MOVES = 8
"""How often constants are moved at most, up or down by chance: what moves all of a short row alike moves nothing."""

GROSS = 100.0
"""How many times the tolerance is no rounding any more, where float64 cannot tell."""

ROUNDS = 6
"""How often parts are joined one by one before what is left is compared at the outputs."""

VARIATIONS, PATIENCE = 200, 1.0
"""How many other values are tried where the original hides a difference, and for how many seconds, where work is not
limited."""

SPLITS, STEPS = 8, 20
"""For how many elements the place is sought where they change on the way between two values, and in how many steps."""

FURTHER = 0.3
"""For how many seconds at least differences within rounding are looked at in float64 and other values are tried, where
work is limited: else for as long as the parts took to run."""

KINDS = 3
"""How many kinds of random floats are drawn for values: about 1, as large as the original's, and as small."""

TURNS = 3
"""How many rounds of a Loop or Scan its bodies are compared in."""

FEW = 4
"""By how many units in the last place of float32 constants and attributes may be off."""

EPSILON = float(np.finfo(np.float32).eps)


@dataclass(frozen=True, slots=True)
class Fault:
    """A value of the first graph that the second does not make: which, how large the difference is, and where."""

    value: Value
    words: str


# -- comparison


class LocalComparison:
    """Two graphs, paired, and what was found of their parts."""

    def __init__(self, a: Graph, b: Graph, open_graph: Open, work: float = inf, deadline: float = inf) -> None:
        self.a, self.b, self._open, self._work, self._deadline = a, b, open_graph, work, deadline
        self._pairs = paired(a, b)
        self.outputs = {w: v for v, w in self._pairs.required}
        """The second graph's outputs, and what they should be equal to."""
        differing = {w: v for w, v in self.outputs.items() if w not in self._pairs.same or self._pairs.of[w] != v}
        inner = {w: v for w, v in self._pairs.of.items() if w not in self._pairs.same}
        self.roots = {w: v for w, v in inner.items() if b.producer(w).op not in (INPUT, CONSTANT)} | differing
        """Its values that are to be compared, and what with."""
        self.all = {w: v for w, v in self._pairs.of.items() if b.producer(w).op not in (INPUT, CONSTANT)} | self.outputs
        """All pairs: what is made of a pair that differs is to be compared, too."""
        self.bodies = paired_bodies(a, b, self._pairs)
        """The nodes of both with bodies of the same names, first and second."""
        self._facts: dict[int, Mapping[Value, Fact]] = {}
        self._computed: tuple[Feeds, dict[Value, Any]] | None = None
        """The first input on which parts were compared, and what the first graph computes on it."""
        self._start = time.perf_counter()
        self._further_until: float | None = None
        self.left = 0
        """How many parts differ within rounding and were not looked at in float64, for want of work or time."""
        self.is_settled = True
        """Whether every pair was compared and found equal so far."""
        self._settled = {w_node.id for w_node in map(a.producer, (self._pairs.of[w] for w in self._pairs.same))}

    def faults(self, feeds: Feeds) -> list[Fault]:
        """The differences that show on some inputs; empty where all parts agree.

        EngineError and GraphoptError where the parts cannot be run.
        """
        if not self.roots and not self.bodies:
            return []
        of = {w: v for w, v in self._pairs.of.items() if self.b.producer(w).op != CONSTANT}
        with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
            trial = _Trial(self, Path(folder), feeds, of)
            self._computed = self._computed or (feeds, trial.known)
            return list(trial.faults())

    def agrees_on_drawn(self, feeds: Feeds, others: Feeds) -> bool:
        """Whether all parts that differ were found equal, and are so on drawn values in the place of the original's,
        which show what they compute. Then the outputs are equal, however little these say."""
        if not self.is_settled or self.bodies:
            return False
        of = {w: v for w, v in self._pairs.of.items() if self.b.producer(w).op != CONSTANT}
        with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
            trial = _Trial(self, Path(folder), feeds, of)
            if self._computed and self._computed[0] is feeds:
                trial.known = self._computed[1]
            try:
                return trial.agree_on_drawn(others)
            except (EngineError, GraphoptError, MemoryError):
                return False

    def settles(self, node: int) -> bool:
        """Whether what a node of the first graph makes is known to be made by the second, whatever its condition is:
        the same op makes it of values that were found equal, or its bodies were compared as graphs of their own."""
        return self.is_settled and node in self._settled

    def settle(self, node: int) -> None:
        """Note that all bodies of a node of the first graph were found equal."""
        self._settled.add(node)

    def inner(self, a: Graph, b: Graph) -> LocalComparison:
        """The comparison of two bodies, which take of the same time and work."""
        return LocalComparison(a, b, self._open, self._work, self._deadline)

    def facts(self, graph: Graph) -> Mapping[Value, Fact]:
        """What is known of the values of one of the two graphs."""
        if id(graph) not in self._facts:
            self._facts[id(graph)] = facts_of(graph)
        return self._facts[id(graph)]

    def pays(self, work: int) -> bool:
        """Whether there are work and time left for a look in float64 at a difference within rounding."""
        self._work -= work
        return self._work >= 0 and time.perf_counter() < self.until()

    def until(self) -> float:
        """When looking further than at what was run ends, in seconds of ``perf_counter``."""
        now = time.perf_counter()
        if self._work == inf:
            return now + PATIENCE
        if self._further_until is None:
            self._further_until = now + max(FURTHER, now - self._start)
        return self._further_until

    def is_late(self) -> bool:
        """Whether no time is left."""
        return time.perf_counter() > self._deadline

    def opened(self, graph: Graph, path: Path) -> Runner:
        """A graph in the engine."""
        return self._open(graph, path)


class _Trial:
    """Local comparison on one input."""

    def __init__(self, local: LocalComparison, folder: Path, feeds: Feeds, of: dict[Value, Value]) -> None:
        self.local, self.a, self.b = local, local.a, local.b
        self.folder, self.of, self.roots, self.outputs = folder, of, local.all, local.outputs
        self.feeds = feeds
        self.known: dict[Value, Any] = {v: feeds[self.a.names[v]] for v in self.a.inputs if self.a.names[v] in feeds}
        self.broken: dict[Value, tuple[Array, str]] = {}
        self.unread: list[tuple[Value, Fault]] = []
        self.is_crowded = False
        """Whether there was no memory for all values at once."""

    def _learn(self, roots: Iterable[Value]) -> None:
        """Have the first graph compute what it does wherever a part begins or ends."""
        self._learn_values({self.roots[w] for w in roots} | self._begins(roots))

    def _begins(self, roots: Iterable[Value]) -> set[Value]:
        """The values of the first graph with which parts begin, in either graph."""
        met = set(self.of.values())
        begins: set[Value] = set()
        for w in roots:
            begins |= self._leaves(self.b, self.of, w, self.of) | self._leaves(self.a, met, self.roots[w], None)
        return begins

    def _learn_values(self, wanted: Iterable[Value]) -> None:
        """Have the first graph compute some values."""
        values = sorted(v for v in wanted if v not in self.known and self.a.producer(v).op not in (INPUT, CONSTANT))
        if not values:
            return
        twin = self.a.copy()
        twin.outputs, twin.output_names = [], []
        for number, value in enumerate(values):
            twin.add_output(f"graphopt:made:{number}", value)
        _prune(twin)
        twin.types = self._types(twin, self.a)
        run = self.local.opened(twin, self.folder / "original.onnx")
        self.known.update(zip(values, run(self.feeds), strict=True))

    def _types(self, twin: Graph, graph: Graph) -> dict[Value, Type]:
        """The types of an excerpt's inputs, and of its outputs as the whole graph has them, which saves inferring."""
        facts = self.local.facts(graph)
        outputs = {v: facts[v].type for v in twin.outputs if v is not None and v in facts}
        types = {v: t for v, t in outputs.items() if t is not None}
        return types | {v: t for v, t in twin.types.items() if v in twin.inputs}

    def _leaves(
        self, graph: Graph, stops: Container[Value], root: Value, meaning: Mapping[Value, Value] | None
    ) -> set[Value]:
        """Where the part that makes a value begins, as values of the first graph."""
        read = _begins(graph, stops, root)
        return read if meaning is None else {meaning.get(v, v) for v in read}

    def faults(self) -> Iterator[Fault]:
        """Compare, joining parts behind pairs that differ: pairs are guesses, unless they are outputs."""
        waiting = set(self.local.roots)
        for turn in range(ROUNDS + 1):
            differing = self._differing(waiting)
            # What was made of a pair that differs was made of another value than the second graph makes: it waits.
            behind = _behind(self.b, differing)
            found = {w: how for w, how in differing.items() if w not in behind}
            self.broken |= found
            for w in found:
                self.of.pop(w, None)
            yield from (self._fault(w) for w in found if w in self.outputs)
            if not found:
                break
            if turn == ROUNDS - 1:  # what is behind a difference is compared at the outputs
                behind = _behind(self.b, found)
                for w in list(self.of):
                    if w in behind and w not in self.outputs:
                        self.of.pop(w)
                waiting = {w for w in self.outputs if w not in self.broken and w in behind}
            else:
                waiting = {w for w in self.roots if w not in self.broken and self._reads(w, found)}
                waiting |= differing.keys() - found.keys()
        for m, n in self.local.bodies:
            if not any(w in self.broken for w in n.outputs):
                yield from self._in_bodies(m, n)
        if not any(w in self.broken for w in self.outputs):
            yield from self._hidden()
            yield from self._rounded()
        for w, fault in self.unread:
            if not self.broken.keys() & set(self.b.producer(w).inputs):
                yield fault
        self.local.is_settled &= not self.broken

    def _in_bodies(self, m: Node, n: Node) -> Iterator[Fault]:
        """Compare the bodies of two nodes as graphs on what the first's get where all is as it is.

        Branches of another condition may well differ: they are none of the second graph's faults.
        """
        conditions = (m.inputs[0], n.inputs[0]) if m.op == "If" else (None, None)
        is_other = conditions[1] is not None and self.of.get(conditions[1], conditions[0]) != conditions[0]
        if None not in conditions and conditions[1] not in self.of:
            # where the first's is a constant, the second may be an If out of the branch that is taken
            is_other |= self.a.constant_of(conditions[0]) is not None and self.b.constant_of(conditions[1]) is None
        outer = {v for v in m.inputs if v is not None}
        together = [self.roots.get(w) == v for v, w in zip(m.outputs, n.outputs, strict=False)]
        used = [bool(self.b.users(w)) or self.b.is_output(w) for w in n.outputs]
        if m.op != "If" and not all(t or not u for t, u in zip(together, used, strict=False)):  # states make each other
            return
        settled: set[str] = set()
        for name, first in m.bodies.items():
            meanings = {v: v for v in self.of.values()}
            a, read = closed(self.a, m, first, meanings)
            b, also = closed(self.b, n, n.bodies[name], self.of)
            self._learn_values(outer | read | also)
            if m.op == "If":
                _keep(a, together)
                _keep(b, together)
            names = {a.names[v] for v in a.inputs}
            for met in sorted(v for v in also if outer_name(v) not in names):
                a.add_input(outer_name(met))
            if len(a.outputs) != len(b.outputs) or len(a.inputs) < len(b.inputs):
                continue
            try:
                for feeds in self._rounds(m, name, a, read | also):
                    local = self.local.inner(typed(a, feeds), typed(b, feeds))
                    for fault in local.faults(feeds):
                        if is_other:
                            return
                        inner = local.a.names.get(fault.value, local.a.producer(fault.value).op)
                        words = f"value {inner!r} in its {name}, and that by {fault.words}"
                        yield Fault(m.outputs[0], words)
                        return
                    if local.is_settled:
                        settled.add(name)
            except (EngineError, GraphoptError):  # which the whole node's comparison had no trouble with
                continue
        if settled == set(m.bodies) and all(together):
            self.local.settle(m.id)

    def _rounds(self, m: Node, name: str, body: Graph, read: set[Value]) -> Iterator[Feeds]:
        """What a body gets: of a Loop or Scan in the first rounds, whether or not the model takes so many."""
        values = {outer_name(v): self._value(v) for v in read}
        if any(not isinstance(array, np.ndarray) for array in values.values()):  # a sequence, or an optional value
            return
        if m.op == "If":
            condition = m.inputs[0]
            assert condition is not None
            if condition in read:
                values[outer_name(condition)] = np.full(self._value(condition).shape, name == "then_branch")
            yield values
            return
        own = [self._value(v) for v in m.inputs[: len(m.inputs) - m.captures] if v is not None]
        counts = m.attrs.get("num_scan_inputs")
        n_heads, n_scans = (2, 0) if m.op == "Loop" else (0, counts if isinstance(counts, int) else 0)
        n_states = sum(body.names[v].startswith(OWN) for v in body.inputs) - n_heads - n_scans
        if any(not isinstance(array, np.ndarray) for array in own):
            return
        states, scanned = own[len(own) - n_scans - n_states : len(own) - n_scans], own[len(own) - n_scans :]
        axes = [scan_axis(m, "scan_input_axes", k, array.ndim) for k, array in enumerate(scanned)]
        for turn in range(min([TURNS, *(array.shape[axis] for array, axis in zip(scanned, axes, strict=True))])):
            heads = [np.full(head_shape(body, 0), turn, np.int64), np.full(head_shape(body, 1), True)][:n_heads]
            slices = [
                np.take(array, slice_position(m, k, turn), axis)
                for k, (array, axis) in enumerate(zip(scanned, axes, strict=True))
            ]
            feeds = values | {own_name(i): array for i, array in enumerate([*heads, *states, *slices])}
            yield feeds
            made = self.local.opened(typed(body, feeds), self.folder / "body.onnx")(feeds)
            states = made[n_heads // 2 : n_heads // 2 + n_states]
            if n_heads and not bool(np.asarray(made[0]).reshape(-1)[0]):
                return

    def _value(self, v: Value) -> Any:
        """What the first graph made where it was asked to, or holds."""
        constant = self.a.constant_of(v)
        return self.known[v] if constant is None else constant.array

    def _fault(self, w: Value) -> Fault:
        return Fault(self.roots[w], self.broken[w][1])

    def _reads(self, w: Value, found: Iterable[Value]) -> bool:
        made = {value for node in within(self.b, _But(self.of, w), [w]) for value in node.outputs}
        return any(f in made for f in found if f != w)

    def _differing(self, roots: set[Value]) -> dict[Value, tuple[Array, str]]:
        """Those of some values that the second graph does not make of the first graph's values, what it makes, and the
        difference in words.

        Where there is no memory for all of them at once, half of them are compared after the other.
        """
        place = {node.id: number for number, node in enumerate(self.b.order())}
        batches = [sorted(roots, key=lambda w: (place[w.node], w))]
        found: dict[Value, tuple[Any, str]] = {}
        while batches:
            batch = batches.pop()
            n_unread, n_left = len(self.unread), self.local.left
            try:
                self._learn(batch)
                chosen = [w for w in batch if self.roots[w] in self.known and not self._is_random(w)]
                found |= self._compared(chosen, self._cut(self.b, self.of, chosen, self.known) if chosen else [])
            except MemoryError:
                if len(batch) == 1:
                    raise
                del self.unread[n_unread:]
                self.local.left = n_left
                self.is_crowded = True
                batches += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]
            if self.is_crowded:
                self._forget()
        return found

    def _forget(self) -> None:
        """Give up the floats that the first graph made: what is asked for once more is computed once more."""
        computed = [v for v in self.known if self.a.producer(v).op != INPUT]
        for v in computed:
            if not isinstance(self.known[v], np.ndarray) or is_inexact(self.known[v]):
                del self.known[v]

    def _compared(self, chosen: list[Value], values: list[Any]) -> dict[Value, tuple[Array, str]]:
        """Those of some values as the second graph makes them that differ, and the difference in words."""
        found: dict[Value, tuple[Any, str]] = {}
        slight: list[tuple[int, Value, Array, Array]] = []
        for w, made in zip(chosen, values, strict=True):
            want = self.known[self.roots[w]]
            if not isinstance(want, np.ndarray) or not isinstance(made, np.ndarray):
                if w not in self.outputs:
                    found[w] = made, "its kind of value"
            elif want.dtype != made.dtype or want.shape != made.shape:
                found[w] = made, f"its type: {type_name(made)} instead of {type_name(want)}"
            elif is_suspicious(want, made) or self._joins(w):
                if (words := self._difference(w, want, made)) is not None:
                    found[w] = made, words
            elif (words := self._unread(w)) is not None:
                self.unread.append((w, Fault(self.roots[w], words)))
            elif np.array_equal(want, made, equal_nan=is_inexact(want)):
                continue
            else:
                slight.append((self._size(w), w, want, made))
        # what reads a pair that is none differs, too, and is no fault for that
        blamed = {v for w in found for v in _begins(self.b, self.of, w)}
        for number, (size, w, want, made) in enumerate(sorted(slight, key=lambda one: (one[1] not in blamed, one[0]))):
            if w not in blamed and not self.local.pays(size):
                self.local.left += len(slight) - number
                break
            if (words := self._difference(w, want, made)) is not None:
                found[w] = made, words
        return found

    def _is_random(self, w: Value) -> bool:
        """Whether the part that makes a value draws random numbers: those of two runs are others."""
        return not all(ops.is_pure(node.op, node.attrs) for node in within(self.b, _But(self.of, w), [w]))

    def _unread(self, w: Value) -> str | None:
        """How constants differ, in words, that the same op reads where no more of it shows than of rounding: elements
        of a table that no index chose, weights of what is 0, or small ones beside large ones."""
        m, n = self.a.producer(self.roots[w]), self.b.producer(w)
        if m.op in (INPUT, CONSTANT) or head(m) != head(n):
            return None
        apart = []
        for x, y in zip(m.inputs, n.inputs, strict=True):
            first, second = self.a.constant_of(x), self.b.constant_of(y)
            if first is not None and second is not None:
                if first.digest != second.digest:
                    apart.append((first.array, second.array))
            elif y is not None and self.of.get(y) != x:
                return None
        for one, other in apart:
            if (
                one.dtype == other.dtype
                and one.shape == other.shape
                and is_inexact(one)
                and is_another_constant(one, other)
            ):
                return f"a constant that it reads: {in_words(one, other)}"
        return None

    def _size(self, w: Value) -> int:
        """About how many products of elements the part takes that makes a value."""
        v = self.roots[w]
        constants = [
            node.attrs["value"] for node in within(self.a, _But(set(self.of.values()), v), [v]) if node.op == CONSTANT
        ]
        taps = [c.size // c.shape[0] for c in constants if isinstance(c, Constant) and c.shape and c.shape[0]]
        return int(self.known[v].size) * max(1, *taps, 1)

    def _cut(
        self, graph: Graph, of: Mapping[Value, Value], chosen: list[Value], values: Mapping[Value, Any]
    ) -> list[Any]:
        """What a graph makes of values of the first graph, given which of its own are which of those."""
        twin, feeds = graph.copy(), dict[str, Any]()
        twin.outputs, twin.output_names = [], []
        for number, w in enumerate(chosen):
            twin.add_output(f"graphopt:made:{number}", w)
        read = {v for w in chosen for v in _begins(graph, of, w)}
        for number, w in enumerate(sorted(read)):
            value = values.get(of.get(w, w))
            if twin.producer(w).op == INPUT or not isinstance(value, np.ndarray):
                continue
            name = f"graphopt:given:{number}"
            given = twin.add_input(name, TensorType(dtype_name(value), value.shape))
            feeds[name] = value
            for user in sorted({user for user, _ in twin.users(w)}):
                node = twin.node(user)
                twin.update(user, inputs=tuple(given if v == w else v for v in node.inputs))
        _prune(twin)
        twin.types = self._types(twin, graph)
        names = {twin.names[v]: v for v in twin.inputs if twin.names[v] not in feeds}
        for name, value in names.items():
            met = of.get(value)
            if met is not None and met in values:
                feeds[name] = values[met]
        return self.local.opened(twin, self.folder / "part.onnx")(feeds)

    # -- values that are drawn

    def agree_on_drawn(self, others: Feeds) -> bool:
        """Whether the parts that differ make the same of drawn values, and these show it: other ones make others."""
        met = {v: v for v in self.of.values()}
        chosen = sorted(self.local.roots)
        self._learn(chosen)
        if not all(self.roots[w] in self.known and not self._is_random(w) for w in chosen):
            return False
        untold = set(chosen)
        begins = self._begins(chosen) & self.known.keys()
        for kind in range(KINDS):
            if self.local.is_late():
                return False
            drawn = [self._drawn(begins, feeds, kind, seed) for seed, feeds in enumerate((self.feeds, others))]
            wanted, changed = (self._cut(self.a, met, [self.roots[w] for w in chosen], values) for values in drawn)
            for w, want, other, made in zip(
                chosen, wanted, changed, self._cut(self.b, self.of, chosen, drawn[0]), strict=True
            ):
                if not isinstance(want, np.ndarray) or want.dtype != made.dtype or want.shape != made.shape:
                    return False
                if is_suspicious(want, made):
                    wide, result, noise = self._wide(w, drawn[0])
                    if not is_equal_but_for(wide, result, noise, FEW * EPSILON):
                        return False
                if not self._leaves(self.b, self.of, w, self.of) or is_moved(want, other):
                    untold.discard(w)
            if not untold:
                return True
        return False

    def _drawn(self, begins: Iterable[Value], feeds: Feeds, kind: int, seed: int) -> dict[Value, Any]:
        """Random floats for values where parts begin, positive where those are; whole numbers stay."""
        rng = np.random.default_rng((kind, seed))
        drawn, facts = dict(self.known), self.local.facts(self.a)
        for v in sorted(begins):
            array = self.known[v]
            if self.a.producer(v).op == INPUT:
                drawn[v] = feeds.get(self.a.names[v], array)
            elif isinstance(array, np.ndarray) and array.dtype.kind == "f":
                new = rng.standard_normal(array.shape, np.float32)
                if kind:
                    most = float(np.abs(array).max(initial=0, where=np.isfinite(array))) or 1.0
                    new = new * (most if kind == 1 else 1 / max(most, 1.0))
                drawn[v] = np.asarray(np.abs(new) if v in facts and facts[v].low >= 0 else new, array.dtype)
        return drawn

    def _difference(self, w: Value, want: Array, made: Array) -> str | None:
        """How a value differs from that which it should be, in words; None where it does not but for rounding."""
        if self.local.is_late():
            raise EngineError("there was no time to compare all parts")
        try:
            wide, other, noise = self._wide(w)
        except GraphoptError as refusal:
            if is_near(want, made):
                return None
            if is_near(want, made, GROSS):  # may be rounding, and nothing tells
                raise EngineError(str(refusal)) from None
            return in_words(want, made)
        if not is_equal_but_for(wide, other, noise, FEW * epsilon(want.dtype)):
            return in_words(want, made) if is_suspicious(want, made) else in_words(wide, other)
        if self._joins(w) and not is_equal_but_for(wide, other, noise) and self._is_left(w, wide, other):
            return in_words(wide, other)
        if error(want, made) > 1 and not is_as_near(wide, want, made) and not self._is_unsteady(w, wide, other, made):
            return f"{in_words(want, made)}, and is further from float64"
        return None

    def _is_unsteady(self, w: Value, wide: Array, other: Array, made: Array) -> bool:
        """Whether rounding on the way moves a value in float64 as far as what was made, of which float64 sees nothing
        between both parts: where terms cancel, or between two whole numbers. Then a value that is near float64 is so by
        chance."""
        if is_seen(wide, other, made):
            return False
        v = self.roots[w]
        first, _ = self._given(w, self.known)
        ulps = Ulps(np.random.default_rng(0), _digits(made))
        return is_within(wide, made, [evaluated(self.a, first, [v], ulps, first)[v] for _ in range(MOVES)])

    def _is_left(self, w: Value, wide: Array, other: Array) -> bool:
        """Whether so small a difference is what is left of that of a pair: the first graph makes as much of it."""
        if not is_inexact(wide):
            return False
        far = largest_difference(wide, other)
        effects = [largest_difference(wide, shown) for x in self.broken if (shown := self._shown(w, x)) is not None]
        return any(far / 2 <= effect <= 2 * far for effect in effects)

    def _joins(self, w: Value) -> bool:
        """Whether the part that makes a value holds a pair that differs."""
        return bool(self.broken) and self._reads(w, self.broken)

    def _wide(self, w: Value, given: Mapping[Value, Any] | None = None) -> tuple[Any, Any, list[Any]]:
        """A value in float64 as both graphs make it, and as they do after their constants were moved by one ulp.

        A part that begins with several values may find in one of them, rounded, what the other graph's part makes of
        another: then the parts are followed back to where both begin alike, and else these are moved, too, unless they
        are inputs.
        """
        v = self.roots[w]
        first, second = self._given(w, self.known if given is None else given)
        sides = (self.a, first, v), (self.b, second, w)
        wide, other = (evaluated(graph, given, [value])[value] for graph, given, value in sides)
        if is_equal_but_for(wide, other, []):
            return wide, other, []
        if given is None and first.keys() != {self.of[u] for u in second}:
            kept, self.of = self.of, self._aligned(w)
            try:
                self._learn_values(self._begins([w]))
                return self._wide(w, self.known)
            finally:
                self.of = kept
        ulps = Ulps(np.random.default_rng(0))
        begins = {*first, *(self.of[u] for u in second)}
        computed = {u for u in begins if self.a.producer(u).op != INPUT} if len(begins) > 1 else set[Value]()
        rounded = computed, {u for u in second if self.of[u] in computed}
        noise: list[tuple[Any, Any]] = []
        for _ in range(MOVES):
            for (graph, given, value), among, unmoved in zip(sides, rounded, (wide, other), strict=True):
                noise.append((unmoved, evaluated(graph, given, [value], ulps, among)[value]))
            if is_equal_but_for(wide, other, noise):
                return wide, other, noise
        if is_inexact(wide):
            for (graph, given, value), unmoved in zip(sides, (wide, other), strict=True):  # float64 rounds, too
                double = Ulps(np.random.default_rng(0), np.finfo(np.float64).nmant)
                noise += [(unmoved, evaluated(graph, given, [value], double)[value]) for _ in range(MOVES)]
            # where all terms cancel, what is left was rounded on the way, in what was folded as well
            own = Ulps(np.random.default_rng(0), _digits(self.known[v]))
            left = [evaluated(self.a, first, [v], own, rounded[0])[v] for _ in range(MOVES)]
            noise += [(wide, cancelled(wide, moved)) for moved in left]
        return wide, other, noise

    def _aligned(self, w: Value) -> dict[Value, Value]:
        """The pairs without those by which the parts of both graphs that make a value begin with other values, or with
        what is made of an input that only one of them reads."""
        v = self.roots[w]
        stops = {y: u for y, u in self.of.items() if y != w and u != v}
        while True:
            first = self._leaves(self.a, set(stops.values()), v, None)
            second = self._leaves(self.b, set(stops), w, stops)
            alone = {u.node for u in first ^ second}
            begins = {u for u in first | second if self.a.producer(u).op != INPUT}
            passed = {u for u in begins if u.node in alone} or {
                u for u in begins if alone & {node.id for node in within(self.a, (), [u])}
            }
            if not passed:
                return stops
            stops = {y: u for y, u in stops.items() if u not in passed}

    # -- what hides a difference

    def _hidden(self) -> Iterator[Fault]:
        """Differences that the rest of the first graph hides on these values, where others show them."""
        for w in self.roots:
            if w in self.broken or not self._reads(w, self.broken):
                continue
            if self.local.is_late():
                raise EngineError("there was no time to compare all parts")
            inner = [x for x in self.broken if self._reads(w, [x])]
            try:
                self._learn([w])  # the last round compares outputs alone
                if any(self._is_hidden(w, x) for x in inner):
                    yield from self._varied(w, inner, self.local.until())
            except GraphoptError:
                continue

    def _rounded(self) -> Iterator[Fault]:
        """Differences that show in no whole number or truth value made of these floats, where others show them."""
        end = self.local.until()
        for w in self.local.roots:
            value = self.known.get(self.roots[w])
            if w in self.broken or not isinstance(value, np.ndarray) or is_inexact(value):
                continue
            if self._is_random(w):
                continue
            if self.local.is_late() or time.perf_counter() > end:
                return
            try:
                if self.is_crowded:
                    self._learn([w])
                begins = (self.known.get(v) for v in self._leaves(self.b, self.of, w, self.of))
                if not any(isinstance(x, np.ndarray) and x.dtype.kind == "f" for x in begins):
                    continue
                yield from self._varied(w, [], end)
            except GraphoptError:
                continue

    def _is_hidden(self, w: Value, x: Value) -> bool:
        """Whether what the first graph makes of what the second made of a pair is its own but for rounding."""
        if (shown := self._shown(w, x)) is None:
            return False
        wide, _, noise = self._wide(w)
        return is_equal_but_for(wide, shown, noise, FEW * epsilon(self.known[self.roots[w]].dtype))

    def _shown(self, w: Value, x: Value) -> Any:
        """What the first graph makes of what the second made of a pair; None where it cannot."""
        v, u, made = self.roots[w], self.roots[x], self.broken[x][0]
        if not isinstance(made, np.ndarray) or u not in self.known or made.shape != self.known[u].shape:
            return None
        first = {y: self.known[y] for y in self._leaves(self.a, set(self.of.values()), v, None) if y in self.known}
        return evaluated(self.a, {**first, u: made}, [v])[v]

    def _varied(self, w: Value, inner: list[Value], end: float) -> Iterator[Fault]:
        """The difference that other values show where both parts begin, found before some time."""
        v, stops = self.roots[w], self._aligned(w)
        first = self._leaves(self.a, set(stops.values()), v, None)
        second = self._leaves(self.b, set(stops), w, stops)
        if inner and not is_inexact(self.known[v]) and self._is_reordered(w, self.known):
            yield Fault(v, f"the order of what it is taken of, which differs by {self.broken[inner[0]][1]}")
            return
        base = {u: self.known[u] for u in first | second if u in self.known}
        rng = np.random.default_rng(0)
        kept, self.of = self.of, stops
        try:
            for turn in range(VARIATIONS):
                if (turn > VARIATIONS // 10 or not inner) and (time.perf_counter() > end or self.local.is_late()):
                    return
                varied = {u: _varied(value, rng, turn) for u, value in base.items()}
                wide, other, noise = self._wide(w, varied)
                differs = self._is_reordered(w, varied) or not is_equal_but_for(wide, other, noise, FEW * EPSILON)
                if not differs and not is_inexact(wide):
                    differs = self._is_split(w, base, varied, rng, end)
                if differs:
                    how = in_words(wide, other) if is_inexact(wide) else "some elements"
                    names = [self.a.names.get(u, self.a.producer(u).op) for u in (self.roots[x] for x in inner)]
                    why = f", since {names[0]!r} inside differs by {self.broken[inner[0]][1]}" if inner else ""
                    yield Fault(v, f"{how} on other values{why}")
                    return
        finally:
            self.of = kept

    def _is_split(
        self, w: Value, low: Mapping[Value, Any], high: Mapping[Value, Any], rng: np.random.Generator, end: float
    ) -> bool:
        """Whether whole numbers or truth values change elsewhere in the second graph on the way between some values and
        others, by bisection."""
        (first, _), (last, other) = self._both(w, low), self._both(w, high)
        if not isinstance(first, np.ndarray) or last.shape != first.shape or other.shape != first.shape:
            return False
        for at in rng.permutation(np.argwhere((first != last) & self._suspects(w, low, first.shape)))[:SPLITS]:
            place, near, far = tuple(at), 0.0, 1.0
            for _ in range(STEPS):
                if time.perf_counter() > end:
                    return False
                middle = (near + far) / 2
                values = {u: _blend(low[u], high[u], middle) for u in low}
                wide, other = self._both(w, values)
                if wide.shape != first.shape or other.shape != first.shape:
                    break
                if wide[place] != other[place]:
                    noise = self._wide(w, values)[2]
                    if not any(x.shape != y.shape or x[place] != y[place] for x, y in noise):
                        return True
                near, far = (middle, far) if wide[place] == first[place] else (near, middle)
        return False

    def _suspects(self, w: Value, values: Mapping[Value, Any], shape: tuple[int, ...]) -> Any:
        """The elements of a value whose operands differ, as far as the same op makes it; else all."""
        m, n = self.a.producer(self.roots[w]), self.b.producer(w)
        apart = np.zeros(shape, bool)
        for x, y in zip(m.inputs, n.inputs, strict=False) if m.op == n.op else ():
            if x is None or y is None or CONSTANT in (self.a.producer(x).op, self.b.producer(y).op):
                continue
            one, two = self._both(w, values, (x, y))
            if not is_inexact(one) or one.shape != two.shape or one.ndim > len(shape):
                continue
            if one.shape != shape[len(shape) - one.ndim :]:
                continue
            with np.errstate(all="ignore"):
                apart |= ~(np.abs(one - two) <= ROUNDING * EPSILON * np.abs(one))
        return apart if apart.any() else ~apart

    def _both(self, w: Value, values: Mapping[Value, Any], made: tuple[Value, Value] | None = None) -> tuple[Any, Any]:
        """What both graphs make of some values in float64: of a pair, or of two values on the way to it."""
        first, second = self._given(w, values)
        x, y = made or (self.roots[w], w)
        return evaluated(self.a, first, [x])[x], evaluated(self.b, second, [y])[y]

    def _given(self, w: Value, values: Mapping[Value, Any]) -> tuple[dict[Value, Any], dict[Value, Any]]:
        """Where the parts of both graphs begin that make a value, given values of the first."""
        stops = set(self.of.values())
        first = {u: values[u] for u in self._leaves(self.a, stops, self.roots[w], None) if u in values}
        second = {u: values[self.of[u]] for u in _begins(self.b, self.of, w) if self.of.get(u) in values}
        return first, second

    def _is_reordered(self, w: Value, values: Mapping[Value, Any]) -> bool:
        """Whether both values are places of maxima, of elements that are in another order."""
        v = self.roots[w]
        m, n = self.a.producer(v), self.b.producer(w)
        if m.op not in ("ArgMax", "ArgMin") or n.op != m.op or m.attrs != n.attrs:
            return False
        x, y = m.inputs[0], n.inputs[0]
        assert x is not None
        assert y is not None
        axis = m.attrs.get("axis", 0)
        assert isinstance(axis, int)
        before, after = self._both(w, values, (x, y))
        if before.shape != after.shape or not before.size:
            return bool(before.shape != after.shape)
        before, after = np.moveaxis(before, axis, -1), np.moveaxis(after, axis, -1)
        order = np.argsort(before, axis=-1)
        steps = np.diff(np.take_along_axis(after, order, -1), axis=-1)
        own = np.diff(np.take_along_axis(before, order, -1), axis=-1)
        least = [ROUNDING * EPSILON * np.abs(a).max(axis=-1, keepdims=True) for a in (before, after)]
        return bool(((steps < -least[1]) & (own > least[0])).any())


def _digits(array: Array) -> int:
    """Of the significands of what was computed on the way to a value; to whole numbers, as to float32."""
    return np.finfo(array.dtype).nmant if array.dtype.kind in "fc" else DIGITS.get(array.dtype.name, DIGITS["float32"])


def _varied(value: Any, rng: np.random.Generator, turn: int) -> Any:
    """Other elements for a value, of the same range: its own in another order, or between two of them."""
    if not isinstance(value, np.ndarray) or value.size < 2 or value.dtype.kind not in "fiu":
        return value
    mixed = rng.permutation(value.reshape(-1)).reshape(value.shape)
    return mixed if turn % 2 == 0 else _blend(mixed, value, np.asarray(rng.random(value.shape), value.dtype))


def _blend(low: Any, high: Any, share: Any) -> Any:
    """Floats between those of two arrays; of other things the first."""
    if not isinstance(low, np.ndarray) or low.dtype.kind != "f":
        return low
    with np.errstate(all="ignore"):
        return np.asarray(share * high + (1 - share) * low)


@dataclass(frozen=True, slots=True)
class _But:
    """Values without one of them."""

    stops: Container[Value]
    root: Value

    def __contains__(self, value: object) -> bool:
        return value != self.root and value in self.stops


def _begins(graph: Graph, stops: Container[Value], root: Value) -> set[Value]:
    """Those of some values, and of the inputs, that the part reads which makes a value."""
    stops = _But(stops, root)
    cone = within(graph, stops, [root])
    read = {v for node in cone for v in node.inputs if v is not None and v in stops}
    return read | {v for node in cone if node.op == INPUT for v in node.outputs}


def _behind(graph: Graph, values: Iterable[Value]) -> set[Value]:
    """What is made of some values."""
    reached = {v.node for v in values}
    behind: set[Value] = set()
    for node in graph.order():
        if any(v is not None and v.node in reached for v in node.inputs):
            reached.add(node.id)
            behind.update(node.outputs)
    return behind


def _keep(graph: Graph, kept: list[bool]) -> None:
    """Have a graph make some of its outputs only."""
    outputs = [(name, v) for name, v, keep in zip(graph.output_names, graph.outputs, kept, strict=False) if keep]
    graph.outputs, graph.output_names = [v for _, v in outputs], [name for name, _ in outputs]
    _prune(graph)


def _prune(graph: Graph) -> None:
    """Remove what no output needs; inputs stay."""
    for node in reversed(graph.order()):
        if node.op != INPUT and not graph.is_used(node.id):
            graph.remove(node.id)
