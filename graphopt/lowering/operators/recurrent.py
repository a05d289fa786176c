"""Recurrent networks: LSTM, GRU and RNN, with their activations and gate formulas."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graphopt.ir.graph import NO_ATTRS, Attrs
from graphopt.ir.ops import attribute, schema
from graphopt.lowering.loops.compute import Tensor
from graphopt.lowering.loops.expressions import Expr, const, maximum, minimum
from graphopt.lowering.loops.nest import Stmt
from graphopt.lowering.operators.activations import FORMULAS
from graphopt.lowering.operators.elements import integer
from graphopt.lowering.operators.operation import LoweringTable, NotLowered, Operation
from graphopt.lowering.operators.recurrent_phases import Point
from graphopt.lowering.operators.recurrent_steps import Recurrence

Activation = Callable[[Expr], Expr]
DEFAULTS: Mapping[str, tuple[str, ...]] = {
    "GRU": ("Sigmoid", "Tanh"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh"),
    "RNN": ("Tanh",),
}
"""The activations of each direction, where none are named."""
_ACTIVATIONS = "Affine Elu HardSigmoid LeakyRelu Relu ScaledTanh Sigmoid Softplus Softsign Tanh ThresholdedRelu"
TAKES: Mapping[str, tuple[str, ...]] = {
    op: tuple(n for n in ("alpha", "beta") if (op_schema := schema(op)) is not None and n in op_schema.defaults)
    for op in _ACTIVATIONS.split()
}
"""The activations that there are, and the numbers that each takes from the attributes, in turn."""


def lstm(op: Operation) -> Sequence[Tensor]:
    """Gates i, o, f, c; peepholes look at the cell."""
    r = Recurrence(op, 4)
    cell = r.kept("cell", 6)
    peepholes = r.read(r.frame.parts(op.input(7), 3, 0, 3, "peepholes")) if op.has(7) else None
    coupled = bool(integer(op, "input_forget"))
    activations = _activations(op, r)

    def finish(at: Point) -> Sequence[Stmt]:
        f, g, h = activations[at.d]
        before = at.of(cell)

        def peep(k: int, seen: Expr) -> Expr:
            return at.gate(k) if peepholes is None else at.gate(k) + peepholes[at.d, k, at.n] * seen

        i = f(peep(0, before))
        forget = 1.0 - i if coupled else f(peep(2, before))
        kept = at.store(cell, forget * before + i * g(at.gate(3)))
        return [kept, at.store(r.new, f(peep(1, at.of(cell))) * h(at.of(cell)))]

    r.phase(0, 4, r.state, finish)
    return r.described()


def gru(op: Operation) -> Sequence[Tensor]:
    """Gates z, r, h; the reset is applied to the state, or to its product (``linear_before_reset``)."""
    linear = bool(integer(op, "linear_before_reset"))
    r = Recurrence(op, 3, apart=2 if linear else None)
    activations = _activations(op, r)

    def state(at: Point, z: Expr, new: Expr) -> Stmt:
        return at.store(r.new, (1.0 - z) * activations[at.d][1](new) + z * at.of(r.state))

    def whole(at: Point) -> Sequence[Stmt]:
        f, _ = activations[at.d]
        return [state(at, f(at.gate(0)), at.apart + f(at.gate(1)) * at.gate(2))]

    if linear:
        r.phase(0, 3, r.state, whole)
        return r.described()
    update, reset = r.between("update"), r.between("reset")

    def first(at: Point) -> Sequence[Stmt]:
        f, _ = activations[at.d]
        return [at.store(update, f(at.gate(0))), at.store(reset, f(at.gate(1)) * at.of(r.state))]

    r.phase(0, 2, r.state, first)
    r.phase(2, 1, reset, lambda at: [state(at, at.of(update), at.gate(2))])
    return r.described()


def rnn(op: Operation) -> Sequence[Tensor]:
    """One gate, which is the new state."""
    r = Recurrence(op, 1)
    activations = _activations(op, r)
    r.phase(0, 1, r.state, lambda at: [at.store(r.new, activations[at.d][0](at.gate(0)))])
    return r.described()


# -- activations


def _activations(op: Operation, r: Recurrence) -> list[list[Activation]]:
    """The activations of each direction."""
    ways, each = len(r.backwards), len(DEFAULTS[op.op])
    named = op.attr("activations")
    names = [str(n) for n in named] if isinstance(named, tuple) and named else [*DEFAULTS[op.op]] * ways
    numbers = {name: _numbers(op, f"activation_{name}") for name in ("alpha", "beta")}
    kinds = {name.lower(): name for name in TAKES}
    activations = []
    for name in names:
        if name.lower() not in kinds:
            raise NotLowered(f"{op.op} with the activation {name}")
        kind = kinds[name.lower()]
        attributes = {n: numbers[n].pop(0) for n in TAKES[kind] if numbers[n]}
        activations.append(_clipped(op, r.inner, _activation(op, kind, attributes)))
    if len(activations) < ways * each:
        raise NotLowered(f"{op.op} with {len(activations)} activations")
    return [activations[d * each : (d + 1) * each] for d in range(ways)]  # RNN's default names two, for both directions


def _clipped(op: Operation, dtype: str, function: Activation) -> Activation:
    """An activation of what is held within the bounds that the op names."""
    clip = op.attr("clip")
    if not isinstance(clip, (int, float)):
        return function
    low, high = const(-clip, dtype), const(clip, dtype)
    return lambda x: function(minimum(maximum(x, low), high))


def _numbers(op: Operation, name: str) -> list[float]:
    values = op.attr(name)
    return [float(v) for v in values if isinstance(v, (int, float))] if isinstance(values, tuple) else []


def _activation(op: Operation, kind: str, numbers: Mapping[str, float]) -> Activation:
    unsaid = {name: 1.0 for name in TAKES[kind] if attribute(kind, NO_ATTRS, name) is None}
    operation = Operation(kind, Attrs({**unsaid, **numbers}), (), (), (), op.opset)
    return lambda x: FORMULAS[kind](operation, x)


TABLE: LoweringTable = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
