"""Schemas of ONNX Runtime's own ops, and of ours, that rules may use, as ``onnx.defs`` describes ops. A table apart
from how schemas are read.

``onnx.defs`` knows nothing of them, so this table says what it would: inputs and outputs in order
(``?`` marks optional ones), the attributes with their defaults (a type where there is none), and
the dtypes that the CPU kernels take. Those of the domain ``graphopt`` work on images in blocks of
channels, ``[N, C/size, *spatial, size]``; our own programs have them, no ONNX model that we write does.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphopt.ir.composites import COMPOSITES
from graphopt.ir.op_table import OPS, Contrib

_CONV: Mapping[str, int | float | str | type] = {
    "auto_pad": "NOTSET", "dilations": tuple, "group": 1, "kernel_shape": tuple, "pads": tuple, "strides": tuple,
}  # fmt: skip
_FLOATS = ("float32", "float64", "float16")

_BYTES = ("uint8", "int8")
_CODES = (*_BYTES, "uint16", "int16", "int32")
_POOL: Mapping[str, int | float | str | type] = {
    "auto_pad": "NOTSET", "ceil_mode": 0, "channels_last": 0, "count_include_pad": 0, "kernel_shape": tuple,
    "pads": tuple, "strides": tuple,
}  # fmt: skip
_WINDOW: Mapping[str, int | float | str | type] = {
    "auto_pad": "NOTSET", "ceil_mode": 0, "dilations": tuple, "kernel_shape": tuple, "pads": tuple, "strides": tuple,
}  # fmt: skip


def _quantized(inputs: str, attributes: Mapping[str, int | float | str | type] | None = None) -> Contrib:
    """An op on bytes: inputs that are called scales are floats."""
    names = [word.rstrip("?") for word in inputs.split()]
    return Contrib(inputs, "Y", attributes or {}, _BYTES, {n: ("float32",) for n in names if n.endswith("scale")})


_CACHES = dict.fromkeys(("past_key", "past_value", "present_key", "present_value"), ("float32", *_BYTES))
"""Keys and values that are kept, as bytes too."""

CONTRIB: dict[str, Contrib] = {
    **{op: row.schema for op, row in OPS.items() if row.schema is not None},
    **{op: composite.schema for op, composite in COMPOSITES.items() if composite.schema is not None},
    "com.microsoft::Attention": Contrib(
        "input weights bias? mask_index? past? attention_bias? past_sequence_length?",
        "output present?",
        {"num_heads": int, "qkv_hidden_sizes": tuple, "scale": float, "unidirectional": 0},
        typed={"mask_index": ("int32",), "past_sequence_length": ("int32",)},
    ),
    "com.microsoft::DequantizeLinear": Contrib(
        "x x_scale x_zero_point?", "y", {"axis": 1}, ("float32", "float16"), {"x": _CODES, "x_zero_point": _CODES}
    ),
    "com.microsoft::DynamicQuantizeMatMul": Contrib(
        "A B b_scale b_zero_point? bias?", "Y", typed={"B": _BYTES, "b_zero_point": _BYTES}
    ),
    "com.microsoft::EmbedLayerNormalization": Contrib(
        "input_ids segment_ids? word_embedding position_embedding segment_embedding? gamma beta mask? position_ids?",
        "output mask_index? embedding_sum?",
        {"epsilon": 1e-12, "mask_index_type": int},
        typed=dict.fromkeys(("input_ids", "segment_ids", "mask", "position_ids", "mask_index"), ("int32",)),
    ),
    "com.microsoft::FastGelu": Contrib("X bias?", "Y", dtypes=("float32", "float16")),
    "com.microsoft::FusedGemm": Contrib(
        "A B C?",
        "Y",
        {
            "transA": 0,
            "transB": 0,
            "alpha": 1.0,
            "beta": 1.0,
            "activation": str,
            "activation_alpha": float,
            "activation_beta": float,
            "activation_gamma": float,
        },
    ),
    "com.microsoft::FusedMatMul": Contrib(
        "A B", "Y", {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0}
    ),
    "com.microsoft::GroupQueryAttention": Contrib(
        "query key? value? past_key? past_value? seqlens_k total_sequence_length cos_cache? sin_cache? position_ids? "
        "attention_bias? head_sink? k_scale? v_scale? q_norm_weight? k_norm_weight?",
        "output present_key? present_value? output_qk?",
        {
            "num_heads": int,
            "kv_num_heads": int,
            "scale": float,
            "causal": 1,
            "local_window_size": -1,
            "softcap": 0.0,
            "k_quant_type": "NONE",
            "v_quant_type": "NONE",
            "kv_cache_bit_width": 0,
        },
        typed={
            "seqlens_k": ("int32",),
            "total_sequence_length": ("int32",),
            "position_ids": ("int64",),
            **_CACHES,
        },
    ),
    "com.microsoft::Inverse": Contrib("X", "Y", dtypes=_FLOATS),
    "com.microsoft::MatMulIntegerToFloat": Contrib(
        "A B a_scale b_scale a_zero_point? b_zero_point? bias?",
        "Y",
        typed=dict.fromkeys(("A", "B", "a_zero_point", "b_zero_point"), _BYTES),
    ),
    "com.microsoft::MatMulNBits": Contrib(
        "A B scales zero_points? g_idx? bias?",
        "Y",
        {"K": int, "N": int, "accuracy_level": 0, "bits": 4, "block_size": int},
        ("float32", "float16"),
        {"B": ("uint8",), "zero_points": ("uint8", "float32", "float16"), "g_idx": ("int32",)},
    ),
    "com.microsoft::MultiHeadAttention": Contrib(
        "query key? value? bias? key_padding_mask? attention_bias? past_key? past_value? past_sequence_length? "
        "cache_indirection?",
        "output present_key? present_value? qk?",
        {"num_heads": int, "scale": float, "unidirectional": 0, "mask_filter_value": -10000.0},
        typed=dict.fromkeys(("key_padding_mask", "past_sequence_length", "cache_indirection"), ("int32",)),
    ),
    "com.microsoft::NhwcMaxPool": Contrib("x", "y", _WINDOW, _BYTES),
    "com.microsoft::QGemm": Contrib(
        "A a_scale a_zero_point B b_scale b_zero_point C? y_scale? y_zero_point?",
        "Y",
        {"alpha": 1.0, "transA": 0, "transB": 0},
        typed={
            **dict.fromkeys(("A", "a_zero_point", "B", "b_zero_point", "y_zero_point"), _BYTES),
            "C": ("int32",),
            "Y": ("uint8", "int8", "float32"),
        },
    ),
    "com.microsoft::QLinearAdd": _quantized("A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?"),
    "com.microsoft::QLinearAveragePool": _quantized("X x_scale x_zero_point? y_scale y_zero_point?", _POOL),
    "com.microsoft::QLinearConcat": _quantized(
        "Y_scale Y_zero_point A a_scale a_zero_point B? b_scale? b_zero_point? C? c_scale? c_zero_point? "
        "D? d_scale? d_zero_point?",
        {"axis": int},
    ),
    "com.microsoft::QLinearGlobalAveragePool": _quantized(
        "X x_scale x_zero_point y_scale y_zero_point", {"channels_last": 0}
    ),
    "com.microsoft::QLinearLeakyRelu": _quantized("X X_scale X_zero_point? Y_scale Y_zero_point?", {"alpha": 0.01}),
    "com.microsoft::QLinearMul": _quantized("A A_scale A_zero_point? B B_scale B_zero_point? C_scale C_zero_point?"),
    "com.microsoft::QLinearSigmoid": _quantized("X X_scale X_zero_point? Y_scale Y_zero_point?"),
    "com.microsoft::QLinearSoftmax": _quantized(
        "X X_scale x_zero_point? y_scale y_zero_point", {"axis": -1, "opset": int}
    ),
    "com.microsoft::QLinearWhere": Contrib(
        "condition X x_scale x_zero_point Y y_scale y_zero_point z_scale z_zero_point",
        "Z",
        dtypes=_BYTES,
        typed={"condition": ("bool",), **dict.fromkeys(("x_scale", "y_scale", "z_scale"), ("float32",))},
    ),
    "com.microsoft::QuantizeLinear": Contrib(
        "x y_scale y_zero_point?", "y", {"axis": 1}, ("float32", "float16"), {"y_zero_point": _CODES, "y": _CODES}
    ),
    "com.microsoft::RotaryEmbedding": Contrib(
        "input position_ids cos_cache sin_cache",
        "output",
        {"interleaved": 0, "num_heads": 0, "rotary_embedding_dim": 0, "is_packed_batching": 0, "scale": 1.0},
        typed={"position_ids": ("int64",)},
    ),
    "com.microsoft::SkipLayerNormalization": Contrib(
        "input skip gamma beta? bias?",
        "output mean? inv_std_var? input_skip_bias_sum?",
        {"epsilon": 1e-12},
        _FLOATS,
        {"mean": ("float32",), "inv_std_var": ("float32",)},
    ),
    "com.microsoft::SkipSimplifiedLayerNormalization": Contrib(
        "input skip gamma bias?",
        "output mean? inv_std_var? input_skip_bias_sum?",
        {"epsilon": 1e-12},
        _FLOATS,
        {"mean": ("float32",), "inv_std_var": ("float32",)},
    ),
    "graphopt::MixedMatMul": Contrib("A B", "Y", typed={"B": ("bfloat16", "float16")}),
    "graphopt::BfloatWeights": Contrib("W", "Y", {"transposed": 0}, typed={"Y": ("bfloat16",)}),
    "graphopt::Block": Contrib("X", "Y", {"size": 16}, _FLOATS),
    "graphopt::BlockWeights": Contrib("W", "Y", {"size": 16, "form": "blocked"}, _FLOATS),
    "graphopt::BlockedAveragePool": Contrib("X", "Y", {**_WINDOW, "count_include_pad": 0}, _FLOATS),
    "graphopt::BlockedConv": Contrib("X W B?", "Y", {**_CONV, "form": "blocked"}, _FLOATS),
    "graphopt::BlockedConvTranspose": Contrib("X W B?", "Y", {}, _FLOATS),
    "graphopt::BlockedMaxPool": Contrib("X", "Y", _WINDOW, _FLOATS),
    "graphopt::BlockedWinogradConv": Contrib("X W B?", "Y", {"auto_pad": "NOTSET", "pads": tuple, "tile": int}),
    "graphopt::CoupledShares": Contrib("X", "Y", {"classes": int}),
    "graphopt::TreeLeaves": Contrib(
        "X roots features splits children",
        "Y",
        {},
        ("float32", "float64"),
        dict.fromkeys(("roots", "features", "children", "limits", "Y"), ("int32",)),
    ),
    "graphopt::Unblock": Contrib("X", "Y", {"channels": int}, _FLOATS),
    "graphopt::WinogradWeights": Contrib("W", "Y", {"tile": int}),
    "SimplifiedLayerNormalization": Contrib(
        "X scale",
        "Y inv_std_var?",
        {"axis": -1, "epsilon": 1e-5, "stash_type": 1},
        _FLOATS,
        {"inv_std_var": ("float32",)},
    ),
}
"""By op name. ``SimplifiedLayerNormalization`` is ONNX Runtime's too, though it sits in ONNX's own domain."""
