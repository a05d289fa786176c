"""Emission of ONNX ops for torch's calls: the object that functions of a table work with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, TypeAlias, overload

import numpy as np
import torch
from torch import fx

from graphopt.errors import TranslationError
from graphopt.frontends.torch.tensors import array_of, dtype_name
from graphopt.ir import ops
from graphopt.ir.constants import Array, Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.graph import Value
from graphopt.ir.onnx_io.tensors import numpy_dtype
from graphopt.ir.types import is_size
from graphopt.lowering.module.builder import GraphBuilder
from graphopt.lowering.module.builder import ValueLike as ValueLike
from graphopt.lowering.module.tensor_functions import TensorFunction

Number: TypeAlias = "int | Value"
"""A size or another integer: a number where it is known, an int64 value of rank 0 where it is not."""


_WIDER = {
    **dict.fromkeys(("bool", "int8", "uint8", "int16", "uint16"), ("int32", "int64", "float64")),
    **dict.fromkeys(("int32", "uint32"), ("int64", "float64")),
    "int64": ("float64",),
    **dict.fromkeys(("float16", "bfloat16"), ("float32", "float64")),
}
"""For dtypes that an op may not take, those that hold their elements (of int64, those that floats hold)."""


class OpWriter:
    """Adds ops to a builder's graph. ``node`` is the call of torch's that is being written."""

    def __init__(self, builder: GraphBuilder) -> None:
        self.builder = builder
        self.node: fx.Node | None = None
        self.label = ""
        """The name of the nodes that are made."""
        self._constants: dict[int, tuple[torch.Tensor, Value]] = {}

    # -- making

    def op(self, name: str, *inputs: ValueLike, **attrs: Any) -> Value:
        """The output of an ONNX op in its newest form."""
        return self.several(name, 1, *inputs, **attrs)[0]

    def several(self, name: str, outputs: int, *inputs: ValueLike, **attrs: Any) -> tuple[Value, ...]:
        """So many outputs of an ONNX op in its newest form.

        What the op does not take, such as truth values in arithmetic, is computed in a wider dtype; what comes back is
        of the dtype that was given. A tensor of torch is a constant.
        """
        inputs = self._held(inputs)
        wider = self._wider(name, inputs)
        if wider:
            formal = ops.schema(name)
            assert formal is not None
            given = [self._as(x, wider.get(_constraint(formal.input(k)), ("", ""))[1]) for k, x in enumerate(inputs)]
            values = self.several(name, outputs, *given, **attrs)
            narrow = [wider.get(_constraint(formal.output(k)), ("", ""))[0] for k in range(outputs)]
            return tuple(self.cast(v, dtype) if dtype else v for v, dtype in zip(values, narrow, strict=True))
        made = self.builder.emit(name, inputs, attrs, n_outputs=outputs, name=self.label)
        return (made,) if outputs == 1 else made

    def emit_compute(self, function: TensorFunction, inputs: Sequence[ValueLike], **arguments: Any) -> Any:
        """The output of a tensor function (``graphopt.te``, ``graphopt.tensor``), a program of the module from now on:
        ``writer.emit_compute(tensor.softmax, [x], axis=1)``."""
        return self.builder.emit_compute(function, self._held(inputs), **arguments)

    def _held(self, inputs: Sequence[ValueLike]) -> tuple[ValueLike, ...]:
        """The inputs, with constants for tensors."""
        return tuple(self.constant(x) if isinstance(x, torch.Tensor) else x for x in inputs)

    def _wider(self, name: str, inputs: Sequence[ValueLike]) -> dict[str, tuple[str, str]]:
        """For each constraint of the op's that its inputs do not meet: the dtype of results under it, and one that it
        takes."""
        formal = ops.schema(name)
        wider: dict[str, tuple[str, str]] = {}
        for k, x in enumerate(inputs):
            letter = "" if formal is None else _constraint(formal.input(k))
            if formal is None or not letter or not isinstance(x, Value) or self.dtype(x) in formal.allowed[letter]:
                continue
            dtype = self.dtype(x)
            taken = [d for d in _WIDER.get(dtype, ()) if d in formal.allowed[letter]]
            if taken:
                is_of_results = not letter.startswith("tensor(")
                wider.setdefault(letter, (dtype if is_of_results else "", taken[0]))
        return wider

    def _as(self, x: ValueLike, dtype: str) -> ValueLike:
        """What is given as an input, as a dtype; a number becomes what the other inputs are."""
        return self.cast(x, dtype) if dtype and isinstance(x, Value | np.ndarray | np.generic) else x

    def constant(self, array: Any, name: str = "") -> Value:
        """A constant. A tensor's is in the tensor's own memory, and made once."""
        if not isinstance(array, torch.Tensor):
            return self.builder.constant(array, name)
        if id(array) not in self._constants:  # the tensor is kept, so that nothing else gets its id
            try:
                held = array_of(array)
            except ValueError as error:
                raise self.refused(f"{f'{name!r} is no constant' if name else 'a constant'}: {error}") from None
            self._constants[id(array)] = array, self.builder.constant(held, name)
        return self._constants[id(array)][1]

    def filled(self, element: Array, shape: tuple[int, ...]) -> Value:
        """A constant with one element throughout, which is stored once."""
        return self.builder.constant(Constant.full(shape, element))

    def zeros(self, like: Value) -> Array:
        """0 in the dtype of a value."""
        return np.zeros((), numpy_dtype(self.dtype(like)))

    def ones(self, like: Value) -> Array:
        """1 in the dtype of a value."""
        return np.ones((), numpy_dtype(self.dtype(like)))

    @overload
    def cast(self, x: Value, dtype: str) -> Value: ...
    @overload
    def cast(self, x: ValueLike, dtype: str) -> Value | Array: ...
    def cast(self, x: ValueLike, dtype: str) -> Value | Array:
        """The elements as a dtype; a number becomes an array of rank 0."""
        if not isinstance(x, Value):
            return np.asarray(x).astype(numpy_dtype(dtype))
        return x if self.dtype(x) == dtype else self.op("Cast", x, to=CODES[dtype])

    def value(self, x: ValueLike) -> Value:
        """A value, also of what is none yet."""
        return x if isinstance(x, Value) else self.constant(x)

    # -- asking

    def dtype(self, x: Value) -> str:
        """The dtype of a value."""
        return self.builder.type(x).dtype

    def shape(self, x: Value) -> tuple[Any, ...]:
        """The sizes of a value: integers, or sizes with names."""
        shape = self.builder.fact(x).shape
        if shape is None:
            raise self.refused("the rank of a tensor is not known")
        return shape

    def rank(self, x: Value) -> int:
        """How many axes a value has."""
        return len(self.shape(x))

    def axis(self, x: Value, axis: int) -> int:
        """An axis counted from the front."""
        return axis % max(self.rank(x), 1)

    def axes(self, x: Value, axes: int | Sequence[int] | None) -> list[int]:
        """Axes counted from the front; all of them where none are named. Of rank 0 there are none."""
        if self.rank(x) == 0 or axes is None or (not isinstance(axes, int) and not axes):
            return list(range(self.rank(x)))
        return [self.axis(x, a) for a in ([axes] if isinstance(axes, int) else axes)]

    def result(self, index: int | None = None) -> Any:
        """What torch knows of the call's result: a tensor without elements, a number, or a sequence of these."""
        example = None if self.node is None else self.node.meta.get("val")
        return example if index is None or example is None else example[index]

    def given(self, operand: int) -> Any:
        """What torch knows of one of the call's operands: a tensor without elements, or a number."""
        assert self.node is not None
        return _known(self.node.args[operand])

    def is_used(self, index: int) -> bool:
        """Whether anything reads this one of the call's results."""
        readers = () if self.node is None else self.node.users
        return any(n.target is not operator.getitem or (n.args[1] == index and n.users) for n in readers)

    def result_dtype(self, index: int | None = None) -> str:
        """The dtype of the call's result."""
        return self.name_of(self.result(index).dtype)

    def common_dtype(self, *operands: int) -> str:
        """The dtype to which torch brings the call's operands at these places (the first two) before it computes."""
        examples = [self.given(k) for k in operands or (0, 1)]
        dtype = examples[0].dtype if len(examples) == 1 else torch.result_type(*examples)
        return self.name_of(dtype)

    def name_of(self, dtype: torch.dtype) -> str:
        """The name of a dtype; TranslationError where graphs have none."""
        try:
            return dtype_name(dtype)
        except ValueError as error:
            raise self.refused(str(error)) from None

    def refused(self, why: str) -> TranslationError:
        """The error for a call that cannot be written."""
        return TranslationError(why, self.node)

    # -- sizes

    def size(self, x: Value, axis: int) -> Number:
        """The size of an axis."""
        fixed = self.shape(x)[axis]
        if isinstance(fixed, int):
            return fixed
        axis = self.axis(x, axis)
        return self.scalar(self.op("Shape", x, start=axis, end=axis + 1))

    def sizes(self, x: Value) -> list[Number]:
        """All sizes of a value."""
        return [self.size(x, axis) for axis in range(self.rank(x))]

    def scalar(self, x: Value) -> Value:
        """The one element of a value as one of rank 0."""
        return x if self.rank(x) == 0 else self.op("Reshape", x, np.zeros(0, np.int64))

    def number(self, x: Number) -> Number:
        """A number where it is known."""
        if isinstance(x, Value):
            elements = self.builder.fact(x).elements
            if elements is not None and len(elements) == 1 and isinstance(elements[0], int):
                return elements[0]
        return x

    def is_size(self, x: Value) -> bool:
        """Whether a value is an integer that is known to be no less than 0."""
        elements = self.builder.fact(x).elements
        return elements is not None and len(elements) == 1 and is_size(elements[0])

    def known(self, x: Number, what: str) -> int:
        """An integer that has to be known; TranslationError where it is not."""
        x = self.number(x)
        if isinstance(x, Value):
            raise self.refused(f"{what} has to be known, and depends on the inputs")
        return int(x)

    def indices(self, count: Number) -> Value:
        """The integers from 0 on, so many."""
        return self.op("Range", np.asarray(0, np.int64), self.cast(count, "int64"), np.asarray(1, np.int64))

    def integers(self, numbers: Sequence[Number]) -> Value | Array:
        """A vector of integers."""
        sizes = [self.number(n) for n in numbers]
        if not any(isinstance(n, Value) for n in sizes):
            return np.array([int(n) for n in sizes], np.int64)  # type: ignore[arg-type]
        parts: list[Value | Array] = []
        run: list[int] = []
        for n in [*sizes, None]:
            if isinstance(n, Value) or n is None:
                if run:
                    parts.append(np.array(run, np.int64))
                    run = []
                if n is not None:
                    vector = n if self.rank(n) == 1 else self.op("Reshape", n, np.array([1], np.int64))
                    parts.append(self.cast(vector, "int64"))
            else:
                run.append(int(n))
        return parts[0] if len(parts) == 1 else self.op("Concat", *parts, axis=0)

    def product(self, numbers: Sequence[Number]) -> Number:
        """The product of sizes."""
        return self._joined("Mul", prod, 1, numbers)

    def sum(self, numbers: Sequence[Number]) -> Number:
        """The sum of sizes."""
        return self._joined("Add", sum, 0, numbers)

    def _joined(self, op: str, function: Callable[..., int], nothing: int, numbers: Sequence[Number]) -> Number:
        """What is known of the numbers joined by the function, and that with the others by the op."""
        parts = [self.number(n) for n in numbers]
        total: Number = function(n for n in parts if not isinstance(n, Value))
        for n in parts:
            if isinstance(n, Value):
                total = n if total == nothing else self.op(op, self.cast(total, "int64"), self.cast(n, "int64"))
        return total

    def reshape(self, x: Value, sizes: Sequence[Number]) -> Value:
        """The value with other sizes, of which one may be -1."""
        wanted = [self.number(n) for n in sizes]
        if not any(isinstance(n, Value) for n in wanted) and tuple(wanted) == self.shape(x):
            return x
        open_ones = [k for k, n in enumerate(wanted) if isinstance(n, Value)]
        if len(open_ones) == 1 and all(isinstance(n, Value) or n > 0 for n in wanted):
            wanted[open_ones[0]] = -1
        has_zero = any(n == 0 for n in wanted if not isinstance(n, Value))
        return self.op("Reshape", x, self.integers(wanted), allowzero=int(has_zero))

    def expand(self, x: Value, sizes: Sequence[Number]) -> Value:
        """The value broadcast to these sizes."""
        wanted = [self.number(n) for n in sizes]
        if not any(isinstance(n, Value) for n in wanted) and tuple(wanted) == self.shape(x):
            return x
        return self.op("Expand", x, self.integers(wanted))

    # -- moving

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        """The value with its axes in another order."""
        order = [self.axis(x, a) for a in order]
        return x if order == sorted(order) else self.op("Transpose", x, perm=tuple(order))

    def swapped(self, x: Value, one: int, other: int) -> Value:
        """The value with two axes swapped."""
        if self.rank(x) == 0:
            return x
        order = list(range(self.rank(x)))
        one, other = self.axis(x, one), self.axis(x, other)
        order[one], order[other] = order[other], order[one]
        return self.transpose(x, order)

    def unsqueeze(self, x: Value, *axes: int) -> Value:
        """The value with axes of size 1 at these places of the result."""
        rank = self.rank(x) + len(axes)
        return self.op("Unsqueeze", x, np.array(sorted(a % rank for a in axes), np.int64))

    def squeeze(self, x: Value, *axes: int) -> Value:
        """The value without these axes, of size 1."""
        return self.op("Squeeze", x, np.array(sorted(self.axis(x, a) for a in axes), np.int64))

    def slice(self, x: Value, axis: int, start: Number, end: Number, step: int = 1) -> Value:
        """A part of the value along an axis."""
        return self.op(
            "Slice",
            x,
            self.integers([start]),
            self.integers([end]),
            np.array([self.axis(x, axis)], np.int64),
            np.array([step], np.int64),
        )


def _known(argument: Any) -> Any:
    """What torch knows of an argument: of a number that it does not know, one of the same kind."""
    example = argument.meta.get("val") if isinstance(argument, fx.Node) else argument
    kinds: Mapping[Any, Any] = {torch.SymInt: 1, torch.SymFloat: 1.0, torch.SymBool: True}
    return kinds.get(type(example), example)


def _constraint(formal: ops.Formal | None) -> str:
    return "" if formal is None else formal.constraint
