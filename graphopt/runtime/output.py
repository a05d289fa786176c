"""Files that are written whole or not at all: what was there before stays until all of the new one is on disk."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from graphopt.errors import ReadError


@contextmanager
def whole(file: Path) -> Iterator[IO[bytes]]:
    """A file to write, which takes its place at the end. Raises ReadError, naming it, where it cannot be written."""
    try:
        with beside(file) as opened:
            yield opened
    except OSError as error:
        raise ReadError(f"{file}: cannot write there ({error.strerror or error})") from None


@contextmanager
def beside(file: Path) -> Iterator[IO[bytes]]:
    """The same, with OSError as it comes."""
    name = file.with_name(f".{file.name}-{secrets.token_hex(8)}")
    opened = open(name, "xb")  # noqa: SIM115  # with the permissions that the user's files have
    try:
        with opened:
            yield opened
        os.replace(name, file)
    except BaseException:
        os.unlink(name)
        raise
