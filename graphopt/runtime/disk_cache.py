"""Store on disk of what is made once and used by later runs: kernels, programs, parsed rules, verdicts and the like.

Every kind of entry has a folder, and every entry is named by a digest of all that it depends on: what it is made of,
the code that makes it, packages and the processor. So nothing stale is ever found. All of it can be made again, so it
may be deleted at any time; what was used longest ago goes where all entries together take more than ``LIMIT`` bytes.
Only its user may touch it, as some of it is run. What was measured is no cache: ``calibration/measured_file.py``.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from graphopt.errors import ReadError, UsageError
from graphopt.runtime import cpu
from graphopt.saving import beside, folder_beside

VARIABLE = "GRAPHOPT_CACHE"
"""The environment variable that names another folder than the user's own cache folder."""
LIMIT = 1 << 32
"""Bytes that all entries take at most, more or less: they are counted once in a while."""

Kind: TypeAlias = Literal["digests", "kernels", "oracles", "programs", "rules", "verdicts"]
"""The folders of entries."""

_MARK = b"graphopt entry 1\n"
"""How a file begins whose checksum and content follow."""
_SOURCES = re.compile(r".*\.(py|lark|rules|toml)")
"""The names of files that are the code of a folder."""
_WHILE = 3600.0
"""Seconds after which entries are counted again,"""
_LARGE = 1 << 26
"""and bytes of an entry for which they are counted at once."""


# -- where entries are, and what they are called


def folder(name: Kind | Literal["locks"]) -> Path:
    """The folder of that name, made where it is missing; one for this process alone where the cache cannot be written.
    Raises ``UsageError`` where others may write or read it."""
    path = root() / name
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_private = _is_private(path)
    except OSError:
        return _folder_without(name)
    if is_private and not os.access(path, os.W_OK):
        return _folder_without(name)
    if not is_private:
        raise UsageError(
            f"the cache folder {path} must be this user's alone (mode 0700): code that lies there is run; "
            f"chmod 700 it, or set {VARIABLE} to another"
        )
    return path


def _folder_without(name: str) -> Path:
    """The folder of that name where nothing is kept."""
    path = _for_this_process(os.getpid()) / name
    path.mkdir(mode=0o700, exist_ok=True)
    return path


@cache
def _for_this_process(process: int) -> Path:
    """A folder that goes when the process ends, or with the next one where it is killed."""
    stack = ExitStack()
    path = stack.enter_context(folder_beside(Path(tempfile.gettempdir())))
    atexit.register(lambda: stack.close() if os.getpid() == process else None)
    return path


def _is_private(path: Path) -> bool:
    """Whether it is a folder that nobody else may write or read. Raises ``OSError`` where nothing is there."""
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & 0o077


def root() -> Path:
    """The folder of the cache, which need not be there. Raises ``UsageError`` where its name is empty."""
    if VARIABLE in os.environ:
        if not os.environ[VARIABLE]:
            raise UsageError(f"{VARIABLE} is empty: name a folder, or unset it")
        return Path(os.environ[VARIABLE]).absolute()
    return _root_by(os.environ.get("HOME"), os.environ.get("XDG_CACHE_HOME"))


@cache
def _root_by(*_: str | None) -> Path:
    """The folder that the system has for it, where environment variables that may say so have these values."""
    from platformdirs import user_cache_path

    return user_cache_path("graphopt")


def key(code: str, *contents: str | bytes) -> str:
    """The name of an entry: a digest of what it is made of and of the code that makes it (``digest_of_code``)."""
    state = sha256(code.encode())
    for content in contents:
        data = content.encode() if isinstance(content, str) else content
        state.update(b"\n%d\n" % len(data) + data)
    return state.hexdigest()[:40]


def digest_of_code(sources: Iterable[Path], packages: Iterable[str] = (), *, is_native: bool = False) -> str:
    """A digest of source files and of those in folders all below, of the versions of packages and of Python, and, where
    what they make is native code, of the processor.

    Raises ``ReadError`` where a source is not there: a key that left it out would call what is stale current. Raises
    ``PackageNotFoundError`` where a package is not.
    """
    state = sha256(sys.version.encode())
    for source in sources:
        files = sorted(f for f in source.rglob("*") if _SOURCES.fullmatch(f.name)) if source.is_dir() else [source]
        try:
            contents = [file.read_bytes() for file in files]
        except OSError:
            contents = []
        if not contents:
            raise ReadError(f"{source}: a part of graphopt is not there; install it again")
        for file, content in zip(files, contents, strict=True):
            state.update(f"{file.relative_to(source.parent)} {len(content)}\n".encode() + content)
    for package in packages:
        state.update(f"{package} {version(package)}\n".encode())
    if is_native:
        state.update(f"{cpu.level() or cpu.name()} {' '.join(sorted(cpu.features()))}".encode())
    return state.hexdigest()


# -- what is in them


def read(path: Path) -> bytes | None:
    """What ``write`` wrote into a file, which is of use now; None where there is nothing, or it is damaged."""
    try:
        stored = path.read_bytes()
    except OSError:
        return None
    start = len(_MARK) + 32
    content = stored[start:]
    if stored[:start] != _MARK + sha256(content).digest():
        return None
    use(path)
    return content


def write(path: Path, content: bytes) -> None:
    """Write a file as a whole, with a checksum; raises ``ReadError`` where it cannot be."""
    write_plain(path, _MARK + sha256(content).digest() + content)


def write_plain(path: Path, content: bytes) -> None:
    """The same without a checksum, for what others are to read."""
    try:
        with beside(path, durable=False, private=True) as file:
            file.write(content)
    except OSError as error:
        raise ReadError(
            f"{path} cannot be written: {error.strerror}; set {VARIABLE} to a folder where there is room"
        ) from None
    _make_room(len(content))


@contextmanager
def new_folder(path: Path, mark: str) -> Iterator[Path]:
    """An empty folder to fill, which takes its place at the end unless another process was quicker; what lies there
    without a file ``mark`` was not complete. Raises ``OSError`` where it cannot be made."""
    with folder_beside(path.parent) as above:
        new = above / path.name
        new.mkdir(mode=0o700)
        yield new
        size = _size(new)
        if not (path / mark).exists():
            drop(path)
        try:
            new.rename(path)
        except OSError:
            if not (path / mark).exists():
                raise
    _make_room(size)


def use(path: Path) -> None:
    """Note that an entry is of use."""
    with suppress(OSError):
        os.utime(path)


# -- what goes


def _make_room(size: int) -> None:
    """Clean up behind an entry of so many bytes, where it is large or nobody looked lately."""
    counted = root() / "counted"
    with suppress(OSError):
        if size < _LARGE and counted.exists() and abs(time.time() - counted.stat().st_mtime) < _WHILE:
            return
        counted.touch(mode=0o600)
        clean_up()


def clean_up() -> None:
    """Drop the entries that were used longest ago, of whatever kind, until no more than ``LIMIT`` bytes are left."""
    entries = []
    for kind in get_args(Kind):
        with suppress(OSError):  # there is no such folder
            for path in (root() / kind).iterdir() if _is_private(root() / kind) else ():
                with suppress(OSError):  # another process may be dropping it too
                    entries.append((path.stat().st_mtime_ns, _size(path), path))
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries):
        if total <= LIMIT:
            return
        drop(path)
        total -= size


def _size(path: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    return sum(f.stat().st_size for f in path.rglob("*")) if path.is_dir() else path.stat().st_size


def drop(path: Path) -> None:
    """Remove an entry, whatever it is."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
