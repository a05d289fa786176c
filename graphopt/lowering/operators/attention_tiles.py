"""Flash attention: tiles of queries and keys with an online softmax, so that scores are never stored.

Of each query only the largest score so far, the sum of the powers of all scores against it, and the values weighed by
those powers are kept; where a later tile holds a larger score, what was summed up is scaled down to it ("online"
softmax: Milakov and Gimelshein, 2018; Dao et al., FlashAttention, 2022). Vectors lie along queries: then keys and
values are read as they are, one number for all lanes, and nothing is summed up across lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import TYPE_CHECKING, Final

from graphopt.frozen import dataclass
from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import vector_bytes
from graphopt.lowering.analysis.access_analysis import REGISTERS
from graphopt.lowering.loops.compute import Requirement, Tensor, fresh, loop, procedure
from graphopt.lowering.loops.expressions import (
    Const,
    Expr,
    Load,
    cast,
    conjunction,
    equal,
    maximum,
    minimum,
    rewrite,
    select,
    variables,
    walk,
)
from graphopt.lowering.loops.nest import Buffer, BufferRegion, Check, For, If, Invoke, Range, Stmt, Store, seq
from graphopt.lowering.operators.attention_rows import RowMerge, RowTile, Tile, along
from graphopt.lowering.operators.elements import decayed

if TYPE_CHECKING:
    from graphopt.lowering.operators.attention import Heads

VECTORS: Final = 4
"""Vectors of queries in a tile at most."""
ROWS: Final = 12
"""Rows of a tile of results in registers at most."""
KEYS: Final = 64
"""Keys of a tile, whose scores stay near."""
LARGEST: Final = 512
"""Elements of a head up to which a tile fits where it should."""
HIDING: Final = -1e30
"""What is added to a score that leaves nothing of it, beside one that is larger than this."""

Score = Callable[[Expr, tuple[Expr, Expr, Expr, Expr]], Expr]
"""Of a product of a query and a key, and (batch, head, query, key): the score, minus infinity for what is not seen."""
ElementIndex = Callable[[Expr, Expr, Expr, Expr], tuple[Expr, ...]]
"""Of a batch, head, query and element of a value: where that lies in the result."""
Reach = Callable[[Expr, Expr], Expr]
"""Of a batch and a query: how many keys, from the first on, the query may see at most."""


@dataclass(frozen=True)
class Tiled:
    """Attention to be computed in tiles."""

    q: Heads
    k: Heads
    v: Heads
    factor: Expr
    """What products are multiplied by before they are scored."""
    score: Score
    reach: Reach | None = None
    requirements: Sequence[Requirement] = ()

    @property
    def is_possible(self) -> bool:
        """Whether all is of one dtype of floats, and a tile fits on the stack."""
        parts = (self.q, self.k, self.v)
        sizes = [p.size for p in (self.q, self.v)]
        kinds = {p.tensor.dtype for p in parts}
        are_known = all(isinstance(n, Const) and 0 < int(n.value) <= LARGEST for n in sizes)
        return are_known and len(kinds) == 1 and kinds <= {"float32", "float64"}

    def written(self, name: str, shape: Sequence[Expr], at: ElementIndex) -> Tensor:
        """The weighed values as a tensor, in which ``at`` says where (batch, head, query, place) lies."""
        point = [fresh() for _ in range(4)]
        score = self.score(Const(0.0, self.q.tensor.dtype), (point[0], point[1], point[2], point[3]))
        read = [score, *([] if self.reach is None else [self.reach(point[0], point[2])])]
        read += [r.condition for r in self.requirements]
        inputs = dict.fromkeys([self.q.tensor, self.k.tensor, self.v.tensor, *_tensors(read)])
        tile, rows = _QueryTile(self, self.vectors), RowTile(self)
        most = tile.many // 2
        is_few, found, merge = self.q.shape[2] <= most, rows.partial(most), RowMerge(rows)

        def build(y: Buffer) -> Stmt:
            part, item = fresh(), fresh()
            number, body = tile.all(y, at)
            checks = [_checked(r) for r in self.requirements]
            if is_few == Const(False, "bool"):
                return For(item, number, seq(*checks, body(item)), "parallel")
            parts = For(part, found.shape[0], seq(*checks, If(is_few, rows.all(found, part))), "parallel")
            either = If(is_few, merge.all(found, y, at, item), body(item))
            return seq(parts, For(item, number, seq(*checks, either), "parallel"))

        scratch = (*tile.buffers, *rows.buffers, found, *merge.buffers)
        return procedure([(name, shape, self.q.tensor.dtype)], list(inputs), build, scratch)[0]

    @property
    def vectors(self) -> int:
        """The number of vectors of queries in a tile: as many as are full."""
        queries = self.q.shape[2]
        wanted = -(-int(queries.value) // lanes_of(self.q.tensor.dtype)) if isinstance(queries, Const) else VECTORS
        return max(1, min(wanted, VECTORS))


def _tensors(exprs: Iterable[Expr]) -> list[Tensor]:
    """The tensors that expressions read."""
    return [e.buffer for x in exprs for e in walk(x) if isinstance(e, Load) and isinstance(e.buffer, Tensor)]


class _QueryTile(Tile):
    """The statements of a tile of queries, of so many vectors."""

    def __init__(self, what: Tiled, vectors: int) -> None:
        super().__init__(what)
        self.vectors = vectors
        self.many = vectors * self.lanes
        self.rows = (REGISTERS[vector_bytes()] - vectors - 2) // vectors
        self.rows = min(self.rows, ROWS)
        wide, registers = Const(self.many), (Const(vectors), Const(self.lanes))
        shapes: dict[str, tuple[Expr, ...]] = {
            "turned": (self.size, wide),
            "scores": (Const(KEYS + self.rows), wide),
            "sums": (self.width + self.rows, wide),
            "given": (wide, maximum(self.size, self.width)),
            "tile": (Const(self.rows), *registers),
            "shown": (Const(1),),
            **dict.fromkeys(["most", "top", "total", "scale"], (wide,)),
        }
        b, h, i, j = (fresh() for _ in range(4))
        for k, _ in enumerate(self.by_query(what.score(Const(0.0, self.dtype), (b, h, i, j)), i, j)):
            shapes |= {f"read{k}": (wide, Const(KEYS)), f"mask{k}": (Const(KEYS), wide)}
        self.keep(shapes, str(vectors))

    def all(self, y: Buffer, at: ElementIndex) -> tuple[Expr, Callable[[Expr], Stmt]]:
        """The number of query tiles, and the body for each."""
        pieces = (self.queries + (self.many - 1)) // self.many

        def tile(item: Expr) -> Stmt:
            first, rest = item % pieces * self.many, item // pieces
            h, b = rest % self.heads, rest // self.heads
            number = minimum(self.many, self.queries - first)
            return seq(
                self.started(b, h, first, number), self.summed(b, h, first, number),
                self.ended(number, lambda i, d: Store(y, at(b, h, first + i, d), self.element("given", i, d))),
            )  # fmt: skip

        return self.batch * self.heads * pieces, tile

    def each(self, body: Callable[[Expr], Stmt]) -> Stmt:
        """For each query of the tile."""
        return along(Const(self.many), body)

    def started(self, b: Expr, h: Expr, first: Expr, number: Expr) -> Stmt:
        """The queries turned over, scaled, and nothing seen yet."""
        q, zero = self.what.q, self.number(0.0)
        copies = loop(number, lambda i: along(self.size, lambda d: self.set("given", (i, d), q(b, h, first + i, d))))
        zeros = loop(self.many - number, lambda i: along(self.size, lambda d: self.set("given", (number + i, d), zero)))
        parts = [copies, zeros, self.turned("turned", "given", self.size, Const(self.many))]
        if self.what.factor != self.number(1.0):
            scaled = self.what.factor
            parts.append(
                loop(
                    self.size,
                    lambda d: self.each(lambda i: self.set("turned", (d, i), self.element("turned", d, i) * scaled)),
                )
            )
        parts.append(loop(self.width + self.rows, lambda d: self.each(lambda i: self.set("sums", (d, i), zero))))
        parts.append(self.each(lambda i: self.set("most", (i,), self.number(-inf))))
        parts.append(self.each(lambda i: self.set("total", (i,), zero)))
        for name in [n for n in self.tiles if n.startswith("read")]:
            parts.append(self.without_queries(number, name))
        return seq(*parts)

    def without_queries(self, number: Expr, name: str) -> Stmt:
        """Zeros in the rows that the last tile has no queries for."""
        zero = self.number(0.0)
        width = self.tiles[name].shape[1]
        return loop(self.many - number, lambda i: along(width, lambda d: self.set(name, (number + i, d), zero)))

    def turned(self, target: str, source: str, m: Expr, n: Expr) -> Stmt:
        """The first ``m`` rows of ``n`` elements of a buffer, from its columns in another: in squares that registers
        hold, and what is left over one by one."""
        side = self.lanes
        name = f"transpose_{side}x{side}_{self.dtype}"

        def square(i: Expr, j: Expr) -> Stmt:
            sides = [
                BufferRegion(self.tiles[b], (Range(r * side, Const(side)), Range(c * side, Const(side))))
                for b, r, c in ((target, i, j), (source, j, i))
            ]
            return Invoke(name, (*sides, Const(side), Const(side)))

        def single(i: Expr, j: Expr) -> Stmt:
            return self.set(target, (i, j), self.element(source, j, i))

        rows, columns = m // side, n // side
        left = [
            loop(m - rows * side, lambda i: loop(n, lambda j: single(rows * side + i, j))),
            loop(rows * side, lambda i: loop(n - columns * side, lambda j: single(i, columns * side + j))),
        ]
        whole = loop(rows, lambda i: loop(columns, lambda j: square(i, j)))
        return seq(whole, *(s for s in left if s.extent != Const(0) and not _is_empty(s.body)))

    def summed(self, b: Expr, h: Expr, first: Expr, number: Expr) -> Stmt:
        """One tile of keys after another."""
        what, keys = self.what, self.keys
        if what.reach is not None:
            keys = minimum(keys, maximum(what.reach(b, first + number - 1), Const(0)))
        head = h if what.k.heads == self.heads else h // (self.heads // what.k.heads)

        def tile(o: Expr) -> Stmt:
            start = o * KEYS
            width = minimum(KEYS, keys - start)
            last = start + width - 1
            weighed = seq(
                self.products(
                    width, self.size, lambda j, d: what.k(b, head, minimum(start + j, last), d),
                    lambda d, i: self.element("turned", d, i), "scores",
                ),
                self.powers((b, h, first), start, width),
                self.products(
                    self.width, width, lambda d, j: what.v(b, head, start + j, minimum(d, self.width - 1)),
                    lambda j, i: self.element("scores", j, i), "sums", lambda i: self.element("scale", i),
                ),
            )  # fmt: skip
            masks = self.masks((b, h, first), number, start, width)
            return seq(*masks, *self.unless_hidden((b, h, first), number, start, width, weighed))

        return loop((keys + (KEYS - 1)) // KEYS, tile)

    def products(
        self, rows: Expr, steps: Expr, one: Callable[[Expr, Expr], Expr], wide: Callable[[Expr, Expr], Expr],
        target: str, scale: Callable[[Expr], Expr] | None = None,
    ) -> Stmt:  # fmt: skip
        """``target[r, i]`` is the sum over the steps of ``one[r, s] * wide[s, i]``, or that added to what it was times
        a scale; ``one`` may be asked for rows beyond the last."""

        def block(o: Expr) -> Stmt:
            def over(body: Callable[[Expr, Expr, Expr, Expr], Stmt]) -> Stmt:
                r, v = fresh(), fresh()
                vector = along(Const(self.lanes), lambda lane: body(r, v, lane, v * self.lanes + lane))
                inner = For(v, Const(self.vectors), vector, "unrolled")
                return For(r, Const(self.rows), inner, "unrolled")

            def begin(r: Expr, v: Expr, lane: Expr, i: Expr) -> Stmt:
                start: Expr = self.number(0.0)
                if scale is not None:
                    start = self.element(target, o * self.rows + r, i) * scale(i)
                return self.set("tile", (r, v, lane), start)

            def step(s: Expr) -> Callable[[Expr, Expr, Expr, Expr], Stmt]:
                def added(r: Expr, v: Expr, lane: Expr, i: Expr) -> Stmt:
                    product = one(o * self.rows + r, s) * wide(s, i)
                    return self.set("tile", (r, v, lane), self.element("tile", r, v, lane) + product)

                return added

            def end(r: Expr, v: Expr, lane: Expr, i: Expr) -> Stmt:
                return self.set(target, (o * self.rows + r, i), self.element("tile", r, v, lane))

            return seq(over(begin), loop(steps, lambda s: over(step(s))), over(end))

        return loop((rows + (self.rows - 1)) // self.rows, block)

    def by_query(self, score: Expr, query: Expr, key: Expr) -> list[Load]:
        """The loads of a score that are adjacent for neighbouring keys and strided for neighbouring queries."""
        query_variables = variables(query)
        elements = (e for e in walk(score) if isinstance(e, Load) and isinstance(e.buffer, Tensor) and e.indices)
        reads = (e for e in elements if e.indices[-1] == key and e.buffer.shape[-1] == self.keys)
        return list(
            dict.fromkeys(e for e in reads if any(not query_variables.isdisjoint(variables(x)) for x in e.indices[:-1]))
        )

    def masks(self, at: tuple[Expr, Expr, Expr], number: Expr, start: Expr, width: Expr) -> list[Stmt]:
        """The elements that a tile's scores read by query, loaded and transposed."""
        b, h, first = at
        i, j = fresh(), fresh()
        score = self.what.score(Const(0.0, self.dtype), (b, h, first + i, start + j))
        parts: list[Stmt] = []
        for k, read in enumerate(self.by_query(score, i, start + j)):
            row = For(j, width, self.set(f"read{k}", (i, j), cast(read, self.dtype)), "vectorized")
            parts.append(For(i, number, row))
            parts.append(self.turned(f"mask{k}", f"read{k}", Const(KEYS), Const(self.many)))
        return parts

    def masked(self, value: Expr, at: tuple[Expr, Expr, Expr], start: Expr, j: Expr, i: Expr) -> Expr:
        """The score of a key and a query of the tile, of which this is the product."""
        b, h, first = at
        is_full = isinstance(self.queries, Const) and int(self.queries.value) % self.many == 0
        query = first + i if is_full else minimum(first + i, self.queries - 1)
        score = self.what.score(value, (b, h, query, start + j))
        turned: dict[Expr, Expr] = {
            read: cast(self.element(f"mask{k}", j, i), read.dtype)
            for k, read in enumerate(self.by_query(score, i, start + j))
        }
        return rewrite(score, turned.get)

    def unless_hidden(
        self, at: tuple[Expr, Expr, Expr], number: Expr, start: Expr, width: Expr, weighed: Stmt
    ) -> list[Stmt]:
        """The statements of a tile, left out where masks leave none of its scores anything beside those before it:
        half of all tiles where queries see the keys up to their own."""

        def alone(j: Expr, i: Expr) -> Expr:
            return self.masked(self.number(0.0), at, start, j, i)

        if isinstance(alone(fresh(), fresh()), Const):
            return [weighed]
        least, seen, hidden = self.number(HIDING), self.number(1.0), self.number(0.0)

        def key(j: Expr, i: Expr) -> Stmt:
            is_seen = select(alone(j, i) < least, hidden, seen)
            return self.set("top", (i,), maximum(self.element("top", i), is_seen))

        def query(i: Expr) -> Stmt:
            is_done = conjunction(equal(self.element("top", i), hidden), self.element("most", i) > least)
            is_seen = select((i >= number) | is_done, hidden, seen)
            return self.set("shown", (Const(0),), maximum(self.element("shown", Const(0)), is_seen))

        return [
            self.each(lambda i: self.set("top", (i,), hidden)),
            loop(width, lambda j: self.each(lambda i: key(j, i))),
            self.set("shown", (Const(0),), hidden),
            self.each(query),
            If(self.element("shown", Const(0)) > 0, weighed),
        ]

    def powers(self, at: tuple[Expr, Expr, Expr], start: Expr, width: Expr) -> Stmt:
        """The scores of a tile as powers against the largest so far, and how what was summed up is scaled to that."""

        def shift(i: Expr) -> Expr:
            top = self.element("top", i)
            return select(equal(top, -inf), self.number(0.0), top)

        def larger(j: Expr, i: Expr) -> Stmt:
            kept = self.element("scores", j, i)
            score = self.masked(kept, at, start, j, i)
            stored = () if score == kept else (self.set("scores", (j, i), score),)
            return seq(*stored, self.set("top", (i,), maximum(self.element("top", i), kept)))

        def power(j: Expr, i: Expr) -> Stmt:
            kept = self.element("scores", j, i)
            return seq(
                self.set("scores", (j, i), decayed(kept - self.element("scale", i))),
                self.set("total", (i,), self.element("total", i) + kept),
            )

        def every(body: Callable[[Expr, Expr], Stmt]) -> Stmt:
            return loop(width, lambda j: self.each(lambda i: body(j, i)))

        most = self.element
        return seq(
            self.each(lambda i: self.set("top", (i,), most("most", i))),
            every(larger),
            self.each(lambda i: self.set("scale", (i,), shift(i))),
            self.each(lambda i: self.set("most", (i,), decayed(most("most", i) - most("scale", i)))),
            self.each(lambda i: self.set("total", (i,), most("total", i) * most("most", i))),
            every(power),
            self.each(lambda i: self.set("scale", (i,), most("most", i))),
            self.each(lambda i: self.set("most", (i,), most("top", i))),
        )

    def ended(self, number: Expr, store: Callable[[Expr, Expr], Stmt]) -> Stmt:
        """Normalizes the accumulated values and transposes them back; zero for queries that see no key."""

        def share(d: Expr, i: Expr) -> Stmt:
            total = self.element("total", i)
            whole = select(equal(total, 0), self.number(1.0), total)
            return self.set("sums", (d, i), self.element("sums", d, i) / whole)

        return seq(
            loop(self.width, lambda d: self.each(lambda i: share(d, i))),
            self.turned("given", "sums", Const(self.many), self.width),
            loop(number, lambda i: along(self.width, lambda d: store(i, d))),
        )


def _is_empty(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.extent == Const(0)


def _checked(requirement: Requirement) -> Stmt:
    """Run-time checks of a requirement, at each point of its axes."""
    stmt: Stmt = Check(requirement.condition, requirement.message)
    for axis in reversed(requirement.axes):
        stmt = For(axis.var, axis.extent, stmt)
    return stmt
