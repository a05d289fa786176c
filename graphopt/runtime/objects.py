"""Object code in memory: an ELF loader of our own, for what a compiler gives for one kernel.

An object is a relocatable ELF file for x86-64 that defines the function ``entry``, or one by another name, which other
objects call. All objects of a program share one mapping: code and constants, which are read-only once they are in
place, and behind them what is writable. Functions outside are called through stubs in the mapping, since they may be
too far away.
The numbers are those of the System V ABI, AMD64 supplement.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import field

from graphopt.errors import ReadError
from graphopt.frozen import dataclass
from graphopt.runtime import libraries

ENTRY = "entry"
SHARED_PREFIX = "graphopt_"
"""How names of functions begin that an object has for others."""

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")

_PROGBITS, _SYMTAB, _RELA, _NOBITS, _INIT_ARRAYS, _REL = 1, 2, 4, 8, (14, 15, 16), 9
_WRITE, _ALLOC, _TLS_FLAG = 1, 2, 0x400
_UNDEFINED, _ABSOLUTE, _COMMON = 0, 0xFFF1, 0xFFF2
_GLOBAL, _WEAK = 1, 2

_NONE, _R64, _PC32, _PLT32, _R32, _R32S, _PC64 = 0, 1, 2, 4, 10, 11, 24
_GOT = (9, 41, 42)
_STUB = 8
_SLOT = 8


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    flags: int
    data: bytes
    size: int
    link: int
    info: int
    align: int

    @property
    def is_loaded(self) -> bool:
        return bool(self.flags & _ALLOC) and self.kind in (_PROGBITS, _NOBITS) and not self.name.startswith(".eh_frame")

    @property
    def is_writable(self) -> bool:
        return bool(self.flags & _WRITE) and not self.name.startswith(".data.rel.ro")


@dataclass(frozen=True, slots=True)
class _Symbol:
    name: str
    section: int
    value: int
    size: int
    binding: int

    @property
    def is_shared(self) -> bool:
        """Whether other objects may use it."""
        return self.binding == _GLOBAL and self.section != _UNDEFINED and self.name.startswith(SHARED_PREFIX)


@dataclass(frozen=True, slots=True)
class _Relocation:
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class _Object:
    sections: tuple[_Section, ...]
    symbols: tuple[_Symbol, ...]
    relocations: tuple[_Relocation, ...]


@dataclass(slots=True)
class _Layout:
    """Where everything goes, in bytes from the start of the mapping."""

    places: dict[tuple[int, int], int] = field(default_factory=dict)
    """By object and section; common symbols by object and minus their number."""
    slots: dict[str | tuple[int, int], int] = field(default_factory=dict)
    """Addresses in memory: of functions outside by name, of symbols by object and number."""
    stubs: dict[str, int] = field(default_factory=dict)
    shared: dict[str, tuple[int, int]] = field(default_factory=dict)
    """What objects have for others, by object and number."""
    fixed: int = 0
    """Bytes that become read-only; what follows stays writable."""
    size: int = 0


class Image:
    """Objects that were loaded; ``entries`` are the addresses of their ``entry``, valid as long as the image lives.

    Objects without one are there for others.
    """

    __slots__ = ("_memory", "_pin", "entries", "size")

    def __init__(self, objects: Sequence[bytes]) -> None:
        """Raises ``ReadError`` for bytes that are no object code of ours and for functions that no library has."""
        read = [_read(o, f"object {n}") for n, o in enumerate(objects)]
        layout = _laid_out(read)
        self.size = layout.size
        try:
            self._memory = mmap.mmap(-1, max(layout.size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError, ValueError) as error:
            raise ReadError(f"object code asks for {layout.size} bytes, which are not to be had: {error}") from None
        self._pin = (ctypes.c_char * max(layout.size, 1)).from_buffer(self._memory)  # keeps it from being unmapped
        start = ctypes.addressof(self._pin)
        _fill(self._memory, start, read, layout)
        if layout.fixed:
            _protect(start, layout.fixed)
        offsets = (_entry(o, n, layout) for n, o in enumerate(read))
        self.entries = tuple(start + offset for offset in offsets if offset is not None)


def undefined(code: bytes) -> tuple[str, ...]:
    """The names that an object takes from elsewhere, sorted."""
    read = _read(code, "object code")
    used = {r.symbol for r in read.relocations}
    return tuple(sorted({s.name for n, s in enumerate(read.symbols) if n in used and s.section == _UNDEFINED}))


# -- reading


def _read(code: bytes, what: str) -> _Object:
    try:
        return _parsed(bytes(code))
    except (struct.error, IndexError, OverflowError, ValueError) as error:
        raise ReadError(f"{what} is damaged: {error}; compile it again") from None


def _parsed(code: bytes) -> _Object:
    ident, kind, machine, version, _, _, start, _, _, _, _, width, count, names = _HEADER.unpack_from(code)
    if ident[:7] != b"\x7fELF\x02\x01\x01" or kind != 1 or version != 1:
        raise ValueError("it is no relocatable ELF file")
    if machine != 62:
        raise ValueError(f"it is for machine {machine}, and this loader is for x86-64 (62)")
    if width != _SECTION.size:
        raise ValueError("its table of sections has another form")
    headers = [_SECTION.unpack_from(code, start + n * width) for n in range(count)]
    data = [b"" if h[1] == _NOBITS else _slice(code, h[4], h[5]) for h in headers]
    text = data[names] if headers else b""
    sections = tuple(
        _Section(_name(text, h[0]), h[1], h[2], d, h[5], h[6], h[7], _alignment(h[8]))
        for h, d in zip(headers, data, strict=True)
    )
    for s in sections:
        if s.flags & _ALLOC and (s.flags & _TLS_FLAG or s.kind in _INIT_ARRAYS):
            raise ValueError(f"section {s.name!r} is of a kind that kernels do not have")
        if s.is_loaded and s.size > 1 << 31:
            raise ValueError(f"section {s.name!r} has {s.size} bytes")
    symbols = _symbols(sections)
    return _Object(sections, symbols, tuple(_relocations(sections, len(symbols))))


def _symbols(sections: tuple[_Section, ...]) -> tuple[_Symbol, ...]:
    tables = [s for s in sections if s.kind == _SYMTAB]
    if len(tables) != 1:
        raise ValueError(f"it has {len(tables)} tables of symbols")
    table, text = tables[0], sections[tables[0].link].data
    symbols = []
    for name, info, _, section, value, size in _SYMBOL.iter_unpack(table.data):
        if section not in (_UNDEFINED, _ABSOLUTE, _COMMON) and value > sections[section].size:
            raise ValueError("a symbol lies outside of its section")
        if section == _COMMON and size > 1 << 31:
            raise ValueError(f"a symbol has {size} bytes")
        symbols.append(_Symbol(_name(text, name), section, value, size, info >> 4))
    return tuple(symbols)


def _relocations(sections: tuple[_Section, ...], symbols: int) -> Iterator[_Relocation]:
    for s in sections:
        if s.kind == _REL and sections[s.info].is_loaded:
            raise ValueError("its relocations have no addends")
        if s.kind != _RELA or not sections[s.info].is_loaded:
            continue
        target = sections[s.info]
        for offset, info, addend in _RELOCATION.iter_unpack(s.data):
            kind, symbol = info & 0xFFFFFFFF, info >> 32
            width = 8 if kind in (_R64, _PC64) else 4
            if symbol >= symbols or offset + width > target.size or target.kind == _NOBITS:
                raise ValueError("a relocation lies outside of its section")
            yield _Relocation(s.info, offset, kind, symbol, addend)


def _slice(code: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(code):
        raise ValueError("it ends too early")
    return code[offset : offset + size]


def _name(text: bytes, offset: int) -> str:
    return text[offset : text.index(b"\0", offset)].decode("utf-8", "replace")


def _alignment(value: int) -> int:
    if value & (value - 1) or value > 4096:
        raise ValueError(f"a section is aligned to {value} bytes")
    return max(value, 1)


# -- placing


def _laid_out(objects: Sequence[_Object]) -> _Layout:
    layout = _Layout()
    _place_sections(objects, layout, writable=False)
    for number, o in enumerate(objects):
        layout.shared |= {s.name: (number, n) for n, s in enumerate(o.symbols) if s.is_shared}
    for number, o in enumerate(objects):
        for r in o.relocations:
            home = _home(objects, layout, number, r)
            outside = isinstance(home, str)
            if r.kind in _GOT or (outside and r.kind == _PLT32):
                layout.slots.setdefault(home, 0)
            if isinstance(home, str) and r.kind == _PLT32:
                layout.stubs.setdefault(home, 0)
    layout.size = _up(layout.size, 64)
    for name in layout.stubs:
        layout.stubs[name], layout.size = layout.size, layout.size + _STUB
    for key in layout.slots:
        layout.slots[key], layout.size = layout.size, layout.size + _SLOT
    layout.fixed = layout.size = _up(layout.size, mmap.PAGESIZE)
    _place_sections(objects, layout, writable=True)
    for number, o in enumerate(objects):
        for n, symbol in enumerate(o.symbols):
            if symbol.section == _COMMON:
                layout.places[number, -n] = _up(layout.size, _alignment(symbol.value))
                layout.size = layout.places[number, -n] + symbol.size
    return layout


def _home(objects: Sequence[_Object], layout: _Layout, number: int, r: _Relocation) -> str | tuple[int, int]:
    """The object and number of the symbol that is meant, or the name of one that no object has."""
    symbol = objects[number].symbols[r.symbol]
    return layout.shared.get(symbol.name, symbol.name) if symbol.section == _UNDEFINED else (number, r.symbol)


def _place_sections(objects: Sequence[_Object], layout: _Layout, writable: bool) -> None:
    for number, o in enumerate(objects):
        for n, s in enumerate(o.sections):
            if s.is_loaded and s.is_writable == writable:
                layout.places[number, n] = _up(layout.size, max(s.align, 16))
                layout.size = layout.places[number, n] + s.size


def _up(value: int, align: int) -> int:
    return -(-value // align) * align


def _fill(memory: mmap.mmap, start: int, objects: Sequence[_Object], layout: _Layout) -> None:
    for (number, n), offset in layout.places.items():
        if n > 0:
            data = objects[number].sections[n].data
            memory[offset : offset + len(data)] = data
    for key, offset in layout.slots.items():
        value = libraries.address(key) if isinstance(key, str) else _value(objects, key, start, layout)
        memory[offset : offset + _SLOT] = struct.pack("<Q", value)
    for name, offset in layout.stubs.items():  # jmp *slot(%rip)
        memory[offset : offset + _STUB] = b"\xff\x25" + struct.pack("<i", layout.slots[name] - offset - 6) + b"\xcc\xcc"
    for number, o in enumerate(objects):
        for r in o.relocations:
            _relocate(memory, start, objects, layout, number, r)


def _relocate(
    memory: mmap.mmap, start: int, objects: Sequence[_Object], layout: _Layout, number: int, r: _Relocation
) -> None:
    """Write one address, or the distance to it, into the mapping."""
    symbol, home = objects[number].symbols[r.symbol], _home(objects, layout, number, r)
    offset = layout.places[number, r.section] + r.offset
    if r.kind == _NONE:
        return
    if r.kind in _GOT:
        target = start + layout.slots[home]
    elif not isinstance(home, str):
        target = _value(objects, home, start, layout)
    elif r.kind == _PLT32:
        target = start + layout.stubs[home]
    else:
        target = 0 if symbol.binding == _WEAK else libraries.address(home)
    value = target + r.addend
    if r.kind in (_PC32, _PLT32, _PC64, *_GOT):
        value -= start + offset
    form = {_R64: "<Q", _PC64: "<q", _R32: "<I"}.get(r.kind, "<i")
    if r.kind not in (_R64, _PC64, _R32, _R32S, _PC32, _PLT32, *_GOT):
        raise ReadError(f"object {number} has a relocation of type {r.kind}, which this loader does not know")
    try:
        memory[offset : offset + struct.calcsize(form)] = struct.pack(
            form, value & (1 << 64) - 1 if form == "<Q" else value
        )
    except struct.error:
        raise ReadError(
            f"object {number} is too far from {symbol.name!r}: it was not compiled as position independent"
        ) from None


def _value(objects: Sequence[_Object], key: tuple[int, int], start: int, layout: _Layout) -> int:
    """The address of a symbol that an object defines."""
    number, n = key
    symbol = objects[number].symbols[n]
    if symbol.section == _ABSOLUTE:
        return symbol.value
    if symbol.section == _COMMON:
        return start + layout.places[number, -n]
    offset = layout.places.get((number, symbol.section))
    if offset is None:
        raise ReadError(f"object {number} is damaged: {symbol.name!r} lies in a section that is not loaded")
    return start + offset + symbol.value


def _entry(o: _Object, number: int, layout: _Layout) -> int | None:
    """Where an object's ``entry`` is; None for one that is there for others."""
    for symbol in o.symbols:
        if symbol.name == ENTRY and (number, symbol.section) in layout.places:
            return layout.places[number, symbol.section] + symbol.value
    if any(key[0] == number for key in layout.shared.values()):
        return None
    raise ReadError(f"object {number} is no kernel: it has no function {ENTRY!r}")


def _protect(start: int, size: int) -> None:
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    if function(start, size, mmap.PROT_READ | mmap.PROT_EXEC):
        raise ReadError(f"memory cannot be made executable here: {os.strerror(ctypes.get_errno())}")
