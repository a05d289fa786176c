"""Dtype codes: the numbers by which ONNX's files name dtypes, and their names here."""

from __future__ import annotations

DTYPES: dict[int, str] = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
    10: "float16", 11: "float64", 12: "uint32", 13: "uint64", 14: "complex64", 15: "complex128", 16: "bfloat16",
    17: "float8_e4m3fn", 18: "float8_e4m3fnuz", 19: "float8_e5m2", 20: "float8_e5m2fnuz", 21: "uint4", 22: "int4",
    23: "float4_e2m1fn", 24: "float8_e8m0fnu", 25: "uint2", 26: "int2", 27: "float6_e2m3fn", 28: "float6_e3m2fn",
}  # fmt: skip
"""ONNX's number of a dtype -> its name (numpy's or ml_dtypes')."""

ALIASES: dict[str, str] = {
    "half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16", "float": "float32", "fp32": "float32",
    "f32": "float32", "double": "float64", "fp64": "float64", "f64": "float64", "i8": "int8", "i32": "int32",
    "i64": "int64", "u8": "uint8",
}  # fmt: skip
"""What people call dtypes besides, and their names."""

HALVES = {"float16": "half", "bfloat16": "bfloat"}
"""The dtypes of half precision, and what functions of kernels call them."""

CODES: dict[str, int] = {name: code for code, name in DTYPES.items()}
"""The name of a dtype -> ONNX's number."""


def dtype_of(code: int) -> str | None:
    """The dtype that a number of ONNX's stands for; None where it stands for none."""
    return DTYPES.get(code)
