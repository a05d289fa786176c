"""Normalizations, with the statistics that were learned or those of the elements themselves: a family of
torch's operators, with a table of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from graphopt.frontends.torch.table import Table
from graphopt.frontends.torch.writer import Number, OpWriter
from graphopt.ir.graph import Value

TABLE = Table()
aten = torch.ops.aten


@TABLE.entry(aten.layer_norm)
def _layer_norm(
    g: OpWriter,
    x: Value,
    shape: Sequence[Number],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = False,
) -> Value:
    scale = weight if weight is not None else g.filled(g.ones(x), _sizes(g, shape))
    more = () if bias is None else (bias,)
    return g.op("LayerNormalization", x, scale, *more, axis=g.rank(x) - len(shape), epsilon=float(eps))


@TABLE.entry(aten.native_layer_norm)
def _native_layer_norm(
    g: OpWriter, x: Value, shape: Sequence[Number], weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, None, None]:
    """Its further results serve training alone."""
    return _layer_norm(g, x, shape, weight, bias, eps), None, None


def _sizes(g: OpWriter, shape: Sequence[Number]) -> tuple[int, ...]:
    return tuple(g.known(n, "the size of a normalized axis") for n in shape)


@TABLE.entry(aten.rms_norm)
def _rms_norm(
    g: OpWriter, x: Value, shape: Sequence[Number], weight: Value | None = None, eps: float | None = None
) -> Value:
    """In float32 where the elements are narrower, as torch computes it."""
    dtype = g.dtype(x)
    eps = torch.finfo(getattr(torch, dtype)).eps if eps is None else eps
    wide = g.cast(x, "float32" if dtype in ("float16", "bfloat16") else dtype)
    axes = np.arange(g.rank(x) - len(shape), g.rank(x), dtype=np.int64)
    mean = g.op("ReduceMean", g.op("Mul", wide, wide), axes, keepdims=1)
    result = g.op("Div", wide, g.op("Sqrt", g.op("Add", mean, eps)))
    if weight is not None:
        result = g.op("Mul", result, g.cast(weight, g.dtype(result)))
    return g.cast(result, dtype)


@TABLE.entry(aten._fused_rms_norm)
def _fused_rms_norm(
    g: OpWriter, x: Value, shape: Sequence[Number], weight: Value | None, eps: float | None
) -> tuple[Value, None]:
    """Its second result serves training alone."""
    return _rms_norm(g, x, shape, weight, eps), None


def _scale_and_shift(g: OpWriter, x: Value, weight: Value | None, bias: Value | None) -> tuple[Value, Value]:
    """What each channel is multiplied by and what is added to it, also where nothing was learned."""
    channels = (g.known(g.size(x, 1), "the number of channels"),)
    scale = weight if weight is not None else g.filled(g.ones(x), channels)
    return scale, bias if bias is not None else g.filled(g.zeros(x), channels)


@TABLE.entry(aten._native_batch_norm_legit_no_training)
def _batch_norm_of_inference(
    g: OpWriter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, None, None]:
    affine = _scale_and_shift(g, x, weight, bias)
    return g.op("BatchNormalization", x, *affine, mean, variance, epsilon=float(eps)), None, None


@TABLE.entry(aten.batch_norm)
def _batch_norm(
    g: OpWriter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Value:
    if mean is None or variance is None:
        return _batch_norm_of_itself(g, x, weight, bias, True, momentum, eps)[0]
    if training:
        raise g.refused("a batch normalization that changes its statistics: call model.eval() first")
    return _batch_norm_of_inference(g, x, weight, bias, mean, variance, momentum, eps)[0]


@TABLE.entry(aten._native_batch_norm_legit.no_stats)
def _batch_norm_of_itself(
    g: OpWriter, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> tuple[Value, None, None]:
    """By the mean and variance of each channel in the batch itself."""
    axes = np.array([axis for axis in range(g.rank(x)) if axis != 1], np.int64)
    apart = g.op("Sub", x, g.op("ReduceMean", x, axes, keepdims=1))
    variance = g.op("ReduceMean", g.op("Mul", apart, apart), axes, keepdims=1)
    result = g.op("Div", apart, g.op("Sqrt", g.op("Add", variance, eps)))
    along = [1, -1, *[1] * (g.rank(x) - 2)]
    if weight is not None:
        result = g.op("Mul", result, g.reshape(weight, along))
    return (result if bias is None else g.op("Add", result, g.reshape(bias, along))), None, None


@TABLE.entry(aten.native_batch_norm, aten._native_batch_norm_legit)
def _native_batch_norm(g: OpWriter, *arguments: Any) -> tuple[Value, None, None]:
    return _batch_norm(g, *arguments), None, None


@TABLE.entry(aten.group_norm)
def _group_norm(
    g: OpWriter,
    x: Value,
    groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Value:
    affine = _scale_and_shift(g, x, weight, bias)
    return g.op("GroupNormalization", x, *affine, num_groups=groups, epsilon=float(eps))


@TABLE.entry(aten.native_group_norm)
def _native_group_norm(
    g: OpWriter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: Number,
    c: Number,
    hxw: Number,
    groups: int,
    eps: float,
) -> tuple[Value, None, None]:
    """Its further results serve training alone."""
    return _group_norm(g, x, groups, weight, bias, eps), None, None


@TABLE.entry(aten.instance_norm)
def _instance_norm(
    g: OpWriter,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    mean: Value | None,
    variance: Value | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Value:
    if not use_input_stats and mean is not None and variance is not None:
        return _batch_norm(g, x, weight, bias, mean, variance, False, momentum, eps)
    return g.op("InstanceNormalization", x, *_scale_and_shift(g, x, weight, bias), epsilon=float(eps))
