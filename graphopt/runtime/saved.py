"""Saved programs: a folder that runs wherever numpy is installed, on a processor that can what this one can, or on a
device like the one that it was saved from.

``manifest.json`` holds buffers and steps, and names the two other files: ``code.<digest>.bin``, the object code of the
driver and the kernels and the models of what ONNX Runtime computes, and ``constants.<digest>.bin``, the constants, each
aligned, which are memory-mapped. Those are named by what is in them, so that a save replaces none of another program's:
the rename of its manifest commits it.
Object code is code: a folder is to be trusted as a program is.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphopt.errors import CompilationError, ReadError
from graphopt.runtime import bytecode, cpu
from graphopt.runtime.arena import up
from graphopt.runtime.device import Device
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.dtypes import OBJECTS, STORAGE
from graphopt.runtime.host import BUILT_IN
from graphopt.runtime.program import Program
from graphopt.runtime.steps import (
    Array,
    Bind,
    Branch,
    BufferRef,
    Code,
    Condition,
    HostStep,
    KernelStep,
    Launch,
    LibraryStep,
    LoopStep,
    Port,
    ProgramBuffer,
    walk,
)
from graphopt.saving import is_left_beside, is_named_by_content, name_by_content, write_folder

FORMAT = 5
MANIFEST = "manifest.json"
_CODE, _CONSTANTS, _SUFFIX = "code", "constants", ".bin"
_FIXED = 3
"""The oldest format that is read, too: the same, but for the files, which had names without digests, and for functions
that every program has since."""

Loaded = TypeVar("Loaded")

_MACHINES = {"x86_64"}
"""Machines as ``platform`` calls them: to lack one is to lack all that goes with it."""
_FEW = 4
"""So many missing instruction sets are named."""
_CLASSES: dict[str, type] = {
    "Bind": Bind,
    "Branch": Branch,
    "Buffer": ProgramBuffer,
    "Call": KernelStep,
    "Condition": Condition,
    "Host": HostStep,
    "Launch": Launch,
    "Library": LibraryStep,
    "Loop": LoopStep,
    "Port": Port,
    "Ref": BufferRef,
}
"""What manifests call the classes that programs are made of: words of the format, whatever their names are."""
_WORDS = {kind: word for word, kind in _CLASSES.items()}


def save(program: Program | DeviceProgram, folder: str | os.PathLike[str]) -> None:
    """Write a program into a folder, which is made where it is missing; what it had of another program is replaced.

    At every moment the folder has the one program or the other, whole, whatever becomes of this process. Raises
    ``CompilationError`` for a program with steps that only Python can do, ``ReadError`` where it cannot be written;
    what the folder had is there as it was.
    """
    code = program.code
    known = {*code.regions, *BUILT_IN}
    in_python = [s for s in walk(code.steps) if isinstance(s, HostStep) and s.function not in known]
    hosts = list(dict.fromkeys(s.label or s.function for s in in_python))
    if hosts:
        raise CompilationError(
            f"the program cannot be saved, for Python runs some of its steps: {', '.join(hosts)}; run the model where "
            "graphopt is installed, or write tensor programs for these ops (docs/tensor-programs.md)"
        )
    if any(code.buffers[n].dtype in OBJECTS for n in code.constants):
        raise CompilationError("the program cannot be saved, for some of its constants are Python objects")
    distinct = list(dict.fromkeys((code.driver, *code.objects)))
    device = program.device.architecture if isinstance(program, DeviceProgram) else ""
    constants: list[bytes | memoryview] = []
    for _, array in sorted(code.constants.items()):
        constants += array.reshape(-1).view(np.uint8).data, bytes(up(array.nbytes) - array.nbytes)
    regions = [code.regions[name] for name in sorted(code.regions)]
    pieces: dict[str, list[bytes | memoryview]] = {_CODE: [*distinct, *regions], _CONSTANTS: constants}
    files = {name_by_content(name, held, _SUFFIX): held for name, held in pieces.items()}
    text = {
        "format": FORMAT,
        "files": dict(zip((_CODE, _CONSTANTS), files, strict=True)),
        "driver": bytecode.digest(),
        "cpu": [] if device else sorted(_processor()),
        "device": device,
        "inputs": _plain(code.inputs),
        "outputs": _plain(code.outputs),
        "buffers": _plain(code.buffers),
        "steps": _plain(code.steps),
        "conditions": _plain(code.conditions),
        "sizes": [len(o) for o in (*distinct, *regions)],
        "regions": sorted(code.regions),
        "objects": [distinct.index(o) for o in (code.driver, *code.objects)],
        "code": sha256(b"".join((*distinct, *regions))).hexdigest(),
        "constants": {str(n): list(array.shape) for n, array in sorted(code.constants.items())},
    }
    manifest = json.dumps({"digest": _digest(text), **text}, separators=(",", ":")).encode()
    write_folder(Path(folder), {**files, MANIFEST: [manifest]}, is_part)


def is_part(file: str) -> bool:
    """Whether a file of that name belongs to a program, or is what a killed save of one left behind."""
    if file in (MANIFEST, _CODE + _SUFFIX, _CONSTANTS + _SUFFIX) or is_left_beside(file, MANIFEST):
        return True
    return any(is_named_by_content(file, name, _SUFFIX) for name in (_CODE, _CONSTANTS))


def constants_file(folder: Path) -> Path:
    """The file with the constants of a folder's program. Raises ``ReadError`` where it has none."""
    return _files(folder, _manifest(folder / MANIFEST))[1]


def load(
    folder: str | os.PathLike[str], threads: int | None = None, dtypes: Mapping[str, np.dtype[Any]] | None = None
) -> Program:
    """The program in a folder. Elements that numpy has no type for (bfloat16) are integers of the same width, unless
    ``dtypes`` has types for them.

    Raises ``ReadError`` where the folder is damaged, was written by a later version, or is for another processor.
    """
    return _opened(Path(folder), "", lambda code: Program(code, dtypes=dtypes, threads=threads))


def load_on(
    device: Device, folder: str | os.PathLike[str], dtypes: Mapping[str, np.dtype[Any]] | None = None
) -> DeviceProgram:
    """The program in a folder, which was saved from a device like this one; ``dtypes`` are as for ``load``.

    Raises ``ReadError`` as ``load`` does, and what ``DeviceProgram`` raises.
    """
    return _opened(Path(folder), device.architecture, lambda code: DeviceProgram(code, device, dtypes=dtypes))


def saved_for(folder: str | os.PathLike[str]) -> str:
    """The architecture of the device that a folder's program is for; nothing where it is for a processor."""
    return str(_manifest(Path(folder) / MANIFEST)["device"])


def _opened(folder: Path, device: str, load_code: Callable[[Code], Loaded]) -> Loaded:
    text = _manifest(folder / MANIFEST)
    while True:
        if text["device"] != device:
            wants, has = (f"a GPU ({d})" if d else "a processor" for d in (text["device"], device))
            raise ReadError(
                f"{folder} was compiled for {wants}, and is to run on {has}: compile the model for this one"
            )
        try:
            return load_code(_code(folder, text))
        except ReadError:
            now = _manifest(folder / MANIFEST)
            if now == text:
                raise
            text = now  # another program was saved there meanwhile, and what this one had is gone
        except (LookupError, TypeError, ValueError, AttributeError):
            raise ReadError(f"{folder} is damaged, or of another version of graphopt: save the program again") from None


def _files(folder: Path, text: Mapping[str, Any]) -> tuple[Path, Path]:
    """Those with the code and the constants of a program."""
    if text["format"] == _FIXED:
        return folder / (_CODE + _SUFFIX), folder / (_CONSTANTS + _SUFFIX)
    return folder / text["files"][_CODE], folder / text["files"][_CONSTANTS]


def _code(folder: Path, text: Mapping[str, Any]) -> Code:
    """What a folder holds, as its manifest says."""
    missing = set(text["cpu"]) - _processor()
    if missing:
        lacks = [m for m in missing if m in _MACHINES] or sorted(missing)
        more = f" and {len(lacks) - _FEW} more" if len(lacks) > _FEW else ""
        raise ReadError(
            f"{folder} was compiled for a processor with {', '.join(lacks[:_FEW])}{more}, which this one does not "
            "have: compile the model for this one"
        )
    objects_file, values_file = _files(folder, text)
    code = _bytes(objects_file)
    if sha256(code).hexdigest() != text["code"]:
        raise ReadError(f"{objects_file} is damaged: save the program again")
    ends = np.cumsum([0, *text["sizes"]]).tolist()
    names = text.get("regions", ())
    pieces = [code[a:b] for a, b in pairwise(ends)]
    distinct, models = pieces[: len(pieces) - len(names)], pieces[len(pieces) - len(names) :]
    driver, *objects = [distinct[n] for n in text["objects"]]
    buffers = _made(text["buffers"])
    constants = _constants(values_file, text["constants"], buffers)
    ports = _made(text["inputs"]), _made(text["outputs"])
    steps, conditions = _made(text["steps"]), _made(text["conditions"])
    regions = dict(zip(names, models, strict=True))
    return Code(*ports, buffers, steps, tuple(objects), driver, constants, conditions, regions)


def _processor() -> frozenset[str]:
    """What code may use here: the machine's own instructions, and the sets beyond them."""
    return cpu.features() | {platform.machine()}


def _manifest(file: Path) -> dict[str, Any]:
    damaged = ReadError(f"{file} is damaged, or no program's: save the program again")
    try:
        text = json.loads(file.read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        raise ReadError(
            f"{file.parent}: no program is saved there; graphopt compile MODEL -o FOLDER saves one"
        ) from None
    except OSError as error:
        raise ReadError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise damaged from None
    if not isinstance(text, dict) or not isinstance(text.get("format"), int):
        raise damaged
    if text["format"] > FORMAT:
        raise ReadError(f"{file} was written by a later version of graphopt (format {text['format']}): update graphopt")
    digest = text.pop("digest", None)
    if not _FIXED <= text["format"] <= FORMAT or digest != _digest(text):
        raise damaged
    if text.get("driver") != bytecode.digest() or not isinstance(text.get("device"), str):
        raise ReadError(f"{file} was written by another version of graphopt: save the program again")
    return text


def _constants(file: Path, shapes: Mapping[str, list[int]], buffers: tuple[ProgramBuffer, ...]) -> dict[int, Array]:
    kinds = {int(n): (tuple(shape), STORAGE[buffers[int(n)].dtype]) for n, shape in shapes.items()}
    sizes = {n: int(np.prod(shape)) * dtype.itemsize for n, (shape, dtype) in kinds.items()}
    total = sum(map(up, sizes.values()))
    try:
        size = file.stat().st_size
        memory = np.memmap(file, np.uint8, "r").view(np.ndarray) if size else np.empty(0, np.uint8)
    except OSError as error:
        raise ReadError(f"{file} cannot be read: {error.strerror}") from None
    if size != total:
        raise ReadError(f"{file} is damaged: it has {size} bytes, and {total} are expected; save the program again")
    arrays, at = {}, 0
    for n, (shape, dtype) in sorted(kinds.items()):
        arrays[n] = memory[at : at + sizes[n]].view(dtype).reshape(shape)
        at += up(sizes[n])
    return arrays


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ReadError(f"{file} cannot be read: {error.strerror}") from None


def _digest(text: Mapping[str, Any]) -> str:
    return sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()


# -- as JSON: a list is a tuple, an object is of one of the classes that programs are made of


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": _WORDS[type(value)], **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _made(value: Any) -> Any:
    if isinstance(value, dict):
        kind: Callable[..., Any] = _CLASSES[value["is"]]
        return kind(**{k: _made(v) for k, v in value.items() if k != "is"})
    return tuple(_made(v) for v in value) if isinstance(value, list) else value
