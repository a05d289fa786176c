"""Export of a module of ``graphopt.nn``: its forward runs once, on tensors that are values of the graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
    module: Module | Callable[..., Any],
    inputs: Mapping[str, str | TensorType] | Mapping[str, Mapping[str, str | TensorType]],
    *,
    parameters: Literal["constants", "inputs"] = "constants",
    name: str = MAIN,
    opset: int = OPSET,
) -> Functions:
    """The graph of a module, or of a function of tensors, as the function ``name`` of a ``graphopt.Module``, beside the
    programs and external functions that it calls; ``graphopt.compile`` and ``graphopt.optimize`` take it, and its
    ``graph()`` is what ``graphopt.save`` writes.

    ``inputs`` are the types of what ``forward`` takes, in order and by name: as text, in which sizes may be names
    (``"float32[n, 3, 224, 224]"``), or as ``TensorType``. Parameters become constants, or, behind the others, inputs
    that are named by their paths. What ``forward`` gives is the output ``y``, or ``y0``, ``y1``, ... where it gives
    several, or what the keys of a dict say.

    Several methods are exported by their names, each with the types of what it takes: ``{"prefill": {"ids": ...},
    "decode": {"ids": ...}}``; constants that they share are one. Raises UsageError for what is no such thing, and where
    parameters that are to be constants have no elements.

    >>> print(nn.export(nn.Linear(8, 4), X, parameters="inputs"))
    graph ...
    %0: float32[n, 4] = Gemm(x, weight, bias, transB=1)
    return %0 as y
    """
    if not (isinstance(module, Module) or callable(module)) or isinstance(module, type):
        raise UsageError(f"a module, or a function of tensors, is exported, not {module!r}")
    if not isinstance(inputs, Mapping):
        raise UsageError(f"the types of inputs are given by name, as in {{'x': 'float32[n, 8]'}}, not as {inputs!r}")
    if parameters not in ("constants", "inputs"):
        raise UsageError(f"parameters become 'constants' or 'inputs', not {parameters!r}")
    whole = module if isinstance(module, Module) else _Function(module)
    methods = {method: types for method, types in inputs.items() if isinstance(types, Mapping)}
    if not methods or len(methods) < len(inputs):
        return _exported(whole, "forward", inputs, parameters, GraphBuilder(name, opset=opset))
    functions = Functions()
    for method, types in methods.items():
        if not callable(getattr(whole, method, None)):
            raise UsageError(f"{type(whole).__name__} has no method {method!r} to export")
        builder = GraphBuilder(method, module=functions, opset=opset)
        functions = _exported(whole, method, types, parameters, builder)
    return functions


class _Function(Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.forward = function  # type: ignore[method-assign]


def _exported(
    module: Module, method: str, inputs: Mapping[str, Any], parameters: str, builder: GraphBuilder
) -> Functions:
    """The module of a builder with the graph of a method."""
    everything: list[tuple[str, object]] = [*module.named_modules(), *module.named_parameters()]
    paths = {id(item): path for path, item in reversed(everything)}  # the first of several counts
    _check_signature(module, method, inputs)
    given = [_input(builder, n, _type(n, t)) for n, t in inputs.items()]
    bound = {}
    if parameters == "inputs":
        bound = {id(p): _input(builder, path, p.type) for path, p in module.named_parameters()}
    scope = TraceScope(builder, paths, bound)
    with scope.open():
        with scope.within(module):
            item = getattr(module, method)(*map(scope.tensor, given))
        for label, value in _outputs(_called(module, method), item):
            if label in builder.graph.names.values():
                raise UsageError(f"there is an input {label!r} already: a dict of forward's names outputs otherwise")
            builder.output(label, scope.operand(value))
    return builder.build()


def _check_signature(module: Module, method: str, inputs: Mapping[str, object]) -> None:
    """UsageError where a method cannot be called with so many inputs."""
    forward = signature(getattr(module, method))
    try:
        forward.bind(*inputs)
    except TypeError as error:
        what = f"{_called(module, method)}({', '.join(forward.parameters)})"
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


def _called(module: Module, method: str) -> str:
    """What is exported, as errors name it."""
    if isinstance(module, _Function):
        return getattr(module.forward, "__name__", "the function")
    return f"{type(module).__name__}.{method}"


def _outputs(what: str, results: object) -> Iterator[tuple[str, Tensor]]:
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
            raise UsageError(f"{what} gives a tensor, several, or a dict of them by name, not {value!r} as {label!r}")
        yield label, value
