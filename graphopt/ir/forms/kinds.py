"""Kinds of changes of an op's form, each for any op that it happened to; those of ops that broadcast on request are the
last."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.forms.drafts import Draft, FormChange, Unreadable, Unwritable
from graphopt.ir.graph import Attr
from graphopt.ir.types import Size


def nothing(draft: Draft) -> None:
    """No change."""


def ints(values: Any) -> Constant:
    """A vector of integers."""
    return Constant.of(np.array(values, np.int64))


def vector(name: str, index: int, before: int) -> FormChange:
    """An attribute that is a list of integers became an input."""

    def read(draft: Draft) -> None:
        value = draft.numbers(name)
        if value is not None:
            draft.set(index, ints(value))

    def write(draft: Draft) -> None:
        if draft.has(index):
            draft.attrs[name] = tuple(draft.elements(index, name))
            draft.take(index)

    return FormChange(before, read, write)


def vectors(before: int, *places: tuple[str, int]) -> FormChange:
    """Several attributes became inputs."""
    changes = [vector(name, index, before) for name, index in places]

    def read(draft: Draft) -> None:
        for change in changes:
            change.read(draft)

    def write(draft: Draft) -> None:
        for change in reversed(changes):
            change.write(draft)

    return FormChange(before, read, write)


def count(name: str, index: int, before: int) -> FormChange:
    """An attribute that is one integer became a vector of length 1."""

    def read(draft: Draft) -> None:
        value = draft.number(name)
        if value is None:
            raise Unreadable
        draft.set(index, ints([value]))

    def write(draft: Draft) -> None:
        draft.attrs[name] = draft.element(index, name)
        draft.take(index)

    return FormChange(before, read, write)


def default(name: str, value: Attr, before: int) -> FormChange:
    """What held where the attribute was absent has to be said."""

    def read(draft: Draft) -> None:
        draft.attrs.setdefault(name, value)

    return FormChange(before, read, nothing)


def implied(name: str, value: str, before: int) -> FormChange:
    """The attribute did not exist, and the op did what one value of it now says, which is not the default."""

    def read(draft: Draft) -> None:
        draft.attrs[name] = value

    def write(draft: Draft) -> None:
        if draft.attrs.pop(name, None) != value:
            raise Unwritable(f"{draft.op} has no attribute {name} in opset {draft.opset}, and does {value}")

    return FormChange(before, read, write)


def dropped(name: str, value: Attr, absent: Attr, before: int) -> FormChange:
    """The attribute does not exist any more, and the op does what ``value`` of it said; ``absent`` was the default."""

    def read(draft: Draft) -> None:
        if draft.attr(name, absent) != value:
            raise Unreadable

    def write(draft: Draft) -> None:
        if value != absent:
            draft.attrs[name] = value

    return FormChange(before, read, write)


def renamed(name: str, new_by_old: dict[str, str], before: int) -> FormChange:
    """Choices of an attribute got other names."""
    old_by_new = {new: old for old, new in new_by_old.items()}

    def exchange(draft: Draft, names: dict[str, str]) -> None:
        value = draft.attrs.get(name)
        if isinstance(value, str):
            draft.attrs[name] = names.get(value, value)

    return FormChange(before, lambda draft: exchange(draft, new_by_old), lambda draft: exchange(draft, old_by_new))


def unlike(before: int) -> FormChange:
    """The old form has no equal in the new one."""

    def read(draft: Draft) -> None:
        raise Unreadable

    def write(draft: Draft) -> None:
        raise Unwritable(f"{draft.op} means something else before opset {before}")

    return FormChange(before, read, write)


def reduction(before: int) -> FormChange:
    """Axes became an input, and no axes could mean all or none."""
    axes = vector("axes", 1, before)

    def write(draft: Draft) -> None:
        empty = not draft.has(1) or not draft.elements(1, "axes")
        if empty and draft.attrs.get("noop_with_empty_axes", 0):
            raise Unwritable(f"{draft.op} reduces all axes where none is given, before opset {before}")
        draft.attrs.pop("noop_with_empty_axes", None)
        if empty:
            draft.take(1)
        axes.write(draft)

    return FormChange(before, axes.read, write)


def last_axis(before: int) -> FormChange:
    """The op flattened its input to a matrix at the axis; now it works along the axis alone.

    That is the same where all sizes behind the axis are 1.
    """

    def read(draft: Draft) -> None:
        axis, shape = draft.attr("axis", 1), draft.shape()
        if not isinstance(axis, int) or (axis != -1 and not _is_last(axis, shape)):
            raise Unreadable
        draft.attrs["axis"] = axis

    def write(draft: Draft) -> None:
        axis, shape = draft.attrs.get("axis", -1), draft.shape()
        if not isinstance(axis, int) or (axis != -1 and not _is_last(axis, shape)):
            raise Unwritable(f"{draft.op} along an axis that is not the last one needs opset {before}")
        draft.attrs["axis"] = axis

    return FormChange(before, read, write)


def _is_last(axis: int, shape: tuple[Size, ...] | None) -> bool:
    return shape is not None and -len(shape) <= axis < len(shape) and prod(shape[axis:][1:]) == 1


def power(before: int) -> FormChange:
    """The exponent was a float and is an integer."""

    def read(draft: Draft) -> None:
        p = draft.attr("p", 2.0)
        if not isinstance(p, float) or p != int(p):
            raise Unreadable
        draft.attrs["p"] = int(p)

    def write(draft: Draft) -> None:
        draft.attrs["p"] = float(draft.attrs.get("p", 2))  # type: ignore[arg-type]

    return FormChange(before, read, write)


def _broadcast_read(draft: Draft) -> None:
    """Before opset 7 the second operand was broadcast, on request, at an axis."""
    wanted, axis = draft.attr("broadcast", 0), draft.attr("axis")
    if not wanted or axis is None or draft.fact(1).size == 1:
        return
    left, right = draft.shape(0), draft.shape(1)
    if left is None or right is None or not isinstance(axis, int):
        raise Unreadable
    if (axis + len(left) if axis < 0 else axis) + len(right) != len(left):
        raise Unreadable


def _broadcast_write(draft: Draft) -> None:
    left, right = draft.shape(0), draft.shape(1)
    if left is None or right is None:
        raise Unwritable(f"{draft.op} broadcasts by attributes before opset 7, and the shapes are not known")
    if left == right:
        return
    if prod(right) != 1 and left[len(left) - len(right) :] != right:
        raise Unwritable(f"{draft.op} broadcasts only its second operand before opset 7")
    draft.attrs["broadcast"] = 1


BINARY = FormChange(7, _broadcast_read, _broadcast_write)


def _alike_write(draft: Draft) -> None:
    shapes = {draft.shape(index) for index in range(len(draft.inputs))}
    if len(draft.inputs) > 1 and (len(shapes) > 1 or None in shapes):
        raise Unwritable(f"{draft.op} does not broadcast before opset 8")


VARIADIC = FormChange(8, nothing, _alike_write)


def _slope_read(draft: Draft) -> None:
    if draft.fact(1).size != 1:  # one slope for each channel, whatever the rank
        raise Unreadable


def _slope_write(draft: Draft) -> None:
    if draft.fact(1).size != 1:
        raise Unwritable("PRelu broadcasts its slope otherwise before opset 7")


PRELU = FormChange(7, _slope_read, _slope_write)


def _gemm_read(draft: Draft) -> None:
    draft.attr("broadcast")


def _gemm_write(draft: Draft) -> None:
    addend = draft.shape(2)
    if draft.has(2) and (addend is None or (len(addend) > 1 and prod(addend) != 1)):
        raise Unwritable("Gemm adds only a vector before opset 7")
    draft.attrs["broadcast"] = 1


GEMM = FormChange(7, _gemm_read, _gemm_write)
