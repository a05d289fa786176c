"""Products with int4 or int8 weights quantized in blocks: rows of int8 times columns, scaled block by block.

The products of a block are whole numbers, which are summed exactly; a sum becomes a float once a block. A word of a
column has four weights of 8 bits, or eight of 4: its low nibbles are those of one quad of the row, its high ones those
of the next, so that two masks make bytes of it. Where a processor has no instruction for four products at once, pairs
are summed in 16 bits, which hold those of 32 weights of 4 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.frozen import dataclass
from graphopt.kernels import host, memory, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.product_form import NIBBLE, QUAD, beside, instruction
from graphopt.kernels.quads import multiply, words
from graphopt.kernels.values import VectorValue, broadcast, fma
from graphopt.kernels.vector_type import procedure
from graphopt.runtime import cpu

LOW: Final = 0x0F0F0F0F
"""The low halves of four bytes."""
MIDDLE, FLIP = 128, -0x7F7F7F80
"""What is taken off a byte where it is to have a sign, and the bits of four that this changes."""
SIGN: Final = {4: "ssse3.psign.b.128", 8: "avx2.psign.b"}
"""The instruction that gives bytes the signs of others, where there is one."""
PAIRED: Final = 4
"""Words whose products, as sums of pairs, are added up in 16 bits: 2 * 8 * 127 * 15 is less than 2^15."""
LEAST: Final = 2
"""Words of the smallest block; the others have twice as many, and so on."""
ROWS: Final = 4
"""Rows of a tile at most."""
VECTORS: Final = 2
"""Vectors of a panel's columns."""
BESIDE: Final[Mapping[int, int]] = {rows: beside(rows, ROWS) for rows in range(1, ROWS + 1)}
"""Panels that so many rows are multiplied by at once: memory is read in as many series."""
PAIRS: Final = {4: ("ssse3.pmadd.ub.sw.128", "sse2.pmadd.wd"), 8: ("avx2.pmadd.ub.sw", "avx2.pmadd.wd"),
                16: ("avx512.pmaddubs.w.512", "avx512.pmaddw.d.512")}  # fmt: skip
"""The instructions that sum products of bytes, and of 16 bits, by pairs, by the lanes of a vector of int32;"""
NEEDED: Final = {4: "ssse3", 8: "avx2", 16: "avx512bw"}
"""what a processor needs to have them."""

POINTERS: Final = {"c": types.float32, "a": types.int8, "sa": types.float32, "sums": types.int32, "b": types.uint32,
                   "sb": types.float32, "z": types.uint8}  # fmt: skip
"""The result; codes of rows, their scales and their sums by block; words of columns, their scales and zero points."""
WORDS: Final = ("ldc", "lda", "ldsa", "ldsums", "ldb", "ldsb", "ldz", "m", "n", "blocks", "deep", "several")
"""How far apart rows of the first four lie, and panels of the others; rows, columns, blocks of a row, words of a block,
and whether columns have zero points of their own, block by block."""
_WORD = llvm.IntType(64)


def way() -> str:
    """How the processor multiplies: four products at once (``dot``), by ``pairs``, or as all can (``plain``)."""
    if instruction() != "plain":
        return "dot"
    return "pairs" if NEEDED[host.lanes("int32")] in cpu.features() else "plain"


PATTERN: Final = r"graphopt_block_quantized_(4|8)_(dot|pairs|plain)_(\d+)"
"""Names of the shared code: the bits of weights, how it multiplies, and the lanes of its vectors."""


def product(bits: int, how: str, lanes: int) -> llvm.Module:
    """The module with the product: all rows by some panels at a time, tile by tile."""
    name = f"graphopt_block_quantized_{bits}_{how}_{lanes}"
    module = llvm.Module(name)
    whole = _function(module, name)
    builder = llvm.IRBuilder(whole.append_basic_block("start"))
    given = _arguments(builder, whole)
    m, width = given["m"], VECTORS * lanes
    panels, tiles = _quotient(given["n"] + (width - 1), width), _quotient(m + (ROWS - 1), ROWS)
    at_once = m.number(1)
    for rows, many in BESIDE.items():
        at_once = values.select(values.equal(m, rows), m.number(many), at_once)
    full = VectorValue(builder, builder.udiv(panels.ir, at_once.ir), types.int64, 1)
    shapes = [
        _Shape(bits, how, lanes, r, p, s) for r in range(1, ROWS + 1) for p in sorted({1, BESIDE[r]}) for s in (0, 1)
    ]
    tile_of = {shape: _tile(module, shape) for shape in shapes}

    def across(index: VectorValue, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
        is_full = index < full
        first = values.select(is_full, index * at_once, full * at_once + (index - full))
        many = values.select(is_full, at_once, m.number(1))

        def down(tile: VectorValue, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
            row = tile * ROWS
            rows = values.minimum(m - row, m.number(ROWS))
            starts = {"c": row * given["ldc"] + first * width, "a": row * given["lda"], "sa": row * given["ldsa"],
                      "sums": row * given["ldsums"], "b": first * given["ldb"], "sb": first * given["ldsb"],
                      "z": first * given["ldz"]}  # fmt: skip
            passed = {
                **given,
                **{p: given[p].at(start) for p, start in starts.items()},
                "n": given["n"] - first * width,
            }
            end = builder.append_basic_block()
            chosen = (rows * (2 * _MOST) + many * 2) + given["several"]
            switch = builder.switch(chosen.ir, end)
            for shape, function in tile_of.items():
                block = builder.append_basic_block()
                switch.add_case(_WORD(shape.rows * 2 * _MOST + shape.panels * 2 + shape.several), block)
                builder.position_at_end(block)
                builder.call(function, [passed[x].ir for x in (*POINTERS, *WORDS)])
                builder.branch(end)
            builder.position_at_end(end)
            return ()

        return values.loop(tiles, (), down)

    values.loop(full + (panels - full * at_once), (), across)
    builder.ret_void()
    return module


_MOST = 1 + max(BESIDE.values())


def _quotient(x: VectorValue, by: int) -> VectorValue:
    return VectorValue(x.builder, x.builder.udiv(x.ir, _WORD(by)), x.dtype, 1)


def _function(module: Any, name: str) -> Any:
    kinds = [*(values.element(dtype).as_pointer() for dtype in POINTERS.values()), *[_WORD] * len(WORDS)]
    return llvm.Function(module, llvm.FunctionType(llvm.VoidType(), kinds), name)


def _arguments(builder: Any, function: Any) -> dict[str, Any]:
    places = [Pointer(builder, arg, dtype) for arg, dtype in zip(function.args, POINTERS.values(), strict=False)]
    sizes = [VectorValue(builder, arg, types.int64, 1) for arg in function.args[len(places) :]]
    return dict(zip((*POINTERS, *WORDS), (*places, *sizes), strict=True))


# ------------------------------------------------------------------ tiles


@dataclass(frozen=True, slots=True)
class _Shape:
    """The bits of weights, how a tile multiplies, the lanes of its vectors, its rows and panels, and whether there are
    several zero points."""

    bits: int
    how: str
    lanes: int
    rows: int
    panels: int
    several: int


def _tile(module: Any, shape: _Shape) -> Any:
    """The function of a tile: some rows by some panels, over all blocks."""
    function = _function(module, f"tile_{shape.rows}x{shape.panels}_{shape.several}")
    function.linkage = "internal"
    function.attributes.add("noinline")
    function.args[0].add_attribute("noalias")
    builder = llvm.IRBuilder(function.append_basic_block("start"))
    _Tile(shape, builder, _arguments(builder, function)).write()
    builder.ret_void()
    return function


class _Tile:
    """Writes the tile of a shape."""

    def __init__(self, shape: _Shape, builder: Any, given: Mapping[str, Any]) -> None:
        self.shape, self.builder, self.given = shape, builder, given
        self.lanes, self.rows = shape.lanes, range(shape.rows)
        self.vectors = range(shape.panels * VECTORS)
        self.in_word = 32 // shape.bits
        self.is_signed = shape.bits > NIBBLE and shape.lanes in SIGN
        self.is_paired = shape.how == "pairs" and (shape.bits == NIBBLE or self.is_signed)
        self.zero = values.constant(builder, types.float32, self.lanes, 0.0)

    def write(self) -> None:
        """The sums of all blocks, and where they go."""
        given, each = self.given, len(self.vectors)
        totals = values.loop(given["blocks"], [self.zero] * (len(self.rows) * each), self.block)
        for number, total in enumerate(totals):
            row, vector = divmod(number, each)
            target = given["c"].at(given["ldc"] * row).past(vector * self.lanes)
            memory.write_masked(target, total, given["n"] - vector * self.lanes)

    def block(self, g: VectorValue, totals: Sequence[VectorValue]) -> Sequence[VectorValue]:
        """The sums with those of one block added, scaled."""
        given, deep = self.given, self.given["deep"]
        first = g * deep
        sums: Sequence[VectorValue] = self.first(g)
        many = _quotient(deep, PAIRED)
        sums = values.loop(many, sums, lambda q, sums: self.words(first + q * PAIRED, PAIRED, sums))
        # the smallest blocks have fewer words: two
        done, rest = first + many * PAIRED, _quotient(deep & (PAIRED - 1), LEAST)
        sums = values.loop(rest, sums, lambda q, sums: self.words(done + q * LEAST, LEAST, sums))
        added = list(totals)
        scales = [self.of_columns("sb", g, v) for v in self.vectors]
        for i in self.rows:
            scale = broadcast(memory.read(given["sa"].at(given["ldsa"] * i + g), 1), self.lanes)
            for v in self.vectors:
                k = i * len(self.vectors) + v
                added[k] = fma(values.cast(sums[k], types.float32), scale * scales[v], added[k])
        return added

    def first(self, g: VectorValue) -> list[VectorValue]:
        """What the sums of a block begin with, so that weights are counted from their zero points."""
        given = self.given
        if self.shape.several:
            zeros = [values.cast(self.of_columns("z", g, v), types.int32) for v in self.vectors]
        else:
            zeros = [broadcast(values.cast(memory.read(given["z"], 1), types.int32), self.lanes)]
        if self.is_paired and self.is_signed:
            zeros = [z - MIDDLE for z in zeros]
        result = []
        for i in self.rows:
            row_sum = broadcast(-memory.read(given["sums"].at(given["ldsums"] * i + g), 1), self.lanes)
            result += [zeros[v % len(zeros)] * row_sum for v in self.vectors]
        return result

    def of_columns(self, name: str, g: VectorValue, v: int) -> VectorValue:
        """A vector of what columns have in a block."""
        panel, part = divmod(v, VECTORS)
        start = self.given[name].at(self.given[f"ld{name}"] * panel)
        return memory.read(start.at(g * (VECTORS * self.lanes)).past(part * self.lanes), self.lanes)

    def words(self, first: VectorValue, count: int, sums: Sequence[VectorValue]) -> list[VectorValue]:
        """The sums with the products of some words added."""
        totals, each = list(sums), len(self.vectors)
        for v in self.vectors:  # one vector after another: sums of pairs take registers
            pairs: list[Any] = [None] * len(self.rows)
            panel, place = divmod(v, VECTORS)
            start = self.given["b"].at(self.given["ldb"] * panel).past(place * self.lanes)
            left = self.apart(self.given["a"].at(first * self.in_word))
            for w in range(count):
                word = words(start.at((first + w) * (VECTORS * self.lanes)), self.lanes)
                parts = (word & LOW, (word >> NIBBLE) & LOW) if self.shape.bits == NIBBLE else (word,)
                for i in self.rows:
                    row = left.at(self.given["lda"] * i).past(w * self.in_word)
                    for number, part in enumerate(parts):
                        quad, k = broadcast(words(row.past(QUAD * number), 1), self.lanes), i * each + v
                        if self.is_paired and self.is_signed:
                            totals[k] = self.widened(totals[k], self.of_signed(part, quad))
                        elif self.is_paired:
                            pairs[i] = self.paired(pairs[i], part, quad)
                        else:
                            totals[k] = multiply(totals[k], quad, part, False, self.shape.how == "dot")
            for i in self.rows if self.is_paired and not self.is_signed else ():
                totals[i * each + v] = self.widened(totals[i * each + v], pairs[i])
        return totals

    def of_signed(self, codes: VectorValue, quad: VectorValue) -> Any:
        """Sums of pairs in 16 bits of products with bytes, of which 128 is taken off: their magnitudes, 128 at most,
        times the quad with their signs."""
        kind, flag = llvm.VectorType(llvm.IntType(8), 4 * self.lanes), llvm.IntType(1)
        moved = self.builder.bitcast((codes ^ FLIP).ir, kind)
        sizes = values.call(self.builder, f"llvm.abs.v{kind.count}i8", kind, [moved, flag(0)])
        left = values.call(
            self.builder, f"llvm.x86.{SIGN[self.lanes]}", kind, [self.builder.bitcast(quad.ir, kind), moved]
        )
        name = f"llvm.x86.{PAIRS[self.lanes][0]}"
        return values.call(self.builder, name, llvm.VectorType(llvm.IntType(16), 2 * self.lanes), [sizes, left])

    def apart(self, p: Pointer) -> Pointer:
        """The same address, of which LLVM does not know that: it would keep all quads, not read them once more."""
        return Pointer(self.builder, memory.opaque(VectorValue(self.builder, p.ir, types.int64, 1)).ir, p.dtype)

    def paired(self, pairs: Any, nibbles: VectorValue, quad: VectorValue) -> Any:
        """Sums of pairs in 16 bits, with more of them added."""
        kind = llvm.VectorType(llvm.IntType(8), 4 * self.lanes)
        args = [self.builder.bitcast(x.ir, kind) for x in (nibbles, quad)]
        name = f"llvm.x86.{PAIRS[self.lanes][0]}"
        more = values.call(self.builder, name, llvm.VectorType(llvm.IntType(16), 2 * self.lanes), args)
        return more if pairs is None else self.builder.add(pairs, more)

    def widened(self, total: VectorValue, pairs: Any) -> VectorValue:
        """The sums with pairs of sums in 16 bits added."""
        ones = llvm.Constant(pairs.type, [1] * (2 * self.lanes))
        more = values.call(self.builder, f"llvm.x86.{PAIRS[self.lanes][1]}", total.ir.type, [pairs, ones])
        return VectorValue(self.builder, self.builder.add(total.ir, more), total.dtype, self.lanes)


# ------------------------------------------------------------------ calls

_STRIDES: Final[Mapping[str, Sequence[str]]] = {
    "c": ["ldc"], "a": ["lda", "lda_block"], "sa": ["ldsa"], "sums": ["ldsums"], "b": ["ldb", "ldb_block", "ldb_word"],
    "sb": ["ldsb", "ldsb_block"], "z": ["ldz", "ldz_block"],
}  # fmt: skip
"""The strides of all sides of an array but the last."""
_SIZES: Final = ("m", "n", "blocks", "deep", "panels_z", "blocks_z", "lanes_z")
_PARAMETERS: Final = [*(x for p, strides in _STRIDES.items() for x in (p, f"start_{p}", *strides)), *_SIZES]


def _define(bits: int, kinds: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], None]:
    if any(getattr(kinds[p], "dtype", None) != dtype for p, dtype in POINTERS.items()):
        raise TypingError(f"a product of {kinds['a']} and {kinds['b']} into {kinds['c']}: there is no such product")
    return partial(_call, bits)


def _call(bits: int, given: Mapping[str, Any]) -> None:
    passed = {n: values.cast(given[n], types.int64) for n in WORDS if n in given}
    passed["several"] = values.cast(values.cast(given["lanes_z"], types.int64) > 1, types.int64)
    passed["ldz"] *= passed["several"]
    builder = given["c"].builder
    places = [given[p].at(given[f"start_{p}"]).ir for p in POINTERS]
    name = f"graphopt_block_quantized_{bits}_{way()}_{host.lanes('int32')}"
    values.call(builder, name, llvm.VoidType(), [*places, *(passed[n].ir for n in WORDS)])


block_quantized_product_4 = procedure("block_quantized_product_4", _PARAMETERS, partial(_define, 4))
block_quantized_product_8 = procedure("block_quantized_product_8", _PARAMETERS, partial(_define, 8))
