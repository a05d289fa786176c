"""Programs of compiled models, kept in the cache on disk: a model that was compiled before starts without compilers.

What a program depends on is the model's content, the settings, this package, the packages that it works with, and the
processor. A damaged one is dropped, and made anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from functools import cache as remembered
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from graphopt.calibration.schedule_tables import digest as digest_of_tuned
from graphopt.calibration.schedule_tables import setting_here
from graphopt.calibration.store import digest
from graphopt.errors import CompilationError, ReadError, UsageError
from graphopt.frozen import dataclass
from graphopt.kernels import cache
from graphopt.program import digests
from graphopt.run.settings import CompileReport, Settings
from graphopt.runtime import disk_cache, saved
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.host import UnloweredNode
from graphopt.runtime.program import Program
from graphopt.verify.verification import OFF, Verification

LARGEST = 1 << 30
"""Bytes of constants that a program has at most to be kept."""

_PACKAGE = Path(__file__).resolve().parents[1]
_PACKAGES = ("egglog", "lark", "ml_dtypes", "networkx", "numpy", "onnx", "onnx_ir", "scipy")
_REPORT = "report.json"
_TOLD = ("status", "reason", "engine", "draws", "error", "sizes")
"""What is kept of how a program was compared with its model."""
_EXTENDED = (
    "graphopt.ir.custom_ops",
    "graphopt.lowering.intrinsics.tensor_intrin",
    "graphopt.lowering.operators.table",
)
"""Where what users add becomes known: what a program does is then not told by the model alone."""


@dataclass(frozen=True)
class CacheEntry:
    """Where the program of a model is kept, or will be."""

    folder: Path
    model: Any
    """The path of the model's file, its bytes, or a graph."""
    stamp: list[int] | bytes | None
    """What changes when the file or the graph does; None of bytes."""

    @property
    def is_current(self) -> bool:
        """Whether the model is still what it was when its place was found."""
        if isinstance(self.model, str | Path):
            return self.stamp == digests.stamp_of(Path(self.model))
        return not isinstance(self.model, Keyed) or self.stamp == self.model.key()


@runtime_checkable
class Keyed(Protocol):
    """A graph: it has a hash of all that its program depends on."""

    def key(self) -> bytes:
        """The hash."""


def place_of(model: Any, settings: Settings, of_graphs: bool = False) -> CacheEntry | None:
    """Where the program of a model is kept; None where it is not: that of a model that is no file and no bytes (nor a
    graph, where those are kept too), or cannot be read, and where ops were added. Raises ``UsageError`` where others
    may write into the cache folder."""
    is_graph = of_graphs and isinstance(model, Keyed)
    if not (is_graph or isinstance(model, str | Path | bytes | bytearray | memoryview)) or is_extended():
        return None
    if isinstance(model, str | Path) and not Path(model).is_file():
        return None
    try:
        if isinstance(model, str | Path):
            stamp: list[int] | bytes | None = digests.stamp_of(Path(model))
            content = digests.of_file(Path(model))
        elif isinstance(model, Keyed):
            stamp = model.key()
            content = stamp.hex()
        else:
            stamp, content = None, sha256(model).hexdigest()
    except OSError:
        return None
    shapes = sorted((name, [int(n) for n in shape]) for name, shape in settings.shapes.items())
    dims = sorted((name, int(n)) for name, n in settings.dims.items())
    measured = digest(settings.costs), _tuned(settings)
    options = repr((settings.optimize, _in_order(settings.target), shapes, dims, measured, settings.policy))
    name = disk_cache.key(_sources(), cache.compiler(), content, options)
    return CacheEntry(disk_cache.folder("programs") / name, model, stamp)


def beside(entry: CacheEntry, what: str) -> CacheEntry:
    """Where another program of the same model and settings is kept, which differs by this."""
    return replace(entry, folder=entry.folder.with_name(disk_cache.key(entry.folder.name, what)))


def _tuned(settings: Settings) -> str:
    """What changes when tuned schedules do; empty where none are gone by."""
    if settings.tuned_in is None:
        return ""
    try:
        return digest_of_tuned(settings.tuned_in, setting_here(settings.threads), settings.tuned == "require")
    except ReadError:
        if settings.demands_tuned:
            raise
        return ""


def _in_order(value: Any) -> Any:
    """The value with what has no order (sets, mappings) in one that every process agrees on."""
    if is_dataclass(value) and not isinstance(value, type):
        return [(f.name, _in_order(getattr(value, f.name))) for f in fields(value)]
    if isinstance(value, Mapping):
        return sorted((repr(key), repr(_in_order(item))) for key, item in value.items())
    return sorted(map(repr, value)) if isinstance(value, frozenset) else value


def is_extended() -> bool:
    """Whether anything was added to what every graphopt knows."""
    return any(sys.modules[name].is_extended() for name in _EXTENDED if name in sys.modules)


def load(entry: CacheEntry, threads: int, is_compared: bool = False) -> tuple[Program, CompileReport] | None:
    """The program that is kept in a place; None where there is none, or where it is damaged, or was never compared with
    the model though it is to be, which drops it."""
    if not (entry.folder / _REPORT).exists():
        return None
    try:
        digest_of_report, _, text = (entry.folder / _REPORT).read_text(encoding="utf-8").partition("\n")
        if digest_of_report != sha256(text.encode()).hexdigest():
            raise ReadError("its report is damaged")
        kept = json.loads(text)
        name, digest_of_constants = kept["constants"]
        if digest_of_constants != digests.of_file(entry.folder / name):
            raise ReadError("its constants are damaged")
        program = saved.load(entry.folder, threads, _foreign() if kept["foreign"] else None)
        told = kept["verification"]
        verification = Verification(**{**told, "sizes": tuple(told["sizes"])})
        if is_compared and verification == OFF:
            raise ReadError("it was never compared with the model")
        unlowered = tuple(UnloweredNode(*map(str, node)) for node in kept["unlowered"])
        counts, unfused = (int(kept["kernels"]), int(kept["calls"])), dict(kept.get("unfused", {}))
        report = CompileReport((), *counts, unlowered, verification=verification, unfused=unfused)
    except (ReadError, OSError, ValueError, LookupError, TypeError):
        disk_cache.drop(entry.folder)
        return None
    disk_cache.use(entry.folder)
    return program, report


def store(entry: CacheEntry, program: Program, report: CompileReport) -> None:
    """Keep a program, whole or not at all; not one that is too large, that needs Python, or whose model has changed."""
    size = sum(c.nbytes for c in program.code.constants.values())
    if size > LARGEST or not entry.is_current:
        return
    ports = (*program.code.inputs, *program.code.outputs)
    foreign = any(_is_foreign(program.code.buffers[p.buffer].dtype) for p in ports)
    kept: dict[str, Any] = {"kernels": report.kernels, "calls": report.calls, "foreign": foreign}
    kept["unlowered"], kept["unfused"] = report.unlowered, dict(report.unfused)
    checked = report.verification
    kept["verification"] = {name: getattr(checked, name) for name in _TOLD}
    with suppress(OSError, ReadError, CompilationError, UsageError):  # a program that cannot be kept runs all the same
        with disk_cache.new_folder(entry.folder, _REPORT) as folder:
            saved.save(program, folder)
            constants = saved.constants_file(folder).name
            digest_of_constants = digests.of_file(folder / constants)
            kept["constants"] = constants, digest_of_constants
            text = json.dumps(kept)
            digest_of_report = sha256(text.encode()).hexdigest()
            (folder / _REPORT).write_text(f"{digest_of_report}\n{text}", encoding="utf-8")
        digests.remember(entry.folder / constants, digest_of_constants)


def _is_foreign(dtype: str) -> bool:
    """Whether numpy itself knows no such elements."""
    return dtype in STORAGE and STORAGE[dtype].name != dtype


def _foreign() -> Any:
    from graphopt.platforms import numpy_dtypes

    return numpy_dtypes()


@remembered
def _sources() -> str:
    """A digest of this package, of its rules, and of the versions of what it works with."""
    rules = [] if (_PACKAGE / "_rules").is_dir() else [_PACKAGE.parent / "rules"]  # of an installation, of a checkout
    return disk_cache.digest_of_code([_PACKAGE, *rules], _PACKAGES)
