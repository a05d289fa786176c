"""Bindings of a program's symbols to sizes: the memory plan, and every argument up to a base address.

One is made for each set of sizes, and serves every call with them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from graphopt.errors import InputError
from graphopt.runtime import arena
from graphopt.runtime.dtypes import OBJECTS, STORAGE
from graphopt.runtime.layout import CodeLayout
from graphopt.runtime.sizes import evaluate, show, symbols_of
from graphopt.runtime.steps import Code, Condition, ProgramBuffer, Words
from graphopt.runtime.thread_pool import address

_MOST = 1 << 62
"""Bytes beyond which addresses are not computed any more: they are int64."""


@dataclass(frozen=True, slots=True, eq=False)
class Binding:
    """The symbols of one level with their values, and what follows from them."""

    symbols: Mapping[str, int]
    """Of this level and all before."""
    offsets: Words
    """For each word of the level: a size, or bytes from its base."""
    places: Mapping[int, int]
    """The offsets of this level's buffers in its arena."""
    arena_bytes: int
    separate_bytes: int
    """What the buffers would take if none shared memory."""
    outputs: Mapping[int, tuple[int, ...]]
    """The shapes of this level's output buffers."""
    regions: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    """Of this level's buffers that were asked for, the bytes from the start of the root's memory, and the shape."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The part of an arena that a buffer has, from one step to another, both included (``arena.moments``)."""

    buffer: int
    offset: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class BindingLevel:
    """One level's words and buffers, for any sizes."""

    words: Words
    """The numbers of its words."""
    bases: Words
    """For each of them the number of its base."""
    moving: tuple[tuple[int, int, int], ...]
    """Of those that count from an array of the call: the place among them, the number, and that of the base."""
    arena: tuple[int, ...]
    outputs: tuple[int, ...]
    views: tuple[int, ...]
    conditions: tuple[Condition, ...]


class Binder:
    """Makes bindings, and keeps the latest ones.

    Bases are addresses that words count from: 0 is none at all, 1 to ``levels`` are the arenas, then come inputs,
    outputs and host buffers, as ``slots`` says.
    """

    KEPT = 1024  # a loop may go through as many sizes in each call

    def __init__(
        self,
        code: Code,
        layout: CodeLayout,
        constants: Mapping[int, int] | None = None,
        alignment: int = arena.ALIGNMENT,
    ) -> None:
        """``constants`` are the addresses of constants by buffer, where they are not their arrays'; what lies in an
        arena begins at multiples of ``alignment`` bytes."""
        self._code, self._layout, self._constants, self._alignment = code, layout, constants, alignment
        self._kept: dict[tuple[object, ...], Binding] = {}
        self._lock = threading.Lock()
        self._lives = arena.lifetimes(code, layout.roots)
        count = len(layout.levels)
        loose = [n for n, b in enumerate(code.buffers) if b.place in ("input", "output", "host")]
        self.slots = {n: 1 + count + k for k, n in enumerate(loose)}
        self.bases = 1 + count + len(loose)
        self.levels = tuple(self._level(k) for k in range(count))
        self._symbols = [[s for known in layout.levels[: k + 1] for s in known] for k in range(count)]
        self.arrays = (*(p.buffer for p in code.inputs), *self.levels[0].outputs)
        """The buffers whose arrays a call begins with, in order: inputs, then outputs."""

    def _level(self, level: int) -> BindingLevel:
        buffers, ages, count = self._code.buffers, self._layout.ages, len(self._layout.levels)
        words = [n for n, w in enumerate(self._layout.words) if w.level == level]
        bases = [self._base(self._layout.words[n].root) for n in words]
        of_level = [n for n in range(len(buffers)) if ages[n] == level]
        return BindingLevel(
            np.array(words, np.int64),
            np.array(bases, np.int64),
            tuple((k, n, base) for k, (n, base) in enumerate(zip(words, bases, strict=True)) if base > count),
            tuple(n for n in of_level if buffers[n].place == "arena" and n in self._lives),
            tuple(n for n in of_level if buffers[n].place == "output"),
            tuple(n for n in of_level if self._is_checked(buffers[n])),
            tuple(c for c, age in zip(self._code.conditions, self._layout.conditions, strict=True) if age == level),
        )

    @staticmethod
    def _is_checked(buffer: ProgramBuffer) -> bool:
        return buffer.place == "view" and buffer.dtype not in OBJECTS and not buffer.tentative

    def _base(self, root: int | None) -> int:
        if root is None or self._code.buffers[root].place == "constant":
            return 0
        return 1 + self._layout.ages[root] if self._code.buffers[root].place == "arena" else self.slots[root]

    def bind(self, level: int, symbols: Mapping[str, int], earlier: Sequence[Binding | None] = ()) -> Binding:
        """The binding of a level's symbols.

        ``symbols`` has those of earlier levels too, of which ``earlier`` begins with the bindings.
        """
        key = level, *map(symbols.get, self._symbols[level])
        binding = self._kept.get(key)
        if binding is None:
            places = {n: at for b in earlier[:level] if b is not None for n, at in b.places.items()}
            binding = self._made(level, dict(symbols), places)
            with self._lock:
                if len(self._kept) >= self.KEPT:
                    self._kept.pop(next(iter(self._kept)))
                self._kept[key] = binding
        return binding

    def _made(self, level: int, symbols: Mapping[str, int], earlier: Mapping[int, int]) -> Binding:
        of_level = self.levels[level]
        for condition in of_level.conditions:
            if not evaluate(condition.holds, symbols):
                values = {name: symbols[name] for name in symbols_of(condition.holds)}
                raise InputError(f"{condition.message}: {show(condition.holds)} is expected, with {values}")
        for view in of_level.views:
            self._check_view(view, symbols)
        sizes = {n: self.bytes(n, symbols) for n in of_level.arena}
        outputs = {n: self.shape(n, symbols) for n in of_level.outputs}
        separate = sum(arena.up(size, self._alignment) for size in sizes.values())
        wanted = separate + sum(self.bytes(n, symbols) for n in outputs)
        if wanted > _MOST:
            raise self.no_memory(level, symbols, wanted)
        places, total = self._placed(sizes, symbols)
        addresses = {**earlier, **places}
        offsets = np.empty(len(of_level.words), np.int64)
        for k, n in enumerate(of_level.words):
            word = self._layout.words[n]
            offsets[k] = evaluate(word.offset, symbols) + self._start(word.root, addresses)
        return Binding(symbols, offsets, places, total, separate, outputs)

    def leases(self, binding: Binding) -> tuple[Lease, ...]:
        """Which part of its arena each buffer of a binding has, and when, in order of their begin."""
        leased = (Lease(n, at, self.bytes(n, binding.symbols), *self._lives[n]) for n, at in binding.places.items())
        return tuple(sorted(leased, key=lambda lease: (lease.first, lease.offset, lease.buffer)))

    def no_memory(self, level: int, symbols: Mapping[str, int], size: int) -> MemoryError:
        """What is raised where so many bytes cannot be had for a level's buffers: it tells the largest of them."""
        buffers = (*self.levels[level].arena, *self.levels[level].outputs)
        n = max(buffers, key=lambda k: self.bytes(k, symbols))
        names = [port.name for port in self._code.outputs if port.buffer == n]
        what = f"output {names[0]!r} is" if names else "the largest value within is"
        return MemoryError(
            f"the program needs {size} bytes ({size / 2**30:.1f} GiB) for what it computes with; with {dict(symbols)} "
            f"{what} {self._code.buffers[n].dtype}{list(self.shape(n, symbols))}"
        )

    def _start(self, root: int | None, places: Mapping[int, int]) -> int:
        if root is None:
            return 0
        if self._code.buffers[root].place == "constant":
            return address(self._code.constants[root]) if self._constants is None else self._constants[root]
        return places[root] if self._code.buffers[root].place == "arena" else 0

    def _placed(self, sizes: Mapping[int, int], symbols: Mapping[str, int]) -> tuple[dict[int, int], int]:
        """Where buffers lie, and the bytes of all; those whose offsets are given come first."""
        places: dict[int, int] = {}
        for n in sizes:
            offset = self._code.buffers[n].offset
            if offset is not None:
                places[n] = evaluate(offset, symbols)
        start = arena.up(max((places[n] + sizes[n] for n in places), default=0), self._alignment)
        free = [n for n in sizes if n not in places]
        lives = [self._lives[n] for n in free]
        first, last = [a for a, _ in lives], [b for _, b in lives]
        offsets, more = arena.plan([sizes[n] for n in free], first, last, self._alignment)
        places.update((n, start + offset) for n, offset in zip(free, offsets, strict=True))
        return places, start + more

    def _check_view(self, number: int, symbols: Mapping[str, int]) -> None:
        """Raise ``InputError`` where a view is not of the size of what it views, or goes beyond."""
        view = self._code.buffers[number]
        if view.of is None or self._code.buffers[view.of].shape is None:
            return
        size, whole = self.bytes(number, symbols), self.bytes(view.of, symbols)
        start = evaluate(view.offset or 0, symbols)
        if not 0 <= start <= whole - size or (view.offset is None and size != whole):
            before, after = self.shape(view.of, symbols), self.shape(number, symbols)
            raise InputError(
                f"with {dict(symbols)} a tensor of the shape {list(before)} would be taken for one "
                f"of the shape {list(after)}: this cannot be run"
            )

    def shape(self, number: int, symbols: Mapping[str, int]) -> tuple[int, ...]:
        """A buffer's shape; ``InputError`` where sizes would be negative, ``ValueError`` where it may be any."""
        shape = self._code.buffers[number].shape
        if shape is None:
            raise ValueError(f"buffer {number} has no shape of its own")
        sizes = tuple([evaluate(s, symbols) for s in shape])
        if min(sizes, default=0) < 0:
            raise InputError(f"with {dict(symbols)} a tensor would have the shape {list(sizes)}: this cannot be run")
        return sizes

    def bytes(self, number: int, symbols: Mapping[str, int]) -> int:
        """How much memory a buffer takes."""
        return prod(self.shape(number, symbols)) * itemsize(self._code.buffers[number].dtype)


def itemsize(dtype: str) -> int:
    """Bytes of one element in memory."""
    if dtype in OBJECTS:
        raise ValueError(f"elements of dtype {dtype!r} have no place in memory that programs plan")
    size: Any = STORAGE[dtype].itemsize
    return int(size)
