"""One form per op: what opsets say differently is read into the newest opset's form, and written back.

What was an attribute in one opset and is an input in another stands in a graph as the newest schema
has it, so that a rule is written once. ``CHANGES`` has a line for each change of an op's form; reading
applies an op's changes from the model's opset up, writing applies them down again. What a schema says
alone needs no line: an attribute that a later opset added may be written where it has its default.
An op of an old opset that has no equal in the newest keeps its form under a name of its own,
``Name@V`` with the version that defined it, which no rule mentions. So does a Constant node whose
elements only the caller of a function knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.graph import CONSTANT, Attr, AttrRef, Attrs
from graphopt.ir.types import Size

H = TypeVar("H")


class Unreadable(Exception):  # noqa: N818 -- no error: the op keeps its old form
    """A call has no form in the newest opset."""


class Unwritable(Exception):  # noqa: N818
    """A call has no form in an older opset; the message is the reason."""


@dataclass(frozen=True, slots=True)
class Call(Generic[H]):
    """An op applied to handles of values."""

    op: str
    inputs: tuple[H | None, ...]
    attrs: Attrs
    n_outputs: int


def read(call: Call[H], opset: int, make: Callable[[Constant], H], fact: Callable[[H], Fact]) -> Call[H]:
    """The call in the inner form, from the form that it has in an opset.

    ``make`` gives a handle of a constant, ``fact`` what is known of a value.
    """
    if "::" in call.op:
        return call
    if call.op == CONSTANT:
        return Call(f"{CONSTANT}@{_since(CONSTANT, opset)}", call.inputs, call.attrs, call.n_outputs)
    changes = [change for change in CHANGES.get(call.op, ()) if change.before > opset]
    if not changes and not (opset < 6 and "consumed_inputs" in call.attrs):
        return call
    draft = Draft(call, opset, make, fact)
    draft.attrs.pop("consumed_inputs", None)  # a note to an allocator of long ago
    try:
        if ops.schema(call.op, opset) is None:
            raise Unreadable  # the opset has given up the op
        if any(isinstance(value, AttrRef) for value in draft.attrs.values()):
            raise Unreadable  # only the caller of the function knows what the attribute says
        for change in sorted(changes, key=lambda c: c.before):
            change.read(draft)
    except Unreadable:
        return Call(f"{call.op}@{_since(call.op, opset)}", call.inputs, call.attrs, call.n_outputs)
    return draft.call()


def write(call: Call[H], opset: int, make: Callable[[Constant], H], fact: Callable[[H], Fact]) -> Call[H]:
    """The call in the form of an opset, from the inner form; raises Unwritable."""
    domain, name, version = ops.split(call.op)
    if domain:
        return call
    if version is not None:
        if is_bound(call.op) and _since(name, opset) != version:
            raise Unwritable(f"{name} has its form of opset {version} only, the model has opset {opset}")
        return Call(name, call.inputs, call.attrs, call.n_outputs)
    newest, there = ops.schema(call.op), ops.schema(call.op, opset)
    if newest is None or newest is there or (there is not None and there.since == newest.since):
        return call
    draft = Draft(call, opset, make, fact)
    for change in sorted(WRITTEN.get(call.op, ()), key=lambda c: -c.before):
        if change.before > opset:
            change.write(draft)
    _fit(draft, newest)
    return draft.call()


def is_bound(op: str) -> bool:
    """Whether the op is kept in the form of one old opset, and means something else in the others."""
    return "@" in op and not op.startswith(f"{CONSTANT}@")


def writable(op: str, attrs: Attrs, inputs: Sequence[Fact | None], opset: int) -> str | None:
    """Why a call in the inner form cannot be written in an opset, or None."""
    handles = tuple(None if fact is None else index for index, fact in enumerate(inputs))
    known: dict[int, Fact] = {index: fact for index, fact in enumerate(inputs) if fact is not None}
    made: list[Constant] = []

    def make(constant: Constant) -> int:
        made.append(constant)
        return -len(made)

    try:
        write(Call(op, handles, attrs, 1), opset, make, lambda h: known.get(h, NOTHING))
    except Unwritable as reason:
        return str(reason)
    return None


def _since(op: str, opset: int) -> int:
    """The version of the op that an opset has; the opset itself where it has given up the op."""
    found = ops.schema(op, opset)
    return opset if found is None else found.since


# -- a call while it is being changed


class Draft:
    """A call whose parts may be changed, and what may be asked of its operands."""

    def __init__(
        self, call: Call[Any], opset: int, make: Callable[[Constant], Any], fact: Callable[[Any], Fact]
    ) -> None:
        self.op, self.n_outputs, self.opset = call.op, call.n_outputs, opset
        self.inputs: list[Any] = list(call.inputs)
        self.attrs: dict[str, Attr] = dict(call.attrs)
        self._make, self._fact = make, fact

    def call(self) -> Call[Any]:
        """The call as it is now."""
        while self.inputs and self.inputs[-1] is None:
            self.inputs.pop()
        return Call(self.op, tuple(self.inputs), Attrs(self.attrs), self.n_outputs)

    def fact(self, index: int) -> Fact:
        """What is known of an input; nothing of one that is absent."""
        handle = self.inputs[index] if index < len(self.inputs) else None
        return NOTHING if handle is None else self._fact(handle)

    def has(self, index: int) -> bool:
        """Whether an input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def set(self, index: int, constant: Constant | None) -> None:
        """Make an input a constant, or absent."""
        self.inputs += [None] * (index + 1 - len(self.inputs))
        self.inputs[index] = None if constant is None else self._make(constant)

    def take(self, index: int) -> None:
        """Remove an input, and its place if it is the last one."""
        if index < len(self.inputs):
            self.inputs[index] = None
        while self.inputs and self.inputs[-1] is None:
            self.inputs.pop()

    def attr(self, name: str, default: Attr | None = None) -> Attr | None:
        """Remove an attribute; its value comes back."""
        return self.attrs.pop(name, default)

    def number(self, name: str, default: float | None = None) -> float | None:
        """Remove an attribute that has to be a number."""
        value = self.attr(name, default)
        if value is not None and not isinstance(value, (int, float)):
            raise Unreadable
        return value

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Remove an attribute that has to be a list of numbers."""
        value = self.attr(name)
        if value is not None and not (isinstance(value, tuple) and all(isinstance(v, (int, float)) for v in value)):
            raise Unreadable
        return value  # type: ignore[return-value]

    def elements(self, index: int, what: str) -> list[Any]:
        """The elements of an input that has to be constant."""
        fact = self.fact(index)
        if fact.constant is not None:
            return list(fact.constant.array.reshape(-1).tolist())
        if fact.is_const and fact.elements is not None and all(isinstance(e, int) for e in fact.elements):
            return list(fact.elements)
        raise Unwritable(f"{what} of {self.op} must be constant before opset {self._until(what)}")

    def element(self, index: int, what: str) -> Any:
        """The only element of an input that has to be constant."""
        found = self.elements(index, what)
        if len(found) != 1:
            raise Unwritable(f"{what} of {self.op} must be one number")
        return found[0]

    def _until(self, what: str) -> int:
        return min((c.before for c in WRITTEN.get(self.op, ()) if c.before > self.opset), default=ops.LATEST)

    def shape(self, index: int = 0) -> tuple[Size, ...] | None:
        """The shape of an input, where its rank is known."""
        return self.fact(index).shape


Step: TypeAlias = Callable[[Draft], None]


@dataclass(frozen=True, slots=True)
class Change:
    """How an op was said before an opset: ``read`` changes a call to the newer form, ``write`` to the older one."""

    before: int
    read: Step
    write: Step


def _fit(draft: Draft, newest: ops.Schema) -> None:
    """See to what schemas say: attributes and outputs that the opset does not have, inputs that it wants."""
    there = ops.schema(draft.op, draft.opset)
    if there is None:
        raise Unwritable(f"{draft.op} is not in opset {draft.opset}")
    for name in [name for name in draft.attrs if name not in there.defaults]:
        if repr(draft.attrs[name]) != repr(newest.defaults.get(name)):
            raise Unwritable(f"{draft.op} has no attribute {name} in opset {draft.opset}")
        del draft.attrs[name]
    for name, value in draft.attrs.items():
        since = _NEW_CHOICES.get((draft.op, name, value), 0) if isinstance(value, str) else 0
        if draft.opset < since:
            raise Unwritable(f"{draft.op} has {name} {value} from opset {since} on, the model has {draft.opset}")
    missing = sorted(there.required - draft.attrs.keys())
    if missing:
        raise Unwritable(f"{draft.op} needs the attribute {missing[0]} in opset {draft.opset}")
    if there.max_outputs is not None and draft.n_outputs > there.max_outputs:
        raise Unwritable(f"{draft.op} has at most {there.max_outputs} outputs in opset {draft.opset}")
    if there.max_inputs is not None and len(draft.inputs) > there.max_inputs:
        raise Unwritable(f"{draft.op} has at most {there.max_inputs} inputs in opset {draft.opset}")
    for index in range(max(there.min_inputs, len(draft.inputs))):
        formal = there.input(index)
        if formal is not None and not formal.optional and not formal.variadic and not draft.has(index):
            raise Unwritable(f"{draft.op} needs its input {formal.name} in opset {draft.opset}")
    if draft.opset < 11 and draft.op in _COUNTED_FROM_FRONT:
        for name in ("axis", "axes"):
            _count_from_front(draft, name)


def _count_from_front(draft: Draft, name: str) -> None:
    axes = draft.attrs.get(name)
    listed = axes if isinstance(axes, tuple) else (axes,)
    if not any(isinstance(axis, int) and axis < 0 for axis in listed):
        return
    shape = draft.shape()
    if shape is None:
        raise Unwritable(f"{draft.op} has no negative {name} in opset {draft.opset}, and the rank is not known")
    rank = len(shape) + (len(listed) if draft.op == "Unsqueeze" else 0)
    counted = tuple(axis + rank if isinstance(axis, int) and axis < 0 else axis for axis in listed)
    draft.attrs[name] = counted if isinstance(axes, tuple) else counted[0]  # type: ignore[assignment]


# -- kinds of changes


def nothing(draft: Draft) -> None:
    """No change."""


def ints(values: Any) -> Constant:
    """A vector of integers."""
    return Constant.of(np.array(values, np.int64))


def vector(name: str, index: int, before: int) -> Change:
    """An attribute that is a list of integers became an input."""

    def read(draft: Draft) -> None:
        value = draft.numbers(name)
        if value is not None:
            draft.set(index, ints(value))

    def write(draft: Draft) -> None:
        if draft.has(index):
            draft.attrs[name] = tuple(draft.elements(index, name))
            draft.take(index)

    return Change(before, read, write)


def vectors(before: int, *places: tuple[str, int]) -> Change:
    """Several attributes became inputs."""
    changes = [vector(name, index, before) for name, index in places]

    def read(draft: Draft) -> None:
        for change in changes:
            change.read(draft)

    def write(draft: Draft) -> None:
        for change in reversed(changes):
            change.write(draft)

    return Change(before, read, write)


def count(name: str, index: int, before: int) -> Change:
    """An attribute that is one integer became a vector of length 1."""

    def read(draft: Draft) -> None:
        value = draft.number(name)
        if value is None:
            raise Unreadable
        draft.set(index, ints([value]))

    def write(draft: Draft) -> None:
        draft.attrs[name] = draft.element(index, name)
        draft.take(index)

    return Change(before, read, write)


def default(name: str, value: Attr, before: int) -> Change:
    """What held where the attribute was absent has to be said."""

    def read(draft: Draft) -> None:
        draft.attrs.setdefault(name, value)

    return Change(before, read, nothing)


def implied(name: str, value: str, before: int) -> Change:
    """The attribute did not exist, and the op did what one value of it now says, which is not the default."""

    def read(draft: Draft) -> None:
        draft.attrs[name] = value

    def write(draft: Draft) -> None:
        if draft.attrs.pop(name, None) != value:
            raise Unwritable(f"{draft.op} has no attribute {name} in opset {draft.opset}, and does {value}")

    return Change(before, read, write)


def dropped(name: str, value: Attr, absent: Attr, before: int) -> Change:
    """The attribute does not exist any more, and the op does what ``value`` of it said; ``absent`` was the default."""

    def read(draft: Draft) -> None:
        if draft.attr(name, absent) != value:
            raise Unreadable

    def write(draft: Draft) -> None:
        if value != absent:
            draft.attrs[name] = value

    return Change(before, read, write)


def renamed(name: str, new_by_old: dict[str, str], before: int) -> Change:
    """Choices of an attribute got other names."""
    old_by_new = {new: old for old, new in new_by_old.items()}

    def exchange(draft: Draft, names: dict[str, str]) -> None:
        value = draft.attrs.get(name)
        if isinstance(value, str):
            draft.attrs[name] = names.get(value, value)

    return Change(before, lambda draft: exchange(draft, new_by_old), lambda draft: exchange(draft, old_by_new))


def unlike(before: int) -> Change:
    """The old form has no equal in the new one."""

    def read(draft: Draft) -> None:
        raise Unreadable

    def write(draft: Draft) -> None:
        raise Unwritable(f"{draft.op} means something else before opset {before}")

    return Change(before, read, write)


# -- changes that one op, or one family of ops, has for itself


def reduction(before: int) -> Change:
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

    return Change(before, axes.read, write)


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


def _slice_write(draft: Draft) -> None:
    if draft.has(4):
        if set(draft.elements(4, "steps")) - {1}:
            raise Unwritable("Slice has no steps before opset 10")
        draft.take(4)
    _slice.write(draft)


_slice = vectors(10, ("starts", 1), ("ends", 2), ("axes", 3))


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


def _norm_read(draft: Draft) -> None:
    if draft.n_outputs > 1:
        raise Unreadable


def _norm_write(draft: Draft) -> None:
    if draft.n_outputs > 1:
        raise Unwritable("BatchNormalization has other outputs in training before opset 14")


def last_axis(before: int) -> Change:
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

    return Change(before, read, write)


def _is_last(axis: int, shape: tuple[Size, ...] | None) -> bool:
    return shape is not None and -len(shape) <= axis < len(shape) and prod(shape[axis:][1:]) == 1


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


def _alike_write(draft: Draft) -> None:
    shapes = {draft.shape(index) for index in range(len(draft.inputs))}
    if len(draft.inputs) > 1 and (len(shapes) > 1 or None in shapes):
        raise Unwritable(f"{draft.op} does not broadcast before opset 8")


def _slope_read(draft: Draft) -> None:
    if draft.fact(1).size != 1:  # one slope for each channel, whatever the rank
        raise Unreadable


def _slope_write(draft: Draft) -> None:
    if draft.fact(1).size != 1:
        raise Unwritable("PRelu broadcasts its slope otherwise before opset 7")


def _gemm_read(draft: Draft) -> None:
    draft.attr("broadcast")


def _gemm_write(draft: Draft) -> None:
    addend = draft.shape(2)
    if draft.has(2) and (addend is None or (len(addend) > 1 and prod(addend) != 1)):
        raise Unwritable("Gemm adds only a vector before opset 7")
    draft.attrs["broadcast"] = 1


def power(before: int) -> Change:
    """The exponent was a float and is an integer."""

    def read(draft: Draft) -> None:
        p = draft.attr("p", 2.0)
        if not isinstance(p, float) or p != int(p):
            raise Unreadable
        draft.attrs["p"] = int(p)

    def write(draft: Draft) -> None:
        draft.attrs["p"] = float(draft.attrs.get("p", 2))  # type: ignore[arg-type]

    return Change(before, read, write)


def _dft_read(draft: Draft) -> None:
    axis = draft.number("axis", 1)
    draft.set(2, Constant.of(np.array(axis, np.int64)))


def _dft_write(draft: Draft) -> None:
    if not draft.has(2):
        raise Unwritable("DFT has another default axis before opset 20; name the axis")
    draft.attrs["axis"] = draft.element(2, "axis")
    draft.take(2)


def _per_tensor_write(draft: Draft) -> None:
    if draft.fact(1).size != 1:
        raise Unwritable(f"{draft.op} has one scale for the whole tensor before opset 13")
    draft.attrs.pop("axis", None)


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


def _scatter_read(draft: Draft) -> None:
    draft.op = "ScatterElements"


def _scatter_write(draft: Draft) -> None:
    if draft.attrs.pop("reduction", "none") != "none":
        raise Unwritable("ScatterElements has no reduction before opset 16")
    draft.op = "Scatter"


# -- the table


_RESIZE = (Change(13, _resize_13_read, _resize_13_write), Change(11, _resize_11_read, _resize_11_write))
_UPSAMPLE = (Change(10, _upsample_read, _upsample_write), Change(9, _scales_read, _scales_write), unlike(7))

CHANGES: dict[str, tuple[Change, ...]] = {
    "BatchNormalization": (
        Change(14, _norm_read, _norm_write), dropped("spatial", 1, 1, 9), dropped("is_test", 1, 0, 7)
    ),
    "Cast": (Change(6, _cast_read, _cast_write),),
    "Clip": (Change(11, _clip_read, _clip_write),),
    "Concat": (default("axis", 1, 4),),
    "DFT": (Change(20, _dft_read, _dft_write),),
    "DequantizeLinear": (Change(13, nothing, _per_tensor_write),),
    "Dropout": (Change(12, _dropout_read, _dropout_write), dropped("is_test", 1, 0, 7)),
    "GRU": (unlike(7),),
    "Gemm": (Change(7, _gemm_read, _gemm_write),),
    "GlobalLpPool": (power(2),),
    "GridSample": (renamed("mode", {"bilinear": "linear", "bicubic": "cubic"}, 20),),
    "GroupNormalization": (unlike(21),),
    "LSTM": (unlike(7),),
    "LpPool": (power(2),),
    "PRelu": (Change(7, _slope_read, _slope_write),),
    "Pad": (Change(11, _pad_read, _pad_write), unlike(2)),
    "QuantizeLinear": (Change(13, nothing, _per_tensor_write),),
    "RNN": (unlike(7),),
    "ReduceSum": (reduction(13),),
    "Reshape": (vector("shape", 1, 5),),
    "Resize": _RESIZE,
    "RoiAlign": (implied("coordinate_transformation_mode", "output_half_pixel", 16),),
    "Scan": (unlike(9),),
    "Scatter": (Change(11, _scatter_read, _scatter_write),),
    "Selu": (default("alpha", 1.673200011253357, 6), default("gamma", 1.0506999492645264, 6)),
    "Slice": (Change(10, _slice.read, _slice_write),),
    "Split": (Change(18, _even_split_read, _even_split_write), vector("split", 1, 13), unlike(2)),
    "Squeeze": (vector("axes", 1, 13),),
    "Tile": (unlike(6),),
    "TopK": (count("k", 1, 10),),
    "Unsqueeze": (vector("axes", 1, 13),),
    "Upsample": (*_RESIZE, *_UPSAMPLE),
    **{op: (reduction(18),) for op in sorted(ops.KINDS["reduce"] - {"ReduceSum"})},
    **{op: (last_axis(13),) for op in ("Softmax", "LogSoftmax", "Hardmax")},
    **{op: (Change(8, nothing, _alike_write),) for op in ("Max", "Mean", "Min", "Sum")},
    **{
        op: (Change(7, _broadcast_read, _broadcast_write),)
        for op in ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
    },
}  # fmt: skip
"""For each op the changes of its form that opsets made, by the name that it had in the older opset."""

WRITTEN = {**CHANGES, "Resize": CHANGES["Upsample"], "ScatterElements": CHANGES["Scatter"]}
"""The same by the op's newest name."""

_NEW_CHOICES = {
    ("Pad", "mode", "wrap"): 19,
    ("Resize", "coordinate_transformation_mode", "half_pixel_symmetric"): 19,
    **{(op, "reduction", choice): 18 for op in ("ScatterElements", "ScatterND") for choice in ("max", "min")},
}
"""Choices of an attribute that came later than the attribute, and the opset that brought them."""

_COUNTED_FROM_FRONT = frozenset(
    {"ArgMax", "ArgMin", "Concat", "Flatten", "Split", "Squeeze", "Unsqueeze", "Softmax", "LogSoftmax", "Hardmax"}
    | ops.KINDS["reduce"]
)

_OLD_DTYPES = {
    "FLOAT": "float32", "UINT8": "uint8", "INT8": "int8", "UINT16": "uint16", "INT16": "int16", "INT32": "int32",
    "INT64": "int64", "BOOL": "bool", "FLOAT16": "float16", "DOUBLE": "float64", "UINT32": "uint32", "UINT64": "uint64",
}  # fmt: skip
"""How Cast named dtypes before opset 6."""
