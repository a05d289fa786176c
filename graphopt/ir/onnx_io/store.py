"""Tensor storage of a model that is written: small tensors in place, large ones as marks or in a data file."""

from __future__ import annotations

from pathlib import Path
from posixpath import normpath

from onnx import SparseTensorProto, TensorProto

from graphopt.ir import onnx_io
from graphopt.ir.constants import Constant
from graphopt.ir.dtypes import CODES
from graphopt.ir.onnx_io import wire
from graphopt.ir.onnx_io.tensors import Stored, encode, fill_strings
from graphopt.saving import is_named_by_content

ALIGNMENT = 4096
"""Tensors in a data file start at multiples of a memory page, so that they can be mapped."""


class TensorStore:
    """Takes the bytes of a model's tensors, and says in the messages where they are.

    ``folder`` is where the model will lie under ``name``, and ``data_name`` the data file beside it, empty as long as
    it is not known what will be in it; without a folder tensors that lie in files are put into the model. With
    ``split``, large initializers go into the data file; with ``gather``, those that lie in other files do too.
    """

    def __init__(
        self,
        folder: Path | None = None,
        name: str = "",
        data_name: str = "",
        split: bool = False,
        gather: bool = False,
    ) -> None:
        self.folder = None if folder is None else folder.resolve()
        self.name, self.data_name, self.split, self.gather = name, data_name, split, gather
        self.blobs: list[memoryview] = []
        """The bytes of large tensors, which the messages only mark."""
        self.data: list[bytes | memoryview] = []
        """The pieces of the data file."""
        self.data_size = 0
        self.refers_to_data = False
        """Whether the model reads a data file that was made for a model of that name."""

    def tensor(self, constant: Constant, into: TensorProto, name: str | None = None) -> None:
        """Put a constant into an empty tensor. ``name`` is that of an initializer; None for an attribute."""
        stored = constant.source
        if isinstance(stored, Stored) and isinstance(stored.tensor, TensorProto):
            into.CopyFrom(stored.tensor)
            if stored.bytes is not None:
                self._put_stored(stored, into, name)
            elif self.split and into.HasField("raw_data"):
                self._put(memoryview(into.raw_data), into, name)
        else:
            into.data_type = CODES[constant.dtype]
            into.dims.extend(constant.shape)
            if constant.dtype == "string":
                fill_strings(into, constant)
            else:
                self._put(encode(constant), into, name)
        if name is not None and into.name != name:
            into.name = name

    def _put_stored(self, stored: Stored, into: TensorProto, name: str | None) -> None:
        assert stored.bytes is not None
        if stored.folder is None or self.folder is None:
            del into.external_data[:]
            into.ClearField("data_location")
            self._put(stored.bytes, into, name)
        elif self.gather or stored.folder.resolve() != self.folder:
            self._append(stored.bytes, into)
        elif any(e.key == "location" and self._is_ours(normpath(e.value)) for e in into.external_data):
            self.refers_to_data = True

    def _is_ours(self, file: str) -> bool:
        return file == self.name + onnx_io.DATA or is_named_by_content(file, self.name, onnx_io.DATA)

    def _put(self, raw: memoryview, into: TensorProto, name: str | None) -> None:
        if len(raw) <= wire.LARGE:
            into.raw_data = bytes(raw)
        elif self.split and name is not None:
            self._append(raw, into)
        else:
            into.raw_data = wire.mark(len(self.blobs))
            self.blobs.append(raw)

    def _append(self, raw: memoryview, into: TensorProto) -> None:
        """Put the bytes at the end of the data file."""
        padding = -self.data_size % ALIGNMENT
        self.data += [bytes(padding), raw]
        offset = self.data_size + padding
        self.data_size = offset + len(raw)
        into.ClearField("raw_data")
        del into.external_data[:]
        into.data_location = TensorProto.EXTERNAL
        for key, value in (("location", self.data_name), ("offset", offset), ("length", len(raw))):
            into.external_data.add(key=key, value=str(value))

    def sparse(self, constant: Constant, into: SparseTensorProto, name: str | None = None) -> None:
        """Put a constant that was read from a sparse tensor into one."""
        stored = constant.source
        assert isinstance(stored, Stored)
        assert isinstance(stored.tensor, SparseTensorProto)
        assert stored.parts is not None
        into.dims.extend(stored.tensor.dims)
        self.tensor(stored.parts[0], into.values, name)
        self.tensor(stored.parts[1], into.indices)
