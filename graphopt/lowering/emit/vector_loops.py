"""Vectorization: code generation of vectorized loops.

What is left over at the end is a shorter vector, or a vector of which some lanes do not count. Where such a loop
reduces, each lane keeps a value of its own, in several vectors at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.host import vector_bytes
from graphopt.lowering.emit.common_subexpressions import invariant
from graphopt.lowering.emit.emit_context import EmitContext
from graphopt.lowering.emit.statement_text import ATOM, Lanes, Text
from graphopt.lowering.loops.accumulation import HORIZONTAL, accumulated, identity
from graphopt.lowering.loops.expressions import Apply, Const, Expr, Load, Var, variables, walk
from graphopt.lowering.loops.nest import Block, Buffer, For, Store, statements

if TYPE_CHECKING:
    from graphopt.lowering.emit.kernel_source import KernelWriter

Accumulators: TypeAlias = Mapping[Load, tuple[str, str]]
"""For elements that a vectorized loop reduces into, the function by which, and the name of a vector."""
SEVERAL = 4
"""Vectors that a reduction is kept in, so that one step need not wait for the one before."""


NARROW = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2}
"""Bytes of elements of which a vector has more than of single precision, where nothing else is read or written."""


class VectorLoops:
    """Code generator of one kernel's vectorized loops."""

    def __init__(self, writer: KernelWriter) -> None:
        self.writer, self.spell = writer, writer.spell

    def width(self, loop: For, context: EmitContext) -> int:
        """The number of lanes: the host's, for the widest elements that are computed with in vectors."""
        found = list(self.writer.flat(loop.body, replace(context, lanes=Lanes(loop.var, loop.var, 1))))
        straight = [(s, where) for s, where in found if isinstance(s, Store)]
        if len(straight) == len(found):
            stored = {s.buffer.dtype for s, _ in straight}
            parts = [e for s, where in straight for e in walk(where.of(s.value)) if loop.var in variables(e)]
        else:
            stores = [s for s in statements(loop.body) if isinstance(s, Store)]
            stored, parts = {s.buffer.dtype for s in stores}, [e for s in stores for e in walk(s.value)]
        memory = stored | {e.dtype for e in parts if isinstance(e, Load)}
        dtypes = memory | {e.dtype for e in parts if isinstance(e, Apply) and e.dtype != "int64"}
        native = min(
            (lanes_of("float64" if d in ("int64", "uint64", "float64") else "float32") for d in dtypes), default=1
        )
        extent = context.of(loop.extent)
        if memory and memory <= NARROW.keys() and self._lie_together(loop, context):
            wide = vector_bytes() // max(NARROW[d] for d in memory)
            if dtypes == memory or (native == lanes_of("float32") and _is_long(extent, wide)):
                native = wide
        if isinstance(extent, Const) and 1 < int(extent.value) < native and int(extent.value).bit_count() == 1:
            return int(extent.value)
        return native

    def accumulates_integers(self, loop: For, context: EmitContext) -> bool:
        """Whether a serial loop adds up whole vectors of integers, each lane into an element of its own."""
        # LLVM writes such a loop out where it is short, and then adds integers up across the loop around it, which
        # gathers. Floats are added up in order: it finds their vectors.
        extent = self.writer.decided(context.of(loop.extent))
        if loop.kind != "serial" or context.lanes is not None or not isinstance(extent, Const):
            return False
        within = list(statements(loop.body))
        if any(isinstance(s, Block) and s.init is not None for s in within):
            return False
        if not all("int" in s.buffer.dtype for s in within if isinstance(s, Store)):
            return False
        if not self.updates(loop, context) or not self._lie_together(loop, context):
            return False
        inside = replace(context, lanes=Lanes(loop.var, loop.var, 1))
        stores = [(s, where) for s, where in self.writer.flat(loop.body, inside) if isinstance(s, Store)]
        lanes = self.width(loop, context)
        targets = {s.buffer: Load(s.buffer, tuple(map(where.of, s.indices))) for s, where in stores}
        read = (e for s, where in stores for e in walk(where.of(s.value)) if isinstance(e, Load))
        return (
            lanes > 1
            and int(extent.value) % lanes == 0
            and len(targets) == len(stores)
            and all(loop.var in variables(target) for target in targets.values())
            and all(e == targets.get(e.buffer, e) for e in read)
        )

    def _lie_together(self, loop: For, context: EmitContext) -> bool:
        """Whether each vector is read and written in one piece, so that no lane needs an address of its own: one of a
        table of bytes is looked up by codes that are."""
        lanes = Lanes(loop.var, loop.var, 1)
        for stmt, where in self.writer.flat(loop.body, replace(context, lanes=lanes)):
            if not isinstance(stmt, Store):
                return False
            for e in (Load(stmt.buffer, stmt.indices), *walk(stmt.value)):
                if isinstance(e, Load):
                    address = self.spell.address(Load(e.buffer, tuple(map(where.of, e.indices))))
                    parts = address.split(loop.var)
                    if parts is None and self.spell.lookup(e.buffer, address, lanes) is not None:
                        continue
                    if parts is None or parts[0].number not in (0, 1):
                        return False
        return True

    def write(self, loop: For, context: EmitContext) -> None:
        """A loop over vectors, and one masked step for the remainder."""
        extent, lanes = context.of(loop.extent), self.width(loop, context)
        if lanes == 1:
            self.writer.loop(loop.var, extent, self.spell.value(extent).text, loop.body, context)
            return
        before = dict(self.spell.held)
        self.writer.bounds[loop.var] = extent
        self.spell.held |= self.invariants(loop, context, lanes)
        self.vectors(loop, context, extent, lanes)
        self.writer.bounds.pop(loop.var)
        self.spell.held = before

    def invariants(self, loop: For, context: EmitContext, lanes: int) -> dict[Expr, Text]:
        """Names for loop-invariant loads and values computed from them: across stores LLVM cannot know that they stay
        the same."""
        items = list(self.writer.flat(loop.body, replace(context, lanes=Lanes(loop.var, loop.var, lanes))))
        stores = [(s, p) for s, p in items if isinstance(s, Store)]
        if len(stores) < len(items):
            return {}
        written = {s.buffer for s, _ in stores}
        invariants = dict.fromkeys(e for s, p in stores for e in invariant(p.of(s.value), loop.var, written))
        names: dict[Expr, Text] = {}
        for expr in [e for e in invariants if e not in self.spell.held]:
            text = self.spell.value(expr)
            names[expr] = Text(self.writer.fresh("h"))
            self.writer.line(f"{names[expr].text} = {text.text}")
        return names

    def vectors(self, loop: For, context: EmitContext, extent: Expr, lanes: int) -> None:
        """The steps of a vectorized loop."""
        # Strip mining: SEVERAL vectors at once for reductions, whose accumulators are combined pairwise behind the
        # loop; then single vectors; then the remainder as a shorter or a masked vector; last, horizontal reductions.
        accumulators = self.accumulators(loop, context, lanes)
        number = int(extent.value) if isinstance(extent, Const) else None
        is_long = number is None or number >= SEVERAL * lanes
        many = SEVERAL if 0 < len(accumulators) <= SEVERAL and is_long else 1
        chosen = [self.identities(accumulators, lanes) for _ in range(many)]
        begin = self.rounded(extent, many * lanes)
        if many > 1:
            with self.writer.iterating(loop.var, f"0, {begin}, {many * lanes}"):
                for k, chain in enumerate(chosen):
                    self.step(loop, replace(context, lanes=Lanes(loop.var, loop.var + k * lanes, lanes)), chain)
            self.joined(chosen)
        whole = self.rounded(extent, lanes)
        if number is None or (number >= lanes and (many == 1 or whole != begin)):
            with self.writer.iterating(loop.var, f"{begin if many > 1 else 0}, {whole}, {lanes}"):
                self.step(loop, replace(context, lanes=Lanes(loop.var, loop.var, lanes)), chosen[0])
        left = 0 if number is None else number % lanes
        is_plain = not accumulators and not self.writer.private.get(loop.var)
        if is_plain and (left.bit_count() == 1 or (left and self.updates(loop, context))):  # shorter vectors
            base = int(whole)
            self.writer.depth -= 1
            for count in (1 << k for k in reversed(range(left.bit_length())) if left >> k & 1):
                start = Const(base)
                lanes_left = replace(context, lanes=Lanes(loop.var, start, count))
                self.step(loop, lanes_left if count > 1 else context.bind({loop.var: start}), {})
                base += count
            self.writer.depth += 1
        elif number is None or left:
            text = self.spell.value(extent)
            rest = f"{number % lanes}" if number is not None else f"{text.within(6)} % {lanes}"
            if number is None:
                self.writer.line(f"if {rest}:")
            self.writer.depth += number is None
            mask = self.writer.fresh("m")
            self.writer.line(f"{mask} = {self.spell.use('first_lanes')}({rest}, {lanes})")
            rest_start: Expr = Const(int(whole)) if number is not None else Var(f"({whole})")
            where = replace(context, lanes=Lanes(loop.var, rest_start, lanes, mask))
            self.writer.depth -= 1
            self.step(loop, where, chosen[0])
            self.writer.depth += number is not None
        for target, (fn, name) in chosen[0].items():
            partial = Var(f"{self.spell.use(HORIZONTAL[fn])}({name})", target.dtype)
            whole_value = self.spell.applied(Apply(fn, (target, partial), target.dtype), None)
            variable = self.writer.local(target, self.spell.address(target), None, written=True)
            if variable is None:
                self.spell.store(target, whole_value, None)
            else:
                self.writer.line(f"{variable.text} = {whole_value.text}")

    def updates(self, loop: For, context: EmitContext) -> bool:
        """Whether the loop does nothing but change elements in memory, the same ones in each round of a loop around:
        LLVM keeps such vectors in registers between rounds, but none of which a mask leaves lanes out."""
        found = list(self.writer.flat(loop.body, replace(context, lanes=Lanes(loop.var, loop.var, 1))))
        for stmt, where in found:
            if not isinstance(stmt, Store):
                return False
            target = Load(stmt.buffer, tuple(map(where.of, stmt.indices)))
            again = any(var not in variables(target) for var in self.writer.order)
            if stmt.buffer.scope == "local" or not again or target not in walk(where.of(stmt.value)):
                return False
        return bool(found)

    def rounded(self, extent: Expr, step: int) -> str:
        """The extent, rounded down to a multiple."""
        if isinstance(extent, Const):
            return str(int(extent.value) // step * step)
        return f"{self.spell.value(extent).within(6)} // {step} * {step}"

    def identities(self, targets: Mapping[Load, str], lanes: int) -> Accumulators:
        """A vector accumulator for each element that a loop reduces into, initialized with the neutral element."""
        names = {}
        for target, fn in targets.items():
            name = self.writer.fresh("a")
            nothing = self.spell.constant(identity(fn, target.dtype)).text
            self.writer.line(f"{name} = {self.spell.use('splat')}({nothing}, {lanes})")
            names[target] = (fn, name)
        return names

    def joined(self, several: Sequence[Accumulators]) -> None:
        """Combines accumulators of the same elements pairwise, until one is left."""
        while len(several) > 1:
            half = len(several) // 2
            for first, second in zip(several[:half], several[half:], strict=True):
                for target, (fn, name) in first.items():
                    accumulator, more = Var(name, target.dtype), Var(second[target][1], target.dtype)
                    self.writer.line(
                        f"{name} = {self.combined(fn, accumulator, more, more, Lanes(accumulator, accumulator, 1))}"
                    )
            several = several[:half]

    def step(self, loop: For, context: EmitContext, accumulators: Accumulators) -> None:
        """The body of a vectorized loop, with its reductions into accumulators."""
        if not accumulators:
            self.writer.indented(loop.body, context)
            return
        self.writer.depth += 1
        kept = dict(self.spell.known)
        for stmt, where in self.writer.flat(loop.body, context):
            assert isinstance(stmt, Store)
            assert where.lanes is not None
            target = Load(stmt.buffer, tuple(map(where.of, stmt.indices)))
            if target not in accumulators:  # an element for each step
                self.writer.stretch([(stmt, where)])
                continue
            fn, name = accumulators[target]
            value = where.of(stmt.value)
            assert isinstance(value, Apply)
            accumulation = accumulated(target, value)
            assert accumulation is not None
            _, step = accumulation
            text = self.spell.same_width([self.spell.value(step, where.lanes), Text("", ATOM, True)], where.lanes)[0]
            if where.lanes.mask is not None:
                text = self.spell.chosen(where.lanes.mask, text, identity(fn, value.dtype), where.lanes)
            accumulator, more = Var(name, value.dtype), Var(text, value.dtype)
            self.writer.line(f"{name} = {self.combined(fn, accumulator, more, step, where.lanes)}")
        self.spell.known = kept
        self.writer.depth -= 1

    def combined(self, fn: str, accumulator: Var, more: Var, step: Expr, lanes: Lanes) -> str:
        """The accumulator combined with a vector."""
        if fn == "add" and lanes.mask is None and isinstance(step, Apply) and step.fn == "mul":
            a, b = (self.spell.value(x, lanes) for x in step.args)
            if self.spell.contract and accumulator.dtype.startswith("float"):
                args = self.spell.same_width([a, b], lanes)
                return f"{self.spell.use('fma')}({', '.join(args)}, {accumulator.name})"
        words = {"add": "+", "mul": "*", "or": "|", "and": "&"}
        if fn in words:
            return f"{accumulator.name} {words[fn]} ({more.name})"
        return f"{self.spell.use({'max': 'maximum', 'min': 'minimum'}[fn])}({accumulator.name}, {more.name})"

    def accumulators(self, loop: For, context: EmitContext, lanes: int) -> dict[Load, str]:
        """The elements that the loop reduces into, and by which function; none where the loop does anything else
        besides storing one element for each step."""
        accumulators: dict[Load, str] = {}
        read: set[Buffer] = set()
        inside = replace(context, lanes=Lanes(loop.var, loop.var, lanes))
        for stmt, where in self.writer.flat(loop.body, inside):
            if not isinstance(stmt, Store):
                return {}
            target, value = Load(stmt.buffer, tuple(map(where.of, stmt.indices))), where.of(stmt.value)
            if any(loop.var in variables(i) for i in target.indices):
                read |= {e.buffer for e in walk(value) if isinstance(e, Load)}
                continue
            combined = accumulated(target, value)
            if combined is None or target in accumulators:
                return {}
            fn, step = combined
            if any(isinstance(e, Load) and e.buffer == target.buffer for e in walk(step)):
                return {}
            accumulators[target] = fn
        return {} if read & {target.buffer for target in accumulators} else accumulators


def _is_long(extent: Expr, lanes: int) -> bool:
    """Whether a loop, or each but the last chunk of one, is known to fill vectors of so many lanes."""
    sizes = extent.args if isinstance(extent, Apply) and extent.fn == "min" else (extent,)
    return any(isinstance(n, Const) and n.value >= lanes for n in sizes)
