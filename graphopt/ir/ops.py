"""Op table: arity, attributes and defaults, dtypes, algebra and kind of each op; everything but its semantics.

The facts come from ``onnx.defs``; ``op_table`` adds what schemas do not say. Ops are
named as in a graph: ONNX's name, ``domain::Name`` outside ONNX's own domain, ``Name@V`` for an op
that is kept in the form it had in opset V. An op that nobody describes has the schema None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from struct import pack, unpack
from types import MappingProxyType
from typing import Any

import onnx
from onnx import defs

from graphopt.frozen import dataclass
from graphopt.ir.contrib import CONTRIB
from graphopt.ir.custom_ops import has_effects
from graphopt.ir.facts import Fact
from graphopt.ir.graph import NO_ATTRS, Attr, Attrs, Graph
from graphopt.ir.op_table import FINITE, OPS, ZERO, Contrib, ops_where
from graphopt.ir.types import TensorType

LATEST = int(defs.onnx_opset_version())
"""The newest opset that this onnx package describes: the inner form of every op is its form there."""


@dataclass(frozen=True, slots=True)
class Formal:
    """One formal input or output. ``constraint`` is the letter of its type, or the type itself (``tensor(int64)``);
    formals with the same letter have the same type."""

    name: str
    constraint: str
    optional: bool = False
    variadic: bool = False
    homogeneous: bool = True


@dataclass(frozen=True, slots=True)
class Schema:
    """An op in one version. ``allowed`` maps each constraint to dtype names (other types keep ONNX's spelling);
    ``defaults`` maps every attribute to its default, or None."""

    op: str
    since: int
    inputs: tuple[Formal, ...]
    outputs: tuple[Formal, ...]
    min_inputs: int
    max_inputs: int | None
    min_outputs: int
    max_outputs: int | None
    defaults: Mapping[str, Attr | None]
    required: frozenset[str]
    allowed: Mapping[str, frozenset[str]]

    def input(self, index: int) -> Formal | None:
        """The formal input that stands at a position; the variadic one stands at all positions from its own on."""
        return _formal(self.inputs, index)

    def output(self, index: int) -> Formal | None:
        """The formal output that stands at a position."""
        return _formal(self.outputs, index)


def _formal(formals: tuple[Formal, ...], index: int) -> Formal | None:
    if index < len(formals):
        return formals[index]
    return formals[-1] if formals and formals[-1].variadic else None


def split(op: str) -> tuple[str, str, int | None]:
    """Domain, name, and the version of an op kept in an old form (None for all others)."""
    domain, colons, name = op.rpartition("::")
    name, at, version = name.partition("@")
    return domain if colons else "", name, int(version) if at else None


@cache
def names() -> frozenset[str]:
    """All ops of ONNX's own domain."""
    return frozenset(s.name for s in defs.get_all_schemas() if s.domain == "")


@cache
def schema(op: str, opset: int = LATEST) -> Schema | None:
    """The op as it is in an opset of ONNX's own domain (other domains: in their newest version); None if it is not."""
    if op in CONTRIB:
        return _from_contrib(op, CONTRIB[op])
    domain, name, version = split(op)
    if domain == "ai.onnx":
        domain = ""
    limit = version or (min(opset, LATEST) if domain == "" else 1 << 30)
    try:
        definition = defs.get_schema(name, limit, domain)
        if definition.deprecated and domain:  # models say it all the same, as it was before
            definition = defs.get_schema(name, definition.since_version - 1, domain)
    except defs.SchemaError:
        return None
    return None if definition.deprecated else _from_onnx(op, definition)


def _from_onnx(op: str, definition: Any) -> Schema:
    unlimited = 1 << 30
    inputs, outputs = (tuple(_formal_from_onnx(f) for f in side) for side in (definition.inputs, definition.outputs))
    allowed = {
        f.type_str: frozenset(map(dtype_name, f.types))
        for side in (definition.inputs, definition.outputs)
        for f in side
    }
    return Schema(
        op,
        definition.since_version,
        inputs,
        outputs,
        definition.min_input,
        definition.max_input if definition.max_input < unlimited else None,
        definition.min_output,
        definition.max_output if definition.max_output < unlimited else None,
        MappingProxyType({name: _default(a.default_value) for name, a in sorted(definition.attributes.items())}),
        frozenset(name for name, a in definition.attributes.items() if a.required),
        MappingProxyType(allowed),
    )


def _formal_from_onnx(formal: Any) -> Formal:
    option = defs.OpSchema.FormalParameterOption
    return Formal(
        formal.name,
        formal.type_str,
        formal.option == option.Optional,
        formal.option == option.Variadic,
        formal.is_homogeneous,
    )


def _default(proto: onnx.AttributeProto) -> Attr | None:
    kind = onnx.AttributeProto
    match proto.type:
        case kind.FLOAT:
            return float(proto.f)
        case kind.INT:
            return int(proto.i)
        case kind.STRING:
            return str(proto.s.decode())
        case kind.FLOATS:
            return tuple(map(float, proto.floats))
        case kind.INTS:
            return tuple(map(int, proto.ints))
        case kind.STRINGS:
            return tuple(s.decode() for s in proto.strings)
    return None


def _from_contrib(op: str, table: Contrib) -> Schema:
    formals = []
    for side in (table.inputs, table.outputs):
        names = [(word.rstrip("?"), word.endswith("?")) for word in side.split()]
        formals.append(tuple(Formal(n, n if n in table.typed else "T", optional) for n, optional in names))
    allowed = {"T": frozenset(table.dtypes), **{n: frozenset(types) for n, types in table.typed.items()}}
    defaults = {name: None if isinstance(d, type) else _single(d) for name, d in sorted(table.attributes.items())}
    inputs, outputs = formals
    return Schema(
        op,
        1,
        inputs,
        outputs,
        sum(not f.optional for f in inputs),
        len(inputs),
        sum(not f.optional for f in outputs),
        len(outputs),
        MappingProxyType(defaults),
        frozenset(),
        MappingProxyType(allowed),
    )


_DTYPES = {
    "float": "float32", "double": "float64", "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz", "float8e8m0": "float8_e8m0fnu",
    "float4e2m1": "float4_e2m1fn",
}  # fmt: skip


def dtype_name(type_text: str) -> str:
    """The dtype name for ONNX's ``tensor(float)``; types that are not tensors keep their spelling."""
    if not type_text.startswith("tensor("):
        return type_text
    name = type_text[len("tensor(") : -1]
    return _DTYPES.get(name, name)


# -- arity


def variadic_input(op: str) -> int | None:
    """The position from which an op takes any number of inputs, or None."""
    definition = schema(op)
    return len(definition.inputs) - 1 if definition and definition.inputs and definition.inputs[-1].variadic else None


def max_inputs(op: str) -> int | None:
    """The most inputs the op takes; None where there is no limit or the op is unknown."""
    definition = schema(op)
    return definition.max_inputs if definition else None


def max_outputs(op: str) -> int | None:
    """The most outputs the op makes; None where there is no limit or the op is unknown."""
    definition = schema(op)
    return definition.max_outputs if definition else None


def is_optional(op: str, port: int, opset: int = LATEST) -> bool:
    """Whether an output may be left out."""
    definition = schema(op, opset)
    formal = definition.output(port) if definition else None
    return formal is not None and formal.optional


def may_lack(op: str, index: int) -> bool:
    """Whether an input may be left out, as far as the op is known."""
    definition = schema(op)
    formal = definition.input(index) if definition else None
    return formal is None or formal.optional or formal.variadic


def input_constraint(op: str, index: int) -> str:
    """The type letter (or type) of an input: inputs and outputs with one letter have one dtype. Empty if unknown."""
    definition = schema(op)
    formal = definition.input(index) if definition else None
    return formal.constraint if formal else ""


def output_constraint(op: str, index: int = 0) -> str:
    """The type letter (or type) of an output. Empty if unknown."""
    definition = schema(op)
    formal = definition.output(index) if definition else None
    return formal.constraint if formal else ""


# -- attributes


def _single(value: Any) -> Any:
    """Floats as ONNX stores them: rounded to single precision."""
    if isinstance(value, float) and value - value == 0:
        return unpack("f", pack("f", value))[0] if abs(value) < 3.5e38 else value
    return tuple(map(_single, value)) if isinstance(value, tuple) else value


def attribute(op: str, attrs: Attrs, name: str, rank: int | None = None) -> Attr | None:
    """The value of an attribute, its default where it is absent; None where it has none.

    Some defaults depend on the rank of the first input (``Transpose.perm``, ``Conv.strides``): without it, None.
    """
    value = attrs.get(name)
    if value is not None:
        return value
    definition = schema(op)
    value = definition.defaults.get(name) if definition else None
    if value is None and rank is not None:
        implicit = IMPLICIT.get((op, name))
        value = implicit(rank) if implicit else None
    return value


@cache
def attribute_kind(op: str, name: str) -> int | None:
    """ONNX's number for the type of an attribute, by the op's newest schema; None where that says nothing of it."""
    domain, short, version = split(op)
    try:
        definition: Any = defs.get_schema(short, version or 1 << 30, domain).attributes.get(name)
    except defs.SchemaError:
        return None
    return None if definition is None else int(definition.type.value)


def canonical(op: str, attrs: Attrs) -> Attrs:
    """The attributes with those left out that say what would hold without them; floats in single precision."""
    if not attrs:
        return attrs
    definition = schema(op)
    defaults: Mapping[str, Attr | None] = definition.defaults if definition else {}
    kept: dict[str, Attr] = {}
    for name, value in attrs.items():
        value = _single(value)
        default = defaults.get(name)
        if default is not None and repr(default) == repr(value):
            continue
        implied = IMPLIED.get(name)
        if default is None and implied and (op in SPATIAL or op in BLOCKED or name == "perm") and implied(op, value):
            continue
        kept[name] = value
    return attrs if len(kept) == len(attrs) and all(kept[n] is attrs[n] for n in kept) else Attrs(kept)


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


SPATIAL = _set(
    "Conv ConvInteger ConvTranspose QLinearConv DeformConv com.microsoft::FusedConv "
    "MaxPool AveragePool LpPool MaxUnpool CausalConvWithState Im2Col Col2Im"
)
BLOCKED = _set(
    "graphopt::BlockedConv graphopt::BlockedMaxPool graphopt::BlockedAveragePool graphopt::BlockedWinogradConv"
)
_WEIGHTED = _set("Conv ConvInteger ConvTranspose DeformConv QLinearConv com.microsoft::FusedConv graphopt::BlockedConv")

IMPLICIT: dict[tuple[str, str], Callable[[int], Attr]] = {
    ("Transpose", "perm"): lambda rank: tuple(reversed(range(rank))),
    **{(op, "strides"): lambda rank: (1,) * (rank - 2) for op in SPATIAL},
    **{(op, "dilations"): lambda rank: (1,) * (rank - 2) for op in SPATIAL},
    **{(op, "pads"): lambda rank: (0,) * (2 * (rank - 2)) for op in SPATIAL},
    ("ConvTranspose", "output_padding"): lambda rank: (0,) * (rank - 2),
}
"""Defaults that a schema states in words only, as functions of the rank of the first input."""

IMPLIED: dict[str, Callable[[str, Any], bool]] = {
    "perm": lambda op, value: value == tuple(reversed(range(len(value)))),
    "strides": lambda op, value: set(value) <= {1},
    "dilations": lambda op, value: set(value) <= {1},
    "pads": lambda op, value: set(value) <= {0},
    "output_padding": lambda op, value: set(value) <= {0},
    "kernel_shape": lambda op, value: op in _WEIGHTED,  # a valid one repeats the shape of the weights
}
"""Whether a written attribute says only what its implicit default would."""


# -- what an opset accepts


def refusal(op: str, attrs: Attrs, inputs: Sequence[Fact | None], opset: int) -> str | None:
    """Why a call in the inner form would not be valid ONNX at an opset, in words; None where it is.

    Unknown dtypes are not refused, and neither are ops that nobody describes.
    """
    from graphopt.ir.forms import WRITTEN

    if op in WRITTEN or "@" in op:  # older forms of these depend on more than dtypes
        return _refusal(op, attrs, inputs, opset)
    return _refusal_by_dtype(op, attrs, tuple("" if f is None else f.dtype for f in inputs), opset)


@lru_cache(4096)
def _refusal_by_dtype(op: str, attrs: Attrs, dtypes: tuple[str | None, ...], opset: int) -> str | None:
    facts = [None if d == "" else Fact() if d is None else Fact(TensorType(d, ())) for d in dtypes]
    return _refusal(op, attrs, facts, opset)


def _refusal(op: str, attrs: Attrs, inputs: Sequence[Fact | None], opset: int) -> str | None:
    newest = schema(op)
    if newest is None:
        return None
    there = schema(op, opset)
    if there is None:
        return f"{op} needs opset {_first(op)}, the model has {opset}"
    reason = (
        _attribute_refusal(newest, attrs) or _arity_refusal(newest, inputs) or _dtype_refusal(newest, newest, inputs)
    )
    if reason is None and (there.since != newest.since or "@" in op):
        from graphopt.ir.forms import writable

        reason = _dtype_refusal(newest, there, inputs) or writable(op, attrs, inputs, opset)
    return reason


def misuse(op: str, n_inputs: int, n_outputs: int, attributes: Sequence[str], opset: int) -> str | None:
    """Why a node of a model is no call of an op of ONNX's own domain, in words; None where it may be one."""
    if "::" in op or op in EXPERIMENTAL:
        return None
    definition = schema(op, opset) if "@" not in op else None
    if definition is None:
        return _absence(op, opset)
    for what, count, least, most in (
        ("input", n_inputs, definition.min_inputs, definition.max_inputs),
        ("output", n_outputs, definition.min_outputs, definition.max_outputs),
    ):
        if count < least or (most is not None and count > most):
            wanted = str(least) if least == most else f"{least} or more" if most is None else f"{least} to {most}"
            return f"{count} {what}{'' if count == 1 else 's'}, {op} has {wanted} in opset {opset}"
    for attribute in attributes:
        if attribute not in definition.defaults and not attribute.startswith("__"):
            return (
                f"unknown attribute {attribute!r}; {op} has {', '.join(definition.defaults) or 'none'} in opset {opset}"
            )
    return None


@cache
def _absence(name: str, opset: int) -> str | None:
    """Why an op is not in an opset; None where it was once, or where runtimes know it all the same."""
    if name not in names():
        return f"ONNX has no op {name!r}; an op of another domain must name its domain"
    first = min(s.since_version for s in defs.get_all_schemas_with_history() if (s.name, s.domain) == (name, ""))
    return f"{name} needs opset {first}, the model has {opset}" if opset < first and name not in EARLY else None


EXPERIMENTAL = frozenset({
    "ATen", "Affine", "ConstantFill", "Crop", "DynamicSlice", "GRUUnit", "GivenTensorFill", "ImageScaler",
    "ParametricSoftplus", "Scale", "ScaledTanh", "SimplifiedLayerNormalization",
})  # fmt: skip
"""Ops of ONNX's own domain that no schema describes: old experiments, and what ONNX Runtime adds."""

EARLY = frozenset({"LayerNormalization"})
"""Ops that ONNX Runtime knows in opsets before ONNX's first."""


@cache
def _first(op: str) -> int:
    """The first opset that has the op."""
    return next((v for v in range(1, LATEST + 1) if schema(op, v)), LATEST)


def _attribute_refusal(newest: Schema, attrs: Attrs) -> str | None:
    for name in attrs:
        if name not in newest.defaults:
            return f"{newest.op} has no attribute {name}"
    missing = [name for name in sorted(newest.required) if name not in attrs]
    return f"{newest.op} needs the attribute {missing[0]}" if missing else None


def _arity_refusal(newest: Schema, inputs: Sequence[Fact | None]) -> str | None:
    if newest.max_inputs is not None and len(inputs) > newest.max_inputs:
        return f"{newest.op} takes at most {newest.max_inputs} inputs, not {len(inputs)}"
    if len(inputs) < newest.min_inputs:
        return f"{newest.op} takes at least {newest.min_inputs} inputs, not {len(inputs)}"
    for index, fact in enumerate(inputs):
        formal = newest.input(index)
        if fact is None and formal is not None and not formal.optional and not formal.variadic:
            return f"{newest.op} needs its input {formal.name}"
    return None


def _dtype_refusal(newest: Schema, there: Schema, inputs: Sequence[Fact | None]) -> str | None:
    letters: dict[str, str] = {}
    for index, fact in enumerate(inputs):
        dtype = fact.dtype if fact is not None else None
        formal = there.input(index)
        if dtype is None or formal is None:
            continue
        now = newest.input(index)
        if now is None or (now.name != formal.name and len(there.inputs) != len(newest.inputs)):
            continue  # an older form may have another input at this position
        letter = formal.constraint
        if dtype not in there.allowed[letter]:
            return f"{there.op} takes no {dtype} as {formal.name} in version {there.since}"
        if formal.homogeneous and letters.setdefault(letter, dtype) != dtype:
            return f"{there.op} takes one dtype for {letter}, not {letters[letter]} and {dtype}"
    return None


@lru_cache(4096)
def mixture(op: str, dtypes: tuple[str | None, ...]) -> str | None:
    """Why inputs of these dtypes (None: not known, or not given) are none of one call of an op of ONNX's, in words;
    None where they may be."""
    definition = schema(op)
    if definition is None or op in CONTRIB or op in EARLY:  # runtimes may take more
        return None
    letters: dict[str, str] = {}
    for index, dtype in enumerate(dtypes):
        formal = definition.input(index)
        if formal is None or dtype is None or not formal.homogeneous:
            continue
        if letters.setdefault(formal.constraint, dtype) != dtype:
            return f"{formal.name} has to be {letters[formal.constraint]}, as an input before it is"
    return None


# -- algebra and kinds: what schemas do not say


def is_commutative(op: str) -> bool:
    """Whether the order of the op's inputs does not matter."""
    return op in COMMUTATIVE


def is_pure(op: str, attrs: Attrs = NO_ATTRS) -> bool:
    """Whether equal inputs give equal outputs and nothing else happens; bodies among the attributes included."""
    if op in IMPURE or has_effects(op):
        return False
    return all(is_pure(n.op, n.attrs) for a in attrs.values() if isinstance(a, Graph) for n in a.nodes())


def kind(op: str) -> str:
    """The name of the op's kind, a key of ``KINDS`` (the narrowest one), or ``other``."""
    return OPS[op].kind if op in OPS else "other"


def sizes_from(op: str) -> tuple[int, ...]:
    """The inputs of an op after whose elements the shapes of its outputs go."""
    op = op.partition("@")[0]
    return OPS[op].sizes if op in OPS else ()


COMMUTATIVE = ops_where(commutes=True)
IMPURE = ops_where(is_random=True)

KEPT = _set("DequantizeLinear com.microsoft::DequantizeLinear")
"""Ops that count as work at run time even on constants: dequantized weights take four times the bytes."""

QUANTIZING = KEPT | _set("QuantizeLinear com.microsoft::QuantizeLinear")
"""Ops of a scale and a zero point that round numbers to a grid, or read them off it."""

KINDS: dict[str, frozenset[str]] = {
    kind: ops_where(kind=kind) for kind in dict.fromkeys(row.kind for row in OPS.values()) if kind != "other"
}
KINDS["elementwise"] |= KINDS["unary"] | KINDS["binary"]
"""Kinds of ops (``Row.kind``), but that ``elementwise`` has the unary and binary ones, too."""

SETS: dict[str, frozenset[str]] = {
    **KINDS,
    "zero_preserving": ops_where(at_zero=ZERO),
    "finite_at_zero": ops_where(at_zero=FINITE),
    "rising": ops_where(rises=True),
}
"""Names that guards may use for sets of ops: the kinds, and what columns of the op table say."""
