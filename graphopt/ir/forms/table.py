"""Table of the changes that each op's form underwent, opset by opset; the one place where a new opset adds lines, hence
apart."""

from __future__ import annotations

from graphopt.ir import ops
from graphopt.ir.forms import kinds, single_ops
from graphopt.ir.forms.drafts import FormChange
from graphopt.ir.forms.kinds import (
    count,
    default,
    dropped,
    implied,
    last_axis,
    power,
    reduction,
    renamed,
    unlike,
    vector,
)

CHANGES: dict[str, tuple[FormChange, ...]] = {
    "BatchNormalization": (
        single_ops.BATCH_NORMALIZATION, dropped("spatial", 1, 1, 9), dropped("is_test", 1, 0, 7)
    ),
    "Cast": (single_ops.CAST,),
    "Clip": (single_ops.CLIP,),
    "Concat": (default("axis", 1, 4),),
    "DFT": (single_ops.DFT,),
    "DequantizeLinear": (single_ops.QUANTIZATION,),
    "Dropout": (single_ops.DROPOUT, dropped("is_test", 1, 0, 7)),
    "GRU": (unlike(7),),
    "Gemm": (kinds.GEMM,),
    "GlobalLpPool": (power(2),),
    "GridSample": (renamed("mode", {"bilinear": "linear", "bicubic": "cubic"}, 20),),
    "GroupNormalization": (unlike(21),),
    "LSTM": (unlike(7),),
    "LpPool": (power(2),),
    "PRelu": (kinds.PRELU,),
    "Pad": (single_ops.PAD, unlike(2)),
    "QuantizeLinear": (single_ops.QUANTIZATION,),
    "RNN": (unlike(7),),
    "ReduceSum": (reduction(13),),
    "Reshape": (vector("shape", 1, 5),),
    "Resize": single_ops.RESIZE,
    "RoiAlign": (implied("coordinate_transformation_mode", "output_half_pixel", 16),),
    "Scan": (unlike(9),),
    "Scatter": (single_ops.SCATTER,),
    "Selu": (default("alpha", 1.673200011253357, 6), default("gamma", 1.0506999492645264, 6)),
    "Slice": (single_ops.SLICE,),
    "Split": (single_ops.SPLIT, vector("split", 1, 13), unlike(2)),
    "Squeeze": (vector("axes", 1, 13),),
    "Tile": (unlike(6),),
    "TopK": (count("k", 1, 10),),
    "Unsqueeze": (vector("axes", 1, 13),),
    "Upsample": single_ops.UPSAMPLE,
    **{op: (reduction(18),) for op in sorted(ops.KINDS["reduce"] - {"ReduceSum"})},
    **{op: (last_axis(13),) for op in ("Softmax", "LogSoftmax", "Hardmax")},
    **dict.fromkeys(("Max", "Mean", "Min", "Sum"), (kinds.VARIADIC,)),
    **dict.fromkeys(
        ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"), (kinds.BINARY,)
    ),
}  # fmt: skip
"""For each op the changes of its form that opsets made, by the name that it had in the older opset."""

WRITTEN = {**CHANGES, "Resize": CHANGES["Upsample"], "ScatterElements": CHANGES["Scatter"]}
"""The same by the op's newest name."""
