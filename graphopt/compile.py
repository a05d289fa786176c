"""The pipeline from a model to a function of its inputs: every step of ``graphopt.compile``, one line each."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from graphopt.derivation import Preparation
from graphopt.errors import CompilationError, InputError, UsageError
from graphopt.ir import onnx_io
from graphopt.ir.constants import Array, Constant
from graphopt.ir.graph import CONSTANT, Attrs, Graph
from graphopt.ir.infer import infer
from graphopt.ir.onnx_io.tensors import numpy_dtype
from graphopt.ir.types import TensorType, Unranked, fresh_symbol
from graphopt.kernels.compile import compile_kernels, native_driver
from graphopt.lowering.link import Linked, Part, link
from graphopt.lowering.lower import NeedsValues, lower
from graphopt.optimize import optimize_graph
from graphopt.progress import Listener
from graphopt.report import Step
from graphopt.rewrite.simplify import simplify
from graphopt.runtime.dtypes import STORAGE
from graphopt.runtime.program import Program, Row
from graphopt.runtime.saved import save
from graphopt.runtime.steps import Code
from graphopt.steps import Steps
from graphopt.target import Target
from graphopt.target import target as target_named

Key: TypeAlias = tuple[tuple[str, str, tuple[int, ...], bytes], ...]
"""What a program is compiled for beyond types: of some inputs the name, dtype, shape, and elements (or none)."""


class ReferenceWarning(UserWarning):
    """A node that no kernel computes: ONNX's reference evaluator does, which is slow."""


@dataclass(frozen=True)
class CompileReport:
    """What became of a model, or of one specialization of it."""

    steps: tuple[Step, ...]
    kernels: int
    """Kernels, equal ones counted once."""
    calls: int
    """Calls of kernels in one run, bodies counted once."""
    reference: tuple[tuple[str, str, str], ...]
    """Of each node that is left to the reference evaluator: its name, its op, and why."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each node that is left to the reference evaluator."""
        return tuple(f"{name} ({op}) runs by reference, which is slow: {why}" for name, op, why in self.reference)


@dataclass(frozen=True)
class Compiled:
    """A program with what it was made from."""

    program: Program
    linked: Linked
    graph: Graph
    report: CompileReport


@dataclass(frozen=True)
class Settings:
    """How a model is compiled."""

    threads: int = 1
    strict: bool = False
    jobs: int | None = None


def compile(
    model: Any,
    *,
    threads: int = 1,
    strict: bool = False,
    optimize: bool = True,
    target: str | Target = "portable",
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
    jobs: int | None = None,
    listener: Listener | None = None,
) -> CompiledModel:
    """A function of the model's inputs that runs it on this machine's processor.

    ``model`` is a path, bytes, an ``onnx.ModelProto``, an ``onnx_ir.Model`` or a ``Graph``; it is not changed.
    ``threads`` run it. A node that is left to the reference evaluator is a warning, and with ``strict`` a
    CompilationError. ``optimize`` is whether the model is rewritten first, for ``target``. ``shapes`` and ``dims`` fix
    open dimensions of its inputs. ``jobs`` is how many processes compile kernels at most (None: one for each core).
    """
    step = Steps(listener)
    graph = prepared(model, step, target, shapes or {}, dims or {}, optimize)
    return CompiledModel(graph, Settings(threads, strict, jobs), step)


def prepared(
    model: Any,
    step: Steps,
    target: str | Target,
    shapes: Mapping[str, Sequence[int]],
    dims: Mapping[str, int],
    optimize: bool,
) -> Graph:
    """The graph of a model as it is lowered: read, fixed, and rewritten."""
    place = target_named(target) if isinstance(target, str) else target
    graph = model if isinstance(model, Graph) else step("read", onnx_io.load, model)
    graph = Preparation(shapes=shapes, dims=dims).fixed(graph)
    if optimize:
        return optimize_graph(graph, target=place, step=step)[0]
    return step("tidy", _tidied, graph)


def compile_graph(graph: Graph, settings: Settings, step: Steps) -> Compiled:
    """The program of a graph. NeedsValues where it depends on the elements of some inputs."""
    facts = step("infer types", infer, graph)
    lowered = step("lower", lower, graph, facts)
    linked = step("link", link, graph, facts, lowered)
    if settings.strict and linked.reference:
        name, op, why = linked.reference[0]
        raise CompilationError(f"node {name!r} ({op}) cannot be lowered, and --strict allows no other way: {why}")
    kernels = (native_driver(), *linked.kernels)
    objects = step("compile", compile_kernels, kernels, jobs=settings.jobs)
    program = step("load", load_program, linked, objects, settings.threads)
    calls = len(linked.parts)
    return Compiled(
        program, linked, graph, CompileReport(tuple(step.done), len(linked.kernels), calls, linked.reference)
    )


def parts_of(
    model: Any,
    *,
    target: str | Target = "portable",
    shapes: Mapping[str, Sequence[int]] | None = None,
    dims: Mapping[str, int] | None = None,
) -> tuple[Part, ...]:
    """The calls that a model becomes, with their nests and kernels, none of which is compiled."""
    step = Steps()
    graph = prepared(model, step, target, shapes or {}, dims or {}, True)
    facts = infer(graph)
    try:
        return link(graph, facts, lower(graph, facts)).parts
    except NeedsValues as needs:
        names = ", ".join(sorted(graph.names[v] for v in needs.inputs))
        raise UsageError(f"the loops of this model depend on what {names} holds: fold it, or give it a value") from None


def _tidied(graph: Graph) -> Graph:
    """The graph with its local functions expanded and its constants computed, and no rules applied."""
    return simplify(graph)


class CompiledModel:
    """A compiled model: called with arrays, it gives arrays.

    It is one program where types say all that has to be known. Where the ranks of inputs are open, or their elements
    are shapes of others, it compiles a program for each that comes, on the first call that needs it, and keeps it.
    """

    def __init__(self, graph: Graph, settings: Settings, step: Steps) -> None:
        self.graph, self.settings = graph, settings
        self._step = step
        self._programs: dict[Key, Compiled] = {}
        self._lock = threading.Lock()
        self._needed: frozenset[str] = frozenset()
        """The inputs whose elements programs are compiled for."""
        self._inputs = {graph.names[v]: v for v in graph.inputs}
        self._unranked = [n for n, v in self._inputs.items() if _is_unranked(graph.types.get(v))]
        if not self._unranked:
            try:
                self._programs[()] = self._compiled(graph)
            except NeedsValues as needs:
                self._needed = frozenset(graph.names[v] for v in needs.inputs)

    # -- calling

    def __call__(self, *inputs: Any, out: Mapping[str, Array] | None = None) -> dict[str, Any]:
        """The outputs by name: fresh arrays, or those of ``out`` where it has one.

        Inputs are arrays in order, or one mapping or sequence of them: numpy's, or what speaks DLPack. Raises
        InputError where they are not what the model takes, ExecutionError where it cannot be computed with them.
        """
        feeds = self._feeds(inputs)
        chosen, rest = self._chosen(feeds)
        return chosen.program(rest, out)

    def profile(self, *inputs: Any) -> tuple[Row, ...]:
        """What each step of one call took, in the order in which they began."""
        chosen, rest = self._chosen(self._feeds(inputs))
        return chosen.program.profile(rest)

    def save(self, folder: str | Path) -> None:
        """Write the program so that ``graphopt.runtime.saved.load`` reads it, where it needs numpy and nothing else."""
        save(self.compiled.program, folder)

    def close(self) -> None:
        """Give back memory and threads; the model cannot be called any more."""
        for compiled in self._programs.values():
            compiled.program.close()

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- looking

    @property
    def compiled(self) -> Compiled:
        """The program, or the latest of several. UsageError where none is compiled before the model is called."""
        if not self._programs:
            what = ", ".join(sorted({*self._needed, *self._unranked}))
            raise UsageError(f"a program is compiled for each value of {what}: call the model once, or fix its inputs")
        return self._programs[next(reversed(self._programs))]

    @property
    def report(self) -> CompileReport:
        """What became of the model."""
        return self.compiled.report

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return tuple(self._inputs)

    # -- choosing a program

    def _feeds(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        """The inputs by name."""
        given = inputs[0] if len(inputs) == 1 and isinstance(inputs[0], Mapping | list | tuple) else inputs
        if isinstance(given, Mapping):
            return given
        if len(given) > len(self._inputs):
            raise InputError(f"{len(given)} arrays are given, and the inputs are {self._listed()}")
        return dict(zip(self._inputs, given, strict=False))

    def _listed(self) -> str:
        return ", ".join(map(repr, self._inputs)) or "none"

    def _chosen(self, feeds: Mapping[str, Any]) -> tuple[Compiled, Mapping[str, Any]]:
        """The program for these inputs, and what it is called with."""
        if not self._needed and not self._unranked:
            return self._programs[()], feeds
        while True:
            key = self._key(feeds)
            if key not in self._programs:
                with self._lock:
                    if key not in self._programs:
                        try:
                            self._programs[key] = self._compiled(self._specialized(feeds))
                        except NeedsValues as needs:
                            self._needed |= {self.graph.names[v] for v in needs.inputs}
                            continue
            rest = feeds if not self._needed else {n: a for n, a in feeds.items() if n not in self._needed}
            return self._programs[key], rest

    def _key(self, feeds: Mapping[str, Any]) -> Key:
        found: list[tuple[str, str, tuple[int, ...], bytes]] = []
        for name in sorted({*self._needed, *self._unranked}):
            if name not in feeds:
                if "default" in self.graph.producer(self._inputs[name]).attrs:
                    continue
                raise InputError(f"no array is given for {name!r}: the inputs are {self._listed()}")
            array = np.asarray(feeds[name])
            if name in self._needed:
                self._check(name, array)
                found.append((name, array.dtype.name, array.shape, array.tobytes()))
            else:
                found.append((name, "", (array.ndim,), b""))
        return tuple(found)

    def _check(self, name: str, array: Array) -> None:
        """Refuse elements that are not what the input's type says."""
        type = self.graph.types.get(self._inputs[name])
        if not isinstance(type, TensorType):
            return
        if array.dtype.name != type.dtype:
            raise InputError(f"input {name!r} is {array.dtype.name}, and {type} is expected")
        if isinstance(type.shape, tuple):
            fits = len(type.shape) == array.ndim and all(
                not isinstance(n, int) or n == m for n, m in zip(type.shape, array.shape, strict=True)
            )
            if not fits:
                raise InputError(f"input {name!r} has the shape {list(array.shape)}, and {type} is expected")

    def _specialized(self, feeds: Mapping[str, Any]) -> Graph:
        """The graph for the elements and ranks of these inputs."""
        graph = self.graph.copy()
        for name in self._unranked:
            value, type = self._inputs[name], graph.types.get(self._inputs[name])
            rank = np.asarray(feeds[name]).ndim
            dtype = type.dtype if isinstance(type, TensorType) else np.asarray(feeds[name]).dtype.name
            graph.types[value] = TensorType(dtype, tuple(fresh_symbol() for _ in range(rank)))
        for name in sorted(self._needed):
            value = self._inputs[name]
            held = graph.producer(value).attrs.get("default")
            if name in feeds:
                held = Constant.of(np.array(feeds[name]))
            assert isinstance(held, Constant)
            graph.inputs.remove(value)
            graph.types.pop(value, None)
            graph.update(value.node, op=CONSTANT, attrs=Attrs(value=held))
        return graph

    def _compiled(self, graph: Graph) -> Compiled:
        compiled = compile_graph(graph, self.settings, self._step)
        for line in compiled.report.warnings:
            warnings.warn(line, ReferenceWarning, stacklevel=4)
        return compiled


def _is_unranked(type: object) -> bool:
    return type is None or (isinstance(type, TensorType) and isinstance(type.shape, Unranked))


def load_program(linked: Linked, objects: Sequence[bytes], threads: int) -> Program:
    """The program that runs compiled kernels; the first object is the driver."""
    driver, *kernels = objects
    code = Code(linked.inputs, linked.outputs, linked.buffers, linked.steps, tuple(kernels), driver, linked.constants)
    return Program(code, linked.functions, numpy_dtypes(), threads)


@cache
def numpy_dtypes() -> dict[str, np.dtype[Any]]:
    """The numpy types of elements that numpy itself does not know."""
    return {name: numpy_dtype(name) for name, dtype in STORAGE.items() if numpy_dtype(name) != dtype}
