"""Changes of form that one op has for itself, Resize and Upsample among them; apart from the table that names them."""

from __future__ import annotations

from typing import Any

import numpy as np

from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.forms.drafts import Draft, FormChange, Unreadable, Unwritable
from graphopt.ir.forms.kinds import ints, nothing, unlike, vectors


def _clip_read(draft: Draft) -> None:
    for index, name in ((1, "min"), (2, "max")):
        bound = draft.number(name)
        if bound is not None:
            draft.set(index, _like_first(draft, bound))


def _clip_write(draft: Draft) -> None:
    for index, name in ((2, "max"), (1, "min")):
        if draft.has(index):
            draft.attrs[name] = _single(draft.element(index, name), name, draft)
            draft.take(index)


CLIP = FormChange(11, _clip_read, _clip_write)


def _like_first(draft: Draft, value: Any) -> Constant:
    """A number of the first input's dtype."""
    dtype = draft.fact(0).dtype
    if dtype is None or dtype in ("string", "bool"):
        raise Unreadable
    return Constant.of(np.array(value).astype(_numpy(dtype)))


def _numpy(dtype: str) -> Any:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype, dtype))


def _single(value: Any, what: str, draft: Draft) -> float:
    """A number that single precision holds, as attributes do."""
    number = float(value)
    with np.errstate(over="ignore"):
        if float(np.float32(number)) != number:
            raise Unwritable(f"{what} of {draft.op} is single precision before opset 11, which cannot hold {number!r}")
    return number


def _pad_read(draft: Draft) -> None:
    pads, value = draft.numbers("pads"), draft.number("value", 0.0)
    if pads is None:
        raise Unreadable
    fill = _like_first(draft, value) if repr(value) != "0.0" else None
    draft.set(1, ints(pads))
    if fill is not None:
        draft.set(2, fill)


def _pad_write(draft: Draft) -> None:
    if draft.has(2):
        draft.attrs["value"] = _single(draft.element(2, "constant_value"), "constant_value", draft)
        draft.take(2)
    draft.attrs["pads"] = tuple(draft.elements(1, "pads"))
    draft.take(1)


PAD = FormChange(11, _pad_read, _pad_write)


_PLACES = vectors(10, ("starts", 1), ("ends", 2), ("axes", 3))


def _slice_write(draft: Draft) -> None:
    if draft.has(4):
        if set(draft.elements(4, "steps")) - {1}:
            raise Unwritable("Slice has no steps before opset 10")
        draft.take(4)
    _PLACES.write(draft)


SLICE = FormChange(10, _PLACES.read, _slice_write)


def _even_split_read(draft: Draft) -> None:
    if not draft.has(1):
        draft.attrs["num_outputs"] = draft.n_outputs


def _even_split_write(draft: Draft) -> None:
    number = draft.attrs.pop("num_outputs", None)
    if not isinstance(number, int):
        return
    shape, axis = draft.shape(), draft.attrs.get("axis", 0)
    size = shape[axis] if shape is not None and isinstance(axis, int) and -len(shape) <= axis < len(shape) else None
    if size is None:
        raise Unwritable("Split into parts that may be uneven needs opset 18, and the size is not known")
    if isinstance(size, int) and size % number:
        part = -(-size // number)
        draft.set(1, ints([*[part] * (number - 1), size - part * (number - 1)]))
    elif size != number * (size // number):
        raise Unwritable("Split into parts that may be uneven needs opset 18")


SPLIT = FormChange(18, _even_split_read, _even_split_write)


def _dropout_read(draft: Draft) -> None:
    if draft.n_outputs > 1:  # outside training, the mask said nothing
        raise Unreadable
    ratio = draft.number("ratio")
    if ratio is not None:
        draft.set(1, Constant.of(np.array(ratio, np.float32)))


def _dropout_write(draft: Draft) -> None:
    if draft.has(2):
        if draft.element(2, "training_mode"):
            raise Unwritable("Dropout has no training_mode before opset 12")
        draft.take(2)
    if draft.n_outputs > 1:
        raise Unwritable("Dropout has another mask before opset 12")
    draft.attrs.pop("seed", None)  # nothing is drawn outside training
    if draft.has(1):
        draft.attrs["ratio"] = float(np.float32(draft.element(1, "ratio")))
        draft.take(1)


DROPOUT = FormChange(12, _dropout_read, _dropout_write)


def _norm_read(draft: Draft) -> None:
    if draft.n_outputs > 1:
        raise Unreadable


def _norm_write(draft: Draft) -> None:
    if draft.n_outputs > 1:
        raise Unwritable("BatchNormalization has other outputs in training before opset 14")


BATCH_NORMALIZATION = FormChange(14, _norm_read, _norm_write)


_OLD_DTYPES = {
    "FLOAT": "float32", "UINT8": "uint8", "INT8": "int8", "UINT16": "uint16", "INT16": "int16", "INT32": "int32",
    "INT64": "int64", "BOOL": "bool", "FLOAT16": "float16", "DOUBLE": "float64", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip
"""How Cast named dtypes before opset 6."""


def _cast_read(draft: Draft) -> None:
    code = CODES.get(_OLD_DTYPES.get(str(draft.attr("to")).upper(), ""))
    if code is None:
        raise Unreadable
    draft.attrs["to"] = code


def _cast_write(draft: Draft) -> None:
    names = {CODES[dtype]: name for name, dtype in _OLD_DTYPES.items()}
    code = draft.attrs.get("to")
    if not isinstance(code, int) or code not in names:
        raise Unwritable(f"Cast does not know dtype {code!r} before opset 6")
    draft.attrs["to"] = names[code]


CAST = FormChange(6, _cast_read, _cast_write)


def _dft_read(draft: Draft) -> None:
    axis = draft.number("axis", 1)
    draft.set(2, Constant.of(np.array(axis, np.int64)))


def _dft_write(draft: Draft) -> None:
    if not draft.has(2):
        raise Unwritable("DFT has another default axis before opset 20; name the axis")
    draft.attrs["axis"] = draft.element(2, "axis")
    draft.take(2)


DFT = FormChange(20, _dft_read, _dft_write)


def _per_tensor_write(draft: Draft) -> None:
    if draft.fact(1).size != 1:
        raise Unwritable(f"{draft.op} has one scale for the whole tensor before opset 13")
    draft.attrs.pop("axis", None)


QUANTIZATION = FormChange(13, nothing, _per_tensor_write)


def _scatter_read(draft: Draft) -> None:
    draft.op = "ScatterElements"


def _scatter_write(draft: Draft) -> None:
    if draft.attrs.pop("reduction", "none") != "none":
        raise Unwritable("ScatterElements has no reduction before opset 16")
    draft.op = "Scatter"


SCATTER = FormChange(11, _scatter_read, _scatter_write)


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


RESIZE = (FormChange(13, _resize_13_read, _resize_13_write), FormChange(11, _resize_11_read, _resize_11_write))
UPSAMPLE = (
    *RESIZE,
    FormChange(10, _upsample_read, _upsample_write),
    FormChange(9, _scales_read, _scales_write),
    unlike(7),
)
