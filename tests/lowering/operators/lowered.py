"""Descriptions of ops, interpreted: against ONNX's node tests, and against the reference on the test's own inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np
import pytest

from graphopt.ir import evaluate, ops
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attr, Attrs
from graphopt.ir.infer import infer_node
from graphopt.ir.text.elements import numpy_dtype
from graphopt.ir.tolerance import error
from graphopt.ir.types import TensorType, symbol
from graphopt.lowering.intrinsics.tensor_intrin import descriptions
from graphopt.lowering.loops.compute import Tensor, nest
from graphopt.lowering.loops.interpret import interpret, value
from graphopt.lowering.operators.node import tensor_of
from graphopt.lowering.operators.operation import DTYPES, NotLowered, Operation, SizeVars
from graphopt.lowering.operators.table import describe
from tests.ir.backend_cases import Case, cases

SMALL = 3_000
"""Output elements that the interpreter gets through in well under a second."""

Shape: TypeAlias = Sequence["int | str"]
"""Sizes; those that are not known ahead of time have names."""


# -- ONNX's node tests


def cases_of(table: Iterable[str], but_not: Collection[str] = ()) -> list[Any]:
    """The cases whose op stands in a module's table, as parameters: those whose dtypes nests compute with, and which
    the interpreter can cope with, but not those named."""
    small = [c for c in _cases(table) if sum(o.size for o in c.outputs if o is not None) <= SMALL]
    return [pytest.param(c, id=c.name) for c in small if c.name not in but_not]


def not_lowered(table: Iterable[str]) -> set[str]:
    """The names of the cases whose dtypes nests compute with, and of which no nest can be written all the same."""
    found = set()
    for case in _cases(table):
        try:
            described(case)
        except NotLowered:
            found.add(case.name)
    return found


def _cases(table: Iterable[str]) -> list[Case]:
    wanted = set(table)
    found = [c for c in cases() if c.node.op in wanted or ops.split(c.node.op)[1] in wanted]
    return [c for c in found if {t.dtype for t in (*c.inputs, *c.outputs) if t is not None} <= DTYPES]


def described(case: Case) -> tuple[Operation, tuple[Tensor, ...]]:
    """The case's op, and what is computed; its inputs' elements count as known only where they have to."""
    try:
        operation = _operation(case, known=False)
        return operation, describe(operation)
    except NotLowered:
        operation = _operation(case, known=True)
        return operation, describe(operation)


def _operation(case: Case, known: bool) -> Operation:
    facts: list[Fact | None] = [
        None if c is None else fact_of(c) if known else Fact(TensorType(c.dtype, tuple(c.shape))) for c in case.inputs
    ]
    given = [None if c is None else fact_of(c) for c in case.inputs]
    inferred = infer_node(case.node.op, case.node.attrs, given, len(case.node.outputs), case.opset)
    outputs = tuple(
        f if c is None else Fact(TensorType(c.dtype, tuple(c.shape)))
        for f, c in zip(inferred, case.outputs, strict=True)
    )
    return _applied(case.node.op, case.node.attrs, facts, outputs, case.opset)


def _applied(op: str, attrs: Attrs, facts: Sequence[Fact | None], outputs: tuple[Fact, ...], opset: int) -> Operation:
    size = SpelledOut()
    tensors = tuple(None if f is None else tensor_of(f, size, f"x{k}") for k, f in enumerate(facts))
    return Operation(op, attrs, tensors, tuple(facts), outputs, opset, size)


def check(case: Case) -> None:
    """Asserts that the description makes of the case's inputs what the case expects."""
    operation, tensors = described(case)
    outputs = interpreted(operation, tensors, [None if c is None else c.array for c in case.inputs])
    for want, got in zip(case.outputs, outputs, strict=False):
        if want is not None:
            assert error(want.array, got) <= 1.0


class SpelledOut(SizeVars):
    """Sizes whose variables all stand for symbols, which the arrays tell."""

    spells_out = True


# -- inputs of one's own


def interpreted(operation: Operation, tensors: Sequence[Tensor], arrays: Sequence[Array | None]) -> list[Array]:
    """The tensors, computed from arrays for the operation's inputs. What is not computed stays recognizably wrong."""
    inputs = [(t, a) for t, a in zip(operation.inputs, arrays, strict=True) if t is not None and a is not None]
    sizes = {
        v.name: n
        for v in operation.size.variables.values()
        for t, a in inputs
        for e, n in zip(t.shape, a.shape, strict=True)
        if e == v
    }
    program = nest("case", [t for t, _ in inputs], list(tensors), list(operation.size.variables.values()))
    outputs = [np.full([value(e, sizes) for e in t.shape], 77, numpy_dtype(t.dtype)) for t in tensors]
    interpret(program, [*(a for _, a in inputs), *outputs], sizes, descriptions(program))
    return outputs


def computed(
    op: str,
    arrays: Sequence[Array | None],
    shapes: Sequence[Shape | None] | None = None,
    known: Collection[int] = (),
    n_outputs: int = 1,
    **attrs: Attr,
) -> list[Array]:
    """What the description of an op makes of arrays, whose ``shapes`` may name sizes that it does not know.

    The elements of the inputs in ``known`` are known to it.
    """
    facts: list[Fact | None] = []
    for k, array in enumerate(arrays):
        shape = None if array is None else array.shape if shapes is None else shapes[k]
        if array is None or shape is None:
            facts.append(None)
        elif k in known:
            facts.append(fact_of(Constant.of(array)))
        else:
            sizes = tuple(symbol(n) if isinstance(n, str) else n for n in shape)
            facts.append(Fact(TensorType(array.dtype.name, sizes)))
    outputs = infer_node(op, Attrs(attrs), facts, n_outputs, ops.LATEST)
    operation = _applied(op, Attrs(attrs), facts, outputs, ops.LATEST)
    return interpreted(operation, describe(operation), arrays)


def agree(
    op: str,
    arrays: Sequence[Array | None],
    shapes: Sequence[Shape | None] | None = None,
    known: Collection[int] = (),
    n_outputs: int = 1,
    **attrs: Attr,
) -> None:
    """Asserts that the description of an op computes what the reference does."""
    got = computed(op, arrays, shapes, known, n_outputs, **attrs)
    want = evaluate.compute(op, Attrs(attrs), arrays, n_outputs)
    for a, b in zip(want, got, strict=True):
        assert error(np.asarray(a), b) <= 1.0, f"{op}: {b} is not {a}"
