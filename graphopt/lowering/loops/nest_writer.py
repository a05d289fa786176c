"""Nests of tensors: one block for each stage, in plain serial loops."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count
from keyword import iskeyword

from graphopt.lowering.loops.expressions import Expr, Load, Var, substitute, variables
from graphopt.lowering.loops.loop_nests import LoopSpec, wrapped
from graphopt.lowering.loops.nest import (
    STORES_ONCE,
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
from graphopt.lowering.loops.stages import (
    ComputeStage,
    ElementwiseStage,
    IterVar,
    Procedure,
    Reduced,
    ReduceStage,
    Tensor,
    producers_first,
)

_NUMBERED = re.compile(r"[iv]\d+")
"""The names that loops and axes get where nobody names them."""


def sizes_of(tensors: Sequence[Tensor]) -> tuple[Var, ...]:
    """The open sizes that tensors depend on, those of the first axes first: variables that are no axes."""
    found: dict[Var, None] = {}
    for tensor in tensors:
        parts = list(tensor.shape)
        bound: set[Var] = set()
        stage = tensor.stage
        if isinstance(stage, ElementwiseStage | Reduced):
            axes = stage.axes if isinstance(stage, ElementwiseStage) else (*stage.axes, *stage.reduction.axes)
            bound = {a.var for a in axes}
            parts += [a.extent for a in axes]
            parts += stage.values if isinstance(stage, ElementwiseStage) else stage.reduction.values
        for part in parts:
            found |= dict.fromkeys(sorted(variables(part) - bound, key=lambda v: v.name))
    return tuple(found)


class NestWriter:
    """Gives names, and writes one stage after another."""

    def __init__(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor], sizes: Sequence[Var]) -> None:
        self.inputs, self.outputs, self.sizes = inputs, outputs, sizes
        self.used_names: set[str] = {v.name for v in sizes}
        self.buffers: dict[Buffer, Buffer] = {}
        self.loops = count()

    def name(self, wanted: str) -> str:
        """The name, with a number behind it where it is taken, or a word of Python's that scripts cannot use."""
        candidates = (wanted if k == 0 else f"{wanted}_{k}" for k in count())
        name = next(c for c in candidates if c not in self.used_names and not iskeyword(c))
        self.used_names.add(name)
        return name

    def buffer(self, tensor: Buffer) -> Buffer:
        """The plain buffer for a tensor."""
        if tensor not in self.buffers:
            plain = Buffer(self.name(tensor.name), tensor.shape, tensor.dtype, tensor.scope, tensor.strides)
            self.buffers[tensor] = plain
        return self.buffers[tensor]

    def nest(self, name: str) -> Nest:
        """The program of all tensors."""
        order = producers_first(self.outputs)
        inputs = [self.buffer(t) for t in self.inputs]
        outputs = [self.buffer(t) for t in self.outputs]
        body: list[Stmt] = []
        scratch: list[Buffer] = []
        written: set[int] = set()
        for tensor in order:
            if tensor.stage is None:
                continue
            if tensor.number not in written:
                written.add(tensor.number)
                together = {t.port: t for t in order if t.number == tensor.number}
                body += self.stage(tensor.stage, together, scratch)
        kept = {*inputs, *outputs}
        allocs = [b for t in order if (b := self.buffer(t)) not in kept]
        return Nest(name, (*inputs, *outputs, *self.sizes), seq(*body), (*allocs, *scratch))

    def stage(self, stage: ComputeStage, outputs: Mapping[int, Tensor], scratch: list[Buffer]) -> list[Stmt]:
        """The statements of a stage: what it requires, and then its block."""
        if isinstance(stage, Procedure):
            return [self.procedure(stage, outputs, scratch)]
        first = outputs[min(outputs)]
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
        """The block of a reduction, which starts with the identities."""
        r, first = stage.reduction, outputs[min(outputs)]
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
        names = [self.loop_name(a.var) for a in axes]
        loops = [Var(loop) for loop, _ in names]
        renamed = {a.var: Var(inner) for a, (_, inner) in zip(axes, names, strict=True)}
        renamed_axes = tuple(Axis(renamed[a.var], a.extent, a.kind) for a in axes)
        block = Block(name, renamed_axes, tuple(loops), self.plain(body, renamed), init and self.plain(init, renamed))
        return wrapped([LoopSpec(var, a.extent) for var, a in zip(loops, axes, strict=True)], described(block))

    def loop_name(self, var: Var) -> tuple[str, str]:
        """The names of an axis' loop and of its variable in the block: after the user's name for it, or a number."""
        label = var.label if isinstance(var, IterVar) else ""
        if not label or _NUMBERED.fullmatch(label):
            number = next(self.loops)
            return f"i{number}", f"v{number}"
        return self.name(label), self.name(f"v_{label}")

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
        unasked = {k: b for k, b in enumerate(stage.outputs) if k not in outputs}  # they are written all the same
        stmt = stage.build(*({**outputs, **unasked}[port] for port in sorted({*outputs, *unasked})))
        scratch += [self.buffer(b) for b in unasked.values()]
        used = [s.var for s in statements(stmt) if isinstance(s, For)]
        renamed = {v: Var(f"i{next(self.loops)}") for v in used}
        scratch += [self.buffer(b) for b in stage.scratch]

        def names(s: Stmt) -> Stmt | None:
            return replace(s, var=renamed[s.var]) if isinstance(s, For) else None

        named = mutate(self.plain(stmt, renamed), names)
        parts = named.stmts if isinstance(named, Seq) else (named,)
        if any(isinstance(s, For) and s.kind == "parallel" for s in parts) and not stage.stores_once:
            return named
        name = self.buffer(outputs[min(outputs)]).name
        return Block(name, (), (), named, notes=(STORES_ONCE,) if stage.stores_once else ())


def _together(targets: Sequence[Buffer], where: tuple[Var, ...], values: Sequence[Expr]) -> Stmt:
    """Stores of values that all read what was there before: each but the last value decides by itself whether it
    changes, so the accumulator that others compare with is stored last."""
    stores = [Store(t, where, v) for t, v in zip(targets, values, strict=True)]
    return seq(*reversed(stores))


def _started(targets: Sequence[Buffer], where: tuple[Var, ...], r: ReduceStage) -> Stmt:
    return seq(*(Store(t, where, i) for t, i in zip(targets, r.identities, strict=True)))
