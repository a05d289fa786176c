"""Op forms: what opsets spell differently is read into the newest opset's form, and written back.

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

from graphopt.ir import ops
from graphopt.ir.constants import Constant
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.forms.drafts import Draft, H, OpsetCall, Unreadable, Unwritable
from graphopt.ir.forms.table import CHANGES, WRITTEN
from graphopt.ir.graph import CONSTANT, AttrRef, Attrs

__all__ = ["CHANGES", "WRITTEN", "OpsetCall", "Unreadable", "Unwritable", "is_bound", "read", "writable", "write"]

_NEW_CHOICES = {
    ("Pad", "mode", "wrap"): 19,
    ("Resize", "coordinate_transformation_mode", "half_pixel_symmetric"): 19,
    **{(op, "reduction", choice): 18 for op in ("ScatterElements", "ScatterND") for choice in ("max", "min")},
}
"""Choices of an attribute that came later than the attribute, and the opset that brought them."""

SWITCHES = dict.fromkeys(
    ("Gemm", "com.microsoft::FusedGemm", "com.microsoft::FusedMatMul"),
    ("transA", "transB"),
)
"""By op, attributes of which ONNX says no more than that they are not 0."""

_COUNTED_FROM_FRONT = frozenset(
    {"ArgMax", "ArgMin", "Concat", "Flatten", "Split", "Squeeze", "Unsqueeze", "Softmax", "LogSoftmax", "Hardmax"}
    | ops.KINDS["reduce"]
)
"""Ops whose axes were not negative before opset 11."""


def read(call: OpsetCall[H], opset: int, make: Callable[[Constant], H], fact: Callable[[H], Fact]) -> OpsetCall[H]:
    """The call in the inner form, from the form that it has in an opset.

    ``make`` gives a handle of a constant, ``fact`` what is known of a value.
    """
    call = _switched(call)
    if "::" in call.op:
        return call
    if call.op == CONSTANT:
        return OpsetCall(f"{CONSTANT}@{_since(CONSTANT, opset)}", call.inputs, call.attrs, call.n_outputs)
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
        return OpsetCall(f"{call.op}@{_since(call.op, opset)}", call.inputs, call.attrs, call.n_outputs)
    return draft.call()


def _switched(call: OpsetCall[H]) -> OpsetCall[H]:
    """The call with 1 where an attribute is any other number that means the same, so that rules may compute with it."""
    odd = [name for name in SWITCHES.get(call.op, ()) if call.attrs.get(name) not in (0, 1, None)]
    ones = {name: 1 for name in odd if isinstance(call.attrs[name], int)}
    return OpsetCall(call.op, call.inputs, call.attrs.with_(**ones), call.n_outputs) if ones else call


def write(call: OpsetCall[H], opset: int, make: Callable[[Constant], H], fact: Callable[[H], Fact]) -> OpsetCall[H]:
    """The call in the form of an opset, from the inner form; raises Unwritable."""
    domain, name, version = ops.split(call.op)
    if domain:
        return call
    if version is not None:
        if is_bound(call.op) and _since(name, opset) != version:
            raise Unwritable(f"{name} has its form of opset {version} only, the model has opset {opset}")
        return OpsetCall(name, call.inputs, call.attrs, call.n_outputs)
    newest, there = ops.schema(call.op), ops.schema(call.op, opset)
    if newest is None or newest is there or (there is not None and there.since == newest.since):
        return call
    changes = sorted((c for c in WRITTEN.get(call.op, ()) if c.before > opset), key=lambda c: -c.before)
    draft = Draft(call, opset, make, fact, changes[-1].before if changes else ops.LATEST)
    for change in changes:
        change.write(draft)
    _fit(draft, newest)
    return draft.call()


def is_bound(op: str) -> bool:
    """Whether the op is kept in the form of one old opset, and means something else in the others."""
    return "@" in op and not op.startswith(f"{CONSTANT}@")


def writable(op: str, attrs: Attrs, inputs: Sequence[Fact | None], opset: int) -> str | None:
    """Why a call in the inner form cannot be written in an opset, or None."""
    handles = tuple(None if fact is None else index for index, fact in enumerate(inputs))
    facts: dict[int, Fact] = {index: fact for index, fact in enumerate(inputs) if fact is not None}
    constants: list[Constant] = []

    def make(constant: Constant) -> int:
        constants.append(constant)
        return -len(constants)

    try:
        write(OpsetCall(op, handles, attrs, 1), opset, make, lambda h: facts.get(h, NOTHING))
    except Unwritable as reason:
        return str(reason)
    return None


def _since(op: str, opset: int) -> int:
    """The version of the op that an opset has; the opset itself where it has given up the op."""
    schema = ops.schema(op, opset)
    return opset if schema is None else schema.since


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
