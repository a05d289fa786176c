"""The cache on disk, of which all that graphopt keeps between runs is a folder: made code, programs, rules, verdicts.

What lies there can be made again, so it may be deleted at any time. Only its user may touch it, as some of it is run.
Each entry is named by a digest of all that it depends on, so that nothing stale is ever found, and what was used
longest ago goes where a folder takes more bytes than it should.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

from graphopt.errors import ReadError, UsageError
from graphopt.saving import beside

VARIABLE = "GRAPHOPT_CACHE"
"""The environment variable that names another folder than the user's own cache folder."""


def folder(name: str) -> Path:
    """The folder of that name, made where it is missing; raises ``UsageError`` where others may write or read it."""
    place = _root() / name
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = place.lstat()
    except OSError as error:
        raise UsageError(
            f"the folder {place} for what is kept cannot be made: {error.strerror}; set {VARIABLE} to another"
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"the folder {place} for what is kept must be this user's alone (mode 0700): code that lies there is run; "
            f"chmod 700 it, or set {VARIABLE} to another"
        )
    return place


def _root() -> Path:
    if VARIABLE in os.environ:
        return Path(os.environ[VARIABLE]).absolute()
    from platformdirs import user_cache_path

    return user_cache_path("graphopt")


def digest_of(sources: Iterable[Path], packages: Iterable[str] = ()) -> str:
    """A digest of what is in source files, of folders all below them, and of the versions of packages.

    Raises ``ReadError`` where a source is not there: a key that left it out would call what is stale current. Raises
    ``PackageNotFoundError`` where a package is not.
    """
    state = sha256()
    for source in sources:
        files = sorted(source.rglob("*.py")) if source.is_dir() else [source]
        try:
            contents = [file.read_bytes() for file in files]
        except OSError:
            contents = []
        if not contents:
            raise ReadError(f"{source}: a part of graphopt is not there; install it again")
        for file, content in zip(files, contents, strict=True):
            state.update(f"{file.name} {len(content)}\n".encode() + content)
    for package in packages:
        state.update(f"{package} {version(package)}\n".encode())
    return state.hexdigest()


def use(place: Path) -> None:
    """Note that a file is of use."""
    with suppress(OSError):
        os.utime(place)


def prune(folder: Path, most: int) -> None:
    """Drop the files and folders within a folder that were used longest ago, until no more than so many bytes are
    left."""
    found = []
    for place in folder.iterdir():
        with suppress(OSError):  # another process may be dropping it too
            inside = place.iterdir() if place.is_dir() else (place,)
            found.append((place.stat().st_mtime_ns, sum(f.stat().st_size for f in inside), place))
    total = sum(size for _, size, _ in found)
    for _, size, place in sorted(found):
        if total <= most:
            return
        drop(place)
        total -= size


def drop(place: Path) -> None:
    """Remove what lies in a place, whatever it is."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.unlink(missing_ok=True)


def write(place: Path, content: bytes) -> None:
    """Write a file as a whole; raises ``ReadError`` where it cannot be."""
    try:
        with beside(place, durable=False, private=True) as file:
            file.write(content)
    except OSError as error:
        raise ReadError(
            f"{place} cannot be written: {error.strerror}; set {VARIABLE} to a folder where there is room"
        ) from None
