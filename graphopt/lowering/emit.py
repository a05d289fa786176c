"""Nests as Python source that numba compiles: self-contained, readable, the same for equal nests.

The outermost loop, where it is parallel, becomes the kernel's range of work items. Unrolled loops are
written out; a vectorized loop becomes operations on vectors of as many lanes as the host has, with a
masked step for what is left over; where such a loop reduces, each lane keeps a value of its own.
Elements of *local* buffers are variables where all their indices are numbers by then, so a tile of
accumulators lives in registers; otherwise such a buffer lies on the stack. Values that a straight
stretch of statements needs twice are computed once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, groupby
from keyword import iskeyword
from typing import TypeAlias

from graphopt.kernels.host import lanes as lanes_of
from graphopt.kernels.kernel import SIZE, Kernel
from graphopt.lowering.addresses import Polynomial, polynomial
from graphopt.lowering.compute import highest, lowest
from graphopt.lowering.expressions import (
    Apply,
    Const,
    Expr,
    Load,
    Var,
    conjunction,
    const,
    equal,
    rewrite,
    walk,
)
from graphopt.lowering.intrinsics import find_intrinsic, implementation, sides
from graphopt.lowering.loops import (
    TRUE,
    Block,
    Buffer,
    Check,
    For,
    If,
    Invoke,
    Nest,
    Region,
    Seq,
    Stmt,
    Store,
    loads,
    statements,
)
from graphopt.lowering.spelling import ATOM, TAKEN, Lanes, Speller, Text, imports

Env: TypeAlias = Mapping[Var, Expr]
Accumulators: TypeAlias = Mapping[Load, tuple[str, str]]
"""For elements that a vectorized loop reduces into, the function by which, and the name of a vector."""
SEVERAL = 4
"""Vectors that a reduction is kept in, so that one step need not wait for the one before."""
STACK = 1 << 18
"""Bytes that the local buffers of a nest may take at most."""
HORIZONTAL = {"add": "reduce_add", "mul": "reduce_mul", "max": "reduce_max", "min": "reduce_min"} | {
    "or": "reduce_or",
    "and": "reduce_and",
}


class EmitError(Exception):
    """A nest that no source can be written for: its schedule asks for what the target does not have."""


@dataclass(frozen=True, slots=True)
class Emitted:
    """A kernel and what to call it with: its parameters are the addresses of ``buffers``, then ``sizes``.

    The buffers behind the nest's own are scratch memory, shared by all work items. ``extent`` is the number of work
    items; ``messages[k - 1]`` is what the status ``k`` means.
    """

    kernel: Kernel
    buffers: tuple[Buffer, ...]
    sizes: tuple[Var, ...]
    extent: Expr
    parallel: bool
    messages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a statement stands: what its variables are, and the vectorized loop that it is in."""

    env: Env
    lanes: Lanes | None = None

    def of(self, expr: Expr) -> Expr:
        """The expression over loop variables alone."""
        return rewrite(expr, lambda e: self.env.get(e) if isinstance(e, Var) else None) if self.env else expr

    def bind(self, more: Env) -> _Place:
        return replace(self, env={**self.env, **more})


Item: TypeAlias = tuple[Stmt, _Place]


def emit(nest: Nest) -> Emitted:
    """The kernel that does what the nest says. EmitError where its schedule cannot be written down."""
    stacked: set[Buffer] = set()
    while True:
        try:
            return _Writer(nest, stacked).emitted()
        except _NeedsMemory as need:  # an element that is chosen while the kernel runs cannot be a variable
            stacked.add(need.buffer)


class _NeedsMemory(Exception):  # noqa: N818  not an error
    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer


class _Writer:
    """Writes one kernel."""

    def __init__(self, nest: Nest, stacked: set[Buffer]) -> None:
        self.nest, self.stacked = nest, stacked
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[Buffer, str] = {}
        self.numbers = count()
        self.messages: list[str] = []
        self.registers: dict[Buffer, dict[tuple[int, int], str]] = {}
        self.bounds: dict[Var, int] = {}
        self.order: list[Var] = []
        self.private = _private(nest)
        self.spell = Speller(self.line, self.name, self.local, self.fresh, self.bounds, self.order)

    # ------------------------------------------------------------------ the whole

    def emitted(self) -> Emitted:
        nest = self.nest
        shared = tuple(b for b in nest.allocs if b.scope != "local")
        buffers = (*nest.buffers, *shared)
        for buffer in (*buffers, *nest.allocs):
            self.name(buffer)
        for buffer in nest.allocs:
            if buffer in self.stacked:
                self.stack(buffer)
        body, extent = nest.body, Const(1)
        place = _Place({})
        parallel = isinstance(body, For) and body.kind == "parallel"
        if isinstance(body, For) and parallel:
            extent = body.extent  # type: ignore[assignment]
            self.loop(body.var, extent, "lo, hi", body.body, place)
        else:
            self.line("for _ in range(lo, hi):")
            self.indented(body, place)
        self.line("return 0")
        params = [self.name(b) for b in buffers] + [v.name for v in nest.sizes]
        header = [f'"""{nest.name}"""', *self.header(), ""]
        definition = f"def kernel({', '.join([*params, 'lo', 'hi'])}):"
        kinds = tuple(b.dtype for b in buffers) + (SIZE,) * len(nest.sizes)
        source = "\n".join([*header, definition, *self.lines]) + "\n"
        return Emitted(Kernel(source, kinds), buffers, nest.sizes, extent, parallel, tuple(self.messages))

    def header(self) -> Iterator[str]:
        used = self.spell.used
        if constants := sorted(used & {"inf", "nan"}):
            yield f"from math import {', '.join(constants)}"
            yield ""
        for module, names in imports(used, self.spell.libraries).items():
            if names:
                yield f"from {module} import {', '.join(names)}"
        yield ""

    def line(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, letter: str) -> str:
        """A name that nothing has yet."""
        return f"{letter}{next(self.numbers)}_"

    def name(self, buffer: Buffer) -> str:
        """What the buffer is called in the source."""
        if buffer not in self.names:
            self.names[buffer] = buffer.name + ("_" if buffer.name in TAKEN or iskeyword(buffer.name) else "")
        return self.names[buffer]

    def indented(self, stmt: Stmt, place: _Place) -> None:
        """The statement one level in; what is known there is forgotten behind it."""
        kept, self.depth = dict(self.spell.known), self.depth + 1
        before = len(self.lines)
        self.write(stmt, place)
        if len(self.lines) == before:
            self.line("pass")
        self.depth -= 1
        self.spell.known = kept

    def loop(self, var: Var, extent: Expr, steps: str, body: Stmt, place: _Place) -> None:
        """A loop of source over ``range(steps)``."""
        if isinstance(extent, Const):
            self.bounds[var] = int(extent.value)
        self.order.append(var)
        self.line(f"for {var.name} in range({steps}):")
        self.indented(body, place)
        self.order.remove(var)
        self.bounds.pop(var, None)

    # ------------------------------------------------------------------ statements

    def write(self, stmt: Stmt, place: _Place) -> None:
        """Source of the statement: straight stretches of stores, and what lies between them."""
        items = list(self.flat(stmt, place))
        for straight, group in groupby(items, lambda item: isinstance(item[0], Store)):
            if straight:
                self.stretch([(s, p) for s, p in group if isinstance(s, Store)])
            else:
                for inner, where in group:
                    self.structured(inner, where)

    def flat(self, stmt: Stmt, place: _Place) -> Iterator[Item]:
        """The statements one after another, unrolled loops written out and blocks opened."""
        match stmt:
            case Seq():
                for inner in stmt.stmts:
                    yield from self.flat(inner, place)
            case For():
                extent = place.of(stmt.extent)
                number = int(extent.value) if isinstance(extent, Const) else None
                if number == 1 or (number is not None and stmt.kind == "unrolled"):
                    for k in range(number):
                        yield from self.flat(stmt.body, place.bind({stmt.var: Const(k)}))
                elif stmt.kind == "vectorized" and place.lanes is None and self.width(stmt, place) == number:
                    assert number is not None
                    lanes = Lanes(stmt.var, Const(0), number)
                    yield from self.flat(stmt.body, replace(place, lanes=lanes))
                else:
                    yield stmt, place
            case Block():
                yield from self.block(stmt, place)
            case Invoke():
                if find_intrinsic(stmt.intrinsic).function is None:
                    yield from self.flat(implementation(stmt), place)
                else:
                    yield stmt, place
            case If():
                decided = place.of(stmt.condition)
                if not isinstance(decided, Const):
                    yield stmt, place
                elif decided.value:
                    yield from self.flat(stmt.then, place)
                elif stmt.otherwise is not None:
                    yield from self.flat(stmt.otherwise, place)
            case _:
                yield stmt, place

    def block(self, block: Block, place: _Place) -> Iterator[Item]:
        """The block's statements, its axes bound; init where a reduction starts."""
        inside = place.bind({a.var: place.of(v) for a, v in zip(block.axes, block.values, strict=True)})
        body = block.body
        if block.init is not None:
            starts = [equal(a.var, 0) for a in block.axes if a.kind == "reduce"]
            if place.lanes is not None and any(
                place.lanes.var in _variables(inside.of(a.var)) for a in block.axes if a.kind == "reduce"
            ):
                raise EmitError(f"block {block.name}: a reduction is vectorized before its init was decomposed from it")
            body = Seq((If(conjunction(*starts), block.init), block.body))
        guarded = body if block.predicate == TRUE else If(block.predicate, body)
        # the predicate is over loops, the body over axes: both are known inside
        yield from self.flat(guarded, inside)

    def structured(self, stmt: Stmt, place: _Place) -> None:
        """A loop, a branch or a check."""
        match stmt:
            case For(kind="vectorized") if place.lanes is None:
                self.vectorized(stmt, place)
            case For():
                extent = place.of(stmt.extent)
                self.loop(stmt.var, extent, self.spell.value(extent).text, stmt.body, place)
            case If():
                self.branch(stmt, place)
            case Check():
                self.check(stmt, place)
            case Invoke():
                self.call(stmt, place)
            case _:
                raise EmitError(f"{type(stmt).__name__} has no source")

    def call(self, stmt: Invoke, place: _Place) -> None:
        """A call of a library's function."""
        intrinsic = find_intrinsic(stmt.intrinsic)
        args: list[str] = []
        for param, arg in zip(intrinsic.description.params, stmt.args, strict=True):
            if isinstance(arg, Region):
                assert isinstance(param, Buffer)
                if arg.buffer.scope == "local" and arg.buffer not in self.stacked:
                    raise _NeedsMemory(arg.buffer)
                start = Load(arg.buffer, tuple(place.of(side.start) for side in arg.ranges))
                first = sides(arg, len(param.shape))[0]
                stride = arg.buffer.row_major[first]
                args += [self.name(arg.buffer), self.index(self.spell.address(start)), self.spell.value(stride).text]
            else:
                args.append(self.spell.value(place.of(arg)).text)
        self.line(f"{self.spell.library(str(intrinsic.function))}({', '.join(args)})")

    def index(self, place: Polynomial) -> str:
        """An address as source."""
        return self.spell.value(place.expr(self.order)).text

    def branch(self, stmt: If, place: _Place) -> None:
        condition = self.spell.value(place.of(stmt.condition), place.lanes)
        if condition.wide and place.lanes is not None:
            sides = [(stmt.then, condition.within(4))]
            sides += [] if stmt.otherwise is None else [(stmt.otherwise, f"~{condition.within(8)}")]
            for side, own in sides:
                mask = self.fresh("m")
                self.line(f"{mask} = {own}" + (f" & {place.lanes.mask}" if place.lanes.mask else ""))
                self.write(side, replace(place, lanes=replace(place.lanes, mask=mask)))
            return
        self.line(f"if {condition.text}:")
        self.indented(stmt.then, place)
        if stmt.otherwise is not None:
            self.line("else:")
            self.indented(stmt.otherwise, place)

    def check(self, stmt: Check, place: _Place) -> None:
        if stmt.message not in self.messages:
            self.messages.append(stmt.message)
        condition = self.spell.value(place.of(stmt.condition), place.lanes)
        text = f"{self.spell.use('reduce_and')}({condition.text})" if condition.wide else condition.within(1)
        if condition.wide and place.lanes is not None and place.lanes.mask is not None:
            text = f"{self.spell.use('reduce_and')}({condition.within(2)} | ~{place.lanes.mask})"
        self.line(f"if not ({text}):")
        self.line(f"    return {self.messages.index(stmt.message) + 1}")

    # ------------------------------------------------------------------ straight stretches

    def stretch(self, stores: Sequence[tuple[Store, _Place]]) -> None:
        """Stores one after another; what several of them need is computed once."""
        made = [(Load(s.buffer, tuple(map(p.of, s.indices))), p.of(s.value), p.lanes) for s, p in stores]
        written = {target.buffer for target, _, _ in made}
        seen: Counter[Expr] = Counter()
        for _, value, _ in made:
            self.spell.safe |= {e for e in _eager(value, written, set()) if isinstance(e, Load)}
        for _, value, _ in made:
            seen.update(_eager(value, written, self.spell.safe))
        self.spell.shared = {e for e, n in seen.items() if n > 1}
        for target, value, lanes in made:
            self.store(target, value, lanes)
        self.spell.shared, self.spell.safe, self.spell.known = set(), set(), {}

    def store(self, target: Load, value: Expr, lanes: Lanes | None) -> None:
        """One store: to memory, or to a variable."""
        place = self.spell.address(target)
        invariant = lanes is not None and not any(
            lanes.var in _variables(atom) for product in place.terms for atom in product
        )
        if lanes is not None and invariant and target.buffer not in self.private.get(lanes.var, ()):
            text, lanes = self.horizontal(target, value, lanes), None
        else:
            text = self.spell.value(value, lanes)
        variable = self.local(target, place, lanes, written=True)
        if variable is None:
            self.spell.store(target, text, lanes)
            return
        if lanes is not None and not text.wide:
            text = Text(f"{self.spell.use('splat')}({text.text}, {lanes.count})")
        self.line(f"{variable.text} = {text.text}")

    def horizontal(self, target: Load, value: Expr, lanes: Lanes) -> Text:
        """The element combined with all lanes of what is combined into it; the value, where all lanes agree on it."""
        fn, step = _accumulated(target, value)
        if fn is None or step is None:
            if self.spell.value(value, lanes).wide:
                raise EmitError(f"lanes that all write one element of {target.buffer.name}")
            return self.spell.value(value)
        text = self.spell.value(step, lanes)
        if not text.wide:
            raise EmitError(f"a vectorized loop repeats one value into {target.buffer.name}")
        wide = text.text
        if lanes.mask is not None:
            wide = self.chosen(lanes.mask, wide, _identity(fn, value.dtype), lanes)
        partial = Var(f"{self.spell.use(HORIZONTAL[fn])}({wide})", value.dtype)  # source that stands for its value
        return self.spell.applied(Apply(fn, (target, partial), value.dtype), None)

    def chosen(self, mask: str, wide: str, identity: Const, lanes: Lanes) -> str:
        """The vector with an identity in lanes that do not count."""
        nothing = f"{self.spell.use('splat')}({self.spell.constant(identity).text}, {lanes.count})"
        return f"{self.spell.use('select')}({mask}, {wide}, {nothing})"

    # ------------------------------------------------------------------ vectorized loops

    def width(self, loop: For, place: _Place) -> int:
        """How many iterations are done at once: the host's lanes for the widest elements that are computed with."""
        dtypes = {
            e.dtype
            for s in statements(loop.body)
            if isinstance(s, Store)
            for e in (Load(s.buffer, s.indices), *walk(s.value))
            if not (isinstance(e, (Const, Var)) or (e.dtype == "int64" and not isinstance(e, Load)))
        }
        native = min(
            (lanes_of("float64" if d in ("int64", "uint64", "float64") else "float32") for d in dtypes), default=1
        )
        extent = place.of(loop.extent)
        if isinstance(extent, Const) and 1 < int(extent.value) < native and int(extent.value).bit_count() == 1:
            return int(extent.value)
        return native

    def vectorized(self, loop: For, place: _Place) -> None:
        """A loop over vectors, and one masked step for what is left over."""
        extent, lanes = place.of(loop.extent), self.width(loop, place)
        if lanes == 1:
            self.loop(loop.var, extent, self.spell.value(extent).text, loop.body, place)
            return
        before = dict(self.spell.held)
        self.spell.held |= self.invariants(loop, place, lanes)
        self.vectors(loop, place, extent, lanes)
        self.spell.held = before

    def invariants(self, loop: For, place: _Place, lanes: int) -> dict[Expr, Text]:
        """Names for what all steps of a loop read from memory, and compute from it, alike: where memory is written in
        between, LLVM cannot know that it stays the same."""
        items = list(self.flat(loop.body, replace(place, lanes=Lanes(loop.var, loop.var, lanes))))
        stores = [(s, p) for s, p in items if isinstance(s, Store)]
        if len(stores) < len(items):
            return {}
        written = {s.buffer for s, _ in stores}
        found = dict.fromkeys(e for s, p in stores for e in _invariant(p.of(s.value), loop.var, written))
        names: dict[Expr, Text] = {}
        for expr in [e for e in found if e not in self.spell.held]:
            text = self.spell.value(expr)
            names[expr] = Text(self.fresh("h"))
            self.line(f"{names[expr].text} = {text.text}")
        return names

    def vectors(self, loop: For, place: _Place, extent: Expr, lanes: int) -> None:
        """The steps of a vectorized loop."""
        accumulators = self.accumulators(loop, place, lanes)
        number = int(extent.value) if isinstance(extent, Const) else None
        is_long = number is None or number >= SEVERAL * lanes
        many = SEVERAL if 0 < len(accumulators) <= SEVERAL and is_long else 1
        chosen = [self.identities(accumulators, lanes) for _ in range(many)]
        begin = self.rounded(extent, many * lanes)
        if many > 1:
            self.order.append(loop.var)
            self.line(f"for {loop.var.name} in range(0, {begin}, {many * lanes}):")
            for k, own in enumerate(chosen):
                self.step(loop, replace(place, lanes=Lanes(loop.var, loop.var + k * lanes, lanes)), own)
            self.order.remove(loop.var)
            self.joined(chosen)
        whole = self.rounded(extent, lanes)
        if number is None or (number >= lanes and (many == 1 or whole != begin)):
            self.order.append(loop.var)
            self.line(f"for {loop.var.name} in range({begin if many > 1 else 0}, {whole}, {lanes}):")
            self.step(loop, replace(place, lanes=Lanes(loop.var, loop.var, lanes)), chosen[0])
            self.order.remove(loop.var)
        left = 0 if number is None else number % lanes
        if left.bit_count() == 1 and not accumulators and not self.private.get(loop.var):  # a shorter vector
            base = Const(int(whole))
            self.depth -= 1
            short = replace(place, lanes=Lanes(loop.var, base, left)) if left > 1 else place.bind({loop.var: base})
            self.step(loop, short, {})
            self.depth += 1
        elif number is None or left:
            text = self.spell.value(extent)
            rest = f"{number % lanes}" if number is not None else f"{text.within(6)} % {lanes}"
            if number is None:
                self.line(f"if {rest}:")
            self.depth += number is None
            mask = self.fresh("m")
            self.line(f"{mask} = {self.spell.use('first_lanes')}({rest}, {lanes})")
            start: Expr = Const(int(whole)) if number is not None else Var(f"({whole})")
            where = replace(place, lanes=Lanes(loop.var, start, lanes, mask))
            self.depth -= 1
            self.step(loop, where, chosen[0])
            self.depth += number is not None
        for target, (fn, name) in chosen[0].items():
            partial = Var(f"{self.spell.use(HORIZONTAL[fn])}({name})", target.dtype)
            whole_value = self.spell.applied(Apply(fn, (target, partial), target.dtype), None)
            variable = self.local(target, self.spell.address(target), None, written=True)
            if variable is None:
                self.spell.store(target, whole_value, None)
            else:
                self.line(f"{variable.text} = {whole_value.text}")

    def rounded(self, extent: Expr, step: int) -> str:
        """The extent, down to a multiple."""
        if isinstance(extent, Const):
            return str(int(extent.value) // step * step)
        return f"{self.spell.value(extent).within(6)} // {step} * {step}"

    def identities(self, targets: Mapping[Load, str], lanes: int) -> Accumulators:
        """A vector for each element that a loop reduces into, which starts with what changes nothing."""
        found = {}
        for target, fn in targets.items():
            name = self.fresh("a")
            identity = self.spell.constant(_identity(fn, target.dtype)).text
            self.line(f"{name} = {self.spell.use('splat')}({identity}, {lanes})")
            found[target] = (fn, name)
        return found

    def joined(self, several: Sequence[Accumulators]) -> None:
        """Combines accumulators of the same elements: the first half with the second, until one is left."""
        while len(several) > 1:
            half = len(several) // 2
            for first, second in zip(several[:half], several[half:], strict=True):
                for target, (fn, name) in first.items():
                    own, more = Var(name, target.dtype), Var(second[target][1], target.dtype)
                    self.line(f"{name} = {self.combined(fn, own, more, more, Lanes(own, own, 1))}")
            several = several[:half]

    def step(self, loop: For, place: _Place, accumulators: Accumulators) -> None:
        """The body of a vectorized loop, its own reductions going to accumulators."""
        if not accumulators:
            self.indented(loop.body, place)
            return
        self.depth += 1
        for stmt, where in self.flat(loop.body, place):
            assert isinstance(stmt, Store)
            assert where.lanes is not None
            target = Load(stmt.buffer, tuple(map(where.of, stmt.indices)))
            fn, name = accumulators[target]
            value = where.of(stmt.value)
            assert isinstance(value, Apply)
            step = _accumulated(target, value)[1]
            assert step is not None
            text = self.spell.same_width([self.spell.value(step, where.lanes), Text("", ATOM, True)], where.lanes)[0]
            if where.lanes.mask is not None:
                text = self.chosen(where.lanes.mask, text, _identity(fn, value.dtype), where.lanes)
            own, more = Var(name, value.dtype), Var(text, value.dtype)
            self.line(f"{name} = {self.combined(fn, own, more, step, where.lanes)}")
        self.depth -= 1

    def combined(self, fn: str, own: Var, more: Var, step: Expr, lanes: Lanes) -> str:
        """The accumulator with a vector combined into it."""
        if fn == "add" and lanes.mask is None and isinstance(step, Apply) and step.fn == "mul":
            a, b = (self.spell.value(x, lanes) for x in step.args)
            if own.dtype.startswith("float"):
                args = self.spell.same_width([a, b], lanes)
                return f"{self.spell.use('fma')}({', '.join(args)}, {own.name})"
        words = {"add": "+", "mul": "*", "or": "|", "and": "&"}
        if fn in words:
            return f"{own.name} {words[fn]} ({more.name})"
        return f"{self.spell.use({'max': 'maximum', 'min': 'minimum'}[fn])}({own.name}, {more.name})"

    def accumulators(self, loop: For, place: _Place, lanes: int) -> dict[Load, str]:
        """The elements that the loop reduces into, and by which function; none where it does anything else as well."""
        found: dict[Load, str] = {}
        inside = replace(place, lanes=Lanes(loop.var, loop.var, lanes))
        for stmt, where in self.flat(loop.body, inside):
            if not isinstance(stmt, Store):
                return {}
            target, value = Load(stmt.buffer, tuple(map(where.of, stmt.indices))), where.of(stmt.value)
            fn, step = _accumulated(target, value)
            if fn is None or step is None or any(loop.var in _variables(i) for i in target.indices):
                return {}
            if any(isinstance(e, Load) and e.buffer == target.buffer for e in walk(step)) or target in found:
                return {}
            found[target] = fn
        return found

    # ------------------------------------------------------------------ local buffers

    def local(self, load: Load, place: Polynomial, lanes: Lanes | None, written: bool = False) -> Text | None:
        """The variable that is the element (or the vector of elements) of a local buffer."""
        buffer = load.buffer
        if buffer.scope != "local" or buffer in self.stacked:
            return None
        count_ = 1
        if lanes is not None:
            parts = place.split(lanes.var)
            if parts is None or parts[0].number not in (0, 1):
                raise _NeedsMemory(buffer)
            if parts[0].number == 1:
                place, count_ = parts[1] + polynomial(lanes.base, self.bounds), lanes.count
            elif buffer in self.private.get(lanes.var, ()):  # each iteration, so each lane, has a buffer of its own
                count_ = lanes.count
        if place.number is None:
            raise _NeedsMemory(buffer)
        own = self.registers.setdefault(buffer, {})
        key = (place.number, count_)
        if key not in own:
            if not written or any(k < key[0] + key[1] and key[0] < k + n for k, n in own):
                raise _NeedsMemory(buffer)
            own[key] = f"{self.name(buffer)}_{key[0]}"
        return Text(own[key], ATOM, count_ > 1)

    def stack(self, buffer: Buffer) -> None:
        """The line that gives a local buffer its memory."""
        size = polynomial(_product(buffer.shape)).number if buffer.strides is None else None
        if size is None:
            raise EmitError(f"the local buffer {buffer.name} has no size that is known ahead of time")
        self.line(f"{self.name(buffer)} = {self.spell.use('stack')}({size}, {self.spell.use(_kept(buffer.dtype))})")


def _private(nest: Nest) -> dict[Var, frozenset[Buffer]]:
    """For each vectorized loop the local buffers that are used only within one iteration of it."""
    own = [b for b in nest.allocs if b.scope == "local"]
    everywhere = _uses(nest.body)
    return {
        s.var: frozenset(b for b in own if (n := inside[b]) and n == everywhere[b])
        for s in statements(nest.body)
        if isinstance(s, For) and s.kind == "vectorized"
        for inside in [_uses(s)]
    }


def _uses(stmt: Stmt) -> Counter[Buffer]:
    """How often each buffer is read or written."""
    written = [s.buffer for s in statements(stmt) if isinstance(s, Store)]
    return Counter([*written, *(load.buffer for load in loads(stmt))])


def _product(extents: Sequence[Expr]) -> Expr:
    total: Expr = Const(1)
    for extent in extents:
        total = total * extent
    return total


def _kept(dtype: str) -> str:
    return {"bool": "uint8", "float16": "uint16", "bfloat16": "uint16"}.get(dtype, dtype)


def _variables(expr: Expr) -> frozenset[Var]:
    return frozenset(e for e in walk(expr) if isinstance(e, Var))


def _eager(expr: Expr, written: set[Buffer], safe: set[Expr]) -> Iterator[Expr]:
    """The parts of an expression that may be computed whatever is chosen, are worth a name, and stay as they are."""
    if isinstance(expr, Load):
        if expr.buffer.scope != "local" and expr.buffer not in written:
            yield expr
    elif isinstance(expr, Apply):
        reads = [e for e in walk(expr) if isinstance(e, Load)]
        if expr.dtype != "int64" and not any(e.buffer in written for e in reads):
            yield expr
        for k, arg in enumerate(expr.args):
            if k == 0 or expr.fn != "select" or all(e in safe for e in walk(arg) if isinstance(e, Load)):
                yield from _eager(arg, written, safe)


def _invariant(expr: Expr, var: Var, written: set[Buffer]) -> Iterator[Expr]:
    """The parts of an expression, as large as possible, that are read from memory, or computed from it, and are the
    same whatever ``var`` is; of indices, loads alone."""
    loads_ = [e for e in walk(expr) if isinstance(e, Load)]
    same = var not in _variables(expr) and not any(e.buffer in written for e in loads_)
    if isinstance(expr, Load):
        if same and expr.buffer.scope != "local":
            yield expr
        for index in () if same else expr.indices:
            for part in walk(index):
                if isinstance(part, Load):
                    yield from _invariant(part, var, written)
    elif isinstance(expr, Apply):
        if same and expr.dtype != "int64" and any(e.buffer.scope != "local" for e in loads_):
            yield expr
            return
        for arg in expr.args[:1] if expr.fn == "select" else expr.args:
            yield from _invariant(arg, var, written)


def _accumulated(target: Load, value: Expr) -> tuple[str | None, Expr | None]:
    """The function by which a value is combined into the element, and that value."""
    if isinstance(value, Apply) and value.fn in HORIZONTAL and target in value.args:
        other = value.args[1] if value.args[0] == target else value.args[0]
        return value.fn, other
    return None, None


def _identity(fn: str, dtype: str) -> Const:
    match fn:
        case "max":
            return lowest(dtype)
        case "min":
            return highest(dtype)
    return const(fn in ("mul", "and"), dtype)
