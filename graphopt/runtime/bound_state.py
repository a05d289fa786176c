"""State of a program that stays between calls: a cache of keys and values, states of recurrent layers, counters.

A state that grows lies in memory with room behind it, which the program writes into; only where that is full are its
rows copied, into memory that is half as large again. One of one shape is handed over: what a call wrote is what the
next one reads, and the memory that it had is written next.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import Any
from zipfile import BadZipFile

import numpy as np

from graphopt.display import shortened
from graphopt.errors import InputError, ReadError, UsageError
from graphopt.runtime.profile import Profile
from graphopt.runtime.program import Program
from graphopt.runtime.signature import given
from graphopt.runtime.sizes import evaluate, symbols_of
from graphopt.runtime.state import fresh
from graphopt.runtime.steps import Array, StatePort
from graphopt.saving import whole

ROWS = 64
"""Rows for which there is room come in blocks of so many."""

DAMAGED = (
    ValueError,
    TypeError,
    AttributeError,
    KeyError,
    EOFError,
    RuntimeError,
    MemoryError,
    SyntaxError,
    BadZipFile,
)
"""What numpy raises for a file that holds no arrays, or damaged ones: their headers are read as Python."""


class BoundState:
    """The state of a program, which its calls go on from; ``sizes`` are those that no other input tells."""

    def __init__(self, program: Program, sizes: Mapping[str, int] | None = None) -> None:
        self.program = program
        self._sizes = dict(sizes or {})
        code = program.code
        self._states: Mapping[str, StatePort] = {s.past: s for s in code.states}
        self._growing = tuple(s for s in code.states if s.axis is not None)
        self._steady = tuple(s for s in code.states if s.axis is None and not s.in_place)
        self._in_place = tuple(s for s in code.states if s.in_place)
        self._lengths = dict.fromkeys((s.length for s in self._growing), 0)
        self._buffers = {p.name: code.buffers[p.buffer] for p in code.inputs}
        hidden = {*self._states, *self._lengths}
        self.inputs = tuple(name for name in program.inputs if name not in hidden)
        self.outputs = tuple(n for n in program.outputs if n not in {s.present for s in self._steady})
        self._memory: dict[str, Array] = {}
        self._spare: dict[str, Array] = {}
        self._counts: dict[str, Array] = {name: _rows(0) for name in self._lengths}
        self._lock = Lock()
        self._check()

    def _check(self) -> None:
        """Raises UsageError where no input of a call tells a size of a state."""
        told = {s for name in self.inputs for s in self._buffers[name].shape or () if isinstance(s, str)}
        lengths = {s for name in self._lengths for s in self._buffers[name].shape or () if isinstance(s, str)}
        for s in self._states.values():
            shape = self._buffers[s.past].shape or ()
            wanted = {n for k, size in enumerate(shape) if k != s.axis for n in symbols_of(size)}
            if missing := sorted(wanted - told - self._sizes.keys()):
                raise UsageError(
                    f"no input but the state {s.past!r} tells the size {missing[0]!r}: give it, as in "
                    f"bind_state(sizes={{{missing[0]!r}: 1}})"
                )
            if set(symbols_of(s.after)) - told - lengths:
                raise UsageError(f"how long the state {s.past!r} becomes is not known before it is computed")

    def __repr__(self) -> str:
        return f"<BoundState ({shortened(', '.join(self._states))}): {self.length} rows, {self.bytes} bytes>"

    # -- calling

    def __call__(self, *inputs: Any, out: Mapping[str, Array] | None = None) -> dict[str, Array]:
        """The outputs by name, states left out; the state is what it is after that. A call that fails leaves it."""
        for name in out or ():
            if name not in self.outputs:
                outputs = ", ".join(map(repr, self.outputs)) or "none"
                raise InputError(f"there is no output {name!r} to write into: the outputs are {outputs}")
        with self._lock:
            feeds, symbols = self._fed(inputs)
            results = self.program(feeds, out={**(out or {}), **self._targets()} if self._steady or out else None)
            self._step(symbols)
        for s in self._steady:
            del results[s.present]
        return results

    def profile(self, *inputs: Any) -> Profile:
        """What each step of one call took; the state stays as it is."""
        with self._lock:
            return self.program.profile(self._fed(inputs)[0])

    def _fed(self, inputs: tuple[Any, ...]) -> tuple[dict[str, Any], dict[str, int]]:
        """All that the program is called with, and the sizes that it tells."""
        arrays = given(inputs)
        if not isinstance(arrays, Mapping):
            if len(arrays) > len(self.inputs):
                raise InputError(f"{len(arrays)} arrays are given, and the inputs are {self._listed()}")
            arrays = dict(zip(self.inputs, arrays, strict=False))
        for name in arrays:
            if name not in self.inputs:
                why = "is a state, which the program keeps" if name in self._states else "is none of the inputs"
                raise InputError(f"{name!r} {why}: the inputs are {self._listed()}")
        symbols = dict(self._sizes)
        for name, array in arrays.items():
            for size, count in zip(self._buffers[name].shape or (), np.shape(array), strict=False):
                if isinstance(size, str):
                    symbols[size] = count
        for name, count in self._lengths.items():
            symbols[self._symbol(name)] = count
        missing = [name for name in self.inputs if name not in arrays and not self._has_default(name)]
        if missing:
            raise InputError(f"no array is given for {', '.join(map(repr, missing))}: the inputs are {self._listed()}")
        for name, rows in self._lengths_after(symbols).items():
            self._make_room(name, rows, symbols)
        for s in (*self._steady, *self._in_place):
            if s.past not in self._memory:
                self._memory[s.past] = self._made(s, symbols)
        for s in self._steady:
            if s.past not in self._spare:
                self._spare[s.past] = np.empty_like(self._memory[s.past])
        return {**arrays, **self._memory, **self._counts}, symbols

    def _has_default(self, name: str) -> bool:
        return any(p.name == name and p.buffer in self.program.code.constants for p in self.program.code.inputs)

    def _listed(self) -> str:
        return ", ".join(map(repr, self.inputs)) or "none"

    def _symbol(self, length: str) -> str:
        return str((self._buffers[length].shape or ("",))[0])

    def _targets(self) -> dict[str, Array]:
        return {s.present: self._spare[s.past] for s in self._steady}

    def _step(self, symbols: Mapping[str, int]) -> None:
        """Let what a call wrote be the state."""
        self._set_lengths(self._lengths_after(symbols))
        for s in self._steady:
            self._memory[s.past], self._spare[s.past] = self._spare[s.past], self._memory[s.past]

    def _lengths_after(self, symbols: Mapping[str, int]) -> dict[str, int]:
        """How long states are after a call. Raises InputError where the model says one length of two that differ."""
        lengths: dict[str, int] = {}
        for s in self._growing:
            rows = int(evaluate(s.after, symbols))
            if lengths.setdefault(s.length, rows) != rows:
                first = next(other.past for other in self._growing if other.length == s.length)
                raise InputError(
                    f"the states {first!r} and {s.past!r} have {self._symbol(s.length)!r} rows, both, "
                    f"and would have {lengths[s.length]} and {rows} after this call"
                )
        return lengths

    def _set_lengths(self, lengths: Mapping[str, int]) -> None:
        for name, rows in lengths.items():
            self._lengths[name] = rows
            self._counts[name] = _rows(rows)

    # -- memory

    def _shape(self, s: StatePort, symbols: Mapping[str, int], rows: int = 0) -> tuple[int, ...]:
        shape = self._buffers[s.past].shape or ()
        return tuple(rows if k == s.axis else int(evaluate(size, symbols)) for k, size in enumerate(shape))

    def _made(self, s: StatePort, symbols: Mapping[str, int]) -> Array:
        """The first array of a state of one shape: its default, or zeros."""
        number = next(p.buffer for p in self.program.code.inputs if p.name == s.past)
        default = self.program.code.constants.get(number)
        return default.copy() if default is not None else np.zeros(self._shape(s, symbols), self._dtype(s))

    def _dtype(self, s: StatePort) -> np.dtype[Any]:
        return self.program.dtype_of(s.past)

    def _make_room(self, length: str, rows: int, symbols: Mapping[str, int]) -> None:
        """Let the memory of all states of one length have room for so many rows, and for as many each."""
        kept: dict[str, Array] = {}
        states = [s for s in self._growing if s.length == length]
        held = self._lengths[length]
        for s in states:
            memory = self._memory.get(s.past)
            if memory is not None and (held or memory.shape == self._shape(s, symbols, memory.shape[s.axis or 0])):
                kept[s.past] = memory
        has = max((kept[s.past].shape[s.axis or 0] for s in states if s.past in kept), default=0)
        if has < max(rows, 1):
            has = -(-max(rows, has + has // 2, 1) // ROWS) * ROWS
        for s in states:
            axis, memory = s.axis or 0, kept.get(s.past)
            if memory is not None and memory.shape[axis] == has:
                continue
            shape = self._shape(s, symbols, has)
            if memory is not None and held:
                shape = (*memory.shape[:axis], has, *memory.shape[axis + 1 :])
            new = fresh(shape, self._dtype(s))
            if memory is not None and held:
                new[_first(axis, held)] = memory[_first(axis, held)]
            self._memory[s.past] = new

    # -- what users see

    @property
    def length(self) -> int:
        """The rows of the state: tokens of a cache, of the longest where there are several; 0 after ``reset``."""
        return max(self._lengths.values(), default=0)

    @property
    def bytes(self) -> int:
        """The bytes that it takes, with the room behind what it holds."""
        return sum(a.nbytes for a in (*self._memory.values(), *self._spare.values()))

    @property
    def arrays(self) -> dict[str, Array]:
        """Copies of the states, as the inputs that they stand for would be given; none before the first call."""
        with self._lock:
            return {name: self._held(name).copy() for name in self._states if name in self._memory}

    def _held(self, name: str) -> Array:
        s = self._states[name]
        memory = self._memory[name]
        return memory if s.axis is None else memory[_first(s.axis, self._lengths[s.length])]

    def reset(self) -> None:
        """Begin anew: with no rows, and zeros (or the model's defaults) in states of one shape. Memory is kept."""
        with self._lock:
            self._set_lengths(dict.fromkeys(self._lengths, 0))
            for s in (*self._steady, *self._in_place):
                self._memory.pop(s.past, None)
                self._spare.pop(s.past, None)

    def rewind(self, length: int) -> None:
        """Go back to the first rows. UsageError where there are fewer, or states of one shape, which have no past."""
        if len(self._growing) < len(self._states):
            raise UsageError(f"a state of one shape cannot go back: {', '.join(map(repr, self._states))}")
        with self._lock:
            if not all(0 <= length <= rows for rows in self._lengths.values()):
                raise UsageError(f"a state of {self.length} rows cannot go back to {length}")
            self._set_lengths(dict.fromkeys(self._lengths, length))

    def set(self, arrays: Mapping[str, Any]) -> None:
        """Go on from these states, by input. Raises InputError where one is missing, unknown, or does not fit."""
        if set(arrays) != set(self._states):
            raise InputError(f"the states are {', '.join(self._states)}, and {', '.join(arrays) or 'none'} are given")
        symbols, lengths = dict(self._sizes), dict[str, int]()
        given = {name: np.asarray(array) for name, array in arrays.items()}
        for name, array in given.items():
            s, shape = self._states[name], self._buffers[name].shape or ()
            dtype = self._dtype(s)
            is_fit = array.dtype == dtype and array.ndim == len(shape)
            for k, (size, count) in enumerate(zip(shape, array.shape, strict=False)):
                if k == s.axis:
                    is_fit &= lengths.setdefault(s.length, count) == count
                else:
                    expected = symbols.setdefault(size, count) if isinstance(size, str) else evaluate(size, symbols)
                    is_fit &= expected == count
            if not is_fit:
                raise InputError(f"the state {name!r} cannot be {array.dtype}{list(array.shape)}: {self._expected(s)}")
        with self._lock:
            self._set_lengths(dict.fromkeys(self._lengths, 0))
            for name, rows in lengths.items():
                self._make_room(name, rows, symbols)
            for name, array in given.items():
                s = self._states[name]
                if s.axis is None:
                    self._memory[name] = array.copy(order="C")
                    self._spare.pop(name, None)
                    continue
                self._memory[name][_first(s.axis, array.shape[s.axis])] = array
            self._set_lengths(lengths)

    def _expected(self, s: StatePort) -> str:
        shape = self._buffers[s.past].shape or ()
        sizes = ", ".join(self._symbol(s.length) if k == s.axis else str(n) for k, n in enumerate(shape))
        return f"{self._dtype(s)}[{sizes}], as the others, is expected"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the states into a file (``.npz``), by input, whole or not at all. ReadError where that cannot be
        written."""
        arrays: dict[str, Any] = {name: array.view(_plain(array.dtype)) for name, array in self.arrays.items()}
        with whole(Path(path)) as file:
            np.savez(file, **arrays)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Go on from the states in a file. Raises ReadError for what is no such file, and what ``set`` does."""
        try:
            with np.load(path, allow_pickle=False) as file:
                arrays = {name: np.asanyarray(file[name]) for name in file.files}
        except OSError as error:
            raise ReadError(f"{path} cannot be read: {error.strerror or 'it holds no states'}") from None
        except DAMAGED:
            raise ReadError(f"{path} holds no states") from None
        for name, array in arrays.items():
            if name in self._states:
                dtype = self._dtype(self._states[name])
                arrays[name] = array.view(dtype) if array.dtype == _plain(dtype) else array
        self.set(arrays)


def _rows(count: int) -> Array:
    """An array of so many rows without elements."""
    return np.empty((count, 0), np.uint8)


def _first(axis: int, rows: int) -> tuple[slice, ...]:
    """The index of the first rows along an axis."""
    return (*(slice(None),) * axis, slice(rows))


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of numpy's own as wide as one that files cannot hold; of others, that dtype."""
    return dtype if dtype.isbuiltin == 1 else np.dtype(f"u{dtype.itemsize}")
