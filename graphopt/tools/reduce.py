"""Delta debugging: the smallest model on which a command still fails, to find what is at fault.

Functions are inlined; a body of If, Loop or Scan becomes the model, a branch takes the place of its If. Outputs are
dropped, the graph is cut in front and behind by bisection, then nodes are taken out in ever smaller groups, each value
that they made becoming an input of the model; within bodies, whose inputs are given, a node's operand or zeros stand
for it. Last constants are flattened, and opset imports and functions dropped that nothing uses. Every candidate is a
valid model, and counts where the command ends with the same exit code as at first (Zeller and Hildebrandt, "Simplifying
and isolating failure-inducing input", 2002).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from pathlib import Path
from time import monotonic
from typing import TypeAlias, TypeVar

import numpy as np

from graphopt.errors import GraphoptError, UsageError
from graphopt.frozen import dataclass
from graphopt.ir.constants import SMALL, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.functions import is_called, own_calls
from graphopt.ir.graph import INPUT, Attrs, Graph, Node, Value
from graphopt.ir.infer import infer
from graphopt.ir.infer_bodies import loop_head, scan_axis
from graphopt.ir.types import TensorType, Type
from graphopt.progress import Event, Listener
from graphopt.rewrite.match.workspace import Workspace, facts_within
from graphopt.rewrite.passes.functions import INLINE
from graphopt.rewrite.passes.simplify import simplify
from graphopt.rewrite.passes.splice import splice
from graphopt.run.steps import count_ops
from graphopt.tools.shell_check import check_can_run, check_is_command, exit_code

T = TypeVar("T")

PLAIN = frozenset(np.dtype(code).name for code in "?bhilqBHILQefd")
"""The dtypes of which zeros are made: numpy's own numbers."""


@dataclass(frozen=True, slots=True)
class ReducedModel:
    """What reducing left, and how many candidates were tried."""

    nodes_before: int
    nodes_after: int
    tries: int
    ops: dict[str, int]
    ending: str = ""
    """What ended the search early: ``interrupted`` or ``time``; what was smallest until then is kept."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The smallest graph that was found, how many were tried, and what ended the search early, if something did."""

    graph: Graph
    tries: int
    ending: str = ""


class _OutOfTime(Exception):  # noqa: N818
    """The search took as long as it may."""


def reduce_file(
    model: str | Path,
    check: str,
    output: str | Path,
    *,
    timeout: float = 60,
    seconds: float | None = None,
    listener: Listener | None = None,
) -> ReducedModel:
    """Write to ``output`` the smallest model found on which the shell command ``check`` fails as it does on ``model``.

    ``{}`` in the command is the candidate's file; without it, the file is added as last argument. After ``seconds``, or
    on Ctrl-C, what is smallest until then is written.
    Raises UsageError where the command cannot be run or does not fail on the model itself.
    """
    from graphopt.ir.onnx_io import load, save

    check_is_command(check)
    graph = load(model)
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        candidate = Path(folder) / "candidate.onnx"
        wanted = exit_code(check, Path(model), timeout)
        check_can_run(check, wanted)
        if wanted == 0:
            raise UsageError(f"--check {check!r} succeeds on {model}: give a command that fails on it")

        def fails(graph: Graph) -> bool:
            save(graph, candidate)
            return exit_code(check, candidate, timeout) == wanted

        if not fails(graph):
            raise UsageError(f"--check {check!r} does not fail on {model} once it was read and written again")
        found = reduce(graph, fails, listener, seconds)
    save(found.graph, output)
    return ReducedModel(len(graph), len(found.graph), found.tries, count_ops(found.graph), found.ending)


def reduce(
    graph: Graph,
    fails: Callable[[Graph], bool],
    listener: Listener | None = None,
    seconds: float | None = None,
) -> Reduction:
    """The smallest graph found that still fails, in so many seconds or until Ctrl-C. The graph itself must fail."""
    search = _Search(graph, fails, listener, None if seconds is None else monotonic() + seconds)
    ending = ""
    try:
        search.run()
    except _OutOfTime:
        ending = "time"
    except KeyboardInterrupt:
        ending = "interrupted"
    return Reduction(search.best, search.tries, ending)


@dataclass
class _Search:
    """The best graph so far, and how candidates are tried against it."""

    best: Graph
    fails: Callable[[Graph], bool]
    listener: Listener | None
    deadline: float | None = None
    tries: int = 0
    _types: dict[Value, TensorType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._infer()

    def _infer(self) -> None:
        # types of values do not change by cutting, and ids stay the same in copies
        self._types = _types_of(infer(self.best))

    def run(self) -> None:
        """All steps, until none makes the graph smaller."""
        self.inline()
        while True:
            before = self.best
            self.go_into_bodies()
            self.drop_outputs()
            self.cut_behind()
            self.cut_in_front()
            self.take_out_nodes()
            self.thin_bodies()
            if self.best is before:
                break
        self.flatten_constants()
        self.accept(_lean(self.best))

    def accept(self, candidate: Graph | None) -> bool:
        """Make the candidate the best where it still fails."""
        if candidate is None or not candidate.outputs:
            return False
        if self.deadline is not None and monotonic() > self.deadline:
            raise _OutOfTime
        self.tries += 1
        if self.listener is not None:
            self.listener(Event(f"reducing: {len(self.best)} nodes, try {self.tries}"))
        try:
            if not self.fails(candidate):
                return False
        except GraphoptError:
            return False
        self.best = candidate
        return True

    # -- the steps

    def inline(self) -> None:
        """Have what functions compute stand where they are called."""
        with suppress(GraphoptError):
            if self.best.functions and self.accept(simplify(self.best, (), (INLINE,))):
                self._infer()

    def go_into_bodies(self) -> None:
        """Make the model a body of one of its nodes, as long as that will do; or a branch what its If is."""
        owners = [node.id for node in self.best.order() if node.bodies]
        while owners:
            first = owners.pop(0)
            node = self.best.node(first) if first in self.best else None
            if node is not None and any(self.accept(c) for c in self._instead_of(node)):
                self._infer()
                owners = [node.id for node in self.best.order() if node.bodies]

    def _instead_of(self, node: Node) -> Iterator[Graph | None]:
        """A body as the model, each in turn, or as what stands in the place of its If."""
        for name in node.bodies:
            yield _alone(self.best, node.id, name)
        for name in node.bodies if node.op == "If" else ():
            yield _spliced(self.best, node.id, name)

    def thin_bodies(self) -> None:
        """Let operands, or zeros, stand for the nodes of bodies, those of bodies within bodies first."""
        for place in sorted(_places(self.best), key=len, reverse=True):
            body = _body(self.best, place)
            known = _types_of(_facts_in(self.best, place))
            nodes = [node for node in reversed(own_calls(body)) if not node.bodies]

            def thinner(
                gone: list[Node], place: BodyPlace = place, known: Mapping[Value, TensorType] = known
            ) -> Graph | None:
                return _with_body(self.best, place, lambda inner: _thinned(inner, gone, known))

            self._remove(nodes, thinner, keep=0)

    def drop_outputs(self) -> None:
        """Keep as few outputs as will do."""
        names = list(self.best.output_names)
        self._remove(names, lambda gone: _without_outputs(self.best, set(gone)), keep=1)

    def cut_behind(self) -> None:
        """Let the graph end as early as it still fails."""
        order = own_calls(self.best)
        self._bisect(range(1, len(order)), lambda k: self._prefix(order[:k]))

    def cut_in_front(self) -> None:
        """Let the graph begin as late as it still fails."""
        order = own_calls(self.best)
        self._bisect(range(len(order) - 1, 0, -1), lambda k: self._without(order[:k]))

    def take_out_nodes(self) -> None:
        """Take nodes out from anywhere, the values that they made becoming inputs."""
        self._remove(own_calls(self.best), self._without, keep=0)

    def flatten_constants(self) -> None:
        """Fill constants with one number, where it does not matter what they hold."""
        large = [n for n in self.best.nodes() if (c := self.best.constant_of(Value(n.id))) and c.size > SMALL]
        self._remove(large, lambda nodes: _flattened(self.best, nodes), keep=0)

    # -- how candidates are chosen

    def _bisect(self, positions: Sequence[int], build: Callable[[int], Graph | None]) -> None:
        """Try the positions, the best first in ``positions``, as if all after a failing one failed too."""
        low, high = 0, len(positions)
        while low < high:
            middle = (low + high) // 2
            if self.accept(build(positions[middle])):
                high = middle
            else:
                low = middle + 1

    def _remove(self, items: list[T], build: Callable[[list[T]], Graph | None], keep: int) -> None:
        """Remove as many items as possible, in groups of half their number, then of ever fewer."""
        size = len(items)
        while size >= 1 and len(items) > keep:
            position = 0
            while position < len(items) > keep:
                group = items[position : position + size][: len(items) - keep]
                if self.accept(build(group)):
                    del items[position : position + len(group)]
                else:
                    position += size
            size //= 2

    # -- candidates

    def _prefix(self, nodes: list[Node]) -> Graph | None:
        """The graph of these first nodes: what later ones read becomes its outputs."""
        inside = {n.id for n in nodes if n.id in self.best}
        graph = self.best.copy()
        read = [v for n in graph.order() if n.id not in inside for v in n.inputs if v is not None and v.node in inside]
        wanted = dict.fromkeys([*read, *(v for v in graph.outputs if v is not None and v.node in inside)])
        old = {v: name for v, name in zip(graph.outputs, graph.output_names, strict=True) if v is not None}
        graph.outputs, graph.output_names = [], []
        for value in wanted:
            if value not in self._types:
                return None
            graph.types[value] = self._types[value]
            graph.add_output(old.get(value) or self._name(value), value)
        return _pruned(graph)

    def _without(self, nodes: Iterable[Node]) -> Graph | None:
        """The graph without these nodes: what others read of them becomes inputs, what only they read outputs."""
        graph = self.best.copy()
        gone = {n.id for n in nodes if n.id in graph}
        fed = dict.fromkeys(v for id in sorted(gone) for v in graph.node(id).inputs if v is not None)
        outputs = [(n, v) for n, v in zip(graph.output_names, graph.outputs, strict=True) if v and v.node not in gone]
        graph.output_names, graph.outputs = [n for n, _ in outputs], [v for _, v in outputs]
        for value in (v for id in sorted(gone) for v in graph.node(id).outputs):
            if all(user in gone for user, _ in graph.users(value)):
                continue
            if value not in self._types:
                return None
            entry = graph.add_input(self._name(value), self._types[value])
            self._types[entry] = self._types[value]
            graph.replace(value, entry)
        for value in fed:
            is_cut = value.node not in gone and is_called(graph, value) and _is_idle(graph, value, gone)
            if is_cut and value in self._types:
                graph.types[value] = self._types[value]
                graph.add_output(self._name(value), value)
        return _pruned(graph) if gone else None

    def _name(self, value: Value) -> str:
        return self.best.names.get(value) or f"cut_{value.node}_{value.port}"


def _is_idle(graph: Graph, value: Value, gone: set[int]) -> bool:
    return not graph.is_output(value) and all(user in gone for user, _ in graph.users(value))


BodyPlace: TypeAlias = tuple[tuple[int, str], ...]
"""Where a body is: node and attribute in the graph, then in that body, and so on."""


def _places(graph: Graph, within: BodyPlace = ()) -> list[BodyPlace]:
    """Where the bodies of a graph are, those within bodies included."""
    here = [(*within, (node.id, name)) for node in graph.nodes() for name in node.bodies]
    return here + [p for place in here for p in _places(_body(graph, place[len(within) :]), place)]


def _facts_in(graph: Graph, place: BodyPlace) -> Mapping[Value, Fact]:
    """What is known of the values of a body, given what is known of those outside."""
    facts: Mapping[Value, Fact] = infer(graph)
    for id, name in place:
        node = graph.node(id)
        graph = node.bodies[name]
        facts = infer(graph, facts_within(node, graph, facts) | _given(node, graph, facts))
    return facts


def _given(node: Node, body: Graph, facts: Mapping[Value, Fact]) -> dict[Value, Fact]:
    """What is known of what a body is given in its first round, where it is not captured."""
    outer = [Fact() if v is None else facts.get(v, Fact()) for v in node.inputs[: len(node.inputs) - node.captures]]
    kinds: list[Type | None] = [fact.type for fact in outer]
    if node.op == "Loop":
        kinds[:2] = loop_head(body)
    elif node.op == "Scan" and isinstance(scans := node.attrs.get("num_scan_inputs"), int):
        for k, kind in enumerate(kinds[len(kinds) - scans :], len(kinds) - scans):
            if isinstance(kind, TensorType) and isinstance(kind.shape, tuple):
                axis = scan_axis(node, "scan_input_axes", k - len(kinds) + scans, len(kind.shape))
                kinds[k] = TensorType(kind.dtype, kind.shape[:axis] + kind.shape[axis + 1 :])
    own = body.inputs[: len(body.inputs) - node.captures]
    return {v: Fact(body.types.get(v) or kind) for v, kind in zip(own, kinds, strict=False)}


def _body(graph: Graph, place: BodyPlace) -> Graph:
    for id, name in place:
        graph = graph.node(id).bodies[name]
    return graph


def _with_body(graph: Graph, place: BodyPlace, change: Callable[[Graph], Graph | None]) -> Graph | None:
    """The graph with one of its bodies changed; None where there is no such change."""
    if not place:
        return change(graph)
    (id, name), *inner = place
    if id not in graph or name not in graph.node(id).bodies:
        return None
    changed = _with_body(graph.node(id).bodies[name], tuple(inner), change)
    if changed is None:
        return None
    twin = graph.copy()
    twin.update(id, attrs=twin.node(id).attrs.with_(**{name: changed}))
    return twin


def _thinned(body: Graph, gone: Iterable[Node], types: Mapping[Value, TensorType]) -> Graph | None:
    """The body, an operand of the same type standing for each of these nodes, or else zeros; its inputs stay."""
    twin, is_changed = body.copy(), False
    for node in gone:
        if node.id not in twin or node.n_outputs != 1 or (made := types.get(node.outputs[0])) is None:
            continue
        operands = [v for v in twin.node(node.id).inputs if v is not None and types.get(v) == made]
        sizes = made.shape if isinstance(made.shape, tuple) else None
        if operands:
            twin.replace(node.outputs[0], operands[0])
        elif sizes is not None and all(isinstance(n, int) for n in sizes) and made.dtype in PLAIN:
            zeros = Constant.full(tuple(n for n in sizes if isinstance(n, int)), np.zeros((), made.dtype))
            twin.replace(node.outputs[0], twin.add_constant(zeros))
        else:
            continue
        is_changed = True
    for node in reversed(twin.order()):
        if node.op != INPUT and not twin.is_used(node.id):
            twin.remove(node.id)
    return twin if is_changed else None


def _alone(graph: Graph, id: int, name: str) -> Graph | None:
    """A body as the model: what it is given and captures are inputs. None where a type of these is not known."""
    body = graph.node(id).bodies[name]
    facts = _facts_in(graph, ((id, name),))
    twin = body.copy()
    made = [(v, n) for v, n in zip(body.outputs, body.output_names, strict=True) if v and is_called(body, v)]
    twin.outputs, twin.output_names = [v for v, _ in made], [n for _, n in made]
    twin.header, twin.functions, twin.name = graph.header, graph.functions, graph.name
    taken = set(twin.output_names)
    for number, value in enumerate(twin.inputs):
        if twin.n_uses(value) and not isinstance(facts[value].type, TensorType):
            return None
        called = twin.names.get(value) or f"given_{number}"
        while called in taken:
            called += "_"
        taken.add(called)
        twin.names[value] = called
    for value in (*twin.inputs, *(v for v, _ in made)):
        if isinstance(kind := facts[value].type, TensorType):
            twin.types[value] = kind
    return _pruned(twin)


def _spliced(graph: Graph, id: int, name: str) -> Graph | None:
    """The graph with a branch in the place of its If."""
    space = Workspace(graph.copy(), infer(graph))
    node = space.graph.node(id)
    outputs = splice(space, node.bodies[name], node.inputs[len(node.inputs) - node.captures :] if node.captures else ())
    for old, new in zip(node.outputs, outputs, strict=True):
        if new is None:
            return None
        space.replace(old, new)
    return _pruned(space.graph)


def _lean(graph: Graph) -> Graph | None:
    """The graph without the functions that nothing calls, and the opset imports of domains that nothing is of; None
    where there are none."""
    used: dict[tuple[str, str], None] = {}
    domains = {""}
    waiting = [graph]
    while waiting:
        for node in waiting.pop().nodes():
            domains.add(node.op.partition("@")[0].rpartition("::")[0])
            key = node.op, node.origin.overload
            if key in graph.functions and key not in used:
                used[key] = None
                waiting.append(graph.functions[key].body)
            waiting += node.bodies.values()
    functions = {key: function for key, function in graph.functions.items() if key in used}
    domains |= {domain for function in functions.values() for domain, _ in function.opsets}
    opsets = tuple(pair for pair in graph.header.opsets if pair[0] in domains)
    if opsets == graph.header.opsets and len(functions) == len(graph.functions):
        return None
    twin = graph.copy()
    twin.functions, twin.header = functions, replace(graph.header, opsets=opsets)
    return twin


def _types_of(facts: Mapping[Value, Fact]) -> dict[Value, TensorType]:
    return {value: fact.type for value, fact in facts.items() if isinstance(fact.type, TensorType)}


def _without_outputs(graph: Graph, names: set[str]) -> Graph:
    graph = graph.copy()
    kept = [(n, v) for n, v in zip(graph.output_names, graph.outputs, strict=True) if n not in names]
    graph.output_names, graph.outputs = [n for n, _ in kept], [v for _, v in kept]
    return _pruned(graph)


def _pruned(graph: Graph) -> Graph:
    """The graph, now without nodes and inputs that no output needs."""
    for node in reversed(graph.order()):
        if not any(graph.n_uses(value) for value in node.outputs):
            graph.remove(node.id)
    return graph


def _flattened(graph: Graph, nodes: Iterable[Node]) -> Graph | None:
    graph = graph.copy()
    for node in nodes:
        constant = node.attrs["value"]
        if not isinstance(constant, Constant) or constant.splat is not None or constant.dtype == "string":
            return None
        first = np.asarray(constant.array.reshape(-1)[0])
        graph.update(node.id, attrs=Attrs(value=Constant.full(constant.shape, first)))
    return graph
