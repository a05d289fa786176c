"""Convolution microkernel: a tile of results, summed in registers, called from kernel source.

A tile is a few neighbouring pixels of one row, each of some blocks of channels, which are vectors. A step of the sum
reads a number for each pixel and a vector for each block, and multiplies them all with each other. What registers are
needed for is fixed when the code is made, which many kernels share; sizes are known when it runs. For how many pixels
there are, it holds code for each number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import llvmlite.ir as llvm
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError

from graphopt.frozen import dataclass
from graphopt.kernels import host, memory, values
from graphopt.kernels.memory import Pointer
from graphopt.kernels.values import VectorValue, broadcast, constant, fma, select
from graphopt.kernels.vector_type import literal, procedure

AXES = 3
"""Axes of space that images have at most."""
POINTERS = ("c", "a", "b")
OUTER = [f"{name}_{k}" for k in range(AXES - 1) for name in ("kernel", "lda", "ldb")]
SIZES = (
    *("w", "ldc_blocks", "ldc_pixels", "channels", "lda_channels", "ldb_channels", *OUTER, "ldb_blocks"),
    *("kernel", "low", "high", "begin", "dilation", "side"),
)
"""What shared code is called with behind the pointers, all of them int64."""
LITERALS = ("size", "lanes", "blocks", "most", "step", "deep")
"""Sizes that are numbers in a kernel's source."""
BUSY = 8
"""Sums that are under way at once where the multipliers do not wait for them."""
AHEAD = 16
"""Steps by which weights are fetched before they are needed, in which the second cache answers, and often the third."""


@dataclass(frozen=True, slots=True)
class TileForm:
    """Parameters of a convolution tile: the dtype, the number of adjacent channels of a pixel, the lanes of a block,
    the number of blocks, the largest number of pixels, the stride of the image, and the number of separate channels
    that are summed together."""

    dtype: str
    size: int
    lanes: int
    blocks: int
    most: int
    step: int
    deep: int

    @property
    def name(self) -> str:
        """The name of the function."""
        sizes = f"{self.size}x{self.lanes}_{self.blocks}x{self.most}_{self.step}_{self.deep}"
        return f"graphopt_convolve_{self.dtype}_{sizes}"


PATTERN = r"graphopt_convolve_(float32|float64)_(\d+)x(\d+)_(\d+)x(\d+)_(\d+)_(\d+)"


# ------------------------------------------------------------------ the call


def _convolve(rank: int, is_blocked: bool) -> Any:
    """The function for images with so many axes, in blocks of channels or plain."""

    def define(kinds: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], None]:
        dtype = kinds["c"].dtype
        if not all(isinstance(kinds[p], types.CPointer) and kinds[p].dtype == dtype for p in POINTERS):
            raise TypingError(f"a convolution of {kinds['a']} and {kinds['b']}: expected pointers to one dtype")
        numbers = [literal(kinds[n], n) if n in kinds else 1 for n in LITERALS]
        return partial(_call, TileForm(str(dtype), *numbers), rank)

    name = f"convolve_{'blocked' if is_blocked else 'plain'}_{rank}d"
    return procedure(name, _parameters(rank, is_blocked), define)


def _parameters(rank: int, is_blocked: bool) -> Sequence[str]:
    """Parameters of a convolution: C, A and B as pointers, each with its first element and the strides of all its sides
    but the last, then the sizes of the intrinsic's description."""
    axes = range(rank)
    image = [f"lda_{k}" for k in (axes if is_blocked else axes[:-1])]
    weights = [f"ldb_{k}" for k in axes] + (["ldb_size"] if is_blocked else [])
    sizes = [
        "channels",
        *(f"{name}_{k}" for name in ("kernel", "side") for k in axes),
        "size" if is_blocked else "deep",
    ]
    places = ["start", "before", "step", *(f"dilation_{k}" for k in axes), "low", "high"]
    return (
        *("c", "start_c", "ldc_blocks", "ldc_pixels", "a", "start_a", "lda_channels", *image),
        *("b", "start_b", "ldb_blocks", "ldb_channels", *weights, "blocks", "most", "w", "lanes", *sizes, *places),
    )


def _call(form: TileForm, rank: int, given: Mapping[str, Any]) -> None:
    """Calls the shared code. The innermost sides of A and B lie without gaps, so that nobody needs to say how."""
    builder, last = given["c"].builder, rank - 1
    number = constant(builder, types.int64, 1, 1)
    passed = {n: given[n] for n in SIZES if n in given}
    for k in range(AXES - 1):
        dim = k - (AXES - 1) + last
        passed[f"kernel_{k}"] = given[f"kernel_{dim}"] if dim >= 0 else number
        passed[f"lda_{k}"] = given[f"lda_{dim}"] * given[f"dilation_{dim}"] if dim >= 0 else number
        passed[f"ldb_{k}"] = given[f"ldb_{dim}"] if dim >= 0 else number
    passed |= {n: given[f"{n}_{last}"] for n in ("kernel", "dilation", "side")}
    passed["begin"] = given["start"] - given["before"]
    pointers = [given[p].at(given[f"start_{p}"]).ir for p in POINTERS]
    words = [values.cast(passed[n], types.int64).ir for n in SIZES]
    values.call(builder, form.name, llvm.VoidType(), [*pointers, *words])


convolve_blocked_1d, convolve_plain_1d = _convolve(1, True), _convolve(1, False)
convolve_blocked_2d, convolve_plain_2d = _convolve(2, True), _convolve(2, False)
convolve_blocked_3d, convolve_plain_3d = _convolve(3, True), _convolve(3, False)


# ------------------------------------------------------------------ the code


def convolution(dtype: str, size: int, lanes: int, blocks: int, most: int, step: int, deep: int) -> llvm.Module:
    """The module with the code of that form."""
    form, word = TileForm(dtype, size, lanes, blocks, most, step, deep), llvm.IntType(64)
    module = llvm.Module(form.name)
    kind = getattr(types, dtype)
    pointer = values.element(kind).as_pointer()
    signature = llvm.FunctionType(llvm.VoidType(), [pointer] * len(POINTERS) + [word] * len(SIZES))
    function = llvm.Function(module, signature, form.name)
    builder = llvm.IRBuilder(function.append_basic_block())
    given: dict[str, Any] = {n: Pointer(builder, p, kind) for n, p in zip(POINTERS, function.args, strict=False)}
    words = zip(SIZES, function.args[len(POINTERS) :], strict=True)
    given |= {n: VectorValue(builder, x, types.int64, 1) for n, x in words}
    end = builder.append_basic_block()
    choice = builder.switch(given["w"].ir, end)
    for width in range(1, most + 1):
        case = builder.append_basic_block()
        choice.add_case(word(width), case)
        builder.position_at_end(case)
        _ConvolutionTile(form, given, width).sum()
        builder.branch(end)
    builder.position_at_end(end)
    builder.ret_void()
    return module


class _ConvolutionTile:
    """The code for a tile of so many pixels."""

    def __init__(self, form: TileForm, given: Mapping[str, Any], count: int) -> None:
        self.form, self.given, self.count = form, given, count
        self.builder, self.dtype = given["c"].builder, given["c"].dtype
        self.lanes = min(host.lanes(form.dtype), form.lanes)
        self.vectors = form.blocks * form.lanes // self.lanes
        # several sums for each result where there are few results; a block of channels is a whole number of steps
        self.turns = next(n for n in (1, 2, 4, 8, 16) if n * count * self.vectors >= BUSY or n == form.size)
        self.sums = [self.kept(self.lanes) for _ in range(self.turns * count * self.vectors)]

    def kept(self, lanes: int) -> Pointer:
        """Zeros on the stack, or in a register."""
        with self.builder.goto_entry_block():
            storage = self.builder.alloca(values.llvm_type(self.dtype, lanes))
        pointer = Pointer(self.builder, storage, self.dtype)
        memory.write(pointer, constant(self.builder, self.dtype, lanes, 0.0))
        return pointer.cast(self.dtype)

    @contextmanager
    def loop(self, count: VectorValue | int) -> Iterator[VectorValue]:
        """A loop of so many steps; its index."""
        extent = count if isinstance(count, VectorValue) else constant(self.builder, types.int64, 1, count)
        with cgutils.for_range(self.builder, extent.ir) as loop:
            yield VectorValue(self.builder, loop.index, types.int64, 1)

    def sum(self) -> None:
        """The sums over all channels and the whole kernel, written to C."""
        of = self.given
        with ExitStack() as loops:
            channel = loops.enter_context(self.loop(of["channels"] / self.form.deep)) * self.form.deep
            a, b = of["a"].at(channel * of["lda_channels"]), of["b"].at(channel * of["ldb_channels"])
            coming = a.at(self.following(channel))
            for k in range(AXES - 1):
                at = loops.enter_context(self.loop(of[f"kernel_{k}"]))
                a, b, coming = a.at(at * of[f"lda_{k}"]), b.at(at * of[f"ldb_{k}"]), coming.at(at * of[f"lda_{k}"])
            self.inside(a, b, coming)
            self.edges(a, b)
        each = self.count * self.vectors
        for k in range(each):
            total = [memory.read(s, self.lanes) for s in self.sums[k::each]]
            while len(total) > 1:
                total = [x + y for x, y in zip(total[::2], total[1::2], strict=True)]
            pixel, vector = divmod(k, self.vectors)
            memory.write(of["c"].at(of["ldc_pixels"] * pixel + self.lane(vector, of["ldc_blocks"])), total[0])

    def following(self, channel: VectorValue) -> VectorValue:
        """The distance to the next block of channels to read: the next one, or the first of the next tile."""
        last, apart = self.given["channels"] - 1, self.given["lda_channels"]
        tile = apart.number(self.count * self.form.step * self.form.size)
        return select(channel < last, apart, tile - last * apart)

    def lane(self, vector: int, apart: VectorValue) -> VectorValue:
        """The address of one of the vectors of all blocks, when the blocks are so far apart."""
        block, part = divmod(vector * self.lanes, self.form.lanes)
        return apart * block + part

    def inside(self, a: Pointer, b: Pointer, coming: Pointer) -> None:
        """The steps over the columns of the kernel that lie within the image for all pixels."""
        of, size = self.given, self.form.size
        with self.loop(of["high"] - of["low"]) as k:
            j = of["low"] + k
            column = (of["begin"] + j * of["dilation"]) * size
            for c in range(self.form.deep):
                first = a.at(column + of["lda_channels"] * c)
                pixels = [first.past(p * self.form.step * size) for p in range(self.count)]
                self.columns(pixels, b.at(of["ldb_channels"] * c), j, coming.at(column))

    def edges(self, a: Pointer, b: Pointer) -> None:
        """The steps over the other columns, zeros standing for what is outside of the image. Those that lie outside
        for all pixels, as many do where dilations are large, are left out."""
        of, inside = self.given, self.given["high"] - self.given["low"]
        zeros, past = self.kept(self.form.size), (self.count - 1) * self.form.step
        with self.loop(of["kernel"] - inside) as k:
            j = select(k < of["low"], k, k + inside)
            start = of["begin"] + j * of["dilation"]
            some = values.as_unsigned(start + past) < values.as_unsigned(of["side"] + past)
            with self.builder.if_then(some.ir):
                for c in range(self.form.deep):
                    pixels = []
                    for p in range(self.count):
                        column = start + p * self.form.step
                        is_inside = values.as_unsigned(column) < values.as_unsigned(of["side"])
                        there = a.at(column * self.form.size + of["lda_channels"] * c)
                        pixels.append(replace(there, ir=self.builder.select(is_inside.ir, there.ir, zeros.ir)))
                    self.columns(pixels, b.at(of["ldb_channels"] * c), j)

    def columns(self, pixels: Sequence[Pointer], b: Pointer, j: VectorValue, coming: Pointer | None = None) -> None:
        """The steps of one column of the kernel: the channels that lie side by side. With each, a pixel of those that
        come next is fetched."""
        size, lanes = self.form.size, self.form.lanes
        weights = b.at(j * (size * lanes))
        with self.loop(size // self.turns) as t:
            if coming is not None and size > 1:
                memory.prefetch(coming.at(t * (self.form.step * size)), 1)
            self.multiply([p.at(t * self.turns) for p in pixels], weights.at(t * (self.turns * lanes)))
            if self.form.deep > 1:
                memory.load_fence(self.builder)

    def multiply(self, pixels: Sequence[Pointer], weights: Pointer) -> None:
        """One step for each turn: numbers of pixels times vectors of weights, added to the sums."""
        sums = iter(self.sums)
        for turn in range(self.turns):
            row = weights.past(turn * self.form.lanes)
            places = [row.at(self.lane(k, self.given["ldb_blocks"])) for k in range(self.vectors)]
            vectors = [memory.read(p, self.lanes) for p in places]
            for pointer in places:
                memory.prefetch(pointer.past(AHEAD * self.form.lanes), 1)
            for pixel in pixels:
                number = broadcast(memory.read(pixel.past(turn), 1), self.lanes)
                for vector in vectors:
                    kept = next(sums)
                    memory.write(kept, fma(number, vector, memory.read(kept, self.lanes)))
