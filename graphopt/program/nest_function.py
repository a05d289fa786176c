"""Functions of tensor programs: a nest, compiled as it is scheduled, and called on the caller's arrays."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from graphopt.display import Scripted
from graphopt.lowering.analysis.flops import flops
from graphopt.lowering.cuda.procedures import is_bound
from graphopt.lowering.link.linked import Linked
from graphopt.lowering.link.passes import emitted, scheduled
from graphopt.lowering.link.plan_memory import Planner
from graphopt.lowering.loops.expressions import Var
from graphopt.lowering.loops.nest import BY_RULE, Nest
from graphopt.lowering.loops.nest import Buffer as NestBuffer
from graphopt.lowering.loops.sizes import size_of
from graphopt.lowering.loops.wellformed import check
from graphopt.platforms import equipped, here, platform_of
from graphopt.run.settings import Settings
from graphopt.runtime.device import DLPACK_KINDS
from graphopt.runtime.in_place import InPlaceDeviceProgram, InPlaceProgram
from graphopt.runtime.sizes import Size, evaluate
from graphopt.runtime.steps import Port, ProgramBuffer
from graphopt.runtime.timing import Timing, check_counts, check_sizes
from graphopt.target import CPU, CUDA, Target
from graphopt.target import target as target_named

_Program: TypeAlias = InPlaceProgram | InPlaceDeviceProgram

KEPT = 64
"""Functions of nests that are kept for the next call, and programs of one function for fixed sizes."""


class NestFunction(Scripted):
    """The function of a tensor program, in destination-passing style: ``function(a, b, c)`` writes ``c``.

    It is compiled as it is scheduled, or by rule where the note ``schedule`` is ``default``, and for a GPU also where
    no loop is bound to blocks or threads. Arguments are arrays in the order of the program's buffers, or by name:
    numpy's, or what speaks DLPack; for a GPU those that lie there are used in place, and numpy's are sent there and
    fetched. Those that are written have to be row-major and writable, and share no memory with others; of the others,
    what is not row-major is copied before. Open sizes are those of the arrays; sizes that no array tells are given by
    name. Raises NestError for a malformed program, CompilationError for one that does not compile for the target, and
    DeviceError where there is no GPU.
    """

    def __init__(self, nest: Nest, *, threads: int = 1, target: str | Target = CPU) -> None:
        check(nest)
        named = equipped(here(target_named(target, makes_models=False)))
        self.nest, self.threads = nest, threads
        self._platform = platform_of(named.device)
        options = self._platform.options(named.prices.products, Settings(target=named))
        self._plain = nest if BY_RULE not in nest.notes else as_it_stands(nest)
        is_ready = self._plain is nest and (named.device.is_host or is_bound(nest.body))
        self._key = self._plain, is_ready
        self._parts = scheduled(self._plain, is_ready, options)
        self._emitted = emitted(self._parts, options)
        self._sizes = tuple(v.name for v in nest.sizes)
        told = {e.name for b in nest.buffers for e in b.shape if isinstance(e, Var)}
        self._untold = tuple(name for name in self._sizes if name not in told)
        self._programs: OrderedDict[tuple[int, tuple[tuple[str, int], ...]], _Program] = OrderedDict()
        self._lock = threading.Lock()
        self._program: _Program | None = None if self._untold else self._made(1, ())

    @property
    def name(self) -> str:
        """The name of the program."""
        return self.nest.name

    def __call__(self, *arrays: Any, **sizes: int) -> None:
        """Runs the program on these arrays. Raises InputError where they do not fit, before it runs, UsageError for a
        size that is missing, and ExecutionError where a check in the program fails."""
        program = self._program if self._program is not None and not sizes else self._for(1, self._fixed(sizes))
        program(*arrays)

    def time(self, *arrays: Any, number: int = 10, repeat: int = 3, **sizes: int) -> Timing:
        """The timing of ``repeat`` series of ``number`` runs without Python between them, after some to warm up.

        Without arrays, they are drawn: random floats, and integers 0; ``sizes`` then say all open sizes. Raises
        UsageError where a size is missing or is no size, and as a call does.
        """
        check_counts(number, repeat)
        if arrays:
            program = self._for(number, self._fixed(sizes))
            given: tuple[Any, ...] = arrays
            known = {**program.sizes(*arrays), **sizes}
        else:
            check_sizes(self.name, self._sizes, sizes, self._sizes)
            fixed = tuple((name, int(sizes[name])) for name in self._untold)
            program, known = self._for(number, fixed), sizes
            given = (program.drawn({name: n for name, n in sizes.items() if name not in self._untold}, self.name),)
        work = evaluate(flops(self._plain, {v: known[v.name] for v in self.nest.sizes}), {})
        return replace(program.timed(given, 1, repeat, runs=number), flops=work)

    def __repr__(self) -> str:
        return f"<NestFunction of {self.nest!r}>"

    def script(self) -> str:
        """The script of the program, as it was given."""
        return self.nest.script()

    # -- programs

    def _fixed(self, sizes: dict[str, int]) -> tuple[tuple[str, int], ...]:
        """The sizes that are given by name, in order."""
        check_sizes(self.name, self._sizes, sizes, self._untold)
        return tuple((name, int(sizes[name])) for name in self._sizes if name in sizes)

    def _for(self, number: int, fixed: tuple[tuple[str, int], ...]) -> _Program:
        """The program of so many runs for these sizes."""
        with self._lock:
            program = self._programs.get((number, fixed))
            if program is None:
                program = self._programs[number, fixed] = self._made(number, fixed)
                if len(self._programs) > KEPT:
                    self._programs.popitem(last=False)
            return program

    def _made(self, number: int, fixed: tuple[tuple[str, int], ...]) -> _Program:
        sizes: dict[Var, Size] = {v: dict(fixed).get(v.name, v.name) for v in self.nest.sizes}
        planner = Planner({self._key: self._parts}, {self._key: self._emitted})
        buffers: dict[NestBuffer, int] = {}
        for buffer in self.nest.buffers:
            shape = tuple(size_of(e, sizes) for e in buffer.shape)
            buffers[buffer] = planner.add(ProgramBuffer(buffer.dtype, shape, "input"))
        ports = tuple(Port(b.name, n) for b, n in buffers.items())
        calls = tuple(planner.calls(self._plain, dict(buffers), sizes, self.name, (), is_ready=self._key[1]))
        linked = Linked(ports, (), tuple(planner.buffers), calls * number, tuple(planner.kernels), planner.constants)
        with self._platform.compiling(None) as compiling:
            for kernel in sorted(linked.kernels, key=lambda k: -len(k.source)):  # long ones first
                compiling.begin(kernel)
            objects = compiling.objects(linked.kernels)
        return self._platform.in_place(linked, objects, [b.name for b in self.nest.outputs], self.threads)


def as_it_stands(nest: Nest) -> Nest:
    """The nest without the note that it is to be scheduled by rule."""
    return replace(nest, notes=tuple(n for n in nest.notes if n != BY_RULE))


def time_nest(nest: Nest, number: int = 10, repeat: int = 3, *, threads: int = 1, **sizes: int) -> Timing:
    """Times a nest as it stands, whatever its notes say: ``repeat`` series of ``number`` runs, after some to warm up.

    ``sizes`` are what its sizes are, by name. Floats that it reads are random numbers, integers 0. Raises UsageError
    where a size is missing or is no size, and CompilationError where it does not compile. ``nest.time`` is the same for
    nests that are called, which are scheduled by rule where a note says so.
    """
    return NestFunction(as_it_stands(nest), threads=threads).time(number=number, repeat=repeat, **sizes)


_functions: OrderedDict[tuple[int, bool], NestFunction] = OrderedDict()
_last: NestFunction | None = None
_turn = threading.Lock()


def function_of(nest: Nest, arrays: Sequence[Any] = ()) -> NestFunction:
    """The function of a nest, compiled once, for where these arrays lie: a GPU, where one of them does, else the
    processor. Those of the last nests that were called are kept.

    Nests are told apart by identity: to compare or hash a large one takes longer than to run it.
    """
    global _last  # it is at the end already
    for array in arrays:
        if type(array) is not np.ndarray and _is_on_gpu(array):
            return _kept(nest, True)
    function = _last
    if function is not None and function.nest is nest:
        return function
    function = _last = _kept(nest, False)
    return function


def _is_on_gpu(array: Any) -> bool:
    if hasattr(type(array), "__cuda_array_interface__"):  # asked first: to ask cupy for DLPack's device takes 30 us
        try:
            return hasattr(array, "__cuda_array_interface__")
        except RuntimeError:  # of a tensor of torch's there whose gradient is wanted
            return True
    return hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] in DLPACK_KINDS


def _kept(nest: Nest, is_on_gpu: bool) -> NestFunction:
    """The function of a nest, of those that are kept, or compiled now."""
    key = id(nest), is_on_gpu  # the function holds the nest, and so nothing else has that identity
    with _turn:
        function = _functions.get(key)
        if function is not None:
            _functions.move_to_end(key)
    if function is None:
        function = NestFunction(nest, target=CUDA if is_on_gpu else CPU)
        with _turn:
            _functions[key] = function
            while len(_functions) > KEPT:
                _functions.popitem(last=False)
    return function
