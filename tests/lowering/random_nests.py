"""Random tensor programs with every construct of the grammar; a function of a ``random.Random`` alone."""

from __future__ import annotations

import math
from random import Random

from graphopt.ir.text.elements import numpy_dtype
from graphopt.lowering.loops.expressions import (
    COMPARISONS,
    FLOATS,
    FUNCTIONS,
    INDEX,
    LOGIC,
    Apply,
    Const,
    Expr,
    Load,
    Var,
    apply,
)
from graphopt.lowering.loops.nest import (
    THREADS,
    TRUE,
    Axis,
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Range,
    Seq,
    Stmt,
    Store,
    accesses,
    seq,
)
from graphopt.lowering.loops.scalars import is_defined

DTYPES = ("float32", "int64", "bool", "float16", "bfloat16", "float64", "int32", "uint8", "int8", "uint64")
TEXTS = ("x", "a \"b\" 'c' \\ d", "line\nbreak\t\x00", "Größe ∑ 😀", "", "root")
NUMBERS = (0.0, -0.0, 1.0, -2.5, 1e-30, math.inf, -math.inf, math.nan, 0.1)
SAME = [fn for fn in FUNCTIONS if fn not in COMPARISONS | LOGIC | {"cast", "saturate", "bits", "select"}]


def random_nest(random: Random) -> Nest:
    """A program that is well formed apart from where its indices lie."""
    return _Maker(random).nest()


class _Maker:
    def __init__(self, random: Random) -> None:
        self.random = random
        self.names = 0
        self.scope: list[Var] = []
        self.extents: dict[Var, Expr] = {}
        self.buffers: list[Buffer] = []

    def coin(self, chance: float = 0.5) -> bool:
        return self.random.random() < chance

    def fresh(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def nest(self) -> Nest:
        sizes = [Var(self.fresh("n")) for _ in range(self.random.randrange(3))]
        self.scope += sizes
        params = [self.buffer("global") for _ in range(self.random.randrange(1, 4))]
        allocs = [
            self.buffer(self.random.choice(["global", "shared", "local"])) for _ in range(self.random.randrange(3))
        ]
        self.buffers = params + allocs
        ordered = [*params, *sizes] if self.coin(0.9) else [*sizes, *params]
        return Nest(self.fresh("f"), tuple(ordered), self.stmt(4), tuple(allocs), self.notes())

    def buffer(self, scope: str) -> Buffer:
        shape = tuple(self.size() for _ in range(self.random.randrange(4)))
        strides = tuple(self.size() for _ in shape) if self.coin(0.2) else None
        return Buffer(self.fresh("A"), shape, self.random.choice(DTYPES), scope, strides)

    def size(self) -> Expr:
        if self.scope and self.coin(0.3):
            return self.index(1)
        return Const(self.random.randrange(1, 9))

    def notes(self) -> tuple[tuple[str, object], ...]:
        if self.coin(0.8):
            return ()
        values = [3, -1, 0.5, True, "a", (1, "b", 2.0), (), ("x",), -math.inf]
        return tuple((f"note.{k}", self.random.choice(values)) for k in range(self.random.randrange(1, 3)))

    # -- statements

    def stmt(self, depth: int) -> Stmt:
        kinds = (
            ["store", "check", "invoke"]
            if depth <= 0
            else ["for", "for", "block", "block", "seq", "if", "store", "empty"]
        )
        match self.random.choice(kinds):
            case "for":
                return self.loops(depth)
            case "block":
                return self.block(depth)
            case "seq":
                return seq(*(self.stmt(depth - 1) for _ in range(self.random.randrange(2, 4))))
            case "if":
                return If(self.expr("bool", 2), self.stmt(depth - 1), self.stmt(depth - 1) if self.coin() else None)
            case "check":
                return Check(self.expr("bool", 2), self.random.choice(TEXTS))
            case "invoke":
                args = tuple(
                    self.region() if self.coin() else self.expr(self.random.choice(DTYPES), 2)
                    for _ in range(self.random.randrange(3))
                )
                return Invoke(self.random.choice(TEXTS), args)
            case "empty":
                return Seq(())
        target = self.random.choice(self.buffers)
        return Store(target, tuple(self.index(2) for _ in target.shape), self.expr(target.dtype, 4))

    def loops(self, depth: int) -> Stmt:
        variables = []
        for _ in range(self.random.randrange(1, 4)):
            kind = self.random.choice(["serial", "serial", "serial", "parallel", "vectorized", "unrolled", "bound"])
            thread = self.random.choice(THREADS) if kind == "bound" else None
            var, extent = Var(self.fresh("i")), self.size()
            variables.append((var, extent, kind, thread, self.notes()))
            self.scope.append(var)
            self.extents[var] = extent
        body = self.stmt(depth - 1)
        for var, extent, kind, thread, notes in reversed(variables):
            self.scope.remove(var)
            del self.extents[var]
            body = For(var, extent, body, kind, thread, notes)
        return body

    def block(self, depth: int) -> Stmt:
        axes, values = [], []
        for _ in range(self.random.randrange(4)):
            kind = self.random.choice(["spatial", "reduce", "ordered"])
            if self.extents and self.coin(0.7):
                value: Expr = self.random.choice(list(self.extents))
                extent = self.extents[value] if self.coin(0.8) else self.size()
            else:
                value, extent = self.index(2), self.size()
            axes.append(Axis(Var(self.fresh("v")), extent, kind))
            values.append(value)
        for axis in axes:
            self.scope.append(axis.var)
            self.extents[axis.var] = axis.extent
        made = Block(
            self.random.choice(TEXTS),
            tuple(axes),
            tuple(values),
            self.stmt(depth - 1),
            self.stmt(depth - 2) if self.coin(0.4) else None,
            self.expr("bool", 2) if self.coin(0.3) else TRUE,
            notes=self.notes(),
        )
        reads, writes = accesses(made)
        if self.coin(0.3):
            reads = tuple(self.region() for _ in range(self.random.randrange(3)))
        if self.coin(0.3):
            writes = tuple(self.region() for _ in range(self.random.randrange(3)))
        for axis in axes:
            self.scope.remove(axis.var)
            del self.extents[axis.var]
        return Block(made.name, made.axes, made.values, made.body, made.init, made.predicate, reads, writes, made.notes)

    def region(self) -> BufferRegion:
        buffer = self.random.choice(self.buffers)
        return BufferRegion(buffer, tuple(self.range(n) for n in buffer.shape))

    def range(self, size: Expr) -> Range:
        if self.coin(0.3):
            return Range(Const(0), size)
        start = Const(self.random.randrange(-2, 9)) if self.coin(0.3) else self.index(2)
        return Range(start, Const(self.random.randrange(-1, 9)) if self.coin(0.6) else self.index(2))

    # -- expressions

    def index(self, depth: int) -> Expr:
        return self.expr(INDEX, depth)

    def const(self, dtype: str) -> Const:
        if dtype == "bool":
            return Const(self.coin(), dtype)
        if dtype in FLOATS:
            return Const(self.random.choice(NUMBERS), dtype)
        return Const(self.random.choice([0, 1, 2, 3, 7] if dtype.startswith("u") else [0, 1, -1, 2, 3, -7]), dtype)

    def expr(self, dtype: str, depth: int) -> Expr:
        """An expression of the dtype, simplified or just as it is put together."""
        loaded = [b for b in self.buffers if b.dtype == dtype]
        if depth <= 0 or self.coin(0.2):
            if dtype == INDEX and self.scope and self.coin(0.7):
                return self.random.choice(self.scope)
            if loaded and depth > -2 and self.coin(0.7):
                buffer = self.random.choice(loaded)
                return Load(buffer, tuple(self.index(depth - 2) for _ in buffer.shape))
            return self.const(dtype)
        fn, args = self.parts(dtype, depth - 1)
        if self.coin():
            return apply(fn, *args, dtype=dtype if fn in ("cast", "saturate", "bits") else None)
        return Apply(fn, tuple(args), dtype)

    def parts(self, dtype: str, depth: int) -> tuple[str, list[Expr]]:
        choice = self.random.random()
        if choice < 0.1:
            return "select", [self.expr("bool", depth), self.expr(dtype, depth), self.expr(dtype, depth)]
        if choice < 0.2:
            fn = self.random.choice(["cast", "saturate", "bits"])
            width = numpy_dtype(dtype).itemsize
            other = self.random.choice([d for d in DTYPES if fn != "bits" or numpy_dtype(d).itemsize == width])
            return fn, [self.expr(other, depth)]
        if dtype == "bool" and choice < 0.9:
            fn = self.random.choice(sorted(COMPARISONS | LOGIC))
            other = self.random.choice([d for d in DTYPES if is_defined(fn, d)])
            return fn, [self.expr(other, depth) for _ in range(FUNCTIONS[fn])]
        fn = self.random.choice([fn for fn in SAME if is_defined(fn, dtype)])
        return fn, [self.expr(dtype, depth) for _ in range(FUNCTIONS[fn])]
