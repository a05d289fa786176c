"""Tensor core instructions: warp-level products of small matrices, and loads of their fragments.

A warp of 32 threads computes ``d = c + a @ b`` with ``c`` of 16 rows and 8 columns; each thread holds some elements of
each matrix, in the places that PTX's documentation of ``mma.sync`` shows: with ``g`` a thread's number in the warp over
4 and ``t`` the rest, those of ``c`` are (g, 2t), (g, 2t + 1), (g + 8, 2t) and (g + 8, 2t + 1).
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels.cuda.device import function
from graphopt.kernels.cuda.inline_ptx import SINGLE, WORD, address, array, parts, written
from graphopt.kernels.cuda.limits import SHARED_SPACE
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue, cast, width


def _product(name: str, shape: str, dtype: str, given: Any, what: str) -> Any:
    def mma(c: Any, a: Any, b: Any) -> Any:
        for kind, count, wanted in ((c, 4, types.float32), (a, 4, given), (b, 2, given)):
            if not isinstance(kind, types.UniTuple) or len(kind) != count or kind.dtype != wanted:
                raise TypingError(f"{name} of {kind}: expected a tuple of {count} {wanted}")

        def trace(c: tuple[VectorValue, ...], a: tuple[VectorValue, ...], b: tuple[VectorValue, ...]) -> Any:
            builder = c[0].builder
            words = [builder.bitcast(part.ir, WORD) for part in (*a, *b)]
            text = f"mma.sync.aligned.{shape}.row.col.f32.{dtype}.{dtype}.f32 {parts(0, 4)}, {parts(4, 4)}, "
            text += f"{parts(8, 2)}, {parts(10, 4)};"
            struct = llvm.LiteralStructType([SINGLE] * 4)
            args = [*words, *(part.ir for part in c)]
            got = written(builder, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", struct, args, effects=False)
            return array(builder, got, SINGLE, 4)

        return types.UniTuple(types.float32, 4), trace  # type: ignore[no-untyped-call]

    mma.__name__ = name
    mma.__doc__ = f"``{name}(c, a, b)``: a thread's four elements of ``c + a @ b``, of float32; {what}."
    return function(mma)


_TF32 = "``a`` has 8 columns: (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4) of it, and (t, g), (t + 4, g) of ``b`` are\
 given as float32, of which the cores see 10 bits behind the point"
_PAIRS = (
    "``a`` has 16 columns: pairs of neighbours from (g, 2t), (g + 8, 2t), (g, 2t + 8), (g + 8, 2t + 8) on of it, and\
 those below each other from (2t, g), (2t + 8, g) on of ``b`` are given as uint32, the first in the lower half"
)

mma_tf32 = _product("mma_tf32", "m16n8k8", "tf32", types.float32, _TF32)
mma_f16 = _product("mma_f16", "m16n8k16", "f16", types.uint32, f"float16; {_PAIRS}")
mma_bf16 = _product("mma_bf16", "m16n8k16", "bf16", types.uint32, f"bfloat16; {_PAIRS}")


def _to_tf32(x: Any) -> Any:
    """``to_tf32(x)``: the float32 nearest to a float32 of which tensor cores see all bits; of two, the one away from
    zero."""

    def trace(x: VectorValue) -> VectorValue:
        b, single = x.builder, cast(x, types.float32)
        word = b.asm(llvm.FunctionType(WORD, [SINGLE]), "cvt.rna.tf32.f32 $0, $1;", "=r,f", [single.ir], False)
        return VectorValue(b, b.bitcast(word, SINGLE), single.dtype, 1)

    return types.float32, trace


def _pair(low: Any, high: Any) -> Any:
    """``pair(low, high)``: two uint16 as one uint32."""

    def trace(low: VectorValue, high: VectorValue) -> VectorValue:
        low, high = (cast(cast(part, types.uint16), types.uint32) for part in (low, high))
        return low | high << 16

    return types.uint32, trace


def _matrices(count: int, turned: bool) -> Any:
    name = f"ldmatrix{count}{'_turned' if turned else ''}"

    def ldmatrix(p: Any, i: Any) -> Any:
        if not isinstance(p, types.CPointer) or width(p.dtype) not in ((16,) if turned else (16, 32)):
            raise TypingError(f"{name} of {p}: expected a pointer to elements of 16 {'' if turned else 'or 32 '}bits")
        kind = types.uint32 if width(p.dtype) == 16 else p.dtype

        def trace(p: Pointer, i: VectorValue) -> Any:
            b = p.builder
            text = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' * turned}.shared.b16 {parts(0, count)}, [${count}];"
            struct = llvm.LiteralStructType([WORD] * count)
            got = written(b, text, "=r," * count + "r", struct, [address(p.at(i), SHARED_SPACE)], effects=True)
            if kind != types.float32:
                return array(b, got, WORD, count)
            result = llvm.Constant(llvm.ArrayType(SINGLE, count), llvm.Undefined)
            for k in range(count):
                result = b.insert_value(result, b.bitcast(b.extract_value(got, k), SINGLE), k)
            return result

        return types.UniTuple(kind, count), trace  # type: ignore[no-untyped-call]

    ldmatrix.__name__ = name
    ldmatrix.__doc__ = f"""``{name}(p, i)``: from shared memory, {count} matrices of 8 rows of 16 bytes each.

    The threads of a warp, eight for each matrix, say where a row starts, at a multiple of 16 bytes; each thread gets of
    each matrix {"two elements of column g, from row 2t on," if turned else "bytes 4t to 4t + 3 of row g,"} as a uint32,
    or as the element where that has 32 bits.
    """
    return function(ldmatrix)


to_tf32, pair = function(_to_tf32), function(_pair)
ldmatrix2, ldmatrix4 = _matrices(2, turned=False), _matrices(4, turned=False)
ldmatrix2_turned, ldmatrix4_turned = _matrices(2, turned=True), _matrices(4, turned=True)
