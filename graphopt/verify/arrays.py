"""Arrays: in ``.npy`` files, and the names of their types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias
from zipfile import BadZipFile

import numpy as np

from graphopt.errors import ReadError, UsageError

SUFFIX, ARCHIVE = ".npy", ".npz"


def read_array(path: str | Path) -> np.ndarray[Any, Any]:
    """The array in a ``.npy`` file. Raises ReadError where there is none, or several."""
    try:
        array = np.load(path, allow_pickle=False)
    except OSError as error:
        raise ReadError(f"{path}: cannot read: {error.strerror or error}") from None
    except (ValueError, EOFError):  # numpy's messages speak of its own options
        raise ReadError(f"{path}: not an array of numbers, or a damaged one; write it with numpy.save") from None
    if not isinstance(array, np.ndarray):
        raise ReadError(f"{path}: holds several arrays; write one array with numpy.save")
    return array


Samples: TypeAlias = "Iterator[tuple[str, dict[str, np.ndarray[Any, Any]]]]"
"""Inputs by name for one run after another, each with the name of the file or folder that they are from."""


def read_samples(path: str | Path) -> Samples:
    """The samples in a ``.npz`` file (one, its arrays by the names of inputs), in a folder of such files (one each, in
    order of name), or in a folder of ``.npy`` files (one, each by the name of its input).

    Raises ReadError where there are none.
    """
    path = Path(path)
    if path.is_file() and path.suffix == ARCHIVE:
        yield path.name, _archive(path)
        return
    archives = sorted(path.glob(f"*{ARCHIVE}"))
    arrays = sorted(path.glob(f"*{SUFFIX}"))
    if not archives and not arrays:
        what = "is neither a folder nor a file of arrays" if not path.is_dir() else "holds no arrays"
        raise ReadError(f"{path}: {what}; expected {ARCHIVE} files, or {SUFFIX} files that are called as inputs are")
    for archive in archives:
        yield archive.name, _archive(archive)
    if not archives:
        yield path.name, {array.stem: read_array(array) for array in arrays}


def _archive(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise ReadError(f"{path}: cannot read: {error.strerror or error}") from None
    except (ValueError, EOFError, BadZipFile, AttributeError):
        raise ReadError(f"{path}: holds no arrays of numbers, or is damaged; write it with numpy.savez") from None


def filled(array: Any, how: str) -> np.ndarray[Any, Any]:
    """An array of that shape and dtype that holds ``ones``, ``zeros``, or 0, 1, 2, … row by row (``arange``)."""
    if how == "arange":
        return np.arange(array.size).reshape(array.shape).astype(array.dtype)
    if how not in ("ones", "zeros"):
        raise UsageError(f"inputs are filled with random numbers, ones, zeros or arange, not {how!r}")
    return np.full(array.shape, how == "ones", array.dtype)


def type_name(array: np.ndarray[Any, Any]) -> str:
    """The dtype and shape, as in messages."""
    return f"{dtype_name(array)}{list(array.shape)}"


def dtype_name(array: np.ndarray[Any, Any]) -> str:
    """ONNX's dtype of an array's elements."""
    return "string" if array.dtype.kind in "OUS" else array.dtype.name


def comparable(value: Any) -> Any:
    """A value of a model as arrays, and lists of them: a sequence of maps as how many labels each has, the labels and
    the numbers, so that these are compared as a tensor's are."""
    if not isinstance(value, list | tuple) or not value or not all(isinstance(each, dict) for each in value):
        return value
    labels = [key for each in value for key in each]
    dtype = object if any(isinstance(key, str) for key in labels) else np.int64
    found = [number for each in value for number in each.values()]
    numbers = np.array(found) if any(isinstance(n, np.generic) for n in found) else np.array(found, np.float32)
    return [np.array([len(each) for each in value]), np.array(labels, dtype), numbers]
