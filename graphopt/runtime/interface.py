"""Interface of programs for their callers, whatever they run on: inputs and outputs, sizes, memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, Self

import numpy as np

from graphopt.display import Displayed, counted, shortened
from graphopt.errors import InputError
from graphopt.frozen import dataclass
from graphopt.runtime.binding import Binder, Binding, Lease
from graphopt.runtime.device import Resident
from graphopt.runtime.dtypes import OBJECTS, STORAGE
from graphopt.runtime.host import BUILT_IN, ExternalCall, HostFunction
from graphopt.runtime.layout import CodeLayout
from graphopt.runtime.signature import Signature, given
from graphopt.runtime.steps import Array, Code, HostStep, walk
from graphopt.runtime.timing import Timing, check_sizes, drawn, flops_of, timed


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that a program takes: of its arena, of the same buffers if none shared memory, of its constants."""

    arena: int
    separate: int
    constants: int


class Interface(Displayed):
    """A program, apart from how it runs. Those that run say what ``_binder`` is."""

    _binder: Binder
    _noun = "input"
    """What messages call an array of a call."""

    def __init__(
        self,
        code: Code,
        functions: Mapping[str, HostFunction] | None,
        dtypes: Mapping[str, np.dtype[Any]] | None,
        layout: CodeLayout,
        threads: int = 1,
    ) -> None:
        self.code = code
        self._dtypes = {**STORAGE, **(dtypes or {})}
        self._functions = {**BUILT_IN, **(functions or {})}
        if left := code.regions.keys() - self._functions.keys():
            from graphopt.runtime.onnxruntime import Region

            self._functions |= {name: Region(code.regions[name], threads) for name in sorted(left)}
        _check(code, self._functions)
        self._layout = layout
        self._signature = Signature(code, self._dtypes, self._noun)
        self._bindings: dict[tuple[tuple[int, ...], ...], Binding] = {}
        self._closed = False

    def __repr__(self) -> str:
        names = f"({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})"
        return f"<{type(self).__name__} {shortened(names)}: {counted(len(self.code.steps), 'step')}>"

    @property
    def external_calls(self) -> dict[str, ExternalCall]:
        """The calls of external functions, by the functions of its host steps."""
        return {key: f for key, f in self._functions.items() if isinstance(f, ExternalCall)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the inputs, in order."""
        return self._signature.names

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of the outputs, in order."""
        return tuple(p.name for p in self.code.outputs)

    def dtype_of(self, name: str) -> np.dtype[Any]:
        """The dtype of an input."""
        return next(self._dtypes[self.code.buffers[p.buffer].dtype] for p in self.code.inputs if p.name == name)

    @property
    def symbols(self) -> tuple[str, ...]:
        """The sizes that the inputs bind."""
        return self._layout.levels[0]

    def sizes(self, *inputs: Any) -> dict[str, int]:
        """The sizes that some inputs bind. Raises InputError for what the program does not take."""
        _, binding = self._accepted(inputs)
        return {name: binding.symbols[name] for name in self.symbols}

    def time(self, *inputs: Any, number: int = 10, repeat: int = 3, **sizes: int) -> Timing:
        """The timing of ``repeat`` series of ``number`` calls, after one to warm up; results go to new arrays in each.

        Without inputs, they are drawn: random floats, and other elements 0; ``sizes`` then say what open sizes are.
        Raises UsageError where a size is missing or unknown, or where nothing tells what an input is, and what a call
        raises.
        """
        if inputs:
            check_sizes("the program on these arrays", (), sizes, ())
            return replace(self.timed(inputs, number, repeat), flops=flops_of(self.code, self.sizes(*inputs)))
        return replace(self.timed((self.drawn(sizes),), number, repeat), flops=flops_of(self.code, sizes))

    def timed(self, inputs: Sequence[Any], number: int, repeat: int, *, runs: int = 1) -> Timing:
        """The timing of ``repeat`` series of ``number`` calls with these inputs, each of which is ``runs`` runs."""
        return timed(partial(self.__call__, *inputs), number, repeat, runs=runs)

    def drawn(self, sizes: Mapping[str, int], name: str = "the program") -> dict[str, Array]:
        """Arrays for the inputs where open sizes are these: random floats, and 0. UsageError as for ``time``."""
        check_sizes(name, self.symbols, sizes, self.symbols)
        return drawn(name, self.code, self._dtypes, sizes)

    def __call__(self, *inputs: Any, out: Mapping[str, Array] | None = None) -> dict[str, Any]:
        """The outputs by name."""
        raise NotImplementedError

    def leases(self, symbols: Mapping[str, int] | None = None) -> tuple[Lease, ...]:
        """Which part of the arena each buffer has, and when, with these sizes: what is known before anything runs."""
        return self._binder.leases(self._bound(symbols))

    def _bound(self, symbols: Mapping[str, int] | None) -> Binding:
        try:
            values = {name: (symbols or {})[name] for name in self.symbols}
        except KeyError as error:
            raise InputError(f"no size is given for {error}: the inputs have {', '.join(self.symbols)}") from None
        return self._binder.bind(0, values)

    def memory(self, symbols: Mapping[str, int] | None = None) -> Memory:
        """The memory that a call takes with these sizes, as far as it is known before anything runs."""
        binding = self._bound(symbols)
        constants = sum(c.nbytes for c in self.code.constants.values() if c.dtype != object)
        return Memory(binding.arena_bytes, binding.separate_bytes, constants)

    def close(self) -> None:
        """Give memory back. The program cannot be called again."""
        self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self.close()

    def _accepted(self, inputs: tuple[Any, ...]) -> tuple[Sequence[Any], Binding]:
        """A call's arrays, row-major and in order, and what follows from their shapes, worked out once for each."""
        if self._closed:
            raise InputError("this program is closed, and cannot be called any more")
        values = self._taken(self._signature.ordered(given(inputs)))
        shapes = self._signature.shapes(values)
        binding = None if shapes is None else self._bindings.get(shapes)
        if binding is None:
            values, symbols = self._signature.accept(values)
            binding = self._binder.bind(0, symbols)
            if shapes is not None:
                if len(self._bindings) >= Binder.KEPT:
                    self._bindings.clear()
                self._bindings[shapes] = binding
        return values, binding

    def _taken(self, values: Sequence[Any]) -> Sequence[Any]:
        """What is given for each input as the program takes it."""
        return values


def check_out(name: str, array: Array | Resident, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ``InputError`` where a caller's array cannot hold an output."""
    if array.shape != shape or array.dtype != dtype:
        raise InputError(
            f"the array for output {name!r} is {array.dtype}{list(array.shape)}, and {dtype}{list(shape)} is expected"
        )


def check_apart(arrays: Mapping[str, Array]) -> None:
    """Raise ``InputError`` where two of them share memory."""
    for (one, a), (other, b) in combinations(arrays.items(), 2):
        if np.may_share_memory(a, b) and np.shares_memory(a, b):
            raise InputError(f"the arrays for the outputs {one!r} and {other!r} share memory")


def _check(code: Code, functions: Mapping[str, HostFunction]) -> None:
    """Raise ``ValueError`` for constants that are not as their buffers say, and functions that are missing."""
    for n, array in code.constants.items():
        buffer = code.buffers[n]
        if buffer.dtype in OBJECTS:
            continue
        flags = array.flags
        if not (flags.c_contiguous and flags.aligned) or array.dtype.itemsize != STORAGE[buffer.dtype].itemsize:
            raise ValueError(f"the constant of buffer {n} is {array.dtype}, and row-major {buffer.dtype} is expected")
    for n, buffer in enumerate(code.buffers):
        if buffer.shape is None and buffer.place not in ("input", "host"):
            raise ValueError(f"buffer {n} has no shape, and the place {buffer.place!r}")
        if buffer.place == "constant" and n not in code.constants:
            raise ValueError(f"buffer {n} is a constant, and there is no array for it")
        if buffer.dtype in OBJECTS and buffer.place not in ("input", "constant", "host"):
            raise ValueError(f"buffer {n} holds Python objects, and has the place {buffer.place!r}")
    for step in walk(code.steps):
        if isinstance(step, HostStep) and step.function not in functions:
            raise ValueError(f"there is no function {step.function!r} for a host step")
