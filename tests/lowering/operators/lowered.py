"""ONNX's node tests through our descriptions of ops, interpreted: what every operator module is measured against."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from graphopt.ir import ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Array
from graphopt.ir.facts import Fact
from graphopt.ir.infer import infer_node
from graphopt.ir.types import TensorType
from graphopt.lowering.compute import nest
from graphopt.lowering.interpret import interpret
from graphopt.lowering.operators.node import tensor_of
from graphopt.lowering.operators.operation import NotLowered, Operation, Sizes
from graphopt.lowering.operators.table import describe
from graphopt.tolerance import error
from tests.ir.backend_cases import Case, cases

SMALL = 3_000
"""Output elements that the interpreter gets through in well under a second."""


def operation(case: Case, known: bool) -> Operation:
    """The case's op; with ``known``, the elements of its inputs are known ahead of time."""
    size = Sizes()
    facts: list[Fact | None] = [
        None if c is None else fact_of(c) if known else Fact(TensorType(c.dtype, tuple(c.shape))) for c in case.inputs
    ]
    given = [None if c is None else fact_of(c) for c in case.inputs]
    inferred = infer_node(case.node.op, case.node.attrs, given, len(case.node.outputs), case.opset)
    tensors = tuple(None if f is None else tensor_of(f, size, f"x{k}") for k, f in enumerate(facts))
    outputs = tuple(
        f if c is None else Fact(TensorType(c.dtype, tuple(c.shape)))
        for f, c in zip(inferred, case.outputs, strict=True)
    )
    return Operation(case.node.op, case.node.attrs, tensors, tuple(facts), outputs, case.opset, size)


def computed(case: Case) -> list[Array]:
    """What the description makes of the case's inputs; its inputs' elements count as known only where they have to."""
    try:
        op = operation(case, known=False)
        tensors = describe(op)
    except NotLowered:
        op = operation(case, known=True)
        tensors = describe(op)
    inputs = [(t, c.array) for t, c in zip(op.inputs, case.inputs, strict=True) if t is not None and c is not None]
    program = nest("case", [t for t, _ in inputs], list(tensors))
    outputs = [np.zeros([int(e.value) for e in t.shape], _numpy(t.dtype)) for t in tensors]
    interpret(program, [*(a for _, a in inputs), *outputs])
    return outputs


def _numpy(dtype: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, dtype, dtype) if dtype == "bfloat16" else dtype)


def cases_of(table: Iterable[str]) -> list[object]:
    """The cases whose op stands in a module's table and whose size the interpreter can cope with, as parameters."""
    wanted = set(table)
    found = [c for c in cases() if c.node.op in wanted or ops.split(c.node.op)[1] in wanted]
    return [pytest.param(c, id=c.name) for c in found if sum(o.size for o in c.outputs if o is not None) <= SMALL]


def check(case: Case) -> None:
    """The case passes, or its op says why it is not lowered (then the test is skipped with the reason)."""
    try:
        outputs = computed(case)
    except NotLowered as reason:
        pytest.skip(str(reason))
    for want, got in zip(case.outputs, outputs, strict=False):
        if want is not None:
            assert error(want.array, got) <= 1.0
