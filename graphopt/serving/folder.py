"""Folder that is served: its models and rule files, which are only read, and uploaded models and results of runs, which
are deleted with the server.

A file is found by its name in the list, never by a path, so that no name leads out of the folder.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from shutil import rmtree
from typing import Final

from graphopt.errors import ReadError, UsageError
from graphopt.frozen import dataclass

MODELS, RULES, PYTHON = ".onnx", ".rules", ".py"
MOST: Final = 1000
"""Files of a kind that are listed."""
KEPT: Final = 8
"""Uploads that are kept, and results; the oldest goes."""
UPLOADED: Final = "uploaded: "


@dataclass(frozen=True, slots=True)
class Served:
    """A file that can be asked for by name."""

    name: str
    path: Path
    bytes: int


class ServedFolder:
    """A folder of models and rules, those in Python only where ``code`` says so, and a folder of the server's own for
    uploads and results."""

    def __init__(self, root: Path, scratch: Path, code: bool = False) -> None:
        if not root.is_dir():
            raise UsageError(f"{root}: is no folder; graphopt serve takes a folder of models")
        self.root, self.scratch, self.code = root.resolve(), scratch, code
        self._uploads: dict[str, Served] = {}
        self._results: dict[str, Path] = {}

    def models(self) -> list[Served]:
        """The models that are there now, by name, and then those that were uploaded."""
        return [*islice(self._files(MODELS), MOST), *self._uploads.values()]

    def rules(self) -> list[Served]:
        """The files of rules that are there now, by name."""
        return list(islice(self._files((RULES, PYTHON) if self.code else RULES), MOST))

    def find(self, name: str, kind: str = MODELS) -> Served:
        """The model, or the file of rules, of a name. ReadError where none has it."""
        for served in self.models() if kind == MODELS else self.rules():
            if served.name == name:
                return served
        raise ReadError(f"no {'model is' if kind == MODELS else 'rules are'} called {name!r} here")

    def _files(self, kind: str | tuple[str, ...]) -> Iterator[Served]:
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

    @contextmanager
    def workplace(self) -> Iterator[Path]:
        """A new folder for what a run writes, which is deleted with it unless it is ``kept``."""
        place = self.scratch / secrets.token_hex(16)
        place.mkdir(mode=0o700)
        try:
            yield place
        finally:
            if place.name not in self._results:
                rmtree(place, ignore_errors=True)

    def keep(self, place: Path) -> str:
        """Keep what a run left in its folder; the key comes back by which it can be had."""
        self._results[place.name] = place
        while len(self._results) > KEPT:
            rmtree(self._results.pop(next(iter(self._results))), ignore_errors=True)
        return place.name

    def result(self, key: str, file: str) -> Path:
        """A file that a run left. ReadError where there is none, or not any longer."""
        place = self._results.get(key)
        if place is None or not (place / file).is_file():
            raise ReadError("this result is not kept any longer: run the rules again")
        return place / file

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
