"""Files that are written whole or not at all, however the process ends.

What was there before stays until all of the new one is on disk.

A file is written beside its place, under a random name that nothing can have taken before, and its rename is what
commits it. What lies in several files has one that names the others: those have names of their own, by what is in them,
so that they replace nothing, and the rename of the one that names them commits all. Whoever writes holds a lock on
what it writes, so that a later run knows what killed ones left behind, and removes it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import IO

from graphopt.errors import ReadError

if sys.platform == "win32":

    def flock(handle: int) -> None:
        """Nothing can be locked, and so nothing is taken for left behind."""
        raise OSError("files cannot be locked here")

else:
    import fcntl

    def flock(handle: int) -> None:
        """Lock a file or folder for this process. Raises OSError where another one has it locked."""
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


_RANDOM = 8
"""Bytes of a random name."""
_DIGEST = 16
"""Hexadecimal digits of a name by content."""
_FOLDER = ".graphopt."


@contextmanager
def whole(file: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its place at the end. Raises ReadError, naming it, where it cannot be written."""
    try:
        with beside(file) as opened:
            yield opened
    except OSError as error:
        raise ReadError(f"{file}: cannot write there ({error.strerror or error})") from None


@contextmanager
def beside(file: Path, durable: bool = True, private: bool = False) -> Iterator[IO[bytes]]:
    """The same, with OSError as it comes. Not ``durable``: a crash of the system may lose it, which is for caches that
    check what they read. ``private``: for its user alone."""
    with _opened(file, private) as (opened, name):
        yield opened
        opened.flush()
        if durable:
            os.fsync(opened.fileno())
        os.replace(name, file)
        if durable:
            sync(file.parent)


def write_files(files: Mapping[Path, Iterable[bytes | memoryview]]) -> None:
    """Write files, each of the pieces given for it; the last one is that which names the others.

    All go to disk under other names first and then take their places, in order. Raises ReadError where that fails.
    """
    path = None
    try:
        with ExitStack() as stack:
            names: dict[Path, Path] = {}
            for path, pieces in files.items():
                opened, names[path] = stack.enter_context(_opened(path))
                opened.writelines(pieces)
                opened.flush()
                os.fsync(opened.fileno())
            for path, name in names.items():
                os.replace(name, path)
                sync(path.parent)  # each is there for good before the next one relies on it
    except OSError as error:
        raise ReadError(f"{path}: cannot write there ({error.strerror})") from None


def take_places(files: Mapping[Path, Path]) -> None:
    """Put files, which are complete, in the places given for them, in order; the last one names the others."""
    for file in files:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
    for file, place in files.items():
        os.replace(file, place)
        sync(place.parent)


def name_by_content(name: str, pieces: Iterable[bytes | memoryview], suffix: str) -> str:
    """A file name that says what is in the file: that of the file it belongs to, with a digest."""
    state = sha256()
    for piece in pieces:
        state.update(piece)
    return f"{name}.{state.hexdigest()[:_DIGEST]}{suffix}"


def is_named_by_content(file: str, name: str, suffix: str) -> bool:
    """Whether a file name is one that ``name_by_content`` gives."""
    return re.fullmatch(re.escape(name) + rf"\.[0-9a-f]{{{_DIGEST}}}" + re.escape(suffix), file) is not None


@contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """An empty folder within another, gone at the end; so are those that killed runs have left there."""
    for old in _found(folder, re.escape(_FOLDER)):
        _drop_if_left(old)
    while True:
        made = folder / f"{_FOLDER}{secrets.token_hex(_RANDOM)}"
        made.mkdir(mode=0o700)
        handle = os.open(made, os.O_RDONLY)
        if _locked(handle):
            break
        os.close(handle)
    try:
        yield made
    finally:
        os.close(handle)
        shutil.rmtree(made, ignore_errors=True)


@contextmanager
def _opened(file: Path, private: bool = False) -> Iterator[tuple[IO[bytes], Path]]:
    """A new file beside another, locked, and its name; gone at the end, if it still has that name."""
    for old in _found(file.parent, re.escape(f".{file.name}-")):
        _drop_if_left(old)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    while True:
        name = file.with_name(f".{file.name}-{secrets.token_hex(_RANDOM)}")
        handle = os.open(name, flags, 0o600 if private else 0o666)  # else the permissions that the user's files have
        if _locked(handle):
            break
        os.close(handle)
    try:
        with open(handle, "wb") as opened:
            yield opened, name
    finally:
        name.unlink(missing_ok=True)


def _locked(handle: int) -> bool:
    """Whether what was just made is ours: another process may take it for left behind until it is locked."""
    with suppress(OSError):  # where nothing can be locked, nothing is removed either
        flock(handle)
    return os.fstat(handle).st_nlink > 0


def _found(folder: Path, start: str) -> list[Path]:
    """What has a random name in a folder."""
    with suppress(OSError):
        return [
            folder / name for name in os.listdir(folder) if re.fullmatch(rf"{start}[0-9a-f]{{{2 * _RANDOM}}}", name)
        ]
    return []


def _drop_if_left(place: Path) -> None:
    """Remove what a killed run has left: nobody holds a lock on it."""
    with suppress(OSError):
        handle = os.open(place, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        try:
            flock(handle)
            if place.is_dir():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink()
        finally:
            os.close(handle)


def sync(folder: Path) -> None:
    """Have the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
