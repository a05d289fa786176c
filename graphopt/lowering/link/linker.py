"""From a lowered graph to what the runtime runs: buffers, steps, and the kernels that they call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from graphopt.errors import LimitError, UsageError, nearest_or_some
from graphopt.ir import infer_shapes
from graphopt.ir.bounds import fact_of
from graphopt.ir.constants import BITS, Array, Constant
from graphopt.ir.facts import Fact
from graphopt.ir.graph import Graph, Value
from graphopt.kernels.kernel import Kernel
from graphopt.lowering.analysis.flops import flops
from graphopt.lowering.cpu.constant_precompute import Prepared
from graphopt.lowering.cpu.weight_packing import Laid
from graphopt.lowering.emit.kernel_source import Emitted, Launchable, LibraryCall, Written
from graphopt.lowering.fuse.groups import Group, group
from graphopt.lowering.fuse.nests import write
from graphopt.lowering.intrinsics.tensor_intrin import buffers_written
from graphopt.lowering.link.control_flow import control
from graphopt.lowering.link.options import BY_RULE, Options
from graphopt.lowering.loops import compute
from graphopt.lowering.loops.expressions import Var, const
from graphopt.lowering.loops.nest import Buffer as NestBuffer
from graphopt.lowering.loops.nest import Nest
from graphopt.lowering.loops.sizes import Symbols, product, size_of, total
from graphopt.lowering.lower.embedded_programs import Called, Placed, inputs_of
from graphopt.lowering.lower.lower import Bodied, Body, Described, Facts, Lowering, Referred, Viewed
from graphopt.lowering.lower.reference import Function, name_of, reference
from graphopt.lowering.operators.indices import equally_many
from graphopt.lowering.operators.operation import DTYPES, NARROW, Sizes
from graphopt.runtime.sizes import Size
from graphopt.runtime.steps import Buffer, Call, Condition, Host, Launch, Library, Place, Port, Ref, Step


@dataclass(frozen=True, slots=True)
class Part:
    """One call, for those who want to look at it: the nest as scheduled, and its kernel."""

    nodes: tuple[str, ...]
    nest: Nest
    emitted: Written

    @property
    def source(self) -> str:
        """The kernel's source, or the call of a library as people write one."""
        return self.emitted.source if isinstance(self.emitted, LibraryCall) else self.emitted.kernel.source


@dataclass(frozen=True, slots=True)
class Work:
    """What is scheduled by rule: a nest with its sizes, and the nodes that it computes a part of."""

    nodes: tuple[str, ...]
    nest: Nest
    sizes: Mapping[Var, Size]


@dataclass(frozen=True, slots=True, eq=False)
class Linked:
    """All of a program but object code: steps call ``kernels`` by number, and Python ``functions`` by name."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    buffers: tuple[Buffer, ...]
    steps: tuple[Step, ...]
    kernels: tuple[Kernel, ...]
    constants: Mapping[int, Array]
    functions: Mapping[str, Function] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    reference: tuple[tuple[str, str, str], ...] = ()
    """Of each node that is left to reference: its name, its op, and why."""
    nests: Mapping[str, Nest] = field(default_factory=dict)
    """The nest of each node that loops compute, by the node's name, before it is scheduled; fused nodes share one."""
    conditions: tuple[Condition, ...] = ()
    """What sizes have to be like."""
    work: tuple[Work, ...] = ()


def link(
    graph: Graph,
    facts: Facts,
    lowered: Mapping[int, Lowering],
    options: Options = BY_RULE,
    begun: Callable[[Kernel], object] | None = None,
) -> Linked:
    """The program of a lowered graph. UsageError where a node is scheduled by hand that has no nest.

    ``begun`` is called with each kernel as soon as it is written.
    """
    made = Linker(options, begun)
    scope = Scope(made, graph, facts, lowered)
    inputs = tuple(scope.port(v) for v in graph.inputs)
    scope.place_outputs()
    steps = tuple(scope.steps())
    for name in options.by_hand:
        if name not in made.fused:
            raise UsageError(f"no nest computes a node {name!r}{nearest_or_some(name, sorted(made.fused))}")
    named = zip(graph.output_names, graph.outputs, strict=True)
    outputs = tuple(Port(name, scope.number(v)) for name, v in named if v is not None)
    return Linked(
        inputs,
        outputs,
        tuple(made.buffers),
        steps,
        tuple(made.kernels),
        made.constants,
        made.functions,
        tuple(made.parts),
        tuple(made.reference),
        dict(made.fused),
        tuple(made.conditions),
        tuple(made.work),
    )


def needed(graph: Graph, lowered: Mapping[int, Lowering]) -> list[int]:
    """The nodes on which the graph's outputs rest, in order: those whose elements somebody reads."""
    wanted = {v for v in graph.outputs if v is not None}
    found: list[int] = []
    for id in reversed(list(lowered)):
        node = lowered[id].node
        if any(v in wanted for v in node.outputs) or graph.has_effects(node):
            found.append(id)
            wanted.update(reads(lowered[id]))
    return found[::-1]


def reads(lowering: Lowering) -> Iterable[Value]:
    """The values of which a node's lowering reads the elements."""
    match lowering:
        case Described():
            return lowering.reads
        case Viewed():
            return (lowering.source,)
    return tuple(v for v in lowering.node.inputs if v is not None)


class Linker:
    """What a program's graph and the bodies in it share: buffers, kernels, functions, names of symbols."""

    def __init__(self, options: Options, begun: Callable[[Kernel], object] | None = None) -> None:
        self.options, self.begun = options, begun
        self.fused: dict[str, Nest] = {}
        self.buffers: list[Buffer] = []
        self.constants: dict[int, Array] = {}
        self.held: dict[Constant, int] = {}
        self.arranged: dict[tuple[Constant, bool], int] = {}
        self.ahead: dict[tuple[Hashable, ...], dict[NestBuffer, int]] = {}
        self.kernels: dict[Kernel, int] = {}
        self.emitted: dict[tuple[Nest, bool], tuple[tuple[Nest, Nest, Written], ...]] = {}
        self.functions: dict[str, Function] = {}
        self.symbols = Symbols()
        self.parts: list[Part] = []
        self.work: list[Work] = []
        self.reference: list[tuple[str, str, str]] = []
        self.conditions: dict[Condition, None] = {}

    def add(self, buffer: Buffer) -> int:
        """The number of a new buffer."""
        self.buffers.append(buffer)
        return len(self.buffers) - 1

    def true(self) -> int:
        """The number of a buffer that holds true."""
        constant = Constant.of(np.array(True))
        return self.constant(constant, fact_of(constant))

    def buffer(self, fact: Fact, place: Place, of: int | None = None) -> int:
        """The number of a new buffer for a value."""
        shape = None if fact.shape is None else tuple(map(self.symbols.size, fact.shape))
        return self.add(Buffer(fact.dtype or "object", shape, place, of))

    def constant(self, constant: Constant, fact: Fact) -> int:
        """The number of the buffer that holds a constant."""
        if constant not in self.held:
            self.held[constant] = self.buffer(fact, "constant")
            try:
                self.constants[self.held[constant]] = np.require(constant.array, requirements=["C", "A"])
            except MemoryError:
                what = f"a constant of the model is {constant.dtype}{list(constant.shape)}"
                raise LimitError(f"{what}: its {constant.array.nbytes / 2**30:.1f} GiB cannot be had") from None
        return self.held[constant]

    def laid(self, constant: Constant, laid: Laid) -> int:
        """The number of the buffer that holds a constant laid out for a nest."""
        key = constant, laid.is_transposed
        if key not in self.arranged:
            array = laid.array(constant.array)
            self.arranged[key] = self.add(Buffer(constant.dtype, array.shape, "constant"))
            self.constants[self.arranged[key]] = array
        return self.arranged[key]

    def prepared(self, ready: Prepared, constants: Mapping[NestBuffer, Constant]) -> dict[NestBuffer, int]:
        """The numbers of the buffers that hold what a nest's constants are made into."""
        key = ready.made, tuple(constants.items()), ready.nest.params
        if key not in self.ahead:
            made = ready.arrays({b: c.array for b, c in constants.items()})
            self.ahead[key] = {b: self.add(Buffer(b.dtype, a.shape, "constant")) for b, a in made.items()}
            self.constants.update((self.ahead[key][b], a) for b, a in made.items())
        return self.ahead[key]

    def emit(self, nest: Nest, is_ready: bool) -> tuple[tuple[Nest, Nest, Written], ...]:
        """The kernels of a nest, scheduled already or not, each with the nest that says how much it does; equal nests
        are scheduled and written once."""
        key = nest, is_ready
        if key not in self.emitted:
            found: list[tuple[Nest, Nest, Written]] = []
            for part in (nest,) if is_ready else self.options.parts(nest):
                made = self.options.emit(part if is_ready else self.options.schedule(part))
                found += [(part if len(made) == 1 else n, n, kernel) for n, kernel in made]
            self.emitted[key] = tuple(found)
        return self.emitted[key]

    def calls(
        self,
        nest: Nest,
        buffers: dict[NestBuffer, int],
        sizes: Mapping[Var, Size],
        label: str,
        nodes: tuple[str, ...],
        is_ready: bool = False,
    ) -> Iterator[Step]:
        """The calls that do what a nest says."""
        if not is_ready:
            self.work += [Work(nodes, part, {v: sizes[v] for v in part.sizes}) for part in self.options.parts(nest)]
        for counted, made, emitted in self.emit(nest, is_ready):
            yield self.call(emitted, buffers, sizes, label, nodes, made, counted)

    def call(
        self,
        emitted: Written,
        buffers: dict[NestBuffer, int],
        sizes: Mapping[Var, Size],
        label: str,
        nodes: tuple[str, ...],
        made: Nest,
        counted: Nest,
    ) -> Step:
        """One call of a kernel; buffers that are not known yet are scratch memory. Its operations are those of
        ``counted``, which says what is done as it was before it was scheduled."""
        for b in emitted.buffers:
            if b not in buffers:
                shape = tuple(size_of(e, sizes) for e in b.shape)
                buffers[b] = self.add(Buffer(b.dtype, shape, "arena"))
        if isinstance(emitted, Emitted) and not self.are_apart(made, buffers):
            emitted = replace(emitted, kernel=replace(emitted.kernel, noalias=False))
        self.parts.append(Part(nodes, made, emitted))
        moved = [product(*(size_of(e, sizes) for e in b.shape), BITS[b.dtype] // 8) for b in emitted.buffers]
        if isinstance(emitted, LibraryCall):
            places = (Ref(buffers[b], product(size_of(e, sizes), BITS[b.dtype] // 8)) for b, e in emitted.places)
            numbers = (size_of(e, sizes) for e in emitted.sizes)
            work = flops(counted, sizes), total(*moved)
            return Library(emitted.name, (*places, *numbers), emitted.attributes, label, nodes, *work)
        if emitted.kernel not in self.kernels and self.begun is not None:
            self.begun(emitted.kernel)
        kernel = self.kernels.setdefault(emitted.kernel, len(self.kernels))
        args = (*(Ref(buffers[b]) for b in emitted.buffers), *(size_of(e, sizes) for e in emitted.sizes))
        told = label, nodes, flops(counted, sizes), total(*moved), emitted.messages
        if isinstance(emitted, Launchable):
            x, y, z = (size_of(e, sizes) for e in emitted.grid)
            return Launch(kernel, args, (x, y, z), emitted.block, *told)
        return Call(kernel, args, size_of(emitted.extent, sizes), emitted.parallel, *told)

    def are_apart(self, nest: Nest, buffers: Mapping[NestBuffer, int]) -> bool:
        """Whether no operand that a nest writes is in the memory of another one. Scratch memory is always apart, and so
        are buffers of the arena that live at once, and outputs from inputs, which programs see to when they are run."""
        roots = Counter(self.root(buffers[b]) for b in nest.buffers)
        return all(roots[self.root(buffers[b])] == 1 for b in buffers_written(nest) if b in nest.buffers)

    def root(self, number: int) -> int:
        """The buffer that owns the memory of another."""
        buffer = self.buffers[number]
        return number if buffer.place != "view" or buffer.of is None else self.root(buffer.of)


class Scope:
    """One graph of a program, or body, with the numbers of the buffers that hold its values."""

    def __init__(
        self, linker: Linker, graph: Graph, facts: Facts, lowered: Mapping[int, Lowering], is_branch: bool = False
    ) -> None:
        self.linker, self.graph, self.facts, self.lowered = linker, graph, facts, lowered
        self.is_branch = is_branch
        self.numbers: dict[Value, int] = {}

    def port(self, value: Value) -> Port:
        """An input of the program."""
        number = self.numbers[value] = self.linker.buffer(self.facts[value], "input")
        default = self.graph.producer(value).attrs.get("default")
        if isinstance(default, Constant):
            self.linker.constants[number] = np.require(default.array, requirements=["C", "A"])
        return Port(self.graph.names[value], number)

    def place_outputs(self) -> None:
        """Let what computes an output of the program write where the caller will read it."""
        for value in dict.fromkeys(v for v in self.graph.outputs if v is not None):
            made = self.lowered.get(value.node)  # nothing makes inputs and constants
            if made is not None and not isinstance(made, Viewed) and is_planned(self.facts[value]):
                self.numbers[value] = self.linker.buffer(self.facts[value], "output")

    def number(self, value: Value) -> int:
        """The number of the buffer that holds a value."""
        if value not in self.numbers:
            constant = self.constant_of(value)
            assert constant is not None, f"{value} is read before it is computed"
            self.numbers[value] = self.linker.constant(constant, self.facts[value])
        return self.numbers[value]

    def constant_of(self, value: Value) -> Constant | None:
        """What a value always is; None where it is computed."""
        return self.graph.constant_of(value) or self.facts[value].constant

    def made(self, value: Value, place: Place) -> int:
        """The number of the buffer that a value is written to."""
        if value not in self.numbers:
            self.numbers[value] = self.linker.buffer(self.facts[value], place)
        return self.numbers[value]

    def steps(self) -> Iterator[Step]:
        """The steps of the graph."""
        order = needed(self.graph, self.lowered)
        groups = {
            g.sink.node.id: g for g in group(self.graph, self.facts, self.lowered, order, self.linker.options.fuse)
        }
        for id in order:
            lowering = self.lowered[id]
            if isinstance(lowering, Described):
                if id in groups:
                    yield from self.nest(groups[id])
            elif isinstance(lowering, Viewed):
                yield from self.view(lowering)
            elif isinstance(lowering, Bodied):
                yield from control(self, lowering)
            elif isinstance(lowering, Placed):
                yield from self.placed(lowering)
            elif isinstance(lowering, Called):
                yield self.called(lowering)
            elif isinstance(lowering, Referred):
                yield self.host(lowering)

    def inner(self, body: Body, is_branch: bool = False) -> Scope:
        """The scope of a body."""
        return Scope(self.linker, body.graph, body.facts, body.lowered, is_branch or self.is_branch)

    def checked(self, lowering: Viewed) -> None:
        """Have a view refused, before anything runs, that is not of the size of what it views."""
        before, after = (self.facts[v].shape for v in (lowering.source, Value(lowering.node.id)))
        if before is None or after is None:
            return
        counts = infer_shapes.product(before), infer_shapes.product(after)
        if counts[0] == counts[1]:
            return
        what = " to ".join(infer_shapes.spell(shape) for shape in (before, after))
        message = f"{name_of(self.graph, lowering.node)}: {lowering.node.op} of {what}"
        self.linker.conditions[Condition(("==", *map(self.linker.symbols.size, counts)), message)] = None

    def view(self, lowering: Viewed) -> Iterator[Step]:
        """What sees to it, in a branch that may not be taken, that a view is of the size of what it views."""
        source, node = self.number(lowering.source), lowering.node
        made = self.numbers[Value(node.id)] = self.linker.buffer(self.facts[Value(node.id)], "view", source)
        if not self.is_branch:  # it is seen to before anything runs
            self.checked(lowering)
            return
        size = Sizes()
        before, after = (tuple(map(size, self.facts[v].shape or ())) for v in (lowering.source, Value(node.id)))
        fits = equally_many(before, after, f"{node.op}: its input has another number of elements than its output")
        if not fits:
            return
        self.linker.buffers[made] = replace(self.linker.buffers[made], tentative=True)
        seen = compute.compute((), lambda: const(True, "bool"), "bool", requirements=fits)
        nest = compute.nest("kernel", [], [seen], tuple(size.variables.values()))
        buffers = {nest.outputs[0]: self.linker.add(Buffer("bool", (), "arena"))}
        sizes: dict[Var, Size] = {var: self.linker.symbols(s) for s, var in size.variables.items()}
        yield from self.linker.calls(nest, buffers, sizes, node.op, (name_of(self.graph, node),))

    def nest(self, group: Group) -> Iterator[Step]:
        """The calls that compute a group."""
        written = write(
            self.graph, self.facts, group, self.is_branch, self.linker.options.is_for_host
        )  # a branch may not be taken
        names = zip(written.nest.sizes, written.sizes, strict=True)
        sizes: dict[Var, Size] = {v: self.linker.symbols(s) for v, s in names}
        nodes = tuple(name_of(self.graph, m.node) for m in group.members)
        label = "+".join(m.node.op for m in group.members)
        known = {v: self.linker.symbols(a) for v, a in written.atoms.items()} if written.conditions else {}
        for check in written.conditions:
            message = f"{', '.join(nodes)}: {check.message}"
            self.linker.conditions[Condition(size_of(check.condition, known), message)] = None
        reads = dict(zip(written.nest.buffers, written.inputs, strict=False))
        constants = {b: c for b, v in reads.items() if (c := self.constant_of(v)) is not None}
        nest, ahead, laid = written.nest, dict[NestBuffer, int](), None
        if not self.linker.options.is_by_hand(nodes):
            plain = {b: c for b, c in constants.items() if b.dtype == c.dtype}
            if (ready := self.linker.options.prepare(nest, plain)) is not None:
                nest, ahead = ready.nest, self.linker.prepared(ready, plain)
            laid = self.linker.options.lay(nest, constants)
        values = dict(zip(written.nest.buffers, (*written.inputs, *written.outputs), strict=True))

        def number(b: NestBuffer) -> int:
            if laid is not None and b == laid.plain:
                return self.linker.laid(constants[b], laid)
            if b in ahead:
                return ahead[b]
            return self.number(values[b]) if b in reads else self.made(values[b], "arena")

        numbers = [number(b) for b in nest.buffers]
        nest = nest if laid is None else laid.nest
        buffers = dict(zip(nest.buffers, numbers, strict=True))
        yield from self.by_hand_or_rule(nest, False, buffers, sizes, label, nodes)
        self.linker.fused.update(dict.fromkeys(nodes, written.nest))  # by hand, it is scheduled with plain operands

    def placed(self, lowering: Placed) -> Iterator[Step]:
        """The calls of the program that a node brings."""
        node, nest = lowering.node, lowering.plain
        given = [None if v is None else self.number(v) for v in node.inputs]
        made = [self.made(v, "arena") for v in node.outputs]
        pairs = zip((*inputs_of(nest), *nest.outputs), (*given, *made), strict=True)
        buffers = {b: n for b, n in pairs if n is not None}
        sizes: dict[Var, Size] = {
            v: self.linker.symbols.size(s) for v, s in zip(nest.sizes, lowering.sizes, strict=True)
        }
        names = (name_of(self.graph, node),)
        yield from self.by_hand_or_rule(nest, lowering.is_ready, buffers, sizes, nest.name, names)

    def by_hand_or_rule(
        self,
        nest: Nest,
        is_ready: bool,
        buffers: dict[NestBuffer, int],
        sizes: Mapping[Var, Size],
        label: str,
        nodes: tuple[str, ...],
    ) -> Iterator[Step]:
        """The calls of a nest, scheduled as the user does it where that is said of one of its nodes."""
        self.linker.fused.update(dict.fromkeys(nodes, nest))
        by_hand = self.linker.options.scheduled_by_hand(nest, nodes)
        if by_hand is not None:
            nest, is_ready = by_hand, True
        yield from self.linker.calls(nest, buffers, sizes, label, nodes, is_ready)

    def called(self, lowering: Called) -> Host:
        """A step that calls a function of the user's, which fills the outputs."""
        node = lowering.node
        name = f"{node.op}_{len(self.linker.functions)}"
        attrs = {n: a.array if isinstance(a, Constant) else a for n, a in node.attrs.items()}
        self.linker.functions[name] = partial(lowering.function, **attrs) if attrs else lowering.function
        inputs = tuple(None if v is None else self.number(v) for v in node.inputs)
        outputs = tuple(self.made(v, "arena") for v in node.outputs)
        label = node.op.replace("::", ".")
        return Host(name, inputs, outputs, True, (), label, (name_of(self.graph, node),))

    def host(self, lowering: Referred) -> Host:
        """A step that computes a node by reference."""
        node, label = lowering.node, name_of(self.graph, lowering.node)
        function = f"{node.op}_{len(self.linker.functions)}"
        self.linker.functions[function] = reference(self.graph, node, self.facts)
        self.linker.reference.append((label, node.op, lowering.reason))
        inputs = tuple(None if v is None else self.number(v) for v in node.inputs)
        outputs = tuple(self.made(v, "host") for v in node.outputs)
        binds = tuple((self.linker.symbols.name(s), port, axis) for s, port, axis in lowering.binds)
        return Host(function, inputs, outputs, False, binds, node.op, (label,))


def is_planned(fact: Fact) -> bool:
    """Whether a value is an array whose size is known before it is computed."""
    return (fact.dtype in DTYPES or fact.dtype in NARROW) and fact.shape is not None
