"""Code generation of kernels: nests as Python source that numba compiles, self-contained and deterministic.

The outermost loop, where it is parallel, becomes the kernel's range of work items. Unrolled loops are
written out; a vectorized loop becomes operations on vectors of as many lanes as the host has, with a
masked step for what is left over; where such a loop reduces, each lane keeps a value of its own.
Elements of *local* buffers are variables where all their indices are numbers by then, so a tile of
accumulators lives in registers; otherwise such a buffer lies on the stack. Values that a straight
stretch of statements needs twice are computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, groupby
from keyword import iskeyword
from re import findall
from typing import TypeAlias, TypeVar

from graphopt.errors import ScheduleError
from graphopt.frozen import dataclass
from graphopt.kernels.kernel import SIZE, STORED, Kernel
from graphopt.lowering.emit.common_subexpressions import eager, private
from graphopt.lowering.emit.emit_context import EmitContext
from graphopt.lowering.emit.expression_text import Speller
from graphopt.lowering.emit.full_tiles import separated
from graphopt.lowering.emit.loop_invariants import IndexNames, InvariantKey
from graphopt.lowering.emit.pragmas import unrolled
from graphopt.lowering.emit.statement_text import ATOM, Lanes, Text
from graphopt.lowering.emit.vector_loops import VectorLoops
from graphopt.lowering.emit.vocabulary import RESERVED, imports
from graphopt.lowering.index.arithmetic import polynomial, simplify
from graphopt.lowering.index.polynomials import Polynomial
from graphopt.lowering.intrinsics.tensor_intrin import find_intrinsic, implementation, sides
from graphopt.lowering.loops.accumulation import HORIZONTAL, accumulated, identity
from graphopt.lowering.loops.expressions import (
    Apply,
    Const,
    Expr,
    Load,
    Var,
    conjunction,
    conjuncts,
    equal,
    variables,
)
from graphopt.lowering.loops.nest import (
    TRUE,
    Block,
    Buffer,
    BufferRegion,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Seq,
    Stmt,
    Store,
)
from graphopt.lowering.loops.script_print import show_expr

LaunchDims: TypeAlias = tuple[int, int, int]
"""The launch dimensions along x, y and z."""


class EmitError(ScheduleError):
    """A nest without source: its schedule asks for what the target does not have."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """A kernel and its arguments: its parameters are the addresses of ``buffers``, then ``sizes``, which are
    expressions over the nest's sizes.

    The buffers behind the nest's own are scratch memory, shared by all work items. ``extent`` is the number of work
    items; ``messages[k - 1]`` is what the status ``k`` means.
    """

    kernel: Kernel
    buffers: tuple[Buffer, ...]
    sizes: tuple[Expr, ...]
    extent: Expr
    parallel: bool
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Launchable:
    """A device kernel and its launch: its parameters are the addresses of ``buffers``, then ``sizes``, which are
    expressions over the nest's sizes; then, where there are ``messages``, the address of an int32.

    ``grid`` is how many blocks there are along each axis, ``block`` how many threads in each; ``messages[k - 1]`` is
    what the number ``k`` means there.
    """

    kernel: Kernel
    buffers: tuple[Buffer, ...]
    sizes: tuple[Expr, ...]
    grid: tuple[Expr, Expr, Expr]
    block: LaunchDims
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A library call: ``places`` are the addresses of operands, each a buffer and an element number; then ``sizes``,
    expressions over the nest's sizes, in the order of the function's parameters (``runtime.library_calls``), and its
    attributes."""

    name: str
    places: tuple[tuple[Buffer, Expr], ...]
    sizes: tuple[Expr, ...]
    attributes: tuple[tuple[str, bool | int | str], ...]

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers that it reads and writes."""
        return tuple(dict.fromkeys(buffer for buffer, _ in self.places))

    @property
    def source(self) -> str:
        """The call as text."""
        places = [b.name if at == Const(0) else f"{b.name}[{show_expr(at)}]" for b, at in self.places]
        attributes = [f"{name}={value!r}" for name, value in self.attributes]
        return f"{self.name}({', '.join([*places, *map(show_expr, self.sizes), *attributes])})\n"


EmittedKernel: TypeAlias = Emitted | Launchable | LibraryCall
"""The code of a part of a nest."""
StmtInContext: TypeAlias = tuple[Stmt, EmitContext]


def emit(nest: Nest, contract: bool = True) -> Emitted:
    """The kernel of a nest, whose products and sums may be contracted to fused multiply-adds or not. EmitError where
    its schedule cannot be emitted."""
    return settled(lambda facts: KernelWriter(nest, facts, contract), KernelWriter.emitted)


W = TypeVar("W", bound="KernelWriter")
M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Facts of a kernel from earlier passes of its writer: local buffers that cannot be variables, and results of
    ``IndexNames``."""

    stacked: frozenset[Buffer] = frozenset()
    plain: frozenset[tuple[int, InvariantKey]] = frozenset()
    given: frozenset[Expr] = frozenset()


def settled(writer: Callable[[KernelFacts], W], emission: Callable[[W], M]) -> M:
    """The ``emission`` of a kernel's final writer, which has the facts that earlier, discarded passes found. Raises
    EmitError."""
    stacked: frozenset[Buffer] = frozenset()
    while True:
        try:
            first = writer(KernelFacts(stacked))
            emission(first)
            names = first.spell.names
            return emission(writer(KernelFacts(stacked, names.used_once(), names.replacing())))
        except NeedsMemory as need:  # an element that is chosen while the kernel runs cannot be a variable
            if need.buffer in stacked:
                raise EmitError(f"{need.buffer.name}: its elements are no variables, and it cannot be memory") from None
            stacked |= {need.buffer}


class NeedsMemory(Exception):  # noqa: N818  not an error
    """A local buffer with an index that is not constant, and so not a variable."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer


class KernelWriter:
    """Code generator of one kernel."""

    def __init__(
        self,
        nest: Nest,
        facts: KernelFacts,
        contract: bool = True,
    ) -> None:
        self.nest, self.stacked = unrolled(nest), facts.stacked
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Buffer, str] = {}
        self.numbers = count()
        self.messages: list[str] = []
        self.registers: dict[Buffer, dict[tuple[int, int], str]] = {}
        self.bounds: dict[Var, Expr] = {}
        self.order: list[Var] = []
        self.private = private(self.nest)
        self.loops = self.stores = 0
        """The numbers of loops, and of stores to memory, so far."""
        self.stores_in_rounds = False
        """Whether a loop that has none within stores to memory. Then LLVM is to know that buffers are apart from each
        other: what is read and written in each round stays in registers, and rounds are done together. Where loops
        only read, sums are in registers already, and to know it would let LLVM read ahead, out of outer loops, more
        than registers hold."""
        names = IndexNames(
            self.lines, self.fresh, self.value, self.applied, nest.sizes, facts.plain, facts.given, self.apart
        )
        self.spell = Speller(self.line, self.name, self.local, self.fresh, self.bounds, self.order, names)
        self.spell.contract = contract
        self.vectors = VectorLoops(self)

    # ------------------------------------------------------------------ the whole

    def emitted(self) -> Emitted:
        """The kernel of the nest."""
        nest = self.nest
        shared = tuple(b for b in nest.allocs if b.scope != "local")
        buffers = (*nest.buffers, *shared)
        for buffer in (*buffers, *nest.allocs):
            self.name(buffer)
        for buffer in nest.allocs:
            if buffer in self.stacked:
                self.stack(buffer)
        body, extent = separated(nest.body, nest.sizes), Const(1)
        context = EmitContext({})
        parallel = isinstance(body, For) and body.kind == "parallel"
        if isinstance(body, For) and parallel:
            extent = body.extent  # type: ignore[assignment]
            self.loop(body.var, extent, "lo, hi", body.body, context)
        else:
            self.line("for _ in range(lo, hi):")
            self.indented(body, context)
        self.line("return 0")
        sizes = self.sizes()
        params = [self.name(b) for b in buffers] + list(sizes)
        header = [f'"""{nest.name}"""', *self.header(), ""]
        definition = f"def kernel({', '.join([*params, 'lo', 'hi'])}):"
        kinds = tuple(b.dtype for b in buffers) + (SIZE,) * len(sizes)
        source = "\n".join([*header, definition, *self.lines]) + "\n"
        kernel = Kernel(source, kinds, noalias=self.stores_in_rounds, contract=self.spell.contract)
        return Emitted(kernel, buffers, tuple(sizes.values()), extent, parallel, tuple(self.messages))

    def sizes(self) -> dict[str, Expr]:
        """The used sizes, and the quotients in place of others, by parameter name."""
        used = set(findall(r"\w+", "\n".join(self.lines)))
        symbols = {v.name: v for v in self.nest.sizes if v.name in used}
        return symbols | {name: quotient for quotient, name in self.spell.names.parameters.items()}

    def header(self) -> Iterator[str]:
        """The import lines of the source."""
        used = self.spell.used
        if constants := sorted(used & {"inf", "nan"}):
            yield f"from math import {', '.join(constants)}"
            yield ""
        for module, names in self.imports(used).items():
            if names:
                yield f"from {module} import {', '.join(names)}"
        yield ""

    def imports(self, used: set[str]) -> Mapping[str, list[str]]:
        """The imported names of the source, by module."""
        return imports(used, self.spell.libraries)

    def line(self, text: str) -> None:
        """Adds a line at the current indentation."""
        self.lines.append("    " * self.depth + text)

    def fresh(self, letter: str) -> str:
        """An unused name."""
        return f"{letter}{next(self.numbers)}_"

    def name(self, buffer: Buffer) -> str:
        """The name of a buffer in the source."""
        if buffer not in self.names:
            self.names[buffer] = buffer.name + ("_" if buffer.name in RESERVED or iskeyword(buffer.name) else "")
        return self.names[buffer]

    def value(self, expr: Expr) -> Text:
        """The expression as source, for one element."""
        return self.spell.value(expr)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """A context manager: source inside it belongs elsewhere than the current line, and shares no names with it."""
        spell = self.spell
        kept = spell.known, spell.shared, spell.held
        spell.known, spell.shared, spell.held = {}, set(), {}
        yield
        spell.known, spell.shared, spell.held = kept

    def applied(self, expr: Apply) -> Text:
        """A function of its arguments as source, for one element."""
        return self.spell.applied(expr, None)

    def indented(self, stmt: Stmt, context: EmitContext) -> None:
        """The statement one level in; names bound there end with it."""
        kept, self.depth = dict(self.spell.known), self.depth + 1
        self.write(stmt, context)
        if self.lines[-1].endswith(":"):
            self.line("pass")
        self.depth -= 1
        self.spell.known = kept

    def loop(self, var: Var, extent: Expr, steps: str, body: Stmt, context: EmitContext) -> None:
        """A loop of source over ``range(steps)``."""
        self.bounds[var] = extent
        with self.iterating(var, steps):
            self.indented(body, context)
        self.bounds.pop(var, None)

    @contextmanager
    def iterating(self, var: Var, steps: str) -> Iterator[None]:
        """A context manager: lines inside it are the body of a loop over ``range(steps)``."""
        self.line(f"for {var.name} in range({steps}):")
        self.order.append(var)
        self.loops += 1
        before = self.loops, self.stores
        with self.spell.names.loop(var, self.depth + 1):
            yield
        self.order.remove(var)
        self.stores_in_rounds |= self.loops == before[0] and self.stores > before[1]

    def decided(self, expr: Expr) -> Expr:
        """The constant value of an expression in all steps of the loops around; the expression itself where it
        varies."""
        if isinstance(expr, Const):
            return expr
        simple = simplify(expr, self.bounds)
        return simple if isinstance(simple, Const) else expr

    # ------------------------------------------------------------------ statements

    def write(self, stmt: Stmt, context: EmitContext) -> None:
        """Source of a statement: straight-line stretches of stores, and control flow between them."""
        items = list(self.flat(stmt, context))
        for straight, group in groupby(items, lambda item: isinstance(item[0], Store)):
            if straight:
                self.stretch([(s, p) for s, p in group if isinstance(s, Store)])
            else:
                for inner, where in group:
                    self.structured(inner, where)

    def flat(self, stmt: Stmt, context: EmitContext) -> Iterator[StmtInContext]:
        """The statements in sequence, with unrolled loops expanded and blocks opened."""
        # A case for each statement, depth first: what is known of extents and conditions here decides loops and
        # branches.
        match stmt:
            case Seq():
                for inner in stmt.stmts:
                    yield from self.flat(inner, context)
            case For():
                extent = self.decided(context.of(stmt.extent))
                if isinstance(extent, Const):
                    stmt = replace(stmt, extent=extent)
                number = int(extent.value) if isinstance(extent, Const) else None
                if number in (0, 1) or (number is not None and stmt.kind == "unrolled"):
                    for k in range(number):
                        yield from self.flat(stmt.body, context.bind({stmt.var: Const(k)}))
                elif (
                    stmt.kind == "vectorized" and context.lanes is None and self.vectors.width(stmt, context) == number
                ):
                    assert number is not None
                    lanes = Lanes(stmt.var, Const(0), number)
                    self.bounds[stmt.var] = Const(number)
                    yield from self.flat(stmt.body, replace(context, lanes=lanes))
                else:
                    yield stmt, context
            case Block():
                yield from self.block(stmt, context)
            case Invoke():
                if self.function_of(stmt) is None:
                    yield from self.flat(implementation(stmt), context)
                else:
                    yield stmt, context
            case If():
                decided = self.decided(context.of(stmt.condition))
                if not isinstance(decided, Const):
                    yield stmt, context
                elif decided.value:
                    yield from self.flat(stmt.then, context)
                elif stmt.otherwise is not None:
                    yield from self.flat(stmt.otherwise, context)
            case _:
                yield stmt, context

    def function_of(self, stmt: Invoke) -> str | None:
        """The function of a call that is not expanded in place."""
        return find_intrinsic(stmt.intrinsic).function

    def block(self, block: Block, context: EmitContext) -> Iterator[StmtInContext]:
        """The statements of a block, with bound axes; with init where a reduction starts."""
        inside = context.bind({a.var: context.of(v) for a, v in zip(block.axes, block.values, strict=True)})
        body = block.body
        if block.init is not None:
            starts = [equal(a.var, 0) for a in block.axes if a.kind == "reduce"]
            if context.lanes is not None and any(
                context.lanes.var in variables(inside.of(a.var)) for a in block.axes if a.kind == "reduce"
            ):
                raise EmitError(f"block {block.name}: a reduction is vectorized before its init was decomposed from it")
            body = Seq((If(conjunction(*starts), block.init), block.body))
        guarded = body if block.predicate == TRUE else If(block.predicate, body)
        # the predicate is over loops, the body over axes: both are known inside
        yield from self.flat(guarded, inside)

    def structured(self, stmt: Stmt, context: EmitContext) -> None:
        """A loop, a branch or a check."""
        match stmt:
            case For(kind="vectorized") if context.lanes is None:
                self.vectors.write(stmt, context)
            case For() if self.vectors.accumulates_integers(stmt, context):
                self.vectors.write(stmt, context)
            case For():
                extent = context.of(stmt.extent)
                self.loop(stmt.var, extent, self.spell.value(extent).text, stmt.body, context)
            case If():
                self.branch(stmt, context)
            case Check():
                self.check(stmt, context)
            case Invoke():
                self.call(stmt, context)
            case _:
                raise EmitError(f"{type(stmt).__name__} has no source")

    def call(self, stmt: Invoke, context: EmitContext) -> None:
        """A call of a library's function."""
        intrinsic = find_intrinsic(stmt.intrinsic)
        args: list[str] = []
        for param, arg in zip(intrinsic.description.params, stmt.args, strict=True):
            if isinstance(arg, BufferRegion):
                assert isinstance(param, Buffer)
                if arg.buffer.scope == "local" and arg.buffer not in self.stacked:
                    raise NeedsMemory(arg.buffer)
                start = Load(arg.buffer, tuple(context.of(side.start) for side in arg.ranges))
                strides = [arg.buffer.row_major[k] for k in sides(arg, len(param.shape))[:-1]]
                args += [self.name(arg.buffer), self.index(self.spell.address(start))]
                args += [self.spell.value(stride).text for stride in strides]
            else:
                args.append(self.spell.value(context.of(arg)).text)
        self.line(f"{self.spell.library(str(intrinsic.function))}({', '.join(args)})")

    def index(self, address: Polynomial) -> str:
        """An address as source."""
        return self.spell.names.sum(address).text

    def branch(self, stmt: If, context: EmitContext) -> None:
        """A branch; both sides, masked, where the condition differs between lanes."""
        if context.lanes is not None and stmt.otherwise is None:
            parts = list(conjuncts(stmt.condition))
            wide = [c for c in parts if context.lanes.var in variables(context.of(c))]
            if 0 < len(wide) < len(parts):  # what all lanes share is no mask: where it fails, no address is in bounds
                shared = conjunction(*(c for c in parts if c not in wide))
                self.branch(If(shared, If(conjunction(*wide), stmt.then)), context)
                return
        condition = self.spell.value(context.of(stmt.condition), context.lanes)
        if condition.wide and context.lanes is not None:
            sides = [(stmt.then, condition.within(4))]
            sides += [] if stmt.otherwise is None else [(stmt.otherwise, f"~{condition.within(8)}")]
            for side, side_mask in sides:
                mask = self.fresh("m")
                self.line(f"{mask} = {side_mask}" + (f" & {context.lanes.mask}" if context.lanes.mask else ""))
                self.write(side, replace(context, lanes=replace(context.lanes, mask=mask)))
            return
        self.line(f"if {condition.text}:")
        self.indented(stmt.then, context)
        if stmt.otherwise is not None:
            self.line("else:")
            self.indented(stmt.otherwise, context)

    def check(self, stmt: Check, context: EmitContext) -> None:
        """An assertion: the kernel ends with the number of the message."""
        if stmt.message not in self.messages:
            self.messages.append(stmt.message)
        condition = self.spell.value(context.of(stmt.condition), context.lanes)
        text = f"{self.spell.use('reduce_and')}({condition.text})" if condition.wide else condition.within(1)
        if condition.wide and context.lanes is not None and context.lanes.mask is not None:
            text = f"{self.spell.use('reduce_and')}({condition.within(2)} | ~{context.lanes.mask})"
        self.line(f"if not ({text}):")
        self.line(f"    return {self.messages.index(stmt.message) + 1}")

    # ------------------------------------------------------------------ straight stretches

    def stretch(self, stores: Sequence[tuple[Store, EmitContext]]) -> None:
        """A straight-line stretch of stores, with common subexpressions computed once."""
        elements = [(Load(s.buffer, tuple(map(p.of, s.indices))), p.of(s.value), p.lanes) for s, p in stores]
        written = {target.buffer for target, _, _ in elements}
        seen: Counter[Expr] = Counter()
        for _, value, _ in elements:
            self.spell.safe |= {e for e in eager(value, written, set()) if isinstance(e, Load)}
        for _, value, _ in elements:
            seen.update(eager(value, written, self.spell.safe))
        self.spell.shared = {e for e, n in seen.items() if n > 1}
        for target, value, lanes in elements:
            self.store(target, value, lanes)
        self.spell.shared, self.spell.safe, self.spell.known = set(), set(), {}

    def store(self, target: Load, value: Expr, lanes: Lanes | None) -> None:
        """One store: to memory, or to a variable."""
        address = self.spell.address(target)
        invariant = lanes is not None and not any(
            lanes.var in variables(atom) for product in address.terms for atom in product
        )
        mask = None
        if lanes is not None and invariant and target.buffer not in self.private.get(lanes.var, ()):
            mask = None if accumulated(target, value) else lanes.mask
            text, lanes = self.horizontal(target, value, lanes), None
        else:
            text = self.spell.value(value, lanes)
        variable = self.local(target, address, lanes, written=True)
        if variable is None:
            self.stores += target.buffer.scope != "local"
            if mask is not None:  # one element for all lanes, of which some count
                self.line(f"if {self.spell.use('reduce_or')}({mask}):")
            self.depth += mask is not None
            self.spell.store(target, text, lanes)
            self.depth -= mask is not None
            return
        if lanes is not None and not text.wide:
            text = Text(f"{self.spell.use('splat')}({text.text}, {lanes.count})")
        self.line(f"{variable.text} = {text.text}")

    def horizontal(self, target: Load, value: Expr, lanes: Lanes) -> Text:
        """A horizontal reduction: the element combined with all lanes; the value, where all lanes agree on it."""
        accumulation = accumulated(target, value)
        if accumulation is None:
            if self.spell.value(value, lanes).wide:
                raise EmitError(f"lanes that all write one element of {target.buffer.name}")
            return self.spell.value(value)
        fn, step = accumulation
        text = self.spell.value(step, lanes)
        if not text.wide:
            raise EmitError(f"a vectorized loop repeats one value into {target.buffer.name}")
        wide = text.text
        if lanes.mask is not None:
            wide = self.spell.chosen(lanes.mask, wide, identity(fn, value.dtype), lanes)
        partial = Var(f"{self.spell.use(HORIZONTAL[fn])}({wide})", value.dtype)  # source that stands for its value
        return self.spell.applied(Apply(fn, (target, partial), value.dtype), None)

    # ------------------------------------------------------------------ local buffers

    def local(self, load: Load, address: Polynomial, lanes: Lanes | None, written: bool = False) -> Text | None:
        """The variable of an element (or a vector of elements) of a local buffer."""
        buffer = load.buffer
        if buffer.scope != "local" or buffer in self.stacked:
            return None
        count_ = 1
        if lanes is not None:
            parts = address.split(lanes.var)
            if parts is None or parts[0].number not in (0, 1):
                raise NeedsMemory(buffer)
            if parts[0].number == 1:
                address, count_ = parts[1] + polynomial(lanes.base, self.bounds), lanes.count
            elif buffer in self.private.get(lanes.var, ()):  # each iteration, so each lane, has a buffer of its own
                count_ = lanes.count
        if address.number is None:
            raise NeedsMemory(buffer)
        registers = self.registers.setdefault(buffer, {})
        key = (address.number, count_)
        if key not in registers:
            if not written or any(k < key[0] + key[1] and key[0] < k + n for k, n in registers):
                raise NeedsMemory(buffer)
            registers[key] = f"{self.name(buffer)}_{key[0]}"
        return Text(registers[key], ATOM, count_ > 1)

    def stack(self, buffer: Buffer) -> None:
        """The line that allocates a local buffer on the stack."""
        size = polynomial(_count(buffer)).number
        if size is None:
            raise EmitError(f"the local buffer {buffer.name} has no size that is known ahead of time")
        kept = self.spell.use(STORED.get(buffer.dtype, buffer.dtype))
        self.line(f"{self.name(buffer)} = {self.spell.use('stack')}({size}, {kept})")


def _count(buffer: Buffer) -> Expr:
    """The number of elements from the first to the last one of a buffer."""
    total: Expr = Const(1)
    if buffer.strides is None:
        for extent in buffer.shape:
            total = total * extent
    else:
        for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
            total = total + (extent - 1) * stride
    return total
