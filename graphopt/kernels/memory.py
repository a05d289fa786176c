"""Memory access through raw pointers: vectors, partial vectors, strided and gathered elements.

No address is checked, and none needs to be aligned beyond what its elements are.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types

from graphopt.frozen import dataclass
from graphopt.kernels import values
from graphopt.kernels.reductions import lane, shuffle
from graphopt.kernels.values import VectorValue, broadcast, cast, element, select, width


@dataclass(frozen=True, slots=True, eq=False)
class Pointer:
    """An address in LLVM code, the dtype of the elements there, and the builder that appends what is done with it."""

    builder: Any
    ir: Any
    dtype: Any

    def at(self, index: VectorValue) -> Pointer:
        """So many elements further; of a vector of indices, as many addresses."""
        wide = cast(index, types.int64)
        step = self.builder.gep(self.ir, [wide.ir], inbounds=True, source_etype=element(self.dtype))
        if index.lanes > 1:
            step.type = llvm.VectorType(llvm.PointerType(), index.lanes)
        return Pointer(self.builder, step, self.dtype)

    def past(self, count: int) -> Pointer:
        """A constant number of elements further."""
        return self.at(values.constant(self.builder, types.int64, 1, count))

    def cast(self, dtype: Any) -> Pointer:
        """The same address, of other elements."""
        return Pointer(self.builder, self.builder.bitcast(self.ir, element(dtype).as_pointer()), dtype)

    @property
    def align(self) -> int:
        """Bytes to which an element is aligned."""
        return width(self.dtype) // 8


def read(p: Pointer, lanes: int) -> VectorValue:
    """The elements at an address."""
    ir = p.builder.load(p.ir, align=p.align, typ=values.llvm_type(p.dtype, lanes))
    return VectorValue(p.builder, ir, p.dtype, lanes)


def write(p: Pointer, x: VectorValue) -> None:
    """Stores a value at an address."""
    p.builder.store(x.ir, p.builder.bitcast(p.ir, x.ir.type.as_pointer()), align=p.align)


def first_lanes(count: VectorValue, bits: int, lanes: int) -> VectorValue:
    """The mask of the lanes below ``count``, compared as integers of so many bits."""
    count = cast(count, types.int64)
    count = select(count < 0, count.number(0), count)
    count = select(count > lanes, count.number(lanes), count)
    dtype = types.Integer.from_bitwidth(bits, False)
    ramp = llvm.Constant(llvm.VectorType(llvm.IntType(bits), lanes), list(range(lanes)))
    limit = cast(opaque(count), dtype)
    if lanes == 1:
        limit = VectorValue(count.builder, as_vector(limit), dtype, 1)
    return VectorValue(count.builder, ramp, dtype, lanes) < broadcast(limit, lanes)


def opaque(x: VectorValue) -> VectorValue:
    """The same number, of which LLVM does not know that it is a constant; costs no instruction.

    Where LLVM 22.1 knows that a mask holds in one lane only, a masked store of narrowed elements writes a wide one,
    over its neighbour (LLVM's issue 179489).
    """
    kind = llvm.FunctionType(x.ir.type, [x.ir.type])
    return VectorValue(x.builder, x.builder.asm(kind, "", "=r,0", [x.ir], side_effect=False), x.dtype, x.lanes)


def as_vector(x: VectorValue) -> Any:
    """The LLVM vector of a value, of one lane for a scalar: LLVM's masked loads and stores take nothing else."""
    if x.lanes > 1:
        return x.ir
    nothing = llvm.Constant(llvm.VectorType(element(x.dtype), 1), llvm.Undefined)
    return x.builder.insert_element(nothing, x.ir, llvm.Constant(llvm.IntType(32), 0))


def _align(p: Pointer) -> Any:
    return llvm.Constant(llvm.IntType(32), p.align)


def load_fence(builder: llvm.IRBuilder) -> None:
    """A point that no load or store is moved across. LLVM's scheduler brings loads of unrolled steps forward for as
    long as it sees any, which takes the registers that sums are kept in."""
    builder.asm(llvm.FunctionType(llvm.VoidType(), []), "", "~{memory}", [], side_effect=True)


def prefetch(p: Pointer, cache: int = 2) -> None:
    """Has the memory at an address, which need not be there, brought near: into the first or the second cache."""
    flag = llvm.IntType(32)
    values.call(p.builder, "llvm.prefetch.p0", llvm.VoidType(), [p.ir, flag(0), flag(4 - cache), flag(1)])


def read_masked(p: Pointer, count: VectorValue, lanes: int) -> VectorValue:
    """The first ``count`` elements at an address, and zeros."""
    whole = llvm.VectorType(element(p.dtype), lanes)
    mask = first_lanes(count, width(p.dtype), lanes)
    zeros = llvm.Constant(whole, [llvm.Constant(element(p.dtype), 0)] * lanes)
    name = f"llvm.masked.load.{values.suffix(whole)}.p0"
    ir = values.call(p.builder, name, whole, [p.ir, _align(p), mask.ir, zeros])
    if lanes == 1:
        ir = p.builder.extract_element(ir, llvm.Constant(llvm.IntType(32), 0))
    return VectorValue(p.builder, ir, p.dtype, lanes)


def write_masked(p: Pointer, x: VectorValue, count: VectorValue) -> None:
    """Stores the first ``count`` lanes of a value at an address."""
    ir = as_vector(x)
    mask = first_lanes(count, width(p.dtype), x.lanes)
    name = f"llvm.masked.store.{values.suffix(ir.type)}.p0"
    values.call(p.builder, name, llvm.VoidType(), [ir, p.ir, _align(p), mask.ir])


def read_where(p: Pointer, mask: VectorValue) -> VectorValue:
    """The elements at an address for which the mask holds, and zeros."""
    whole = llvm.VectorType(element(p.dtype), mask.lanes)
    zeros = llvm.Constant(whole, [llvm.Constant(element(p.dtype), 0)] * mask.lanes)
    name = f"llvm.masked.load.{values.suffix(whole)}.p0"
    ir = values.call(p.builder, name, whole, [p.ir, _align(p), mask.ir, zeros])
    return VectorValue(p.builder, ir, p.dtype, mask.lanes)


def write_where(p: Pointer, x: VectorValue, mask: VectorValue) -> None:
    """Stores the lanes of a vector for which the mask holds."""
    name = f"llvm.masked.store.{values.suffix(x.ir.type)}.p0"
    values.call(p.builder, name, llvm.VoidType(), [x.ir, p.ir, _align(p), mask.ir])


def _all_lanes(lanes: int) -> Any:
    return llvm.Constant(llvm.VectorType(llvm.IntType(1), lanes), [1] * lanes)


def gather(p: Pointer, index: VectorValue) -> VectorValue:
    """The element at each index."""
    if index.lanes == 1:
        return read(p.at(index), 1)
    whole = llvm.VectorType(element(p.dtype), index.lanes)
    at = p.at(index).ir
    name = f"llvm.masked.gather.{values.suffix(whole)}.v{index.lanes}p0"
    nothing = llvm.Constant(whole, llvm.Undefined)
    ir = values.call(p.builder, name, whole, [at, _align(p), _all_lanes(index.lanes), nothing])
    return VectorValue(p.builder, ir, p.dtype, index.lanes)


def scatter(p: Pointer, index: VectorValue, x: VectorValue) -> None:
    """Stores each lane at its index; of lanes with one index the last stays."""
    if index.lanes == 1:
        return write(p.at(index), x)
    name = f"llvm.masked.scatter.{values.suffix(x.ir.type)}.v{index.lanes}p0"
    args = [x.ir, p.at(index).ir, _align(p), _all_lanes(index.lanes)]
    values.call(p.builder, name, llvm.VoidType(), args)
    return None


def read_strided(p: Pointer, stride: VectorValue, lanes: int, constant_stride: int | None) -> VectorValue:
    """Every ``stride``-th element from an address on; ``known`` is the stride where it is a number in the source.

    Small known strides read what lies between as well, never past the last element, and drop it.
    """
    if lanes == 1 or constant_stride == 1:
        return read(p, lanes)
    if constant_stride == 0:
        return broadcast(read(p, 1), lanes)
    if constant_stride == -1:
        whole = read(p.past(1 - lanes), lanes)
        return shuffle(whole, whole, range(lanes - 1, -1, -1))
    if constant_stride is not None and 2 <= constant_stride <= 4:
        return _read_between(p, constant_stride, lanes)
    result = llvm.Constant(llvm.VectorType(element(p.dtype), lanes), llvm.Undefined)
    for k in range(lanes):
        one = read(p.at(stride * k), 1)
        result = p.builder.insert_element(result, one.ir, llvm.Constant(llvm.IntType(32), k))
    return VectorValue(p.builder, result, p.dtype, lanes)


def _read_between(p: Pointer, stride: int, lanes: int) -> VectorValue:
    """Whole vectors that cover the elements, joined one after the other; the last ends with the last element."""
    last = (lanes - 1) * stride
    starts = [min(k * lanes, last + 1 - lanes) for k in range(stride)]
    result = read(p, lanes)
    for number, start in enumerate(starts[1:], 1):
        old = [k * stride if number == 1 else k for k in range(lanes)]
        order = [old[k] if k * stride < number * lanes else lanes + k * stride - start for k in range(lanes)]
        result = shuffle(result, read(p.past(start), lanes), [o if 0 <= o < 2 * lanes else 0 for o in order])
    return result


def write_strided(p: Pointer, stride: VectorValue, x: VectorValue) -> None:
    """Stores the lanes at every ``stride``-th element from an address on."""
    for k in range(x.lanes):
        write(p.at(stride * k), lane(x, k))
