"""Instances of ops drawn from a seed: any op of ONNX, and those of com.microsoft that ONNX Runtime's tools write, in
sizes, dtypes, layouts and attributes that models have.

An instance is a model of one op. What ``INSTANCES`` has no line for is drawn from ONNX's own tests of nodes.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from math import prod
from random import Random
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.onnx_suite import suite

OPSET, IR = onnx.defs.onnx_opset_version(), 10
MICROSOFT = "com.microsoft::"

Shape: TypeAlias = Sequence[int]

_COMMON = {
    "float32": 40, "float16": 8, "float64": 4, "int64": 8, "int32": 5, "uint8": 4, "int8": 3, "bool": 2, "int16": 1,
    "uint16": 1, "uint32": 1, "uint64": 1, "bfloat16": 2,
}  # fmt: skip
"""How often a dtype is drawn where an op takes it; those that are not here are not."""

SIZES = (
    1, 2, 3, 4, 5, 7, 8, 10, 12, 14, 16, 17, 20, 24, 28, 31, 32, 33, 48, 50, 56, 64, 65, 80, 96, 100, 112, 127, 128,
    150, 192, 196, 224, 256, 300, 320, 384, 400, 512, 640, 768, 1000, 1024, 1500, 2048, 3072, 4096,
)  # fmt: skip
"""Sizes of axes, odd ones among them."""


@dataclass(frozen=True)
class Operand:
    """An array that an op reads: an input of the model, or a constant; the axes that may be open."""

    array: Any
    is_constant: bool = False
    open: tuple[int, ...] = ()


@dataclass
class Instance:
    """A node with what it reads."""

    op: str
    inputs: list[Operand | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    n_outputs: int = 1
    opset: int = OPSET
    model: onnx.ModelProto | None = None
    """The model where it is no single node."""
    feeds: dict[str, Any] | None = None


class Draw:
    """The choices that make one instance: the same for one op, seed and number."""

    def __init__(self, op: str, seed: int, number: int) -> None:
        key = f"{seed} {op} {number}"
        self.op = op
        self.random = Random(key)
        self.numpy = np.random.default_rng(zlib.crc32(key.encode()))
        self.is_open = self.random.random() < 0.3
        self.opened: dict[int, bool] = {}

    # -- choices

    def one(self, *options: Any) -> Any:
        return self.random.choice(options)

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def dtype(self, port: int = 0, *among: str) -> str:
        """A dtype that the op's input takes."""
        taken = [name for name in _taken(self.op, port) if not among or name in among]
        return self.random.choices(taken, [_COMMON[name] for name in taken])[0]

    def size(self, least: int = 1, most: int = 4096) -> int:
        return self.one(*(n for n in SIZES if least <= n <= most))

    def shape(self, least: int = 1, most: int = 4, elements: int = 1 << 20) -> list[int]:
        """A shape of a rank between two, of some elements most often and of few now and then."""
        rank = self.random.randint(least, most)
        total = 2 ** (
            self.random.uniform(0, 6) if self.chance(0.15) else self.random.uniform(10, elements.bit_length() - 1)
        )
        sizes = []
        for left in range(rank, 0, -1):
            goal = total ** (1 / left) if left > 1 else total
            spread = goal * 2 ** self.random.uniform(-1.5, 1.5) if left > 1 else goal
            size = max(1, round(spread))
            size = min(SIZES, key=lambda n: abs(n - size)) if self.chance(0.8) and size <= SIZES[-1] else size
            sizes.append(min(size, max(1, round(total))))
            total = max(1.0, total / size)
        self.random.shuffle(sizes)
        return sizes

    def image(self, elements: int = 1 << 19, rank: int | None = None) -> list[int]:
        """The shape of images, rather often of pictures in a plane: batch, channels, and sizes."""
        spatial = rank if rank is not None else self.one(2, 2, 2, 2, 1, 3)
        batch = self.one(1, 1, 1, 2, 4)
        channels = self.one(1, 3, 8, 16, 24, 32, 64, 96, 128, 160, 256, 20, 17)
        side = max(4, round((elements * 2 ** self.random.uniform(-5, 0) / batch / channels) ** (1 / spatial)))
        return [batch, channels, *(max(3, side + self.one(0, 0, -1, 1, 2)) for _ in range(spatial))]

    def axis(self, rank: int) -> int:
        axis = self.one(rank - 1, self.random.randrange(rank))
        return axis - rank if self.chance(0.4) else axis

    # -- elements

    def array(self, shape: Shape, dtype: str = "float32", low: float | None = None, high: float | None = None) -> Any:
        """Random elements: normal floats, small integers, or what lies between two bounds."""
        kind = np.dtype(getattr(ml_dtypes, dtype, None) or dtype)
        if dtype == "bool":
            return self.numpy.random(tuple(shape)) < 0.5
        if kind.kind in "iu":
            first = int(low) if low is not None else (0 if kind.kind == "u" else -20)
            return self.numpy.integers(
                first, int(high) if high is not None else 20, tuple(shape), endpoint=True
            ).astype(kind)
        if low is None or high is None:
            return np.asarray(self.numpy.standard_normal(tuple(shape)) * (high or 1)).astype(kind)
        return np.asarray(self.numpy.uniform(low, high, tuple(shape))).astype(kind)

    def x(self, shape: Shape, dtype: str = "float32", *bounds: float, axes: Shape | None = None) -> Operand:
        """An input of random elements. ``axes`` may be open (none named: all)."""
        return self.given(self.array(shape, dtype, *bounds), axes)

    def given(self, array: Any, axes: Shape | None = None) -> Operand:
        """An input of these elements."""
        open = [a for a in (range(array.ndim) if axes is None else axes) if self._is_open(array.shape[a])]
        return Operand(array, open=tuple(open))

    def w(self, shape: Shape, dtype: str = "float32", *bounds: float) -> Operand:
        """A constant of random elements."""
        return Operand(self.array(shape, dtype, *bounds), True)

    def either(self, shape: Shape, dtype: str = "float32", *bounds: float) -> Operand:
        return self.w(shape, dtype, *bounds) if self.chance(0.5) else self.x(shape, dtype, *bounds)

    def _is_open(self, size: int) -> bool:
        if not self.is_open or size < 2:
            return False
        return self.opened.setdefault(size, self.chance(0.6))


def ints(*elements: int, dtype: str = "int64") -> Operand:
    """A constant list."""
    return Operand(np.asarray(elements, dtype), True)


def scalar(element: Any, dtype: str = "float32") -> Operand:
    """A constant number."""
    return Operand(np.asarray(element, np.dtype(getattr(ml_dtypes, dtype, None) or dtype)), True)


@cache
def schemas() -> Mapping[str, Any]:
    """The newest schema of each op of ONNX's own domain."""
    newest = {}
    for schema in onnx.defs.get_all_schemas():
        if schema.domain == "":
            newest[schema.name] = schema
    return newest


@cache
def _taken(op: str, port: int) -> tuple[str, ...]:
    schema = schemas().get(op)
    if schema is None:
        return ("float32",)
    types = schema.inputs[min(port, len(schema.inputs) - 1)].types
    names = {t[7:-1].replace("float32", "float") for t in types if t.startswith("tensor(")}
    plain = {"float": "float32", "double": "float64"}
    found = {plain.get(name, name) for name in names}
    return tuple(name for name in _COMMON if name in found)


# -- elementwise

_BOUNDS: Mapping[str, tuple[float, float]] = {
    "Acos": (-1, 1), "Acosh": (1, 5), "Asin": (-1, 1), "Atanh": (-0.95, 0.95), "Log": (0.01, 10), "Sqrt": (0, 10),
    "Reciprocal": (0.5, 3), "Tan": (-1.5, 1.5), "Sinh": (-4, 4), "Cosh": (-4, 4), "Exp": (-5, 5),
}  # fmt: skip

_UNARY_ATTRS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "Celu": {"alpha": (1.0, 0.5, 2.0)}, "Elu": {"alpha": (1.0, 0.5)}, "Gelu": {"approximate": ("none", "tanh")},
    "HardSigmoid": {"alpha": (0.2, 1 / 6), "beta": (0.5,)}, "LeakyRelu": {"alpha": (0.01, 0.1, 0.3)},
    "Shrink": {"lambd": (0.5, 1.0), "bias": (0.0, 0.5)}, "Swish": {"alpha": (1.0, 1.702)},
    "ThresholdedRelu": {"alpha": (1.0, 0.5)}, "IsInf": {"detect_negative": (0, 1), "detect_positive": (1,)},
}  # fmt: skip


def unary(d: Draw) -> Instance:
    dtype = d.dtype()
    bounds = _BOUNDS.get(d.op, ()) if "float" in dtype else ()
    attrs = {name: d.one(*options) for name, options in _UNARY_ATTRS.get(d.op, {}).items() if d.chance(0.7)}
    return Instance(d.op, [d.x(d.shape(), dtype, *bounds)], attrs)


def _partner(d: Draw, shape: list[int]) -> list[int]:
    """A shape that broadcasts with another."""
    rank = len(shape)
    ways = [shape, shape, shape, [], shape[-1:], [1] * rank, shape[rank // 2 :]]
    if rank > 2:
        ways.append([shape[1], *[1] * (rank - 2)])
    ways.append([n if d.chance(0.5) else 1 for n in shape])
    return list(d.one(*ways))


_SECOND: Mapping[str, tuple[float, float]] = {"Div": (1, 4), "Mod": (1, 9)}


def binary(d: Draw) -> Instance:
    dtype, shape = d.dtype(), d.shape()
    other = _partner(d, shape)
    attrs: dict[str, Any] = {}
    first: tuple[float, ...] = ()
    second: tuple[float, ...] = _SECOND.get(d.op, ())
    if d.op == "BitShift":
        attrs, second = {"direction": d.one("LEFT", "RIGHT")}, (0, 5)
    if d.op == "Mod" and "float" in dtype:
        attrs = {"fmod": 1}
    if dtype.startswith("u"):
        first = (10, 30) if d.op == "Sub" else ()
        second = (0, 9) if d.op == "Sub" else second
    a, b = d.x(shape, dtype, *first), d.either(other, dtype, *second)
    if d.op not in ("Div", "Mod", "BitShift", "PRelu") and not first and d.chance(0.3):
        return Instance(d.op, [replace(b, is_constant=b.is_constant), a], attrs)
    return Instance(d.op, [a, b], attrs)


def power(d: Draw) -> Instance:
    dtype, shape = d.dtype(), d.shape()
    exponent = d.one(2, 0.5, 3, -1, 1.5) if "float" in dtype else d.one(2, 3)
    if d.chance(0.7):
        return Instance(
            "Pow", [d.x(shape, dtype, 0.1, 4) if "float" in dtype else d.x(shape, dtype), scalar(exponent, dtype)]
        )
    return Instance("Pow", [d.x(shape, dtype, 1, 4), d.x(_partner(d, shape), dtype, 0, 3)])


def variadic(d: Draw) -> Instance:
    dtype, shape = d.dtype(), d.shape()
    return Instance(d.op, [d.x(shape, dtype), *(d.either(_partner(d, shape), dtype) for _ in range(d.one(1, 1, 2, 3)))])


def where(d: Draw) -> Instance:
    dtype, shape = d.dtype(1), d.shape()
    return Instance("Where", [d.x(_partner(d, shape), "bool"), d.x(shape, dtype), d.either(_partner(d, shape), dtype)])


def clip(d: Draw) -> Instance:
    dtype = d.dtype()
    low, high = d.one((0, 6), (1, None), (None, 2), (1, 3))
    bounds = [None if b is None else scalar(b, dtype) for b in (low, high)]
    return Instance("Clip", [d.x(d.shape(), dtype), *bounds[: 2 if bounds[1] else 1]])


def cast(d: Draw) -> Instance:
    dtype = d.dtype()
    to = d.one("float32", "float16", "float64", "int64", "int32", "uint8", "int8", "bool", "bfloat16")
    code = helper.np_dtype_to_tensor_dtype(np.dtype(getattr(ml_dtypes, to, None) or to))
    x = d.x(d.shape(), dtype, 0, 20) if dtype != "bool" else d.x(d.shape(), dtype)
    if d.op == "CastLike":
        return Instance("CastLike", [x, Operand(np.zeros(1, np.dtype(getattr(ml_dtypes, to, None) or to)), True)])
    return Instance("Cast", [x], {"to": code})


def bit_cast(d: Draw) -> Instance:
    dtype, to = d.one(
        ("float32", "int32"), ("int32", "float32"), ("float64", "int64"), ("float16", "uint16"), ("uint8", "int8")
    )
    return Instance("BitCast", [d.x(d.shape(), dtype)], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))})


def expand(d: Draw) -> Instance:
    shape = d.shape(1, 4)
    source = [n if d.chance(0.5) else 1 for n in shape]
    return Instance("Expand", [d.x(source[d.one(0, 0, len(shape) // 2) :], d.dtype()), ints(*shape)])


# -- reductions and rows


def reduction(d: Draw) -> Instance:
    shape, dtype = d.shape(1, 4), d.dtype()
    rank = len(shape)
    axes = d.one(
        [-1], [rank - 1], [0], [d.random.randrange(rank)], list(range(rank)), list(range(rank // 2, rank)), None
    )
    bounds = {"ReduceProd": (0.9, 1.1), "ReduceLogSum": (0.1, 2)}.get(d.op, ()) if "float" in dtype else ()
    if "float" not in dtype and d.op in ("ReduceProd", "ReduceLogSum"):
        bounds = (1, 2)
    inputs = [d.x(shape, dtype, *bounds)] + ([] if axes is None else [ints(*axes)])
    return Instance(d.op, inputs, {"keepdims": d.one(0, 1)})


def arg(d: Draw) -> Instance:
    shape = d.shape(1, 4)
    last = {"select_last_index": 1} if d.chance(0.2) else {}
    return Instance(d.op, [d.x(shape, d.dtype())], {"axis": d.axis(len(shape)), "keepdims": d.one(0, 1), **last})


def row(d: Draw) -> Instance:
    """Softmax and what else works along an axis."""
    shape = d.shape(1, 4)
    more = {"p": d.one(1, 2)} if d.op == "LpNormalization" else {}
    return Instance(d.op, [d.x(shape, d.dtype())], {"axis": d.axis(len(shape)), **more})


def cumulative(d: Draw) -> Instance:
    shape, dtype = d.shape(1, 4, 1 << 18), d.dtype()
    bounds = (0.99, 1.01) if d.op == "CumProd" and "float" in dtype else (1, 1) if d.op == "CumProd" else ()
    attrs = {"reverse": d.one(0, 0, 1), "exclusive": d.one(0, 0, 1)}
    return Instance(d.op, [d.x(shape, dtype, *bounds), scalar(d.axis(len(shape)), "int64")], attrs)


def top(d: Draw) -> Instance:
    shape = d.shape(1, 3, 1 << 18)
    axis = d.axis(len(shape))
    k = min(shape[axis], d.one(1, 5, 10, 100, 300))
    attrs = {"axis": axis, "largest": d.one(1, 1, 0)}
    return Instance("TopK", [d.x(shape, d.dtype(), *(() if d.chance(0.5) else (0, 99))), ints(k)], attrs, 2)


# -- normalizations


def row_norm(d: Draw) -> Instance:
    shape, dtype = d.shape(2, 4), d.dtype()
    axis = d.one(-1, -1, -1, len(shape) - 2, 1)
    inner = shape[axis:]
    bias = [d.w(inner, dtype)] if d.op == "LayerNormalization" and d.chance(0.7) else []
    axes = range(axis % len(shape))
    return Instance(d.op, [d.x(shape, dtype, axes=axes), d.w(inner, dtype), *bias], {"axis": axis, "epsilon": 1e-5})


def channel_norm(d: Draw) -> Instance:
    shape, dtype = d.image(1 << 20), d.dtype()
    n, axes = shape[1], [0, *range(2, len(shape))]
    match d.op:
        case "BatchNormalization":
            rest = [d.w([n], dtype), d.w([n], dtype), d.w([n], dtype), d.w([n], dtype, 0.5, 2)]
            return Instance(d.op, [d.x(shape, dtype, axes=axes), *rest])
        case "GroupNormalization":
            groups = d.one(*(g for g in (1, 2, 4, 8, 16, 32, n) if n % g == 0))
            attrs = {"num_groups": groups}
        case _:
            attrs = {}
    return Instance(d.op, [d.x(shape, dtype, axes=axes), d.w([n], dtype), d.w([n], dtype)], attrs)


def variance_norm(d: Draw) -> Instance:
    return Instance(d.op, [d.x(d.image(1 << 20, 2), d.dtype())], {"axes": d.one([0, 2, 3], [1], [2, 3], [1, 2, 3])})


def lrn(d: Draw) -> Instance:
    return Instance("LRN", [d.x(d.image(1 << 18, 2), d.dtype())], {"size": d.one(3, 5), "alpha": 0.0001, "beta": 0.75})


# -- convolutions and pools


def _window(d: Draw, spatial: int, sizes: Shape = (1, 3, 3, 3, 5, 7), sides: Shape = ()) -> dict[str, Any]:
    kernel = [d.one(*sizes)] * spatial
    if spatial > 1 and d.chance(0.15):
        kernel = [d.one(*sizes) for _ in range(spatial)]
    kernel = [min(k, n) for k, n in zip(kernel, sides or kernel, strict=True)]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": [d.one(1, 1, 2)] * spatial}
    way = d.random.random()
    if way < 0.2:
        found["auto_pad"] = d.one("SAME_UPPER", "SAME_LOWER", "VALID")
    elif way < 0.8:
        found["pads"] = [k // 2 for k in kernel] * 2
    return found


def convolution(d: Draw) -> Instance:
    integers = d.op in ("ConvInteger", "QLinearConv")
    dtype = d.one("uint8", "int8") if integers else d.dtype(0, "float32", "float16", "float64")
    shape = d.image(1 << (18 if integers else 19))
    spatial = len(shape) - 2
    attrs = _window(d, spatial, (1, 1, 3, 3, 5, 7), shape[2:])
    groups = d.one(1, 1, 1, shape[1], 4)
    if shape[1] % groups:
        groups = 1
    work = prod(shape) * prod(attrs["kernel_shape"])
    out = (
        groups * max(1, min(d.one(8, 16, 32, 64, 128, 3, 17), round(2e8 / work) or 1))
        if groups < shape[1]
        else shape[1]
    )
    if d.chance(0.1) and "auto_pad" not in attrs:
        attrs["dilations"] = [2] * spatial
        attrs["pads"] = [2 * (k // 2) for k in attrs["kernel_shape"]] * 2
    attrs["group"] = groups
    filters = [out, shape[1] // groups, *attrs["kernel_shape"]]
    axes = [0, *range(2, 2 + spatial)]
    if not integers:
        bias = [d.w([out], dtype)] if d.chance(0.6) else []
        return Instance("Conv", [d.x(shape, dtype, axes=axes), d.w(filters, dtype), *bias], attrs)
    weights = "int8" if dtype == "int8" else d.one("uint8", "int8")
    x, w = d.given(d.array(shape, dtype, *_range(dtype)), axes), d.w(filters, weights, *_range(weights))
    points = [scalar(d.one(0, 3), dtype), scalar(d.one(0, 0, 3), weights)]
    if d.op == "ConvInteger":
        return Instance(d.op, [x, w, *points], attrs)
    scales = d.w([out], "float32", 0.001, 0.01) if d.chance(0.5) else scalar(0.005)
    if scales.array.ndim:
        points[1] = Operand(np.zeros(out, weights), True)
    bias = [d.w([out], "int32", -500, 500)] if d.chance(0.6) else []
    spread = 0.02 * 0.005 * 5000 * max(1.0, (filters[1] * prod(filters[2:])) ** 0.5) / 60
    inputs = [x, scalar(0.02), points[0], w, scales, points[1], scalar(spread), scalar(3, dtype), *bias]
    return Instance(d.op, inputs, attrs)


def _range(dtype: str) -> tuple[int, int]:
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def transposed(d: Draw) -> Instance:
    dtype, shape = d.dtype(0, "float32", "float16", "float64"), d.image(1 << 16)
    spatial, groups = len(shape) - 2, d.one(1, 1, 1, shape[1])
    kernel, stride = d.one((2, 2), (3, 2), (4, 2), (3, 1), (5, 2), (1, 1))
    out = d.one(1, 2) if groups > 1 else d.one(1, 8, 16, 32, 17)
    attrs: dict[str, Any] = {"kernel_shape": [kernel] * spatial, "strides": [stride] * spatial, "group": groups}
    attrs["pads"] = [(kernel - stride) // 2 if kernel > stride else 0] * (2 * spatial)
    if kernel == 3 and stride == 2:
        attrs["output_padding"] = [1] * spatial
    axes = [0, *range(2, 2 + spatial)]
    bias = [d.w([out * groups], dtype)] if d.chance(0.5) else []
    filters = [shape[1], out, *attrs["kernel_shape"]]
    return Instance("ConvTranspose", [d.x(shape, dtype, axes=axes), d.w(filters, dtype), *bias], attrs)


def deformable(d: Draw) -> Instance:
    shape, out, k = d.image(1 << 16, 2), d.one(8, 16, 32), d.one(1, 3)
    n, channels, height, width = shape
    groups = d.one(1, 1, 2) if channels % 2 == 0 else 1
    attrs = {"kernel_shape": [k, k], "pads": [k // 2] * 4, "offset_group": groups}
    offsets = d.x([n, 2 * k * k * groups, height, width], "float32", axes=[0, 2, 3])
    mask = [None, d.x([n, k * k * groups, height, width], "float32", 0, 1, axes=[0, 2, 3])] if d.chance(0.5) else []
    return Instance("DeformConv", [d.x(shape, axes=[0, 2, 3]), d.w([out, channels, k, k]), offsets, *mask], attrs)


def col2im(d: Draw) -> Instance:
    n, channels, side, k = d.one(1, 2), d.one(1, 3, 16, 32), d.size(8, 64), d.one(2, 3)
    attrs, steps = d.one(({"strides": [k, k]}, side // k), ({"pads": [0] * 4}, side - k + 1))
    return Instance("Col2Im", [d.x([n, channels * k * k, steps**2], axes=[0]), ints(side, side), ints(k, k)], attrs)


def pool(d: Draw) -> Instance:
    shape, dtype = d.image(1 << 20), d.dtype(0, "float32", "float16", "float64", "uint8", "int8")
    attrs = _window(d, len(shape) - 2, (2, 2, 3, 3, 5), shape[2:])
    if "pads" in attrs and d.chance(0.2):
        attrs["ceil_mode"] = 1
    if d.op == "AveragePool" and d.chance(0.5):
        attrs["count_include_pad"] = 1
    if d.op == "LpPool":
        attrs["p"] = d.one(1, 2)
    return Instance(
        d.op,
        [d.x(shape, dtype, axes=[0, *range(2, len(shape))])],
        attrs,
        2 if d.op == "MaxPool" and d.chance(0.1) else 1,
    )


def global_pool(d: Draw) -> Instance:
    return Instance(d.op, [d.x(d.image(1 << 20), d.dtype())], {"p": d.one(1, 2)} if d.op == "GlobalLpPool" else {})


def unpool(d: Draw) -> Instance:
    n, c, side = d.one(1, 2), d.one(1, 3, 16, 64), d.size(2, 56)
    windows = 2 * np.arange(side)[:, None] * (2 * side) + 2 * np.arange(side)[None, :]
    places = (
        windows + d.array([n, c, side, side], "int64", 0, 1) + d.array([n, c, side, side], "int64", 0, 1) * 2 * side
    )
    places += np.arange(n * c).reshape(n, c, 1, 1) * 4 * side * side
    return Instance(d.op, [d.x([n, c, side, side]), d.given(places)], {"kernel_shape": [2, 2], "strides": [2, 2]})


def regions(d: Draw) -> Instance:
    n, c, side, k = d.one(1, 2), d.one(3, 32, 256), d.size(14, 64), d.one(3, 7, 14)
    count = d.one(1, 10, 100)
    corners = np.sort(d.array([count, 2, 2], "float32", 0, side - 1), axis=1).reshape(count, 4)
    if d.op == "MaxRoiPool":
        rois = np.concatenate([d.array([count, 1], "int64", 0, n - 1).astype(np.float32), corners], 1)
        return Instance(
            d.op, [d.x([n, c, side, side]), d.given(rois, [0])], {"pooled_shape": [k, k], "spatial_scale": 1.0}
        )
    attrs = {"output_height": k, "output_width": k, "sampling_ratio": d.one(0, 2), "mode": d.one("avg", "avg", "max")}
    attrs["coordinate_transformation_mode"] = d.one("half_pixel", "output_half_pixel")
    batches = d.given(d.array([count], "int64", 0, n - 1), [0])
    return Instance(d.op, [d.x([n, c, side, side]), d.given(corners, [0]), batches], attrs)


def resize(d: Draw) -> Instance:
    shape, dtype = d.image(1 << 18, d.one(2, 2, 2, 2, 1)), d.dtype(0, "float32", "float16", "uint8", "int8")
    mode = d.one("nearest", "linear", "linear", "cubic")
    if mode == "cubic" and len(shape) < 4:
        mode = "linear"
    scales = [1.0, 1.0, *([d.one(2.0, 0.5, 1.5, 4.0, 0.75)] * (len(shape) - 2))]
    attrs: dict[str, Any] = {"mode": mode}
    attrs["coordinate_transformation_mode"] = d.one("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    if mode == "nearest":
        attrs["nearest_mode"] = d.one("floor", "round_prefer_floor")
    elif d.chance(0.15) and mode == "linear":
        attrs["antialias"] = 1
    x = d.x(shape, dtype, axes=[0, *range(2, len(shape))])
    if d.chance(0.5):
        return Instance("Resize", [x, None, Operand(np.asarray(scales, np.float32), True)], attrs)
    sizes = [max(1, int(n * s)) for n, s in zip(shape, scales, strict=True)]
    return Instance("Resize", [replace(x, open=()), None, None, ints(*sizes)], attrs)


def upsample(d: Draw) -> Instance:
    scales = Operand(np.asarray([1, 1, 2, 2], np.float32), True)
    return Instance("Upsample", [d.x(d.image(1 << 17, 2)), scales], {"mode": d.one("nearest", "linear")}, opset=9)


def grid_sample(d: Draw) -> Instance:
    n, c, h, w = d.image(1 << 17, 2)
    out = [d.size(4, 64), d.size(4, 64)]
    attrs = {"mode": d.one("linear", "linear", "nearest", "cubic"), "align_corners": d.one(0, 1)}
    attrs["padding_mode"] = d.one("zeros", "border", "reflection")
    return Instance(d.op, [d.x([n, c, h, w]), d.x([n, *out, 2], "float32", -1.1, 1.1, axes=[0, 1, 2])], attrs)


def affine_grid(d: Draw) -> Instance:
    n = d.one(1, 2)
    return Instance(
        d.op, [d.x([n, 2, 3], axes=[0]), ints(n, 3, d.size(4, 224), d.size(4, 224))], {"align_corners": d.one(0, 1)}
    )


# -- products


def product(d: Draw) -> Instance:
    dtype = d.dtype(0, "float32", "float32", "float16", "float64", "int32", "int64")
    m, k, n = d.one(1, 2, 4, 7, 16, 33, 64, 128, 200, 512), d.size(4, 1024), d.size(1, 1024)
    while m * k * n > 1 << 26:
        m, k, n = max(1, m // 2), k // 2, n
    batch = d.one([], [], [1], [d.one(2, 8, 12)], [1, d.one(4, 12)])
    if d.chance(0.5):
        return Instance("MatMul", [d.x([*batch, m, k], dtype, axes=range(len(batch) + 1)), d.w([k, n], dtype)])
    scaled = [] if d.chance(0.3) else batch
    return Instance("MatMul", [d.x([*batch, m, k], dtype), d.x([*scaled, k, n], dtype)])


def gemm(d: Draw) -> Instance:
    dtype = d.dtype(0, "float32", "float16", "float64")
    m, k, n = d.one(1, 4, 16, 33, 64, 128, 256), d.size(4, 1024), d.size(1, 1024)
    flip, twin = d.one(0, 0, 0, 1), d.one(0, 1)
    bias = [] if d.chance(0.3) else [d.w(d.one([n], [n], [1, n], [m, n], [m, 1], []), dtype)]
    attrs: dict[str, Any] = {"transA": flip, "transB": twin}
    if d.chance(0.3):
        attrs |= {"alpha": d.one(0.5, 2.0), "beta": d.one(0.5, 1.0)}
    a = d.x([k, m] if flip else [m, k], dtype, axes=[] if bias and bias[0].array.shape[:1] == (m,) else [flip])
    return Instance("Gemm", [a, d.w([n, k] if twin else [k, n], dtype), *bias], attrs)


def integer_product(d: Draw) -> Instance:
    first, second = d.one(("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))
    m, k, n = d.one(1, 4, 16, 64, 128), d.size(4, 1024), d.size(1, 1024)
    batch = d.one([], [], [d.one(2, 4)])
    a = d.given(d.array([*batch, m, k], first, *_range(first)), range(len(batch) + 1))
    b = d.w([k, n], second, *_range(second))
    points = [scalar(d.one(0, 5), first), scalar(d.one(0, 0, 5), second)]
    if d.op == "MatMulInteger":
        return Instance(d.op, [a, b, *points[: d.one(0, 1, 2)]])
    scale = 0.02 * 0.01 * 5000 * k**0.5 / 60
    inputs = [a, scalar(0.02), points[0], b, scalar(0.01), points[1], scalar(scale), scalar(4, first)]
    return Instance(d.op, inputs)


def einsum(d: Draw) -> Instance:
    b, i, j, k = d.one(1, 2, 8), d.size(2, 64), d.size(2, 64), d.size(2, 64)
    sizes = {"b": b, "i": i, "j": j, "k": k, "h": d.one(2, 4, 12)}
    equation = d.one("ij,jk->ik", "bij,bjk->bik", "bij,bkj->bik", "bhij,bhkj->bhik", "bij,jk->bik", "bihk,bjhk->bhij",
                     "ij,ij->i", "i,j->ij", "bij->bji", "ij->j", "bij,bj->bi")  # fmt: skip
    terms = equation.split("->")[0].split(",")
    dtype = d.one("float32", "float32", "float64")
    operands = [d.x([sizes[c] for c in term], dtype) for term in terms]
    return Instance("Einsum", operands, {"equation": equation})


def determinant(d: Draw) -> Instance:
    n = d.one(2, 3, 4, 8, 16)
    return Instance(d.op, [d.x([d.size(1, 300), n, n], d.one("float32", "float64"), axes=[0])])


def attention(d: Draw) -> Instance:
    b, heads, s, size = d.one(1, 1, 2), d.one(2, 4, 8, 12), d.one(1, 7, 16, 64, 128, 256), d.one(32, 64, 80)
    total, shared = d.one(s, s, s + 1, 128), d.one(1, 1, 2)
    dtype = d.one("float32", "float32", "float32", "float16")
    attrs: dict[str, Any] = {"is_causal": 1} if d.chance(0.4) else {}
    mask = [d.x([s, total], d.one(dtype, "bool"))] if not attrs and d.chance(0.4) else []
    if mask and mask[0].array.dtype == bool:
        mask[0].array[:, 0] = True
    if d.chance(0.5):
        attrs |= {"q_num_heads": heads, "kv_num_heads": heads // shared}
        shapes = [[b, s, heads * size], *[[b, total, heads // shared * size]] * 2]
    else:
        shapes = [[b, heads, s, size], *[[b, heads // shared, total, size]] * 2]
    axes = [0, 1] if len(shapes[0]) == 3 else [0, 2]
    return Instance("Attention", [*(d.x(n, dtype, axes=axes) for n in shapes), *mask], attrs)


def rotary(d: Draw) -> Instance:
    b, heads, s, size = d.one(1, 2), d.one(4, 8, 12), d.one(1, 7, 64, 256), d.one(32, 64, 80)
    positions = d.given(np.tile(np.arange(s), (b, 1)))
    caches = [d.w([max(s, 300), size // 2], "float32", -1, 1) for _ in range(2)]
    attrs = {"interleaved": d.one(0, 0, 1)}
    if d.op == "RotaryEmbedding":
        return Instance(d.op, [d.x([b, heads, s, size], axes=[0, 2]), *caches, positions], attrs)
    x = d.x([b, s, heads * size], axes=[0, 1])
    return Instance(d.op, [x, positions, *caches], attrs)


def recurrent(d: Draw) -> Instance:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[d.op.removeprefix("com.microsoft::DynamicQuantize")]
    length, batch = d.one(1, 10, 50, 100), d.one(1, 1, 2, 8)
    hidden, size = d.one(16, 32, 64, 128, 256), d.one(16, 32, 64, 80, 128)
    direction = d.one("forward", "forward", "reverse", "bidirectional")
    n = 2 if direction == "bidirectional" else 1
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    if d.op == "GRU":
        attrs["linear_before_reset"] = d.one(0, 1)
    x = d.x([length, batch, size], axes=[0, 1])
    if d.op.startswith(MICROSOFT):
        weights = [
            d.w([n, size, gates * hidden], "int8", -127, 127),
            d.w([n, hidden, gates * hidden], "int8", -127, 127),
        ]
        numbers = [Operand(np.full(n, 0.002, np.float32), True), Operand(np.zeros(n, np.int8), True)] * 2
        bias = d.w([n, 2 * gates * hidden], "float32", -0.1, 0.1)
        return Instance(d.op, [x, *weights, bias, None, None, None, None, *numbers], attrs, 3)
    weights = [
        d.w([n, gates * hidden, size], "float32", -0.1, 0.1),
        d.w([n, gates * hidden, hidden], "float32", -0.1, 0.1),
    ]
    bias = [d.w([n, 2 * gates * hidden], "float32", -0.1, 0.1)] if d.chance(0.8) else [None]
    state = [d.x([n, batch, hidden], axes=[1]) for _ in range(2 if d.op == "LSTM" else 1)] if d.chance(0.3) else []
    return Instance(d.op, [x, *weights, *bias, *([None, *state] if state else [])], attrs, 3 if d.op == "LSTM" else 2)


# -- movements


def transpose(d: Draw) -> Instance:
    shape = d.shape(2, 5)
    perm = list(range(len(shape)))
    d.random.shuffle(perm)
    if len(shape) == 4 and d.chance(0.5):
        perm = d.one([0, 2, 1, 3], [0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2])
    return Instance("Transpose", [d.x(shape, d.dtype())], {"perm": perm})


def view(d: Draw) -> Instance:
    shape, dtype = d.shape(2, 4), d.dtype()
    rank = len(shape)
    match d.op:
        case "Reshape":
            sizes = d.one([-1], [0, -1], [shape[0] * shape[1], *shape[2:]], [*shape[:-1], 1, shape[-1]])
            return Instance("Reshape", [replace(d.x(shape, dtype), open=()), ints(*sizes)])
        case "Flatten":
            return Instance("Flatten", [d.x(shape, dtype)], {"axis": d.random.randint(0, rank)})
        case "Squeeze":
            axis = d.random.randint(0, rank)
            return Instance("Squeeze", [d.x([*shape[:axis], 1, *shape[axis:]], dtype), ints(axis)])
        case "Unsqueeze":
            return Instance("Unsqueeze", [d.x(shape, dtype), ints(d.random.randint(0, rank))])
    return Instance(d.op, [d.x(shape, dtype)])


def cut(d: Draw) -> Instance:
    shape = d.shape(1, 4)
    axes = sorted(d.random.sample(range(len(shape)), d.one(1, 1, min(2, len(shape)))))
    starts, ends, steps = [], [], []
    for axis in axes:
        start = d.random.randint(0, shape[axis] // 2)
        way = d.random.random()
        starts.append(start if way < 0.8 else -1)
        ends.append(
            d.one(shape[axis], -1 if shape[axis] > start + 1 else shape[axis], 1 << 40) if way < 0.8 else -(1 << 40)
        )
        steps.append(d.one(1, 1, 1, 2) if way < 0.8 else -1)
    return Instance("Slice", [d.x(shape, d.dtype()), ints(*starts), ints(*ends), ints(*axes), ints(*steps)])


def join(d: Draw) -> Instance:
    shape, dtype = d.shape(1, 4, 1 << 19), d.dtype()
    axis = d.axis(len(shape))
    shapes = [
        [n if i != axis % len(shape) else max(1, n // d.one(1, 1, 2, 3)) for i, n in enumerate(shape)]
        for _ in range(d.one(1, 1, 2, 3))
    ]
    return Instance("Concat", [d.x(shape, dtype), *(d.x(s, dtype) for s in shapes)], {"axis": axis})


def split(d: Draw) -> Instance:
    shape = d.shape(1, 4)
    axis, parts = d.axis(len(shape)), d.one(2, 2, 3, 4)
    shape[axis] = max(1, shape[axis] // parts) * parts
    axes = [a for a in range(len(shape)) if a != axis % len(shape)]
    sizes = [shape[axis] // parts] * parts
    if d.chance(0.4) and sizes[0] > 1:
        sizes[0], sizes[-1] = sizes[0] - 1, sizes[-1] + 1
        return Instance("Split", [d.x(shape, d.dtype(), axes=axes), ints(*sizes)], {"axis": axis}, parts)
    return Instance("Split", [d.x(shape, d.dtype(), axes=axes)], {"axis": axis, "num_outputs": parts}, parts)


def pad(d: Draw) -> Instance:
    shape = d.shape(1, 4, 1 << 19)
    mode = d.one("constant", "constant", "reflect", "edge", "wrap")
    least = [min(2, n - 1) if mode in ("reflect", "wrap") else 2 for n in shape]
    pads = [d.one(0, 1, n) if n else 0 for n in least] + [d.one(0, 1, n) if n else 0 for n in least]
    dtype = d.dtype()
    number = [scalar(1, dtype)] if mode == "constant" and d.chance(0.3) else []
    return Instance(
        "Pad",
        [d.x(shape, dtype), ints(*(min(p, n) for p, n in zip(pads, least * 2, strict=True))), *number],
        {"mode": mode},
    )


def tile(d: Draw) -> Instance:
    shape = d.shape(1, 4, 1 << 17)
    return Instance("Tile", [d.x(shape, d.dtype()), ints(*(d.one(1, 1, 2, 3) for _ in shape))])


def gather(d: Draw) -> Instance:
    shape, kind = d.shape(1, 4), d.one("int64", "int64", "int32")
    axis = d.one(0, 0, d.axis(len(shape)))
    places = d.shape(0, 2, 1 << max(10, 20 - (prod(shape) // shape[axis]).bit_length())) if d.chance(0.8) else []
    x = d.x(shape, d.dtype(), axes=[a for a in range(len(shape)) if a != axis % len(shape)])
    return Instance("Gather", [x, d.given(d.array(places, kind, -1, shape[axis] - 1))], {"axis": axis})


def gather_elements(d: Draw) -> Instance:
    shape, dtype = d.shape(1, 3, 1 << 18), d.dtype()
    axis, kind = d.axis(len(shape)), d.one("int64", "int64", "int32")
    places = [n if i != axis % len(shape) else max(1, n // 2) for i, n in enumerate(shape)]
    if d.op == "GatherElements":
        return Instance(d.op, [d.x(shape, dtype), d.given(d.array(places, kind, 0, shape[axis] - 1))], {"axis": axis})
    order = np.argsort(d.numpy.random(tuple(shape)), axis=axis).astype(kind)
    chosen = np.take(order, np.arange(places[axis]), axis=axis)
    attrs: dict[str, Any] = {"axis": axis}
    if d.op == "ScatterElements" and "float" in dtype and d.chance(0.4):
        attrs["reduction"] = d.one("add", "max", "min", "mul")
        chosen = d.array(places, kind, 0, shape[axis] - 1)
    opset = 9 if d.op == "Scatter" else OPSET
    return Instance(d.op, [d.x(shape, dtype), d.given(chosen), d.x(places, dtype)], attrs, opset=opset)


def gather_nd(d: Draw) -> Instance:
    shape, dtype = d.shape(2, 4, 1 << 18), d.dtype()
    depth, rows = d.random.randint(1, len(shape)), d.one(1, 10, 100, 1000)
    if d.op == "GatherND":
        places = np.stack([d.array([rows], "int64", 0, n - 1) for n in shape[:depth]], -1)
        return Instance(d.op, [d.x(shape, dtype), d.given(places)])
    total = prod(shape[:depth])
    rows = min(rows, total)
    flat = d.numpy.permutation(total)[:rows]
    places = np.stack(np.unravel_index(flat, shape[:depth]), -1).astype(np.int64)
    attrs = {"reduction": d.one("add", "max", "min", "mul")} if "float" in dtype and d.chance(0.3) else {}
    return Instance(d.op, [d.x(shape, dtype), d.given(places), d.x([rows, *shape[depth:]], dtype)], attrs)


def tensor_scatter(d: Draw) -> Instance:
    b, heads, most, size = d.one(1, 2), d.one(4, 8), d.one(128, 512), d.one(32, 64)
    n = d.one(1, 1, 16)
    at = d.given(d.array([b], "int64", 0, most - n), [])
    return Instance(
        d.op, [d.x([b, heads, most, size]), d.x([b, heads, n, size]), at], {"mode": d.one("linear", "circular")}
    )


def depth_space(d: Draw) -> Instance:
    n, c, h, w = d.image(1 << 19, 2)
    block, dtype = d.one(2, 2, 3, 4), d.dtype(0, "float32", "float16", "uint8")
    if d.op == "DepthToSpace":
        return Instance(
            d.op,
            [d.x([n, max(1, c // 4) * block**2, h, w], dtype, axes=[0, 2, 3])],
            {"blocksize": block, "mode": d.one("DCR", "CRD")},
        )
    return Instance(
        d.op,
        [d.x([n, c, h // block * block or block, w // block * block or block], dtype, axes=[0])],
        {"blocksize": block},
    )


def reverse(d: Draw) -> Instance:
    time, batch = d.size(4, 128), d.one(1, 4, 16)
    return Instance(
        d.op,
        [d.x([time, batch, d.size(1, 256)], d.dtype()), d.given(d.array([batch], "int64", 1, time))],
        {"time_axis": 0, "batch_axis": 1},
    )


def selection(d: Draw) -> Instance:
    """Ops whose output's size depends on values."""
    dtype = d.dtype()
    match d.op:
        case "NonZero":
            return Instance(d.op, [d.x(d.shape(1, 3, 1 << 18), dtype, 0, 1)])
        case "Unique":
            shape = d.shape(1, 1, 1 << 16)
            return Instance(
                d.op, [d.x(shape, d.one("float32", "int64"), 0, d.one(9, 1000))], {"sorted": 1}, d.one(1, 4)
            )
    shape = d.shape(1, 3, 1 << 18)
    axis = d.axis(len(shape)) if d.chance(0.7) else None
    chosen = d.given(d.array([prod(shape) if axis is None else shape[axis]], "bool"))
    return Instance(d.op, [d.x(shape, dtype), chosen], {} if axis is None else {"axis": axis})


def one_hot(d: Draw) -> Instance:
    depth = d.one(2, 10, 100, 1000)
    indices = d.x(d.shape(1, 2, 1 << 11), d.one("int64", "int32"), 0, depth - 1)
    return Instance(
        d.op,
        [indices, scalar(depth, "int64"), Operand(np.asarray([0, 1], d.one("float32", "float32", "int64")), True)],
        {"axis": d.one(-1, -1, 0)},
    )


def eye(d: Draw) -> Instance:
    return Instance(d.op, [d.x([d.size(1, 512), d.size(1, 512)])], {"k": d.one(0, 0, 1, -2)})


def count_up(d: Draw) -> Instance:
    dtype, n = d.one("int64", "int64", "int32", "float32"), d.size(1, 4096)
    limit = Operand(np.asarray(n * 3, dtype), is_constant=d.chance(0.3))
    return Instance("Range", [scalar(0, dtype), limit, scalar(3, dtype)])


def fill(d: Draw) -> Instance:
    shape = np.asarray(d.shape(1, 4), np.int64)
    value = numpy_helper.from_array(np.asarray([d.one(0, 1)], d.one("float32", "int64", "bool")))
    return Instance(d.op, [Operand(shape, is_constant=d.chance(0.2))], {"value": value})


def shape_of(d: Draw) -> Instance:
    return Instance(d.op, [d.x(d.shape(1, 5), d.dtype())])


def constant(d: Draw) -> Instance:
    return Instance(d.op, [], {"value": numpy_helper.from_array(d.array(d.shape(), d.one("float32", "int64")))})


def triangle(d: Draw) -> Instance:
    shape = d.shape(2, 4)
    k = [] if d.chance(0.5) else [scalar(d.one(0, 1, -1, 5), "int64")]
    return Instance(d.op, [d.x(shape, d.dtype()), *k], {"upper": d.one(0, 1)})


def centre(d: Draw) -> Instance:
    shape = d.shape(2, 4, 1 << 18)
    sizes = [max(1, n + d.one(0, -1, 2, 5, -n // 2)) for n in shape]
    return Instance(d.op, [d.x(shape, d.dtype()), ints(*sizes)])


# -- quantization


def quantize(d: Draw) -> Instance:
    shape, axis = d.shape(2, 4), 1
    to = d.one("uint8", "uint8", "int8", "int8", "uint16", "int16")
    per_axis = d.chance(0.4)
    wide = d.one("float32", "float32", "float32", "float16") if not d.op.startswith(MICROSOFT) else "float32"
    sizes = [shape[axis]] if per_axis else []
    scale = Operand(d.array(sizes, wide, 0.01, 0.05), True)
    point = Operand(d.array(sizes, to, 0, 5), True)
    x = (
        d.x(shape, wide, axes=[0])
        if "DeQ" not in d.op and "Dequantize" not in d.op
        else d.x(shape, to, *_range(to), axes=[0])
    )
    return Instance(d.op, [x, scale, point], {"axis": axis} if per_axis else {})


def dynamic_quantize(d: Draw) -> Instance:
    return Instance(d.op, [d.x(d.shape())], n_outputs=3)


# -- signals, losses, boxes, random numbers


def dft(d: Draw) -> Instance:
    n, batch = d.one(16, 64, 100, 256, 400, 512, 1024, 127), d.one(1, 4, 50)
    parts = d.one(1, 1, 2)
    attrs = {"onesided": 1} if parts == 1 and d.chance(0.6) else {"inverse": d.one(0, 1)} if parts == 2 else {}
    return Instance(d.op, [d.x([batch, n, parts], axes=[0]), None, scalar(1, "int64")], attrs)


def stft(d: Draw) -> Instance:
    length, step = d.one((256, 128), (400, 160), (512, 128), (64, 16))
    signal = d.x([d.one(1, 2), d.one(1600, 4000, 16000), 1], axes=[0, 1])
    window = Operand(np.hanning(length).astype(np.float32), True)
    return Instance(
        d.op, [signal, scalar(step, "int64"), window, scalar(length, "int64")], {"onesided": d.one(1, 1, 0)}
    )


def window(d: Draw) -> Instance:
    return Instance(d.op, [Operand(np.asarray(d.size(8, 1024), np.int64), d.chance(0.3))], {"periodic": d.one(0, 1)})


def mel(d: Draw) -> Instance:
    numbers = [
        scalar(d.one(40, 80), "int64"),
        scalar(512, "int64"),
        scalar(16000, "int64"),
        scalar(0.0),
        scalar(8000.0),
    ]
    return Instance(d.op, [replace(numbers[0], is_constant=False), *numbers[1:]])


def loss(d: Draw) -> Instance:
    shape = d.one([d.size(1, 512), d.size(2, 1000)], [d.one(1, 2), d.size(2, 64), d.size(4, 56), d.size(4, 56)])
    labels = d.given(d.array([shape[0], *shape[2:]], "int64", 0, shape[1] - 1))
    weights = [d.w([shape[1]], "float32", 0.5, 1.5)] if d.chance(0.3) else []
    return Instance(
        d.op,
        [d.x(shape, axes=[0, *range(2, len(shape))]), labels, *weights],
        {"reduction": d.one("mean", "sum", "none")},
    )


def suppression(d: Draw) -> Instance:
    n, classes = d.one(10, 100, 1000), d.one(1, 1, 5, 20)
    corners = d.array([1, n, 2], "float32", 0, 90)
    boxes = np.concatenate([corners, corners + d.array([1, n, 2], "float32", 1, 30)], -1)
    limits = [scalar(d.one(10, 100), "int64"), scalar(d.one(0.5, 0.45)), scalar(d.one(0.1, 0.5))]
    scores = d.numpy.permutation(n * classes).reshape(1, classes, n).astype(np.float32) / (n * classes)
    return Instance(d.op, [d.given(boxes), d.given(scores), *limits])


def random_numbers(d: Draw) -> Instance:
    shape = d.shape()
    match d.op:
        case "RandomNormal" | "RandomUniform":
            return Instance(d.op, [], {"shape": shape})
        case "Multinomial":
            return Instance(d.op, [d.x([d.one(1, 8), d.size(2, 1000)])], {"sample_size": d.one(1, 10)})
        case "Bernoulli":
            return Instance(d.op, [d.x(shape, "float32", 0, 1)])
    return Instance(d.op, [d.x(shape)])


def dropout(d: Draw) -> Instance:
    return Instance(
        d.op, [d.x(d.shape(), d.dtype()), *([scalar(0.5)] if d.chance(0.5) else [])], n_outputs=d.one(1, 1, 2)
    )


def swiglu(d: Draw) -> Instance:
    shape = d.shape(2, 3)
    return Instance(d.op, [d.x(shape), d.x(shape)])


# -- control flow


def repeated(d: Draw) -> Instance:
    """A Loop, a Scan or an If around a few ops."""
    shape, steps = [d.one(1, 4), d.size(4, 512)], d.one(3, 20, 100)
    x = d.array(shape, "float32", -1, 1)
    of = helper.make_tensor_value_info
    node = helper.make_node
    match d.op:
        case "If":
            branches = [
                helper.make_graph([node(op, ["x"], [f"{op}y"])], op, [], [of(f"{op}y", 1, shape)])
                for op in ("Relu", "Neg")
            ]
            nodes = [node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])]
            inputs, feeds = [of("c", 9, []), of("x", 1, shape)], {"c": np.asarray(d.chance(0.5)), "x": x}
        case "Loop":
            steps_of_body = [
                node("Identity", ["c"], ["go"]),
                node("Tanh", ["h"], ["t"]),
                node("Add", ["t", "x"], ["n"]),
                node("Identity", ["n"], ["o"]),
            ]
            formals = [of("i", 7, []), of("c", 9, []), of("h", 1, shape)]
            results = [of("go", 9, []), of("n", 1, shape), of("o", 1, shape)]
            body = helper.make_graph(steps_of_body, "body", formals, results)
            nodes = [node("Loop", ["m", "", "x"], ["last", "y"], body=body)]
            inputs, feeds = [of("m", 7, []), of("x", 1, shape)], {"m": np.asarray(steps), "x": x}
        case _:
            body = helper.make_graph(
                [node("Add", ["h", "e"], ["s"]), node("Tanh", ["s"], ["n"]), node("Identity", ["n"], ["o"])],
                "body", [of("h", 1, shape), of("e", 1, shape)], [of("n", 1, shape), of("o", 1, shape)],
            )  # fmt: skip
            nodes = [node("Scan", ["x", "xs"], ["last", "y"], body=body, num_scan_inputs=1)]
            inputs, feeds = [of("x", 1, shape), of("xs", 1, [steps, *shape])], {"x": x, "xs": d.array([steps, *shape])}
    outputs = [onnx.ValueInfoProto(name="y")]
    graph = helper.make_graph(nodes, "instance", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    return Instance(d.op, [], model=model, feeds=feeds)


# -- com.microsoft


def _step(d: Draw, dtype: str, scale: float = 0.02) -> list[Operand]:
    return [scalar(scale), scalar(d.one(0, 4), dtype)]


def quantized(d: Draw) -> Instance:
    """QLinear ops on elements, rows and images."""
    name, dtype = d.op.removeprefix(MICROSOFT), d.one("uint8", "int8")
    full = _range(dtype)
    match name:
        case "QLinearAdd" | "QLinearMul":
            shape = d.shape()
            other = d.one(shape, shape, shape[-1:], [])
            b = d.x(other, dtype, *full) if d.chance(0.6) else d.w(other, dtype, *full)
            out = _step(d, dtype, 0.04)
            return Instance(d.op, [d.x(shape, dtype, *full), *_step(d, dtype), b, *_step(d, dtype), *out])
        case "QLinearConcat":
            shape, inputs = d.shape(2, 4, 1 << 18), _step(d, dtype)
            for _ in range(d.one(2, 3)):
                inputs += [d.x(shape, dtype, *full), *_step(d, dtype, d.one(0.02, 0.03))]
            return Instance(d.op, inputs, {"axis": 1})
        case "QLinearWhere":
            shape = d.shape()
            x, y = (d.x(shape, dtype, *full) for _ in range(2))
            return Instance(
                d.op, [d.x(shape, "bool"), x, *_step(d, dtype), y, *_step(d, dtype, 0.03), *_step(d, dtype)]
            )
        case "QLinearSoftmax":
            out = [scalar(1 / 256), scalar(0 if dtype == "uint8" else -128, dtype)]
            return Instance(d.op, [d.x(d.shape(2, 4), dtype, *full), *_step(d, dtype), *out], {"axis": -1, "opset": 13})
        case "QLinearGlobalAveragePool" | "QLinearAveragePool":
            shape = d.image(1 << 18, 2)
            attrs = _window(d, 2, (2, 3), shape[2:]) if name == "QLinearAveragePool" else {}
            return Instance(d.op, [d.x(shape, dtype, *full, axes=[0]), *_step(d, dtype), *_step(d, dtype)], attrs)
        case "QLinearReduceMean":
            attrs = {"axes": d.one([-1], [1], [0]), "keepdims": d.one(0, 1)}
            return Instance(d.op, [d.x(d.shape(2, 4), dtype, *full), *_step(d, dtype), *_step(d, dtype)], attrs)
    out = (
        [scalar(1 / 256), scalar(0 if dtype == "uint8" else -128, dtype)]
        if name == "QLinearSigmoid"
        else _step(d, dtype)
    )
    attrs = {"alpha": 0.1} if name == "QLinearLeakyRelu" else {}
    return Instance(d.op, [d.x(d.shape(), dtype, *full), *_step(d, dtype), *out], attrs)


def quantized_product(d: Draw) -> Instance:
    name = d.op.removeprefix(MICROSOFT)
    m, k, n = d.one(1, 4, 16, 64, 128), d.one(32, 64, 100, 256, 768), d.one(16, 64, 100, 256, 768)
    a, b = d.one(("uint8", "uint8"), ("uint8", "int8"), ("int8", "int8"))
    weights = d.w([k, n], b, *_range(b))
    columns = d.chance(0.5)
    scales = d.w([n] if columns else [], "float32", 0.001, 0.01)
    points = Operand(np.zeros([n] if columns else [], b), True)
    bias = [d.w([n])] if d.chance(0.5) else []
    match name:
        case "DynamicQuantizeMatMul":
            return Instance(d.op, [d.x([d.one(1, 2), m, k], axes=[0, 1]), weights, scales, points, *bias])
        case "MatMulIntegerToFloat":
            x = d.x([m, k], a, *_range(a), axes=[0])
            return Instance(d.op, [x, weights, scalar(0.02), scales, scalar(3, a), points, *bias])
        case "QGemm":
            x = d.x([m, k], a, *_range(a), axes=[0])
            c = d.w([n], "int32", -500, 500)
            out = [scalar(0.2), scalar(3, a)] if d.chance(0.5) else []
            return Instance(d.op, [x, scalar(0.02), scalar(3, a), weights, scales, points, c, *out])
    block, bits = d.one(32, 64, 128), d.one(4, 4, 8)
    k = max(block, k // block * block)
    packed = d.w([n, k // block, block * bits // 8], "uint8", 0, 255)
    numbers = d.w([n, k // block] if d.chance(0.5) else [n * (k // block)], "float32", 0.001, 0.01)
    zeros = (
        [d.w([n, (k // block * bits + 7) // 8], "uint8", 0, 255)] if d.chance(0.3) and numbers.array.ndim == 2 else []
    )
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": d.one(0, 4)}
    return Instance(d.op, [d.x([m, k], axes=[0]), packed, numbers, *zeros], attrs)


def many_heads(d: Draw) -> Instance:
    name = d.op.removeprefix(MICROSOFT)
    b, heads, s, size = d.one(1, 2), d.one(2, 4, 8, 12), d.one(1, 7, 16, 64, 128), d.one(32, 64)
    hidden = heads * size
    match name:
        case "MultiHeadAttention":
            total = d.one(s, s, 128)
            shapes = [[b, s, hidden], [b, total, hidden], [b, total, hidden]]
            return Instance(d.op, [d.x(n, axes=[0, 1]) for n in shapes], {"num_heads": heads})
        case "GroupQueryAttention":
            shared, past = d.one(1, 2), d.one(0, 100)
            kv = heads // shared
            if past:
                s, b = 1, 1
            cache = [d.x([b, kv, past, size]) for _ in range(2)] if past else [None, None]
            lengths = [Operand(np.full([b], past + s - 1, np.int32)), Operand(np.asarray(past + s, np.int32))]
            sides = [d.x([b, s, n * size], axes=[]) for n in (heads, kv, kv)]
            return Instance(d.op, [*sides, *cache, *lengths], {"num_heads": heads, "kv_num_heads": kv}, 3)
        case "QAttention":
            weights = d.w([hidden, 3 * hidden], "int8", -127, 127)
            x = d.x([b, s, hidden], "uint8", 0, 255, axes=[0, 1])
            numbers = [scalar(0.02), scalar(0.003), None, scalar(128, "uint8"), scalar(0, "int8")]
            return Instance(d.op, [x, weights, d.w([3 * hidden]), *numbers], {"num_heads": heads})
    weights = d.w([hidden, 3 * hidden], "float32", -0.05, 0.05)
    return Instance(d.op, [d.x([b, s, hidden], axes=[0, 1]), weights, d.w([3 * hidden])], {"num_heads": heads})


def skip_norm(d: Draw) -> Instance:
    shape = [d.one(1, 2), d.one(1, 16, 128, 200), d.size(16, 1024)]
    x, skip = (d.x(shape, axes=[0, 1]) for _ in range(2))
    rest = [d.w(shape[-1:]) for _ in range(1 if "Simplified" in d.op else 2)]
    return Instance(d.op, [x, skip, *rest], {"epsilon": 1e-5}, 1)


def biased(d: Draw) -> Instance:
    shape = d.shape(2, 3)
    bias = [] if d.op.endswith(("QuickGelu", "::Gelu")) else [d.w(shape[-1:])]
    return Instance(d.op, [d.x(shape, axes=range(len(shape) - 1)), *bias])


def fused_product(d: Draw) -> Instance:
    m, k, n, batch = d.one(1, 16, 64, 128), d.size(16, 512), d.size(16, 512), d.one([], [d.one(2, 8)])
    flips = {"transA": d.one(0, 0, 1), "transB": d.one(0, 1), "alpha": d.one(1.0, 0.125)}
    a = [*batch, k, m] if flips["transA"] else [*batch, m, k]
    b = [*batch, n, k] if flips["transB"] else [*batch, k, n]
    if d.op.endswith("FusedGemm"):
        a, b = a[-2:], b[-2:]
        return Instance(
            d.op, [d.x(a, axes=[]), d.w(b), d.w([n])], {**flips, "activation": d.one("Relu", "Tanh", "Sigmoid")}
        )
    if batch and d.chance(0.3):  # rows before batches, as ONNX Runtime's optimizer writes them
        flips |= {"transBatchA": d.one(0, 1), "transBatchB": 1}
        b = [b[1], b[0], b[2]]
        a = [a[1], a[0], a[2]] if flips["transBatchA"] else a
    return Instance(d.op, [d.x(a), d.either(b)], flips)


def fused_convolution(d: Draw) -> Instance:
    plain = convolution(replace_op(d, "Conv"))
    for operand in (o for o in plain.inputs if o is not None):
        if operand.array.dtype != np.float32:
            return fused_convolution(d)
    name, more = d.one(("Relu", []), ("LeakyRelu", [0.1]), ("Clip", [0.0, 6.0]), ("HardSigmoid", [0.2, 0.5]))
    attrs = {**plain.attrs, "activation": name, **({"activation_params": more} if more else {})}
    return Instance(d.op, plain.inputs, attrs)


def replace_op(d: Draw, op: str) -> Draw:
    """The same choices for another op."""
    other = Draw(op, 0, 0)
    other.random, other.numpy, other.is_open, other.opened = d.random, d.numpy, d.is_open, d.opened
    return other


def inverse(d: Draw) -> Instance:
    n = d.one(2, 3, 4, 8)
    return Instance(d.op, [d.given(d.array([d.one(1, 10, 100), n, n]) + 3 * np.eye(n, dtype=np.float32), [0])])


def rows_pool(d: Draw) -> Instance:
    n, c, h, w = d.image(1 << 18, 2)
    return Instance(
        d.op, [d.x([n, h, w, c], d.one("uint8", "int8"), 0, 99, axes=[0])], {"kernel_shape": [2, 2], "strides": [2, 2]}
    )


def embedding(d: Draw) -> Instance:
    b, s, hidden = d.one(1, 2), d.one(8, 64, 128), d.one(64, 128, 768)
    ids = [d.x([b, s], "int32", 0, top - 1) for top in (1000, 2)]
    tables = [d.w([n, hidden]) for n in (1000, 512, 2)]
    return Instance(d.op, [*ids, *tables, d.w([hidden]), d.w([hidden])], {}, 2)


# -- the table

Drawer: TypeAlias = Callable[[Draw], Instance]

INSTANCES: dict[str, Drawer] = {
    op: drawer
    for words, drawer in (
        (
            "Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid "
            "HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg Not Reciprocal Relu Round Selu Shrink Sigmoid Sign "
            "Sin Sinh Softplus Softsign Sqrt Swish Tan Tanh ThresholdedRelu",
            unary,
        ),
        (
            "Add And BitShift BitwiseAnd BitwiseOr BitwiseXor Div Equal Greater GreaterOrEqual Less LessOrEqual Mod "
            "Mul Or PRelu Sub Xor",
            binary,
        ),
        ("Max Mean Min Sum", variadic),
        ("Pow", power),
        ("Where", where),
        ("Clip", clip),
        ("Cast CastLike", cast),
        ("BitCast", bit_cast),
        ("Expand", expand),
        (
            "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "
            "ReduceSumSquare",
            reduction,
        ),
        ("ArgMax ArgMin", arg),
        ("Softmax LogSoftmax Hardmax LpNormalization", row),
        ("CumSum CumProd", cumulative),
        ("TopK", top),
        ("LayerNormalization RMSNormalization", row_norm),
        ("BatchNormalization InstanceNormalization GroupNormalization", channel_norm),
        ("MeanVarianceNormalization", variance_norm),
        ("LRN", lrn),
        ("Conv ConvInteger QLinearConv", convolution),
        ("ConvTranspose", transposed),
        ("DeformConv", deformable),
        ("Col2Im", col2im),
        ("AveragePool MaxPool LpPool", pool),
        ("GlobalAveragePool GlobalMaxPool GlobalLpPool", global_pool),
        ("MaxUnpool", unpool),
        ("MaxRoiPool RoiAlign", regions),
        ("Resize", resize),
        ("Upsample", upsample),
        ("GridSample", grid_sample),
        ("AffineGrid", affine_grid),
        ("MatMul", product),
        ("Gemm", gemm),
        ("MatMulInteger QLinearMatMul", integer_product),
        ("Einsum", einsum),
        ("Det", determinant),
        ("Attention", attention),
        ("RotaryEmbedding com.microsoft::RotaryEmbedding", rotary),
        ("LSTM GRU RNN com.microsoft::DynamicQuantizeLSTM", recurrent),
        ("Transpose", transpose),
        ("Reshape Flatten Squeeze Unsqueeze", view),
        ("Slice", cut),
        ("Concat", join),
        ("Split", split),
        ("Pad", pad),
        ("Tile", tile),
        ("Gather", gather),
        ("GatherElements ScatterElements Scatter", gather_elements),
        ("GatherND ScatterND", gather_nd),
        ("TensorScatter", tensor_scatter),
        ("DepthToSpace SpaceToDepth", depth_space),
        ("ReverseSequence", reverse),
        ("NonZero Unique Compress", selection),
        ("OneHot", one_hot),
        ("EyeLike", eye),
        ("Range", count_up),
        ("ConstantOfShape", fill),
        ("Shape Size", shape_of),
        ("Constant", constant),
        ("Trilu", triangle),
        ("CenterCropPad", centre),
        ("QuantizeLinear DequantizeLinear com.microsoft::QuantizeLinear com.microsoft::DequantizeLinear", quantize),
        ("DynamicQuantizeLinear", dynamic_quantize),
        ("DFT", dft),
        ("STFT", stft),
        ("HannWindow HammingWindow BlackmanWindow", window),
        ("MelWeightMatrix", mel),
        ("NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", loss),
        ("NonMaxSuppression", suppression),
        ("RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial", random_numbers),
        ("Dropout", dropout),
        ("SwiGLU", swiglu),
        ("If Loop Scan", repeated),
        (
            "com.microsoft::QLinearAdd com.microsoft::QLinearMul com.microsoft::QLinearConcat "
            "com.microsoft::QLinearWhere com.microsoft::QLinearSoftmax com.microsoft::QLinearGlobalAveragePool "
            "com.microsoft::QLinearAveragePool com.microsoft::QLinearReduceMean com.microsoft::QLinearSigmoid "
            "com.microsoft::QLinearLeakyRelu",
            quantized,
        ),
        (
            "com.microsoft::DynamicQuantizeMatMul com.microsoft::MatMulIntegerToFloat com.microsoft::QGemm "
            "com.microsoft::MatMulNBits",
            quantized_product,
        ),
        (
            "com.microsoft::MultiHeadAttention com.microsoft::GroupQueryAttention com.microsoft::QAttention "
            "com.microsoft::Attention",
            many_heads,
        ),
        ("com.microsoft::SkipLayerNormalization com.microsoft::SkipSimplifiedLayerNormalization", skip_norm),
        ("com.microsoft::BiasGelu com.microsoft::FastGelu com.microsoft::QuickGelu com.microsoft::Gelu", biased),
        ("com.microsoft::FusedMatMul com.microsoft::FusedGemm", fused_product),
        ("com.microsoft::FusedConv", fused_convolution),
        ("com.microsoft::Inverse", inverse),
        ("com.microsoft::NhwcMaxPool", rows_pool),
        ("com.microsoft::EmbedLayerNormalization", embedding),
    )
    for op in words.split()
}
"""How each op is drawn."""


@cache
def _tests() -> Mapping[str, list[Any]]:
    """ONNX's own tests of nodes, by op."""
    found: dict[str, list[Any]] = {}
    for case in suite("node", "simple"):
        if case.model is not None and case.data_sets and "_expanded" not in case.name:
            for op in sorted({node.op_type for node in case.model.graph.node}):
                found.setdefault(op, []).append(case)
    return found


def ops() -> list[str]:
    """All that are drawn: the ops of ONNX, and others that ``INSTANCES`` has."""
    return [*sorted(schemas()), *sorted(op for op in INSTANCES if op not in schemas())]


def instance(op: str, seed: int, number: int) -> tuple[onnx.ModelProto, dict[str, Any]] | None:
    """A model of one op and its inputs; None where there are no more (of what ONNX's tests have)."""
    if op not in INSTANCES:
        tests = _tests().get(op, ())
        if number >= len(tests):
            return None
        case = tests[number]
        names = [i.name for i in case.model.graph.input]
        return case.model, dict(zip(names, map(_array, case.data_sets[0][0]), strict=False))
    d = Draw(op, seed, number)
    drawn = INSTANCES[op](d)
    if drawn.model is not None and drawn.feeds is not None:
        return drawn.model, drawn.feeds
    turned = d.chance(0.12)
    return _model(d, drawn, turned)


def _array(given: Any) -> Any:
    if isinstance(given, onnx.SequenceProto):
        return numpy_helper.to_list(given)
    if isinstance(given, onnx.OptionalProto):
        return numpy_helper.to_optional(given)
    return numpy_helper.to_array(given) if hasattr(given, "raw_data") else given


def _model(d: Draw, drawn: Instance, turned: bool) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """The model of an instance; ``turned``: its first input is the transpose of what is given."""
    nodes, inputs, constants, names, feeds = [], [], [], [], {}
    numbers = count()
    for operand in drawn.inputs:
        if operand is None:
            names.append("")
            continue
        name, array = f"x{next(numbers)}", operand.array
        names.append(name)
        if operand.is_constant:
            constants.append(numpy_helper.from_array(array, name))
            continue
        sizes: list[int | str] = [f"n{n}" if a in operand.open else n for a, n in enumerate(array.shape)]
        if turned and not feeds and array.ndim > 1:
            perm = list(range(array.ndim))
            d.random.shuffle(perm)
            array, sizes = np.ascontiguousarray(array.transpose(perm)), [sizes[p] for p in perm]
            nodes.append(helper.make_node("Transpose", ["turned"], [name], perm=[int(i) for i in np.argsort(perm)]))
            name = "turned"
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), sizes))
        feeds[name] = array
    domain, _, short = drawn.op.rpartition("::")
    outputs = [f"y{i}" for i in range(drawn.n_outputs)]
    nodes.append(helper.make_node(short, names, outputs, domain=domain, **drawn.attrs))
    graph = helper.make_graph(
        nodes, "instance", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], constants
    )
    opsets = [helper.make_opsetid("", drawn.opset), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=IR), feeds
