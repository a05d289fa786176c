"""CUDA code generation: nests as Python source for numba, each statement as a kernel launch or a library call.

A loop that is bound to an axis of blocks or threads becomes the number of the block or thread. What stands outside of
the loops over threads is done by one thread, unless it only fills registers. Elements of a local buffer are each
thread's own: the part of an index that says which thread it is, is dropped. Vectorized loops are written out, and read
and write neighbouring elements at once where these are aligned.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from graphopt.ir.constants import BITS
from graphopt.kernels.cuda.limits import ACCESS, COPIES, SHARED, WARP
from graphopt.kernels.kernel import STORED, Kernel
from graphopt.lowering.cpu.compact_buffers import compacted
from graphopt.lowering.cuda.barriers import BARRIER, is_over_threads, synchronized
from graphopt.lowering.cuda.library_calls import is_for_library, library_call
from graphopt.lowering.cuda.threads import AHEAD
from graphopt.lowering.cuda.warp_calls import LOAD, MULTIPLY, multiplies, write_warp_call
from graphopt.lowering.emit.common_subexpressions import eager
from graphopt.lowering.emit.emit_context import EmitContext
from graphopt.lowering.emit.kernel_source import (
    EmitError,
    KernelFacts,
    KernelWriter,
    Launchable,
    LaunchDims,
    LibraryCall,
    StmtInContext,
    settled,
)
from graphopt.lowering.emit.statement_text import Lanes, Text
from graphopt.lowering.index.arithmetic import multiple
from graphopt.lowering.index.polynomials import Polynomial, Product
from graphopt.lowering.loops.expressions import Const, Expr, Load, Var, loads_in, substitute, variables
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
    expressions,
    inner,
    loads,
    statements,
)

AXES = "xyz"
DEVICE = "graphopt.kernels.cuda."
"""Where functions of the device are."""
STATUS = "status"
"""The last parameter of a kernel with checks: where it says which of them did not hold."""
WIDE = (8, 4, 2)
"""How many neighbouring elements may be read or written at once."""


def emit(nest: Nest, contract: bool = True) -> tuple[tuple[Nest, Launchable | LibraryCall], ...]:
    """The kernels and calls that do what the nest says, in order, each with the part of the nest that it does;
    ``contract`` says whether products and sums may be contracted to fused multiply-adds.

    Raises EmitError where its schedule cannot be written down.
    """
    small = compacted(nest)
    stmts = small.body.stmts if isinstance(small.body, Seq) else (small.body,)
    return tuple((part, _written(part, contract)) for part in (_part(small, stmt) for stmt in stmts))


def _written(part: Nest, contract: bool) -> Launchable | LibraryCall:
    return library_call(part.body) if is_for_library(part.body) else _emitted(part, contract)


def _part(nest: Nest, stmt: Stmt) -> Nest:
    """A statement of a nest as a nest of its own, whose parameters are what it uses."""
    used = _buffers(stmt)
    allocs = tuple(b for b in nest.allocs if b in used)
    held = {v for b in used for e in b.shape for v in variables(e)}
    held |= {v for s in statements(stmt) for e in expressions(s) for v in variables(e)}
    params = tuple(p for p in nest.params if p in (used if isinstance(p, Buffer) else held))
    return Nest(nest.name, params, synchronized(stmt), allocs, nest.notes)


def _buffers(stmt: Stmt) -> set[Buffer]:
    buffers = {load.buffer for load in loads(stmt)}
    for s in statements(stmt):
        if isinstance(s, Store):
            buffers.add(s.buffer)
        elif isinstance(s, Invoke):
            buffers |= {a.buffer for a in s.args if isinstance(a, BufferRegion)}
    return buffers


def _emitted(nest: Nest, contract: bool) -> Launchable:
    return settled(lambda facts: DeviceWriter(nest, facts, contract), DeviceWriter.launchable)


class DeviceWriter(KernelWriter):
    """Writes one kernel for CUDA."""

    def __init__(
        self,
        nest: Nest,
        facts: KernelFacts,
        contract: bool = True,
    ) -> None:
        super().__init__(nest, facts, contract)
        self.spell.own = self.own
        self.spell.product = "" if contract else "product"
        self.threads: dict[Var, str] = {}
        """The axis of each loop over threads that is being written."""
        self.blocks: set[Var] = set()
        """The loops over blocks that are being written."""
        self.places: dict[Buffer, frozenset[tuple[Product, int]]] = {}
        """How an index of a local buffer says which thread's it is."""
        self.grid: dict[str, Expr] = {}
        self.dims: LaunchDims = _dims(nest.body)
        self.groups: dict[Load, tuple[Load, ...]] = {}
        """Of each element that is written together with others, all of them."""
        self.ready: dict[Load, str] = {}
        self.lane: Var | None = None
        self.is_ahead = False
        """Whether what is being written may come after what stands behind it, up to where threads wait."""
        self.waits = any(isinstance(s, For) and AHEAD in s.notes for s in statements(nest.body))

    # ------------------------------------------------------------------ the whole

    def launchable(self) -> Launchable:
        """The kernel of the nest."""
        nest = self.nest
        buffers = (*nest.buffers, *(b for b in nest.allocs if b.scope == "global"))
        for buffer in (*buffers, *nest.allocs):
            self.name(buffer)
        common = [b for b in nest.allocs if b.scope == "shared"]
        for buffer in common:
            self.reserve(buffer, "shared")
        for buffer in nest.allocs:
            if buffer in self.stacked:
                self.reserve(buffer, "local")
        if multiplies(nest):
            self.lane = self.number_in_warp()
        self.write(nest.body, EmitContext({}))
        if not self.lines:
            self.line("pass")
        sizes = self.sizes()
        status = [STATUS] if self.messages else []
        params = [self.name(b) for b in buffers] + list(sizes) + status
        header = [f'"""{nest.name}"""', *self.header(), ""]
        source = "\n".join([*header, f"def kernel({', '.join(params)}):", *self.lines]) + "\n"
        kinds = tuple(b.dtype for b in buffers) + ("size",) * len(sizes) + ("int32",) * len(status)
        shared_bytes = sum(_count(b) * _bytes(b.dtype) for b in common)
        if shared_bytes > SHARED:
            raise EmitError(
                f"{nest.name}: a block's threads share {shared_bytes} bytes, and {SHARED} is the most: use less"
            )
        x, y, z = (self.grid.get(f"blockIdx.{axis}", Const(1)) for axis in AXES)
        return Launchable(
            Kernel(source, kinds),
            buffers,
            tuple(sizes.values()),
            (x, y, z),
            self.dims,
            tuple(self.messages),
        )

    def number_in_warp(self) -> Var:
        """A variable that is a thread's number in its warp, in all of the kernel."""
        lane = Var(self.fresh("lane"))
        self.line(f"{lane.name} = {self.spell.use('thread_x')}()")
        names = self.spell.names
        names.levels[0].line, names.of_var[lane], self.bounds[lane] = len(self.lines), 0, Const(WARP)
        return lane

    def imports(self, used: set[str]) -> Mapping[str, list[str]]:
        """The names by the module that the source has them from."""
        dtypes = {n for n in used if n == "bool" or n.rstrip("0123456789") in ("int", "uint", "float")}
        functions = (used | set(self.spell.libraries)) - dtypes - {"inf", "nan"}
        return {
            "graphopt.kernels.cuda.target": sorted(dtypes),
            "graphopt.kernels.cuda.functions": sorted(functions),
        }

    def reserve(self, buffer: Buffer, where: str) -> None:
        """The line that gives a buffer its memory: ``shared`` by the threads of a block, or ``local`` to each."""
        dtype = self.spell.use(STORED.get(buffer.dtype, buffer.dtype))
        self.line(f"{self.name(buffer)} = {self.spell.use(where)}({_count(buffer)}, {dtype})")

    # ------------------------------------------------------------------ statements

    def flat(self, stmt: Stmt, place: EmitContext) -> Iterator[StmtInContext]:
        """The statements one after another; vectorized loops are written out as unrolled ones are, within a condition
        that all of their lanes have in common, so that those access memory together."""
        if isinstance(stmt, For) and stmt.kind == "vectorized":
            block = stmt.body
            if isinstance(block, Block) and block.predicate != TRUE and stmt.var not in variables(block.predicate):
                lanes = replace(stmt, body=replace(block, predicate=TRUE))
                yield from super().flat(If(block.predicate, lanes), place)
                return
            is_short = isinstance(place.of(stmt.extent), Const)
            stmt = replace(stmt, kind="unrolled" if is_short else "serial")
        if isinstance(stmt, For) and stmt.thread is not None:
            yield stmt, place
        else:
            yield from super().flat(stmt, place)

    def write(self, stmt: Stmt, place: EmitContext) -> None:
        """Source of the statement, by one thread where it stands outside of the loops over threads."""
        if self.threads or not _is_for_one(stmt, self.dims):
            super().write(stmt, place)
            return
        parts = stmt.stmts if isinstance(stmt, Seq) else (stmt,)
        for part in parts:
            if _is_for_one(part, self.dims) and not any(map(is_over_threads, statements(part))):
                axes = [axis for axis, n in zip(AXES, self.dims, strict=True) if n > 1]
                first = " and ".join(f"{self.spell.use(f'thread_{axis}')}() == 0" for axis in axes)
                self.line(f"if {first}:")
                self.threads[Var("first")] = "first"
                self.indented(part, place)
                self.threads.clear()
            else:
                super().write(part, place)

    def function_of(self, stmt: Invoke) -> str | None:
        """The device's function, where there is one: those of the host are written out."""
        function = super().function_of(stmt)
        return function if function is not None and function.startswith(DEVICE) else None

    def block(self, block: Block, place: EmitContext) -> Iterator[StmtInContext]:
        """The block's statements. EmitError where several threads would combine into one element at once."""
        spread = self.threads.keys() | self.blocks
        for axis, value in zip(block.axes, block.values, strict=True):
            is_spread = axis.kind == "reduce" and variables(place.of(value)) & spread
            if is_spread and any(w.buffer.scope != "local" for w in block.writes):
                raise EmitError(f"block {block.name}: threads would combine into one element at once: use rfactor")
        yield from super().block(block, place)

    def structured(self, stmt: Stmt, place: EmitContext) -> None:
        """A loop, a branch, a check, or a call."""
        if isinstance(stmt, For) and stmt.thread is not None:
            self.bound(stmt, stmt.thread, place)
        else:
            super().structured(stmt, place)

    def bound(self, loop: For, thread: str, place: EmitContext) -> None:
        """The loop's body, its variable being the number of the block or thread."""
        kind, _, axis = thread.partition(".")
        extent = place.of(loop.extent)
        function = f"{'block' if kind == 'blockIdx' else 'thread'}_{axis}"
        self.line(f"{loop.var.name} = {self.spell.use(function)}()")
        is_partial = False
        if kind == "blockIdx":
            if self.grid.setdefault(thread, extent) != extent:
                raise EmitError(f"{loop.var.name}: another loop over {thread} has another extent")
            self.blocks.add(loop.var)
        else:
            self.threads[loop.var] = axis
            is_partial = not isinstance(extent, Const) or int(extent.value) < self.dims[AXES.index(axis)]
        self.bounds[loop.var] = extent
        if is_partial:
            self.line(f"if {loop.var.name} < {self.spell.value(extent).within(1)}:")
            self.depth += 1
        before, kept = len(self.lines), dict(self.spell.known)
        self.is_ahead |= AHEAD in loop.notes
        self.order.append(loop.var)
        with self.spell.names.loop(loop.var, self.depth):
            self.write(loop.body, place)
        self.order.remove(loop.var)
        self.spell.known = kept
        if AHEAD in loop.notes:
            self.is_ahead = False
            self.line(f"{self.spell.use('copy_commit')}()")
        if is_partial:
            if len(self.lines) == before:
                self.line("pass")
            self.depth -= 1
        self.bounds.pop(loop.var, None)
        self.threads.pop(loop.var, None)

    def check(self, stmt: Check, place: EmitContext) -> None:
        """A condition without which the thread ends, and says so."""
        if stmt.message not in self.messages:
            self.messages.append(stmt.message)
        self.line(f"if not ({self.spell.value(place.of(stmt.condition)).within(1)}):")
        self.line(f"    {STATUS}[0] = {self.messages.index(stmt.message) + 1}")
        self.line("    return")

    def call(self, stmt: Invoke, place: EmitContext) -> None:
        """A call of a function; of one for warps, by each thread on its own elements."""
        if stmt == BARRIER and self.waits:
            self.line(f"{self.spell.use('copy_wait')}(0)")
        if stmt.intrinsic.startswith((MULTIPLY, LOAD)):
            assert self.lane is not None
            write_warp_call(self, stmt, place, self.lane)
            return
        function, region = stmt.intrinsic.rpartition("_")[0], stmt.args[0] if stmt.args else None
        if not function.startswith("warp_") or not isinstance(region, BufferRegion):
            super().call(stmt, place)
            return
        lane = Var("lane")
        self.threads[lane] = "x"
        starts = tuple(place.of(side.start) for side in region.ranges)
        register = self.spell.value(Load(region.buffer, (*starts[:-1], lane))).text
        self.threads.pop(lane)
        self.line(f"{register} = {self.spell.use(function)}({register})")

    # ------------------------------------------------------------------ straight stretches

    def stretch(self, stores: Sequence[tuple[Store, EmitContext]]) -> None:
        """Stores one after another; neighbours are read and written at once."""
        assigned = [(Load(s.buffer, tuple(map(p.of, s.indices))), p.of(s.value)) for s, p in stores]
        if self.is_ahead and self.copied(dict(assigned)):
            return
        written = {target.buffer for target, _ in assigned}
        read = [e for _, value in assigned for e in dict.fromkeys(eager(value, written, set())) if isinstance(e, Load)]
        for group in self.neighbours(dict.fromkeys(e for e in read if e.buffer.scope != "local")):
            names = [self.fresh("w") for _ in group]
            at = self.index(self.spell.address(group[0]))
            function = self.spell.use(f"load{len(group)}")
            self.line(f"{', '.join(names)} = {function}({self.name(group[0].buffer)}, {at})")
            for load, name in zip(group, names, strict=True):
                self.spell.known[load, None] = self.spell.loaded(Text(name), load.dtype)
        if sum(target.buffer.scope == "global" for target, _ in assigned) > 1:
            self.read_ahead(read)
        loaded = {e.buffer for _, value in assigned for e in loads_in(value)}
        targets = [t for t, _ in assigned if t.buffer.scope != "local" and t.buffer not in loaded]
        groups = self.neighbours(dict.fromkeys(targets)) if len(set(targets)) == len(targets) else []
        self.groups = {target: tuple(group) for group in groups for target in group}
        super().stretch(stores)
        self.groups = {}

    def read_ahead(self, loads_: Sequence[Load]) -> None:
        """Reads from memory before anything is written there: a compiler does not know that these are apart, and would
        wait for each before it writes."""
        names: dict[str, str] = {}
        for load in dict.fromkeys(loads_):
            if load.buffer.scope == "global" and (load, None) not in self.spell.known:
                element = f"{self.name(load.buffer)}[{self.index(self.spell.address(load))}]"
                if element not in names:
                    names[element] = self.fresh("w")
                    self.line(f"{names[element]} = {element}")
                self.spell.known[load, None] = self.spell.loaded(Text(names[element]), load.dtype)

    def store(self, target: Load, value: Expr, lanes: Lanes | None) -> None:
        """One store, or the last of several that are one."""
        group = self.groups.get(target)
        if group is None:
            super().store(target, value, lanes)
            return
        text = self.spell.stored(self.spell.value(value), target.dtype)
        self.ready[target] = self.fresh("w")
        self.line(f"{self.ready[target]} = {text}")
        if all(other in self.ready for other in group):
            at = self.index(self.spell.address(group[0]))
            values = ", ".join(self.ready.pop(other) for other in group)
            self.line(f"{self.spell.use(f'store{len(group)}')}({self.name(target.buffer)}, {at}, ({values}))")

    def copied(self, assigned: Mapping[Load, Expr]) -> bool:
        """Whether what is stored is copied from memory to shared memory while the thread goes on, several elements at
        once: lines for that, where it can be."""
        sources = [e for e in assigned.values() if isinstance(e, Load) and e.buffer.scope == "global"]
        if len(sources) < len(assigned) or any(
            t.buffer.scope != "shared" or t.dtype != e.dtype for t, e in assigned.items()
        ):
            return False
        groups, read = self.neighbours(assigned), self.neighbours(dict.fromkeys(sources))
        if [[assigned[t] for t in group] for group in groups] != read or sum(map(len, groups)) < len(assigned):
            return False
        if any(len(group) * _bytes(group[0].dtype) not in COPIES for group in groups):
            return False
        for target, source in ((group[0], assigned[group[0]]) for group in groups):
            assert isinstance(source, Load)
            places = ", ".join(f"{self.name(e.buffer)}, {self.index(self.spell.address(e))}" for e in (target, source))
            self.line(f"{self.spell.use('copy_async')}({places}, {len(groups[0])}, {len(groups[0])})")
        return True

    def neighbours(self, elements: Mapping[Load, object]) -> list[list[Load]]:
        """Groups of elements that are adjacent and aligned together."""
        places: dict[tuple[Buffer, frozenset[tuple[Product, int]]], dict[int, Load]] = {}
        for load in elements:
            address = self.spell.address(load)
            rest = frozenset((p, t) for p, t in address.terms.items() if p)
            places.setdefault((load.buffer, rest), {})[address.terms.get((), 0)] = load
        groups = []
        for (buffer, rest), at in places.items():
            covered: set[int] = set()
            for count in WIDE:
                if count * _bytes(buffer.dtype) > ACCESS or any(
                    multiple(product, times) % count for product, times in rest
                ):
                    continue
                for start in sorted(at):
                    those = range(start, start + count)
                    if start % count == 0 and all(k in at and k not in covered for k in those):
                        covered.update(those)
                        groups.append([at[k] for k in those])
        return groups

    # ------------------------------------------------------------------ local buffers

    def own(self, buffer: Buffer, address: Polynomial) -> Polynomial:
        """The part of an address that says which of a thread's own elements it is.

        Raises EmitError where a thread reaches for what another one has.
        """
        if buffer.scope != "local":
            return address
        which = {p: t for p, t in address.terms.items() if any(variables(atom) & self.threads.keys() for atom in p)}
        named = frozenset((tuple(self._over_axes(atom) for atom in p), t) for p, t in which.items())
        if self.places.setdefault(buffer, named) != named:
            raise EmitError(f"{buffer.name} is local, and a thread reads or writes what is another's: let it be shared")
        return Polynomial({p: t for p, t in address.terms.items() if p not in which})

    def _over_axes(self, atom: Expr) -> Expr:
        if isinstance(atom, Var):
            return Var(self.threads.get(atom, atom.name))
        return substitute(atom, {v: Var(axis) for v, axis in self.threads.items()})


def _dims(stmt: Stmt) -> LaunchDims:
    """The number of threads of a block along each axis."""
    dims = dict.fromkeys(AXES, 1)
    for loop in statements(stmt):
        if isinstance(loop, For) and is_over_threads(loop):
            axis = str(loop.thread)[-1]
            if not isinstance(loop.extent, Const):
                raise EmitError(f"{loop.var.name}: {loop.thread} runs over a number of threads that is not known")
            dims[axis] = max(dims[axis], int(loop.extent.value))
    return dims["x"], dims["y"], dims["z"]


def _is_for_one(stmt: Stmt, block: LaunchDims) -> bool:
    """Whether a statement writes what threads have in common, outside of the loops over them."""
    if block == (1, 1, 1) or is_over_threads(stmt):
        return False
    if isinstance(stmt, Seq):
        return any(_is_for_one(s, block) for s in stmt.stmts)
    return any(isinstance(s, Store) and s.buffer.scope != "local" for s in _outside(stmt))


def _outside(stmt: Stmt) -> Iterator[Stmt]:
    """The statements within one that are in no loop over threads."""
    if not is_over_threads(stmt):
        yield stmt
        for child in inner(stmt):
            yield from _outside(child)


def _count(buffer: Buffer) -> int:
    """The number of elements of a buffer. EmitError where it is not known."""
    total = 1
    for extent, stride in zip(buffer.shape, buffer.row_major, strict=True):
        if not (isinstance(extent, Const) and isinstance(stride, Const)):
            raise EmitError(f"the {buffer.scope} buffer {buffer.name} has no size that is known ahead of time")
        total += (int(extent.value) - 1) * int(stride.value)
    return total


def _bytes(dtype: str) -> int:
    return -(-BITS[dtype] // 8)
