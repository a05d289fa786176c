"""Saved programs: a folder that runs wherever numpy is installed, on a processor that can what this one can, or on a
device like the one that it was saved from.

``manifest.json`` holds buffers and steps, and names the other files: ``code.<digest>.bin``, the object code of the
driver and the kernels and the models of what ONNX Runtime computes, for each program that the folder has, and
``constants.<digest>.bin``, the constants of all, each aligned, which are memory-mapped. Those are named by what is in
them, so that a save replaces none of another program's: the rename of its manifest commits it.
Object code is code: a folder is to be trusted as a program is.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np

from graphopt.errors import CompilationError, ReadError, UsageError
from graphopt.runtime import bytecode, cpu
from graphopt.runtime.arena import up
from graphopt.runtime.device import Device
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.dtypes import OBJECTS, STORAGE
from graphopt.runtime.executable import MAIN, Executable
from graphopt.runtime.host import BUILT_IN, ExternalCall, HostFunction
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
    StatePort,
    walk,
)
from graphopt.runtime.thread_pool import address
from graphopt.saving import is_left_beside, is_named_by_content, name_by_content, write_folder

FORMAT = 7
MANIFEST = "manifest.json"
_CODE, _CONSTANTS, _SUFFIX = "code", "constants", ".bin"
_FIXED = 3
"""The oldest format that is read, too: the same, but for the files, which had names without digests, for functions that
every program has since, and, before 6, for constants, which stood one behind the other."""

Loaded = TypeVar("Loaded")
_Read: TypeAlias = "tuple[Code, Mapping[str, ExternalCall]]"
"""A program's code, and the external functions of its steps."""
AnyProgram: TypeAlias = "Program | DeviceProgram"

_MACHINES = {"x86_64"}
"""Machines as ``platform`` calls them: to lack one is to lack all that goes with it."""
_ENTRIES = "programs"
_ALONE = ""
"""The name of a folder's program that has none."""
_REGISTRY = "graphopt.ir.custom_ops"
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
    "State": StatePort,
}
"""What manifests call the classes that programs are made of: words of the format, whatever their names are."""
_ARRAY = "Array"
_WORDS = {kind: word for word, kind in _CLASSES.items()}


def save(program: AnyProgram, folder: str | os.PathLike[str]) -> None:
    """Write a program into a folder, which is made where it is missing; what it had of another program is replaced.

    At every moment the folder has the one program or the other, whole, whatever becomes of this process. Raises
    ``CompilationError`` for a program with steps that only Python can do, other than calls of external functions,
    ``ReadError`` where it cannot be written; what the folder had is there as it was.
    """
    constants = _Constants()
    text, code = _written(program, constants)
    _write(Path(folder), text, [(text, code)], constants)


def save_all(programs: Mapping[str, AnyProgram], folder: str | os.PathLike[str]) -> None:
    """Write programs by name into one folder, in the same way. Constants in the same memory are written once."""
    constants = _Constants()
    written = {name: _written(program, constants) for name, program in programs.items()}
    devices = {text["device"] for text, _ in written.values()}
    text = {"device": "".join(devices), "driver": bytecode.digest(), _ENTRIES: {n: t for n, (t, _) in written.items()}}
    _write(Path(folder), text, list(written.values()), constants)


class _Constants:
    """The constants of programs as they go into one file: those in the same memory, once."""

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.size = 0
        self._offsets: dict[tuple[int, int], int] = {}
        self._held: list[Array] = []

    def place(self, array: Array) -> int:
        """Where a constant is, in bytes from the start."""
        key = address(array), array.nbytes
        if key not in self._offsets:
            self._held.append(array)
            self._offsets[key] = self.size
            self.pieces += array.reshape(-1).view(np.uint8).data, bytes(up(array.nbytes) - array.nbytes)
            self.size += up(array.nbytes)
        return self._offsets[key]


def _written(program: AnyProgram, constants: _Constants) -> tuple[dict[str, Any], list[bytes | memoryview]]:
    """What a manifest says of a program, and the pieces of its code."""
    code = program.code
    external = program.external_calls
    known = {*code.regions, *BUILT_IN, *external}
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
    regions = [code.regions[name] for name in sorted(code.regions)]
    text = {
        "cpu": [] if device else sorted(_processor()),
        "driver": bytecode.digest(),
        "device": device,
        "inputs": _plain(code.inputs),
        "outputs": _plain(code.outputs),
        "buffers": _plain(code.buffers),
        "steps": _plain(code.steps),
        "conditions": _plain(code.conditions),
        "states": _plain(code.states),
        "sizes": [len(o) for o in (*distinct, *regions)],
        "regions": sorted(code.regions),
        "objects": [distinct.index(o) for o in (code.driver, *code.objects)],
        "code": sha256(b"".join((*distinct, *regions))).hexdigest(),
        "constants": {str(n): list(array.shape) for n, array in sorted(code.constants.items())},
        "offsets": {str(n): constants.place(array) for n, array in sorted(code.constants.items())},
        "functions": {key: [call.name, _attributes(call)] for key, call in sorted(external.items())},
    }
    return text, [*distinct, *regions]


def _attributes(call: ExternalCall) -> dict[str, Any]:
    """The attributes of a call as JSON. CompilationError for one that JSON cannot say."""
    plain = {name: _plain(value) for name, value in call.attributes.items()}
    try:
        json.dumps(plain)
    except (TypeError, ValueError):
        raise CompilationError(
            f"the program cannot be saved: {call.name} has an attribute that is no text, number or array"
        ) from None
    return plain


def _write(
    folder: Path,
    text: dict[str, Any],
    programs: Sequence[tuple[dict[str, Any], list[bytes | memoryview]]],
    constants: _Constants,
) -> None:
    """Write a manifest, and the files with the code of each program and with all constants, which it names."""
    values = name_by_content(_CONSTANTS, constants.pieces, _SUFFIX)
    files: dict[str, list[bytes | memoryview]] = {}
    for part, code in programs:
        name = name_by_content(_CODE, code, _SUFFIX)
        files[name] = code
        part |= {"files": {_CODE: name, _CONSTANTS: values}, "bytes": constants.size}
    files[values] = constants.pieces
    text = {"format": FORMAT, **text}
    manifest = json.dumps({"digest": _digest(text), **text}, separators=(",", ":")).encode()
    write_folder(folder, {**files, MANIFEST: [manifest]}, is_part)


def is_part(file: str) -> bool:
    """Whether a file of that name belongs to a program, or is what a killed save of one left behind."""
    if file in (MANIFEST, _CODE + _SUFFIX, _CONSTANTS + _SUFFIX) or is_left_beside(file, MANIFEST):
        return True
    return any(is_named_by_content(file, name, _SUFFIX) for name in (_CODE, _CONSTANTS))


def constants_file(folder: Path) -> Path:
    """The file with the constants of a folder's program. Raises ``ReadError`` where it has none."""
    return _files(folder, _manifest(folder / MANIFEST))[1]


def load(
    folder: str | os.PathLike[str],
    threads: int | None = None,
    dtypes: Mapping[str, np.dtype[Any]] | None = None,
    functions: Mapping[str, HostFunction] | None = None,
) -> Program:
    """The program in a folder, of several ``main`` or the only one. Elements that numpy has no type for (bfloat16) are
    integers of the same width, unless ``dtypes`` has types for them; ``functions`` are external functions by name.

    Raises ``ReadError`` where the folder is damaged, was written by a later version, or is for another processor, and
    ``UsageError`` where a function that it calls is neither given nor registered.
    """
    make = _on_processor(threads, dtypes)
    return _opened(Path(folder), "", functions, lambda programs: make(*_main_of(Path(folder), programs)))


def load_all(
    folder: str | os.PathLike[str],
    threads: int | None = None,
    dtypes: Mapping[str, np.dtype[Any]] | None = None,
    functions: Mapping[str, HostFunction] | None = None,
) -> Program | Executable:
    """The program in a folder, or all of several, by name. Raises as ``load`` does."""
    make = _on_processor(threads, dtypes)

    def whole(programs: Mapping[str, _Read]) -> Program | Executable:
        made = {name: make(*read) for name, read in programs.items()}
        return made[_ALONE] if _ALONE in made else Executable(made)

    return _opened(Path(folder), "", functions, whole)


def load_on(
    device: Device,
    folder: str | os.PathLike[str],
    dtypes: Mapping[str, np.dtype[Any]] | None = None,
    functions: Mapping[str, HostFunction] | None = None,
) -> DeviceProgram:
    """The program in a folder, which was saved from a device like this one; the rest is as for ``load``.

    Raises ``ReadError`` as ``load`` does, and what ``DeviceProgram`` raises.
    """

    def whole(programs: Mapping[str, _Read]) -> DeviceProgram:
        code, calls = _main_of(Path(folder), programs)
        return DeviceProgram(code, device, calls, dtypes)

    return _opened(Path(folder), device.architecture, functions, whole)


def _on_processor(
    threads: int | None, dtypes: Mapping[str, np.dtype[Any]] | None
) -> Callable[[Code, Mapping[str, ExternalCall]], Program]:
    return lambda code, calls: Program(code, calls, dtypes, threads)


def saved_for(folder: str | os.PathLike[str]) -> str:
    """The architecture of the device that a folder's program is for; nothing where it is for a processor."""
    return str(_manifest(Path(folder) / MANIFEST)["device"])


def _main_of(folder: Path, programs: Mapping[str, _Read]) -> _Read:
    """The one program of several that nobody names."""
    for name in (_ALONE, MAIN):
        if name in programs:
            return programs[name]
    if len(programs) == 1:
        return next(iter(programs.values()))
    raise ReadError(
        f"{folder} has the programs {', '.join(programs)}, and none is called {MAIN!r}: graphopt.runtime.load gives all"
    )


def _opened(
    folder: Path,
    device: str,
    functions: Mapping[str, HostFunction] | None,
    whole: Callable[[Mapping[str, _Read]], Loaded],
) -> Loaded:
    """What ``whole`` makes of the programs in a folder, by name; one that has none is ``_ALONE``."""
    text = _manifest(folder / MANIFEST)
    while True:
        if text["device"] != device:
            wants, has = (f"a GPU ({d})" if d else "a processor" for d in (text["device"], device))
            raise ReadError(
                f"{folder} was compiled for {wants}, and is to run on {has}: compile the model for this one"
            )
        try:
            parts = {n: {"format": text["format"], **t} for n, t in text.get(_ENTRIES, {_ALONE: text}).items()}
            calls = _external_calls(folder, parts, functions or {})
            return whole({name: (_code(folder, part), calls[name]) for name, part in parts.items()})
        except ReadError:
            now = _manifest(folder / MANIFEST)
            if now == text:
                raise
            text = now  # another program was saved there meanwhile, and what this one had is gone
        except (LookupError, TypeError, ValueError, AttributeError):
            raise ReadError(f"{folder} is damaged, or of another version of graphopt: save the program again") from None


def _external_calls(
    folder: Path, parts: Mapping[str, Mapping[str, Any]], functions: Mapping[str, HostFunction]
) -> dict[str, dict[str, ExternalCall]]:
    """The external functions that each program calls, by the functions of its steps. UsageError where one is missing:
    neither given nor registered."""
    wanted = {name for part in parts.values() for name, _ in part.get("functions", {}).values()}
    there = {name: functions.get(name) or _registered(name) for name in sorted(wanted)}
    if missing := [name for name, function in there.items() if function is None]:
        given = ", ".join(f"{name!r}: ..." for name in missing)
        raise UsageError(
            f"{folder} calls {', '.join(missing)}, which is not registered: register it, or give it, as in "
            f"load(folder, functions={{{given}}})"
        )
    return {
        name: {
            key: ExternalCall(called, there[called] or _nothing, {n: _made(a) for n, a in attributes.items()})
            for key, (called, attributes) in part.get("functions", {}).items()
        }
        for name, part in parts.items()
    }


def _nothing(*arrays: Any, **attributes: Any) -> None:
    raise AssertionError("a missing function was seen to")


def _registered(name: str) -> HostFunction | None:
    """The function that this process registered by a name. Where nothing was, the registry is not even imported."""
    registry = sys.modules.get(_REGISTRY)
    domain, _, short = name.rpartition(".")
    added = None if registry is None else registry.added(f"{domain}::{short}")
    return None if added is None else added.function


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
    constants = _constants(values_file, text, buffers)
    ports = _made(text["inputs"]), _made(text["outputs"])
    steps, conditions = _made(text["steps"]), _made(text["conditions"])
    regions = dict(zip(names, models, strict=True))
    states = _made(text.get("states", []))
    return Code(*ports, buffers, steps, tuple(objects), driver, constants, conditions, regions, states)


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


def _constants(file: Path, text: Mapping[str, Any], buffers: tuple[ProgramBuffer, ...]) -> dict[int, Array]:
    shapes, offsets = text["constants"], text.get("offsets")
    kinds = {int(n): (tuple(shape), STORAGE[buffers[int(n)].dtype]) for n, shape in shapes.items()}
    sizes = {n: int(np.prod(shape)) * dtype.itemsize for n, (shape, dtype) in sorted(kinds.items())}
    ends = np.cumsum([0, *map(up, sizes.values())]).tolist()
    starts = dict(zip(sizes, ends, strict=False)) if offsets is None else {int(n): at for n, at in offsets.items()}
    total = ends[-1] if offsets is None else text["bytes"]
    try:
        size = file.stat().st_size
        memory = np.memmap(file, np.uint8, "r").view(np.ndarray) if size else np.empty(0, np.uint8)
    except OSError as error:
        raise ReadError(f"{file} cannot be read: {error.strerror}") from None
    if size != total:
        raise ReadError(f"{file} is damaged: it has {size} bytes, and {total} are expected; save the program again")
    return {
        n: memory[starts[n] : starts[n] + sizes[n]].view(dtype).reshape(shape) for n, (shape, dtype) in kinds.items()
    }


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise ReadError(f"{file} cannot be read: {error.strerror}") from None


def _digest(text: Mapping[str, Any]) -> str:
    return sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()


# -- as JSON: a list is a tuple, an object is of one of the classes that programs are made of


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return {"is": _ARRAY, "dtype": array.dtype.name, "shape": list(array.shape), "values": array.ravel().tolist()}
    if is_dataclass(value) and not isinstance(value, type):
        return {"is": _WORDS[type(value)], **{f.name: _plain(getattr(value, f.name)) for f in fields(value)}}
    return [_plain(v) for v in value] if isinstance(value, tuple | list) else value


def _made(value: Any) -> Any:
    if isinstance(value, dict) and value["is"] == _ARRAY:
        return np.array(value["values"], value["dtype"]).reshape(value["shape"])
    if isinstance(value, dict):
        kind: Callable[..., Any] = _CLASSES[value["is"]]
        return kind(**{k: _made(v) for k, v in value.items() if k != "is"})
    return tuple(_made(v) for v in value) if isinstance(value, list) else value
