"""Tensor programs: buffers, loop nests, and blocks with iteration axes.

The whole grammar::

    nest  = Nest(name, params, allocs, body)                      params: buffers, then sizes
    stmt  = For(var, extent, body, kind, thread, notes)           from 0 up to extent
          | Block(name, axes, values, body, init, predicate, reads, writes, notes)
          | Store(buffer, indices, value) | Seq(stmts) | If(condition, then, otherwise)
          | Check(condition, message)                             ends the program where it does not hold
          | Invoke(intrinsic, args)                               what ``tensorize`` puts in place of a block
    axis  = Axis(var, extent, "spatial" | "reduce" | "ordered")
    expr  = Const | Var | Load | Apply                            (``expressions``)

A block computes one element (or tile) for each value of its axes; ``values`` binds the axes to
expressions over the loops around it. *Spatial* axes may run in any order and at once, *reduce* axes
combine into the same element in any order, *ordered* axes keep their order. ``init`` stands for what
runs before the first step of the reduction; ``predicate`` says for which loop iterations the block
runs at all. Everything is immutable and compared by structure; names of buffers and variables are
unique within a nest. The tradition is that of TVM's TensorIR (Feng et al., ASPLOS 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from graphopt.display import Scripted, counted, shortened
from graphopt.frozen import dataclass
from graphopt.lowering.loops.expressions import Const, Expr, Load, ScalarNumber, Var, rewrite, walk

if TYPE_CHECKING:
    from graphopt.runtime.timing import Timing

MemoryScope: TypeAlias = Literal["global", "shared", "local"]
"""The memory scope of a buffer: global memory, shared memory of a CUDA block, or registers."""
LoopKind: TypeAlias = Literal["serial", "parallel", "vectorized", "unrolled", "bound"]
AxisKind: TypeAlias = Literal["spatial", "reduce", "ordered"]
Note: TypeAlias = "ScalarNumber | str | tuple[ScalarNumber | str, ...]"
Notes: TypeAlias = tuple[tuple[str, Note], ...]

TRUE: Final = Const(True, "bool")
THREADS: Final = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")
"""The CUDA axes that a loop may be bound to."""
ROOT_BLOCK: Final = "root"
"""The name that the whole program has as a block: its notes are the program's."""
BY_RULE: Final[tuple[str, Note]] = ("schedule", "default")
"""The note of a nest that is scheduled by rule when it is compiled; every other that a user gives stays as it is."""
FUNCTIONS: Final = "graphopt.program.nest_function"
"""Where nests become functions: it lies above nests, so that it is named here and not imported."""
FUSION_KIND: Final = "fusion_kind"
"""The name of the note that says how a program fuses: it tells, and is no schedule."""
STORES_ONCE: Final[tuple[str, Note]] = ("stores", "once")
"""The note of a procedure's block that stores each element of its result once, and does not read it again."""


@dataclass(frozen=True, slots=True, repr=False)
class Buffer:
    """A dense array; ``strides`` (in elements, row-major where left out) may leave gaps between rows."""

    name: str
    shape: tuple[Expr, ...]
    dtype: str = "float32"
    scope: MemoryScope = "global"
    strides: tuple[Expr, ...] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_typed(self)}>"

    def __getitem__(self, indices: Expr | int | tuple[Expr | int, ...]) -> Load:
        several = indices if isinstance(indices, tuple) else (indices,)
        if len(several) != len(self.shape):
            raise TypeError(f"{self.name} has {len(self.shape)} axes, and is read at {len(several)} indices")
        return Load(self, tuple(i if isinstance(i, Expr) else Const(i) for i in several))

    @property
    def row_major(self) -> tuple[Expr, ...]:
        """The strides, also of a buffer without explicit ones."""
        if self.strides is not None:
            return self.strides
        result: list[Expr] = [Const(1)]
        for extent in reversed(self.shape[1:]):
            result.append(result[-1] * extent)
        return tuple(reversed(result)) if self.shape else ()


@dataclass(frozen=True, slots=True)
class Range:
    """The ``extent`` indices from ``start`` on."""

    start: Expr
    extent: Expr = field(default_factory=lambda: Const(1))


@dataclass(frozen=True, slots=True)
class BufferRegion:
    """A box of a buffer."""

    buffer: Buffer
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis of a block: its variable runs from 0 up to ``extent``."""

    var: Var
    extent: Expr
    kind: AxisKind = "spatial"


@dataclass(frozen=True, slots=True)
class Store:
    """Writes one element."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr


@dataclass(frozen=True, slots=True)
class Check:
    """An assertion: ends the program with a message where the condition does not hold (an index out of range)."""

    condition: Expr
    message: str


@dataclass(frozen=True, slots=True)
class Invoke:
    """A call of a tensor intrinsic on regions and scalars, in the order of its implementation's parameters."""

    intrinsic: str
    args: tuple[BufferRegion | Expr, ...]


@dataclass(frozen=True, slots=True)
class Seq:
    """A sequence of statements; never nested directly, never of length one."""

    stmts: tuple[Stmt, ...]

    def __repr__(self) -> str:
        return f"<Seq of {counted(len(self.stmts), 'statement')}>"


@dataclass(frozen=True, slots=True)
class If:
    """A branch."""

    condition: Expr
    then: Stmt
    otherwise: Stmt | None = None


@dataclass(frozen=True, slots=True)
class For:
    """A loop from 0 up to ``extent``; ``thread`` names the CUDA axis of a bound one."""

    var: Var
    extent: Expr
    body: Stmt
    kind: LoopKind = "serial"
    thread: str | None = None
    notes: Notes = ()

    def __repr__(self) -> str:
        from graphopt.lowering.loops.script_print import show_expr

        return f"<For {self.var.name}: {self.kind} {shortened(show_expr(self.extent))}>"


@dataclass(frozen=True, slots=True)
class Block:
    """A block: the computation at one point of its axes; ``values`` bind the axes to expressions of the loops around
    it."""

    name: str
    axes: tuple[Axis, ...]
    values: tuple[Expr, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Expr = TRUE
    reads: tuple[BufferRegion, ...] = ()
    writes: tuple[BufferRegion, ...] = ()
    notes: Notes = ()

    def __repr__(self) -> str:
        return f"<Block {self.name}({', '.join(a.var.name for a in self.axes)})>"

    def of_kind(self, kind: AxisKind) -> tuple[Axis, ...]:
        """The axes of one kind."""
        return tuple(a for a in self.axes if a.kind == kind)


Stmt: TypeAlias = For | Block | Store | Seq | If | Check | Invoke


@dataclass(frozen=True, slots=True, repr=False)
class Nest(Scripted):
    """A tensor program: a function of buffers and sizes that writes some of the buffers.

    ``allocs`` are buffers that live only while it runs.
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    allocs: tuple[Buffer, ...] = ()
    notes: Notes = ()

    def __repr__(self) -> str:
        sizes = ", ".join(p.name if isinstance(p, Var) else _typed(p) for p in self.params)
        return f"<Nest {self.name}({shortened(sizes)}): {counted(sum(1 for _ in blocks(self.body)), 'block')}>"

    def script(self) -> str:
        """The script, which ``graphopt.script.read`` gives an equal program of."""
        from graphopt.lowering.loops.script_print import show  # which prints what is defined here

        return show(self)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers among the parameters."""
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def sizes(self) -> tuple[Var, ...]:
        """The sizes among the parameters."""
        return tuple(p for p in self.params if isinstance(p, Var))

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        """The parameters that are written, in order."""
        written = {r.buffer for b in blocks(self.body) for r in b.writes} | {
            s.buffer for s in statements(self.body) if isinstance(s, Store)
        }
        return tuple(b for b in self.buffers if b in written)

    def __call__(self, *arrays: Any, **sizes: int) -> None:
        """Runs the program on arrays in the order of its buffers, and writes those of its outputs in place.

        It is compiled at the first call, as it is scheduled: for a GPU where an array lies there (cupy's, torch's),
        else for one thread of the processor (``graphopt.build`` takes more, and a target). Open sizes are those of the
        arrays. Raises InputError where arrays do not fit, and CompilationError where the program does not compile.
        """
        _functions().function_of(self, arrays)(*arrays, **sizes)

    def time(self, *arrays: Any, number: int = 10, repeat: int = 3, **sizes: int) -> Timing:
        """The timing of ``repeat`` series of ``number`` runs on these arrays, or on random ones of these ``sizes``."""
        timing: Timing = _functions().function_of(self, arrays).time(*arrays, number=number, repeat=repeat, **sizes)
        return timing


@cache
def _functions() -> Any:
    """Where nests become functions: imported once, since to find a module again takes a good part of a short call."""
    return import_module(FUNCTIONS)


def _typed(buffer: Buffer) -> str:
    from graphopt.lowering.loops.script_print import show_expr

    return f"{buffer.name}: {buffer.dtype}[{', '.join(map(show_expr, buffer.shape))}]"


def seq(*stmts: Stmt) -> Stmt:
    """The sequence of the statements, flattened."""
    flat = [inner for s in stmts for inner in (s.stmts if isinstance(s, Seq) else (s,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def inner(stmt: Stmt) -> tuple[Stmt, ...]:
    """The direct children of a statement; a block's init comes before its body."""
    match stmt:
        case For():
            return (stmt.body,)
        case Block():
            return (stmt.body,) if stmt.init is None else (stmt.init, stmt.body)
        case Seq():
            return stmt.stmts
        case If():
            return (stmt.then,) if stmt.otherwise is None else (stmt.then, stmt.otherwise)
    return ()


def statements(stmt: Stmt) -> Iterator[Stmt]:
    """The statement and all statements in it, pre-order."""
    yield stmt
    for child in inner(stmt):
        yield from statements(child)


def blocks(stmt: Stmt) -> Iterator[Block]:
    """All blocks within a statement, in the order of the text."""
    return (s for s in statements(stmt) if isinstance(s, Block))


def expressions(stmt: Stmt) -> tuple[Expr, ...]:
    """The direct expressions of a statement."""
    match stmt:
        case For():
            return (stmt.extent,)
        case Block():
            regions = (e for r in (*stmt.reads, *stmt.writes) for s in r.ranges for e in (s.start, s.extent))
            return (*(a.extent for a in stmt.axes), *stmt.values, stmt.predicate, *regions)
        case Store():
            return (*stmt.indices, stmt.value)
        case If() | Check():
            return (stmt.condition,)
        case Invoke():
            flat = [
                e
                for a in stmt.args
                for e in ([x for r in a.ranges for x in (r.start, r.extent)] if isinstance(a, BufferRegion) else [a])
            ]
            return tuple(flat)
    return ()


def with_inner(stmt: Stmt, children: tuple[Stmt, ...]) -> Stmt:
    """The statement with new children, in the order of ``inner``."""
    match stmt:
        case For():
            return replace(stmt, body=children[0])
        case Block():
            return replace(stmt, body=children[-1], init=children[0] if stmt.init is not None else None)
        case Seq():
            return seq(*children)
        case If():
            return replace(stmt, then=children[0], otherwise=children[1] if stmt.otherwise is not None else None)
    return stmt


def mutate(stmt: Stmt, change: Callable[[Stmt], Stmt | None]) -> Stmt:
    """The statement with ``change`` applied to each statement in it, post-order; None keeps a statement.

    Where nothing changes, the statement itself comes back.
    """
    before = inner(stmt)
    after = tuple([mutate(child, change) for child in before])
    if any(a is not b for a, b in zip(before, after, strict=True)):
        stmt = with_inner(stmt, after)
    changed = change(stmt)
    return stmt if changed is None else changed


def map_expressions(stmt: Stmt, change: Callable[[Expr], Expr | None]) -> Stmt:
    """The statement with ``change`` applied to every part of every expression in it, post-order."""

    def part(expr: Expr) -> Expr:
        return rewrite(expr, change)

    def region(r: BufferRegion) -> BufferRegion:
        return BufferRegion(r.buffer, tuple(Range(part(s.start), part(s.extent)) for s in r.ranges))

    def step(s: Stmt) -> Stmt | None:
        match s:
            case For():
                changed: Stmt = replace(s, extent=part(s.extent))
            case Block():
                changed = replace(
                    s,
                    axes=tuple(replace(a, extent=part(a.extent)) for a in s.axes),
                    values=tuple(map(part, s.values)),
                    predicate=part(s.predicate),
                    reads=tuple(map(region, s.reads)),
                    writes=tuple(map(region, s.writes)),
                )
            case Store():
                changed = Store(s.buffer, tuple(map(part, s.indices)), part(s.value))
            case If():
                changed = replace(s, condition=part(s.condition))
            case Check():
                changed = replace(s, condition=part(s.condition))
            case Invoke():
                changed = Invoke(
                    s.intrinsic, tuple(region(a) if isinstance(a, BufferRegion) else part(a) for a in s.args)
                )
            case _:
                return None
        return None if changed == s else changed

    return mutate(stmt, step)


def substitute_in(stmt: Stmt, values: Mapping[Var, Expr]) -> Stmt:
    """The statement with variables replaced in all its expressions (loop variables and axes are not renamed)."""
    return map_expressions(stmt, lambda e: values.get(e) if isinstance(e, Var) else None)


def rename_buffers(stmt: Stmt, buffers: Mapping[Buffer, Buffer]) -> Stmt:
    """The statement with buffers replaced by others of the same rank."""

    def exchanged(s: Stmt) -> Stmt | None:
        if isinstance(s, Store) and s.buffer in buffers:
            return replace(s, buffer=buffers[s.buffer])
        if isinstance(s, Block):
            reads = tuple(replace(r, buffer=buffers.get(r.buffer, r.buffer)) for r in s.reads)
            writes = tuple(replace(r, buffer=buffers.get(r.buffer, r.buffer)) for r in s.writes)
            return replace(s, reads=reads, writes=writes)
        if isinstance(s, Invoke):
            return replace(
                s,
                args=tuple(
                    replace(a, buffer=buffers.get(a.buffer, a.buffer)) if isinstance(a, BufferRegion) else a
                    for a in s.args
                ),
            )
        return None

    def loads(e: Expr) -> Expr | None:
        return Load(buffers[e.buffer], e.indices) if isinstance(e, Load) and e.buffer in buffers else None

    return mutate(map_expressions(stmt, loads), exchanged)


def loads(stmt: Stmt) -> Iterator[Load]:
    """Every load in a statement, regions apart."""
    for s in statements(stmt):
        if not isinstance(s, Block):
            for e in expressions(s):
                yield from (x for x in walk(e) if isinstance(x, Load))
        else:
            for e in (*s.values, s.predicate):
                yield from (x for x in walk(e) if isinstance(x, Load))


def accesses(block: Block) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The reads and writes of a block, element by element, from its body and init: each region once.

    A block whose own output is combined into (a reduction) does not list that as read.
    """
    bodies = inner(block)
    written = dict.fromkeys(
        BufferRegion(s.buffer, tuple(Range(i) for i in s.indices))
        for b in bodies
        for s in statements(b)
        if isinstance(s, Store)
    )
    read = dict.fromkeys(BufferRegion(e.buffer, tuple(Range(i) for i in e.indices)) for b in bodies for e in loads(b))
    return tuple(r for r in read if r not in written), tuple(written)


def described(block: Block) -> Block:
    """The block with declared reads and writes, element by element."""
    reads, writes = accesses(block)
    return replace(block, reads=reads, writes=writes)


def declared(stmt: Stmt) -> tuple[Var, ...]:
    """The variables that a statement itself declares: a loop's, and the axes of a block."""
    if isinstance(stmt, For):
        return (stmt.var,)
    return tuple(a.var for a in stmt.axes) if isinstance(stmt, Block) else ()


def with_names(stmt: Stmt, names: Mapping[Var, Var]) -> Stmt:
    """The statement with loop variables and axes renamed."""

    def renamed(s: Stmt) -> Stmt | None:
        if isinstance(s, For) and s.var in names:
            return replace(s, var=names[s.var])
        if isinstance(s, Block) and any(a.var in names for a in s.axes):
            return replace(s, axes=tuple(replace(a, var=names.get(a.var, a.var)) for a in s.axes))
        return None

    return mutate(map_expressions(stmt, lambda e: names.get(e) if isinstance(e, Var) else None), renamed)
