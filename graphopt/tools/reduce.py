"""Delta debugging: the smallest model on which a command still fails, to find what is at fault.

Outputs are dropped, the graph is cut in front and behind by bisection, then nodes are taken out in
ever smaller groups, each value that they made becoming an input of the model, and last constants
are flattened. Every candidate is a valid model, and counts where the command ends with the same
exit code as at first (Zeller and Hildebrandt, "Simplifying and isolating failure-inducing input", 2002).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np

from graphopt.errors import GraphoptError, UsageError
from graphopt.ir.constants import SMALL, Constant
from graphopt.ir.graph import CONSTANT, INPUT, Attrs, Graph, Node, Value
from graphopt.ir.types import TensorType
from graphopt.progress import Event, Listener
from graphopt.run.steps import count_ops
from graphopt.tools.shell_check import check_can_run, check_is_command, exit_code

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ReducedModel:
    """What reducing left, and how many candidates were tried."""

    nodes_before: int
    nodes_after: int
    tries: int
    ops: dict[str, int]


def reduce_file(
    model: str | Path, check: str, output: str | Path, *, timeout: float = 60, listener: Listener | None = None
) -> ReducedModel:
    """Write to ``output`` the smallest model found on which the shell command ``check`` fails as it does on ``model``.

    ``{}`` in the command is the candidate's file; without it, the file is added as last argument.
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
        reduced, tries = reduce(graph, fails, listener)
    save(reduced, output)
    return ReducedModel(len(graph), len(reduced), tries, count_ops(reduced))


def reduce(graph: Graph, fails: Callable[[Graph], bool], listener: Listener | None = None) -> tuple[Graph, int]:
    """The smallest graph found that still fails, and the number of tries. The graph itself must fail."""
    search = _Search(graph, fails, listener)
    while True:
        before = search.best
        search.drop_outputs()
        search.cut_behind()
        search.cut_in_front()
        search.take_out_nodes()
        if search.best is before:
            break
    search.flatten_constants()
    return search.best, search.tries


@dataclass
class _Search:
    """The best graph so far, and how candidates are tried against it."""

    best: Graph
    fails: Callable[[Graph], bool]
    listener: Listener | None
    tries: int = 0
    _types: dict[Value, TensorType] = field(default_factory=dict)

    def __post_init__(self) -> None:
        from graphopt.ir.infer import infer

        # types of values do not change by cutting, and ids stay the same in copies
        for value, fact in infer(self.best).items():
            if isinstance(fact.type, TensorType):
                self._types[value] = fact.type

    def accept(self, candidate: Graph | None) -> bool:
        """Make the candidate the best where it still fails."""
        if candidate is None or not candidate.outputs:
            return False
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

    def drop_outputs(self) -> None:
        """Keep as few outputs as will do."""
        names = list(self.best.output_names)
        self._remove(names, lambda gone: _without_outputs(self.best, set(gone)), keep=1)

    def cut_behind(self) -> None:
        """Let the graph end as early as it still fails."""
        order = _work(self.best)
        self._bisect(range(1, len(order)), lambda k: self._prefix(order[:k]))

    def cut_in_front(self) -> None:
        """Let the graph begin as late as it still fails."""
        order = _work(self.best)
        self._bisect(range(len(order) - 1, 0, -1), lambda k: self._without(order[:k]))

    def take_out_nodes(self) -> None:
        """Take nodes out from anywhere, the values that they made becoming inputs."""
        self._remove(_work(self.best), self._without, keep=0)

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
            is_work = graph.producer(value).op not in (INPUT, CONSTANT)
            if value.node not in gone and is_work and value in self._types and _is_idle(graph, value, gone):
                graph.types[value] = self._types[value]
                graph.add_output(self._name(value), value)
        return _pruned(graph) if gone else None

    def _name(self, value: Value) -> str:
        return self.best.names.get(value) or f"cut_{value.node}_{value.port}"


def _is_idle(graph: Graph, value: Value, gone: set[int]) -> bool:
    return not graph.is_output(value) and all(user in gone for user, _ in graph.users(value))


def _work(graph: Graph) -> list[Node]:
    """The nodes that apply an op, in topological order."""
    return [n for n in graph.order() if n.op not in (INPUT, CONSTANT)]


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
