"""Digests of files; those of large files are remembered as long as the files are not written to.

That a file is the same is told as git tells it: by the device and the number that it has there, its size, and the times
of its last write and its last change, none of which are recent. Digests lie in the cache on disk. Apart from
the program cache, its only user, for length.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from graphopt.errors import ReadError, UsageError
from graphopt.runtime import cpu, disk_cache

PIECE = 1 << 22
"""Bytes that are digested at a time. A file of no more than that is digested whenever it is asked for."""
_CODE = "sha256 of pieces, 1"
"""How files are digested: a fixed name, because a digest does not change when this package does."""
_RECENT = 3.0
"""Seconds within which a file may be written to again, and have the same times: those of some file systems are even."""


def stamp_of(path: Path) -> list[int]:
    """What changes when a file does: the device and the number that it has there, its bytes, and when it was last
    written and changed, in nanoseconds. Raises ``OSError`` where there is no such file."""
    status = os.stat(path)
    return [status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def of_file(path: Path) -> str:
    """A digest of a file's content. Raises ``OSError`` where it cannot be read."""
    stamp = stamp_of(path)
    if stamp[2] <= PIECE:
        return _of_content(path)
    with suppress(UsageError):
        remembered = disk_cache.read(_path(stamp))
        if remembered is not None:
            return remembered.decode()
    is_settled = time.time() - max(stamp[3:]) / 1e9 > _RECENT
    digest = _of_content(path)
    if is_settled and stamp_of(path) == stamp:
        _keep(stamp, digest)
    return digest


def remember(path: Path, digest: str) -> None:
    """Take a digest for that of a file which nobody else writes to. Raises ``OSError`` where there is no such file."""
    stamp = stamp_of(path)
    if stamp[2] > PIECE:
        _keep(stamp, digest)


def _keep(stamp: list[int], digest: str) -> None:
    with suppress(ReadError, UsageError):  # then it is worked out again
        disk_cache.write(_path(stamp), digest.encode())


def _path(stamp: list[int]) -> Path:
    return disk_cache.folder("digests") / disk_cache.key(_CODE, str(stamp))


def _of_content(path: Path) -> str:
    """A digest to which all cores contribute."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size

        def piece(start: int) -> bytes:
            return sha256(os.pread(file.fileno(), PIECE, start)).digest()

        with ThreadPoolExecutor(cpu.cores()) as threads:
            return sha256(b"".join(threads.map(piece, range(0, size, PIECE)))).hexdigest()
