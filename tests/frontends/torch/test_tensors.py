"""Tensors and arrays in the same memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphopt
from graphopt.errors import TranslationError

torch: Any = pytest.importorskip("torch")

from graphopt.frontends.torch.tensors import array_of, dtype_name, tensor_of  # noqa: E402


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int64", "uint8", "bool", "complex64"]
)
def test_a_tensor_and_its_array_share_their_elements(dtype: str) -> None:
    tensor = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, dtype))
    array = array_of(tensor)
    assert array.dtype.name == dtype
    assert np.array_equal(
        array.astype(np.complex64), [[0, 1, 2], [3, 4, 5]] if dtype != "bool" else [[0, 1, 1], [1] * 3]
    )
    back = tensor_of(array)
    assert back.dtype == tensor.dtype
    assert back.data_ptr() == tensor.data_ptr()
    assert array_of(tensor.t()).strides == array.T.strides


def test_an_array_that_may_not_be_written_to_is_copied() -> None:
    array = np.ones(3, np.float32)
    array.flags.writeable = False
    tensor_of(array).zero_()
    assert array.all()


def test_what_no_array_holds_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tensors of torch\.quint8 cannot be part of a graph"):
        dtype_name(torch.quint8)
    with pytest.raises(ValueError, match=r"layout torch\.sparse_coo has no array: call its to_dense\(\) first"):
        array_of(torch.eye(3).to_sparse())


def test_parameters_without_elements_are_refused() -> None:
    with pytest.raises(TranslationError, match="'weight' is no constant: a tensor on the device meta has no elements"):
        graphopt.from_torch(torch.nn.Linear(4, 3, device="meta"), torch.ones(2, 4, device="meta"))
