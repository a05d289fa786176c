"""Compiled models, the functions that ``graphopt.compile`` gives: one program, or one for each kind of inputs.

A model that was compiled before needs neither the steps of ``graphopt.compile`` nor the packages they work with, so
that those are imported when they are first needed.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from graphopt.display import Displayed, shortened
from graphopt.errors import InputError, InvalidModelError, ReadError, UsageError, naming
from graphopt.frozen import dataclass
from graphopt.program import program_cache
from graphopt.run.settings import CompileReport, Settings
from graphopt.runtime.device_program import DeviceProgram
from graphopt.runtime.host import BUILT_IN
from graphopt.runtime.profile import Profile
from graphopt.runtime.program import Program
from graphopt.runtime.saved import save
from graphopt.runtime.signature import given
from graphopt.runtime.steps import Array, HostStep, walk
from graphopt.runtime.timing import Timing
from graphopt.verify.verification import Verification

if TYPE_CHECKING:
    from graphopt.ir.graph import Graph
    from graphopt.lowering.link.linked import Linked
    from graphopt.lowering.loops.nest import Nest
    from graphopt.lowering.lower.kept_states import Pairs
    from graphopt.run.report import Report
    from graphopt.run.steps import Steps
    from graphopt.runtime.bound_state import BoundState

Key: TypeAlias = tuple[tuple[str, str, tuple[int, ...], bytes], ...]
"""What a program is compiled for beyond types: of some inputs the name, dtype, shape, and elements (or none)."""

KEPT = 64
"""Programs for different ranks and elements that a model keeps; the oldest goes first."""


class ReferenceWarning(UserWarning):
    """A node that no kernel computes: ONNX Runtime does, or ONNX's reference evaluator, which is slow."""


@dataclass(frozen=True)
class Compiled:
    """A program with what it was made from."""

    program: Program | DeviceProgram
    linked: Linked
    graph: Graph
    report: CompileReport


class PreparedGraph(NamedTuple):
    """A graph as it is lowered: read, fixed, and rewritten."""

    graph: Graph
    may_be_kept: bool
    """Whether its program may be: the model is all in one piece, and no clock had a say in what it became."""
    original: Graph
    """What the program is compared with."""
    report: Report | None = None
    """What rules did to it; None where nobody asked them."""


Prepare: TypeAlias = "Callable[[Any, Settings, Steps], PreparedGraph]"
"""The steps from a model to the graph that is lowered."""
Build: TypeAlias = "Callable[[Graph, Settings, Steps], Compiled]"
"""The steps from there to a program. NeedsValues where it depends on the elements of some inputs."""


class CompiledModel(Displayed):
    """A compiled model: called with arrays, it gives arrays.

    It is one program where types say all that has to be known. Where the ranks of inputs are open, or their elements
    say which axes are meant, it compiles a program for each that comes, on the first call that needs it, and keeps it.

    >>> model = graphopt.compile(graph)
    >>> isinstance(model, graphopt.CompiledModel), model.input_names, model.is_ready, model.constant_bytes
    (True, ('x',), True, 0)
    >>> model.sizes(np.ones((3, 4), np.float32))
    {'n': 3}
    >>> model(np.array([[-1.0, 0, 1, 2]], np.float32))["y"]
    array([[0., 0., 1., 2.]], dtype=float32)
    >>> model.compiled.report
    <CompileReport: 1 kernel in 1 call, 0 nodes in no kernel>
    >>> model.close()

    States are kept in the program, and what is appended to them is written where they lie:

    >>> from graphopt.ir.text import parse
    >>> model = graphopt.compile(parse("x: float32[n]\\npast: float32[m]\\nall = Concat(past, x, axis=0)\\nreturn all"))
    >>> state = model.bind_state()
    >>> model(np.ones(2, np.float32)), model(np.zeros(1, np.float32)), state.length
    ({}, {}, 3)
    >>> model.state.arrays["past"]
    array([1., 1., 0.], dtype=float32)
    """

    def __init__(
        self,
        model: Any,
        settings: Settings,
        prepare: Prepare,
        build: Build,
        place: program_cache.CacheEntry | None = None,
    ) -> None:
        self.settings = settings
        self._model, self._place = model, place
        self._prepare, self._build = prepare, build
        self._name = str(model) if isinstance(model, str | Path) else None
        self._lock = threading.RLock()
        self._programs: dict[Key, Compiled] = {}
        self._graph: Graph | None = None
        self._original: Graph | None = None
        """What programs are compared with, as long as they are."""
        self._began = time.perf_counter()
        self._needed: frozenset[str] = frozenset()
        """The inputs whose elements programs are compiled for."""
        self._unranked: tuple[str, ...] = ()
        self._only: tuple[Program | DeviceProgram, CompileReport] | None = None
        """The program for all that may come, where there is one."""
        self._rewriting: Report | None = None
        self._state: BoundState | None = None
        self._may_be_kept = False
        if place is not None:
            self._only = program_cache.load(place, settings.threads, settings.verify not in (0, "off"))
        if self._only is None or (settings.strict and self._only[1].unlowered):
            self._only = None
            self._begin()
        else:
            self._tell(self._only[1], stacklevel=4)

    def __repr__(self) -> str:
        made = self.report.summary if self.is_ready else "nothing compiled yet"
        return f"<CompiledModel ({shortened(', '.join(self.input_names))}): {made}>"

    # -- calling

    def __call__(self, *inputs: Any, out: Mapping[str, Array] | None = None) -> dict[str, Any]:
        """The outputs by name: fresh arrays, or those of ``out`` where it has one.

        Inputs are arrays in order, or one mapping or sequence of them: numpy's, or what speaks DLPack. Raises
        InputError where they are not what the model takes, ExecutionError where it cannot be computed with them.
        """
        if self._state is not None:
            return self._state(*inputs, out=out)
        if self._only is not None:
            return self._only[0](*inputs, out=out)
        chosen, rest = self._chosen(self._feeds(inputs))
        return chosen(rest, out=out)

    def profile(self, *inputs: Any) -> Profile:
        """What each step of one call took, in the order in which they began. States that are bound stay as they are."""
        if self._state is not None:
            return self._state.profile(*inputs)
        if self._only is not None:
            return self._only[0].profile(*inputs)
        chosen, rest = self._chosen(self._feeds(inputs))
        return chosen.profile(rest)

    def time(self, *inputs: Any, number: int = 10, repeat: int = 3, **sizes: int) -> Timing:
        """The timing of ``repeat`` series of ``number`` calls, after one to warm up; results go to new arrays in each.

        Without inputs, they are drawn: random floats, and other elements 0; ``sizes`` then say what open sizes are.
        Raises UsageError where a size is missing or unknown, or where inputs decide what the program is, and what a
        call raises; and where a state is bound, which each call would change.
        """
        if self._state is not None:
            raise UsageError("each call would change the state: time calls with it yourself")
        if self._only is not None:
            return self._only[0].time(*inputs, number=number, repeat=repeat, **sizes)
        if not inputs:
            raise UsageError("inputs decide what the program is: time it on given ones")
        chosen, rest = self._chosen(self._feeds(inputs))
        return chosen.time(rest, number=number, repeat=repeat, **sizes)

    def sizes(self, *inputs: Any) -> dict[str, int]:
        """What some inputs say of the sizes that the program leaves open."""
        chosen, rest = (self._only[0], None) if self._only is not None else self._chosen(self._feeds(inputs))
        return chosen.sizes(*inputs) if rest is None else chosen.sizes(rest)

    def bind_state(self, pairs: Pairs | None = None, *, sizes: Mapping[str, int] | None = None) -> BoundState:
        """Keep states in the program from here on: its calls neither take those inputs nor give those outputs.

        ``pairs`` are the names of inputs with those of the outputs that take their places in the next call. By default,
        they are those that are seen in the graph: outputs that append to an input (a cache of keys and values), and
        the states of recurrent ops. What is appended is written into memory that has room, and the past is not copied;
        other states are handed over. ``sizes`` are those that no other input tells. Raises UsageError for pairs that
        are none, where there is no one program for all inputs, and for a target that is not this machine's processor.
        """
        with self._lock:
            if self._state is not None:
                raise UsageError("a state is bound already: compile the model once more for another")
            if not self.settings.target.device.is_host:
                raise UsageError(f"programs for {self.settings.target.name} keep no state")
            named = None if pairs is None else tuple(pairs.items() if isinstance(pairs, Mapping) else map(tuple, pairs))
            place = None if self._place is None else program_cache.beside(self._place, f"states {named}")
            is_compared = self.settings.verify not in (0, "off")
            made = None if place is None else program_cache.load(place, self.settings.threads, is_compared)
            if made is not None:
                self._only, self._state = made, made[0].bind_state(sizes)
                return self._state
            compiled = self._with_states(named)
            assert isinstance(compiled.program, Program)
            state = compiled.program.bind_state(sizes)
            compiled = self._compared_with_states(compiled, state)
            self._drop_programs()
            self._programs, self._only, self._state = {(): compiled}, (state.program, compiled.report), state
            if place is not None and self._may_be_kept:
                program_cache.store(place, *self._only)
            return state

    def _drop_programs(self) -> None:
        """Let go of programs; a call makes them anew where they are missed."""
        for compiled in self._programs.values():
            compiled.program.close()
        self._programs, self._only = {}, None

    def _compared_with_states(self, compiled: Compiled, state: BoundState) -> Compiled:
        """The program that keeps states, compared with the one that keeps none."""
        from graphopt.program.verified import check_states

        if self.settings.verify in (0, "off"):
            return compiled
        plain = self._programs[()]
        if self.settings.verify == 1 and _calls_functions(plain):
            return replace(compiled, report=replace(compiled.report, verification=plain.report.verification))
        with naming(self._name):
            verification = self._step("verify", check_states, self.graph, plain.program, state, self.settings)
        return replace(compiled, report=replace(compiled.report, verification=verification))

    def _with_states(self, pairs: Sequence[tuple[str, str]] | None) -> Compiled:
        """The program of the graph that keeps these states."""
        from graphopt.lowering.lower.kept_states import kept

        graph = self._begin()
        if self._needed or self._unranked:
            names = ", ".join(sorted({*self._needed, *self._unranked}))
            raise UsageError(f"a state is kept in one program, and there is one for each value of {names}")
        graph, states = kept(graph, pairs)
        if self.settings.verify in (0, "off"):  # nothing is compared with it: its constants make room for these
            self._drop_programs()
        with naming(self._name):
            compiled = self._build(graph, replace(self.settings, states=states), self._step)
        return replace(compiled, report=replace(compiled.report, rewriting=self._rewriting))

    @property
    def state(self) -> BoundState | None:
        """The state that the program keeps, where one is bound."""
        return self._state

    def save(self, folder: str | Path) -> None:
        """Write the program for ``graphopt.runtime.load``, where it needs numpy and nothing else; one for a GPU for
        ``graphopt.platforms.load``, on a GPU of the same compute capability."""
        save(self.program, folder)

    def close(self) -> None:
        """Give back memory and threads; the model cannot be called any more."""
        if self._only is not None:
            self._only[0].close()
        for compiled in self._programs.values():
            compiled.program.close()

    def __enter__(self) -> CompiledModel:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    # -- looking

    @property
    def graph(self) -> Graph:
        """The graph that was lowered."""
        return self._begin()

    @property
    def compiled(self) -> Compiled:
        """The program with what it was made from, or the latest of several.

        UsageError where none is compiled before the model is called, ReadError where the model's file has changed.
        """
        self._begin()
        if not self._programs:
            what = ", ".join(sorted({*self._needed, *self._unranked}))
            raise UsageError(f"a program is compiled for each value of {what}: call the model once, or fix its inputs")
        return self._programs[next(reversed(self._programs))]

    @property
    def nests(self) -> Mapping[str, Nest]:
        """The nest of each node that loops compute, by the node's name, before it is scheduled; fused nodes share one.

        Schedule one, and compile the model with it: ``schedules={name: nest}``.
        """
        return self.compiled.linked.nests

    @property
    def report(self) -> CompileReport:
        """What became of the model."""
        return self.compiled.report if self._only is None else self._only[1]

    @property
    def input_names(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        if self._state is not None:
            return self._state.inputs
        if self._only is not None:
            return self._only[0].inputs
        return tuple(self._inputs)

    @property
    def constant_bytes(self) -> int:
        """The bytes of its program's constants; 0 where there is no program yet."""
        if not self.is_ready:
            return 0
        return sum(array.nbytes for array in self.program.code.constants.values())

    @property
    def is_ready(self) -> bool:
        """Whether there is a program: where inputs decide what it is, there is none before the first call."""
        return self._only is not None or bool(self._programs)

    @property
    def program(self) -> Program | DeviceProgram:
        """The program, or the latest of several. UsageError where none is compiled before the model is called."""
        return self.compiled.program if self._only is None else self._only[0]

    # -- making programs

    def _begin(self) -> Graph:
        """The graph, prepared and compiled where that has not been done yet."""
        from graphopt.lowering.lower.lower import NeedsValues
        from graphopt.program.pipeline import steps_of, unranked_inputs

        with self._lock:
            if self._graph is not None:
                return self._graph
            if self._place is not None and not self._place.is_current:
                raise ReadError(f"{self._model}: has changed since it was compiled: compile it again")
            self._step = steps_of(self.settings)
            self._began = time.perf_counter()
            prepared = self._prepare(self._model, self.settings, self._step)
            graph, self._may_be_kept, self._rewriting = prepared.graph, prepared.may_be_kept, prepared.report
            self._original = prepared.original if self.settings.verify not in (0, "off") else None
            self._inputs = {graph.names[v]: v for v in graph.inputs}
            self._unranked = unranked_inputs(graph)
            if not self._unranked:
                try:
                    compiled = self._programs[()] = self._checked(self._compiled(graph))
                    if self._only is None:
                        self._only = compiled.program, compiled.report
                        if self._place is not None and self._may_be_kept and isinstance(compiled.program, Program):
                            program_cache.store(self._place, compiled.program, compiled.report)
                except NeedsValues as needs:
                    self._needed = frozenset(graph.names[v] for v in needs.inputs)
                else:
                    self._original = None
            if self._original is None:
                self._model = None
            self._graph = graph
            return graph

    def _checked(self, compiled: Compiled, feeds: Mapping[str, Any] | None = None) -> Compiled:
        """The program, compared with the model: on random inputs, or on ``feeds``, for which it was compiled."""
        if self._original is None:
            return compiled
        from graphopt.program.verified import check_program

        if self.settings.verify == 1 and _calls_functions(compiled):
            reason = "it calls functions of its user, which is left to runs; verify=2 calls them"
            return replace(compiled, report=replace(compiled.report, verification=Verification("unverified", reason)))

        def run(inputs: Mapping[str, Any]) -> Mapping[str, Any]:
            return compiled.program({n: a for n, a in inputs.items() if feeds is None or n not in self._needed})

        with naming(self._name):
            verification = self._step(
                "verify",
                check_program,
                self._model,
                self._original,
                run,
                self.settings,
                time.perf_counter() - self._began,
                {name: np.asarray(array) for name, array in (feeds or {}).items()},
            )
        return replace(compiled, report=replace(compiled.report, verification=verification))

    def _compiled(self, graph: Graph) -> Compiled:
        with naming(self._name):
            compiled = self._build(graph, self.settings, self._step)
        compiled = replace(compiled, report=replace(compiled.report, rewriting=self._rewriting))
        self._tell(compiled.report, stacklevel=6)
        return compiled

    def _tell(self, report: CompileReport, stacklevel: int) -> None:
        for line in report.warnings:
            warnings.warn(line, ReferenceWarning, stacklevel=stacklevel)

    # -- choosing a program

    def _feeds(self, inputs: Sequence[Any]) -> Mapping[str, Any]:
        """The inputs by name."""
        arrays = given(tuple(inputs))
        if isinstance(arrays, Mapping):
            return arrays
        if len(arrays) > len(self.input_names):
            raise InputError(f"{len(arrays)} arrays are given, and the inputs are {self._listed()}")
        return dict(zip(self.input_names, arrays, strict=False))

    def _listed(self) -> str:
        return ", ".join(map(repr, self.input_names)) or "none"

    def _chosen(self, feeds: Mapping[str, Any]) -> tuple[Program | DeviceProgram, Mapping[str, Any]]:
        """The program for these inputs, and what it is called with."""
        from graphopt.lowering.lower.lower import NeedsValues
        from graphopt.program.pipeline import specialized

        while True:
            needed = self._needed
            key = self._key(feeds, needed)
            compiled = self._programs.get(key)
            if compiled is None:
                with self._lock:
                    if needed is not self._needed:  # another thread found more inputs to depend on
                        continue
                    compiled = self._programs.get(key)
                    if compiled is None:
                        try:
                            graph = specialized(self.graph, needed, self._unranked, feeds)
                            self._began = time.perf_counter()
                            compiled = self._checked(self._compiled(graph), feeds)
                        except NeedsValues as needs:
                            self._needed = needed | {self.graph.names[v] for v in needs.inputs}
                            continue
                        except InvalidModelError as error:  # the model is valid, but not with these elements
                            names = ", ".join(map(repr, sorted({*needed, *self._unranked})))
                            raise InputError(f"with what is given for {names}: {error}") from None
                        if len(self._programs) >= KEPT:
                            del self._programs[next(iter(self._programs))]
                        self._programs[key] = compiled
            rest = feeds if not needed else {n: a for n, a in feeds.items() if n not in needed}
            return compiled.program, rest

    def _key(self, feeds: Mapping[str, Any], needed: Collection[str]) -> Key:
        parts: list[tuple[str, str, tuple[int, ...], bytes]] = []
        for name in sorted({*needed, *self._unranked}):
            if name not in feeds:
                if "default" in self.graph.producer(self._inputs[name]).attrs:
                    continue
                raise InputError(f"no array is given for {name!r}: the inputs are {self._listed()}")
            array = np.asarray(feeds[name])
            if name in needed:
                self._check(name, array)
                parts.append((name, array.dtype.name, array.shape, array.tobytes()))
            else:
                parts.append((name, "", (array.ndim,), b""))
        return tuple(parts)

    def _check(self, name: str, array: Array) -> None:
        """Refuse elements that are not what the input's type says."""
        from graphopt.ir.types import TensorType

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


def _calls_functions(compiled: Compiled) -> bool:
    """Whether steps call Python functions other than those of nodes that no kernel computes."""
    left = {node.name for node in compiled.report.unlowered}
    hosts = (s for s in walk(compiled.program.code.steps) if isinstance(s, HostStep) and s.function not in BUILT_IN)
    return any(not left & set(s.nodes) for s in hosts)
