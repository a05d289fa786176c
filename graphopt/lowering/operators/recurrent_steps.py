"""Recurrent steps: one call runs a few rows of the batch through the sequence, one direction after another.

The product of the inputs and their weights is made for all steps at once, before the first of them. A step adds the
product of the hidden state and the recurrent weights, and goes on from the gates to the new states while they are near.
Where there is much to do, threads share that first product, and then rows and directions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from graphopt.lowering.analysis.access_analysis import known_size
from graphopt.lowering.loops.compute import Tensor, compute, fresh, loop, procedure
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, cast, conjunction, const, equal, select
from graphopt.lowering.loops.nest import Buffer, BufferRegion, Check, For, If, LoopKind, Range, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, required, text, wide
from graphopt.lowering.operators.operation import Operation
from graphopt.lowering.operators.recurrent_phases import Phase, PhaseEpilogue
from graphopt.lowering.operators.recurrent_tiles import Frame, RowTile, along, pieces, spared

SHARED: Final = 1 << 18
"""Multiplications below which sharing them out to threads costs more than it saves."""
WAYS = {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}
"""Of each direction whether it goes backwards."""


class Recurrence:
    """Shared parts of the three ops: sizes, layouts, and the steps.

    The gate ``apart``, if any, does not add up what comes from the inputs and from the state.
    """

    def __init__(self, op: Operation, gates: int, apart: int | None = None) -> None:
        self.op, self.apart = op, apart
        x, recurrent = op.input(0), op.input(2)
        self.inner = wide(op.dtype())
        self.batchwise = bool(integer(op, "layout"))
        self.backwards = WAYS[text(op, "direction")]
        first, second = x.shape[:2]
        self.steps, self.batch = (second, first) if self.batchwise else (first, second)
        self.places = first * second
        """Rows of the batch at all steps,"""
        self.x = compute((spared(self.places), x.shape[2]), self._input, self.inner, "places")
        """whose inputs stand one after another."""
        self.frame = Frame(len(self.backwards), self.batch, recurrent.shape[2], gates, self.inner, op.op)
        self.lengths = op.input(4) if op.has(4) else None
        self.state, self.new = self.frame.state("state"), self.frame.state("new")
        self.states: list[tuple[Buffer, int]] = [(self.state, 5)]
        """The states, each with the input that it begins as."""
        self.scratch: list[Buffer] = [self.new]
        self.reads: list[Tensor] = []
        self.phases: list[Phase] = []
        self.own_bias: Tensor | None = None
        if apart is not None and op.has(3):
            self.own_bias = self.read(self.frame.parts(op.input(3), 1, gates + apart, gates * 2, "own_bias"))

    @property
    def is_single(self) -> bool:
        """Whether there is but one step, at which the gates start with what comes from the inputs."""
        return self.steps == Const(1)

    def kept(self, name: str, k: int) -> Buffer:
        """A further state, which begins as the k-th input."""
        self.states.append((self.frame.state(name), k))
        return self.states[-1][0]

    def between(self, name: str) -> Buffer:
        """A scratch buffer within a step, with an element for each of the state."""
        self.scratch.append(self.frame.state(name))
        return self.scratch[-1]

    def read(self, tensor: Tensor) -> Tensor:
        """A tensor that steps read."""
        self.reads.append(tensor)
        return tensor

    def phase(self, first: int, count: int, source: Buffer, finish: PhaseEpilogue) -> None:
        """At each step, some gates are computed from a state, and something done with them."""
        self.phases.append(Phase(self, len(self.phases), first, count, source, finish))

    # -- places

    def row_of(self, d: int, step: Expr, b: Expr) -> Expr:
        """The position of a step in the sequence. Behind a shorter sequence's end, it is the position in a longer
        one."""
        if self.is_single:
            return Const(0)
        if not self.backwards[d]:
            return step
        if self.lengths is None:
            return self.steps - 1 - step
        length = cast(self.lengths[b], INDEX)
        return select(step < length, length - 1 - step, step)

    def place(self, step: Expr, b: Expr) -> Expr:
        """Where the inputs of a row at a step stand among all."""
        return b * self.steps + step if self.batchwise else step * self.batch + b

    def _input(self, place: Expr, k: Expr) -> Expr:
        """An input of a place; zeros are to spare."""
        x, inner = self.op.input(0), self.op.input(0).shape[1]
        value = cast(x[place // inner, place % inner, k], self.inner)
        return value if isinstance(self.places, Const) else select(place < self.places, value, const(0, self.inner))

    def inputs(self, rows: RowTile) -> BufferRegion:
        """The inputs of some places."""
        return BufferRegion(self.x, (Range(rows.first, Const(rows.height)), Range(Const(0), self.x.shape[1])))

    def every(self, d: int, s: Expr, b: Expr, n: Expr) -> tuple[Expr, ...]:
        """The index of a hidden state among all of them."""
        return (b, s, Const(d), n) if self.batchwise else (s, Const(d), b, n)

    def last(self, d: int, b: Expr, n: Expr) -> tuple[Expr, ...]:
        """The index of a hidden state among the first, or the last."""
        return (b, Const(d), n) if self.batchwise else (Const(d), b, n)

    def running(self, step: Expr, b: Expr, then: Stmt, otherwise: Stmt | None = None) -> Stmt:
        """The body of a step within the length of a row's sequence."""
        return then if self.lengths is None else If(step < cast(self.lengths[b], INDEX), then, otherwise)

    # -- statements

    def begin(self, d: int, b: Expr) -> Stmt:
        """The states of a row before the first step."""

        def element(state: Buffer, k: int, n: Expr) -> Stmt:
            value: Expr = const(0, self.inner)
            if self.op.has(k):
                value = self.frame.inside(n, cast(self.op.input(k)[self.last(d, b, n)], self.inner))
            return Store(state, (Const(d), b, n), value)

        return seq(*(along(self.frame.full, partial(element, state, k)) for state, k in self.states))

    def moved(self, d: int, step: Expr, b: Expr, out: Buffer) -> Stmt:
        """The new hidden state of a row, kept and written: zeros behind the end of its sequence, where it stays what
        it is."""
        s = self.row_of(d, step, b)

        def one(n: Expr) -> Stmt:
            value, where = self.new[Const(d), b, n], self.every(d, s, b, n)
            return seq(Store(self.state, (Const(d), b, n), value), Store(out, where, cast(value, out.dtype)))

        def nothing(n: Expr) -> Stmt:
            return Store(out, self.every(d, s, b, n), const(0, out.dtype))

        hidden = self.frame.hidden
        return self.running(step, b, along(hidden, one), None if self.lengths is None else along(hidden, nothing))

    def end(self, d: int, b: Expr, outputs: Sequence[Buffer]) -> Stmt:
        """The last states of a row, written to the outputs."""

        def one(n: Expr) -> Stmt:
            pairs = zip(self.states, outputs, strict=False)
            return seq(*(Store(o, self.last(d, b, n), cast(s[Const(d), b, n], o.dtype)) for (s, _), o in pairs))

        return along(self.frame.hidden, one)

    def rows(self, d: int, rows: RowTile, out: Buffer, last: Sequence[Buffer]) -> Stmt:
        """Some rows of a batch, through all steps in one direction."""

        def step(number: Expr) -> Stmt:
            parts = [phase.step(d, number, rows) for phase in self.phases]
            return seq(*parts, rows.each(lambda row: self.moved(d, number, row, out)))

        after = [rows.each(lambda row: self.end(d, row, last))] if last else []
        return seq(rows.each(partial(self.begin, d)), *self.cleared(d, rows), loop(self.steps, step), *after)

    def cleared(self, d: int, rows: RowTile) -> list[Stmt]:
        """Zeros in rows to spare of what is multiplied: what else is in memory may be slow to compute with."""
        if isinstance(rows.live, Const):
            return []
        first, spare = rows.first + rows.live, rows.height - rows.live

        def row(source: Buffer, i: Expr) -> Stmt:
            return along(self.frame.full, lambda n: Store(source, (Const(d), first + i, n), const(0, self.inner)))

        sources = dict.fromkeys(phase.source for phase in self.phases)
        return [loop(spare, partial(row, source)) for source in sources]

    @property
    def is_shared(self) -> bool:
        """Whether the work is shared out to threads, as far as it is known."""
        total = known_size([self.places, self.x.shape[1] + self.frame.hidden, self.frame.hidden])
        return total is None or total >= SHARED

    def each_way(self, count: Expr, body: Callable[[int, Expr], Stmt]) -> Stmt:
        """A parallel loop of ``body(direction, number)``, so often in each direction."""
        item, extent = fresh(), count * len(self.backwards)
        number: Expr = Const(0) if count == Const(1) else item % count
        bodies = [body(d, number) for d in range(len(self.backwards))]
        kind: LoopKind = "parallel" if self.is_shared and extent != Const(1) else "serial"
        return For(item, extent, bodies[0] if len(bodies) == 1 else If(item < count, *bodies), kind)

    def checks(self) -> list[Stmt]:
        """Run-time checks of sizes and sequence lengths."""
        fits = required(self.sizes_agree(), f"{self.op.op}: sizes of its inputs do not agree")
        checks: list[Stmt] = [Check(r.condition, r.message) for r in fits]
        if self.lengths is not None:
            lengths, message = self.lengths, f"{self.op.op}: a sequence is longer than all of them"

            def inside(b: Expr) -> Stmt:
                count = cast(lengths[b], INDEX)
                return Check(conjunction(count >= 0, count <= self.steps), message)

            checks.append(loop(self.batch, inside))
        return checks

    def described(self) -> tuple[Tensor, ...]:
        """The outputs."""
        op = self.op
        names = [f"{op.op.lower()}{suffix}" for suffix in ("", "_h", "_c")][: len(op.outputs)]

        def build(out: Buffer, *last: Buffer) -> Stmt:
            parts = self.checks()
            if not self.is_single:
                parts += (self.each_way(phase.before.blocks, phase.project) for phase in self.phases)
            for count, which in pieces(self.batch):

                def some(d: int, k: Expr, which: Callable[[Expr], RowTile] = which) -> Stmt:
                    return self.rows(d, which(k), out, last)

                parts.append(self.each_way(count, some))
            return seq(*parts)

        outputs = [(name, op.shape(k), op.dtype(k)) for k, name in enumerate(names)]
        given = [op.input(k) for k in range(4, len(op.inputs)) if op.has(k)]
        packed = [t for phase in self.phases for t in phase.tensors]
        buffers = [*(s for s, _ in self.states), *self.scratch, *(b for p in self.phases for b in p.buffers)]
        return procedure(outputs, (self.x, *packed, *self.reads, *given), build, tuple(dict.fromkeys(buffers)))

    def sizes_agree(self) -> Expr:
        """Whether the inputs have the sizes that their places ask for."""
        op, ways, hidden = self.op, Const(len(self.backwards)), self.frame.hidden
        width = hidden * self.frame.gates
        state = (self.batch, ways, hidden) if self.batchwise else (ways, self.batch, hidden)
        wanted = {
            1: (ways, width, self.x.shape[1]),
            2: (ways, width, hidden),
            3: (ways, width * 2),
            4: (self.batch,),
            5: state,
            6: state,
            7: (ways, hidden * 3),
        }
        pairs = [(op.input(k).shape, shape) for k, shape in wanted.items() if op.has(k)]
        return conjunction(*(equal(a, b) for sizes, shape in pairs for a, b in zip(sizes, shape, strict=True)))
