"""Programs on disk: a folder that runs wherever numpy is installed, on a processor that can what this one can, or on a
device like the one that it was saved from.

``manifest.json`` holds buffers and steps, ``code.bin`` the object code of the driver and the kernels, ``constants.bin``
the constants, each aligned, which are memory-mapped. Object code is code: a folder is to be trusted as a program is.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from graphopt.errors import CompilationError, ReadError
from graphopt.runtime import bytecode as table
from graphopt.runtime import cpu
from graphopt.runtime.arena import up
from graphopt.runtime.device import Device
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.dtypes import OBJECTS, STORAGE
from graphopt.runtime.output import beside
from graphopt.runtime.program import Program
from graphopt.runtime.steps import (
    Array,
    Bind,
    Branch,
    Buffer,
    Call,
    Code,
    Condition,
    Host,
    Launch,
    Library,
    Loop,
    Port,
    Ref,
    walk,
)

FORMAT = 3
MANIFEST, OBJECTS_FILE, CONSTANTS_FILE = "manifest.json", "code.bin", "constants.bin"

Loaded = TypeVar("Loaded")

_MACHINES = {"x86_64"}
"""Machines as ``platform`` calls them: to lack one is to lack all that goes with it."""
_FEW = 4
"""So many missing instruction sets are named."""
_NOTIONS = {kind.__name__: kind for kind in (Bind, Branch, Buffer, Call, Condition, Launch, Library, Loop, Port, Ref)}


def save(program: Program | DeviceProgram, folder: str | os.PathLike[str]) -> None:
    """Write a program into a folder, which is made where it is missing; what it had of another program is replaced.

    Raises ``CompilationError`` for a program with steps that only Python can do, ``ReadError`` where it cannot be
    written; what the folder had is there as it was.
    """
    code, place = program.code, Path(folder)
    hosts = list(dict.fromkeys(s.label or s.function for s in walk(code.steps) if isinstance(s, Host)))
    if hosts:
        raise CompilationError(
            f"the program cannot be saved, for Python runs some of its steps: {', '.join(hosts)}; run the model where "
            "graphopt is installed, or write tensor programs for these ops (docs/tensor-programs.md)"
        )
    if any(code.buffers[n].dtype in OBJECTS for n in code.constants):
        raise CompilationError("the program cannot be saved, for some of its constants are Python objects")
    distinct = list(dict.fromkeys((code.driver, *code.objects)))
    device = program.device.architecture if isinstance(program, DeviceProgram) else ""
    text = {
        "format": FORMAT,
        "driver": table.digest(),
        "cpu": [] if device else sorted(_processor()),
        "device": device,
        "inputs": _plain(code.inputs),
        "outputs": _plain(code.outputs),
        "buffers": _plain(code.buffers),
        "steps": _plain(code.steps),
        "conditions": _plain(code.conditions),
        "sizes": [len(o) for o in distinct],
        "objects": [distinct.index(o) for o in (code.driver, *code.objects)],
        "code": sha256(b"".join(distinct)).hexdigest(),
        "constants": {str(n): list(array.shape) for n, array in sorted(code.constants.items())},
    }
    is_new = not place.exists()
    try:
        place.mkdir(parents=True, exist_ok=True)
        names = MANIFEST, OBJECTS_FILE, CONSTANTS_FILE  # the manifest takes its place last: with it all is complete
        with (
            beside(place / names[0]) as manifest,
            beside(place / names[1]) as objects,
            beside(place / names[2]) as file,
        ):
            for _, array in sorted(code.constants.items()):
                file.write(array.reshape(-1).view(np.uint8).data)
                file.write(bytes(up(array.nbytes) - array.nbytes))
            objects.write(b"".join(distinct))
            manifest.write(json.dumps({"digest": _digest(text), **text}, separators=(",", ":")).encode())
            for opened in (file, objects, manifest):
                opened.flush()
            (place / MANIFEST).unlink(missing_ok=True)  # no moment has files of two programs
    except OSError as error:
        if is_new:
            with suppress(OSError):
                place.rmdir()
        raise ReadError(f"{place} cannot be written: {error.strerror}") from None


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


def _opened(place: Path, device: str, made: Callable[[Code], Loaded]) -> Loaded:
    text = _manifest(place / MANIFEST)
    if text["device"] != device:
        wants, has = (f"a GPU ({d})" if d else "a processor" for d in (text["device"], device))
        raise ReadError(f"{place} was compiled for {wants}, and is to run on {has}: compile the model for this one")
    try:
        return made(_code(place, text))
    except (LookupError, TypeError, ValueError, AttributeError):
        raise ReadError(f"{place} is damaged, or of another version of graphopt: save the program again") from None


def _code(place: Path, text: Mapping[str, Any]) -> Code:
    """What a folder holds, as its manifest says."""
    missing = set(text["cpu"]) - _processor()
    if missing:
        lacks = [m for m in missing if m in _MACHINES] or sorted(missing)
        more = f" and {len(lacks) - _FEW} more" if len(lacks) > _FEW else ""
        raise ReadError(
            f"{place} was compiled for a processor with {', '.join(lacks[:_FEW])}{more}, which this one does not have: "
            "compile the model for this one"
        )
    code = _bytes(place / OBJECTS_FILE)
    if sha256(code).hexdigest() != text["code"]:
        raise ReadError(f"{place / OBJECTS_FILE} is damaged: save the program again")
    ends = np.cumsum([0, *text["sizes"]]).tolist()
    distinct = [code[a:b] for a, b in pairwise(ends)]
    driver, *objects = [distinct[n] for n in text["objects"]]
    buffers = _made(text["buffers"])
    constants = _constants(place / CONSTANTS_FILE, text["constants"], buffers)
    ports = _made(text["inputs"]), _made(text["outputs"])
    steps, conditions = _made(text["steps"]), _made(text["conditions"])
    return Code(*ports, buffers, steps, tuple(objects), driver, constants, conditions)


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
    if text["format"] != FORMAT or digest != _digest(text):
        raise damaged
    if text.get("driver") != table.digest() or not isinstance(text.get("device"), str):
        raise ReadError(f"{file} was written by another version of graphopt: save the program again")
    return text


def _constants(file: Path, shapes: Mapping[str, list[int]], buffers: tuple[Buffer, ...]) -> dict[int, Array]:
    kinds = {int(n): (tuple(shape), STORAGE[buffers[int(n)].dtype]) for n, shape in shapes.items()}
    sizes = {n: int(np.prod(shape)) * dtype.itemsize for n, (shape, dtype) in kinds.items()}
    total = sum(map(up, sizes.values()))
    try:
        found = file.stat().st_size
        memory = np.memmap(file, np.uint8, "r").view(np.ndarray) if found else np.empty(0, np.uint8)
    except OSError as error:
        raise ReadError(f"{file} cannot be read: {error.strerror}") from None
    if found != total:
        raise ReadError(f"{file} is damaged: it has {found} bytes, and {total} are expected; save the program again")
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


# -- as JSON: a list is a tuple, an object is one of the notions that programs are made of


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": type(value).__name__, **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    return [_plain(v) for v in value] if isinstance(value, tuple) else value


def _made(value: Any) -> Any:
    if isinstance(value, dict):
        kind: Callable[..., Any] = _NOTIONS[value["is"]]
        return kind(**{k: _made(v) for k, v in value.items() if k != "is"})
    return tuple(_made(v) for v in value) if isinstance(value, list) else value
