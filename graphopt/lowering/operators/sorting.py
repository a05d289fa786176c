"""TopK: the largest or smallest elements of an axis, sorted.

NaN counts as larger than all numbers, as numpy sorts; of equal elements the one with the lower index comes first.
Few elements are kept in order all the time, and most elements meet only the last of them. Many are kept as a heap
whose root is the one to give up next, and are put in order at the end (Williams, 1964).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from graphopt.frozen import dataclass
from graphopt.lowering.loops.compute import Tensor, compute_several, loop, procedure
from graphopt.lowering.loops.expressions import (
    FLOATS,
    INDEX,
    Const,
    Expr,
    apply,
    conjunction,
    const,
    equal,
    minimum,
    select,
)
from graphopt.lowering.loops.nest import Buffer, Check, If, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, widened
from graphopt.lowering.operators.indexing import over
from graphopt.lowering.operators.indices import axis_of
from graphopt.lowering.operators.operation import LoweringTable, Operation

FEW = 32
"""Up to so many elements are kept in order all the time."""
DEEPEST = 40
"""The depth of a heap whose size is not known ahead of time: none has more elements than memory."""


def top_k(op: Operation) -> Sequence[Tensor]:
    """The elements, and where along the axis they stood."""
    x, axis, largest = op.input(0), axis_of(op), bool(integer(op, "largest"))
    shape, names = op.shape(), ("topk", "indices")
    count, size = shape[axis], x.shape[axis]
    if count == Const(0):
        return compute_several(shape, lambda *at: (const(0, x.dtype), Const(0)), names)
    few = isinstance(count, Const) and count.value <= FEW
    scratch = () if few else (Buffer("at", (Const(4),), INDEX, "local"), Buffer("spare", (Const(1),), x.dtype, "local"))

    def build(values: Buffer, indices: Buffer) -> Stmt:
        def row(rest: tuple[Expr, ...]) -> Stmt:
            kept = Kept(values, indices, lambda i: (*rest[:axis], i, *rest[axis:]), largest, count)
            if few:
                return kept.by_insertion(x, size)
            return kept.by_heap(lambda i: x[kept.index_of(i)], size, *scratch)

        rows = over((*x.shape[:axis], *x.shape[axis + 1 :]), row)
        enough = conjunction(count <= size, count > 0 if not isinstance(count, Const) else Const(True, "bool"))
        fits = Check(count <= size, "TopK: more elements are asked for than there are")
        guarded = rows if isinstance(count, Const) else If(count > 0, rows)
        return guarded if enough == Const(True, "bool") else seq(fits, guarded)

    return procedure([(name, shape, d) for name, d in zip(names, (x.dtype, INDEX), strict=True)], (x,), build, scratch)


@dataclass(frozen=True)
class Kept:
    """The elements kept of one row: ``place(i)`` is where its i-th stands, in the input as in the outputs."""

    values: Buffer
    indices: Buffer
    index_of: Callable[[Expr], tuple[Expr, ...]]
    largest: bool
    count: Expr

    def value(self, slot: Expr) -> Expr:
        """The element in a slot."""
        return self.values[self.index_of(slot)]

    def index(self, slot: Expr) -> Expr:
        """The original index of the element in a slot."""
        return self.indices[self.index_of(slot)]

    def put(self, slot: Expr, value: Expr, index: Expr) -> Stmt:
        """Keep an element in a slot."""
        return seq(Store(self.values, self.index_of(slot), value), Store(self.indices, self.index_of(slot), index))

    def is_better(self, value: Expr, other: Expr) -> Expr:
        """Whether the first of two elements comes before the other, whatever their indices are."""
        a, b = (value, other) if self.largest else (other, value)
        a, b = widened(a), widened(b)
        if a.dtype not in FLOATS:
            return a > b if a.dtype != "bool" else a & ~b
        return (a > b) | (apply("isnan", a) & ~apply("isnan", b))

    def is_later(self, slot: Expr, other: Expr) -> Expr:
        """Whether the element in the first of two slots comes after the other one."""
        a, b = self.value(slot), self.value(other)
        same = ~self.is_better(a, b) & ~self.is_better(b, a)
        return self.is_better(b, a) | (same & (self.index(slot) > self.index(other)))

    def by_insertion(self, x: Tensor, size: Expr) -> Stmt:
        """Every element that is better than the last one kept goes where it belongs, those behind it move up."""

        def insert(i: Expr) -> Stmt:
            element, free = x[self.index_of(i)], minimum(i, self.count - 1)

            def move(k: Expr) -> Stmt:
                slot = free - k
                moves = select(slot > 0, self.is_better(element, self.value(slot - 1)), const(0, "bool"))
                ends = equal(slot, free) | self.is_better(element, self.value(slot))
                stays = If(ends, self.put(slot, element, i))
                return If(moves, self.put(slot, self.value(slot - 1), self.index(slot - 1)), stays)

            wanted = (i < self.count) | self.is_better(element, self.value(self.count - 1))
            return If(wanted, loop(free + 1, move))

        return loop(size, insert)

    def by_heap(self, element: Callable[[Expr], Expr], size: Expr, at: Buffer, spare: Buffer) -> Stmt:
        """The first of so many elements become a heap, others take the place of its root, and the roots go behind one
        by one."""

        def first(i: Expr) -> Stmt:
            return self.put(i, element(i), i)

        def ordered(k: Expr) -> Stmt:
            return self.sift(self.count // 2 - 1 - k, self.count, at, spare)

        def replaced(k: Expr) -> Stmt:
            i = k + self.count
            put = seq(self.put(Const(0), element(i), i), self.sift(Const(0), self.count, at, spare))
            return If(self.is_better(element(i), self.value(Const(0))), put)

        def swapped(k: Expr) -> Stmt:
            last = self.count - 1 - k
            return seq(self.swap(Const(0), last, at, spare), self.sift(Const(0), last, at, spare))

        return seq(
            self.measure(self.count, at),
            loop(self.count, first),
            loop(self.count // 2, ordered),
            loop(size - self.count, replaced),
            loop(self.count - 1, swapped),
        )

    def measure(self, size: Expr, at: Buffer) -> Stmt:
        """How deep a heap of so many elements is, to ``at[3]``, where that is not known ahead of time."""
        if isinstance(self.count, Const):
            return seq()

        def level(_: Expr) -> Stmt:
            deeper = Store(at, (Const(3),), at[3] + select(at[2] <= size, 1, Const(0)))
            return seq(deeper, Store(at, (Const(2),), at[2] * 2))

        return seq(Store(at, (Const(3),), Const(0)), Store(at, (Const(2),), Const(1)), loop(DEEPEST, level))

    def sift(self, root: Expr, size: Expr, at: Buffer, spare: Buffer) -> Stmt:
        """Let the element at a root sink until none below it comes later: ``at[0]`` is where it is, ``at[1]`` below."""
        here, lower = at[0], at[1]
        left, right = here * 2 + 1, here * 2 + 2
        later = select(right < size, self.is_later(right, left), const(0, "bool"))

        def sink(_: Expr) -> Stmt:
            move = seq(self.swap(here, lower, at, spare), Store(at, (Const(0),), lower))
            stop = Store(at, (Const(0),), size)
            choose = Store(at, (Const(1),), left + select(later, 1, Const(0)))
            return If(left < size, seq(choose, If(self.is_later(lower, here), move, stop)))

        depth = Const(int(self.count.value).bit_length()) if isinstance(self.count, Const) else at[3]
        return seq(Store(at, (Const(0),), root), loop(depth, sink))

    def swap(self, one: Expr, other: Expr, at: Buffer, spare: Buffer) -> Stmt:
        """Exchange the elements in two slots."""
        return seq(
            Store(spare, (Const(0),), self.value(one)),
            Store(at, (Const(2),), self.index(one)),
            self.put(one, self.value(other), self.index(other)),
            self.put(other, spare[0], at[2]),
        )


TABLE: LoweringTable = {"TopK": top_k}
