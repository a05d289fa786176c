"""Memory of CUDA kernels: shared arrays, thread-local arrays, wide accesses through pointers, and asynchronous copies
from global to shared memory, while threads go on."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels.cuda.device import function
from graphopt.kernels.cuda.inline_ptx import address, written
from graphopt.kernels.cuda.limits import ACCESS, COPIES, GLOBAL_SPACE, SHARED_SPACE
from graphopt.kernels.cuda.target import intrinsic
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue, cast, element, width
from graphopt.kernels.vector_type import literal


def _shared(count: Any, dtype: Any) -> Any:
    """``shared(count, float32)``: a pointer to so many elements that the threads of the block share, aligned to 16
    bytes; each call in the source has its own. Nothing is in them until a thread writes it."""
    size, kind = _count(count, dtype)

    def trace(count: VectorValue, _: None) -> VectorValue:
        module = count.builder.module
        array = llvm.ArrayType(element(kind), size)
        variable = llvm.GlobalVariable(module, array, module.get_unique_name("shared"), addrspace=SHARED_SPACE)
        variable.linkage, variable.align = "internal", ACCESS
        variable.initializer = llvm.Constant(array, llvm.Undefined)
        pointer = count.builder.addrspacecast(variable, llvm.PointerType(array))
        return VectorValue(count.builder, count.builder.bitcast(pointer, element(kind).as_pointer()), kind, 1)

    return types.CPointer(kind), trace  # type: ignore[no-untyped-call]


def _local(count: Any, dtype: Any) -> Any:
    """``local(count, float32)``: a pointer to so many elements of this thread's own: registers, where every index is
    known when compiling. Nothing is in them until the thread writes it."""
    size, kind = _count(count, dtype)

    def trace(count: VectorValue, _: None) -> VectorValue:
        start = count.builder.function.entry_basic_block
        entry = llvm.IRBuilder(start)
        entry.position_at_start(start)
        array = entry.alloca(llvm.ArrayType(element(kind), size))
        array.align = ACCESS
        return VectorValue(count.builder, count.builder.bitcast(array, element(kind).as_pointer()), kind, 1)

    return types.CPointer(kind), trace  # type: ignore[no-untyped-call]


def _count(count: Any, dtype: Any) -> tuple[int, Any]:
    if not isinstance(dtype, types.NumberClass):
        raise TypingError(f"{dtype} is no dtype: expected float32, int8 or the like")
    return literal(count, "count"), dtype.instance_type


def _pointee(kind: Any, name: str) -> Any:
    if not isinstance(kind, types.CPointer):
        raise TypingError(f"{name} of {kind}: expected a pointer")
    return kind.dtype


def _word(dtype: Any, lanes: int) -> tuple[Any, int]:
    """The type as which so many elements are read and written at once, and to how many bytes they have to be aligned.
    Small elements go as words: LLVM would take them apart."""
    size = width(dtype) // 8 * lanes
    kind = llvm.VectorType(llvm.IntType(32), size // 4) if size > 4 else llvm.IntType(8 * size)
    return kind, min(size, ACCESS)


def _loader(lanes: int) -> Any:
    def load(p: Any, i: Any) -> Any:
        dtype = _pointee(p, f"load{lanes}")

        def trace(p: Pointer, i: VectorValue) -> Any:
            at, b = p.at(i), p.builder
            kind, align = _word(dtype, lanes)
            word = b.load(b.bitcast(at.ir, kind.as_pointer()), align=align, typ=kind)
            vector = b.bitcast(word, llvm.VectorType(element(dtype), lanes))
            result = llvm.Constant(llvm.ArrayType(element(dtype), lanes), llvm.Undefined)
            for k in range(lanes):
                result = b.insert_value(result, b.extract_element(vector, llvm.Constant(llvm.IntType(32), k)), k)
            return result

        return types.UniTuple(dtype, lanes), trace  # type: ignore[no-untyped-call]

    load.__name__ = f"load{lanes}"
    load.__doc__ = (
        f"``load{lanes}(p, i)``: the {lanes} elements from ``p[i]`` on, by accesses as wide as there are; the\
 address has to be a multiple of their size in bytes, or of 16."
    )
    return function(load)


def _storer(lanes: int) -> Any:
    def store(p: Any, i: Any, v: Any) -> Any:
        dtype = _pointee(p, f"store{lanes}")
        if not isinstance(v, types.BaseTuple) or len(v) != lanes:
            raise TypingError(f"store{lanes} of {v}: expected a tuple of {lanes}")

        def trace(p: Pointer, i: VectorValue, parts: tuple[VectorValue, ...]) -> None:
            at, b = p.at(i), p.builder
            kind, align = _word(dtype, lanes)
            vector: Any = llvm.Constant(llvm.VectorType(element(dtype), lanes), llvm.Undefined)
            for k, part in enumerate(parts):
                vector = b.insert_element(vector, cast(part, dtype).ir, llvm.Constant(llvm.IntType(32), k))
            b.store(b.bitcast(vector, kind), b.bitcast(at.ir, kind.as_pointer()), align=align)

        return types.none, trace

    store.__name__ = f"store{lanes}"
    store.__doc__ = f"``store{lanes}(p, i, values)``: writes a tuple of {lanes} to the elements from ``p[i]`` on, by\
 accesses as wide as there are; the address has to be a multiple of their size in bytes, or of 16."
    return function(store)


def _offset(p: Any, i: Any) -> Any:
    """``offset(p, i)``: the pointer to ``p[i]``."""
    return types.CPointer(_pointee(p, "offset")), Pointer.at  # type: ignore[no-untyped-call]


shared, local, offset = function(_shared), function(_local), function(_offset)
load2, load4, load8 = _loader(2), _loader(4), _loader(8)
store2, store4, store8 = _storer(2), _storer(4), _storer(8)


def _copy_async(p: Any, i: Any, q: Any, j: Any, lanes: Any, valid: Any) -> Any:
    """``copy_async(p, i, q, j, lanes, valid)``: begins to copy ``lanes`` elements, of 4, 8 or 16 bytes in all and
    aligned to that, from ``q[j]`` on to ``p[i]`` on, which is shared: the first ``valid`` of them, and zeros for the
    rest, which are not read."""
    count = literal(lanes, "lanes")
    if not isinstance(p, types.CPointer) or p != q:
        raise TypingError(f"copy_async from {q} to {p}: expected pointers to one dtype")
    each = width(p.dtype) // 8
    if each * count not in COPIES:
        raise TypingError(f"copy_async of {count} {p.dtype}: expected {', '.join(map(str, COPIES))} bytes")

    def trace(p: Pointer, i: VectorValue, q: Pointer, j: VectorValue, lanes: VectorValue, valid: VectorValue) -> None:
        b = p.builder
        way = "cg" if each * count == ACCESS else "ca"
        text = f"cp.async.{way}.shared.global [$0], [$1], {each * count}, $2;"
        size = cast(valid, types.int32) * each
        places = [address(p.at(i), SHARED_SPACE), address(q.at(j), GLOBAL_SPACE)]
        written(b, text, "r,l,r", llvm.VoidType(), [*places, size.ir], effects=True)

    return types.none, trace


@intrinsic
def copy_commit(typing_context: Any) -> Any:
    """``copy_commit()``: the copies that this thread began since the last call are a group."""

    def generate(context: Any, builder: Any, sig: Any, irs: Any) -> Any:
        written(builder, "cp.async.commit_group;", "", llvm.VoidType(), [], effects=True)
        return context.get_dummy_value()

    return types.none(), generate


def _copy_wait(groups: Any) -> Any:
    """``copy_wait(n)``: waits until all but the last ``n`` groups of this thread have come; others see them behind a
    barrier."""
    left = literal(groups, "groups")

    def trace(groups: VectorValue) -> None:
        written(groups.builder, f"cp.async.wait_group {left};", "", llvm.VoidType(), [], effects=True)

    return types.none, trace


copy_async, copy_wait = function(_copy_async), function(_copy_wait)
