"""Composite ops: ops of ONNX Runtime, and ONNX's for tables of features, that are said in other ops. The body of a call
is built from what is known of its inputs; type inference, evaluation and lowering are made of it, so that nothing else
has to know the op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from graphopt.ir.body import Body, Composite
from graphopt.ir.facts import NOTHING, Fact
from graphopt.ir.features import FEATURES
from graphopt.ir.graph import Attr, Attrs, Graph, Value
from graphopt.ir.op_table import Contrib
from graphopt.ir.trees import TREES


def body_of(op: str, attrs: Mapping[str, Attr], facts: Sequence[Fact | None]) -> Graph | None:
    """The body of a call of a composite op; None where there is none for such inputs."""
    composite = COMPOSITES[op]
    schema = composite.schema or _described(op, len(facts))
    body = Body(op, schema, Attrs(attrs), facts)
    try:
        outputs = composite.define(body, *body.inputs)
    except ValueError:
        return None
    names = [word.rstrip("?") for word in schema.outputs.split()]
    for name, value in zip(names, [outputs] if isinstance(outputs, Value) else outputs, strict=False):
        body.graph.add_output(name, value)
    return body.graph


def _described(op: str, count: int) -> Contrib:
    """What ONNX says of an op with so many inputs."""
    from graphopt.ir.ops import schema  # which knows the composite ops

    known = schema(op)
    assert known is not None
    inputs = [f.name for f in known.inputs]
    inputs = [f"{inputs[0]}{k}" for k in range(count)] if known.inputs[0].variadic else inputs
    attributes: Any = {name: object if default is None else default for name, default in known.defaults.items()}
    return Contrib(" ".join(inputs), " ".join(f.name for f in known.outputs), attributes)


_FLOATS = ("float32", "float16")
_BYTES = ("uint8", "int8")
_CONV: Mapping[str, int | float | str | type] = {
    "auto_pad": "NOTSET", "dilations": tuple, "group": 1, "kernel_shape": tuple, "pads": tuple, "strides": tuple,
}  # fmt: skip
_PRODUCT: Mapping[str, int | float | str | type] = {"alpha": 1.0, "transA": 0, "transB": 0}
_ACTIVATION = ("alpha", "beta", "gamma", "axis")


# -- sums and products


def _bias_add(body: Body, x: Value, bias: Value, skip: Value) -> Value:
    return body.Add(body.Add(x, bias), skip)


def _bias_split_gelu(body: Body, x: Value, bias: Value) -> Value:
    left, right = body("Split", body.Add(x, bias), outputs=2, axis=-1, num_outputs=2)
    return body.Mul(left, body.Gelu(right))


def _transposed_product(body: Body, a: Value, b: Value) -> Value:
    return body("com.microsoft::FusedMatMul", a, b, **body.given(*_PRODUCT))[0]


def _activated_product(body: Body, a: Value, b: Value) -> Value:
    attrs = body.given(*_PRODUCT, "transBatchA", "transBatchB")
    (y,) = body("com.microsoft::FusedMatMul", a, b, **attrs)
    stated: dict[str, Any] = {
        name: body.attrs[f"activation_{name}"] for name in _ACTIVATION if f"activation_{name}" in body.attrs
    }
    return body(str(body.attr("activation")), y, **stated)[0]


# -- images with their channels last


def _channels_last_conv(body: Body, x: Value, w: Value, bias: Value | None, z: Value | None = None) -> Value:
    rank = body.rank(x)
    y = _convolved(body, body.turned(x, rank), w, bias, None if z is None else body.turned(z, rank))
    return body.turned(y, rank, back=True)


def _convolved(body: Body, x: Value, w: Value, bias: Value | None, z: Value | None) -> Value:
    """A convolution, to which ``z`` is added, and the activation that the call names."""
    y = body.Conv(x, w, bias, **body.given(*_CONV))
    y = y if z is None else body.Add(y, z)
    activation = body.attr("activation")
    if not activation:
        return y
    if activation not in ACTIVATIONS:
        raise ValueError(f"the activation {activation} is not known")
    names = ACTIVATIONS[activation]
    numbers = dict(zip(names, body.attr("activation_params") or (), strict=False))
    if activation != "Clip":
        return body(activation, y, **numbers)[0]
    if len(numbers) < len(names):
        raise ValueError("Clip has no limits")
    return body.Clip(y, *(np.asarray(numbers[n], body.dtype(w)) for n in names))


ACTIVATIONS: Mapping[str, tuple[str, ...]] = {
    "Clip": ("min", "max"), "HardSigmoid": ("alpha", "beta"), "LeakyRelu": ("alpha",),
    "HardSwish": (), "Relu": (), "Sigmoid": (), "Tanh": (),
}  # fmt: skip
"""The activations behind convolutions, and what their parameters are called."""


def _quantized_conv(body: Body, x: Value, *others: Value | None) -> Value:
    rank, attrs = body.rank(x), body.given(*_CONV)
    if not body.attr("channels_last"):
        return body.QLinearConv(x, *others, **attrs)
    return body.turned(body.QLinearConv(body.turned(x, rank), *others, **attrs), rank, back=True)


def _group_norm(body: Body, x: Value, gamma: Value, beta: Value) -> Value:
    """The norm, in float32, of the sum of an input and a bias, as an image with its channels in front."""
    attrs = {"num_groups": body.attr("groups"), "epsilon": body.attr("epsilon")}
    y = body.GroupNormalization(x, *(body.Cast(v, to=1) for v in (gamma, beta)), **attrs)
    return body.Mul(y, body.Sigmoid(y)) if body.attr("activation") else y


def _normalized(body: Body, x: Value, gamma: Value, beta: Value) -> Value:
    rank, is_last = body.rank(x), body.attr("channels_last")
    image = body.Cast(body.turned(x, rank) if is_last else x, to=1)
    y = body.CastLike(_group_norm(body, image, gamma, beta), x)
    return body.turned(y, rank, back=True) if is_last else y


def _skip_normalized(
    body: Body, x: Value, gamma: Value, beta: Value, skip: Value, bias: Value | None
) -> Sequence[Value]:
    """Also gives the sum; a skip of rank 2 has one number for each channel of an image."""
    rank, is_last = body.rank(x), body.attr("channels_last")
    inner = [*range(1, rank - 1)] if is_last else [*range(2, rank)]
    total = body.Add(x, body.Unsqueeze(skip, inner) if body.rank(skip) == 2 else skip)
    if bias is not None:
        total = body.Add(total, bias if is_last else body.Unsqueeze(bias, [*range(1, rank - 1)]))
    image = body.Cast(body.turned(total, rank) if is_last else total, to=1)
    y = body.CastLike(_group_norm(body, image, gamma, beta), x)
    return body.turned(y, rank, back=True) if is_last else y, total


# -- quantization


def _quantized_mean(
    body: Body, x: Value, scale: Value, zero: Value | None, y_scale: Value, y_zero: Value | None
) -> Value:
    numbers = body.DequantizeLinear(x, scale, zero)
    mean = body.ReduceMean(numbers, body.attr("axes"), keepdims=body.attr("keepdims"))
    return body.QuantizeLinear(mean, y_scale, y_zero, output_dtype={"uint8": 2, "int8": 3}[body.dtype(x)])


def _halves(body: Body, packed: Value, high_first: bool = False) -> Sequence[Value]:
    """The halves of bytes, in order."""
    low, high = body.BitwiseAnd(packed, np.uint8(15)), body.BitShift(packed, np.uint8(4), direction="RIGHT")
    return (high, low) if high_first else (low, high)


def _unpacked(body: Body, packed: Value) -> Value:
    """Twice as long a last axis, of the halves of bytes, the lower one first."""
    halves = body.Concat(*(body.Unsqueeze(half, [-1]) for half in _halves(body, packed)), axis=-1)
    head = body.Shape(packed, end=-1)
    return body.Reshape(halves, body.Concat(head, [-1], axis=0), allowzero=0)


def _gathered_blocks(body: Body, x: Value, indices: Value, scales: Value, zeros: Value | None) -> Value:
    """Rows are taken before they are dequantized: the table may be large. Bytes hold two numbers where these have
    4 bits, and count from the middle unless zero points are given."""
    rank, bits = body.rank(x), body.attr("bits")
    along, axis = (a % rank for a in (body.attr("gather_axis"), body.attr("quantize_axis")))
    if along == axis or (body.dtype(x) == "uint8" and (axis != rank - 1 or bits not in (4, 8))):
        raise ValueError("blocks that are cut, or bits that are not next to each other")
    taken = [None if v is None else body.Gather(v, indices, axis=along) for v in (x, scales, zeros)]
    codes, scale, zero = taken
    if body.dtype(x) == "uint8":
        codes, zero = (v if bits == 8 or v is None else _unpacked(body, v) for v in (codes, zero))
        middle = body.Expand(np.uint8(1 << (bits - 1)), body.Shape(scale)) if zero is None else zero
        zero = middle if zeros is None else body.Slice(zero, [0], body.Shape(scale, start=-1), [-1])
    moved = axis if axis < along else axis + body.rank(indices) - 1
    return body.DequantizeLinear(codes, scale, zero, axis=moved, block_size=body.attr("block_size"))


_FP4 = (0.0, 0.0052083333, 0.66666667, 1.0, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
)  # fmt: skip
"""The numbers that codes of bitsandbytes stand for; those of FP4 have a sign as the highest bit."""


def _looked_up_product(body: Body, a: Value, b: Value, largest: Value) -> Value:
    """Weights are codes of 4 bits, the higher half of a byte first, each block of them times its largest."""
    n, k, block = (body.attr(name) for name in ("N", "K", "block_size"))
    table = np.array(_NF4 if body.attr("quant_type") else (*_FP4, *(-number for number in _FP4)), np.float32)
    halves = (body.Unsqueeze(half, [-1]) for half in _halves(body, body.Reshape(b, [-1]), high_first=True))
    codes = body.Slice(body.Reshape(body.Concat(*halves, axis=-1), [-1]), [0], [n * k])
    numbers = body.Gather(table, body.Cast(codes, to=6))
    scaled = body.Mul(numbers, body.Cast(body.Gather(largest, np.arange(n * k) // block), to=1))
    transposed = body.attr("transB")
    weights = body.CastLike(body.Reshape(scaled, [n, k] if transposed else [k, n]), a)
    return body.MatMul(a, body.Transpose(weights, perm=(1, 0)) if transposed else weights)


def _quantized_lstm(body: Body, x: Value, w: Value, r: Value, *rest: Value | None) -> Sequence[Value]:
    """Inputs are quantized at once, states anew in each step."""
    bias, lengths, h0, c0, peepholes, *quantized = rest
    names = body.attr("activations") or ("Sigmoid", "Tanh", "Tanh") * 2
    has_more = body.attr("activation_alpha") or body.attr("activation_beta") or body.attr("clip")
    if lengths is not None or peepholes is not None or has_more or body.attr("input_forget"):
        raise ValueError("sequences of their own lengths, peepholes, and activations with numbers")
    direction = body.attr("direction")
    ways = [False, True] if direction == "bidirectional" else [direction == "reverse"]
    hidden, dtype = body.attr("hidden_size"), body.dtype(x)
    ranks = [body.rank(v) for v in quantized if v is not None]
    if dtype != "float32" or len(ranks) != 4:
        raise ValueError("other than floats with scales and zero points")
    batch = body.Shape(x, start=1, end=2)
    zeros = body.Expand(0.0, body.Concat(batch, [hidden], axis=0))
    ends: list[Sequence[Value]] = []
    for way, is_reverse in enumerate(ways):

        def of(value: Value | None, way: int = way) -> Value | None:
            return None if value is None else body.Gather(value, np.int64(way), axis=0)

        sw, zw, sr, zr = (of(v) for v in quantized)
        b = of(bias)
        summed = None if b is None else body.Add(*body("Split", b, outputs=2, axis=0, num_outputs=2))
        projected = body("com.microsoft::DynamicQuantizeMatMul", x, of(w), sw, zw, summed)[0]
        step = _step(body, names[3 * way : 3 * way + 3])
        states = [zeros if v is None else of(v) for v in (h0, c0)]
        flow = {"scan_input_directions": (int(is_reverse),), "scan_output_directions": (int(is_reverse),)}
        attrs = {"body": step, "num_scan_inputs": 1, **flow}
        ends.append(body("Scan", *states, projected, of(r), sr, zr, outputs=3, captures=3, **attrs))
    hs, cs, ys = zip(*ends, strict=True)
    y = body.Concat(*(body.Unsqueeze(v, [1]) for v in ys), axis=1)
    return y, *(body.Concat(*(body.Unsqueeze(v, [0]) for v in vs), axis=0) for vs in (hs, cs))


def _step(body: Body, names: Sequence[object]) -> Graph:
    """A step of a quantized LSTM: the state, then the cell, from them, the projected input and what R is."""
    step = Body("step", Contrib("h c x r scale zero", "h2 c2 y"), Attrs(), [NOTHING] * 6)
    h, c, x, r, scale, zero = step.inputs
    gates = step.Add(x, step("com.microsoft::DynamicQuantizeMatMul", h, r, scale, zero)[0])
    i, o, f, g = step("Split", gates, outputs=4, axis=-1, num_outputs=4)
    gate, cell, out = map(str, names)
    c2 = step.Add(step.Mul(step(gate, f)[0], c), step.Mul(step(gate, i)[0], step(cell, g)[0]))
    h2 = step.Mul(step(gate, o)[0], step(out, c2)[0])
    for name, value in (("h2", h2), ("c2", c2), ("y", step.Identity(h2))):
        step.graph.add_output(name, value)
    return step.graph


# -- attention


def _quantized_attention(
    body: Body, x: Value, w: Value, bias: Value, scale_x: Value, scale_w: Value, *rest: Value | None
) -> Sequence[Value]:
    mask, zero_x, zero_w, past = rest
    projected = body("com.microsoft::MatMulIntegerToFloat", x, w, scale_x, scale_w, zero_x, zero_w, bias)[0]
    return _attended(body, projected, mask, past)


def _attended(body: Body, projected: Value, mask: Value | None, past: Value | None) -> Sequence[Value]:
    """Attention of what is projected to itself, behind a past [2, B, heads, past, size]."""
    heads, is_causal = body.attr("num_heads"), body.attr("unidirectional")
    if body.attr("do_rotary"):
        raise ValueError("rotated queries")
    q, k, v = body("Split", projected, outputs=3, axis=-1, num_outputs=3)
    batch, length = (body.Shape(projected, start=a, end=a + 1) for a in (0, 1))
    before = None if past is None else [body.Gather(past, np.int64(k), axis=0) for k in (0, 1)]
    total = length if past is None else body.Add(length, body.Shape(past, start=3, end=4))
    added = None
    if mask is not None:
        seen = _seen(body, mask, batch, total)
        hidden = body.Sub(1.0, body.Cast(seen, to=1))
        added = body.Mul(hidden, float(body.attr("mask_filter_value") or -10000.0))
        added = body.Expand(added, body.Concat(batch, [1], length, total, axis=0))
    y, present_k, present_v = body(
        "Attention", q, k, v, added, *(before or ()), outputs=3, q_num_heads=heads, kv_num_heads=heads,
        scale=body.attr("scale") or None, is_causal=int(bool(is_causal)),
    )  # fmt: skip
    return y, body.Concat(*(body.Unsqueeze(p, [0]) for p in (present_k, present_v)), axis=0)


def _seen(body: Body, mask: Value, batch: Value, total: Value) -> Value:
    """Which keys are seen, as [B, 1, 1 or S, T]: by 0 and 1 for each key, or for each query, or by where a row ends."""
    rank = body.rank(mask)
    if rank == 2:
        return body.Unsqueeze(mask, [1, 2])
    if rank == 3:
        return body.Unsqueeze(mask, [1])
    if rank != 1:
        raise ValueError("a mask of a rank of its own")
    places = body.Unsqueeze(body.Range(np.int64(0), body.Squeeze(total), np.int64(1)), [0])
    ends = body.Slice(mask, [0], batch)  # behind them may stand where rows begin
    return body.Unsqueeze(body.Less(places, body.Unsqueeze(body.Cast(ends, to=7), [1])), [1, 2])


# -- others


def _first_seen(body: Body, x: Value) -> Sequence[Value]:
    y, _, places, counts = body("Unique", x, outputs=4, sorted=0)
    return y, places, counts


def _real_transform(body: Body, x: Value) -> Value:
    """Transforms along the last axes, of real numbers along the last of all."""
    many, rank = body.attr("signal_ndim"), body.rank(x)
    if body.attr("normalized"):
        raise ValueError("a scaled transform")
    y = body.DFT(body.Unsqueeze(x, [-1]), None, np.int64(rank - 1), onesided=body.attr("onesided"))
    for axis in range(rank - many, rank - 1):
        y = body.DFT(y, None, np.int64(axis))
    return y


def _real_inverse(body: Body, x: Value) -> Value:
    """The inverse along the last axes, of half a spectrum along the last of all."""
    many, rank = body.attr("signal_ndim"), body.rank(x) - 1
    if body.attr("normalized") or not body.attr("onesided"):
        raise ValueError("a scaled transform, or of a whole spectrum")
    for axis in range(rank - many, rank - 1):
        x = body.DFT(x, None, np.int64(axis), inverse=1)
    return body.Squeeze(body.DFT(x, None, np.int64(rank - 1), inverse=1, onesided=1), [-1])


def _number(*names: str) -> dict[str, tuple[str, ...]]:
    return dict.fromkeys(names, ("float32",))


_NORM: Mapping[str, int | float | str | type] = {"activation": int, "channels_last": 1, "epsilon": 1e-5, "groups": int}
_SHIFTS = {"gamma": _FLOATS, "beta": _FLOATS}
_MASKED: Mapping[str, int | float | str | type] = {
    "num_heads": int, "unidirectional": 0, "do_rotary": 0, "mask_filter_value": float, "scale": float,
}  # fmt: skip
_CONVOLVED = Contrib("X W B? Z?", "Y", {**_CONV, "activation": str, "activation_params": tuple}, _FLOATS)
_OF_RUNTIME: Mapping[str, Composite] = {
    f"com.microsoft::{op}": composite
    for op, composite in {
        "BiasAdd": Composite(Contrib("X bias skip", "Y", {}, _FLOATS), _bias_add),
        "BiasSplitGelu": Composite(Contrib("X bias", "Y", {}, _FLOATS), _bias_split_gelu),
        "DynamicQuantizeLSTM": Composite(
            Contrib(
                "X W R B? sequence_lens? initial_h? initial_c? P? W_scale W_zero_point R_scale R_zero_point",
                "Y? Y_h? Y_c?",
                {
                    "activations": tuple, "activation_alpha": tuple, "activation_beta": tuple, "clip": float,
                    "direction": "forward", "hidden_size": int, "input_forget": 0,
                },
                typed={
                    **dict.fromkeys(("W", "R", "W_zero_point", "R_zero_point"), _BYTES),
                    "sequence_lens": ("int32",),
                },
            ),
            _quantized_lstm,
        ),
        "FusedMatMulActivation": Composite(
            Contrib(
                "A B", "Y",
                {
                    **_PRODUCT, "transBatchA": 0, "transBatchB": 0, "activation": str,
                    **{f"activation_{name}": float for name in _ACTIVATION},
                },
                _FLOATS,
            ),
            _activated_product,
        ),
        "GatherBlockQuantized": Composite(
            Contrib(
                "data indices scales zero_points?", "output",
                {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1},
                typed={
                    **dict.fromkeys(("data", "zero_points"), ("uint8", "uint4", "int4")), "indices": ("int64", "int32"),
                    **dict.fromkeys(("scales", "output"), _FLOATS),
                },
            ),
            _gathered_blocks,
        ),
        "GroupNorm": Composite(Contrib("X gamma beta", "Y", _NORM, _FLOATS, _SHIFTS), _normalized),
        "Irfft": Composite(Contrib("X", "Y", {"normalized": 0, "onesided": 1, "signal_ndim": int}), _real_inverse),
        "MatMulBnb4": Composite(
            Contrib(
                "A B absmax", "Y",
                {"K": int, "N": int, "block_size": int, "quant_type": int, "transB": 1, "training_mode": 0},
                _FLOATS,
                {"B": ("uint8",)},
            ),
            _looked_up_product,
        ),
        "NhwcConv": Composite(Contrib("X W B?", "Y", _CONV, _FLOATS), _channels_last_conv),
        "FusedConv": Composite(_CONVOLVED, _convolved),
        "NhwcFusedConv": Composite(_CONVOLVED, _channels_last_conv),
        "QAttention": Composite(
            Contrib(
                "input weight bias input_scale weight_scale mask_index? input_zero_point? weight_zero_point? past?",
                "output present?",
                _MASKED,
                typed={
                    **dict.fromkeys(("input", "weight", "input_zero_point", "weight_zero_point"), _BYTES),
                    "mask_index": ("int32",),
                },
            ),
            _quantized_attention,
        ),
        "QLinearConv": Composite(
            Contrib(
                "x x_scale x_zero_point w w_scale w_zero_point y_scale y_zero_point B?", "y",
                {**_CONV, "channels_last": 0}, _BYTES, {**_number("x_scale", "w_scale", "y_scale"), "B": ("int32",)},
            ),
            _quantized_conv,
        ),
        "QLinearReduceMean": Composite(
            Contrib(
                "data data_scale data_zero_point? reduced_scale reduced_zero_point?", "reduced",
                {"axes": tuple, "keepdims": int}, _BYTES, _number("data_scale", "reduced_scale"),
            ),
            _quantized_mean,
        ),
        "Rfft": Composite(Contrib("X", "Y", {"normalized": 0, "onesided": 1, "signal_ndim": 1}), _real_transform),
        "SkipGroupNorm": Composite(
            Contrib("X gamma beta skip bias?", "Y S?", _NORM, _FLOATS, _SHIFTS), _skip_normalized
        ),
        "TransposeMatMul": Composite(Contrib("A B", "Y", _PRODUCT), _transposed_product),
        "Trilu": Composite(
            Contrib("X k?", "Y", {"upper": 1}, (*_FLOATS, "float64", "int64", "bool"), {"k": ("int64",)}),
            lambda body, x, k: body.Trilu(x, k, upper=body.attr("upper")),
        ),
        "Unique": Composite(
            Contrib("x", "y idx counts", typed=dict.fromkeys(("idx", "counts"), ("int64",))), _first_seen
        ),
    }.items()
}  # fmt: skip
COMPOSITES: Mapping[str, Composite] = {
    **_OF_RUNTIME,
    **{op: Composite(None, define) for op, define in (*FEATURES.items(), *TREES.items())},
}
"""By op name."""
