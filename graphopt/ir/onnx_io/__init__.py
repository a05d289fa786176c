"""ONNX import and export: models in, models out, without loss.

A model that is read and written with no change in between is the same model, field by field. Weights
are never copied on the way: they are read when someone asks for their elements, from the mapped file.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any

from graphopt.errors import InvalidModelError, LimitError, ReadError, UsageError
from graphopt.ir.external import ModelFolder
from graphopt.ir.graph import Function, Graph, Header
from graphopt.saving import is_left_beside, is_named_by_content, left_beside, name_by_content, real, write_files

if TYPE_CHECKING:
    import onnx
    import onnx_ir

    from graphopt.ir.onnx_io.store import TensorStore

DATA = ".data"
"""What the name of a data file ends with."""
LIMIT = (1 << 31) - 1
"""The most bytes that protobuf can hold in one message."""


def load(source: str | Path | bytes | onnx.ModelProto | onnx_ir.Model | Graph | object) -> Graph:
    """The graph of a model; a graph itself. ``torch.onnx.ONNXProgram`` is taken for the model in it.

    Weights are read from the source when they are needed: do not change it while the graph is in use.
    Raises ReadError, InvalidModelError or LimitError.
    """
    from graphopt.ir.onnx_io.read import read_model
    from graphopt.ir.onnx_io.tensors import Storage

    if isinstance(source, (str, Path)):
        path = source if isinstance(source, Path) else Path(source)
        return _load_bytes(_map(path), f"{path}", ModelFolder(path.parent))
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _load_bytes(memoryview(source), "the model", None)
    import onnx

    if isinstance(source, onnx.ModelProto):
        return read_model(source, Storage(), "the model")
    if isinstance(source, Graph):
        return source
    import onnx_ir

    model: Any = getattr(source, "model", None) if is_program_of_torch(source) else source
    if isinstance(model, onnx_ir.Model):
        return read_model(onnx_ir.to_proto(model), Storage(folder=_folder_of(model)), "the model")
    raise TypeError(f"a model is a path, bytes, ModelProto or onnx_ir.Model, not {type(source).__name__}")


def is_program_of_torch(model: object) -> bool:
    """Whether this is what ``torch.onnx.export`` gives."""
    return type(model).__name__ == "ONNXProgram" and hasattr(model, "exported_program")


def load_function(source: onnx.FunctionProto | onnx_ir.Function) -> Function:
    """A function by itself, as a model would hold it. Raises InvalidModelError where it is none that ONNX allows."""
    import onnx_ir

    from graphopt.ir.onnx_io.graph_reader import ModelContext
    from graphopt.ir.onnx_io.read import read_function
    from graphopt.ir.onnx_io.tensors import Storage

    proto = onnx_ir.to_proto(source) if isinstance(source, onnx_ir.Function) else source
    return read_function(proto, ModelContext("the function", Storage(), Header(), {}, frozenset()))


def bytes_on_disk(path: str | Path, graph: Graph) -> int:
    """What a model takes on disk: its file, and the data files that the graph read from it refers to."""
    from graphopt.ir.onnx_io.tensors import data_files

    folder = Path(path).parent
    return sum(os.stat(file).st_size for file in (path, *(folder / name for name in data_files(graph))))


def bytes_of(path: str | Path) -> int:
    """What a model takes on disk, with all data files that it refers to; 0 where it cannot be read."""
    try:
        return sum(file.stat().st_size for file in files_of(path))
    except OSError:
        return 0


def files_of(path: str | Path) -> list[Path]:
    """The file of a model, and the data files that it refers to and that are there; none where it cannot be read."""
    path = Path(path)
    named = _locations(path)
    return [] if named is None else [file for file in (path, *(path.parent / name for name in named)) if file.is_file()]


def _locations(path: Path) -> list[str] | None:
    """The names of the data files that a model refers to, as it says them; None where it cannot be read."""
    from graphopt.ir.onnx_io.wire import MalformedError, detach, locations

    try:
        return list(locations(detach(_map(path))[0])) if path.is_file() else None
    except (ReadError, MalformedError, OSError, ValueError):
        return None


def _map(path: Path) -> memoryview:
    try:
        with open(path, "rb", opener=_open_at_once) as file:
            if not path.is_file():
                raise ReadError(f"{path}: a pipe or device, which cannot be mapped: save the model in a file")
            if os.fstat(file.fileno()).st_size == 0:
                raise ReadError(f"{path}: the file is empty")
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    except (OSError, ValueError) as error:
        raise ReadError(f"{path}: cannot read: {getattr(error, 'strerror', None) or error}") from None


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a pipe that nobody writes into, too."""
    return os.open(path, flags | os.O_NONBLOCK)


def _load_bytes(data: memoryview, where: str, folder: ModelFolder | None) -> Graph:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

    from graphopt.ir.onnx_io.read import read_model
    from graphopt.ir.onnx_io.tensors import Storage
    from graphopt.ir.onnx_io.wire import MalformedError, detach

    if not data:
        raise ReadError(f"{where}: empty")
    try:
        skeleton, blobs = detach(data)
        proto = onnx.ModelProto.FromString(skeleton)
    except (MalformedError, DecodeError, RecursionError) as error:
        raise ReadError(f"{where}: not an ONNX model, or a damaged one ({error})") from None
    return read_model(proto, Storage(blobs, folder), where)


def _folder_of(model: onnx_ir.Model) -> ModelFolder | None:
    import onnx_ir

    for value in model.graph.initializers.values():
        if isinstance(value.const_value, onnx_ir.ExternalTensor):
            return ModelFolder(Path(value.const_value.base_dir))
    return None


def save(graph: Graph, path: str | Path, external: bool = False) -> None:
    """Write the model to a file, whole or not at all; what it replaces stays until everything is on disk.

    Tensors in files beside the model stay there if the file is in the same folder, and go into ``<name>.<digest>.data``
    otherwise; so do large tensors of a model over 2 GB, or of any model with ``external``. Such a file replaces none:
    the model has its own data at every moment. That of a replaced model is removed once no model in the folder refers
    to it, and so is what killed runs have left. A link is written through.
    """
    _save(graph, path, external)


def save_for_now(graph: Graph, path: str | Path) -> None:
    """The same for a file that a crash of the system may take: nobody waits for the disk."""
    _save(graph, path, durable=False)


def _save(graph: Graph, path: str | Path, external: bool = False, durable: bool = True) -> None:
    from graphopt.ir.onnx_io.store import TensorStore

    given, path = Path(path), real(Path(path))
    store = TensorStore(path.parent, path.name, split=external)
    pieces = _serialize(graph, store)
    if _size(pieces) > LIMIT:
        store = TensorStore(path.parent, path.name, split=True)
        pieces = _serialize(graph, store)
    if store.data and store.refers_to_data:  # one file is enough
        store = TensorStore(path.parent, path.name, split=store.split, gather=True)
        pieces = _serialize(graph, store)
    files: dict[Path, list[bytes | memoryview]] = {}
    if store.data:
        name = name_by_content(path.name, store.data, DATA)
        store = TensorStore(path.parent, path.name, name, split=store.split, gather=store.gather)
        pieces = _serialize(graph, store)
        files[path.with_name(name)] = store.data
        check_link(given, path)
    own = own_data(path)
    write_files({**files, path: pieces}, lambda: unused_data(path, own), durable)


def check_link(given: Path, path: Path) -> None:
    """Refuse a link to a model in another folder where its data lies in a file of its own: it would be looked for
    beside the link. Raises UsageError."""
    if given.parent.resolve() != path.parent.resolve():
        raise UsageError(f"{given} leads to {path}, and the weights go into a file beside it: name {path} itself")


def own_data(path: Path) -> frozenset[str]:
    """The names of the data files that ``save`` made for a model's file: of that which is there, and of those that were
    or would have been there in runs that were killed."""
    names = data_files(path).union(*map(data_files, left_beside(path)))
    return frozenset(name for name in names if is_named_by_content(name, path.name, DATA))


def unused_data(path: Path, own: frozenset[str]) -> list[Path]:
    """Those of a model's own data files that no model in the folder refers to; its copies do, too."""
    used: frozenset[str] = frozenset()
    for file in path.parent.iterdir() if own else ():
        if file.name not in own and not is_left_beside(file.name, path.name):
            used |= data_files(file)
    return [path.with_name(name) for name in sorted(own - used)]


def data_files(path: Path) -> frozenset[str]:
    """The names of the data files that a model refers to; none for what is no model."""
    return frozenset(map(normpath, _locations(path) or ()))


def to_skeleton(graph: Graph) -> onnx.ModelProto:
    """The model as a message without the bytes of its large tensors: what takes time is left out."""
    from graphopt.ir.onnx_io.store import TensorStore
    from graphopt.ir.onnx_io.write import write_model

    return write_model(graph, TensorStore())


def _serialize(graph: Graph, store: TensorStore) -> list[bytes | memoryview]:
    from graphopt.ir.onnx_io.wire import attach
    from graphopt.ir.onnx_io.write import write_model

    return attach(write_model(graph, store).SerializeToString(deterministic=True), store.blobs)


def _size(pieces: list[bytes | memoryview]) -> int:
    return sum(map(len, pieces))


def convert_opset(model: Graph | onnx.ModelProto, version: int) -> Graph:
    """The model in another version of ONNX's opset; the graph itself if it is in that version already.

    Raises UsageError where the model cannot be converted.
    """
    from graphopt.ir.onnx_io import convert

    convert.check_version(version)
    graph = model if isinstance(model, Graph) else load(model)
    if graph.opset == version:
        return graph
    converted = convert.relabel(graph, version)
    if converted is None:
        return load(convert.by_onnx(to_proto(graph), version))
    try:
        to_skeleton(converted)
    except InvalidModelError as error:
        raise UsageError(f"the model cannot be converted to opset {version}: {error}") from None
    return converted


def to_bytes(graph: Graph) -> bytes:
    """The serialized model, with the tensors that lie in files; LimitError where protobuf cannot hold it."""
    from graphopt.ir.onnx_io.store import TensorStore

    pieces = _serialize(graph, TensorStore())
    if _size(pieces) > LIMIT:
        raise LimitError(f"the model has {_size(pieces)} bytes, more than protobuf can hold; save it to a file")
    return b"".join(pieces)


def to_proto(graph: Graph) -> onnx.ModelProto:
    """The model as a protobuf message, with the tensors that lie in files."""
    import onnx

    proto = onnx.ModelProto()
    proto.ParseFromString(to_bytes(graph))
    return proto


def to_ir(graph: Graph) -> onnx_ir.Model:
    """The model as onnx_ir holds it."""
    import onnx_ir

    return onnx_ir.from_proto(to_proto(graph))
