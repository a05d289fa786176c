"""Export of a module of ``graphopt.nn``: its forward runs once, on tensors that are values of the graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from inspect import signature
from typing import Any, Literal

from graphopt.errors import ReadError, UsageError
from graphopt.ir.text import parse
from graphopt.ir.types import TensorType, Unranked
from graphopt.lowering.module.builder import GraphBuilder
from graphopt.lowering.module.module import MAIN
from graphopt.lowering.module.module import Module as Functions
from graphopt.nn.module import Module
from graphopt.nn.scope import TraceScope
from graphopt.nn.tensor import Tensor

OPSET = 23
"""The opset of exported graphs where nobody asks for another: the first that has attention and rotary embeddings."""


def export(
    module: Module,
    inputs: Mapping[str, str | TensorType],
    *,
    parameters: Literal["constants", "inputs"] = "constants",
    name: str = MAIN,
    opset: int = OPSET,
) -> Functions:
    """The graph of a module as the function ``name`` of a ``graphopt.Module``, beside the programs and external
    functions that it calls; ``graphopt.compile`` and ``graphopt.optimize`` take it, and its ``graph()`` is what
    ``graphopt.save`` writes.

    ``inputs`` are the types of what ``forward`` takes, in order and by name: as text, in which sizes may be names
    (``"float32[n, 3, 224, 224]"``), or as ``TensorType``. Parameters become constants, or, behind the others, inputs
    that are named by their paths. What ``forward`` gives is the output ``y``, or ``y0``, ``y1``, ... where it gives
    several, or what the keys of a dict say. Raises UsageError for what is no such thing, and where parameters that are
    to be constants have no elements.
    """
    if not isinstance(module, Module) or not isinstance(inputs, Mapping):
        raise UsageError(f"a module and the types of its inputs by name are exported, not {module!r} and {inputs!r}")
    if parameters not in ("constants", "inputs"):
        raise UsageError(f"parameters become 'constants' or 'inputs', not {parameters!r}")
    builder = GraphBuilder(name, opset=opset)
    everything: list[tuple[str, object]] = [*module.named_modules(), *module.named_parameters()]
    paths = {id(item): path for path, item in reversed(everything)}  # the first of several counts
    _check_signature(module, inputs)
    given = [_input(builder, n, _type(n, t)) for n, t in inputs.items()]
    bound = {}
    if parameters == "inputs":
        bound = {id(p): _input(builder, path, p.type) for path, p in module.named_parameters()}
    scope = TraceScope(builder, paths, bound)
    with scope.open():
        item = module(*map(scope.tensor, given))
        for label, value in _outputs(module, item):
            if label in builder.graph.names.values():
                raise UsageError(f"there is an input {label!r} already: a dict of forward's names outputs otherwise")
            builder.output(label, scope.operand(value))
    return builder.build()


def _check_signature(module: Module, inputs: Mapping[str, object]) -> None:
    """UsageError where forward cannot be called with so many inputs."""
    forward = signature(module.forward)
    try:
        forward.bind(*inputs)
    except TypeError as error:
        what = f"{type(module).__name__}.forward({', '.join(forward.parameters)})"
        raise UsageError(f"{what} is given {', '.join(inputs) or 'no inputs'}: {error}") from None


def _input(builder: GraphBuilder, name: str, type: TensorType) -> Any:
    assert not isinstance(type.shape, Unranked)
    return builder.input(name, type.dtype, type.shape)


def _type(name: str, given: str | TensorType) -> TensorType:
    """The type of an input, from how it is written."""
    declared: object = given
    if isinstance(given, str):
        try:
            graph = parse(f"x: {given}\nreturn x")
        except ReadError as error:
            wrong = str(error).partition(": ")[2]
            raise UsageError(f"the type of {name!r} is written like 'float32[n, 64]', not {given!r}: {wrong}") from None
        declared = graph.types.get(graph.inputs[0]) if len(graph.inputs) == 1 else None
    if not isinstance(declared, TensorType) or isinstance(declared.shape, Unranked):
        raise UsageError(f"the type of {name!r} is a dtype and a shape, as in 'float32[n, 64]', not {given!r}")
    return declared


def _outputs(module: Module, results: object) -> Iterator[tuple[str, Tensor]]:
    """What forward gave, by name."""
    named: dict[Any, object]
    if isinstance(results, dict):
        named = results
    elif isinstance(results, tuple | list):
        named = {f"y{k}": value for k, value in enumerate(results)}
    else:
        named = {"y": results}
    for label, value in named.items():
        if not isinstance(label, str) or not isinstance(value, Tensor):
            what = f"{type(module).__name__}.forward"
            raise UsageError(f"{what} gives a tensor, several, or a dict of them by name, not {value!r} as {label!r}")
        yield label, value
