"""Names of the files that a command will write, and checks, before anything runs, that they can be written and destroy
nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from graphopt.errors import UsageError
from graphopt.saving import whole


def beside(model: Path, what: str) -> Path:
    """Where a result goes that got no name: beside its model; a folder in the model's place is told later."""
    return model.parent / f"{model.stem}.{what}.onnx"


def check_written(written: Mapping[str, Path | None], read: Iterable[Path]) -> None:
    """Raise UsageError where a file to write, by option, is one that is read, another one, or no place for a file.

    None stands for an option that was not given, and ``-`` for stdout.
    """
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
    """Write a text file, or print it where there is none or it is ``-``. Raises ReadError where that fails."""
    if path is None or is_stdout(path):
        print(text, end="")
    else:
        write_text(path, text)
