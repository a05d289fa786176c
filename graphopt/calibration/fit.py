"""Prices of a roofline, fitted to what was measured, for the calls that were not.

Every number of a target's ``Prices`` that some measurement depends on is moved to where the priced
seconds are nearest to the measured ones, in ratio: least squares of logarithms, with a loss that a few
wild measurements do not bend, and a little inertia for what hardly any measurement depends on. Numbers
that depend on different measurements are fitted apart from each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.frozen import dataclass
from graphopt.ir import ops
from graphopt.ir.facts import Fact
from graphopt.ir.infer import infer_node
from graphopt.ir.op_table import OPS
from graphopt.rewrite.extract.cost import PRODUCTS, CostModel
from graphopt.rewrite.extract.workload import OpWorkload
from graphopt.target import Prices, Target

SWEEPS = 2
INERTIA = 0.1
"""How much a change of a number by a factor of e weighs, against an error by that factor in one measurement."""

SLOW = 5e-6
"""Measurements far below so many seconds count little: nothing depends on them."""

UNSAID = {"elements": 1e-11, "movement": 1.0, "strided": 1e-11, "powers": 1e-11, "efficiency": 1.0}
"""What a price that the target does not have counts as, by table: next to nothing, or no more than others."""


@dataclass(frozen=True, slots=True)
class MeasuredCall:
    """A measurement: the call, what is known of its inputs and outputs, and what it took."""

    call: OpWorkload
    inputs: tuple[Fact | None, ...]
    outputs: tuple[Fact, ...]
    seconds: float


def rows(times: Mapping[str, float]) -> list[MeasuredCall]:
    """The measurements, by workload, that can be priced: those whose outputs can be inferred."""
    measured: list[MeasuredCall] = []
    for text, seconds in sorted(times.items()):
        call = OpWorkload.parse(text)
        inputs = tuple(None if x is None else x.fact() for x in call.inputs)
        try:
            outputs = tuple(infer_node(call.op, call.attrs, inputs, call.n_outputs, ops.LATEST))
        except GraphoptError:
            continue
        measured.append(MeasuredCall(call, inputs, outputs, seconds))
    return measured


def priced(target: Target, prices: Prices, row: MeasuredCall) -> float:
    """What the prices say that the call takes, its weights in the caches."""
    model = CostModel(replace(target, prices=prices, measured=None), warm=True)
    call = row.call
    return model.cost(call.op, call.attrs, row.inputs, row.outputs, call.blocked).seconds


def apply(prices: Prices, numbers: Mapping[str, float]) -> Prices:
    """The prices with some numbers replaced: by the name of a field, or of a field and an entry in it."""
    changes: dict[str, object] = {}
    for name, number in numbers.items():
        field, dot, entry = name.partition(".")
        before: Any = changes.get(field, getattr(prices, field))
        if not dot:
            changes[field] = number
        elif isinstance(before, tuple):
            changes[field] = tuple(number if str(i) == entry else n for i, n in enumerate(before))
        else:
            changes[field] = {**before, float(entry) if field == "powers" else entry: number}
    return replace(prices, **changes)  # type: ignore[arg-type]


def _number(prices: Prices, name: str) -> float:
    field, dot, entry = name.partition(".")
    value = getattr(prices, field)
    if not dot:
        return float(value)
    if isinstance(value, tuple):
        return float(value[int(entry)])
    if field == "elements" and entry not in value and entry in OPS:
        entry = OPS[entry].priced_as
    return float(value.get(float(entry) if field == "powers" else entry, UNSAID[field]))


def fit(target: Target, measured: Sequence[MeasuredCall]) -> dict[str, float]:
    """The numbers of the target's prices that fit the measurements better than its own do, by name (``apply``)."""
    prices = target.prices
    fitted: dict[str, float] = {}
    for _ in range(SWEEPS):
        for names, rows_of_group in _groups(target, measured):
            fitted |= _solve(target, apply(prices, fitted), names, rows_of_group)
    return {name: float(f"{number:.4g}") for name, number in sorted(fitted.items())}


def _groups(target: Target, measured: Sequence[MeasuredCall]) -> Iterator[tuple[list[str], list[MeasuredCall]]]:
    """Numbers to fit together, and the measurements that depend on them."""
    moving = [row for row in measured if row.call.op not in PRODUCTS]
    if len(moving) > 4:
        yield ["bandwidth.0", "bandwidth.1"], moving
    kinds: dict[str, list[MeasuredCall]] = {}
    by_op: dict[str, list[MeasuredCall]] = {}
    for row in measured:
        if row.call.op in PRODUCTS:
            model = CostModel(target)
            kind = model.kind_of_product(row.call.op, row.inputs)
            kinds.setdefault("blocked " * row.call.blocked + kind, []).append(row)
        else:
            by_op.setdefault("Reduce" if row.call.op.startswith("Reduce") else row.call.op, []).append(row)
    for kind, group in sorted(kinds.items()):
        extra = ["store", "edge", "matrix"] if kind == "matmul" and len(group) > 8 else []
        if kind in target.prices.efficiency:
            yield [f"efficiency.{kind}", *extra], group
    for op, group in sorted(by_op.items()):
        if len(group) > 1:
            yield list(_numbers_of(op, group, target.prices)), group


def _numbers_of(op: str, group: Sequence[MeasuredCall], prices: Prices) -> Iterator[str]:
    """The numbers that the prices of an op depend on, and nothing else does."""
    for name in sorted({row.call.op for row in group}):
        yield f"elements.{name}"
        yield f"movement.{name}"
    if op == "Pow":
        for power in prices.powers:
            if sum(row.call.inputs[1] is not None and row.call.inputs[1].elements == (power,) for row in group) > 1:
                yield f"powers.{power}"
    if op in prices.strided:
        yield f"strided.{op}"
    if op == "Transpose":
        yield from ("scattered", "run")


def _solve(target: Target, prices: Prices, names: list[str], group: Sequence[MeasuredCall]) -> dict[str, float]:
    from scipy.optimize import least_squares

    start = np.array([log(_number(prices, name) or UNSAID["elements"]) for name in names])
    weights = [(row.seconds / (row.seconds + SLOW)) ** 0.5 for row in group]
    wanted = [log(prices.node + row.seconds) for row in group]

    def errors(logs: np.ndarray) -> np.ndarray:
        tried = apply(prices, {name: exp(x) for name, x in zip(names, logs, strict=True)})
        model = CostModel(replace(target, prices=tried, measured=None), warm=True)
        off = [
            weight * (log(model.cost(r.call.op, r.call.attrs, r.inputs, r.outputs, r.call.blocked).seconds) - goal)
            for r, weight, goal in zip(group, weights, wanted, strict=True)
        ]
        return np.array([*off, *(INERTIA * (logs - start))])

    if not any(weight > 0.3 for weight in weights):
        return {}
    solution = least_squares(errors, start, loss="soft_l1", f_scale=0.2, diff_step=1e-2, max_nfev=30)
    before, after = np.sum(np.abs(errors(start))), np.sum(np.abs(errors(solution.x)))
    if not after < before:
        return {}
    return {name: exp(x) for name, x in zip(names, solution.x, strict=True)}


def quality(target: Target, prices: Prices, rows: Sequence[MeasuredCall]) -> dict[str, float]:
    """How well prices predict measurements: the rank correlation, the median ratio of predicted to measured, and the
    part that is within a factor of 1.5."""
    from scipy.stats import spearmanr

    if len(rows) < 3:
        return {}
    predicted = np.array([priced(target, prices, row) for row in rows])
    measured = np.array([prices.node + row.seconds for row in rows])
    ratio = predicted / measured
    if np.ptp(measured) == 0 or np.ptp(predicted) == 0:  # nothing to rank
        return {}
    return {
        "workloads": len(rows),
        "rank correlation": round(float(spearmanr(predicted, measured).statistic), 4),
        "median ratio": round(float(np.median(ratio)), 4),
        "within 1.5x": round(float(np.mean(np.abs(np.log(ratio)) < log(1.5))), 4),
    }
