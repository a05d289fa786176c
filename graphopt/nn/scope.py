"""Scope of tracing: the graph in which the calls of running modules become nodes, and their parameters values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.constants import Array
from graphopt.ir.graph import Value
from graphopt.ir.types import Dim, FloorDiv, Size, Symbol, TensorType
from graphopt.lowering.module.builder import GraphBuilder

if TYPE_CHECKING:
    from graphopt.nn.tensor import Parameter, Tensor

Operand: TypeAlias = "Tensor | Array | np.generic | float | int | bool | None"
"""What a call may take: a tensor or parameter, an array or number that becomes a constant, or nothing."""

_open: ContextVar[TraceScope | None] = ContextVar("graph", default=None)


class TraceScope:
    """One graph on its way: its builder, the values of parameters in it, and the sizes that its values tell."""

    def __init__(self, builder: GraphBuilder, paths: Mapping[int, str], parameters: Mapping[int, Value]) -> None:
        """``paths`` are the names of modules and parameters, and ``parameters`` the values of those that are inputs,
        both by id."""
        self.builder = builder
        self._paths = paths
        self._parameters = dict(parameters)
        self._inside: list[str] = []
        self._told: dict[Size, tuple[Value, int]] = {}
        self._sizes: dict[Size, Value] = {}

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let calls go to this graph."""
        token = _open.set(self)
        try:
            yield
        finally:
            _open.reset(token)

    @contextmanager
    def within(self, module: object) -> Iterator[None]:
        """Let nodes bear the name of a module."""
        self._inside.append(self._paths.get(id(module), self._inside[-1] if self._inside else ""))
        try:
            yield
        finally:
            self._inside.pop()

    def label(self, op: str) -> str:
        """The name of a node of this op, made here: the module's path and the op."""
        short = op.rpartition("::")[2]
        path = self._inside[-1] if self._inside else ""
        return f"{path}.{short}" if path else short

    # -- values

    def operand(self, given: Any) -> Any:
        """What a call is given, as the builder takes it. UsageError for a tensor of another graph."""
        from graphopt.nn.tensor import Parameter, Tensor

        if isinstance(given, Parameter):
            return self.parameter(given)
        if not isinstance(given, Tensor):
            return given
        if given.scope is not self:
            raise UsageError("a tensor of another graph: what a module keeps between exports are its parameters alone")
        return given.value

    def parameter(self, parameter: Parameter) -> Value:
        """The value of a parameter: an input, or a constant. UsageError where it has no elements."""
        if id(parameter) not in self._parameters:
            if parameter.array is None:
                raise UsageError(
                    f"{parameter!r} has no elements: load_state_dict gives the parameters of a module theirs, or "
                    "initialize(); parameters='inputs' of nn.export leaves them open"
                )
            name = self._paths.get(id(parameter), "")
            is_free = name not in self.builder.graph.names.values()
            self._parameters[id(parameter)] = self.builder.constant(parameter.array, name if is_free else "")
        return self._parameters[id(parameter)]

    def tensor(self, value: Value) -> Tensor:
        """A value as a tensor, whose open sizes it tells from now on."""
        from graphopt.nn.tensor import Tensor

        for axis, size in enumerate(self.builder.fact(value).shape or ()):
            if isinstance(size, Dim):
                self._told.setdefault(size, (value, axis))
        return Tensor(self, value)

    def tensors(self, values: Any) -> Any:
        """What the builder made, as a tensor or a tuple of them."""
        return self.tensor(values) if isinstance(values, Value) else tuple(map(self.tensor, values))

    def type(self, value: Value) -> TensorType:
        """The type of a value; UsageError where it is no tensor."""
        return self.builder.type(value)

    # -- sizes

    def shape(self, sizes: Sequence[Size]) -> Value:
        """The sizes as an int64 tensor of rank 1, computed where some are open. UsageError where nothing tells one."""
        if all(isinstance(s, int) for s in sizes):
            return self.builder.constant(np.array(sizes, np.int64))
        parts = [self._size(s) for s in sizes]
        return parts[0] if len(parts) == 1 else self._made("Concat", parts, axis=0)

    def _size(self, size: Size) -> Value:
        """A size as an int64 tensor of one element."""
        if size not in self._sizes:
            self._sizes[size] = self._computed(size)
        return self._sizes[size]

    def _computed(self, size: Size) -> Value:
        if isinstance(size, int):
            return self.builder.constant(np.array([size], np.int64))
        if size in self._told:
            value, axis = self._told[size]
            return self._made("Shape", [value], start=axis, end=axis + 1)
        total: Value | None = None
        for monomial, coefficient in size.terms:
            term = self._size(coefficient)
            for atom in monomial:
                term = self._made("Mul", [term, self._atom(atom, size)])
            total = term if total is None else self._made("Add", [total, term])
        assert total is not None
        return total

    def _atom(self, atom: object, whole: Size) -> Value:
        alone = Dim((((atom,), 1),))  # type: ignore[arg-type]
        if alone in self._told:
            return self._size(alone)
        match atom:
            case FloorDiv(numerator, denominator):
                return self._made("Div", [self._size(numerator), self._size(denominator)])
            case Symbol(name):
                raise UsageError(f"the size {name!r} of {whole} is unknown: no tensor has an axis of it")
        raise UsageError(f"the size {whole} cannot be computed from the axes of tensors")

    def _made(self, op: str, inputs: Sequence[Value], **attrs: Any) -> Value:
        values = self.builder.emit(op, inputs, attrs)
        assert isinstance(values, Value)
        return values


def current() -> TraceScope:
    """The graph that is being written. UsageError where there is none."""
    scope = _open.get()
    if scope is None:
        raise UsageError("modules and tensors compute nothing by themselves: graphopt.nn.export writes their graph")
    return scope


# ------------------------------------------------------------------ calls


def emit(op: str, inputs: Sequence[Operand] = (), attrs: Mapping[str, Any] | None = None, *, n_outputs: int = 1) -> Any:
    """The output of an ONNX op in its newest form (a tuple where ``n_outputs`` is not 1), as ``GraphBuilder.emit``.

    Raises UsageError where the op does not take these inputs or attributes, and InvalidModelError where they do not
    fit together.

    >>> print(nn.export(lambda x: nn.emit("Celu", [x], {"alpha": 0.5}), X))
    graph ...
    %0: float32[n, 8] = Celu(x, alpha=0.5)
    return %0 as y
    """
    scope = current()
    given = [scope.operand(x) for x in inputs]
    return scope.tensors(scope.builder.emit(op, given, attrs, n_outputs=n_outputs, name=scope.label(op)))


def one(op: str, inputs: Sequence[Operand], **attrs: Any) -> Tensor:
    """The one output of an op."""
    tensor: Tensor = emit(op, inputs, attrs)
    return tensor


def emit_compute(function: Any, inputs: Sequence[Operand], *, name: str = "", **arguments: Any) -> Any:
    """The output of a tensor function (``graphopt.te``, ``graphopt.tensor``), which becomes a program of the module;
    further arguments are passed on to it.

    >>> print(nn.export(lambda x: nn.emit_compute(tensor.relu, [x]), X))
    @program
    def relu(x0: Buffer[("n", 8), "float32"], relu: Buffer[("n", 8), "float32"], n: size):
        notes({"schedule": "default"})
        for i0, i1 in grid(n, 8):
            with block("relu"):
                v0, v1 = axis.remap("SS", [i0, i1])
                relu[v0, v1] = max(x0[v0, v1], 0.0)
    <BLANKLINE>
    graph main (ir 10, opset 23, module 1)
    x: float32[n, 8]
    %0: float32[n, 8] = module::relu(x)
    return %0 as y
    """
    scope = current()
    return scope.tensors(
        scope.builder.emit_compute(function, [scope.operand(x) for x in inputs], name=name, **arguments)
    )


def call(
    name: str,
    inputs: Sequence[Operand] = (),
    *,
    out_shape: Any = None,
    out_dtype: str | Sequence[str] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Any:
    """The output of a function that ``graphopt.register`` made known, as ``GraphBuilder.call``.

    >>> @graphopt.register("my.double")
    ... def double(x, out):
    ...     np.multiply(x, 2, out=out)
    >>> print(nn.export(lambda x: nn.call("my.double", [x], out_shape=x.shape), X))
    external my.double
    <BLANKLINE>
    graph main (ir 10, opset 23, my 1)
    x: float32[n, 8]
    %0: float32[n, 8] = my::double(x)
    return %0 as y
    """
    scope = current()
    given = [scope.operand(x) for x in inputs]
    return scope.tensors(scope.builder.call(name, given, out_shape=out_shape, out_dtype=out_dtype, attrs=attrs))
