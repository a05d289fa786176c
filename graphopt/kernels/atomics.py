"""Atomics for the native driver: atomic words, futex waits, indirect calls, and a clock.

Addresses are int64; words are int64 too, 8-byte aligned. Every atomic operation is sequentially consistent.
"""
# mypy: allow-untyped-calls, disable-error-code="misc, untyped-decorator"

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_WORD = ir.IntType(64)
_INT = ir.IntType(32)
_ORDER = "seq_cst"
_FUTEX, _WAIT, _WAKE = 202, 128, 129
"""Linux's number of the system call on x86-64; its operations, between the threads of one process."""
_MONOTONIC = 1


def _pointer(builder: Any, address: Any, kind: Any = _WORD) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


@intrinsic
def load(typingctx: Any, address: Any) -> Any:
    """The word at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load_atomic(_pointer(builder, args[0]), _ORDER, 8)

    return types.int64(types.int64), generate


@intrinsic
def store(typingctx: Any, address: Any, value: Any) -> Any:
    """Write the word at an address."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store_atomic(args[1], _pointer(builder, args[0]), _ORDER, 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def add(typingctx: Any, address: Any, value: Any) -> Any:
    """Add to the word at an address; the word as it was before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("add", _pointer(builder, args[0]), args[1], _ORDER)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def raise_to(typingctx: Any, address: Any, value: Any) -> Any:
    """Make the word at an address the larger of itself and a value; the word as it was before."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.atomic_rmw("max", _pointer(builder, args[0]), args[1], _ORDER)

    return types.int64(types.int64, types.int64), generate


@intrinsic
def flag(typingctx: Any, address: Any) -> Any:
    """Whether the byte at an address is not zero."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        byte = builder.load(_pointer(builder, args[0], ir.IntType(8)))
        return builder.icmp_unsigned("!=", byte, byte.type(0))

    return types.boolean(types.int64), generate


@intrinsic
def pause(typingctx: Any) -> Any:
    """Tell the processor that this thread is spinning."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(ir.VoidType(), [])
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def wait(typingctx: Any, address: Any, seen: Any) -> Any:
    """Sleep until woken, unless the lower half of the word at an address is no longer that of ``seen``."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        half = builder.zext(builder.trunc(args[1], _INT), _WORD)
        _system_call(builder, [_WORD(_FUTEX), args[0], _WORD(_WAIT), half, _WORD(0), _WORD(0), _WORD(0)])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


@intrinsic
def wake(typingctx: Any, address: Any) -> Any:
    """Wake all threads that wait for a word."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        everyone = (1 << 31) - 1
        _system_call(builder, [_WORD(_FUTEX), args[0], _WORD(_WAKE), _WORD(everyone), _WORD(0), _WORD(0), _WORD(0)])
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _system_call(builder: Any, args: Any) -> None:
    kind = ir.FunctionType(_WORD, [_WORD], var_arg=True)
    builder.call(cgutils.get_or_insert_function(builder.module, kind, "syscall"), args)


@intrinsic
def call(typingctx: Any, function: Any, args: Any, lo: Any, hi: Any) -> Any:
    """The status of a kernel, called by its address with the address of its arguments."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.FunctionType(_INT, [_WORD, _WORD, _WORD])
        return builder.sext(builder.call(_pointer(builder, values[0], kind), values[1:]), _WORD)

    return types.int64(types.int64, types.int64, types.int64, types.int64), generate


@intrinsic
def clock(typingctx: Any) -> Any:
    """Nanoseconds since some moment; never goes back."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        kind = ir.FunctionType(_INT, [_INT, _WORD.as_pointer()])
        time = cgutils.alloca_once(builder, _WORD, size=2)
        builder.call(cgutils.get_or_insert_function(builder.module, kind, "clock_gettime"), [_INT(_MONOTONIC), time])
        seconds = builder.load(time)
        return builder.add(builder.mul(seconds, _WORD(10**9)), builder.load(builder.gep(time, [_WORD(1)])))

    return types.int64(), generate
