"""Lookups of bytes in tables of 256, by codes of a byte: in registers, where processors permute bytes there."""

from __future__ import annotations

import llvmlite.ir as llvm
from numba import types

from graphopt.kernels import memory, values
from graphopt.kernels.host import ENTRIES, Permutation, permutation
from graphopt.kernels.memory import Pointer
from graphopt.kernels.reductions import lane, shuffle
from graphopt.kernels.values import VectorValue


def look_up(p: Pointer, code: VectorValue) -> VectorValue:
    """The bytes of the table at an address, by codes counted from the least that there is."""
    start = 1 << 7 if values.is_signed(code.dtype) else 0
    codes = VectorValue(code.builder, code.ir, types.uint8, code.lanes) ^ start
    how = permutation()
    if code.lanes == 1:
        return memory.read(p.at(values.cast(codes, types.int64)), 1)
    if how is None or codes.lanes < how.least:
        return _one_by_one(p, codes)
    if codes.lanes <= how.lanes:
        whole = shuffle(codes, codes, [k % codes.lanes for k in range(how.lanes)])
        found = _permuted(p, whole, how)
        return shuffle(found, found, range(codes.lanes))
    half = codes.lanes // 2
    lower, upper = (look_up(p, shuffle(codes, codes, range(first, first + half))) for first in (0, half))
    return shuffle(lower, upper, range(codes.lanes))


def _one_by_one(p: Pointer, codes: VectorValue) -> VectorValue:
    """Each lane read by itself."""
    result = llvm.Constant(llvm.VectorType(llvm.IntType(8), codes.lanes), llvm.Undefined)
    for k in range(codes.lanes):
        one = memory.read(p.at(values.cast(lane(codes, k), types.int64)), 1)
        result = p.builder.insert_element(result, one.ir, llvm.Constant(llvm.IntType(32), k))
    return VectorValue(p.builder, result, p.dtype, codes.lanes)


def _permuted(p: Pointer, codes: VectorValue, how: Permutation) -> VectorValue:
    """The bytes by a vector of codes of the instruction's length: those of each part of the table that the instruction
    looks in, of which the other bits of the codes choose, one bit after the other."""
    name, kind = f"llvm.x86.{how.name}", codes.ir.type
    within = codes & (how.entries - 1)  # a byte by a code with the highest bit may be zero
    found = []
    for first in range(0, ENTRIES, how.entries):
        part = p.past(first)
        if how.entries > how.lanes:
            args = [memory.read(part, how.lanes).ir, within.ir, memory.read(part.past(how.lanes), how.lanes).ir]
        else:
            few = memory.read(part, how.entries)
            args = [shuffle(few, few, [k % how.entries for k in range(how.lanes)]).ir, within.ir]
        found.append(VectorValue(p.builder, values.call(p.builder, name, kind, args), p.dtype, how.lanes))
    bit = how.entries
    while len(found) > 1:
        is_upper = values.not_equal(codes & bit, 0)
        found = [values.select(is_upper, b, a) for a, b in zip(found[::2], found[1::2], strict=True)]
        bit *= 2
    return found[0]
