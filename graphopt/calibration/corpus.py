"""Corpus of calls to measure where no model is given: common ones of networks, at a few sizes each.

Apart from the command that measures them, its only user, for length.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphopt.ir.graph import Attrs
from graphopt.rewrite.extract.workload import OpWorkload, WorkloadOperand
from graphopt.target import ops

IMAGES = ((1, 16, 112, 112), (1, 64, 56, 56), (1, 256, 28, 28), (1, 512, 7, 7))
ROWS = ((1, 128, 768), (1, 16, 64), (8, 128, 128))

UNARY = sorted(
    ops("Relu Sigmoid Tanh HardSigmoid HardSwish LeakyRelu Elu Erf Exp Log Sqrt Reciprocal Neg Abs Floor Softplus Gelu")
)
BINARY = ("Add", "Sub", "Mul", "Div", "Max")
BLOCKED = ops("Relu Sigmoid Tanh HardSigmoid HardSwish Add Mul")


def corpus() -> list[str]:
    """The workloads, as texts, in an order that begins with the most common ones."""
    return [call.text() for call in (*_convolutions(), *_products(), *_elementwise(), *_moves(), *_reductions())]


def _image(shape: tuple[int, ...], is_const: bool = False) -> WorkloadOperand:
    return WorkloadOperand("float32", shape, is_const)


def _indices(*numbers: int) -> WorkloadOperand:
    return WorkloadOperand("int64", (len(numbers),), True, numbers)


def _convolutions() -> Iterator[OpWorkload]:
    for n, c, h, w in IMAGES:
        for out, kernel, stride, group in ((c, 3, 1, 1), (c, 1, 1, 1), (2 * c, 3, 2, 1), (c, 3, 1, c), (c, 5, 1, c)):
            pad = kernel // 2
            attrs = Attrs(pads=(pad,) * 4, strides=(stride,) * 2, group=group, kernel_shape=(kernel,) * 2)
            weights = _image((out, c // group, kernel, kernel), True)
            yield OpWorkload("Conv", attrs, (_image((n, c, h, w)), weights, _image((out,), True)), blocked=True)
    for c, out in ((42, 96), (18, 64)):
        attrs = Attrs(pads=(1, 1, 1, 1), kernel_shape=(3, 3))
        yield OpWorkload("Conv", attrs, (_image((1, c, 28, 28)), _image((out, c, 3, 3), True)))
    stem = Attrs(pads=(3, 3, 3, 3), strides=(2, 2), kernel_shape=(7, 7))
    yield OpWorkload("Conv", stem, (_image((1, 3, 224, 224)), _image((64, 3, 7, 7), True)), blocked=True)
    for op in ("MaxPool", "AveragePool"):
        for shape in IMAGES:
            attrs = Attrs(kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
            yield OpWorkload(op, attrs, (_image(shape),), blocked=True)
    for shape in IMAGES:
        yield OpWorkload("GlobalAveragePool", Attrs(), (_image(shape),), blocked=True)
        by_channel = (_image((shape[1],), True),) * 4
        for blocked in (False, True):
            yield OpWorkload("BatchNormalization", Attrs(), (_image(shape), *by_channel), blocked=blocked)


def _products() -> Iterator[OpWorkload]:
    for rows, deep, columns in ((128, 768, 768), (128, 768, 3072), (128, 3072, 768), (16, 512, 512), (1, 1024, 1000)):
        weights = _image((deep, columns), True)
        yield OpWorkload("MatMul", Attrs(), (_image((rows, deep)), weights))
        yield OpWorkload("Gemm", Attrs(), (_image((rows, deep)), weights, _image((columns,), True)))
    for heads, rows, deep in ((12, 128, 64), (8, 32, 32), (4, 256, 64)):
        a, b = (1, heads, rows, deep), (1, heads, deep, rows)
        yield OpWorkload("MatMul", Attrs(), (_image(a), _image(b)))


def _elementwise() -> Iterator[OpWorkload]:
    for shape in (*IMAGES, *ROWS):
        x = _image(shape)
        for blocked in (False, True) if len(shape) == 4 else (False,):
            for op in UNARY:
                if not blocked or op in BLOCKED:
                    yield OpWorkload(op, Attrs(), (x,), blocked=blocked)
            for op in BINARY:
                if not blocked or op in BLOCKED:
                    yield OpWorkload(op, Attrs(), (x, x), blocked=blocked)
        one = _image((shape[-1],) if len(shape) == 3 else (1, shape[1], 1, 1))
        for op in ("Add", "Mul"):
            yield OpWorkload(op, Attrs(), (x, one))
            yield OpWorkload(op, Attrs(), (x, _image((), True)))
            yield OpWorkload(op, Attrs(), (x, _image((*shape[:-1], 1))))
        yield OpWorkload("Pow", Attrs(), (x, WorkloadOperand("float32", (), True, (2.0,))))


def _moves() -> Iterator[OpWorkload]:
    for shape in IMAGES:
        x = _image(shape)
        for perm in ((0, 2, 3, 1), (0, 3, 1, 2), (0, 1, 3, 2), (0, 3, 2, 1)):
            yield OpWorkload("Transpose", Attrs(perm=perm), (x,))
        yield OpWorkload("Concat", Attrs(axis=1), (x, x))
        half = shape[1] // 2
        yield OpWorkload("Slice", Attrs(), (x, _indices(0), _indices(half), _indices(1)))
        yield OpWorkload("Split", Attrs(axis=1), (x, _indices(half, half)), n_outputs=2)
        yield OpWorkload("Pad", Attrs(), (x, _indices(0, 0, 1, 1, 0, 0, 1, 1)))
        yield OpWorkload("DepthToSpace", Attrs(blocksize=2), (x,))
    for perm in ((0, 2, 1, 3), (0, 2, 3, 1)):
        yield OpWorkload("Transpose", Attrs(perm=perm), (_image((1, 128, 12, 64)),))
    table = _image((30522, 128), True)
    yield OpWorkload("Gather", Attrs(), (table, WorkloadOperand("int64", (1, 128))))


def _reductions() -> Iterator[OpWorkload]:
    for shape in (*IMAGES, *ROWS):
        x = _image(shape)
        for axis in (1, len(shape) - 1):
            for op in ("ReduceMean", "ReduceSum", "ReduceMax"):
                yield OpWorkload(op, Attrs(), (x, _indices(axis)))
            yield OpWorkload("Softmax", Attrs(axis=axis), (x,))
        if len(shape) == 3:
            by_column = (_image((shape[-1],), True),) * 2
            yield OpWorkload("LayerNormalization", Attrs(axis=2), (x, *by_column))
