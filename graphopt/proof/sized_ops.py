"""Semantics of ops on tensors of symbolic sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.contrib_semantics import MEANINGS
from graphopt.ir.graph import Attr, Attrs
from graphopt.ir.infer_products import fused_axes
from graphopt.proof.sized_terms import (
    ONE,
    START,
    Extent,
    Impossible,
    Place,
    Ref,
    SizedAlgebra,
    Sizes,
    Tensor,
    indices_of,
)
from graphopt.proof.symbolic_ops import is_defined_otherwise
from graphopt.proof.symbols import Opaque, integer


class Evaluator:
    """What ops make of tensors of symbolic sizes."""

    def __init__(self, algebra: SizedAlgebra, sizes: Sizes) -> None:
        self.algebra, self.sizes = algebra, sizes

    def leaf(self, name: str, extents: Sequence[Extent]) -> Tensor:
        """An operand."""
        known = tuple(self.sizes.of(e) for e in extents)
        return Tensor(known, lambda places: self.algebra.placed(name, places))

    def constant(self, constant: Constant) -> Tensor:
        """A constant."""
        array = constant.array
        if array.size > 64:
            raise Opaque("a large constant")
        extents = tuple(((),) * n for n in array.shape)
        return Tensor(extents, lambda p: self.algebra.value(array[tuple(b for b, _ in p)].item()), constant)

    def apply(self, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n_outputs: int, opset: int) -> list[Tensor]:
        """The results of an op."""
        function = SIZED.get(op)
        if op in ops.KINDS["elementwise"] and not is_defined_otherwise(op):
            return [self._elementwise(op, attrs, inputs)]
        if op in ops.KINDS["reduce"]:
            return [self._reduce(op, attrs, inputs)]
        if function is not None:
            return function(self, op, attrs, inputs, n_outputs)
        if op in MEANINGS:
            return self._by_meaning(op, attrs, inputs, n_outputs)
        raise Opaque(op)

    def _by_meaning(self, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n_outputs: int) -> list[Tensor]:
        """What an op is in other ops, where it says so without looking at sizes."""

        def apply(inner: str, given: Sequence[Any], n_outputs: int = 1, **inner_attrs: Attr) -> tuple[Tensor, ...]:
            tensors = [x if x is None or isinstance(x, Tensor) else self.constant(Constant.of(x)) for x in given]
            return tuple(self.apply(inner, ops.canonical(inner, Attrs(inner_attrs)), tensors, n_outputs, ops.LATEST))

        try:
            outputs: Any = MEANINGS[op](apply, attrs, inputs)  # type: ignore[arg-type]
        except (TypeError, AttributeError, NotImplementedError, AssertionError, KeyError) as error:
            raise Opaque(op) from error
        if not all(isinstance(x, Tensor) for x in outputs[:n_outputs]):
            raise Opaque(op)
        return list(outputs[:n_outputs])

    def spread(self, shapes: Sequence[tuple[Extent, ...]]) -> tuple[Extent, ...]:
        """The shape that shapes are broadcast to."""
        rank = max(map(len, shapes), default=0)
        result: list[Extent] = [ONE] * rank
        for shape in shapes:
            for i, extent in enumerate(shape):
                at = rank - len(shape) + i
                result[at] = self.sizes.broadcast(result[at], extent)
        return tuple(map(self.sizes.of, result))

    def element(self, x: Tensor, places: Sequence[Place]) -> int:
        """The element of what is broadcast to a shape of these places."""
        own = places[len(places) - x.rank :]
        return x.at([START if self.sizes.of(e) == ONE else p for e, p in zip(x.extents, own, strict=True)])

    def _elementwise(self, op: str, attrs: Attrs, inputs: Sequence[Tensor | None]) -> Tensor:
        given = [x for x in inputs if x is not None]
        extents = self.spread([x.extents for x in given])
        key = (*(("absent", i) for i, x in enumerate(inputs) if x is None), *plain(attrs))

        def at(places: Sequence[Place]) -> int:
            return self.algebra.call(op, key, [self.element(x, places) for x in given])

        return Tensor(extents, at)

    def reduced(self, op: str, rows: Sequence[tuple[list[Any], int]]) -> int:
        """A reduction of all elements of some blocks."""
        algebra = self.algebra
        if algebra.is_real and op == "ReduceMean":
            count = algebra._sum([(algebra._product([]), 0)])
            for bound, _ in rows:
                part = algebra.value(1)
                for _, size in bound:
                    part = algebra._times(part, algebra.size(size))
                count = algebra._sum([(count, 1), (part, 1)])
            return algebra._times(self.reduced("ReduceSum", rows), algebra._inverse(count))
        if algebra.is_real and op in (
            "ReduceSum",
            "ReduceSumSquare",
            "ReduceL2",
            "ReduceLogSumExp",
            "ReduceLogSum",
            "ReduceL1",
        ):
            total = []
            for bound, body in rows:
                match op:
                    case "ReduceSumSquare" | "ReduceL2":
                        body = algebra._times(body, body)
                    case "ReduceLogSumExp":
                        body = algebra.call("Exp", (), [body])
                    case "ReduceL1":
                        body = algebra.call("Abs", (), [body])
                total.append((algebra.summed(bound, body) if bound else body, 1))
            number = algebra._sum(total)
            if op == "ReduceL2":
                return algebra.call("Sqrt", (), [number])
            return algebra.call("Log", (), [number]) if "Log" in op else number
        lone = [body for bound, body in rows if not bound]
        if len(rows) == 1 and lone and op in ("ReduceMax", "ReduceMin"):
            return lone[0]  # of one element
        parts = []
        for bound, body in rows:
            # a maximum of maxima is one
            number = algebra.over(op, bound, body) if bound else body
            parts.append(number)
        return algebra._atom((op, ("all",), tuple(sorted(parts))))

    def _reduce(self, op: str, attrs: Attrs, inputs: Sequence[Tensor | None]) -> Tensor:
        x = inputs[0]
        assert x is not None
        given = inputs[1] if len(inputs) > 1 else None
        if given is not None and given.constant is None:
            raise Opaque("axes that are computed")
        axes = [] if given is None or given.constant is None else [int(a) for a in given.constant.array.reshape(-1)]
        if any(not -x.rank <= a < x.rank for a in axes):
            raise Impossible
        axes = [a % x.rank for a in axes]
        if not axes:
            if attrs.get("noop_with_empty_axes"):
                return x
            axes = [*range(x.rank)]
        return self.along(op, x, axes, bool(attrs.get("keepdims", 1)))

    def along(self, op: str, x: Tensor, axes: Sequence[int], keep: bool) -> Tensor:
        """A reduction along axes."""
        extents = tuple(self.sizes.of(e) for e in x.extents)
        result = tuple(ONE if i in axes else e for i, e in enumerate(extents) if keep or i not in axes)

        def at(places: Sequence[Place]) -> int:
            outer = iter(places)
            fixed: list[Place | None] = []
            for i in range(x.rank):
                place = next(outer) if keep or i not in axes else None
                fixed.append(None if i in axes else place)
            rows = []
            inside = [i for i in range(x.rank) if i in axes]
            for inner, bound in indices_of([extents[i] for i in inside], self.algebra):
                whole = list(fixed)
                for i, place in zip(inside, inner, strict=True):
                    whole[i] = place
                rows.append((bound, x.at(whole)))  # type: ignore[arg-type]
            return self.reduced(op, rows)

        return Tensor(result, at)

    def products(self, rows: Sequence[tuple[list[Any], int, int]]) -> int:
        """A sum of products of two elements each."""
        algebra = self.algebra
        if algebra.is_real:
            return self.reduced("ReduceSum", [(bound, algebra._times(a, b)) for bound, a, b in rows])
        return self.reduced("dot", [(bound, algebra.call("Mul", (), [a, b])) for bound, a, b in rows])


def plain(attrs: Attrs) -> tuple[Hashable, ...]:
    """Attributes as a part of a term."""
    return tuple((name, repr(value)) for name, value in attrs.items())


Function = Callable[[Evaluator, str, Attrs, Sequence[Tensor | None], int], list[Tensor]]


def _axis(attrs: Attrs, rank: int, default: int, extra: int = 0) -> int:
    axis = integer(attrs, "axis", default)
    if not -(rank + extra) <= axis < rank + extra:
        raise Impossible
    return axis % (rank + extra) if rank + extra else 0


def _numbers(x: Tensor | None) -> list[int]:
    if x is None or x.constant is None:
        raise Opaque("what a computation tells")
    return [int(n) for n in x.constant.array.reshape(-1)]


def _identity(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    return [x for x in inputs[:1] if x is not None]


def _transpose(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    given: Any = attrs.get("perm")
    perm = [int(p) for p in given] if given is not None else [*range(x.rank)][::-1]
    if sorted(perm) != [*range(x.rank)]:
        raise Impossible
    return [_in_order(x, perm)]


def _squeeze(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    if len(inputs) < 2 or inputs[1] is None:
        raise Opaque("Squeeze of all axes")
    axes = _numbers(inputs[1])
    if any(not -x.rank <= a < x.rank for a in axes):
        raise Impossible
    axes = [a % x.rank for a in axes]
    if len(set(axes)) != len(axes):
        raise Impossible
    for a in axes:
        e.sizes.one(x.extents[a])
    kept = [i for i in range(x.rank) if i not in axes]

    def at(places: Sequence[Place]) -> int:
        inner = iter(places)
        return x.at([START if i in axes else next(inner) for i in range(x.rank)])

    return [Tensor(tuple(x.extents[i] for i in kept), at)]


def _unsqueeze(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    given = _numbers(inputs[1])
    rank = x.rank + len(given)
    if any(not -rank <= a < rank for a in given) or len({a % rank for a in given}) != len(given):
        raise Impossible
    axes = [a % rank for a in given]
    outer = iter(x.extents)
    extents = tuple(ONE if i in axes else next(outer) for i in range(rank))
    return [Tensor(extents, lambda places: x.at([p for i, p in enumerate(places) if i not in axes]))]


def _regrouped(e: Evaluator, x: Tensor, groups: Sequence[Extent]) -> Tensor:
    """The same elements in the same order, with other products of the same sizes as axes."""
    own = [e.sizes.of(extent) for extent in x.extents]
    if any(len(extent) != 1 for extent in own) or any(len(group) != 1 for group in groups):
        raise Opaque("a reshape of a sum of sizes")
    flat = [name for extent in own for name in extent[0]]
    if [name for group in groups for name in group[0]] != flat:
        raise Opaque("a reshape to other sizes")

    def at(places: Sequence[Place]) -> int:
        digits = iter(index for _, indices in places for index in indices)
        return x.at([(0, tuple(next(digits) for _ in extent[0])) for extent in own])

    return Tensor(tuple(groups), at)


def _flatten(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    axis = integer(attrs, "axis", 1)
    if not -x.rank <= axis <= x.rank:
        raise Impossible
    axis = axis + x.rank if axis < 0 else axis
    own = [e.sizes.of(extent) for extent in x.extents]
    if any(len(extent) != 1 for extent in own):
        raise Opaque("a reshape of a sum of sizes")
    halves = [tuple(name for extent in part for name in extent[0]) for part in (own[:axis], own[axis:])]
    return [_regrouped(e, x, [(half,) for half in halves])]


def _reshape(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    target = _numbers(inputs[1])
    if attrs.get("allowzero"):
        raise Opaque("allowzero")
    own = [e.sizes.of(extent) for extent in x.extents]
    if any(len(extent) != 1 for extent in own):
        raise Opaque("a reshape of a sum of sizes")
    if any(i >= x.rank for i, size in enumerate(target) if size == 0) or target.count(-1) > 1:
        raise Impossible
    groups: list[Extent | None] = []
    for i, size in enumerate(target):
        if size > 1:
            raise Opaque("a reshape to sizes that are numbers")
        groups.append(own[i] if size == 0 else ONE if size == 1 else None)
    flat = [name for extent in own for name in extent[0]]
    if None in groups:
        at = groups.index(None)
        before = sum(len(g[0]) for g in groups[:at] if g)
        after = sum(len(g[0]) for g in groups[at + 1 :] if g)
        if before + after > len(flat):
            raise Opaque("a reshape to other sizes")
        groups[at] = (tuple(flat[before : len(flat) - after]),)
    return [_regrouped(e, x, [g for g in groups if g is not None])]


def _concat(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    given = [x for x in inputs if x is not None]
    axis = _axis(attrs, given[0].rank, 0)
    if any(x.rank != given[0].rank for x in given) or not given[0].rank:
        raise Impossible
    extents = list(given[0].extents)
    for x in given[1:]:
        for i in range(x.rank):
            if i != axis:
                extents[i] = e.sizes.unify(extents[i], x.extents[i])
    parts = [e.sizes.of(x.extents[axis]) for x in given]
    extents[axis] = tuple(block for part in parts for block in part)

    def at(places: Sequence[Place]) -> int:
        block, indices = places[axis]
        for x, part in zip(given, parts, strict=True):
            if block < len(part):
                return x.at([(block, indices) if i == axis else p for i, p in enumerate(places)])
            block -= len(part)
        raise Opaque("a place beyond an axis")

    return [Tensor(tuple(extents), at)]


def _expand(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    target = _numbers(inputs[1])
    if any(size != 1 for size in target):
        raise Opaque("Expand to sizes that are numbers")
    rank = max(x.rank, len(target))
    extents = (*(ONE,) * (rank - x.rank), *x.extents)
    return [Tensor(extents, lambda places: x.at(places[rank - x.rank :]))]


def _gather(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x, i = inputs[:2]
    assert x is not None
    assert i is not None
    axis = _axis(attrs, x.rank, 0)
    if not x.rank:
        raise Impossible
    extent = e.sizes.of(x.extents[axis])
    if len(extent) != 1 or len(extent[0]) != 1:
        raise Opaque("Gather from a sum of sizes")

    def at(places: Sequence[Place]) -> int:
        picked = Ref(i.at(places[axis : axis + i.rank]))
        place: Place = (0, (("pick", picked),))
        return x.at([*places[:axis], place, *places[axis + i.rank :]])

    return [Tensor((*x.extents[:axis], *i.extents, *x.extents[axis + 1 :]), at)]


def _matmul(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    if not a.rank or not b.rank:
        raise Impossible
    inner = e.sizes.unify(a.extents[-1], b.extents[-2 if b.rank > 1 else 0])
    batch = e.spread([a.extents[:-2], b.extents[:-2]])
    rows = a.extents[-2:-1] if a.rank > 1 else ()
    columns = b.extents[-1:] if b.rank > 1 else ()

    def at(places: Sequence[Place]) -> int:
        where = places[: len(batch)]
        row = places[len(batch) : len(batch) + len(rows)]
        column = places[len(batch) + len(rows) :]

        def of(x: Tensor, core: Sequence[Place]) -> int:
            outer = where[len(where) - max(x.rank - 2, 0) :] if x.rank > 2 else []
            return x.at(
                [START if e.sizes.of(s) == ONE else p for s, p in zip(x.extents[:-2], outer, strict=True)] + [*core]
                if x.rank > 2
                else [*core]
            )

        found = []
        for (place,), bound in indices_of([e.sizes.of(inner)], e.algebra):
            found.append((bound, of(a, [*row, place]), of(b, [place, *column])))
        return e.products(found)

    return [Tensor((*batch, *rows, *columns), at)]


def _scaled(e: Evaluator, factor: Any, x: Tensor) -> Tensor:
    if factor in (None, 1.0):
        return x
    number = e.algebra.value(float(factor))
    return Tensor(x.extents, lambda places: e.algebra.call("Mul", (), [number, x.at(places)]))


def _in_order(x: Tensor, axes: Sequence[int]) -> Tensor:
    """The tensor with its axes in another order."""
    return Tensor(tuple(x.extents[k] for k in axes), lambda p: x.at([p[axes.index(k)] for k in range(x.rank)]))


def _gemm(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    if not e.algebra.is_real:
        raise Opaque("Gemm")
    a, b, c = (*inputs, None)[:3]
    assert a is not None
    assert b is not None
    if a.rank != 2 or b.rank != 2:
        raise Impossible
    whole = _fused_matmul(e, op, attrs, [a, b], 1)[0]
    if c is None:
        return [whole]
    added = e._elementwise("Add", Attrs(), [whole, _scaled(e, attrs.get("beta"), c)])
    for x, y in zip(added.extents, whole.extents, strict=True):
        e.sizes.unify(x, y)
    return [added]


def _fused_matmul(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    try:
        left, right = fused_axes((a.rank, b.rank), attrs.get)
    except ValueError:
        raise Impossible from None
    product = _matmul(e, op, Attrs(), [_in_order(a, left), _in_order(b, right)], 1)[0]
    return [_scaled(e, attrs.get("alpha"), product)]


def _softmax(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    axis = _axis(attrs, x.rank, -1)
    if not x.rank:
        raise Impossible
    algebra = e.algebra
    if algebra.is_real:
        total = e.along("ReduceLogSumExp", x, [axis], True)

        def at_real(places: Sequence[Place]) -> int:
            log = algebra.call("Sub", (), [x.at(places), e.element(total, places)])
            return algebra.call("Exp", (), [log]) if op == "Softmax" else log

        return [Tensor(x.extents, at_real)]
    row = e.along(f"row of {op}", x, [axis], True)
    return [Tensor(x.extents, lambda p: algebra._atom((op, (), (x.at(p), e.element(row, p)))))]


def _batch_norm(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x, scale, bias, mean, variance = inputs[:5]
    assert x is not None
    if attrs.get("training_mode"):
        raise Opaque("training")
    if x.rank < 2:
        raise Impossible
    for p in (scale, bias, mean, variance):
        assert p is not None
        if p.rank != 1:
            raise Impossible
        e.sizes.unify(p.extents[0], x.extents[1])
    given: Any = attrs.get("epsilon", 1e-5)
    algebra = e.algebra

    def at(places: Sequence[Place]) -> int:
        s, o, m, v = (p.at([places[1]]) for p in (scale, bias, mean, variance) if p is not None)
        root = algebra.call("Sqrt", (), [algebra.call("Add", (), [v, algebra.value(float(given))])])
        centred = algebra.call("Sub", (), [x.at(places), m])
        scaled = algebra.call("Div", (), [algebra.call("Mul", (), [centred, s]), root])
        return algebra.call("Add", (), [scaled, o])

    return [Tensor(x.extents, at)]


def _global_mean(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x = inputs[0]
    assert x is not None
    if x.rank < 3:
        raise Impossible
    kind = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}[op]
    return [e.along(kind, x, [*range(2, x.rank)], True)]


def _normalized(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    """Rows divided by the root of the mean of their squares, over the reals."""
    x, scale, bias = (*inputs, None, None)[:3]
    assert x is not None
    if not e.algebra.is_real or n > 1:
        raise Opaque(op)
    if not x.rank:
        raise Impossible
    axes = [*range(_axis(attrs, x.rank, -1), x.rank)]
    given: Any = attrs.get("epsilon", 1e-5)
    if op == "LayerNormalization":
        x = e._elementwise("Sub", Attrs(), [x, e.along("ReduceMean", x, axes, True)])
    squares = e.along("ReduceMean", e._elementwise("Mul", Attrs(), [x, x]), axes, True)
    epsilon = Tensor((), lambda _: e.algebra.value(float(given)))
    root = e._elementwise("Sqrt", Attrs(), [e._elementwise("Add", Attrs(), [squares, epsilon])])
    result = e._elementwise("Div", Attrs(), [x, root])
    for with_op, other in (("Mul", scale), ("Add", bias)):
        if other is not None:
            result = e._elementwise(with_op, Attrs(), [result, other])
            if result.rank != x.rank:
                raise Impossible
            for a, b in zip(result.extents, x.extents, strict=True):
                e.sizes.unify(a, b)
    return [result]


def _quantized(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    x, scale, zero = (*inputs, None)[:3]
    assert x is not None
    if attrs.get("block_size"):
        raise Opaque("blocks of scales")
    axis = integer(attrs, "axis", 1)
    given = [x]
    for parameter in (scale, zero):
        if parameter is None:
            continue
        if parameter.rank > 1:
            raise Impossible
        if parameter.rank and e.sizes.of(parameter.extents[0]) != ONE:
            if not -x.rank <= axis < x.rank:
                raise Impossible
            e.sizes.unify(parameter.extents[0], x.extents[axis])
            extents = tuple(parameter.extents[0] if i == axis % x.rank else ONE for i in range(x.rank))
            parameter = _on_axis(parameter, extents, axis % x.rank)
        given.append(parameter)
    rest = Attrs({name: a for name, a in attrs.items() if name != "axis"})
    return [e._elementwise(op, rest, given)]


def _on_axis(x: Tensor, extents: tuple[Extent, ...], axis: int) -> Tensor:
    """A vector along an axis of a shape."""
    return Tensor(extents, lambda places: x.at([places[axis]]))


def _conv(e: Evaluator, op: str, attrs: Attrs, inputs: Sequence[Tensor | None], n: int) -> list[Tensor]:
    """A convolution over the reals: bilinear in the image, of which pixels are picked or zeros put, and the kernel."""
    x, w, b = (*inputs, None, None)[:3]
    assert x is not None
    assert w is not None
    if not e.algebra.is_real:
        raise Opaque(op)
    if x.rank != w.rank or x.rank < 3:
        raise Impossible
    algebra = e.algebra
    group = integer(attrs, "group", 1)
    pads: Any = attrs.get("pads")
    is_padded = bool(pads and any(pads)) or attrs.get("auto_pad", "NOTSET") in ("SAME_UPPER", "SAME_LOWER")
    key = (*plain(Attrs({n: a for n, a in attrs.items() if n not in ("group", "kernel_shape")})),)
    inside = [e.sizes.of(extent) for extent in (x.extents[1], *x.extents[2:])]
    kernel = [e.sizes.of(extent) for extent in w.extents[1:]]
    if group == 1:
        e.sizes.unify(x.extents[1], w.extents[1])
    images, filters = e.sizes.of(x.extents[0]), e.sizes.of(w.extents[0])
    if any(len(extent) != 1 for extent in (*inside[1:], *kernel[1:])) or (group > 1 and len(inside[0]) != 1):
        raise Opaque("a convolution of sums of sizes")
    sizes = tuple(
        ((f"{op} {i} {key} {image} {window}",),)
        for i, (image, window) in enumerate(zip(inside[1:], kernel[1:], strict=True))
    )

    def at(places: Sequence[Place]) -> int:
        rows = []
        for inner, bound in indices_of([e.sizes.of(extent) for extent in w.extents[1:]], algebra):
            picked: list[Place] = []
            factor = algebra.value(1)
            for axis, (position, window, image) in enumerate(zip(places[2:], inner[1:], inside[1:], strict=True)):
                pixel = ("pixel", axis, key, position[1], window[1])
                picked.append((0, tuple(("of", pixel, i) for i in range(len(image[0])))))
                if is_padded:
                    factor = algebra._times(factor, algebra._atom(("factor", ("inside", pixel, image))))
            channel = inner[0]
            if group > 1:
                grouped = ("channel", group, e.sizes.of(w.extents[0]), places[1], inner[0])
                channel = (0, tuple(("of", grouped, i) for i in range(len(inside[0][0]))))
            element = algebra._times(factor, x.at([places[0], channel, *picked]))
            rows.append((bound, element, w.at([places[1], *inner])))
        return e.products(rows)

    whole = Tensor((images, filters, *sizes), at)
    if b is None:
        return [whole]
    if b.rank != 1:
        raise Impossible
    e.sizes.unify(b.extents[0], w.extents[0])
    extents = (ONE, e.sizes.of(w.extents[0]), *(ONE,) * (x.rank - 2))
    return [e._elementwise("Add", Attrs(), [whole, _on_axis(b, extents, 1)])]


SIZED: dict[str, Function] = {
    "Identity": _identity, "Transpose": _transpose, "Squeeze": _squeeze, "Unsqueeze": _unsqueeze, "Flatten": _flatten,
    "Reshape": _reshape, "Concat": _concat, "Expand": _expand, "Gather": _gather, "MatMul": _matmul, "Gemm": _gemm,
    "com.microsoft::FusedMatMul": _fused_matmul, "Softmax": _softmax, "LogSoftmax": _softmax,
    "LayerNormalization": _normalized, "RMSNormalization": _normalized, "QuantizeLinear": _quantized,
    "DequantizeLinear": _quantized, "Conv": _conv, "BatchNormalization": _batch_norm,
    "GlobalAveragePool": _global_mean, "GlobalMaxPool": _global_mean,
}  # fmt: skip
"""What ops make of tensors of symbolic sizes, beside those that act on each element and reductions."""
