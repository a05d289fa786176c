"""Asynchronous copies from global to shared memory, while threads go on."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels.cuda.device import function
from graphopt.kernels.cuda.inline_ptx import address, written
from graphopt.kernels.cuda.limits import ACCESS, COPIES
from graphopt.kernels.cuda.memory import GLOBAL_SPACE, SHARED_SPACE
from graphopt.kernels.cuda.target import intrinsic
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue, cast, width
from graphopt.kernels.vector_type import literal


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
