"""Fast Fourier transforms as products: a transform of known length is a product with a constant matrix or, as Cooley
and Tukey factorize it, two shorter ones with a rotation between them, so that product kernels compute it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt
from typing import Any, NamedTuple

import numpy as np

from graphopt.ir.body import Body
from graphopt.ir.constants import Array
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Attrs, Graph, Value
from graphopt.ir.op_table import Contrib

SHORT = 32
"""The longest transform that is one product even where its length has factors."""
LARGE = 1 << 20
"""A matrix of more elements is not made: the sum itself takes no memory."""

SCHEMAS: Mapping[str, Contrib] = {
    "DFT": Contrib("input dft_length? axis?", "output", {"inverse": 0, "onesided": 0}),
    "STFT": Contrib("signal frame_step window? frame_length?", "output", {"onesided": 1}),
}
"""The ops that are transforms."""
_CODES = {"float32": 1, "float64": 11}


def fourier_body(op: str, attrs: Attrs, facts: Sequence[Fact | None]) -> Graph | None:
    """A transform as products; None where its length, or where its signals lie, is not known."""
    body = Body(op, SCHEMAS[op], attrs, facts)
    try:
        body.graph.add_output("output", _dft(body) if op == "DFT" else _stft(body))
    except ValueError:
        return None
    return body.graph


def _dft(body: Body) -> Value:
    x, length, axis = body.inputs
    if x is None:
        raise ValueError("no signal")
    rank, shape = body.rank(x), body.facts[x].shape or ()
    at = (-2 if axis is None else _number(body, axis)) % rank
    size, parts = _whole(shape[at]), _whole(shape[-1])
    inverse, onesided = bool(body.attr("inverse")), bool(body.attr("onesided"))
    is_mirrored = inverse and onesided
    count = _number(body, length) if length is not None else (size - 1) * 2 if is_mirrored else size
    if at == rank - 1 or rank < 2 or count < 1 or (is_mirrored and parts == 1):
        raise ValueError("no transform")
    perm = [*(a for a in range(rank - 1) if a != at), rank - 1, at]
    planes = body.Transpose(x, perm=tuple(perm))  # the signals last, their parts before
    used = min(size, count // 2 + 1 if is_mirrored else count)
    if used < size:
        planes = body.Slice(planes, [0], [used], [-1])
    y = _wide(body, planes, body.dtype(x))
    kind = np.dtype(body.dtype(x) if body.dtype(x) in _CODES else "float32")
    if is_mirrored:
        matrix = _mirrored(count, used).astype(kind)
        result = body.Unsqueeze(body.MatMul(body.Reshape(y, [*[0] * (rank - 2), 2 * used]), matrix), [-1])
    else:
        if used < count:
            y = body.Pad(y, [*[0] * (2 * rank - 1), count - used])
        bins = count // 2 + 1 if onesided else count
        turn = Turn(1, 1 / count) if inverse else Turn(-1, 1.0)
        result = _transform(body, y, rank - 2, parts, count, bins, turn, kind)
    back = [*range(at), rank - 2, *range(at, rank - 2), rank - 1]
    return _narrow(body, body.Transpose(result, perm=tuple(back)), x)


def _stft(body: Body) -> Value:
    x, step, window, length = body.inputs
    if x is None or step is None:
        raise ValueError("no signal")
    rank, shape = body.rank(x), body.facts[x].shape or ()
    given = None if window is None else _whole((body.facts[window].shape or (None,))[0])
    count = _number(body, length) if length is not None else given
    hop = _number(body, step)
    if count is None or count < 1 or hop < 1 or given not in (None, count) or (rank == 3 and _whole(shape[2]) != 1):
        raise ValueError("frames of no known length, or of complex numbers")
    signal = body.Squeeze(x, [2]) if rank == 3 else x
    size = shape[1]
    if isinstance(size, int):
        if size < count:
            raise ValueError("no frame")
        places = np.arange((size - count) // hop + 1)[:, None] * hop + np.arange(count)
        frames = body.Gather(signal, places, axis=1)
    else:
        rest = body.Sub(body.Gather(body.Shape(signal), np.int64(1)), np.int64(count))
        numbers = body.Range(np.int64(0), body.Add(body.Div(rest, np.int64(hop)), np.int64(1)), np.int64(1))
        starts = body.Unsqueeze(body.Mul(numbers, np.int64(hop)), [1])
        frames = body.Gather(signal, body.Add(starts, np.arange(count)), axis=1)
    y = _wide(body, frames, body.dtype(x))
    if window is not None:
        y = body.Mul(y, _wide(body, window, body.dtype(x)))
    kind = np.dtype(body.dtype(x) if body.dtype(x) in _CODES else "float32")
    bins = count // 2 + 1 if body.attr("onesided") else count
    result = _transform(body, body.Unsqueeze(y, [2]), 2, 1, count, bins, Turn(-1, 1.0), kind)
    return _narrow(body, result, x)


def _transform(
    body: Body, planes: Value, lead: int, parts: int, count: int, bins: int, turn: Turn, kind: np.dtype[Any]
) -> Value:
    """The first bins, ``[..., bins, 2]``, of signals ``[..., parts, count]`` with so many axes in front."""
    front, divisor = [0] * lead, _divisor(count)
    if divisor == 1:
        matrix = turn.matrix(count, np.arange(count), np.arange(bins), parts) * turn.scale
        product = body.MatMul(body.Reshape(planes, [*front, parts * count]), matrix.astype(kind))
        return body.Reshape(product, [*front, bins, 2])
    rest = count // divisor
    first = turn.matrix(divisor, np.arange(divisor), np.arange(divisor), parts).T.astype(kind)
    shorter = body.MatMul(first, body.Reshape(planes, [*front, parts * divisor, rest]))
    shorter = body.Reshape(shorter, [*front, divisor, 2, rest])
    root = turn.roots(count, np.outer(np.arange(divisor), np.arange(rest)))[:, None]
    crossing = np.concatenate([-root.imag, root.imag], 1).astype(kind)
    crossed = body.Mul(body.Gather(shorter, np.array([1, 0]), axis=lead + 1), crossing)
    turned = body.Add(body.Mul(shorter, root.real.astype(kind)), crossed)
    needed = -(-bins // divisor)
    below = _transform(body, turned, lead + 1, 2, rest, needed, turn, kind)
    perm = [*range(lead), lead + 1, lead, lead + 2]
    whole = body.Reshape(body.Transpose(below, perm=tuple(perm)), [*front, needed * divisor, 2])
    return whole if needed * divisor == bins else body.Slice(whole, [0], [bins], [lead])


class Turn(NamedTuple):
    """Which way around a transform goes, and what it is multiplied by."""

    sign: int
    scale: float

    def roots(self, count: int, powers: Array) -> Array:
        """Powers of the ``count``-th root of unity, as complex numbers."""
        return np.exp(self.sign * 2j * np.pi * (powers % count) / count)

    def matrix(self, count: int, times: Array, bins: Array, parts: int) -> Array:
        """What a row of signals is multiplied by, ``[parts * times, bins * 2]``. ValueError where it is large."""
        if parts * len(times) * len(bins) * 2 > LARGE:
            raise ValueError("a long transform whose length has no factors")
        root = self.roots(count, np.outer(times, bins))
        rows = [[root.real, root.imag], [-root.imag, root.real]][:parts]
        return np.stack([np.stack(row, -1) for row in rows]).reshape(parts * len(times), -1)


def _mirrored(count: int, used: int) -> Array:
    """From half a spectrum, ``[2 * used]``, to the real signal."""
    if 2 * used * count > LARGE:
        raise ValueError("a long inverse of half a spectrum")
    bins = np.arange(used)
    root = Turn(1, 1.0).roots(count, np.outer(bins, np.arange(count)))
    weight = np.where((bins == 0) | (bins * 2 == count), 1.0, 2.0)[:, None] / count
    return np.concatenate([root.real * weight, -root.imag * weight])


def _divisor(count: int) -> int:
    """The largest divisor that is at most the square root; 1 for what is short."""
    return 1 if count <= SHORT else next(d for d in range(isqrt(count), 0, -1) if count % d == 0)


def _number(body: Body, value: Value) -> int:
    """The element of an input; ValueError where it is not known."""
    constant = body.facts[value].constant
    if constant is None:
        raise ValueError("a number that is not known")
    return int(constant.array.reshape(-1)[0])


def _whole(size: object) -> int:
    if not isinstance(size, int):
        raise ValueError("an open size")
    return size


def _wide(body: Body, x: Value, dtype: str) -> Value:
    return x if dtype in _CODES else body.Cast(x, to=_CODES["float32"])


def _narrow(body: Body, y: Value, like: Value) -> Value:
    return y if body.dtype(like) in _CODES else body.CastLike(y, like)
