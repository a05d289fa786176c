"""Convolution tiling: convolutions recognized by their index expressions, as loops over register tiles.

A tile is some neighbouring pixels of one row, each of some blocks of channels. A row is done in tiles of one width, but
for the last; of how many pixels is found out when the size is known, so that open sizes cost nothing. The image is read
as it is: rows of the kernel that lie outside of it are left out, and the function itself has zeros for what is left or
right of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import vector_bytes
from graphopt.lowering.analysis.access_analysis import REGISTERS, known_size, total_size
from graphopt.lowering.analysis.canonical_nest import Chain, exchange
from graphopt.lowering.cpu.scheduling import Scheduling
from graphopt.lowering.index.arithmetic import polynomial
from graphopt.lowering.index.comparisons import comparisons, positive
from graphopt.lowering.loops.accumulation import factors
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, maximum, minimum, substitute, variables
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import Axis, Buffer, BufferRegion, If, Invoke, Range, Stmt, Store, seq

PIXELS: Final = 14
"""Pixels that a tile has at most."""
BLOCKS: Final = 4
"""Blocks of channels that a tile has at most."""
DEEP: Final = 3
"""Channels of a plain image that are summed together at most: LLVM spills the sums of four."""
TILES: Final = 8
"""Tiles, of one row or of several, that make one work item,"""
MANY: Final = (1, 2, 4, 8, 16, 32)
"""and what else may be tried."""
LOADING: Final = 0.15
"""What of a load adds to the time of a step, beside multiplications that take as long;"""
WAITING: Final = 0.6
"""and what waiting for its weights does, in multiplications that are done meanwhile for no pixel."""
NEAR: Final = 1 << 18
"""Bytes of weights that are as well read anew for each few tiles."""


@dataclass(frozen=True)
class ConvolutionLayout:
    """The layout of a convolution: windows, pads and channels of its image, axis by axis of space."""

    image: Buffer
    weights: Load
    channel: Expr
    """The first channel, or block of channels, over the axis of the result's blocks."""
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Expr, ...]
    depth: Axis
    kernel: tuple[Axis, ...]
    size: int
    """How many channels of a pixel lie side by side."""
    is_padded: bool
    """Whether windows may reach beyond the image."""
    unneeded: frozenset[Buffer] = frozenset()
    """What held the image with its padding."""

    @property
    def is_pointwise(self) -> bool:
        """Whether each result rests on one pixel alone, at the same place."""
        ones = all(k.extent == Const(1) for k in self.kernel) and all(s == 1 for s in self.strides)
        return ones and not self.is_padded


# ------------------------------------------------------------------ finding


def convolution_of(first: Chain, others: Sequence[Chain]) -> ConvolutionLayout | None:
    """The convolution that a reduction is, whose results lie in blocks; None where it is none. Of the other chains of
    its nest one may pad the image."""
    if len(first.stores) != 1 or len(first.spatial) not in (4, 5, 6):
        return None
    store, lane = first.stores[0], first.spatial[-1]
    accumulator = Load(store.buffer, store.indices)
    operands = _factors(store.value, accumulator, lane)
    if (
        operands is None
        or len({e.dtype for e in (accumulator, *operands[:2])}) > 1
        or accumulator.dtype not in ("float32", "float64")
    ):
        return None
    image, weights, condition = operands
    space = first.spatial[2:-1]
    rank = len(space)
    depth, kernel, inner = first.reduced[0], first.reduced[1 : 1 + rank], first.reduced[1 + rank :]
    if not _are(accumulator.indices, first.spatial) or not _are(
        weights.indices, (first.spatial[1], *first.reduced, lane)
    ):
        return None
    sides = known_size([lane.extent]), known_size([a.extent for a in inner])
    if len(inner) > 1 or len(kernel) != rank or any((n or 0).bit_count() != 1 for n in sides):
        return None
    if any(b.strides is not None for b in (accumulator.buffer, image.buffer, weights.buffer)):
        return None
    places = image.indices[2 : 2 + rank]
    if not _are((image.indices[0], *image.indices[2 + rank :]), (first.spatial[0], *inner)):
        return None
    channel = _channel(image.indices[1], depth, first.spatial[1])
    windows = [_window(p, x, k) for p, x, k in zip(places, space, kernel, strict=True)]
    steps = [w for w in windows if w is not None]
    if channel is None or len(steps) < rank:
        return None
    source, pads, padded = image.buffer, tuple(p for _, _, p in steps), frozenset[Buffer]()
    if condition is not None:
        if not _asks_for_inside(condition, places, image.buffer.shape[2 : 2 + rank]):
            return None
    elif any(p != Const(0) for p in pads):
        return None
    elif unpadded := _unpadded(image.buffer, others, rank):
        (source, pads), padded = unpadded, frozenset({image.buffer})
    return ConvolutionLayout(
        source, weights, channel, tuple(s for s, _, _ in steps), tuple(d for _, d, _ in steps), pads, depth, kernel,
        sides[1] or 1, bool(padded or condition is not None), padded,
    )  # fmt: skip


def _factors(value: Expr, accumulator: Load, lane: Axis) -> tuple[Load, Load, Expr | None] | None:
    """Factors of the product that is added to the element: the one that is equal in all lanes, and the other; and the
    condition under which the first is not zero, if there is one."""
    operands = factors(accumulator, value)
    if operands is None:
        return None
    b = next((x for x in operands if isinstance(x, Load) and lane.var in variables(x)), None)
    a = operands[0] if operands[1] is b else operands[1]
    condition = None
    if isinstance(a, Apply) and a.fn == "select" and a.args[2] == Const(0.0, a.dtype):
        condition, a = a.args[:2]
    return (a, b, condition) if b is not None and isinstance(a, Load) and lane.var not in variables(a) else None


def _are(indices: Sequence[Expr], axes: Sequence[Axis]) -> bool:
    """Whether the indices are the points of the axes."""
    return len(indices) == len(axes) and all(
        i == a.var or (i == Const(0) and a.extent == Const(1)) for i, a in zip(indices, axes, strict=True)
    )


def _channel(index: Expr, depth: Axis, block: Axis) -> Expr | None:
    """The first channel that is read, by the block of the result."""
    parts = polynomial(index).split(depth.var)
    if parts is None or parts[0].number != 1:
        return index if depth.extent == Const(1) and variables(index) <= {block.var} else None
    rest = parts[1].expr()
    return rest if variables(rest) <= {block.var} else None


def _window(index: Expr, axis: Axis, kernel: Axis) -> tuple[int, int, Expr] | None:
    """The stride, the dilation, and how far before the image the first window begins, where a place in the image is
    made of nothing else."""
    rest, coefficients = polynomial(index), []
    for a in (axis, kernel):
        parts = rest.split(a.var)
        if parts is None or parts[0].number is None or parts[0].number < (a.extent != Const(1)):
            return None
        coefficients.append(parts[0].number or 1)
        rest = parts[1]
    return coefficients[0], coefficients[1], (-rest).expr()


def _unpadded(image: Buffer, others: Sequence[Chain], rank: int) -> tuple[Buffer, tuple[Expr, ...]] | None:
    """The image without its padding, and how much that was before each axis of space, where a chain padded it and no
    other reads it."""
    users = [c for c in others if any(a.buffer == image for a in c.accesses)]
    if len(users) != 1 or len(users[0].stores) != 1 or users[0].block.init is not None:
        return None
    chain, store = users[0], users[0].stores[0]
    value = store.value
    if store.buffer != image or not _are(store.indices, chain.axes):
        return None
    if not (isinstance(value, Apply) and value.fn == "select" and isinstance(value.args[1], Load)):
        return None
    condition, load, fill = value.args
    assert isinstance(load, Load)
    if fill != Const(0.0, load.dtype) or load.buffer.strides is not None:
        return None
    pairs = list(zip(load.indices, chain.axes, strict=True))
    if not all(_are([i], [a]) for i, a in (*pairs[:2], *pairs[2 + rank :])):
        return None
    pads = [(polynomial(a.var) - polynomial(i)).expr() for i, a in pairs[2 : 2 + rank]]
    if any(variables(p) & {a.var for a in chain.axes} for p in pads):
        return None
    is_asked = _asks_for_inside(condition, load.indices[2 : 2 + rank], load.buffer.shape[2 : 2 + rank])
    return (load.buffer, tuple(pads)) if is_asked else None


def _asks_for_inside(condition: Expr, places: Sequence[Expr], sides: Sequence[Expr]) -> bool:
    """Whether a condition asks for nothing but that places are not outside of an image."""
    within = [polynomial(p).terms for p in places]
    within += [(polynomial(n) - polynomial(p) - 1).terms for p, n in zip(places, sides, strict=True)]
    bounds = list(comparisons(condition))
    return len(bounds) == _conditions(condition) and all(positive(c).terms in within for c in bounds)


def _conditions(condition: Expr) -> int:
    """The number of conditions in a conjunction."""
    if isinstance(condition, Apply) and condition.fn == "and":
        return sum(_conditions(arg) for arg in condition.args)
    return 1


# ------------------------------------------------------------------ writing


def convolved(owner: Scheduling, conv: ConvolutionLayout, first: Chain, rest: Sequence[Chain]) -> Stmt:
    """A convolution and what is done to its elements, tile by tile, in loops that are shared out."""
    return _ConvolutionLoops(owner, conv, first, rest).loops()


def blocks_of_tile(owner: Scheduling, conv: ConvolutionLayout, first: Chain, pixels: int | None) -> int:
    """The number of channel blocks in a tile: the one with the least time for a result, as far as it is known."""
    count = known_size([first.spatial[1].extent]) or 1
    candidates = [n for n in range(1, min(BLOCKS, count) + 1) if _share_channels(conv, first.spatial[1], count, n)]
    by_rule = min(candidates, key=lambda n: (_cost(first, n, count, pixels), n))
    return owner.choose("blocks", candidates, by_rule)


def _share_channels(conv: ConvolutionLayout, block: Axis, count: int, together: int) -> bool:
    """Whether blocks that are computed together always read the same channels."""
    if block.var not in variables(conv.channel):
        return True
    channels = [substitute(conv.channel, {block.var: Const(k)}) for k in range(count)]
    return all(channels[k] == channels[k - k % together] for k in range(count))


def _cost(first: Chain, blocks: int, count: int, pixels: int | None) -> float:
    """About what a result costs: a step multiplies and adds, loads, and waits for weights that are far."""
    total = 0.0
    for n, times in ((blocks, count // blocks), (count % blocks, 1)):
        vectors, most = n * _vectors(first), most_pixels(first, blocks)
        width = most if pixels is None else -(-pixels // -(-pixels // most))
        load = (vectors + width) / (vectors * width) if n else 0.0
        total += n * times * (max(1.0, load) + LOADING * load + WAITING / width)
    return total / count


def _vectors(first: Chain) -> int:
    """Vectors of a block."""
    lanes = known_size([first.spatial[-1].extent]) or 1
    return max(1, lanes // lanes_of(first.stores[0].buffer.dtype))


def most_pixels(first: Chain, blocks: int) -> int:
    """For how many pixels the sums of so many blocks stay in registers, beside the weights of a step and one number."""
    vectors = blocks * _vectors(first)
    return max(1, min(PIXELS, (REGISTERS[vector_bytes()] - 1) // vectors - 1))


class _ConvolutionLoops:
    """Writes the loops of one convolution."""

    def __init__(self, owner: Scheduling, conv: ConvolutionLayout, first: Chain, rest: Sequence[Chain]) -> None:
        self.owner, self.conv, self.first, self.rest = owner, conv, first, rest
        self.result = first.stores[0].buffer
        self.batch, self.block, *space, self.lane = first.spatial
        self.space = tuple(space)
        along = space if self.is_flat() else space[-1:]
        self.rows, self.pixels = tuple(space[: len(space) - len(along)]), total_size([a.extent for a in along])
        self.blocks = blocks_of_tile(owner, conv, first, known_size([self.pixels]))
        most = most_pixels(first, self.blocks)
        self.most = owner.choose("pixels", range(max(1, most // 2), most), most)
        self.together = owner.choose("tiles", MANY, TILES)
        self.tiles = (self.pixels + (self.most - 1)) // self.most
        self.width = (self.pixels + (self.tiles - 1)) // self.tiles
        shape = [Const(self.blocks), Const(self.most), self.lane.extent]
        self.tile = owner.local(self.result.name, shape, self.result.dtype)

    def is_flat(self) -> bool:
        """Whether all pixels of an image are one row: each result rests on the pixel in its place alone."""
        sides = self.conv.image.shape[2 : 2 + len(self.space)]
        return self.conv.is_pointwise and all(a.extent == n for a, n in zip(self.space, sides, strict=True))

    def loops(self) -> Stmt:
        """The loops over images, blocks, rows and tiles."""
        var = self.owner.var
        count = known_size([self.block.extent]) or 1
        groups = LoopSpec(var("g"), Const(-(-count // self.blocks)) if count > 1 else self.block.extent)
        chunks = LoopSpec(var("o"), (self.tiles + (self.together - 1)) // self.together)
        together = maximum(1, self.together // maximum(1, self.tiles))
        batch, rows = LoopSpec(var("i"), self.batch.extent), [LoopSpec(var("i"), a.extent) for a in self.rows]
        if rows:
            rows[-1] = LoopSpec(rows[-1].var, (rows[-1].extent + (together - 1)) // together)
        places = [*rows, chunks]
        outer = [batch, *places, groups] if self.is_by_pixels() else [batch, groups, *places]
        if self.rest:
            self.owner.gone.add(self.result)

        def body(at: Mapping[Var, Expr]) -> Stmt:
            inner = [LoopSpec(var("o"), minimum(self.together, self.tiles - at[chunks.var] * self.together))]
            start = (at[chunks.var] * self.together + inner[-1].var) * self.width
            where = {a.var: at[loop.var] for a, loop in zip((self.batch, *self.rows), (batch, *rows), strict=True)}
            where[self.block.var] = at[groups.var] * self.blocks
            if rows:
                last, first = self.rows[-1], at[rows[-1].var] * together
                inner.insert(0, LoopSpec(var("i"), minimum(together, last.extent - first)))
                where[last.var] = first + inner[0].var
            whole, left = self.at(where, start, self.blocks), count % self.blocks
            if left:
                others = self.at(where, start, left)
                whole = If(at[groups.var] < count // self.blocks, whole, others)
            return wrapped(inner, whole)

        steps = total_size([self.width, Const(self.blocks), self.lane.extent, *(a.extent for a in self.first.reduced)])
        return self.owner.shared_out(outer, steps * self.together, body)

    def is_by_pixels(self) -> bool:
        """Whether all channels of some pixels are computed before other pixels are, so that weights are read anew for
        those, rather than the image for other channels."""
        return bool(self.owner.choose("by pixels", (0, 1), int(self.reads_weights_anew())))

    def reads_weights_anew(self) -> bool:
        """Whether to read weights anew for other pixels is taken to be the cheaper way: if they are few, or fewer than
        what they are needed for."""
        if 0 < (known_size(self.conv.weights.buffer.shape) or 0) * 4 <= NEAR:
            return True
        window, width = known_size([a.extent for a in self.conv.kernel]), known_size([self.width]) or self.most
        lanes = known_size([self.lane.extent]) or 1
        return window is not None and window * self.blocks * lanes < width * self.together

    def at(self, where: Mapping[Var, Expr], start: Expr, blocks: int) -> Stmt:
        """A tile of so many blocks from a point on: its sums, and what is done to them."""
        width = self.width_at(start)
        pixel = LoopSpec(self.owner.var("p"), width)
        block = LoopSpec(self.owner.var("q"), Const(blocks), "unrolled")
        lane = LoopSpec(self.owner.var("c"), self.lane.extent, "vectorized")
        values = {**where, self.lane.var: lane.var, self.block.var: where[self.block.var] + block.var}
        values |= self.apart(start + pixel.var)
        element = Load(self.tile, (block.var, pixel.var, lane.var))
        parts: list[Stmt] = []
        for chain in self.rest:
            mine = {c.var: values[f.var] for f, c in zip(self.first.spatial, chain.spatial, strict=True)}
            done = chain.with_values([mine[a.var] for a in chain.axes])
            parts.append(exchange(done, {self.result: (element.buffer, element.indices)}))
        if not parts:
            parts = [Store(self.result, tuple(values[a.var] for a in self.first.spatial), element)]
        return seq(self.call(where, start, width, blocks), *(wrapped([pixel, block, lane], p) for p in parts))

    def width_at(self, start: Expr) -> Expr:
        """The number of pixels in the tile that begins there: the last of a row may have fewer."""
        pixels, width = known_size([self.pixels]), known_size([self.width])
        is_even = pixels is not None and width and pixels % width == 0
        return self.width if is_even else minimum(self.width, self.pixels - start)

    def apart(self, pixel: Expr) -> dict[Var, Expr]:
        """The axes of space that tiles lie along, for a pixel of a row."""
        values: dict[Var, Expr] = {}
        behind: Expr = Const(1)
        for axis in reversed(self.space[len(self.rows) :]):
            here = pixel if behind == Const(1) else pixel // behind
            is_first = len(values) == len(self.space) - len(self.rows) - 1
            values[axis.var] = here if is_first else here % axis.extent
            behind = behind * axis.extent
        return values

    def call(self, where: Mapping[Var, Expr], start: Expr, width: Expr, blocks: int) -> Invoke:
        """The call that sums a tile."""
        conv, zero = self.conv, Const(0)
        sides = conv.image.shape[2 : 2 + len(self.space)]
        batch, block = where[self.batch.var], where[self.block.var]
        channels = Range(substitute(conv.channel, {self.block.var: block}), conv.depth.extent)
        inner = [Range(zero, Const(conv.size))] if len(conv.image.shape) > 2 + len(sides) else []
        rows, kernel = [], []
        for k in range(len(self.rows)):
            at, part = self.row(k, where[self.rows[k].var])
            rows.append(at)
            kernel.append(part)
        flat = len(self.space) - len(self.rows)
        rows += [Range(zero, n) for n in sides[len(self.rows) :]]
        kernel += [Range(zero, a.extent) for a in conv.kernel[len(self.rows) :]]
        c = BufferRegion(self.tile, (Range(zero, Const(blocks)), Range(zero, width), Range(zero, self.lane.extent)))
        a = BufferRegion(conv.image, (Range(batch), channels, *rows, *inner))
        lanes = Range(zero, self.lane.extent)
        b = BufferRegion(
            conv.weights.buffer,
            (Range(block, Const(blocks)), Range(zero, conv.depth.extent), *kernel, *inner, lanes),
        )
        first, pad = start * conv.strides[-1], conv.pads[-1]
        low, high = self.columns(first, width, pad)
        sizes = [Const(blocks), Const(self.most), width, self.lane.extent, conv.depth.extent]
        sizes += [*(r.extent for r in kernel), *(r.extent for r in rows)]
        sizes += [r.extent for r in inner] or [Const(self.deep())]
        sizes += [first, pad, Const(conv.strides[-1]), *map(Const, conv.dilations), low, high]
        form = f"{'blocked' if inner else 'plain'}{'_flat' if flat > 1 else ''}"
        return Invoke(f"convolve_{form}_{len(sides)}d_{self.result.dtype}", (c, a, b, *sizes))

    def deep(self) -> int:
        """The number of channels of a plain image that are summed together: a divisor of all, but not too many."""
        depth = known_size([self.conv.depth.extent]) or 1
        return next(n for n in range(DEEP, 0, -1) if depth % n == 0)

    def row(self, k: int, at: Expr) -> tuple[Range, Range]:
        """The part of an outer axis of image and kernel, inside the image, that a row of results reads."""
        conv = self.conv
        extent, side, apart = conv.kernel[k].extent, conv.image.shape[2 + k], conv.dilations[k]
        origin = at * conv.strides[k]
        if not conv.is_padded:
            return Range(origin, (extent - 1) * apart + 1), Range(Const(0), extent)
        low, high = _within(conv.pads[k] - origin, side + conv.pads[k] - origin, apart, extent)
        return Range(origin + low * apart - conv.pads[k], (high - low - 1) * apart + 1), Range(low, high - low)

    def columns(self, first: Expr, width: Expr, pad: Expr) -> tuple[Expr, Expr]:
        """Between which columns of the kernel all pixels of a tile lie within the image."""
        conv = self.conv
        extent, side = conv.kernel[-1].extent, conv.image.shape[1 + len(self.space)]
        if not conv.is_padded:
            return Const(0), extent
        last = first + (width - 1) * conv.strides[-1]
        return _within(pad - first, side + pad - last, conv.dilations[-1], extent)


def _within(begin: Expr, end: Expr, apart: int, extent: Expr) -> tuple[Expr, Expr]:
    """The first of the steps 0, 1... up to ``extent``, each so far apart, that is not before ``begin``, and the first
    that is not before ``end``."""
    low = minimum(maximum((begin + (apart - 1)) // apart, 0), extent)
    return low, minimum(maximum((end + (apart - 1)) // apart, low), extent)
