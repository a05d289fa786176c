"""Changes of form of ops that broadcast: it was asked for, and less was possible."""

from __future__ import annotations

from math import prod

from graphopt.ir.forms.drafts import Change, Draft, Unreadable, Unwritable
from graphopt.ir.forms.kinds import nothing


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


BINARY = Change(7, _broadcast_read, _broadcast_write)


def _alike_write(draft: Draft) -> None:
    shapes = {draft.shape(index) for index in range(len(draft.inputs))}
    if len(draft.inputs) > 1 and (len(shapes) > 1 or None in shapes):
        raise Unwritable(f"{draft.op} does not broadcast before opset 8")


VARIADIC = Change(8, nothing, _alike_write)


def _slope_read(draft: Draft) -> None:
    if draft.fact(1).size != 1:  # one slope for each channel, whatever the rank
        raise Unreadable


def _slope_write(draft: Draft) -> None:
    if draft.fact(1).size != 1:
        raise Unwritable("PRelu broadcasts its slope otherwise before opset 7")


PRELU = Change(7, _slope_read, _slope_write)


def _gemm_read(draft: Draft) -> None:
    draft.attr("broadcast")


def _gemm_write(draft: Draft) -> None:
    addend = draft.shape(2)
    if draft.has(2) and (addend is None or (len(addend) > 1 and prod(addend) != 1)):
        raise Unwritable("Gemm adds only a vector before opset 7")
    draft.attrs["broadcast"] = 1


GEMM = Change(7, _gemm_read, _gemm_write)
