"""Recurrent phases: gates that are computed together at each step, and the state update that follows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from graphopt.frozen import dataclass
from graphopt.lowering.loops.compute import Tensor, loop
from graphopt.lowering.loops.expressions import Const, Expr, const, equal, select
from graphopt.lowering.loops.nest import Buffer, BufferRegion, Range, Stmt, Store, seq
from graphopt.lowering.operators.recurrent_tiles import Gates, RowTile, heights, pieces, rows_of

if TYPE_CHECKING:
    from graphopt.lowering.operators.recurrent_steps import Recurrence


@dataclass(frozen=True)
class Point:
    """An element of the hidden state, ``[d, b, n]`` in all states, and its gates."""

    d: int
    b: Expr
    n: Expr
    gate: Callable[[int], Expr]
    """A gate before its activation."""
    apart: Expr
    """What comes from the inputs for the gate that keeps it apart from what comes from the state."""

    def of(self, state: Buffer) -> Expr:
        """The element of a state."""
        return state[self.d, self.b, self.n]

    def store(self, state: Buffer, value: Expr) -> Store:
        """Write the element of a state."""
        return Store(state, (Const(self.d), self.b, self.n), value)


PhaseEpilogue = Callable[[Point], Sequence[Stmt]]
"""What is done with the gates of an element."""


class Phase:
    """Gates that are computed together at a step, from one state, and what is done with them."""

    def __init__(
        self, r: Recurrence, number: int, first: int, count: int, source: Buffer, finish: PhaseEpilogue
    ) -> None:
        op, frame = r.op, r.frame
        self.r, self.source, self.finish = r, source, finish
        self.gates = Gates(frame, first, count, rows_of(r.batch))
        self.before = self.gates if r.is_single else Gates(frame, first, count, rows_of(r.places))
        """The tiles of what comes from the inputs."""
        self.weights = self.before.packed(op.input(1), f"inputs{number}")
        self.recurrent = self.gates.packed(op.input(2), f"recurrent{number}")
        self.biases = self.before.biases(op.input(3), r.apart) if op.has(3) else None
        self.joint = [g for g in self.gates.all if g != r.apart]
        shape = (Const(frame.ways), r.places, Const(count), frame.full)
        self.projected = Buffer(f"projected{number}", shape, r.inner)

    @property
    def is_split(self) -> bool:
        """Whether one of the gates keeps apart what comes from the inputs."""
        return len(self.joint) < self.gates.count

    @property
    def tensors(self) -> list[Tensor]:
        """Packed inputs of the phase."""
        return [self.weights, self.recurrent, *([] if self.biases is None else [self.biases])]

    @property
    def buffers(self) -> list[Buffer]:
        """Scratch buffers of the phase."""
        buffers = [self.gates.sums(n, "sums") for n in heights(self.r.batch)]
        if not self.r.is_single:
            return [*buffers, self.projected, *(self.before.sums(n, "given") for n in heights(self.r.places))]
        return [*buffers, *(self.before.sums(n, "given") for n in heights(self.r.batch) if self.is_split)]

    def from_inputs(self, sums: Buffer, d: int, q: Expr, left: BufferRegion) -> Stmt:
        """The sums of what comes from some inputs, for the elements of a tile."""
        gates, biases = self.before, self.biases

        def bias(i: Expr, gate: int, n: Expr) -> Expr:
            return const(0, sums.dtype) if biases is None else biases[d, q, gates.column(gate, n)]

        return seq(gates.filled(sums, gates.all, bias), gates.added(sums, left, self.weights, d, q))

    def project(self, d: int, q: Expr) -> Stmt:
        """Projects the inputs of all rows at all steps, for the elements of one tile of the hidden state."""
        gates = self.before

        def tile(rows: RowTile) -> Stmt:
            sums = gates.sums(rows.height, "given")

            def element(i: Expr, gate: int, n: Expr) -> Stmt:
                where = (Const(d), rows.first + i, Const(gate - gates.first), q * gates.block + n)
                return Store(self.projected, where, sums[i, gates.column(gate, n)])

            def row(i: Expr) -> Stmt:
                return seq(*(gates.each(partial(element, i, gate)) for gate in gates.all))

            return seq(self.from_inputs(sums, d, q, self.r.inputs(rows)), loop(rows.live, row))

        def some(count: Expr, which: Callable[[Expr], RowTile]) -> Stmt:
            return loop(count, lambda k: tile(which(k)))

        return seq(*(some(*piece) for piece in pieces(self.r.places)))

    def step(self, d: int, number: Expr, rows: RowTile) -> Stmt:
        """The gates of some rows of the batch at a step, and what is done with them: tile by tile, to and fro, since
        the weights that were read last are still near."""
        last = self.gates.blocks - 1

        def tile(q: Expr) -> Stmt:
            back = select(equal(number % 2, 0), q, last - q) if last != Const(0) else q
            return self.tile(d, number, rows, q if self.r.is_single else back)

        return loop(self.gates.blocks, tile)

    def tile(self, d: int, number: Expr, rows: RowTile, q: Expr) -> Stmt:
        """The same for the elements of one tile."""
        r, gates, sums = self.r, self.gates, self.gates.sums(rows.height, "sums")
        given = gates.sums(rows.height, "given") if self.is_split else sums
        parts: list[Stmt] = []
        if r.is_single:
            parts.append(self.from_inputs(given, d, q, r.inputs(rows)))

        def from_inputs(i: Expr, gate: int, n: Expr) -> Expr:
            if r.is_single:
                return given[i, gates.column(gate, n)]
            b = rows.row(i)
            place = r.place(r.row_of(d, number, b), b)
            return self.projected[Const(d), place, Const(gate - gates.first), q * gates.block + n]

        if self.is_split or not r.is_single:
            parts.append(gates.filled(sums, self.joint, from_inputs))
        if self.is_split:
            parts.append(gates.filled(sums, [g for g in gates.all if g == r.apart], self.own_bias(d, q)))
        some = Range(rows.first, Const(rows.height))
        left = BufferRegion(self.source, (Range(Const(d)), some, Range(Const(0), gates.frame.hidden)))
        parts.append(gates.added(sums, left, self.recurrent, d, q))

        def one(i: Expr, n: Expr) -> Stmt:
            apart = sums[i, n] if r.apart is None else from_inputs(i, r.apart, n)
            point = Point(d, rows.first + i, q * gates.block + n, lambda k: sums[i, gates.column(k, n)], apart)
            return seq(*self.finish(point))

        finish = loop(rows.live, lambda i: r.running(number, rows.first + i, gates.each(partial(one, i))))
        return seq(*parts, finish)

    def own_bias(self, d: int, q: Expr) -> Callable[[Expr, int, Expr], Expr]:
        """The initial value of the state's product, for the gate that keeps its recurrent bias apart."""
        biases, gates = self.r.own_bias, self.gates

        def bias(i: Expr, gate: int, n: Expr) -> Expr:
            return const(0, self.r.inner) if biases is None else biases[d, 0, q * gates.block + n]

        return bias
