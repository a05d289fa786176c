"""External data: files beside a model, read safely.

A model is data from strangers, and the path in it is the stranger's choice. Only regular files
below the model's own folder are read: no absolute path, no ``..``, no link that leads out.
"""

from __future__ import annotations

import mmap
import os
import stat
from dataclasses import field
from pathlib import Path, PurePosixPath, PureWindowsPath

from graphopt.errors import ReadError
from graphopt.frozen import dataclass


@dataclass
class ModelFolder:
    """The folder of a model, and the data files in it that are mapped so far."""

    path: Path
    _open: dict[str, memoryview] = field(default_factory=dict)

    def view(self, location: str, what: str) -> memoryview:
        """The bytes of the data file at ``location``; ``what`` names the reader in errors."""
        if location not in self._open:
            self._open[location] = _map(self.path, location, what)
        return self._open[location]


def _map(folder: Path, location: str, what: str) -> memoryview:
    refused = f"{what}: external data {location!r}"
    parts = PurePosixPath(location).parts
    windows = PureWindowsPath(location)
    if not parts or "\0" in location or ".." in windows.parts or windows.drive or windows.root or parts[0] == "/":
        raise ReadError(f"{refused} is not a path below the model's folder; move the file there")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if os.path.commonpath([root, path]) != root:
        raise ReadError(f"{refused} is a link that leads out of the model's folder; put the file itself there")
    try:
        # not blocking: a pipe must not make us wait; not following: the path was resolved above
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ReadError(f"{refused} cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise ReadError(f"{refused} is not a file")
        if status.st_nlink > 1:
            raise ReadError(f"{refused} is a hard link, which may lead out of the model's folder; copy the file there")
        return memoryview(mmap.mmap(handle, 0, access=mmap.ACCESS_READ)) if status.st_size else memoryview(b"")
    finally:
        os.close(handle)
