"""Folder that is served: its models and rule files, which are only read, and uploaded models, which are deleted with
the server.

A file is found by its name in the list, never by a path, so that no name leads out of the folder.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

from graphopt.errors import ReadError, UsageError

MODELS, RULES = ".onnx", ".rules"
MOST: Final = 1000
"""Files of a kind that are listed."""
KEPT: Final = 8
"""Uploads that are kept; the oldest goes."""
UPLOADED: Final = "uploaded: "


@dataclass(frozen=True, slots=True)
class Served:
    """A file that can be asked for by name."""

    name: str
    path: Path
    bytes: int


class ServedFolder:
    """A folder of models and rules, and a folder of the server's own for uploads."""

    def __init__(self, root: Path, scratch: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"{root}: is no folder; graphopt serve takes a folder of models")
        self.root, self.scratch = root.resolve(), scratch
        self._uploads: dict[str, Served] = {}

    def models(self) -> list[Served]:
        """The models that are there now, by name, and then those that were uploaded."""
        return [*islice(self._files(MODELS), MOST), *self._uploads.values()]

    def rules(self) -> list[Served]:
        """The files of rules that are there now, by name."""
        return list(islice(self._files(RULES), MOST))

    def find(self, name: str, kind: str = MODELS) -> Served:
        """The model, or the file of rules, of a name. ReadError where none has it."""
        for served in self.models() if kind == MODELS else self.rules():
            if served.name == name:
                return served
        raise ReadError(f"no {'model is' if kind == MODELS else 'rules are'} called {name!r} here")

    def _files(self, kind: str) -> Iterator[Served]:
        for parent, folders, files in os.walk(self.root):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for file in sorted(files):
                path = Path(parent) / file
                if file.endswith(kind) and (size := self._size(path)) is not None:
                    # a name need not be text: what is none is shown as its bytes
                    name = path.relative_to(self.root).as_posix().encode("utf-8", "backslashreplace").decode()
                    yield Served(name, path, size)

    def _size(self, path: Path) -> int | None:
        """The bytes of a file of this folder; None for what is none, and for a link out of it."""
        try:
            whole = path.resolve(strict=True)
            return whole.stat().st_size if whole.is_relative_to(self.root) and whole.is_file() else None
        except (OSError, RuntimeError):
            return None

    def place(self) -> Path:
        """Where an upload may be written, under a name of our own."""
        return self.scratch / f"{secrets.token_hex(8)}{MODELS}"

    def take(self, label: str, path: Path) -> str:
        """Serve an uploaded file; the name comes back under which it is, the label with a number where it is taken."""
        plain = "".join(c if c.isprintable() else "?" for c in label)[:120] or "model"
        name, number = f"{UPLOADED}{plain}", 1
        while name in self._uploads:
            number += 1
            name = f"{UPLOADED}{plain} ({number})"
        self._uploads[name] = Served(name, path, path.stat().st_size)
        while len(self._uploads) > KEPT:
            self._uploads.pop(next(iter(self._uploads))).path.unlink(missing_ok=True)
        return name
