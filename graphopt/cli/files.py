"""Names of the files that a command will write, and checks, before anything runs, that they can be written and destroy
nothing. ``-`` is a model that comes from stdin, or goes to stdout."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import ReadError, UsageError
from graphopt.saving import whole

if TYPE_CHECKING:
    from graphopt.web.page import Page

STDOUT = Path("-")
PIPED = ("-o", "--json", "--html", "--report", "--junit")
"""The options whose files may go to stdout, unless a command says otherwise."""
_STDIN = "stdin.onnx"


class PipedModel(type(Path())):  # type: ignore[misc]
    """The path of a file that holds what came through stdin, and that is called ``-`` in all that is told of it."""

    __slots__ = ()

    def __str__(self) -> str:
        return "-" if self.name == _STDIN else self.__fspath__()

    def __fspath__(self) -> str:
        return str(super().__str__())


def from_stdin() -> Path:
    """The file of a model that came through stdin; it is there until the process ends."""
    if sys.stdin is None or sys.stdin.isatty():
        raise UsageError("-: a model is expected from stdin, which is a terminal: name a file, or pipe one in")
    folder = Path(tempfile.mkdtemp(prefix="graphopt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path: Path = PipedModel(folder / _STDIN)
    path.write_bytes(sys.stdin.buffer.read())
    return path


@contextmanager
def delivered(output: Path) -> Iterator[Path]:
    """Where a model is to be written that goes to ``output``: there, or into a file whose bytes go to stdout in the
    end. Then what is printed meanwhile goes to stderr."""
    if not is_stdout(output):
        yield output
        return
    stream: Any = getattr(sys.stdout, "stream", sys.stdout)
    if stream.isatty():
        raise UsageError("-o -: stdout is a terminal: name a file, or pipe it on")
    with tempfile.TemporaryDirectory(prefix="graphopt-") as folder:
        path = Path(folder) / "stdout.onnx"
        with redirect_stdout(sys.stderr):
            yield path
        if any(file != path and file.suffix != ".json" for file in Path(folder).iterdir()):
            raise ReadError("-o -: the model has weights in a file of their own: name a file")
        stream.buffer.write(path.read_bytes())
        stream.buffer.flush()


def beside(model: Path, what: str) -> Path:
    """Where a result goes that got no name: beside its model, or to stdout where that came from stdin; a folder in the
    model's place is told later."""
    return STDOUT if isinstance(model, PipedModel) else model.parent / f"{model.stem}.{what}.onnx"


def check_written(written: Mapping[str, Path | None], read: Iterable[Path], piped: Collection[str] = PIPED) -> None:
    """Raise UsageError where a file to write, by option, is one that is read, another one, or no place for a file.

    None stands for an option that was not given, and ``-`` for stdout, which takes one file of the options that are
    ``piped``.
    """
    to_stdout = [option for option, path in written.items() if is_stdout(path)]
    for option in to_stdout:
        if option not in piped:
            raise UsageError(f"{option} - is not possible: what it writes goes into a file; name one")
    if len(to_stdout) > 1:
        raise UsageError(f"{' and '.join(to_stdout)} both name stdout: give one of them a file")
    claimed = [(path, "which is an input") for path in read]
    for option, path in written.items():
        if path is None or is_stdout(path):
            continue
        _check_place(option, path)
        for other, what in claimed:
            if _is_same(path, other):
                raise UsageError(f"{option} {path} would overwrite {other}, {what}: give another name")
        claimed.append((path, f"which {option} writes"))


def check_folder(option: str, path: Path, manifest: str, is_part: Callable[[str], bool] = lambda name: False) -> None:
    """Raise UsageError where a folder to write is none, or holds what this would mix with: files, but not ``manifest``,
    and not only such as ``is_part`` of what a run that was killed began there."""
    try:
        if path.exists() and not path.is_dir():
            raise UsageError(f"{option} {path}: a file is there; name a folder")
        if not path.parent.is_dir():
            raise UsageError(f"{option} {path}: the folder {path.parent} does not exist; make it first")
        if path.is_dir() and not (path / manifest).is_file() and not all(is_part(f.name) for f in path.iterdir()):
            raise UsageError(f"{option} {path}: the folder holds something else; name a new one, or an empty one")
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {path}: not a name for a folder ({error})") from None


def _check_place(option: str, path: Path) -> None:
    try:
        if path.is_dir():
            raise UsageError(f"{option} {path}: {path} is a folder; name a file in it")
        if path.exists() and not path.is_file():
            raise UsageError(f"{option} {path}: a device, pipe or socket cannot be replaced; name a file")
        if not path.parent.is_dir():
            raise UsageError(f"{option} {path}: the folder {path.parent} does not exist; make it first")
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {path}: not a name for a file ({error})") from None


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.resolve() == other.resolve() or (path.exists() and other.exists() and path.samefile(other))
    except (OSError, ValueError, RuntimeError):
        return False


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all. Raises ReadError where that fails."""
    with whole(path) as file:
        file.write(text.encode())


def is_stdout(path: Path | None) -> bool:
    """Whether a file to write is ``-``."""
    return path is not None and str(path) == "-"


def write_or_print(path: Path | None, text: str) -> None:
    """Write a text file, or print it where there is none or it is ``-``: then nothing else is to be on stdout, and what
    is printed from here on goes to stderr. Raises ReadError where that fails."""
    if path is not None and not is_stdout(path):
        write_text(path, text)
        return
    print(text, end="", flush=True)
    if path is not None:
        sys.stdout = sys.stderr  # until the command ends, which puts back what it was


def write_page(page: Page, path: Path) -> None:
    """Write a page of HTML, to stdout where the file is ``-``. Raises ReadError where that fails."""
    from graphopt.web.page import html

    write_or_print(path, html(page))
