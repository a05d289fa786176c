"""Symbolic evaluation: graphs computed on tensors of terms, by what their ops make of the elements.

Ops that move elements are computed by ONNX's reference implementation on the numbers of terms; an op that has a meaning
in others by that; of one of which nothing is known only this is, that equal operands give equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from graphopt.errors import GraphoptError
from graphopt.ir import evaluate, ops
from graphopt.ir.constants import Array, Constant
from graphopt.ir.contrib_semantics import MEANINGS
from graphopt.ir.dtypes import DTYPES
from graphopt.ir.facts import Fact
from graphopt.ir.graph import CONSTANT, Attr, Attrs, Graph, Value
from graphopt.ir.infer import infer
from graphopt.ir.infer_products import fused_axes
from graphopt.ir.types import TensorType
from graphopt.proof.symbols import Algebra, Opaque, integer


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


MOVING = _set(
    "Transpose Reshape Flatten Squeeze Unsqueeze Slice Concat Split Gather GatherND GatherElements Expand Tile "
    "Identity DepthToSpace SpaceToDepth ReverseSequence Shape Size Pad ConstantOfShape Trilu"
)
"""Ops that only move elements, or say how many there are."""
PARAMETERS = {
    "Reshape": (1,), "Squeeze": (1,), "Unsqueeze": (1,), "Slice": (1, 2, 3, 4), "Split": (1,), "Gather": (1,),
    "GatherND": (1,), "GatherElements": (1,), "Expand": (1,), "Tile": (1,), "Pad": (1, 3), "ReverseSequence": (1,),
    "ConstantOfShape": (0,), "Trilu": (1,),
}  # fmt: skip
"""Which inputs of an op that moves elements say where to, and must be known numbers."""


def compute(graph: Graph, algebra: Algebra, symbolic: dict[Value, str]) -> list[Array]:
    """The outputs of a graph as arrays of numbers of terms. ``symbolic``: inputs and constants that are symbols."""
    values: dict[Value, Array] = {}
    facts = infer(graph)
    for node in graph.order():
        first = Value(node.id)
        if first in symbolic:
            shape = _shape(graph, first)
            symbols = [algebra.symbol((symbolic[first], i)) for i in np.ndindex(*shape)]
            values[first] = np.asarray(symbols, np.int64).reshape(shape)
        elif node.op == CONSTANT:
            constant = graph.constant_of(first)
            assert constant is not None
            numbers = [algebra.value(v) for v in constant.array.reshape(-1).tolist()]
            values[first] = np.asarray(numbers, np.int64).reshape(constant.shape)
        elif graph.is_used(node.id):
            given = [None if v is None else values[v] for v in node.inputs]
            results = tuple(facts.get(v) for v in node.outputs)
            inputs = [None if v is None else facts.get(v) for v in node.inputs]
            dtypes = tuple(None if f is None else f.dtype for f in inputs)
            call = _Call(node.op, node.attrs, given, node.n_outputs, graph.opset, results, dtypes)
            values.update(zip(node.outputs, _apply(call, algebra), strict=False))
    return [values[v] for v in graph.outputs if v is not None]


def _shape(graph: Graph, value: Value) -> tuple[int, ...]:
    constant = graph.constant_of(value)
    shape_source: Any = graph.types[value] if constant is None else constant
    return tuple(shape_source.shape)


@dataclass(frozen=True)
class _Call:
    """An op on numbers of terms; of the results, what is known of them without their elements."""

    op: str
    attrs: Attrs
    inputs: Sequence[Array | None]
    n_outputs: int
    opset: int
    facts: tuple[Fact | None, ...] = ()
    dtypes: tuple[str | None, ...] = ()
    """The dtypes of the inputs."""


def _apply(call: _Call, algebra: Algebra) -> list[Array]:
    op, attrs, inputs = call.op, call.attrs, list(call.inputs)
    if op in MOVING:
        return _move(call, algebra)
    if op in ops.KINDS["reduce"]:
        return [_reduce(op, attrs, inputs, algebra)]
    if op in _ATTENTION and algebra.is_real:
        return _ATTENTION[op](attrs, inputs, algebra)[: call.n_outputs]
    if op == "TopK":
        return _extremes(call, algebra)
    if op == "LayerNormalization" and algebra.is_real:
        return _normalized(attrs, inputs, algebra, True)[: call.n_outputs]
    if op in _PRODUCTS and call.n_outputs == 1:
        try:
            return [_PRODUCTS[op](attrs, inputs, algebra)]
        except Opaque:
            return _of_rows(call, algebra) if op in _ROWS else _whole(call, algebra)
    if op in ("Softmax", "LogSoftmax"):
        return [_along(op, integer(attrs, "axis", -1), inputs[0], algebra)]
    if op in _ROWS:
        return _of_rows(call, algebra)
    if op in ops.KINDS["elementwise"] and not is_defined_otherwise(op):
        return [_elementwise(op, attrs, inputs, algebra, call.dtypes[0] if op == "Cast" and call.dtypes else None)]
    if op in MEANINGS:
        return _by_meaning(call, algebra)
    return _whole(call, algebra)


def is_defined_otherwise(op: str) -> bool:
    """Whether an op that acts on each element is an exporter's name for others of ONNX."""
    return op in MEANINGS and "::" in op


def _elementwise(
    op: str, attrs: Attrs, inputs: Sequence[Array | None], algebra: Algebra, source: str | None = None
) -> Array:
    given = [a for a in inputs if a is not None]
    shape = np.broadcast_shapes(*(a.shape for a in given))
    spread = [np.broadcast_to(a, shape).reshape(-1).tolist() for a in given]
    key = (*(("absent", i) for i, a in enumerate(inputs) if a is None), *_plain(attrs))
    if source is not None:
        key = (("from", source), ("to", DTYPES[integer(attrs, "to", 0)]))
    results = [algebra.call(op, key, parts) for parts in zip(*spread, strict=True)]
    return np.asarray(results, np.int64).reshape(shape)


def is_computable(op: str) -> bool:
    """Whether an op gives the same on the same operands, which is the least that symbols are computed by."""
    return op not in ops.IMPURE


# -- ops that are other ops


class Element:
    """A term as an element of an array, on which numpy's arithmetic is that of terms."""

    __slots__ = ("algebra", "number")

    def __init__(self, algebra: Algebra, number: int) -> None:
        self.algebra, self.number = algebra, number

    def _with(self, op: str, *others: Any, reverse: bool = False) -> Element:
        numbers = [self.number, *(_number(o, self.algebra) for o in others)]
        return Element(self.algebra, self.algebra.call(op, (), numbers[::-1] if reverse else numbers))

    def __add__(self, other: Any) -> Element:
        return self._with("Add", other)

    def __radd__(self, other: Any) -> Element:
        return self._with("Add", other, reverse=True)

    def __sub__(self, other: Any) -> Element:
        return self._with("Sub", other)

    def __rsub__(self, other: Any) -> Element:
        return self._with("Sub", other, reverse=True)

    def __mul__(self, other: Any) -> Element:
        return self._with("Mul", other)

    def __rmul__(self, other: Any) -> Element:
        return self._with("Mul", other, reverse=True)

    def __truediv__(self, other: Any) -> Element:
        return self._with("Div", other)

    def __rtruediv__(self, other: Any) -> Element:
        return self._with("Div", other, reverse=True)

    def __neg__(self) -> Element:
        return self._with("Neg")

    def __float__(self) -> float:
        raise Opaque("a computation with an element's value")

    __int__ = __index__ = __bool__ = __eq__ = __lt__ = __le__ = __gt__ = __ge__ = __float__  # type: ignore[assignment]
    __hash__ = None  # type: ignore[assignment]


def _number(element: Any, algebra: Algebra) -> int:
    """The number of a term, or of the value that a plain number is."""
    if isinstance(element, Element):
        return element.number
    if isinstance(element, bool | int | float | np.bool_ | np.integer | np.floating):
        return algebra.value(element.item() if isinstance(element, np.generic) else element)
    raise Opaque("an element that is no number")


class _RealTerms(np.ndarray):
    """Terms over the reals, which are the same numbers in any dtype."""

    def astype(self, *args: Any, **kwargs: Any) -> Any:
        """The same."""
        return self


def _elements(array: Array | None, algebra: Algebra) -> Array | None:
    if array is None:
        return None
    elements = np.empty(array.shape, object).view(_RealTerms if algebra.is_real else np.ndarray)
    for index in np.ndindex(*array.shape):
        elements[index] = Element(algebra, int(array[index]))
    return elements


def _numbers(array: Any, algebra: Algebra) -> Array | None:
    if array is None:
        return None
    elements = np.asarray(array)
    numbers = [_number(e, algebra) for e in elements.reshape(-1).tolist()]
    return np.asarray(numbers, np.int64).reshape(elements.shape)


def _by_meaning(call: _Call, algebra: Algebra) -> list[Array]:
    """What an op is in other ops, as graphs are evaluated with it; its own arithmetic is that of terms."""

    def apply(op: str, inputs: Sequence[Any], n_outputs: int = 1, **attrs: Attr) -> tuple[Any, ...]:
        given = [_numbers(x, algebra) for x in inputs]
        results = _apply(_Call(op, Attrs(attrs), given, n_outputs, ops.LATEST), algebra)
        return tuple(_elements(r, algebra) for r in results)

    try:
        outputs = MEANINGS[call.op](apply, call.attrs, [_elements(x, algebra) for x in call.inputs])
    except Opaque:
        raise
    except Exception as error:  # whatever the Python of a meaning raises on symbols
        raise Opaque(f"{call.op} on symbols") from error
    numbers = [_numbers(x, algebra) for x in outputs[: call.n_outputs]]
    return [x for x in numbers if x is not None]


# -- ops of which nothing is known but what their results depend on

_ROWS = ("Hardmax", "CumSum", "ArgMax", "ArgMin", "LpNormalization")
"""Ops on each row along an axis."""


def _of_rows(call: _Call, algebra: Algebra) -> list[Array]:
    """A function of the row and of the place in it."""
    x = call.inputs[0]
    assert x is not None
    axis = integer(call.attrs, "axis", -1 if call.op != "ArgMax" and call.op != "ArgMin" else 0)
    if call.op == "CumSum":
        (axis,) = _known(call.inputs[1], algebra).array.reshape(-1).tolist()  # type: ignore[arg-type]
    axis %= x.ndim or 1
    kept = Attrs({n: a for n, a in call.attrs.items() if n not in ("axis", "keepdims")})
    rows = np.moveaxis(x, axis, -1)
    is_one = call.op in ("ArgMax", "ArgMin")
    results = np.empty((*rows.shape[:-1], 1) if is_one else rows.shape, np.int64)
    for index in np.ndindex(*rows.shape[:-1]):
        row = tuple(rows[index].tolist())
        for place in range(results.shape[-1]):
            results[(*index, place)] = algebra.call(call.op, ("row", *_plain(kept), place), row)
    moved = np.moveaxis(results, -1, axis)
    return [moved if not is_one or call.attrs.get("keepdims", 1) else moved.squeeze(axis)]


def _whole(call: _Call, algebra: Algebra) -> list[Array]:
    """Functions of all elements of all operands, and of the place: equal operands have equal results."""
    if call.op in ops.IMPURE or any(isinstance(a, Graph) for a in call.attrs.values()):
        raise Opaque(call.op)
    given = tuple(None if x is None else (x.shape, tuple(x.reshape(-1).tolist())) for x in call.inputs)
    key = ("whole", tuple(None if g is None else g[0] for g in given), *_plain(call.attrs))
    elements = [e for g in given if g is not None for e in g[1]]
    results = []
    for output in range(call.n_outputs):
        fact = call.facts[output] if output < len(call.facts) else None
        shape = None if fact is None or not isinstance(fact.type, TensorType) else fact.shape
        if shape is None or not all(isinstance(n, int) for n in shape):
            raise Opaque(call.op)
        sizes = [n for n in shape if isinstance(n, int)]
        array = np.zeros(sizes, np.int64)
        for index in np.ndindex(*sizes):
            array[index] = algebra.call(call.op, (*key, output, index), elements)
        results.append(array)
    return results


def _plain(attrs: Attrs) -> tuple[Hashable, ...]:
    return tuple((name, repr(value)) for name, value in attrs.items())


def _known(array: Array, algebra: Algebra) -> Constant:
    elements = [algebra.known(i) for i in array.reshape(-1).tolist()]
    if not all(isinstance(v, int) for v in elements):
        raise Opaque("what elements decide")
    return Constant.of(np.asarray(elements, np.int64).reshape(array.shape))


def _move(node: _Call, algebra: Algebra) -> list[Array]:
    inputs, opset = node.inputs, node.opset
    if node.op == "ConstantOfShape":
        filled = node.attrs.get("value")
        number = filled.array.reshape(-1).tolist()[0] if isinstance(filled, Constant) else 0.0
        assert inputs[0] is not None
        return [np.full(_known(inputs[0], algebra).array.tolist(), algebra.value(number), np.int64)]
    if node.op in ("DepthToSpace", "SpaceToDepth"):
        _check_blocks(node)
    parameters = PARAMETERS.get(node.op, ())
    given: list[Constant | None] = [
        None if a is None else _known(a, algebra) if i in parameters else Constant.of(a) for i, a in enumerate(inputs)
    ]
    if node.op == "Pad" and len(given) < 3:
        given.append(None)
    if node.op == "Pad" and given[2] is None:
        given[2] = Constant.of(np.asarray(algebra.value(0.0), np.int64))
    elif node.op == "Pad":
        assert inputs[2] is not None
        given[2] = Constant.of(inputs[2].reshape(()))
    try:
        moved = [c.array for c in evaluate.evaluate(node.op, node.attrs, given, node.n_outputs, opset)]
    except (GraphoptError, ValueError) as error:
        raise Opaque(f"{node.op} of such operands") from error
    if node.op in ("Shape", "Size"):
        return [np.asarray([algebra.value(int(n)) for n in a.reshape(-1)], np.int64).reshape(a.shape) for a in moved]
    return moved


def _check_blocks(node: _Call) -> None:
    x, size = node.inputs[0], integer(node.attrs, "blocksize", 1)
    assert x is not None
    divided = {x.shape[1]: size * size} if node.op == "DepthToSpace" else dict.fromkeys(x.shape[2:], size)
    if x.ndim != 4 or any(n % by for n, by in divided.items()):
        raise ValueError("blocks that do not fit")


def _reduce(op: str, attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x = inputs[0]
    assert x is not None
    keep = bool(attrs.get("keepdims", 1))
    given = inputs[1] if len(inputs) > 1 else None
    axes = None if given is None else [int(a) % x.ndim for a in _known(given, algebra).array.reshape(-1)]
    if not axes:
        if attrs.get("noop_with_empty_axes"):
            return x
        axes = list(range(x.ndim))
    kept = [i for i in range(x.ndim) if i not in axes]
    together = int(np.prod([x.shape[i] for i in axes]))
    moved = np.transpose(x, kept + axes).reshape(*(x.shape[i] for i in kept), together)
    reduced = np.zeros(moved.shape[:-1], np.int64)
    for index in np.ndindex(*reduced.shape):
        reduced[index] = algebra.call(op, (), sorted(moved[index].tolist()))
    return reduced.reshape([1 if i in axes else n for i, n in enumerate(x.shape)]) if keep else reduced


def _along(op: str, axis: int, x: Array | None, algebra: Algebra) -> Array:
    assert x is not None
    rows = np.moveaxis(x, axis, -1)
    results = np.empty_like(rows)
    for index in np.ndindex(*rows.shape[:-1]):
        row = rows[index].tolist()
        if algebra.is_real:
            powers = [algebra.call("Exp", (), [e]) for e in row]
            total = algebra.call("Sum", (), powers)
            if op == "Softmax":
                results[index] = [algebra.call("Div", (), [p, total]) for p in powers]
            else:
                log = algebra.call("Log", (), [total])
                results[index] = [algebra.call("Sub", (), [e, log]) for e in row]
            continue
        together = tuple(sorted(row))
        results[index] = [algebra.call(op, ("row", together), [e]) for e in row]
    return np.moveaxis(results, -1, axis)


# -- products, over the reals


def _dot(a: Sequence[int], b: Sequence[int], algebra: Algebra) -> int:
    if not algebra.is_real:
        return algebra.call(
            "dot", (), [algebra.intern(("pair", min(p), max(p))) for p in sorted(map(sorted, zip(a, b, strict=True)))]
        )
    return algebra.call("Add", (), [algebra.call("Mul", (), [x, y]) for x, y in zip(a, b, strict=True)])


def _matmul(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
    batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    left = np.broadcast_to(left, (*batch, *left.shape[-2:]))
    right = np.broadcast_to(right, (*batch, *right.shape[-2:]))
    product = np.zeros((*batch, left.shape[-2], right.shape[-1]), np.int64)
    for index in np.ndindex(*product.shape):
        *where, i, j = index
        product[index] = _dot(left[(*where, i)].tolist(), right[(*where, slice(None), j)].tolist(), algebra)
    if a.ndim == 1:
        product = product[..., 0, :]
    return product[..., 0] if b.ndim == 1 else product


def _scaled(factor: Any, x: Array, algebra: Algebra) -> Array:
    if factor in (None, 1.0):
        return x
    number = algebra.value(float(factor))
    return np.asarray([algebra.call("Mul", (), [number, e]) for e in x.reshape(-1).tolist()], np.int64).reshape(x.shape)


def _gemm(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    if not algebra.is_real:
        raise Opaque("Gemm")
    a, b, c = (*inputs, None)[:3]
    assert a is not None
    assert b is not None
    left, right = (a.T if attrs.get("transA") else a), (b.T if attrs.get("transB") else b)
    product = _scaled(attrs.get("alpha"), _matmul(attrs, [left, right], algebra), algebra)
    return product if c is None else _added(product, _scaled(attrs.get("beta"), c, algebra), algebra)


def _added(a: Array, b: Array, algebra: Algebra) -> Array:
    spread = np.broadcast_arrays(a, b)
    pairs = zip(*(s.reshape(-1).tolist() for s in spread), strict=True)
    return np.asarray([algebra.call("Add", (), p) for p in pairs], np.int64).reshape(spread[0].shape)


def _conv(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x, w, b = (*inputs, None)[:3]
    assert x is not None
    assert w is not None
    n = x.ndim - 2
    if not algebra.is_real or attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID"):
        raise Opaque("Conv")
    plain = (("strides", (1,) * n), ("dilations", (1,) * n), ("pads", (0,) * (2 * n)), ("group", 1))
    given: list[Any] = [attrs.get(name) or default for name, default in plain]
    strides, dilations, pads, group = given
    pads = (0,) * (2 * n) if attrs.get("auto_pad") == "VALID" else pads
    zero = algebra.value(0.0)
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:n], pads[n:], strict=True)], constant_values=zero)
    kernel = w.shape[2:]
    sizes = [(s - d * (k - 1) - 1) // t + 1 for s, k, t, d in zip(x.shape[2:], kernel, strides, dilations, strict=True)]
    if min(sizes, default=1) < 1:
        raise Opaque("an empty convolution")
    result = np.zeros((x.shape[0], w.shape[0], *sizes), np.int64)
    per, filters = w.shape[1], w.shape[0] // group
    for index in np.ndindex(*result.shape):
        image, channel, *position = index
        start = (channel // filters) * per
        window = tuple(
            slice(p * t, p * t + d * (k - 1) + 1, d)
            for p, t, d, k in zip(position, strides, dilations, kernel, strict=True)
        )
        window_values = x[(image, slice(start, start + per), *window)]
        result[index] = _dot(window_values.reshape(-1).tolist(), w[channel].reshape(-1).tolist(), algebra)
    if b is None:
        return result
    if b.shape != w.shape[:1]:
        raise ValueError("a bias that has not one number for each filter")
    return _added(result, b.reshape(1, -1, *(1,) * n), algebra)


def _batch_norm(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x, scale, bias, mean, variance = inputs[:5]
    assert x is not None
    if attrs.get("training_mode"):
        raise Opaque("training")
    if x.ndim < 2 or any(p is not None and p.shape != x.shape[1:2] for p in (scale, bias, mean, variance)):
        raise ValueError("a parameter that has not one number for each channel")
    given: Any = attrs.get("epsilon", 1e-5)
    epsilon = algebra.value(float(given))
    result = np.zeros_like(x)
    for index in np.ndindex(*x.shape):
        c = index[1]
        s, o, m, v = (int(p[c]) for p in (scale, bias, mean, variance) if p is not None)
        root = algebra.call("Sqrt", (), [algebra.call("Add", (), [v, epsilon])])
        centred = algebra.call("Sub", (), [int(x[index]), m])
        result[index] = algebra.call(
            "Add", (), [algebra.call("Div", (), [algebra.call("Mul", (), [centred, s]), root]), o]
        )
    return result


def _global_mean(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x = inputs[0]
    assert x is not None
    means = np.zeros(x.shape[:2], np.int64)
    for index in np.ndindex(*means.shape):
        means[index] = algebra.call("ReduceMean", (), sorted(x[index].reshape(-1).tolist()))
    return means.reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


def _fused_matmul(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    a, b = inputs[:2]
    assert a is not None
    assert b is not None
    left, right = fused_axes((a.ndim, b.ndim), attrs.get)
    return _scaled(attrs.get("alpha"), _matmul(attrs, [a.transpose(left), b.transpose(right)], algebra), algebra)


def _rms_norm(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    return _normalized(attrs, inputs, algebra, False)[0]


def _normalized(attrs: Attrs, inputs: list[Array | None], algebra: Algebra, is_centred: bool) -> list[Array]:
    """Rows divided by the root of the mean of their squares, over the reals; the means, and one by the roots."""
    if not algebra.is_real:
        raise Opaque("a normalization bit by bit")
    x, scale, bias = (*inputs, None, None)[:3]
    assert x is not None
    if not x.ndim:
        raise ValueError("a row of a number")
    axis = integer(attrs, "axis", -1) % x.ndim
    given: Any = attrs.get("epsilon", 1e-5)
    result = np.zeros_like(x)
    means, inverses = (np.zeros((*x.shape[:axis], *(1,) * (x.ndim - axis)), np.int64) for _ in range(2))
    for index in np.ndindex(*x.shape[:axis]):
        row = x[index].reshape(-1).tolist()
        mean = algebra.call("ReduceMean", (), row)
        if is_centred:
            row = [algebra.call("Sub", (), [e, mean]) for e in row]
        squares = algebra.call("ReduceMean", (), [algebra.call("Mul", (), [e, e]) for e in row])
        root = algebra.call("Sqrt", (), [algebra.call("Add", (), [squares, algebra.value(float(given))])])
        means[index], inverses[index] = mean, algebra.call("Reciprocal", (), [root])
        quotients = [algebra.call("Div", (), [e, root]) for e in row]
        result[index] = np.asarray(quotients, np.int64).reshape(x.shape[axis:])
    if scale is not None:
        result = _elementwise("Mul", Attrs(), [result, scale], algebra)
    result = result if bias is None else _elementwise("Add", Attrs(), [result, bias], algebra)
    return [result, means, inverses]


def _along_axis(parameter: Array, x: Array, attrs: Attrs) -> Array:
    """A scale or zero point as it is broadcast to what is quantized."""
    if parameter.ndim != 1 or parameter.size == 1:
        return parameter
    if not x.ndim:
        raise ValueError("an axis of a number")
    axis = integer(attrs, "axis", 1) % x.ndim
    return parameter.reshape([-1 if i == axis else 1 for i in range(x.ndim)])


def _quantized(op: str) -> Callable[[Attrs, list[Array | None], Algebra], Array]:
    def compute(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
        x, scale, zero = (*inputs, None)[:3]
        assert x is not None
        assert scale is not None
        if attrs.get("block_size"):
            raise Opaque("blocks of scales")
        given = [x, _along_axis(scale, x, attrs), None if zero is None else _along_axis(zero, x, attrs)]
        if (zero is not None and zero.shape != scale.shape) or np.broadcast_shapes(x.shape, scale.shape) != x.shape:
            raise ValueError("a scale or zero point that does not fit")
        rest = Attrs({n: a for n, a in attrs.items() if n != "axis"})
        return _elementwise(op, rest, given, algebra)

    return compute


def _windows(
    shape: Sequence[int], attrs: Attrs, kernel: Sequence[int]
) -> tuple[list[int], Callable[[Sequence[int]], Iterator[tuple[tuple[int, ...], tuple[int, ...]]]]]:
    """The sizes of what slides over an image, and for a position the taps of the window with the pixels under them."""
    n = len(kernel)
    if attrs.get("auto_pad", "NOTSET") not in ("NOTSET", "VALID") or attrs.get("ceil_mode"):
        raise Opaque("a window that is not placed by its pads")
    given: list[Any] = [
        attrs.get(name) or default
        for name, default in (("strides", (1,) * n), ("dilations", (1,) * n), ("pads", (0,) * (2 * n)))
    ]
    strides, dilations, pads = given
    pads = (0,) * (2 * n) if attrs.get("auto_pad") == "VALID" else pads
    sizes = [
        (shape[i] + pads[i] + pads[n + i] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(n)
    ]
    if min(sizes, default=1) < 1 or min(kernel, default=1) < 1:
        raise Opaque("an empty window")

    def pixels(position: Sequence[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        for tap in product(*map(range, kernel)):
            yield (
                tap,
                tuple(
                    p * s - a + k * d for p, s, a, k, d in zip(position, strides, pads, tap, dilations, strict=False)
                ),
            )

    return sizes, pixels


def _pool(op: str) -> Callable[[Attrs, list[Array | None], Algebra], Array]:
    def compute(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
        x = inputs[0]
        assert x is not None
        kernel: Any = attrs.get("kernel_shape")
        if x.ndim < 3 or kernel is None or len(kernel) != x.ndim - 2:
            raise ValueError("a window that does not fit the image")
        sizes, pixels = _windows(x.shape[2:], attrs, kernel)
        zero = algebra.value(0.0)
        result = np.zeros((*x.shape[:2], *sizes), np.int64)
        for index in np.ndindex(*result.shape):
            found = []
            for _, pixel in pixels(index[2:]):
                if all(0 <= p < n for p, n in zip(pixel, x.shape[2:], strict=True)):
                    found.append(int(x[(*index[:2], *pixel)]))
                elif op == "ReduceMean" and attrs.get("count_include_pad"):
                    found.append(zero)
            if not found:
                raise Opaque("a window of pads alone")
            result[index] = algebra.call(op, (), sorted(found))
        return result

    return compute


def _global_max(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x = inputs[0]
    assert x is not None
    flat = x.reshape(*x.shape[:2], int(np.prod(x.shape[2:])))
    found = [algebra.call("ReduceMax", (), row.tolist()) for rows in flat for row in rows]
    return np.asarray(found, np.int64).reshape(*x.shape[:2], *(1,) * (x.ndim - 2))


def _conv_transpose(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    """Each pixel adds its multiple of the kernel to the result, over the reals."""
    x, w, b = (*inputs, None)[:3]
    assert x is not None
    assert w is not None
    n = x.ndim - 2
    names = ("output_padding", "output_shape")
    is_other = attrs.get("group", 1) != 1 or attrs.get("auto_pad", "NOTSET") != "NOTSET" or any(map(attrs.get, names))
    if not algebra.is_real or is_other:
        raise Opaque("ConvTranspose")
    if x.shape[1] != w.shape[0]:
        raise ValueError("a kernel of other channels")
    plain = (("strides", (1,) * n), ("dilations", (1,) * n), ("pads", (0,) * (2 * n)))
    given: list[Any] = [attrs.get(name) or default for name, default in plain]
    strides, dilations, pads = given
    taps = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    sizes = [
        (s - 1) * t + k - pads[i] - pads[n + i]
        for i, (s, t, k) in enumerate(zip(x.shape[2:], strides, taps, strict=True))
    ]
    if min(sizes, default=1) < 1:
        raise Opaque("an empty convolution")
    terms: dict[tuple[int, ...], list[int]] = {}
    for image, channel, *pixel in np.ndindex(*x.shape):
        for out, *tap in np.ndindex(*w.shape[1:]):
            steps = zip(pixel, strides, tap, dilations, pads, strict=False)
            place = tuple(p * s + k * d - a for p, s, k, d, a in steps)
            key = (image, out, *place)
            product_term = algebra.call("Mul", (), [int(x[(image, channel, *pixel)]), int(w[(channel, out, *tap)])])
            terms.setdefault(key, []).append(product_term)
    result = np.zeros((x.shape[0], w.shape[1], *sizes), np.int64)
    for index in np.ndindex(*result.shape):
        result[index] = algebra.call("Sum", (), terms.get(index, []))
    if b is None:
        return result
    if b.shape != w.shape[1:2]:
        raise ValueError("a bias that has not one number for each filter")
    return _added(result, b.reshape(1, -1, *(1,) * n), algebra)


def _extremes(call: _Call, algebra: Algebra) -> list[Array]:
    """The largest or smallest element of each row, and where the first such is."""
    x, count = call.inputs[:2]
    assert x is not None
    assert count is not None
    if [algebra.known(int(n)) for n in count.reshape(-1)] != [1]:
        return _whole(call, algebra)
    axis = integer(call.attrs, "axis", -1)
    name = "Max" if call.attrs.get("largest", 1) else "Min"
    axes = np.asarray([algebra.value(axis)], np.int64)
    places = _Call(f"Arg{name}", Attrs({"axis": axis}), [x], 1, call.opset)
    return [_reduce(f"Reduce{name}", Attrs(), [x, axes], algebra), *_of_rows(places, algebra)][: call.n_outputs]


def _instance_norm(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    """Each channel of each image is normalized, or each group of channels, over the reals."""
    x, scale, bias = inputs
    assert x is not None
    assert scale is not None
    assert bias is not None
    if x.ndim < 3 or scale.shape != x.shape[1:2] or bias.shape != x.shape[1:2]:
        raise ValueError("a parameter that has not one number for each channel")
    groups = integer(attrs, "num_groups", x.shape[1])
    if not groups or x.shape[1] % groups:
        raise ValueError("groups that do not fit")
    rows = x.reshape(x.shape[0], groups, int(np.prod(x.shape[1:])) // groups)
    kept = Attrs({"axis": -1, "epsilon": attrs.get("epsilon", 1e-5)})
    whole = _normalized(kept, [rows], algebra, True)[0].reshape(x.shape)
    along = (-1, *(1,) * (x.ndim - 2))
    scaled = _elementwise("Mul", Attrs(), [whole, scale.reshape(along)], algebra)
    return _elementwise("Add", Attrs(), [scaled, bias.reshape(along)], algebra)


def _dequantized_product(op: str) -> Callable[[Attrs, list[Array | None], Algebra], Array]:
    def compute(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
        x, sx, zx, w, sw, zw, sy, zy, *bias = inputs
        if not algebra.is_real or (bias and bias[0] is not None):
            raise Opaque("a product of integers")
        along = Attrs({"axis": 0 if op == "Conv" else 1})
        left = _quantized("DequantizeLinear")(Attrs({"axis": 1}), [x, sx, zx], algebra)
        right = _quantized("DequantizeLinear")(along, [w, sw, zw], algebra)
        whole = _PRODUCTS[op](attrs, [left, right], algebra)
        return _quantized("QuantizeLinear")(Attrs({"axis": 1}), [whole, sy, zy], algebra)

    return compute


def _unit_norm(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> Array:
    x = inputs[0]
    assert x is not None
    if not algebra.is_real:
        raise Opaque("LpNormalization bit by bit")
    axes = np.asarray([algebra.value(integer(attrs, "axis", -1))], np.int64)
    norm = _reduce("ReduceL1" if attrs.get("p", 2) == 1 else "ReduceL2", Attrs(), [x, axes], algebra)
    return _elementwise("Div", Attrs(), [x, norm], algebra)


def _attend(
    q: Array, k: Array, v: Array, mask: Array | None, scale: Any, algebra: Algebra, last: int | None = None
) -> Array:
    """Softmax of scaled products of queries and keys, times values. ``last``: the last key that the first query sees,
    each next one more."""
    if not q.ndim == k.ndim == v.ndim == 4 or q.shape[3] != k.shape[3] or k.shape[:3] != v.shape[:3]:
        raise ValueError("heads that do not fit")
    if q.shape[0] != k.shape[0] or not k.shape[1] or q.shape[1] % k.shape[1]:
        raise ValueError("groups of heads that do not fit")
    k, v = (np.repeat(t, q.shape[1] // t.shape[1], axis=1) for t in (k, v))
    factor = (
        algebra.value(float(scale))
        if scale
        else algebra.call("Pow", (), [algebra.value(float(q.shape[3])), algebra.value(-0.5)])
    )
    scores = _matmul(Attrs(), [q, np.swapaxes(k, -1, -2)], algebra)
    scores = _elementwise("Mul", Attrs(), [scores, np.asarray(factor, np.int64)], algebra)
    if mask is not None:
        scores = _elementwise("Add", Attrs(), [scores, mask], algebra)
    if scores.shape != (*q.shape[:3], k.shape[2]):
        raise ValueError("a mask that does not fit")
    if last is None:
        return _matmul(Attrs(), [_along("Softmax", -1, scores, algebra), v], algebra)
    weights = np.full(scores.shape, algebra.value(0.0), np.int64)
    for row in range(q.shape[2]):
        if last + row >= 0:
            seen = scores[:, :, row : row + 1, : last + row + 1]
            weights[:, :, row : row + 1, : last + row + 1] = _along("Softmax", -1, seen, algebra)
        else:
            raise Opaque("a query that sees nothing")
    return _matmul(Attrs(), [weights, v], algebra)


def _with_heads(x: Array, heads: int) -> Array:
    if x.ndim == 4:
        return x
    if x.ndim != 3 or not heads or x.shape[2] % heads:
        raise ValueError("heads that do not fit")
    return np.swapaxes(x.reshape(*x.shape[:2], heads, x.shape[2] // heads), 1, 2)


def _without_heads(x: Array) -> Array:
    return np.swapaxes(x, 1, 2).reshape(x.shape[0], x.shape[2], x.shape[1] * x.shape[3])


def _attention(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> list[Array]:
    """ONNX's attention: with heads or without, with a mask to add, and with keys and values of the past."""
    q, k, v, mask, past_k, past_v, *rest = [*inputs, *[None] * 7][:7]
    assert q is not None
    assert k is not None
    assert v is not None
    unread = ("softcap", "qk_matmul_output_mode", "softmax_precision")
    if any(r is not None for r in rest) or any(attrs.get(name) for name in unread):
        raise Opaque("Attention of other operands")
    heads, groups = integer(attrs, "q_num_heads", 0), integer(attrs, "kv_num_heads", 0)
    q4, k4, v4 = _with_heads(q, heads), _with_heads(k, groups), _with_heads(v, groups)
    if past_k is not None and past_v is not None:
        if attrs.get("is_causal"):
            raise Opaque("causal attention with a past")
        k4, v4 = np.concatenate([past_k, k4], 2), np.concatenate([past_v, v4], 2)
    y = _attend(q4, k4, v4, mask, attrs.get("scale"), algebra, 0 if attrs.get("is_causal") else None)
    return [y if q.ndim == 4 else _without_heads(y), k4, v4]


def _multi_head_attention(attrs: Attrs, inputs: list[Array | None], algebra: Algebra) -> list[Array]:
    """ONNX Runtime's attention, with a mask to add."""
    q, k, v, bias, padding, mask, *rest = [*inputs, *[None] * 10][:10]
    if q is None or k is None or v is None or any(r is not None for r in (bias, padding, *rest)):
        raise Opaque("MultiHeadAttention of other operands")
    heads = integer(attrs, "num_heads", 0)
    q4, k4, v4 = (_with_heads(t, heads) for t in (q, k, v))
    last = k4.shape[2] - q4.shape[2] if attrs.get("unidirectional") else None
    return [_without_heads(_attend(q4, k4, v4, mask, attrs.get("scale"), algebra, last)), k4, v4]


_ATTENTION: dict[str, Callable[[Attrs, list[Array | None], Algebra], list[Array]]] = {
    "Attention": _attention, "com.microsoft::MultiHeadAttention": _multi_head_attention,
}  # fmt: skip


_PRODUCTS: dict[str, Callable[[Attrs, list[Array | None], Algebra], Array]] = {
    "MatMul": _matmul, "Gemm": _gemm, "Conv": _conv, "BatchNormalization": _batch_norm,
    "RMSNormalization": _rms_norm, "QuantizeLinear": _quantized("QuantizeLinear"),
    "DequantizeLinear": _quantized("DequantizeLinear"), "GlobalAveragePool": _global_mean,
    "com.microsoft::FusedMatMul": _fused_matmul, "MaxPool": _pool("ReduceMax"), "AveragePool": _pool("ReduceMean"),
    "GlobalMaxPool": _global_max, "ConvTranspose": _conv_transpose, "InstanceNormalization": _instance_norm,
    "GroupNormalization": _instance_norm, "LpNormalization": _unit_norm,
    "QLinearMatMul": _dequantized_product("MatMul"), "QLinearConv": _dequantized_product("Conv"),
}  # fmt: skip
