"""Operator table: the lowering function of each op; ``lower`` adds to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from graphopt.errors import UsageError
from graphopt.ir.custom_ops import Added, Outputs, add
from graphopt.lowering.loops.compute import Tensor
from graphopt.lowering.loops.expressions import Const
from graphopt.lowering.operators.operation import DTYPES, NARROW, NotLowered, Operation, OperatorLowering, held

MODULES = (
    "elementwise",
    "activations",
    "reductions",
    "softmax",
    "normalizations",
    "row_normalizations",
    "movement",
    "padding",
    "filling",
    "indexing",
    "sorting",
    "selection",
    "resize",
    "sampling",
    "regions",
    "folding",
    "products",
    "programs",
    "bfloat",
    "einsum",
    "blocked",
    "winograd",
    "convolutions",
    "pooling",
    "unpooling",
    "deformable",
    "determinants",
    "recurrent",
    "attention",
    "quantized",
    "quantized_products",
    "fused",
    "optimizers",
    "signals",
    "tabular",
)
"""The modules of this package, each with a ``TABLE`` from ops to functions; no op stands in two."""

_added: dict[str, OperatorLowering] = {}


def is_extended() -> bool:
    """Whether users added any."""
    return bool(_added)


def lower(op: str, outputs: Outputs | None = None) -> Callable[[OperatorLowering], OperatorLowering]:
    """A decorator: the function describes what ``op`` (``MyOp``, ``my.domain::MyOp``) computes from now on.

    It takes an ``Operation`` and gives back one tensor for each output; it raises ``NotLowered`` where the op is
    better left to the reference evaluator. Of an op that ONNX does not have, ``outputs`` gives the types of the
    outputs, from those of the inputs (``TensorType``) and the attributes by name.
    """

    def describes(function: OperatorLowering) -> OperatorLowering:
        _added[op] = function
        if outputs is not None:
            add(op, Added(outputs))
        return function

    return describes


@cache
def _own() -> dict[str, OperatorLowering]:
    functions: dict[str, OperatorLowering] = {}
    for module in MODULES:
        for op, function in import_module(f"graphopt.lowering.operators.{module}").TABLE.items():
            assert op not in functions, f"{op} stands in two tables"
            functions[op] = function
    return functions


def lowering(op: str) -> OperatorLowering | None:
    """The function that describes an op, if there is one."""
    return _added.get(op) or _own().get(op)


def on_codes(op: str, function: OperatorLowering) -> OperatorLowering | None:
    """The lowering of an op for inputs or outputs of narrow types; None where it has none."""
    from graphopt.lowering.operators import narrow  # it asks other modules' tables

    return narrow.moved(function) if op in narrow.MOVES else narrow.TABLE.get(op)


def describe(operation: Operation) -> tuple[Tensor, ...]:
    """The tensors that the operation computes, one for each output. NotLowered, with the reason, where it cannot be."""
    function = lowering(operation.op)
    if function is None:
        raise NotLowered(f"no nest is written for {operation.op}")
    facts = (*operation.facts, *operation.outputs)
    coded = on_codes(operation.op, function) if any(f is not None and f.dtype in NARROW for f in facts) else None
    for k, fact in enumerate(facts):
        if fact is not None and fact.dtype not in DTYPES and (coded is None or fact.dtype not in NARROW):
            raise NotLowered(f"value {k} of {operation.op} is {fact.dtype or fact.type}")
    result = (coded or function)(operation)
    tensors = tuple(result) if isinstance(result, list | tuple) else (result,)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise UsageError(
                f"what lowers {operation.op} gives {tensor!r}, and a tensor that compute makes is expected"
            )
    for tensor, fact in zip(tensors, operation.outputs, strict=False):
        if tensor.dtype != held(fact.dtype or "") or (fact.rank is not None and tensor.rank != fact.rank):
            raise AssertionError(f"{operation.op} makes {tensor.dtype} of rank {tensor.rank}, not {fact.type}")
        for extent, size in zip(tensor.shape, fact.shape or (), strict=True):
            if isinstance(extent, Const) and isinstance(size, int) and extent.value != size:
                shape = ", ".join(map(str, tensor.shape))
                raise AssertionError(f"{operation.op} makes {tensor.dtype}[{shape}], not {fact.type}")
    return tensors
