"""Tensors of a graph that is being written, with the operators and methods that arrays have, and parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from graphopt.errors import UsageError
from graphopt.ir.constants import Array
from graphopt.ir.dtypes import CODES
from graphopt.ir.graph import Value
from graphopt.ir.types import Size, TensorType
from graphopt.nn.indexing import axis_of, indexed, reshaped
from graphopt.nn.scope import Operand, TraceScope, current, one

Initial: TypeAlias = Callable[[np.random.Generator, tuple[int, ...]], Array]
"""Draws the elements that a parameter of a shape begins with."""
Axes: TypeAlias = "int | Sequence[int] | None"


class Tensor:
    """A value of the graph that is being written.

    Operators, ``reshape``, ``sum`` and their like are numpy's, and make nodes. A size of its shape is a number or,
    where it is open, a polynomial over names that can be computed with and be given to ``reshape``.

    >>> isinstance(nn.Parameter((8,)), nn.Tensor)
    True
    >>> def told(x):
    ...     print(x.type, x.dtype, x.rank, x.shape, x.unsqueeze(0).scope is x.scope)
    ...     return x.unsqueeze(0).swapaxes(1, 2).min(2), x.argmax(1)
    >>> print(nn.export(told, X))
    float32[n, 8] float32 2 (n, 8) True
    graph main (ir 10, opset 23)
    ...
    return ... as y0, ... as y1
    """

    __array_ufunc__ = None
    """numpy leaves ``array + tensor`` to the tensor."""
    __hash__ = object.__hash__

    def __init__(self, scope: TraceScope, value: Value) -> None:
        self.scope, self.value = scope, value

    @property
    def type(self) -> TensorType:
        """Dtype and shape."""
        return self.scope.type(self.value)

    @property
    def dtype(self) -> str:
        """The dtype by numpy's name."""
        return self.type.dtype

    @property
    def shape(self) -> tuple[Size, ...]:
        """The sizes; UsageError where not even their number is known."""
        shape = self.type.shape
        if not isinstance(shape, tuple):
            raise UsageError(f"the rank of {self!r} is not known")
        return shape

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)

    def __repr__(self) -> str:
        return f"Tensor({self.type})"

    def _refuse(self) -> Any:
        raise UsageError(f"{self!r} has no elements yet, while its graph is written: nn.where chooses by element")

    __bool__ = __int__ = __float__ = __index__ = _refuse

    def __len__(self) -> int:
        raise UsageError(f"{self!r} may have any length: its shape tells its sizes")

    def __iter__(self) -> Any:
        raise UsageError(f"{self!r} cannot be looped over: nn.split takes it apart")

    # -- arithmetic

    def __add__(self, other: Operand) -> Tensor:
        return _binary("Add", self, other)

    def __radd__(self, other: Operand) -> Tensor:
        return _binary("Add", other, self)

    def __sub__(self, other: Operand) -> Tensor:
        return _binary("Sub", self, other)

    def __rsub__(self, other: Operand) -> Tensor:
        return _binary("Sub", other, self)

    def __mul__(self, other: Operand) -> Tensor:
        return _binary("Mul", self, other)

    def __rmul__(self, other: Operand) -> Tensor:
        return _binary("Mul", other, self)

    def __truediv__(self, other: Operand) -> Tensor:
        return _binary("Div", self, other)

    def __rtruediv__(self, other: Operand) -> Tensor:
        return _binary("Div", other, self)

    def __pow__(self, other: Operand) -> Tensor:
        return _binary("Pow", self, other)

    def __rpow__(self, other: Operand) -> Tensor:
        return _binary("Pow", other, self)

    def __matmul__(self, other: Operand) -> Tensor:
        return _binary("MatMul", self, other)

    def __rmatmul__(self, other: Operand) -> Tensor:
        return _binary("MatMul", other, self)

    def __neg__(self) -> Tensor:
        return _unary("Neg", self)

    def __abs__(self) -> Tensor:
        return _unary("Abs", self)

    # -- comparisons and logic

    def __eq__(self, other: object) -> Tensor:  # type: ignore[override]
        return _binary("Equal", self, other)

    def __ne__(self, other: object) -> Tensor:  # type: ignore[override]
        return _unary("Not", _binary("Equal", self, other))

    def __lt__(self, other: Operand) -> Tensor:
        return _binary("Less", self, other)

    def __le__(self, other: Operand) -> Tensor:
        return _binary("LessOrEqual", self, other)

    def __gt__(self, other: Operand) -> Tensor:
        return _binary("Greater", self, other)

    def __ge__(self, other: Operand) -> Tensor:
        return _binary("GreaterOrEqual", self, other)

    def __and__(self, other: Operand) -> Tensor:
        return _binary("And", self, other)

    def __or__(self, other: Operand) -> Tensor:
        return _binary("Or", self, other)

    def __invert__(self) -> Tensor:
        return _unary("Not", self)

    # -- shapes

    def __getitem__(self, key: Any) -> Tensor:
        """A part, by numbers, slices, None and ``...``; or the entries along the first axis that a tensor numbers."""
        return indexed(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise UsageError(f"{self!r} does not change: nn.where and nn.concat make tensors of others' elements")

    def reshape(self, *shape: Any) -> Tensor:
        """The same elements in another shape: sizes one by one or as a sequence, of which one may be -1."""
        return reshaped(self, shape[0] if len(shape) == 1 and isinstance(shape[0], tuple | list) else shape)

    def transpose(self, *axes: int) -> Tensor:
        """The axes in another order; reversed where none is given."""
        order = list(axes) if axes else list(range(self.rank))[::-1]
        return one("Transpose", [self], perm=[a % self.rank if -self.rank <= a < self.rank else a for a in order])

    def swapaxes(self, first: int, second: int) -> Tensor:
        """Two axes in each other's place."""
        order = list(range(self.rank))
        first, second = axis_of(self, first), axis_of(self, second)
        order[first], order[second] = order[second], order[first]
        return self.transpose(*order)

    @property
    def T(self) -> Tensor:  # noqa: N802  as arrays call it
        """The axes in reverse order."""
        return self.transpose()

    def squeeze(self, axis: Axes = None) -> Tensor:
        """Without these axes, of size 1; without all such axes where none are given."""
        return one("Squeeze", [self, _axes(axis)])

    def unsqueeze(self, axis: Axes) -> Tensor:
        """With new axes of size 1 there."""
        return one("Unsqueeze", [self, _axes(axis)])

    def astype(self, dtype: str) -> Tensor:
        """The elements in another dtype."""
        if dtype not in CODES:
            raise UsageError(f"no dtype is called {dtype!r}: there are {', '.join(sorted(CODES))}")
        return self if dtype == self.dtype else one("Cast", [self], to=int(CODES[dtype]))

    # -- reductions

    def sum(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The sum along axes, or of all."""
        return _reduced("ReduceSum", self, axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The mean along axes, or of all."""
        return _reduced("ReduceMean", self, axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The largest along axes, or of all."""
        return _reduced("ReduceMax", self, axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> Tensor:
        """The least along axes, or of all."""
        return _reduced("ReduceMin", self, axis, keepdims)

    def argmax(self, axis: int, keepdims: bool = False) -> Tensor:
        """Where the largest is along an axis, the first of equal ones, as int64."""
        return one("ArgMax", [self], axis=axis, keepdims=int(keepdims))


class Parameter(Tensor):
    """A tensor that a module brings: its elements come from a file, from ``initialize``, or from who calls the graph.

    ``array`` holds them, or None. It can be used as any tensor while a graph is written.

    >>> scale = nn.Parameter((8,), initial=lambda random, shape: np.ones(shape))
    >>> scale
    Parameter(float32[8])
    >>> scale.type, scale.dtype
    (TensorType(dtype='float32', shape=(8,)), 'float32')
    """

    def __init__(self, shape: Iterable[int], dtype: str = "float32", initial: Initial | None = None) -> None:
        """``initial`` draws the elements that ``initialize`` gives it (none: from a normal distribution)."""
        sizes = tuple(shape)
        if dtype not in CODES:
            raise UsageError(f"no dtype is called {dtype!r}: there are {', '.join(sorted(CODES))}")
        if not all(isinstance(n, int) and n >= 0 for n in sizes):
            raise UsageError(f"the sizes of a parameter are numbers from 0 on, not {sizes}")
        self._type = TensorType(dtype, sizes)
        self.sizes = sizes
        self.initial = initial or (lambda random, shape: random.standard_normal(shape))
        self.array: Array | None = None

    @property
    def scope(self) -> TraceScope:  # type: ignore[override]
        """The graph that is being written."""
        return current()

    @property
    def value(self) -> Value:  # type: ignore[override]
        """What it is there."""
        return current().parameter(self)

    @property
    def type(self) -> TensorType:
        """Dtype and shape."""
        return self._type

    def __repr__(self) -> str:
        return f"Parameter({self._type})"


def _unary(op: str, x: Tensor) -> Tensor:
    return one(op, [x])


def _binary(op: str, a: Any, b: Any) -> Tensor:
    """The op of two operands, of which one is a tensor; a number is of its dtype."""
    for number, tensor in ((a, b), (b, a)):
        if isinstance(number, float) and isinstance(tensor, Tensor) and tensor.dtype.startswith(("int", "uint")):
            raise UsageError(
                f"{number} is combined with {tensor!r}, which holds integers: call astype('float32') first"
            )
    return one(op, [a, b])


def _reduced(op: str, x: Tensor, axis: Axes, keepdims: bool) -> Tensor:
    return one(op, [x, _axes(axis)], keepdims=int(keepdims))


def _axes(axis: Axes) -> Array | None:
    """Axes as an input of an op; none where all are meant."""
    if axis is None:
        return None
    return np.array([axis] if isinstance(axis, int) else list(axis), np.int64)
