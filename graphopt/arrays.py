"""Arrays in files, as numpy writes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from graphopt.errors import ReadError

SUFFIX = ".npy"


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
