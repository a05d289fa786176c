"""Index arithmetic: reshaped coordinates, wrapped and clamped indices, and axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TypeAlias

from graphopt.ir.types import is_anonymous
from graphopt.lowering.loops.compute import Requirement, require
from graphopt.lowering.loops.expressions import (
    INDEX,
    Apply,
    Const,
    Expr,
    Load,
    cast,
    conjunction,
    equal,
    maximum,
    minimum,
    select,
)
from graphopt.lowering.operators.elements import integer, required, scalar
from graphopt.lowering.operators.operation import NotLowered, Operation

Factors: TypeAlias = tuple[Expr, ...]
Sum: TypeAlias = dict[Factors, int]
"""A size as a sum of products of atoms, each so many times."""
_FAR = 1 << 62

# -- from one shape to another with the same elements in the same order


def relocated(source: Sequence[Expr], target: Sequence[Expr], at: Sequence[Expr]) -> tuple[Expr, ...]:
    """The indices in the shape ``source`` of what stands at ``at`` of the shape ``target``, both in row-major order.

    Axes that match are left apart and others cut into as few pieces as fit both shapes, so that little is divided.
    Where either shape has no elements, any indices come back.
    """
    if Const(0) in (*source, *target):
        return (Const(0),) * len(source)
    coordinates: list[Expr] = [Const(0)] * len(source)
    left = [k for k, size in enumerate(source) if size != Const(1)]
    right = [k for k, size in enumerate(target) if size != Const(1)]
    for ours, theirs in _groups(source, left, target, right):
        indices = _within_group([source[k] for k in ours], [target[k] for k in theirs], [at[k] for k in theirs])
        for k, index in zip(ours, indices, strict=True):
            coordinates[k] = index
    return tuple(coordinates)


def same_size(source: Sequence[Expr], target: Sequence[Expr]) -> bool:
    """Whether two shapes provably have the same number of elements."""
    return Const(0) in source or Const(0) in target or _product(source) == _product(target)


def _sum(expr: Expr) -> Sum:
    if isinstance(expr, Const):
        return {(): int(expr.value)} if expr.value else {}
    if isinstance(expr, Apply) and expr.fn in ("add", "sub", "mul"):
        a, b = map(_sum, expr.args)
        if expr.fn == "mul":
            return _times(a, b)
        sign = 1 if expr.fn == "add" else -1
        joined = {p: a.get(p, 0) + sign * b.get(p, 0) for p in (*a, *b)}
        return {p: n for p, n in joined.items() if n}
    return {(expr,): 1}


def _times(a: Sum, b: Sum) -> Sum:
    total: Sum = {}
    for p, m in a.items():
        for q, n in b.items():
            joined = tuple(sorted((*p, *q), key=repr))
            total[joined] = total.get(joined, 0) + m * n
    return {p: n for p, n in total.items() if n}


def _product(sizes: Sequence[Expr]) -> Sum:
    total: Sum = {(): 1}
    for size in sizes:
        total = _times(total, _sum(size))
    return total


def _groups(
    source: Sequence[Expr], left: list[int], target: Sequence[Expr], right: list[int]
) -> list[tuple[list[int], list[int]]]:
    """Runs of axes of both shapes that have equally many elements, as short as can be proved."""
    groups: list[tuple[list[int], list[int]]] = []
    starts = {_key(_product([source[k] for k in left[:n]])): n for n in range(len(left), 0, -1)}
    done = used = 0
    for n in range(1, len(right) + 1):
        reached = starts.get(_key(_product([target[k] for k in right[:n]])), 0)
        if reached > done and n < len(right):
            groups.append((left[done:reached], right[used:n]))
            done, used = reached, n
    if done < len(left) or used < len(right):
        groups.append((left[done:], right[used:]))
    return groups


def _key(total: Sum) -> frozenset[tuple[Factors, int]]:
    return frozenset(total.items())


def _within_group(source: list[Expr], target: list[Expr], at: list[Expr]) -> list[Expr]:
    pieces = _pieces(source, target) if len(source) > 1 and len(target) > 1 else None
    if pieces is None:
        return digits(linear(at, target), source)
    ours, theirs = pieces
    fine = [d for index, part in zip(at, theirs, strict=True) for d in digits(index, part)]
    indices: list[Expr] = []
    for part in ours:
        indices.append(linear(fine[: len(part)], part))
        fine = fine[len(part) :]
    return indices


def linear(at: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """The place of the indices in row-major order."""
    total: Expr = Const(0)
    for index, size in zip(at, shape, strict=True):
        total = index if total == Const(0) else total * size + index
    return total


def digits(number: Expr, shape: Sequence[Expr]) -> list[Expr]:
    """The indices of what stands at a place in row-major order."""
    if number == Const(0):
        return [number] * len(shape)
    indices: list[Expr] = []
    for k, size in reversed(list(enumerate(shape))):
        indices.insert(0, number % size if k else number)
        number = number // size
    return indices


def _pieces(source: list[Expr], target: list[Expr]) -> tuple[list[list[Expr]], list[list[Expr]]] | None:
    """The axes of both shapes cut into the same pieces; None where their strides do not divide each other."""
    rests = [[_sum(size) for size in shape] for shape in (source, target)]
    if any(len(total) != 1 for rest in rests for total in rest):
        return None
    stacks = [[next(iter(total.items())) for total in rest] for rest in rests]
    cut: tuple[list[list[Expr]], list[list[Expr]]] = ([[]], [[]])
    while all(stacks):
        tops = [stack.pop() for stack in stacks]
        small = 0 if _quotient(tops[1], tops[0]) is not None else 1
        rest = _quotient(tops[1 - small], tops[small])
        if rest is None:
            return None
        for axes in cut:
            axes[0].insert(0, _size(tops[small]))
        cut[small].insert(0, [])
        if rest == ((), 1):
            cut[1 - small].insert(0, [])
        else:
            stacks[1 - small].append(rest)
    return None if any(stacks) else (cut[0][1:], cut[1][1:])


def _quotient(whole: tuple[Factors, int], part: tuple[Factors, int]) -> tuple[Factors, int] | None:
    left = list(whole[0])
    for atom in part[0]:
        if atom not in left:
            return None
        left.remove(atom)
    return (tuple(left), whole[1] // part[1]) if whole[1] % part[1] == 0 else None


def _size(product: tuple[Factors, int]) -> Expr:
    total: Expr = Const(1)
    for atom in product[0]:
        total = atom if total == Const(1) else total * atom
    return total * product[1]


# -- integers that are read from inputs


def length(op: Operation, k: int) -> int:
    """The number of elements of an input vector. NotLowered where it is not known."""
    fact = op.facts[k]
    size = None if fact is None or fact.shape is None else fact.size
    if not isinstance(size, int):
        raise NotLowered(f"the length of input {k} of {op.op} is not known")
    return size


def element(op: Operation, k: int, i: int = 0) -> Expr:
    """The i-th element of an integer input of rank 0 or 1: an expression over sizes where it is known, else a load."""
    fact = op.facts[k]
    if fact is not None and fact.constant is not None:
        return Const(int(fact.constant.array.reshape(-1)[i]))
    if fact is not None and fact.elements is not None and not is_anonymous(fact.elements[i]):
        return op.size(fact.elements[i])
    tensor = op.input(k)
    return cast(Load(tensor, (Const(i),) * tensor.rank), INDEX)


def axis_of(op: Operation, name: str = "axis", rank: int | None = None) -> int:
    """An attribute that counts axes, counted from the front."""
    rank = op.input(0).rank if rank is None else rank
    axis = integer(op, name)
    if not -rank <= axis < max(rank, 1):
        raise NotLowered(f"axis {axis} of {op.op} is no axis of a tensor of rank {rank}")
    return axis % max(rank, 1)


def axes_of(op: Operation, k: int, rank: int) -> tuple[int, ...] | None:
    """The axes that an input lists, counted from the front; None where the input is left out."""
    if not op.has(k):
        return None
    fact = op.facts[k]
    listed = None if fact is None else fact.elements
    if listed is None or not all(isinstance(a, int) for a in listed):
        listed = tuple(op.known(k).reshape(-1).tolist())
    return tuple(int(a) % rank for a in listed if isinstance(a, int))


def clamped(index: Expr, size: Expr) -> Expr:
    """The index, or the nearest that lies within the size."""
    return minimum(maximum(index, 0), size - 1)


def counted(index: Expr, size: Expr) -> Expr:
    """An index that counts from the end where it is negative, counted from the front. Constants that mean the end, as
    the least and the largest of int64, come so near that sums with sizes and steps stay numbers of int64."""
    if isinstance(index, Const):
        index = Const(min(max(int(index.value), -_FAR), _FAR))
        return index if index.value >= 0 else index + size
    return select(index < 0, index + size, index)


def within(index: Expr, size: Expr) -> Expr:
    """Whether the index lies within the size, counted from either end."""
    return conjunction(index >= -size, index < size)


def positions(op: Operation, k: int, size: Expr) -> tuple[Callable[..., Expr], list[Requirement]]:
    """The elements of an index tensor, the k-th input, as positions along an axis of the size, and what they require.

    The function gives the position that stands at given indices of the tensor. Even where the requirement does not
    hold, it never lies outside of an axis that has elements.
    """
    tensor, fact = op.input(k), op.facts[k]
    low, high = (-inf, inf) if fact is None else (fact.low, fact.high)
    if low >= 0 and isinstance(size, Const) and high < size.value:
        return (lambda *at: _constant_or(op, k, at)), []

    def position(*at: Expr) -> Expr:
        index = _constant_or(op, k, at)
        return clamped(index if low >= 0 else counted(index, size), size)

    def holds(*at: Expr) -> Expr:
        return within(cast(tensor[at], INDEX), size)

    return position, [require(tensor.shape, holds, f"{op.op}: an index is out of range")]


def _constant_or(op: Operation, k: int, at: tuple[Expr, ...]) -> Expr:
    """The element at the indices; a number where all elements are one and the same."""
    constant = scalar(op, k)
    return Const(int(constant.value)) if constant is not None else cast(op.input(k)[at], INDEX)


def matching(op: Operation, ours: Sequence[Expr], theirs: Sequence[Expr]) -> list[Requirement]:
    """The requirements that sizes of two inputs agree one by one, where that is not known."""
    fits = conjunction(*(equal(a, b) for a, b in zip(ours, theirs, strict=True)))
    return required(fits, f"{op.op}: sizes of its inputs do not agree")


def equally_many(source: Sequence[Expr], target: Sequence[Expr], message: str) -> list[Requirement]:
    """The requirement that two shapes have the same number of elements, where that is not provable."""
    if same_size(source, target):
        return []
    sizes = [_whole(shape) for shape in (source, target)]
    return [require((), lambda: equal(sizes[0], sizes[1]), message)]


def _whole(shape: Sequence[Expr]) -> Expr:
    total: Expr = Const(1)
    for size in shape:
        total = total * size
    return total
