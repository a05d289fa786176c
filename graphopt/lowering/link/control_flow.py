"""Control flow: If, Loop and Scan as branches and loops of a program, with copies between bodies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Value
from graphopt.ir.infer_bodies import loop_head, scan_axis
from graphopt.ir.text.elements import numpy_dtype
from graphopt.ir.types import TensorType
from graphopt.lowering.link.lowered import Control
from graphopt.lowering.link.moves import Move, Sized
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.lower.lower import Binds, Bodied, FactsByValue, LoweredBody, Viewed
from graphopt.lowering.lower.unlowered import name_of
from graphopt.runtime.sizes import Size
from graphopt.runtime.steps import Branch, BufferRef, HostStep, LoopStep, ProgramBuffer, Step

if TYPE_CHECKING:
    from graphopt.lowering.link.plan_memory import ScopePlanner

SCALAR_INT64 = ProgramBuffer("int64", (), "arena")
SCALAR_BOOL = ProgramBuffer("bool", (), "arena")


def control(scope: ScopePlanner, item: Control) -> Iterator[Step]:
    """The steps of an If, Loop or Scan."""
    control_flow = _Control(scope, item)
    return {"If": control_flow.branch, "Loop": control_flow.loop, "Scan": control_flow.scan}[item.lowering.node.op]()


def moves_of(facts: FactsByValue, lowering: Bodied) -> dict[Move, Sized]:
    """The copies that an If, Loop or Scan needs, of values that are not computed in place."""
    moves = {"If": _branch_moves, "Loop": _loop_moves, "Scan": _scan_moves}[lowering.node.op](facts, lowering)
    return {move: move.sized() for move in dict.fromkeys(moves)}


def _branch_moves(facts: FactsByValue, lowering: Bodied) -> Iterator[Move]:
    for body in lowering.bodies.values():
        for k, (value, output) in enumerate(zip(_results(body), lowering.node.outputs, strict=True)):
            if k in lowering.handed:
                continue
            if not _is_in_place(body, value) or isinstance(body.lowered[value.node], Viewed):
                yield Move.of("copy", facts[output])


def _loop_moves(facts: FactsByValue, lowering: Bodied) -> Iterator[Move]:
    node, body = lowering.node, lowering.bodies["body"]
    n_states = len(node.inputs) - node.captures - 2
    outputs = [facts[v] for v in node.outputs]
    goes_on, *_ = _results(body)
    if _has_condition(facts, lowering):
        yield Move.of("copy", _condition(facts, lowering))
        yield Move.of("copy", body.facts[goes_on])
    for k, fact in enumerate(outputs):
        if k not in lowering.handed:
            yield Move.of("copy" if k < n_states else "stack", fact)


def _scan_moves(facts: FactsByValue, lowering: Bodied) -> Iterator[Move]:
    node, scans = lowering.node, _scans(lowering)
    n_states = len(node.inputs) - node.captures - scans
    outputs = [facts[v] for v in node.outputs]
    yield from (Move.of("copy", fact) for fact in outputs[:n_states])
    yield from (_slice(facts, lowering, k) for k in range(scans))
    yield from (_stack(lowering, k, fact) for k, fact in enumerate(outputs[n_states:]))


def _slice(facts: FactsByValue, lowering: Bodied, k: int) -> Move:
    """The slice of an input that a Scan goes through."""
    node = lowering.node
    fact = _given(facts, lowering, len(node.inputs) - node.captures - _scans(lowering) + k)
    axis = scan_axis(node, "scan_input_axes", k, len(fact.shape or ()))
    return Move.of("slice", fact, axis, _is_backward(lowering, "scan_input_directions", k))


def _stack(lowering: Bodied, k: int, fact: Fact) -> Move:
    """The place of a round in an output that holds those of all."""
    if lowering.node.op == "Loop":
        return Move.of("stack", fact)
    axis = scan_axis(lowering.node, "scan_output_axes", k, len(fact.shape or ()) - 1)
    return Move.of("stack", fact, axis, _is_backward(lowering, "scan_output_directions", k))


def _scans(lowering: Bodied) -> int:
    scans = lowering.node.attrs["num_scan_inputs"]
    assert isinstance(scans, int)
    return scans


def _is_backward(lowering: Bodied, name: str, k: int) -> bool:
    """Whether a Scan goes through an input or output from its end."""
    directions = lowering.node.attrs.get(name)
    return isinstance(directions, tuple) and directions[k] == 1


def _is_in_place(body: LoweredBody, value: Value) -> bool:
    """Whether what a branch gives is computed where its node's output is."""
    return value.node in body.lowered and body.graph.outputs.count(value) == 1


def _has_condition(facts: FactsByValue, lowering: Bodied) -> bool:
    """Whether a Loop has a condition that is not always true."""
    body = lowering.bodies["body"]
    first, number = body.graph.outputs[0], lowering.node.inputs[1]
    assert first is not None
    stays = first == body.graph.inputs[1] or body.facts[first].elements == (1,)
    return not (stays and (number is None or facts[number].elements == (1,)))


def _condition(facts: FactsByValue, lowering: Bodied) -> Fact:
    """What is known of the condition that a Loop begins with, true where none is given."""
    return _TRUE if lowering.node.inputs[1] is None else _given(facts, lowering, 1)


_TRUE = Fact(TensorType("bool", ()))


def _given(facts: FactsByValue, lowering: Bodied, k: int) -> Fact:
    """The fact of a node's input."""
    value = lowering.node.inputs[k]
    assert value is not None
    return facts[value]


def _results(body: LoweredBody) -> list[Value]:
    """The results of a body."""
    return [v for v in body.graph.outputs if v is not None]


class _Control:
    """Steps for one node with bodies."""

    def __init__(self, scope: ScopePlanner, item: Control) -> None:
        self.scope, self.planner, self.item, self.lowering = scope, scope.planner, item, item.lowering
        self.node = self.lowering.node
        self.outer = len(self.node.inputs) - self.node.captures
        self.handed = self.lowering.handed
        """The outputs that Python hands on: what is kept of each in between lies in an object of its own."""
        self.outputs = [
            scope.result_buffer(v, "host" if k in self.handed else "arena") for k, v in enumerate(self.node.outputs)
        ]
        self.kept = {k: self.planner.add(ProgramBuffer("object", None, "host")) for k in sorted(self.handed)}
        self.facts = [scope.facts[v] for v in self.node.outputs]
        self.names = (name_of(scope.graph, self.node),)

    # -- If

    def branch(self) -> Iterator[Step]:
        """Either body, each of which leaves what it gives in the node's outputs."""
        condition = self.given(0)
        then, other = (tuple(self.either(n)) for n in ("then_branch", "else_branch"))
        yield Branch(condition, then, other)
        yield from self.taken()

    def either(self, name: str) -> Iterator[Step]:
        """The steps of one body."""
        body, inner = self.lowering.bodies[name], self.inner(name)
        self.capture(inner, body)
        for value, number in zip(body.graph.outputs, self.outputs, strict=True):
            is_handed = number in map(self.outputs.__getitem__, self.handed)
            if value is not None and not is_handed and _is_in_place(body, value):
                inner.numbers.setdefault(value, number)
        yield from inner.steps()
        yield from self.hand_on(inner, _results(body), self.outputs, self.facts)

    # -- Loop

    def loop(self) -> Iterator[Step]:
        """Rounds as long as the condition holds, at most so many."""
        body = self.lowering.bodies["body"]
        n_states = self.outer - 2
        counter = self.planner.add(SCALAR_INT64)
        condition = self.planner.add(SCALAR_BOOL) if _has_condition(self.scope.facts, self.lowering) else None
        if condition is not None:
            first = self.planner.true() if self.node.inputs[1] is None else self.given(1)
            fact = _condition(self.scope.facts, self.lowering)
            yield from self.copy(first, self.shaped(condition, fact), fact)
        for k in range(n_states):
            if k in self.handed:
                yield self.host("keep", self.given(2 + k), self.kept[k])
            else:
                yield from self.copy(self.given(2 + k), self.outputs[k], self.facts[k])
        for k in sorted(self.handed - set(range(n_states))):
            yield self.host("keep", self.nothing(self.facts[k]), self.kept[k])
        inner = self.inner("body")
        self.capture(inner, body)
        for value, type, number in zip(body.graph.inputs, loop_head(body.graph), (counter, condition), strict=False):
            inner.numbers[value] = self.shaped(self.planner.true() if number is None else number, Fact(type))
        inner.numbers.update(zip(body.graph.inputs[2 : 2 + n_states], self.outputs, strict=False))
        steps: list[Step] = []
        for k in sorted(self.handed & set(range(n_states))):
            state = body.graph.inputs[2 + k]
            inner.numbers[state] = self.planner.buffer(body.facts[state], "host")
            steps.append(self.host("take", self.kept[k], inner.numbers[state], body.binds, k))
        steps += inner.steps()
        goes_on, *results = _results(body)
        ends = [*self.stacked(inner, results[n_states:], counter)]
        targets, facts = self.outputs[:n_states], self.facts[:n_states]
        if condition is not None:
            kept = body.facts[goes_on]
            results, facts = [*results[:n_states], goes_on], [*facts, kept]
            targets = [*targets, self.shaped(condition, kept)]
        ends += self.hand_on(inner, results[: len(targets)], targets, facts)
        steps += self.natives_first(ends, targets)
        yield LoopStep(tuple(steps), counter, self.trips(), condition)
        yield from self.taken()

    def trips(self) -> BufferRef | Size | None:
        """The maximal number of iterations."""
        given = self.node.inputs[0]
        if given is None:
            return None
        constant = self.scope.facts[given].constant
        return int(constant.array.reshape(-1)[0]) if constant is not None else BufferRef(self.scope.number(given))

    def shaped(self, number: int, fact: Fact) -> int:
        """A buffer of one element, seen in the shape of a value."""
        buffer = self.planner.buffers[number]
        if fact.shape is None or fact.shape == buffer.shape:
            return number
        return self.planner.add(ProgramBuffer(buffer.dtype, (1,) * len(fact.shape), "view", number))

    # -- Scan

    def scan(self) -> Iterator[Step]:
        """A round for each slice."""
        body = self.lowering.bodies["body"]
        scans = _scans(self.lowering)
        n_states = self.outer - scans
        counter = self.planner.add(SCALAR_INT64)
        for k in range(n_states):
            yield from self.copy(self.given(k), self.outputs[k], self.facts[k])
        inner = self.inner("body")
        self.capture(inner, body)
        inner.numbers.update(zip(body.graph.inputs[:n_states], self.outputs, strict=False))
        steps: list[Step] = []
        count: Size = 0
        for k in range(scans):
            value, move = body.graph.inputs[n_states + k], _slice(self.scope.facts, self.lowering, k)
            count = self.planner.symbols.size(move.shape[move.axis])
            inner.numbers[value] = self.planner.buffer(body.facts[value], "arena")
            steps += self.moved(move, [self.given(n_states + k), counter], inner.numbers[value])
        steps += inner.steps()
        results = _results(body)
        steps += self.stacked(inner, results[n_states:], counter)
        steps += self.hand_on(inner, results[:n_states], self.outputs[:n_states], self.facts[:n_states])
        yield LoopStep(tuple(steps), counter, count)

    # -- what all of them share

    def given(self, k: int) -> int:
        """The buffer of the node's input."""
        value = self.node.inputs[k]
        assert value is not None
        return self.scope.number(value)

    def inner(self, name: str) -> ScopePlanner:
        """The planner of a body."""
        return self.scope.inner(self.item.bodies[name])

    def capture(self, inner: ScopePlanner, body: LoweredBody) -> None:
        """Let a body see the values that its node captures."""
        if self.node.captures:
            pairs = zip(body.graph.inputs[-self.node.captures :], self.node.inputs[self.outer :], strict=True)
            inner.numbers.update({name: self.scope.number(v) for name, v in pairs if v is not None})

    def hand_on(
        self, inner: ScopePlanner, results: Sequence[Value], targets: Sequence[int], facts: Sequence[Fact]
    ) -> Iterator[Step]:
        """Copies of a body's results to where they are wanted, as if all were copied at once."""
        sources = [inner.number(v) for v in results]
        handed = {k for k, target in enumerate(targets) if k in self.handed and target == self.outputs[k]}
        yield from (self.host("keep", sources[k], self.kept[k]) for k in sorted(handed))
        rest = [k for k in range(len(targets)) if k not in handed]
        sources, targets, facts = [sources[k] for k in rest], [targets[k] for k in rest], [facts[k] for k in rest]
        roots = {self.planner.root(target) for target in targets}
        for k, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if source != target and self.planner.root(source) in roots:
                sources[k] = self.planner.buffer(facts[k], "arena")
                yield from self.copy(source, sources[k], facts[k])
        for source, target, fact in zip(sources, targets, facts, strict=True):
            if source != target:
                yield from self.copy(source, target, fact)

    def natives_first(self, steps: Sequence[Step], targets: Sequence[int]) -> list[Step]:
        """The steps that end a round, those of Python's after all others, which then follow the body without a pause;
        as they are, where Python reads what the others copy to."""
        written = {self.planner.root(target) for target in targets}
        hosts = [s for s in steps if isinstance(s, HostStep)]
        if any(n is not None and self.planner.root(n) in written for s in hosts for n in s.inputs):
            return [*steps]
        return [*(s for s in steps if not isinstance(s, HostStep)), *hosts]

    def taken(self) -> Iterator[Step]:
        """What was kept of outputs, in their buffers, with sizes that are known from here on."""
        for k in sorted(self.handed):
            yield self.host("take", self.kept[k], self.outputs[k], self.lowering.binds, k)

    def host(self, function: str, source: int, target: int, binds: Binds = (), port: int = 0) -> HostStep:
        """A call of a function that every program has, and the symbols that are bound where it gives this output."""
        found = tuple((self.planner.symbols.name(s), 0, axis) for s, at, axis in binds if at == port)
        return HostStep(function, (source,), (target,), False, found, self.node.op, self.names)

    def nothing(self, fact: Fact) -> int:
        """The buffer of an array without elements: what no round has given."""
        constant = Constant.of(np.zeros((0,) * len(fact.shape or ()), numpy_dtype(fact.dtype or "")))
        return self.planner.constant(constant, fact_of(constant))

    def copy(self, source: int, target: int, fact: Fact) -> Iterator[Step]:
        """A buffer's elements, copied to another of the same shape."""
        return self.moved(Move.of("copy", fact), [source], target)

    def stacked(self, inner: ScopePlanner, results: Sequence[Value], counter: int) -> Iterator[Step]:
        """Copies of what this round gave into the outputs that hold that of all rounds."""
        first = len(self.outputs) - len(results)
        for k, (value, target, whole) in enumerate(
            zip(results, self.outputs[first:], self.facts[first:], strict=False)
        ):
            if first + k in self.handed:
                kept = self.kept[first + k]
                yield HostStep("append", (kept, inner.number(value)), (kept,), label=self.node.op, nodes=self.names)
            else:
                yield from self.moved(_stack(self.lowering, k, whole), [inner.number(value), counter], target)

    def moved(self, move: Move, numbers: list[int], target: int) -> Iterator[Step]:
        """The calls of a move."""
        nest, atoms = self.item.moves[move]
        buffers = dict(zip(nest.buffers, [*numbers, target], strict=True))
        sizes: dict[Var, Size] = {var: self.planner.symbols(atom) for var, atom in atoms.items()}
        return self.planner.calls(nest, buffers, sizes, self.node.op, self.names)
