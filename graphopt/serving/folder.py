"""The models that are served: those of one folder, which is only read, and those that were uploaded, which go with the
server.

A model is found by its name in the list, never by a path, so that no name leads out of the folder.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from graphopt.errors import ReadError, UsageError

MOST: Final = 1000
"""Models that are listed."""
KEPT: Final = 8
"""Uploads that are kept; the oldest goes."""
UPLOADED: Final = "uploaded: "


@dataclass(frozen=True, slots=True)
class Served:
    """A model that can be asked for by name."""

    name: str
    path: Path
    bytes: int


class Folder:
    """A folder of models, and a folder of the server's own for uploads."""

    def __init__(self, root: Path, scratch: Path) -> None:
        if not root.is_dir():
            raise UsageError(f"{root}: is no folder; graphopt serve takes a folder of models")
        self.root, self.scratch = root.resolve(), scratch
        self._uploads: dict[str, Path] = {}

    def models(self) -> list[Served]:
        """The models that are there now, by name."""
        found = {name: Served(name, path, path.stat().st_size) for name, path in self._files()}
        found |= {name: Served(name, path, path.stat().st_size) for name, path in self._uploads.items()}
        return list(found.values())

    def find(self, name: str) -> Path:
        """The file of a model. ReadError where no model has that name."""
        for model in self.models():
            if model.name == name:
                return model.path
        raise ReadError(f"no model is called {name!r} here")

    def _files(self) -> Iterator[tuple[str, Path]]:
        count = 0
        for place, folders, files in os.walk(self.root):
            folders[:] = sorted(f for f in folders if not f.startswith("."))
            for file in sorted(files):
                path = Path(place) / file
                if not file.endswith(".onnx") or not self._is_inside(path):
                    continue
                count += 1
                if count > MOST:
                    return
                # a name need not be text: what is none is shown as its bytes
                name = path.relative_to(self.root).as_posix().encode("utf-8", "backslashreplace").decode()
                yield name, path

    def _is_inside(self, path: Path) -> bool:
        """Whether a path is a file of this folder, and no link out of it."""
        try:
            return path.resolve(strict=True).is_relative_to(self.root) and path.is_file()
        except (OSError, RuntimeError):
            return False

    def place(self) -> Path:
        """Where an upload may be written, under a name of our own."""
        return self.scratch / f"{secrets.token_hex(8)}.onnx"

    def take(self, label: str, path: Path) -> str:
        """Serve an uploaded file; the name comes back under which it is, the label with a number where it is taken."""
        plain = "".join(c if c.isprintable() else "?" for c in label)[:120] or "model"
        name, number = f"{UPLOADED}{plain}", 1
        while name in self._uploads:
            number += 1
            name = f"{UPLOADED}{plain} ({number})"
        self._uploads[name] = path
        while len(self._uploads) > KEPT:
            self._uploads.pop(next(iter(self._uploads))).unlink(missing_ok=True)
        return name
