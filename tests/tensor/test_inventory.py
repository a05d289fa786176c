"""Every function of the inventory beside numpy or the reference: with open sizes, sizes 0 and 1, and compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import special

import graphopt
from graphopt import te, tensor
from graphopt.ir import evaluate
from graphopt.ir.constants import Array
from graphopt.ir.graph import Attrs
from graphopt.lowering.loops.interpret import interpret, value

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(high: int, *shape: int) -> Array:
    return RNG.integers(0, high, shape)


def op(name: str, *arrays: Array | None, n: int = 1, **attrs: Any) -> Any:
    """What the reference makes of arrays."""
    results = evaluate.compute(name, Attrs(attrs), arrays, n)
    return results[0] if n == 1 else results


@dataclass
class Case:
    """A function of tensors, arrays for them, and what is expected of these."""

    function: Callable[..., Any]
    arrays: Sequence[Array]
    expected: Callable[..., Any]
    fixed: set[int] = field(default_factory=set)
    """The sizes that have to be known."""


X, Y, ROW, POSITIVE = floats(3, 5), floats(3, 5), floats(1, 5), np.abs(floats(3, 5)) + 0.5
IMAGE, LINE, VOLUME = floats(2, 4, 7, 6), floats(2, 4, 9), floats(1, 2, 5, 4, 3)
SCALE, BIAS, MEAN, VARIANCE = floats(4), floats(4), floats(4), np.abs(floats(4)) + 0.1
Q, K, V = floats(2, 3, 5, 4), floats(2, 3, 6, 4), floats(2, 3, 6, 4)


def one(function: Callable[..., Any], expected: Callable[..., Any], x: Array = X) -> Case:
    return Case(function, [x], expected)


def two(function: Callable[..., Any], expected: Callable[..., Any], b: Array = ROW) -> Case:
    return Case(function, [X, b], expected, {1})


def pooled(x: Array, axes: tuple[int, ...], reduced: Callable[..., Array]) -> Array:
    return reduced(x, axis=axes, keepdims=True)


def take(k: int, function: Callable[..., Any]) -> Callable[..., Any]:
    """The k-th result alone."""
    return lambda *tensors: function(*tensors)[k]


CASES: dict[str, Case] = {
    "add": two(tensor.add, np.add),
    "sub": two(tensor.sub, np.subtract),
    "mul": two(tensor.mul, np.multiply),
    "div": two(tensor.div, np.divide),
    "pow": Case(tensor.pow, [POSITIVE, Y], np.power),
    "maximum": two(tensor.maximum, np.maximum),
    "minimum": two(tensor.minimum, np.minimum),
    "equal": two(tensor.equal, np.equal, X.copy()),
    "less": two(tensor.less, np.less),
    "greater": two(tensor.greater, np.greater),
    "logical_and": Case(tensor.logical_and, [X > 0, Y > 0], np.logical_and),
    "logical_or": Case(tensor.logical_or, [X > 0, Y > 0], np.logical_or),
    "logical_not": Case(tensor.logical_not, [X > 0], np.logical_not),
    "abs": one(tensor.abs, np.abs),
    "neg": one(tensor.neg, np.negative),
    "sign": one(tensor.sign, np.sign),
    "floor": one(tensor.floor, np.floor),
    "ceil": one(tensor.ceil, np.ceil),
    "round": one(tensor.round, np.round),
    "sqrt": one(tensor.sqrt, np.sqrt, POSITIVE),
    "reciprocal": one(tensor.reciprocal, lambda x: 1 / x),
    "exp": one(tensor.exp, np.exp),
    "log": one(tensor.log, np.log, POSITIVE),
    "sin": one(tensor.sin, np.sin),
    "cos": one(tensor.cos, np.cos),
    "tan": one(tensor.tan, np.tan),
    "tanh": one(tensor.tanh, np.tanh),
    "erf": one(tensor.erf, special.erf),
    "sigmoid": one(tensor.sigmoid, special.expit),
    "relu": one(tensor.relu, lambda x: np.maximum(x, 0)),
    "softplus": one(tensor.softplus, lambda x: np.logaddexp(x, 0)),
    "mish": one(tensor.mish, lambda x: x * np.tanh(np.logaddexp(x, 0))),
    "hard_swish": one(tensor.hard_swish, lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
    "silu": one(tensor.silu, lambda x: x * special.expit(x)),
    "gelu": one(tensor.gelu, lambda x: x * special.ndtr(x)),
    "gelu of tanh": one(
        partial(tensor.gelu, approximate=True),
        lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    ),
    "leaky_relu": one(partial(tensor.leaky_relu, alpha=0.2), lambda x: np.where(x < 0, 0.2 * x, x)),
    "elu": one(tensor.elu, lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0)))),
    "clip": one(lambda x: tensor.clip(x, -0.5, 0.5), lambda x: np.clip(x, -0.5, 0.5)),
    "where": Case(tensor.where, [X > 0, X, Y], np.where),
    "cast": one(lambda x: tensor.cast(x, "int32"), lambda x: x.astype(np.int32)),
    "sum": one(partial(tensor.sum, axis=1), lambda x: x.sum(1)),
    "sum of all": one(tensor.sum, lambda x: x.sum(keepdims=False)),
    "sum of none": one(partial(tensor.sum, axis=()), lambda x: x),
    "mean": one(partial(tensor.mean, axis=(0, 1), keepdims=True), lambda x: x.mean(keepdims=True)),
    "max": one(partial(tensor.max, axis=-1), lambda x: x.max(-1)),
    "min": one(partial(tensor.min, axis=0), lambda x: x.min(0)),
    "prod": one(partial(tensor.prod, axis=[1]), lambda x: x.prod(1)),
    "logsumexp": one(partial(tensor.logsumexp, axis=1), lambda x: special.logsumexp(x, 1)),
    "argmax": one(partial(tensor.argmax, axis=1), lambda x: x.argmax(1)),
    "argmin": one(partial(tensor.argmin, axis=0), lambda x: x.argmin(0)),
    "cumsum": one(partial(tensor.cumsum, axis=1), lambda x: x.cumsum(1)),
    "matmul": Case(tensor.matmul, [floats(2, 3, 4), floats(4, 5)], np.matmul),
    "matmul of transposed": Case(
        partial(tensor.matmul, transpose_a=True, transpose_b=True),
        [floats(2, 4, 3), floats(2, 5, 4)],
        lambda a, b: a.swapaxes(1, 2) @ b.swapaxes(1, 2),
    ),
    "dense": Case(tensor.dense, [X, floats(4, 5), floats(4)], lambda x, w, b: x @ w.T + b, {4}),
    "softmax": one(partial(tensor.softmax, axis=1), lambda x: special.softmax(x, 1)),
    "log_softmax": one(partial(tensor.log_softmax, axis=0), lambda x: special.log_softmax(x, 0)),
    "layer_norm": Case(tensor.layer_norm, [X, floats(5), floats(5)], partial(op, "LayerNormalization"), {5}),
    "rms_norm": Case(
        tensor.rms_norm, [X, floats(5)], lambda x, s: x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-5) * s, {5}
    ),
    "batch_norm": Case(tensor.batch_norm, [IMAGE, SCALE, BIAS, MEAN, VARIANCE], partial(op, "BatchNormalization"), {4}),
    "instance_norm": Case(tensor.instance_norm, [IMAGE, SCALE, BIAS], partial(op, "InstanceNormalization"), {4}),
    "group_norm": Case(
        partial(tensor.group_norm, groups=2),
        [IMAGE, SCALE, BIAS],
        partial(op, "GroupNormalization", num_groups=2),
        {4},
    ),
    "attention": Case(partial(tensor.attention, is_causal=True), [Q, K, V], partial(op, "Attention", is_causal=1)),
    "conv1d": Case(
        partial(tensor.conv1d, padding=1), [LINE, floats(3, 4, 3), floats(3)], partial(op, "Conv", pads=(1, 1)), {3, 4}
    ),
    "conv2d": Case(
        partial(tensor.conv2d, stride=2, padding=(1, 0, 2, 1), groups=2),
        [IMAGE, floats(6, 2, 3, 2), floats(6)],
        partial(op, "Conv", strides=(2, 2), pads=(1, 0, 2, 1), group=2),
        {2, 3, 4, 6},
    ),
    "conv3d": Case(
        partial(tensor.conv3d, dilation=(2, 1, 1)),
        [VOLUME, floats(3, 2, 2, 2, 2)],
        partial(op, "Conv", dilations=(2, 1, 1)),
        {2, 3},
    ),
    "depthwise_conv2d": Case(
        tensor.depthwise_conv2d, [IMAGE, floats(4, 1, 3, 3)], partial(op, "Conv", group=4), {1, 3, 4}
    ),
    "conv_transpose": Case(
        partial(tensor.conv_transpose, stride=2, padding=1, output_padding=1),
        [IMAGE, floats(4, 3, 3, 3)],
        partial(op, "ConvTranspose", strides=(2, 2), pads=(1, 1, 1, 1), output_padding=(1, 1)),
        {3, 4},
    ),
    "max_pool": one(
        partial(tensor.max_pool, kernel=2), partial(op, "MaxPool", kernel_shape=(2, 2), strides=(2, 2)), IMAGE
    ),
    "avg_pool": one(
        partial(tensor.avg_pool, kernel=3, stride=1, padding=1),
        partial(op, "AveragePool", kernel_shape=(3, 3), strides=(1, 1), pads=(1, 1, 1, 1)),
        IMAGE,
    ),
    "global_avg_pool": one(tensor.global_avg_pool, lambda x: pooled(x, (2, 3), np.mean), IMAGE),
    "global_max_pool": one(tensor.global_max_pool, lambda x: pooled(x, (2, 3), np.max), IMAGE),
    "resize": Case(
        lambda x: tensor.resize(x, (10, 4), mode="linear"),
        [IMAGE],
        lambda x: op("Resize", x, None, None, np.array([2, 4, 10, 4]), mode="linear"),
        {2, 4, 7, 6},
    ),
    "reshape": one(lambda x: tensor.reshape(x, (x.shape[1], x.shape[0])), lambda x: x.reshape(x.shape[::-1])),
    "reshape of -1": one(lambda x: tensor.reshape(x, (-1,)), lambda x: x.reshape(-1)),
    "flatten": one(tensor.flatten, lambda x: x.reshape(len(x), -1), IMAGE),
    "transpose": one(partial(tensor.transpose, axes=(0, 2, 3, 1)), lambda x: x.transpose(0, 2, 3, 1), IMAGE),
    "expand_dims": one(partial(tensor.expand_dims, axis=1), lambda x: x[:, None]),
    "squeeze": Case(partial(tensor.squeeze, axis=0), [ROW], lambda x: x[0], {1}),
    "broadcast_to": Case(lambda x: tensor.broadcast_to(x, (3, x.shape[1])), [ROW], lambda x: np.tile(x, (3, 1)), {1}),
    "tile": one(partial(tensor.tile, repeats=(2, 1)), lambda x: np.tile(x, (2, 1))),
    "concat": Case(partial(tensor.concat, axis=0), [X, ROW], lambda a, b: np.concatenate([a, b]), {5}),
    "stack": Case(partial(tensor.stack, axis=1), [X, Y], lambda a, b: np.stack([a, b], 1)),
    "split": Case(take(1, partial(tensor.split, parts=(2, 3), axis=1)), [X], lambda x: x[:, 2:], {5}),
    "slice": one(lambda x: tensor.slice(x, [1, 1], [3, 5], steps=[1, 2]), lambda x: x[1:3, 1:5:2]),
    "slice from behind": Case(lambda x: tensor.slice(x, [-1], [-4], [1], [-1]), [X], lambda x: x[:, -1:-4:-1], {5}),
    "pad": one(lambda x: tensor.pad(x, [1, 0], [0, 2], 7.0), lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=7)),
    "gather": Case(partial(tensor.gather, axis=1), [X, whole(5, 2, 2)], lambda x, i: np.take(x, i, 1)),
    "gather of known": one(lambda x: tensor.gather(x, [2, 0, -1]), lambda x: x[[2, 0, -1]]),
    "gather_elements": Case(
        partial(tensor.gather_elements, axis=1), [X, whole(5, 3, 2)], lambda x, i: np.take_along_axis(x, i, 1)
    ),
    "scatter": Case(tensor.scatter, [X, whole(3, 1, 5), floats(1, 5)], partial(op, "ScatterElements", axis=0), {1, 5}),
    "topk": Case(take(0, partial(tensor.topk, k=2)), [X], lambda x: -np.sort(-x, 1)[:, :2]),
    "topk places": Case(
        take(1, partial(tensor.topk, k=2, largest=False)), [X], lambda x: np.argsort(x, 1, kind="stable")[:, :2]
    ),
    "one_hot": Case(partial(tensor.one_hot, depth=4), [whole(4, 3)], lambda i: np.eye(4, dtype=np.float32)[i]),
}


def placed(case: Case, arrays: Sequence[Array], is_open: bool) -> tuple[list[te.Tensor], Any]:
    """The tensors for arrays, with a name for each open size, and what the function makes of them."""
    sizes = {n: te.size(f"n{n}") for a in arrays for n in a.shape if n not in case.fixed and n > 1}
    shapes = [[sizes.get(n, n) if is_open else n for n in a.shape] for a in arrays]
    given = [te.placeholder(s, a.dtype.name, f"x{k}") for k, (s, a) in enumerate(zip(shapes, arrays, strict=True))]
    return given, case.function(*given)


def interpreted(case: Case, arrays: Sequence[Array], is_open: bool) -> Array:
    given, result = placed(case, arrays, is_open)
    program = te.nest("case", given, [result])
    sizes = {v.name: int(v.name[1:]) for v in program.sizes}
    out = np.full([value(e, sizes) for e in result.shape], 77, result.dtype)
    interpret(program, [*arrays, out], sizes)
    return out


@pytest.mark.parametrize("is_open", [False, True], ids=["fixed", "open"])
@pytest.mark.parametrize("name", CASES)
def test_functions_compute_what_numpy_and_the_reference_do(name: str, is_open: bool) -> None:
    case = CASES[name]
    got, want = interpreted(case, case.arrays, is_open), np.asarray(case.expected(*case.arrays))
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_each_function_of_the_inventory_has_a_case() -> None:
    functions = {n for n in tensor.__all__ if n not in ("Operand", "op", "several")}
    assert functions == {name.split(" ")[0] for name in CASES}


SMALL = [
    "relu",
    "gelu",
    "exp",
    "add",
    "where",
    "transpose",
    "cumsum",
    "flatten",
    "stack",
    "tile",
    "softmax",
    "sum",
]


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("name", SMALL)
def test_sizes_of_0_and_1(name: str, rows: int) -> None:
    case = CASES[name]
    arrays = [a if a is ROW else a[:rows] for a in case.arrays]
    want = np.asarray(case.expected(*arrays)) if rows or name != "flatten" else np.zeros((0, 168), np.float32)
    got = interpreted(case, arrays, is_open=False)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_all_of_them_compiled() -> None:
    builder = graphopt.GraphBuilder()
    feeds: dict[str, Array] = {}
    wanted: dict[str, Array] = {}
    for k, case in enumerate(CASES.values()):
        inputs = []
        for j, array in enumerate(case.arrays):
            feeds[f"x{k}_{j}"] = array
            inputs.append(builder.input(f"x{k}_{j}", array.dtype.name, array.shape))
        builder.output(f"y{k}", builder.emit_compute(case.function, inputs, name=f"f{k}"))
        wanted[f"y{k}"] = np.asarray(case.expected(*case.arrays))
    results = graphopt.compile(builder.build())(feeds)
    for (name, _), (label, want) in zip(CASES.items(), wanted.items(), strict=True):
        np.testing.assert_allclose(results[label], want, rtol=2e-5, atol=2e-5, err_msg=name)
