"""Output of a result: written beside its place and verified first, so that an error leaves nothing behind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphopt.errors import ReadError, VerificationError
from graphopt.ir import onnx_io
from graphopt.ir.graph import Graph
from graphopt.saving import folder_beside, real, take_places, whole
from graphopt.verify.verification import DEMANDS, OFF, RESULT, Demands, Interpreter, Verification, verify_as_asked

if TYPE_CHECKING:
    from graphopt.run.steps import Steps
    from graphopt.verify.inputs import Given


def deliver(
    step: Steps,
    model: Any,
    original: Graph | Path,
    graph: Graph,
    output: str | Path | None,
    verify: int | str,
    inputs: Mapping[str, Given] | None,
    beside: Callable[[Path, Verification], Mapping[Path, str]] | None = None,
    memory: int | None = None,
    demands: Demands = DEMANDS,
    interpreter: Interpreter | None = None,
) -> tuple[Any, Verification, int | None]:
    """The result in the form in which ``model`` came (or the path ``output``), how its verification went, and the bytes
    that it takes on disk.

    ``demands`` is how equal the result has to be; ``interpreter`` is one that was started ahead to compare them.
    Files that go ``beside`` it (text by path, given the file that was written and its verification) are in their places
    before the model is.
    ``original`` is what the result is compared with: a file, or a graph where the model came without one.
    Raises VerificationError where the two differ, ReadError where the result cannot be written.
    """
    given = None if output is None else Path(output)
    to = None if given is None else real(given)
    if to is None and verify in (0, "off"):
        return like(model, graph), OFF, None
    own = frozenset[str]() if to is None else onnx_io.own_data(to)
    try:
        with _folder(to) as folder:
            written = folder / "result" / (to.name if to else "model.onnx")
            written.parent.mkdir()
            try:
                step("write", onnx_io.save, graph, written)
            except ReadError as error:
                raise ReadError(str(error).replace(str(written), str(to or "a temporary folder"))) from None
            if given is not None and to is not None and len(list(written.parent.iterdir())) > 1:
                onnx_io.check_link(given, to)
            verified = OFF
            if verify not in (0, "off"):
                source = original if isinstance(original, Path) else _saved(original, folder)
                asked = (source, written, verify, inputs, RESULT, memory, demands, interpreter)
                verified = step("verify", verify_as_asked, *asked)
            size = _bytes(written.parent)
            for path, text in (beside(written, verified) if beside is not None else {}).items():
                with whole(path) as file:
                    file.write(text.encode())
            if to is not None:
                _move(written, to, own)
    except OSError as error:
        raise ReadError(f"{to or 'a temporary folder'}: cannot write there ({error.strerror})") from None
    return (output if to is not None else like(model, graph)), verified, size


def mismatch(
    original: Graph | Path,
    graph: Graph,
    verify: int | str,
    inputs: Mapping[str, Given] | None = None,
    memory: int | None = None,
    demands: Demands = DEMANDS,
) -> str:
    """How a graph's outputs differ from the original's, in words; empty where they are not seen to differ."""
    with _folder(None) as folder:
        written = folder / "candidate.onnx"
        onnx_io.save(graph, written)
        source = original if isinstance(original, Path) else _saved(original, folder)
        try:
            verify_as_asked(source, written, 1 if verify == "require" else verify, inputs, RESULT, memory, demands)
        except VerificationError as error:
            return str(error)
    return ""


def _saved(graph: Graph, folder: Path) -> Path:
    path = folder / "original" / "model.onnx"  # not in the folder itself, which is locked as long as it is in use
    path.parent.mkdir()
    onnx_io.save(graph, path)
    return path


def like(model: Any, graph: Graph) -> Any:
    """The graph as the kind of thing that was given."""
    if isinstance(model, Graph):
        return graph
    if isinstance(model, bytes):
        return onnx_io.to_bytes(graph)
    if onnx_io.is_program_of_torch(model):
        return type(model)(onnx_io.to_ir(graph), model.exported_program)
    return onnx_io.to_ir(graph) if type(model).__module__.startswith("onnx_ir") else onnx_io.to_proto(graph)


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


@contextmanager
def _folder(path: Path | None) -> Iterator[Path]:
    """A folder for a while: on the same disk as a place that something in it is to take."""
    if path is not None:
        with folder_beside(path.parent) as folder:
            yield folder
        return
    with tempfile.TemporaryDirectory(prefix="graphopt-") as name:
        yield Path(name)


def _move(written: Path, path: Path, own: frozenset[str]) -> None:
    """Put everything in its place: data first, which replaces nothing, and the model last."""
    files = sorted(written.parent.iterdir(), key=lambda f: (f == written, f.name))
    take_places({file: path.parent / file.name for file in files}, lambda: onnx_io.unused_data(path, own))
