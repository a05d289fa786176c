from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from graphopt.errors import InvalidModelError
from graphopt.ir.constants import Constant
from graphopt.ir.onnx_io.store import TensorStore
from graphopt.ir.onnx_io.tensors import Storage, read_sparse, read_tensor
from tests.ir.onnx_io.model_zoo import of_every_dtype, sparse

CASES = [pytest.param(proto, array, id=proto.name) for proto, array in of_every_dtype()]


@pytest.mark.parametrize(("proto", "array"), CASES)
def test_every_dtype_is_read(proto: TensorProto, array: np.ndarray[Any, Any]) -> None:
    constant = read_tensor(proto, Storage(), "here")
    assert constant.array.dtype == array.dtype
    assert repr(constant.array.tolist()) == repr(array.tolist())
    assert constant.shape == array.shape


@pytest.mark.parametrize(("proto", "array"), CASES)
def test_every_dtype_is_written(proto: TensorProto, array: np.ndarray[Any, Any]) -> None:
    made = TensorProto()
    TensorStore().tensor(Constant.of(array), made, proto.name)
    assert made.data_type == proto.data_type
    assert repr(numpy_helper.to_array(made).tolist()) == repr(array.tolist())
    if proto.HasField("raw_data"):
        assert made == proto


@pytest.mark.parametrize("dtype", ["int4", "uint2", "float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"])
@pytest.mark.parametrize("size", [0, 1, 5, 8])
def test_narrow_elements_are_packed_lowest_bits_first(dtype: str, size: int) -> None:
    import ml_dtypes

    array = np.arange(size).astype(np.uint8).view(np.uint8) % 4
    narrow = array.astype(getattr(ml_dtypes, dtype))
    made = TensorProto()
    TensorStore().tensor(Constant.of(narrow), made)
    assert made.raw_data == numpy_helper.from_array(narrow).raw_data
    assert read_tensor(made, Storage(), "here").array.tolist() == narrow.tolist()


def test_negative_narrow_integers() -> None:
    proto = helper.make_tensor("t", TensorProto.INT4, [3], [-8, -1, 7])
    assert read_tensor(proto, Storage(), "here").array.tolist() == [-8, -1, 7]


def test_large_tensors_of_messages_are_checked_when_they_are_read() -> None:
    proto = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=[2**31, 2**31], raw_data=b"\0" * 16)
    constant = read_tensor(proto, Storage(), "here")
    with pytest.raises(InvalidModelError, match="has 16"):
        _ = constant.array


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (TensorProto(data_type=99), "data type 99 is none that we know"),
        (TensorProto(data_type=0), "data type 0"),
        (TensorProto(data_type=1, dims=[2], float_data=[1.0]), "takes 2 elements, the file has 1"),
        (TensorProto(data_type=22, dims=[5], int32_data=[1, 2]), "takes 3 elements, the file has 2"),
        (TensorProto(data_type=14, dims=[1], float_data=[1.0]), "takes 2 elements"),
        (TensorProto(data_type=8, dims=[2], string_data=[b"a"]), "takes 2 elements"),
        (TensorProto(data_type=8, dims=[2], raw_data=b"ab"), "strings cannot be stored as raw bytes"),
        (TensorProto(data_type=1, dims=[1], segment=TensorProto.Segment(begin=0, end=1)), "segments"),
    ],
)
def test_tensors_that_do_not_hold_together(proto: TensorProto, message: str) -> None:
    with pytest.raises(InvalidModelError, match=message):
        read_tensor(proto, Storage(), "here")


def test_sparse_tensors() -> None:
    assert read_sparse(sparse("s"), Storage(), "here").array.tolist() == [[0, 3], [4, 0]]
    wrong = sparse("s")
    wrong.dims[0] = -1
    with pytest.raises(InvalidModelError, match="do not fit"):
        read_sparse(wrong, Storage(), "here")
    wrong.dims[0] = 1
    outside = read_sparse(wrong, Storage(), "here")
    with pytest.raises(InvalidModelError, match="outside"):
        _ = outside.array


def test_a_large_sparse_tensor_is_known_by_what_it_holds() -> None:
    def made(value: float) -> Constant:
        values = numpy_helper.from_array(np.array([value], np.float32), "s")
        at = numpy_helper.from_array(np.array([5], np.int64), "at")
        return read_sparse(helper.make_sparse_tensor(values, at, [2**40]), Storage(), "here")

    assert made(1.0).digest == made(1.0).digest != made(2.0).digest
