"""Atomic writes: files that are written whole or not at all, however the process ends.

What was there before stays until all of the new one is on disk.

A file is written beside its place, under a random name that nothing can have taken before, and its rename is what
commits it. What lies in several files has one that names the others: those have names of their own, by what is in them,
so that they replace nothing, and the rename of the one that names them commits all. Whoever writes holds a lock on
what it writes, so that a later run knows what killed ones left behind, and removes it. A link is written through: what
it leads to is replaced, and not the link.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import IO

from graphopt.errors import ReadError

if sys.platform == "win32":

    def flock(handle: int, wait: bool = False) -> None:
        """Nothing can be locked, and so nothing is taken for left behind."""
        raise OSError("files cannot be locked here")

    def unlock(handle: int) -> None:
        """Nothing is locked."""

else:
    import fcntl

    def flock(handle: int, wait: bool = False) -> None:
        """Lock a file or folder for this process. Raises OSError where another one has it locked, unless that is to be
        waited for."""
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))

    def unlock(handle: int) -> None:
        """Give a lock back, also where a process that was forked meanwhile has the handle, too."""
        fcntl.flock(handle, fcntl.LOCK_UN)


_RANDOM = 8
"""Bytes of a random name."""
_DIGEST = 16
"""Hexadecimal digits of a name by content."""
_FOLDER = ".graphopt."
_HEXADECIMAL = rf"[0-9a-f]{{{2 * _RANDOM}}}"


@contextmanager
def whole(file: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its place at the end. Raises ReadError, naming it, where it cannot be written."""
    try:
        with beside(real(file)) as opened:
            yield opened
    except OSError as error:
        raise ReadError(f"{file}: cannot write there ({error.strerror or error})") from None


@contextmanager
def beside(file: Path, durable: bool = True, private: bool = False) -> Iterator[IO[bytes]]:
    """The same, with OSError as it comes. Not ``durable``: a crash of the system may lose it, which is for caches that
    check what they read. ``private``: for its user alone."""
    with _opened(file, file.name, private) as (opened, name):
        yield opened
        opened.flush()
        if durable:
            os.fsync(opened.fileno())
        os.replace(name, file)
        if durable:
            sync(file.parent)


def real(file: Path) -> Path:
    """The file that a path leads to by links, if any."""
    return Path(os.path.realpath(file)) if file.is_symlink() else file


def write_files(
    files: Mapping[Path, Iterable[bytes | memoryview]],
    unused: Callable[[], Iterable[Path]] = tuple,
    durable: bool = True,
) -> None:
    """Write files, each of the pieces given for it; the last one is that which names the others.

    Not ``durable``: a crash of the system may lose them.

    All go to disk under other names first, after that of the last one, and then take their places, in order; what is
    ``unused`` then goes. Raises ReadError where that fails.
    """
    _write(files, lambda names: _commit(names, unused, durable), durable)


def _write(
    files: Mapping[Path, Iterable[bytes | memoryview]],
    commit: Callable[[Mapping[Path, Path]], None],
    durable: bool = True,
) -> None:
    path = None
    *_, last = files
    try:
        with ExitStack() as stack:
            names: dict[Path, Path] = {}
            for path, pieces in files.items():
                opened, names[path] = stack.enter_context(_opened(path, last.name))
                opened.writelines(pieces)
                opened.flush()
                if durable:
                    os.fsync(opened.fileno())
            commit({name: path for path, name in names.items()})
    except OSError as error:
        raise ReadError(f"{path}: cannot write there ({error.strerror})") from None


def _put(files: Mapping[Path, Path], durable: bool = True) -> None:
    """Put files in their places, in order."""
    for file, path in files.items():
        os.replace(file, path)
        if durable:
            sync(path.parent)  # each is there for good before the next one relies on it


def _commit(files: Mapping[Path, Path], unused: Callable[[], Iterable[Path]], durable: bool = True) -> None:
    """The same while nobody else does so in that folder; what is unused then goes, where that is certain.

    Until then the one that is replaced has a random name, too, by which a later run knows what it named.
    """
    *_, last = files.values()
    with _alone(last.parent) as is_alone:
        before = last.with_name(f".{last.name}-{secrets.token_hex(_RANDOM)}")
        with suppress(OSError):  # nothing is there, or files have one name each on this disk
            os.link(last, before)
        try:
            _put(files, durable)
            for path in unused() if is_alone else ():
                with suppress(OSError):
                    path.unlink()
        finally:
            before.unlink(missing_ok=True)


def left_beside(file: Path) -> list[Path]:
    """What a file was or was to be: the names that it has while it is written, by runs that were killed or go on."""
    within: list[Path] = []
    for folder in _found(file.parent, re.escape(_FOLDER)):
        with suppress(FileNotFoundError):  # whoever wrote there is done by now
            within += folder.glob(f"*/{escape(file.name)}")
    return [*_found(file.parent, re.escape(f".{file.name}-")), *within]


def write_folder(
    folder: Path, files: Mapping[str, Iterable[bytes | memoryview]], is_part: Callable[[str], bool]
) -> None:
    """Write files into a folder, which is made where it is missing; the last one names the others, which have names by
    content.

    What else ``is_part`` of such files goes afterwards: nothing names it any more, or a run was killed before anything
    did. Whoever writes into the same folder waits. Raises ReadError where that fails.
    """
    is_new = not folder.exists()
    try:
        with _turn(folder) as is_alone:
            try:
                _write({folder / name: pieces for name, pieces in files.items()}, _put)
            except ReadError:
                if is_new and is_alone:
                    with suppress(OSError):
                        folder.rmdir()
                raise
            if is_new:
                with suppress(PermissionError):  # who may write into a folder may not always read it
                    sync(folder.parent)
            for name in os.listdir(folder) if is_alone else ():
                if name not in files and is_part(name):
                    with suppress(OSError):  # all is written; the next save tries again
                        (folder / name).unlink()
    except OSError as error:
        raise ReadError(f"{folder}: cannot write there ({error.strerror})") from None


def take_places(files: Mapping[Path, Path], unused: Callable[[], Iterable[Path]] = tuple) -> None:
    """Put files, which are complete, in the places given for them, in order; the last one names the others. What is
    ``unused`` then goes."""
    for file in files:
        with open(file, "rb") as opened:
            os.fsync(opened.fileno())
    _commit(files, unused)


def name_by_content(name: str, pieces: Iterable[bytes | memoryview], suffix: str) -> str:
    """A file name that says what is in the file: that of the file it belongs to, with a digest."""
    state = sha256()
    for piece in pieces:
        state.update(piece)
    return f"{name}.{state.hexdigest()[:_DIGEST]}{suffix}"


def is_named_by_content(file: str, name: str, suffix: str) -> bool:
    """Whether a file name is one that ``name_by_content`` gives."""
    return re.fullmatch(re.escape(name) + rf"\.[0-9a-f]{{{_DIGEST}}}" + re.escape(suffix), file) is not None


def is_left_beside(file: str, name: str) -> bool:
    """Whether a file name is one that a file of another name has while it is written: a killed run left it."""
    return re.fullmatch(re.escape(f".{name}-") + _HEXADECIMAL, file) is not None


@contextmanager
def folder_beside(folder: Path) -> Iterator[Path]:
    """An empty folder within another, gone at the end; so are those that killed runs have left there."""
    for old in _found(folder, re.escape(_FOLDER)):
        _drop_if_left(old)
    while True:
        new = folder / f"{_FOLDER}{secrets.token_hex(_RANDOM)}"
        new.mkdir(mode=0o700)
        try:
            handle = os.open(new, os.O_RDONLY)
        except FileNotFoundError:  # another process took it for left behind, as below
            continue
        if _locked(handle):
            break
        os.close(handle)
    try:
        yield new
    finally:
        os.close(handle)
        shutil.rmtree(new, ignore_errors=True)


@contextmanager
def _turn(folder: Path) -> Iterator[bool]:
    """A folder, which is made where it is missing, and in which nobody else is at work; whether that is known."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder) as is_alone:
            if folder.exists():  # else the one who had it has removed it
                yield is_alone
                return


@contextmanager
def _alone(folder: Path) -> Iterator[bool]:
    """The lock of a folder, which is waited for; whether there is one."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        is_alone = False
        with suppress(OSError):
            flock(handle, wait=True)
            is_alone = True
        yield is_alone
    finally:
        with suppress(OSError):
            unlock(handle)
        os.close(handle)


@contextmanager
def _opened(file: Path, owner: str, private: bool = False) -> Iterator[tuple[IO[bytes], Path]]:
    """A new file beside another, locked, and its name, after that of the file that it is committed with; gone at the
    end, if it still has that name."""
    for old in _found(file.parent, re.escape(f".{owner}-")):
        _drop_if_left(old)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    while True:
        name = file.with_name(f".{owner}-{secrets.token_hex(_RANDOM)}")
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
    try:
        flock(handle)
    except (BlockingIOError, PermissionError):  # it has, and is about to remove it
        return False
    except OSError:  # where nothing can be locked, nothing is removed either
        pass
    return os.fstat(handle).st_nlink > 0


def _found(folder: Path, start: str) -> list[Path]:
    """What has a random name in a folder."""
    with suppress(OSError):
        return [folder / name for name in os.listdir(folder) if re.fullmatch(start + _HEXADECIMAL, name)]
    return []


def _drop_if_left(path: Path) -> None:
    """Remove what a killed run has left: nobody holds a lock on it."""
    with suppress(OSError):
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
        try:
            flock(handle)
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()
        finally:
            os.close(handle)


def sync(folder: Path) -> None:
    """Have the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
