"""Flash decoding: attention of a few queries, whose heads that share keys read them once, with an online softmax.

What takes time with few queries is to read keys and values, so that these are gone through once for all rows: the
queries of all heads of a group. Vectors lie along the size of a head in products, and along keys between them; as in
``attention_tiles``, what was summed up is scaled down where a later tile of keys holds a larger score. Threads share
the keys: each sums up some of them, always as many ("split K"), and what they found is merged in a loop behind that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf
from typing import TYPE_CHECKING, Final

from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import vector_bytes
from graphopt.lowering.analysis.access_analysis import REGISTERS
from graphopt.lowering.loops.compute import fresh, loop
from graphopt.lowering.loops.expressions import Const, Expr, Load, const, equal, maximum, minimum, select
from graphopt.lowering.loops.nest import Buffer, For, LoopKind, Stmt, Store, seq
from graphopt.lowering.operators.elements import decayed

if TYPE_CHECKING:
    from graphopt.lowering.operators.attention_tiles import ElementIndex, Tiled

ROWS: Final = 16
"""Rows of a tile at most."""
KEYS: Final = 64
"""Keys of a tile."""
SPLIT: Final = 512
"""Keys that are gone through by one thread."""
NEAR: Final = 4
"""Keys whose products are summed up at once, at most: then their sums across lanes are stored as a vector."""
FEWEST: Final = 2
"""As many, at least."""


def along(extent: Expr, body: Callable[[Expr], Stmt], kind: LoopKind = "vectorized") -> Stmt:
    """A loop of vectors, or of another kind."""
    var = fresh()
    return For(var, extent, body(var), kind)


def unrolled(extent: int, body: Callable[[Expr], Stmt]) -> Stmt:
    """A loop that is written out."""
    return along(Const(extent), body, "unrolled")


def _fit(rows: int, columns: int) -> bool:
    """Whether registers hold the sums of so many rows and columns, with the operands of a step."""
    return rows * columns + min(rows, columns) + 1 < REGISTERS[vector_bytes()]


class Tile:
    """A tile of attention: its sizes, and what it keeps in local buffers."""

    tiles: Mapping[str, Buffer]

    def __init__(self, what: Tiled) -> None:
        self.what = what
        self.dtype = what.q.tensor.dtype
        self.lanes = lanes_of(self.dtype)
        self.batch, self.heads, self.queries, self.size = what.q.shape
        self.keys, self.width = what.k.shape[2], what.v.size

    def keep(self, shapes: Mapping[str, tuple[Expr, ...]], suffix: str = "") -> None:
        """Makes the local buffers."""
        self.tiles = {name: Buffer(f"{name}{suffix}", shape, self.dtype, "local") for name, shape in shapes.items()}

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The local buffers."""
        return tuple(self.tiles.values())

    def element(self, name: str, *at: Expr) -> Load:
        """An element of what is kept."""
        return Load(self.tiles[name], at)

    def set(self, name: str, at: tuple[Expr, ...], value: Expr) -> Stmt:
        """Keeps a value."""
        return Store(self.tiles[name], at, value)

    def number(self, value: float) -> Const:
        """A number in the dtype of the scores."""
        return const(value, self.dtype)


class RowTile(Tile):
    """The statements of a tile of rows."""

    def __init__(self, what: Tiled) -> None:
        super().__init__(what)
        self.shared: Expr = Const(1) if what.k.heads == self.heads else self.heads // what.k.heads
        wanted = self._wanted()
        most = next(n for n in range(ROWS, 0, -1) if n == 1 or _fit(n, FEWEST))
        self.parts = -(-wanted // most)
        self.near = -(-wanted // self.parts)
        self.many = self.parts * self.near
        self.together = next(n for n in range(NEAR, 0, -1) if n == 1 or _fit(self.near, n))
        self.vectors = self._vectors()
        rows, near = Const(self.many), Const(self.near)
        shapes: dict[str, tuple[Expr, ...]] = {
            "row": (rows, self.size),
            "weight": (rows, Const(KEYS + NEAR)),
            "weighed": (rows, self.width),
            "product": (near, Const(self.together), Const(self.lanes)),
            "part": (near, Const(self.vectors), Const(self.lanes)),
            **dict.fromkeys(["high", "higher", "whole", "shrink"], (rows,)),
        }
        self.keep(shapes)

    def _wanted(self) -> int:
        """How many rows a tile should have: those of heads that share keys, in equal parts."""
        rows = self.shared
        if isinstance(self.queries, Const):
            rows = rows * self.queries
        count = max(1, int(rows.value)) if isinstance(rows, Const) else ROWS
        return -(-count // -(-count // ROWS))

    def _vectors(self) -> int:
        """How many vectors of values are summed up at once: a divisor of those that a row has."""
        held = int(self.width.value) // self.lanes if isinstance(self.width, Const) else 1
        return max((n for n in range(1, held + 1) if held % n == 0 and _fit(self.near, n)), default=1)

    def splits(self) -> Expr:
        """How many parts of keys there are."""
        return (self.keys + (SPLIT - 1)) // SPLIT

    def partial(self, most: int) -> Buffer:
        """What becomes of each part of keys, of at most so many queries: for each row the values weighed, and behind
        them the largest score and the sum of powers."""
        shape = (self.batch * self.what.k.heads * self.splits(), self.shared * most, self.width + 2)
        return Buffer("partial", shape, self.dtype)

    def all(self, found: Buffer, item: Expr) -> Stmt:
        """For a batch, some heads that share keys, and a part of these, what becomes of all queries, in tiles of
        rows."""
        part, rest = item % self.splits(), item // self.splits()
        group, b = rest % self.what.k.heads, rest // self.what.k.heads
        count = self.shared * self.queries

        def tile(o: Expr) -> Stmt:
            def place(r: Expr) -> tuple[Expr, Expr]:
                row = minimum(o * self.many + r, count - 1)
                return group * self.shared + row // self.queries, row % self.queries

            def stored(r: Expr) -> Stmt:
                at = (item, o * self.many + r)
                return seq(
                    along(self.width, lambda d: Store(found, (*at, d), self.element("weighed", r, d))),
                    Store(found, (*at, self.width), self.element("high", r)),
                    Store(found, (*at, self.width + 1), self.element("whole", r)),
                )

            number = minimum(self.many, count - o * self.many)
            return seq(self.started(b, place), self.summed(b, group, place, part), loop(number, stored))

        return loop((count + (self.many - 1)) // self.many, tile)

    def each(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """For each row of the tile."""
        return loop(self.many, body)

    def started(self, b: Expr, place: Callable[[Expr], tuple[Expr, Expr]]) -> Stmt:
        """The queries, scaled, and nothing seen yet."""
        zero = self.number(0.0)

        def row(r: Expr) -> Stmt:
            h, i = place(r)
            return seq(
                along(self.size, lambda d: self.set("row", (r, d), self.what.q(b, h, i, d) * self.what.factor)),
                along(self.width, lambda d: self.set("weighed", (r, d), zero)),
                self.set("high", (r,), self.number(-inf)),
                self.set("whole", (r,), zero),
            )

        return self.each(row)

    def summed(self, b: Expr, group: Expr, place: Callable[[Expr], tuple[Expr, Expr]], part: Expr) -> Stmt:
        """One tile of keys after another."""
        first, keys = part * SPLIT, minimum(self.keys, (part + 1) * SPLIT)
        if self.what.reach is not None:
            keys = minimum(keys, maximum(self.what.reach(b, self.queries - 1), first))

        def tile(o: Expr) -> Stmt:
            start = first + o * KEYS
            number = minimum(KEYS, keys - start)
            return seq(
                self.scores(b, group, start, number),
                self.each(lambda r: self.powers((b, *place(r)), r, start, number)),
                self.added(b, group, start, number),
            )

        return loop((keys - first + (KEYS - 1)) // KEYS, tile)

    def scores(self, b: Expr, group: Expr, start: Expr, number: Expr) -> Stmt:
        """The products of rows and keys; of keys beyond the last, those of the last."""
        whole, rest = self.size // self.lanes, self.size % self.lanes
        last = start + number - 1

        def block(o: Expr, part: Expr) -> Stmt:
            first, row = o * self.together, part * self.near

            def key(j: Expr, d: Expr) -> Expr:
                return self.what.k(b, group, minimum(start + first + j, last), d)

            def over(body: Callable[[Expr, Expr], Stmt]) -> Stmt:
                return unrolled(self.together, lambda j: unrolled(self.near, lambda r: body(j, r)))

            def vector(body: Callable[[Expr, Expr, Expr], Stmt]) -> Stmt:
                return over(lambda j, r: along(Const(self.lanes), lambda lane: body(j, r, lane)))

            def step(s: Expr) -> Stmt:
                def added(j: Expr, r: Expr, lane: Expr) -> Stmt:
                    d = s * self.lanes + lane
                    product = self.element("row", row + r, d) * key(j, d)
                    return self.set("product", (r, j, lane), self.element("product", r, j, lane) + product)

                return vector(added)

            def more(j: Expr, r: Expr, value: Expr) -> Stmt:
                at = (row + r, first + j)
                return self.set("weight", at, self.element("weight", *at) + value)

            def total(j: Expr, r: Expr) -> Stmt:
                lanes = along(Const(self.lanes), lambda lane: more(j, r, self.element("product", r, j, lane)))
                return seq(self.set("weight", (row + r, first + j), self.number(0.0)), lanes)

            def left(e: Expr) -> Stmt:
                d = whole * self.lanes + e
                return over(lambda j, r: more(j, r, self.element("row", row + r, d) * key(j, d)))

            return seq(
                vector(lambda j, r, lane: self.set("product", (r, j, lane), self.number(0.0))),
                loop(whole, step),
                over(total),
                loop(rest, left),
            )

        blocks = (number + (self.together - 1)) // self.together
        # keys that all parts read would be held where the loop over these was the inner one: more than registers hold
        return loop(self.parts, lambda part: loop(blocks, lambda o: block(o, part)))

    def powers(self, at: tuple[Expr, Expr, Expr], r: Expr, start: Expr, number: Expr) -> Stmt:
        """The scores of a row as powers against the largest so far, and how what was summed up is scaled to that."""
        b, h, i = at

        def masked(j: Expr) -> Expr:
            return self.what.score(self.element("weight", r, j), (b, h, i, start + j))

        def larger(j: Expr) -> Stmt:
            score, kept = masked(j), self.element("weight", r, j)
            stored = () if score == kept else (self.set("weight", (r, j), score),)
            return seq(*stored, self.set("higher", (r,), maximum(self.element("higher", r), kept)))

        def power(j: Expr) -> Stmt:
            kept = self.element("weight", r, j)
            return seq(
                self.set("weight", (r, j), decayed(kept - self.element("shrink", r))),
                self.set("whole", (r,), self.element("whole", r) + kept),
            )

        high, higher, shrink = (self.element(n, r) for n in ("high", "higher", "shrink"))
        return seq(
            self.set("higher", (r,), high),
            along(number, larger),
            self.set("shrink", (r,), select(equal(higher, -inf), self.number(0.0), higher)),
            self.set("high", (r,), decayed(high - shrink)),
            self.set("whole", (r,), self.element("whole", r) * high),
            along(number, power),
            self.set("shrink", (r,), high),
            self.set("high", (r,), higher),
        )

    def added(self, b: Expr, group: Expr, start: Expr, number: Expr) -> Stmt:
        """The values of a tile of keys, weighed, added to what is summed up, which is scaled down before."""
        step = self.vectors * self.lanes
        blocks = self.width // step
        whole = blocks * step

        def block(o: Expr, part: Expr) -> Stmt:
            row = part * self.near

            def over(body: Callable[[Expr, Expr, Expr, Expr], Stmt]) -> Stmt:
                def vector(r: Expr, v: Expr) -> Stmt:
                    return along(Const(self.lanes), lambda lane: body(r, v, lane, o * step + v * self.lanes + lane))

                return unrolled(self.near, lambda r: unrolled(self.vectors, lambda v: vector(r, v)))

            def begin(r: Expr, v: Expr, lane: Expr, d: Expr) -> Stmt:
                return self.set(
                    "part", (r, v, lane), self.element("weighed", row + r, d) * self.element("shrink", row + r)
                )

            def weigh(j: Expr) -> Stmt:
                def more(r: Expr, v: Expr, lane: Expr, d: Expr) -> Stmt:
                    product = self.element("weight", row + r, j) * self.what.v(b, group, start + j, d)
                    return self.set("part", (r, v, lane), self.element("part", r, v, lane) + product)

                return over(more)

            def end(r: Expr, v: Expr, lane: Expr, d: Expr) -> Stmt:
                return self.set("weighed", (row + r, d), self.element("part", r, v, lane))

            return seq(over(begin), loop(number, weigh), over(end))

        def left(r: Expr, e: Expr) -> Stmt:
            at = (r, whole + e)

            def more(j: Expr) -> Stmt:
                product = self.element("weight", r, j) * self.what.v(b, group, start + j, at[1])
                return self.set("weighed", at, self.element("weighed", *at) + product)

            scaled = self.set("weighed", at, self.element("weighed", *at) * self.element("shrink", r))
            return seq(scaled, loop(number, more))

        return seq(
            loop(blocks, lambda o: loop(self.parts, lambda part: block(o, part))),
            self.each(lambda r: loop(self.width - whole, lambda e: left(r, e))),
        )


class RowMerge(Tile):
    """The statements that merge what became of parts of keys."""

    def __init__(self, rows: RowTile) -> None:
        super().__init__(rows.what)
        self.rows = rows
        one = (Const(1),)
        self.keep({"merged": (self.width,), **dict.fromkeys(["scale", "top", "total"], one)}, "_merged")

    def all(self, found: Buffer, y: Buffer, at: ElementIndex, item: Expr) -> Stmt:
        """The results of a batch and head; zero for queries that see no key."""
        rows, zero, here = self.rows, self.number(0.0), Const(0)
        h, b = item % self.heads, item // self.heads
        first = (b * self.what.k.heads + h // rows.shared) * rows.splits()
        top, scale, total = (self.element(name, here) for name in ("top", "scale", "total"))

        def query(i: Expr) -> Stmt:
            row = h % rows.shared * self.queries + i

            def higher(part: Expr) -> Stmt:
                return self.set("top", (here,), maximum(top, Load(found, (first + part, row, self.width))))

            def added(part: Expr) -> Stmt:
                place = (first + part, row)

                def more(d: Expr) -> Stmt:
                    held = self.element("merged", d)
                    return self.set("merged", (d,), held + Load(found, (*place, d)) * scale)

                return seq(
                    self.set("scale", (here,), decayed(Load(found, (*place, self.width)) - top)),
                    self.set("total", (here,), total + Load(found, (*place, self.width + 1)) * scale),
                    along(self.width, more),
                )

            return seq(
                along(self.width, lambda d: self.set("merged", (d,), zero)),
                self.set("top", (here,), self.number(-inf)),
                self.set("total", (here,), zero),
                loop(rows.splits(), higher),
                self.set("top", (here,), select(equal(top, -inf), zero, top)),
                loop(rows.splits(), added),
                self.set("total", (here,), select(equal(total, 0), self.number(1.0), total)),
                along(self.width, lambda d: Store(y, at(b, h, i, d), self.element("merged", d) / total)),
            )

        return loop(self.queries, query)
