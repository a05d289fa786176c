"""Bindings of a program's symbols to sizes: the memory plan, and every argument up to a base address.

One is made for each set of sizes, and serves every call with them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from math import prod
from operator import mul
from typing import Any, TypeVar

import numpy as np

from graphopt.errors import InputError
from graphopt.frozen import dataclass
from graphopt.runtime import arena
from graphopt.runtime.dtypes import OBJECTS, STORAGE
from graphopt.runtime.layout import CodeLayout
from graphopt.runtime.sizes import Size, evaluate, show, symbols_of
from graphopt.runtime.steps import Code, Condition, ProgramBuffer, Words
from graphopt.runtime.thread_pool import address

T = TypeVar("T")
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
    """For each of them the number of its base,"""
    offsets: tuple[Size, ...]
    which: Words
    """which of these offsets it has,"""
    roots: Words
    """the buffer that owns the memory that it lies in (0 for a size),"""
    addresses: Words
    """and where that begins, if it is known by now."""
    moving: tuple[tuple[int, int, int], ...]
    """Of those that count from an array of the call: the place among them, the number, and that of the base."""
    arena: tuple[int, ...]
    kinds: tuple[int, ...]
    """One of those buffers of each shape and dtype,"""
    counts: tuple[int, ...]
    """how many of each there are,"""
    kind_of: Words
    """and for each buffer which of these it is like."""
    outputs: tuple[int, ...]
    views: tuple[int, ...]
    """One of each kind of views that are checked."""
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
        self._plans: dict[tuple[int, bytes], tuple[Mapping[int, int], int]] = {}
        """By a level and the bytes of each kind of its buffers, where they lie, and the bytes of all."""
        self._growing = tuple(_growing(code))
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
        roots = [self._layout.words[n].root for n in words]
        bases = list(map(self._base, roots))
        # layers repeat: what follows from sizes is worked out once for all that are alike
        offsets, which = _distinct(self._layout.words[n].offset for n in words)
        of_level = [n for n in range(len(buffers)) if ages[n] == level]
        in_arena = tuple(n for n in of_level if buffers[n].place == "arena" and n in self._lives)
        kinds, kind_of = _distinct((buffers[n].dtype, buffers[n].shape) for n in in_arena)
        views = {self._view_key(n): n for n in of_level if self._is_checked(buffers[n])}
        in_memory = (root is not None and buffers[root].place == "arena" for root in roots)
        return BindingLevel(
            np.array(words, np.int64),
            np.array(bases, np.int64),
            offsets,
            which,
            np.array([root or 0 for root in roots], np.int64) * np.array([*in_memory], np.int64),
            np.array([*map(self._address, roots)], np.int64),
            tuple((k, n, base) for k, (n, base) in enumerate(zip(words, bases, strict=True)) if base > count),
            in_arena,
            tuple(in_arena[k] for k in np.unique(kind_of, return_index=True)[1]),
            tuple(np.bincount(kind_of, minlength=len(kinds)).tolist()),
            kind_of,
            tuple(n for n in of_level if buffers[n].place == "output"),
            tuple(views.values()),
            tuple(c for c, age in zip(self._code.conditions, self._layout.conditions, strict=True) if age == level),
        )

    def _view_key(self, number: int) -> tuple[object, ...]:
        """What the check of a view depends on."""
        view = self._code.buffers[number]
        of = self._code.buffers[view.of or 0]
        return view.dtype, view.shape, view.offset, of.dtype, of.shape

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
        kinds = [self.bytes(n, symbols) for n in of_level.kinds]
        outputs = {n: self.shape(n, symbols) for n in of_level.outputs}
        separate = sum(map(mul, (arena.up(size, self._alignment) for size in kinds), of_level.counts))
        wanted = separate + sum(self.bytes(n, symbols) for n in outputs)
        if wanted > _MOST:
            raise self.no_memory(level, symbols, wanted)
        sizes = np.array(kinds, np.int64)
        room = self._room(of_level, symbols)
        if room is not None and (room >= sizes).all():
            sizes = room
        places, total = self._placed(of_level, sizes, symbols)
        starts = np.zeros(len(self._code.buffers), np.int64)
        for n, at in (*earlier.items(), *places.items()):
            starts[n] = at
        evaluated = np.array([int(evaluate(offset, symbols)) for offset in of_level.offsets], np.int64)
        offsets = evaluated[of_level.which] + of_level.addresses + starts[of_level.roots]
        return Binding(symbols, offsets, places, total, separate, outputs)

    def _room(self, of_level: BindingLevel, symbols: Mapping[str, int]) -> Words | None:
        """What buffers of each kind take once states that grow fill the memory that they have: a plan for that serves
        all lengths until then. None where no state grows."""
        full = dict(symbols)
        for before, after, capacity in self._growing:
            full[before] = max(symbols[before], symbols[before] + symbols[capacity] - int(evaluate(after, symbols)))
        if full == symbols:
            return None
        return np.array([self.bytes(n, full) for n in of_level.kinds], np.int64)

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

    def _address(self, root: int | None) -> int:
        """Where what owns memory begins, if that is known by now."""
        if root is None or self._code.buffers[root].place != "constant":
            return 0
        return address(self._code.constants[root]) if self._constants is None else self._constants[root]

    def _placed(
        self, of_level: BindingLevel, sizes: Words, symbols: Mapping[str, int]
    ) -> tuple[Mapping[int, int], int]:
        """Where buffers lie, and the bytes of all; those whose offsets are given come first."""
        given = {n: offset for n in of_level.arena if (offset := self._code.buffers[n].offset) is not None}
        key = None if given else (id(of_level), sizes.tobytes())
        if key is not None and (found := self._plans.get(key)) is not None:
            return found
        bytes_of = dict(zip(of_level.arena, sizes[of_level.kind_of].tolist(), strict=True))
        places = {n: int(evaluate(offset, symbols)) for n, offset in given.items()}
        start = arena.up(max((places[n] + bytes_of[n] for n in places), default=0), self._alignment)
        free = [n for n in bytes_of if n not in places]
        lives = [self._lives[n] for n in free]
        first, last = [a for a, _ in lives], [b for _, b in lives]
        offsets, more = arena.plan([bytes_of[n] for n in free], first, last, self._alignment)
        places.update((n, start + offset) for n, offset in zip(free, offsets, strict=True))
        if key is not None:
            if len(self._plans) >= self.KEPT:
                self._plans.clear()
            self._plans[key] = places, start + more
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


def _growing(code: Code) -> Iterator[tuple[str, Size, str]]:
    """Of states that grow, the symbol of their length, that length after a call, and the symbol of their room."""
    shapes = {port.name: code.buffers[port.buffer].shape or () for port in code.inputs}
    for state in code.states:
        if state.axis is not None:
            yield str(shapes[state.length][0]), state.after, str(shapes[state.past][state.axis])


def _distinct(values: Iterable[T]) -> tuple[tuple[T, ...], Words]:
    """The different ones of some values, in order, and for each value which it is."""
    numbers: dict[tuple[type, T], int] = {}  # 1 and 1.0 are not the same
    which = [numbers.setdefault((type(value), value), len(numbers)) for value in values]
    return tuple(value for _, value in numbers), np.array(which, np.int64)


def itemsize(dtype: str) -> int:
    """Bytes of one element in memory."""
    if dtype in OBJECTS:
        raise ValueError(f"elements of dtype {dtype!r} have no place in memory that programs plan")
    size: Any = STORAGE[dtype].itemsize
    return int(size)
