"""Changes of form of Resize, and of Upsample before it."""

from __future__ import annotations

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.forms.drafts import Change, Draft, Unreadable, Unwritable
from graphopt.ir.forms.kinds import unlike

_EMPTY = Constant.of(np.zeros(0, np.float32))


def _resize_13_read(draft: Draft) -> None:
    """Opset 11 had to say by an empty tensor what is absent now."""
    if draft.attrs.get("coordinate_transformation_mode") == "tf_half_pixel_for_nn":
        raise Unreadable
    for index in (1, 2):
        if draft.fact(index).size == 0:
            draft.inputs[index] = None


def _resize_13_write(draft: Draft) -> None:
    for index in (1, 2):
        if not draft.has(index):
            draft.set(index, _EMPTY)


def _resize_11_read(draft: Draft) -> None:
    """Opset 10, and Upsample before it: corners are aligned by flooring, which is how enlarging worked."""
    scales = draft.fact(1).constant
    if not draft.has(0) or not draft.has(1):
        raise Unreadable
    if draft.attrs.get("mode", "nearest") == "nearest" and (scales is None or not (scales.array >= 1).all()):
        raise Unreadable
    draft.inputs = [draft.inputs[0], None, draft.inputs[1]]
    draft.attrs["coordinate_transformation_mode"] = "asymmetric"
    draft.attrs["nearest_mode"] = "floor"


def _resize_11_write(draft: Draft) -> None:
    enlarged = draft.has(2) and min(draft.elements(2, "scales"), default=0) >= 1
    modes = draft.attrs.pop("coordinate_transformation_mode", ""), draft.attrs.pop("nearest_mode", "")
    mode = draft.attrs.get("mode", "nearest")
    if modes != ("asymmetric", "floor") or draft.has(3) or mode == "cubic" or (mode == "nearest" and not enlarged):
        raise Unwritable("Resize can only enlarge, by asymmetric coordinates, before opset 11")
    draft.inputs = [draft.inputs[0], draft.inputs[2]]


def _upsample_read(draft: Draft) -> None:
    draft.op = "Resize"


def _upsample_write(draft: Draft) -> None:
    if min(draft.elements(1, "scales")) < 1:
        raise Unwritable("Upsample can only enlarge")
    draft.op = "Upsample"


def _scales_read(draft: Draft) -> None:
    scales = draft.numbers("scales")
    if scales is None:
        raise Unreadable
    draft.set(1, Constant.of(np.array(scales, np.float32)))


def _scales_write(draft: Draft) -> None:
    draft.attrs["scales"] = tuple(map(float, draft.elements(1, "scales")))
    draft.take(1)


RESIZE = (Change(13, _resize_13_read, _resize_13_write), Change(11, _resize_11_read, _resize_11_write))
UPSAMPLE = (*RESIZE, Change(10, _upsample_read, _upsample_write), Change(9, _scales_read, _scales_write), unlike(7))
