"""Local checks: both sides of each rewrite of a journal, compared on the values that the original computes there.

The original and both sides of all rewrites are one graph, so that a single run gives every value. What a rewrite reads
is what the original computed, or what an earlier rewrite made in its place; the body of an If, and the first pass of a
Loop or a Scan, stand beside the node that they belong to.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import tempfile
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, NOWHERE, Attrs, Graph, Node, Origin, Value
from graphopt.ir.tolerance import error, is_inexact
from graphopt.ir.types import TensorType
from graphopt.rewrite.derivations.replay import Step
from graphopt.rewrite.rule.rule import Soundness
from graphopt.run.derivation import Derivation
from graphopt.runtime.limits import confine, end_after, memory_of
from graphopt.verify.conditioning import is_rounding, moved_inputs, off
from graphopt.verify.inputs import Given, draw, given, known_sizes, ranges, sizes
from graphopt.verify.runtimes import EngineError, Feeds, open_model
from graphopt.verify.verification import Interpreter, how_it_ended

SECONDS = 60.0
"""How long the checks of one journal may take."""

Pair: TypeAlias = "tuple[Value, Value]"

PathOf: TypeAlias = "tuple[int | str, ...]"
"""Nodes and attributes that lead to a body; nothing for the model's graph."""


@dataclass(frozen=True, slots=True)
class LocalCheck:
    """What came of a rewrite's check at its place."""

    status: str
    """``checked``: both sides agree there; ``differs``; ``rounding``: they differ, but no more than the left side does
    when inputs move by a unit in the last place; ``unchecked``, for the reason that ``why`` says."""
    error: float | None = None
    """The largest difference in units of the tolerance; None where it has no size."""
    why: str = ""


# -- both sides of all rewrites in one graph


class _UnplacedError(Exception):
    """A value that the graph of all sides cannot have; the message says why."""


class Sides:
    """The graph of the original with both sides of each rewrite beside it; it observes a replay."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph.copy()
        self.outputs = [v for v in graph.outputs if v is not None]
        self.graph.outputs, self.graph.output_names = [], []
        self.twins: dict[PathOf, dict[Value, Value]] = {(): {v: v for n in graph.nodes() for v in n.outputs}}
        """For each graph that was opened: where its values are in this one, as they were first computed."""
        self.calls: dict[Hashable, tuple[Value, ...]] = {self._key(n, n.inputs): n.outputs for n in graph.nodes()}
        self.pairs: dict[int, list[Pair]] = {}
        """The two sides of each rewrite."""
        self.lefts: dict[int, frozenset[int]] = {}
        """The nodes that its left side is."""
        self.unplaced: dict[int, str] = {}
        """The rewrites that are not here, and why."""
        self.reasons: dict[PathOf, str] = {}

    # -- observing

    def opened(self, path: PathOf, graph: Graph, owner: Node | None) -> None:
        """Place the nodes of a graph that are not here yet."""
        twins = self.twins.setdefault(path, {})
        if owner is not None:
            try:
                twins.update((v, w) for v, w in self._formal(path, graph, owner) if v not in twins)
            except _UnplacedError as reason:
                self.reasons[path] = str(reason)
        for node in graph.order():
            if node.op != INPUT and node.outputs and node.outputs[0] not in twins:
                with suppress(_UnplacedError):
                    twins.update(zip(node.outputs, self._placed(path, node, twins), strict=True))

    def acted(self, step: Step) -> None:
        """Place both sides of a rewrite."""
        twins = self.twins[step.path]
        try:
            self.pairs[step.entry.id] = list(dict.fromkeys(p for p in self._pairs(step, twins) if p[0] != p[1]))
        except _UnplacedError as reason:
            self.unplaced[step.entry.id] = self.reasons.get(step.path, str(reason))

    def _pairs(self, step: Step, twins: dict[Value, Value]) -> Iterator[Pair]:
        left, right = dict[Value, Value](), dict[Value, Value]()
        replaced = dict(step.replaced)
        updated = [
            (old, new)
            for id, old in step.before.items()
            if id in step.after and (new := step.after.node(id)) is not old and not _is_rewired(old, new, replaced)
        ]
        changed = {new.id for _, new in updated}

        def before(value: Value, is_inner: bool = False) -> Value:
            node = step.before.get(value.node) or step.after.node(value.node)
            if node.op in (INPUT, CONSTANT) or (is_inner and value.node not in step.matched):
                return self._twin(step, twins, value, after)
            if value not in left:
                inputs = [None if v is None else before(v, True) for v in node.inputs]
                left.update(zip(node.outputs, self._call(step, node, inputs, twins), strict=True))
            return left[value]

        def after(value: Value) -> Value:
            if value in right or (value.node < step.first and value.node not in changed):
                return right.get(value) or self._twin(step, twins, value, after)
            node = step.after.node(value.node) if value.node in step.after else step.before[value.node]
            inputs = [None if v is None else after(v) for v in node.inputs]
            right.update(zip(node.outputs, self._call(step, node, inputs, twins), strict=True))
            return right[value]

        yield from ((before(old), after(new)) for old, new in replaced.items())
        for was, now in updated:
            yield from ((before(v), after(v)) for v in was.outputs[: now.n_outputs] if v not in replaced)
        self.lefts[step.entry.id] = frozenset(v.node for v in left.values())
        for node in step.after.since(step.first):
            twins.update((v, after(v)) for v in node.outputs)

    def _twin(self, step: Step, twins: Mapping[Value, Value], value: Value, after: Callable[[Value], Value]) -> Value:
        if value not in twins:
            if value.node >= step.first:
                return after(value)
            raise _UnplacedError("what it reads could not be computed apart")
        return twins[value]

    # -- placing

    def _placed(self, path: PathOf, node: Node, twins: Mapping[Value, Value]) -> tuple[Value, ...]:
        if any(v is not None and v not in twins for v in node.inputs):
            raise _UnplacedError(self.reasons.get(path, "what it reads could not be computed apart"))
        return self._made(node, [None if v is None else twins[v] for v in node.inputs])

    def _call(
        self, step: Step, node: Node, inputs: Sequence[Value | None], twins: Mapping[Value, Value]
    ) -> tuple[Value, ...]:
        if not ops.is_pure(node.op, node.attrs) and node.outputs[0] in twins:  # two draws are not one
            return tuple(twins[v] for v in node.outputs)
        made = self._made(node, inputs)
        for mine, its in zip(made, node.outputs, strict=True):
            if its in step.after.types:
                self.graph.types.setdefault(mine, step.after.types[its])
        return made

    def _made(self, node: Node, inputs: Sequence[Value | None]) -> tuple[Value, ...]:
        """The outputs of a node on these inputs, each node once."""
        key = self._key(node, inputs)
        if key not in self.calls:
            origin = Origin(overload=node.origin.overload) if node.origin.overload else NOWHERE
            self.calls[key] = self.graph.add(
                node.op, tuple(inputs), node.attrs, node.n_outputs, captures=node.captures, origin=origin
            ).outputs
        return self.calls[key]

    @staticmethod
    def _key(node: Node, inputs: Sequence[Value | None]) -> Hashable:
        inner = node.id if node.op == INPUT else None
        return node.op, node.origin.overload, node.attrs, node.n_outputs, node.captures, tuple(inputs), inner

    def _formal(self, path: PathOf, body: Graph, owner: Node) -> Iterator[Pair]:
        """The inputs of a body, each with the value that it has, in the first pass where there are several."""
        outer = self.twins[path[:-2]]
        first = len(body.inputs) - owner.captures
        actual = owner.inputs[len(owner.inputs) - owner.captures :] if owner.captures else ()
        for formal, value in zip(body.inputs[first:], actual, strict=True):
            if value is not None and value in outer:
                yield formal, outer[value]
        if owner.op == "Loop":
            counted = self._constant(body, body.inputs[0], 0, "int64"), self._constant(body, body.inputs[1], 1, "bool")
            yield from zip(body.inputs[:2], counted, strict=True)
            states = zip(body.inputs[2:first], owner.inputs[2:], strict=False)
            yield from ((formal, outer[value]) for formal, value in states if value is not None and value in outer)
        elif owner.op == "Scan" and self.graph.opset > 8:
            yield from self._scanned(body, owner, outer, first)
        elif first:
            raise _UnplacedError(f"it is inside a {owner.op}, whose passes are not run one by one")

    def _scanned(self, body: Graph, owner: Node, outer: Mapping[Value, Value], first: int) -> Iterator[Pair]:
        count = owner.attrs["num_scan_inputs"]
        assert isinstance(count, int)
        axes = owner.attrs.get("scan_input_axes")
        index = self._made(Node(-1, CONSTANT, (), Attrs(value=Constant.of(np.array(0)))), ())[0]
        for i, (formal, value) in enumerate(zip(body.inputs[:first], owner.inputs, strict=False)):
            if value is None or value not in outer:
                continue
            if i < first - count:
                yield formal, outer[value]
            else:
                axis = axes[i - first + count] if isinstance(axes, tuple) else 0
                yield formal, self._made(Node(-1, "Gather", (), Attrs(axis=axis)), (outer[value], index))[0]

    def _constant(self, body: Graph, formal: Value, number: int, dtype: str) -> Value:
        """A number of the rank that a body expects."""
        type = body.types.get(formal)
        array = np.full((1,) * (type.rank or 0 if isinstance(type, TensorType) else 0), number, dtype)
        return self._made(Node(-1, CONSTANT, (), Attrs(value=Constant.of(array))), ())[0]


def _is_rewired(old: Node, new: Node, replaced: Mapping[Value, Value]) -> bool:
    """Whether a node differs only in that it reads what took the place of what it read, or in what is said of it."""
    if (old.op, old.n_outputs, old.captures, len(old.inputs)) != (new.op, new.n_outputs, new.captures, len(new.inputs)):
        return False
    if old.attrs is not new.attrs and old.attrs != new.attrs:
        return False
    for was, now in zip(old.inputs, new.inputs, strict=True):
        seen = 0
        while was is not None and was != now and was in replaced and seen <= len(replaced):
            was, seen = replaced[was], seen + 1
        if was != now:
            return False
    return True


def both_sides(graph: Graph, derivation: Derivation) -> Sides:
    """Both sides of each rewrite of a graph (as read)."""
    prepared = derivation.preparation.prepared(graph)
    sides = Sides(prepared)
    derivation.apply(graph, observer=sides, prepared=prepared)
    return sides


def check_places(
    graph: Graph,
    derivation: Derivation,
    inputs: Mapping[str, Given] | None = None,
    seconds: float = SECONDS,
    accept: Callable[[Graph], object] = lambda graph: None,
    accepted: Sequence[Mapping[str, int]] = (),
) -> dict[int, LocalCheck]:
    """For each rewrite of a graph (as read), by number, what its check at its place says; ``accept`` is given what the
    replay makes before anything is run, and ``accepted`` is open sizes that the original ran with, to be tried first.
    """
    prepared = derivation.preparation.prepared(graph)
    sides = Sides(prepared)
    replayed = derivation.apply(graph, observer=sides, prepared=prepared)
    accept(replayed.graph)
    checks = {id: LocalCheck("unchecked", why=why) for id, why in sides.unplaced.items()}
    checks |= {e.id: LocalCheck("unchecked", why="it is not in the result any more") for e in replayed.lost}
    exact = {r.name for r in derivation.rules if r.soundness in (Soundness.EXACT, Soundness.FINITE)}
    strict = {e.id for e in derivation.rewrites if e.rule in exact}
    checks |= _run(sides, strict, inputs or {}, seconds, accepted)
    return {e.id: checks.get(e.id, LocalCheck("checked", 0.0)) for e in derivation.rewrites}


def _run(
    sides: Sides,
    strict: set[int],
    inputs: Mapping[str, Given],
    seconds: float,
    accepted: Sequence[Mapping[str, int]],
) -> dict[int, LocalCheck]:
    """The checks of all pairs, in a process of its own: a runtime may not survive what it is given."""
    from graphopt.ir.onnx_io import bytes_of, save

    compared = {id: pairs for id, pairs in sides.pairs.items() if pairs}
    if not compared:
        return {}
    if not accepted and (why := _excess(_part(sides.graph, sides.outputs), inputs)):
        return {
            id: LocalCheck("unchecked", why=f"the original does not run on random inputs ({why})") for id in compared
        }
    position = {v: i for i, v in enumerate(dict.fromkeys(v for ps in compared.values() for p in ps for v in p))}
    graph = _part(sides.graph, [*position, *sides.outputs])
    with tempfile.TemporaryDirectory(prefix="graphopt-") as name:
        folder = Path(name)
        save(graph, folder / "sides.onnx")
        request = {
            "pairs": [(id, position[v], position[w]) for id, pairs in compared.items() for v, w in pairs],
            "strict": strict,
            "outputs": list(range(len(position), len(graph.outputs))),
            "inputs": {name: given(value) for name, value in inputs.items()},
            "sizes": [list(sizes.values()) for sizes in accepted],
            "until": time.time() + seconds,
            "memory": memory_of(bytes_of(folder / "sides.onnx")),
        }
        (folder / "request").write_bytes(pickle.dumps(request))
        why = f"the checks took longer than {seconds:g} s"
        with suppress(subprocess.TimeoutExpired, OSError):
            why = f"the process that checks ended ({how_it_ended(Interpreter(__name__)(folder, seconds))})"
        answers = folder / "answer.json"
        if not answers.exists():
            return {id: LocalCheck("unchecked", why=why) for id in compared}
        return {int(id): LocalCheck(*fields) for id, fields in json.loads(answers.read_text()).items()}


def _excess(graph: Graph, inputs: Mapping[str, Given]) -> str:
    """Why a run of a graph takes too much whatever its sizes, before a process is started for it; else empty."""
    from graphopt.ir.work import excess, most_operations, sparse_bytes

    memory, operations = memory_of(sparse_bytes(graph)), most_operations(graph, is_asked=False)
    why = ""
    for drawn in sizes(graph, known_sizes(graph, {name: given(value) for name, value in inputs.items()})):
        if not (why := excess(graph, drawn, memory, operations)):
            break
    return why


def _part(graph: Graph, values: Sequence[Value]) -> Graph:
    """The part of a graph that makes some values, which are its outputs: each made by a node, as runtimes want it."""
    part, needed = graph.copy(), {value.node for value in values}
    part.outputs, part.output_names = [], []
    for node in reversed(part.order()):
        if node.id in needed:
            needed.update(v.node for v in node.inputs if v is not None)
        elif node.op != INPUT:
            part.remove(node.id)
    for number, value in enumerate(values):
        is_leaf = graph.producer(value).op in (INPUT, CONSTANT)
        part.add_output(f"{number}", Value(part.add("Identity", (value,)).id) if is_leaf else value)
    return part


# -- running it, in the other process


def prepare() -> None:
    """Import what the checks take: it is imported when they begin."""


def answer(folder: str) -> None:
    """Read ``request`` and ``sides.onnx`` in the folder, run and compare, write ``answer.json`` beside them."""
    from graphopt.ir.onnx_io import load
    from graphopt.ir.work import most_seconds

    request = pickle.loads((Path(folder) / "request").read_bytes())
    confine(request["memory"])
    graph = load(Path(folder) / "sides.onnx")
    end_after(most_seconds(graph))
    run = _Run(Path(folder), graph, request)
    run.check(request["pairs"])
    (Path(folder) / "answer.json").write_text(json.dumps({id: vars_of(check) for id, check in run.checks.items()}))


def vars_of(check: LocalCheck) -> tuple[str, float | None, str]:
    """The fields of a check; JSON has no infinity."""
    return check.status, check.error if check.error is not None and np.isfinite(check.error) else None, check.why


class _Run:
    """Runs the graph of all sides, in parts where the whole is refused."""

    def __init__(self, folder: Path, graph: Graph, request: Mapping[str, Any]) -> None:
        self.folder, self.graph, self.request = folder, graph, request
        self.checks: dict[int, LocalCheck] = {}
        self.feeds: Feeds | None = None
        self.engine: str | None = None
        self.excess = ""

    def check(self, pairs: Sequence[tuple[int, int, int]]) -> None:
        """Check the pairs: all in one run, or, where that is refused, either half by itself."""
        if time.time() > self.request["until"]:
            self._note_unchecked(pairs, "time was up")
            return
        wanted = sorted({i for _, *pair in pairs for i in pair})
        try:
            values, again = self._values(wanted)
        except (EngineError, GraphoptError, MemoryError) as refusal:
            if self.feeds is None and not self._find_inputs():
                self._note_unchecked(pairs, f"the original does not run on random inputs ({refusal})")
                return
            if len({id for id, *_ in pairs}) == 1:
                self._note_unchecked(pairs, str(refusal))
                return
            half = len(pairs) // 2
            self.check(pairs[:half])
            self.check(pairs[half:])
            return
        position = {i: n for n, i in enumerate(wanted)}
        moved: list[list[Any]] | None = None
        for id, left, right in pairs:
            want, got = values[position[left]], values[position[right]]
            units = off(want, got)
            check = LocalCheck("checked", units)
            if units > 1:
                check = LocalCheck("differs", units, _difference(want, got))
                if id not in self.request["strict"]:
                    moved = list(again()) if moved is None else moved
                    if any(is_rounding(want, got, other[position[left]]) for other in moved):
                        check = LocalCheck("rounding", units, check.why)
            self.checks[id] = max(self.checks.get(id, check), check, key=_gravity)

    def _note_unchecked(self, pairs: Sequence[tuple[int, int, int]], why: str) -> None:
        for id, *_ in pairs:
            self.checks.setdefault(id, LocalCheck("unchecked", why=why))

    def _find_inputs(self) -> bool:
        """Look for inputs that the original accepts; whether there are some."""
        with suppress(EngineError, GraphoptError, MemoryError):
            self._values(self.request["outputs"])
        return self.feeds is not None

    def _values(self, wanted: Sequence[int]) -> tuple[list[Any], Callable[[], Iterator[list[Any]]]]:
        """Some outputs on inputs that are accepted, and a function that gives them on inputs moved a little."""
        from graphopt.ir.onnx_io import save

        path = self.folder / "sides.onnx"
        if wanted != list(range(self.request["outputs"][0])):  # all pairs; the original's outputs come along
            path = self.folder / "part.onnx"
            save(_part(self.graph, [v for i in wanted if (v := self.graph.outputs[i]) is not None]), path)
        run, self.engine = open_model(path, self.engine)
        refusal: EngineError | None = None
        for feeds in self._candidates(path):
            try:
                values = run(feeds)
            except EngineError as error:
                refusal = refusal or error
                continue
            self.feeds = feeds
            return values, partial(map, run, moved_inputs(feeds))
        raise refusal or EngineError(self.excess or "no inputs can be drawn")

    def _candidates(self, path: Path) -> Iterator[Feeds]:
        """Inputs of which a run of the model in a file takes no more than it may, as far as types tell."""
        from graphopt.ir.onnx_io import load
        from graphopt.ir.work import excess, most_operations

        if self.feeds is not None:
            yield self.feeds
            return
        model = load(path)
        bounds, told = ranges(self.graph), self.request["inputs"]
        known = known_sizes(self.graph, told)
        drawn_sizes = list(sizes(self.graph, known))
        # sizes without a name are numbered anew where a model is read, and keep their order
        accepted = [
            drawn_sizes[0] | dict(zip(drawn_sizes[0], each, strict=False)) | known for each in self.request["sizes"]
        ]
        chosen = [*accepted, *(drawn for drawn in drawn_sizes if drawn not in accepted)]
        for drawn in chosen:
            if time.time() > self.request["until"]:
                return
            if why := excess(model, drawn, self.request["memory"], most_operations(model, is_asked=False)):
                self.excess = why
                continue
            for kind in range(2):
                with suppress(ValueError):
                    yield draw(self.graph, drawn, bounds, told, 2 * kind, kind)


_GRAVITY = ("checked", "unchecked", "rounding", "differs")


def _gravity(check: LocalCheck) -> tuple[int, float]:
    return _GRAVITY.index(check.status), check.error or 0.0


# -- comparing values


def _difference(want: Any, got: Any) -> str:
    """How two values differ, in words."""
    if not isinstance(want, np.ndarray) or not isinstance(got, np.ndarray):
        return "another kind of value"
    if want.dtype != got.dtype or want.shape != got.shape:
        return f"{got.dtype.name}{list(got.shape)} in the place of {want.dtype.name}{list(want.shape)}"
    if not is_inexact(want):
        return f"{int((want != got).sum())} of {want.size} elements differ"
    units = error(want, got)
    return f"{units:.3g} times the tolerance" if np.isfinite(units) else "NaN or infinity in other places"
