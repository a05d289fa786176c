"""State in files: arrays by name, in numpy's files, safetensors, which only this module imports, or models."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import numpy as np

from graphopt.errors import MissingDependencyError, ReadError, UsageError
from graphopt.ir.constants import Array
from graphopt.ir.onnx_io import load


def read_state(place: str | os.PathLike[str]) -> dict[str, Array]:
    """The arrays of a ``.npz`` or ``.safetensors`` file by name, the named initializers of an ``.onnx`` model, or the
    array of a ``.npy`` file, by the file's name.

    Raises UsageError for another kind of file, ReadError where it cannot be read, and MissingDependencyError where
    safetensors is not installed.
    """
    path = Path(place)
    readers = {".npz": _npz, ".npy": _npy, ".safetensors": _safetensors, ".onnx": _initializers}
    if path.suffix not in readers:
        raise UsageError(f"{path}: weights are read from {', '.join(readers)} files, or given as arrays by name")
    try:
        return readers[path.suffix](path)
    except OSError as error:
        raise ReadError(f"{path}: cannot read: {error.strerror or error}") from None


def _npz(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (ValueError, TypeError, EOFError, zipfile.BadZipFile):  # numpy's messages speak of its own options
        raise ReadError(f"{path}: no arrays by name, or a damaged file; write it with numpy.savez") from None


def _npy(path: Path) -> dict[str, Array]:
    try:
        return {path.stem: np.load(path, allow_pickle=False)}
    except (ValueError, EOFError):
        raise ReadError(f"{path}: no array, or a damaged file; write it with numpy.save") from None


def _initializers(path: Path) -> dict[str, Array]:
    graph = load(path)
    values = [v for node in graph.nodes() for v in node.outputs if v in graph.names]
    found = {graph.names[v]: c.array for v in values if (c := graph.constant_of(v)) is not None}
    if not found:
        raise ReadError(f"{path}: the model has no named initializers")
    return found


def _safetensors(path: Path) -> dict[str, Array]:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError:
        raise MissingDependencyError(
            f"{path}: safetensors is not installed, and reads such files: pip install safetensors"
        ) from None
    try:
        return dict(load_file(path))
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ReadError(f"{path}: not a safetensors file, a damaged one, or of dtypes numpy lacks ({error})") from None
