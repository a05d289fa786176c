"""If, Loop and Scan as branches and loops of a program: their bodies' steps, and copies of what they hand on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from graphopt.ir.facts import Fact
from graphopt.ir.graph import Value
from graphopt.ir.infer_bodies import loop_head, scan_axis
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.compute import Tensor, placeholder
from graphopt.lowering.loops.expressions import Expr, Var
from graphopt.lowering.loops.nest import Stmt, Store
from graphopt.lowering.lower.lower import Bodied, Body
from graphopt.lowering.lower.reference import name_of
from graphopt.lowering.operators.operation import Sizes
from graphopt.runtime.sizes import Size
from graphopt.runtime.steps import Branch, Buffer, Loop, Ref, Step

if TYPE_CHECKING:
    from graphopt.lowering.link.linker import Scope

SCALAR_INT64 = Buffer("int64", (), "arena")
SCALAR_BOOL = Buffer("bool", (), "arena")


def control(scope: Scope, lowering: Bodied) -> Iterator[Step]:
    """The steps of a node with bodies."""
    made = _Control(scope, lowering)
    return {"If": made.branch, "Loop": made.loop, "Scan": made.scan}[lowering.node.op]()


class _Control:
    """Steps for one node with bodies."""

    def __init__(self, scope: Scope, lowering: Bodied) -> None:
        self.scope, self.linker, self.lowering = scope, scope.linker, lowering
        self.node = lowering.node
        self.outer = len(self.node.inputs) - self.node.captures
        self.outputs = [scope.made(v, "arena") for v in self.node.outputs]
        self.facts = [scope.facts[v] for v in self.node.outputs]
        self.names = (name_of(scope.graph, self.node),)

    # -- If

    def branch(self) -> Iterator[Step]:
        """Either body, each of which leaves what it gives in the node's outputs."""
        condition = self.given(0)
        taken, other = (tuple(self.either(self.lowering.bodies[n])) for n in ("then_branch", "else_branch"))
        yield Branch(condition, taken, other)

    def either(self, body: Body) -> Iterator[Step]:
        inner = self.scope.inner(body, is_branch=True)
        self.capture(inner, body)
        for value, number in zip(body.graph.outputs, self.outputs, strict=True):
            if value is not None and value.node in body.lowered and body.graph.outputs.count(value) == 1:
                inner.numbers.setdefault(value, number)
        yield from inner.steps()
        yield from self.hand_on(inner, self.results(body), self.outputs, self.facts)

    # -- Loop

    def loop(self) -> Iterator[Step]:
        """Rounds as long as the condition holds, at most so many."""
        body = self.lowering.bodies["body"]
        n_states = self.outer - 2
        counter = self.linker.add(SCALAR_INT64)
        condition = self.condition(body)
        if condition is not None:
            yield from self.copy(self.given(1), self.shaped(condition, self.fact(1)), self.fact(1))
        for k in range(n_states):
            yield from self.copy(self.given(2 + k), self.outputs[k], self.facts[k])
        inner = self.scope.inner(body)
        self.capture(inner, body)
        for value, type, number in zip(body.graph.inputs, loop_head(body.graph), (counter, condition), strict=False):
            inner.numbers[value] = self.shaped(self.linker.true() if number is None else number, Fact(type))
        inner.numbers.update(zip(body.graph.inputs[2 : 2 + n_states], self.outputs, strict=False))
        steps = [*inner.steps()]
        goes_on, *results = self.results(body)
        steps += self.stacked(inner, results[n_states:], counter, [0] * len(results[n_states:]), [False] * len(results))
        targets, facts = self.outputs[:n_states], self.facts[:n_states]
        if condition is not None:
            kept = body.facts[goes_on]
            results, facts = [*results[:n_states], goes_on], [*facts, kept]
            targets = [*targets, self.shaped(condition, kept)]
        steps += self.hand_on(inner, results[: len(targets)], targets, facts)
        yield Loop(tuple(steps), counter, self.trips(), condition)

    def condition(self, body: Body) -> int | None:
        """The buffer of the condition, where it is not always true."""
        given = self.node.inputs[1]
        first = body.graph.outputs[0]
        assert first is not None
        if given is None or (self.fact(1).elements == (1,) and body.facts[first].elements == (1,)):
            return None
        return self.linker.add(SCALAR_BOOL)

    def trips(self) -> Ref | Size | None:
        """How many rounds there are at most."""
        given = self.node.inputs[0]
        if given is None:
            return None
        constant = self.scope.facts[given].constant
        return int(constant.array.reshape(-1)[0]) if constant is not None else Ref(self.scope.number(given))

    def shaped(self, number: int, fact: Fact) -> int:
        """A buffer of one element, seen in the shape of a value."""
        buffer = self.linker.buffers[number]
        if fact.shape is None or fact.shape == buffer.shape:
            return number
        return self.linker.add(Buffer(buffer.dtype, (1,) * len(fact.shape), "view", number))

    # -- Scan

    def scan(self) -> Iterator[Step]:
        """A round for each slice."""
        body = self.lowering.bodies["body"]
        scans = self.node.attrs["num_scan_inputs"]
        assert isinstance(scans, int)
        n_states = self.outer - scans
        counter = self.linker.add(SCALAR_INT64)
        for k in range(n_states):
            yield from self.copy(self.given(k), self.outputs[k], self.facts[k])
        inner = self.scope.inner(body)
        self.capture(inner, body)
        inner.numbers.update(zip(body.graph.inputs[:n_states], self.outputs, strict=False))
        steps: list[Step] = []
        count: Size = 0
        for k in range(scans):
            value = body.graph.inputs[n_states + k]
            fact = self.fact(n_states + k)
            axis = scan_axis(self.node, "scan_input_axes", k, len(fact.shape or ()))
            count = self.linker.symbols.size((fact.shape or ())[axis])
            inner.numbers[value] = self.linker.buffer(body.facts[value], "arena")
            backward = self.is_backward("scan_input_directions", k)
            steps += self.slice(self.given(n_states + k), inner.numbers[value], fact, counter, axis, backward)
        steps += inner.steps()
        results = self.results(body)
        stacked = range(len(results) - n_states)
        ranks = [len(f.shape or ()) - 1 for f in self.facts[n_states:]]
        axes = [scan_axis(self.node, "scan_output_axes", k, ranks[k]) for k in stacked]
        backward_out = [self.is_backward("scan_output_directions", k) for k in stacked]
        steps += self.stacked(inner, results[n_states:], counter, axes, backward_out)
        steps += self.hand_on(inner, results[:n_states], self.outputs[:n_states], self.facts[:n_states])
        yield Loop(tuple(steps), counter, count)

    def is_backward(self, name: str, k: int) -> bool:
        """Whether a Scan goes through an input or output from its end."""
        directions = self.node.attrs.get(name)
        return isinstance(directions, tuple) and directions[k] == 1

    # -- what all of them share

    def given(self, k: int) -> int:
        """The buffer of the node's input."""
        value = self.node.inputs[k]
        assert value is not None
        return self.scope.number(value)

    def fact(self, k: int) -> Fact:
        """What is known of the node's input."""
        value = self.node.inputs[k]
        assert value is not None
        return self.scope.facts[value]

    def results(self, body: Body) -> list[Value]:
        """What a body gives."""
        return [v for v in body.graph.outputs if v is not None]

    def capture(self, inner: Scope, body: Body) -> None:
        """Let a body see the values that its node captures."""
        if self.node.captures:
            pairs = zip(body.graph.inputs[-self.node.captures :], self.node.inputs[self.outer :], strict=True)
            inner.numbers.update({own: self.scope.number(v) for own, v in pairs if v is not None})

    def hand_on(
        self, inner: Scope, results: Sequence[Value], targets: Sequence[int], facts: Sequence[Fact]
    ) -> Iterator[Step]:
        """Copies of a body's results to where they are wanted, as if all were copied at once."""
        sources = [inner.number(v) for v in results]
        roots = {self.linker.root(target) for target in targets}
        for k, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if source != target and self.linker.root(source) in roots:
                sources[k] = self.linker.buffer(facts[k], "arena")
                yield from self.copy(source, sources[k], facts[k])
        for source, target, fact in zip(sources, targets, facts, strict=True):
            if source != target:
                yield from self.copy(source, target, fact)

    def copy(self, source: int, target: int, fact: Fact) -> Iterator[Step]:
        """A buffer's elements, copied to another of the same shape."""
        size = Sizes()
        x = placeholder(self.shape(fact, size), fact.dtype or "", "x0")
        made = compute.compute(x.shape, lambda *i: x[i] if i else x[()], fact.dtype)
        return self.calls([x], made, [source], target, size)

    def slice(self, source: int, target: int, fact: Fact, counter: int, axis: int, backward: bool) -> Iterator[Step]:
        """The slice of this round."""
        size = Sizes()
        x = placeholder(self.shape(fact, size), fact.dtype or "", "x0")
        n = placeholder((), "int64", "x1")
        at = x.shape[axis] - 1 - n[()] if backward else n[()]
        rest = (*x.shape[:axis], *x.shape[axis + 1 :])
        made = compute.compute(rest, lambda *i: x[(*i[:axis], at, *i[axis:])], fact.dtype)
        return self.calls([x, n], made, [source, counter], target, size)

    def stacked(
        self, inner: Scope, results: Sequence[Value], counter: int, axes: Sequence[int], backward: Sequence[bool]
    ) -> Iterator[Step]:
        """Copies of what this round gave into the outputs that hold that of all rounds."""
        first = len(self.outputs) - len(results)
        for value, target, whole, axis, back in zip(
            results, self.outputs[first:], self.facts[first:], axes, backward, strict=False
        ):
            size = Sizes()
            shape = self.shape(whole, size)
            x = placeholder((*shape[:axis], *shape[axis + 1 :]), whole.dtype or "", "x0")
            n = placeholder((), "int64", "x1")
            at = shape[axis] - 1 - n[()] if back else n[()]
            made = _written_at(x, n, shape, axis, at)
            yield from self.calls([x, n], made, [inner.number(value), counter], target, size)

    def shape(self, fact: Fact, size: Sizes) -> tuple[Expr, ...]:
        """A value's shape in a nest."""
        return tuple(map(size, fact.shape or ()))

    def calls(self, inputs: list[Tensor], made: Tensor, numbers: list[int], target: int, size: Sizes) -> Iterator[Step]:
        """The calls that compute one tensor from others."""
        nest = compute.nest("kernel", inputs, [made], tuple(size.variables.values()))
        buffers = dict(zip(nest.buffers, [*numbers, target], strict=True))
        sizes: dict[Var, Size] = {var: self.linker.symbols(s) for s, var in size.variables.items()}
        return self.linker.calls(nest, buffers, sizes, self.node.op, self.names)


def _written_at(x: Tensor, n: Tensor, shape: tuple[Expr, ...], axis: int, at: Expr) -> Tensor:
    """A tensor of which only the slice at an index is written."""

    def build(whole: Tensor) -> Stmt:
        def inside(done: tuple[Expr, ...]) -> Stmt:
            if len(done) == x.rank:
                return Store(whole, (*done[:axis], at, *done[axis:]), x[done])
            return compute.loop(x.shape[len(done)], lambda i: inside((*done, i)))

        return inside(())

    (made,) = compute.procedure([("t", shape, x.dtype)], [x, n], build)
    return made
