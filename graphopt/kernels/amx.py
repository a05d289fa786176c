"""AMX tiles: products of bytes by Intel's matrix registers, sixteen rows by sixteen columns by 64 products at once.

Operands lie as vectors read them (``product_form``): rows of the first side by side, of the second panels of quads, in
which a register's sixteen columns are half of what lies between two quads of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import llvmlite.ir as llvm

ROWS: Final = 16
"""Rows, and columns, of a tile of sums."""
DEEP: Final = 64
"""Products of each sum that one instruction does."""
SIDE: Final = 2
"""Tiles of sums side by side, and below each other: of eight registers they take four, operands the others."""
PANEL_BYTES: Final = 128
"""How far apart the quads of a column lie in a panel."""
_WORD, _BYTE, _SUM = llvm.IntType(64), llvm.IntType(8), llvm.IntType(32)
_VECTOR = llvm.VectorType(_SUM, ROWS)
_REGISTERS = 8
_CONFIGURATION = 64


class AmxProduct:
    """Writes the part of a product of bytes that whole tiles make up, into a function that is being built.

    ``arguments`` are those of a tile (``product_tiles``), of LLVM; ``is_signed`` says that bytes of the second operand
    have signs, where those of the first have none, and the other way round.
    """

    def __init__(self, builder: llvm.IRBuilder, arguments: Mapping[str, Any], is_signed: bool) -> None:
        self.builder, self.given = builder, arguments
        self.multiply = "llvm.x86.tdpbusd" if is_signed else "llvm.x86.tdpbsud"
        pointer = _BYTE.as_pointer()
        self.a, self.b = (builder.bitcast(arguments[x], pointer) for x in "ab")
        self.sums = builder.alloca(_SUM, SIDE * ROWS * SIDE * ROWS)
        self.sums.align = 64

    def write(self, rows: Any) -> Any:
        """The products of as many of ``rows`` rows as fill tiles; gives how many these are."""
        self._configure()
        tall, low = _WORD(SIDE * ROWS), _WORD(ROWS)
        done = self._down(_WORD(0), rows, tall, SIDE)
        done = self._down(done, rows, low, 1)
        self._call("llvm.x86.tilerelease", [])
        return done

    def _configure(self) -> None:
        """All registers have sixteen rows of 64 bytes."""
        size = [_BYTE(0)] * _CONFIGURATION
        size[0] = _BYTE(1)  # the palette
        for k in range(_REGISTERS):
            size[16 + 2 * k], size[48 + k] = _BYTE(DEEP), _BYTE(ROWS)
        text = llvm.Constant(llvm.ArrayType(_BYTE, _CONFIGURATION), size)
        place = self.builder.alloca(text.type)
        place.align = 64
        self.builder.store(text, place)
        self._call("llvm.x86.ldtilecfg", [self.builder.bitcast(place, _BYTE.as_pointer())])

    def _down(self, first: Any, rows: Any, step: Any, many: int) -> Any:
        """Blocks of so many tiles below each other, as long as rows fill them; gives where that ends."""

        def block(start: Any) -> Any:
            self._block(start, many)
            return self.builder.add(start, step)

        def fits(start: Any) -> Any:
            return self.builder.icmp_signed("<=", self.builder.add(start, step), rows)

        return self._while(first, fits, block)

    def _while(self, first: Any, holds: Callable[[Any], Any], body: Callable[[Any], Any]) -> Any:
        """A loop over one number; gives the last."""
        builder, start = self.builder, self.builder.block
        head, inside, end = (builder.append_basic_block(f"amx_{name}") for name in ("head", "body", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        number = builder.phi(_WORD)
        number.add_incoming(first, start)
        builder.cbranch(holds(number), inside, end)
        builder.position_at_end(inside)
        following = body(number)
        number.add_incoming(following, builder.block)
        builder.branch(head)
        builder.position_at_end(end)
        return number

    def _block(self, start: Any, many: int) -> None:
        """The sums of ``many`` times sixteen rows from ``start`` on and of all columns of a panel."""
        builder, row = self.builder, self.given["row"]
        left = builder.gep(self.a, [builder.mul(start, row)])
        for k in range(SIDE * many):
            self._call("llvm.x86.tilezero", [_BYTE(k)])

        def step(p: Any) -> Any:
            for i in range(many):
                at = builder.gep(left, [builder.add(p, builder.mul(row, _WORD(i * ROWS)))])
                self._call("llvm.x86.tileloadd64", [_BYTE(4 + i), at, row])
            quads = builder.mul(builder.udiv(p, _WORD(4)), _WORD(PANEL_BYTES))
            for j in range(SIDE):
                at = builder.gep(self.b, [builder.add(quads, _WORD(j * DEEP))])
                self._call("llvm.x86.tileloadd64", [_BYTE(6 + j), at, _WORD(PANEL_BYTES)])
            for i in range(many):
                for j in range(SIDE):
                    self._call(self.multiply, [_BYTE(SIDE * i + j), _BYTE(4 + i), _BYTE(6 + j)])
            return builder.add(p, _WORD(DEEP))

        self._while(_WORD(0), lambda p: builder.icmp_signed("<", p, self.given["k"]), step)
        line = _WORD(4 * SIDE * ROWS)
        for i in range(many):
            for j in range(SIDE):
                at = builder.gep(self.sums, [_WORD(i * ROWS * SIDE * ROWS + j * ROWS)])
                self._call(
                    "llvm.x86.tilestored64", [_BYTE(SIDE * i + j), builder.bitcast(at, _BYTE.as_pointer()), line]
                )
        self._while(_WORD(0), lambda i: builder.icmp_signed("<", i, _WORD(many * ROWS)), lambda i: self._put(start, i))

    def _put(self, start: Any, i: Any) -> Any:
        """A row of sums with its terms, written, or added to what is there."""
        builder, given = self.builder, self.given
        place = builder.add(start, i)
        term = builder.load(builder.gep(given["row_terms"], [place]))
        lanes = llvm.Constant(_VECTOR, None)
        whole = builder.insert_element(lanes, term, _SUM(0))
        whole = builder.shuffle_vector(whole, lanes, llvm.Constant(_VECTOR, [0] * ROWS))
        target = builder.gep(given["c"], [builder.mul(place, given["ldc"])])
        adds = builder.icmp_unsigned("!=", given["adds"], _WORD(0))
        for j in range(SIDE):
            total = self._read(self.sums, builder.add(builder.mul(i, _WORD(SIDE * ROWS)), _WORD(j * ROWS)))
            total = builder.add(total, builder.add(whole, self._read(given["column_terms"], _WORD(j * ROWS))))
            before = self._read(target, _WORD(j * ROWS))
            total = builder.add(total, builder.select(adds, before, lanes))
            at = builder.bitcast(builder.gep(target, [_WORD(j * ROWS)]), _VECTOR.as_pointer())
            builder.store(total, at, align=4)
        return builder.add(i, _WORD(1))

    def _read(self, p: Any, at: Any) -> Any:
        place = self.builder.bitcast(self.builder.gep(p, [at]), _VECTOR.as_pointer())
        return self.builder.load(place, align=4, typ=_VECTOR)

    def _call(self, name: str, arguments: list[Any]) -> None:
        kind = llvm.FunctionType(llvm.VoidType(), [a.type for a in arguments])
        module = self.builder.module
        found = module.globals.get(name)
        self.builder.call(llvm.Function(module, kind, name) if found is None else found, arguments)
