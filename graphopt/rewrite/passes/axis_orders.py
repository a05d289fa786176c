"""Axis orders of ops: how each op is spelled when its operands come with their axes in another order.

An *order* is a permutation: a value that is kept in the order ``p`` is kept as ``Transpose(value, perm=p)``. A *form*
says of one node which of its operands may come so, which orders it can take, in which order its result is then made,
and how the op has to be spelled for that: with its axes, pads, scales or sizes moved along. Blocks of axes that an op
takes together (the axes that a Reshape merges, those that a Gather puts in the place of one) stay together.

To let an op be computed in any order, write a function that gives its form, and name it in ``FORMS``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Node
from graphopt.ir.types import Size, TensorType

AxisOrder: TypeAlias = tuple[int, ...]
"""A permutation: axis ``i`` of what is kept is axis ``order[i]`` of the value."""

Blocks: TypeAlias = tuple[tuple[AxisOrder, AxisOrder], ...]
"""Axes of the operand, and the axes of the result that they become; either may be none."""

KNOWN = 1 << 14
"""Orders of which it is kept what becomes of them: the same few are asked for again and again."""


@dataclass(frozen=True)
class ReorderedCall:
    """A call that gives a node's result in another order: operands are inputs of the node by number, or constants."""

    op: str
    attrs: Attrs
    operands: tuple[int | Constant | None, ...]


@dataclass(frozen=True)
class AxisForm:
    """In which orders a node can be computed."""

    carried: tuple[int, ...]
    """The inputs that come in the order; all others stay as they are."""
    rank: int
    """Of the carried inputs: those of lower rank are broadcast to it."""
    blocks: Blocks
    spell: Callable[[AxisOrder, AxisOrder], ReorderedCall | None]
    """The call, given the order of the operands and that of the result."""
    pinned: AxisOrder = ()
    """Axes of the operands that have to stay where they are."""

    def orders(self, facts: Sequence[Fact | None], p: AxisOrder) -> tuple[AxisOrder | None, ...]:
        """For each carried input the order in which it comes, given that of the operands; None where as it is."""
        return tuple(operand_order(facts[i], p) for i in self.carried)

    def forward(self, p: AxisOrder) -> AxisOrder | None:
        """The order of the result, given that of the operands; None where the node cannot take it."""
        if len(p) != self.rank or any(p[k] != k for k in self.pinned):
            return None
        return _through(self.blocks, p)

    def backward(self, q: AxisOrder) -> AxisOrder | None:
        """The order that the operands need for this order of the result."""
        p = _through(_turned(self.blocks), q)
        return p if p is not None and self.forward(p) == q else None


def identity(rank: int) -> AxisOrder:
    """The order in which nothing is moved."""
    return tuple(range(rank))


def compose(p: AxisOrder, q: AxisOrder) -> AxisOrder:
    """What a value is kept in that is transposed by ``p``, and then by ``q``."""
    return tuple(p[k] for k in q)


def inverse(p: AxisOrder) -> AxisOrder:
    """The order in which a value must be kept for ``Transpose(perm=p)`` to give it back."""
    return tuple(p.index(k) for k in range(len(p)))


def turn(before: AxisOrder, order: AxisOrder) -> AxisOrder:
    """The permutation that takes what is kept in one order to another, of higher rank perhaps (with new axes first)."""
    new = len(order) - len(before)
    wide = (*range(new), *(k + new for k in before))
    return tuple(wide.index(k) for k in order)


def place(p: AxisOrder, k: int) -> int:
    """Where axis ``k`` of a value is (counted from the front or the end), in what is kept of it."""
    return p.index(k % len(p))


def moved_fact(fact: Fact, order: AxisOrder | None) -> Fact:
    """What is known of a value that is kept in an order, as far as types go."""
    if order is None or fact.shape is None:
        return fact
    shape = (1,) * (len(order) - len(fact.shape)) + fact.shape
    return Fact(TensorType(fact.dtype or "", tuple(shape[k] for k in order)), fact.is_const)


def operand_order(fact: Fact | None, p: AxisOrder) -> AxisOrder | None:
    """In which order an operand comes that is broadcast to the rank of an order; None where it may stay as it is."""
    shape = None if fact is None else fact.shape
    assert shape is not None
    new = len(p) - len(shape)
    if all(n == 1 for n in shape) and new >= 0 and (new or not shape):
        return None
    tail = p[new:]
    if new and min(tail) >= new:
        return tuple(k - new for k in tail)
    return p


def form_of(node: Node, facts: Sequence[Fact | None], results: Sequence[Fact]) -> AxisForm | None:
    """The form of a node, given what is known of its inputs and outputs; None where it takes no order but its own.

    Every form has the node as it is, which no spelling stands for: an Einsum that moves axes itself has none.
    """
    make = FORMS.get(node.op)
    if make is None or node.captures:
        return None
    form = make(_NodeView(node, facts, results))
    return form if form is None or form.forward(identity(form.rank)) == identity(results[0].rank or 0) else None


@lru_cache(KNOWN)
def _turned(blocks: Blocks) -> Blocks:
    """The blocks from right to left."""
    return tuple((right, left) for left, right in blocks)


@lru_cache(KNOWN)
def _through(blocks: Blocks, p: AxisOrder) -> AxisOrder | None:
    """The order of the axes on the right of blocks, given that of the axes on their left.

    Axes that become none may lie anywhere, between those of a block too.
    """
    gone = {k for left, right in blocks if not right for k in left}
    kept = tuple(k for k in p if k not in gone)
    placed: list[tuple[int, AxisOrder]] = []
    for left, right in blocks:
        if left and right:
            start = kept.index(left[0])
            if kept[start : start + len(left)] != left:
                return None
            placed.append((start, right))
    result = [k for _, right in sorted(placed) for k in right]
    for k in sorted(k for left, right in blocks if not left for k in right):
        result.insert(k, k)
    return tuple(result) if sorted(result) == list(range(len(result))) else None


class _NodeView:
    """A node as functions of ``FORMS`` see it."""

    def __init__(self, node: Node, facts: Sequence[Fact | None], results: Sequence[Fact]) -> None:
        self.node, self.op, self.attrs = node, node.op, node.attrs
        self.facts, self.results = facts, results

    def shape(self, index: int = 0) -> tuple[Size, ...] | None:
        """The shape of an input, where its rank is known."""
        fact = self.facts[index] if index < len(self.facts) else None
        return None if fact is None else fact.shape

    def rank(self, index: int = 0) -> int:
        """The rank of an input; -1 where it is not known."""
        shape = self.shape(index)
        return -1 if shape is None else len(shape)

    def numbers(self, index: int) -> tuple[Any, ...] | None:
        """The elements of a constant input, where it has few."""
        fact = self.facts[index] if index < len(self.facts) else None
        constant = None if fact is None else fact.constant
        return None if constant is None or constant.size > 64 else tuple(constant.array.reshape(-1).tolist())

    def has(self, index: int) -> bool:
        """Whether an input is there."""
        return index < len(self.facts) and self.facts[index] is not None

    def attribute(self, name: str) -> Any:
        """An attribute, or its default."""
        return ops.attribute(self.op, self.attrs, name, self.rank())

    def inputs(self, **changes: Constant | None) -> tuple[int | Constant | None, ...]:
        """All inputs, some (``_1=...``) replaced."""
        indices: list[int | Constant | None] = [i if f is not None else None for i, f in enumerate(self.facts)]
        for name, value in changes.items():
            index = int(name[1:])
            indices += [None] * (index + 1 - len(indices))
            indices[index] = value
        return tuple(indices)

    def spelled(self, attrs: Attrs | None = None, **changes: Constant | None) -> ReorderedCall:
        """The same op with some attributes and inputs changed."""
        return ReorderedCall(self.op, self.attrs if attrs is None else attrs, self.inputs(**changes))


def _integers(values: Sequence[Any], dtype: str = "int64") -> Constant:
    return Constant.of(np.array(values, dtype=dtype), dtype)


def _singles(rank: int) -> Blocks:
    return tuple(((k,), (k,)) for k in range(rank))


def _kept(
    site: _NodeView, carried: Sequence[int], spell: Callable[[AxisOrder], ReorderedCall | None], pinned: AxisOrder = ()
) -> AxisForm:
    """The form of an op whose result has the axes of its first operand."""
    rank = site.rank(carried[0])
    return AxisForm(tuple(carried), rank, _singles(rank), lambda p, q: spell(p), pinned)


# -- element by element


def _elementwise(site: _NodeView) -> AxisForm | None:
    """Ops on each element, of any number of operands that are broadcast to each other."""
    return _of_operands(site, range(len(site.facts)))


def _bounded(site: _NodeView) -> AxisForm | None:
    """Ops whose first operand has the elements; the others are numbers."""
    return _of_operands(site, [0])


def _of_operands(site: _NodeView, carried: Sequence[int]) -> AxisForm | None:
    ranks = [site.rank(i) for i in carried if site.has(i)]
    if -1 in ranks or not ranks:
        return None
    rank = max(ranks)
    inputs = tuple(i for i in carried if site.has(i))
    return AxisForm(inputs, rank, _singles(rank), lambda p, q: site.spelled())


def _quantize(site: _NodeView) -> AxisForm | None:
    """QuantizeLinear and DequantizeLinear: by tensor, or along an axis."""
    if site.attribute("block_size") or site.rank() < 0 or site.rank(1) not in (0, 1):
        return None
    by_axis = site.shape(1) not in ((), (1,))
    if not by_axis:
        return _kept(site, [0], lambda p: site.spelled())
    axis = site.attribute("axis")
    return _kept(site, [0], lambda p: site.spelled(site.attrs.with_(axis=place(p, axis))))


# -- along an axis


def _along(*carried: int) -> Callable[[_NodeView], AxisForm | None]:
    """Ops that go along the axis which an attribute names."""

    def form(site: _NodeView) -> AxisForm | None:
        if any(site.rank(i) < 0 or site.rank(i) != site.rank() for i in carried):
            return None
        axis = site.attribute("axis")
        axis = -1 if axis is None else axis
        return _kept(site, carried, lambda p: site.spelled(site.attrs.with_(axis=place(p, axis))))

    return form


def _concat(site: _NodeView) -> AxisForm | None:
    return _along(*range(len(site.facts)))(site)


def _split(site: _NodeView) -> AxisForm | None:
    return _along(0)(site)


def _cumsum(site: _NodeView) -> AxisForm | None:
    axis = site.numbers(1)
    if axis is None or site.rank() < 1:
        return None
    dtype = site.facts[1].dtype if site.facts[1] else None
    return _kept(site, [0], lambda p: site.spelled(_1=Constant.of(np.array(place(p, axis[0]), dtype or "int64"))))


def _arg(site: _NodeView) -> AxisForm | None:
    """ArgMax and ArgMin."""
    rank = site.rank()
    if rank < 1:
        return None
    k = site.attribute("axis") % rank
    keeps = bool(site.attribute("keepdims"))
    blocks = _singles(rank) if keeps else _without(rank, (k,))
    return AxisForm((0,), rank, blocks, lambda p, q: site.spelled(site.attrs.with_(axis=place(p, k))))


def _reduce(site: _NodeView) -> AxisForm | None:
    rank = site.rank()
    if rank < 1:
        return None
    axes = site.numbers(1) if site.has(1) else ()
    if axes is None:
        return None
    keeps = bool(site.attribute("keepdims"))
    if not axes:
        if site.attribute("noop_with_empty_axes"):
            return None
        blocks = _singles(rank) if keeps else tuple(((k,), ()) for k in range(rank))
        return AxisForm((0,), rank, blocks, lambda p, q: site.spelled())
    blocks = _singles(rank) if keeps else _without(rank, tuple(k % rank for k in axes))
    # a mean along the last axis is most likely part of a norm, and norms are known along the last axis only
    is_of_norm = site.op in ("ReduceMean", "ReduceSum") and axes in ((-1,), (rank - 1,))
    pinned = (rank - 1,) if is_of_norm else ()
    return AxisForm(
        (0,), rank, blocks, lambda p, q: site.spelled(_1=_integers(sorted(place(p, k) for k in axes))), pinned
    )


def _without(rank: int, axes: AxisOrder) -> Blocks:
    """Blocks of an op that drops axes."""
    kept = [k for k in range(rank) if k not in axes]
    return tuple(((k,), (kept.index(k),) if k in kept else ()) for k in range(rank))


def _gather(site: _NodeView) -> AxisForm | None:
    """The indices' axes come in the place of the one that is gathered along."""
    rank, new = site.rank(), site.rank(1)
    if rank < 1 or new < 0:
        return None
    axis = site.attribute("axis") % rank
    blocks = tuple(
        ((k,), (k,) if k < axis else tuple(range(axis, axis + new)) if k == axis else (k + new - 1,))
        for k in range(rank)
    )
    return AxisForm((0,), rank, blocks, lambda p, q: site.spelled(site.attrs.with_(axis=place(p, axis))))


# -- by axis


def _pad(site: _NodeView) -> AxisForm | None:
    rank, pads = site.rank(), site.numbers(1)
    if rank < 1 or pads is None:
        return None
    if site.has(3):
        axes = site.numbers(3)
        if axes is None:
            return None
        return _kept(site, [0], lambda p: site.spelled(_3=_integers([place(p, k) for k in axes])))
    if len(pads) != 2 * rank:
        return None
    return _kept(site, [0], lambda p: site.spelled(_1=_integers([*(pads[k] for k in p), *(pads[rank + k] for k in p)])))


def _slice(site: _NodeView) -> AxisForm | None:
    rank, starts = site.rank(), site.shape(1)
    if rank < 1 or starts is None or not isinstance(starts[0], int):
        return None
    axes = site.numbers(3) if site.has(3) else tuple(range(starts[0]))
    if axes is None:
        return None
    return _kept(site, [0], lambda p: site.spelled(_3=_integers([place(p, k) for k in axes])))


def _tile(site: _NodeView) -> AxisForm | None:
    times = site.numbers(1)
    if times is None or site.rank() != len(times):
        return None
    return _kept(site, [0], lambda p: site.spelled(_1=_integers([times[k] for k in p])))


def _expand(site: _NodeView) -> AxisForm | None:
    shape = site.numbers(1)
    if shape is None or not 0 < site.rank() <= len(shape):
        return None
    rank = len(shape)
    return AxisForm((0,), rank, _singles(rank), lambda p, q: site.spelled(_1=_integers([shape[k] for k in p])))


def _resize(site: _NodeView) -> AxisForm | None:
    """Every axis by itself. Runtimes interpolate along the last axes only, so that these must be the resized ones."""
    rank, out = site.rank(), site.results[0].shape
    index = 2 if site.has(2) and site.shape(2) != (0,) else 3
    by, shape = site.numbers(index), site.shape()
    if (
        by is None
        or shape is None
        or out is None
        or site.has(1)
        or site.attribute("keep_aspect_ratio_policy")
        not in (
            None,
            "stretch",
        )
    ):
        return None
    axes = site.attrs.get("axes")
    resized = [k for k in range(rank) if shape[k] != out[k]]
    nearest = site.attribute("mode") == "nearest"

    def spell(p: AxisOrder) -> ReorderedCall | None:
        if not nearest and sorted(place(p, k) for k in resized) != list(range(rank - len(resized), rank)):
            return None
        if isinstance(axes, tuple):
            return site.spelled(site.attrs.with_(axes=tuple(place(p, int(k)) for k in axes)))  # type: ignore[arg-type]
        dtype = "float32" if index == 2 else "int64"
        changed = _integers([by[k] for k in p], dtype)
        return site.spelled(_2=changed) if index == 2 else site.spelled(_3=changed)

    return _kept(site, [0], spell) if axes is not None or len(by) == rank else None


# -- views


def _squeeze(site: _NodeView) -> AxisForm | None:
    rank, shape = site.rank(), site.shape()
    if rank < 1 or shape is None:
        return None
    given = site.numbers(1) if site.has(1) else tuple(k for k, n in enumerate(shape) if n == 1)
    if given is None:
        return None
    axes = tuple(k % rank for k in given)
    spell = lambda p, q: site.spelled(_1=_integers(sorted(place(p, k) for k in axes)))  # noqa: E731
    return AxisForm((0,), rank, _without(rank, axes), spell)


def _unsqueeze(site: _NodeView) -> AxisForm | None:
    rank, given = site.rank(), site.numbers(1)
    if rank < 0 or given is None:
        return None
    new = {k % (rank + len(given)) for k in given}
    old = [k for k in range(rank + len(given)) if k not in new]
    blocks = tuple(((k,), (old[k],)) for k in range(rank)) + tuple(((), (k,)) for k in sorted(new))
    return AxisForm((0,), rank, blocks, lambda p, q: site.spelled(_1=_integers(sorted(place(q, k) for k in new))))


def _reshape(site: _NodeView) -> AxisForm | None:
    """Blocks of axes that are merged, split, or both."""
    before, after = site.shape(), site.results[0].shape
    blocks = None if before is None or after is None else factored(before, after)
    if blocks is None or before is None or after is None:
        return None

    def spell(p: AxisOrder, q: AxisOrder) -> ReorderedCall | None:
        wanted = target([after[k] for k in q])
        return None if wanted is None else ReorderedCall("Reshape", Attrs(), (0, _integers(wanted)))

    return AxisForm((0,), len(before), blocks, spell)


def target(shape: Sequence[Size]) -> list[int] | None:
    """What a Reshape to this shape is told; None where more than one size is unknown, or one may be 0."""
    sizes = [n if isinstance(n, int) else -1 for n in shape]
    return None if sizes.count(-1) > 1 or (0 in sizes) else sizes


def factored(before: Sequence[Size], after: Sequence[Size]) -> Blocks | None:
    """The smallest blocks of axes with equal products, in order; axes of size 1 come and go. None where sizes do not
    tell."""
    if 0 in before or 0 in after:
        return None
    left = [k for k, n in enumerate(before) if n != 1]
    right = [k for k, n in enumerate(after) if n != 1]
    blocks: list[tuple[AxisOrder, AxisOrder]] = [((k,), ()) for k, n in enumerate(before) if n == 1]
    blocks += [((), (k,)) for k, n in enumerate(after) if n == 1]
    while left and right:
        lengths = next(
            (
                (i, j)
                for total in range(2, len(left) + len(right) + 1)
                for i in range(1, min(total, len(left) + 1))
                if 1 <= (j := total - i) <= len(right)
                and _product(before[k] for k in left[:i]) == _product(after[k] for k in right[:j])
            ),
            None,
        )
        if lengths is None:
            return None
        i, j = lengths
        blocks.append((tuple(left[:i]), tuple(right[:j])))
        left, right = left[i:], right[j:]
    return None if left or right else tuple(blocks)


def _product(sizes: Any) -> Size:
    result: Size = 1
    for n in sizes:
        result = result * n
    return result


# -- images, normalizations, products


def _channels(site: _NodeView) -> AxisForm | None:
    """BatchNormalization, LRN and the like: the channels stay, all else may move; where the channels do not stay, a
    batch normalization is a product and a sum."""
    if site.rank() < 2 or len(site.results) != 1 or site.attribute("training_mode"):
        return None
    return _kept(site, [0], lambda p: site.spelled(), (1,))


def _instances(site: _NodeView) -> AxisForm | None:
    return _kept(site, [0], lambda p: site.spelled(), (0, 1)) if site.rank() > 2 else None


def _global_pool(site: _NodeView) -> AxisForm | None:
    """A pool over all positions is a reduction of whatever axes they are."""
    rank = site.rank()
    if rank < 3:
        return None

    def spell(p: AxisOrder) -> ReorderedCall:
        if p[:2] == (0, 1):
            return site.spelled()
        axes = _integers(sorted(place(p, k) for k in range(2, rank)))
        return ReorderedCall(_REDUCTION[site.op], Attrs(keepdims=1), (0, axes))

    # along the last axis alone it is a mean of a norm, as in _reduce
    return _kept(site, [0], spell, (2,) if rank == 3 else ())


_REDUCTION = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}


def _window(site: _NodeView) -> AxisForm | None:
    """Pools over windows: height and width may change places."""
    rank = site.rank()
    if rank < 4 or len(site.results) != 1 or site.attribute("storage_order"):
        return None

    def spell(p: AxisOrder) -> ReorderedCall:
        n = rank - 2
        attrs = site.attrs
        for name in ("kernel_shape", "strides", "dilations", "pads"):
            given = attrs.get(name)
            if isinstance(given, tuple):
                halves = [given[i : i + n] for i in range(0, len(given), n)]
                attrs = attrs.with_(**{name: tuple(half[k - 2] for half in halves for k in p[2:])})
        return site.spelled(attrs)

    return _kept(site, [0], spell, (0, 1))


def _last_axes(site: _NodeView) -> AxisForm | None:
    """LayerNormalization and RMSNormalization: the axes before those that are normalized may move, where the scale and
    the bias, which may have any shape that is broadcast, are the same along these."""
    rank = site.rank()
    if rank < 2 or len(site.results) != 1:
        return None
    first = site.attribute("axis") % rank
    for i in (i for i in (1, 2) if site.has(i)):
        shape = site.shape(i)
        if shape is None or any(n != 1 for n in shape[: max(len(shape) - (rank - first), 0)]):
            return None
    return _kept(site, [0], lambda p: site.spelled(), tuple(range(first, rank)))


def _trilu(site: _NodeView) -> AxisForm | None:
    rank = site.rank()
    return _kept(site, [0], lambda p: site.spelled(), (rank - 2, rank - 1)) if rank > 2 else None


def _matmul(site: _NodeView) -> AxisForm | None:
    """Axes of the batch move freely, and the rows with them where the right side is one matrix. (Rows and columns could
    be exchanged with the factors, but attention and shared inputs are known by their products as they are.)"""
    left, right = site.rank(0), site.rank(1)
    rank = max(left, right)
    if min(left, right) < 2:
        return None
    if right == 2:
        return AxisForm((0,), rank, _singles(rank), lambda p, q: site.spelled(), (rank - 1,))
    return AxisForm((0, 1), rank, _singles(rank), lambda p, q: site.spelled(), (rank - 2, rank - 1))


def _einsum(site: _NodeView) -> AxisForm | None:
    """The equation says where axes are."""
    equation = str(site.attribute("equation")).replace(" ", "")
    source, arrow, result = equation.partition("->")
    if len(site.facts) != 1 or not arrow or "." in equation or len(set(result)) != len(result):
        return None
    blocks = tuple(((k,), (result.index(c),) if c in result else ()) for k, c in enumerate(source))
    if len(set(source)) != len(source):
        return None

    def spell(p: AxisOrder, q: AxisOrder) -> ReorderedCall:
        letters = "".join(source[k] for k in p) + "->" + "".join(result[k] for k in q)
        return site.spelled(site.attrs.with_(equation=letters))

    return AxisForm((0,), len(source), blocks, spell)


_PER_OP: Mapping[Callable[[_NodeView], AxisForm | None], str] = {
    _bounded: "Clip CastLike",
    _quantize: "QuantizeLinear DequantizeLinear",
    _along(0): "Softmax LogSoftmax Hardmax LpNormalization TopK",
    _along(0, 1): "GatherElements",
    _along(0, 1, 2): "ScatterElements",
    _concat: "Concat",
    _split: "Split",
    _cumsum: "CumSum",
    _arg: "ArgMax ArgMin",
    _gather: "Gather",
    _pad: "Pad",
    _slice: "Slice",
    _tile: "Tile",
    _expand: "Expand",
    _resize: "Resize",
    _squeeze: "Squeeze",
    _unsqueeze: "Unsqueeze",
    _reshape: "Reshape Flatten",
    _channels: "BatchNormalization LRN",
    _instances: "InstanceNormalization GroupNormalization",
    _global_pool: "GlobalAveragePool GlobalMaxPool",
    _window: "MaxPool AveragePool LpPool",
    _last_axes: "LayerNormalization RMSNormalization SimplifiedLayerNormalization",
    _trilu: "Trilu",
    _matmul: "MatMul",
    _einsum: "Einsum",
}

FORMS: Mapping[str, Callable[[_NodeView], AxisForm | None]] = {
    **dict.fromkeys(ops.KINDS["elementwise"], _elementwise),
    **dict.fromkeys(ops.KINDS["reduce"], _reduce),
    **{op: make for make, names in _PER_OP.items() for op in names.split()},
}
"""By op, what gives the form of a node."""
