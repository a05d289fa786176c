"""Feature ops (ai.onnx.ml): scalers, normalizers, label encoders."""

from __future__ import annotations

from math import isnan

from graphopt.ir.constants import Constant
from graphopt.lowering.loops import compute as t
from graphopt.lowering.loops.compute import Tensor, compute
from graphopt.lowering.loops.expressions import Expr, ScalarNumber, apply, cast, const, equal, maximum, select
from graphopt.lowering.operators.elements import is_float, label, text
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.reductions import over

DOMAIN = "ai.onnx.ml::"
MOST = 64
"""Labels that are compared one after another."""


def _numbers(op: Operation, name: str) -> list[ScalarNumber]:
    values = op.attr(name)
    return [v for v in values if isinstance(v, (int, float))] if isinstance(values, tuple) else []


def _one_of(values: list[ScalarNumber], index: Expr, dtype: str) -> Expr:
    """The value at an index; the only one for all."""
    selected: Expr = const(values[-1], dtype)
    for k, value in reversed(list(enumerate(values[:-1]))):
        selected = select(equal(index, k), value, selected)
    return selected


def _scaler(op: Operation) -> Tensor:
    x, dtype = op.input(0), op.dtype()
    offsets, scales = _numbers(op, "offset") or [0.0], _numbers(op, "scale") or [1.0]
    if max(len(offsets), len(scales)) > MOST or x.rank < 1:
        raise NotLowered(f"{op.op} of more than {MOST} features")

    def element(*at: Expr) -> Expr:
        value = cast(x[at], dtype) - _one_of(offsets, at[-1], dtype)
        return value * _one_of(scales, at[-1], dtype)

    return compute(x.shape, element, dtype, label(op))


def _normalizer(op: Operation) -> Tensor:
    """Rows whose largest absolute value, their sum, or root of their squares is one."""
    x, dtype, kind = op.input(0), op.dtype(), text(op, "norm")
    if x.rank != 2 or kind not in ("MAX", "L1", "L2"):
        raise NotLowered(f"{op.op} by {kind!r} of a tensor of rank {x.rank}")

    def size(*at: Expr) -> Expr:
        value = cast(x[at], dtype)
        return value * value if kind == "L2" else apply("abs", value)

    total = over(x.shape, (1,), size, t.max if kind == "MAX" else t.sum, "total")

    def element(row: Expr, column: Expr) -> Expr:
        whole = apply("sqrt", total[row]) if kind == "L2" else total[row]
        return cast(x[row, column], dtype) / maximum(whole, 1e-30)

    return compute(x.shape, element, dtype, label(op))


def _label_encoder(op: Operation) -> Tensor:
    """The value of the key that an element equals, or the default."""
    x, dtype = op.input(0), op.dtype()
    keys, values = _listed(op, "keys"), _listed(op, "values")
    default = op.attr("default_tensor")
    if isinstance(default, Constant):
        other: ScalarNumber = default.array.reshape(-1)[0].item()
    else:
        plain = op.attr("default_float" if dtype == "float32" else "default_int64")
        other = plain if isinstance(plain, (int, float)) else -0.0 if dtype == "float32" else -1
    if len(keys) > MOST:
        raise NotLowered(f"{op.op} of more than {MOST} labels")

    def element(*at: Expr) -> Expr:
        value: Expr = x[at]
        selected: Expr = const(other, dtype)
        for key, new in reversed(list(zip(keys, values, strict=True))):
            same = apply("isnan", value) if isnan(key) and is_float(value) else equal(value, const(key, x.dtype))
            selected = select(same, const(new, dtype), selected)
        return selected

    return compute(x.shape, element, dtype, label(op))


def _listed(op: Operation, name: str) -> list[ScalarNumber]:
    """Keys or values, however they are given."""
    for suffix in ("int64s", "floats"):
        if numbers := _numbers(op, f"{name}_{suffix}"):
            return numbers
    tensor = op.attr(f"{name}_tensor")
    if not isinstance(tensor, Constant):
        raise NotLowered(f"{op.op} with {name} that are no numbers")
    if tensor.dtype == "string":
        raise NotLowered(f"{op.op} with {name} that are no numbers")
    return list(tensor.array.reshape(-1).tolist())


TABLE: LoweringTable = {
    DOMAIN + "LabelEncoder": _label_encoder,
    DOMAIN + "Normalizer": _normalizer,
    DOMAIN + "Scaler": _scaler,
}
