"""Tensor expressions: tensors defined by a formula for one element, and the nests that compute them.

``compute((n, m), lambda i, j: x[i, j] + 1.0)`` is a tensor; with a reduction, ``sum(x[i, k], k)`` over
``k = reduce_axis(n)``, each element is what remains of many values. Tensors refer to the tensors that
they read, so a few of them are a program; ``nest`` writes it down, one block for each tensor.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from math import inf
from typing import TypeAlias

from graphopt.lowering.loops.expressions import (
    FLOATS,
    INDEX,
    Apply,
    Const,
    Expr,
    ExprLike,
    Load,
    Var,
    as_expr,
    const,
    rewrite,
    select,
    substitute,
    walk,
)
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    STORES_ONCE,
    TRUE,
    Axis,
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    Invoke,
    Nest,
    Seq,
    Stmt,
    Store,
    described,
    loads,
    map_expressions,
    mutate,
    rename_buffers,
    seq,
    statements,
)

Extent: TypeAlias = "Expr | int"
_fresh = count()


@dataclass(frozen=True, slots=True)
class ReduceStage:
    """A reduction: ``values`` combined over all points of the reduction axes.

    ``combined`` says what an accumulator becomes at a step: expressions over the variables ``accumulators`` and
    ``steps``, one of each for each value. It starts as its identity.
    """

    axes: tuple[Axis, ...]
    values: tuple[Expr, ...]
    identities: tuple[Expr, ...]
    accumulators: tuple[Var, ...]
    steps: tuple[Var, ...]
    combined: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Requirement:
    """A condition that must hold at every point of the axes before a tensor is computed."""

    axes: tuple[Axis, ...]
    condition: Expr
    message: str


@dataclass(frozen=True, slots=True)
class ElementwiseStage:
    """An element-wise stage: ``values[k]`` is the formula of the k-th output, over the axes' variables."""

    axes: tuple[Axis, ...]
    values: tuple[Expr, ...]
    requirements: tuple[Requirement, ...] = ()
    is_stored: bool = False
    """Whether readers are to find its elements in memory: in an order that is faster, computed once and for all."""


@dataclass(frozen=True, slots=True)
class Reduced:
    """A reduction stage: each element combines many values."""

    axes: tuple[Axis, ...]
    reduction: ReduceStage
    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class Procedure:
    """A stage of statements that write the outputs, where no formula of one element exists (sorting, recurrences).

    ``build`` makes them from the output buffers; it may use further buffers, which it names in ``scratch``.
    ``stores_once``: each element of its output is stored once, and not read again, so that what is done to it element
    by element can be done there.
    """

    build: Callable[..., Stmt]
    inputs: tuple[Tensor, ...]
    scratch: tuple[Buffer, ...] = ()
    stores_once: bool = False


ComputeStage: TypeAlias = ElementwiseStage | Reduced | Procedure


@dataclass(frozen=True, slots=True)
class Tensor(Buffer):
    """A buffer with its definition: the ``port``-th output of a stage, or an input if the stage is None."""

    stage: ComputeStage | None = field(default=None, compare=False)
    port: int = 0
    number: int = -1

    @property
    def rank(self) -> int:
        """The number of axes."""
        return len(self.shape)


def _tensor(
    name: str, shape: Sequence[Extent], dtype: str, stage: ComputeStage | None, port: int, number: int
) -> Tensor:
    return Tensor(name, tuple(as_expr(s) for s in shape), dtype, stage=stage, port=port, number=number)


def placeholder(shape: Sequence[Extent], dtype: str = "float32", name: str = "x") -> Tensor:
    """An input tensor."""
    return _tensor(name, shape, dtype, None, 0, next(_fresh))


def _axes(shape: Sequence[Extent], kind: str = "spatial") -> tuple[Axis, ...]:
    assert kind in ("spatial", "reduce", "ordered")
    return tuple(Axis(Var(f"_{next(_fresh)}"), as_expr(extent), kind) for extent in shape)  # type: ignore[arg-type]


def reduce_axis(extent: Extent) -> Axis:
    """An axis to reduce over."""
    return _axes((extent,), "reduce")[0]


def compute(
    shape: Sequence[Extent],
    fn: Callable[..., ExprLike | ReduceStage],
    dtype: str | None = None,
    name: str = "t",
    requirements: Sequence[Requirement] = (),
    is_stored: bool = False,
) -> Tensor:
    """A tensor with the formula ``fn(i, j, ...)`` for its element at ``i, j, ...``: an expression or one reduction."""
    axes = _axes(shape)
    element = fn(*(a.var for a in axes))
    if isinstance(element, ReduceStage):
        (tensor,) = _reduced(shape, axes, element, (name,), requirements)
        return tensor
    value = as_expr(element, dtype or _plain_dtype(element))
    if dtype is not None and value.dtype != dtype:
        raise TypeError(f"{name}: its elements are {value.dtype}, not {dtype}")
    stage = ElementwiseStage(axes, (value,), tuple(requirements), is_stored)
    return _tensor(name, shape, value.dtype, stage, 0, next(_fresh))


def _plain_dtype(value: ExprLike) -> str:
    """The dtype that a number of Python's has where nobody says."""
    return "bool" if isinstance(value, bool) else "float32" if isinstance(value, float) else INDEX


def compute_several(
    shape: Sequence[Extent],
    fn: Callable[..., ReduceStage | Sequence[Expr]],
    names: Sequence[str],
    requirements: Sequence[Requirement] = (),
) -> tuple[Tensor, ...]:
    """Several tensors of one shape, computed by one stage."""
    axes = _axes(shape)
    element = fn(*(a.var for a in axes))
    if isinstance(element, ReduceStage):
        return _reduced(shape, axes, element, names, requirements)
    stage, number = ElementwiseStage(axes, tuple(element), tuple(requirements)), next(_fresh)
    return tuple(
        _tensor(n, shape, v.dtype, stage, k, number) for k, (n, v) in enumerate(zip(names, element, strict=True))
    )


def _reduced(
    shape: Sequence[Extent],
    axes: tuple[Axis, ...],
    reduction: ReduceStage,
    names: Sequence[str],
    requirements: Sequence[Requirement],
) -> tuple[Tensor, ...]:
    stage, number = Reduced(axes, reduction, tuple(requirements)), next(_fresh)
    return tuple(
        _tensor(n, shape, v.dtype, stage, k, number)
        for k, (n, v) in enumerate(zip(names, reduction.values, strict=True))
    )


def require(shape: Sequence[Extent], fn: Callable[..., Expr], message: str) -> Requirement:
    """A requirement: ``fn(i, j, ...)`` holds at every point; otherwise the program ends with the message."""
    axes = _axes(shape)
    return Requirement(axes, fn(*(a.var for a in axes)), message)


def procedure(
    outputs: Sequence[tuple[str, Sequence[Extent], str]],
    inputs: Sequence[Tensor],
    build: Callable[..., Stmt],
    scratch: Sequence[Buffer] = (),
    stores_once: bool = False,
) -> tuple[Tensor, ...]:
    """Tensors (name, shape, dtype) written by the statements ``build(*buffers)``, on buffers for them in order.

    The statements may hold loops and stores without blocks; they run in order, on one thread but for parallel loops.
    """
    stage, number = Procedure(build, tuple(inputs), tuple(scratch), stores_once), next(_fresh)
    return tuple(_tensor(n, s, d, stage, k, number) for k, (n, s, d) in enumerate(outputs))


def fresh(name: str = "i") -> Var:
    """A new variable, for the loops of a procedure."""
    return Var(f"_{name}{next(_fresh)}")


def loop(extent: Extent, body: Callable[[Expr], Stmt], name: str = "i") -> For:
    """A serial loop, for procedures: ``loop(n, lambda i: ...)``."""
    var = fresh(name)
    return For(var, as_expr(extent), body(var))


def lowest(dtype: str) -> Const:
    """The smallest value of a dtype, minus infinity where it has one: the identity of ``max``."""
    return const(-inf if dtype in FLOATS else _limits(dtype)[0], dtype)


def highest(dtype: str) -> Const:
    """The largest value of a dtype, infinity where it has one: the identity of ``min``."""
    return const(inf if dtype in FLOATS else _limits(dtype)[1], dtype)


def _limits(dtype: str) -> tuple[int, int]:
    if dtype == "bool":
        return 0, 1
    bits = int(dtype.lstrip("uint"))
    return (0, 2**bits - 1) if dtype.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _reduction(fn: str, value: Expr, axes: Sequence[Axis], identity: Expr) -> ReduceStage:
    a, b = Var("_acc", value.dtype), Var("_step", value.dtype)
    return ReduceStage(tuple(axes), (value,), (identity,), (a,), (b,), (Apply(fn, (a, b), value.dtype),))


def sum(value: Expr, *axes: Axis) -> ReduceStage:
    """The sum over the axes."""
    return _reduction("add", value, axes, const(0, value.dtype))


def prod(value: Expr, *axes: Axis) -> ReduceStage:
    """The product over the axes."""
    return _reduction("mul", value, axes, const(1, value.dtype))


def max(value: Expr, *axes: Axis) -> ReduceStage:
    """The maximum over the axes; NaN where one value is NaN."""
    return _reduction("max", value, axes, lowest(value.dtype))


def min(value: Expr, *axes: Axis) -> ReduceStage:
    """The minimum over the axes; NaN where one value is NaN."""
    return _reduction("min", value, axes, highest(value.dtype))


def any(value: Expr, *axes: Axis) -> ReduceStage:
    """Logical or over the axes."""
    return _reduction("or", value, axes, Const(False, "bool"))


def all(value: Expr, *axes: Axis) -> ReduceStage:
    """Logical and over the axes."""
    return _reduction("and", value, axes, TRUE)


def reduction(
    axes: Sequence[Axis],
    values: Sequence[Expr],
    identities: Sequence[Expr],
    combine: Callable[[tuple[Var, ...], tuple[Var, ...]], Sequence[Expr]],
) -> ReduceStage:
    """A reduction of several values at once: ``combine(accumulators, steps)`` says what the accumulators become."""
    accumulators = tuple(Var(f"_acc{k}", v.dtype) for k, v in enumerate(values))
    steps = tuple(Var(f"_step{k}", v.dtype) for k, v in enumerate(values))
    combined = tuple(combine(accumulators, steps))
    return ReduceStage(tuple(axes), tuple(values), tuple(identities), accumulators, steps, combined)


# ------------------------------------------------------------------ from tensors to nests


def reads(tensor: Tensor) -> tuple[Tensor, ...]:
    """The direct inputs of a tensor's computation, in order of first use."""
    stage = tensor.stage
    if stage is None:
        return ()
    if isinstance(stage, Procedure):
        return stage.inputs
    exprs = list(stage.values if isinstance(stage, ElementwiseStage) else stage.reduction.values)
    exprs += [r.condition for r in stage.requirements]
    buffers = (e.buffer for expr in exprs for e in walk(expr) if isinstance(e, Load))
    return tuple(dict.fromkeys(b for b in buffers if isinstance(b, Tensor)))


def producers_first(outputs: Sequence[Tensor]) -> list[Tensor]:
    """The outputs and all their producers, in topological order."""
    order: dict[Tensor, None] = {}
    stack: list[tuple[Tensor, bool]] = [(t, False) for t in reversed(outputs)]
    while stack:
        tensor, ready = stack.pop()
        if tensor in order:
            continue
        if ready:
            order[tensor] = None
        else:
            stack.append((tensor, True))
            stack += [(t, False) for t in reversed(reads(tensor)) if t not in order]
    return list(order)


def inline(outputs: Sequence[Tensor], chosen: Callable[[Tensor], bool]) -> tuple[Tensor, ...]:
    """The outputs with the chosen tensors inlined: their formulas replace their loads.

    Only tensors of which each element stands by itself can be chosen; requirements move to the readers.
    """
    inlined: dict[Tensor, Tensor] = {}
    stages: dict[int, ComputeStage] = {}
    for tensor in producers_first(outputs):
        inlined[tensor] = _inlined(tensor, inlined, stages, chosen)
    return tuple(inlined[t] for t in outputs)


def _inlined(
    tensor: Tensor, inlined: Mapping[Tensor, Tensor], stages: dict[int, ComputeStage], chosen: Callable[[Tensor], bool]
) -> Tensor:
    stage = tensor.stage
    if stage is None:
        return tensor
    if tensor.number not in stages:
        if isinstance(stage, Procedure):
            stages[tensor.number] = stage  # its statements are renamed to what became of its inputs when they are built
        else:
            stages[tensor.number] = _inlined_stage(stage, tensor, inlined, chosen)
    after = stages[tensor.number]
    return tensor if after is stage else replace(tensor, stage=after)


def _inlined_stage(
    stage: ElementwiseStage | Reduced,
    tensor: Tensor,
    inlined: Mapping[Tensor, Tensor],
    chosen: Callable[[Tensor], bool],
) -> ComputeStage:
    moved: dict[Requirement, None] = {}

    def part(e: Expr) -> Expr | None:
        if not (isinstance(e, Load) and isinstance(e.buffer, Tensor)):
            return None
        source = inlined[e.buffer]
        if isinstance(source.stage, ElementwiseStage) and chosen(e.buffer):
            moved.update(dict.fromkeys(source.stage.requirements))
            points = {a.var: i for a, i in zip(source.stage.axes, e.indices, strict=True)}
            return substitute(source.stage.values[source.port], points)
        return Load(source, e.indices)

    requirements = tuple(replace(r, condition=rewrite(r.condition, part)) for r in stage.requirements)
    if isinstance(stage, ElementwiseStage):
        values = tuple(rewrite(v, part) for v in stage.values)
        return ElementwiseStage(stage.axes, values, tuple(dict.fromkeys((*moved, *requirements))), stage.is_stored)
    values = tuple(rewrite(v, part) for v in stage.reduction.values)
    return Reduced(stage.axes, replace(stage.reduction, values=values), tuple(dict.fromkeys((*moved, *requirements))))


def nest(name: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor], sizes: Sequence[Var] = ()) -> Nest:
    """The program from inputs to outputs: one block for each tensor, in plain serial loops.

    Buffers, loops and axes get names of their own, in order, so that equal programs are equal nests.
    """
    return _NestWriter(inputs, outputs, sizes).nest(name)


class _NestWriter:
    """Gives names, and writes one stage after another."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], sizes: Sequence[Var]) -> None:
        self.inputs, self.outputs, self.sizes = inputs, outputs, sizes
        self.used_names: set[str] = {v.name for v in sizes}
        self.buffers: dict[Buffer, Buffer] = {}
        self.loops = count()

    def name(self, wanted: str) -> str:
        """The name, with a number behind it where it is taken."""
        candidates = (wanted if k == 0 else f"{wanted}_{k}" for k in count())
        name = next(c for c in candidates if c not in self.used_names)
        self.used_names.add(name)
        return name

    def buffer(self, tensor: Buffer) -> Buffer:
        """The plain buffer for a tensor."""
        if tensor not in self.buffers:
            plain = Buffer(self.name(tensor.name), tensor.shape, tensor.dtype, tensor.scope, tensor.strides)
            self.buffers[tensor] = plain
        return self.buffers[tensor]

    def nest(self, name: str) -> Nest:
        order = producers_first(self.outputs)
        inputs = [self.buffer(t) for t in self.inputs]
        outputs = [self.buffer(t) for t in self.outputs]
        body: list[Stmt] = []
        scratch: list[Buffer] = []
        written: set[int] = set()
        for tensor in order:
            if tensor.stage is None:
                if tensor not in self.inputs:
                    raise ValueError(f"{name}: {tensor.name} is read, but is not among the inputs")
            elif tensor.number not in written:
                written.add(tensor.number)
                together = {t.port: t for t in order if t.number == tensor.number}
                body += self.stage(tensor.stage, together, scratch)
        kept = {*inputs, *outputs}
        allocs = [b for t in order if (b := self.buffer(t)) not in kept]
        return Nest(name, (*inputs, *outputs, *self.sizes), seq(*body), (*allocs, *scratch))

    def stage(self, stage: ComputeStage, outputs: Mapping[int, Tensor], scratch: list[Buffer]) -> list[Stmt]:
        if isinstance(stage, Procedure):
            return [self.procedure(stage, outputs, scratch)]
        first = outputs[builtins.min(outputs)]
        nests = [
            self.block(f"{self.buffer(first).name}_check", r.axes, Check(r.condition, r.message))
            for r in stage.requirements
        ]
        where = tuple(a.var for a in stage.axes)
        if isinstance(stage, ElementwiseStage):
            stores = [Store(t, where, stage.values[port]) for port, t in sorted(outputs.items())]
            return [*nests, self.block(self.buffer(first).name, stage.axes, seq(*stores))]
        return [*nests, self.reduced(stage, outputs, where, scratch)]

    def reduced(
        self, stage: Reduced, outputs: Mapping[int, Tensor], where: tuple[Var, ...], scratch: list[Buffer]
    ) -> Stmt:
        r, first = stage.reduction, outputs[builtins.min(outputs)]
        name = self.buffer(first).name
        targets: list[Buffer] = []
        for port, value in enumerate(r.values):
            if port in outputs:
                targets.append(outputs[port])
            else:  # an accumulator that nobody asked for still has to be kept
                targets.append(Buffer(f"{name}_{port}", first.shape, value.dtype))
                scratch.append(self.buffer(targets[-1]))
        operands = {v: Load(t, where) for v, t in zip(r.accumulators, targets, strict=True)}
        known_steps = dict(zip(r.steps, r.values, strict=True))
        combined = [substitute(c, {**operands, **known_steps}) for c in r.combined]
        if len(combined) > 1:
            return self.block(
                name, (*stage.axes, *r.axes), _together(targets, where, combined), _started(targets, where, r)
            )
        body = Store(targets[0], where, combined[0])
        return self.block(name, (*stage.axes, *r.axes), body, _started(targets, where, r))

    def block(self, name: str, axes: Sequence[Axis], body: Stmt, init: Stmt | None = None) -> Stmt:
        """The block in its loops, one for each axis."""
        numbers = [next(self.loops) for _ in axes]
        loops = [Var(f"i{n}") for n in numbers]
        renamed = {a.var: Var(f"v{n}") for a, n in zip(axes, numbers, strict=True)}
        renamed_axes = tuple(Axis(renamed[a.var], a.extent, a.kind) for a in axes)
        block = Block(name, renamed_axes, tuple(loops), self.plain(body, renamed), init and self.plain(init, renamed))
        return wrapped([LoopSpec(var, a.extent) for var, a in zip(loops, axes, strict=True)], described(block))

    def plain(self, stmt: Stmt, variables: Mapping[Var, Expr]) -> Stmt:
        """The statement over plain buffers and the axes' own variables."""
        stmt = map_expressions(stmt, lambda e: variables.get(e) if isinstance(e, Var) else None)
        used = {e.buffer for e in loads(stmt)} | {s.buffer for s in statements(stmt) if isinstance(s, Store)}
        called = (a for s in statements(stmt) if isinstance(s, Invoke) for a in s.args)
        used |= {a.buffer for a in called if isinstance(a, BufferRegion)}
        return rename_buffers(stmt, {b: self.buffer(b) for b in sorted(used, key=lambda b: b.name)})

    def procedure(self, stage: Procedure, outputs: Mapping[int, Tensor], scratch: list[Buffer]) -> Stmt:
        """The statements of a procedure, its loops named in order: in one block without axes, unless there are parallel
        loops among them."""
        stmt = stage.build(*(outputs[port] for port in sorted(outputs)))
        used = [s.var for s in statements(stmt) if isinstance(s, For)]
        renamed = {v: Var(f"i{next(self.loops)}") for v in used}
        scratch += [self.buffer(b) for b in stage.scratch]

        def names(s: Stmt) -> Stmt | None:
            return replace(s, var=renamed[s.var]) if isinstance(s, For) else None

        named = mutate(self.plain(stmt, renamed), names)
        parts = named.stmts if isinstance(named, Seq) else (named,)
        if builtins.any(isinstance(s, For) and s.kind == "parallel" for s in parts) and not stage.stores_once:
            return named
        name = self.buffer(outputs[builtins.min(outputs)]).name
        return Block(name, (), (), named, notes=(STORES_ONCE,) if stage.stores_once else ())


def _together(targets: Sequence[Buffer], where: tuple[Var, ...], values: Sequence[Expr]) -> Stmt:
    """Stores of values that all read what was there before: each but the last value decides by itself whether it
    changes, so the accumulator that others compare with is stored last."""
    stores = [Store(t, where, v) for t, v in zip(targets, values, strict=True)]
    return seq(*reversed(stores))


def _started(targets: Sequence[Buffer], where: tuple[Var, ...], r: ReduceStage) -> Stmt:
    return seq(*(Store(t, where, i) for t, i in zip(targets, r.identities, strict=True)))


__all__ = [
    "Tensor",
    "all",
    "any",
    "compute",
    "compute_several",
    "highest",
    "inline",
    "loop",
    "lowest",
    "max",
    "min",
    "nest",
    "placeholder",
    "procedure",
    "prod",
    "reduce_axis",
    "reduction",
    "require",
    "select",
    "sum",
]
