"""Tensors of ONNX as constants and back: nothing is decoded before someone reads it."""

from __future__ import annotations

from math import prod
from pathlib import Path

import ml_dtypes  # gives numpy the names bfloat16, float8_*, int4, ...
import numpy as np
from onnx import SparseTensorProto, TensorProto, numpy_helper

from graphopt.errors import InvalidModelError, LimitError
from graphopt.frozen import dataclass
from graphopt.ir.constants import BITS, Array, Constant
from graphopt.ir.dtypes import DTYPES
from graphopt.ir.external import ModelFolder
from graphopt.ir.graph import Graph
from graphopt.ir.onnx_io import wire
from graphopt.ir.onnx_io.words import check_text

LIST_FIELDS = {
    "float32": "float_data", "complex64": "float_data", "float64": "double_data", "complex128": "double_data",
    "int64": "int64_data", "uint32": "uint64_data", "uint64": "uint64_data", "string": "string_data",
}  # fmt: skip
"""Where a tensor without raw bytes keeps its elements; ``int32_data`` for all other dtypes."""

DENSE_LIMIT = 1 << 30
"""Elements that a sparse tensor may have when it is written out in full."""


@dataclass(frozen=True, eq=False, slots=True)
class Stored:
    """Where a constant comes from: its tensor in the model, and the bytes if they lie elsewhere."""

    tensor: TensorProto | SparseTensorProto
    bytes: memoryview | None = None
    folder: Path | None = None
    """Of a tensor in a file of its own: the model's folder."""
    parts: tuple[Constant, Constant] | None = None
    """Of a sparse tensor: its values and indices."""


@dataclass(frozen=True, slots=True)
class Storage:
    """What a model's tensors may refer to: large tensors taken out of the file, and the model's folder."""

    blobs: list[memoryview] | None = None
    """None where nothing was taken out."""
    folder: ModelFolder | None = None


def numpy_dtype(name: str) -> np.dtype[np.generic]:
    """The numpy dtype by our name; strings are objects."""
    if name == "string":
        return np.dtype(object)
    return np.dtype(getattr(ml_dtypes, name, name))


def read_tensor(tensor: TensorProto, storage: Storage, where: str) -> Constant:
    """The constant that a tensor holds. InvalidModelError where shape and bytes do not fit."""
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None:
        raise InvalidModelError(f"{where}: tensor data type {tensor.data_type} is none that we know")
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape):
        raise InvalidModelError(f"{where}: shape {list(shape)} has a negative dimension")
    if tensor.HasField("segment"):
        raise InvalidModelError(f"{where}: tensor segments are not supported by ONNX any more")
    n_bytes = (prod(shape) * BITS[dtype] + 7) // 8 if dtype != "string" else 0
    if tensor.data_location == TensorProto.EXTERNAL:
        return _read_external(tensor, storage, dtype, shape, n_bytes, where)
    if tensor.HasField("raw_data"):
        if dtype == "string":
            raise InvalidModelError(f"{where}: strings cannot be stored as raw bytes")
        if n_bytes > wire.LARGE and storage.blobs is None:
            # asking for the length would copy the bytes: the length is checked when they are read
            return Constant(
                dtype, shape, lambda: _decode(memoryview(tensor.raw_data), dtype, shape, where), Stored(tensor)
            )
        raw = tensor.raw_data
        blob = wire.marked(raw) if storage.blobs is not None else None
        view = memoryview(raw) if blob is None or storage.blobs is None else storage.blobs[blob]
        _check(len(view), n_bytes, "bytes", shape, dtype, where)
        stored = Stored(tensor, None if blob is None else view)
        return Constant(dtype, shape, lambda: _decode(view, dtype, shape, where), stored)
    stored_elements = getattr(tensor, LIST_FIELDS.get(dtype, "int32_data"))
    wanted = prod(shape) * (2 if dtype.startswith("complex") else 1)
    if BITS.get(dtype, 8) < 6:
        wanted = n_bytes
    _check(len(stored_elements), wanted, "elements", shape, dtype, where)
    if dtype == "string":
        return Constant(dtype, shape, lambda: _decode_strings(tensor, shape), Stored(tensor))
    return Constant(dtype, shape, lambda: np.asarray(numpy_helper.to_array(tensor)), Stored(tensor))


def _check(actual: int, wanted: int, what: str, shape: tuple[int, ...], dtype: str, where: str) -> None:
    if actual != wanted:
        raise InvalidModelError(f"{where}: {dtype}{list(shape)} takes {wanted} {what}, the file has {actual}")


def _decode_strings(tensor: TensorProto, shape: tuple[int, ...]) -> Array:
    array = np.empty(len(tensor.string_data), dtype=object)
    array[:] = [s.decode("utf-8", "surrogateescape") for s in tensor.string_data]
    return array.reshape(shape)


def _decode(raw: memoryview, dtype: str, shape: tuple[int, ...], where: str) -> Array:
    _check(len(raw), (prod(shape) * BITS[dtype] + 7) // 8, "bytes", shape, dtype, where)
    bits, kind = BITS[dtype], numpy_dtype(dtype)
    if bits >= 8:
        return np.frombuffer(raw, dtype=kind.newbyteorder("<") if kind.isbuiltin == 1 else kind).reshape(shape)
    packed = np.unpackbits(np.frombuffer(raw, np.uint8), count=prod(shape) * bits, bitorder="little")
    return np.packbits(packed.reshape(-1, bits), axis=1, bitorder="little").reshape(shape).view(kind)


def _read_external(
    tensor: TensorProto, storage: Storage, dtype: str, shape: tuple[int, ...], n_bytes: int, where: str
) -> Constant:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    check_text(where, location)
    try:
        offset, length = int(entries.get("offset") or 0), int(entries.get("length") or n_bytes)
    except ValueError:
        raise InvalidModelError(f"{where}: offset or length of external data is not a number") from None
    if dtype == "string":
        raise InvalidModelError(f"{where}: strings cannot be stored as external data")
    _check(length, n_bytes, "bytes", shape, dtype, where)
    if storage.folder is None:
        return Constant(dtype, shape, lambda: _refuse(location, where), Stored(tensor))
    file = storage.folder.view(location, where)
    if offset < 0 or offset + length > len(file):
        raise InvalidModelError(
            f"{where}: external data {location!r} has {len(file)} bytes, the tensor wants {offset}..{offset + length}"
        )
    view = file[offset : offset + length]
    return Constant(dtype, shape, lambda: _decode(view, dtype, shape, where), Stored(tensor, view, storage.folder.path))


def _refuse(location: str, where: str) -> Array:
    raise InvalidModelError(
        f"{where}: external data {location!r} cannot be found, for the model was given without its folder; give a path"
    )


def read_sparse(tensor: SparseTensorProto, storage: Storage, where: str) -> Constant:
    """The constant that a sparse tensor stands for, written out in full when it is read."""
    values = read_tensor(tensor.values, storage, where)
    indices = read_tensor(tensor.indices, storage, where)
    shape = tuple(tensor.dims)
    if any(n < 0 for n in shape) or len(values.shape) != 1 or indices.shape[:1] != values.shape:
        raise InvalidModelError(f"{where}: values, indices and dims of the sparse tensor do not fit")

    def dense() -> Array:
        if prod(shape) > DENSE_LIMIT:
            raise LimitError(f"{where}: the sparse tensor has {prod(shape)} elements, at most {DENSE_LIMIT} are read")
        full = np.zeros(shape, numpy_dtype(values.dtype))
        at = indices.array
        try:
            if at.ndim == 1:
                full.reshape(-1)[at] = values.array
            else:
                full[tuple(at.T)] = values.array
        except IndexError:
            raise InvalidModelError(f"{where}: an index of the sparse tensor is outside {list(shape)}") from None
        return full

    return Constant(values.dtype, shape, dense, Stored(tensor, parts=(values, indices)))


def encode(constant: Constant) -> memoryview:
    """The elements as ONNX stores them: little-endian, narrow ones packed, lowest bits first."""
    array = np.ascontiguousarray(constant.array)
    bits = BITS[constant.dtype]
    flat = array.reshape(-1)
    if flat.dtype.isbuiltin == 1:
        flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    octets = flat.view(np.uint8)
    if bits < 8:
        octets = np.packbits(np.unpackbits(octets[:, None], axis=1, count=bits, bitorder="little"), bitorder="little")
    return octets.data.cast("B")


def fill_strings(tensor: TensorProto, constant: Constant) -> None:
    """Put a constant of strings into a tensor."""
    for element in constant.array.flat:
        tensor.string_data.append(
            element if isinstance(element, bytes) else str(element).encode("utf-8", "surrogateescape")
        )


def data_files(graph: Graph) -> list[str]:
    """Where the constants of a graph and of its bodies lie, as the model says it: each file once."""
    files: dict[str, None] = {}
    waiting = [graph]
    while waiting:
        for node in waiting.pop().nodes():
            waiting += node.bodies.values()
            constant = node.attrs.get("value")
            stored = constant.source if isinstance(constant, Constant) else None
            if isinstance(stored, Stored) and isinstance(stored.tensor, TensorProto):
                files.update(dict.fromkeys(e.value for e in stored.tensor.external_data if e.key == "location"))
    return list(files)
