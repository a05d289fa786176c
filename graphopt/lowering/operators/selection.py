"""Selection: elements and indices of which only a run shows how many there are.

A shape function counts them and leaves where they stand; the op itself reads what stands there. Unique sorts by
radix, NonMaxSuppression has TopK's heap.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphopt.ir.types import Size
from graphopt.ir.types import minimum as least
from graphopt.lowering.loops.compute import Tensor, compute, fresh, loop, procedure
from graphopt.lowering.loops.expressions import INDEX, Const, Expr, cast, const, equal, maximum, minimum, select
from graphopt.lowering.loops.nest import Buffer, For, If, Stmt, Store, seq
from graphopt.lowering.operators.elements import integer, label, only, widened
from graphopt.lowering.operators.indices import axis_of, digits, linear
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation, Shapes
from graphopt.lowering.operators.sorting import Kept, RadixSort, code_bits, code_of

ZERO = (Const(0),)
TOGETHER = 32
"""Boxes that another is compared with at once."""


def _product(shape: Sequence[Size]) -> Size:
    total: Size = 1
    for size in shape:
        total = total * size
    return total


def _shape(op: Operation, k: int) -> tuple[Size, ...]:
    """The shape of an input. NotLowered where its rank is not known."""
    fact = op.facts[k]
    if fact is None or fact.shape is None:
        raise NotLowered(f"the rank of input {k} of {op.op} is not known")
    return fact.shape


def _found(op: Operation, k: int) -> Tensor:
    """What the shape function left. NotLowered where sizes that the model states took its place."""
    if k >= len(op.found):
        raise NotLowered(f"how much {op.op} gives is stated, and not found out")
    return op.found[k]


# -- elements that are not zero, or for which a condition holds


def _positions(op: Operation, flags: Tensor, count: Size, at: Callable[[Expr], Expr]) -> tuple[Expr, Tensor]:
    """How many of so many numbers ``at`` holds for, and those numbers in order."""

    def build(total: Buffer, places: Buffer) -> Stmt:
        def step(i: Expr) -> Stmt:
            # no branch: what does not count is overwritten by the next
            put = Store(places, (total[0],), i)
            return seq(put, Store(total, ZERO, total[0] + select(at(i), Const(1), Const(0))))

        return seq(Store(total, ZERO, Const(0)), loop(op.size(count), step))

    outputs = [("total", (Const(1),), INDEX), ("places", (op.size(count + 1),), INDEX)]
    total, places = procedure(outputs, (flags,), build)
    return total[0], places


def _is_set(value: Expr) -> Expr:
    return value if value.dtype == "bool" else ~equal(widened(value), 0)


def non_zero_shapes(op: Operation) -> Shapes:
    """As many columns as there are elements that are not zero."""
    x, shape = op.input(0), _shape(op, 0)
    count = _product(shape)
    total, places = _positions(op, x, count, lambda i: _is_set(x[tuple(digits(i, x.shape))]))
    return Shapes([(Const(max(x.rank, 1)), total)], [(places, (count + 1,))])


def non_zero(op: Operation) -> Tensor:
    """The indices of each element that is not zero, an axis a row."""
    x, fact = op.input(0), op.facts[0]
    # where none can be zero, types say how many there are, and nothing is to be found out
    is_full = not op.found and fact is not None and (fact.low > 0 or fact.high < 0)
    places = None if is_full else _found(op, 0)

    def index(axis: Expr, k: Expr) -> Expr:
        indices = digits(k if places is None else places[k], x.shape) or [Const(0)]
        chosen = indices[-1]
        for number, one in reversed(list(enumerate(indices[:-1]))):
            chosen = select(equal(axis, number), one, chosen)
        return chosen

    return compute(op.shape(), index, INDEX, label(op))


def compress_shapes(op: Operation) -> Shapes:
    """As much of the axis, or of all elements, as the condition holds for."""
    x, condition, shape = op.input(0), op.input(1), _shape(op, 0)
    axis = None if op.attr("axis") is None else axis_of(op)
    count = least(_product(shape) if axis is None else shape[axis], _shape(op, 1)[0])
    total, places = _positions(op, condition, count, lambda i: condition[i])
    sizes = [total] if axis is None else [*x.shape[:axis], total, *x.shape[axis + 1 :]]
    return Shapes([sizes], [(places, (count + 1,))])


def compress(op: Operation) -> Tensor:
    """What the condition holds for, along an axis or of all elements."""
    x, places = op.input(0), _found(op, 0)
    axis = None if op.attr("axis") is None else axis_of(op)

    def element(*at: Expr) -> Expr:
        if axis is None:
            return x[tuple(digits(places[at[0]], x.shape))]
        return x[(*at[:axis], places[at[axis]], *at[axis + 1 :])]

    return compute(op.shape(), element, x.dtype, label(op))


# -- elements without those that are there already


def unique_shapes(op: Operation) -> Shapes:
    """As many as there are different ones; left for the op are where each stands first, how often, and which one each
    element is."""
    x, shape = op.input(0), _shape(op, 0)
    axis = None if op.attr("axis") is None else axis_of(op)
    size = _product(shape) if axis is None else shape[axis]
    rest = (Const(1),) if axis is None else tuple(s for k, s in enumerate(x.shape) if k != axis)
    count, columns = op.size(size), linear([s - 1 for s in rest], rest) + 1

    def value(i: Expr, column: Expr) -> Expr:
        if axis is None:
            return x[tuple(digits(i, x.shape))]
        others = digits(column, rest)
        return x[(*others[:axis], i, *others[axis:])]

    radix = RadixSort(count, code_bits(x.dtype))
    before, order, at = radix.numbers, radix.moved, Buffer("at", (Const(1),), INDEX, "local")
    renamed = Buffer("renamed", (count,), INDEX)

    def build(total: Buffer, first: Buffer, often: Buffer, which: Buffer) -> Stmt:
        def code(i: Expr, column: Expr) -> Expr:
            return code_of(value(i, column), False)

        def differs(i: Expr) -> Stmt:
            def compared(column: Expr) -> Stmt:
                apart = ~equal(code(before[i], column), code(before[i - 1], column))
                return Store(at, ZERO, select(apart, Const(1), at[0]))

            return seq(Store(at, ZERO, select(equal(i, 0), Const(1), Const(0))), If(i > 0, loop(columns, compared)))

        def counted(i: Expr) -> Stmt:
            new = seq(
                Store(first, (total[0],), before[i]),
                Store(often, (total[0],), Const(0)),
                Store(total, ZERO, total[0] + 1),
            )
            here = total[0] - 1
            more = seq(Store(often, (here,), often[here] + 1), Store(which, (before[i],), here))
            return seq(differs(i), If(equal(at[0], 1), new), more)

        ordered = seq(
            loop(count, lambda i: Store(before, (i,), i)),
            # sorting is stable, so that sorting by each column from the last on sorts by all
            loop(columns, lambda k: radix.by(lambda i: code(i, columns - 1 - k))),
            Store(total, ZERO, Const(0)),
            loop(count, counted),
        )
        if integer(op, "sorted"):
            return ordered

        def met(i: Expr) -> Stmt:
            group = which[i]
            return If(equal(first[group], i), seq(Store(renamed, (group,), at[0]), Store(at, ZERO, at[0] + 1)))

        def kept_aside(k: Expr) -> Stmt:
            return seq(Store(before, (renamed[k],), first[k]), Store(order, (renamed[k],), often[k]))

        def put_back(k: Expr) -> Stmt:
            return seq(Store(first, (k,), before[k]), Store(often, (k,), order[k]))

        in_order_of_appearance = seq(
            Store(at, ZERO, Const(0)),
            loop(count, met),
            loop(total[0], kept_aside),
            loop(total[0], put_back),
            loop(count, lambda i: Store(which, (i,), renamed[which[i]])),
        )
        return seq(ordered, in_order_of_appearance)

    vectors = [(name, (count,), INDEX) for name in ("first", "often", "which")]
    outputs = [("total", (Const(1),), INDEX), *vectors]
    total, first, often, which = procedure(outputs, (x,), build, (*radix.buffers, renamed, at))
    many = total[0]
    values = [many] if axis is None else [*x.shape[:axis], many, *x.shape[axis + 1 :]]
    sizes = [values, [many], [count], [many]]
    return Shapes(sizes[: len(op.outputs)], [(first, (size,)), (often, (size,)), (which, (size,))])


def unique(op: Operation) -> Sequence[Tensor]:
    """The different elements (or slices along an axis), where each stands first, which one each is, and how often."""
    x = op.input(0)
    axis = None if op.attr("axis") is None else axis_of(op)
    first, often, which = (_found(op, k) for k in range(3))

    def element(*at: Expr) -> Expr:
        if axis is None:
            return x[tuple(digits(first[at[0]], x.shape))]
        return x[(*at[:axis], first[at[axis]], *at[axis + 1 :])]

    values = compute(op.shape(), element, x.dtype, label(op))
    rest = [(first, "indices"), (which, "inverse"), (often, "counts")]
    given = rest[: len(op.outputs) - 1]
    return [values, *(compute(op.shape(k), lambda i, t=t: t[i], INDEX, name) for k, (t, name) in enumerate(given, 1))]


# -- boxes that do not overlap better ones


def suppression_shapes(op: Operation) -> Shapes:
    """As many boxes as are left, which are left for the op.

    Of each class in each image the best box by score is taken, again and again, if it overlaps none that was taken by
    more than the threshold. A heap has the best on top, so that those that nobody asks for are never sorted.
    """
    boxes, scores = op.input(0), op.input(1)
    images, classes, spatial = _shape(op, 1)
    limit = op.constant(2) if op.has(2) else None
    per_class = spatial if op.has(2) else 0
    if limit is not None:
        per_class = least(spatial, max(int(limit.reshape(-1)[0]), 0))
    most = images * classes * per_class
    count, room = op.size(spatial), op.size(per_class)
    wanted = minimum(maximum(cast(only(op, 2), INDEX), 0), count) if op.has(2) else Const(0)
    overlap = only(op, 3) if op.has(3) else const(0.0, "float32")
    nothing = const(0.0, boxes.dtype)

    dtype = scores.dtype
    keys, order = Buffer("keys", (count,), dtype), Buffer("order", (count,), INDEX)
    corners = Buffer("corners", (Const(5), room + TOGETHER), boxes.dtype)
    at, spare = Buffer("at", (Const(7),), INDEX, "local"), Buffer("spare", (Const(1),), dtype, "local")
    suppressed = Buffer("suppressed", (Const(1),), boxes.dtype, "local")

    def build(total: Buffer, found: Buffer) -> Stmt:
        kept = Kept(keys, order, lambda i: (i,), False, count)
        left, taken, is_free = at[4], at[5], at[6]

        def of_class(image: Expr, label: Expr) -> Stmt:
            def candidate(i: Expr) -> Stmt:
                # of equal scores the first comes first: it has the largest number; what does not count is overwritten
                wanted = scores[image, label, i] > only(op, 4) if op.has(4) else const(True, "bool")
                put = kept.put(left, scores[image, label, i], count - 1 - i)
                return seq(put, Store(at, (Const(4),), left + select(wanted, Const(1), Const(0))))

            def next_one(_: Expr) -> Stmt:
                box = count - 1 - order[0]
                take = seq(
                    Store(found, (total[0], Const(0)), image),
                    Store(found, (total[0], Const(1)), label),
                    Store(found, (total[0], Const(2)), box),
                    Store(total, ZERO, total[0] + 1),
                    Store(at, (Const(5),), taken + 1),
                )
                pop = seq(
                    Store(at, (Const(4),), left - 1),
                    kept.swap(Const(0), left, at, spare),
                    kept.sift(Const(0), left, at, spare),
                )

                def compare(first: Expr) -> Stmt:
                    var = fresh()
                    is_lost = (first + var < taken) & _overlaps(corners, taken, first + var, overlap)
                    more = maximum(suppressed[0], select(is_lost, const(1.0, suppressed.dtype), nothing))
                    told = Store(at, (Const(6),), select(equal(suppressed[0], nothing), Const(1), Const(0)))
                    lanes = For(var, Const(TOGETHER), Store(suppressed, ZERO, more), "vectorized")
                    return If(equal(is_free, 1), seq(Store(suppressed, ZERO, nothing), lanes, told))

                corner = _put_corners(op, boxes, image, box, corners, taken)
                blocks = (taken + (TOGETHER - 1)) // TOGETHER
                tried = seq(Store(at, (Const(6),), Const(1)), corner, loop(blocks, lambda k: compare(TOGETHER * k)))
                return If(taken < wanted, seq(tried, If(equal(is_free, 1), take), pop))

            return seq(
                Store(at, (Const(4),), Const(0)),
                Store(at, (Const(5),), Const(0)),
                loop(count, candidate),
                kept.measure(left, at),
                loop(left // 2, lambda k: kept.sift(left // 2 - 1 - k, left, at, spare)),
                loop(left, next_one),
            )

        every = loop(scores.shape[0], lambda b: loop(scores.shape[1], lambda c: of_class(b, c)))
        return seq(Store(total, ZERO, Const(0)), every)

    inputs = tuple(op.input(k) for k in range(5) if op.has(k))
    outputs = [("total", (Const(1),), INDEX), ("found", (op.size(most), Const(3)), INDEX)]
    total, found = procedure(outputs, inputs, build, (keys, order, corners, at, spare, suppressed))
    return Shapes([(total[0], Const(3))], [(found, (most, 3))])


def _put_corners(op: Operation, boxes: Tensor, image: Expr, box: Expr, corners: Buffer, slot: Expr) -> Stmt:
    """The least and largest coordinates of a box, and its area."""
    a, b, c, d = (boxes[image, box, k] for k in range(4))
    if integer(op, "center_point_box"):
        edges = [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0]
    else:
        edges = [minimum(a, c), minimum(b, d), maximum(a, c), maximum(b, d)]
    area = (corners[2, slot] - corners[0, slot]) * (corners[3, slot] - corners[1, slot])
    stores = [Store(corners, (Const(k), slot), edge) for k, edge in enumerate(edges)]
    return seq(*stores, Store(corners, (Const(4), slot), area))


def _overlaps(corners: Buffer, one: Expr, other: Expr, threshold: Expr) -> Expr:
    """Whether two boxes have more in common than the threshold, as a share of what either covers."""
    low = [maximum(corners[k, one], corners[k, other]) for k in (0, 1)]
    high = [minimum(corners[k, one], corners[k, other]) for k in (2, 3)]
    sides = [b - a for a, b in zip(low, high, strict=True)]
    common, areas = sides[0] * sides[1], (corners[4, one], corners[4, other])
    union = areas[0] + areas[1] - common
    zero = const(0.0, corners.dtype)
    have_area = (areas[0] > zero) & (areas[1] > zero) & (union > zero)
    return (sides[0] > zero) & (sides[1] > zero) & have_area & (common / union > threshold)


def suppression(op: Operation) -> Tensor:
    """Image, class and number of each box that is left."""
    found = _found(op, 0)
    return compute(op.shape(), lambda i, k: found[i, k], INDEX, label(op))


TABLE: LoweringTable = {
    "Compress": compress,
    "NonMaxSuppression": suppression,
    "NonZero": non_zero,
    "Unique": unique,
}
SHAPES: Mapping[str, Callable[[Operation], Shapes]] = {
    "Compress": compress_shapes,
    "NonMaxSuppression": suppression_shapes,
    "NonZero": non_zero_shapes,
    "Unique": unique_shapes,
}
"""The shape functions of these ops."""
