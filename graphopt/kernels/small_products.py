"""Small matrix products with blocked columns: a tile of results stays in registers.

The sizes are known when a kernel runs, not before: the code holds a loop for each of a few heights of tiles, and is the
same whatever the matrices are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core.errors import TypingError

from graphopt.kernels import memory, values
from graphopt.kernels.host import BLOCK, block_tile
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue, broadcast, fma
from graphopt.kernels.vector_type import function

UNROLLED = 4
"""Steps that are written out."""
WORD = types.int64
NAME = "graphopt_blocked_product"


def _blocked_product(
    c: Any, start_c: Any, step_c: Any, row_c: Any, a: Any, start_a: Any, step_a: Any, row_a: Any,
    b: Any, start_b: Any, step_b: Any, block_b: Any, row_b: Any, rows: Any, columns: Any, depth: Any,
) -> Any:  # fmt: skip
    """``C = A @ B``, all in blocks of 16: ``C`` is [columns, rows, 16], ``A`` is [depth, rows, 16] and ``B`` is
    [columns, depth, 16, 16].

    Each is given as a pointer, the element where it starts, and how far apart the parts of its axes lie but for the
    last: only those of the first may have gaps between them. There are an even number of rows.
    """
    if not all(isinstance(p, types.CPointer) and p.dtype == types.float32 for p in (a, b, c)):
        raise TypingError(f"a product of {a} and {b} into {c}: expected pointers to float32")

    def trace(
        c: Pointer, start_c: VectorValue, step_c: VectorValue, row_c: VectorValue,
        a: Pointer, start_a: VectorValue, step_a: VectorValue, row_a: VectorValue,
        b: Pointer, start_b: VectorValue, step_b: VectorValue, block_b: VectorValue, row_b: VectorValue,
        rows: VectorValue, columns: VectorValue, depth: VectorValue,
    ) -> None:  # fmt: skip
        given = [values.cast(x, WORD) for x in (rows, columns, depth, step_a, step_b, step_c)]
        places = [p.at(s).ir for p, s in ((c, start_c), (a, start_a), (b, start_b))]
        # a function of its own, of sizes that are not known: it takes as long to compile wherever it is called
        _function(c.builder.module, places)(c.builder, [*places, *(memory.opaque(x).ir for x in given)])

    return types.none, trace


def _function(module: Any, given: Sequence[Any]) -> Any:
    """LLVM's function that multiplies, written at first use."""
    word = llvm.IntType(64)
    kind = llvm.FunctionType(llvm.VoidType(), [*(p.type for p in given), *[word] * 6])
    llvm_function = module.globals.get(NAME)
    if llvm_function is None:
        llvm_function = llvm.Function(module, kind, NAME)
        llvm_function.linkage = "internal"
        llvm_function.attributes.add("noinline")
        builder = llvm.IRBuilder(llvm_function.append_basic_block())
        places = [Pointer(builder, arg, types.float32) for arg in llvm_function.args[:3]]
        _write(builder, places, [VectorValue(builder, arg, WORD, 1) for arg in llvm_function.args[3:]])
        builder.ret_void()
    return lambda builder, args: builder.call(llvm_function, args)


def _write(builder: Any, places: Sequence[Pointer], sizes: Sequence[VectorValue]) -> None:
    """The function's body."""
    c, a, b = places
    (height, width), (rows, columns, depth, step_a, step_b, step_c) = block_tile(), sizes
    # tiles of one height, as equal as can be; the last is moved back to end with the last row
    pieces = (rows + (height - 1)) / height
    even = ((rows + pieces - 1) / values.select(pieces < 1, pieces.number(1), pieces) + 1) & -2
    end = builder.append_basic_block()
    choice = builder.switch(even.ir, end)
    for count in range(2, height + 1, 2):
        block = builder.append_basic_block()
        choice.add_case(llvm.Constant(llvm.IntType(64), count), block)
        builder.position_at_end(block)

        def across(column: VectorValue, _: Sequence[VectorValue], count: int = count) -> Sequence[VectorValue]:
            column_indices = [values.minimum(column * width + k, columns - 1) for k in range(width)]
            panels, targets = [b.at(step_b * k) for k in column_indices], [c.at(step_c * k) for k in column_indices]

            def down(piece: VectorValue, _: Sequence[VectorValue]) -> Sequence[VectorValue]:
                row = values.minimum(piece * count, rows - count)
                _tile(a.at(row * BLOCK), step_a, panels, [t.at(row * BLOCK) for t in targets], count, depth)
                return ()

            return values.loop(pieces, (), down)

        values.loop((columns + (width - 1)) / width, (), across)
        builder.branch(end)
    builder.position_at_end(end)


def _tile(
    left: Pointer,
    step: VectorValue,
    panels: Sequence[Pointer],
    targets: Sequence[Pointer],
    rows: int,
    depth: VectorValue,
) -> None:
    """Some rows of some blocks of the result, which stay in registers meanwhile."""
    zero = values.constant(left.builder, types.float32, BLOCK, 0.0)

    def block(k: VectorValue, sums: Sequence[VectorValue]) -> Sequence[VectorValue]:
        def steps(part: VectorValue, sums: Sequence[VectorValue]) -> Sequence[VectorValue]:
            totals = list(sums)
            elements = left.at(step * k + part * UNROLLED)
            at = [p.at((k * BLOCK + part * UNROLLED) * BLOCK) for p in panels]
            for lane in range(UNROLLED):
                vectors = [memory.read(p.past(lane * BLOCK), BLOCK) for p in at]
                for row in range(rows):
                    factor = broadcast(memory.read(elements.past(row * BLOCK + lane), 1), BLOCK)
                    for n, v in enumerate(vectors):
                        number = row * len(vectors) + n
                        totals[number] = fma(factor, v, totals[number])
            return totals

        return values.loop(k.number(BLOCK // UNROLLED), sums, steps)

    sums = values.loop(depth, [zero] * (rows * len(panels)), block)
    for number, total in enumerate(sums):
        row, n = divmod(number, len(panels))
        memory.write(targets[n].past(row * BLOCK), total)


blocked_product = function(_blocked_product)
