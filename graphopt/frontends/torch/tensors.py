"""Tensors as numpy arrays and back, in the same memory."""

from __future__ import annotations

import numpy as np
import torch

from graphopt.ir.constants import Array
from graphopt.ir.dtypes import CODES
from graphopt.ir.onnx_io.tensors import numpy_dtype

_FOREIGN = {"bfloat16": torch.int16, "float8_e4m3fn": torch.uint8, "float8_e5m2": torch.uint8}
"""The dtypes that numpy does not know, each with one of torch's that it knows and that is as wide."""


def dtype_name(dtype: torch.dtype) -> str:
    """The name of one of torch's dtypes. ValueError for one that graphs do not have."""
    name = str(dtype).removeprefix("torch.")
    if name not in CODES:
        raise ValueError(f"tensors of {dtype} cannot be part of a graph")
    return name


def array_of(tensor: torch.Tensor) -> Array:
    """The tensor's elements as an array, in its own memory where it is in the processor's.

    ValueError for a tensor without elements in rows: a sparse one, or one that stands on the device meta.
    """
    if tensor.is_meta:
        raise ValueError("a tensor on the device meta has no elements: load the weights first")
    if tensor.layout is not torch.strided:
        raise ValueError(f"a tensor of the layout {tensor.layout} has no array: call its to_dense() first")
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    name = dtype_name(plain.dtype)
    if name in _FOREIGN:
        array: Array = plain.view(_FOREIGN[name]).numpy().view(numpy_dtype(name))
    else:
        array = plain.numpy()
    return array


def tensor_of(array: Array) -> torch.Tensor:
    """The array's elements as a tensor, in the array's memory where it may be written to."""
    name = array.dtype.name
    if not array.flags.writeable:
        array = array.copy()
    if name in _FOREIGN:
        width = np.int16 if array.dtype.itemsize == 2 else np.uint8
        return torch.from_numpy(array.view(width)).view(getattr(torch, name))
    return torch.from_numpy(array)
