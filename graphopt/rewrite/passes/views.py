"""Views: chains of reshapes and transposes in a normal form: one reshape, one transpose, one reshape, or less.

Every axis of the tensor at the start of a chain is a product of *atoms*, as small as the chain needs them. Reshapes
group atoms, transposes order them; DepthToSpace and SpaceToDepth do both. What is left of a chain is the order
in which the atoms end up: atoms that stay together are one axis, and where no order changes a reshape is all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from graphopt.frozen import dataclass
from graphopt.ir.constants import Constant
from graphopt.ir.graph import Attrs, Node, Value
from graphopt.ir.types import Size
from graphopt.rewrite.extract.cost import UNKNOWN, scatters
from graphopt.rewrite.match.workspace import Workspace
from graphopt.rewrite.passes.native import NativePass

VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Ops that group the atoms in another way and leave their order."""
MOVES = frozenset({"Transpose", "DepthToSpace", "SpaceToDepth"})
"""Ops that order the atoms in another way."""
LONGEST = 16
"""How many ops of a chain are looked at."""


@dataclass(frozen=True)
class AxisFactor:
    """A factor of an axis: ``size`` steps of ``stride`` elements of that axis each. Of an open axis: all of it."""

    axis: int
    stride: int
    size: Size


FactoredAxes = list[tuple[AxisFactor, ...]]


class _NoOrderError(Exception):
    """A chain that cannot be written as an order of atoms."""


def normalize_view(space: Workspace, node: Node) -> bool:
    """Write the chain that ends in a node as at most one reshape, one transpose and one reshape, where that is less."""
    if not space.graph.is_used(node.id) or _goes_on(space, node):
        return False
    chain = _chain(space, node)
    return any(_shorten(space, chain[i:]) for i in range(len(chain) - 1))


def _goes_on(space: Workspace, node: Node) -> bool:
    """Whether the chain's end is further down."""
    value = Value(node.id)
    users = space.graph.users(value)
    if len(users) != 1 or space.graph.is_output(value):
        return False
    user, index = users[0]
    return index == 0 and space.graph.node(user).op in VIEWS | MOVES


def _chain(space: Workspace, node: Node) -> list[Node]:
    """The nodes that end in this one, each read by the next alone."""
    chain = [node]
    while len(chain) < LONGEST:
        value = chain[0].inputs[0]
        maker = None if value is None else space.graph.node(value.node)
        if maker is None or maker.op not in VIEWS | MOVES or space.uses(Value(maker.id)) != 1:
            break
        chain.insert(0, maker)
    return chain


def _shorten(space: Workspace, chain: Sequence[Node]) -> bool:
    source = chain[0].inputs[0]
    end = Value(chain[-1].id)
    start, goal = None if source is None else space.fact(source).shape, space.fact(end).shape
    if source is None or start is None or goal is None:
        return False
    try:
        axes: FactoredAxes = [() if s == 1 else (AxisFactor(i, 1, s),) for i, s in enumerate(start)]
        for node in chain:
            axes = _apply(space, node, axes)
        plan = _plan([a for axis in axes for a in axis], start, goal)
    except _NoOrderError:
        return False
    if _weight([n.op for n in chain]) <= _weight([op for op, _ in plan]):
        return False
    if _scatters(plan, start) and not any(n.op == "Transpose" and _scatters_at(space, n) for n in chain):
        return False  # runtimes do two that move one axis each faster than one that moves all
    value, first = source, space.graph.next_id
    for op, numbers in plan:
        if op == "Transpose":
            value = space.add(op, (value,), Attrs(perm=numbers))[0]
        else:
            target = space.make_constant(Constant.of(np.array(numbers, dtype=np.int64)))
            value = space.add(op, (value, target))[0]
    if space.fact(value).type != space.fact(end).type:
        space.undo(first)
        return False
    space.replace(end, value)
    return True


def _scatters(plan: Sequence[tuple[str, tuple[int, ...]]], start: tuple[Size, ...]) -> bool:
    """Whether the transpose of a plan moves elements far apart from each other."""
    shape = _numbers(start)
    for op, numbers in plan:
        if op == "Transpose":
            return scatters(numbers, shape)
        shape = tuple(abs(n) for n in numbers)
    return False


def _scatters_at(space: Workspace, node: Node) -> bool:
    source = node.inputs[0]
    shape = None if source is None else space.fact(source).shape
    return shape is not None and scatters(node.attrs.get("perm"), _numbers(shape))


def _numbers(shape: tuple[Size, ...]) -> tuple[int, ...]:
    return tuple(n if isinstance(n, int) else UNKNOWN for n in shape)


def _weight(ops: Sequence[str]) -> tuple[int, int]:
    """How much a chain does: first what moves in memory, then how many ops there are."""
    return sum(op in MOVES for op in ops), len(ops)


# -- what each op does to the atoms


def _apply(space: Workspace, node: Node, axes: FactoredAxes) -> FactoredAxes:
    shape = space.fact(Value(node.id)).shape
    if shape is None:
        raise _NoOrderError
    if node.op in VIEWS:
        return _grouped([a for axis in axes for a in axis], shape)
    if node.op == "Transpose":
        perm = node.attrs.get("perm", tuple(reversed(range(len(axes)))))
        return [axes[i] for i in perm]  # type: ignore[union-attr, index]
    return _blocks(node, axes, shape)


def _blocks(node: Node, axes: FactoredAxes, shape: tuple[Size, ...]) -> FactoredAxes:
    """DepthToSpace and SpaceToDepth, as the reshapes and transposes that define them."""
    n, c, h, w = _sizes(axes)
    b = node.attrs["blocksize"]
    if not isinstance(b, int) or not all(isinstance(s, int) for s in (c, h, w)):
        raise _NoOrderError
    flat = [a for axis in axes for a in axis]
    if node.op == "SpaceToDepth":
        inner, perm = _grouped(flat, (n, c, h // b, b, w // b, b)), (0, 3, 5, 1, 2, 4)
    elif node.attrs.get("mode", "DCR") == "DCR":
        inner, perm = _grouped(flat, (n, b, b, c // (b * b), h, w)), (0, 3, 4, 1, 5, 2)
    else:
        inner, perm = _grouped(flat, (n, c // (b * b), b, b, h, w)), (0, 1, 4, 2, 5, 3)
    return _grouped([a for i in perm for a in inner[i]], shape)


def _sizes(axes: FactoredAxes) -> list[Size]:
    sizes: list[Size] = []
    for axis in axes:
        size: Size = 1
        for atom in axis:
            size = size * atom.size
        sizes.append(size)
    return sizes


def _grouped(atoms: Sequence[AxisFactor], shape: Sequence[Size]) -> FactoredAxes:
    """The atoms in axes of these sizes; atoms that reach over the end of an axis are split."""
    waiting = list(atoms)
    axes: FactoredAxes = []
    for size in shape:
        group: list[AxisFactor] = []
        left = size
        while left != 1:
            if not waiting:
                raise _NoOrderError
            atom = waiting.pop(0)
            if atom.size == left:
                left = 1
            elif not isinstance(left, int) or not isinstance(atom.size, int) or 0 in (left, atom.size):
                raise _NoOrderError
            elif left % atom.size == 0:
                left //= atom.size
            elif atom.size % left == 0:
                rest = atom.size // left
                waiting.insert(0, AxisFactor(atom.axis, atom.stride, rest))
                atom = AxisFactor(atom.axis, atom.stride * rest, left)
                left = 1
            else:
                raise _NoOrderError
            group.append(atom)
        axes.append(tuple(group))
    if waiting:
        raise _NoOrderError
    return axes


# -- what is left to do


def _plan(
    atoms: Sequence[AxisFactor], start: tuple[Size, ...], goal: tuple[Size, ...]
) -> list[tuple[str, tuple[int, ...]]]:
    """The ops that bring the atoms into this order and then into that shape."""
    before = sorted(atoms, key=lambda a: (a.axis, -a.stride))
    places = [before.index(a) for a in atoms]
    runs: list[list[int]] = []
    for position in places:
        if runs and position == runs[-1][-1] + 1:
            runs[-1].append(position)
        else:
            runs.append([position])
    if len(runs) <= 1:
        return [] if start == goal else [("Reshape", _target(goal))]
    plan: list[tuple[str, tuple[int, ...]]] = []
    if all(_together(before, run) for run in runs):
        perm = _whole_axes(start, before, runs, goal)
        moved = tuple(start[i] for i in perm)
    else:
        order = sorted(runs)
        middle = tuple(_size([before[i] for i in run]) for run in order)
        plan.append(("Reshape", _target(middle)))
        perm = tuple(order.index(run) for run in runs)
        moved = tuple(middle[i] for i in perm)
    plan.append(("Transpose", perm))
    return plan if moved == goal else [*plan, ("Reshape", _target(goal))]


def _together(before: Sequence[AxisFactor], run: list[int]) -> bool:
    """Whether a run of atoms is whole axes of the tensor at the start."""
    axes = {before[i].axis for i in run}
    return all(before[i].axis not in axes or i in run for i in range(len(before)))


def _whole_axes(
    start: tuple[Size, ...], before: Sequence[AxisFactor], runs: list[list[int]], goal: tuple[Size, ...]
) -> tuple[int, ...]:
    """The order of the axes, where those of size 1, which may stand anywhere, stand where the goal has them."""
    long = list(dict.fromkeys(before[i].axis for run in runs for i in run))
    short = [i for i, s in enumerate(start) if s == 1]
    perm: list[int] = []
    for size in goal:
        if size == 1 and short:
            perm.append(short.pop(0))
        elif long:
            perm.append(long.pop(0))
    return (*perm, *long, *short)


def _size(atoms: Sequence[AxisFactor]) -> Size:
    return _sizes([tuple(atoms)])[0]


def _target(shape: Sequence[Size]) -> tuple[int, ...]:
    """The second input of a Reshape to a shape of which at most one size is open."""
    if sum(not isinstance(s, int) for s in shape) > 1 or 0 in shape:
        raise _NoOrderError
    return tuple(s if isinstance(s, int) else -1 for s in shape)


NORMAL = NativePass(
    "view-calculus",
    "reshapes and transposes in a row are one transpose at most, between reshapes",
    "D11",
    visit=normalize_view,
    ops=VIEWS | MOVES,
    makes=frozenset({"Reshape", "Transpose"}),
)
