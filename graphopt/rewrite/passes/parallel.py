"""Superword-level parallelism: branches that a concatenation or a sum joins, and that compute alike, are one branch.

Branches are packed from where they join: ops of one kind with the same attributes become one op whose tensors have an
axis more, in front, along which the branches lie; slices of one tensor become that tensor, constants are stacked, and
what all branches read is read once. Larsen and Amarasinghe (PLDI 2000) do so with the instructions of a loop; TVM's
CombineParallelOpBatch and CombineParallelBatchMatmul with single ops. Either all of the branches are packed or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.graph import CONSTANT, INPUT, NO_ATTRS, Attrs, Node, Value
from graphopt.ir.infer_shapes import axis_of
from graphopt.ir.types import Size, TensorType
from graphopt.rewrite.guards.comparison import Unknown
from graphopt.rewrite.guards.magnitudes import ConstantElements, addable
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass
from graphopt.rewrite.rule.rule import Soundness

LEAST = 4
"""How many branches are packed at least: packing costs up to four ops that move elements."""

NORMALIZED = frozenset({"Softmax", "LogSoftmax", "LayerNormalization", "RMSNormalization", "LpNormalization"})
"""Ops that normalize along their ``axis``, or from there on; -1 where none is given."""

_FIRST_SHAPED = frozenset({"Clip", "CastLike"})
"""Elementwise ops of which only the first input has the shape of what they make."""

Across: TypeAlias = Sequence[Value | None]
"""Corresponding inputs of the branches."""


class _NotAlikeError(Exception):
    """Branches that cannot be packed."""


def pack_concatenated(space: Workspace, node: Node) -> bool:
    """Pack the branches that a Concat joins."""
    branches = [v for v in node.inputs if v is not None]
    if not space.graph.is_used(node.id) or not _may_be_alike(space, branches):
        return False
    first, packing = space.graph.next_id, _Packing(space)
    try:
        result = packing.joined(branches, node)
    except (_NotAlikeError, ValueError):
        space.undo(first)
        return False
    space.replace(node.outputs[0], result, first)
    return True


def pack_added(space: Workspace, node: Node) -> bool:
    """Pack those branches that a sum joins, of two at a time or of all at once, which are of one kind."""
    value = node.outputs[0]
    users = space.graph.users(value)
    if not users and not space.graph.is_output(value):
        return False
    if len(users) == 1 and not space.graph.is_output(value):
        user = space.graph.node(users[0][0])
        if user.op in ("Add", "Sum") and _type(space, user.outputs[0]) == _type(space, value):
            return False  # a term of another sum
    terms, constants = _terms(space, node)
    if len(terms) < LEAST and len(constants) < LEAST:
        return False
    if not _are_mergeable(space, constants):
        return False
    kinds: dict[str, list[Value]] = {}
    for term in terms:
        kinds.setdefault(space.graph.node(term.node).op, []).append(term)
    first, packing, sums = space.graph.next_id, _Packing(space), list[Value]()
    for branches in kinds.values():
        mark = space.graph.next_id
        try:
            sums += [packing.summed(branches)] if _may_be_alike(space, branches) else branches
        except (_NotAlikeError, ValueError):
            space.undo(mark)
            sums += branches
    if not sums or (space.graph.next_id == first and len(constants) < LEAST):
        return False
    biases: dict[tuple[Size, ...], list[Value]] = {}
    for constant in constants:
        biases.setdefault(packing.shape(constant), []).append(constant)
    total = packing.added(sums)
    for group in biases.values():
        total = packing.call("Add", [total, packing.added(group)])
    space.replace(value, total, first)
    return True


def _may_be_alike(space: Workspace, branches: Sequence[Value]) -> bool:
    """Whether branches are enough, and end in one op, which is none that takes a slice: slices need no packing.

    What computes sizes stays as it is: its elements are known one by one.
    """
    if any(space.fact(v).elements is not None for v in branches):
        return False
    heads = {space.graph.node(v.node).op for v in branches}
    is_one = len(heads) == 1 and not heads & {CONSTANT, INPUT, "Slice", "Split", "Gather"}
    return is_one and LEAST <= len(branches) == len(set(branches))


def _terms(space: Workspace, node: Node) -> tuple[list[Value], list[Value]]:
    """What a tree of sums adds up, from left to right: what is of the sum's own type, and constants. Nothing, where it
    adds something else."""
    whole, terms, constants = _type(space, node.outputs[0]), list[Value](), list[Value]()
    waiting: list[Value | None] = list(reversed(node.inputs))
    while waiting and whole is not None:
        value = waiting.pop()
        if value is not None and space.fact(value).is_const:
            constants.append(value)
        elif value is None or _type(space, value) != whole:
            return [], []
        elif (maker := space.graph.node(value.node)).op in ("Add", "Sum") and space.uses(value) == 1:
            waiting += reversed(maker.inputs)
        else:
            terms.append(value)
    return terms, constants


def _are_mergeable(space: Workspace, values: Sequence[Value]) -> bool:
    """Whether constants may be added to each other instead of to something else, one after the other."""
    elements = [ConstantElements(space.constant(v)) for v in values]
    try:
        return addable(elements)
    except Unknown:  # whole numbers, whose sums are what they are in any order
        return not any("float" in (space.fact(v).dtype or "") for v in values)


def _type(space: Workspace, value: Value) -> TensorType | None:
    type = space.fact(value).type
    return type if isinstance(type, TensorType) and isinstance(type.shape, tuple) else None


@dataclass(frozen=True, slots=True)
class _Slice:
    """A part of a tensor along an axis; of one element without the axis, where it is not kept."""

    source: Value
    axis: int
    begin: int
    size: int
    is_kept: bool


class _Packing:
    """Tensors of branches, packed: one behind the other along a new first axis."""

    def __init__(self, space: Workspace) -> None:
        self.space = space
        self.made: dict[tuple[Value, ...], Value] = {}

    # -- where branches join

    def joined(self, branches: Sequence[Value], node: Node) -> Value:
        """The concatenation of branches."""
        packed, shape = self.packed(branches), self.shape(branches[0])
        axis = self._axis(node, len(shape))
        perm = (*range(1, axis + 1), 0, *range(axis + 1, len(shape) + 1))
        behind = packed if axis == 0 else self.call("Transpose", [packed], Attrs(perm=perm))
        if shape[axis] == 1:
            return self.call("Squeeze", [behind, self.vector([axis + 1])])
        size = len(branches) * self._size(branches[0], axis)
        return self._reshaped(behind, [*shape[:axis], size, *shape[axis + 1 :]], axis)

    def summed(self, branches: Sequence[Value]) -> Value:
        """The sum of branches: of sums and of products with weights it is that of their terms."""
        nodes = self._makers(branches)
        if nodes[0].op in ("Add", "Squeeze", "Unsqueeze", "MatMul") and len(set(branches)) == len(branches):
            first, *others = self._inputs(branches, [1] * len(branches))
            match nodes[0].op:
                case "Add" if all(len({self._shape_of(v) for v in values}) == 1 for values in (first, *others)):
                    shape = self.shape(branches[0])
                    if all(self._shape_of(v[0]) == shape or self._is_constant(v) for v in (first, *others)):
                        return self.call("Add", [self.summed(self._given(values)) for values in (first, *others)])
                case "Squeeze" | "Unsqueeze" if others:
                    return self.call(nodes[0].op, [self.summed(self._given(first)), self._shared(others[0])])
                case "MatMul" if all(self._is_constant([w]) and len(self._shape_of(w) or ()) == 2 for w in others[0]):
                    return self._contracted(self._given(first), self._given(others[0]))
        return self.call("ReduceSum", [self.packed(branches), self.vector([0])], Attrs(keepdims=0))

    def _contracted(self, rows: Sequence[Value], weights: Sequence[Value]) -> Value:
        """The sum of products with weights: one product of all rows, side by side, and all weights, one below another.

        Weights of the same rows are added.
        """
        groups: dict[Value, list[Value]] = {}
        for x, w in sorted(zip(rows, weights, strict=True)):  # slices of one tensor were often made in their order
            groups.setdefault(x, []).append(w)
        if len({self.shape(w) for w in weights}) > 1:
            raise _NotAlikeError
        added = [self.added(group) for group in groups.values()]
        if len(added) == 1:
            return self.call("MatMul", [rows[0], added[0]])
        below = self.call("Concat", added, Attrs(axis=0))
        packed, shape = self._packed_once(sorted(rows)), self.shape(rows[0])
        rank = len(shape)
        beside = self.call("Transpose", [packed], Attrs(perm=(*range(1, rank), 0, rank)))
        return self.call("MatMul", [self._reshaped(beside, [*shape[:-1], self.shape(below)[0]], rank - 1), below])

    def added(self, values: Sequence[Value]) -> Value:
        """The sum of values that are not packed."""
        return self.call("Add" if len(values) == 2 else "Sum", values) if len(values) > 1 else values[0]

    # -- branches

    def packed(self, values: Across) -> Value:
        """Corresponding values of the branches, packed. What several branches read is packed once, and gathered."""
        given = self._given(values)
        kinds = list(dict.fromkeys(given))
        packed = self._packed_once(given)
        if len(kinds) == len(given):
            return packed
        return self.call("Gather", [packed, self.vector([kinds.index(v) for v in given])], Attrs(axis=0))

    def _packed_once(self, values: Sequence[Value]) -> Value:
        """Values, packed, in the order in which they come first."""
        counts = Counter(values)
        key = tuple(counts)
        if key not in self.made:
            self.made[key] = self._pack(key, list(counts.values()))
        return self.made[key]

    def _pack(self, values: Sequence[Value], uses: Sequence[int]) -> Value:
        if len({_type(self.space, v) for v in values}) > 1:
            raise _NotAlikeError
        nodes = self._makers(values)
        if nodes[0].op == CONSTANT:
            return self._stacked(values)
        slices = [self._slice(v, node) for v, node in zip(values, nodes, strict=True)]
        parts = [part for part in slices if part is not None]
        if len(parts) == len(values) and len({(p.source, p.axis, p.size, p.is_kept) for p in parts}) == 1:
            return self._sliced(parts)
        return self._op(nodes[0], self._inputs(values, uses))

    def _makers(self, values: Iterable[Value]) -> list[Node]:
        return [self.space.graph.node(v.node) for v in values]

    def _inputs(self, values: Sequence[Value], uses: Sequence[int]) -> list[Across]:
        """The inputs of the ops that make some values, which are of one kind and read so often, all by the branches."""
        nodes = self._makers(values)
        one = nodes[0]
        head = one.op, ops.canonical(one.op, one.attrs), len(one.inputs), 1
        if any((n.op, ops.canonical(n.op, n.attrs), len(n.inputs), n.n_outputs) != head for n in nodes):
            raise _NotAlikeError
        if one.bodies or not ops.is_pure(one.op, one.attrs):
            raise _NotAlikeError
        if any(self.space.uses(v) != n for v, n in zip(values, uses, strict=True)):
            raise _NotAlikeError
        return [[n.inputs[i] for n in nodes] for i in range(len(one.inputs))]

    def _op(self, node: Node, inputs: Sequence[Across]) -> Value:
        """What ops of one kind make, packed."""
        rank, op, attrs = len(self.shape(node.outputs[0])), node.op, node.attrs
        if op in ops.KINDS["elementwise"] and op not in _FIRST_SHAPED:
            return self.call(op, [self._operand(values, rank) for values in inputs], attrs)
        match op:
            case "MatMul":
                return self._product(inputs[0], inputs[1], rank)
            case "Gemm":
                return self._linear(node, inputs, rank)
        if len(set(inputs[0])) == 1:
            raise _NotAlikeError
        first, given = self.packed(inputs[0]), self._shape_of(inputs[0][0])
        if given is None:
            raise _NotAlikeError
        match op:
            case "Clip" | "CastLike":
                return self.call(op, [first, *map(self._shared, inputs[1:])], attrs)
            case "Squeeze" | "Unsqueeze" if len(inputs) > 1:
                return self.call(op, [first, self._axes(inputs[1], len(given) if op == "Squeeze" else rank)])
            case "Transpose":
                perm = attrs.get("perm")
                order = [p for p in perm if isinstance(p, int)] if isinstance(perm, tuple) else range(rank)[::-1]
                return self.call(op, [first], Attrs(perm=(0, *(p + 1 for p in order))))
            case "Reshape" if not attrs.get("allowzero", 0):
                target = self.vector([len(inputs[0]), *self._numbers(self._shared(inputs[1]))])
                return self.call(op, [first, target], attrs)
            case _ if op in NORMALIZED:
                axis = attrs.get("axis", -1)
                assert isinstance(axis, int)
                attrs = attrs.with_(axis=axis if axis < 0 else axis + 1)
                return self.call(op, [first, *map(self._shared, inputs[1:])], attrs)
            case _ if op in ops.KINDS["reduce"] and len(inputs) > 1:
                return self.call(op, [first, self._axes(inputs[1], len(given))], attrs)
        raise _NotAlikeError

    def _product(self, first: Across, second: Across, rank: int, *, is_turned: bool = False) -> Value:
        """Products, as one of matrices in batches; the second factor may be shared, and may be transposed.

        Products of one matrix by several are better one product by all of their columns.
        """
        if min(len(self._shape_of(v) or ()) for v in (first[0], second[0])) < 2 or len(set(first)) == 1:
            raise _NotAlikeError
        factors = [self._operand(first, rank), self._operand(second, rank)]
        if is_turned:
            factors[1] = self.call("Transpose", [factors[1]], Attrs(perm=(0, 2, 1)))
        return self.call("MatMul", factors)

    def _linear(self, node: Node, inputs: Sequence[Across], rank: int) -> Value:
        """Linear layers, each with weights of its own, as products in batches and sums."""
        attrs = ops.canonical(node.op, node.attrs)
        if attrs.keys() - {"transB"} or len(set(inputs[1])) == 1:
            raise _NotAlikeError
        product = self._product(inputs[0], inputs[1], rank, is_turned=bool(attrs.get("transB", 0)))
        return product if len(inputs) < 3 else self.call("Add", [product, self._operand(inputs[2], rank)])

    def _operand(self, values: Across, rank: int) -> Value | None:
        """An input of an op that broadcasts to some rank: packed, with as many axes, or what all branches share."""
        if len(set(values)) == 1:
            return values[0]
        packed, missing = self.packed(values), rank - len(self.shape(values[0]))
        return self.call("Unsqueeze", [packed, self.vector(range(1, 1 + missing))]) if missing else packed

    def _shared(self, values: Across) -> Value | None:
        """An input that is the same in all branches: one value, or equal constants."""
        if len(set(values)) > 1:
            constants = [None if v is None else self.space.constant(v) for v in values]
            if None in constants or len({c and (c.dtype, c.shape, c.digest) for c in constants}) > 1:
                raise _NotAlikeError
        return values[0]

    def _axes(self, values: Across, rank: int) -> Value:
        """The axes of tensors of some rank, where those of the packed tensor are."""
        return self.vector([1 + axis_of(axis, rank) for axis in self._numbers(self._shared(values))])

    # -- where branches begin

    def _stacked(self, values: Sequence[Value]) -> Value:
        constants = [c for v in values if (c := self.space.constant(v)) is not None]
        if len(constants) < len(values):
            raise _NotAlikeError
        return self.space.make_constant(Constant.of(np.stack([c.array for c in constants]), constants[0].dtype))

    def _sliced(self, parts: Sequence[_Slice]) -> Value:
        """Slices of one tensor, of one size and a whole number of sizes apart."""
        source, axis, size = parts[0].source, parts[0].axis, parts[0].size
        shape, begin = self.shape(source), min(part.begin for part in parts)
        places = [(part.begin - begin) // size for part in parts]
        number = max(places) + 1
        if any((part.begin - begin) % size for part in parts) or number > 2 * len(parts):
            raise _NotAlikeError
        if begin or shape[axis] != number * size:
            bounds = [self.vector([n]) for n in (begin, begin + number * size, axis)]
            source = self.call("Slice", [source, *bounds])
        rank = len(shape)
        if parts[0].is_kept:
            rank += 1
            if size == 1:
                source = self.call("Unsqueeze", [source, self.vector([axis + 1])])
            else:
                source = self._reshaped(source, [*shape[:axis], number, size, *shape[axis + 1 :]], axis)
        if axis:
            perm = (axis, *(a for a in range(rank) if a != axis))
            source = self.call("Transpose", [source], Attrs(perm=perm))
        if places == list(range(number)):
            return source
        return self.call("Gather", [source, self.vector(places)], Attrs(axis=0))

    def _slice(self, value: Value, node: Node) -> _Slice | None:
        """Which slice a value is of another, if it is one of a known size along one axis."""
        source = node.inputs[0] if node.inputs else None
        try:
            shape = self.shape(source)
            assert source is not None
            match node.op:
                case "Gather" if self.shape(node.inputs[1]) == ():
                    axis = self._axis(node, len(shape))
                    size, (index,) = shape[axis], self._numbers(node.inputs[1])
                    if isinstance(size, int) and -size <= index < size:
                        return _Slice(source, axis, index % size, 1, False)
                case "Split":
                    axis = self._axis(node, len(shape))
                    sizes = [self._size(v, axis) for v in node.outputs]
                    if sizes[value.port]:
                        return _Slice(source, axis, sum(sizes[: value.port]), sizes[value.port], True)
                case "Slice" if len(node.inputs) > 3:
                    (axis,), (begin,) = self._numbers(node.inputs[3]), self._numbers(node.inputs[1])
                    axis = axis_of(axis, len(shape))
                    whole, size = shape[axis], self._size(value, axis)
                    is_dense = len(node.inputs) < 5 or self._numbers(node.inputs[4]) == [1]
                    if begin < 0 and isinstance(whole, int):
                        begin += whole
                    if is_dense and size and begin >= 0:
                        return _Slice(source, axis, begin, size, True)
        except (_NotAlikeError, ValueError):
            pass
        return None

    # -- asking and building

    def shape(self, value: Value | None) -> tuple[Size, ...]:
        """The axes of a tensor."""
        shape = self._shape_of(value)
        if shape is None:
            raise _NotAlikeError
        return shape

    def _shape_of(self, value: Value | None) -> tuple[Size, ...] | None:
        type = None if value is None else _type(self.space, value)
        return type.shape if type is not None and isinstance(type.shape, tuple) else None

    def _size(self, value: Value, axis: int) -> int:
        if not isinstance(size := self.shape(value)[axis], int):
            raise _NotAlikeError
        return size

    def _axis(self, node: Node, rank: int) -> int:
        axis = node.attrs.get("axis", 0)
        assert isinstance(axis, int)
        return axis_of(axis, rank)

    def _is_constant(self, values: Across) -> bool:
        return all(v is not None and self.space.fact(v).is_const for v in values)

    def _given(self, values: Across) -> list[Value]:
        given = [v for v in values if v is not None]
        if len(given) < len(values):
            raise _NotAlikeError
        return given

    def _numbers(self, value: Value | None) -> list[int]:
        """The elements of a constant of whole numbers."""
        constant = None if value is None else self.space.constant(value)
        if constant is None or constant.array.dtype.kind != "i":
            raise _NotAlikeError
        return [int(n) for n in constant.array.reshape(-1)]

    def _reshaped(self, value: Value, shape: Sequence[Size], same: int) -> Value:
        """A tensor in another shape, whose axes are its own up to one; of the others one may be open, if all of those
        are known: where it is 0, nothing else would say so."""
        target = [0 if i < same else size if isinstance(size, int) else -1 for i, size in enumerate(shape)]
        n_open = sum(not isinstance(size, int) for size in shape)
        if 0 in target[same:] or (-1 in target and (n_open > 1 or 0 in shape)):
            raise _NotAlikeError
        return self.call("Reshape", [value, self.vector(target)])

    def vector(self, numbers: Iterable[int]) -> Value:
        """A constant of whole numbers."""
        return self.space.make_constant(Constant.of(np.array(list(numbers), np.int64)))

    def call(self, op: str, inputs: Sequence[Value | None], attrs: Attrs = NO_ATTRS) -> Value:
        """What a new node makes."""
        return self.space.add(op, inputs, attrs)[0]


_MADE = frozenset({"Concat", "Gather", "MatMul", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})
PACKED = (
    NativePass(
        "parallel-branches",
        "branches that compute alike and are concatenated are computed at once",
        "J6",
        Soundness.REALS,
        pack_concatenated,
        frozenset({"Concat"}),
        makes=_MADE,
    ),
    NativePass(
        "parallel-terms",
        "branches that compute alike and are summed are computed at once",
        "J6",
        Soundness.REALS,
        pack_added,
        frozenset({"Add", "Sum"}),
        makes=_MADE | {"Add", "ReduceSum", "Sum"},
    ),
)
